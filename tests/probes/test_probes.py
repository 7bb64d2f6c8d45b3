"""Each probe against the files or the calls that it reads, and against what these can do wrong."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from pytest_ngraph.machine import gpu
from pytest_ngraph.machine.modes import changed, chosen, power_mode
from pytest_ngraph.probes.catalogue import described, energy_probes, first_of, load_probes
from pytest_ngraph.probes.contract import Count, Unreadable, integrate
from pytest_ngraph.probes.devfreq import DevfreqLoad
from pytest_ngraph.probes.ina3221 import Ina3221
from pytest_ngraph.probes.nvml import NvmlEnergy, NvmlLoad
from pytest_ngraph.probes.rapl import Rapl
from tests.support.fake_nvml import Card, installed
from tests.support.fake_sys import jetson_gpu, orin, put, rail, server, zone


def drawn(probe: Rapl, counter: Path, microjoules: int, seconds: float = 2.0) -> float:
    """Return what a probe says a counter's way to a value was."""
    before = probe.read()
    counter.write_text(str(microjoules))
    return probe.between(before, probe.read(), seconds)


@pytest.fixture
def lone(tmp_path: Path) -> tuple[Rapl, Path]:
    """A machine with one package and no memory that is counted."""
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 5_000_000, wraps_at=65_532_610_987)
    return Rapl(tmp_path / "class/powercap"), counter


def test_packages_and_memory_are_added_and_nothing_is_added_twice(tmp_path: Path) -> None:
    counters, probe = server(tmp_path), Rapl(tmp_path / "class/powercap")
    before = probe.read()
    assert [name.partition(" ")[0] for name in before] == ["package-0", "dram", "package-1"]
    for path in counters.values():
        path.write_text(str(int(path.read_text()) + 30_000_000))
    assert probe.between(before, probe.read(), 2.0) == pytest.approx(90.0)
    assert probe.covers == "the CPU packages and their memory, of the whole machine and not of one process"
    assert probe.why_not() == ""


def test_a_counter_that_begins_again_once_is_read_across(lone: tuple[Rapl, Path]) -> None:
    probe, counter = lone
    counter.write_text("65532000000")
    assert drawn(probe, counter, 99_389_013) == pytest.approx(100.0)


def test_a_window_in_which_a_counter_could_begin_again_twice_is_too_long(lone: tuple[Rapl, Path]) -> None:
    probe, counter = lone
    with pytest.raises(Unreadable, match=r"which 1000 W reach in 65.5 s: a window of 66 s is too long"):
        drawn(probe, counter, 6_000_000, seconds=66.0)


@pytest.mark.parametrize(
    ("microjoules", "said"),
    [
        (5_000_000, "stood still at 5 J for 2 s"),
        (4_000_000, "went backwards, from 5 to 4 J"),
        (9_000_000_000, r"jumped by 8995 J in 2 s, more than 1000 W"),
    ],
)
def test_a_counter_that_cannot_be_true_is_no_energy(lone: tuple[Rapl, Path], microjoules: int, said: str) -> None:
    probe, counter = lone
    with pytest.raises(Unreadable, match=f"package-0 .*{said}"):
        drawn(probe, counter, microjoules)


def test_memory_that_stands_still_is_not_left_out_in_silence(tmp_path: Path) -> None:
    counters, probe = server(tmp_path), Rapl(tmp_path / "class/powercap")
    before = probe.read()
    for name in ("package-0", "package-1"):
        counters[name].write_text("30000000")
    with pytest.raises(Unreadable, match=r"dram .* stood still"):
        probe.between(before, probe.read(), 2.0)


def test_a_zone_that_goes_away_or_comes_is_no_energy(tmp_path: Path) -> None:
    counters, probe = server(tmp_path), Rapl(tmp_path / "class/powercap")
    before = probe.read()
    (counters["package-1"].parent / "name").unlink()
    with pytest.raises(Unreadable, match=r"package-1 \(intel-rapl:1\) was there for one reading only"):
        probe.between(before, probe.read(), 2.0)
    counters["package-0"].unlink()
    with pytest.raises(Unreadable, match="energy_uj: No such file or directory"):
        probe.read()
    assert "No such file" in probe.why_not()


@pytest.mark.parametrize("text", ["", "nan", "12 J", "1.5"])
def test_what_is_no_number_is_no_energy(lone: tuple[Rapl, Path], text: str) -> None:
    probe, counter = lone
    counter.write_text(text)
    assert "is no number" in probe.why_not()


def test_without_rapl_it_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert Rapl(tmp_path / "none").why_not().endswith("a virtual machine, a container, or a CPU without RAPL")
    (tmp_path / "class/powercap").mkdir(parents=True)
    assert Rapl(tmp_path / "class/powercap").why_not().endswith("has no CPU package")
    counter = zone(tmp_path, "intel-rapl:0", "package-0", 1)
    counter.unlink()
    # Unreadable for everybody, root too.
    counter.symlink_to(counter)
    assert "energy_uj" in Rapl(tmp_path / "class/powercap").why_not()


def test_the_module_is_its_input_rail_and_no_other(tmp_path: Path) -> None:
    current, probe = orin(tmp_path), Ina3221(tmp_path / "class/hwmon")
    assert probe.read() == pytest.approx(4.96 * 1.2)
    assert probe.covers == "the whole Jetson module by its input rail VDD_IN (hwmon1, channel 1), not its carrier"
    assert set(probe.rails()) == {"VDD_IN", "VDD_CPU_GPU_CV", "VDD_SOC"}
    current.unlink()
    assert "VDD_CPU_GPU_CV, VDD_SOC, none of which is known to feed the whole module" in probe.why_not()


def test_rails_of_which_none_feeds_the_module_are_not_added_up(tmp_path: Path) -> None:
    for channel, label in enumerate(("VDD_GPU_SOC", "VDD_CPU_CV", "VIN_SYS_5V0"), 1):
        rail(tmp_path, "hwmon3", channel, label, 5000, 1000)
    assert "has the rails VDD_CPU_CV, VDD_GPU_SOC, VIN_SYS_5V0" in Ina3221(tmp_path / "class/hwmon").why_not()
    assert Ina3221(tmp_path / "none").why_not().endswith("not a Jetson")


def test_the_load_of_a_jetsons_gpu(tmp_path: Path) -> None:
    path = jetson_gpu(tmp_path, 437)
    probe = DevfreqLoad(tmp_path / "class/devfreq")
    assert (probe.read(), probe.covers) == (0.437, "the GPU 17000000.ga10b, all of its processes")
    path.write_text("1001")
    assert "expected thousandths" in probe.why_not()
    path.unlink()
    assert probe.why_not().endswith("not a Jetson")


def test_a_gpu_counts_its_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(energy_millijoules=iter([1_000_000, 1_400_000]).__next__)
    with installed(monkeypatch, card):
        probe = NvmlEnergy("cuda:0")
        assert probe.between(probe.read(), probe.read(), 2.0) == pytest.approx(400.0)


def test_a_driver_that_came_up_anew_is_no_energy(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Card(energy_millijoules=iter([1_000_000, 7]).__next__)):
        probe = NvmlEnergy("cuda:0")
        with pytest.raises(Unreadable, match="the energy counter of cuda:0 went backwards"):
            probe.between(probe.read(), probe.read(), 2.0)


@pytest.mark.parametrize(
    ("cards", "said"),
    [([], "there is no GPU cuda:0"), ([Card(refused={"nvmlDeviceGetTotalEnergyConsumption"})], "Not Supported")],
)
def test_a_gpu_without_a_counter_says_why(monkeypatch: pytest.MonkeyPatch, cards: list[Card], said: str) -> None:
    with installed(monkeypatch, *cards):
        assert said in NvmlEnergy("cuda:0").why_not()


def test_the_load_of_a_gpu_names_others(monkeypatch: pytest.MonkeyPatch) -> None:
    busy = [(11, 100, 90), (12, 200, 40)]
    with installed(monkeypatch, Card(utilisation_percent=lambda: 73, busy=lambda: busy)):
        probe = NvmlLoad("cuda:0")
        assert (probe.why_not(), probe.read()) == ("", 0.73)
        assert probe.others([11]) == "pid 12 (40%)"
        assert probe.others([11]) == ""
        busy.append((12, 300, 50))
        # None of ours among them: in a container numbers mean nothing.
        assert probe.others([11]) == ""


def test_nobody_but_us_on_a_gpu_is_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch, Card()):
        _, since = gpu.find("cuda:0").busy_processes(5)
        assert (since, NvmlLoad("cuda:0").others([1])) == (5, "")


def test_samples_are_added_up_by_trapezoids() -> None:
    ramp = [(at / 10, float(at)) for at in range(41)]
    assert integrate(ramp, 0.0, 4.0, 0.1) == pytest.approx(80.0)
    # Those outside of the window are none of it.
    assert integrate([(-1.0, 900.0), *ramp, (5.0, 900.0)], 0.0, 4.0, 0.1) == pytest.approx(80.0)


@pytest.mark.parametrize(
    ("samples", "said"),
    [
        ([], "0 readings"),
        ([(0.1, 5.0)], "1 readings"),
        ([(0.1, 5.0), (0.2, 5.0)], "was not read for 3.8 s of 4 s"),
        ([(at / 10, 0.0) for at in range(41)], "stood at 0 W"),
        ([(at / 10, -1.0) for at in range(41)], "is no power"),
        ([(at / 10, math.nan) for at in range(41)], "is no power"),
    ],
)
def test_too_few_samples_are_no_energy(samples: list[tuple[float, float]], said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        integrate(samples, 0.0, 4.0, 0.1)


def test_windows_are_a_hundred_updates_long() -> None:
    assert Rapl().window_seconds == 2.0
    assert NvmlEnergy("cuda:0").window_seconds == pytest.approx(10.0)
    assert Ina3221().window_seconds == pytest.approx(5.0)


@pytest.mark.parametrize(
    ("files", "seconds"),
    [
        ({}, 0.05),
        ({"update_interval": 7, "samples": 1}, 0.05),
        # Of newer kernels one conversion, of older ones all that are averaged.
        ({"update_interval": 7, "samples": 64}, 0.448),
        ({"update_interval": 422, "samples": 64}, 0.422),
        ({"update_interval": 7}, 0.05),
        ({"update_interval": "none"}, 0.05),
    ],
)
def test_windows_on_a_module_are_as_long_as_its_driver_averages(
    files: dict[str, object], seconds: float, tmp_path: Path
) -> None:
    orin(tmp_path)
    for name, said in files.items():
        put(tmp_path / "class/hwmon/hwmon1" / name, said)
    assert Ina3221(tmp_path / "class/hwmon").resolution_seconds == pytest.approx(seconds)


def test_a_step_of_a_module_is_that_of_both_its_registers(tmp_path: Path) -> None:
    orin(tmp_path)
    probe, folder = Ina3221(tmp_path / "class/hwmon"), tmp_path / "class/hwmon/hwmon1"
    # Whose pace nobody says may stand still.
    put(folder / "shunt1_resistor", 5000)
    assert probe.step_watts() is None
    put(folder / "update_interval", 7)
    # 40 uV at 5 mOhm are 8 mA.
    assert probe.step_watts() == pytest.approx(4.96 * 0.008 + 1.2 * 0.008)
    put(folder / "shunt1_resistor", 0)
    assert probe.step_watts() is None


def test_the_input_of_a_module_comes_before_a_part_of_it(tmp_path: Path) -> None:
    server(tmp_path)
    probe, _ = first_of(energy_probes("cpu", tmp_path))
    assert probe is not None
    assert probe.name == "rapl"
    orin(tmp_path)
    probe, _ = first_of(energy_probes("cpu", tmp_path))
    assert probe is not None
    assert probe.name == "ina3221"


def test_where_nothing_can_be_read_each_probe_says_why(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with installed(monkeypatch):
        probe, why = first_of(energy_probes("cuda:0", tmp_path))
        assert probe is None
        assert why.startswith("ina3221: no INA3221 below ")
        assert "; nvml: there is no GPU cuda:0" in why
        assert all("no: " in line for line in described("cuda:0", tmp_path))
    assert load_probes("cpu", tmp_path) == []


def test_a_count_needs_no_range() -> None:
    assert Count(5.0, 100.0).since(Count(1.0, 100.0), 1.0, "it") == 4.0


def test_a_change_of_the_power_mode_is_said_by_its_parts(tmp_path: Path) -> None:
    for cpu in (0, 1):
        put(tmp_path / f"sys/devices/system/cpu/cpufreq/policy{cpu}/scaling_governor", "schedutil")
    status = put(tmp_path / "var/lib/nvpmodel/status", "pmode:0000 fmode:fanNull")
    before = power_mode(tmp_path)
    assert before == {"governor": "schedutil", "nvpmodel": "pmode:0000 fmode:fanNull"}
    assert changed(before, power_mode(tmp_path)) == ""
    status.write_text("pmode:0002 fmode:fanNull")
    put(tmp_path / "sys/devices/system/cpu/cpufreq/policy1/scaling_governor", "powersave")
    assert changed(before, power_mode(tmp_path)) == (
        "the power mode changed midway: governor from schedutil to schedutil, powersave; "
        "nvpmodel from pmode:0000 fmode:fanNull to pmode:0002 fmode:fanNull"
    )
    # A device of before says nothing of it.
    assert changed(None, before) == changed({}, before) == ""


def test_what_somebody_chose_of_a_power_mode_is_told_from_what_heat_does(tmp_path: Path) -> None:
    """Launches are kept by it: what jetson_clocks or another nvpmodel changes is another machine, a hot one is not."""
    policy = "sys/devices/system/cpu/cpufreq/policy0"
    put(tmp_path / f"{policy}/scaling_governor", "schedutil")
    highest, lowest = (
        put(tmp_path / f"{policy}/scaling_max_freq", "2201600"),
        put(tmp_path / f"{policy}/scaling_min_freq", "115200"),
    )
    gpu_lowest = put(tmp_path / "sys/class/devfreq/17000000.gpu/min_freq", "306000000")
    put(tmp_path / "sys/class/devfreq/17000000.gpu/max_freq", "930750000")
    status = put(tmp_path / "var/lib/nvpmodel/status", "pmode:0000 fmode:quiet")
    free = {"governor": "schedutil", "nvpmodel": "0000", "CPU clocks": "free", "device clocks": "free"}
    assert chosen(power_mode(tmp_path)) == free

    highest.write_text("1190400")
    status.write_text("pmode:0000 fmode:cool")
    assert chosen(power_mode(tmp_path)) == free

    before = power_mode(tmp_path)
    lowest.write_text("1190400")
    assert chosen(power_mode(tmp_path)) == {**free, "CPU clocks": "locked"}
    assert changed(before, power_mode(tmp_path)) == "the power mode changed midway: CPU clocks from free to locked"
    gpu_lowest.write_text("930750000")
    status.write_text("pmode:0002 fmode:cool")
    assert chosen(power_mode(tmp_path)) == {
        **free, "nvpmodel": "0002", "CPU clocks": "locked", "device clocks": "locked"
    }  # fmt: skip
    assert chosen({}) == {}

"""Passes for power with real workers, on a machine whose counter is a file that is written when it is read."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from pathlib import Path
from threading import enumerate as enumerate_threads
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.checks.oversight import CpuAccount
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine.speed import Speed
from pytest_ngraph.passes.metering import Meters
from pytest_ngraph.passes.power import Course, _Pass, power_pass
from pytest_ngraph.probes import catalogue, freshness
from pytest_ngraph.probes.contract import LoadSensor, PowerSensor, Unreadable
from pytest_ngraph.probes.ina3221 import Ina3221
from pytest_ngraph.probes.nvml import NvmlEnergy
from pytest_ngraph.probes.rapl import Rapl
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Outcome, Workload
from pytest_ngraph.spec.resources.power import Power
from pytest_ngraph.workloads.kinds import parse_model
from tests.support.fake_machine import Machine, attach
from tests.support.fake_sys import orin, put
from tests.support.measuring import SMALL, build, cell, job, nothing_left_behind

pytestmark = pytest.mark.real
SHORT = Course(blocks=2, window_seconds=0.12, settle_seconds=0.02)
MODEL = """
import torch
from torch import nn

class Model(nn.Sequential):
    def __init__(self):
        super().__init__(*[nn.Linear(256, 256) for _ in range(8)])

    def example_inputs(self, batch):
        return torch.randn(batch, 64, 256)
"""
FAST, SLOW = cell("null[fixed_us=500]"), cell("null[fixed_us=5000]", batch=4)


@pytest.fixture
def machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """A machine that draws 10 W, and 100 W more for each CPU that workers keep busy; what else runs is none of it."""
    made = Machine(tmp_path)
    attach(made, monkeypatch.setattr)
    return made


def meters(folder: Path) -> Meters:
    return Meters(Rapl(folder / "sys/class/powercap"), None, why_no_load="none here")


def measured(folder: Path, *cells: object, **named: object) -> list[CompileRecord]:
    with nothing_left_behind():
        return power_pass(
            job(folder),
            cells,  # type: ignore[arg-type]
            SMALL,
            1,
            lambda doing, done, total: None,
            **{"meters": meters(folder), "course": SHORT, **named},  # type: ignore[arg-type]
        )


def power_of(record: CompileRecord) -> Power:
    assert record.outcome is Outcome.OK, record.reason
    assert record.power is not None
    return record.power


def test_cells_and_the_idle_machine_are_measured_in_turn(tmp_path: Path, machine: Machine) -> None:
    doings: list[str] = []
    records = power_pass(
        job(tmp_path),
        [FAST, SLOW],
        SMALL,
        1,
        lambda doing, *_: doings.append(doing),
        meters=meters(tmp_path),
        course=SHORT,
    )
    fast, slow = map(power_of, records)
    assert fast.invalid == ""
    assert fast.covers.startswith("rapl: the CPU packages, not their memory")
    assert fast.idle == slow.idle
    for power in (fast, slow):
        assert [window.block for window in power.busy] == [0, 1] == [window.block for window in power.idle]
        assert all(window.seconds >= 0.12 and window.samples for window in power.busy)
        assert power.idle_watts < power.busy_watts
        assert power.contradiction == ""
    # A sample of the other takes 2.5 times as long; in one of two windows others may have the CPU.
    assert max(window.samples for window in fast.busy) > min(window.samples for window in slow.busy)
    assert all(window.samples % 4 == 0 for window in slow.busy)
    turns = [doing for doing in doings if doing.startswith("measuring power of")]
    assert turns[:3] == turns[3:][::-1]


@pytest.mark.parametrize(
    ("axes", "each", "request_ns", "completed"),
    [
        ({}, 2, (), 6),
        ({"decode": 3}, 2, (1,) * 24, 6),  # Four tokens a call.
        ({"scenario": "throughput"}, 8, (1,) * 24, 28),  # Four in flight, two turns a batch.
    ],
)
def test_tokens_are_not_counted_as_calls_that_were_in_flight(
    axes: dict[str, Any], each: int, request_ns: tuple[int, ...], completed: int, tmp_path: Path
) -> None:
    asked = replace(FAST, workload=replace(FAST.workload, **axes))
    nothing = dict.fromkeys(("cpu_ns", "run_delay_ns", "faults"), ())
    answer = {"ok": True, "calls": each, "wall_ns": (90, 90, 90), "request_ns": request_ns, **nothing}
    one = _Pass(job(tmp_path), [asked], SMALL, 1, {}, meters(tmp_path), SHORT)
    one._calls[asked] = 2
    client = SimpleNamespace(request=lambda *args, **named: answer, cpu=CpuAccount(os.getpid()))
    one._ready[asked] = SimpleNamespace(client=client)  # type: ignore[assignment]
    assert one._watched(asked, 0.1) == completed


def test_calls_that_generate_tokens_are_counted_and_no_more(tmp_path: Path, machine: Machine) -> None:
    plain = cell("null[fixed_us=50000]")
    (record,) = measured(tmp_path, replace(plain, workload=replace(plain.workload, decode=2)))
    for window in power_of(record).busy:
        assert window.samples
        # Each of them takes that long at least.
        assert window.samples * 0.05 <= window.seconds


def test_a_counter_that_goes_away_midway_makes_the_pass_invalid(tmp_path: Path, machine: Machine) -> None:
    def progress(doing: str, done: int, total: int) -> None:
        if doing.startswith("measuring") and done == 1:
            machine.counter.unlink()

    (record,) = power_pass(job(tmp_path), [FAST], SMALL, 1, progress, meters=meters(tmp_path), course=SHORT)
    assert power_of(record).invalid.startswith("a probe failed midway: ")
    assert "No such file or directory" in power_of(record).invalid


@pytest.mark.parametrize("does", ["still", "slow"])
def test_a_counter_that_stops_midway_makes_the_pass_invalid(tmp_path: Path, machine: Machine, does: str) -> None:
    def progress(doing: str, done: int, total: int) -> None:
        if doing.startswith("measuring") and done == 1:
            machine.does = does

    (record,) = power_pass(job(tmp_path), [FAST], SMALL, 1, progress, meters=meters(tmp_path), course=SHORT)
    assert "package-0 (intel-rapl:0) stood still" in power_of(record).invalid


@pytest.mark.parametrize("does", ["still", "slow"])
def test_a_counter_that_is_not_of_now_starts_no_worker(
    tmp_path: Path, machine: Machine, does: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.does = does
    monkeypatch.setattr(freshness, "LOOK_SECONDS", 0.5)
    asked = cell("bad[at=prepare,kind=hang]")
    (record,) = power_pass(job(tmp_path), [asked], SMALL, 1, lambda *_: None, meters=meters(tmp_path), course=SHORT)
    power = power_of(record)
    assert not power.has_energy
    assert re.match(
        r"no probe of energy: (package-0 .* stood still|rapl changes every .* 30 s is the most)", power.why_no_energy
    )


def test_the_rail_of_a_module_is_sampled(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    orin(tmp_path / "other")
    probe = Ina3221(tmp_path / "other/class/hwmon")
    monkeypatch.setattr(Ina3221, "resolution_seconds", 0.01)
    (record,) = measured(tmp_path, FAST, meters=Meters(probe, None))
    power = power_of(record)
    assert power.idle_watts == pytest.approx(4.96 * 1.2)
    # A constant rail says that nothing of it is the cell's.
    assert power.contradiction == "the idle machine drew 5.952 W and 5.952 W while calls ran"


def test_a_cell_is_held_to_what_timed_launches_are_held_to(
    tmp_path: Path, machine: Machine, forked_workers: None
) -> None:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    workload = Workload(parse_model("model.py:Model", (tmp_path,)))
    refused = {
        "cached": "its calls are faster on inputs it has seen",
        "fast_clock": "the clock in its process does not show the time",
    }
    asked = [Cell("local", CompilerSpec.parse(f"cheat[do={do}]"), workload) for do in (*refused, "nothing")]
    build(job(tmp_path), asked[0])
    for one, said in zip(asked, (*refused.values(), ""), strict=True):
        (record,) = measured(tmp_path, one)
        assert said in record.reason
        assert record.outcome is (Outcome.FAILED if said else Outcome.OK), record.reason


def test_clocks_are_noted_beside(tmp_path: Path, machine: Machine) -> None:
    put(tmp_path / "sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq", 2_400_000)
    noting = replace(meters(tmp_path), speed=Speed((0,), tmp_path))
    (record,) = measured(tmp_path, FAST, meters=noting)
    power = power_of(record)
    assert {window.megahertz for window in (*power.busy, *power.idle)} == {2400.0}
    assert power.update_seconds is not None
    assert 0.001 <= power.update_seconds < 10


def test_joules_of_others_are_not_the_cells(tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    began = time.monotonic()
    busy = lambda cpus: 10 * (time.monotonic() - began)  # noqa: E731 - ten CPUs
    monkeypatch.setattr(environment, "busy_seconds", busy)
    (record,) = measured(tmp_path, FAST)
    power = power_of(record)
    assert power.invalid.startswith("other processes kept ")
    assert power.invalid.endswith("CPUs busy, whose joules were counted, too")
    assert power.others_cpus is not None
    assert power.others_cpus > 5


def test_a_probe_of_a_gpu_is_said_to_count_no_joules_of_others(
    tmp_path: Path, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not NvmlEnergy("cuda:0").counts_cpus
    began = time.monotonic()
    busy = lambda cpus: 10 * (time.monotonic() - began)  # noqa: E731 - ten CPUs
    monkeypatch.setattr(environment, "busy_seconds", busy)
    monkeypatch.setattr(Rapl, "counts_cpus", False)
    (record,) = measured(tmp_path, FAST)
    assert power_of(record).invalid.endswith("CPUs busy, for which calls had to wait")


def test_without_a_probe_no_worker_is_started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalogue, "SYS", tmp_path)
    (record,) = power_pass(job(tmp_path), [cell("bad[at=prepare,kind=hang]")], SMALL, 1, lambda *_: None)
    power = power_of(record)
    assert (power.has_energy, power.busy) == (False, ())
    assert power.why_no_energy.startswith("no probe of energy: ina3221: ")
    assert "a virtual machine, a container, or a CPU without RAPL" in power.why_no_energy


def test_a_cell_that_fails_has_no_energy_and_neither_have_the_others(tmp_path: Path, machine: Machine) -> None:
    broken = cell("no-such-compiler")
    one, other = measured(tmp_path, FAST, broken)
    assert other.outcome is not Outcome.OK
    assert one.power is not None
    assert one.power.invalid == f"{broken.label} failed in the pass"


def test_a_record_is_what_was_written(tmp_path: Path, machine: Machine) -> None:
    (record,) = measured(tmp_path, FAST)
    assert CompileRecord.from_json(record.to_json()) == record
    assert "power" not in CompileRecord(Outcome.OK).to_json()


def test_windows_are_as_long_as_the_probe_needs(tmp_path: Path) -> None:
    course = Course.of(SMALL, meters(tmp_path))
    assert (course.blocks, course.window_seconds, course.settle_seconds) == (4, 2.0, 1.0)


def test_a_sensor_that_fails_leaves_no_other_reading() -> None:
    class Fails(PowerSensor):
        name, covers, resolution_seconds = "fails", "nothing", 0.001

        def why_not(self) -> str:
            return ""

        def read(self) -> float:
            raise Unreadable("gone")

    class Busy(LoadSensor):
        name, covers, resolution_seconds = "busy", "nothing", 0.001

        def why_not(self) -> str:
            return ""

        def read(self) -> float:
            return 0.5

    opened = Meters(Fails(), Busy()).open()
    time.sleep(0.01)
    with pytest.raises(Unreadable, match="gone"):
        opened.close()
    assert not [thread.name for thread in enumerate_threads() if thread.name.startswith("probe ")]

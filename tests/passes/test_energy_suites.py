"""Energy, memory and utilisation end to end: suites on a machine whose counters advance with what its workers do.

It draws 10 W idle and 100 W more for each busy CPU (``tests/support/fake_machine.py``): a call that keeps a CPU busy
takes energy, one that sleeps takes none of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import Suite, skip_without
from tests.support.fake_machine_agent import PLACE, VARIABLE
from tests.support.fake_sys import put
from tests.support.lab import Lab

HEAD = """
from pytest_ngraph import assert_cpu_usage, assert_energy, assert_gpu_utilisation, assert_memory

BUSY, ASLEEP = "drawing", "drawing[do=sleep]"
"""
# Busy or asleep for 2 ms a call. What it is to change of the machine it changes when it is compiled, each time.
ADAPTER = """
import os
from pathlib import Path
from time import perf_counter_ns, sleep

from pytest_ngraph import Compiler, Executable, Option

# However often a launch compiles, none of these comes back to what it was.
FILES = {
    "governor": (
        "sys/devices/system/cpu/cpufreq/policy0/scaling_governor",
        lambda mode: "powersave" if mode == "performance" else f"{mode}_more",
    ),
    "clock": ("sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", lambda mode: str(int(mode) // 2)),
    "nvpmodel": ("var/lib/nvpmodel/status", lambda mode: f"pmode:{int(mode[6:10]) + 2:04d} fmode:quiet"),
}


class Drawing(Executable):
    placement = {"provider": "drawing"}

    def __init__(self, do):
        self._do = do

    def bind(self, inputs):
        pass

    def run(self):
        if self._do == "sleep":
            sleep(0.002)
            return
        end = perf_counter_ns() + 2_000_000
        while perf_counter_ns() < end:
            pass

    def outputs(self):
        return None


class Adapter(Compiler):
    name = "drawing"
    reads = "nothing"
    accelerators = ("cpu", "cuda")
    options = (Option("do", "work", "What a call does, or what compiling changes", choices=("work", "sleep", *FILES)),)

    def compile(self, workload, device, options):
        do = options["do"]
        if do == "sleep":
            # From here on the machine draws what it draws idle.
            (Path(os.environ["NGRAPH_TESTS_MACHINE"]) / "flat").touch()
        if do in FILES:
            name, changed = FILES[do]
            path = Path(os.environ["NGRAPH_TESTS_MACHINE"]) / name
            path.write_text(changed(path.read_text().strip()))
        return Drawing(do)


ADAPTER = Adapter()
"""
CONFTEST = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("drawing", "adapters:ADAPTER")
"""
GATES = ("--ngraph-protocol=gate", "--ngraph-baseline=drawing", "--ngraph-inconclusive=warn", "-Wdefault::UserWarning")
MODES = [
    f"""
@pytest.mark.ngraph(model="block:conv", compilers=["drawing[do={what}]"])
def test_{what}(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=0.001)
"""
    for what in ("governor", "clock", "nvpmodel")
]


# Launches were invalid for each part of the mode, and nothing was judged by their times.
CHANGED = (
    "does not count: the power mode changed midway: ",
    "governor from performance to powersave",
    r"highest clock \(kHz\) from 2000000 to 1000000",
    "nvpmodel from pmode:0000 fmode:quiet to pmode:0002 fmode:quiet",
)


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The root of a machine in its first power mode."""
    folder = tmp_path / "machine"
    put(folder / "sys/devices/system/cpu/cpufreq/policy0/scaling_governor", "performance")
    put(folder / "sys/devices/system/cpu/cpufreq/policy0/scaling_max_freq", "2000000")
    put(folder / "var/lib/nvpmodel/status", "pmode:0000 fmode:quiet")
    monkeypatch.setenv(VARIABLE, str(folder))
    return folder


def said(result: pytest.RunResult, *patterns: str) -> None:
    """Check that a run has said each of these, wherever its lines end."""
    text = " ".join(result.stdout.str().split())
    for pattern in patterns:
        assert re.search(pattern, text), f"{pattern}\n{result.stdout.str()}"


def drawing(suite: Suite, source: str) -> None:
    """Write a suite and the adapter that it measures."""
    (suite.path / "adapters.py").write_text(ADAPTER)
    (suite.path / "conftest.py").write_text(CONFTEST)
    suite.write(HEAD + source)


def ran(suite: Suite, *arguments: str, plugins: str = "") -> pytest.RunResult:
    return suite.bare(*GATES, *arguments, plugins=f"{plugins} tests.support.fake_machine")


@pytest.mark.measures
def test_claims_about_what_a_cell_takes_pass_fail_and_stay_open(suite: Suite, root: Path) -> None:
    drawing(
        suite,
        """
@pytest.mark.ngraph(model="block:conv", batch=4, compilers=[BUSY])
class TestBusy:
    def test_holds(self, ngraph_cell):
        # 2 ms at 110 W at most, over four samples.
        assert 1e-3 < assert_energy(ngraph_cell, at_most=0.5).value < 0.5
        assert_energy(ngraph_cell, of="above_idle", at_most=0.5)
        assert_memory(ngraph_cell, phase="running", at_most=50e9)
        assert ngraph_cell.idle_watts.value == pytest.approx(10, rel=0.3)

    def test_takes_more(self, ngraph_cell):
        assert_energy(ngraph_cell, at_most=1e-6)

    def test_needs_more_memory(self, ngraph_cell):
        assert_memory(ngraph_cell, phase="running", at_most=1000)

    def test_has_no_gpu(self, ngraph_cell):
        assert_gpu_utilisation(ngraph_cell, at_least=1)

    def test_has_joules_and_no_gpu(self, ngraph_cell):
        assert ngraph_cell.why_null("joules_per_sample") == ""
        assert ngraph_cell.why_null("gpu_utilisation_percent").startswith("the device computes on CPUs")


@pytest.mark.ngraph(model="block:conv", compilers=[ASLEEP])
def test_asleep(ngraph_cell):
    assert_energy(ngraph_cell, of="above_idle", at_most=1e9)
""",
    )
    result = ran(suite)
    said(
        result,
        "2 failed, 2 passed, 2 undecided in",
        r"AssertionError: energy [\d.]+ mJ > 1.00 µJ: assert_energy: Energy of a sample of local:drawing",
        r"AssertionError: run_peak_memory_bytes [\d.]+ MiB > 1000 B: assert_memory",
        "why: the device computes on CPUs: its load is cpu_percent",
        "the idle machine drew .* while calls ran.* so that these joules are not known to be the cell's",
        "measured by rapl: the CPU packages, not their memory",
    )


def test_a_jetson_by_its_rail_and_its_load(suite: Suite, root: Path) -> None:
    put(root / "jetson", "")
    drawing(
        suite,
        """
@pytest.mark.ngraph(model="block:conv", compilers=[BUSY])
def test_board(ngraph_cell):
    assert_energy(ngraph_cell, at_most=5.0)
    assert_gpu_utilisation(ngraph_cell, at_least=5)
    assert ngraph_cell.why_null("gpu_utilisation_percent") == ""
""",
    )
    result = ran(suite, "--ngraph-device=cuda")
    said(
        result,
        "1 passed in",
        r"measured by ina3221: the whole Jetson module by its input rail VDD_IN \(hwmon1, channel 1",
    )


def test_a_launch_in_which_the_power_mode_changes_does_not_count(suite: Suite, root: Path) -> None:
    drawing(suite, "".join(MODES))
    done = ran(suite, plugins="tests.support.brief tests.support.undelayed")
    said(done, "3 undecided in", "verdicts: 3 invalid", *CHANGED)


@pytest.fixture(scope="module")
def far(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lab]:
    """A lab whose agent is on a machine that counts what it draws: the root is in the variable by then."""
    skip_without("distributed", "cryptography")
    with Lab(tmp_path_factory.mktemp("far"), agents="tests.support.fake_machine_agent") as made:
        made.start_hub()
        yield made


@pytest.mark.lab
def test_power_is_measured_on_a_remote_device(far: Lab, suite: Suite, root: Path) -> None:
    (far.folder / PLACE).write_text(str(root))
    far.start_agent("board")
    drawing(
        suite,
        """
@pytest.mark.ngraph(model="block:conv", compilers=[BUSY])
def test_there(ngraph_cell):
    assert assert_energy(ngraph_cell, at_most=5.0).value > 1e-3
    assert_gpu_utilisation(ngraph_cell, at_least=1)
"""
        + MODES[-1],
    )
    plugins = "tests.support.brief tests.support.fake_machine"
    elsewhere = (f"--ngraph-config={far.registry('board')}", "--ngraph-device=board")
    result = suite.bare(*GATES, *elsewhere, plugins=plugins)
    measured = ("measured by rapl: the CPU packages", "its load is cpu_percent")
    said(result, "2 undecided in", "1 pass", "1 invalid", *measured, CHANGED[-1])

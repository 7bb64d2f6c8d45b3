"""Null in its own time (tests/support/own_time.py): what others do is in none of its times."""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.compilers.decoding import Decoding
from pytest_ngraph.compilers.null import NullDecoder, NullExecutable
from pytest_ngraph.launches.client import WorkerClient
from pytest_ngraph.machine import clock
from pytest_ngraph.worker import timing, worker
from tests import conftest
from tests.conftest import Suite
from tests.support import bad_compilers, faltering, workers
from tests.support.measuring import SMALL, cell, job
from tests.support.own_time_worker import OwnTimed, by_own_time, takes_own_time

MODULE = OwnTimed.__module__
HELD_SECONDS = 0.02


class Interrupted(NullExecutable):
    """Something else has its CPU within each call."""

    def synchronize(self) -> None:
        time.sleep(HELD_SECONDS)


class SaysSo(Interrupted):
    """It waits by the clock that null asks, and computes in its own thread."""

    takes_own_time = True


class Still:
    has_run_delay = True

    def read(self) -> tuple[int, int, int]:
        return 0, 0, 0


def shortest_ns() -> int:
    """Return the shortest of some calls of a millisecond that are interrupted for twenty more."""
    how: dict[str, Any] = {"calls": 1, "seconds": 0.0, "least_batches": 3, "discard_seconds": 0.0}
    return min(timing.visit(Interrupted(1_000_000), covariates=Still(), **how).wall_ns)


# The clock


def test_what_interrupts_null_is_in_its_times_by_the_wall_clock_only() -> None:
    with by_own_time():
        own = shortest_ns()
    assert 1_000_000 <= own < HELD_SECONDS * 1e9 <= shortest_ns()


def test_the_wall_clock_is_back_after_whatever_happens() -> None:
    before = clock.nanoseconds, timing.warm_up, timing.visit
    with by_own_time():
        assert clock.nanoseconds is time.thread_time_ns
    with pytest.raises(ZeroDivisionError), by_own_time():
        clock.nanoseconds() // 0
    assert (clock.nanoseconds, timing.warm_up, timing.visit) == before
    assert clock.nanoseconds is time.perf_counter_ns


@pytest.mark.parametrize(
    ("executable", "is_own"),
    [
        (NullExecutable(10), True),
        (NullExecutable(10, in_flight=4), True),
        (Decoding(NullDecoder(NullExecutable(10), NullExecutable(5)), 3), True),
        (Interrupted(10), False),
        (SaysSo(10), True),
        (faltering.Faltering("hang", Path("nowhere"), 0), False),
        (bad_compilers.BadExecutable.__new__(bad_compilers.BadExecutable), False),
    ],
)
def test_only_what_waits_as_null_does_or_says_so_takes_its_own_time(executable: Any, is_own: bool) -> None:
    assert takes_own_time(executable) is is_own


def test_a_worker_that_times_null_otherwise_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where the worker had taken its loop before: it would be the wall clock's, and null would not wait by it."""
    monkeypatch.setattr(worker.Worker, "_visit", lambda self, request: {"wall_ns": (1,)})
    asked = OwnTimed.__new__(OwnTimed)
    asked._executables, asked._mixes = {0: NullExecutable(10)}, {}
    with pytest.raises(AssertionError, match=r"by the wall clock: it no longer asks timing\.warm_up or \.visit"):
        asked._visit({"number": 0})
    # Under load calls arrive by the wall clock.
    assert asked._visit({"number": 0, "load": {}}) == {"wall_ns": (1,)}


def test_the_plugin_left_behind_fails_the_test_that_left_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tests.support.own_time", ModuleType("own_time"))
    item: Any = SimpleNamespace(name="test_it")
    with pytest.raises(pytest.fail.Exception, match=r"test_it imported tests\.support\.own_time"):
        conftest.pytest_runtest_teardown(item)
    assert "tests.support.own_time" not in sys.modules


# Workers


@contextmanager
def visited(folder: Path, module: str, compiler: str = "null[fixed_us=300]") -> Iterator[dict[str, Any]]:
    """Give what a worker answers to a visit of a cell."""
    name = compiler.partition("[")[0]
    client = WorkerClient(job(folder), compiler, protocol=SMALL, draw=random.Random(0), module=module)
    try:
        client.request("hello", compiler=name, models=[])
        asked: dict[str, Any] = {"cell": cell(compiler).to_json(), "artifact": None, "outputs": str(folder)}
        assert client.request("prepare", number=0, **asked)["ok"]
        assert client.request("warm", number=0, protocol=SMALL.to_json())["ok"]
        how: dict[str, Any] = {"calls": 3, "seconds": 0.005, "least_batches": 3, "discard_seconds": 0.0, "rebind": True}
        yield client.request("visit", number=0, **how)
    finally:
        client.kill()


@pytest.mark.real
@pytest.mark.parametrize("is_forked", [True, False])
@pytest.mark.parametrize(
    ("module", "compiler", "is_own"),
    [
        (MODULE, "null[fixed_us=300]", True),
        (MODULE, "bad[us=300]", False),
        ("pytest_ngraph.worker.worker", "null[fixed_us=300]", False),
    ],
)
def test_workers_obey_however_they_start(
    tmp_path: Path, module: str, compiler: str, is_own: bool, is_forked: bool
) -> None:
    if is_forked:
        conftest.skip_without("torch")
    with workers.forking(measures=True) if is_forked else nullcontext(), visited(tmp_path, module, compiler) as answer:
        assert answer["ok"], answer
        assert answer.get("own_time", False) is is_own
        assert bool(answer["run_delay_ns"]) is not is_own
        assert min(answer["wall_ns"]) >= (0 if compiler.startswith("bad") else 3 * 300_000)


# Suites

CLAIM = """
import sys
from pytest_ngraph.launches import launch

@pytest.mark.ngraph(model="block:conv", batch=1)
def test_it(ngraph_cell):
    assert ngraph_cell.latency.value >= 30e-6
    print("timed by", launch.visit_of.__module__, launch.WorkerClient.__init__.__module__)
"""


def test_a_suite_on_null_has_its_own_time_by_itself(suite: Suite) -> None:
    suite.write(CLAIM)
    result = suite.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["timed by tests.support.own_time *"])


@pytest.mark.measures
def test_a_suite_that_is_held_to_the_clock_has_the_wall_clock(suite: Suite) -> None:
    suite.write(CLAIM)
    result = suite.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["timed by pytest_ngraph.worker.answers *"])


def test_what_works_between_timed_calls_is_still_found_out(suite: Suite) -> None:
    """A suite in its own time is no blind one: others than null are held to the clock of the launching process."""
    (suite.path / "conftest.py").write_text(
        """
import time
from pytest_ngraph.compilers.null import NullCompiler, NullExecutable
from pytest_ngraph.worker.covariates import Covariates

class Lying(NullExecutable):
    def run(self):
        super().run()

class LyingCompiler(NullCompiler):
    name = "lying"

    def compile(self, workload, device, options):
        read = Covariates.read

        def worked(self):
            time.sleep(0.3)
            return read(self)

        Covariates.read = worked
        return Lying(2_000_000)

COMPILER = LyingCompiler()

def pytest_ngraph_compilers(catalogue):
    catalogue.add("lying", "conftest:COMPILER")
"""
    )
    suite.write(CLAIM)
    result = suite.run(compiler="lying")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*the clock in its process is slowed, or it works between the timed calls*"])

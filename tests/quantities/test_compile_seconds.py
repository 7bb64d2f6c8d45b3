"""Compile time as a metric: which launches give a sample of what, what rebuilding changes, what claims say of it."""

from __future__ import annotations

import csv
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.claims.assertions import assert_compile_time
from pytest_ngraph.compilers.torch.inductor import find_cxx
from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.launch import LaunchPlan, Sink
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, LaunchRecord, Workload
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model
from tests.claims.test_claims import Laboratory, Made
from tests.conftest import Suite, skip_without
from tests.session.test_session import SHORT
from tests.support import measuring
from tests.support.keeping_compilers import BUILD_SECONDS, TRIAL_SECONDS, TRIALS

HOOK = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("keeper", "tests.support.keeping_compilers:COMPILER")
"""
GATES = ("--ngraph-compiler=keeper", "--ngraph-baseline=null", "--ngraph-inconclusive=fail")


@pytest.fixture
def keeper(suite: Suite) -> Suite:
    """A suite with a compiler that keeps what it builds, and with short launches."""
    (suite.path / "conftest.py").write_text(SHORT + HOOK)
    return suite


def records(suite: Suite) -> list[list[CompileRecord]]:
    """Return what the keeper said in each launch: of the cell that keeps, then of the cell that is rebuilt."""

    def of(launches: Sequence[LaunchRecord], cell: Cell) -> list[CompileRecord]:
        return [launch.prepared[cell] for launch in launches if cell in launch.prepared]

    with Store.open(suite.store, read_only=True) as store:
        cells = dict(store.cells(store.runs()[-1].id))
        launches = store.launches(cells)
    mine = sorted((cell for cell in cells if cell.compiler.name == "keeper"), key=lambda cell: cell.rebuild)
    return [of(launches, cell) for cell in mine]


def builds(suite: Suite) -> int:
    """Count the engines that were built."""
    (log,) = (suite.path / ".ngraph" / "compiled").glob("keeper-records-*/builds")
    return len(log.read_text())


def test_the_first_launch_builds_and_the_others_load_unless_each_rebuilds(keeper: Suite) -> None:
    keeper.write(f"""
def spread(estimate): return estimate.high / estimate.low

@pytest.mark.ngraph(model="block:conv", batch=1)
def test_kept(ngraph_cell):
    built, loaded = ngraph_cell.compile_seconds, ngraph_cell.load_seconds
    assert (built.launches, loaded.launches) == (1, 2)
    assert built.value >= {BUILD_SECONDS} > loaded.value > 0
    assert spread(ngraph_cell.latency) < 10

@pytest.mark.ngraph(model="block:conv", batch=1, rebuild=True)
def test_rebuilt(ngraph_cell):
    built = ngraph_cell.compile_seconds
    assert built.launches == 3
    assert {BUILD_SECONDS} <= built.value < 10 * {BUILD_SECONDS}
    with pytest.raises(Exception, match="no launch has a usable value"):
        ngraph_cell.load_seconds
    # Each build is twice as slow as the one before: what differs between builds is in the interval.
    assert spread(ngraph_cell.latency) > 100
""")

    keeper.bare(*GATES).assert_outcomes(passed=2)

    kept, rebuilt = records(keeper)
    assert [record.loaded for record in kept] == [False, True, True]
    assert [record.loaded for record in rebuilt] == [False, False, False]
    assert all(record.compile_seconds is not None for record in (*kept, *rebuilt))
    assert builds(keeper) == 1 + 3
    # What was built for one launch is gone with it.
    assert len(list((keeper.path / ".ngraph" / "compiled").glob("*/engine"))) == 1


def test_the_time_of_a_build_is_told_by_the_launches_that_load_it(keeper: Suite) -> None:
    keeper.write("""
from pathlib import Path

@pytest.mark.ngraph(model="block:conv", batch=1)
def test_kept(ngraph_cell):
    built = ngraph_cell.compile_seconds
    assert built.launches == 1
    with Path("told").open("a") as file:
        file.write(f"{built.value!r} ")
""")
    keeper.bare(*GATES).assert_outcomes(passed=1)

    # As after a launch that did not count: the one that built is none of these.
    keeper.bare(*GATES, "--ngraph-fresh").assert_outcomes(passed=1)

    assert [record.loaded for record in records(keeper)[0]] == [True, True, True]
    assert builds(keeper) == 1
    first, again = (keeper.path / "told").read_text().split()
    assert first == again


def test_a_claim_is_decided_by_the_builds_of_all_launches(keeper: Suite) -> None:
    keeper.write("""
from pytest_ngraph import assert_compile_time

@pytest.mark.ngraph(model="block:conv", batch=1, rebuild=True)
def test_rebuilt(ngraph_cell):
    estimate = assert_compile_time(ngraph_cell, at_most=30)
    assert estimate.launches >= 3
    assert 0 < estimate.low < estimate.value < estimate.high < 30
""")

    result = keeper.bare(*GATES)

    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines(["verdicts: 1 pass"])


def test_what_tuning_cost_is_told_by_every_run_and_by_what_is_rebuilt(keeper: Suite) -> None:
    keeper.write(f"""
@pytest.mark.ngraph(model="block:conv", batch=1)
@pytest.mark.parametrize("again", [1, 2])
def test_tuned(ngraph_cell, again):
    assert ngraph_cell.tuning_trials.value == {TRIALS}
    assert ngraph_cell.tuning_seconds.value >= {TRIALS * TRIAL_SECONDS}
    assert ngraph_cell.tuning_trials.launches == 1

@pytest.mark.ngraph(model="block:conv", batch=1, rebuild=True)
def test_rebuilt(ngraph_cell):
    assert ngraph_cell.tuning_trials.value == {TRIALS}
""")
    options = ("--ngraph-compiler=keeper[tuned]", "--ngraph-baseline=null", "--ngraph-protocol=quick")

    result = keeper.bare(*options, "--ngraph-export=table.csv")

    result.assert_outcomes(passed=3)
    result.stdout.fnmatch_lines(["*samples/s*tuning*", "*keeper?tuned?*ms*"])
    with (keeper.path / "table.csv").open(newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["metric"] == "tuning_trials"]
    assert [(float(row["value"]), row["unit"], row["launches"]) for row in rows] == [(TRIALS, "trials", "1")] * 2
    first = {record.tuning_seconds for each in records(keeper) for record in each}
    # Both cells tell of one search, and a fresh start of the evidence does not search again.
    assert len(first) == 1
    keeper.bare(*options, "--ngraph-fresh").assert_outcomes(passed=3)
    assert {record.tuning_seconds for each in records(keeper) for record in each} == first


def test_warming_up_begins_with_the_first_call(keeper: Suite) -> None:
    keeper.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_warm(ngraph_cell):
    # The first call takes 20 ms, all others 0.1. Warming up takes 50 ms more, which is not the compiler's doing.
    first = ngraph_cell.first_call_seconds.value
    assert 0.02 < first <= ngraph_cell.warmup_seconds.value < first + 0.025
""")

    keeper.bare(*GATES).assert_outcomes(passed=1)


def test_the_docs_explain_metrics_that_are_there() -> None:
    page = (measuring.ROOT / "docs" / "compiling.md").read_text(encoding="utf-8")
    first_column = [line.partition(" | ")[0] for line in page.splitlines() if line.startswith("| ")]
    explained = re.findall(r"`(\w+)`", " ".join(first_column))
    assert len(explained) == 8
    assert set(explained) <= set(METRICS)


# Claims, with launches that are written by hand


class Compiling(Laboratory):
    """A laboratory in whose launches compiling takes as long as ``compiles`` says: seconds, and whether it loaded."""

    compiles: Sequence[tuple[float, bool]] = ()

    def _run(self, job: Job, plan: LaunchPlan, sink: Sink, *, spare_memory: Callable[[], float]) -> None:
        seconds, loaded = self.compiles[self.launched]
        book = sink.prepared

        def told(cell: Cell, record: CompileRecord) -> None:
            book(cell, replace(record, compile_seconds=seconds, loaded=loaded))

        sink.prepared = told  # type: ignore[method-assign]
        super()._run(job, plan, sink, spare_memory=spare_memory)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Compiling:
    return Compiling(tmp_path, monkeypatch)


def message_of(
    lab: Compiling, compiles: Sequence[tuple[float, bool]], *, protocol: str = "gate", budget: str = "8"
) -> str:
    """Claim that compiling takes a second at most, and return what is said of a gate that stays undecided."""
    lab.compiles, lab.script = compiles, [Made()] * len(compiles)
    with pytest.raises(AssertionError) as caught:
        assert_compile_time(lab.run(inconclusive="fail", protocol=protocol, budget=budget), at_most=1.0)
    return str(caught.value)


def test_one_build_among_loads_decides_nothing_and_the_message_says_what_does(lab: Compiling) -> None:
    said = message_of(lab, [(0.5, False), *[(0.01, True)] * 7])

    assert "inconclusive: 500 ms" in said
    assert "1 of 3 launches gave this number; the others took a cached result" in said
    assert "what to do: rebuild=True in the marker: every launch then compiles again" in said
    # Another launch would have loaded, too.
    assert lab.launched == 3


@pytest.mark.parametrize("protocol", ["gate", "quick"])
def test_loads_alone_say_nothing_of_compiling(lab: Compiling, protocol: str) -> None:
    said = message_of(lab, [(0.01, True)] * 8, protocol=protocol)

    assert "inconclusive: 0 of " in said
    assert "what to do: rebuild=True in the marker" in said
    assert lab.launched == (1 if protocol == "quick" else 3)


def test_builds_that_differ_are_not_cured_by_rebuilding(lab: Compiling) -> None:
    said = message_of(lab, [(0.5, False), (1.0, False), (2.0, False)], budget="3")

    assert "3 launches, state 100us/360ns; the budget is spent" in said
    assert "rebuild" not in said
    assert "what to do: a larger --ngraph-budget" in said


def test_builds_that_are_all_too_slow_fail(lab: Compiling) -> None:
    said = message_of(lab, [(1.1 + 0.001 * number, False) for number in range(7)])

    assert "fail: 1.10 s" in said
    assert "4 fresh ones confirmed it" in said


# A real compiler with a cache of its own


@pytest.mark.real
@pytest.mark.usefixtures("forked_workers")
def test_inductor_finds_its_cache_in_every_launch_but_those_that_rebuild(tmp_path: Path) -> None:
    skip_without("torch")
    if find_cxx() is None:
        pytest.skip("no C++ compiler")
    cell = Cell("local", CompilerSpec("inductor"), Workload(parse_model("block:mha"), width=16))
    launches = (cell, cell, replace(cell, rebuild=True))

    cold, warm, rebuilt = (
        measuring.launch(measuring.job(tmp_path, timeout=300), each).records[each] for each in launches
    )

    assert all(record.outcome in measuring.TIMED for record in (cold, warm, rebuilt)), (cold, warm, rebuilt)
    assert [record.loaded for record in (cold, warm, rebuilt)] == [False, True, False]
    assert [dict(record.placement)["cache_folder"] for record in (cold, warm, rebuilt)] == ["empty", "used", "empty"]
    assert warm.compile_seconds is not None
    assert rebuilt.compile_seconds is not None
    assert warm.compile_seconds < rebuilt.compile_seconds

"""Cells beside neighbours in real workers: these run while the cells are visited, and only then, or nothing counts."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.checks.oversight import Watch
from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.reference import Reference
from pytest_ngraph.machine import facts
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome, Protocol, Reading
from tests.conftest import Suite, skip_without
from tests.load.test_load_neighbours import beside
from tests.support.measuring import SMALL, Memory, cell, job, launch, nothing_left_behind

CELL = "null[fixed_us=2000,sample_us=0]"
ONE_BLOCK = replace(SMALL, blocks=1, visit_seconds=0.1)
pytestmark = pytest.mark.real


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Job:
    """Return a job on a machine on which nobody but these processes counts."""
    monkeypatch.setattr(facts, "used_seconds", lambda cpus: (None, ()))
    here = job(tmp_path)
    return replace(here, places={**here.places, "faltering": "tests.support.faltering:COMPILER"})


def measured(
    place: Job,
    neighbour: str,
    watch: Callable[[str], None] = lambda doing: None,
    protocol: Protocol = ONE_BLOCK,
) -> tuple[Cell, Memory]:
    one = beside(cell(CELL), f"block:mha@{neighbour}")
    with nothing_left_behind():
        return one, launch(place, one, protocol=protocol, watch=watch)


def falters(place: Job, how: str, after_ms: int) -> tuple[CompileRecord, Memory]:
    """Return what becomes of a cell whose neighbour falters so long after its visit began, or 0 ms: before it."""
    file, bound = place.artifacts.parent / "now", Watch.bound

    def watch(doing: str) -> None:
        # The neighbour was prepared before the cell is.
        if not after_ms and doing.startswith("compiling local:null"):
            file.touch()

    def begun(self: Watch, *given: Any) -> None:
        bound(self, *given)
        if after_ms:
            file.touch()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Watch, "bound", begun)
        neighbour = f"faltering[how={how},file={file},after_ms={after_ms}]"
        # The neighbour has a second to get at a CPU.
        one, found = measured(place, neighbour, watch, replace(ONE_BLOCK, visit_seconds=1.0))
    return found.records[one], found


def test_a_neighbour_runs_while_its_cell_is_visited_and_at_no_other_time(place: Job) -> None:
    one, alone = beside(cell(CELL), "block:mha+batch=3@null[fixed_us=500,sample_us=0]"), cell(CELL)
    twin = replace(one, replica=1)
    seen: list[str] = []
    with nothing_left_behind():
        found = launch(place, one, alone, twin, protocol=SMALL, watch=seen.append)

    assert set(found.records) == {one, alone, twin}
    for each in (one, twin):
        facts_of = dict(found.records[each].placement)
        assert found.records[each].outcome in (Outcome.OK, Outcome.UNSTABLE)
        assert facts_of["neighbour_visits"].endswith(f"of {SMALL.blocks}")
        for visit in (visit for (at, _), visit in found.visits.items() if at == each):
            # What it waited for its neighbour is no disturbance.
            assert visit.run_delay_ns == ()
            assert int(facts_of["neighbour_calls"]) >= 2
    assert not any(name.startswith("neighbour") for name, _ in found.records[alone].placement)
    assert all(visit.run_delay_ns for (at, _), visit in found.visits.items() if at == alone)
    # It was compiled once, for both.
    assert sum(doing.startswith("compiling") and "as a neighbour" in doing for doing in seen) == 1


def test_a_visit_beside_a_neighbour_is_not_made_again(place: Job, monkeypatch: pytest.MonkeyPatch) -> None:
    """The neighbour would be another number of calls further on than it is for the other side of a ratio."""
    given: list[Reading] = []

    def glance(kernel: Reference) -> Reading:
        # After each visit somebody else is there.
        given.append(Reading(225_000 if len(given) >= 8 and len(given) % 2 else 150_000, (300,)))
        return given[-1]

    # In one state: what the host does with its CPUs would be waited for.
    monkeypatch.setattr(Reference, "read", lambda self: Reading(150_000, (300,)))
    monkeypatch.setattr(Reference, "glance", glance)
    _, found = measured(place, "null[fixed_us=500,sample_us=0]", protocol=replace(ONE_BLOCK, reference=True, blocks=8))

    # The launch goes on for it, which is for all cells alike.
    assert {block for _, block in found.visits} == set(range(16))
    assert len(given) == 2 * 16
    assert all(len(visit.around) == 1 for visit in found.visits.values())


def test_one_that_dies_before_a_visit_takes_its_cell_with_it(place: Job) -> None:
    record, found = falters(place, "die", 0)
    assert record.outcome is Outcome.FAILED
    assert "its neighbour block:mha@faltering[" in record.reason
    assert "ended while it was to run: the worker was ended by SIGKILL during 'beside'" in record.reason
    assert found.visits == {}


def test_one_that_dies_in_the_middle_takes_its_cell_with_it(place: Job) -> None:
    record, found = falters(place, "die", 20)
    assert record.outcome is Outcome.FAILED
    assert "was ended by SIGKILL" in record.reason
    assert found.visits == {}


def test_one_whose_calls_fail_says_why(place: Job) -> None:
    record, found = falters(place, "fail", 20)
    assert record.outcome is Outcome.FAILED
    assert "the runtime lost its device" in record.reason
    assert found.visits == {}


def test_one_that_stops_calling_in_the_middle_leaves_no_visit(place: Job) -> None:
    record, found = falters(place, "hang", 20)
    assert record.outcome is Outcome.UNSTABLE
    assert "1 of 1 visit beside" in record.reason
    assert "it made no call for" in record.reason or "it ended" in record.reason
    assert found.visits == {}


def test_one_that_never_makes_a_call_is_no_neighbour(place: Job) -> None:
    record, found = falters(replace(place, timeout_seconds=8.0), "hang", 0)
    assert record.outcome is Outcome.FAILED
    assert "ended while it was to run: it ended no call within 8 s (--ngraph-timeout)" in record.reason
    assert found.visits == {}


@pytest.mark.skipif(facts.busy_seconds((0,)) is None, reason="the machine does not say what its CPUs do")
def test_others_beside_a_cell_and_its_neighbour_are_still_others(tmp_path: Path) -> None:
    here = job(tmp_path)
    spin = [sys.executable, "-c", f"import os; os.sched_setaffinity(0, {list(here.device.cpus)})\nwhile True: pass"]
    spinning = [subprocess.Popen(spin) for _ in range(2 * len(here.device.cpus))]
    try:
        one, found = measured(here, "null[fixed_us=500]")
    finally:
        for each in spinning:
            each.kill()
            each.wait()
    assert found.visits == {}
    assert found.records[one].outcome is Outcome.UNSTABLE
    assert "CPUs busy beside the two" in found.records[one].reason or "made no call" in found.records[one].reason


def test_one_that_cannot_be_compiled_is_the_outcome_of_its_cells(place: Job) -> None:
    one = beside(cell(CELL), "block:mha@bad[do=exception,at=compile]")
    alone = cell(CELL)
    found = launch(place, one, alone, protocol=SMALL)
    assert found.records[one].outcome is Outcome.FAILED
    assert found.records[one].reason.startswith("its neighbour block:mha@bad[")
    assert found.records[alone].outcome in (Outcome.OK, Outcome.UNSTABLE)


def test_one_that_runs_out_of_memory_is_what_each_batch_beside_it_says(place: Job) -> None:
    cells = [beside(cell(CELL, batch), "block:mha@bad[do=memory_error,at=compile]") for batch in (1, 2)]
    with nothing_left_behind():
        found = launch(place, *cells, protocol=ONE_BLOCK)
    for one in cells:
        record = found.records[one]
        assert record.outcome is Outcome.OOM
        # None of the sweep itself did.
        assert record.reason.startswith("its neighbour block:mha@bad["), record.reason


@pytest.mark.suites
def test_what_a_neighbour_costs_is_claimed_between_two_cells_of_one_launch(suite: Suite) -> None:
    """End to end: real networks in ONNX Runtime, the claim, the store, exports."""
    skip_without("torch", "onnxruntime", "timm")
    suite.write("""
from pytest_ngraph import assert_latency

NETWORK = dict(model="timm:resnet18", image_size=32)


def test_beside(ngraph):
    beside, alone = ngraph.measure(
        **NETWORK, neighbour=["timm:resnet18+image_size=32@onnxruntime[threads=1]", "none"],
        baseline="onnxruntime[graph=disabled]",
    )
    assert beside.max_error is not None
    assert int(beside.placement["neighbour_calls"]) > 0
    assert "neighbour_calls" not in alone.placement
    assert_speedup(beside, over=alone, at_least=0.01)
    assert_speedup(beside, at_least=0.01)
    assert_latency(beside, at_most=10.0)
""")
    result = suite.bare("--ngraph-protocol=quick", "--ngraph-compiler=onnxruntime", "-q")
    result.assert_outcomes(passed=1)

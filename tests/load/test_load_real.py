"""Cells under load in real workers: what arrives is served, and what the queue was like is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from pytest_ngraph.claims.percentiles import calls_of
from pytest_ngraph.load.queues import is_overloaded
from pytest_ngraph.machine import facts
from pytest_ngraph.spec.cells import Cell, LaunchRecord, Outcome
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.verdict import percentile_bound
from tests.support import stalling_compiler
from tests.support.measuring import SMALL, cell, job, launch


@pytest.fixture(autouse=True)
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    """The host takes no CPU: what arrived meanwhile would be left out of what a launch says of its load."""
    monkeypatch.setattr(facts, "used_seconds", lambda cpus: (None, ()))


def under_load(compiler: str, rate: int) -> Cell:
    one = cell(compiler)
    return replace(one, workload=replace(one.workload, scenario=f"server[rate={rate}]"))


@pytest.mark.real
def test_calls_are_served_as_they_arrive_one_at_a_time_and_in_slots(tmp_path: Path) -> None:
    one, several = under_load("null[fixed_us=1000]", 100), under_load("null[fixed_us=1000,requests=2]", 100)
    beyond = under_load("null[fixed_us=20000]", 100)

    found = launch(job(tmp_path), one, several, beyond, protocol=SMALL)

    for each, in_flight in ((one, None), (several, "2")):
        placement = dict(found.records[each].placement)
        assert placement.get("in_flight") == in_flight
        visits = [visit for (at, _), visit in found.visits.items() if at == each]
        assert len(visits) == SMALL.blocks
        assert int(placement["arrivals"]) == sum(len(visit.request_ns) for visit in visits)
        # No call is faster than it is, and others on this machine can only make the queue longer.
        assert min(min(visit.request_ns) for visit in visits) >= 1_000_000
        assert float(placement["utilisation"]) >= 100 * 0.001 / (2 if in_flight else 1)
        assert int(placement["late_p99_us"]) <= int(placement["late_most_us"])
        assert all(len(visit.request_ns) == len(visit.wall_ns) for visit in visits)
        rate = fmean(len(visit.wall_ns) / (sum(visit.wall_ns) * 1e-9) for visit in visits)
        assert rate == pytest.approx(100, rel=0.5)
    assert found.records[beyond].outcome is Outcome.UNSTABLE
    assert is_overloaded(found.records[beyond])


@pytest.mark.real
def test_a_worker_that_stands_still_once_is_seen_in_the_percentiles_with_all_who_waited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    told, rate = tmp_path / "stall", 100
    monkeypatch.setenv(stalling_compiler.NOW, str(told))
    one, visited = under_load("stalling[fixed_us=1000]", rate), list[str]()

    def watch(doing: str) -> None:
        if doing == "visited":
            visited.append(doing)
            told.touch()

    known = job(tmp_path)
    places = {**known.places, "stalling": "tests.support.stalling_compiler:COMPILER"}
    found = launch(replace(known, places=places), one, watch=watch)

    record = found.records[one]
    assert record.outcome is Outcome.OK, record.reason
    before, after = (found.visits[one, block] for block in range(2))
    stall_ns = stalling_compiler.STALL_SECONDS * 1e9
    slow = [each for each in after.request_ns if each > stall_ns / 3]
    # Some thirty calls arrived meanwhile. A loop that waits for answers would have one slow call, and so would a time
    # from the beginning of a call.
    assert max(after.request_ns) > stall_ns
    assert len(slow) > stalling_compiler.STALL_SECONDS * rate / 4
    assert int(dict(record.placement)["arrivals"]) == len(before.request_ns) + len(after.request_ns)
    # What is claimed of all its calls is claimed of these, too.
    (seconds,) = calls_of([(LaunchRecord(1, 1, "gate", {one: record}, found.visits), LaunchValue(0, 0, 1))], one)
    assert percentile_bound(seconds, 99, 0.99)[1] > stall_ns * 1e-9 / 3
    assert len(seconds) == len(before.request_ns) + len(after.request_ns)

"""Cells under load in real workers: what arrives is served, and what the queue was like is kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from statistics import fmean

import pytest

from pytest_ngraph.load.queues import is_overloaded
from pytest_ngraph.spec.cells import Cell, Outcome
from tests.support.measuring import SMALL, cell, job, launch


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

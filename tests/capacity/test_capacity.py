"""Capacity: the queue of a launch at other rates, and what is claimed of the rate that holds a percentile."""

from __future__ import annotations

import math
from collections.abc import Iterator
from itertools import pairwise
from statistics import fmean

import pytest

from pytest_ngraph.capacity.replay import capacity_of, latencies_at, served_of
from pytest_ngraph.spec.cells import Visit
from tests.conftest import Suite
from tests.load.test_load_claims import FIVE_MS, QUEUES
from tests.load.test_load_open_loop import Pretended as Served
from tests.load.test_load_open_loop import law
from tests.support.pretended import Pretended


def visits(kind: str, rate: float, seeds: int = 8, service: float = 0.01) -> Iterator[Visit]:
    from pytest_ngraph.load.open_loop import Load

    for seed in range(seeds):
        yield Served(law(kind, service, seed)).visit(Load(rate, f"capacity {seed}", 0, 60))[0]


def test_what_was_served_is_read_back_from_a_visit_and_served_again_takes_what_it_took() -> None:
    visit = next(visits("D", 70))
    calls = served_of(visit, 1)
    assert [service for _, service in calls] == pytest.approx([0.01] * len(calls), rel=1e-6)
    again = latencies_at(calls, 1.0, 1)
    assert again == pytest.approx([each * 1e-9 for each in visit.request_ns], rel=1e-6)
    # Further apart hardly anybody waits; two slots clear the line sooner.
    assert fmean(latencies_at(calls, 1 / 50, 1)) == pytest.approx(0.01, rel=0.05)
    assert fmean(latencies_at(calls, 1.0, 2)) < fmean(again)


@pytest.mark.parametrize(("measured", "percentile"), [(30, 90), (60, 90), (60, 99)])
def test_the_capacity_of_a_queue_whose_law_is_known_is_found_from_any_rate(measured: float, percentile: int) -> None:
    # The time in M/M/1 is exponential with the rate mu - lambda: the capacity is mu - ln(1 / (1 - p)) / within.
    within = 0.1
    truth = 100 + math.log(1 - percentile / 100) / within
    found = [capacity_of([visit], measured, 1, percentile, within) for visit in visits("M", measured)]
    known = [each for each in found if each is not None]
    assert len(known) == 8
    assert fmean(known) == pytest.approx(truth, rel=0.06)


def test_what_no_rate_holds_has_no_capacity_and_what_all_hold_is_bounded_by_what_can_be_served() -> None:
    some = list(visits("D", 50, 2))
    assert capacity_of(some, 50, 1, 99, 0.009) is None
    found = capacity_of(some, 50, 1, 99, 1000.0)
    assert found is not None
    assert 95 < found <= 100
    assert capacity_of([], 50, 1, 99, 1.0) is None


def test_the_wider_the_bound_the_higher_the_capacity() -> None:
    some = list(visits("M", 50, 2))
    each = [capacity_of(some, 50, 1, 99, within) or 0.0 for within in (0.05, 0.1, 0.2, 0.4)]
    assert all(after > before for before, after in pairwise(each))


@pytest.fixture
def queues(suite: Suite) -> Pretended:
    """An empty suite whose launches are pretended, with queues of calls of 5 ms."""
    pretended = Pretended(suite.pytester)
    conftest = pretended.path / "conftest.py"
    conftest.write_text(conftest.read_text() + QUEUES)
    return pretended


def test_a_rate_that_holds_passes_and_one_beyond_it_fails(queues: Pretended) -> None:
    queues.write("""
from pytest_ngraph import assert_capacity
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=60]")
def test_holds(ngraph_cell):
    found = assert_capacity(ngraph_cell, percentile=99, within=0.03, at_least=60)
    assert found.metric == "capacity"
    # Of M/D/1 with calls of 5 ms, percentile 99 is 30 ms at about 140 a second.
    assert 100 < found.value < 170
    assert 60 < found.low <= found.value <= found.high
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=60]")
def test_bound(ngraph_cell): assert_capacity(ngraph_cell, percentile=99, within=0.0055, at_least=60)
@pytest.mark.ngraph(model="block:conv", scenario="server[rate=300]")
def test_overload(ngraph_cell): assert_capacity(ngraph_cell, percentile=99, within=1, at_least=300)
""")

    result = queues.bare(*FIVE_MS)

    result.assert_outcomes(passed=1, failed=2)
    said = result.stdout.str()
    assert "p99 at 60 calls a second: " in said
    assert "7 of 7 launches: overloaded: 300 calls a second arrive" in said
    assert "< 300 /s" in said


def test_cells_of_several_rates_say_between_which_the_capacity_is(queues: Pretended) -> None:
    queues.write("""
from pytest_ngraph import assert_capacity
def test_it(ngraph):
    cells = ngraph.measure(model="block:conv", scenario=["server[rate=20]", "server[rate=60]", "server[rate=300]"])
    assert_capacity(cells, percentile=99, within=0.0055, at_least=60)
""")

    result = queues.bare(*FIVE_MS)

    result.assert_outcomes(failed=1)
    # At 20 a second one in ten waits, for more than half a millisecond mostly.
    assert "of the rates that were measured it was not held at 20 calls a second (each at 0.5 %)" in result.stdout.str()


@pytest.mark.parametrize(
    ("scenario", "claim", "says"),
    [
        ("latency", "at_least=20", 'no calls arrive (expected a cell of scenario="server[rate=20]")'),
        ("server[rate=60]", "at_least=20", "at_least=20, and nothing was measured at that rate (rates: 60)"),
        ("server[rate=60]", "at_least=60, percentile=0.99", "percentile=0.99 (expected per cent, from 1 on and below"),
        ("server[rate=60]", "at_least=60, within=0", "within=0 (expected seconds above 0)"),
    ],
)
def test_what_says_nothing_of_a_capacity_is_refused(queues: Pretended, scenario: str, claim: str, says: str) -> None:
    terms = ", ".join(each for each in ("percentile=99", "within=0.03") if each.partition("=")[0] not in claim)
    queues.write(f"""
from pytest_ngraph import assert_capacity
@pytest.mark.ngraph(model="block:conv", scenario="{scenario}")
def test_it(ngraph_cell): assert_capacity(ngraph_cell, {", ".join(filter(None, [claim, terms]))})
""")

    result = queues.bare(*FIVE_MS)

    result.assert_outcomes(failed=1)
    assert says in result.stdout.str()

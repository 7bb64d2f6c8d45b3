"""What is said of a queue by its load, and how often a gate on its percentiles errs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.claims.percentiles import clusters_of
from pytest_ngraph.load.queues import (
    Traffic,
    clustering,
    clustering_of,
    facts_of,
    has_no_latency,
    is_overloaded,
    relaxation_seconds,
    why_unsettled,
    window_of,
)
from pytest_ngraph.report.results.spreads import spread_of
from pytest_ngraph.spec.cells import CompileRecord, LaunchRecord, Outcome, Visit
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.verdict import Bound, Verdict, judge_percentile
from tests.support.measuring import cell

Times = np.ndarray[Any, np.dtype[np.float64]]


def traffic(service: float, *, seconds: float = 5.0, unfinished: int = 0) -> Traffic:
    return Traffic(500, unfinished, service, 0.0, seconds, (20_000, 90_000))


def test_a_queue_forgets_later_and_its_slow_calls_cluster_more_the_more_it_has_to_do() -> None:
    assert relaxation_seconds(0.25, 0.01) == pytest.approx(0.04)
    assert relaxation_seconds(0.81, 0.01) == pytest.approx(1.0)
    assert relaxation_seconds(1, 0.01) == math.inf
    assert clustering(0) == 1
    assert clustering(0.5) == pytest.approx(1 + 1.5 * 4)
    assert clustering(0.5, 4) > clustering(0.5, 1) == clustering(0.5, 0)
    assert clustering(1) == math.inf


def test_visits_are_as_long_as_the_queue_needs_and_no_longer_than_twenty_seconds() -> None:
    idle, loaded, near, beyond = (window_of(rate, 0.01) for rate in (20, 70, 97, 150))
    assert idle.seconds == pytest.approx(5)
    assert idle.discard_seconds == pytest.approx(4 * relaxation_seconds(0.2, 0.01))
    assert window_of(20, 0.001).discard_seconds == pytest.approx(0.1)
    assert loaded.seconds > 6 * relaxation_seconds(0.7, 0.01)
    assert loaded.discard_seconds == pytest.approx(4 * relaxation_seconds(0.7, 0.01))
    assert near.seconds + near.discard_seconds == pytest.approx(20)
    assert beyond.seconds == pytest.approx(1)
    # Four slots with a turn of 40 ms answer as many as one with calls of 10 ms, and forget as slowly as calls last.
    assert window_of(7, 0.04, 4).discard_seconds == pytest.approx(4 * relaxation_seconds(0.07, 0.04))


def test_a_queue_near_its_capacity_and_one_beyond_it_have_no_latency() -> None:
    assert why_unsettled(50, 1, [traffic(0.01)] * 4) == ""
    near = why_unsettled(96, 1, [traffic(0.01)] * 4)
    assert near.startswith("too near its capacity: 96 calls a second arrive, and it can answer 100 (utilisation 0.96)")
    assert "needs to be watched for 147 s, and visits lasted 5 s" in near
    beyond = why_unsettled(150, 1, [traffic(0.01)] * 4)
    assert beyond.startswith("overloaded: 150 calls a second arrive, and it can answer 100 (utilisation 1.50)")
    assert why_unsettled(150, 2, [traffic(0.01)] * 4) == ""
    # What was never answered may have taken any time.
    assert why_unsettled(50, 1, [traffic(0.01), traffic(0.01, unfinished=3)]).startswith("too near")
    for reason, is_over in ((near, False), (beyond, True)):
        record = CompileRecord(Outcome.UNSTABLE, reason)
        assert (has_no_latency(record), is_overloaded(record)) == (True, is_over)
    assert not has_no_latency(CompileRecord(Outcome.UNSTABLE, "did not settle in 20 s of warm-up"))


def test_the_page_shows_no_percentiles_of_a_queue_that_did_not_settle() -> None:
    one, visit = cell("null"), Visit(1, (1000,) * 4, request_ns=(5000,) * 4)
    records = {
        reason: CompileRecord(Outcome.UNSTABLE, reason) for reason in ("overloaded: 3", "did not settle in 20 s")
    }
    launches = [
        LaunchRecord(number, 0, "gate", prepared={one: record}, visits={(one, 0): visit})
        for number, record in enumerate(records.values())
    ]
    assert spread_of(launches[:1], one) is None
    found = spread_of(launches, one)
    assert found is not None
    assert [number for number, _ in found.launches] == [1]


def test_visits_that_do_not_agree_whether_there_is_room_are_not_called_overloaded() -> None:
    assert why_unsettled(100, 1, [traffic(0.0095), traffic(0.0112)]).startswith("too near its capacity")


def test_the_facts_of_a_launch_say_what_its_queue_was_like() -> None:
    facts = facts_of(50, 1, [traffic(0.01), traffic(0.012)])
    assert facts == {
        "arrivals": "1000",
        "utilisation": "0.550",
        "clustering": f"{clustering(0.55):.4g}",
        "late_p99_us": "20",
        "late_most_us": "90",
    }
    assert clustering_of(facts) == pytest.approx(clustering(0.55), rel=1e-3)
    assert clustering_of(facts_of(200, 1, [traffic(0.01)] * 2)) == math.inf
    assert clustering_of({}) == 1


@pytest.mark.parametrize("text", ["by k-means", "", "nan", "inf", "-5", "0.1"])
def test_a_fact_of_that_name_that_is_an_adapters_own_is_no_cluster(text: str) -> None:
    assert clustering_of({"clustering": text}) == 1


def test_calls_that_are_not_queued_have_no_clusters_whatever_is_said_of_them() -> None:
    plain = cell("null")
    queued = replace(plain, workload=replace(plain.workload, scenario="server[rate=20]"))
    record = CompileRecord(Outcome.OK, placement=(("clustering", "endless"),))
    for one, clusters in ((plain, 1.0), (queued, math.inf)):
        launch = LaunchRecord(0, 0, "gate", {one: record})
        assert clusters_of([(launch, LaunchValue(0.0, 0.0, 1))], one) == clusters


def sojourns(draw: np.random.Generator, utilisation: float, visits: int) -> list[Times]:
    """Return the times of the calls of M/M/1 with a mean service of 10 ms, in the windows of that many visits."""
    rate, window = utilisation / 0.01, window_of(utilisation / 0.01, 0.01)
    until = window.discard_seconds + window.seconds
    size = (visits, round(1.3 * rate * until) + 50)
    arrived, served = draw.exponential(1 / rate, size).cumsum(axis=1), draw.exponential(0.01, size)
    total = served.cumsum(axis=1)
    # Of Lindley: who waits begins when all have been served since the line was empty.
    times = np.maximum.accumulate(arrived - (total - served), axis=1) + total - arrived
    kept = (arrived >= window.discard_seconds) & (arrived < until)
    return [times[number][kept[number]] for number in range(visits)]


@pytest.mark.slow
@pytest.mark.parametrize(("utilisation", "percentile"), [(0.3, 99), (0.6, 90)])
def test_a_gate_on_a_percentile_of_a_queue_errs_as_seldom_as_is_said(utilisation: float, percentile: int) -> None:
    draw, gates, launches = np.random.default_rng(7), 150, 6
    truth = -0.01 / (1 - utilisation) * math.log(1 - percentile / 100)
    # The edge of the first, and the line of the second, is what is true.
    bounds = {Verdict.PASS: Bound(truth / 1.05, False, 0.05, "log"), Verdict.FAIL: Bound(truth, False, 0.05, "log")}
    wrong = {with_clusters: dict.fromkeys(bounds, 0) for with_clusters in (True, False)}
    for _ in range(gates):
        visits = sojourns(draw, utilisation, 4 * launches)
        each = [np.concatenate(visits[4 * one : 4 * one + 4]).tolist() for one in range(launches)]
        for with_clusters, count in wrong.items():
            least = clustering(utilisation) if with_clusters else 1.0
            for verdict, bound in bounds.items():
                count[verdict] += judge_percentile(each, percentile, bound, 0.005, least_effect=least) is verdict
    # Of 150 gates at 0.5 % more than 5 are seen by chance once in four thousand times.
    assert max(wrong[True].values()) <= 5
    # Were calls of a queue taken to be independent of one another, several times as many would be wrong.
    assert sum(wrong[False].values()) > sum(wrong[True].values())

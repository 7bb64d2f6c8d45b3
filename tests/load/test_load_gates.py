"""How often gates on percentiles of a queue err where services have heavy tails; the benchmark server_gates has all."""

from __future__ import annotations

import math

import numpy as np
import pytest

from benchmarks.server_gates import Counted, Shares, count, decided, missed
from pytest_ngraph.load.queues import Traffic, behind_long_calls, clustering, clustering_of, facts_of
from pytest_ngraph.stats import Bound, Verdict, judge_percentile
from pytest_ngraph.stats.verdict import judge_shares
from tests.support.server_worlds import LAWS, latency_percentile, launches


@pytest.mark.parametrize("utilisation", [0.1, 0.5, 0.9])
def test_what_is_true_of_a_queue_is_what_its_law_says(utilisation: float) -> None:
    for percentile in (50, 90, 99):
        truth = -math.log(1 - percentile / 100) / (1 - utilisation)
        assert latency_percentile("M/M/1", utilisation, percentile) == pytest.approx(truth, rel=1e-3)
    # Nine of ten calls find nobody before them, and take exactly one service.
    assert latency_percentile("M/D/1", 0.1, 90) == 1.0


@pytest.mark.parametrize("name", [*LAWS])
def test_launches_that_are_drawn_have_the_percentiles_of_their_law(name: str) -> None:
    some = launches(name, 0.5, 40, np.random.default_rng(1))
    calls = np.concatenate([visit for one in some for visit in one.latencies])
    services = np.concatenate([visit for one in some for visit in one.services])
    assert services.mean() == pytest.approx(1, rel=0.05)
    for percentile in (50.0, 90.0):
        truth = latency_percentile(name, 0.5, percentile)
        assert np.mean(calls > truth * (1 + 1e-9)) == pytest.approx(1 - percentile / 100, abs=0.04)


def test_a_gate_judges_shares_as_it_judges_calls() -> None:
    draw = np.random.default_rng(4)
    for bound, at_least in ((2.0, False), (4.0, False), (6.0, False), (2.0, True)):
        each = [draw.exponential(2.0, 300).tolist() for _ in range(4)]
        limit = Bound(bound, at_least, 0.05, "log")
        sizes = [len(one) for one in each]
        beyond, over = ([sum(call > edge for call in one) for one in each] for edge in (limit.passing, bound))
        said = judge_shares(sizes, beyond, over, 90, 0.004, at_least=at_least, least_effect=2.0)
        assert said is judge_percentile(each, 90, limit, 0.004, least_effect=2.0)


def test_a_fail_of_few_launches_is_confirmed_by_fresh_ones_and_a_pass_is_not() -> None:
    def shares(*slow: int) -> Shares:
        return Shares([1000] * len(slow), slow, slow, [1.0] * len(slow))

    assert decided(shares(*[0] * 28), 99) == (Verdict.PASS, 3)
    assert decided(shares(*[50] * 28), 99) == (Verdict.FAIL, 7)
    assert decided(shares(*[50] * 3, *[0] * 25), 99) == (Verdict.INCONCLUSIVE, 15)
    assert decided(shares(*[10] * 28), 99)[0] is Verdict.INCONCLUSIVE


def test_clusters_are_larger_behind_calls_that_are_far_longer_than_others() -> None:
    assert behind_long_calls(0.5, 0.0) == behind_long_calls(0.5, 1.0) == 0
    assert behind_long_calls(0.5, 3.0) == pytest.approx(6)
    assert behind_long_calls(1.0, 0.0) == math.inf
    # Long calls of one visit among others without any are seen: the services of all are one sample.
    visits = [Traffic(100, 0, 0.01, 0.0, 2.0, (0, 0)), Traffic(100, 0, 0.03, 4.0, 2.0, (0, 0))]
    squares = (0.01**2 + 5 * 0.03**2) / 2
    variation = squares / 0.02**2 - 1
    found = clustering_of(facts_of(20, 1, visits))
    assert found == pytest.approx(clustering(0.4, 4.0) + behind_long_calls(0.4, variation), rel=1e-3)


@pytest.mark.slow
def test_gates_on_services_with_a_heavy_tail_pass_wrongly_no_more_often_than_is_said() -> None:
    # At this utilisation 4.8 % of them did, of two thousand, when clusters were those of busy periods on average.
    counts, draw = [Counted("heavy tail", 0.3, 99.0)], np.random.default_rng(11)
    for _ in range(150):
        count(counts, draw)
    assert counts[0].false_passes <= 5
    assert counts[0].false_fails <= 5
    assert missed(counts) == []


def test_a_world_in_which_gates_err_too_often_is_named() -> None:
    assert missed([Counted("M/M/1", 0.3, 99.0, gates=1000, false_passes=19, false_fails=10)]) == []
    assert missed([Counted("M/M/1", 0.3, 99.0, gates=1000, false_passes=40)]) == [
        "M/M/1 at 0.3, p99: 40 (4.00 %) false passes"
    ]

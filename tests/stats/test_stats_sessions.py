"""Comparing two sessions: false fails, power, and what is wrong without a term for what differs between sessions."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.stats import binom

from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.sessions import FALSE_FAILS, LEAST_SESSIONS, Between, Mean, between_of, difference, mean_of
from pytest_ngraph.stats.verdict import Bound, Verdict, judge

TOLERANCE, GATES = 0.05, 1000
NO_SLOWER = Bound(1.0, True, TOLERANCE, "log")


def session(draw: np.random.Generator, between: float, within: float, launches: int, truth: float = 0.0) -> list[float]:
    return list(truth + draw.normal(0, between) + draw.normal(0, within, launches))


def values(session: list[float]) -> list[LaunchValue]:
    return [LaunchValue(value, 0.0, 1) for value in session]


def verdicts(
    between: float,
    within: float,
    known: int,
    truth: float = 0.0,
    *,
    term: bool = True,
    launches: int = 3,
    past: int = 1,
) -> dict[Verdict, float]:
    """Return the shares of verdicts of comparisons: a baseline of ``past`` sessions against one, all on one machine.

    ``known`` sessions of equal code say how sessions differ. ``truth`` is by how much it is slower now, on ln.
    """
    draw, launches = np.random.default_rng(7), 3
    counts = dict.fromkeys(Verdict, 0)
    for _ in range(GATES):
        means = [sum(one) / len(one) for one in (session(draw, between, within, launches) for _ in range(known))]
        found = between_of([means]) if term else None
        then = mean_of([values(session(draw, between, within, launches)) for _ in range(past)])
        now = mean_of([values(session(draw, between, within, launches, -truth))])
        counts[judge(difference(now, then, found), NO_SLOWER)] += 1
    return {verdict: count / GATES for verdict, count in counts.items()}


def is_at_most(share: float, rate: float) -> bool:
    """Tell whether a share of the gates is what a rate may give: less likely than 1 in 1000 otherwise."""
    return bool(binom.sf(round(share * GATES) - 1, GATES, rate) > 1e-3)


@pytest.mark.parametrize("known", [LEAST_SESSIONS, 10, 30])
@pytest.mark.parametrize(("between", "within"), [(0.0, 0.02), (0.01, 0.005), (0.02, 0.02), (0.03, 0.005)])
def test_at_most_one_of_100_comparisons_of_equal_code_fails(between: float, within: float, known: int) -> None:
    shares = verdicts(between, within, known)
    assert is_at_most(shares[Verdict.FAIL], FALSE_FAILS), shares
    # Nor does more than that pass of what is slower by the tolerance.
    slower = verdicts(between, within, known, -math.log1p(-TOLERANCE))
    assert is_at_most(slower[Verdict.PASS], FALSE_FAILS), slower


def test_thirty_sessions_of_equal_code_hardly_ever_fail() -> None:
    """A/A: each of 30 sessions is held against the first, by what the 30 themselves say of one another."""
    draw, fails, comparisons = np.random.default_rng(3), 0, 0
    for _ in range(150):
        sessions = [values(session(draw, 0.015, 0.01, 4)) for _ in range(30)]
        found = between_of([[sum(one.value for one in each) / 4 for each in sessions]])
        first = mean_of(sessions[:1])
        said = [judge(difference(mean_of([each]), first, found), NO_SLOWER) for each in sessions[1:]]
        fails, comparisons = fails + said.count(Verdict.FAIL), comparisons + len(said)
    assert fails / comparisons <= FALSE_FAILS


def test_without_the_term_sessions_of_equal_code_fail() -> None:
    shares = verdicts(0.02, 0.005, 10, term=False)
    assert shares[Verdict.FAIL] > 0.1


@pytest.mark.parametrize(
    ("between", "found"),
    # The shares of regressions of the tolerance that fail, with ten sessions known and three launches each.
    [(0.003, 0.98), (0.005, 0.97), (0.01, 0.55), (0.02, 0.10)],
)
def test_what_is_slower_by_the_tolerance_is_found_where_sessions_are_alike(between: float, found: float) -> None:
    shares = verdicts(between, 0.003, 10, -math.log1p(-TOLERANCE))
    assert shares[Verdict.FAIL] >= found, shares


def test_a_baseline_of_several_sessions_finds_more() -> None:
    one, several = (verdicts(0.015, 0.005, 10, 0.08, past=past)[Verdict.FAIL] for past in (1, 8))
    assert several > one + 0.1


def test_the_variance_is_the_sum_of_its_parts() -> None:
    now, then = Mean(0.1, 0.04, (4,)), Mean(0.0, 0.09, (3, 3))
    between = Between(0.01, 9)
    spread = difference(now, then, between)
    total = 0.04 / 4 + 0.09 / 6 + 0.01 * (1 + 0.5)
    assert spread.theta == pytest.approx(0.1)
    df = total**2 / (0.01**2 / 3 + 0.015**2 / 5 + 0.015**2 / 9)
    assert spread.df == math.floor(df)
    from scipy.stats import t

    assert spread.half_width == pytest.approx(t.isf(0.005, df) * math.sqrt(total))


def test_one_launch_says_nothing_and_equal_numbers_no_difference() -> None:
    once, twice = Mean(0.0, 0.0, (1,)), Mean(0.0, 0.0, (2,))
    assert math.isinf(difference(once, twice, None).half_width)
    assert difference(twice, twice, Between(0.0, 5)).half_width == 0.0


def test_few_sessions_say_nothing_and_groups_of_equal_code_are_pooled() -> None:
    assert between_of([]) is None
    assert between_of([[0.0, 0.1, 0.2, 0.3, 0.4]]) is None
    assert between_of([[0.0, 0.1]] * (LEAST_SESSIONS - 2)) is None
    # Code that differs between the groups is not taken for noise.
    pooled = between_of([[0.0, 0.02, 0.04, 0.02], [1.0, 1.02, 1.04, 1.02], [5.0]])
    assert pooled == Between(pytest.approx(0.0016 / 6), 6)  # type: ignore[arg-type]


def test_sessions_that_differ_in_size_have_their_share() -> None:
    assert Mean(0.0, 0.0, (4,)).share == 1
    assert Mean(0.0, 0.0, (2, 2)).share == 0.5
    assert Mean(0.0, 0.0, (9, 1)).share == pytest.approx(0.82)

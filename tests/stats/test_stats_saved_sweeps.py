"""Comparing sweeps of two sessions: false fails and power of BSR and slope, whose cells scatter by themselves."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import numpy as np
import numpy.typing as npt
import pytest
from scipy.stats import binom

from pytest_ngraph import metrics
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.sessions import FALSE_FAILS, LEAST_SESSIONS, between_of, difference, mean_of
from pytest_ngraph.stats.verdict import Bound, Verdict, judge

Array = npt.NDArray[np.float64]
TOLERANCE, GATES, LAUNCHES, DEPTHS = 0.05, 800, 3, (1, 2, 4)


def bsr(seconds: Array) -> Array:
    """Return ln BSR at batch 8 of seconds by cell: compiled at batches 1 and 8, then the baseline."""
    compiled, identity = ({1: 1 / seconds[at], 8: 8 / seconds[at + 1]} for at in (0, 2))
    return np.asarray(np.log(metrics.bsr(compiled, identity, 8)))


def slope(seconds: Array) -> Array:
    """Return the slope of seconds by cell: compiled and baseline at each depth."""
    return np.asarray(metrics.slope({depth: seconds[2 * at + 1] / seconds[2 * at] for at, depth in enumerate(DEPTHS)}))


def flat(factor: float) -> list[float]:
    return [1.0, 8.0 * factor, 2.0, 12.0]


def rising(factor: float, last: float = 1.6) -> list[float]:
    """Return seconds of a stack whose speed-ups are 1, 1.2 and ``last``, the last one slower by a factor."""
    return [1.0, 1.0, 2.0 / 1.2, 2.0, 4.0 / last * factor, 4.0]


def falling(factor: float) -> list[float]:
    """Return the same with speed-ups that fall: the slope is negative."""
    return rising(factor, last=0.7)


MADE: dict[str, tuple[Callable[[Array], Array], Callable[[float], list[float]]]] = {
    "bsr": (bsr, flat), "slope": (slope, rising), "falling": (slope, falling),
}  # fmt: skip


@cache
def verdicts(name: str, between: float, within: float, known: int, factor: float = 1.0) -> dict[Verdict, float]:
    """Return the shares of verdicts of comparisons of a session with a saved one.

    Each cell of each session has a shift of its own, and each of each launch: ``between`` and ``within`` are their
    deviations on ln. ``known`` sessions of equal code say how sessions differ. Now one cell takes ``factor`` as long.
    """
    function, seconds = MADE[name]
    draw, cells = np.random.default_rng(5), len(seconds(1.0))
    sessions = known + 2
    shift = draw.normal(0, between, (cells, GATES, sessions, 1)) + draw.normal(
        0, within, (cells, GATES, sessions, LAUNCHES)
    )
    usual = function(np.asarray(seconds(1.0))[:, None, None, None] * np.exp(shift))
    now = function(np.asarray(seconds(factor))[:, None, None, None] * np.exp(shift))
    scale, bound = 1.0, Bound(1.0, True, TOLERANCE, "log")
    if name != "bsr":
        plain = seconds(1.0)
        scale = float(np.mean([plain[2 * at + 1] / plain[2 * at] for at in range(len(DEPTHS))])) / (DEPTHS[-1] - 1)
        bound = Bound(0.0, True, TOLERANCE * scale, "linear")
    counts = dict.fromkeys(Verdict, 0)
    for gate in range(GATES):
        found = between_of([list(usual[gate, :known].mean(axis=1))])
        then, today = ([LaunchValue(float(value), 0.0, 1) for value in one] for one in (usual[gate, -1], now[gate, -2]))
        counts[judge(difference(mean_of([today]), mean_of([then]), found), bound)] += 1
    return {verdict: count / GATES for verdict, count in counts.items()}


def is_at_most(share: float, rate: float) -> bool:
    """Tell whether a share of the gates is what a rate may give: less likely than 1 in 1000 otherwise."""
    return bool(binom.sf(round(share * GATES) - 1, GATES, rate) > 1e-3)


@pytest.mark.parametrize("known", [LEAST_SESSIONS, 20])
@pytest.mark.parametrize(("between", "within"), [(0.0, 0.02), (0.01, 0.005), (0.03, 0.01)])
@pytest.mark.parametrize("name", list(MADE))
def test_at_most_one_of_100_comparisons_of_an_equal_sweep_fails(
    name: str, between: float, within: float, known: int
) -> None:
    shares = verdicts(name, between, within, known)
    assert is_at_most(shares[Verdict.FAIL], FALSE_FAILS), shares


@pytest.mark.parametrize("name", list(MADE))
def test_a_sweep_that_is_clearly_worse_is_found_where_sessions_are_alike(name: str) -> None:
    shares = verdicts(name, 0.003, 0.003, 10, 1.3)
    assert shares[Verdict.FAIL] > 0.95, shares
    # And what is worse by just the tolerance hardly ever passes.
    worse = verdicts("bsr", 0.01, 0.01, 10, 1 / (1 - TOLERANCE))
    assert is_at_most(worse[Verdict.PASS], FALSE_FAILS), worse


def test_without_what_sessions_differ_by_equal_sweeps_would_fail() -> None:
    """Block after block of one session is no substitute: the control that must not hold."""
    draw, fails = np.random.default_rng(9), 0
    for _ in range(300):
        shift = draw.normal(0, 0.02, (4, 2, 1)) + draw.normal(0, 0.003, (4, 2, LAUNCHES))
        then, now = bsr(np.asarray(flat(1.0))[:, None, None] * np.exp(shift))
        today, before = (mean_of([[LaunchValue(float(value), 0.0, 1) for value in one]]) for one in (now, then))
        fails += judge(difference(today, before, None), Bound(1.0, True, TOLERANCE, "log")) is Verdict.FAIL
    assert fails / 300 > 0.1

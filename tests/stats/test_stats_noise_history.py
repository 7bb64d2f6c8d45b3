"""How often gates err that are judged by the scatter of earlier runs, too: right, too small, too large, drifting."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pytest
from scipy.special import fdtri

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats import LaunchValue, interval, looks_for, spending
from pytest_ngraph.stats.sessions import KnownScatter, known_scatter, scatters_as_known, with_known_scatter
from tests.support.launch_worlds import BOUND, TOLERANCE, TOLERANCES, WORLDS, Judged, judged
from tests.support.simulator import Array, Gates, Moderation, exceeds, falls_short, intervals, two_stages

GATES, BUDGET, LAUNCHES = 20_000, 16, 28
SESSIONS, EACH = 5, 3
RIGHT, HALF, TWO_THIRDS, TWICE = ((factor,) * SESSIONS for factor in (1.0, 0.5, 2 / 3, 2.0))
# Noisier from run to run, so that the runs before know too little of it.
RISING = tuple(np.linspace(0.5, 0.9, SESSIONS))


def moderation(world: str, factors: Sequence[float]) -> Moderation:
    """Return what takes in earlier sessions of three launches whose scatter was so many times that of now."""
    rng = np.random.default_rng(5)
    runs = [factor * WORLDS[world](rng, (GATES, EACH)) for factor in factors]
    variance = np.mean([values.var(axis=1, ddof=1) for values in runs], axis=0)
    before = len(factors) * (EACH - 1)

    def moderated(now: Array, df: int) -> tuple[Array, Array]:
        alike = now <= variance * fdtri(df, before, 0.95)
        pooled = (df * now + before * variance) / (df + before)
        return np.where(alike, pooled, now), np.where(alike, df + before, df)

    return moderated


def at(world: str, truth: float, moderated: Moderation | None) -> Judged:
    looks = looks_for(BUDGET, TOLERANCE)
    values = WORLDS[world](np.random.default_rng(71), (GATES, LAUNCHES)) + truth * TOLERANCES
    some = Gates(values, np.zeros_like(values), np.ones(GATES))
    return judged(two_stages(some, BOUND, looks, spending(ALPHA, looks, BUDGET), moderated), ())


def test_gates_judged_all_at_once_get_the_intervals_of_the_statistics_room() -> None:
    moderated = moderation("normal, 2 %", RIGHT)
    values = WORLDS["normal, 2 %"](np.random.default_rng(71), (GATES, 4))
    low, high = intervals(Gates(values, np.zeros_like(values), np.ones(GATES)), 0.004, moderated)
    rng = np.random.default_rng(5)
    before = [WORLDS["normal, 2 %"](rng, (GATES, EACH)) for _ in range(SESSIONS)]
    alike = 0
    for gate in range(200):
        known = known_scatter([[LaunchValue(value, 0.0, 8) for value in run[gate]] for run in before])
        assert known is not None
        assert (known.df, known.runs) == (10, 5)
        alone = interval([LaunchValue(value, 0.0, 8) for value in values[gate]], 0.004)
        spread = with_known_scatter(alone, known, 0.004)
        alike += scatters_as_known(alone, known)
        assert (spread.low, spread.high) == pytest.approx((low[gate], high[gate]))
        assert spread.theta == alone.theta
        assert spread.df == (13 if scatters_as_known(alone, known) else 3)
    assert 180 <= alike < 200


@pytest.mark.parametrize("world", ["normal, 1 %", "normal, 2 %", "normal, 3 %", "t3, 3 %"])
def test_where_launches_scatter_as_they_did_no_rate_is_exceeded_and_launches_are_saved(world: str) -> None:
    moderated = moderation(world, RIGHT)
    for truth in (0.5, 0.0, -1.0):
        known, alone = at(world, truth, moderated), at(world, truth, None)
        assert not exceeds(known.fails if truth >= 0 else known.passes, GATES, 0.01)
        assert known.launches < alone.launches


def test_it_halves_the_launches_of_gates_at_a_scatter_of_two_per_cent() -> None:
    moderated = moderation("normal, 2 %", RIGHT)
    half, bound, edge = (at("normal, 2 %", truth, moderated) for truth in (0.5, 0.0, -1.0))
    assert (half.launches, bound.launches, edge.launches) == pytest.approx((3.2, 3.6, 9.7), abs=0.25)
    assert not falls_short(edge.fails, GATES, 0.98)


WRONG = [(HALF, 0.036), (TWO_THIRDS, 0.022), (RISING, 0.019), (TWICE, 0.0005)]


@pytest.mark.parametrize(("factors", "passes"), WRONG, ids=["half", "two thirds", "rising", "twice"])
@pytest.mark.parametrize("world", ["normal, 1 %", "normal, 2 %", "normal, 3 %"])
def test_what_was_known_wrongly_fails_nothing_more_and_lets_some_more_pass(
    world: str, factors: tuple[float, ...], passes: float
) -> None:
    moderated = moderation(world, factors)
    bound, edge = at(world, 0.0, moderated), at(world, -1.0, moderated)
    assert not exceeds(bound.fails, GATES, 0.0005)
    assert not exceeds(edge.passes, GATES, passes)


@pytest.mark.parametrize(
    ("world", "alone", "known"),
    [("exponential, few slow, 3 %", 0.033, 0.006), ("two states, 0.3 slower by 10 %", 0.15, 0.025)],
)
def test_launches_that_are_rarely_slow_pass_far_less_often_where_earlier_runs_have_seen_it(
    world: str, alone: float, known: float
) -> None:
    """Three launches that happen to agree do not hide what fifteen others have shown."""
    assert not falls_short(at(world, -1.0, None).passes, GATES, alone)
    assert not exceeds(at(world, -1.0, moderation(world, RIGHT)).passes, GATES, known)


def test_launches_that_resemble_the_one_before_err_as_they_do_by_themselves() -> None:
    bound, edge = (at("AR(1) 0.8, 3 %", truth, moderation("AR(1) 0.8, 3 %", RIGHT)) for truth in (0.0, -1.0))
    assert not exceeds(bound.fails, GATES, 0.055)
    assert not exceeds(edge.passes, GATES, 0.20)


def test_it_is_the_check_that_bounds_what_passes() -> None:
    """Without it a scatter twice what is known would pass far more."""
    moderated = moderation("normal, 2 %", (0.25,) * SESSIONS)

    def unchecked(now: Array, df: int) -> tuple[Array, Array]:
        variance, _ = moderated(np.zeros_like(now), df)
        before = SESSIONS * (EACH - 1)
        pooled = variance + df * now / (df + before)
        return pooled, np.full(len(now), df + before)

    assert not exceeds(at("normal, 2 %", -1.0, moderated).passes, GATES, 0.05)
    assert not falls_short(at("normal, 2 %", -1.0, unchecked).passes, GATES, 0.05)


@pytest.mark.parametrize(
    ("runs", "known"),
    [
        ([], None),
        ([3, 3], None),
        ([2, 2, 2, 2, 2], None),
        ([1, 1, 1, 9], None),
        ([3, 3, 3], (6, 3)),
        ([8, 8, 8], (14, 3)),
        ([9, 9], None),
        ([4, 4, 4, 4, 4, 4], (14, 5)),
        ([1, 3, 1, 3, 3], (6, 3)),
    ],
)
def test_how_many_runs_say_how_launches_scatter(runs: list[int], known: tuple[int, int] | None) -> None:
    found = known_scatter([[LaunchValue(0.01 * (n % 2), 0.0, 8) for n in range(count)] for count in runs])
    assert (None if found is None else (found.df, found.runs)) == known


def test_the_latest_runs_count_and_none_scatters_less_than_its_blocks_show() -> None:
    quiet, noisy = [LaunchValue(value, 0.0, 8) for value in (0.0, 0.01)], [LaunchValue(0.0, 0.04, 8)] * 2
    known = known_scatter([*[noisy] * 14, *[quiet] * 14])
    assert known is not None
    assert known.variance == pytest.approx(0.04)
    assert (known.df, known.runs) == (14, 14)


def test_launches_without_any_scatter_and_runs_without_any_are_judged_as_they_are() -> None:
    nothing = KnownScatter(0.0, 6, 3)
    still = interval([LaunchValue(0.1, 0.0, 8)] * 3, 0.004)
    moved = interval([LaunchValue(value, 0.0, 8) for value in (0.0, 0.1, 0.2)], 0.004)
    assert with_known_scatter(still, nothing, 0.004).half_width == 0
    assert with_known_scatter(moved, nothing, 0.004) == moved
    (single,) = [interval([LaunchValue(0.1, 0.0, 8)], 0.004)]
    assert with_known_scatter(single, KnownScatter(0.01, 6, 3), 0.004) == single

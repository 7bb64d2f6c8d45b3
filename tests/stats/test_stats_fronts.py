"""Fronts: what dominates what by hand, and on the simulated machine how often a front says something false."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.special import stdtrit

from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats import (
    Contrast,
    LaunchValue,
    at_any_stop,
    cannot_dominate,
    dominates,
    front_levels,
    interval,
    left_behind,
)
from pytest_ngraph.stats.shares import interval_apart, paired_interval, quick_paired_interval
from tests.support.simulator import Array, World, exceeds, launch_values, ln_times

ZONE = -math.log1p(-0.05)


def exact(*thetas: float, zone: float = ZONE) -> list[Contrast]:
    return [Contrast.exactly(theta, zone) for theta in thetas]


# By hand


@pytest.mark.parametrize(
    ("thetas", "zone", "does", "cannot"),
    [
        ((0.2, 0.2), ZONE, True, False),
        ((0.2, 0.0), ZONE, True, False),
        # A little worse counts as equal, a little better as well.
        ((0.2, -0.04), ZONE, True, False),
        ((0.04, 0.04), ZONE, False, True),
        ((0.2, -0.06), ZONE, False, True),
        ((0.0, 0.0), ZONE, False, True),
        # Without a zone equal is equal, and the least more is better.
        ((0.0, 0.0), 0.0, False, True),
        ((1e-9, 0.0), 0.0, True, False),
        ((1e-9, -1e-9), 0.0, False, True),
        ((0.2,), ZONE, True, False),
    ],
)  # fmt: skip
def test_exact_numbers_are_decided_either_way(thetas: Sequence[float], zone: float, does: bool, cannot: bool) -> None:
    contrasts = exact(*thetas, zone=zone)
    assert (dominates(contrasts, 0.01), cannot_dominate(contrasts, 0.01)) == (does, cannot)


def test_of_two_at_most_one_dominates_whatever_the_zone() -> None:
    for theta in (-0.3, -0.06, -0.05, 0.0, 0.05, 0.06, 0.3):
        for other in (-0.3, -0.06, 0.0, 0.06, 0.3):
            for zone in (0.0, 0.05, 0.2):
                assert not (
                    dominates(exact(theta, other, zone=zone), 0.1) and dominates(exact(-theta, -other, zone=zone), 0.1)
                )


def test_what_is_unknown_decides_nothing_and_is_neither_best_nor_worst() -> None:
    unknown = Contrast.unknown(ZONE)
    assert not dominates([*exact(5.0), unknown], 0.01)
    assert not cannot_dominate([*exact(5.0), unknown], 0.01)
    # Shown to be worse by one objective it does not dominate, whatever the other is.
    assert cannot_dominate([*exact(-5.0), unknown], 0.01)
    assert not dominates([], 0.01)


@pytest.mark.parametrize("count", [0, 1, 2])
def test_fewer_than_three_launches_say_nothing(count: int) -> None:
    values = [LaunchValue(0.5, 0.0, 8)] * max(1, count)
    contrast = Contrast.of(interval(values, 0.01))
    assert contrast.ends(0.01) == (-math.inf, math.inf)
    assert at_any_stop(count) == 0


def test_a_nan_decides_nothing() -> None:
    contrast = Contrast.exactly(math.nan, ZONE)
    assert not dominates([contrast], 0.01)
    assert not cannot_dominate([contrast], 0.01)
    assert not dominates([*exact(1.0), contrast], 0.01)


def test_an_interval_pays_for_every_stop_that_there_could_have_been() -> None:
    values = [LaunchValue(value, 0.0, 8) for value in (0.1, 0.12, 0.08, 0.11)]
    low, high = Contrast.of(interval(values, 0.01)).ends(0.01)
    # Four launches are the second chance to stop: 1 / (2 x 3) of the level.
    half = stdtrit(3, 1 - 0.01 / 6) * interval(values, 0.01).s / 2
    assert (low, high) == pytest.approx((0.1025 - half, 0.1025 + half))
    planned = Contrast.of(interval(values, 0.01), share=1.0).ends(0.01)
    assert planned[1] - planned[0] < high - low
    assert sum(at_any_stop(launches) for launches in range(3, 10_000)) == pytest.approx(1, abs=2e-4)


def test_levels_are_shared_out_over_all_pairs_one_way_and_over_all_things_the_other() -> None:
    off, on = front_levels(0.01, 3)
    assert off == pytest.approx(0.01 / 6)
    assert on == pytest.approx(0.01 / 3)
    assert front_levels(0.01, 1) == front_levels(0.01, 0) == (0.01, 0.01)
    with pytest.raises(SpecError, match=r"front_levels: rate 0.6 \(expected 0 < rate < 0.5\)"):
        front_levels(0.6, 3)


def test_a_circle_throws_nothing_off_but_what_lies_below_it() -> None:
    assert left_behind([]) == []
    assert left_behind([[]]) == [False]
    assert left_behind([[1], [0]]) == [False, False]
    # 0, 1 and 2 in a circle; 3 is dominated by one of them, 4 by 3.
    assert left_behind([[1], [2], [0], [0], [3]]) == [False, False, False, True, True]
    assert left_behind([[], [0], [1]]) == [False, True, True]


# On the simulated machine

RATE, LAUNCHES, FRONTS = 0.05, 6, 500
WORLDS = {"ordinary": World(batches=3), "noisy": World(launch=0.03, batches=3), "clocks": World(clock=0.2, batches=3)}
Flags = NDArray[np.bool_]


@cache
def machine(world: str, things: int) -> tuple[Array, Array]:
    """Return ln seconds of things in launches that visit all of them, and the variances of their differences' means.

    Fronts x launches x things, true value 0; the variances are those of the blocks of a pair, which are alike.
    """
    rng, at_once = np.random.default_rng([91, things, *world.encode()]), 125
    parts = []
    for _ in range(FRONTS // at_once):
        times = ln_times(rng, WORLDS[world], np.ones(at_once), LAUNCHES, 8, things, "mirrored")
        parts.append(times)
    times = np.concatenate(parts)
    values, _ = launch_values(np.moveaxis(times, -1, -2))
    return np.asarray(values), rng.standard_normal((FRONTS, LAUNCHES, things))


@dataclass(frozen=True)
class Truth:
    """Where things truly are by an objective, above 0 is better, and whether launches are shared by all of them."""

    places: Sequence[float]
    together: bool = True
    noise: float = 1.0


def ends(values: Array, truth: Truth, launches: int, level: float) -> tuple[Array, Array]:
    """Return the interval of each thing over each other one: fronts x first x second."""
    better = truth.noise * values[:, :launches, :] + np.asarray(truth.places)
    theta = better.mean(axis=1)[:, :, None] - better.mean(axis=1)[:, None, :]
    share = at_any_stop(launches)
    if truth.together:
        apart = better[:, :, :, None] - better[:, :, None, :]
        error, df = apart.std(axis=1, ddof=1) / math.sqrt(launches), np.asarray(launches - 1.0)
    else:
        share = share**2
        each = better.var(axis=1, ddof=1) / launches
        total = each[:, :, None] + each[:, None, :]
        df = np.floor(total**2 / ((each[:, :, None] ** 2 + each[:, None, :] ** 2) / (launches - 1)))
        error = np.sqrt(total)
    half = -stdtrit(df, level * share) * error
    return theta - half, theta + half


def called(truths: Sequence[Truth], world: str, launches: int, zone: float, rate: float = RATE) -> tuple[Flags, Flags]:
    """Return of each front which thing dominates which by ``dominates``, and which is shown not to."""
    things, count = len(truths[0].places), len(truths)
    paired, apart = machine(world, things)
    off, on = front_levels(rate, things)

    def at(level: float) -> list[tuple[Array, Array]]:
        return [
            ends(-paired if truth.together else apart * 0.01, truth, launches, level)
            if truth.together or not number
            else ends(np.roll(apart, number, axis=0) * 0.01, truth, launches, level)
            for number, truth in enumerate(truths)
        ]

    least, one = at(off), at(off / count)
    does = np.all([low >= -zone for low, _ in least], axis=0) & np.any([low > zone for low, _ in one], axis=0)
    half, part = at(on / 2), at(on / 2 / count)
    cannot = np.any([high < -zone for _, high in part], axis=0) | np.all([high <= zone for _, high in half], axis=0)
    return does, cannot


def thrown_off(does: Flags) -> Flags:
    """Return which things of each front are off it: fronts x things."""
    return np.asarray(
        [left_behind([list(np.flatnonzero(front[:, one])) for one in range(front.shape[1])]) for front in does]
    )


def test_fronts_called_all_at_once_are_those_of_the_statistics_room() -> None:
    truths = [Truth((1.0, 0.0, 0.06)), Truth((0.3, 0.0, 0.06), together=False)]
    does, cannot = called(truths, "ordinary", LAUNCHES, ZONE)
    paired, apart = machine("ordinary", 3)
    off, on = front_levels(RATE, 3)
    seen = set()
    for front in range(60):
        for one, other in ((0, 1), (1, 0), (2, 1), (0, 2)):
            first = -paired[front] + np.asarray(truths[0].places)
            second = np.roll(apart, 1, axis=0)[front] * 0.01 + np.asarray(truths[1].places)
            values = [LaunchValue(value, 0.0, 8) for value in first[:, one] - first[:, other]]
            means = [second[:, place] for place in (one, other)]
            parts = [each.var(ddof=1) / LAUNCHES for each in means]
            df = math.floor(sum(parts) ** 2 / sum(part**2 / (LAUNCHES - 1) for part in parts))
            theta, error = means[0].mean() - means[1].mean(), math.sqrt(sum(parts))

            def apart_ends(
                level: float, theta: float = theta, df: int = df, error: float = error
            ) -> tuple[float, float]:
                half = -stdtrit(df, level * at_any_stop(LAUNCHES) ** 2) * error
                return theta - half, theta + half

            contrasts = [Contrast.of(interval(values, 0.01), ZONE), Contrast(theta, apart_ends, ZONE)]
            assert dominates(contrasts, off) == does[front, one, other]
            assert cannot_dominate(contrasts, on) == cannot[front, one, other]
            seen |= {(bool(does[front, one, other]), bool(cannot[front, one, other]))}
    assert len(seen) == 3


def star(things: int, centre: float, others: float) -> tuple[float, ...]:
    return (centre, *(others,) * (things - 1))


@pytest.mark.parametrize(("world", "things"), [*((world, 3) for world in WORLDS), ("noisy", 10), ("noisy", 30)])
def test_what_nothing_dominates_is_thrown_off_in_so_many_fronts_at_most(world: str, things: int) -> None:
    """The worst for the centre: all others far better by one objective, worse by just the zone by the other one.

    And for all of them: equal by a single objective without a zone, so that each pair is at its edge both ways round.
    """
    edges = {
        "paired edge": ([Truth(star(things, 0.0, 1.0)), Truth(star(things, ZONE, 0.0))], ZONE),
        "edge of own launches": ([Truth(star(things, 0.0, 1.0)), Truth(star(things, ZONE, 0.0), together=False)], ZONE),
        "twins": ([Truth((0.0,) * things)], 0.0),
        "twins by two": ([Truth((0.0,) * things), Truth((0.0,) * things, together=False)], 0.0),
        "steps": ([Truth([ZONE * one for one in range(things)])], ZONE),
    }
    for name, (truths, zone) in edges.items():
        for launches in (3, LAUNCHES):
            does, _ = called(truths, world, launches, zone)
            off = thrown_off(does)
            wrong = off[:, 0] if "edge" in name else off.any(axis=1)
            if name == "steps":
                # Only a step of exactly one zone is no domination.
                wrong = np.stack([does[:, one + 1, one] for one in range(things - 1)], axis=1).any(axis=1)
            assert not exceeds(int(wrong.sum()), FRONTS, RATE), (name, launches, int(wrong.sum()))


@pytest.mark.parametrize("things", [3, 10])
def test_it_holds_for_who_measures_on_until_something_is_thrown_off(things: int) -> None:
    wrong = np.zeros(FRONTS, bool)
    for launches in range(3, LAUNCHES + 1):
        does, _ = called([Truth((0.0,) * things)], "noisy", launches, 0.0)
        wrong |= thrown_off(does).any(axis=1)
    assert not exceeds(int(wrong.sum()), FRONTS, RATE)


@pytest.mark.parametrize(("world", "things"), [*((world, 3) for world in WORLDS), ("noisy", 10), ("noisy", 30)])
def test_what_something_dominates_is_said_to_be_on_the_front_in_so_many_at_most(world: str, things: int) -> None:
    """The worst: each thing is dominated by the first one, by just the zone by one objective and equal by the other."""
    equal = Truth((0.0,) * things, together=False)
    for launches in (3, LAUNCHES):
        for truths in ([Truth(star(things, ZONE, 0.0)), equal], [Truth(star(things, ZONE, 0.0))]):
            _, cannot = called(truths, world, launches, ZONE)
            said = np.ones((FRONTS, things), bool)
            for other in range(things):
                said &= cannot[:, other, :] | (np.arange(things) == other)
            assert not exceeds(int(said[:, 1:].any(axis=1).sum()), FRONTS, RATE)


@pytest.mark.parametrize("zone", [0.0, ZONE])
@pytest.mark.parametrize("rate", [0.01, 0.4])
def test_equal_twins_are_never_both_thrown_off(zone: float, rate: float) -> None:
    for world in WORLDS:
        does, _ = called([Truth((0.0,) * 3), Truth((0.0,) * 3, together=False)], world, 4, zone, rate)
        off = thrown_off(does)
        assert not off.all(axis=1).any()
        assert not (does & np.swapaxes(does, 1, 2)).any()


def test_what_is_clearly_better_is_found_and_what_trades_is_kept() -> None:
    """No guard against false words is worth much that says nothing at all."""
    truths = [Truth((0.7, 0.0, 1.4, 0.3)), Truth((0.3, 0.0, -0.7, 0.3), together=False)]
    does, cannot = called(truths, "ordinary", 6, ZONE, 0.01)
    assert does[:, 0, 1].mean() > 0.9
    assert does[:, 3, 1].mean() > 0.8
    for one, other in ((0, 2), (2, 0), (3, 0), (1, 0)):
        assert not does[:, one, other].any()
    assert cannot[:, 1, 0].mean() > 0.95
    assert thrown_off(does)[:, 1].mean() > 0.9
    assert not thrown_off(does)[:, 0].any()


@pytest.mark.parametrize(("first", "second"), [(0.02, 0.02), (0.10, 0.01), (0.0, 0.05), (0.3, 0.3), (0.0, 0.0)])
def test_the_quick_interval_of_pairs_misses_the_difference_so_often_at_most_and_holds_the_exact_one(
    first: float, second: float
) -> None:
    rng, samples, level, trials = np.random.default_rng(17), 200, 0.05, 2000
    below = above = 0
    for mine, theirs, _ in rng.multinomial(samples, [first, second, 1 - first - second], size=trials):
        low, high = quick_paired_interval(int(mine), int(theirs), samples, level)
        below += high < first - second
        above += low > first - second
    assert not exceeds(below, trials, level)
    assert not exceeds(above, trials, level)


def test_intervals_of_shares_by_hand() -> None:
    assert quick_paired_interval(0, 0, 1000, 0.01) == pytest.approx((-0.0053, 0.0053), abs=1e-4)
    low, high = quick_paired_interval(60, 20, 1000, 0.01)
    assert 0 < low < 0.04 < high
    exact = paired_interval(60, 20, 1000, 0.01)
    assert exact[0] == pytest.approx(low, abs=0.02)
    mirrored = quick_paired_interval(20, 60, 1000, 0.01)
    assert mirrored == pytest.approx((-high, -low))
    least, most = interval_apart((900, 500), (1000, 1000), 0.01)
    assert least < 0.4 < most

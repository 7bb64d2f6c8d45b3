"""What must break the promised error rates does, on the machine and by the bounds of ``test_stats_verdicts``.

Each control differs from the protocol in one thing only, and the protocol is shown to hold beside it. So the tests
of the rates can fail.
"""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
from scipy.optimize import brentq
from scipy.special import digamma, zeta

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, Bound, looks_for, spending
from tests.support.simulator import (
    Array,
    Gates,
    Moderation,
    Order,
    World,
    exceeds,
    falls_short,
    first_stage,
    launch_values,
    ln_times,
    simulate,
    speedup,
    two_stages,
)

RATE, TOLERANCE, LAUNCHES = 0.01, 0.05, 8
LOOKS = looks_for(LAUNCHES, TOLERANCE)
LEVELS = spending(ALPHA, LOOKS, LAUNCHES)
EDGE = math.log1p(-TOLERANCE)
BOUND = Bound(1.0, at_least=True, tolerance=TOLERANCE, scale="log")


def false_fails(gates: Gates, moderated: Moderation | None = None) -> int:
    return first_stage(gates, BOUND, LOOKS, LEVELS, moderated).fails


def false_passes(gates: Gates, moderated: Moderation | None = None) -> int:
    return first_stage(gates.at(EDGE), BOUND, LOOKS, LEVELS, moderated).passes


# Looking too often, and at the wrong unit.


@cache
def blocks() -> Array:
    """Return the block contrasts of gates whose launches differ much: gates x 16 launches x 8 blocks."""
    world = World(launch=0.08, batches=5)
    return speedup(ln_times(np.random.default_rng(23), world, np.ones(6000), 16, 8, 2, "mirrored"))


def launches() -> Gates:
    values, within = launch_values(blocks())
    return Gates(values, within, np.ones(len(values)))


def test_peeking_after_every_launch_is_caught_and_the_planned_looks_are_not() -> None:
    gates, planned, every = launches(), looks_for(16, TOLERANCE), range(2, 17)
    count = len(gates.values)
    assert not exceeds(first_stage(gates, BOUND, planned, spending(ALPHA, planned, 16)).fails, count, RATE)
    assert exceeds(first_stage(gates, BOUND, every, [ALPHA / 2] * len(every)).fails, count, RATE)


def test_intervals_over_blocks_that_ignore_launches_are_caught_and_those_over_launches_are_not() -> None:
    values = blocks()[:, :LAUNCHES].reshape(len(blocks()), -1)
    as_launches = Gates(values, np.zeros_like(values), np.ones(len(values)))
    looks = [8 * look for look in LOOKS]
    levels = spending(ALPHA, looks, looks[-1])
    assert exceeds(first_stage(as_launches, BOUND, looks, levels).fails, len(values), RATE)
    assert exceeds(first_stage(as_launches.at(EDGE), BOUND, looks, levels).passes, len(values), RATE)
    assert not exceeds(false_fails(launches()), len(values), RATE)
    assert not exceeds(false_passes(launches()), len(values), RATE)


# Order: the same machine, drifting on from launch to launch, visited otherwise.

COUNT = 5000


def in_order(order: Order, world: World) -> Gates:
    return simulate(np.random.default_rng(37), world, COUNT, LAUNCHES + CONFIRMING_LAUNCHES, order=order)


DRIFTING = {"ordinary": World(), "undecidable": World(launch=0.08), "changing": World(change=1.0)}


@pytest.mark.parametrize("world", DRIFTING)
def test_all_launches_of_one_cell_before_all_of_the_other_are_caught_and_mirrored_blocks_are_not(world: str) -> None:
    """The usual way: 12 to 28 % err on each side. Confirmed, 3 to 16 % fail: fresh launches have drifted alike."""
    mirrored, apart = (in_order(order, DRIFTING[world]) for order in ("mirrored", "one after the other"))
    assert exceeds(false_fails(apart), COUNT, 10 * RATE)
    assert exceeds(false_passes(apart), COUNT, 10 * RATE)
    assert exceeds(two_stages(apart, BOUND, LOOKS, LEVELS).fails, COUNT, 2 * RATE)
    assert not exceeds(false_fails(mirrored), COUNT, RATE)
    assert not exceeds(false_passes(mirrored), COUNT, RATE)


def test_cell_by_cell_in_each_launch_is_caught_where_launches_fade_and_mirrored_blocks_are_not() -> None:
    """Whichever cell comes second gets the slower machine: of a turbo that loses 5 % it always pays half."""
    mirrored, apart = (in_order(order, World(fading=0.05)) for order in ("mirrored", "cell by cell"))
    assert exceeds(false_fails(apart), COUNT, 5 * RATE)
    assert not exceeds(false_fails(mirrored), COUNT, RATE)
    assert not exceeds(false_passes(mirrored), COUNT, RATE)


def test_cell_by_cell_in_each_launch_of_a_machine_without_direction_costs_decisions_instead() -> None:
    """Drift that goes either way becomes noise of launches, which the interval sees: true, and five times as wide."""
    mirrored, apart = (in_order(order, World()) for order in ("mirrored", "cell by cell"))
    assert not exceeds(false_fails(apart), COUNT, RATE)
    assert apart.values.std() > 4 * mirrored.values.std()
    assert falls_short(two_stages(apart, BOUND, LOOKS, LEVELS).passes, COUNT, 0.5)
    assert not falls_short(two_stages(mirrored, BOUND, LOOKS, LEVELS).passes, COUNT, 0.99)


# Borrowing the noise of other gates.

SUITES, SIZE = 150, 200


def moderated(variances: Array, df: int) -> tuple[Array, float]:
    """Shrink the variances of one suite's gates towards their common prior, and add its degrees of freedom.

    d0 and s0^2 are estimated from the moments of ln s^2, that of a scaled F variable (Smyth 2004, section 6.2); d0 is
    infinite where the variances differ no more than chance makes them.
    """
    logs = np.log(variances) - digamma(df / 2) + math.log(df / 2)
    surplus = float(logs.var(ddof=1)) - _trigamma(df / 2)
    if surplus <= 0:
        return np.full_like(variances, math.exp(logs.mean())), 1e6
    d0 = 2 * brentq(lambda half: _trigamma(half) - surplus, 1e-3, 1e6)
    prior = math.exp(float(logs.mean()) + digamma(d0 / 2) - math.log(d0 / 2))
    return (d0 * prior + df * variances) / (d0 + df), d0 + df


def _trigamma(x: float) -> float:
    return float(zeta(2, x))


def by_suite(variances: Array, df: int) -> tuple[Array, Array]:
    """Moderate each suite's gates on their own; the gates come suite after suite."""
    each = [moderated(suite, df) for suite in variances.reshape(SUITES, SIZE)]
    shrunk = np.concatenate([variance for variance, _ in each])
    return shrunk, np.repeat([freedom for _, freedom in each], SIZE)


def noisiest_that_err(world: World, rule: Moderation | None) -> tuple[int, int, int]:
    """Return how many of the noisiest tenth of all gates fail at their bound, pass at their edge, and are at all."""
    gates = simulate(np.random.default_rng(43), world, SUITES * SIZE, LAUNCHES)
    some = gates.noise >= np.quantile(gates.noise, 0.9)
    fails = first_stage(gates, BOUND, LOOKS, LEVELS, rule).failed[some]
    passes = first_stage(gates.at(EDGE), BOUND, LOOKS, LEVELS, rule).passed[some]
    return int(fails.sum()), int(passes.sum()), int(some.sum())


@pytest.mark.parametrize("launch", [0.02, 0.08])
def test_variances_moderated_over_a_suite_of_unequal_gates_are_caught_and_plain_t_is_not(launch: float) -> None:
    """The noisiest tenth err in 5 % (launches scatter by 1 to 4.5 %) or 3.5 % (4 to 18 %) on each side."""
    world = World(launch=launch, unequal=5.0, batches=3)
    fails, passes, count = noisiest_that_err(world, by_suite)
    assert exceeds(fails, count, 2 * RATE)
    assert exceeds(passes, count, 2 * RATE)
    fails, passes, count = noisiest_that_err(world, None)
    assert not exceeds(fails, count, RATE)
    assert not exceeds(passes, count, RATE)


def test_variances_moderated_over_equal_gates_are_not_caught() -> None:
    """It is the inequality that breaks the level, and not this file's way of moderating."""
    equal = World(launch=0.08, batches=3)
    gates = simulate(np.random.default_rng(47), equal, SUITES * SIZE, LAUNCHES)
    assert not exceeds(false_fails(gates, by_suite), SUITES * SIZE, RATE)
    assert not exceeds(false_passes(gates, by_suite), SUITES * SIZE, RATE)
    freedom = moderated(gates.values[:SIZE, :3].var(axis=1, ddof=1), 2)[1]
    assert freedom > 20


# A slope's own standard error.


def test_the_standard_error_of_a_regression_books_lack_of_fit_as_noise() -> None:
    """docs/measuring.md, step 9: on a curve that saturates it is more than ten times that of four launches."""
    depths = np.arange(1, 7)
    curve = 1 + 2 * (1 - np.exp(-depths / 2))
    weights = (depths - depths.mean()) / ((depths - depths.mean()) ** 2).sum()
    noise = np.exp(0.01 * np.random.default_rng(29).standard_normal((4000, 4, len(depths))))
    of_launches = np.mean(((curve * noise) @ weights).std(axis=1, ddof=1)) / 2
    residuals = curve - np.polyval(np.polyfit(depths, curve, 1), depths)
    booked = math.sqrt(residuals @ residuals / (len(depths) - 2) / ((depths - depths.mean()) ** 2).sum())
    assert booked > 10 * of_launches

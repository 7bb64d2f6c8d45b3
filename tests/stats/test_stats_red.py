"""What a CI user sees of the error rates: red by chance is fail or inconclusive, and which launches let more pass."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, Bound, looks_for, spending
from tests.support.simulator import Gates, World, exceeds, falls_short, first_stage, simulate, two_stages

LAUNCHES, TOLERANCE = 8, 0.05
LOOKS = looks_for(LAUNCHES, TOLERANCE)
LEVELS = spending(ALPHA, LOOKS, LAUNCHES)
BOUND = Bound(1.0, at_least=True, tolerance=TOLERANCE, scale="log")
EDGE = math.log1p(-TOLERANCE)


def normal(scatter: float, count: int, seed: int = 3) -> Gates:
    """Return gates at their bound whose launches scatter normally, and whose blocks show nothing of it."""
    values = scatter * np.random.default_rng(seed).standard_normal((count, LAUNCHES + CONFIRMING_LAUNCHES))
    return Gates(values, np.zeros_like(values), np.ones(count))


@pytest.mark.parametrize(
    ("scatter", "at_least", "at_most"),
    [(0.01, 0.0, 0.0001), (0.015, 0.00005, 0.0005), (0.02, 0.007, 0.011), (0.025, 0.065, 0.085), (0.03, 0.19, 0.23)],
)
def test_a_gate_at_its_bound_is_red_by_chance_where_it_stays_undecided(
    scatter: float, at_least: float, at_most: float
) -> None:
    """Hardly any fails; the red ones of CI are those that eight launches leave open, and scatter decides how many."""
    count = 100_000
    judged = two_stages(normal(scatter, count), BOUND, LOOKS, LEVELS)
    red = count - judged.passes
    assert judged.fails <= count // 10_000
    assert not falls_short(red, count, at_least)
    assert not exceeds(red, count, at_most)


def test_of_suites_of_fifty_such_gates_a_third_is_red_at_a_scatter_of_two_per_cent() -> None:
    suites, size = 4000, 50
    judged = two_stages(normal(0.02, suites * size, seed=5), BOUND, LOOKS, LEVELS)
    red = int((~judged.passed).reshape(suites, size).any(axis=1).sum())
    assert not falls_short(red, suites, 0.33)
    assert not exceeds(red, suites, 0.39)


@pytest.mark.parametrize(
    ("apart", "rest", "share", "at_least", "at_most"),
    [(0.05, 0.005, 0.62, 0.08, 0.105), (0.10, 0.005, 0.74, 0.29, 0.33), (0.10, 0.01, 0.74, 0.17, 0.21)],
)
def test_launches_with_two_states_let_more_pass(
    apart: float, rest: float, share: float, at_least: float, at_most: float
) -> None:
    """Three launches that happen to be in the faster state agree, and know nothing of the other.

    ``share`` of the launches are in the faster one, which is where most pass; the mean misses the bound by the
    tolerance.
    """
    rng, count = np.random.default_rng(7), 40_000
    faster = rng.random((count, LAUNCHES)) < share
    values = apart * (faster - share) + rest * rng.standard_normal((count, LAUNCHES))
    some = Gates(values, np.zeros_like(values), np.ones(count))
    passes = first_stage(some.at(EDGE), BOUND, LOOKS, LEVELS).passes
    assert not falls_short(passes, count, at_least)
    assert not exceeds(passes, count, at_most)


@pytest.mark.parametrize(("visits", "at_least", "at_most"), [("as usual", 0.015, 0.021), ("quiet", 0.043, 0.055)])
def test_launches_that_are_rarely_far_too_slow_pass_more_often_where_visits_are_quiet(
    visits: str, at_least: float, at_most: float
) -> None:
    """At a launch scatter of 3 %. Noise within launches is a floor under the interval; without it there is none."""
    quiet = {"visit": 0.001, "batch": 0.001, "spikes": 0.0, "drift": 0.0, "walk": 0.0, "clock": 0.0, "change": 0.0}
    world, count = replace(World(launch=0.03, skewed=1), **(quiet if visits == "quiet" else {})), 40_000  # type: ignore[arg-type]
    some = simulate(np.random.default_rng(19), world, count, LAUNCHES)
    passes = first_stage(some.at(EDGE), BOUND, LOOKS, LEVELS).passes
    assert not falls_short(passes, count, at_least)
    assert not exceeds(passes, count, at_most)

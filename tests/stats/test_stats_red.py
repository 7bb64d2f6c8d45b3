"""What a CI user sees of the error rates: red by chance is fail or inconclusive, and which launches let more pass."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, Bound, looks_for, spending
from tests.support.simulator import Gates, World, exceeds, falls_short, first_stage, simulate, two_stages

LAUNCHES, TOLERANCE = 16, 0.05  # the default budget
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
    [(0.01, 0.0, 0.0001), (0.02, 0.0001, 0.0008), (0.03, 0.003, 0.0045), (0.035, 0.011, 0.015), (0.04, 0.042, 0.049)],
)
def test_a_gate_at_its_bound_is_red_by_chance_where_it_stays_undecided(
    scatter: float, at_least: float, at_most: float
) -> None:
    """Hardly any fails; the red ones of CI are those that sixteen launches leave open, and scatter decides how many."""
    count = 100_000
    judged = two_stages(normal(scatter, count), BOUND, LOOKS, LEVELS)
    red = count - judged.passes
    assert judged.fails <= count // 10_000
    assert not falls_short(red, count, at_least)
    assert not exceeds(red, count, at_most)


@pytest.mark.parametrize(
    ("scatter", "room", "at_least", "at_most"),
    [(0.02, 0.0, 0.008, 0.025), (0.03, 0.0, 0.14, 0.20), (0.02, 0.5, 0.0, 0.001), (0.03, 0.5, 0.0, 0.003)],
)
def test_of_suites_of_fifty_gates_few_are_red_where_their_bounds_have_some_room(
    scatter: float, room: float, at_least: float, at_most: float
) -> None:
    """``room`` is how much better the truth is than the bound, in tolerances; the goal is 1 % at 2 %, 5 % at 3 %."""
    suites, size = 3000, 50
    judged = two_stages(normal(scatter, suites * size, seed=5).at(-room * EDGE), BOUND, LOOKS, LEVELS)
    red = int((~judged.passed).reshape(suites, size).any(axis=1).sum())
    assert not falls_short(red, suites, at_least)
    assert not exceeds(red, suites, at_most)


@pytest.mark.parametrize(
    ("apart", "rest", "share", "at_least", "at_most"),
    [(0.05, 0.005, 0.62, 0.06, 0.075), (0.10, 0.005, 0.74, 0.265, 0.29), (0.10, 0.01, 0.74, 0.16, 0.18)],
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


@pytest.mark.parametrize(("visits", "at_least", "at_most"), [("as usual", 0.013, 0.019), ("quiet", 0.035, 0.044)])
def test_launches_that_are_rarely_far_too_slow_pass_more_often_where_visits_are_quiet(
    visits: str, at_least: float, at_most: float
) -> None:
    """At a launch scatter of 3 %. Noise within launches is a floor under the interval; without it there is none."""
    quiet = {"visit": 0.001, "batch": 0.001, "spikes": 0.0, "drift": 0.0, "walk": 0.0, "clock": 0.0, "change": 0.0}
    world, count = replace(World(launch=0.03, skewed=1), **(quiet if visits == "quiet" else {})), 20_000  # type: ignore[arg-type]
    some = simulate(np.random.default_rng(19), world, count, LAUNCHES)
    passes = first_stage(some.at(EDGE), BOUND, LOOKS, LEVELS).passes
    assert not falls_short(passes, count, at_least)
    assert not exceeds(passes, count, at_most)

"""Other error rates than the usual one: what is asked for holds, and what is clear goes by it."""

from __future__ import annotations

import numpy as np
import pytest

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats import Bound, false_fail_chance, looks_for, spending
from pytest_ngraph.stats.launches import Interval
from pytest_ngraph.stats.verdict import ERROR_RATE, clear_level, is_clear_fail
from tests.support.simulator import Gates, exceeds, falls_short, first_stage

BOUND = Bound(1.0, at_least=True, tolerance=0.05, scale="log")
GATES = 400_000


@pytest.mark.parametrize("rate", [0.003, 0.001, 0.0006])
def test_gates_pass_by_chance_as_often_as_they_may_and_not_far_less(rate: float) -> None:
    """By launches that scatter far more than the tolerance, so that no fail comes first: 0.93 to 1.0 of the rate."""
    looks = looks_for(16, BOUND.tolerance)
    values = np.random.default_rng(83).standard_normal((GATES, 16)) + BOUND.edge
    some = Gates(values, np.zeros_like(values), np.ones(GATES))
    passed = int(first_stage(some, BOUND, looks, spending(ALPHA * rate / ERROR_RATE, looks, 16)).passed.sum())
    assert not exceeds(passed, GATES, rate)
    assert not falls_short(passed, GATES, 0.8 * rate)


def test_what_is_clear_at_the_usual_rate_may_not_be_at_a_lower_one() -> None:
    seen, barely = (
        Interval(-0.5, 0.1, -0.6, -0.4, 0.002, 3, 4, 0.002, 0.0),
        Interval(-0.2, 0.1, -0.3, -0.1, 0.018, 3, 4, 0.018, 0.0),
    )
    assert is_clear_fail(seen, BOUND, 0.001)
    assert is_clear_fail(barely, BOUND)
    assert not is_clear_fail(barely, BOUND, 0.00001)
    # A higher rate makes nothing clearer than it is.
    assert clear_level(0.1) == clear_level(ERROR_RATE)


def test_false_fails_become_rarer_with_the_rate() -> None:
    assert false_fail_chance(5, rate=0.001) == pytest.approx(false_fail_chance(5) / 10)
    assert false_fail_chance(0, strict=5, rate=0.001) == pytest.approx(false_fail_chance(0, strict=5) / 10)

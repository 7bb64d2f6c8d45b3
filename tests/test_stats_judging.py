"""Bounds, verdicts, confirmation and percentiles, case by case."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats import (
    Bound,
    Interval,
    LaunchValue,
    Verdict,
    channels_agree,
    confirm,
    interval,
    judge,
    percentile_bound,
    smallest_visible,
)

AT_LEAST_1 = Bound(1.0, at_least=True, tolerance=0.05, scale="log")
AT_MOST_1 = Bound(1.0, at_least=False, tolerance=0.05, scale="log")


def between(low: float, high: float) -> Interval:
    """An interval on the log scale, given as factors."""
    a, b = math.log(low), math.log(high)
    return Interval((a + b) / 2, (b - a) / 2, a, b, 0.01, 3, 4, 0.01, 0.01)


@pytest.mark.parametrize(
    ("low", "high", "at_least", "at_most"),
    [
        (1.01, 1.2, "pass", "fail"),
        (0.96, 1.2, "pass", "inconclusive"),
        (0.96, 0.99, "pass", "pass"),
        (0.94, 1.01, "inconclusive", "pass"),
        (0.90, 0.99, "fail", "pass"),
        (0.50, 0.94, "fail", "pass"),
        (0.94, 1.06, "inconclusive", "inconclusive"),
        (0.97, 1.04, "pass", "pass"),
        (1.02, 1.04, "pass", "pass"),
        (1.02, 1.06, "pass", "fail"),
    ],
)
def test_the_place_of_the_interval_decides(low: float, high: float, at_least: str, at_most: str) -> None:
    assert judge(between(low, high), AT_LEAST_1) == at_least
    assert judge(between(low, high), AT_MOST_1) == at_most


def test_the_edges_are_a_fraction_on_the_log_scale_and_an_amount_on_the_linear_one() -> None:
    assert math.exp(Bound(2.0, True, 0.05, "log").edge) == pytest.approx(1.9)
    assert math.exp(Bound(2.0, False, 0.05, "log").edge) == pytest.approx(2.1)
    assert math.exp(Bound(2.0, False, 0.05, "log").line) == pytest.approx(2.0)
    assert Bound(-1.0, True, 0.25, "linear").edge == -1.25
    assert Bound(-1.0, False, 0.25, "linear").edge == -0.75
    assert Bound(-1.0, False, 0.25, "linear").line == -1.0


def test_one_launch_never_decides_and_a_noiseless_value_on_its_bound_passes() -> None:
    assert judge(interval([LaunchValue(5.0, 0.0, 8)], 0.01), AT_LEAST_1) is Verdict.INCONCLUSIVE
    exact = interval([LaunchValue(math.log(3.0), 0.0, 8)] * 3, 0.01)
    assert judge(exact, Bound(3.0, True, 0.0, "log")) is Verdict.PASS
    assert judge(exact, Bound(3.0, False, 0.0, "log")) is Verdict.PASS
    assert judge(exact, Bound(3.01, True, 0.0, "log")) is Verdict.FAIL


@given(st.floats(-5, 5), st.floats(0, 5), st.floats(-5, 5), st.floats(0, 2))
def test_at_most_is_at_least_in_the_mirror(theta: float, half: float, value: float, tolerance: float) -> None:
    seen = Interval(theta, half, theta - half, theta + half, half, 3, 4, half, 0)
    mirrored = Interval(-theta, half, -theta - half, -theta + half, half, 3, 4, half, 0)
    at_least = judge(seen, Bound(value, True, tolerance, "linear"))
    assert at_least is judge(mirrored, Bound(-value, False, tolerance, "linear"))


@given(st.floats(-1, 1), st.floats(0, 1), st.floats(0.01, 0.5), st.booleans(), st.floats(0.01, 100))
def test_the_unit_of_a_log_metric_does_not_matter(
    theta: float, half: float, tolerance: float, at_least: bool, unit: float
) -> None:
    seen = Interval(theta, half, theta - half, theta + half, half, 3, 4, half, 0)
    shift = math.log(unit)
    moved = Interval(theta + shift, half, seen.low + shift, seen.high + shift, half, 3, 4, half, 0)
    bound, scaled = (Bound(value, at_least, tolerance, "log") for value in (1.1, 1.1 * unit))
    gaps = [abs(end - edge) for end in (seen.low, seen.high) for edge in (bound.line, bound.edge)]
    assert min(gaps) < 1e-9 or judge(seen, bound) is judge(moved, scaled)


@given(st.floats(-2, 2), st.floats(0, 0.999), st.floats(0.01, 1), st.booleans())
def test_half_the_tolerance_always_decides(theta: float, share: float, tolerance: float, at_least: bool) -> None:
    half = share * tolerance / 2
    seen = Interval(theta, half, theta - half, theta + half, half, 3, 4, half, 0)
    assert judge(seen, Bound(0.0, at_least, tolerance, "linear")) is not Verdict.INCONCLUSIVE


@pytest.mark.parametrize(
    ("value", "tolerance", "scale", "message"),
    [
        (0.0, 0.05, "log", r"at_least 0.0: on the log scale a bound must be a number above 0"),
        (-1.0, 0.05, "log", r"a number above 0"),
        (math.nan, 0.05, "log", r"a number above 0"),
        (math.inf, 0.05, "linear", r"a finite number"),
        (1.0, 1.0, "log", r"tolerance 1.0 \(expected a fraction, 0 <= tolerance < 1\)"),
        (1.0, -0.1, "log", r"tolerance -0.1"),
        (1.0, math.nan, "linear", r"a finite amount, not below 0"),
        (1.0, math.inf, "linear", r"a finite amount, not below 0"),
    ],
)
def test_a_bound_that_cannot_be_judged_is_refused(value: float, tolerance: float, scale: str, message: str) -> None:
    with pytest.raises(SpecError, match=message):
        Bound(value, True, tolerance, scale)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first", "low", "high", "final"),
    [
        (Verdict.FAIL, 0.8, 0.9, Verdict.FAIL),
        (Verdict.FAIL, 0.8, 1.1, Verdict.INCONCLUSIVE),
        (Verdict.FAIL, 1.1, 1.2, Verdict.INCONCLUSIVE),
        (Verdict.PASS, 0.8, 0.9, Verdict.PASS),
        (Verdict.INCONCLUSIVE, 0.8, 0.9, Verdict.INCONCLUSIVE),
        (Verdict.INVALID, 0.8, 0.9, Verdict.INVALID),
    ],
)
def test_only_a_fail_that_is_seen_twice_fails(first: Verdict, low: float, high: float, final: Verdict) -> None:
    assert confirm(first, between(low, high), AT_LEAST_1) is final


def test_channels_agree_within_the_wider_half_width() -> None:
    assert channels_agree(between(0.98, 1.02), between(1.0, 1.02))
    assert not channels_agree(between(0.99, 1.01), between(1.04, 1.05))


def test_the_smallest_visible_effect_is_a_noncentrality() -> None:
    # 1, 2, 3 at q = 0.005: a noncentral t of 2 degrees at 15.1791 exceeds t(0.995, 2) = 9.92484 nine times in ten.
    seen = interval([LaunchValue(value, 0.0, 8) for value in (0.01, 0.02, 0.03)], 0.005)
    distance = 15.17912 * 0.01 / math.sqrt(3)
    assert smallest_visible(seen, "linear") == pytest.approx(distance, rel=1e-5)
    assert smallest_visible(seen) == pytest.approx(math.expm1(distance), rel=1e-5)
    assert smallest_visible(interval([LaunchValue(1.0, 0.0, 8)], 0.01)) == math.inf
    assert smallest_visible(interval([LaunchValue(v, 0.0, 8) for v in (0.0, 900.0)], 0.01)) == math.inf
    assert smallest_visible(interval([LaunchValue(1.0, 0.0, 8)] * 3, 0.01)) == 0


def test_an_effect_of_that_size_is_seen_in_nine_of_ten_gates() -> None:
    rng = np.random.default_rng(8)
    q, launches, trials = 0.005, 8, 4000
    sample = Interval(0, 3.49948 / math.sqrt(launches), 0, 0, 1.0, 7, launches, 1.0, 0)  # t(0.995, 7)
    size = smallest_visible(sample, "linear")
    found = 0
    for row in rng.standard_normal((trials, launches)) - size:
        seen = interval([LaunchValue(float(value), 0.0, 8) for value in row], q)
        found += judge(seen, Bound(0.0, True, 0.1, "linear")) is Verdict.FAIL
    assert 0.885 < found / trials < 0.915


def test_a_percentile_worked_by_hand() -> None:
    # For the median of 10 values the 2nd and the 9th smallest hold 1 - 2 * 11 / 1024 = 97.9 %.
    values = [0.010, 0.001, 0.009, 0.002, 0.008, 0.003, 0.007, 0.004, 0.006, 0.005]
    assert percentile_bound(values, 50, 0.97) == (0.002, 0.005, 0.009)
    assert percentile_bound(values, 50, 0.98) == (0.001, 0.005, 0.010)


def test_few_values_say_little_about_a_tail() -> None:
    # LoadGen: no upper bound for p99 before ln(0.005) / ln(0.99) = 527.2 values.
    assert percentile_bound([1.0] * 527, 99, 0.99)[2] == math.inf
    assert percentile_bound([1.0] * 528, 99, 0.99)[2] == 1.0
    assert percentile_bound([1.0], 99, 0.99) == (0.0, 1.0, math.inf)


@pytest.mark.parametrize(("percentile", "size"), [(50, 40), (90, 200), (99, 1000)])
def test_percentile_bounds_cover(percentile: float, size: int) -> None:
    rng = np.random.default_rng(2)
    truth = -math.log(1 - percentile / 100)
    bounds = [percentile_bound(rng.exponential(size=size).tolist(), percentile, 0.9) for _ in range(2000)]
    assert np.mean([low > truth for low, _, _ in bounds]) < 0.065
    assert np.mean([high < truth for _, _, high in bounds]) < 0.065


@pytest.mark.parametrize(
    ("values", "percentile", "confidence"), [([], 50, 0.9), ([1.0], 0, 0.9), ([1.0], 100, 0.9), ([1.0], 50, 1.0)]
)
def test_a_percentile_of_nothing_is_refused(values: list[float], percentile: float, confidence: float) -> None:
    with pytest.raises(SpecError, match=r"^percentile "):
        percentile_bound(values, percentile, confidence)

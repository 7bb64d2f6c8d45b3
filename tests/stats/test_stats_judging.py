"""Bounds, verdicts, confirmation and percentiles, case by case."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats import (
    CONFIRMING_ALPHA,
    CONFIRMING_LAUNCHES,
    CONFIRMING_LOOKS,
    Bound,
    Interval,
    LaunchValue,
    Verdict,
    contradicts,
    design_effect,
    interval,
    is_clear_fail,
    judge,
    judge_percentile,
    looks_for,
    percentile_bound,
    smallest_visible,
    spending,
)
from tests.support.simulator import exceeds, falls_short

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
    ("theta", "scatter", "launches", "clear"),
    [
        # 0.1539 is three times -ln 0.95, and t(0.9998, 2) = 49.98.
        (-0.154, 0.0053, 3, True),
        (-0.154, 0.0054, 3, False),
        (-0.153, 0.0001, 3, False),
        (-0.153, 0.0, 3, False),
        (-0.154, 0.0, 3, True),
        (-0.154, 0.0, 1, False),
        (0.154, 0.0001, 3, False),
        # t(0.9998, 3) = 17.60. Five launches are not asked: four were not clear.
        (-0.154, 0.0174, 4, True),
        (-0.154, 0.0176, 4, False),
        (-0.154, 0.001, 5, False),
    ],
)
def test_a_fail_is_clear_beyond_three_tolerances_and_beyond_chance(
    theta: float, scatter: float, launches: int, clear: bool
) -> None:
    def seen(sign: int) -> Interval:
        return Interval(sign * theta, 1, 0, 0, scatter, launches - 1, launches, scatter, 0)

    mirrored = Bound(1.0, at_least=False, tolerance=1 / 0.95 - 1, scale="log")
    assert is_clear_fail(seen(1), AT_LEAST_1) is is_clear_fail(seen(-1), mirrored) is clear
    linear = Bound(0.0, at_least=True, tolerance=-math.log(0.95), scale="linear")
    assert is_clear_fail(seen(1), linear) is clear
    # Without a tolerance nothing is.
    for bound in (Bound(1.0, True, 0.0, "log"), Bound(1.0, True, 0.0, "log", is_strict=True)):
        assert not is_clear_fail(seen(1), bound)


def test_the_fastest_calls_contradict_a_verdict_only_by_its_opposite() -> None:
    assert contradicts(Verdict.PASS, between(0.8, 0.9), AT_LEAST_1)
    assert contradicts(Verdict.FAIL, between(1.1, 1.2), AT_LEAST_1)
    assert not contradicts(Verdict.PASS, between(0.8, 1.2), AT_LEAST_1)
    assert not contradicts(Verdict.PASS, between(1.5, 1.6), AT_LEAST_1)
    assert not contradicts(Verdict.INCONCLUSIVE, between(0.8, 0.9), AT_LEAST_1)


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


# Slow calls come in bursts: how much fewer they are than they look.


def calls(slow: int, count: int, slow_seconds: float = 2.0) -> list[float]:
    """Return the seconds of the calls of a launch, some of which take longer than the others' half a second."""
    return [slow_seconds] * slow + [0.5] * (count - slow)


@pytest.mark.parametrize(
    ("slow", "expected"),
    [
        # Shares of 10 % and 0 % about 5 %: 2 * 5 ** 2 / (100 * 0.05 * 0.95) over one degree of freedom.
        ((10, 0), 10.526),
        # 8, 4 and 0 % about 4 %: 2 * 4 ** 2 / 3.84 over two.
        ((8, 4, 0), 4.167),
        ((5, 5), 1.0),
        ((5, 6, 4), 1.0),
        ((0, 0, 0), 1.0),
        ((100, 100), 1.0),
        ((50,), 1.0),
    ],
)
def test_the_design_effect_is_how_much_more_shares_scatter_than_independent_calls_would(
    slow: tuple[int, ...], expected: float
) -> None:
    assert design_effect([calls(k, 100) for k in slow], 1.0) == pytest.approx(expected, rel=1e-3)


def test_the_design_effect_is_of_the_calls_above_the_limit_only() -> None:
    launches = [calls(10, 100), calls(0, 100)]
    assert design_effect(launches, 2.0) == 1.0
    assert design_effect(launches, 1.999) > 10


def test_a_launch_without_a_call_that_counts_has_no_design_effect() -> None:
    launches = [calls(10, 100), calls(0, 100)]
    assert design_effect([*launches, []], 1.5) == design_effect(launches, 1.5) > 1
    assert design_effect([[]], 1.5) == design_effect([], 1.5) == 1.0
    assert judge_percentile([[], []], 99, Bound(0.01, False, 0.05, "log"), 0.005) is Verdict.INCONCLUSIVE


def test_the_design_effect_of_independent_calls_is_about_one_and_of_bursts_their_length() -> None:
    rng = np.random.default_rng(4)
    independent = [[calls(int(k), 200) for k in rng.binomial(200, 0.1, 40)] for _ in range(100)]
    bursts = [[calls(10 * int(k), 200) for k in rng.binomial(20, 0.1, 40)] for _ in range(100)]
    assert 1.0 <= np.mean([design_effect(launches, 1.0) for launches in independent]) < 1.2
    assert 9.0 < np.mean([design_effect(launches, 1.0) for launches in bursts]) < 11.0


def test_values_in_clusters_have_the_bounds_of_as_many_clusters() -> None:
    values = [0.001 * number for number in range(1, 11)]
    repeated = [value for value in values for _ in range(4)]
    for percentile in (20, 50, 90):
        alone = percentile_bound(values, percentile, 0.97)
        assert percentile_bound(repeated, percentile, 0.97, design_effect=4.0) == alone
        # Without it they seem to be as sure as forty.
        low, _, high = percentile_bound(repeated, percentile, 0.97)
        assert low > alone[0] or high < alone[2]
    assert percentile_bound(values, 50, 0.97, design_effect=1000.0) == (0.0, 0.005, math.inf)


# Percentile gates

AT_MOST_1_S = Bound(1.0, at_least=False, tolerance=0.05, scale="log")
AT_LEAST_1_S = Bound(1.0, at_least=True, tolerance=0.05, scale="log")


@pytest.mark.parametrize(
    ("slow", "q", "expected"),
    [
        # Ten calls and the median: 0 or 10 are seen once in 1024, 1 or 9 and beyond in 11 of 1024.
        (0, 1.01 / 1024, "pass"),
        (0, 0.99 / 1024, "inconclusive"),
        (1, 11.1 / 1024, "pass"),
        (1, 10.9 / 1024, "inconclusive"),
        (5, 0.4, "inconclusive"),
        (9, 10.9 / 1024, "inconclusive"),
        (9, 11.1 / 1024, "fail"),
        (10, 1.01 / 1024, "fail"),
        (10, 0.99 / 1024, "inconclusive"),
    ],
)
def test_a_percentile_is_judged_by_the_binomial_law(slow: int, q: float, expected: str) -> None:
    assert judge_percentile([calls(slow, 10)], 50, AT_MOST_1_S, q) == expected
    mirrored = {"pass": "fail", "fail": "pass"}.get(expected, expected)
    assert judge_percentile([calls(slow, 10)], 50, AT_LEAST_1_S, q) == mirrored


def test_calls_within_the_tolerance_fail_nothing_and_spoil_no_pass() -> None:
    within = [calls(100, 100, slow_seconds=1.04)]
    assert judge_percentile(within, 90, AT_MOST_1_S, 0.01) is Verdict.PASS
    assert judge_percentile([calls(100, 100, slow_seconds=1.06)], 90, AT_MOST_1_S, 0.01) is Verdict.FAIL
    assert judge_percentile([calls(100, 100, slow_seconds=0.96)], 90, AT_LEAST_1_S, 0.01) is Verdict.PASS
    assert judge_percentile([calls(100, 100, slow_seconds=0.94)], 90, AT_LEAST_1_S, 0.01) is Verdict.FAIL
    # A fail counts what is beyond the bound, a pass what is beyond the tolerance, too: 28 and 8 of 100.
    both = [[*calls(8, 80), *[1.02] * 20]]
    assert judge_percentile(both, 90, AT_MOST_1_S, 0.01) is Verdict.FAIL
    assert judge_percentile(both, 85, AT_MOST_1_S, 0.03) is Verdict.PASS
    # A call at the bound is not above it.
    assert judge_percentile([[1.0] * 100], 90, Bound(1.0, False, 0.0, "log"), 0.01) is Verdict.PASS


def test_a_burst_in_one_launch_is_no_fail_and_as_many_slow_calls_in_all_are() -> None:
    burst, even = [calls(k, 200) for k in (0, 24, 0)], [calls(8, 200)] * 3
    assert judge_percentile(burst, 99, AT_MOST_1_S, 0.004) is Verdict.INCONCLUSIVE
    assert judge_percentile(even, 99, AT_MOST_1_S, 0.004) is Verdict.FAIL


PERCENTILE_LOOKS = looks_for(8, 0.05)
PERCENTILE_LEVELS = spending(ALPHA, PERCENTILE_LOOKS, 8)
CONFIRMING_LEVELS = spending(CONFIRMING_ALPHA, CONFIRMING_LOOKS, CONFIRMING_LAUNCHES)


def percentile_verdicts(
    percentile: float, count: int, *, spread: float = 0.0, pooled: bool = False, trials: int = 2000
) -> tuple[int, int, int]:
    """Return how many of so many gates at their bound failed, failed in both stages, and passed.

    As many calls are slow as are allowed, by more than the tolerance: a FAIL is false, and so is a PASS. ``spread`` is
    the correlation of calls of one launch; ``pooled`` judges them as if there were none.
    """
    rng, share = np.random.default_rng(3), 1 - percentile / 100
    failed = confirmed = passed = 0

    def at(launches: list[list[float]], level: float) -> Verdict:
        together = [[seconds for launch in launches for seconds in launch]] if pooled else launches
        return judge_percentile(together, percentile, AT_MOST_1_S, level)

    for _ in range(trials):
        odds = 1 / spread - 1 if spread else 0.0
        most = PERCENTILE_LOOKS[-1] + CONFIRMING_LAUNCHES
        each = rng.beta(share * odds, (1 - share) * odds, most) if spread else np.full(most, share)
        launches = [calls(int(rng.binomial(count, one)), count) for one in each]
        for look, level in zip(PERCENTILE_LOOKS, PERCENTILE_LEVELS, strict=True):
            verdict = at(launches[:look], level)
            if verdict is Verdict.FAIL:
                failed += 1
                again = (
                    at(launches[look : look + fresh], level)
                    for fresh, level in zip(CONFIRMING_LOOKS, CONFIRMING_LEVELS, strict=True)
                )
                confirmed += next((one for one in again if one is not Verdict.INCONCLUSIVE), None) is Verdict.FAIL
            passed += verdict is Verdict.PASS
            if verdict is not Verdict.INCONCLUSIVE:
                break
    return failed, confirmed, passed


@pytest.mark.parametrize(("percentile", "count"), [(90, 60), (99, 200)])
def test_at_its_bound_a_percentile_errs_in_at_most_one_gate_in_a_hundred(percentile: float, count: int) -> None:
    failed, confirmed, passed = percentile_verdicts(percentile, count)
    assert not exceeds(failed, 2000, 0.01)
    assert not exceeds(passed, 2000, 0.01)
    assert falls_short(confirmed, 2000, 0.01)


@pytest.mark.parametrize(("percentile", "count"), [(90, 60), (99, 200)])
@pytest.mark.parametrize("spread", [0.005, 0.02, 0.05])
def test_slow_calls_that_come_by_launch_make_no_more_false_fails(percentile: float, count: int, spread: float) -> None:
    _, confirmed, _ = percentile_verdicts(percentile, count, spread=spread)
    assert falls_short(confirmed, 2000, 0.01)


def test_without_the_design_effect_they_would() -> None:
    _, confirmed, _ = percentile_verdicts(99, 200, spread=0.05, pooled=True)
    assert exceeds(confirmed, 2000, 0.01)


def test_a_percentile_at_half_the_bound_is_found_to_pass_and_at_twice_to_fail() -> None:
    rng = np.random.default_rng(6)
    verdicts = [
        [judge_percentile([calls(int(k), 200) for k in rng.binomial(200, share, 4)], 90, AT_MOST_1_S, 0.003)
         for _ in range(200)]
        for share in (0.05, 0.2)
    ]  # fmt: skip
    assert verdicts[0].count(Verdict.PASS) > 180
    assert verdicts[1].count(Verdict.FAIL) > 180

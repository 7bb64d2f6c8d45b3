"""Launch values and intervals against hand-worked numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats as reference

from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats import LaunchValue, dominant_noise, interval, launch_value, trimmed_mean
from tests.support.simulator import exceeds

VALUES = st.lists(st.floats(-10, 10), min_size=1, max_size=20)


def launches(*values: float, within: float = 0.0) -> list[LaunchValue]:
    return [LaunchValue(value, within, 8) for value in values]


@given(VALUES, st.sampled_from([0.0, 0.1, 0.2, 0.4]))
def test_the_trimmed_mean_is_scipys(values: list[float], proportion: float) -> None:
    assert trimmed_mean(values, proportion) == pytest.approx(reference.trim_mean(values, proportion), abs=1e-12)


@pytest.mark.parametrize(("values", "proportion"), [([], 0.2), ([1.0], 0.5), ([1.0], -0.1), ([1.0], math.nan)])
def test_a_trimmed_mean_of_nothing_is_refused(values: list[float], proportion: float) -> None:
    with pytest.raises(SpecError, match="trimmed mean of"):
        trimmed_mean(values, proportion)


def test_eight_blocks_lose_one_on_each_side_and_the_variance_is_yuens() -> None:
    # Middle 2..7 has mean 4.5; winsorised 2,2,3,4,5,6,7,7 has sum of squares 30 about 4.5: 30 / (6 * 5) = 1.
    value = launch_value([100, 1, 2, 3, 4, 5, 6, 7])
    assert value is not None
    assert (value.value, value.blocks) == (4.5, 8)
    assert value.within_variance == pytest.approx(1.0)


def test_without_trimming_the_variance_is_that_of_a_mean() -> None:
    value = launch_value([1, 2, 3, 6])
    assert value is not None
    assert value.value == 3
    assert value.within_variance == pytest.approx(np.var([1, 2, 3, 6], ddof=1) / 4)


def test_the_variance_is_right_on_average() -> None:
    rng = np.random.default_rng(5)
    values = [launch_value(row.tolist()) for row in rng.standard_t(5, (20_000, 8))]
    claimed = np.mean([value.within_variance for value in values if value])
    seen = np.var([value.value for value in values if value])
    assert claimed == pytest.approx(seen, rel=0.06)


@pytest.mark.parametrize(
    ("blocks", "expected"),
    [
        ([], None),
        ([math.nan, math.inf], None),
        ([math.nan, 0.5], LaunchValue(0.5, 0.0, 1)),
        ([0.1] * 7, LaunchValue(0.1, 0.0, 7)),
    ],
)
def test_unusable_blocks_are_left_out(blocks: Sequence[float], expected: LaunchValue | None) -> None:
    assert launch_value(blocks) == expected


def test_an_interval_worked_by_hand() -> None:
    # 1, 2, 3: mean 2, s = 1, t(0.995, 2) = 9.9248.
    result = interval(launches(1, 2, 3), 0.005)
    assert (result.theta, result.s, result.df, result.launches) == (2, 1, 2, 3)
    assert result.half_width == pytest.approx(9.92484 / math.sqrt(3), rel=1e-6)
    assert (result.low, result.high) == (2 - result.half_width, 2 + result.half_width)


@given(st.lists(st.floats(-5, 5), min_size=2, max_size=12), st.floats(1e-4, 0.4))
def test_the_interval_is_the_plain_t_interval(values: list[float], q: float) -> None:
    result = interval(launches(*values), q)
    half = reference.t.ppf(1 - q, len(values) - 1) * np.std(values, ddof=1) / math.sqrt(len(values))
    assert result.theta == pytest.approx(np.mean(values), abs=1e-12)
    assert result.half_width == pytest.approx(half, rel=1e-9, abs=1e-12)


def test_the_variance_is_floored_by_what_the_blocks_show() -> None:
    result = interval(launches(1.0, 1.01, 0.99, within=0.04), 0.01)
    assert result.between == pytest.approx(0.01)
    assert result.within == result.s == pytest.approx(0.2)


def test_one_launch_shows_nothing_and_equal_launches_have_no_width() -> None:
    single = interval(launches(0.3), 0.01)
    assert (single.low, single.high, single.df) == (-math.inf, math.inf, 0)
    for count in range(2, 40):
        same = interval(launches(*[0.1] * count), 0.01)
        assert (same.low, same.theta, same.high, same.s) == (0.1, 0.1, 0.1, 0)


@pytest.mark.parametrize("q", [0.0, 0.5, 1.0, -0.1, math.nan])
def test_a_level_that_is_none_is_refused(q: float) -> None:
    with pytest.raises(SpecError, match=r"one-sided level .*0 < q < 0\.5"):
        interval(launches(1, 2), q)
    with pytest.raises(SpecError, match="no launch has a usable value"):
        interval([], 0.01)


@given(st.lists(st.floats(-1, 1), min_size=2, max_size=8), st.floats(0, 1), st.floats(-3, 3), st.floats(0.1, 10))
def test_shifting_and_scaling_launches_shifts_and_scales_the_interval(
    values: list[float], within: float, shift: float, scale: float
) -> None:
    plain = interval(launches(*values, within=within), 0.01)
    moved = interval(launches(*[shift + scale * value for value in values], within=scale**2 * within), 0.01)
    assert moved.low == pytest.approx(shift + scale * plain.low, abs=1e-9)
    assert moved.high == pytest.approx(shift + scale * plain.high, abs=1e-9)


@pytest.mark.parametrize(
    ("values", "within", "expected"),
    [
        ((0.0, 1.0, 2.0), 0.1, "between launches"),
        ((0.0, 1.0, 2.0), 0.6, "within a launch"),
        ((0.0,), 0.0, "within a launch"),
        ((0.0, 0.0), 0.0, "within a launch"),
    ],
)
def test_the_larger_part_of_the_noise_is_named(values: tuple[float, ...], within: float, expected: str) -> None:
    assert dominant_noise(launches(*values, within=within)) == expected


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        # Four launches are too few to tell a trend.
        ((0.0, 0.01, 0.02, 0.03), "between launches"),
        ((0.0, 0.01, 0.02, 0.03, 0.04), "drift"),
        ((0.04, 0.03, 0.02, 0.01, 0.0), "drift"),
        ((0.0, 0.011, 0.019, 0.03, 0.041, 0.049), "drift"),
        # The same values, not in order.
        ((0.03, 0.0, 0.041, 0.019, 0.049, 0.011), "between launches"),
        ((0.02, 0.02, 0.02, 0.02, 0.02), "within a launch"),
        # t = 6.06 and 5.67 where t(0.995, 3) = 5.84.
        ((0.0, 0.01, 0.02, 0.03, 0.060), "drift"),
        ((0.0, 0.01, 0.02, 0.03, 0.062), "between launches"),
        ((0.0, 0.0, 0.0, 0.0, 0.05), "between launches"),
    ],
)
def test_a_trend_over_launches_is_drift(values: tuple[float, ...], expected: str) -> None:
    assert dominant_noise(launches(*values)) == expected


def test_drift_is_named_however_much_scatters_within_a_launch() -> None:
    # The launch values are what they are; their own blocks need not explain a trend.
    assert dominant_noise(launches(0.0, 0.01, 0.02, 0.03, 0.04, within=0.01)) == "drift"


@pytest.mark.parametrize("count", [5, 8, 12])
def test_launches_without_a_trend_are_rarely_said_to_drift(count: int) -> None:
    rng, trials = np.random.default_rng(12), 4000
    named = [dominant_noise(launches(*row)) for row in rng.standard_normal((trials, count)).tolist()]
    assert not exceeds(named.count("drift"), trials, 0.01)
    assert named.count("drift") > 0.005 * trials


def test_a_clock_that_falls_by_three_standard_deviations_is_found() -> None:
    rng, trials = np.random.default_rng(13), 400
    rows = rng.standard_normal((trials, 8)) + np.linspace(0, 6, 8)
    assert [dominant_noise(launches(*row)) for row in rows.tolist()].count("drift") > 0.8 * trials

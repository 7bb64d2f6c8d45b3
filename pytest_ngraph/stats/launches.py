"""From block values to launch values to an interval: the launch is the unit of inference."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_ngraph.errors import SpecError

_TREND_LAUNCHES, _TREND_LEVEL = 5, 0.01


@dataclass(frozen=True, slots=True)
class LaunchValue:
    """One launch of a gate: its value on the gate's working scale, its variance by its blocks, their number."""

    value: float
    within_variance: float
    blocks: int


@dataclass(frozen=True, slots=True)
class Interval:
    """What the launches of a gate say together, on the gate's working scale (ln for log-scale metrics).

    ``theta`` is the mean of the launches, ``low`` and ``high`` are ``theta -+ half_width``. ``between`` is the standard
    deviation of the launch values, ``within`` what their blocks let one expect of it, ``s`` the larger of the two;
    ``df`` is ``launches - 1``.
    """

    theta: float
    half_width: float
    low: float
    high: float
    s: float
    df: int
    launches: int
    between: float
    within: float


def trimmed_mean(values: Sequence[float], proportion: float = 0.2) -> float:
    """Return the mean without the ``floor(proportion * n)`` smallest and as many of the largest values."""
    ordered, cut = _ordered(values, proportion)
    return _moments(ordered[cut : len(ordered) - cut])[0]


def launch_value(block_values: Sequence[float]) -> LaunchValue | None:
    """Return the 20 %-trimmed mean over the blocks and the variance of that mean (docs/measuring.md, step 7).

    Blocks that are NaN or infinite are unusable; None where none is left. With m blocks, g of them trimmed on each
    side and h = m - 2g left, the variance of a trimmed mean is (m - 1) s_w^2 / (h (h - 1)), s_w^2 the variance of the
    winsorised blocks (Tukey and McLaughlin 1963; Yuen 1974); without trimming it is s^2 / m. The trimmed blocks' own
    variance would be too small. One block has no variance to show: 0, which floors nothing.
    """
    usable = [value for value in block_values if math.isfinite(value)]
    if not usable:
        return None
    ordered, cut = _ordered(usable, 0.2)
    blocks = len(ordered)
    middle = ordered[cut : blocks - cut]
    winsorised = [middle[0]] * cut + middle + [middle[-1]] * cut
    left = len(middle)
    variance = (blocks - 1) * _moments(winsorised)[1] / (left * (left - 1)) if left > 1 else 0.0
    return LaunchValue(_moments(middle)[0], variance, blocks)


def interval(launches: Sequence[LaunchValue], q: float) -> Interval:
    """Return theta +- t(1 - q, P - 1) s / sqrt(P) over P launches, plain t per gate (docs/measuring.md, step 8).

    ``q`` is the nominal one-sided level, 0 < q < 0.5. s^2 is the variance of the launch values, floored at the mean
    variance that their blocks show. One launch has an infinite half width; launches without any variance have none.
    """
    count = len(launches)
    if count == 0:
        raise SpecError("interval: no launch has a usable value (expected at least one)")
    if not 0 < q < 0.5:
        raise SpecError(f"interval: one-sided level {q} (expected 0 < q < 0.5)")
    theta, variance = _moments([launch.value for launch in launches])
    between, within = math.sqrt(variance), math.sqrt(_within(launches))
    s = max(between, within)
    half = _t_quantile(1 - q, count - 1) * s / math.sqrt(count) if count > 1 else math.inf
    return Interval(theta, half, theta - half, theta + half, s, count - 1, count, between, within)


def p_value(spread: Interval) -> float:
    """Return the two-sided level at which an interval over these launches would just reach 0; 1 for one launch."""
    if spread.df < 1 or spread.theta == 0:
        return 1.0
    if spread.s == 0:
        return 0.0
    from scipy.special import stdtr

    return 2 * float(stdtr(spread.df, -abs(spread.theta) * math.sqrt(spread.launches) / spread.s))


def dominant_noise(launches: Sequence[LaunchValue]) -> str:
    """Name what the variance of a launch value is mostly: ``drift``, ``between launches`` or ``within a launch``.

    Drift is a trend over at least five launches in their order (its t exceeds the 1 % level); more launches do not help
    against it, and more blocks help against what is within a launch only. What the blocks explain is taken off the
    variance of the launch values first; a single launch shows only what is within it.
    """
    if len(launches) < 2:
        return "within a launch"
    if _has_trend([launch.value for launch in launches]):
        return "drift"
    within = _within(launches)
    between = _moments([launch.value for launch in launches])[1] - within
    return "between launches" if between > within else "within a launch"


def _has_trend(values: Sequence[float]) -> bool:
    count = len(values)
    if count < _TREND_LAUNCHES:
        return False
    middle, mean = (count - 1) / 2, math.fsum(values) / count
    spread = math.fsum((number - middle) ** 2 for number in range(count))
    slope = math.fsum((number - middle) * (value - mean) for number, value in enumerate(values)) / spread
    rest = math.fsum((value - mean - slope * (number - middle)) ** 2 for number, value in enumerate(values))
    error = math.sqrt(rest / (count - 2) / spread)
    return abs(slope) > _t_quantile(1 - _TREND_LEVEL / 2, count - 2) * error


def _t_quantile(probability: float, df: int) -> float:
    """Return the quantile of Student's t with ``df`` degrees of freedom."""
    from scipy.special import stdtrit  # scipy.stats would cost a second at the start of every run

    return float(stdtrit(df, probability))


def _within(launches: Sequence[LaunchValue]) -> float:
    return math.fsum(launch.within_variance for launch in launches) / len(launches)


def _ordered(values: Sequence[float], proportion: float) -> tuple[list[float], int]:
    """Return the values in order and how many to cut on each side."""
    if not values or not 0 <= proportion < 0.5:
        raise SpecError(f"trimmed mean of {len(values)} values, proportion {proportion} (expected >= 1, 0 <= p < 0.5)")
    return sorted(values), int(proportion * len(values))


def _moments(values: Sequence[float]) -> tuple[float, float]:
    """Return mean and sample variance (0 for one value)."""
    origin = values[0]  # differences from a value, so that equal values have a variance of exactly zero
    shifted = [value - origin for value in values]
    count = len(shifted)
    centre = math.fsum(shifted) / count
    squares = math.fsum((value - centre) ** 2 for value in shifted)
    return origin + centre, squares / (count - 1) if count > 1 else 0.0

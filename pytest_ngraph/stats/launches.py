"""From block values to launch values to an interval: the launch is the unit of inference.

The formulas are those of arrays, for many gates at once, whose last axis is what is taken together. For one gate there
are ``launch_value`` and ``interval``, which are made of them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

_TRIMMED = 0.2
ALIKE = 1.15
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
    deviation of the launch values, ``within`` what follows for it from their blocks, ``s`` the larger of the two.
    ``df`` is ``launches - 1``, and more where earlier runs say how launches scatter (``with_known_scatter``).
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


@dataclass(frozen=True, slots=True)
class Intervals:
    """The same of many gates: an array of each, and how many ``launches`` each of them has."""

    theta: Array
    half_width: Array
    s: Array
    launches: Array
    between: Array
    within: Array


def trimmed_mean(values: Sequence[float], proportion: float = _TRIMMED) -> float:
    """Return the mean without the ``floor(proportion * n)`` smallest and as many of the largest values."""
    if not values or not 0 <= proportion < 0.5:
        raise SpecError(f"trimmed mean of {len(values)} values, proportion {proportion} (expected >= 1, 0 <= p < 0.5)")
    import numpy as np

    return float(_moments(_middle(np.asarray(values, dtype=float), proportion))[0])


def launch_values(blocks: Array) -> tuple[Array, Array]:
    """Return the 20 %-trimmed means over the blocks and the variances of these means (docs/measuring.md, step 7).

    Blocks are the last axis, and none may be unusable. A launch whose blocks are all NaN is NaN. With m blocks, g of
    them trimmed on each side and h = m - 2g left, the variance of a trimmed mean is (m - 1) s_w^2 / (h (h - 1)), s_w^2
    the variance of the winsorised blocks (Tukey and McLaughlin 1963; Yuen 1974). Without trimming it is s^2 / m. The
    trimmed blocks' own variance would be too small. One block has no variance to show: 0, which floors nothing.
    """
    import numpy as np

    count, middle = blocks.shape[-1], _middle(blocks, _TRIMMED)
    left = middle.shape[-1]
    values, _ = _moments(middle)
    if left < 2:
        return values, np.zeros_like(values)
    cut = (count - left) // 2
    lowest, highest = np.repeat(middle[..., :1], cut, axis=-1), np.repeat(middle[..., -1:], cut, axis=-1)
    _, variance = _moments(np.concatenate([lowest, middle, highest], axis=-1))
    return values, (count - 1) * variance / (left * (left - 1))


def launch_value(block_values: Sequence[float]) -> LaunchValue | None:
    """Return the value of one launch, as ``launch_values`` does.

    Blocks that are NaN or infinite are unusable, or None where none is left.
    """
    usable = [value for value in block_values if math.isfinite(value)]
    if not usable:
        return None
    import numpy as np

    value, variance = launch_values(np.array(usable, dtype=float))
    return LaunchValue(float(value), float(variance), len(usable))


def launch_quantile(
    columns: Sequence[Sequence[Sequence[float] | Array]], share: float, function: Callable[[Sequence[float]], float]
) -> LaunchValue | None:
    """Return a function of ln of a quantile of all times of each cell, None where one has none.

    ``columns`` has for each cell its blocks, each of them seconds. The variance is the jackknife's, over the blocks.
    """
    if not all(any(len(block) for block in blocks) for blocks in columns):
        return None
    import numpy as np

    def of(left: Sequence[int]) -> float:
        times = [np.concatenate([blocks[place] for place in left]) for blocks in columns]
        return function([math.log(np.quantile(each, share)) for each in times])

    count = len(columns[0])
    places = range(count)
    without = [of([place for place in places if place != out]) for out in places] if count > 1 else []
    mean = math.fsum(without) / max(1, count)
    variance = (count - 1) / max(1, count) * math.fsum((value - mean) ** 2 for value in without)
    return LaunchValue(of(places), variance, count)


def share_alike(blocks: Sequence[Sequence[float] | Array], share: float) -> float:
    """Return the share of the times of a cell that exceed a quantile of them by 15 % at most."""
    import numpy as np

    times = np.concatenate(list(blocks))
    return float((times <= ALIKE * np.quantile(times, share)).mean())


def intervals(values: Array, within_variances: Array, q: float) -> Intervals:
    """Return theta +- t(1 - q, P - 1) s / sqrt(P) over P launches, plain t per gate (docs/measuring.md, step 8).

    Launches are the last axis. NaN is one without a value. ``q`` is the nominal one-sided level, 0 < q < 0.5. s^2 is
    the variance of the launch values, floored at the mean variance that their blocks show. One launch has an infinite
    half width. Launches without any variance have none.
    """
    if not 0 < q < 0.5:
        raise SpecError(f"interval: one-sided level {q} (expected 0 < q < 0.5)")
    import numpy as np
    from scipy.special import stdtrit  # scipy.stats would cost a second at the start of every run

    there = ~np.isnan(values)
    counts = there.sum(axis=-1)
    some = np.maximum(counts, 1)
    # Differences from a value, so that equal values have a variance of exactly zero.
    first = np.take_along_axis(values, there.argmax(axis=-1)[..., None], axis=-1)
    apart = np.where(there, values - first, 0.0)
    centre = apart.sum(axis=-1) / some
    variance = np.where(there, (apart - centre[..., None]) ** 2, 0.0).sum(axis=-1) / np.maximum(counts - 1, 1)
    between = np.sqrt(variance)
    within = np.sqrt(np.where(there, within_variances, 0.0).sum(axis=-1) / some)
    s = np.maximum(between, within)
    width = stdtrit(np.maximum(counts - 1, 1), 1 - q) * s / np.sqrt(some)
    half = np.where(counts > 1, width, np.inf)
    return Intervals(first[..., 0] + centre, half, s, counts, between, within)


def interval(launches: Sequence[LaunchValue], q: float) -> Interval:
    """Return the interval of one gate over its launches, as ``intervals`` does."""
    count = len(launches)
    if count == 0:
        raise SpecError("interval: no launch has a usable value (expected at least one)")
    import numpy as np

    values = np.array([launch.value for launch in launches], dtype=float)
    found = intervals(values, np.array([launch.within_variance for launch in launches], dtype=float), q)
    theta, half, s = float(found.theta), float(found.half_width), float(found.s)
    between, within = float(found.between), float(found.within)
    return Interval(theta, half, theta - half, theta + half, s, count - 1, count, between, within)


def p_value(spread: Interval) -> float:
    """Return the two-sided level at which an interval over these launches would just reach 0. 1 for one launch."""
    if spread.df < 1 or spread.theta == 0:
        return 1.0
    if spread.s == 0:
        return 0.0
    from scipy.special import stdtr

    return 2 * float(stdtr(spread.df, -abs(spread.theta) * math.sqrt(spread.launches) / spread.s))


def dominant_noise(launches: Sequence[LaunchValue]) -> str:
    """Name what the variance of a launch value is mostly: ``drift``, ``between launches`` or ``within a launch``.

    Drift is a trend over at least five launches in their order (its t exceeds the 1 % level). More launches do not help
    against it, and more blocks help against what is within a launch only. What the blocks explain is taken off the
    variance of the launch values first. A single launch shows only what is within it.
    """
    if len(launches) < 2:
        return "within a launch"
    if _has_trend([launch.value for launch in launches]):
        return "drift"
    within = math.fsum(launch.within_variance for launch in launches) / len(launches)
    between = interval(launches, _TREND_LEVEL).between ** 2 - within
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
    from scipy.special import stdtrit

    return float(stdtrit(df, probability))


def _middle(values: Array, proportion: float) -> Array:
    """Return the values in order without the smallest and the largest ones."""
    import numpy as np

    count = values.shape[-1]
    cut = int(proportion * count)
    middle: Array = np.sort(values, axis=-1)[..., cut : count - cut]
    return middle


def _moments(values: Array) -> tuple[Array, Array]:
    """Return means and sample variances, 0 for one value. Equal values have just that mean, and no variance."""
    apart = values - values[..., :1]
    centre = apart.mean(axis=-1)
    squares = ((apart - centre[..., None]) ** 2).sum(axis=-1)
    return values[..., 0] + centre, squares / max(1, values.shape[-1] - 1)

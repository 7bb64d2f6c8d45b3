"""What launches do that no interval over independent launches expects: they come in two kinds, or resemble the last."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

from pytest_ngraph.stats.verdict import Scale

# By number of launches: the share of the variance that the better of all splits in two leaves, with two launches at
# least on either side. One in a hundred sets of normal launches has less (tests/stats/test_stats_patterns.py).
_LEFT_BY_A_SPLIT = (
    (6, 0.0323), (7, 0.0489), (8, 0.0639), (10, 0.0913), (12, 0.1136), (14, 0.1316), (16, 0.1459), (20, 0.1703),
    (24, 0.1858), (28, 0.2000), (32, 0.2112), (48, 0.2400),
)  # fmt: skip
_FEWEST = _LEFT_BY_A_SPLIT[0][0]
# One-sided 1 % of a normal distribution, which von Neumann's ratio is near to from eight launches on.
_MEMORY_QUANTILE, _MEMORY_LAUNCHES = 2.326, 8


@dataclass(frozen=True, slots=True)
class TwoKinds:
    """Launches of two kinds: how many have the lower and the higher values, and how far apart their means are."""

    lower: int
    higher: int
    apart: float


def two_kinds(values: Sequence[float]) -> TwoKinds | None:
    """Return the two kinds that launches come in, or None where there are none or fewer than six launches.

    They are there where the better of all splits of the ordered values leaves less of their variance than that of 1 in
    100 sets of normal launches does. Of skewed launches up to one set in ten is split (rare slow ones are a kind).
    """
    ordered, count = sorted(values), len(values)
    if count < _FEWEST:
        return None
    centre = math.fsum(ordered) / count
    moved = [value - centre for value in ordered]
    total = math.fsum(value * value for value in moved)
    if total <= 0:
        return None
    sums = list(accumulate(moved))
    # What lies between the two means; that of all is 0 now.
    explained = {split: sums[split - 1] ** 2 * (1 / split + 1 / (count - split)) for split in range(2, count - 1)}
    split = max(explained, key=lambda each: explained[each])
    if 1 - explained[split] / total >= _left(count):
        return None
    return TwoKinds(split, count - split, -sums[split - 1] * (1 / split + 1 / (count - split)))


def has_memory(values: Sequence[float]) -> bool:
    """Return whether each launch resembles the one before, by von Neumann's ratio at the one-sided 1 % level (1941).

    It needs eight launches, in their order.
    """
    count = len(values)
    if count < _MEMORY_LAUNCHES:
        return False
    mean = math.fsum(values) / count
    variance = math.fsum((value - mean) ** 2 for value in values)
    if variance <= 0:
        return False
    ratio = math.fsum((after - before) ** 2 for before, after in pairwise(values)) / variance * count / (count - 1)
    expected = 2 * count / (count - 1)
    deviation = 2 * count / (count - 1) * math.sqrt((count - 2) / (count * count - 1))
    return ratio < expected - _MEMORY_QUANTILE * deviation


def pattern_words(values: Sequence[float], scale: Scale) -> str:
    """Return what some launches, in their order and on their working scale, do that they should not, or nothing."""
    if (kinds := two_kinds(values)) is not None:
        apart = f", {100 * math.expm1(kinds.apart):.2g} % apart" if scale == "log" and kinds.apart < 1 else ""
        return (
            f"launches come in two kinds{apart} ({kinds.lower} lower, {kinds.higher} higher), as where processes get "
            "one of two memory layouts; a mean of both says little of either, and more launches hardly change that"
        )
    if has_memory(values):
        return "each launch resembles the one before, so intervals are too narrow here: the machine changes slowly"
    return ""


def pattern_advice(values: Sequence[float]) -> str:
    """Return what helps against what these launches do, in place of more launches, or nothing where they do nothing."""
    if two_kinds(values) is not None:
        return "a bound or a tolerance= that both kinds hold, or an end to what makes them differ (see ngraph report)"
    if has_memory(values):
        return (
            "space the launches: run the suite's other groups between them, or bring the machine to a steady state "
            "first (clocks, heat; ngraph doctor --noise), and begin again with --ngraph-fresh"
        )
    return ""


def _left(count: int) -> float:
    """Return what the better split of so many normal launches leaves in 1 of 100 sets; between the rows, linearly."""
    for (low, below), (high, above) in pairwise(_LEFT_BY_A_SPLIT):
        if low <= count <= high:
            return below + (above - below) * (count - low) / (high - low)
    return _LEFT_BY_A_SPLIT[-1][1]

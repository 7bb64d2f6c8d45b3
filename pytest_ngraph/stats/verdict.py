"""From an interval and a bound to one of four verdicts, and what the gate could have seen at all."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats.launches import Interval

Scale = Literal["log", "linear"]

CONFIRMING_LAUNCHES = 4
CONFIRMING_LEVEL = 0.02
_POWER = 0.9


class Verdict(str, enum.Enum):
    """What a gate says; ``invalid`` is a launch group whose controls failed."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Bound:
    """What a gate asks: a value in the metric's unit, its direction, and a tolerance.

    On the log scale the tolerance is a fraction of the value (0 <= tolerance < 1), on the linear scale an amount in the
    metric's unit. Raises SpecError for a value or tolerance that the scale does not allow.
    """

    value: float
    at_least: bool
    tolerance: float
    scale: Scale

    def __post_init__(self) -> None:
        if not math.isfinite(self.value) or (self.scale == "log" and self.value <= 0):
            allowed = "a number above 0" if self.scale == "log" else "a finite number"
            raise SpecError(f"{self.words} {self.value}: on the {self.scale} scale a bound must be {allowed}")
        if not 0 <= self.tolerance < (1.0 if self.scale == "log" else math.inf):
            allowed = "a fraction, 0 <= tolerance < 1" if self.scale == "log" else "a finite amount, not below 0"
            raise SpecError(f"{self.words} {self.value}: tolerance {self.tolerance} (expected {allowed})")

    @property
    def words(self) -> str:
        """Name the direction as the suite writes it: ``at_least`` or ``at_most``."""
        return "at_least" if self.at_least else "at_most"

    @property
    def line(self) -> float:
        """The bound on the working scale: ln(value) or the value."""
        return math.log(self.value) if self.scale == "log" else self.value

    @property
    def edge(self) -> float:
        """The far edge of the tolerance zone on the working scale; a PASS shows the truth to be on its good side."""
        amount = -self.tolerance if self.at_least else self.tolerance
        return self.line + (math.log1p(amount) if self.scale == "log" else amount)


def judge(interval: Interval, bound: Bound) -> Verdict:
    """Return PASS if the whole interval is inside the tolerance edge, else FAIL if it is all outside the bound.

    Else INCONCLUSIVE: another launch may decide. A half width of at most half the tolerance always decides
    (MEASUREMENT, the verdict). The interval is on the bound's working scale.
    """
    # "at most" is "at least" in the mirror. A noiseless value that equals its bound meets it.
    sign = 1 if bound.at_least else -1
    worst, best = sorted((sign * interval.low, sign * interval.high))
    if worst >= sign * bound.edge:
        return Verdict.PASS
    if best < sign * bound.line:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE


def confirm(first: Verdict, confirmation: Interval, bound: Bound) -> Verdict:
    """Return the final verdict after stage one, given the interval of 4 fresh launches at level 0.02.

    A FAIL stands only if both stages say so, else the gate is INCONCLUSIVE; other verdicts need no confirmation and
    are returned as they are (MEASUREMENT, the verdict).
    """
    if first is not Verdict.FAIL or judge(confirmation, bound) is Verdict.FAIL:
        return first
    return Verdict.INCONCLUSIVE


def channels_agree(median: Interval, minimum: Interval) -> bool:
    """Say whether the two channels differ by no more than the wider half width (MEASUREMENT, step 7)."""
    return abs(median.theta - minimum.theta) <= max(median.half_width, minimum.half_width)


def smallest_visible(interval: Interval, scale: Scale = "log") -> float:
    """Return the smallest distance from a bound that a gate of this spread and size tells apart in nine of ten runs.

    It is lambda s / sqrt(P) with P launches; a noncentral t of that noncentrality exceeds t(1 - q, P - 1) with
    probability 0.9 (the half width alone would be seen in every second run). A fraction on the log scale (expm1), in
    the metric's unit on the linear one; infinite for one launch.
    """
    if interval.df < 1:
        return math.inf
    from scipy.special import nctdtrinc

    error = interval.s / math.sqrt(interval.launches)
    distance = error * float(nctdtrinc(interval.df, 1 - _POWER, interval.half_width / error)) if error else 0.0
    if scale == "linear":
        return distance
    # A spread that large says "nothing"; exp would overflow.
    return math.expm1(distance) if distance < 700 else math.inf


def percentile_bound(
    values_seconds: Sequence[float], percentile: float, confidence: float
) -> tuple[float, float, float]:
    """Return (low, estimate, high) of a latency percentile, in seconds, by order statistics and the exact binomial law.

    Each side errs with at most (1 - confidence) / 2, whatever the distribution of the (independent) values; the
    estimate is the smallest value with at least ``percentile`` % of all values at or below it. Too few values give
    0 or infinity on the side they say nothing about. As MLPerf LoadGen's early stopping does. 0 < percentile < 100.
    """
    if not values_seconds or not 0 < percentile < 100 or not 0 < confidence < 1:
        raise SpecError(
            f"percentile {percentile} of {len(values_seconds)} values at confidence {confidence} "
            f"(expected 0 < percentile < 100, at least one value, 0 < confidence < 1)"
        )
    import numpy as np
    from scipy.special import bdtr, bdtrc

    ordered = np.sort(np.asarray(values_seconds, dtype=float))
    size, share, risk = len(ordered), percentile / 100, (1 - confidence) / 2
    below = np.arange(size)
    # The k-th smallest value is above the true percentile where fewer than k values are below it, and vice versa.
    lower = int(np.count_nonzero(bdtr(below, size, share) <= risk))
    upper = int(np.count_nonzero(bdtrc(below, size, share) > risk)) + 1
    middle = min(size, max(1, math.ceil(share * size - 1e-9)))
    return (
        float(ordered[lower - 1]) if lower else 0.0,
        float(ordered[middle - 1]),
        float(ordered[upper - 1]) if upper <= size else math.inf,
    )

"""From an interval and a bound to one of four verdicts, and what the gate could have seen at all."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats.launches import Interval

Scale = Literal["log", "linear"]

# How often a gate errs to each side at most, where a run asks for nothing else.
ERROR_RATE = 0.01
# After how many fresh launches it is looked whether they say so, too, and what all of these looks spend together.
CONFIRMING_LOOKS = (4, 6, 8, 12)
CONFIRMING_LAUNCHES = CONFIRMING_LOOKS[-1]
CONFIRMING_ALPHA = 0.005
# What fails by so little chance, by so many tolerances and in so few launches, fails without fresh ones.
CLEAR_LEVEL, _CLEAR_TOLERANCES, CLEAR_LAUNCHES = 2e-4, 3, 4
# What others disturbed passes where it would if it were so many times worse. They only make calls longer; but where the
# machine itself was faster than usual meanwhile, by another place of its CPUs, that was by no more than this.
ROOM = 1.5
_POWER = 0.9


class Verdict(str, enum.Enum):
    """What a gate says: ``invalid`` where its controls failed, ``not judged`` where there is no error control."""

    PASS = "pass"  # noqa: S105
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    INVALID = "invalid"
    NOT_JUDGED = "not judged"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Bound:
    """What a gate asks: a value in the metric's unit, its direction, and a tolerance.

    On the log scale the tolerance is a fraction of the value (0 <= tolerance < 1), on the linear scale an amount in the
    metric's unit. A strict bound is claimed to be exceeded: it is not met by what equals it, and has no tolerance.
    Raises SpecError for a value or tolerance that the scale does not allow.
    """

    value: float
    at_least: bool
    tolerance: float
    scale: Scale
    is_strict: bool = False

    def __post_init__(self) -> None:
        if not math.isfinite(self.value) or (self.scale == "log" and self.value <= 0):
            allowed = "a number above 0" if self.scale == "log" else "a finite number"
            raise SpecError(f"{self.words} {self.value}: on the {self.scale} scale a bound must be {allowed}")
        if not 0 <= self.tolerance < (1.0 if self.scale == "log" else math.inf):
            allowed = "a fraction, 0 <= tolerance < 1" if self.scale == "log" else "a finite amount, not below 0"
            raise SpecError(f"{self.words} {self.value}: tolerance {self.tolerance} (expected {allowed})")
        if self.is_strict and self.tolerance:
            raise SpecError(f"{self.words} {self.value}: tolerance {self.tolerance} (expected none of a strict bound)")

    @property
    def words(self) -> str:
        """Name the direction as the suite writes it: ``at_least`` or ``at_most``, or ``above`` a strict bound."""
        if self.is_strict:
            return "above" if self.at_least else "below"
        return "at_least" if self.at_least else "at_most"

    @property
    def line(self) -> float:
        """The bound on the working scale: ln(value) or the value."""
        return math.log(self.value) if self.scale == "log" else self.value

    @property
    def edge(self) -> float:
        """The far edge of the tolerance zone on the working scale. A PASS shows the truth to be on its good side."""
        amount = -self.tolerance if self.at_least else self.tolerance
        return self.line + (math.log1p(amount) if self.scale == "log" else amount)

    @property
    def passing(self) -> float:
        """The far edge of the tolerance zone in the metric's unit: what is shown to be better passes."""
        amount = -self.tolerance if self.at_least else self.tolerance
        return self.value * (1 + amount) if self.scale == "log" else self.value + amount


def judge(interval: Interval, bound: Bound) -> Verdict:
    """Return PASS if the whole interval is inside the tolerance edge, else FAIL if it is all outside the bound.

    Else INCONCLUSIVE: another launch may decide. A half width of at most half the tolerance always decides
    (docs/measuring.md, step 10). The interval is on the bound's working scale.
    """
    # "at most" is "at least" in the mirror. A noiseless value that equals its bound meets it, but for a strict one.
    sign = 1 if bound.at_least else -1
    worst, best = sorted((sign * interval.low, sign * interval.high))
    if bound.is_strict and worst == best == sign * bound.line:
        return Verdict.FAIL
    if worst > sign * bound.edge or (worst == sign * bound.edge and not bound.is_strict):
        return Verdict.PASS
    if best < sign * bound.line:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE


def with_room(bound: Bound) -> Bound:
    """Return a bound on the log scale, without tolerance, that is held with room: what is 1.5 times worse meets it."""
    return replace(bound, value=bound.value * (ROOM if bound.at_least else 1 / ROOM), tolerance=0.0)


def clear_level(rate: float) -> float:
    """Return by how little chance a fail is clear, of a gate that may err at a rate: by no more than is usual."""
    return CLEAR_LEVEL * min(1.0, rate / ERROR_RATE)


def is_clear_fail(interval: Interval, bound: Bound, rate: float = ERROR_RATE) -> bool:
    """Say whether a fail is so clear that fresh launches need not confirm it (docs/measuring.md, step 11).

    Its mean is worse than the bound by three tolerances, on the working scale, and would be so by chance in 1 of 5000
    gates at their bound (plain t), in fewer where it may err at a lower ``rate`` than usual. Without a tolerance there
    is no scale for "far", so nothing is clear. And what took more than four launches to fail was not, where launches
    are skewed.
    """
    zone = abs(bound.edge - bound.line)
    beyond = (bound.line - interval.theta) if bound.at_least else (interval.theta - bound.line)
    if not zone or not 1 < interval.launches <= CLEAR_LAUNCHES or beyond < _CLEAR_TOLERANCES * zone:
        return False
    if interval.s == 0:
        return True
    from scipy.special import stdtr

    return float(stdtr(interval.df, -beyond * math.sqrt(interval.launches) / interval.s)) <= clear_level(rate)


def contradicts(verdict: Verdict, minimum: Interval, bound: Bound) -> bool:
    """Return whether the second channel, the fastest batches, gives the opposite of a verdict.

    See docs/measuring.md, step 12. A difference alone says little: some runtimes' median is steadily several per cent
    off their minimum, and on one side of a ratio only. It counts where it would turn a pass into a fail, or a fail into
    a pass.
    """
    opposite = {Verdict.PASS: Verdict.FAIL, Verdict.FAIL: Verdict.PASS}
    return judge(minimum, bound) is opposite.get(verdict)


def smallest_visible(interval: Interval, scale: Scale = "log") -> float:
    """Return the smallest distance from a bound that a gate of this spread and size distinguishes in nine of ten runs.

    It is lambda s / sqrt(P) with P launches. A noncentral t of that noncentrality exceeds t(1 - q, P - 1) with
    probability 0.9 (the half width alone would be seen in every second run). A fraction on the log scale (expm1), in
    the metric's unit on the linear one, infinite for one launch.
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
    values_seconds: Sequence[float], percentile: float, confidence: float, *, design_effect: float = 1.0
) -> tuple[float, float, float]:
    """Return (low, estimate, high) of a latency percentile, in seconds, by order statistics and the exact binomial law.

    Each side errs with at most (1 - confidence) / 2, whatever the distribution of the (independent) values. The
    estimate is the smallest value with at least ``percentile`` % of all values at or below it. Too few values give
    0 or infinity on the side they say nothing about. As MLPerf LoadGen's early stopping does. Values that come in
    clusters count as if there were ``design_effect`` times fewer. 0 < percentile < 100.
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
    effective = max(1, math.floor(size / design_effect))
    below = np.arange(effective)
    # The k-th smallest value is above the true percentile where fewer than k values are below it, and vice versa.
    lower = int(np.count_nonzero(bdtr(below, effective, share) <= risk))
    upper = int(np.count_nonzero(bdtrc(below, effective, share) > risk)) + 1
    middle = min(size, max(1, math.ceil(share * size - 1e-9)))
    first, last = math.floor(lower * size / effective), math.ceil(upper * size / effective)
    return (
        float(ordered[first - 1]) if lower else 0.0,
        float(ordered[middle - 1]),
        float(ordered[last - 1]) if upper <= effective else math.inf,
    )


def design_effect(launches_seconds: Sequence[Sequence[float]], limit_seconds: float) -> float:
    """Return how many times more the share of calls above a limit scatters over launches than independent calls would.

    Pearson's chi square of the shares over its degrees of freedom, at least 1: slow calls come in bursts, and what a
    burst adds is one event, not a hundred.
    """
    return _scatter_of_shares([len(values) for values in launches_seconds], _above(launches_seconds, limit_seconds))


def _above(launches_seconds: Sequence[Sequence[float]], limit_seconds: float) -> list[int]:
    return [sum(value > limit_seconds for value in values) for values in launches_seconds]


def _scatter_of_shares(sizes: Sequence[int], above: Sequence[int]) -> float:
    # In a launch that others disturbed no call may count.
    counted = [(k, n) for k, n in zip(above, sizes, strict=True) if n]
    if len(counted) < 2 or sum(above) in (0, sum(sizes)):
        return 1.0
    share = sum(above) / sum(sizes)
    squares = [(k - n * share) ** 2 / (n * share * (1 - share)) for k, n in counted]
    return max(1.0, math.fsum(squares) / (len(counted) - 1))


def judge_percentile(
    launches_seconds: Sequence[Sequence[float]], percentile: float, bound: Bound, q: float, *, least_effect: float = 1.0
) -> Verdict:
    """Return the verdict on a percentile of the calls of some launches, at the one-sided level ``q``.

    The claim "at most T" is that at most 1 - percentile of all calls take longer than T. PASS if that many or fewer
    slow calls, counted beyond the tolerance, would be seen with probability q at most were it not so. FAIL if that many
    or more, counted beyond T, would be. By the binomial law, for calls as independent as ``design_effect`` finds them,
    and no more than ``least_effect`` says, which is known without them.
    ``bound`` is in seconds, on the log scale.
    """
    sizes = [len(values) for values in launches_seconds]
    beyond, over = (_above(launches_seconds, math.exp(limit)) for limit in (bound.edge, bound.line))
    return judge_shares(sizes, beyond, over, percentile, q, at_least=bound.at_least, least_effect=least_effect)


def judge_shares(
    sizes: Sequence[int],
    beyond: Sequence[int],
    over: Sequence[int],
    percentile: float,
    q: float,
    *,
    at_least: bool = False,
    least_effect: float = 1.0,
) -> Verdict:
    """Return what ``judge_percentile`` does, by how many of the calls of each launch took longer.

    ``beyond`` are those that took longer than the far edge of the tolerance, ``over`` than the bound.
    """
    from scipy.special import betainc

    share = 1 - percentile / 100
    size = sum(sizes)

    def tail(counts: Sequence[int], *, few: bool) -> float:
        """Return the probability of as few, or as many, calls above a limit if their true share were the allowed."""
        thinned = max(least_effect, _scatter_of_shares(sizes, counts))
        above, total = sum(counts) / thinned, size / thinned
        if few:
            return 1.0 if above >= total else float(betainc(total - above, above + 1, 1 - share))
        return 1.0 if above <= 0 else float(betainc(above, total - above + 1, share))

    if tail(beyond, few=not at_least) <= q:
        return Verdict.PASS
    if tail(over, few=at_least) <= q:
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE

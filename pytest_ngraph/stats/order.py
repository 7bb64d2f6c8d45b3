"""Whether an order holds: claims judged as one, which findings to believe, and what dominates what."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats.launches import Interval, LaunchValue, interval
from pytest_ngraph.stats.sequential import FEWEST_LAUNCHES
from pytest_ngraph.stats.verdict import Bound, Verdict, judge


def judge_one_of(values: Sequence[LaunchValue], bound: Bound, q: float, claims: int) -> Verdict:
    """Return the verdict on one of ``claims`` gates that only together make a claim, such as the links of a chain.

    The whole passes where all of them do, so each may pass at the level ``q`` itself (an intersection-union test,
    Berger 1982). It fails where any of them does, so each may fail at ``q / claims`` only (Bonferroni).
    """
    if judge(interval(values, q), bound) is Verdict.PASS:
        return Verdict.PASS
    return Verdict.FAIL if judge(interval(values, q / claims), bound) is Verdict.FAIL else Verdict.INCONCLUSIVE


def judge_kept(
    before: Sequence[LaunchValue], after: Sequence[LaunchValue], bound: Bound, q: float, claims: int
) -> Verdict:
    """Return whether two things keep their order: ``before`` and ``after`` are ln of their ratio in each launch.

    FAIL if they are shown to have changed places: both intervals exclude 0, on opposite sides (Gail and Simon 1985,
    for two groups). PASS if shown not to have done so by the tolerance of ``bound`` on both sides of 0: in either
    direction one of the two ratios is within it. That can err in two ways, each of which gets half of ``q``. As one of
    ``claims`` a fail has ``q / claims``, as in ``judge_one_of``. ``bound`` is at least 1 on the log scale.
    """
    if bound.line != 0 or not bound.at_least:
        raise SpecError(f"judge_kept: {bound.words} {bound.value} (expected at_least 1.0)")
    zone = -bound.edge
    one, other = interval(before, q / 2), interval(after, q / 2)
    if (one.high <= zone or other.low >= -zone) and (one.low >= -zone or other.high <= zone):
        return Verdict.PASS
    one, other = interval(before, q / claims), interval(after, q / claims)
    if (one.low > 0 and other.high < 0) or (one.high < 0 and other.low > 0):
        return Verdict.FAIL
    return Verdict.INCONCLUSIVE


def discoveries(p_values: Sequence[float], rate: float, *, most: float = 1.0) -> list[int]:
    """Return which of several findings to believe, by index: of them ``rate`` at most are expected to be false.

    The step-up of Benjamini and Hochberg 1995: those up to the k-th smallest p-value for the largest k at which it is
    at most k rate / m of m findings, and at most ``most``. Proved for independent and for positively dependent
    p-values. That it holds for the ratios of pairs, too, which share their members, was found by simulation (Williams,
    Jones and Tukey 1999), as ``tests/report/test_reversals.py`` does for these.
    """
    if not 0 < rate < 1:
        raise SpecError(f"discoveries: rate {rate} (expected 0 < rate < 1)")
    ordered = sorted(range(len(p_values)), key=lambda index: p_values[index])
    limits = [min(rank * rate / len(ordered), most) for rank in range(1, len(ordered) + 1)]
    believed = [rank for rank, index in enumerate(ordered, 1) if p_values[index] <= limits[rank - 1]]
    return sorted(ordered[: max(believed, default=0)])


# What dominates what: a partial order over several objectives


@dataclass(frozen=True, slots=True)
class Contrast:
    """By how much one thing is better than another by one objective, on its working scale: above 0 it is better.

    ``ends`` gives the interval at a one-sided level. ``zone`` is how large a difference counts as none, on the same
    scale. What was never measured has an interval without ends, and what is compared by points has one without width.
    """

    theta: float
    ends: Callable[[float], tuple[float, float]]
    zone: float = 0.0

    @classmethod
    def of(cls, spread: Interval, zone: float = 0.0, share: float | None = None) -> Contrast:
        """Return the contrast of which an interval over launches tells.

        ``share`` is which share of a level it spends, by default that of launches of which nobody said beforehand how
        many there would be (``at_any_stop``); 1 where somebody did. Fewer than three launches say nothing.
        """
        launches = spread.launches
        if launches < FEWEST_LAUNCHES or not math.isfinite(spread.s):
            return cls(spread.theta, lambda level: (-math.inf, math.inf), zone)
        share = at_any_stop(launches) if share is None else share

        def ends(level: float) -> tuple[float, float]:
            from scipy.special import stdtrit

            half = -float(stdtrit(spread.df, level * share)) * spread.s / math.sqrt(launches) if spread.s else 0.0
            return spread.theta - half, spread.theta + half

        return cls(spread.theta, ends, zone)

    @classmethod
    def exactly(cls, theta: float, zone: float = 0.0) -> Contrast:
        """Return that of two numbers which have no error, or whose points are compared."""
        return cls(theta, lambda level: (theta, theta), zone)

    @classmethod
    def unknown(cls, zone: float = 0.0) -> Contrast:
        """Return that of which nothing is known."""
        return cls(math.nan, lambda level: (-math.inf, math.inf), zone)


def at_any_stop(launches: int) -> float:
    """Return which share of an error rate may be spent after so many launches, where nobody knows when it stops.

    The k-th of them from the third on has 1 / (k (k + 1)), which adds up to 1: what is said holds whenever measuring
    stopped, also where somebody went on because of what was said.
    """
    stops = launches - FEWEST_LAUNCHES + 1
    return 1 / (stops * (stops + 1)) if stops > 0 else 0.0


def dominates(contrasts: Sequence[Contrast], level: float) -> bool:
    """Return whether one thing is shown to be at least as good as another by all objectives and better by one.

    ``contrasts`` are of the one over the other, by objective. At least as good is no worse than by the zone, better is
    better than by the zone, so that of two things each of which is a little better somewhere neither dominates. All of
    the first must be shown, each at the level itself (an intersection-union test, Berger 1982), and one of the second,
    each at its share of it (Bonferroni). So what does not dominate is said to with probability ``level`` at most.
    """
    # NaN is at neither side of anything.
    if not contrasts or not all(each.ends(level)[0] >= -each.zone for each in contrasts):
        return False
    return any(each.ends(level / len(contrasts))[0] > each.zone for each in contrasts)


def cannot_dominate(contrasts: Sequence[Contrast], level: float) -> bool:
    """Return whether one thing is shown not to dominate another: worse by one objective, or better by none.

    ``contrasts`` are those of ``dominates``. Either way of showing it has half of the level, so that of what does
    dominate it is said with probability ``level`` at most.
    """
    half = level / 2
    if any(each.ends(half / len(contrasts))[1] < -each.zone for each in contrasts):
        return True
    return all(each.ends(half)[1] <= each.zone for each in contrasts)


def front_levels(rate: float, things: int) -> tuple[float, float]:
    """Return the levels of ``dominates`` and of ``cannot_dominate`` for each pair of so many things.

    With them the chance that any of the things is said to be dominated which is not, and that any is said not to be
    which is, are ``rate`` at most each: there are n (n - 1) ordered pairs, of which any may be called falsely, and for
    each of n dominated things it takes a false word on one certain pair to miss that. Whatever the pairs share.
    """
    if not 0 < rate < 0.5:
        raise SpecError(f"front_levels: rate {rate} (expected 0 < rate < 0.5)")
    return rate / max(1, things * (things - 1)), rate / max(1, things)


def left_behind(dominators: Sequence[Iterable[int]]) -> list[bool]:
    """Return which things are off the front, given by which others each is dominated.

    Things that dominate one another in a circle are as good as one another within the zones: no chain of them throws
    one of them off, or all of them would be.
    """
    above = [set(each) for each in dominators]
    for _ in above:
        grown = [each.union(*(above[other] for other in each)) for each in above]
        if grown == above:
            break
        above = grown
    return [any(place not in above[other] for other in each) for place, each in enumerate(above)]

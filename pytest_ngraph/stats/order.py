"""Whether an order holds: several claims judged as one, and which of many findings to believe."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats.launches import LaunchValue, interval
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

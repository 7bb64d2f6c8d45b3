"""From shares of samples to verdicts: exact intervals, paired where both cells were shown the same samples."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

from pytest_ngraph.spec.evaluations import Score
from pytest_ngraph.stats.shares import exact_interval, mcnemar, paired_interval
from pytest_ngraph.stats.verdict import Bound, Verdict

# So many samples are not looked for: a bound at the very edge is never shown by samples.
_MOST = 10_000_000


@dataclass(frozen=True, slots=True)
class Judged:
    """A verdict with the number that it is about, its interval, and what it is ``of``: how many of how many samples."""

    verdict: Verdict
    value: float
    low: float
    high: float
    reason: str = ""
    of: str = ""
    notes: tuple[str, ...] = ()
    advice: str = ""
    bound: float = 0.0

    def beside_chance(self, chance: float, bound: Bound) -> Judged:
        """Return it beside what outputs for other inputs would have been: where these pass, too, it says nothing."""
        noted = replace(self, notes=(*self.notes, f"outputs for other inputs would have {chance:.4g}"))
        if self.verdict is Verdict.PASS and chance >= bound.value:
            reason = "outputs for other inputs would have passed, too, so that these did says little"
            return replace(noted, verdict=Verdict.INCONCLUSIVE, reason=reason, advice=_MAKE_THEM_DIFFER)
        return noted


_MAKE_THEM_DIFFER = "weights and inputs (example_inputs) with which the model's outputs differ from input to input"


def by_interval(value: float, low: float, high: float, bound: Bound, of: str = "") -> Judged:
    """Judge a number by its interval: pass where all of it is on the bound's good side, fail where none of it is."""
    verdict, reason = Verdict.INCONCLUSIVE, "the interval holds the bound"
    if low >= bound.value if bound.at_least else high <= bound.value:
        verdict, reason = Verdict.PASS, ""
    elif high < bound.value if bound.at_least else low > bound.value:
        verdict, reason = Verdict.FAIL, ""
    return Judged(verdict, value, low, high, reason, of, bound=bound.value)


def of_share(hits: float, samples: int, level: float, bound: Bound, what: str = "samples") -> Judged:
    """Judge a share of samples by its exact binomial interval, which errs to each side at ``level`` at most."""
    low, high = exact_interval(hits, samples, level)
    found = by_interval(hits / samples, low, high, bound, f"{hits:.6g} of {samples} {what}")
    return _more(found, samples, is_pure=hits in (0, samples))


def of_drop(mine: Score, dense: Score, level: float, bound: Bound, label: str) -> Judged:
    """Judge by how much less often a cell is right than the dense one, on the same samples."""
    drop = dense.share - mine.share
    right, theirs = mine.flags(), dense.flags()
    shares = f"dense f32 ({label}) has {dense.share:.4g}, this cell {mine.share:.4g}"
    if not right or not theirs or len(right) != len(theirs):
        (low, high), (least, most) = (exact_interval(one.hits, one.samples, level / 2) for one in (mine, dense))
        found = by_interval(drop, least - high, most - low, bound, f"{mine.samples} samples")
        advice = _GIVE_BOOLS if found.verdict is Verdict.INCONCLUSIVE else ""
        note = "not paired: evaluate gives shares, not whether each sample was right, so the interval is wider"
        return _unless_empty(replace(found, notes=(shares, note), advice=advice), dense, bound)
    lost = sum(one and not other for one, other in zip(theirs, right, strict=True))
    won = sum(other and not one for one, other in zip(theirs, right, strict=True))
    low, high = paired_interval(lost, won, len(right), level)
    found = by_interval(drop, low, high, bound, f"paired over {len(right)} samples")
    found = _more(found, len(right), is_pure=not lost + won)
    pairs = f"{lost} samples lost and {won} won against it, McNemar p={mcnemar(lost, won):.2g}"
    return _unless_empty(replace(found, notes=(shares, pairs)), dense, bound)


def _unless_empty(found: Judged, dense: Score, bound: Bound) -> Judged:
    """Return a drop, open where it passes and a cell that is never right would have passed, too."""
    if found.verdict is not Verdict.PASS or dense.share > bound.value:
        return found
    reason = "a cell that is never right would have passed, too: the dense model itself is right no more often"
    advice = "look at labels and weights, or allow for a smaller drop than the dense model's accuracy"
    return replace(found, verdict=Verdict.INCONCLUSIVE, reason=reason, advice=advice)


_GIVE_BOOLS = "give for each sample whether it was right (bools) instead of a share: samples are then compared in pairs"


def _more(found: Judged, samples: int, *, is_pure: bool) -> Judged:
    """Return an open verdict with about how many samples would decide it, were they like those that there are.

    An interval narrows with the square root of their number, and with the number itself where none is unlike the others
    (``is_pure``).
    """
    if found.verdict is not Verdict.INCONCLUSIVE:
        return found
    apart = abs(found.value - found.bound)
    towards = found.high if found.value < found.bound else found.low
    times = math.inf if not apart else abs(towards - found.value) / apart
    count = samples * (times if is_pure else times**2)
    if count > _MOST:
        return replace(found, advice="another bound: this one lies so close that no number of samples decides")
    digits = 10 ** max(0, math.floor(math.log10(count)) - 1)
    return replace(found, advice=f"evaluate more samples: about {math.ceil(count / digits) * digits} like these decide")

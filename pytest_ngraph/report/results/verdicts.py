"""The verdicts of a run, by what they are about."""

from __future__ import annotations

import re
from collections.abc import Sequence

from pytest_ngraph import units
from pytest_ngraph.claims.plans import FRESH
from pytest_ngraph.options.bounds import HISTORY
from pytest_ngraph.quantities.accuracy import AGREEMENT, CENTRED
from pytest_ngraph.stats.family import false_fail_chance
from pytest_ngraph.stats.sessions import FALSE_FAILS
from pytest_ngraph.stats.verdict import ERROR_RATE, Verdict
from pytest_ngraph.store.rows import VerdictRow

# Helpers that compare sessions.
OF_SESSIONS = ("compare",)
_WITHOUT_CHANCE = f"{AGREEMENT}:{CENTRED}"
_WORST_LAST = (Verdict.PASS, Verdict.NOT_JUDGED, Verdict.INCONCLUSIVE, Verdict.INVALID, Verdict.FAIL)
# One that is invalid or not judged cannot fail by chance.
_DECIDED = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
# Behind what a claim is about: its bound, which has a column of its own.
_TERMS = re.compile(r" (?:at_least|at_most|above|below) [^ ]+ \((?:no )?tolerance[^()]*\)\Z")


def without_terms(claim: str) -> str:
    """Return what a claim is about, without its bound and tolerance."""
    return _TERMS.sub("", claim)


def verdicts_by_cell(verdicts: Sequence[VerdictRow]) -> dict[str, str]:
    """Return, for each cell that a claim was about, its worst verdict.

    A verdict that names no cell, as other releases may store it, is shown with the claims only.
    """
    worst: dict[str, str] = {}
    for row in verdicts:
        subject = row.extra.get("subject")
        if not isinstance(subject, str):
            continue
        known = worst.setdefault(subject, row.verdict)
        if _WORST_LAST.index(row.verdict) > _WORST_LAST.index(known):
            worst[subject] = row.verdict
    return worst


def notes_of(row: VerdictRow) -> list[str]:
    """Return what must be known of a verdict whatever it is: another plan before, or another state of the machine."""
    # What was started again is said of the whole run.
    return [str(note) for note in row.extra.get("notes", ()) if note != FRESH]


def _false_fail(row: VerdictRow) -> float:
    """Return how likely it is at most that a gate failed by chance, at the error rate that it was judged at."""
    rate = row.extra.get("error_rate", ERROR_RATE)
    if _is_of_sessions(row):
        return FALSE_FAILS * (float(rate) / ERROR_RATE if is_by_history(row) else 1.0)
    if _is_over_samples(row):
        # One exact interval fails it, at half the rate to each side, and no launches confirm that.
        return float(rate) / 2
    return false_fail_chance(1, rate=rate) if row.tolerance else false_fail_chance(0, strict=1, rate=rate)


def _is_over_samples(row: VerdictRow) -> bool:
    """Return whether a claim was judged by the samples of one pass, instead of by launches."""
    return bool(row.extra.get("untimed"))


def family_line(verdicts: Sequence[VerdictRow]) -> str:
    """Return how likely it is at most that any gate of a run failed by chance, or nothing where none was judged."""
    # What is the same on both sides passes without chance, and so does a number that is not drawn.
    judged = [row for row in verdicts if row.verdict in _DECIDED and not row.extra.get("unmeasured")]
    judged = [row for row in judged if not _is_unjudged(row) and row.metric != _WITHOUT_CHANCE]
    if not judged:
        return ""
    chance = units.fraction(min(1.0, sum(map(_false_fail, judged))))
    which = "a false fail" if len(judged) == 1 else "any false fail"
    where = "" if all(map(_is_over_samples, judged)) else " where launches scatter evenly"
    return f"{units.count(len(judged), 'gate')}: chance of {which} at most {chance}{where}"


def _is_unjudged(row: VerdictRow) -> bool:
    """Return whether a claim fails where nobody knows how often that errs (``--ngraph-quick-gates=fail``)."""
    return "no error control" in str(row.extra.get("reason", ""))


def _is_of_sessions(row: VerdictRow) -> bool:
    """Return whether a claim compares sessions: no fresh launches confirm it, as they would be of the same session."""
    return row.extra.get("helper") in OF_SESSIONS or is_by_history(row)


def is_by_history(row: VerdictRow) -> bool:
    """Return whether a claim was held to what this machine's sessions say instead of to a number."""
    return f" {HISTORY} (tolerance " in row.claim

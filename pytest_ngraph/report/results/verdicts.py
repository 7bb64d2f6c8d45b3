"""The verdicts of a run, by what they are about."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import VerdictRow

_WORST_LAST = (Verdict.PASS, Verdict.NOT_JUDGED, Verdict.INCONCLUSIVE, Verdict.INVALID, Verdict.FAIL)


def verdicts_by_cell(verdicts: Sequence[VerdictRow]) -> dict[str, str]:
    """Return, for each cell that a claim was about, its worst verdict."""
    worst: dict[str, str] = {}
    for row in verdicts:
        known = worst.setdefault(row.extra["subject"], row.verdict)
        if _WORST_LAST.index(row.verdict) > _WORST_LAST.index(known):
            worst[row.extra["subject"]] = row.verdict
    return worst

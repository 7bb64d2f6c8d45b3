"""The verdicts of a run, by what they are about."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ngraph.store.rows import VerdictRow


def verdicts_by_cell(verdicts: Sequence[VerdictRow]) -> dict[str, str]:
    """Return, for each cell that a claim was about, its worst verdict."""
    rank = {"pass": 0, "not judged": 1, "inconclusive": 2, "invalid": 3, "fail": 4}
    worst: dict[str, str] = {}
    for row in verdicts:
        known = worst.setdefault(row.extra["subject"], row.verdict)
        if rank[row.verdict] > rank[known]:
            worst[row.extra["subject"]] = row.verdict
    return worst

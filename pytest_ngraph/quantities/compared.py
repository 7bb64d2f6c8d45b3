"""What comparing the outputs of a cell gave, in words and in columns."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from pytest_ngraph.compilers.toolkit.equality import MAX_ERROR
from pytest_ngraph.spec.cells import TIMED, Cell, CompileRecord
from pytest_ngraph.stats.shares import Share

NOT_TOLD_APART = "outputs: not told apart"
_COMPARED = ("max_error", "cosine", "centred_cosine", "top1_matches", "top1_samples", "outputs_told_apart")
WHY_NOT_TOLD_APART = "outputs of other inputs would have passed, too, so that these did says little"


def top1_of(record: CompileRecord) -> Share | None:
    """Return of how many samples the largest class score is where the reference has it, or None where none counts."""
    return Share(record.top1_matches, record.top1_samples) if record.top1_samples else None


def as_seen_in(record: CompileRecord, launches: Sequence[CompileRecord]) -> CompileRecord:
    """Return a record with how well outputs agreed in the worst of some launches, of one first look.

    An excess that was measured is not to be passed over because a later launch has none, and launches that come later,
    for another claim, change nothing. What did not tell outputs of other inputs apart once says little of the others.
    """
    compared = [one for one in launches if one.max_error is not None]
    if not compared:
        return record
    worst = max(compared, key=_error)
    said: dict[str, Any] = {name: getattr(worst, name) for name in _COMPARED} | {
        "cosine": _smallest([one.cosine for one in compared]),
        "centred_cosine": _smallest([one.centred_cosine for one in compared]),
    }
    if any(one.outputs_told_apart is False for one in compared):
        said["outputs_told_apart"] = False
    return replace(record, **said)


def _error(record: CompileRecord) -> float:
    assert record.max_error is not None
    return math.inf if math.isnan(record.max_error) else record.max_error


def _smallest(values: Sequence[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)


def limit_of(cell: Cell, record: CompileRecord) -> float | None:
    """Return the largest error that the outputs of a cell may have, or None where it is not by that they are judged."""
    limit = MAX_ERROR.get(record.held_to or cell.workload.base_precision)
    if limit is None or record.max_error is None or record.outcome not in TIMED:
        return limit
    # What is right with a larger one was held to other bounds, by a version that did not keep which.
    return limit if record.max_error <= limit else None


def figures(record: CompileRecord) -> str:
    """Return how well outputs agreed, or nothing where none were compared."""
    if record.max_error is None or record.cosine is None:
        return ""
    parts = [f"largest error {record.max_error:.2g}", f"cosine {record.cosine:.5f}"]
    if record.centred_cosine is not None:
        parts.append(f"centred cosine {record.centred_cosine:.5f}")
    if (share := top1_of(record)) is not None:
        parts.append(f"top-1 {share}")
    if record.outputs_told_apart is False:
        parts.append(NOT_TOLD_APART)
    return ", ".join(parts)


def columns(record: CompileRecord | None) -> dict[str, Any]:
    """Return the same as columns of a table. All of them are empty where none were compared."""
    share = None if record is None else top1_of(record)
    distinguished = None if record is None else record.outputs_told_apart
    return {
        "max_error": None if record is None else record.max_error,
        "cosine": None if record is None else record.cosine,
        "centred_cosine": None if record is None else record.centred_cosine,
        "top1_agreement": None if share is None else share.value,
        "top1_low": None if share is None else share.low,
        "top1_high": None if share is None else share.high,
        "top1_samples": None if share is None else share.total,
        "outputs": {True: "told apart", False: "not told apart", None: None}[distinguished],
    }

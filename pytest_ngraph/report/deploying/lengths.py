"""Cells that differ in the length of their sequences only, and the exponent of their time over it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.spec.cells import Cell

SCALING = "sequence_scaling"


def lots_of_lengths(reports: Sequence[CellReport]) -> list[list[int]]:
    """Return the cells that differ in their length only, by their numbers and with the shortest first.

    One length alone says nothing of it. Second processes and cells under load, whose times are those of a queue, are
    in none of them.
    """
    found: dict[Cell, list[int]] = {}
    for number, report in enumerate(reports):
        cell = report.cell
        if cell.workload.sequence is None or cell.replica or rate_of(cell.workload.scenario) is not None:
            continue
        found.setdefault(replace(cell, workload=replace(cell.workload, sequence=None)), []).append(number)
    several = (lot for lot in found.values() if len(lot) > 1)
    return [sorted(lot, key=lambda number: reports[number].cell.workload.sequence or 0) for lot in several]


def exponent_words(estimate: Estimate | None) -> str:
    """Write how time grows with length, such as ``n^1.07 [1.02, 1.12]``. Nothing where it is not known."""
    if estimate is None or not math.isfinite(estimate.value):
        return ""
    low, high = estimate.low, estimate.high
    return f"n^{estimate.value:.2f}" + (f" [{low:.2f}, {high:.2f}]" if math.isfinite(high - low) else "")

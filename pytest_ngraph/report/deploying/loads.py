"""Cells that calls arrive for by themselves, and claims of how many a second may."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pytest_ngraph.capacity.claims import CAPACITY
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.verdicts import without_terms
from pytest_ngraph.store.rows import VerdictRow


def loaded(reports: Sequence[CellReport]) -> Iterator[tuple[int, float]]:
    """Yield the number of each cell under load that has a latency, and how many calls arrive for it a second.

    Where more arrive than can be answered there is none.
    """
    for number, report in enumerate(reports):
        rate = rate_of(report.cell.workload.scenario)
        if rate is not None and report.spread is not None and not report.cell.replica:
            yield number, rate


@dataclass(frozen=True, slots=True)
class Capacity:
    """A claim of how many calls a second may arrive: what it is about, and its verdict."""

    about: str
    row: VerdictRow


def capacities(verdicts: Sequence[VerdictRow]) -> Iterator[Capacity]:
    """Yield the claims of capacity that have a number. One of 0 calls a second has none on a logarithmic axis."""
    for row in verdicts:
        if row.metric == CAPACITY and row.estimate is not None and math.isfinite(row.estimate) and row.estimate > 0:
            about = without_terms(row.claim).partition(": ")[2]
            yield Capacity(about.removeprefix("capacity of "), row)

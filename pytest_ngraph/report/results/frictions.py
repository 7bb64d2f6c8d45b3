"""Batch-width friction of a run whose widths were measured apart, each by a test of its own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ngraph.metrics import friction, friction_weights
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.spec.cells import Cell

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport


def with_friction(reports: Sequence[CellReport]) -> list[CellReport]:
    """Return the reports, the friction of each block and batch with the widest of the cells that differ in width only.

    ``metrics.friction`` of their scaling efficiencies. Whether these are of the same launches is not known here, so
    that the interval is one that holds however they depend on one another: the half widths add up.
    """
    widths: dict[Cell, dict[int, CellReport]] = {}
    for report in reports:
        workload = report.cell.workload
        if workload.width is not None and "ase" in report.estimates:
            apart = replace(report.cell, workload=replace(workload, width=None))
            widths.setdefault(apart, {})[workload.width] = report
    found = {
        mine[max(mine)].cell: _friction({width: report.estimates["ase"] for width, report in mine.items()})
        for mine in widths.values()
        if len(mine) > 1
    }
    return [
        replace(report, estimates={**report.estimates, "friction": found[report.cell]})
        if report.cell in found
        else report
        for report in reports
    ]


def _friction(efficiencies: Mapping[int, Estimate]) -> Estimate:
    weights = friction_weights(efficiencies)
    value = friction({width: ase.value for width, ase in efficiencies.items()})
    halves = ((abs(weights[width]), (ase.high - ase.low) / 2) for width, ase in efficiencies.items())
    half = math.fsum(weight * half for weight, half in halves if weight)
    return Estimate("friction", value, value - half, value + half, min(ase.launches for ase in efficiencies.values()))

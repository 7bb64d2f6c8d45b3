"""Transfer cost reduction per second of what was measured, where the sizes of a sample are given."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ngraph.errors import SpecError
from pytest_ngraph.metrics import tcr_per_second
from pytest_ngraph.quantities.quantity import Estimate

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport

# By model: bytes of one sample as it would be sent without and with compression.
Sizes = Mapping[str, tuple[float, float]]
_GIVEN = re.compile(r"(.+)=(\d+(?:\.\d+)?):(\d+(?:\.\d+)?)", re.ASCII | re.DOTALL)


def sizes_of(given: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Read ``MODEL=BEFORE:AFTER``, bytes of a sample. Raise SpecError for others, and where nothing is saved."""
    sizes: dict[str, tuple[float, float]] = {}
    for text in given:
        found = _GIVEN.fullmatch(text)
        if found is None or float(found[2]) <= float(found[3]):
            raise SpecError(
                f"--sizes: {text!r} (expected MODEL=BEFORE:AFTER, bytes of one sample without and with compression, "
                "the second smaller than the first, such as timm:resnet18=150528:2048)"
            )
        if found[1] in sizes:
            raise SpecError(f"--sizes: {found[1]!r} is given twice")
        sizes[found[1]] = (float(found[2]), float(found[3]))
    return sizes


def with_transfer(reports: Sequence[CellReport], sizes: Sizes) -> list[CellReport]:
    """Return the reports, with ``tcr_per_second`` those of the models whose sizes are given.

    It is the throughput times a constant, and so is its interval. Raises SpecError for a model that has no cell.
    """
    models = {report.cell.workload.model.text for report in reports}
    for model in sizes:
        if model not in models:
            raise SpecError(f"--sizes: {model!r} is not in this run (there: {', '.join(sorted(models)[:10])})")
    return [_with(report, *sizes.get(report.cell.workload.model.text, (0.0, 0.0))) for report in reports]


def _with(report: CellReport, before: float, after: float) -> CellReport:
    rate = report.estimates.get("throughput")
    if rate is None or not before:
        return report
    value, low, high = (
        tcr_per_second(before, after, end) if math.isfinite(end) and end > 0 else end
        for end in (rate.value, rate.low, rate.high)
    )
    saved = Estimate("tcr_per_second", value, low, high, rate.launches)
    return replace(report, estimates={**report.estimates, "tcr_per_second": saved})

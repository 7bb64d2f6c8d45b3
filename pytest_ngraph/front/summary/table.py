"""The table of a device: a section per model, a row per workload and compiler."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.axes import AXES, singular
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.results.verdicts import verdicts_by_cell
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.spec.sides import other_sides
from pytest_ngraph.texts.fitting import fit

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport
    from pytest_ngraph.store.rows import VerdictRow


def cell_table(reports: Sequence[CellReport], verdicts: Sequence[VerdictRow], width: int) -> list[str]:
    """Return a device's table: a section per model, a row per workload and compiler. It fits ``width`` columns."""
    if not reports:
        return ["no cells"]
    columns, rows = cell_rows(reports, verdicts, width)
    return [f"device {reports[0].cell.device}", *fit(columns, rows, width)]


def cell_rows(
    reports: Sequence[CellReport], verdicts: Sequence[VerdictRow], width: int
) -> tuple[list[str], list[Sequence[str] | str]]:
    """Return the columns of a device's table, and its rows as texts. A text alone is the title of a section."""
    by_cell = verdicts_by_cell(verdicts)
    # What the other side gave is in the change of each row.
    beside = set(other_sides([report.cell for report in reports]).values())
    ordered = sorted((report for report in reports if report.cell not in beside), key=_order)
    columns = ["batch", "depth", "compiler", "samples/s", "speed-up", "ASE", "BSR", "verdict"]
    if width >= 100:
        columns[-1:] = ["latency", "CPU", "verdict"]
    if any(row.metric == "compile_seconds" for row in verdicts):
        columns.insert(-1, "compile")
    if any("change" in report.estimates for report in reports):
        columns.insert(-1, "change")
    if any("tuning_seconds" in report.estimates for report in reports):
        columns.insert(-1, "tuning")
    if all(report.cell.workload.depth is None for report in reports):
        columns.remove("depth")
    rows: list[Sequence[str] | str] = []
    section, previous = "", (0, 0)
    for report in ordered:
        workload = report.cell.workload
        rebuilt = ["rebuilt"] if report.cell.rebuild else []
        title = " ".join([workload.model.text, *workload.axis_labels("batch", "depth"), *rebuilt])
        if title != section:
            rows.append(title)
            section, previous = title, (0, 0)
        place = (workload.batch, workload.depth or 0)
        cells = _cells(report, by_cell)
        if place == previous:
            cells = {**cells, "batch": "", "depth": ""}
        previous = place
        rows.append([cells[column] for column in columns])
    return columns, rows


def _cells(report: CellReport, verdicts: Mapping[str, str]) -> dict[str, str]:
    """Return a row's texts by column."""
    workload, failure = report.cell.workload, report.failure
    bad = str(failure.outcome) if failure is not None and failure.outcome is not Outcome.UNSTABLE else ""
    return {
        "batch": str(workload.batch),
        "depth": str(workload.depth or ""),
        "compiler": str(report.cell.compiler) + (" (A/A)" if report.cell.replica else ""),
        "samples/s": _number(report, "throughput", unit=False),
        "speed-up": _number(report, "speedup") if report.baseline is not None else "baseline",
        "ASE": _number(report, "ase"),
        "BSR": _number(report, "bsr"),
        "latency": _number(report, "latency"),
        "CPU": _number(report, "cpu_percent"),
        "change": _number(report, "change"),
        "compile": _number(report, "compile_seconds"),
        "tuning": _number(report, "tuning_seconds"),
        "verdict": bad or verdicts.get(report.cell.label, ""),
    }


def _order(report: CellReport) -> tuple[Any, ...]:
    """Put the cells of a workload together, the baseline first: by model, what has names, and then what has numbers.

    What is swept most often comes last, as in ids.
    """
    workload = report.cell.workload
    names = [str(workload.value(row.name)) for row in AXES if row.words]
    counted = {row.name for row in AXES if row.is_number}
    numbers = [workload.value(name) or 0 for name in singular() if name in counted]
    place = (natural(workload.model.text), *names, report.cell.rebuild, *numbers)
    return (*place, report.baseline is not None, natural(str(report.cell.compiler)))


def _number(report: CellReport, metric: str, *, unit: bool = True) -> str:
    estimate = report.estimates.get(metric)
    if estimate is None:
        return ""
    # A factor needs no unit under its own heading.
    ratio = metric in ("ase", "bsr", "throughput") or not unit
    return units.number(estimate.value) if ratio else METRICS[metric].format(estimate.value)

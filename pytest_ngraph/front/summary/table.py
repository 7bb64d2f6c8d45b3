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
from pytest_ngraph.spec.sides import cells_beside, other_sides
from pytest_ngraph.texts.fitting import NARROWEST, fit, natural_width

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport
    from pytest_ngraph.store.rows import VerdictRow


# From so many columns on numbers have their intervals.
_WIDE = 100
# Names of compilers have so many columns before anything is added to what a narrow table has.
_NAMES = 24
# What a wide table has besides, as far as there is room: intervals of what is there, and further columns.
_BESIDES = ("speed-up", "samples/s", "BSR", "change", "latency", "ASE", "CPU")
_FURTHER = ("latency", "CPU")
# The axes that have a column of their own; the others stand in the title of a section. What is swept most comes last.
_IN_COLUMNS = ("sequence", "depth", "batch")
# Where cells generate tokens.
_OF_TOKENS = ("first token", "per token")
# What is left out where there is no room, after columns that hold nothing, the first one first; what is claimed last.
_LEAST = (
    "CPU", "latency", "tuning", "compile", "ASE", "BSR", "change", "agreement", "samples/s", "accuracy",
    *_OF_TOKENS,
)  # fmt: skip


def cell_table(reports: Sequence[CellReport], verdicts: Sequence[VerdictRow], width: int) -> list[str]:
    """Return a device's table: a section per model, a row per workload and compiler. It fits ``width`` columns."""
    if not reports:
        return ["no cells"]
    columns, rows, left_out = _in_width(reports, verdicts, width)
    room = [f"  no room for: {', '.join(left_out)}"] if left_out else []
    return [f"device {reports[0].cell.device}", *fit(columns, rows, width), *room]


def cell_rows(
    reports: Sequence[CellReport], verdicts: Sequence[VerdictRow], width: int
) -> tuple[list[str], list[Sequence[str] | str]]:
    """Return the columns of a device's table, and its rows as texts. A text alone is the title of a section."""
    return _in_width(reports, verdicts, width)[:2]


def _in_width(
    reports: Sequence[CellReport], verdicts: Sequence[VerdictRow], width: int
) -> tuple[list[str], list[Sequence[str] | str], list[str]]:
    """Return columns and rows of a table that fits, and the columns with numbers for which there is no room."""
    columns = ["batch", "seq", "depth", "compiler", "samples/s", "speed-up", "ASE", "BSR", "verdict"]
    if any(row.metric == "compile_seconds" for row in verdicts):
        columns.insert(-1, "compile")
    if any("change" in report.estimates for report in reports):
        columns.insert(-1, "change")
    for name in _OF_TOKENS:
        if any(_METRICS[name] in report.estimates for report in reports):
            columns.insert(-1, name)
    for name in ("accuracy", "agreement"):
        if any(_named(report, name) in report.estimates for report in reports):
            columns.insert(-1, name)
    if any("tuning_seconds" in report.estimates for report in reports):
        columns.insert(-1, "tuning")
    if all(report.cell.workload.depth is None for report in reports):
        columns.remove("depth")
    if all(report.cell.workload.sequence is None for report in reports):
        columns.remove("seq")
    rows, spread = _rows(reports, verdicts, columns, frozenset()), frozenset[str]()
    for name in _BESIDES if width >= _WIDE else ():
        more = [*columns[:-1], name, "verdict"] if name in _FURTHER else columns
        if name not in more:
            continue
        wider = spread if name in _FURTHER else spread | {name}
        tried = _rows(reports, verdicts, more, wider)
        if name in _holding_nothing(more, tried):
            continue
        if natural_width(more, tried, _NAMES) <= width:
            columns, rows, spread = more, tried, wider
    left_out: list[str] = []
    claimed = {row.metric.partition(":")[0] for row in verdicts}
    for name in [*_holding_nothing(columns, rows), *sorted(_LEAST, key=lambda name: _METRICS[name] in claimed)]:
        if natural_width(columns, rows, NARROWEST) <= width:
            break
        if name in columns:
            left_out += [] if name in _holding_nothing(columns, rows) else [name]
            columns = [column for column in columns if column != name]
            rows = _rows(reports, verdicts, columns, spread)
    return columns, rows, left_out


def _holding_nothing(columns: Sequence[str], rows: Sequence[Sequence[str] | str]) -> list[str]:
    """Return the columns without a text in any row."""
    lines = [row for row in rows if not isinstance(row, str)]
    return [column for k, column in enumerate(columns) if column != "verdict" and not any(line[k] for line in lines)]


def _rows(
    reports: Sequence[CellReport], verdicts: Sequence[VerdictRow], columns: Sequence[str], spread: frozenset[str]
) -> list[Sequence[str] | str]:
    """Return the rows of a table with these columns, those in ``spread`` with intervals."""
    by_cell = verdicts_by_cell(verdicts)
    # What the other side gave is in the change of each row, and what further ones gave stands in rows of their own.
    cells = [report.cell for report in reports]
    beside = set(other_sides(cells).values())
    further = cells_beside(cells) - beside
    ordered = sorted((report for report in reports if report.cell not in beside), key=_order)
    rows: list[Sequence[str] | str] = []
    section, previous = "", (0, 0, 0)
    for report in ordered:
        workload = report.cell.workload
        rebuilt = ["rebuilt"] if report.cell.rebuild else []
        title = " ".join([workload.model.text, *workload.axis_labels(*_IN_COLUMNS), *rebuilt])
        if title != section:
            rows.append(title)
            section, previous = title, (0, 0, 0)
        place = (workload.batch, workload.sequence or 0, workload.depth or 0)
        texts = _cells(report, by_cell, spread)
        if report.cell in further:
            texts["compiler"] += f" (of {report.cell.side})"
        if place == previous:
            texts |= {"batch": "", "seq": "", "depth": ""}
        previous = place
        rows.append([texts[column] for column in columns])
    return rows


# What the numbers of a column are of.
_METRICS = {
    "samples/s": "throughput", "speed-up": "speedup", "ASE": "ase", "BSR": "bsr", "latency": "latency",
    "CPU": "cpu_percent", "change": "change", "compile": "compile_seconds", "tuning": "tuning_seconds",
    "accuracy": "accuracy", "agreement": "agreement", "first token": "time_to_first_token",
    "per token": "time_per_token",
}  # fmt: skip


def _cells(report: CellReport, verdicts: Mapping[str, str], spread: frozenset[str]) -> dict[str, str]:
    """Return a row's texts by column."""
    workload, failure = report.cell.workload, report.failure
    outcome = str(failure.outcome) if failure is not None else ""
    is_unstable = failure is not None and failure.outcome is Outcome.UNSTABLE
    # What is unstable has a time as a rule, and under a load that is too high none.
    bad, lacking = ("", "" if "latency" in report.estimates else outcome) if is_unstable else (outcome, "")
    numbers = {column: _number(report, metric, column in spread) for column, metric in _METRICS.items()}
    return {
        "batch": str(workload.batch),
        "seq": str(workload.sequence or ""),
        "depth": str(workload.depth or ""),
        "compiler": str(report.cell.compiler) + (" (A/A)" if report.cell.replica else ""),
        **numbers,
        "speed-up": numbers["speed-up"] if report.baseline is not None else "baseline",
        "verdict": bad or verdicts.get(report.cell.label, lacking),
    }


def _order(report: CellReport) -> tuple[Any, ...]:
    """Put the cells of a workload together, the baseline first: by model, what has names, and then what has numbers.

    What stands in a title comes before what has a column, so that each title comes once.
    """
    workload = report.cell.workload
    names = [str(workload.value(row.name)) for row in AXES if row.is_named]
    counted = {row.name for row in AXES if row.is_number}
    titled = [name for name in singular() if name in counted and name not in _IN_COLUMNS]
    numbers = [workload.value(name) or 0 for name in (*titled, *_IN_COLUMNS)]
    place = (natural(workload.model.text), *names, report.cell.rebuild, *numbers)
    return (*place, report.baseline is not None, natural(str(report.cell.compiler)))


def _named(report: CellReport, metric: str) -> str:
    """Return the metric, or of one that has names the top-1, or else the first: ``accuracy:top1``."""
    names = [name for name in report.estimates if name.startswith(f"{metric}:")]
    top1 = f"{metric}:top1"
    return metric if not names else top1 if top1 in names else names[0]


def _number(report: CellReport, metric: str, is_spread: bool) -> str:
    """Return an estimate as a text, where it has an interval with that. The unit stands in the heading, or once."""
    estimate = report.estimates.get(_named(report, metric))
    if estimate is None:
        return ""
    # A factor needs no unit under its own heading.
    write = units.number if metric in ("ase", "bsr", "throughput") else METRICS[metric].format
    plain = units.number if METRICS[metric].format is units.factor else write
    return write(estimate.value) + (units.interval(estimate.low, estimate.high, plain) if is_spread else "")

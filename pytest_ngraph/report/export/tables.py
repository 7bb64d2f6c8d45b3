"""Exports of a run: the tidy table in every format, and its results in the layout of the paper's tables."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import MappingProxyType

from pytest_ngraph import units
from pytest_ngraph.axes import AXES
from pytest_ngraph.errors import SpecError
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.settings import EXPORT_FORMATS, export_format
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export.files import write_rows, write_text
from pytest_ngraph.report.export.layout import Table, latex, markdown, rounded
from pytest_ngraph.report.export.markdown import page
from pytest_ngraph.report.export.other_tools import OTHER_TOOLS
from pytest_ngraph.report.export.specifications import SPECIFIED, Specified
from pytest_ngraph.report.results.cells import CellReport, tidy_rows
from pytest_ngraph.report.results.families import BATCH_RANGES, FamilyRow, Mean, family_table
from pytest_ngraph.report.results.natural import Natural, natural
from pytest_ngraph.spec.cells import Outcome, Workload
from pytest_ngraph.store.rows import Origin, RunRow, VerdictRow

# What the columns of the tidy table hold, so that a Parquet file of any run has the same ones.
TIDY_TYPES: Mapping[str, type] = {
    "device": str, "compiler": str, "replica": int, "rebuild": bool, "side": str,
    **{row.column: int if row.is_number else str for row in AXES}, "baseline": str, "outcome": str,
    "placement": str, "max_error": float, "cosine": float, "centred_cosine": float, "top1_agreement": float,
    "top1_low": float, "top1_high": float, "top1_samples": int, "outputs": str, "state": str,
    "metric": str, "unit": str, "value": float, "low": float, "high": float, "launches": int,
    "run": int, "digest": str,
}  # fmt: skip
# What stands beside a value, by the protocol that it was measured by.
SPREADS = {
    "gate": "with 99 % intervals over launches",
    "quick": "with one standard error to each side, within one launch",
    "paper": "with one standard deviation to each side, over repetitions",
}
# More do not fit one page of a paper, with heading and caption: such a table breaks over pages.
_ROWS_OF_A_PAGE = 40
_STACKS = {"block:conv": "convolutional blocks", "block:mha": "MHA blocks"}
_OVERVIEW = ("throughput", "speedup", "ase", "bsr", "tcr_per_second")


def write_export(
    reports: Sequence[CellReport],
    path: Path,
    protocol: str = "gate",
    origin: Origin | None = None,
    verdicts: Sequence[VerdictRow] = (),
) -> int:
    """Write the results of a run by a protocol as the end of the path's name says. Return the number of rows.

    ``origin`` stands in the columns ``run`` and ``digest``, in LaTeX in a comment. ``verdicts`` are in what has a place
    for them, OpenMetrics. A row is a cell and metric. In LaTeX, which is for paper, it is a cell with its main metrics;
    Markdown, which is for people, begins with these, and is cut at the size of a comment.
    Raises SpecError for another suffix or where what writes it is not installed, StoreError where nothing can be
    written.
    """
    format = export_format(path)
    if not format:
        raise SpecError(f"export {path}: unknown format {path.suffix!r} (known: {', '.join(EXPORT_FORMATS)})")
    if format == ".tex":
        table = overview(reports, protocol)
        write_text(latex(table, "tab:ngraph", long=True) + _comment(path, origin), path)
        return len(table.rows)
    if format in OTHER_TOOLS:
        text, count = OTHER_TOOLS[format](reports, SPREADS.get(protocol, f"by protocol {protocol}"), origin, verdicts)
        write_text(text, path)
        return count
    rows = list(tidy_rows(reports, origin))
    if format == ".md":
        write_text(page(overview(reports, protocol), rows, _comment(path, origin)), path)
    else:
        write_rows(rows, path, types=TIDY_TYPES)
    return len(rows)


def _comment(path: Path, origin: Origin | None) -> str:
    """Return a line that says what a table was made from, and shows in no document."""
    if origin is None:
        return ""
    return f"% {origin}\n" if path.suffix == ".tex" else f"\n<!-- {origin} -->\n"


def write_table(
    name: str,
    reports: Sequence[CellReport],
    path: Path,
    protocol: str = "gate",
    origin: Origin | None = None,
    run: RunRow | None = None,
    more: Mapping[str, Specified] = MappingProxyType({}),
) -> int:
    """Write one of ``TABLES`` of a run as LaTeX or Markdown, as the path's suffix says. Return the number of rows.

    Of ``SPECIFIED`` and ``more`` as well, where the ``run`` is given, which knows its machines.

    Raises SpecError for another name or suffix, and for a run that has nothing to put into the table.
    """
    others = {**SPECIFIED, **more}
    if name not in TABLES and (run is None or name not in others):
        known = [one for one in (*_IN_ORDER, *more) if run is not None or one in TABLES]
        raise SpecError(f"table {name!r} of the paper: not among those with a layout (known: {', '.join(known)})")
    if path.suffix not in (".tex", ".md"):
        raise SpecError(f"export {path}: a table of the paper is written as .tex or .md, not {path.suffix!r}")
    specified = others[name] if name in others and run is not None else None
    table = TABLES[name](reports, protocol) if specified is None or run is None else specified.made(reports, run)
    if not table.rows:
        needs = _NEEDS[name] if specified is None else specified.needs
        if specified is None and reports and not any(report.estimates for report in reports):
            needs = "none of its cells has a time (ngraph report FILE.html says why of each)"
        title = name if name in more else name.upper()
        raise SpecError(f"export {path}: the run has nothing for Table {title}: {needs}")
    long = len(table.rows) > _ROWS_OF_A_PAGE
    text = latex(table, f"tab:ngraph-{name}", long=long) if path.suffix == ".tex" else markdown(table)
    write_text(text + _comment(path, origin), path)
    return len(table.rows)


def overview(reports: Sequence[CellReport], protocol: str = "gate") -> Table:
    """Return a row per cell: what it is, its main metrics with their intervals, and its outcome where it has no time.

    What is the same for all cells stands in the caption.
    """
    columns: dict[str, Callable[[CellReport], str]] = {
        "device": lambda report: report.cell.device,
        "baseline": lambda report: str(report.baseline.compiler) if report.baseline else "",
        "model": lambda report: subject(report.cell.workload),
        "batch": lambda report: str(report.cell.workload.batch),
        "depth": lambda report: str(report.cell.workload.depth or ""),
        "compiler": _compiler,
    }
    common = []
    for name in ("device", "baseline", "depth"):
        values = {columns[name](report) for report in reports}
        if name == "baseline":
            # That of the baseline itself.
            values.discard("")
        if len(values) < 2:
            del columns[name]
            common += [f"{name} {value}" for value in values if value]
    metrics = [name for name in _OVERVIEW if any(name in report.estimates for report in reports)] or ["throughput"]
    rows = [
        # A cell without a time says why instead of it.
        (*(write(report) for write in columns.values()), _outcome(report) or _cell(report, metrics[0]),
         *(_cell(report, name) for name in metrics[1:]))
        for report in sorted(reports, key=_order)
    ]  # fmt: skip
    headings = (*(name.capitalize() for name in columns), *(_heading(name) for name in metrics))
    where = f" ({', '.join(common)})" if common else ""
    caption = f"Results of pytest-ngraph{where}, {_spread(protocol)}"
    return Table(caption, headings, tuple(rows), left=len(columns))


def compile_times(reports: Sequence[CellReport], protocol: str) -> Table:
    """Return Table III: seconds of compiling by model and batch, a column for each device and compiler.

    What a search has cost is part of it, as in the paper. A cell that was rebuilt for every launch goes before one that
    was built once.
    """
    found: dict[tuple[str, int], dict[tuple[str, str], str]] = {}
    for report in sorted(reports, key=lambda report: (report.cell.rebuild, _order(report))):
        seconds = _compile_seconds(report.estimates)
        if seconds is not None and not report.cell.side:
            workload = report.cell.workload
            place = (" ".join([workload.model.text, *workload.axis_labels("batch")]), workload.batch)
            written = rounded(seconds)
            found.setdefault(place, {})[report.cell.device, str(report.cell.compiler)] = written
    named = {target for times in found.values() for target in times}
    targets = sorted(named, key=lambda target: (natural(target[0]), natural(target[1])))
    rows = (
        (model, str(batch), *(times.get(target, "") for target in targets))
        for (model, batch), times in sorted(found.items(), key=lambda one: (natural(one[0][0]), one[0][1]))
    )
    return Table(
        f"Compile times in seconds, the search for code included, {_spread(protocol)}",
        ("Model", "Batch Size", *(compiler for _, compiler in targets)),
        tuple(rows),
        _spans(("", 2), (device for device, _ in targets)),
        grouped=True,
    )


def family_means(reports: Sequence[CellReport], protocol: str) -> Table:
    """Return Table VI: throughput and CPU use by family, compiler and range of batches, with standard deviations.

    A star marks a mean that lacks cells which other compilers of the device have.
    """
    found: dict[tuple[str, str], dict[tuple[int, int], FamilyRow]] = {}
    means_of = family_table(reports, protocol=protocol)
    devices = {row.device for row in means_of}
    for row in means_of:
        compiler = f"{row.compiler} ({row.device})" if len(devices) > 1 else row.compiler
        found.setdefault((row.family, compiler), {})[row.batches] = row
    rows = []
    for place, means in found.items():
        cells: list[str] = []
        for batches in BATCH_RANGES:
            mean = means.get(batches)
            cells += (
                ("", "")
                if mean is None
                else (_mean(mean.throughput) + "*" * bool(mean.missing), _mean(mean.cpu_percent))
            )
        rows.append((*place, *cells))
    note = " (*: lacks cells that other compilers have)" if any("*" in cell for row in rows for cell in row) else ""
    where = f" (device {', '.join(devices)})" if len(devices) == 1 else ""
    return Table(
        f"Throughput and CPU use by architectural family{where}, means and standard deviations{note}",
        ("Family", "Compiler", *("Samples/s", "CPU [%]") * len(BATCH_RANGES)),
        tuple(rows),
        (("", 2), *((f"Batch Size {first}-{last}", 2) for first, last in BATCH_RANGES)),
        left=2,
        grouped=True,
    )


def depth_scaling(reports: Sequence[CellReport], protocol: str, block: str) -> Table:
    """Return Table VII or VIII: slope and retention of a block by device, compiler, width and batch.

    Models of one's own that were measured over depths stand in both, since nobody knows what they are made of. Then a
    column names the model.
    """
    found: dict[tuple[str, str, str, int], dict[int, CellReport]] = {}
    for report in sorted(reports, key=_order):
        workload = report.cell.workload
        if "retention" in report.estimates and (workload.model.text == block or workload.model.text not in _STACKS):
            compiler = " ".join([_compiler(report), *workload.axis_labels("batch", "depth", "width")])
            place = (report.cell.device, workload.model.text, compiler, workload.width or 0)
            found.setdefault(place, {})[workload.batch] = report
    batches = sorted({batch for stacks in found.values() for batch in stacks})
    models = dict.fromkeys(model for _, model, _, _ in found)
    are_named = any(model != block for model in models)
    rows = []
    for (device, model, compiler, width), stacks in sorted(found.items(), key=_stack_order):
        numbers = [
            rounded(stacks[batch].estimates[metric]) if batch in stacks else ""
            for batch in batches
            for metric in ("slope", "retention")
        ]
        rows.append((device, *([model] if are_named else []), compiler, str(width or ""), *numbers))
    what = _STACKS[block]
    own = units.count(len(models) - (block in models), "model of one's own", "models of one's own")
    parts = [*([what] if block in models or not models else []), *([own] if are_named else [])]
    return Table(
        f"Depth scaling of {' and '.join(parts)}: slope of the speed-up per block and its retention, "
        f"{_spread(protocol)}",
        ("Device", *(["Model"] if are_named else []), "Compiler", "Width", *("Slope", "Retention") * len(batches)),
        tuple(rows),
        (("", 3 + are_named), *((f"Batch Size {batch}", 2) for batch in batches)),
        left=2 + are_named,
    )


def _stack_order(stacks: tuple[tuple[str, str, str, int], object]) -> tuple[Natural, Natural, Natural, int]:
    device, model, compiler, width = stacks[0]
    return natural(device), natural(model), natural(compiler), width


TABLES: Mapping[str, Callable[[Sequence[CellReport], str], Table]] = {
    "iii": compile_times,
    "vi": family_means,
    "vii": partial(depth_scaling, block="block:conv"),
    "viii": partial(depth_scaling, block="block:mha"),
}
_IN_ORDER = ("i", "ii", "iii", "iv", "v", "vi", "vii", "viii")
_NEEDS = {
    "iii": "no cell was compiled in it; what was loaded has no compile time (rebuild=True in the marker)",
    "vi": "no cell at batch 2, 4, 8 or 16",
    "vii": "no stacks of block:conv or of a model of one's own from depth 1 on (depths= in the marker)",
    "viii": "no stacks of block:mha or of a model of one's own from depth 1 on (depths= in the marker)",
}


def subject(workload: Workload) -> str:
    """Name a model with the axes that are neither batch nor depth."""
    return " ".join([workload.model.text, *workload.axis_labels("batch", "depth")])


def _spans(first: tuple[str, int], names: Iterator[str]) -> tuple[tuple[str, int], ...]:
    """Return upper headings: the first, then each name over as many columns as it comes in a row."""
    spans = [first]
    for name in names:
        spans[-1:] = [(name, spans[-1][1] + 1)] if spans[-1][0] == name else [spans[-1], (name, 1)]
    return tuple(spans)


def _compile_seconds(estimates: Mapping[str, Estimate]) -> Estimate | None:
    """Return compiling and the search together. The search has one value, which shifts the interval."""
    seconds, search = estimates.get("compile_seconds"), estimates.get("tuning_seconds")
    if seconds is None or search is None:
        return seconds
    return replace(
        seconds, value=seconds.value + search.value, low=seconds.low + search.value, high=seconds.high + search.value
    )


def _mean(mean: Mean | None) -> str:
    if mean is None:
        return ""
    return f"{mean.value:.2f}" + (f" ± {mean.deviation:.2f}" if mean.deviation is not None else "")


def _spread(protocol: str) -> str:
    return SPREADS.get(protocol, f"by protocol {protocol}")


def _compiler(report: CellReport) -> str:
    cell = report.cell
    notes = [f"of {cell.side}"] if cell.side else []
    notes += [*(["A/A"] if cell.replica else []), *(["rebuilt"] if cell.rebuild else [])]
    return str(report.cell.compiler) + (f" ({', '.join(notes)})" if notes else "")


def _heading(metric: str) -> str:
    known = {"throughput": "Samples/s", "ase": "ASE", "bsr": "BSR", "tcr_per_second": "TCR [MB/s]"}
    return known.get(metric, METRICS[metric].title)


def _cell(report: CellReport, metric: str) -> str:
    estimate = report.estimates.get(metric)
    if metric == "tcr_per_second" and estimate is not None:
        value, low, high = (end / 1e6 for end in (estimate.value, estimate.low, estimate.high))
        estimate = replace(estimate, value=value, low=low, high=high)
    return rounded(estimate)


def _outcome(report: CellReport) -> str:
    return report.outcome if report.outcome != Outcome.OK.value else ""


def _order(report: CellReport) -> tuple[Natural, Natural, int, int, bool, Natural]:
    workload = report.cell.workload
    place = (natural(subject(workload)), workload.depth or 0, workload.batch)
    compiler = natural(str(report.cell.compiler))
    return (natural(report.cell.device), *place, report.baseline is not None, compiler)

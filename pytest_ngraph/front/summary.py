"""The summary at the end of a run: a table per device, the verdicts, what was spent, and the exports."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph import units
from pytest_ngraph.axes import AXES, singular
from pytest_ngraph.claims.changes import UNCHANGED
from pytest_ngraph.errors import NgraphError, StoreError
from pytest_ngraph.front.colours import colour_of, write_coloured
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.settings import Settings, nearby
from pytest_ngraph.quantities.compared import figures
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.results.verdicts import family_line, notes_of, verdicts_by_cell
from pytest_ngraph.spec.cells import Cell, Outcome
from pytest_ngraph.spec.sides import NOT_THERE, other_sides
from pytest_ngraph.spec.states import is_same_state
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.texts.fitting import fit

if TYPE_CHECKING:
    import pytest

    from pytest_ngraph.report.results.cells import CellReport
    from pytest_ngraph.session.ledger import Tally
    from pytest_ngraph.store.rows import Origin, RunRow, VerdictRow

_INDENT = "    "
_ALIKE = "without a difference that was shown"


def write_summary(
    reporter: pytest.TerminalReporter,
    settings: Settings,
    uid: str,
    tally: Tally | None,
    judged: Sequence[VerdictRow],
    now: tuple[Mapping[Cell, str], Mapping[Cell, Cell]] | None = None,
    left_out: Mapping[str, int] | None = None,
) -> None:
    """Write tables, verdicts and the path of the store. What was skipped only where the run put nothing into it.

    ``judged`` are the verdicts of this run's processes and ``now`` their cells with their evidence, and their
    baselines: an offline run has no others, as it writes none, and without them its table shows the cells of the
    latest run. ``left_out`` counts the tests that were skipped by what could not run and why.
    """
    from pytest_ngraph.report.noise.of_a_run import run_noise_lines
    from pytest_ngraph.report.results.cells import cell_reports, cpus_of, reports_of
    from pytest_ngraph.report.results.reversals import find_reversals, reversal_lines
    from pytest_ngraph.store.rows import Origin
    from pytest_ngraph.store.sqlite import Store

    width = width_of(reporter)
    skipped = skipped_lines(left_out or {}, width)
    if not settings.store.exists():
        _write_skipped(reporter, skipped)
        return
    try:
        with Store.open(settings.store, read_only=True) as store:
            run = run_of(store.runs(), uid, settings)
            if run is None:
                _write_skipped(reporter, skipped)
                return
            protocol = run.protocol
            if settings.offline and now is not None:
                reports, protocol = reports_of(store, *now, settings.protocol, cpus_of(run)), settings.protocol.name
            else:
                reports = cell_reports(store, run.id)
            verdicts = list(judged) if settings.offline else store.verdicts(run.id)
            incomplete = store.incomplete_launches(run.id)
            noise = [*([] if settings.offline else run_noise_lines(store, run)), *store.damage_lines]
            origin = Origin(run.id, store.read_digest())
    except StoreError as error:
        reporter.write_line(f"ngraph: no summary: {error}", yellow=True)
        return
    reporter.section("ngraph", sep="=", **colour_of(verdicts))
    for device in dict.fromkeys(report.cell.device for report in reports):
        mine = [report for report in reports if report.cell.device == device]
        said = [
            *placement_lines(mine, width),
            *state_lines(mine),
            *output_lines(mine, width),
            *change_lines(mine, verdicts, width),
            *implausible_lines(mine, width),
        ]
        for line in [*cell_table(mine, verdicts, width), *said]:
            write_coloured(reporter, line)
        reporter.write_line("")
    for line in reversal_lines(find_reversals(reports, protocol), width):
        reporter.write_line(line)
    for line in [*skipped, *verdict_lines(verdicts, width), *textwrap.wrap(family_line(verdicts), width)]:
        write_coloured(reporter, line)
    for line in _closing(run, settings, tally, incomplete, noise):
        reporter.write_line(line)
    _exports(reporter, settings, reports, run, verdicts, noise, origin)


def _write_skipped(reporter: pytest.TerminalReporter, lines: Sequence[str]) -> None:
    """Write what was skipped under a title of its own, where there is nothing else to say."""
    if lines:
        reporter.section("ngraph", sep="=")
    for line in lines:
        write_coloured(reporter, line)


def skipped_lines(left_out: Mapping[str, int], width: int) -> list[str]:
    """Return what could not run, once for each compiler and reason, with how many tests were skipped for it."""
    lines = [f"skipped {units.count(tests, 'test')}: {why}" for why, tests in left_out.items()]
    fill = partial(textwrap.wrap, subsequent_indent=_INDENT, break_on_hyphens=False, break_long_words=False)
    return [part for line in lines for part in fill(line, width)]


def width_of(reporter: pytest.TerminalReporter | None) -> int:
    """Return how wide lines may be: as the terminal is, and 80 columns in a file or a log."""
    import shutil

    return max(80, shutil.get_terminal_size().columns) if reporter is not None and reporter.isatty else 80


def run_of(runs: Sequence[RunRow], uid: str, settings: Settings) -> RunRow | None:
    """Return this run. An offline run has none and shows the cells of the latest."""
    mine = [run for run in runs if run.uid == uid]
    if mine:
        return mine[-1]
    # The controller of pytest-xdist cannot know which run its workers resumed: it is the one that ended last.
    ended = sorted((run for run in runs if run.finished_at), key=lambda run: run.finished_at or "")
    if settings.offline or settings.resume:
        return ended[-1] if ended else None
    return None


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


def placement_lines(reports: Sequence[CellReport], width: int) -> list[str]:
    """Return what really ran, a line for each compiler and placement: provider, precision as read back, threads."""
    seen: dict[tuple[str, str], None] = {}
    for report in reports:
        if report.record is not None and report.record.placement:
            facts = dict(report.record.placement)
            threads = facts.get("threads", "?")
            ran = f"{facts.get('provider', '?')}, {facts.get('precision', '?')}"
            ran += f", {threads} thread{'' if threads == '1' else 's'}"
            ran += f", {facts['in_flight']} in flight" if "in_flight" in facts else ""
            ran += f", version {facts['version']}" if "version" in facts else ""
            of = f" of {report.cell.side}" if report.cell.side else ""
            seen.setdefault((f"{report.cell.compiler}{of}", ran))
    lines = (f"  ran {compiler}: {ran}" for compiler, ran in seen)
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def output_lines(reports: Sequence[CellReport], width: int) -> list[str]:
    """Return how well outputs agree where that is not a matter of course, a line for each cell.

    That is in int8, where they are held to a direction only, and where the outputs of other inputs would have passed.
    """
    lines = []
    for report in reports:
        record = report.record
        if record is None or record.outcome is Outcome.MISMATCH or not (said := figures(record)):
            continue
        cell = report.cell
        if cell.workload.precision == "int8" or record.outputs_told_apart is False:
            lines.append(f"  outputs of {cell.compiler} on {cell.workload.label}: {said}")
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def change_lines(reports: Sequence[CellReport], verdicts: Sequence[VerdictRow], width: int) -> list[str]:
    """Return what became faster and slower than on the other side, what is new and what is the same on both.

    A line for each side and direction. Where an interval holds 1 nothing is said to have changed, and that it has not
    is not said either.
    """
    found: dict[tuple[str, str], list[str]] = {}
    others = other_sides([report.cell for report in reports])
    failed = {report.cell: report.failure for report in reports if report.failure is not None}
    for report in reports:
        other, estimate = others.get(report.cell), report.estimates.get("change")
        if other is None:
            continue
        named, failure = f"{report.cell.compiler} {report.cell.workload.label}", failed.get(other)
        if estimate is not None:
            how = "faster" if estimate.low > 1 else "slower" if estimate.high < 1 else _ALIKE
            found.setdefault((other.side, how), []).append(f"{named} {estimate}")
        elif failure is not None:
            how = "new" if failure.reason.startswith(NOT_THERE) else "without a time there"
            found.setdefault((other.side, how), []).append(named)
    for row in verdicts:
        # Once, whatever number of claims is about it.
        if row.extra.get("unmeasured") and row.extra.get("reason") == UNCHANGED:
            cells = found.setdefault((str(row.extra["side"]), "unchanged"), [])
            cells += [str(row.extra["subject"])] if row.extra["subject"] not in cells else []
    lines = []
    for (side, how), cells in found.items():
        which = "" if how in (_ALIKE, "unchanged") else f": {'; '.join(cells)}"
        lines.append(f"  against {side}: {units.count(len(cells), 'cell')} {how}{which}")
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def implausible_lines(reports: Sequence[CellReport], width: int) -> list[str]:
    """Return a warning for each cell whose calls were faster than the machine can be."""
    lines = (
        f"  warning: {report.cell.compiler} on {report.cell.workload.label}: {report.record.implausible}"
        for report in reports
        if report.record is not None and report.record.implausible
    )
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def state_lines(reports: Sequence[CellReport]) -> list[str]:
    """Return in which states of the machine the cells were measured, a line for each. Nothing where it reports none."""
    counts: Counter[str] = Counter()
    for report in reports:
        if report.state:
            # Readings of one state differ a little; it goes by its first name.
            counts[next((known for known in counts if is_same_state(known, report.state)), report.state)] += 1
    return [f"  state {state}: {units.count(count, 'cell')}" for state, count in counts.items()]


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


def verdict_lines(verdicts: Sequence[VerdictRow], width: int = 80) -> list[str]:
    """Return what each claim that did not simply pass says, and the count of all. Nothing is cut, long lines wrap."""
    lines = []
    for row in verdicts:
        noted = notes_of(row)
        if row.verdict != Verdict.PASS or noted:
            said = "; ".join(filter(None, (row.extra.get("reason"), *noted)))
            reason = f" ({said})" if said else ""
            test = f"{row.verdict.upper()} {row.nodeid}"
            lines += _wrapped(test, f"{row.claim}:", _interval(row) + reason, width)
    counts = Counter(row.verdict for row in verdicts)
    if counts:
        words = ", ".join(f"{counts[name]} {name}" for name in Verdict if counts[name])
        lines.append(f"verdicts: {words}")
    return lines


def _wrapped(test: str, claim: str, numbers: str, width: int) -> list[str]:
    """Put a test, its claim and its numbers on one line where they fit, else on lines of their own, with an indent.

    A test's id stays in one piece, for a double click to take it, however long it is.
    """
    if len(f"{test}: {claim} {numbers}") <= width:
        return [f"{test}: {claim} {numbers}"]
    fill = partial(textwrap.wrap, width=width, initial_indent=_INDENT, subsequent_indent=_INDENT,
                   break_on_hyphens=False, break_long_words=False)  # fmt: skip
    if len(f"{test}: {claim}") <= width:
        return [f"{test}: {claim}", *fill(numbers)]
    return [test, *fill(claim), *fill(numbers)]


def _interval(row: VerdictRow) -> str:
    if row.estimate is None:
        return "not measured"
    write = METRICS[row.metric].format
    state = f", state {row.extra['state']}" if row.extra.get("state") else ""
    return f"{write(row.estimate)}{units.spread(row.low, row.high, row.launches, write)}{state}"


def _closing(run: RunRow, settings: Settings, tally: Tally | None, incomplete: int, noise: Sequence[str]) -> list[str]:
    lines = []
    if tally is not None:
        spent = (
            f"measured {units.count(tally.measured_launches, 'launch', 'launches')} ({tally.calls} calls) in "
            f"{units.seconds(tally.measured_seconds)}, reused {tally.reused_launches} from the store"
        )
        lines.append(spent)
        if tally.fixed_calls and run.protocol == "gate":
            lines.append(
                f"  100 repetitions of each cell: {tally.fixed_calls} calls, {units.seconds(tally.fixed_seconds)}, and "
                "no error rate"
            )
        if tally.invalid_launches:
            lines.append(f"measured and not counted: {units.count(tally.invalid_launches, 'launch', 'launches')}")
    if incomplete:
        lines.append(f"cut short and not counted: {units.count(incomplete, 'launch', 'launches')}")
    lines += noise
    if settings.fresh:
        lines.append("evidence was started again (--ngraph-fresh): launches of earlier runs do not count")
    if run.protocol != "gate":
        lines.append(f"protocol {run.protocol}: no error control, so no verdicts; use --ngraph-protocol=gate for them")
    lines.append(f"results: {nearby(settings.store)}")
    return lines


def _exports(
    reporter: pytest.TerminalReporter,
    settings: Settings,
    reports: Sequence[CellReport],
    run: RunRow,
    verdicts: Sequence[VerdictRow],
    noise: Sequence[str],
    origin: Origin,
) -> None:
    from pytest_ngraph.report.export.benchmark import write_benchmark_json
    from pytest_ngraph.report.export.tables import write_export
    from pytest_ngraph.report.html.content import content_of
    from pytest_ngraph.report.html.page import write_page

    written: list[Path] = []
    try:
        if settings.report is not None:
            write_page(content_of(run, reports, verdicts, noise, origin), settings.report)
            written.append(settings.report)
        for export in settings.export:
            write_export(reports, export, run.protocol, origin, verdicts)
            written.append(export)
        if settings.benchmark_json is not None:
            write_benchmark_json(settings.benchmark_json, settings.store, run)
            written.append(settings.benchmark_json)
    except (NgraphError, OSError) as error:
        reporter.write_line(f"ngraph: not written: {error}", red=True)
    for path in written:
        reporter.write_line(f"written: {path}")

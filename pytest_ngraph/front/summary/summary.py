"""The summary at the end of a run: a table per device, the verdicts, what was spent, and the exports."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.errors import NgraphError, StoreError
from pytest_ngraph.front.summary.colours import colour_of, write_coloured
from pytest_ngraph.front.summary.notes import (
    achieved_lines,
    change_lines,
    implausible_lines,
    output_lines,
    padding_lines,
    placement_lines,
    state_lines,
)
from pytest_ngraph.front.summary.table import cell_table
from pytest_ngraph.front.summary.verdicts import not_stored_lines, skipped_lines, terse_lines, verdict_lines
from pytest_ngraph.options.settings import Settings, nearby
from pytest_ngraph.report.results.verdicts import family_line
from pytest_ngraph.store.rows import Origin

if TYPE_CHECKING:
    import pytest

    from pytest_ngraph.front.run import State
    from pytest_ngraph.report.results.cells import CellReport
    from pytest_ngraph.session.ledger import Tally
    from pytest_ngraph.store.rows import Origin, RunRow, VerdictRow

# So begins the line of a file that was written.
WRITTEN = "written: "


def write_end(reporter: pytest.TerminalReporter, state: State, *, has_ended: bool) -> None:
    """Write the summary, that nothing was decided where nothing cut the run short, and what was published."""
    write_summary(reporter, state)
    for line in state.undecided if has_ended else ():
        reporter.write_line(line, red=True, bold=True)
    for line in state.published:
        if not (is_terse(reporter) and line.startswith(WRITTEN)):
            reporter.write_line(line)


def is_terse(reporter: pytest.TerminalReporter) -> bool:
    """Return whether to say no more than what failed, what is undecided and what went wrong (``-q -q``)."""
    return reporter.verbosity < -1


def write_summary(reporter: pytest.TerminalReporter, state: State) -> None:
    """Write tables, verdicts and the path of the store. What could not run only where the run put nothing into it.

    An offline run shows what its processes have judged, as it writes nothing to the store; where they were asked for
    nothing its table shows the cells of the latest run.
    """
    from pytest_ngraph.report.noise.of_a_run import run_noise_lines
    from pytest_ngraph.report.results.cells import cell_reports, cpus_of, reports_of
    from pytest_ngraph.report.results.reversals import find_reversals, reversal_lines
    from pytest_ngraph.store.sqlite import Store

    settings, width = state.settings, width_of(reporter)
    judged, now = state.judged_by_all
    # Where an undecided gate fails its test, pytest shows why as it does of any failure.
    explains = settings.inconclusive != "fail"
    terse = is_terse(reporter)
    skipped = [
        *(() if terse else skipped_lines(state.gates.left_out, width)),
        *(not_stored_lines(state.not_stored_by_all, width) if explains else ()),
    ]
    if not settings.store.exists():
        _write_nothing(reporter, settings, skipped)
        return
    try:
        with Store.open(settings.store, read_only=True) as store:
            run = run_of(store.runs(), state.run_uid, settings)
            if run is None:
                _write_nothing(reporter, settings, skipped)
                return
            protocol = run.protocol
            if settings.offline and now is not None:
                reports, protocol = reports_of(store, *now, settings.protocol, cpus_of(run)), settings.protocol.name
            else:
                reports = cell_reports(store, run.id)
            verdicts = list(judged) if settings.offline else store.verdicts(run.id)
            incomplete = store.incomplete_launches(run.id)
            noise, damage = [] if settings.offline else run_noise_lines(store, run), store.damage_lines
            origin = Origin(run.id, store.read_digest())
    except StoreError as error:
        reporter.write_line(f"ngraph: no summary: {error}", yellow=True)
        return
    if terse:
        expected = {nodeid for nodeid, noted in state.noted_by_all.items() if noted.is_expected}
        unexpected = [row for row in verdicts if row.nodeid not in expected]
        for line in [*skipped, *terse_lines(unexpected, width)]:
            write_coloured(reporter, line)
        _exports(reporter, settings, reports, run, verdicts, [*noise, *damage], origin)
        return
    reporter.section("ngraph", sep="=", **colour_of(verdicts))
    for device in dict.fromkeys(report.cell.device for report in reports):
        mine = [report for report in reports if report.cell.device == device]
        said = [
            *placement_lines(mine, width),
            *state_lines(mine),
            *padding_lines(mine, width),
            *achieved_lines(mine, width),
            *output_lines(mine, width),
            *change_lines(mine, verdicts, width),
            *implausible_lines(mine, width),
        ]
        for line in [*cell_table(mine, verdicts, width), *said]:
            write_coloured(reporter, line)
        reporter.write_line("")
    for line in reversal_lines(find_reversals(reports, protocol), width):
        reporter.write_line(line)
    for line in [
        *skipped,
        *verdict_lines(verdicts, width, explains_open=explains),
        *textwrap.wrap(family_line(verdicts), width),
    ]:
        write_coloured(reporter, line)
    for line in _closing(run, settings, state.tally, incomplete, noise, damage, width):
        reporter.write_line(line)
    _exports(reporter, settings, reports, run, verdicts, [*noise, *damage], origin)


def _write_nothing(reporter: pytest.TerminalReporter, settings: Settings, skipped: Sequence[str]) -> None:
    """Write what was skipped under a title of its own, and which files there is nothing for."""
    if skipped and not is_terse(reporter):
        reporter.section("ngraph", sep="=")
    for line in skipped:
        write_coloured(reporter, line)
    for path in (settings.report, *settings.export, settings.benchmark_json):
        if path is not None:
            reporter.write_line(
                f"ngraph: not written: {nearby(path)}: no cell was measured or judged in this run", yellow=True
            )


def width_of(reporter: pytest.TerminalReporter | None) -> int:
    """Return how wide lines may be: as the terminal is, and 80 columns in a file or a log."""
    import shutil

    return max(80, shutil.get_terminal_size().columns) if reporter is not None and reporter.isatty else 80


def run_of(runs: Sequence[RunRow], uid: str, settings: Settings) -> RunRow | None:
    """Return this run. An offline run has none and shows the cells of the latest."""
    mine = [run for run in runs if run.uid == uid]
    if mine:
        return mine[-1]
    if settings.offline:
        # Also one that was killed, which has no end: what it measured counts as anything else does.
        return runs[-1] if runs else None
    # The controller of pytest-xdist cannot know which run its workers resumed: it is the one that ended last.
    ended = sorted((run for run in runs if run.finished_at), key=lambda run: run.finished_at or "")
    return ended[-1] if ended and settings.resume else None


def _closing(
    run: RunRow,
    settings: Settings,
    tally: Tally | None,
    incomplete: int,
    noise: Sequence[str],
    damage: Sequence[str],
    width: int,
) -> list[str]:
    lines = []
    if tally is not None:
        spent = (
            f"measured {units.count(tally.measured_launches, 'launch', 'launches')} ({tally.calls} calls) in "
            f"{units.seconds(tally.measured_seconds)}, reused {tally.reused_launches} from the store"
        )
        lines.append(spent)
        if tally.fixed_calls and run.protocol == "gate":
            lines.append(
                f"  100 calls of each cell instead: {tally.fixed_calls} calls, {units.seconds(tally.fixed_seconds)}, "
                "without an error rate"
            )
        if tally.invalid_launches and not any("not count" in line for line in noise):
            lines.append(f"measured and not counted: {units.count(tally.invalid_launches, 'launch', 'launches')}")
    if incomplete:
        lines.append(f"cut short and not counted: {units.count(incomplete, 'launch', 'launches')}")
    lines += [part for line in noise for part in textwrap.wrap(line, width, subsequent_indent="    ")]
    # It ends with a command, which is there to be copied.
    lines += damage
    if settings.fresh:
        lines.append("evidence was started again (--ngraph-fresh): launches of earlier runs do not count")
    if run.protocol != "gate":
        # Accuracy is judged by samples, whatever the protocol.
        said = (
            f"protocol {run.protocol}: no error control, so no verdicts on times; use --ngraph-protocol=gate for them"
        )
        lines += textwrap.wrap(said, width, subsequent_indent="    ", break_on_hyphens=False)
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
    if not (settings.report or settings.export or settings.benchmark_json):
        return
    from pytest_ngraph.report.export.benchmark import write_benchmark_json
    from pytest_ngraph.report.export.tables import write_export
    from pytest_ngraph.report.html.content import content_of
    from pytest_ngraph.report.html.page import write_page

    wanted: list[tuple[Path | None, Callable[[Path], object]]] = [
        (
            settings.report,
            lambda path: write_page(content_of(run, reports, verdicts, noise, origin, settings.store), path),
        ),
        *((path, lambda path: write_export(reports, path, run.protocol, origin, verdicts)) for path in settings.export),
        (settings.benchmark_json, lambda path: write_benchmark_json(path, settings.store, run)),
    ]
    for path, write in wanted:
        if path is None:
            continue
        try:
            write(path)
        except (NgraphError, OSError) as error:
            # One that cannot be written keeps no other one from being written.
            reporter.write_line(f"ngraph: not written: {error}", red=True)
        else:
            if not is_terse(reporter):
                reporter.write_line(f"{WRITTEN}{nearby(path)}")

"""The summary at the end of a run: a table per device, the verdicts, what was spent, and the exports."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.errors import StoreError
from pytest_ngraph.front.summary.colours import colour_of, write_coloured
from pytest_ngraph.front.summary.files import NOTHING, WRITTEN, not_written_lines, write_files
from pytest_ngraph.front.summary.notes import (
    achieved_lines,
    change_lines,
    implausible_lines,
    output_lines,
    padding_lines,
    placement_lines,
    state_lines,
)
from pytest_ngraph.front.summary.shown import Shown, shown_of
from pytest_ngraph.front.summary.table import cell_table
from pytest_ngraph.front.summary.verdicts import not_stored_lines, skipped_lines, terse_lines, verdict_lines
from pytest_ngraph.options.settings import Settings, nearby
from pytest_ngraph.report.results.verdicts import family_line

if TYPE_CHECKING:
    import pytest

    from pytest_ngraph.front.run import State
    from pytest_ngraph.session.ledger import Tally


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
    """Write tables, verdicts and the path of the store. What could not run only where the run put nothing into it."""
    from pytest_ngraph.report.results.reversals import find_reversals, reversal_lines

    settings, width = state.settings, width_of(reporter)
    # Where an undecided gate fails its test, pytest shows why as it does of any failure.
    explains = settings.inconclusive != "fail"
    terse = is_terse(reporter)
    skipped = [
        *(() if terse else skipped_lines(state.gates.left_out, width)),
        *(not_stored_lines(state.not_stored_by_all, width) if explains else ()),
    ]
    try:
        shown = shown_of(state)
    except StoreError as error:
        reporter.write_line(f"ngraph: no summary: {error}", yellow=True)
        _write_not_written(reporter, settings, "the store cannot be read")
        return
    if shown is None:
        if skipped and not terse:
            reporter.section("ngraph", sep="=")
        for line in skipped:
            write_coloured(reporter, line)
        _write_not_written(reporter, settings, NOTHING)
        return
    reports, verdicts = shown.reports, shown.verdicts
    if terse:
        expected = {nodeid for nodeid, noted in state.noted_by_all.items() if noted.is_expected}
        unexpected = [row for row in verdicts if row.nodeid not in expected]
        for line in [*skipped, *terse_lines(unexpected, width)]:
            write_coloured(reporter, line)
        _write_files(reporter, shown, settings)
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
    for line in reversal_lines(find_reversals(reports, shown.protocol), width):
        reporter.write_line(line)
    for line in [
        *skipped,
        *verdict_lines(verdicts, width, explains_open=explains),
        *textwrap.wrap(family_line(verdicts), width),
    ]:
        write_coloured(reporter, line)
    for line in _closing(shown, settings, state.tally, width):
        reporter.write_line(line)
    _write_files(reporter, shown, settings)


def _write_not_written(reporter: pytest.TerminalReporter, settings: Settings, why: str) -> None:
    """Write which files there is nothing for."""
    for line in not_written_lines(settings, why):
        reporter.write_line(line, yellow=True)


def _write_files(reporter: pytest.TerminalReporter, shown: Shown, settings: Settings) -> None:
    """Write the files that were asked for, and a line of each."""
    for line, is_written in write_files(shown, settings):
        if not is_written:
            reporter.write_line(line, red=True)
        elif not is_terse(reporter):
            reporter.write_line(line)


def width_of(reporter: pytest.TerminalReporter | None) -> int:
    """Return how wide lines may be: as the terminal is, and 80 columns in a file or a log."""
    import shutil

    return max(80, shutil.get_terminal_size().columns) if reporter is not None and reporter.isatty else 80


def _closing(shown: Shown, settings: Settings, tally: Tally | None, width: int) -> list[str]:
    lines = []
    if tally is not None:
        spent = (
            f"measured {units.count(tally.measured_launches, 'launch', 'launches')} ({tally.calls} calls) in "
            f"{units.seconds(tally.measured_seconds)}, reused {tally.reused_launches} from the store"
        )
        lines.append(spent)
        if tally.fixed_calls and shown.protocol == "gate":
            lines.append(
                f"  100 calls of each cell instead: {tally.fixed_calls} calls, {units.seconds(tally.fixed_seconds)}, "
                "without an error rate"
            )
        if tally.invalid_launches and not any("not count" in line for line in shown.noise):
            lines.append(f"measured and not counted: {units.count(tally.invalid_launches, 'launch', 'launches')}")
    if shown.incomplete:
        lines.append(f"cut short and not counted: {units.count(shown.incomplete, 'launch', 'launches')}")
    lines += [part for line in shown.noise for part in textwrap.wrap(line, width, subsequent_indent="    ")]
    # It ends with a command, which is there to be copied.
    lines += shown.damage
    if settings.fresh:
        lines.append("evidence was started again (--ngraph-fresh): launches of earlier runs do not count")
    if shown.protocol != "gate":
        # Accuracy is judged by samples, whatever the protocol.
        said = (
            f"protocol {shown.protocol}: no error control, so no verdicts on what launches measure; "
            "use --ngraph-protocol=gate for them"
        )
        lines += textwrap.wrap(said, width, subsequent_indent="    ", break_on_hyphens=False)
    lines.append(f"results: {nearby(settings.store)}")
    return lines

"""The files that a run is asked for: its report, its exports, and its times for pytest-benchmark."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.errors import NgraphError, StoreError
from pytest_ngraph.front.summary.shown import Shown, shown_of
from pytest_ngraph.options.settings import Settings, nearby

if TYPE_CHECKING:
    from pytest_ngraph.front.run import State

# So begins the line of a file that was written.
WRITTEN = "written: "
# Why there is nothing for a file.
NOTHING, NO_RUN = "no cell was measured or judged in this run", "no run in the store has what was judged"


def files_of(settings: Settings) -> list[Path]:
    """Return the files that a run is asked for."""
    return [path for path in (settings.report, *settings.export, settings.benchmark_json) if path is not None]


def not_written_lines(settings: Settings, why: str) -> list[str]:
    """Return a line for each file that a run was asked for and that is not written, with the reason."""
    return [f"ngraph: not written: {nearby(path)}: {why}" for path in files_of(settings)]


def write_files(shown: Shown, settings: Settings) -> Iterator[tuple[str, bool]]:
    """Write the files that a run is asked for. Yield a line of each, and whether the file was written."""
    if not files_of(settings):
        return
    run = shown.run
    if run is None:
        yield from ((line, False) for line in not_written_lines(settings, NO_RUN))
        return
    from pytest_ngraph.report.export.benchmark import write_benchmark_json
    from pytest_ngraph.report.export.tables import write_export
    from pytest_ngraph.report.html.content import content_of
    from pytest_ngraph.report.html.page import write_page

    said, judged, store = [*shown.noise, *shown.damage], shown.judged, settings.store
    wanted: list[tuple[Path | None, Callable[[Path], object]]] = [
        (
            settings.report,
            lambda path: write_page(
                content_of(run, shown.reports, shown.verdicts, said, shown.origin, store, judged), path
            ),
        ),
        *(
            (path, lambda path: write_export(shown.reports, path, shown.protocol, shown.origin, shown.verdicts))
            for path in settings.export
        ),
        (settings.benchmark_json, lambda path: write_benchmark_json(path, store, run, shown.verdicts, judged)),
    ]
    for path, write in wanted:
        if path is None:
            continue
        try:
            write(path)
        except (NgraphError, OSError) as error:
            # One that cannot be written keeps no other one from being written.
            yield f"ngraph: not written: {error}", False
        else:
            yield f"{WRITTEN}{nearby(path)}", True


def write_files_alone(state: State) -> None:
    """Write the files that a run without a terminal reporter is asked for, and name them on standard error."""
    settings = state.settings
    if not files_of(settings):
        return
    try:
        shown = shown_of(state)
        if shown is None:
            lines = not_written_lines(settings, NOTHING)
        else:
            lines = [line for line, _ in write_files(shown, settings)]
    except StoreError as error:
        lines = not_written_lines(settings, str(error))
    sys.stderr.write("".join(f"{line}\n" for line in lines))

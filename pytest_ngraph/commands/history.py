"""``ngraph history``: what runs have measured of cells, by commit and date, and where that changed."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_ngraph import units
from pytest_ngraph.commands.base import Commands, add_command, add_store, path, say
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.commands.stored import stored_run
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import nearby


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "history", _run, "Show what runs have measured by commit, and where it changed")
    parser.add_argument("test", nargs="?", default=None, metavar="TEST", help="Only cells that such tests claim of")
    parser.add_argument(
        "--metric",
        default="latency",
        metavar="NAME",
        help="latency, throughput, speedup, compile_seconds, peak_memory_bytes, or of sweeps ase, bsr, slope, "
        "retention, friction, sequence_scaling (default: latency)",
    )
    parser.add_argument("--csv", type=path, default=None, metavar="FILE", help="Write FILE.csv instead of a table")
    add_store(parser, "Store of results")


def _run(given: argparse.Namespace) -> None:
    from pytest_ngraph.report.baselines.history import histories, history_lines, history_rows
    from pytest_ngraph.report.export.files import write_rows

    file: Path | None = given.csv
    if file is not None and file.suffix != ".csv":
        raise SpecError(f"--csv: {str(file)!r} is not allowed (expected a file name that ends in .csv)")
    with stored_run(store_path(given.store), None) as (store, _):
        found = histories(store, given.metric, given.test)
    if file is not None:
        rows = list(history_rows(found))
        write_rows(rows, file)
        say(f"written: {nearby(file)}, {units.count(len(rows), 'row')}")
        return
    for number, history in enumerate(found):
        if number:
            say("")
        for line in history_lines(history):
            say(line)
    if not found:
        say(f"no run of the protocol gate has measured {given.metric} yet")

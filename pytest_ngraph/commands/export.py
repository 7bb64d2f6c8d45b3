"""``ngraph export``: a run of the store as a tidy table, or in the layout of one of the paper's tables."""

from __future__ import annotations

import argparse
from pathlib import Path

from pytest_ngraph.commands.base import Commands, add_command, add_store, path
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.commands.stored import stored_run


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "export", _run, "Write a run's results as a tidy table")
    parser.add_argument("file", type=path, metavar="FILE", help="FILE.csv, .json, .parquet, .md or .tex")
    parser.add_argument(
        "--table",
        default=None,
        metavar="NAME",
        help="In the layout of the paper's Table III (compile times), VI (families), VII or VIII (depth of conv or "
        "attention blocks), to FILE.tex or FILE.md: iii, vi, vii or viii",
    )
    add_store(parser, "Store of results")
    parser.add_argument(
        "--run", type=int, default=None, metavar="NUMBER", dest="number", help="Run (default: the latest)"
    )


def _run(given: argparse.Namespace) -> None:
    print(export_run(given.file, store_path(given.store), given.number, given.table))


def export_run(file: Path, store_path: Path, number: int | None, table: str | None = None) -> str:
    """Write one run's tidy table, or one of the paper's; return what was written.

    Raises SpecError for a run that is not there, and for a table or a format that there is not.
    """
    from pytest_ngraph.report.tables import write_export, write_table
    from pytest_ngraph.report.tidy import cell_reports

    with stored_run(store_path, number) as (store, run):
        reports = cell_reports(store, run.id)
    if table is None:
        rows = write_export(reports, file, run.protocol)
    else:
        rows = write_table(table.lower(), reports, file, run.protocol)
    return f"{file}: {rows} rows of run {run.id} ({run.started_at}, {run.protocol})"

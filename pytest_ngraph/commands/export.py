"""``ngraph export``: a run of the store as a tidy table, or in the layout of one of the paper's tables."""

from __future__ import annotations

import argparse
import re
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from pytest_ngraph.commands.base import Commands, add_command, add_store, path
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.commands.stored import add_sizes, stored_run
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options.settings import EXPORT_FORMATS, export_format

if TYPE_CHECKING:
    from pytest_ngraph.report.results.transfer import Sizes
    from pytest_ngraph.store.rows import Origin

# A comment or footer; the last two columns of a row of CSV and Markdown; JSON.
_NAMED = tuple(
    re.compile(pattern)
    for pattern in (
        r"from run (\d+), launches ([0-9a-f]{32})",
        r",(\d+),([0-9a-f]{32})\r?\n",
        r"\| (\d+) \| ([0-9a-f]{32}) \|",
        r'"run": (\d+),\s+"digest": "([0-9a-f]{32})"',
    )
)


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "export", _run, "Write a run's results as a tidy table")
    parser.add_argument("file", type=path, metavar="FILE", help="FILE" + ", ".join(EXPORT_FORMATS))
    parser.add_argument(
        "--table",
        default=None,
        metavar="NAME",
        help="In the layout of the paper's Table I (machines), II (versions), III (compile times), IV (networks), V "
        "(blocks), VI (families), VII or VIII (depth of conv or attention blocks), to FILE.tex or FILE.md: i to viii; "
        "of the second paper dlas-2 to dlas-6, dlas-times, dlas-speedups and dlas-accuracy, of the third lvt-1",
    )
    add_store(parser, "Store of results")
    parser.add_argument(
        "--run", type=int, default=None, metavar="NUMBER", dest="number", help="Run (default: the latest)"
    )

    add_sizes(parser)
    parser.add_argument(
        "--verify",
        action="store_true",
        help="Write nothing: say whether FILE, of any of these formats or a report, is what the store gives now",
    )


def _run(given: argparse.Namespace) -> int | None:
    from pytest_ngraph.report.results.transfer import sizes_of

    sizes = sizes_of(given.sizes)
    if given.verify:
        said, fits = verify(given.file, store_path(given.store), given.number, given.table, sizes)
        print(said)
        return 0 if fits else 1
    print(export_run(given.file, store_path(given.store), given.number, given.table, sizes))
    return None


def verify(
    file: Path, store: Path, number: int | None, table: str | None = None, sizes: Sizes | None = None
) -> tuple[str, bool]:
    """Return what to say of whether a file is what the store gives now for the run that it names, and whether it is.

    A report and a pytest-benchmark file are known by the launches that they name. Of any other file all of its content
    is compared. Raises SpecError for a file that names no run.
    """
    from pytest_ngraph.report.export.benchmark import timed
    from pytest_ngraph.report.results.cells import cell_reports

    named = _origin_of(file)
    is_benchmark = file.suffix == ".json" and '"machine_info"' in file.read_text(encoding="utf-8", errors="replace")
    with stored_run(store, named.run if number is None else number) as (opened, run):
        if is_benchmark:
            timed(opened, run)
        else:
            cell_reports(opened, run.id)
        now = opened.read_digest()
    if named.digest != now:
        return f"{file}: made from other launches than run {run.id} has now ({named.digest}, now {now})", False
    if file.suffix in (".html", ".htm") or is_benchmark:
        return f"{file}: made from the launches that run {run.id} has", True
    with TemporaryDirectory() as folder:
        again = Path(folder) / file.name
        export_run(again, store, run.id, table, sizes)
        if again.read_bytes() != file.read_bytes():
            how = "" if table else ", or is another table (--table)"
            return f"{file}: names the launches of run {run.id} and differs from what they give{how}", False
    return f"{file}: is what run {run.id} gives", True


def _origin_of(file: Path) -> Origin:
    """Return which run and launches a file says that it was made from."""
    from pytest_ngraph.store.rows import Origin

    if (format := export_format(file)) in (".bencher.json", ".openmetrics.txt"):
        raise SpecError(f"{file}: {format} has no place for what it was made from; compare it with a new export")
    try:
        content = file.read_bytes()
    except OSError as error:
        raise SpecError(f"{file}: {error.strerror or error}") from None
    if file.suffix == ".parquet":
        try:
            import pyarrow
            import pyarrow.parquet
        except ImportError:
            needs = 'needs pyarrow, which is not installed: pip install "pytest-ngraph[parquet]"'
            raise SpecError(f"{file}: {needs}") from None
        try:
            rows = pyarrow.parquet.read_table(file, columns=["run", "digest"]).slice(0, 1).to_pylist()
        except pyarrow.ArrowException as error:
            raise SpecError(f"{file}: {str(error).splitlines()[0]}") from None
        if rows and rows[0]["run"] is not None:
            return Origin(int(rows[0]["run"]), str(rows[0]["digest"]))
    text = content.decode("utf-8", "replace")
    for pattern in _NAMED:
        found = pattern.search(text)
        if found is not None:
            return Origin(int(found[1]), found[2])
    raise SpecError(f"{file}: does not name its run (it is from an older pytest-ngraph, or another program)")


def export_run(
    file: Path, store_path: Path, number: int | None, table: str | None = None, sizes: Sizes | None = None
) -> str:
    """Write one run's tidy table, or one of the paper's. Return what was written.

    With ``sizes`` their models have a transfer cost reduction.

    Raises SpecError for a run that is not there, and for a table or a format that there is not.
    """
    from pytest_ngraph.report.dlas.tables import DLAS_TABLES
    from pytest_ngraph.report.export.tables import write_export, write_table
    from pytest_ngraph.report.lvt.tables import LVT_TABLES
    from pytest_ngraph.report.results.cells import cell_reports
    from pytest_ngraph.report.results.transfer import with_transfer
    from pytest_ngraph.store.rows import Origin

    with stored_run(store_path, number) as (store, run):
        reports = with_transfer(cell_reports(store, run.id), sizes or {})
        origin, verdicts = Origin(run.id, store.read_digest()), store.verdicts(run.id)
    if table is None:
        rows = write_export(reports, file, run.protocol, origin, verdicts)
    else:
        rows = write_table(table.lower(), reports, file, run.protocol, origin, run, {**DLAS_TABLES, **LVT_TABLES})
    return f"{file}: {rows} rows of run {run.id} ({run.started_at}, {run.protocol})"

"""``ngraph report``: a run of the store as one HTML file, and its charts as figures."""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.commands.base import Commands, add_command, add_store, path
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.commands.stored import stored_run
from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from pytest_ngraph.report.html.content import Content

PAGE = Path("ngraph-report.html")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "report", _run, "Write a run's report as one HTML file, or its charts as figures")
    parser.add_argument(
        "file", type=path, nargs="?", default=None, metavar="FILE.html", help=f"Page to write (default: {PAGE})"
    )
    parser.add_argument(
        "--against",
        default=None,
        metavar="NAME",
        help="Print the run beside what is published, and into FILE.md where that is given: paper (NGraphBench)",
    )
    add_store(parser, "Store of results")
    parser.add_argument(
        "--run", type=int, default=None, metavar="NUMBER", dest="number", help="Run (default: the latest)"
    )
    parser.add_argument(
        "--figures", type=path, default=None, metavar="DIR", help="Folder for the charts; then a page only where named"
    )
    parser.add_argument(
        "--format", default=None, metavar="NAMES", help="Formats of the figures: svg, png, pdf (default: svg)"
    )


def _run(given: argparse.Namespace) -> None:
    if given.against is not None:
        for flag, value in (("--figures", given.figures), ("--format", given.format)):
            if value is not None:
                raise SpecError(f"--against draws no charts: leave {flag} out, or call ngraph report again for them")
        lines = against_run(given.against, given.file, store_path(given.store), given.number)
    else:
        formats = (given.format or "svg").split(",")
        lines = report_run(given.file, store_path(given.store), given.number, given.figures, formats)
    for line in lines:
        print(line, flush=True)


def report_run(
    file: Path | None, store_path: Path, number: int | None, figures: Path | None, formats: list[str]
) -> Iterator[str]:
    """Write the page, the figures or both. Yield what was written.

    Without ``figures`` there is always a page, else only where ``file`` is given. Raises SpecError for a run or a
    format that is not there and where nothing that draws charts is installed.
    """
    from pytest_ngraph.report.html.figures import write_figures
    from pytest_ngraph.report.html.libraries import bundled_beside, drawing
    from pytest_ngraph.report.html.page import write_page
    from pytest_ngraph.report.results.cells import uncollected

    page = PAGE if file is None and figures is None else file
    if page is not None and page.suffix.lower() not in (".html", ".htm"):
        raise SpecError(f"{page}: not the name of a page (expected FILE.html)")
    # Said before a large store is read.
    drawing()
    with uncollected(), bundled_beside() if page is not None else nullcontext():
        content = _content(store_path, number)
        if page is not None:
            write_page(content, page)
    if page is not None:
        run = content.run
        yield f"{page}: {len(content.reports)} cells of run {run.id} ({run.started_at}, {run.protocol})"
    if figures is not None:
        for path in write_figures(content, figures, formats):
            yield str(path)


def _content(store_path: Path, number: int | None) -> Content:
    from pytest_ngraph.report.html.content import read_content

    with stored_run(store_path, number) as (store, run):
        return read_content(store, run)


def against_run(name: str, file: Path | None, store_path: Path, number: int | None) -> Iterator[str]:
    """Yield a run beside the figures that somebody published. With a file, FILE.md, also write it as a page.

    Raises SpecError for a run that is not there, and for a name or a file that it cannot be.
    """
    from pytest_ngraph.report.export.files import write_text
    from pytest_ngraph.report.paper.against import compare
    from pytest_ngraph.report.paper.page import comparison_lines, comparison_page

    if name != "paper":
        raise SpecError(f"--against: unknown publication {name!r} (known: paper)")
    if file is not None and file.suffix != ".md":
        raise SpecError(f"{file}: not the name of a Markdown page (with --against expected FILE.md)")
    with stored_run(store_path, number) as (store, run):
        comparison = compare(store, run)
    yield from comparison_lines(comparison)
    if file is not None:
        write_text(comparison_page(comparison), file)
        yield f"{file}: written"

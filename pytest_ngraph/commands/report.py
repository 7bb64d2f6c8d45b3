"""``ngraph report``: a run as one HTML file, its charts as files, and the paper's figures in their size in print."""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.commands.base import Commands, add_command, add_store, path
from pytest_ngraph.commands.report_runs import Named, several_runs, split_names
from pytest_ngraph.commands.rootdir import store_path
from pytest_ngraph.commands.stored import add_sizes, stored_run
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import split_commas

if TYPE_CHECKING:
    from pytest_ngraph.report.figures.files import Request
    from pytest_ngraph.report.html.content import Content
    from pytest_ngraph.report.results.transfer import Sizes

PAGE = Path("ngraph-report.html")


def add(commands: Commands) -> None:
    """Add the command."""
    parser = add_command(commands, "report", _run, "Write a run's report as one HTML file, or its charts as figures")
    parser.add_argument(
        "names",
        type=path,
        nargs="*",
        metavar="FILE.html|RUN",
        help=f"Page to write (default: {PAGE}), and runs: NUMBER, FILE.sqlite or FILE.sqlite#NUMBER; several stand "
        "side by side",
    )
    parser.add_argument(
        "--against",
        default=None,
        metavar="NAME",
        help="Print the run beside what is published, and into FILE.md where that is given: paper (NGraphBench), "
        "which with --figures is drawn instead, or lvt (the third paper)",
    )
    add_store(parser, "Store of results")
    parser.add_argument(
        "--run", type=int, default=None, metavar="NUMBER", dest="number", help="Run (default: the latest)"
    )
    parser.add_argument(
        "--figures", type=path, default=None, metavar="DIR", help="Folder for the charts; then a page only where named"
    )
    parser.add_argument(
        "--format",
        default=None,
        metavar="NAMES",
        help="Formats of the figures: svg, png, pdf (default: svg, of the paper's figures pdf)",
    )
    add_paper_figures(parser)
    add_sizes(parser)


def add_paper_figures(parser: argparse.ArgumentParser) -> None:
    """Add what makes figures for a paper: any of these options does."""
    parser.add_argument(
        "--figure",
        action="append",
        default=[],
        metavar="NUMBER",
        help="With --figures: a figure of the paper, 1, 5 to 12 or tcr, in its size in print (default: all of these), "
        "or of the second paper, dlas-3 to dlas-7, of the third, lvt-1 and lvt-2; with --against paper 5, 6, 7, 12 or "
        "iii",
    )
    parser.add_argument(
        "--width", default=None, metavar="LENGTH", help="Width in print: 88mm, 3.5in, column or page (default: column)"
    )
    parser.add_argument("--font", default=None, metavar="POINTS", help="Size of type in print (default: 8)")
    for option, what in (("model", "models"), ("device", "devices"), ("compiler", "compilers, beside their baseline")):
        parser.add_argument(
            f"--{option}", action="append", default=[], metavar="NAME", help=f"Only these {what}; may be repeated"
        )


def _run(given: argparse.Namespace) -> None:
    given.file, runs = split_names(given.names)
    if runs and (given.number is not None or (given.store is not None and any(run.store for run in runs))):
        flag = "--store" if given.number is None else "--run"
        raise SpecError(f"{flag} beside {runs[0].text}: the run is named already (expected one of the two)")
    if len(runs) == 1:
        given.store, given.number = runs[0].store or given.store, runs[0].number
    in_print = {
        f"--{name}": getattr(given, name) for name in ("figure", "width", "font", "model", "device", "compiler")
    }
    asked = [option for option, value in in_print.items() if value not in (None, [])]
    for line in _beside(given, runs, asked) if len(runs) > 1 else _of_one(given, asked):
        print(line, flush=True)


def _of_one(given: argparse.Namespace, asked: Sequence[str]) -> Iterator[str]:
    """Write what was asked of one run. Raise SpecError for options that do not go together."""
    from pytest_ngraph.report.results.transfer import sizes_of

    if given.against is not None:
        for flag, value in (("--model", given.model), ("--sizes", given.sizes)):
            if value:
                raise SpecError(f"{flag}: not with --against {given.against}, whose numbers say of what they are")
        if given.format is not None and given.figures is None:
            raise SpecError("--format is for figures: give --figures DIR as well")
    if asked and given.figures is None:
        raise SpecError(f"{asked[0]} is for figures: give --figures DIR as well")
    if given.against is not None:
        request = _request(given) if given.figures is not None else None
        return against_run(given.against, given.file, store_path(given.store), given.number, given.figures, request)
    if asked:
        return paper_figures(given)
    formats, sizes = (given.format or "svg").split(","), sizes_of(given.sizes)
    return report_run(given.file, store_path(given.store), given.number, given.figures, formats, sizes)


def _beside(given: argparse.Namespace, runs: Sequence[Named], asked: Sequence[str]) -> Iterator[str]:
    """Write several runs side by side. Raise SpecError for what is of one run."""
    others = {"--against": given.against, "--figures": given.figures, "--sizes": given.sizes}
    if strange := [*asked, *(option for option, value in others.items() if value)]:
        raise SpecError(f"{strange[0]} is for one run (given: {', '.join(run.text for run in runs)})")
    return several_runs(given.file or PAGE, runs, store_path(given.store))


def paper_figures(given: argparse.Namespace) -> Iterator[str]:
    """Write figures of the paper from a run, and a page where one is named. Yield what was written, and what lacks.

    Raises SpecError for what was given and is not allowed, StoreError for a folder that cannot be written.
    """
    from pytest_ngraph.report.dlas.figures import DLAS_FIGURES
    from pytest_ngraph.report.figures.deployed import DEPLOYED_FIGURES
    from pytest_ngraph.report.figures.files import write_paper_figures
    from pytest_ngraph.report.figures.paper import figures_of
    from pytest_ngraph.report.html.libraries import drawing
    from pytest_ngraph.report.lvt.figures import LVT_FIGURES
    from pytest_ngraph.report.results.transfer import sizes_of

    request, sizes = _request(given), sizes_of(given.sizes)
    others = {**DLAS_FIGURES, **LVT_FIGURES, **DEPLOYED_FIGURES}
    figures_of(given.figure, others)
    drawing()
    if given.file is not None:
        yield from report_run(given.file, store_path(given.store), given.number, None, [], sizes)
    content = _content(store_path(given.store), given.number, sizes, is_page=False)
    yield from write_paper_figures(content, given.figures, request, others)


def _request(given: argparse.Namespace) -> Request:
    """Return what is to be drawn for a paper. Raise SpecError for a size that is not allowed."""
    from pytest_ngraph.report.figures.files import Request
    from pytest_ngraph.report.figures.size import size_of

    return Request(
        tuple(given.figure),
        tuple(name for text in given.model for name in split_commas(text)),
        tuple(name for text in given.device for name in split_commas(text)),
        tuple(name for text in given.compiler for name in split_commas(text)),
        size_of(given.width, given.font),
        tuple((given.format or "pdf").split(",")),
    )


def report_run(
    file: Path | None,
    store_path: Path,
    number: int | None,
    figures: Path | None,
    formats: list[str],
    sizes: Sizes | None = None,
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
        content = _content(store_path, number, sizes or {}, is_page=page is not None)
        if page is not None:
            write_page(content, page)
    if page is not None:
        run = content.run
        yield f"{page}: {len(content.reports)} cells of run {run.id} ({run.started_at}, {run.protocol})"
    if figures is not None:
        for path in write_figures(content, figures, formats):
            yield str(path)


def _content(store_path: Path, number: int | None, sizes: Sizes, *, is_page: bool) -> Content:
    from pytest_ngraph.report.html.content import read_content
    from pytest_ngraph.report.results.transfer import with_transfer

    with stored_run(store_path, number) as (store, run):
        content = read_content(store, run, is_page=is_page)
    return replace(content, reports=with_transfer(content.reports, sizes)) if sizes else content


def against_run(
    name: str,
    file: Path | None,
    store_path: Path,
    number: int | None,
    figures: Path | None = None,
    request: Request | None = None,
) -> Iterator[str]:
    """Yield a run beside the figures that somebody published. With a file, FILE.md, also write it as a page.

    With ``figures`` and what is requested of them, pictures of both are drawn instead of printing the run. Raises
    SpecError for a run that is not there, and for a name or a file that it cannot be.
    """
    from pytest_ngraph.report.export.files import write_text
    from pytest_ngraph.report.figures.beside import beside_of, write_beside
    from pytest_ngraph.report.html.content import read_content
    from pytest_ngraph.report.html.libraries import drawing
    from pytest_ngraph.report.paper.against import compare
    from pytest_ngraph.report.paper.page import comparison_lines, comparison_page

    if name not in ("paper", "lvt"):
        raise SpecError(f"--against: unknown publication {name!r} (known: paper, lvt)")
    if file is not None and file.suffix != ".md":
        raise SpecError(f"{file}: not the name of a Markdown page (with --against expected FILE.md)")
    if name == "lvt":
        if request is not None:
            raise SpecError("--figures: not with --against lvt, whose figures draw its table (--figure lvt-1,lvt-2)")
        yield from _against_third(file, store_path, number)
        return
    if request is not None:
        beside_of(request.figures)
        drawing()
    with stored_run(store_path, number) as (store, run):
        comparison = compare(store, run)
        content = read_content(store, run, is_page=False) if request is not None else None
    if content is not None and request is not None and figures is not None:
        yield from write_beside(content, comparison, figures, request)
    else:
        yield from comparison_lines(comparison)
    if file is not None:
        write_text(comparison_page(comparison), file)
        yield f"{file}: written"


def _against_third(file: Path | None, store_path: Path, number: int | None) -> Iterator[str]:
    """Yield a run beside the third paper's Table 1, and write the page where one is named."""
    from pytest_ngraph.report.export.files import write_text
    from pytest_ngraph.report.lvt.against import against_lines, against_page
    from pytest_ngraph.report.results.cells import cell_reports

    with stored_run(store_path, number) as (store, run):
        reports = cell_reports(store, run.id)
    yield from against_lines(run, reports)
    if file is not None:
        write_text(against_page(run, reports), file)
        yield f"{file}: written"

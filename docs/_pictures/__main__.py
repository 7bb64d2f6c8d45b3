"""The pictures of docs/report.md from real runs: ``python -m docs._pictures .ngraph/results.sqlite``.

The run is that of ``suite``; with ``--gates`` it is one of ``places``, under ``gate``. Each picture is a part of its
page in Chromium, with few colours. Needs the browser of the tests, Pillow and pdftoppm.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from PIL import Image

from pytest_ngraph.cli import main as ngraph
from pytest_ngraph.report.html.content import read_content
from pytest_ngraph.report.html.page import page
from pytest_ngraph.store.sqlite import Store
from tests.support.browser import Browser, browser

IMAGES = Path(__file__).parents[1] / "images"
_COLOURS, _LARGEST_BYTES = 96, 60_000
# A part of the page and a little beyond it.
_PART = """
    const part = document.querySelector(%r).getBoundingClientRect(), y = part.top + scrollY - 10;
    return { x: 0, y, width: document.documentElement.clientWidth, height: Math.min(%d, part.height + 20) };
"""


@dataclass(frozen=True, slots=True)
class Picture:
    """One picture: of which part of the page, how wide the window is, and who looks at it in what light.

    ``chart`` is chosen first where several share a place.
    """

    name: str
    part: str
    chart: str = ""
    width: int = 940
    highest: int = 620
    theme: str = "light"
    vision: str = "none"


PICTURES = (
    Picture("report-scores", "#scores"),
    Picture("report-families", "#models", chart="speedup_lines", width=1100, highest=860),
    Picture("report-families-deuteranopia", "#models", chart="speedup_lines", width=1100, highest=428,
            vision="deuteranopia"),
    Picture("report-families-grey", "#models", chart="speedup_lines", width=1100, highest=428, vision="achromatopsia"),
    Picture("report-families-dark", "#models", chart="speedup_lines", width=1100, highest=428, theme="dark"),
    Picture("report-map", "#speedup"),
    Picture("report-depth", "#depth"),
    Picture("report-width", "#width"),
    Picture("report-cpu", "#cpu_usage", highest=428),
    Picture("report-cell", "#visits"),
    Picture("report-narrow", "#models", chart="speedup_lines", width=400, highest=640),
)  # fmt: skip
# Of a run with verdicts.
GATES = (
    Picture("report-claims", "#claims", width=1280),
    Picture("report-reversals", "#places"),
)


def main(arguments: Sequence[str]) -> None:
    """Make all pictures, and those of the paper's numbers beside ours."""
    parser = argparse.ArgumentParser(prog="python -m docs._pictures", description=__doc__)
    parser.add_argument("store", type=Path, help="Store with a run of the suite")
    parser.add_argument("--gates", action="store_true", help="The run is one of places: claims and reversals")
    parser.add_argument("--run", type=int, default=1, help="Number of the run (default: 1)")
    parser.add_argument("--folder", type=Path, default=IMAGES, help=f"Folder of the pictures (default: {IMAGES})")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as scratch, browser(Path(scratch) / "profile") as window:
        folder = Path(scratch)
        (folder / "page.html").write_text(_page(given.store, given.run), encoding="utf-8")
        for file in taken(window, folder, given.folder, GATES if given.gates else PICTURES):
            print(f"{file}: {small(file):,} bytes")
        if given.gates:
            return
        for file in printed(window, folder, given.folder):
            print(f"{file}: {small(file):,} bytes")
        beside = ["--against", "paper", "--figure", "6,7", "--width", "page", "--format", "svg", "--figures"]
        if ngraph(["report", *beside, scratch, "--store", str(given.store), "--run", str(given.run)]):
            sys.exit(1)
        for figure in folder.glob("beside-*.svg"):
            shutil.copy(figure, given.folder)


def _page(path: Path, number: int) -> str:
    with Store.open(path, read_only=True) as store:
        return page(read_content(store, next(run for run in store.runs() if run.id == number)))


def taken(window: Browser, pages: Path, folder: Path, pictures: Sequence[Picture]) -> Iterator[Path]:
    """Take each picture from the screen, and yield its file."""
    for one in pictures:
        window.resize(one.width, 900)
        window.prefer(one.theme)
        window.open(pages / "page.html")
        if one.chart:
            window.run("ngraph.choose(arguments[0])", one.chart)
        window.wait("ngraph.drawAll()")
        window.see(one.vision)
        file = folder / f"{one.name}.png"
        window.picture_of(_PART % (one.part, one.highest), file)
        window.see("none")
        yield file


def printed(window: Browser, pages: Path, folder: Path) -> Iterator[Path]:
    """Print the page as the button does, and yield a picture of a page that has charts."""
    window.resize(1280, 900)
    window.prefer("light")
    window.open(pages / "page.html")
    window.run("document.querySelector('main').style.maxWidth = '700px'; ngraph.redraw();")
    window.wait("ngraph.drawAll()")
    window.paper(pages / "page.pdf")
    sheet_2 = ["-r", "50", "-f", "2", "-l", "2", "-png"]
    subprocess.run(["pdftoppm", *sheet_2, str(pages / "page.pdf"), str(pages / "sheet")], check=True)
    (sheet,) = pages.glob("sheet*.png")
    (folder / "report-print.png").write_bytes(sheet.read_bytes())
    yield folder / "report-print.png"


def small(file: Path) -> int:
    """Write a picture again with a palette, and return its size in bytes."""
    with Image.open(file) as whole:
        few = whole.convert("RGB").quantize(_COLOURS, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    few.save(file, optimize=True)
    size = file.stat().st_size
    if size > _LARGEST_BYTES:
        sys.exit(f"{file}: {size:,} bytes, more than {_LARGEST_BYTES:,}: show less of the page")
    return size


if __name__ == "__main__":
    main(sys.argv[1:])

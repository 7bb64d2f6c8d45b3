"""What ``ngraph report`` was named: a page to write, and runs - by number, or by the store that they are in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ngraph.commands.stored import stored_run
from pytest_ngraph.errors import SpecError

_PAGES = (".html", ".htm", ".md")
_STORES = (".sqlite", ".sqlite3", ".db")
_BEGINS = b"SQLite format 3\0"


@dataclass(frozen=True, slots=True)
class Named:
    """A run: of a store, or of that of the command, by its number, or the latest one."""

    text: str
    store: Path | None
    number: int | None


def split_names(names: Sequence[Path]) -> tuple[Path | None, list[Named]]:
    """Return the page and the runs among the names. Raise SpecError for a second page and for what is neither."""
    pages, runs = [], []
    for name in names:
        run = _run_of(name)
        if run is not None:
            runs.append(run)
        else:
            pages.append(name)
    if len(pages) > 1:
        strange = next((page for page in pages if page.suffix.lower() not in _PAGES), pages[1])
        if strange.suffix.lower() not in _PAGES:
            raise SpecError(f"{strange}: neither a page nor a run (expected FILE.html, a run's number, or a store)")
        raise SpecError(f"{strange}: a second page beside {pages[0]} (expected one FILE.html, and runs)")
    return (pages[0] if pages else None), runs


def _run_of(name: Path) -> Named | None:
    """Read ``3``, ``results.sqlite`` or ``results.sqlite#3``. None for what is no run."""
    text = str(name)
    if text.isascii() and text.isdigit():
        return Named(f"run {int(text)}", None, int(text))
    store, mark, number = text.rpartition("#")
    if mark and number.isascii() and number.isdigit() and _is_store(Path(store)):
        return Named(f"{Path(store).name} run {int(number)}", Path(store), int(number))
    return Named(name.name, name, None) if _is_store(name) else None


def _is_store(path: Path) -> bool:
    if path.suffix.lower() in _PAGES:
        return False
    if path.suffix.lower() in _STORES:
        return True
    try:
        with path.open("rb") as file:
            return file.read(len(_BEGINS)) == _BEGINS
    except OSError:
        return False


def several_runs(file: Path, runs: Sequence[Named], default: Path) -> Iterator[str]:
    """Write runs side by side as one page. Yield what was written. Raise SpecError for a run that is not there."""
    from pytest_ngraph.report.html.content import read_content
    from pytest_ngraph.report.html.libraries import bundled_beside, drawing
    from pytest_ngraph.report.several.page import apart, write_several

    if file.suffix.lower() not in (".html", ".htm"):
        raise SpecError(f"{file}: not the name of a page (expected FILE.html)")
    # Said before a large store is read.
    drawing()
    contents, names = [], []
    with bundled_beside():
        for run in runs:
            with stored_run(run.store or default, run.number) as (store, row):
                contents.append(read_content(store, row, is_page=False))
            names.append(run.text if run.number is not None else f"{run.text} run {row.id}")
        # Two of one name, such as of two folders, have their place behind it.
        names = apart(names)
        write_several(contents, names, file)
    yield f"{file}: {', '.join(names)} side by side"

"""The pages of the documentation as tests read them: their blocks of code, headings, links and tables."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
# What the site has, and the page that leads to it.
PAGES = (
    README,
    *sorted((ROOT / "docs").rglob("*.md")),
    ROOT / "CONTRIBUTING.md",
    ROOT / "benchmarks" / "README.md",
    *sorted(page for page in (ROOT / "example_suites").rglob("README.md") if ".pytest_cache" not in page.parts),
)
_BLOCK = re.compile(
    r"(?:<!-- (?P<note>[^\n]*) -->\n)?^```(?P<info>[^\n]*)\n(?P<code>.*?)^```$", re.MULTILINE | re.DOTALL
)
_COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
_SPAN = re.compile(r"`[^`\n]*`")
_LINK = re.compile(r"!?\[(?:[^\[\]]|\[[^\[\]]*\])*\]\(([^()\s]+)\)")
_CELL = re.compile(r"(?<!\\)\|")


def project() -> dict[str, Any]:
    """Return the table ``project`` of pyproject.toml."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    table: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: where it stands, its info string, its text, and the HTML comment right above it."""

    page: Path
    line: int
    info: str
    code: str
    note: str

    @property
    def place(self) -> str:
        """Name where it stands, such as ``docs/ci.md:10``."""
        return f"{self.page.relative_to(ROOT)}:{self.line}"


def blocks(*pages: Path) -> Iterator[Block]:
    """Yield the fenced blocks of these pages, of all of them where none is given."""
    for page in pages or PAGES:
        yield from blocks_of(page, page.read_text(encoding="utf-8"))


def blocks_of(page: Path, text: str) -> Iterator[Block]:
    """Yield the fenced blocks of a page's text."""
    for found in _BLOCK.finditer(text):
        line = text.count("\n", 0, found.start("info")) + 1
        yield Block(page, line, found["info"].strip(), found["code"], found["note"] or "")


def navigation() -> list[str]:
    """Return the pages that the site's navigation lists, from the folder of the docs on and without their suffix."""
    trees = [
        block.code.split("\n\n", 1)[1] for block in blocks(ROOT / "docs" / "index.md") if block.info == "{toctree}"
    ]
    return [re.sub(r"^.*<(.*)>$", r"\1", line) for tree in trees for line in tree.splitlines()]


def prose(page: Path) -> str:
    """Return a page without its blocks of code and comments."""
    return _COMMENT.sub("", _BLOCK.sub("", page.read_text(encoding="utf-8")))


def links(page: Path) -> list[str]:
    """Return where the links and pictures of a page lead."""
    return _LINK.findall(_SPAN.sub("``", prose(page)))


def anchors(page: Path) -> set[str]:
    """Return the anchors of a page's headings, as code browsers make them."""
    headings = re.findall(r"^#+ +(.*)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def rows(page: Path) -> list[list[str]]:
    """Return the rows of all tables of a page, each as its cells; without headings and rules."""
    lines = prose(page).splitlines()
    bodies = [
        line
        for number, line in enumerate(lines)
        if line.startswith("|") and not _is_rule(line) and not (number + 1 < len(lines) and _is_rule(lines[number + 1]))
    ]
    return [[cell.strip() for cell in _CELL.split(line)[1:-1]] for line in bodies]


def _is_rule(line: str) -> bool:
    return re.fullmatch(r"\|[\s:|-]+\|", line) is not None


def names(cell: str) -> list[str]:
    """Return what stands in backticks in a cell."""
    return re.findall(r"`([^`]+)`", cell)

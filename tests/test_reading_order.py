"""From README to the worker: what CONTRIBUTING tells a newcomer to read exists, is on the way, and is short."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from tests.conftest import ROOT

MOST_LINES = 900
_ROW = re.compile(r"\| \d+ \| `([\w/]+\.py)` \| (.*?) \| (\d+) \|")


def reading_order() -> list[tuple[str, tuple[str, ...], int]]:
    """Return the rows of the table: a file, what of it is read (nothing for the whole file), and how many lines."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    section = text.partition("## From README to the worker\n")[2].partition("\n## ")[0]
    return [(path, tuple(re.findall(r"`([\w.]+)`", parts)), int(lines)) for path, parts, lines in _ROW.findall(section)]


def definitions(tree: ast.Module) -> Iterator[tuple[str, ast.FunctionDef | ast.ClassDef]]:
    """Yield the functions, classes and methods of a module by their qualified names."""
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name, node
            for inner in node.body if isinstance(node, ast.ClassDef) else ():
                if isinstance(inner, ast.FunctionDef):
                    yield f"{node.name}.{inner.name}", inner


def lines_of(path: str, names: tuple[str, ...]) -> int:
    """Count the lines of a file, or of some of its definitions with their decorators; KeyError for one it has not."""
    source = (ROOT / "pytest_ngraph" / path).read_text(encoding="utf-8")
    if not names:
        return len(source.splitlines())
    known = dict(definitions(ast.parse(source)))
    nodes = [known[name] for name in names]
    firsts = [min([node.lineno, *(one.lineno for one in node.decorator_list)]) for node in nodes]
    return sum((node.end_lineno or 0) - first + 1 for node, first in zip(nodes, firsts, strict=True))


def test_the_way_to_the_worker_is_short() -> None:
    order = reading_order()
    assert order[0][0] == "plugin.py"
    assert order[-1][0] == "worker/timing.py"

    counted = {path: lines_of(path, names) for path, names, _ in order}
    assert len(counted) == len(order), "a file stands there twice"
    assert sum(counted.values()) <= MOST_LINES, counted
    # What is written is what a reader plans by: a few lines more or less do not matter.
    wrong = {path: (said, counted[path]) for path, _, said in order if abs(said - counted[path]) > 10}
    assert wrong == {}, "said and counted"

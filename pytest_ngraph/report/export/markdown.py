"""A run as Markdown for an issue or a pull request: a summary table first, every number folded, in a bounded size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from pytest_ngraph.report.export.layout import Table
from pytest_ngraph.report.pull_request.comment import COMMENT_BYTES, Section
from pytest_ngraph.texts.escaping import markdown_text

_REST = "`--ngraph-export=FILE.csv` and `ngraph export FILE.csv` write all of them"
# Of these a row says nothing that another one of its cell does not.
_OF_A_CELL = ("placement", "state", "run", "digest")


def page(table: Table, rows: Sequence[Mapping[str, object]], tail: str = "", most_bytes: int = COMMENT_BYTES) -> str:
    """Return a table of cells, and the tidy rows folded under it, as Markdown of at most so many bytes of UTF-8.

    What is the same in all rows stands above them once. What has no room is cut off at the end, which is said there.
    ``tail`` is what ends the page, also where something is cut off.
    """
    columns = list(dict.fromkeys(key for row in rows for key in row))
    values = {column: {row.get(column) for row in rows} for column in columns}
    common = [column for column in columns if len(values[column]) == 1 and column not in ("metric", "value")]
    shown = [column for column in columns if column not in common and column not in _OF_A_CELL]
    same = [
        f"{column} {markdown_text(_text(rows[0][column]))}" for column in common if rows[0][column] not in (None, "")
    ]
    head = f"**{markdown_text(table.caption)}**\n"
    cells = Section("Cells", "cells", table.rows, _line, _head(table.headings, table.left), rest=_REST)
    numbers = Section(
        "Every number", "numbers", [[_text(row.get(column)) for column in shown] for row in rows], _line,
        (f"In all rows: {', '.join(same)}.\n\n" if same else "") + _head(shown, 1), is_folded=True, rest=_REST,
    )  # fmt: skip
    room = most_bytes - len(head.encode()) - len(tail.encode())
    first = cells.lines(room) if table.rows else ""
    folded = numbers.lines(room - len(first.encode())) if rows else ""
    return head + first + folded + tail


def _head(columns: Sequence[str], left: int) -> str:
    rule = ["---"] * left + ["---:"] * (len(columns) - left)
    return _line(columns) + f"| {' | '.join(rule)} |\n"


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(markdown_text, cells))} |\n"


def _text(value: object) -> str:
    """Return a value of the tidy table, numbers with six digits."""
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else str(value)

"""Tables of what a session has measured: as text that fits a terminal, and as HTML for a notebook."""

from __future__ import annotations

import html
import textwrap
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pytest_ngraph.front.summary.table import cell_rows, cell_table
from pytest_ngraph.texts.shown import clean, one_line

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport
    from pytest_ngraph.store.rows import VerdictRow

WIDTH = 80
_INDENT = "    "
_LEFT = ' style="text-align: left"'


def text_of(reports: Sequence[CellReport], verdicts: Sequence[VerdictRow]) -> str:
    """Return a table for each device, and why cells have no time. No line is wider than 80 columns if no word is."""
    lines: list[str] = []
    for mine in _by_device(reports):
        lines += cell_table(mine, verdicts, WIDTH)
        lines += [part for why in _failures(mine) for part in textwrap.wrap(why, WIDTH, subsequent_indent=_INDENT)]
    return "\n".join(lines)


def html_of(reports: Sequence[CellReport], verdicts: Sequence[VerdictRow]) -> str:
    """Return the same as HTML, in which every text is only text."""
    return "".join(
        _table(mine, verdicts) + "".join(f"<p>{_escaped(why)}</p>" for why in _failures(mine))
        for mine in _by_device(reports)
    )


def _by_device(reports: Iterable[CellReport]) -> list[list[CellReport]]:
    devices: dict[str, list[CellReport]] = {}
    for report in reports:
        devices.setdefault(report.cell.device, []).append(report)
    return list(devices.values())


def _failures(reports: Iterable[CellReport]) -> Iterable[str]:
    for report in reports:
        said = (report.failure.reason if report.failure is not None else "") or report.invalid
        if said:
            outcome = f"{report.outcome}: " if report.outcome else ""
            yield one_line(f"{report.cell.compiler} on {report.cell.workload.label}: {outcome}{said}", 400)


def _table(reports: Sequence[CellReport], verdicts: Sequence[VerdictRow]) -> str:
    columns, rows = cell_rows(reports, verdicts, 2 * WIDTH)
    # Notebooks set every column flush right, as numbers are.
    styles = [_LEFT if column == "compiler" else "" for column in columns]
    head = "".join(f"<th{style}>{_escaped(column)}</th>" for column, style in zip(columns, styles, strict=True))
    body = ""
    for row in rows:
        if isinstance(row, str):
            body += f'<tr><th colspan="{len(columns)}"{_LEFT}>{_escaped(row)}</th></tr>'
        else:
            texts = (f"<td{style}>{_escaped(text)}</td>" for text, style in zip(row, styles, strict=True))
            body += f"<tr>{''.join(texts)}</tr>"
    title = f"device {_escaped(reports[0].cell.device)}"
    return f"<table><caption>{title}</caption><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _escaped(text: str) -> str:
    return html.escape(clean(text))

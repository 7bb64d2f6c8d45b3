"""A table as LaTeX (booktabs), Markdown and plain text: the same cells, escaped for where they stand."""

from __future__ import annotations

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.texts.escaping import markdown_text
from pytest_ngraph.texts.shown import clean, one_line

_GAP = "  "
_LATEX = str.maketrans(
    {
        "\\": r"\textbackslash{}",
        "&": r"\&",
        "%": r"\%",
        "$": r"\$",
        "#": r"\#",
        "_": r"\_",
        "{": r"\{",
        "}": r"\}",
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "<": r"\textless{}",
        ">": r"\textgreater{}",
        "|": r"\textbar{}",
        '"': r"\textquotedblright{}",
        "`": r"\textquoteleft{}",
        "±": r"$\pm$",
        "×": r"$\times$",
        "≥": r"$\geq$",
        "≤": r"$\leq$",
        "µ": r"\textmu{}",
        "…": r"\ldots{}",
        "–": r"\textendash{}",
        "·": r"\textperiodcentered{}",
    }
)
# Of these every engine has the letters in its first font; of others pdfTeX ends with an error.
_LETTERS = frozenset("ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÑÒÓÔÕÖØÙÚÛÜÝßàáâãäåæçèéêëìíîïñòóôõöøùúûüýÿ")
# Two of them in a row are set as one.
_LIGATURE = re.compile(r"(?<=([-'?!]))(?=\1)|(?<=[?!])(?=\\textquoteleft)")
# What stands smaller than what it follows, in LaTeX: a compiler's options, an interval, a deviation.
_SMALLER = re.compile(r"(?<=[^\s\\])( ?)(\[.*\]|\$\\pm\$ [\d.,]+)")
_MINUS = re.compile(r"(?<![\w.)\]])-(?=\d)")


@dataclass(frozen=True, slots=True)
class Table:
    """Rows of texts under one or two lines of headings.

    The first ``left`` columns are names, the others numbers. ``groups`` are the upper headings, each with how many
    columns it spans. Together they span all, and without any there is one line of headings. Where the rows are
    ``grouped`` those with the same first column belong together.
    """

    caption: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    groups: tuple[tuple[str, int], ...] = ()
    left: int = 1
    grouped: bool = False

    @property
    def headings(self) -> tuple[str, ...]:
        """Return one line of headings, each column's after that of its group."""
        above = [name for name, span in self.groups for _ in range(span)] or [""] * len(self.columns)
        return tuple(f"{group}: {name}" if group else name for group, name in zip(above, self.columns, strict=True))


def with_interval(estimate: Estimate | None, write: Callable[[float], str]) -> str:
    """Write an estimate with its interval, or alone where one launch gave it, or nothing where there is none."""
    if estimate is None:
        return ""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)):
        return write(estimate.value)
    return f"{write(estimate.value)} [{write(estimate.low)}, {write(estimate.high)}]"


def significant(value: float) -> str:
    """Write a number with four significant digits, and all of those before the point."""
    return f"{value:,.0f}" if abs(value) >= 999.95 else f"{value:#.4g}"


def rounded(estimate: Estimate | None) -> str:
    """Write an estimate with its interval, in the digits that the interval leaves it.

    Two significant digits of the interval's half-width are kept, and never more than three of the value, so that a wide
    interval does not stand beside digits that mean nothing. Where that would leave less than two of a value that cannot
    be negative, such as 0.31 in 0.004 to 21, each number has two of its own.
    """
    if estimate is None:
        return ""
    half = (estimate.high - estimate.low) / 2
    if not (math.isfinite(half) and half > 0):
        return with_interval(estimate, significant)
    largest = max(abs(estimate.value), half)
    places = max(0, min(1 - math.floor(math.log10(half)), 2 - math.floor(math.log10(largest))))
    if estimate.low >= 0 and 0 < estimate.value < 10 ** (1 - places):
        return with_interval(estimate, _two_digits)
    return with_interval(estimate, f"{{:,.{places}f}}".format)


def _two_digits(value: float) -> str:
    """Write a number with two significant digits, and all of those before the point."""
    return f"{value:,.{max(0, 1 - math.floor(math.log10(value)))}f}" if value > 0 else "0"


def latex(table: Table, label: str, *, long: bool = False) -> str:
    """Return a LaTeX table with a caption and a label. A ``long`` one breaks over pages.

    Its first line names the packages it needs.
    """
    columns = "l" * table.left + "r" * (len(table.columns) - table.left)
    caption = rf"\caption{{{escaped(table.caption)}}}"
    head = [r"\toprule", *_upper(table), _line(table.columns), r"\midrule"]
    body = _body(table)
    if long:
        return _lines(
            r"% needs \usepackage{booktabs,longtable}",
            r"\begingroup\footnotesize\setlength{\tabcolsep}{3pt}",
            rf"\begin{{longtable}}{{{columns}}}",
            rf"{caption}\label{{{label}}} \\",
            *head,
            r"\endfirsthead",
            *head,
            r"\endhead",
            r"\bottomrule",
            r"\endfoot",
            *body,
            r"\end{longtable}",
            r"\endgroup",
        )
    # A table of many columns takes the width of both columns of a page.
    place = "table*" if len(table.columns) > 4 else "table"
    return _lines(
        r"% needs \usepackage{booktabs}",
        rf"\begin{{{place}}}",
        r"\centering",
        caption,
        rf"\label{{{label}}}",
        *([r"\small\setlength{\tabcolsep}{4pt}"] if place == "table*" else []),
        rf"\begin{{tabular}}{{{columns}}}",
        *head,
        *body,
        r"\bottomrule",
        r"\end{tabular}",
        rf"\end{{{place}}}",
    )


def escaped(text: str) -> str:
    """Return a text as one line of LaTeX that prints it. What no font is sure to have is numbered."""
    line = unicodedata.normalize("NFC", " ".join(clean(text).split())).translate(_LATEX)
    letters = (letter if letter.isascii() or letter in _LETTERS else f"(U+{ord(letter):04X})" for letter in line)
    return _MINUS.sub("$-$", _LIGATURE.sub("{}", "".join(letters)))


def _lines(*lines: str) -> str:
    return "".join(f"{line}\n" for line in lines)


def _upper(table: Table) -> list[str]:
    """Return the line of upper headings and the rules under them, or nothing where there are none."""
    cells: list[str] = []
    rules: list[str] = []
    for name, span in table.groups:
        cells.append(rf"\multicolumn{{{span}}}{{c}}{{{escaped(name)}}}" if name else "")
        # Of a spanned heading the other columns have no cell of their own; of a missing one they have.
        cells += [] if name else [""] * (span - 1)
    first = 1
    for name, span in table.groups:
        if name:
            rules.append(rf"\cmidrule(lr){{{first}-{first + span - 1}}}")
        first += span
    return [" & ".join(cells) + r" \\", " ".join(rules)] if table.groups else []


def _body(table: Table) -> list[str]:
    lines: list[str] = []
    previous: str | None = None
    for row in table.rows:
        name = row[0]
        if table.grouped and previous not in (None, name):
            lines.append(r"\midrule")
        shown = ("", *row[1:]) if table.grouped and name == previous else row
        lines.append(_line(shown))
        previous = name
    return lines


def _line(cells: Sequence[str]) -> str:
    line = " & ".join(_SMALLER.sub(r"\1{\\scriptsize \2}", escaped(cell)) for cell in cells)
    # After the end of a line LaTeX would take a bracket or a star for an argument.
    return ("{}" if line.startswith(("[", "*")) else "") + line + r" \\"


def markdown(table: Table) -> str:
    """Return a Markdown table without its caption. Every row says all it says."""
    rule = ["---"] * table.left + ["---:"] * (len(table.columns) - table.left)
    head, *body = ([markdown_text(cell) for cell in line] for line in (table.headings, *table.rows))
    return _lines(*(f"| {' | '.join(cells)} |" for cells in (head, rule, *body)))


def text(table: Table) -> list[str]:
    """Return the lines of a table for a terminal, aligned, under its caption.

    The first column of grouped rows is a line of its own.
    """
    skip = 1 if table.grouped else 0
    headings, *rows = (tuple(map(one_line, row)) for row in (table.headings, *table.rows))
    lines = [line[skip:] for line in (headings, *rows)]
    sizes = [max(map(len, column)) for column in zip(*lines, strict=True)]

    def aligned(cells: Sequence[str]) -> str:
        parts = (
            cell.ljust(size) if place < table.left else cell.rjust(size)
            for place, (cell, size) in enumerate(zip(cells, sizes, strict=True), skip)
        )
        return (_GAP * (1 + skip) + _GAP.join(parts)).rstrip()

    written = [clean(table.caption), aligned(lines[0])]
    previous: str | None = None
    for row, cells in zip(rows, lines[1:], strict=True):
        if skip and row[0] != previous:
            written.append(_GAP + row[0])
        previous = row[0]
        written.append(aligned(cells))
    return written

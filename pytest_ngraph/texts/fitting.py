"""The table of the terminal: as wide as its columns, and no wider than the terminal where names can be folded."""

from __future__ import annotations

import re
from collections.abc import Sequence

_GAP = "  "
_NARROWEST = 12


def fit(columns: Sequence[str], rows: Sequence[Sequence[str] | str], width: int) -> list[str]:
    """Lay out a table. Where it is too wide the compilers' names go on in further lines, for what differs between two
    variants of a compiler may be anywhere in them."""
    lines = [columns, *(row for row in rows if not isinstance(row, str))]
    sizes = [max(len(line[k]) for line in lines) for k in range(len(columns))]
    named = columns.index("compiler")
    excess = sum(sizes) + len(_GAP) * len(sizes) - width
    sizes[named] = max(_NARROWEST, sizes[named] - max(0, excess))

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.ljust(size) if column in ("compiler", "verdict") else cell.rjust(size)
            for column, cell, size in zip(columns, cells, sizes, strict=True)
        ]
        return (_GAP + _GAP.join(parts)).rstrip()

    laid_out = [line(columns)]
    for row in rows:
        if isinstance(row, str):
            laid_out.append(row)
            continue
        name, *rest = folded(row[named], sizes[named])
        laid_out.append(line([*row[:named], name, *row[named + 1 :]]))
        laid_out += [line(["" if k != named else part for k in range(len(columns))]) for part in rest]
    return laid_out


def folded(name: str, width: int) -> list[str]:
    """Return a compiler's name in lines of a width, broken before its options and between them where that is enough."""
    lines = [""]
    for piece in re.split(r"(?<=,)|(?=\[)|(?<=]) ", name):
        while piece:
            indent = " " if len(lines) > 1 else ""
            if len(lines[-1] or indent) + len(piece) <= width:
                lines[-1] = (lines[-1] or indent) + piece
                break
            if lines[-1]:
                lines.append("")
                continue
            # Longer than a line by itself.
            lines[-1], piece = indent + piece[: width - len(indent)], piece[width - len(indent) :]
            lines.append("")
    return [line for line in lines if line] or [""]

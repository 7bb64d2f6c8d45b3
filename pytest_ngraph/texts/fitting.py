"""The table of the terminal: as wide as its columns and no wider than the terminal, with long names cut to fit."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

_GAP = "  "
_CUT = "…"
# Of a name as much is kept, however narrow the terminal is.
NARROWEST = 12


def natural_width(columns: Sequence[str], rows: Sequence[Sequence[str] | str], most: int) -> int:
    """Return how wide a table is whose names of compilers have as many columns as they need, and ``most`` at most."""
    sizes = _sizes(columns, rows)
    named = columns.index("compiler")
    sizes[named] = min(sizes[named], most)
    return sum(sizes) + len(_GAP) * len(sizes)


def fit(columns: Sequence[str], rows: Sequence[Sequence[str] | str], width: int) -> list[str]:
    """Lay out a table. Where it is too wide the compilers' names are cut, and titles, which are texts alone."""
    sizes, named = _sizes(columns, rows), columns.index("compiler")
    excess = sum(sizes) + len(_GAP) * len(sizes) - width
    sizes[named] = max(NARROWEST, sizes[named] - max(0, excess))
    names = cut_apart((row[named] for row in rows if not isinstance(row, str)), sizes[named])
    titles = cut_apart((row for row in rows if isinstance(row, str)), width)

    def line(cells: Sequence[str]) -> str:
        parts = [
            cell.ljust(size) if column in ("compiler", "verdict") else cell.rjust(size)
            for column, cell, size in zip(columns, cells, sizes, strict=True)
        ]
        return (_GAP + _GAP.join(parts)).rstrip()

    laid_out = [line(columns)]
    for row in rows:
        if isinstance(row, str):
            laid_out.append(titles[row])
        else:
            laid_out.append(line([*row[:named], names[row[named]], *row[named + 1 :]]))
    return laid_out


def _sizes(columns: Sequence[str], rows: Sequence[Sequence[str] | str]) -> list[int]:
    lines = [columns, *(row for row in rows if not isinstance(row, str))]
    return [max(len(line[k]) for line in lines) for k in range(len(columns))]


def cut_apart(names: Iterable[str], width: int) -> dict[str, str]:
    """Return each name in no more than ``width`` columns, at least five, long ones cut in the middle, no two alike.

    Where the same cut leaves two alike the place of the cut moves until it does not. Where no place does, as the names
    differ in their middle alone, what is shown behind the cut begins where they differ, and else they are numbered.
    """
    different = list(dict.fromkeys(names))
    room = width - len(_CUT)
    for tail in sorted(range(room), key=lambda tail: abs(2 * tail - room)):
        shown = {name: _cut(name, room - tail, tail) if len(name) > width else name for name in different}
        if len(set(shown.values())) == len(different):
            return shown
    shown, taken = {}, {name for name in different if len(name) <= width}
    alike = _common(name for name in different if len(name) > width)
    for name in different:
        text, number = name if len(name) <= width else _cut_at(name, alike, width), 1
        while len(name) > width and text in taken:
            number += 1
            text = f"{name[: width - len(_CUT) - len(str(number)) - 1]}{_CUT}~{number}"
        taken.add(text)
        shown[name] = text
    return shown


def _cut(name: str, head: int, tail: int) -> str:
    return f"{name[:head]}{_CUT}{name[len(name) - tail :]}"


def _cut_at(name: str, alike: int, width: int) -> str:
    """Return a few of a name's first letters, and as many as fit of what comes behind those that all names have."""
    head = width // 3
    text = f"{name[:head]}{_CUT}{name[max(alike, head) :]}"
    return text if len(text) <= width else text[: width - len(_CUT)] + _CUT


def _common(names: Iterable[str]) -> int:
    """Return how many letters the first of all names have in common."""
    several = list(names)
    return next((k for k, letters in enumerate(zip(*several, strict=False)) if len(set(letters)) > 1), 0)


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

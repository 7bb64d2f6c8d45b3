"""Files of calls: which batches and lengths the calls had that somebody recorded, and how many tell the rest."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from fractions import Fraction

BATCH, SEQUENCE = "batch", "sequence"
MOST_SIZE = 1_000_000
GROUPS = 10
# What one of them is called, and several.
NAMED: Mapping[str, tuple[str, str]] = {BATCH: ("batch", "batches"), SEQUENCE: ("length", "lengths")}
_HEADS: Mapping[str, frozenset[str]] = {
    BATCH: frozenset({"batch", "batches", "batch_size"}),
    SEQUENCE: frozenset(
        {"sequence", "sequences", "seq", "seq_len", "sequence_length", "length", "lengths", "tokens", "num_tokens"}
    ),
}
# A head is a name: a first line of 8.0 is a batch that is written wrongly, and not one to leave out.
_HEAD = re.compile(r"[^\d+.-]")
_MOST_BYTES = 1 << 20
_WEIGHTS = re.compile("weight|count|share|freq|prob|calls", re.IGNORECASE)
# A column of whole numbers that are no sizes.
_COUNTS_CALLS = re.compile(r"(.*[ _-])?(id|index|row|line|no|nr|number|call|request)\Z", re.IGNORECASE)
_NUMBER = re.compile(r"[0-9]{1,9}\Z")

Row = tuple[str, ...]


def read(name: str, search: Sequence[Path], axes: Sequence[str]) -> Counter[tuple[int, ...]]:
    """Return how many lines of a file have which sizes of these axes: each line is a call.

    A head names the columns; without one, or with one of another name, there is one column. Raises SpecError with the
    line for what is no size.
    """
    path = _find(name, search, axes[0])
    rows = _rows(path, axes[0])
    head = rows[0][1] if rows and _is_head(rows[0][1], axes) else ()
    _refuse_weights(path, rows, head, axes[0])
    columns = [_column(path, head, axis, alone=len(axes) == 1) for axis in axes]
    counts: Counter[tuple[int, ...]] = Counter()
    for line, row in rows[1 if head else 0 :]:
        counts[tuple(_size(path, line, row, column, axis) for axis, column in zip(axes, columns, strict=True))] += 1
    if not counts:
        raise SpecError(f"{axes[0]}: {path} has no {' and '.join(NAMED[axis][1] for axis in axes)}")
    return counts


def are_one(name: str, other: str, search: Sequence[Path]) -> bool:
    """Return whether two names are of one file, however they are written. Raise SpecError where one is of none."""
    return name == other or _find(name, search, BATCH).samefile(_find(other, search, SEQUENCE))


def grouped(weights: Mapping[int, Fraction], groups: int) -> dict[int, Fraction]:
    """Return as many groups of equally many calls, shortest first, each at the mean of its lengths.

    Groups of the same mean, rounded to a whole length, are one. All calls weigh what they weighed together.
    """
    from fractions import Fraction

    total = sum(weights.values(), Fraction(0))
    found: dict[int, Fraction] = {}
    left = [(length, weights[length]) for length in sorted(weights)]
    for _ in range(groups):
        room, tokens = total / groups, Fraction(0)
        while room and left:
            length, weight = left[0]
            taken = min(room, weight)
            tokens, room = tokens + length * taken, room - taken
            left[:1] = [(length, weight - taken)] if weight > taken else []
        mean = max(1, math.floor(tokens / (total / groups) + Fraction(1, 2)))
        found[mean] = found.get(mean, Fraction(0)) + total / groups
    return found


def _find(name: str, search: Sequence[Path], axis: str) -> Path:
    candidates = [Path(name)] if Path(name).is_absolute() else [folder / name for folder in search] or [Path(name)]
    path = next((each for each in candidates if each.is_file()), None)
    if path is None:
        places = ", ".join(dict.fromkeys(str(each.parent) for each in candidates))
        raise SpecError(f"{axis}: no file {name!r} in {places}")
    if (size := path.stat().st_size) > _MOST_BYTES:
        remedy = "count its batches first" if axis == BATCH else "draw some of its lines, each as likely as any other"
        raise SpecError(f"{axis}: {path} has {size} bytes (allowed: up to {_MOST_BYTES}); {remedy}")
    return path


def _rows(path: Path, axis: str) -> list[tuple[int, Row]]:
    """Return the cells of each line that has any, with the number of the line."""
    import csv

    try:
        reader = csv.reader(path.read_text(encoding="utf-8-sig").splitlines())
        rows = [(reader.line_num, tuple(cell.strip() for cell in row)) for row in reader]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{axis}: {path} cannot be read: {error}") from None
    return [(line, row) for line, row in rows if any(row)]


def _is_head(row: Row, axes: Sequence[str]) -> bool:
    return bool(_HEAD.match(row[0])) or any(_named(row, axis) is not None for axis in axes)


def _named(head: Row, axis: str) -> int | None:
    return next((column for column, name in enumerate(head) if name.lower() in _HEADS[axis]), None)


def _column(path: Path, head: Row, axis: str, *, alone: bool) -> int:
    """Return the column of an axis: the one that is called so, or the only one there is.

    Raises SpecError where that is called as what is no size: another axis, or the number of a call.
    """
    found = _named(head, axis)
    is_none = any(_named(head, other) is not None for other in _HEADS) or any(map(_COUNTS_CALLS.match, head))
    if found is None and (not alone or len(head) > 1 or is_none):
        names = ", ".join(sorted(_HEADS[axis]))
        there = f"its head has {', '.join(head)}" if head else "it has no head"
        raise SpecError(f"{axis}: {path} has no column of that name: {there} (known names: {names})")
    return found or 0


def _size(path: Path, line: int, row: Row, column: int, axis: str) -> int:
    text = row[column] if column < len(row) else ""
    if not (_NUMBER.match(text) and text.isascii() and 1 <= int(text) <= MOST_SIZE):
        one = NAMED[axis][0]
        raise SpecError(
            f"{axis}: {path}, line {line}: {text[:40]!r} is no {one} (expected a whole number from 1 to {MOST_SIZE} "
            "a line)"
        )
    return int(text)


def _refuse_weights(path: Path, rows: Sequence[tuple[int, Row]], head: Row, axis: str) -> None:
    """Raise SpecError where a column beside the sizes may hold their weights: a line counts as one call."""
    if not rows or len(rows[0][1]) < 2:
        return
    weights = next((name for name in _others(head) if _WEIGHTS.search(name)), None)
    if not head or weights:
        what = f"a column {weights!r}" if weights else "several columns and no head that names them"
        one = NAMED[axis][0]
        raise SpecError(
            f"{axis}: {path} has {what} (expected a {one} a line, each a call; weights stand in a mapping, "
            "{1: 0.7, 8: 0.3})"
        )


def _others(head: Row) -> Iterator[str]:
    """Yield the names of columns that hold no size of an axis."""
    known = frozenset().union(*_HEADS.values())
    return (name for name in head if name.lower() not in known)

"""Mixes of shapes: which batches calls have, how often each, and in which order. Their normal text is an axis's value.

``{"batch": {1: 0.7, 8: 0.3}}`` is ``mix[batch=1x7+8x3]``: of each ten calls seven have a batch of 1 and three one of 8.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    from fractions import Fraction

STATIC, DYNAMIC = "static", "dynamic"
BATCH = "batch"
_BEGINS = "mix["
_TEXT = re.compile(r"mix\[batch=([0-9]+x[0-9]+(?:\+[0-9]+x[0-9]+)*)\]\Z")
# A head is a name: a first line of 8.0 is a batch that is written wrongly, and not one to leave out.
_HEAD = re.compile(r"[^\d+.-]")
_MOST_CALLS, _MOST_SHAPES, _MOST_BATCH = 100, 16, 1_000_000
_MOST_BYTES = 1 << 20
_WEIGHTS = re.compile("weight|count|share|freq|prob|calls", re.IGNORECASE)
_EXPECTED = (
    'expected "static", "dynamic", or a mix such as {"batch": {1: 0.7, 8: 0.3}}, also of a file with a batch a line, '
    '{"batch": "batches.csv"}'
)


@dataclass(frozen=True, slots=True)
class Mix:
    """How many calls of a turn have each batch, smallest first. A turn is the shortest that has the mix's weights."""

    calls: tuple[tuple[int, int], ...]

    def __str__(self) -> str:
        return f"{_BEGINS}{BATCH}={'+'.join(f'{batch}x{count}' for batch, count in self.calls)}]"

    @property
    def batches(self) -> tuple[int, ...]:
        """Return the batches, smallest first."""
        return tuple(batch for batch, _ in self.calls)

    @property
    def turn(self) -> int:
        """Return how many calls a turn has."""
        return sum(count for _, count in self.calls)

    @property
    def samples_per_call(self) -> float:
        """Return how many samples a call has on average."""
        return sum(batch * count for batch, count in self.calls) / self.turn

    def order(self, seed: int) -> list[int]:
        """Return the batches of a turn's calls in their order: the same for every compiler and in every launch."""
        import random

        order = [batch for batch, count in self.calls for _ in range(count)]
        random.Random(f"{self} {seed}").shuffle(order)  # noqa: S311 - an order
        return order


def is_mix(text: str) -> bool:
    """Return whether a value of the axis is a mix."""
    return text.startswith(_BEGINS)


@lru_cache(maxsize=1 << 10)
def parse(text: str) -> Mix:
    """Read the normal text of a mix. Raise SpecError for anything else."""
    from fractions import Fraction

    found = _TEXT.match(text)
    if found is None:
        raise SpecError(f"{text!r}: {_EXPECTED}")
    weights: dict[int, Fraction] = {}
    for part in found[1].split("+"):
        batch, count = (int(number) for number in part.split("x"))
        if batch in weights:
            raise SpecError(f"{text!r}: batch {batch} is given twice")
        weights[batch] = Fraction(count)
    return _mix(weights, repr(text))


def normal(value: Any, search: Sequence[Path] = ()) -> str:
    """Return a value of the axis in its normal form: a word, or the text of a mix.

    Weights are divided by their sum. ``search`` are the folders that a file is looked for in: what is in it is in the
    text, so that another content is another mix. Raises SpecError for what is neither.
    """
    if isinstance(value, str):
        word = value.strip()
        return word if word in (STATIC, DYNAMIC) else str(parse(word))
    if not isinstance(value, Mapping) or not value:
        raise SpecError(f"{value!r}: {_EXPECTED}")
    if unknown := [name for name in value if name != BATCH]:
        raise SpecError(f"{unknown[0]!r} is no axis that calls of a mix differ in (allowed: {BATCH}); {_EXPECTED}")
    given = value[BATCH]
    if isinstance(given, (str, Path)):
        return str(_mix(_read(str(given), search), repr(str(given))))
    if not isinstance(given, Mapping) or not given:
        raise SpecError(f"{BATCH}: {given!r} is neither weights by batch nor a file; {_EXPECTED}")
    return str(_mix({_batch(key, BATCH): _weight(key, weight) for key, weight in given.items()}, BATCH))


def with_largest_batch(axes: dict[str, Any]) -> dict[str, Any]:
    """Return the axes of a workload, whose batch is the largest of its mix where it has one.

    Raises SpecError where a batch is given, too.
    """
    text = axes.get("shapes", STATIC)
    if not is_mix(text):
        return axes
    if BATCH in axes:
        raise SpecError(
            f"batch={axes[BATCH]} and shapes={text!r}: the mix says which batches there are; leave batch out"
        )
    return {**axes, BATCH: parse(text).batches[-1]}


def _batch(value: Any, where: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= _MOST_BATCH:
        raise SpecError(f"{where}: a batch of {value!r} is not allowed (allowed: whole numbers >= 1)")
    return value


def _weight(batch: Any, value: Any) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise SpecError(f"{BATCH}: the weight of {batch!r} is {value!r} (allowed: numbers above 0)")
    from fractions import Fraction

    # 0.7 means seven tenths, not the nearest number with a short expansion in base two.
    return Fraction(repr(value))


def _mix(weights: Mapping[int, Fraction], where: str) -> Mix:
    """Return the mix of these weights, with the shortest turn that has each of them."""
    from fractions import Fraction

    if len(weights) > _MOST_SHAPES:
        raise SpecError(
            f"{where}: {len(weights)} different batches (allowed: up to {_MOST_SHAPES}); put near ones together"
        )
    for batch, weight in weights.items():
        _batch(batch, where)
        if weight <= 0:
            raise SpecError(f"{where}: no call has a batch of {batch}; leave it out")
    total = sum(weights.values(), Fraction(0))
    shares = {batch: weights[batch] / total for batch in sorted(weights)}
    turn = math.lcm(*(share.denominator for share in shares.values()))
    if turn <= _MOST_CALLS:
        return Mix(tuple((batch, int(share * turn)) for batch, share in shares.items()))
    # As near as a turn of so many calls comes: the largest remainders get the calls that are left.
    counts = {batch: math.floor(share * _MOST_CALLS) for batch, share in shares.items()}
    left = sorted(shares, key=lambda batch: counts[batch] - shares[batch] * _MOST_CALLS)
    for batch in left[: _MOST_CALLS - sum(counts.values())]:
        counts[batch] += 1
    if rare := [batch for batch, count in counts.items() if not count]:
        raise SpecError(
            f"{where}: batch {rare[0]} is {float(shares[rare[0]]):.2g} of the calls, less than one of {_MOST_CALLS}; "
            "put it together with another, or leave it out"
        )
    return _mix({batch: Fraction(count) for batch, count in counts.items()}, where)


def _read(name: str, search: Sequence[Path]) -> dict[int, Fraction]:
    """Return how often each batch is in a file: the first column of each line, below a head that may stand there."""
    import csv
    from fractions import Fraction

    candidates = [Path(name)] if Path(name).is_absolute() else [folder / name for folder in search] or [Path(name)]
    path = next((each for each in candidates if each.is_file()), None)
    if path is None:
        places = ", ".join(dict.fromkeys(str(each.parent) for each in candidates))
        raise SpecError(f"{BATCH}: no file {name!r} in {places}")
    if (size := path.stat().st_size) > _MOST_BYTES:
        raise SpecError(f"{BATCH}: {path} has {size} bytes (allowed: up to {_MOST_BYTES}); count its batches first")
    try:
        cells = [
            [cell.strip() for cell in row] for row in csv.reader(path.read_text(encoding="utf-8-sig").splitlines())
        ]
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise SpecError(f"{BATCH}: {path} cannot be read: {error}") from None
    cells = [row for row in cells if row and row[0]]
    _refuse_weights(path, cells)
    rows = [row[0] for row in cells]
    lines = rows[1:] if rows and _HEAD.match(rows[0]) else rows
    if not lines:
        raise SpecError(f"{BATCH}: {path} has no batches (expected a whole number >= 1 a line)")
    counts: Counter[int] = Counter()
    for line in lines:
        if not (line.isascii() and line.isdecimal()) or not 1 <= int(line[:12]) <= _MOST_BATCH:
            raise SpecError(f"{BATCH}: {path}: {line[:40]!r} is no batch (expected a whole number >= 1 a line)")
        counts[int(line)] += 1
    return {batch: Fraction(count) for batch, count in counts.items()}


def _refuse_weights(path: Path, rows: Sequence[Sequence[str]]) -> None:
    """Raise SpecError where a column beside the batches may hold their weights: a line counts as one call."""
    if not rows or len(rows[0]) < 2:
        return
    head = rows[0] if _HEAD.match(rows[0][0]) else []
    weights = next((name for name in head[1:] if _WEIGHTS.search(name)), None)
    if not head or weights:
        what = f"a column {weights!r}" if weights else "several columns and no head that names them"
        raise SpecError(
            f"{BATCH}: {path} has {what} (expected a batch a line, each a call; weights stand in a mapping, "
            "{1: 0.7, 8: 0.3})"
        )

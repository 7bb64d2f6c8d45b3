"""Mixes of shapes: which batches and lengths calls have, how often each, and in which order.

``{"batch": {1: 0.7, 8: 0.3}}`` is ``mix[batch=1x7+8x3]``, its normal text, which is a value of an axis: of each ten
calls seven have a batch of 1 and three one of 8. ``mix[batch=1x7+8x3,sequence=32x1+128x1]`` has lengths that do not
depend on the batch, ``mix[batch:sequence=1:128x3+8:32x1]`` those that do. With ``buckets=32+128`` calls are padded.
"""

from __future__ import annotations

import math
import re
from bisect import bisect_left
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.shapes.files import BATCH, GROUPS, MOST_SIZE, NAMED, SEQUENCE, are_one, grouped, read

if TYPE_CHECKING:
    from fractions import Fraction

STATIC, DYNAMIC = "static", "dynamic"
BUCKETS = "buckets"
_JOINT = f"{BATCH}:{SEQUENCE}"
_BEGINS = "mix["
_COUNTED = r"{size}x[0-9]{{1,9}}(?:\+{size}x[0-9]{{1,9}})*"
_SIZE = "[0-9]{1,9}"
_TEXTS = {
    BATCH: re.compile(_COUNTED.format(size=_SIZE) + r"\Z"),
    SEQUENCE: re.compile(_COUNTED.format(size=_SIZE) + r"\Z"),
    _JOINT: re.compile(_COUNTED.format(size=f"{_SIZE}:{_SIZE}") + r"\Z"),
    BUCKETS: re.compile(rf"{_SIZE}(?:\+{_SIZE})*\Z"),
}
_MOST_CALLS, _MOST_SIZES, _MOST_SHAPES = 100, 16, 64
_EXPECTED = (
    'expected "static", "dynamic", or a mix such as {"batch": {1: 0.7, 8: 0.3}} or {"sequence": {32: 0.5, 128: 0.5}}, '
    'also of a file with one a line, {"sequence": "lengths.csv"}, and padded to "buckets": [64, 128]'
)


class Shape(NamedTuple):
    """The batch and the length of a call, each None where it is the workload's own."""

    batch: int | None
    sequence: int | None

    def __str__(self) -> str:
        found = [f"{axis} {size}" for axis, size in ((BATCH, self.batch), (SEQUENCE, self.sequence)) if size]
        return ", ".join(found)


Weights = dict[tuple[int, ...], "Fraction"]


@dataclass(frozen=True, slots=True)
class Mix:
    """How many calls of a turn have each shape, smallest first. A turn is the shortest that has the mix's weights.

    ``asked`` is its normal text but for the ``buckets`` that calls are padded to, shortest first; none of a mix that
    one build serves.
    """

    calls: tuple[tuple[Shape, int], ...]
    asked: str
    buckets: tuple[int, ...] = ()

    def __str__(self) -> str:
        padded = f",{BUCKETS}={'+'.join(map(str, self.buckets))}" if self.buckets else ""
        return f"{_BEGINS}{self.asked}{padded}]"

    @property
    def shapes(self) -> tuple[Shape, ...]:
        """Return the shapes, smallest first."""
        return tuple(shape for shape, _ in self.calls)

    @property
    def batches(self) -> tuple[int, ...]:
        """Return the batches, smallest first, none where each call has the workload's."""
        return tuple(sorted({shape.batch for shape in self.shapes if shape.batch}))

    @property
    def lengths(self) -> tuple[int, ...]:
        """Return the lengths, shortest first, none where each call has the workload's."""
        return tuple(sorted({shape.sequence for shape in self.shapes if shape.sequence}))

    @property
    def turn(self) -> int:
        """Return how many calls a turn has."""
        return sum(count for _, count in self.calls)

    def samples_per_call(self, batch: int) -> float:
        """Return how many samples a call has on average, where calls without a batch of their own have this one."""
        return sum((shape.batch or batch) * count for shape, count in self.calls) / self.turn

    def order(self, seed: int) -> list[Shape]:
        """Return the shapes of a turn's calls in their order: the same for every compiler and in every launch.

        Buckets change nothing of it.
        """
        import random

        order = [shape for shape, count in self.calls for _ in range(count)]
        random.Random(f"{_BEGINS}{self.asked}] {seed}").shuffle(order)  # noqa: S311 - an order
        return order

    def bucket(self, length: int) -> int:
        """Return the bucket that a length is padded to. Raise SpecError for one that is longer than all of them."""
        position = bisect_left(self.buckets, length)
        if position == len(self.buckets):
            raise SpecError(f"a length of {length} fits in none of the buckets {', '.join(map(str, self.buckets))}")
        return self.buckets[position]

    @property
    def used_buckets(self) -> tuple[int, ...]:
        """Return the buckets that calls fall into: no others are built."""
        return tuple(sorted({self.bucket(length) for length in self.lengths})) if self.buckets else ()

    @property
    def computed_per_asked(self) -> float:
        """Return the tokens that are computed over those that are asked for: 1 without buckets."""
        if not self.buckets:
            return 1.0
        asked = computed = 0
        for shape, count in self.calls:
            tokens = (shape.batch or 1) * count
            asked += tokens * (shape.sequence or 1)
            computed += tokens * self.bucket(shape.sequence or 1)
        return computed / asked


def is_mix(text: str) -> bool:
    """Return whether a value of the axis is a mix."""
    return text.startswith(_BEGINS)


def is_bucketed(text: str) -> bool:
    """Return whether a value of the axis is a mix whose calls are padded, each to a build of its own."""
    return is_mix(text) and bool(parse(text).buckets)


@lru_cache(maxsize=1 << 10)
def parse(text: str) -> Mix:
    """Read the normal text of a mix. Raise SpecError for anything else."""
    from fractions import Fraction

    parts: dict[str, str] = {}
    for piece in text[len(_BEGINS) : -1].split(",") if is_mix(text) and text.endswith("]") else ():
        name, _, value = piece.partition("=")
        if name in parts or name not in _TEXTS or not _TEXTS[name].match(value):
            raise SpecError(f"{text!r}: {_EXPECTED}")
        parts[name] = value
    buckets = [int(each) for each in parts.pop(BUCKETS, "").split("+") if each]
    if not parts or (_JOINT in parts and len(parts) > 1):
        raise SpecError(f"{text!r}: {_EXPECTED}")
    weights: dict[str, dict[tuple[int, ...], Fraction]] = {}
    for name, value in parts.items():
        found = weights.setdefault(name, {})
        for part in value.split("+"):
            written, _, count = part.partition("x")
            sizes = tuple(map(int, written.split(":")))
            if sizes in found:
                raise SpecError(f"{text!r}: {_written(name, sizes)} is given twice")
            found[sizes] = Fraction(int(count))
    return _mix(weights, buckets, repr(text))


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
    if unknown := [name for name in value if name not in (BATCH, SEQUENCE, BUCKETS)]:
        raise SpecError(
            f"{unknown[0]!r} is no axis that calls of a mix differ in (allowed: {BATCH}, {SEQUENCE}, and {BUCKETS} "
            f"that lengths are padded to); {_EXPECTED}"
        )
    given = {name: value[name] for name in (BATCH, SEQUENCE) if name in value}
    buckets = _buckets(value[BUCKETS], given) if BUCKETS in value else []
    is_of_files = len(given) == 2 and all(map(_is_file, given.values()))
    if is_of_files and are_one(str(given[BATCH]), str(given[SEQUENCE]), search):
        return str(_mix({_JOINT: _of_calls(str(given[BATCH]), search, buckets)}, buckets, repr(str(given[BATCH]))))
    weights = {name: _weights(name, given[name], search) for name in given}
    where = ", ".join(repr(str(each)) if _is_file(each) else name for name, each in given.items())
    if SEQUENCE in given:
        _refuse_longer(weights[SEQUENCE], buckets, SEQUENCE)
        if _is_file(given[SEQUENCE]):
            weights[SEQUENCE] = _fewer(weights[SEQUENCE], weights.get(BATCH, {}))
    each: dict[str, Weights] = {
        name: {(size,): weight for size, weight in found.items()} for name, found in weights.items()
    }
    return str(_mix(each, buckets, where))


def with_largest(axes: dict[str, Any]) -> dict[str, Any]:
    """Return the axes of a workload, whose batch and length are the largest of its mix where that has some.

    Raises SpecError where one is given, too.
    """
    text = axes.get("shapes", STATIC)
    if not is_mix(text):
        return axes
    mix = parse(text)
    largest = {name: sizes[-1] for name, sizes in ((BATCH, mix.batches), (SEQUENCE, mix.lengths)) if sizes}
    for name in largest:
        if axes.get(name) is not None:
            raise SpecError(
                f"{name}={axes[name]} and shapes={text!r}: the mix says which {NAMED[name][1]} there are; leave {name} "
                "out"
            )
    return {**axes, **largest}


def _is_file(given: Any) -> bool:
    return isinstance(given, (str, Path))


def _weights(name: str, given: Any, search: Sequence[Path]) -> dict[int, Fraction]:
    """Return the weights of an axis: those that are given, or as often as a file has each."""
    from fractions import Fraction

    if _is_file(given):
        return {size: Fraction(count) for (size,), count in read(str(given), search, [name]).items()}
    if not isinstance(given, Mapping) or not given:
        raise SpecError(f"{name}: {given!r} is neither weights by {NAMED[name][0]} nor a file; {_EXPECTED}")
    return {_size(key, name, name): _weight(key, weight, name) for key, weight in given.items()}


def _fewer(lengths: dict[int, Fraction], batches: Mapping[int, Fraction]) -> dict[int, Fraction]:
    """Return the lengths of a file in groups, where they are more, or rarer, than a turn of calls can have.

    They are ten, or as many as leave each of them a call of the rarest batch.
    """
    total = sum(lengths.values())
    rarest = min(batches.values()) / sum(batches.values()) if batches else 1
    if len(lengths) <= _MOST_SIZES and min(lengths.values()) / total * rarest * _MOST_CALLS >= 1:
        return lengths
    return grouped(lengths, max(1, min(GROUPS, math.floor(rarest * _MOST_CALLS))))


def _of_calls(name: str, search: Sequence[Path], buckets: Sequence[int]) -> dict[tuple[int, ...], Fraction]:
    """Return the weights of batches with their lengths in a file.

    The lengths of a batch are in groups where there are many: of ten groups in all each batch has its share, and one at
    least.
    """
    from fractions import Fraction

    counts = read(name, search, [BATCH, SEQUENCE])
    total = sum(counts.values())
    found = {sizes: Fraction(count, total) for sizes, count in counts.items()}
    _refuse_longer([length for _, length in found], buckets, repr(name))
    if len(found) <= _MOST_SIZES and min(found.values()) * _MOST_CALLS >= 1:
        return found
    fewer: dict[tuple[int, ...], Fraction] = {}
    for batch in sorted({batch for batch, _ in found}):
        lengths = {length: share for (each, length), share in found.items() if each == batch}
        groups = max(1, math.floor(GROUPS * sum(lengths.values()) + Fraction(1, 2)))
        fewer |= {(batch, length): share for length, share in grouped(lengths, groups).items()}
    return fewer


def _buckets(given: Any, mixed: Mapping[str, Any]) -> list[int]:
    if SEQUENCE not in mixed:
        raise SpecError(f'{BUCKETS}: lengths are padded to them, so they need a "{SEQUENCE}"; {_EXPECTED}')
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence) or not given:
        raise SpecError(f"{BUCKETS}: {given!r} (expected lengths, such as [32, 64, 128])")
    return [_size(each, BUCKETS, SEQUENCE) for each in given]


def _refuse_longer(lengths: Sequence[int] | Mapping[int, Any], buckets: Sequence[int], where: str) -> None:
    """Raise SpecError for a length that no bucket can take, before lengths are put into groups that might hide it."""
    if buckets and (longer := [length for length in lengths if length > max(buckets)]):
        raise SpecError(
            f"{where}: {len(longer)} of {len(lengths)} lengths, up to {max(longer)}, fit in no bucket (the largest is "
            f"{max(buckets)}); add one of {max(longer)}, or leave those calls out"
        )


def _size(value: Any, where: str, axis: str) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MOST_SIZE:
        raise SpecError(
            f"{where}: a {NAMED[axis][0]} of {value!r} is not allowed (allowed: whole numbers from 1 to {MOST_SIZE})"
        )
    return value


def _weight(size: Any, value: Any, axis: str) -> Fraction:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value) or value <= 0:
        raise SpecError(f"{axis}: the weight of {size!r} is {value!r} (allowed: numbers above 0)")
    from fractions import Fraction

    # 0.7 means seven tenths, not the nearest number with a short expansion in base two. NumPy's numbers, which are
    # floats, too, have names in theirs.
    return Fraction(value) if isinstance(value, int) else Fraction(repr(float(value)))


def _mix(weights: Mapping[str, Mapping[tuple[int, ...], Fraction]], buckets: Sequence[int], where: str) -> Mix:
    """Return the mix of these weights, of one or two axes apart or of both together."""
    counts = {name: _counts(name, found, where) for name, found in weights.items()}
    if _JOINT in counts:
        calls = {Shape(batch, length): count for (batch, length), count in counts[_JOINT].items()}
    else:
        apart = {name: {size: count for (size,), count in counts[name].items()} for name in counts}
        calls = _crossed(apart.get(BATCH), apart.get(SEQUENCE), where)
    if len(calls) > _MOST_SHAPES:
        raise SpecError(
            f"{where}: {len(calls)} different shapes (allowed: up to {_MOST_SHAPES}); put near ones together"
        )
    asked = ",".join(
        f"{name}={'+'.join(f'{_joined(sizes)}x{count}' for sizes, count in found.items())}"
        for name, found in counts.items()
    )
    mix = Mix(tuple(sorted(calls.items(), key=_smallest)), asked, tuple(buckets))
    if buckets:
        _refuse_buckets(mix, where)
    return mix


def _smallest(call: tuple[Shape, int]) -> tuple[int, int]:
    return call[0].batch or 0, call[0].sequence or 0


def _joined(sizes: tuple[int, ...]) -> str:
    return ":".join(map(str, sizes))


def _written(name: str, sizes: tuple[int, ...]) -> str:
    return ", ".join(f"{axis} {size}" for axis, size in zip(name.split(":"), sizes, strict=True))


def _refuse_buckets(mix: Mix, where: str) -> None:
    buckets = mix.buckets
    if not mix.lengths:
        raise SpecError(f'{where}: {BUCKETS} without a "{SEQUENCE}" whose lengths are padded to them')
    for bucket in buckets:
        _size(bucket, BUCKETS, SEQUENCE)
    if len(mix.batches) > 1:
        raise SpecError(
            f"{where}: {BUCKETS} of {len(mix.batches)} batches; each bucket is one build of one batch, so measure one "
            'batch (batch=8 beside shapes=), or leave "buckets" out'
        )
    if sorted(set(buckets)) != list(buckets):
        raise SpecError(f"{where}: {BUCKETS} {', '.join(map(str, buckets))} (expected lengths that rise, none twice)")
    if len(buckets) > _MOST_SIZES:
        raise SpecError(f"{where}: {len(buckets)} {BUCKETS} (allowed: up to {_MOST_SIZES}): each is a build")
    _refuse_longer(mix.lengths, buckets, where)


def _crossed(batches: Mapping[int, int] | None, lengths: Mapping[int, int] | None, where: str) -> dict[Shape, int]:
    """Return the calls of a turn in which batch and length do not depend on one another."""
    from fractions import Fraction

    if batches is None or lengths is None:
        return {
            Shape(size, None) if lengths is None else Shape(None, size): count
            for size, count in (batches or lengths or {}).items()
        }
    shares: Weights = {
        (batch, length): Fraction(one * other) for batch, one in batches.items() for length, other in lengths.items()
    }
    return {Shape(*sizes): count for sizes, count in _in_a_turn(_JOINT, shares, where).items()}


def _counts(name: str, weights: Mapping[tuple[int, ...], Fraction], where: str) -> dict[tuple[int, ...], int]:
    """Return how many calls of the shortest turn have each size."""
    for axis, sizes in zip(name.split(":"), zip(*weights, strict=True), strict=True):
        several = NAMED[axis][1]
        if (count := len(set(sizes))) > _MOST_SIZES:
            raise SpecError(
                f"{where}: {count} different {several} (allowed: up to {_MOST_SIZES}); put near ones together"
            )
        for size in sizes:
            _size(size, where, axis)
    for each, weight in weights.items():
        if weight <= 0:
            raise SpecError(f"{where}: no call has a {_written(name, each).replace(' ', ' of ', 1)}; leave it out")
    return _in_a_turn(name, weights, where)


def _in_a_turn(name: str, weights: Mapping[tuple[int, ...], Fraction], where: str) -> dict[tuple[int, ...], int]:
    from fractions import Fraction

    total = sum(weights.values(), Fraction(0))
    shares = {sizes: weights[sizes] / total for sizes in sorted(weights)}
    turn = math.lcm(*(share.denominator for share in shares.values()))
    if turn <= _MOST_CALLS:
        return {sizes: int(share * turn) for sizes, share in shares.items()}
    # As near as a turn of so many calls comes: the largest remainders get the calls that are left.
    counts = {sizes: math.floor(share * _MOST_CALLS) for sizes, share in shares.items()}
    left = sorted(shares, key=lambda sizes: counts[sizes] - shares[sizes] * _MOST_CALLS)
    for sizes in left[: _MOST_CALLS - sum(counts.values())]:
        counts[sizes] += 1
    if rare := [sizes for sizes, count in counts.items() if not count]:
        raise SpecError(
            f"{where}: {_written(name, rare[0])} is {float(shares[rare[0]]):.2g} of the calls, less than one of "
            f"{_MOST_CALLS}; put it together with another, or leave it out"
        )
    return _in_a_turn(name, {sizes: Fraction(count) for sizes, count in counts.items()}, where)

"""How values become columns and back: JSON text and arrays of little-endian 64-bit integers."""

from __future__ import annotations

import json
import math
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import lru_cache
from typing import Any

from pytest_ngraph.spec.cells import Cell, Workload
from pytest_ngraph.texts.shown import cleaned

_DEFAULTS = {field.name: field.default for field in fields(Workload)}
_FLOAT = "$float"
_BYTES = 8  # of an integer


def to_text(value: Any) -> str:
    """Write a JSON-able value canonically: sorted keys, no spaces, NaN and infinities as an object."""
    try:
        return _ENCODER.encode(value)
    except (TypeError, ValueError):  # mappings that are no dict, numbers that JSON does not have
        return _ENCODER.encode(_plain(value))


def from_text(text: str) -> Any:
    """Read what ``to_text`` wrote. Tuples come back as lists, and texts clean: the file may be somebody else's."""
    value = _DECODER.decode(text)
    # Nearly all is plain, and then so is all that is in it.
    return value if text.isascii() and "\\" not in text and text.isprintable() else cleaned(value)


def _plain(value: Any) -> Any:
    # SQLite's JSON functions refuse the NaN and Infinity that Python would write.
    if isinstance(value, float) and not math.isfinite(value):
        return {_FLOAT: repr(value)}
    if isinstance(value, Mapping):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return value


def _revive(data: dict[str, Any]) -> Any:
    return float(data[_FLOAT]) if len(data) == 1 and _FLOAT in data else data


def cell_to_text(cell: Cell) -> str:
    """Write a cell as a text. Workload fields at their default are left out."""
    data = cell.to_json()
    data["workload"] = {name: value for name, value in data["workload"].items() if value != _DEFAULTS.get(name)}
    return to_text(data)


@lru_cache(maxsize=1 << 16)
def cell_from_text(text: str) -> Cell:
    """Read what ``cell_to_text`` wrote. A run names its cells again and again."""
    return Cell.from_json(from_text(text))


_ENCODER = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)
_DECODER = json.JSONDecoder(object_hook=_revive)


def to_blob(values: Sequence[int]) -> bytes:
    """Pack integers as little-endian int64. Raise OverflowError for one that does not fit."""
    return _little_endian(array("q", values)).tobytes()


def from_blob(blob: bytes) -> tuple[int, ...]:
    """Unpack what ``to_blob`` packed."""
    values = array("q")
    values.frombytes(blob)
    return tuple(_little_endian(values))


def from_blobs(blobs: Sequence[bytes]) -> list[tuple[int, ...]]:
    """Unpack several of them: what ``from_blob`` gives of each, in one go."""
    values, taken, end = from_blob(b"".join(blobs)), [], 0
    for blob in blobs:
        begin, end = end, end + len(blob) // _BYTES
        taken.append(values[begin:end])
    if end != len(values):
        raise ValueError(f"arrays of {[len(blob) for blob in blobs]} bytes (expected multiples of {_BYTES})")
    return taken


def _little_endian(values: array[int]) -> array[int]:
    if sys.byteorder == "big":
        values.byteswap()
    return values

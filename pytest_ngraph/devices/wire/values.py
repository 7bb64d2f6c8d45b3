"""The values in what a device says: each is of its type and in its range, and texts are clean, or it is refused.

Every function raises one of the errors that ``wire.strictly`` turns around.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from pytest_ngraph.spec.cells import Reading, Visit
from pytest_ngraph.texts.shown import cleaned, kept, one_line

# SQLite's integers have 64 bits, and nothing here is near to that.
_MOST = (1 << 63) - 1
_MOST_BATCHES = 1 << 20
_MOST_CPUS = 1 << 16


def mapping(value: Any) -> Mapping[str, Any]:
    """Read an object."""
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} is no object")
    return value


def flag(value: Any) -> bool:
    """Read true or false."""
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is neither true nor false")
    return value


def whole(value: Any) -> int:
    """Read a whole number."""
    if type(value) is not int:
        raise TypeError(f"{value!r} is no whole number")
    return value


def count(value: Any, least: int = 0) -> int:
    """Read a number of things or of nanoseconds."""
    if not least <= whole(value) <= _MOST:
        raise ValueError(f"{value!r} is out of range")
    return int(value)


def real(value: Any) -> float:
    """Read a number. None is infinite."""
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def number(value: Any) -> float:
    """Read a number, which may be infinite or none."""
    if type(value) not in (int, float):
        raise TypeError(f"{value!r} is no number")
    return float(value)


def seconds(value: Any) -> float:
    """Read how long something took."""
    if real(value) < 0:
        raise ValueError(f"{value!r} is negative")
    return float(value)


def text(value: Any) -> str:
    """Read a text as it is."""
    if not isinstance(value, str):
        raise TypeError(f"{value!r} is no text")
    return value


def texts(value: Any) -> Mapping[str, str]:
    """Read an object of texts."""
    return {name: text(each) for name, each in mapping(value).items()}


def said(value: Any) -> str:
    """Read a text for people, clean and no longer than is kept."""
    return kept(text(value))


def line(value: Any) -> str:
    """Read a text as one line."""
    return one_line(text(value))


def visit(data: Mapping[str, Any]) -> Visit:
    """Read a visit: at least one batch, which took some time, and of every other array one entry for each or none."""
    others = ("calls", "around", "stolen_ns")
    arrays = {name: tuple(count(value) for value in values) for name, values in data.items() if name not in others}
    tries = tuple(map(pair, data.get("around", ())))
    found = Visit(count(data["calls"], 1), **arrays, around=tries, stolen_ns=count(data.get("stolen_ns", 0)))
    batches = len(found.wall_ns)
    if not 0 < batches <= _MOST_BATCHES or not all(found.wall_ns):
        raise ValueError(f"{batches} batches, or one that took no time")
    for name in ("cpu_ns", "run_delay_ns", "faults"):
        if len(getattr(found, name)) not in (0, batches):
            raise ValueError(f"{name} of other than {batches} batches")
    return found


def pair(data: Any) -> tuple[Reading, Reading]:
    """Read what the reference kernel said before and after something."""
    before, after = data
    return reading(before), reading(after)


def reading(data: Any) -> Reading:
    """Read what the reference kernel said at one moment."""
    arithmetic, crossings = data
    return Reading(count(arithmetic, 1), tuple(count(each, 1) for each in crossings))


def facts(data: Any) -> dict[str, Any]:
    """Read what ``environment.describe`` gave on a device."""
    found: dict[str, Any] = cleaned(dict(mapping(data)))
    line(found["cpu"])
    real(found["memory_bytes"])
    affinity = found["affinity"]
    if not isinstance(affinity, list) or not affinity or len(affinity) > _MOST_CPUS:
        raise TypeError(f"{affinity!r} is no set of CPUs")
    _ = [count(cpu) for cpu in affinity]
    if "gpu" in found:
        line(mapping(found["gpu"])["name"])
    mapping(found.get("versions", {}))
    texts(found["power_mode"])
    return found

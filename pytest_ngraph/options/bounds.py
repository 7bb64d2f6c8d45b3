"""Bounds in a file of their own: TOML tables by test, then by helper, with what a claim would be given."""

from __future__ import annotations

import math
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from pytest_ngraph.errors import SpecError, about, known

# The helpers whose claims have a bound.
HELPERS = (
    "assert_accuracy", "assert_agreement",
    "assert_ase", "assert_bsr", "assert_compile_time", "assert_cpu_usage", "assert_energy", "assert_first_token",
    "assert_friction", "assert_gpu_utilisation", "assert_latency",
    "assert_memory", "assert_model_size", "assert_per_token", "assert_retention", "assert_rtr",
    "assert_sequence_scaling", "assert_slope",
    "assert_speedup", "assert_throughput", "assert_tokens_per_second",
)  # fmt: skip
SIDES = ("at_least", "at_most")
# In place of a number: what this machine's own sessions say.
HISTORY: Literal["history"] = "history"
_KEYS = (*SIDES, "tolerance")


@dataclass(frozen=True, slots=True)
class Entry:
    """What the file gives to a helper in a test: its ``side``, a number, a mapping of names to numbers or ``history``.

    ``place`` says where that stands, for messages.
    """

    place: str
    side: str
    bound: float | Literal["history"] | Mapping[str, float]
    tolerance: float | None = None


@dataclass(frozen=True, slots=True)
class Bounds:
    """The bounds of a file: by test - its id, its id without parameters, or its function's name -, then by helper."""

    path: Path
    tests: Mapping[str, Mapping[str, Entry]]

    def of(self, nodeid: str, helper: str) -> Entry | None:
        """Return what a helper is given in a test, by the longest name of it that the file has it under, or None."""
        file, colons, rest = nodeid.partition("::")
        function = rest.partition("[")[0]
        for name in (nodeid, f"{file}{colons}{function}", function.rpartition("::")[2]):
            entry = self.tests.get(name, {}).get(helper)
            if entry is not None:
                return entry
        return None


def read_bounds(path: Path) -> Bounds:
    """Read a file of bounds. Raise SpecError with file, key, what was given and what is allowed."""
    if sys.version_info >= (3, 11):
        import tomllib
    else:
        import tomli as tomllib
    with about(str(path)):
        try:
            table: Any = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise SpecError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
        except tomllib.TOMLDecodeError as error:
            raise SpecError(f"is not TOML: {error}") from None
        except RecursionError:
            raise SpecError("tables in it are nested too deeply to be read") from None
        return Bounds(path, {test: _test(path, test, helpers) for test, helpers in table.items()})


def _test(path: Path, test: str, helpers: Any) -> Mapping[str, Entry]:
    with about(f"[{_quoted(test)}]"):
        if not isinstance(helpers, dict):
            raise SpecError(f"{helpers!r} (expected a table of helpers, such as assert_speedup = {{at_least = 1.2}})")
        return {helper: _entry(path, test, helper, given) for helper, given in helpers.items()}


def _entry(path: Path, test: str, helper: str, given: Any) -> Entry:
    if helper not in HELPERS:
        raise SpecError(f"unknown helper {helper!r} ({known(helper, HELPERS)})")
    with about(helper):
        if not isinstance(given, dict):
            raise SpecError(f"{given!r} (expected a table with at_least or at_most, such as {{at_least = 1.2}})")
        for key in given:
            if key not in _KEYS:
                raise SpecError(f"unknown key {key!r} ({known(key, _KEYS)})")
        sides = [side for side in SIDES if side in given]
        if len(sides) != 1:
            raise SpecError(f"{' and '.join(sides) or 'no bound'} (expected either at_least or at_most)")
        bound = given[sides[0]]
        with about(sides[0]):
            if not isinstance(bound, dict):
                more = f', or a table of compilers such as {{openvino = 1.5, "*" = 1.1}}, or {HISTORY!r}'
                bound = bound if bound == HISTORY else _number(bound, more)
            elif not bound:
                raise SpecError("an empty table (expected compilers or targets with numbers)")
            else:
                for name, value in bound.items():
                    with about(_quoted(name)):
                        _number(value)
        tolerance = None
        if "tolerance" in given:
            with about("tolerance"):
                tolerance = _number(given["tolerance"])
        return Entry(f"{path}: [{_quoted(test)}] {helper}", sides[0], bound, tolerance)


def _number(value: Any, more: str = "") -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        raise SpecError(f"{value!r} (expected a finite number{more})")
    return value


def _quoted(name: str) -> str:
    """Return a key as TOML writes it."""
    plain = name.replace("_", "").replace("-", "").isalnum() and name.isascii()
    return name if plain else f'"{name}"'

"""Precisions as they are written: a word such as ``f32``, or ``int8[by=nncf,samples=64]`` with how it is quantised."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec

from pytest_ngraph.axes import PRECISIONS
from pytest_ngraph.errors import SpecError
from pytest_ngraph.texts.shown import one_line

QUANTISED = "int8"
BY, CALIBRATE, PER_CHANNEL, SAMPLES = "by", "calibrate", "per_channel", "samples"
ONNXRUNTIME, NNCF = "onnxruntime", "nncf"
MINMAX, ENTROPY, PERCENTILE = "minmax", "entropy", "percentile"
# By which methods each quantiser finds the range of an activation.
METHODS: Mapping[str, tuple[str, ...]] = {ONNXRUNTIME: (MINMAX, ENTROPY, PERCENTILE), NNCF: (MINMAX, PERCENTILE)}
MOST_SAMPLES = 4096
FORM = (
    "int8, or int8[by=onnxruntime|nncf,calibrate=minmax|entropy|percentile,per_channel=true|false,samples=N] with any "
    "of these"
)
# The words of an option, and what it is where it is left out: what plain int8 means.
_WORDS: Mapping[str, tuple[str, ...]] = {
    BY: tuple(METHODS),
    CALIBRATE: (MINMAX, ENTROPY, PERCENTILE),
    PER_CHANNEL: ("true", "false"),
}
_DEFAULTS: Mapping[str, str] = {BY: ONNXRUNTIME, CALIBRATE: MINMAX, PER_CHANNEL: "true", SAMPLES: ""}
_NUMBER = re.compile(r"[1-9][0-9]{0,5}\Z")


@dataclass(frozen=True, slots=True)
class Precision:
    """A precision: its ``base``, one of ``axes.PRECISIONS``, and the options that differ from what it is without them.

    ``base`` is what code must ask that wants to know whether something is int8. ``str()`` is the normal form: equal
    precisions are written equally, and what plain ``int8`` means is written so.
    """

    base: str
    options: tuple[tuple[str, str], ...] = ()

    def __str__(self) -> str:
        inner = ",".join(f"{name}={value}" for name, value in self.options)
        return f"{self.base}[{inner}]" if inner else self.base

    @property
    def by(self) -> str:
        """Return the quantiser."""
        return self._option(BY)

    @property
    def calibrate(self) -> str:
        """Return the method that finds the range of an activation."""
        return self._option(CALIBRATE)

    @property
    def per_channel(self) -> bool:
        """Return whether weights have a scale for each channel."""
        return self._option(PER_CHANNEL) == "true"

    @property
    def samples(self) -> int | None:
        """Return how many samples it is calibrated on, None where that is not said."""
        return int(self._option(SAMPLES)) if self._option(SAMPLES) else None

    def _option(self, name: str) -> str:
        return dict(self.options).get(name, _DEFAULTS[name])


def base_of(text: str) -> str:
    """Return the word in front of the options: the precision that is computed in."""
    return text.partition("[")[0]


def normal(text: str) -> str:
    """Return the normal form of a precision. Raise SpecError that says what is allowed."""
    return str(parse(text))


@lru_cache(maxsize=256)
def parse(text: str) -> Precision:
    """Read a precision. Raise SpecError that says what was given and what is allowed."""
    base, bracket, rest = text.strip().partition("[")
    if base not in PRECISIONS:
        raise SpecError(f"precision {one_line(text)!r} is not allowed (allowed: {', '.join(PRECISIONS)})")
    if not bracket:
        return Precision(base)
    if base != QUANTISED:
        raise SpecError(f"precision {one_line(text)!r}: {base} has no options (allowed: {base}; options has {FORM})")
    if not rest.endswith("]") or not rest[:-1].strip():
        raise SpecError(f"precision {one_line(text)!r}: expected {FORM}")
    given: dict[str, str] = {}
    for part in rest[:-1].split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if name not in _DEFAULTS or not equals:
            raise SpecError(
                f"precision {one_line(text)!r}: {one_line(part.strip())!r} is not allowed (expected {FORM})"
            )
        if name in given:
            raise SpecError(f"precision {one_line(text)!r}: option {name!r} is given twice")
        given[name] = _checked(text, name, value)
    _check_method(text, given)
    return Precision(base, tuple(sorted((name, value) for name, value in given.items() if value != _DEFAULTS[name])))


def missing(text: str) -> str | None:
    """Return how to install the quantiser of a precision where it is not installed here. Nothing is imported."""
    if base_of(text) != QUANTISED or parse(text).by != NNCF or find_spec(NNCF) is not None:
        return None
    return f'precision {text}: {NNCF} is not installed (pip install "pytest-ngraph[{NNCF}]")'


def _checked(text: str, name: str, value: str) -> str:
    """Return the value of an option. Raise SpecError for one that is not allowed."""
    words = _WORDS.get(name)
    if words is None:
        is_allowed = bool(_NUMBER.match(value)) and int(value) <= MOST_SAMPLES
        allowed = f"a whole number from 1 to {MOST_SAMPLES}"
    else:
        is_allowed, allowed = value in words, ", ".join(words)
    if not is_allowed:
        raise SpecError(
            f"precision {one_line(text)!r}: option {name}={one_line(value)!r} is not allowed (allowed: {allowed})"
        )
    return value


def _check_method(text: str, given: Mapping[str, str]) -> None:
    """Raise SpecError for a method that the quantiser does not have."""
    by = given.get(BY, _DEFAULTS[BY])
    method = given.get(CALIBRATE, _DEFAULTS[CALIBRATE])
    if method not in METHODS[by]:
        others = ", ".join(each for each, methods in METHODS.items() if method in methods)
        raise SpecError(
            f"precision {one_line(text)!r}: {by} does not calibrate by {method} (allowed with {by}: "
            f"{', '.join(METHODS[by])}; {method} is of {others})"
        )

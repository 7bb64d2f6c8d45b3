"""What is done to a network before any compiler sees it, as text: ``channel_prune[of=macs]=0.5+weight_prune=0.8``."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec import precisions
from pytest_ngraph.spec.cells import DENSE
from pytest_ngraph.texts.shown import one_line

FORM = (
    f"{DENSE}, or steps joined by '+' as channel_prune=0.5, channel_prune[of=macs,norm=l2]=0.5 or weight_prune=0.8, "
    f"with {precisions.QUANTISED} as the last one if it is quantised"
)
RATIO = "a ratio between 0 and 1, such as 0.5, of what is taken away"
_STEP = re.compile(r"([A-Za-z_][A-Za-z0-9_-]*)\s*(?:\[([^\[\]]*)\])?\s*(?:=(.*))?\Z", re.DOTALL)
_KEY = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VALUE = re.compile(r"[A-Za-z0-9_.:/-]+\Z")


@dataclass(frozen=True, slots=True)
class Step:
    """One step: the optimizer, its options by name, and the ratio of what it takes away, above 0 and below 1."""

    name: str
    options: tuple[tuple[str, str], ...]
    ratio: float

    def __str__(self) -> str:
        inner = ",".join(f"{key}={value}" if value else key for key, value in self.options)
        return f"{self.name}[{inner}]={self.ratio!r}" if inner else f"{self.name}={self.ratio!r}"


@dataclass(frozen=True, slots=True)
class Optimization:
    """The steps in their order, none for a dense network, and the precision that stood behind them, or nothing."""

    steps: tuple[Step, ...] = ()
    precision: str = ""

    @property
    def optimize(self) -> str:
        """Return the value of the axis ``optimize``, which has no precision in it."""
        return "+".join(map(str, self.steps)) or DENSE

    def __str__(self) -> str:
        """Write all of it in the normal form: options by name, ratios as Python writes them."""
        return "+".join([*map(str, self.steps), *filter(None, [self.precision])]) or DENSE


def written(optimize: str, precision: str) -> str:
    """Return what was done to a network in one text: its steps and its precision, ``dense`` for neither."""
    parts = [*([optimize] if optimize != DENSE else []), *([precision] if precision != "f32" else [])]
    return "+".join(parts) or DENSE


def normal(text: str) -> str:
    """Return the normal form of what is done to a network. Raise SpecError that says what is allowed."""
    return str(parse(text))


def parse(text: str) -> Optimization:
    """Read ``dense``, or steps joined by ``+``. Raise SpecError that says which step is wrong and what is allowed."""
    if not isinstance(text, str) or not text.strip():
        raise SpecError(f"{one_line(repr(text))} is not allowed (expected {FORM})")
    parts = [part.strip() for part in _split(text)]
    if parts == [DENSE]:
        return Optimization()
    precision = ""
    if parts[-1].partition("[")[0].strip() == precisions.QUANTISED:
        precision = precisions.normal(parts.pop())
    return Optimization(tuple(_step(part, text) for part in parts), precision)


def _split(text: str) -> list[str]:
    """Split at plus signs that stand outside of brackets."""
    parts, depth, start = [], 0, 0
    for index, letter in enumerate(text):
        depth += {"[": 1, "]": -1}.get(letter, 0)
        if letter == "+" and depth == 0:
            parts.append(text[start:index])
            start = index + 1
    return [*parts, text[start:]]


def _step(part: str, text: str) -> Step:
    given = f"{one_line(repr(text))}"
    whose = given if part == text.strip() else f"{given}: its step {one_line(repr(part))}"
    found = _STEP.match(part)
    if found is None:
        raise SpecError(f"{whose} is not allowed (expected {FORM})")
    name, inner, ratio = found.groups()
    if name == DENSE:
        raise SpecError(f"{whose}: {DENSE} is a network to which nothing is done; it stands alone")
    if name == precisions.QUANTISED:
        raise SpecError(f"{whose}: {name} is a precision, without a ratio; it is the last step, or precision={name!r}")
    if ratio is None:
        raise SpecError(f"{whose} has no ratio (expected {name}=RATIO, {RATIO})")
    return Step(name, _options(inner, whose) if inner is not None else (), _ratio(ratio.strip(), whose))


def _options(inner: str, whose: str) -> tuple[tuple[str, str], ...]:
    options: dict[str, str] = {}
    for part in inner.split(","):
        key, equals, value = (piece.strip() for piece in part.partition("="))
        if not _KEY.match(key) or (equals and not _VALUE.match(value)):
            raise SpecError(f"{whose}: {one_line(repr(part))} in its brackets is not allowed (expected option=value)")
        if key in options:
            raise SpecError(f"{whose}: option {key!r} is given twice")
        options[key] = value
    return tuple(sorted(options.items()))


def _ratio(text: str, whose: str) -> float:
    try:
        ratio = float(text)
    except ValueError:
        ratio = math.nan
    if not 0 < ratio < 1 or "_" in text:
        hint = f"; for a network to which nothing is done write {DENSE!r}" if ratio == 0 else ""
        raise SpecError(f"{whose}: {one_line(repr(text))} is no ratio (expected {RATIO}{hint})")
    return ratio

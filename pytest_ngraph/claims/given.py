"""What claims are given, checked before it is judged: the right fixture, bounds that are numbers, names that exist."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from numbers import Integral, Real
from typing import TYPE_CHECKING, Literal, TypeVar

from pytest_ngraph.errors import ClaimError, SpecError, known
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep, ModelSweep, SequenceSweep
from pytest_ngraph.spec.cells import CompilerSpec, target_parts

if TYPE_CHECKING:
    from pytest_ngraph.quantities.quantity import Measurer

BoundGiven = float | Literal["history"] | Mapping[str, float]

_T = TypeVar("_T")
# Where each kind of thing comes from.
_FIXTURES: Mapping[type, str] = {
    Measurement: "a Measurement: the fixture ngraph_cell, one of a sweep such as ngraph_batches[8], or "
    "ngraph.measure(model=..., batch=...)",
    BatchSweep: "a BatchSweep: the fixture ngraph_batches, with batches=[1, 8] in the marker",
    DepthSweep: "a DepthSweep: the fixture ngraph_depths, with depths=[1, 4] in the marker",
    SequenceSweep: "a SequenceSweep: the fixture ngraph_sequences, with sequences=[32, 128] in the marker",
}
# What a unit is in words, with an example.
_IN_UNITS = {
    "s": "seconds as a number, such as 0.005",
    "bytes": "bytes as a number, such as 500e6",
    "J": "joules as a number, such as 0.05",
    "samples/s": "samples per second as a number, such as 250",
    "%": "per cent as a number, such as 80",
    "per layer": "an amount per layer as a number, such as 0.1",
    "per doubling": "an amount per doubling of the width as a number, such as 0.1",
    "exponent": "an exponent as a number, such as 1.2",
    "fraction": "a fraction as a number, such as 0.05",
    "points": "percentage points as a number, such as 5",
    "": "a factor as a number, such as 1.2",
}
# Units that people write behind a number, in the unit of the metric.
_SUFFIXES: Mapping[str, Mapping[str, float]] = {
    "s": {"ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "s": 1.0, "sec": 1.0, "min": 60.0, "h": 3600.0},
    "bytes": {"b": 1, "kb": 1e3, "mb": 1e6, "gb": 1e9, "kib": 2**10, "mib": 2**20, "gib": 2**30},
    "J": {"uj": 1e-6, "µj": 1e-6, "mj": 1e-3, "j": 1.0, "kj": 1e3},
    "%": {"%": 1.0, "": 1.0},
    "points": {"%": 1.0, "": 1.0},
    "fraction": {"%": 0.01, "": 1.0},
    "": {"x": 1.0, "": 1.0},
}


def of_kind(helper: str, given: object, kind: type[_T]) -> _T:
    """Return what a helper was given if it is of this kind. Raise ClaimError that names the fixture otherwise."""
    if isinstance(given, kind):
        return given
    # What stands for a fixture whose compiler is not installed says so, whatever is asked of it.
    _ = getattr(given, "target", None)
    raise ClaimError(f"{helper}: given {_named(given)} (expected {_FIXTURES[kind]})")


def several(helper: str, given: object) -> list[Measurement]:
    """Return measurements that are given as a list. Raise ClaimError for anything else."""
    if isinstance(given, str | Measurement) or not isinstance(given, Iterable):
        raise ClaimError(f"{helper}: given {_named(given)} (expected a list of measurements, as ngraph.measure gives)")
    return [of_kind(helper, one, Measurement) for one in given]


def _named(given: object) -> str:
    """Name what was given, by the fixture that it comes from where this package provides it."""
    for kind, fixture in (
        (Measurement, "ngraph_cell"),
        (BatchSweep, "ngraph_batches"),
        (DepthSweep, "ngraph_depths"),
        (ModelSweep, "ngraph_models"),
        (SequenceSweep, "ngraph_sequences"),
    ):
        if isinstance(given, kind):
            return f"a {kind.__name__}, what {fixture} gives"
    if isinstance(given, Estimate):
        return f"the estimate {given}"
    text = repr(given)
    return text if len(text) <= 80 else f"{text[:80]}..."


def number(place: str, value: object, unit: str = "") -> float:
    """Return a finite number in a metric's unit. Raise ClaimError that says what was given and which unit is meant.

    ``place`` names the helper and its argument. An estimate is no bound: it moves with every launch.
    """
    expected = in_words(unit)
    if isinstance(value, Estimate):
        raise ClaimError(
            f"{place}={value} (expected {expected}: a bound is fixed, and an estimate is not; two measurements are "
            "compared by assert_faster(a, b) or assert_no_slower(a, b), and .value is its number)"
        )
    if isinstance(value, bool) or not isinstance(value, Real):
        raise ClaimError(f"{place}={_named(value)} (expected {expected}{_meant(value, unit)})")
    try:
        finite = float(value)
    except OverflowError:
        finite = math.inf
    if not math.isfinite(finite):
        raise ClaimError(f"{place}={finite} (expected {expected}, and finite)")
    return finite


def fraction(helper: str, tolerance: object) -> float:
    """Return a tolerance that is a fraction. Raise ClaimError for anything else, such as per cent."""
    given = number(f"{helper}: tolerance", tolerance, "fraction")
    if not 0 <= given < 1:
        meant = f"; {given / 100:g} is meant?" if 1 <= given < 100 else ""
        raise ClaimError(f"{helper}: tolerance {given:g} (expected a fraction, 0 <= tolerance < 1{meant})")
    return given


def whole(place: str, value: object) -> int:
    """Return a whole number from 1 on. Raise ClaimError for anything else."""
    if isinstance(value, bool) or not isinstance(value, Integral) or value < 1:
        raise ClaimError(f"{place}={_named(value)} (expected a whole number from 1 on, such as 8)")
    return int(value)


def in_words(unit: str) -> str:
    """Return what a number of a unit is, with an example."""
    return _IN_UNITS.get(unit, f"a number in {unit}")


def _meant(value: object, unit: str) -> str:
    """Return what a text such as ``5ms`` says in the metric's unit, or nothing."""
    text = value.lower() if isinstance(value, str) else ""
    match = re.fullmatch(r"\s*([+-]?[\d.]+(?:e[+-]?\d+)?)\s*([a-zµ%]*)\s*", text)
    factor = _SUFFIXES.get(unit, {"": 1.0}).get(match[2]) if match else None
    if match is None or factor is None:
        return ""
    try:
        return f"; {float(match[1]) * factor:g} is meant?"
    except ValueError:
        return ""


def bound_for(measurer: Measurer, target: str, given: object, place: str, unit: str = "") -> float:
    """Return the bound that applies to a target: a number, or the mapping's entry for it.

    A mapping is asked for ``device:compiler``, then the compiler with its options, then its bare name, then ``*``.
    Raises ClaimError where it has none of them, where a bound is no number, and where a name is neither a compiler of
    the catalogue nor a device: what is misspelt would silently be given the bound of all the others.
    """
    if not isinstance(given, Mapping):
        return number(place, given, unit)
    bounds = {_name(measurer, key, place): number(f"{place}: {key!r}", value, unit) for key, value in given.items()}
    device, compiler = target_parts(target)
    bare = compiler.partition("[")[0]
    for key in (target, f"{device}:{bare}", compiler, bare, "*"):
        if key in bounds:
            return bounds[key]
    raise ClaimError(
        f"{place}: no bound for {target} (given: {', '.join(map(str, given)) or 'none'}); add {bare!r}, or '*' for all "
        "the others"
    )


def _name(measurer: Measurer, key: object, place: str) -> str:
    """Return a mapping's name as targets write it. Raise ClaimError for an unknown one."""
    if key == "*":
        return "*"
    form = "a compiler such as 'openvino', a target such as 'local:openvino', or '*' for all the others"
    if not isinstance(key, str):
        raise ClaimError(f"{place}: {key!r} (expected {form})")
    session = measurer.session
    device, compiler = target_parts(key)
    if device and not session.knows_device(device):
        raise ClaimError(
            f"{place}: unknown device {device!r} in {key!r} ({known(device, sorted(session.known_devices))})"
        )
    bare = compiler.partition("[")[0]
    if bare not in session.catalogue:
        if not device and session.knows_device(bare):
            raise ClaimError(f"{place}: {key!r} is a device (expected {form})")
        raise ClaimError(f"{place}: unknown compiler {bare!r} in {key!r} ({known(bare, sorted(session.catalogue))})")
    try:
        spec = CompilerSpec.parse(compiler)
        session.catalogue.check(spec)
    except SpecError as error:
        raise ClaimError(f"{place}: {error}") from None
    return f"{device}:{spec}" if device else str(spec)

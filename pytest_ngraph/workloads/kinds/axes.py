"""Which axes a model takes, and with which defaults. Known without importing the model."""

from __future__ import annotations

from collections.abc import Mapping

from pytest_ngraph.axes import names, row_of
from pytest_ngraph.errors import NotThere, SpecError
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.texts.shown import one_line
from pytest_ngraph.workloads.kinds.catalogue import kind_of
from pytest_ngraph.workloads.kinds.contract import guarded

# Those that a model is built by.
AXES = names("model")
# What its inputs are made by, besides the batch: the network is the same at every length.
LENGTH = "sequence"
# Those that a model may not take.
TAKEN = (*AXES, LENGTH)
_OFFER_LENGTH = "; a model of one's own takes it as example_inputs(batch, sequence=128)"


def refuse_unless_taken(model: ModelRef, axis: str, taken: frozenset[str]) -> None:
    """Raise SpecError where the model does not take the axis."""
    if axis not in taken:
        allowed = ", ".join(name for name in TAKEN if name in taken) or "no axis but batch"
        hint = _OFFER_LENGTH if axis == LENGTH and kind_of(model).is_asked_when_called else ""
        raise NotThere(f"model {model.text!r}: it does not take {axis} (it takes: {allowed}){hint}")


def axes_taken(model: ModelRef) -> frozenset[str]:
    """Return the axes that the model takes, as far as can be known without an import (else all of them).

    Raises SpecError that names the factory's file and the names that are there where it lacks the factory.
    """
    return frozenset(_axes_of(model))


def axis_values(workload: Workload) -> dict[str, int]:
    """Return the axes that count for this workload: those that are set, and the defaults of its kind.

    Raises SpecError for an axis that the model does not take and for a value below 1.
    """
    model = workload.model
    for name, value in workload.further:
        if row_of(name) is None:
            raise SpecError(f"model {model.text!r}: {name}={value} is of another version; this one knows no such axis")
    given = {name: int(value) for name in TAKEN if (value := workload.value(name)) is not None}
    if kind_of(model).is_asked_when_called:
        values = given
    else:
        taken = _axes_of(model)
        values = {**{axis: value for axis, value in taken.items() if value is not None}, **given}
        for axis in values:
            refuse_unless_taken(model, axis, frozenset(taken))
    for axis, value in values.items():
        if value < 1:
            raise SpecError(f"model {model.text!r}: {axis} is {value} (allowed: 1 or more)")
    check_values(model, values)
    return values


def built_by(values: Mapping[str, int]) -> dict[str, int]:
    """Return, of the axes that count for a workload, those that its module is built by: all but the length."""
    return {axis: value for axis, value in values.items() if axis != LENGTH}


def check_values(model: ModelRef, values: Mapping[str, int]) -> None:
    """Raise SpecError where a model is known not to take one of these values, such as a length beyond its longest."""
    kind = kind_of(model)
    if model.kind:
        guarded(model.text, f"check_values() of its kind {model.scheme!r}", lambda: kind.check_values(model, values))
    else:
        kind.check_values(model, values)


def _axes_of(model: ModelRef) -> Mapping[str, int | None]:
    """Return what a kind says of the axes of a model, checked. Those outside the package may say anything."""
    kind = kind_of(model)
    if not model.kind:
        return kind.axes(model)
    said = guarded(model.text, f"axes() of its kind {model.scheme!r}", lambda: kind.axes(model))
    if not isinstance(said, Mapping) or not all(axis in TAKEN and _is_default(value) for axis, value in said.items()):
        raise SpecError(
            f"model {model.text!r}: axes() of its kind {model.scheme!r} gave {one_line(repr(said))} (expected a "
            f"mapping of {', '.join(TAKEN)} to a default, a whole number >= 1, or to None)"
        )
    return said


def _is_default(value: object) -> bool:
    return value is None or (isinstance(value, int) and not isinstance(value, bool) and value >= 1)

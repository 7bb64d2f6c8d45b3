"""Which axes a model takes, and with which defaults; known without importing the model."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec import ModelRef, Workload
from pytest_ngraph.workloads import signatures

AXES = ("depth", "width", "image_size")
_BLOCKS: Mapping[str, Mapping[str, int]] = {
    "conv": {"depth": 1, "width": 64, "image_size": 244},
    "mha": {"depth": 1, "width": 128},
}
_TIMM: Mapping[str, int] = {"image_size": 224}


def refuse_unless_taken(model: ModelRef, axis: str, taken: frozenset[str]) -> None:
    """Raise SpecError where the model does not take the axis."""
    if axis not in taken:
        allowed = ", ".join(name for name in AXES if name in taken) or "no axis but batch"
        raise SpecError(f"model {model.text!r}: it does not take {axis} (it takes: {allowed})")


def axes_taken(model: ModelRef) -> frozenset[str]:
    """Return the axes that the model takes, as far as can be known without an import (else all of them).

    Raises SpecError that names the factory's file and the names that are there where it lacks the factory.
    """
    if model.scheme == "block":
        return frozenset(_BLOCKS[model.locator])
    if model.scheme == "timm":
        return frozenset(_TIMM)
    if model.scheme in ("file", "import"):
        return _factory_axes(model)
    return frozenset()


def axis_values(workload: Workload) -> dict[str, int]:
    """Return the axes that count for this workload: those that are set, and the defaults of built-in models.

    Raises SpecError for an axis that the model does not take and for a value below 1.
    """
    model = workload.model
    defaults = {"block": _BLOCKS.get(model.locator, {}), "timm": _TIMM}.get(model.scheme, {})
    given = {axis: getattr(workload, axis) for axis in AXES}
    values = {**defaults, **{axis: value for axis, value in given.items() if value is not None}}
    for axis, value in values.items():
        if model.scheme not in ("file", "import"):  # a factory's own signature is asked when it is called
            refuse_unless_taken(model, axis, axes_taken(model))
        if value < 1:
            raise SpecError(f"model {model.text!r}: {axis} is {value} (allowed: 1 or more)")
    return values


def split_factory(model: ModelRef) -> tuple[str, str]:
    """Split the locator of a factory into its file or module and the (dotted) name in it."""
    place, _, name = model.locator.rpartition(":")
    return place, name


def _factory_axes(model: ModelRef) -> frozenset[str]:
    place, name = split_factory(model)
    source = Path(place) if model.scheme == "file" else signatures.find_source(place)
    if source is None:
        return frozenset(AXES)
    found = signatures.read_signature(source, name)
    if isinstance(found, signatures.Missing):
        there = ", ".join(found.names) or "none"
        raise SpecError(f"model {model.text!r}: no {found.name!r} in {source} (names that are there: {there})")
    return frozenset(AXES) if found is None else found & frozenset(AXES)

"""The sizes at which a build for open shapes is tried beside those that are measured, and the axes that are open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.precisions import QUANTISED
from pytest_ngraph.spec.shapes.mixes import is_mix, parse

STATIC, DYNAMIC = "static", "dynamic"
# A file is traced at a batch of two, where tracers take nothing for granted that holds of one only, and a build is
# tried at one that divides little and is no usual number of channels: what was fixed elsewhere shows there. They are
# more than a mix may have batches.
TRACED_AT, _TRIED_AT = 2, (5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67)


def is_open(workload: Workload) -> bool:
    """Return whether one build is to serve a range of sizes."""
    return workload.shapes != STATIC


def elsewhere(workload: Workload) -> Workload | None:
    """Return the model at the batch that a build for open shapes is tried at, None of a static workload.

    It is small whatever is measured, static, in f32 and called once: what it must give there is all that is asked.
    """
    if not is_open(workload):
        return None
    measured = parse(workload.shapes).batches if is_mix(workload.shapes) else (workload.batch,)
    batch = next(each for each in _TRIED_AT if each not in measured)
    return replace(workload, batch=batch, shapes=STATIC, precision="f32", scenario="latency")


def where(workload: Workload) -> str:
    """Name the place where a workload's build is tried."""
    other = elsewhere(workload)
    return "" if other is None else f"batch {other.batch}"


def why_not(workload: Workload) -> str | None:
    """Return why a model is not built for open shapes, or None where it may be."""
    if is_open(workload) and workload.base_precision == QUANTISED:
        return f"shapes={workload.shapes} of {QUANTISED}: a quantised file is calibrated and written for one batch"
    if is_open(workload) and workload.decode is not None:
        return f"shapes={workload.shapes} of decode={workload.decode}: its steps are built for lengths of their own"
    return None


def open_axes(
    here: Mapping[str, Sequence[int]], there: Mapping[str, Sequence[int]], label: str
) -> dict[str, tuple[int, ...]]:
    """Return the axes of each input that differ between two sizes of a model, given its inputs' shapes by name.

    Raises SpecError where inputs differ in more than lengths, or in nothing.
    """
    if here.keys() != there.keys() or any(len(here[name]) != len(there[name]) for name in here):
        raise SpecError(f"{label}: its inputs have other names or ranks at another batch: {dict(here)}, {dict(there)}")
    axes = {
        name: tuple(axis for axis, (one, other) in enumerate(zip(shape, there[name], strict=True)) if one != other)
        for name, shape in here.items()
    }
    if not any(axes.values()):
        raise SpecError(f"{label}: its inputs have the same shapes at another batch: {dict(here)}; nothing is open")
    return axes

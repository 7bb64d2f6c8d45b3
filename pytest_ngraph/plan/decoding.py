"""What goes with ``decode=`` and what does not, said before anything is built."""

from __future__ import annotations

from pytest_ngraph.axes import row_of
from pytest_ngraph.errors import SpecError, about
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads.kinds import kind_of
from pytest_ngraph.workloads.kinds.axes import LENGTH, axis_values, check_values

# Nobody applies these to a prompt and steps: their value is the default, and why it has to be.
_ALONE = {
    "optimize": "a cache has the shapes of the dense network",
    "precision": "the tokens, and the reference, are of f32",
    "shapes": "prompt, steps and cache have fixed shapes",
    "scenario": "tokens are timed one after the other",
    "neighbour": "tokens are timed with nothing beside them",
}


def checked(workload: Workload) -> Workload:
    """Return a workload. Raise SpecError for ``decode=`` of a model that cannot, or beside an axis that does not go."""
    if workload.decode is None:
        return workload
    said = f"decode={workload.decode}"
    with about(said):
        can = kind_of(workload.model).decodes(workload.model)
    if can is False:
        raise SpecError(
            f"{said}: model {workload.model.text!r} generates no tokens (it takes a module with prefill() and step(), "
            "see docs/decoding.md)"
        )
    _refuse_too_long(workload, workload.decode)
    for name, why in _ALONE.items():
        row, value = row_of(name), workload.value(name)
        if row is not None and value != row.default:
            raise SpecError(
                f"{said} beside {name}={value!r}: {why} (allowed: {row.default}); measure them in tests of their own"
            )
    return workload


def _refuse_too_long(workload: Workload, steps: int) -> None:
    """Raise SpecError where a model is known not to take a text as long as prompt and steps."""
    length = axis_values(workload).get(LENGTH)
    if length is not None:
        with about(f"decode={steps} after a prompt of {length}"):
            check_values(workload.model, {LENGTH: length + steps})

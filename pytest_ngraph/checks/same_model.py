"""Whether the models of two sides are one model: fed the same, and giving the same."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.workloads import artifacts

if TYPE_CHECKING:
    import numpy as np


@lru_cache(maxsize=1 << 10)
def difference(one: tuple[Path, str], other: tuple[Path, str]) -> tuple[str, str] | None:
    """Return what differs of two models, by the root and the key of each, and by how much, or None where nothing does.

    The inputs must be the same, bit by bit. Outputs must agree within the bound of f32, on the inputs that are timed
    and on those that never are. Both are known by their contents, so each pair is compared once. Raises CompileFailed
    where either has been deleted.
    """
    from pytest_ngraph.compilers.toolkit.equality import Comparison

    fed = [artifacts.timed_inputs(root, key) for root, key in (one, other)]
    expected, given = (artifacts.reference_of(root, key) for root, key in (one, other))
    comparison = Comparison("f32")
    said = _other_arrays(*fed)
    comparison.add(given.timed, expected.timed)
    for number in range(min(expected.calls, given.calls)):
        ours, theirs = expected.call(number), given.call(number)
        said = said or _other_arrays(ours.inputs, theirs.inputs)
        comparison.add(theirs.outputs, ours.outputs)
    if said or expected.calls != given.calls:
        return "is fed other inputs", said or "another number of samples"
    reason = comparison.agreement().reason
    return ("gives other outputs", reason) if reason else None


def _other_arrays(one: Mapping[str, np.ndarray[Any, Any]], other: Mapping[str, np.ndarray[Any, Any]]) -> str:
    """Return how arrays, each taken by its position, are not the same bit by bit, or nothing where they are."""
    if len(one) != len(other):
        return f"{len(other)} arrays where there are {len(one)}"
    for (name, first), second in zip(one.items(), other.values(), strict=True):
        if (first.dtype, first.shape) != (second.dtype, second.shape):
            return f"{name!r} is {second.dtype} {list(second.shape)} where it is {first.dtype} {list(first.shape)}"
        if first.tobytes() != second.tobytes():
            return f"{name!r} has other numbers in it"
    return ""

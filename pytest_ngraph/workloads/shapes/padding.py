"""Calls that are padded to a bucket: what is appended to their inputs, and which of the outputs are real."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.shapes.mixes import Mix, parse
from pytest_ngraph.workloads.modules.masks import is_padding_mask, mask_names

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.artifacts import Artifact

    Arrays = Mapping[str, np.ndarray[Any, Any]]
    Outputs = Sequence[np.ndarray[Any, Any]]

Axes = tuple[int, ...]
# Of the largest number of an output, as the bounds of f32 are.
_TOLERANCE = 1e-4


@dataclass(frozen=True, slots=True)
class Padding:
    """How calls of a mix are padded: the axes of each input and of each output that have the length of the call."""

    mix: Mix
    inputs: Mapping[str, Axes]
    outputs: tuple[Axes, ...]
    # Masks in which a one is padding.
    ones: frozenset[str] = frozenset()

    def length_of(self, inputs: Arrays) -> int:
        """Return the length of a call by what it is fed."""
        for name, axes in self.inputs.items():
            for axis in axes:
                return int(inputs[name].shape[axis])
        return self.mix.lengths[-1]

    def pad(self, inputs: Arrays, bucket: int) -> dict[str, np.ndarray[Any, Any]]:
        """Return inputs with so many tokens, of which a mask says which are real. What is appended is zero.

        A mask is 0 there, but where its name says ``pad``, as of ``key_padding_mask``: there it is 1.
        """
        import numpy as np

        found = {}
        for name, array in inputs.items():
            shape = list(array.shape)
            for axis in self.inputs[name]:
                shape[axis] = bucket
            filled = np.ones(shape, array.dtype) if name in self.ones else np.zeros(shape, array.dtype)
            filled[tuple(slice(length) for length in array.shape)] = array
            found[name] = filled
        return found

    def real(self, outputs: Outputs, length: int) -> list[np.ndarray[Any, Any]]:
        """Return what outputs of a padded call say of the tokens that were asked for."""
        if len(outputs) != len(self.outputs):
            return list(outputs)
        return [
            array[tuple(slice(length if axis in axes else None) for axis in range(array.ndim))]
            for array, axes in zip(outputs, self.outputs, strict=True)
        ]


def padding_of(artifact: Artifact, workload: Workload) -> Padding:
    """Return how calls of a workload are padded to its buckets.

    Raises Unsupported where an input or output follows the length and does not have it: nothing says then which part
    of it is real.
    """
    known = {workload.sequence or 0: artifact, **artifact.lengths, **artifact.builds}
    short, long = min(known), max(known)
    axes: dict[str, list[Axes]] = {}
    for kind in ("inputs", "outputs"):
        pairs = zip(known[short].meta[kind], known[long].meta[kind], strict=True)
        axes[kind] = [_axes(one, other, (short, long), f"{workload.label}: its {kind[:-1]}") for one, other in pairs]
    shapes = {str(each["name"]): each["shape"] for each in known[long].meta["inputs"]}
    ones = frozenset(name for name, shape in shapes.items() if is_padding_mask(name) and len(shape) == 2)
    of_inputs = dict(zip(shapes, axes["inputs"], strict=True))
    return Padding(parse(workload.shapes), of_inputs, tuple(axes["outputs"]), ones)


def disagreement(
    padding: Padding,
    calls: Mapping[int, tuple[Arrays, Outputs]],
    run: Callable[[int, Arrays], Outputs],
) -> str:
    """Return why a model cannot be padded: for a padded call it gives something else of the real tokens. Else nothing.

    ``calls`` have inputs and what the model gives for them, by length, and ``run`` calls it for a bucket.
    """
    for length, (inputs, expected) in sorted(calls.items()):
        bucket = padding.mix.bucket(length)
        if bucket == length:
            continue
        given = padding.real(run(bucket, padding.pad(inputs, bucket)), length)
        if reason := _off(given, expected):
            masks = mask_names(inputs)
            cause = f"its mask {', '.join(masks)} does not keep them out" if masks else "none of its inputs is a mask"
            return (
                f"a call of {length} tokens that is padded to {bucket} gives something else of the tokens that are "
                f"asked for, in the model itself ({reason}): {cause}, so it cannot be padded to buckets"
            )
    return ""


def _off(given: Outputs, expected: Outputs) -> str:
    """Return how outputs differ by more than the order of f32 additions can make them, or nothing."""
    import numpy as np

    if [each.shape for each in given] != [each.shape for each in expected]:
        return f"outputs of shapes {[each.shape for each in given]}, not {[each.shape for each in expected]}"
    for index, (one, other) in enumerate(zip(given, expected, strict=True)):
        with np.errstate(invalid="ignore"):
            difference = np.abs(one.astype(np.float64) - other.astype(np.float64))
        off = float(np.where(one == other, 0.0, difference).max(initial=0.0))
        largest = float(np.abs(other[np.isfinite(other)].astype(np.float64)).max(initial=0.0))
        # A NaN fails this comparison, too.
        if not off <= (0.0 if other.dtype.kind in "iub" else _TOLERANCE * largest):
            return f"output {index} is off by {off:.2g}, where the largest is {largest:.2g}"
    return ""


def _axes(one: Mapping[str, Any], other: Mapping[str, Any], lengths: tuple[int, int], what: str) -> Axes:
    shapes = tuple(one["shape"]), tuple(other["shape"])
    if len(shapes[0]) != len(shapes[1]):
        raise Unsupported(
            f"{what} {one['name']!r} has shape {shapes[0]} at {lengths[0]} tokens and {shapes[1]} at more"
        )
    found = []
    for axis, sizes in enumerate(zip(*shapes, strict=True)):
        if sizes[0] == sizes[1]:
            continue
        if sizes != lengths:
            raise Unsupported(
                f"{what} {one['name']!r} has {sizes[0]} along axis {axis} for {lengths[0]} tokens and {sizes[1]} for "
                f"{lengths[1]}: which of it are real of a padded call is not known, so it cannot be padded to buckets"
            )
        found.append(axis)
    return tuple(found)

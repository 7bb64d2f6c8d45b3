"""Make inputs for an ONNX model from its signature, with integers that are valid indices."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.workloads.onnx_files.tensors import graph_inputs

if TYPE_CHECKING:
    import numpy as np
    import onnx

_PASSES_ON = frozenset(
    {"Cast", "Concat", "Expand", "Flatten", "Identity", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"}
)
_KEEPS_SHAPE = frozenset({"Cast", "DequantizeLinear", "Identity"})
_SPREAD = 3.0  # floats are standard normal within this many deviations


def example_inputs(
    path: Path, seed: int, text: str, batches: Mapping[int, int] | None = None
) -> dict[str, np.ndarray[Any, Any]]:
    """Return inputs by name for a model with static shapes. ``batches`` maps first dimensions to those wanted instead.

    Floats are standard normal, cut at three deviations. Integers that reach a Gather as its indices are below the
    gathered dimension, other integers are 0 or 1, the range that masks and token types have. Raises SpecError for an
    input that is no number, naming the model (``text``).
    """
    import numpy as np
    import onnx

    model = onnx.load(path, load_external_data=False)
    limits = _index_limits(model)
    random = np.random.default_rng([seed, 1])  # not the numbers that the weights were made of
    made: dict[str, np.ndarray[Any, Any]] = {}
    for value in graph_inputs(model):
        tensor = value.type.tensor_type
        first, *rest = [dim.dim_value for dim in tensor.shape.dim] or [0]
        shape = ((batches or {}).get(first, first), *rest) if tensor.shape.dim else ()
        kind = onnx.helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if kind.kind == "f":
            made[value.name] = random.standard_normal(shape).clip(-_SPREAD, _SPREAD).astype(kind)
        elif kind.kind in "iu":
            made[value.name] = random.integers(0, limits.get(value.name, 2), shape).astype(kind)
        elif kind.kind == "b":
            made[value.name] = random.integers(0, 2, shape).astype(kind)
        else:
            name = onnx.TensorProto.DataType.Name(tensor.elem_type)
            raise SpecError(
                f"model {text!r}: input {value.name!r} is of type {name}, for which no values are made; measure the "
                "part of the graph that takes numbers (onnx.utils.extract_model)"
            )
    return {name: np.asarray(array) for name, array in made.items()}


def _index_limits(model: onnx.ModelProto) -> dict[str, int]:
    """Map each input that reaches a Gather as its indices to the least of the gathered dimensions."""
    shapes = _constant_shapes(model)
    limits: dict[str, int] = {}
    for value in graph_inputs(model):
        reached, sizes = {value.name}, []
        for node in model.graph.node:  # nodes are in topological order
            if node.op_type == "Gather" and node.input[1] in reached and node.input[0] in shapes:
                sizes.append(_gathered(node, shapes))
            elif node.op_type in _PASSES_ON and reached.intersection(node.input):
                reached.update(node.output)
        if sizes:
            limits[value.name] = min(sizes)
    return limits


def _constant_shapes(model: onnx.ModelProto) -> dict[str, tuple[int, ...]]:
    """Map the tensors that the file holds to their shapes, those that are cast or dequantised first, too."""
    shapes = {tensor.name: tuple(tensor.dims) for tensor in model.graph.initializer}
    for node in model.graph.node:
        if node.op_type == "Constant":
            held = next((attribute.t for attribute in node.attribute if attribute.name == "value"), None)
            shapes |= {name: tuple(held.dims) for name in node.output} if held is not None else {}
        elif node.op_type in _KEEPS_SHAPE and node.input and node.input[0] in shapes:
            shapes |= dict.fromkeys(node.output, shapes[node.input[0]])
    return shapes


def _gathered(node: onnx.NodeProto, shapes: Mapping[str, tuple[int, ...]]) -> int:
    axis = next((attribute.i for attribute in node.attribute if attribute.name == "axis"), 0)
    return shapes[node.input[0]][axis]

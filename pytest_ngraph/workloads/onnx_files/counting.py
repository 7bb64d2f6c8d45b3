"""Count the multiply-accumulates of an ONNX file, as far as its shapes are known."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx


def macs(model: onnx.ModelProto) -> int:
    """Return the multiply-accumulates of convolutions and matrix products whose shapes are known. A lower bound."""
    return sum(macs_of_nodes(model))


def macs_of_nodes(model: onnx.ModelProto) -> list[int]:
    """Return the same for each node, in their order: 0 where it has none or they are not known."""
    import onnx

    try:
        inferred = onnx.shape_inference.infer_shapes(model)
    except (onnx.shape_inference.InferenceError, ValueError):
        # A file may run whose shapes cannot be inferred, or that is too large to be: nothing is counted then.
        inferred = model
    graph = inferred.graph
    shapes: dict[str, list[int]] = {tensor.name: list(tensor.dims) for tensor in graph.initializer}
    for value in (*graph.input, *graph.value_info, *graph.output):
        shapes.setdefault(value.name, [dim.dim_value for dim in value.type.tensor_type.shape.dim])
    return [_macs_of(node, shapes) for node in model.graph.node]


def _macs_of(node: onnx.NodeProto, shapes: dict[str, list[int]]) -> int:
    if node.op_type not in ("Conv", "MatMul", "Gemm") or node.domain not in ("", "ai.onnx"):
        return 0
    out, second = (shapes.get(name, []) for name in (node.output[0], node.input[1]))
    # An unknown size is 0, which makes the product nothing.
    if not out or len(second) < 2:
        return 0
    if node.op_type == "Conv":
        return math.prod(out) * math.prod(second[1:])
    transposed = node.op_type == "Gemm" and any(each.name == "transB" and each.i for each in node.attribute)
    return math.prod(out) * second[-1 if transposed else -2]

"""An ONNX file whose batch is open, as exporters write them."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def write(path: Path) -> None:
    """Write a small convolutional classifier with seeded weights and a first dimension named N."""
    import numpy as np
    import onnx
    from onnx import TensorProto, helper, numpy_helper

    random = np.random.default_rng(0)
    shapes = {"filter": (8, 3, 3, 3), "offset": (8,), "matrix": (10, 8)}
    weights = {name: random.normal(0.0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    nodes: list[Any] = [
        helper.make_node("Conv", ["images", "filter", "offset"], ["features"], pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["features"], ["rectified"]),
        helper.make_node("GlobalAveragePool", ["rectified"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["vectors"]),
        helper.make_node("Gemm", ["vectors", "matrix"], ["logits"], transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "open_batch",
        [helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, 16, 16])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["N", 10])],
        [numpy_helper.from_array(array, name) for name, array in weights.items()],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)

"""The form of a quantised file that TensorRT takes: zero points of zero, and offsets in floats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ngraph.workloads.onnx_files.tensors import drop_unused

if TYPE_CHECKING:
    import numpy as np
    import onnx

_STEPS, _HALF = 255, 127  # of eight bits, and on either side of zero


def symmetric(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a quantised model, changed in place, with zero points of zero and without offsets in integers.

    Where an activation had 255 steps between the smallest and the largest number, it has 127 on either side of zero.
    """
    import numpy as np
    from onnx import numpy_helper

    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    arrays = {name: numpy_helper.to_array(tensor) for name, tensor in stored.items()}
    changed: dict[str, np.ndarray[Any, Any]] = {}
    for node in list(graph.node):
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear"):
            continue
        values, scale, zero = node.input
        if zero in arrays and arrays[zero].dtype == np.uint8:
            lowest, highest = ((end - arrays[zero].astype(np.float32)) * arrays[scale] for end in (0, _STEPS))
            wider = (np.maximum(-lowest, highest) / _HALF).astype(np.float32)
            changed[scale], changed[zero] = wider, np.zeros_like(arrays[zero], np.int8)
            if values in arrays:
                exact = (arrays[values].astype(np.float32) - arrays[zero]) * arrays[scale]
                changed[values] = np.rint(exact / wider).clip(-_HALF, _HALF).astype(np.int8)
        elif values in arrays and arrays[values].dtype == np.int32:
            graph.node.remove(node)
            exact = (arrays[values] * arrays[scale].astype(np.float64)).astype(np.float32)
            graph.initializer.append(numpy_helper.from_array(exact, node.output[0]))
    for name, array in changed.items():
        stored[name].CopyFrom(numpy_helper.from_array(array, name))
    _drop_integer_types(graph)
    drop_unused(graph)
    return model


def _drop_integer_types(graph: onnx.GraphProto) -> None:
    """Remove what is noted of the types of rounded values: they have changed, and are inferred again."""
    from onnx import TensorProto

    kept = [value for value in graph.value_info if value.type.tensor_type.elem_type != TensorProto.UINT8]
    if len(kept) < len(graph.value_info):
        del graph.value_info[:]
        graph.value_info.extend(kept)

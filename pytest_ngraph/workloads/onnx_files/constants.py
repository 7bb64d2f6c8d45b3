"""Seeded weights for ONNX files that ship without theirs: files whose nodes compute constants in place of weights.

The light models in the onnx wheel are such files. With one constant everywhere, every channel of a layer is the same
and comparing outputs proves nothing.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from pytest_ngraph.workloads.onnx_files.tensors import drop_unused

if TYPE_CHECKING:
    import numpy as np
    import onnx

# What an operator takes at each of its inputs.
_ROLES: dict[str, dict[int, str]] = {
    "Conv": {1: "filter", 2: "offset"},
    "ConvTranspose": {1: "filter", 2: "offset"},
    "Gemm": {1: "matrix", 2: "offset"},
    "MatMul": {1: "matrix"},
    "BatchNormalization": {1: "gain", 2: "offset", 3: "offset", 4: "variance"},
    "Mul": {1: "gain"},
    "Add": {1: "offset"},
}
# What these take at such an input is a weight. A sum or a product may be of anything: of a mask, or of a state.
_LAYERS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul", "BatchNormalization"})
_AFTER_LAST_LAYER = frozenset({"Softmax", "GlobalAveragePool", "AveragePool", "Relu", "Reshape", "Dropout"})
_BEFORE_LAYER = _AFTER_LAST_LAYER - {"Relu"} | {"Concat", "LRN", "MaxPool", "Transpose"}
_RESHAPERS = frozenset({"Identity", "Reshape", "Squeeze", "Unsqueeze"})


def vary_constant_weights(model: onnx.ModelProto, random: np.random.Generator) -> list[str]:
    """Give a model seeded weights, in place, where most of its weights are constants that nodes compute.

    Filters and matrices are scaled by their fan-in (He), gains are 0.8 to 1.2, offsets have a deviation of 0.1. Gains
    at the end of a residual branch and the last layer before a softmax are smaller, so that the softmax is not
    saturated. The few weights that such a file stores are drawn again, too, as they belong to the missing ones. Returns
    the notes to keep, empty where the model is left as it is.
    """
    weights = _Weights(model)
    computed = sum(math.prod(weights.computed[name]) for name in weights.computed_for_layers())
    if computed <= sum(math.prod(tensor.dims) for tensor in model.graph.initializer):
        return []
    drawn = 0
    for node in list(model.graph.node):
        for slot, role in _ROLES.get(node.op_type, {}).items():
            name = weights.origin(node.input[slot]) if slot < len(node.input) else None
            if name is not None:
                quiet = node.output[0] in weights.quiet
                values = _draw(role, weights.shape(name), weights.power(node, slot), quiet, random)
                weights.put(name, values)
                drawn += 1
    drop_unused(model.graph)
    return [f"the file computes its weights as constants: {drawn} tensors of it were given seeded random values"]


def _draw(
    role: str, shape: tuple[int, ...], power: float, quiet: bool, random: np.random.Generator
) -> np.ndarray[Any, Any]:
    import numpy as np

    if role in ("gain", "variance"):
        low, high = (0.2, 0.5) if quiet and role == "gain" else (0.8, 1.2)
        gains: np.ndarray[Any, Any] = random.uniform(low, high, shape).astype(np.float32)
        return gains
    deviation = 0.1 if role == "offset" else math.sqrt(power) * (0.2 if quiet else 1.0)
    drawn: np.ndarray[Any, Any] = random.standard_normal(shape, dtype=np.float32) * np.float32(deviation)
    return drawn


class _Weights:
    """The weights of a graph: those it stores and those that ConstantOfShape nodes compute from stored shapes."""

    def __init__(self, model: onnx.ModelProto) -> None:
        from onnx import TensorProto, numpy_helper

        self._graph = model.graph
        self._stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self._makers = {node.output[0]: node for node in model.graph.node}
        self._floats = {name for name, tensor in self._stored.items() if tensor.data_type == TensorProto.FLOAT}
        self._sizes = {
            name: tuple(int(size) for size in numpy_helper.to_array(tensor))
            for name, tensor in self._stored.items()
            if tensor.data_type == TensorProto.INT64 and len(tensor.dims) == 1
        }
        self._put: set[str] = set()
        self.quiet = {*self._branch_ends(), *self._last_layers()}
        self.computed = {
            node.output[0]: self._sizes[node.input[0]]
            for node in model.graph.node
            if node.op_type == "ConstantOfShape" and node.input[0] in self._sizes
        }

    def _branch_ends(self) -> Iterator[str]:
        """Name what residual sums add up, where that comes straight from a normalisation."""
        for node in self._graph.node:
            if node.op_type in ("Add", "Sum"):
                makers = (self._makers.get(name) for name in node.input)
                yield from (made.output[0] for made in makers if made and made.op_type == "BatchNormalization")

    def _last_layers(self) -> Iterator[str]:
        """Name the outputs of the layers that softmaxes take their logits from."""
        for node in [node for node in self._graph.node if node.op_type == "Softmax"]:
            while node.op_type in _AFTER_LAST_LAYER and node.input[0] in self._makers:
                node = self._makers[node.input[0]]
                if node.op_type in ("Conv", "Gemm", "MatMul"):
                    yield node.output[0]

    def origin(self, name: str) -> str | None:
        """Follow a value back through reshaping to the weight it comes from, or None for one drawn already or none."""
        while name in self._makers and self._makers[name].op_type in _RESHAPERS:
            name = self._makers[name].input[0]
        known = name in self.computed or name in self._floats
        return name if known and name not in self._put else None

    def computed_for_layers(self) -> set[str]:
        """Return the constants that layers take as their filters, matrices, gains or variances."""
        taken = {
            self.origin(node.input[slot])
            for node in self._graph.node
            if node.op_type in _LAYERS
            for slot, role in _ROLES[node.op_type].items()
            if role != "offset" and slot < len(node.input)
        }
        return {name for name in taken if name is not None and name in self.computed}

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape in which a weight is made or stored."""
        return self.computed[name] if name in self.computed else tuple(self._stored[name].dims)

    def power(self, node: onnx.NodeProto, slot: int) -> float:
        """Return the variance of weights with which a layer keeps the power of its input. Half of it may be cut off."""
        return (2.0 if self._is_rectified(node.input[0]) else 1.0) / max(self._fan_in(node, slot), 1)

    def _is_rectified(self, name: str) -> bool:
        while name in self._makers and self._makers[name].op_type in _BEFORE_LAYER:
            name = self._makers[name].input[0]
        return name in self._makers and self._makers[name].op_type == "Relu"

    def _fan_in(self, node: onnx.NodeProto, slot: int) -> int:
        """Return how many products each output of a layer sums up."""
        name = node.input[slot]
        maker = self._makers.get(name)
        if maker is not None and maker.op_type == "Reshape" and maker.input[1] in self._sizes:
            shape = self._sizes[maker.input[1]]
        else:
            shape = self.shape(self.origin(name) or name)
        if node.op_type in ("Gemm", "MatMul"):
            turned = any(attribute.name == "transB" and attribute.i for attribute in node.attribute)
            return abs(shape[-1] if turned else shape[-2])
        return math.prod(shape[1:])

    def put(self, name: str, values: np.ndarray[Any, Any]) -> None:
        """Store values for a weight in place of what it was."""
        from onnx import numpy_helper

        self._put.add(name)
        tensor = numpy_helper.from_array(values, name)
        if name in self.computed:
            self._graph.node.remove(self._makers[name])
            self._graph.initializer.append(tensor)
        else:
            self._stored[name].CopyFrom(tensor)

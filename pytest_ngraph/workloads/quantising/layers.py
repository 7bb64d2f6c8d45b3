"""How much of a file computes in integers: layers with weights whose two sides come from a dequantiser."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ngraph.workloads.onnx_files.counting import macs_of_nodes

if TYPE_CHECKING:
    import onnx

_WITH_WEIGHTS = frozenset({"Conv", "ConvTranspose", "Gemm", "MatMul"})
# Those that take integers themselves.
_OF_INTEGERS = frozenset({"ConvInteger", "MatMulInteger", "QGemm", "QLinearConv", "QLinearMatMul"})
# What gives some of the numbers that it is given, and zero: of rounded ones, rounded ones.
_MOVES = frozenset({"Flatten", "Identity", "MaxPool", "Relu", "Reshape", "Slice", "Squeeze", "Transpose", "Unsqueeze"})


@dataclass(frozen=True, slots=True)
class Layers:
    """Layers with weights and the multiply-accumulates of a call in them: all of them, and those in int8."""

    all: int
    quantised: int
    macs: int
    quantised_macs: int

    @property
    def words(self) -> str:
        """Return what a placement says: ``20 of 21 (99.8 % of MACs)``."""
        # Never rounded to all of them, nor to none.
        share = f"{100 * self.quantised_macs / self.macs:.1f}" if self.macs else ""
        if share == "100.0" and self.quantised_macs < self.macs:
            share = "99.9"
        if share == "0.0" and self.quantised_macs:
            share = "below 0.1"
        whole = share.removesuffix(".0")
        return f"{self.quantised} of {self.all}" + (f" ({whole} % of MACs)" if share else "")


def layers_of(model: onnx.ModelProto) -> Layers:
    """Read from a file which of its layers with weights are quantised.

    A layer counts where its weights are stored in integers, or rounded to them, and what flows into it was. One of
    which only the weights are, is computed in floats by every runtime.
    """
    stored = {tensor.name for tensor in model.graph.initializer}
    makers = {name: node for node in model.graph.node for name in node.output}
    work = macs_of_nodes(model)
    found = [0, 0, 0, 0]
    for index, node in enumerate(model.graph.node):
        if node.op_type not in _WITH_WEIGHTS or not _is_stored(node.input[1], makers, stored):
            continue
        both = all(_is_dequantised(name, makers) for name in node.input[:2])
        found[0] += 1
        found[2] += work[index]
        if both:
            found[1] += 1
            found[3] += work[index]
    return Layers(*found)


def computes_in(model: onnx.ModelProto) -> str:
    """Return the precision that most layers with weights of a file compute in: int8, f16 or bf16, and f32 where none.

    Of int8 the greater part of the multiply-accumulates has to be, too, as far as they are known: one small layer that
    is rounded, and others whose weights only are, leave a file what it is. So do weights that are stored in a shorter
    type and cast before they are used.
    """
    from onnx import TensorProto

    found, whole = layers_of(model), sum(node.op_type in _OF_INTEGERS for node in model.graph.node)
    # The work of those that take integers is not counted.
    if 2 * (found.quantised + whole) > found.all + whole and (whole or 2 * found.quantised_macs >= found.macs):
        return "int8"
    stored = {tensor.name: tensor.data_type for tensor in model.graph.initializer}
    layers = [node.input[1] for node in model.graph.node if node.op_type in _WITH_WEIGHTS]
    kinds = [stored[name] for name in layers if name in stored]
    for kind, precision in ((TensorProto.FLOAT16, "f16"), (TensorProto.BFLOAT16, "bf16")):
        if 2 * kinds.count(kind) > found.all + whole:
            return precision
    return "f32"


def _is_dequantised(name: str, makers: dict[str, onnx.NodeProto]) -> bool:
    """Return whether a value comes from dequantisers, past what only moves numbers."""
    left = [name]
    while left:
        node = makers.get(left.pop())
        if node is None or node.op_type not in ("DequantizeLinear", "Concat", *_MOVES):
            return False
        if node.op_type != "DequantizeLinear":
            left += node.input if node.op_type == "Concat" else node.input[:1]
    return True


def _is_stored(name: str, makers: dict[str, onnx.NodeProto], stored: set[str]) -> bool:
    """Return whether a value is weights, stored as they are or in integers, and no activation."""
    while name not in stored:
        node = makers.get(name)
        if node is None:
            return False
        if node.op_type == "Constant":
            return True
        if node.op_type not in ("QuantizeLinear", "DequantizeLinear", *_MOVES):
            return False
        name = node.input[0]
    return True

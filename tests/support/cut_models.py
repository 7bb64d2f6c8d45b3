"""Small ONNX models to be cut: with branches, residuals, shared weights, subgraphs, a constant tail, and secrets."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

# As the bytes of numbers these are 0.04 and 0.2.
SECRET = "Zq7=Sec>"


def weight(name: str, *shape: int, scale: float = 0.4, seed: int = 0) -> onnx.TensorProto:
    values = np.random.default_rng([seed, len(name)]).standard_normal(shape) * scale
    return numpy_helper.from_array(values.astype(np.float32), name)


def node(kind: str, reads: str, gives: str, **attributes: Any) -> onnx.NodeProto:
    return helper.make_node(kind, reads.split(), gives.split(), **attributes)


def value(name: str, *shape: int | str, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, kind, shape)


def model(
    nodes: list[onnx.NodeProto], outputs: list[onnx.ValueInfoProto], weights: list[onnx.TensorProto], **more: Any
) -> onnx.ModelProto:
    graph = helper.make_graph(nodes, "graph", [value("image", 4, 8)], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8, **more)


def branches() -> onnx.ModelProto:
    """Ten nodes: a residual around a MatMul and a Tanh, a branch that is an output, a shape that is computed."""
    nodes = [
        node("MatMul", "image shared", "a0"),
        node("Relu", "a0", "a1"),
        node("MatMul", "a1 shared", "b0"),
        node("Tanh", "b0", "b1"),
        node("Add", "a1 b1", "c0"),
        node("Sigmoid", "a0", "side"),
        node("Mul", "c0 side", "e0"),
        node("Shape", "e0", "s0"),
        node("Reshape", "e0 s0", "e1"),
        node("MatMul", "e1 shared", "out"),
    ]
    return model(nodes, [value("out", 4, 8), value("side", 4, 8)], [weight("shared", 8, 8)])


def subgraphs() -> onnx.ModelProto:
    """An If whose branch has the Tanh and reads values of around it, behind a Loop."""
    then = helper.make_graph([node("Add", "b0 a0", "t0"), node("Tanh", "t0", "t1")], "then", [], [value("t1", 4, 8)])
    other = helper.make_graph([node("Relu", "b0", "o1")], "other", [], [value("o1", 4, 8)])
    body = helper.make_graph(
        [node("Identity", "go", "go_on"), node("Add", "carried a0", "next")],
        "body",
        [value("turn", kind=TensorProto.INT64), value("go", kind=TensorProto.BOOL), value("carried", 4, 8)],
        [value("go_on", kind=TensorProto.BOOL), value("next", 4, 8)],
    )
    nodes = [
        node("MatMul", "image first", "a0"),
        node("Loop", "turns always a0", "l0", body=body),
        node("MatMul", "l0 second", "b0"),
        node("If", "always", "c0", then_branch=then, else_branch=other),
        node("Relu", "c0", "out"),
    ]
    flags = [numpy_helper.from_array(np.array(True), "always"), numpy_helper.from_array(np.array(3), "turns")]
    return model(nodes, [value("out", 4, 8)], [weight("first", 8, 8), weight("second", 8, 8), *flags])


def folded_tail() -> onnx.ModelProto:
    """A Tanh that reads constants only, at the end of a chain of them, and a sum that reads it."""
    held = helper.make_node("Constant", [], ["k0"], value=weight("", 8, 8, seed=1))
    nodes = [
        node("Relu", "image", "a0"),
        held,
        node("Transpose", "k0", "k1"),
        node("Tanh", "k1", "k2"),
        node("MatMul", "a0 k2", "b0"),
        node("Relu", "b0", "out"),
    ]
    return model(nodes, [value("out", 4, 8)], [])


def ranges() -> onnx.ModelProto:
    """A Tanh-free chain whose inner values are thousands of times its inputs, and a Relu that reads them."""
    big = weight("big", 8, 8, scale=2000.0)
    nodes = [node("MatMul", "image big", "a0"), node("Relu", "a0", "a1"), node("Mul", "a1 small", "out")]
    small = numpy_helper.from_array(np.array([1e-3], np.float32), "small")
    return model(nodes, [value("out", 4, 8)], [big, small])


def secrets() -> onnx.ModelProto:
    """A model that has a secret in every field that takes a text, and in its weights."""
    made = branches()
    made.producer_name = made.producer_version = made.domain = made.doc_string = f"{SECRET} corp"
    helper.set_model_props(made, {SECRET: SECRET})
    graph = made.graph
    graph.name = graph.doc_string = f"{SECRET}-graph"
    old = [*(tensor.name for tensor in graph.initializer), *(name for each in graph.node for name in each.output)]
    for name in ["image", *old]:
        _rename(graph, name, f"{SECRET}/{name}")
    for number, each in enumerate(graph.node):
        each.name, each.doc_string = f"{SECRET}/{each.op_type}_{number}", SECRET
        for attribute in each.attribute:
            attribute.doc_string = SECRET
    for each in (*graph.input, *graph.output):
        each.doc_string = SECRET
        each.type.denotation = SECRET
    graph.value_info.append(helper.make_tensor_value_info(f"{SECRET}/a0", 1, [f"{SECRET}batch", 8], SECRET))
    graph.quantization_annotation.add().tensor_name = f"{SECRET}/a0"
    secret = np.frombuffer((SECRET * 32)[:256].encode(), np.float32).reshape(8, 8)
    graph.initializer[0].CopyFrom(numpy_helper.from_array(secret, graph.initializer[0].name))
    graph.initializer[0].doc_string = SECRET
    return made


def _rename(graph: onnx.GraphProto, old: str, new: str) -> None:
    for each in (*graph.input, *graph.output, *graph.initializer):
        each.name = new if each.name == old else each.name
    for each in graph.node:
        each.input[:] = [new if name == old else name for name in each.input]
        each.output[:] = [new if name == old else name for name in each.output]


MODELS = {"branches": branches, "subgraphs": subgraphs, "folded_tail": folded_tail, "ranges": ranges}


def save(name: str, folder: Path) -> Path:
    path = folder / f"{name}.onnx"
    onnx.save({**MODELS, "secrets": secrets}[name](), path)
    return path

"""Simplify an ONNX model for converters that want plain weights: fold constants, drop what inference ignores."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ngraph.workloads.onnx_files.tensors import is_large, names_read

if TYPE_CHECKING:
    import onnx

_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


def simplify(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return the model, changed in place, with constants folded, shapes inferred and what has no effect taken out."""
    import onnx

    for node in model.graph.node:
        if node.op_type == "Dropout":
            node.op_type = "Identity"
            del node.input[1:], node.output[1:], node.attribute[:]
    _fold_constants(model)
    _drop_allowzero(model)
    if is_large(model):
        return model
    return onnx.shape_inference.infer_shapes(model)


def _fold_constants(model: onnx.ModelProto) -> None:
    """Compute every node that depends on nothing but weights and constants, and keep what the others read of it."""
    from onnx import helper, numpy_helper
    from onnx.reference import ReferenceEvaluator

    graph = model.graph
    stored = {tensor.name: tensor for tensor in graph.initializer}
    constant = {*stored, ""}  # an input that is left out has the empty name
    folded, left = [], []
    for node in graph.node:  # nodes are in topological order
        nested = any(attribute.HasField("g") or attribute.graphs for attribute in node.attribute)
        if constant.issuperset(node.input) and not nested and node.op_type not in _RANDOM:
            constant.update(node.output)
            folded.append(node)
        else:
            left.append(node)
    if all(node.op_type == "Constant" for node in folded):
        return
    read = {*names_read(left), *(value.name for value in graph.output)}
    names = [name for node in folded for name in node.output if name in read]
    used = {name for node in folded for name in node.input}
    part = helper.make_graph(
        folded,
        "constants",
        [],
        [helper.make_empty_tensor_value_info(name) for name in names],
        [stored[name] for name in sorted(used & set(stored))],
    )
    values = ReferenceEvaluator(
        helper.make_model(part, opset_imports=model.opset_import, ir_version=model.ir_version)
    ).run(None, {})
    del graph.node[:]
    graph.node.extend(left)
    graph.initializer.extend(numpy_helper.from_array(value, name) for name, value in zip(names, values, strict=True))


def _drop_allowzero(model: onnx.ModelProto) -> None:
    """Take ``allowzero`` from reshapes to shapes without zeros, where it has no effect but converters refuse it."""
    from onnx import numpy_helper

    stored = {tensor.name: tensor for tensor in model.graph.initializer}
    for node in model.graph.node:
        shape = stored.get(node.input[1]) if node.op_type == "Reshape" else None
        if shape is not None and numpy_helper.to_array(shape).all():
            kept = [attribute for attribute in node.attribute if attribute.name != "allowzero"]
            del node.attribute[:]
            node.attribute.extend(kept)

"""A model fit to be shared: nothing is copied but its operators, and weights are drawn again."""

from __future__ import annotations

import math
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np
    import onnx

_STANDARD = ("", "ai.onnx")
# Of the standard's own operators: attributes that hold anybody's words, and anybody's floats.
_TEXTS = frozenset({"value_string", "value_strings", "pattern", "stopwords", "pool_strings", "delimiter"})
_WEIGHTS = frozenset({"value_floats", "weights"})
# Of the standard's operators for trees and kernels: attributes that hold words of the standard. All others hold labels.
_LEARNED = "ai.onnx.ml"
_ENUMERATIONS = frozenset({"aggregate_function", "kernel_type", "nodes_modes", "norm", "post_transform"})
# Their inputs after the first are regions, factors and sizes: no more than two for each of eight axes.
_RESIZING, _MOST_FACTORS = frozenset({"Resize", "Upsample"}), 16
# Of smaller types whole numbers are quantised weights, and so are 32 bits of some length beside them.
_QUANTISED_BITS, _LEAST_QUANTISED = 16, 16


@dataclass
class Drawn:
    """What became of the weights: how many numbers were drawn again, and how many whole numbers were kept."""

    tensors: int = 0
    numbers: int = 0
    kept: int = 0
    names: dict[str, str] = field(default_factory=dict)


def anonymous(model: onnx.ModelProto, metadata: Mapping[str, str]) -> tuple[onnx.ModelProto, Drawn]:
    """Return a model made of the operators of another, with names of no meaning, and what its values are called now.

    It is put together from what says what is computed: operators, attributes, types, shapes and weights. So no
    name, doc string, metadata, producer or open dimension of the old one can be in it, nor what this version of onnx
    does not know.
    """
    from onnx import helper

    drawn = Drawn()
    graph = _graph(model.graph, drawn.names, "reduced")
    # A domain that nothing uses is only a name.
    used = {"", *_domains(graph)}
    opsets = [helper.make_opsetid(each.domain, each.version) for each in model.opset_import if each.domain in used]
    made = helper.make_model(graph, opset_imports=opsets, ir_version=model.ir_version)
    made.producer_name = "pytest-ngraph"
    for key, value in metadata.items():
        entry = made.metadata_props.add()
        entry.key, entry.value = key, value
    return made, drawn


def redraw(model: onnx.ModelProto, seed: int, drawn: Drawn) -> None:
    """Draw the weights of a model again, in place: of the same shape and type, with the mean and deviation of each.

    That is every tensor of floats with more than one element, in subgraphs and attributes too, lists of floats that
    operators hold as weights, and whole numbers that are quantised weights. Signs are kept where a tensor has one only:
    variances stay positive. Other whole numbers are shapes and indices, and kept, as is by what factors images are
    resized: the shapes that follow depend on it.
    """
    import numpy as np
    from onnx import numpy_helper

    from pytest_ngraph.workloads.onnx_files.tensors import all_tensors, precision_of

    random, is_quantised = np.random.default_rng([seed, 2]), precision_of(model) == "int8"
    factors = set(_factors(model.graph))
    for tensor in all_tensors(model):
        array, name = numpy_helper.to_array(tensor), tensor.name
        if (name in factors or array.tobytes() in factors) and array.size <= _MOST_FACTORS:
            continue
        if array.dtype.kind in "iub" or str(array.dtype) in ("int4", "uint4", "int2", "uint2"):
            bits = 8 * array.dtype.itemsize
            is_weight = array.dtype.kind != "b" and array.size >= _LEAST_QUANTISED
            if not is_weight or bits > (32 if is_quantised else _QUANTISED_BITS):
                drawn.kept += array.size
                continue
        elif array.size < 2 or array.dtype.kind in "OSU":
            continue
        tensor.CopyFrom(numpy_helper.from_array(_like(array, random), name))
        drawn.tensors += 1
        drawn.numbers += array.size
    for attribute in _weights_held(model.graph, factors):
        array = np.array(attribute.floats, np.float32)
        attribute.floats[:] = _like(array, random).tolist()
        drawn.tensors += 1
        drawn.numbers += array.size


def _weights_held(graph: onnx.GraphProto, factors: Container[str | bytes]) -> Iterator[onnx.AttributeProto]:
    """Yield the lists of floats that are weights: constants, and those of operators that are not the standard's own."""
    for node in graph.node:
        if node.op_type == "Constant" and node.output[0] in factors:
            continue
        for attribute in node.attribute:
            is_weights = node.domain not in _STANDARD or attribute.name in _WEIGHTS
            if is_weights and len(attribute.floats) > 1:
                yield attribute
        for inner in _subgraphs(node):
            yield from _weights_held(inner, factors)


def _factors(graph: onnx.GraphProto) -> Iterator[str | bytes]:
    """Yield which values images are resized by: the names of tensors, and what constants hold, which have no name."""
    from onnx import numpy_helper

    names = {name for node in graph.node if node.op_type in _RESIZING for name in node.input[1:]}
    yield from names - {""}
    for node in graph.node:
        if node.op_type == "Constant" and names & set(node.output):
            yield from (numpy_helper.to_array(each.t).tobytes() for each in node.attribute if each.HasField("t"))
        for inner in _subgraphs(node):
            yield from _factors(inner)


def _like(array: np.ndarray[Any, Any], random: np.random.Generator) -> np.ndarray[Any, Any]:
    """Return other numbers with about the mean, the deviation and the share of zeros of these, in the same range."""
    import numpy as np

    is_whole = array.dtype.kind in "iu" or "int" in str(array.dtype)
    wide = array.astype(np.float64)
    numbers = wide[np.isfinite(wide)]
    others = numbers[numbers != 0]
    if not others.size:
        same: np.ndarray[Any, Any] = array.copy()
        return same
    low, high = float(others.min()), float(others.max())
    made = random.normal(others.mean(), others.std(), array.shape)
    # Not cut off at the ends, which would give the least and the largest number as they were.
    made = np.where((made < low) | (made > high), random.uniform(low, high, array.shape), made)
    zeros = 1 - others.size / numbers.size
    made = np.where(random.random(array.shape) < zeros, 0.0, made)
    # What stands for no number, such as in a mask, says where: that is kept.
    made = np.where(np.isfinite(wide), made, wide)
    if is_whole:
        made = np.rint(made)
    like: np.ndarray[Any, Any] = made.astype(array.dtype)
    return like


def _subgraphs(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    from pytest_ngraph.workloads.onnx_files.tensors import subgraphs

    for attribute in node.attribute:
        yield from subgraphs(attribute)


def _domains(graph: onnx.GraphProto) -> Iterator[str]:
    for node in graph.node:
        yield node.domain
        for inner in _subgraphs(node):
            yield from _domains(inner)


def _graph(graph: onnx.GraphProto, names: dict[str, str], called: str) -> onnx.GraphProto:
    from onnx import helper

    def name(old: str, letter: str = "v") -> str:
        return names.setdefault(old, f"{letter}{len(names)}") if old else ""

    inputs = [_value(value, name(value.name, "x")) for value in graph.input]
    weights = [_tensor(tensor, name(tensor.name, "w")) for tensor in graph.initializer]
    nodes = [_node(node, number, names, called, name) for number, node in enumerate(graph.node)]
    outputs = [_value(value, name(value.name, "y")) for value in graph.output]
    return helper.make_graph(nodes, called, inputs, outputs, weights)


def _node(node: onnx.NodeProto, number: int, names: dict[str, str], called: str, name: Any) -> onnx.NodeProto:
    from onnx import helper

    inputs = [name(each) for each in node.input]
    attributes = [_attribute(each, node.domain, names, f"{called}_{number}") for each in node.attribute]
    made = helper.make_node(
        node.op_type, inputs, [name(each) for each in node.output], f"n{number}", domain=node.domain
    )
    made.attribute.extend(attributes)
    return made


def _attribute(attribute: onnx.AttributeProto, domain: str, names: dict[str, str], called: str) -> onnx.AttributeProto:
    import onnx

    made = onnx.AttributeProto(name=attribute.name, type=attribute.type)
    for name in ("f", "i"):
        if attribute.HasField(name):
            setattr(made, name, getattr(attribute, name))
    made.floats.extend(attribute.floats)
    made.ints.extend(attribute.ints)
    is_word = _is_word(attribute.name, domain)
    if attribute.HasField("s"):
        made.s = attribute.s if is_word or not attribute.s else b"s0"
    made.strings.extend(each if is_word else f"s{number}".encode() for number, each in enumerate(attribute.strings))
    if attribute.HasField("t"):
        made.t.CopyFrom(_tensor(attribute.t, ""))
    made.tensors.extend(_tensor(each, "") for each in attribute.tensors)
    if attribute.HasField("g"):
        made.g.CopyFrom(_graph(attribute.g, names, f"{called}_{attribute.name}"))
    made.graphs.extend(_graph(each, names, f"{called}_{number}") for number, each in enumerate(attribute.graphs))
    return made


def _is_word(attribute: str, domain: str) -> bool:
    """Return whether the texts of an attribute are words of the standard: others are anybody's."""
    if domain == _LEARNED:
        return attribute in _ENUMERATIONS
    return domain in _STANDARD and attribute not in _TEXTS


def _tensor(tensor: onnx.TensorProto, name: str) -> onnx.TensorProto:
    import onnx
    from onnx import helper, numpy_helper

    if tensor.data_type == onnx.TensorProto.STRING:
        words = [f"s{number}".encode() for number in range(math.prod(tensor.dims))]
        return helper.make_tensor(name, tensor.data_type, list(tensor.dims), words)
    return numpy_helper.from_array(numpy_helper.to_array(tensor), name)


def _value(value: onnx.ValueInfoProto, name: str) -> onnx.ValueInfoProto:
    """Return the type of a value by another name, without the names of its open dimensions."""
    import onnx

    made = onnx.ValueInfoProto(name=name)
    made.type.CopyFrom(value.type)
    made.type.ClearField("denotation")
    if made.type.HasField("tensor_type"):
        for dim in made.type.tensor_type.shape.dim:
            dim.ClearField("denotation")
            dim.ClearField("dim_param")
    elif value.type.WhichOneof("value") is not None:
        # Of sequences and optional values inside of subgraphs.
        made.type.CopyFrom(_bare(value.type))
    return made


def _bare(kind: onnx.TypeProto) -> onnx.TypeProto:
    import onnx

    made = onnx.TypeProto()
    if kind.HasField("tensor_type"):
        made.tensor_type.elem_type = kind.tensor_type.elem_type
        return made
    for held in ("sequence_type", "optional_type"):
        if kind.HasField(held):
            getattr(made, held).elem_type.CopyFrom(_bare(getattr(kind, held).elem_type))
    return made

"""Walk over the tensors and types of an ONNX model."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import onnx

# In the names of operators: DequantizeLinear, QLinearConv, MatMulInteger, ...
_QUANTISING = ("quantize", "qlinear", "integer")
_MOST_INLINE_BYTES = 2_000_000_000  # less than 2 GiB, as the graph needs room too


def all_tensors(model: onnx.ModelProto) -> Iterator[onnx.TensorProto]:
    """Yield every initializer and every tensor in a node's attribute, in subgraphs too."""
    yield from _graph_tensors(model.graph)


def is_large(model: onnx.ModelProto) -> bool:
    """Return whether the weights need files of their own: protobuf cannot hold 2 GiB in one message."""
    return sum(len(tensor.raw_data) or tensor.ByteSize() for tensor in all_tensors(model)) > _MOST_INLINE_BYTES


def precision_of(model: onnx.ModelProto) -> str:
    """Return the precision that a model is written in: int8 where it quantises, else the type of most weights."""
    from onnx import TensorProto

    if any(word in node.op_type.lower() for node in model.graph.node for word in _QUANTISING):
        return "int8"
    names = {
        TensorProto.FLOAT: "f32",
        TensorProto.FLOAT16: "f16",
        TensorProto.BFLOAT16: "bf16",
        TensorProto.DOUBLE: "f64",
    }
    sizes = dict.fromkeys(names.values(), 0)
    for tensor in all_tensors(model):
        if tensor.data_type in names:
            sizes[names[tensor.data_type]] += math.prod(tensor.dims)
    return max(sizes, key=sizes.__getitem__)


def names_read(nodes: Iterable[onnx.NodeProto]) -> Iterator[str]:
    """Yield the names of all values that nodes read, in their subgraphs too."""
    for node in nodes:
        yield from node.input
        for attribute in node.attribute:
            for graph in subgraphs(attribute):
                yield from names_read(graph.node)


def drop_unused(graph: onnx.GraphProto) -> None:
    """Remove initializers that nothing reads any more, such as the shapes of constants that were replaced."""
    read = {*names_read(graph.node), *(value.name for value in graph.output)}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    del graph.initializer[:]
    graph.initializer.extend(kept)


def _graph_tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    yield from graph.initializer
    for attribute in (attribute for node in graph.node for attribute in node.attribute):
        if attribute.HasField("t"):
            yield attribute.t
        yield from attribute.tensors
        for subgraph in subgraphs(attribute):
            yield from _graph_tensors(subgraph)


def subgraphs(attribute: onnx.AttributeProto) -> list[onnx.GraphProto]:
    """Return the graphs that an attribute holds: the branches and bodies of If, Loop and Scan."""
    return [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]


def external_files(model: onnx.ModelProto, folder: Path) -> list[Path]:
    """Return the files beside the model that hold tensors of it, or samples of its inputs, in order of their names."""
    names = {entry.value for tensor in all_tensors(model) for entry in tensor.external_data if entry.key == "location"}
    names |= {entry.value for entry in model.metadata_props if entry.key == "ngraph.samples" and entry.value}
    return [folder / name for name in sorted(names)]


def graph_inputs(model: onnx.ModelProto) -> list[onnx.ValueInfoProto]:
    """Return the inputs that have to be fed: those that are not initializers (old files list both)."""
    given = {tensor.name for tensor in model.graph.initializer}
    return [value for value in model.graph.input if value.name not in given]

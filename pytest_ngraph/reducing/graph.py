"""An ONNX graph to cut parts from: which values nodes read, which of them are constant, and parts as models."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any
from typing import Protocol as TypingProtocol

from pytest_ngraph.workloads.onnx_files.tensors import graph_inputs, names_read

if TYPE_CHECKING:
    import numpy as np
    import onnx

# They depend on nothing but the shape of what they read, and every shape is fixed.
_OF_SHAPES = frozenset({"Shape", "Size"})
_RANDOM = frozenset(
    {"Bernoulli", "Multinomial", "RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike"}
)


class NoPart(Exception):
    """Nodes that make no model by themselves. The text is the reason."""


class Values(TypingProtocol):
    """What the whole model gives its values."""

    def array(self, name: str) -> np.ndarray[Any, Any]:
        """Return a value in the sample that is timed. Raise NoPart where it is no tensor of numbers."""

    def is_fixed(self, name: str) -> bool:
        """Return whether a value has one shape in all samples."""


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a graph as a model. ``inputs`` are values of the whole model, or weights where there are no such.

    ``batch`` is the first dimension of its first input.
    """

    model: onnx.ModelProto
    nodes: tuple[int, ...]
    inputs: tuple[str, ...]
    batch: int


class Graph:
    """The graph of a model whose shapes are fixed. Its nodes go by their numbers, in topological order.

    Functions of the model are inlined and constants that nodes hold are initializers: neither is a node.
    """

    def __init__(self, model: onnx.ModelProto) -> None:
        """Take a model with its weights, which may be changed."""
        self.model = model = _plain(model)
        self.nodes = list(model.graph.node)
        self.stored = {tensor.name: tensor for tensor in model.graph.initializer}
        self.inputs = [value.name for value in graph_inputs(model)]
        self.outputs = [value.name for value in model.graph.output]
        self.makers = {name: number for number, node in enumerate(self.nodes) for name in node.output if name}
        outer = {*self.stored, *self.inputs, *self.makers}
        self.reads = [tuple(dict.fromkeys(name for name in _read_by(node) if name in outer)) for node in self.nodes]
        self.readers: dict[str, list[int]] = {}
        for number, names in enumerate(self.reads):
            for name in names:
                self.readers.setdefault(name, []).append(number)

    def __len__(self) -> int:
        return len(self.nodes)

    @cached_property
    def constant(self) -> frozenset[str]:
        """Return the values that are the same whatever the inputs are."""
        found = {*self.stored}
        for node, reads in zip(self.nodes, self.reads, strict=True):
            if node.op_type not in _RANDOM and (node.op_type in _OF_SHAPES or found.issuperset(reads)):
                found.update(filter(None, node.output))
        return frozenset(found)

    def words(self, nodes: Sequence[int], most: int = 6) -> str:
        """Return the operators of some nodes in a line."""
        kinds = [self.nodes[number].op_type for number in nodes]
        return ", ".join(kinds[:most]) + (f" and {len(kinds) - most} more" if len(kinds) > most else "")

    def before(self, node: int, among: Iterable[int]) -> tuple[int, ...]:
        """Return a node and those of ``among`` that it depends on through them."""
        left, found = set(among), {node}
        for number in range(node, -1, -1):
            if number in found:
                makers = (self.makers.get(name) for name in self.reads[number])
                found.update(each for each in makers if each is not None and each in left)
        return tuple(sorted(found))

    def components(self, nodes: Sequence[int]) -> list[tuple[int, ...]]:
        """Return the connected parts of some nodes, the largest first."""
        left, found = set(nodes), list[tuple[int, ...]]()
        while left:
            reached, waiting = set[int](), [min(left)]
            while waiting:
                number = waiting.pop()
                if number in left:
                    left.discard(number)
                    reached.add(number)
                    near = [self.makers.get(name) for name in self.reads[number]]
                    near += [reader for name in self.nodes[number].output for reader in self.readers.get(name, [])]
                    waiting += [each for each in near if each is not None and each in left]
            found.append(tuple(sorted(reached)))
        return sorted(found, key=len, reverse=True)

    def part(self, nodes: Sequence[int], values: Values) -> Part:
        """Return some nodes as a model: what they read of others are its inputs, or constants where it is constant.

        Raises NoPart where they make no model.
        """
        from onnx import helper, numpy_helper

        chosen = tuple(sorted(set(nodes)))
        made = {name for number in chosen for name in self.nodes[number].output if name}
        read = dict.fromkeys(name for number in chosen for name in self.reads[number] if name not in made)
        weights = [self.stored[name] for name in read if name in self.stored]
        folded = [name for name in read if name in self.constant and name not in self.stored]
        weights += [numpy_helper.from_array(values.array(name), name) for name in folded]
        inputs = [name for name in read if name not in self.constant]
        if not inputs:
            # What is constant would be computed when it is compiled.
            inputs = [_largest(weights)]
            weights = [tensor for tensor in weights if tensor.name != inputs[0]]
        arrays = {name: values.array(name) for name in inputs}
        for name, array in arrays.items():
            if not array.size or not values.is_fixed(name):
                raise NoPart(f"{name} has no elements, or another shape each time")
        graph = helper.make_graph(
            [self.nodes[number] for number in chosen],
            "part",
            [_value_info(name, array) for name, array in arrays.items()],
            [self._output(name, values) for name in self._outputs(chosen)],
            weights,
        )
        model = helper.make_model(
            graph, opset_imports=self.model.opset_import, ir_version=max(4, self.model.ir_version)
        )
        leading = [array.shape[0] for array in arrays.values() if array.shape]
        return Part(model, chosen, tuple(inputs), leading[0] if leading else 1)

    def _outputs(self, chosen: Sequence[int]) -> list[str]:
        """Return what nodes give: outputs of the model, and what others of them do not read."""
        inner = {name for number in chosen for name in self.reads[number]}
        made = [name for number in chosen for name in self.nodes[number].output if name]
        ends = [name for name in made if name in self.outputs or (name not in inner and name in self.readers)]
        return ends or [next(name for name in reversed(made) if name not in inner)]

    def _output(self, name: str, values: Values) -> Any:
        array = values.array(name)
        return _value_info(name, array, has_shape=values.is_fixed(name))


def _plain(model: onnx.ModelProto) -> onnx.ModelProto:
    """Return a model without functions of its own, and with the constants of its nodes as initializers."""
    import onnx
    from onnx import inliner

    if model.functions:
        model = inliner.inline_local_functions(model)
    kept = []
    for node in model.graph.node:
        held = _held(node)
        if held is None:
            kept.append(node)
            continue
        tensor = onnx.TensorProto()
        tensor.CopyFrom(held)
        tensor.name = node.output[0]
        model.graph.initializer.append(tensor)
    del model.graph.node[:]
    model.graph.node.extend(kept)
    return model


def _held(node: onnx.NodeProto) -> onnx.TensorProto | None:
    """Return the tensor of a node that only holds one."""
    import numpy as np
    from onnx import numpy_helper

    if node.op_type != "Constant" or node.domain not in ("", "ai.onnx") or len(node.attribute) != 1:
        return None
    (attribute,) = node.attribute
    if attribute.name == "value":
        return attribute.t
    kinds = {"value_int": np.int64, "value_ints": np.int64, "value_float": np.float32, "value_floats": np.float32}
    if attribute.name not in kinds:
        return None
    values = {"value_int": attribute.i, "value_ints": attribute.ints, "value_float": attribute.f}
    given: Any = values.get(attribute.name, attribute.floats)
    array = np.asarray(given if attribute.name in ("value_int", "value_float") else list(given), kinds[attribute.name])
    return numpy_helper.from_array(array)


def _read_by(node: onnx.NodeProto) -> Iterable[str]:
    """Yield what a node reads, in its subgraphs too, whose outputs may be values of around them."""
    yield from names_read([node])
    for attribute in node.attribute:
        for graph in [*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs]:
            yield from (value.name for value in graph.output)


def _largest(weights: Sequence[onnx.TensorProto]) -> str:
    """Return the name of the largest tensor of floats. Raise NoPart where there is none."""
    import math

    from onnx import TensorProto

    kinds = (TensorProto.FLOAT, TensorProto.FLOAT16, TensorProto.DOUBLE)
    floats = [tensor for tensor in weights if tensor.data_type in kinds and math.prod(tensor.dims)]
    if not floats:
        raise NoPart("it reads nothing that could be an input")
    return str(max(floats, key=lambda tensor: math.prod(tensor.dims)).name)


def _value_info(name: str, array: np.ndarray[Any, Any], *, has_shape: bool = True) -> Any:
    from onnx import helper

    kind = helper.np_dtype_to_tensor_dtype(array.dtype)
    return helper.make_tensor_value_info(name, kind, array.shape if has_shape else None)

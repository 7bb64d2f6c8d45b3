"""The ONNX file that nodes of a profile are joined with: names of its nodes, what feeds what, and their layers."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

# The exporter's: the modules that a node's call was in, from the outermost, and the call itself.
_SCOPES = "pkg.torch.onnx.name_scopes"
# The exporter's wrapper around every model.
_WRAPPER = "module"
_NUMBERED = re.compile(r"_\d+\Z")
# What runtimes put behind or around the names of nodes that they took over.
# A weight of a layer, or what was made of it.
_WEIGHT = re.compile(r"\A(.+)\.(?:weight|bias)(?:_\w+)?\Z")
_SUFFIX = re.compile(r"(_nchwc|_nhwc|_token_\d+|_fused|/[A-Za-z]\w*|_kernel_time)\Z")
_AROUND = re.compile(r"\A(?:PWN|Reformatting\w*|fused|Fused)\s*\(?\s*(.+?)\s*\)?\Z")


@dataclass(frozen=True, slots=True)
class GraphNode:
    """A node of the ONNX file. ``layers`` are the parts of the module that it computes."""

    name: str
    operator: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Graph:
    """The nodes of an ONNX file in their order."""

    nodes: Sequence[GraphNode]

    @cached_property
    def by_name(self) -> Mapping[str, GraphNode]:
        """Return the nodes by their names."""
        return {node.name: node for node in self.nodes}

    @cached_property
    def producers(self) -> Mapping[str, GraphNode]:
        """Return which node makes a tensor."""
        return {output: node for node in self.nodes for output in node.outputs}

    @cached_property
    def consumers(self) -> Mapping[str, Sequence[GraphNode]]:
        """Return which nodes read a tensor."""
        found: dict[str, list[GraphNode]] = {}
        for node in self.nodes:
            for name in node.inputs:
                found.setdefault(name, []).append(node)
        return found

    def find(self, name: str) -> GraphNode | None:
        """Return the node that a runtime's name is of: its own, its tensor's, or with what runtimes put behind them."""
        while name:
            found = self.by_name.get(name) or self.producers.get(name)
            if found is not None:
                return found
            shorter = _SUFFIX.sub("", name)
            if shorter == name:
                around = _AROUND.match(name)
                shorter = around[1] if around else ""
            name = shorter
        return None

    def before(self, node: GraphNode) -> Iterator[GraphNode]:
        """Yield the nodes that feed a node."""
        for name in node.inputs:
            if name in self.producers:
                yield self.producers[name]

    def after(self, node: GraphNode) -> Iterator[GraphNode]:
        """Yield the nodes that a node feeds."""
        for name in node.outputs:
            yield from self.consumers.get(name, ())


def read_graph(path: Path) -> Graph:
    """Read the nodes of an ONNX file, without its weights. Nodes without a name are named by their first output."""
    import onnx

    model = onnx.load(str(path), load_external_data=False)
    read = [
        (
            each.name or (each.output[0] if each.output else ""),
            each.op_type,
            tuple(name for name in each.input if name),
            tuple(name for name in each.output if name),
            next((entry.value for entry in each.metadata_props if entry.key == _SCOPES), ""),
        )
        for each in model.graph.node
    ]
    scopes = {name: _scopes(text) for name, _, _, _, text in read}
    # Modules that others were called in.
    containers = {path for found in scopes.values() for path in found[:-2]}
    return Graph(
        [
            GraphNode(name, operator, inputs, outputs, tuple(_layers(scopes[name], inputs, containers)))
            for name, operator, inputs, outputs, _ in read
        ]
    )


def _scopes(text: str) -> tuple[str, ...]:
    """Return the modules' paths of a node, from the outermost, and the call that it was made of last."""
    try:
        found = ast.literal_eval(text) if text else []
    except (ValueError, SyntaxError):
        return ()
    if not isinstance(found, list) or len(found) < 2 or not all(isinstance(each, str) for each in found):
        return ()
    return (*map(unwrapped, found[:-1]), found[-1])


def unwrapped(path: str) -> str:
    """Return the path of a layer in a model from that in the module that calls the model with tensors by position."""
    return path.removeprefix(f"{_WRAPPER}.") if path != _WRAPPER else ""


def _layers(scopes: Sequence[str], inputs: Iterable[str], containers: set[str]) -> Iterator[str]:
    """Yield the layers that a node computes: the one it was called in, and those whose weights it has."""
    if scopes:
        *_, path, call = scopes
        # What a container does itself, such as the sum of a residual block, is no layer of it.
        yield path if path and path not in containers else f"{path}:{_NUMBERED.sub('', call)}"
    for name in inputs:
        if found := _WEIGHT.match(name):
            yield unwrapped(found[1])

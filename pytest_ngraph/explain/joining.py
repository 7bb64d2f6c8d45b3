"""Joining a profile with the ONNX file: which of its nodes each node of the runtime computes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from pytest_ngraph.explain.families import is_quantising, only_reshapes, same_operator
from pytest_ngraph.explain.graph import Graph, GraphNode
from pytest_ngraph.explain.profile import ProfiledNode


def parts_of(nodes: Sequence[ProfiledNode], graph: Graph) -> list[tuple[str, ...]]:
    """Return the ONNX nodes that each node of a runtime computes, in the order of the file.

    A runtime names some of what it has fused, often one node alone. What nobody names is in the node that runs where
    its inputs are: a layer before an activation that names the fused node, an activation or a sum behind the last of
    its inputs, and what dequantises weights or activations in the node that reads them. What the file has and no node
    could have computed is in none.
    """
    owners: dict[str, int] = {}
    named: list[list[GraphNode]] = []
    for number, node in enumerate(nodes):
        mine = [
            found for name in (*node.contains, *(() if node.contains else (node.name,))) if (found := graph.find(name))
        ]
        named.append(mine)
        for found in mine:
            owners.setdefault(found.name, number)
    for number, node in enumerate(nodes):
        for found in _on_the_way(node, named[number], graph, owners):
            owners.setdefault(found.name, number)
    _give_rest(nodes, graph, owners)
    order = {node.name: place for place, node in enumerate(graph.nodes)}
    parts: list[set[str]] = [{found.name for found in mine} for mine in named]
    for name, number in owners.items():
        parts[number].add(name)
    return [tuple(sorted(each, key=order.__getitem__)) for each in parts]


def _on_the_way(
    node: ProfiledNode, named: Sequence[GraphNode], graph: Graph, owners: Mapping[str, int]
) -> Iterator[GraphNode]:
    """Yield what lies between a node's name and the operator that it runs as, where these differ."""
    if not named or not node.operator or any(same_operator(node.operator, each.operator) for each in named):
        return
    seen = {named[0].name}
    # Each with the way to it.
    ways: list[list[GraphNode]] = [[each] for each in graph.before(named[0])]
    while ways:
        way = ways.pop(0)
        last = way[-1]
        if last.name in owners or last.name in seen:
            continue
        seen.add(last.name)
        if same_operator(node.operator, last.operator):
            yield from way
            return
        ways += [[*way, each] for each in graph.before(last)]


def _give_rest(nodes: Sequence[ProfiledNode], graph: Graph, owners: dict[str, int]) -> None:
    """Give nodes that nobody named to those that must compute them: forwards, then what is left backwards."""
    for node in graph.nodes:
        if node.name not in owners and is_quantising(node.operator) != "DQ" and not only_reshapes(node.operator):
            before = _owners_near(node, nodes, graph, owners)
            if before:
                owners[node.name] = max(before)
    for node in reversed(graph.nodes):
        if node.name not in owners and not only_reshapes(node.operator):
            after = [owners[each.name] for each in graph.after(node) if each.name in owners]
            if after:
                owners[node.name] = min(after)


def _owners_near(node: GraphNode, nodes: Sequence[ProfiledNode], graph: Graph, owners: Mapping[str, int]) -> set[int]:
    """Return which nodes of the runtime feed one. What only quantises computes no activation: it is looked behind."""
    found: set[int] = set()
    waiting, seen = list(graph.before(node)), set[str]()
    while waiting:
        each = waiting.pop()
        if each.name in seen:
            continue
        seen.add(each.name)
        owner = owners.get(each.name)
        if owner is None or (is_quantising(nodes[owner].operator) and not is_quantising(node.operator)):
            waiting += graph.before(each)
        else:
            found.add(owner)
    return found

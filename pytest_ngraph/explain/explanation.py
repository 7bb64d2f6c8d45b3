"""An explanation: what ran in one cell, held against the clock, as it is stored, shown and compared."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from pytest_ngraph.errors import CompileFailed, StoreError
from pytest_ngraph.explain.families import added_kind, shown_kind
from pytest_ngraph.explain.graph import Graph
from pytest_ngraph.explain.joining import parts_of
from pytest_ngraph.explain.profile import MODULE, ONNX, Profile, ProfiledNode
from pytest_ngraph.texts.shown import one_line

# So many nodes are kept by name; what a runtime says of more is added up in one.
MOST_NODES = 4000
_MOST_PARTS, _LETTERS, _MOST_NOTES = 400, 200, 20


@dataclass(frozen=True, slots=True)
class RanNode:
    """A node that ran. ``parts`` are the ONNX nodes that it computes, ``layers`` those of the module.

    ``seconds`` is None where the profile has no usable number. ``added`` is what it does where the compiler has added
    it: one of ``families.ADDED``. ``is_stranger`` says that the ONNX file has nothing of the name it was given.
    """

    name: str
    kind: str
    operator: str
    seconds: float | None
    provider: str = ""
    kernel: str = ""
    precision: str = ""
    parts: tuple[str, ...] = ()
    layers: tuple[str, ...] = ()
    added: str = ""
    is_stranger: bool = False


@dataclass(frozen=True, slots=True)
class Explanation:
    """What ran in a cell, by its ``label``. Times are seconds of a call.

    ``plain_seconds`` is a call in the same process before anything was profiled, ``profiled_seconds`` one that was.
    ``names`` is what nodes are joined by: see ``Profile``. ``placement`` says what really ran.
    """

    label: str
    nodes: tuple[RanNode, ...]
    plain_seconds: float
    profiled_seconds: float
    calls: int
    how: str
    names: str = ONNX
    notes: tuple[str, ...] = ()
    placement: tuple[tuple[str, str], ...] = ()

    @property
    def nodes_seconds(self) -> float:
        """Return what all nodes take together."""
        return math.fsum(node.seconds or 0.0 for node in self.nodes)

    @property
    def coverage(self) -> float:
        """Return the share of a plain call that its nodes account for. Above 1 where the profile slows the nodes."""
        return self.nodes_seconds / self.plain_seconds if self.plain_seconds > 0 else 0.0

    @property
    def slowing(self) -> float:
        """Return how many times longer a call takes while it is profiled."""
        return self.profiled_seconds / self.plain_seconds if self.plain_seconds > 0 else math.inf

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that ``from_json`` reads back. What is empty of a node is left out."""
        nodes = [
            {name: value for name, value in asdict(node).items() if value or name == "seconds"} for node in self.nodes
        ]
        return {**{name: getattr(self, name) for name in _FACTS}, "nodes": nodes}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Explanation:
        """Read the form that ``to_json`` writes. Raise StoreError for any other, such as one of a later version."""
        try:
            facts = {name: data[name] for name in _FACTS}
            nodes = tuple(_node_from(each) for each in data["nodes"])
            pairs = tuple((str(name), str(value)) for name, value in facts["placement"])
            facts |= {"notes": tuple(facts["notes"]), "placement": pairs}
            found = cls(nodes=nodes, **facts)
            is_one = all(map(_is_time, (found.plain_seconds, found.profiled_seconds))) and type(found.calls) is int
            is_one = is_one and all(isinstance(note, str) for note in found.notes)
        except (KeyError, TypeError, ValueError, AttributeError):
            is_one = False
        if not is_one:
            raise StoreError(
                "what is kept of a cell is no explanation that this version reads (ngraph explain CELL --again "
                "profiles it once more)"
            )
        return found


_FACTS = ("label", "plain_seconds", "profiled_seconds", "calls", "how", "names", "notes", "placement")


def _is_time(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0  # type: ignore[arg-type, operator]


def _node_from(data: Mapping[str, Any]) -> RanNode:
    given = {"operator": "", "kind": "unknown", **data}
    if given.get("seconds") is not None and not _is_time(given["seconds"]):
        raise ValueError(given["seconds"])
    return RanNode(**{**given, "parts": tuple(given.get("parts", ())), "layers": tuple(given.get("layers", ()))})


def explanation_of(
    label: str,
    profile: Profile,
    graph: Graph | None,
    plain_seconds: float,
    placement: Iterable[tuple[str, str]] = (),
) -> Explanation:
    """Return what is kept of a profile, joined with the ONNX file where there is one.

    What an adapter gives is anybody's: texts are cut and cleaned, what is no time is none, and names that the file does
    not have are marked. Raises CompileFailed where it is no profile at all.
    """
    if not isinstance(profile, Profile):
        raise CompileFailed(f"its explain() gave {one_line(repr(profile), 60)} (expected a Profile)")
    whole = _finite(profile.call_seconds)
    if whole is None or whole <= 0:
        said = one_line(repr(profile.call_seconds), 40)
        raise CompileFailed(f"its explain() says that a call takes {said} s (expected a number above 0)")
    given = [_clean(node, number) for number, node in enumerate(profile.nodes)]
    notes = [one_line(str(note), _LETTERS * 2) for note in list(profile.notes)[:_MOST_NOTES]]
    odd = sum(
        1 for raw, node in zip(profile.nodes, given, strict=True) if raw.seconds is not None and node.seconds is None
    )
    if odd:
        notes.append(f"{odd} of its nodes have a time below zero or none that is a number: left out")
    if not given:
        notes.append("the profile names no node")
    names = profile.names if profile.names in (ONNX, MODULE) else ""
    nodes = _joined(given, graph, names)
    strangers = sum(node.is_stranger for node in nodes)
    if strangers:
        notes.append(f"{strangers} of its nodes are not in the ONNX file by the names it gives them")
    kept, more = _most(nodes)
    return Explanation(
        one_line(label),
        kept,
        plain_seconds,
        whole,
        max(1, int(profile.calls)),
        one_line(str(profile.how), _LETTERS),
        names,
        (*notes, *more),
        tuple(placement),
    )


def _clean(node: ProfiledNode, number: int) -> ProfiledNode:
    """Return a node whose texts are short and clean. One without a name is known by its place."""
    contains = tuple(one_line(str(each), _LETTERS) for each in tuple(node.contains)[:_MOST_PARTS])
    texts = {
        name: one_line(str(getattr(node, name) or ""), _LETTERS)
        for name in ("operator", "provider", "kernel", "precision")
    }
    name = one_line(str(node.name or ""), _LETTERS) or f"node {number + 1}"
    return ProfiledNode(name, seconds=_finite(node.seconds), contains=contains, **texts)


def _finite(value: object) -> float | None:
    """Return seconds that an adapter gives, or None for what cannot be any."""
    try:
        number = float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError, OverflowError):
        return None
    return number if math.isfinite(number) and number >= 0 and not isinstance(value, (bool, str)) else None


def _joined(given: Sequence[ProfiledNode], graph: Graph | None, names: str) -> list[RanNode]:
    parts: Sequence[tuple[str, ...]] = [()] * len(given)
    if names == ONNX and graph is not None:
        parts = parts_of(given, graph)
    return [_ran(node, mine, graph, names) for node, mine in zip(given, parts, strict=True)]


def _ran(node: ProfiledNode, parts: tuple[str, ...], graph: Graph | None, names: str) -> RanNode:
    computed = [graph.by_name[name].operator for name in parts] if graph is not None else []
    is_of_the_model = bool(computed) or (names == MODULE and bool(node.contains))
    layers = node.contains if names == MODULE else ()
    if graph is not None and names == ONNX:
        layers = tuple(dict.fromkeys(layer for name in parts for layer in graph.by_name[name].layers))
    added = added_kind(node.operator or node.name, node.name, is_of_the_model=is_of_the_model)
    return RanNode(
        node.name,
        shown_kind(node.operator or node.name),
        node.operator,
        node.seconds,
        node.provider,
        node.kernel,
        node.precision,
        parts,
        layers,
        added,
        is_stranger=names == ONNX and graph is not None and not parts and not added,
    )


def _most(nodes: Sequence[RanNode]) -> tuple[tuple[RanNode, ...], list[str]]:
    """Return as many nodes as are kept, those that take longest, in their order, the rest as one."""
    if len(nodes) <= MOST_NODES:
        return tuple(nodes), []
    by_time = sorted(range(len(nodes)), key=lambda number: -(nodes[number].seconds or 0.0))
    places = set(by_time[:MOST_NODES])
    rest = [nodes[number] for number in by_time[MOST_NODES:]]
    folded = RanNode(f"{len(rest)} further nodes", "further", "", math.fsum(node.seconds or 0.0 for node in rest))
    kept = tuple(node for number, node in enumerate(nodes) if number in places)
    return (*kept, folded), [f"{len(rest)} nodes that take least are kept as one"]

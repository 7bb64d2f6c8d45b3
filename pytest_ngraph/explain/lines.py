"""Explanations as text of 80 columns, and as rows for files."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from pytest_ngraph import units
from pytest_ngraph.explain.compare import Comparison, Row
from pytest_ngraph.explain.explanation import Explanation, RanNode
from pytest_ngraph.texts.fitting import cut_apart

WIDTH = 80
# Of a table, unless all is asked for.
MOST_ROWS = 15
_NODE, _KERNEL, _KIND = 25, 22, 11
_KINDS, _PART = 5, 24
_QUANTISING = ("quantizelinear",)


def explanation_lines(
    found: Explanation, measured: str = "", measured_seconds: float | None = None, most: int | None = MOST_ROWS
) -> Iterator[str]:
    """Yield what ran in a cell: its times, the kinds of its nodes, and those that take longest.

    ``measured`` says what launches measured, ``measured_seconds`` is that of a call. Of more than ``most`` nodes the
    rest is one line.
    """
    yield from _folded(found.label, "")
    for fact in explanation_facts(found, measured, measured_seconds):
        yield from _folded(fact)
    for note in found.notes:
        yield from _folded(f"note: {note}", "  ", "    ")
    if not found.nodes:
        return
    yield from _folded(f"by kind: {', '.join(kinds_of(found))}", "  ", "    ")
    yield from _table(found, most)


def explanation_facts(found: Explanation, measured: str = "", measured_seconds: float | None = None) -> list[str]:
    """Return what a call takes, measured and profiled, and how much of it the nodes account for."""
    call = f"measured {measured}, " if measured else "not measured with this code here, "
    whole, of_what = (measured_seconds, "measured") if measured_seconds else (found.plain_seconds, "plain")
    share = units.fraction(found.nodes_seconds / whole) if whole else "?"
    count = units.count(len(found.nodes), "node")
    return [
        f"a call: {call}{units.seconds(found.plain_seconds)} in this process, "
        f"{units.seconds(found.profiled_seconds)} while profiled ({_slowing(found)})",
        f"{count}, {units.seconds(found.nodes_seconds)}: {share} of the {of_what} call, by {found.how}",
    ]


def _slowing(found: Explanation) -> str:
    return f"{found.slowing:.2g} times"


def _folded(text: str, indent: str = "  ", rest: str = "    ") -> list[str]:
    return textwrap.wrap(text, WIDTH, initial_indent=indent, subsequent_indent=rest, break_on_hyphens=False)


def by_kind(nodes: Iterable[RanNode]) -> list[tuple[str, int, float]]:
    """Return the kinds of some nodes, how many of each and their seconds, those that take longest first."""
    found: dict[str, tuple[int, float]] = {}
    for node in nodes:
        kind = node.added or node.kind
        count, seconds = found.get(kind, (0, 0.0))
        found[kind] = count + 1, seconds + (node.seconds or 0.0)
    return sorted(((kind, *numbers) for kind, numbers in found.items()), key=lambda row: (-row[2], row[0]))


def kinds_of(found: Explanation) -> Iterator[str]:
    """Yield the kinds that take longest, with how many nodes and which share each is, and how many others there are."""
    rows, whole = by_kind(found.nodes), found.nodes_seconds
    for kind, count, seconds in rows[:_KINDS]:
        yield f"{count} {kind} {units.fraction(seconds / whole) if whole else '?'}"
    if len(rows) > _KINDS:
        yield f"{units.count(sum(count for _, count, _ in rows[_KINDS:]), 'other')}"


def _table(found: Explanation, most: int | None) -> Iterator[str]:
    order = sorted(found.nodes, key=lambda node: -(node.seconds or 0.0))
    shown, rest = (order, []) if most is None else (order[:most], order[most:])
    names = cut_apart((node.name for node in shown), _NODE)
    yield f"  {'share':>6} {'time':>8}  {'kind':<{_KIND}} {'node':<{_NODE}} kernel, precision"
    for node in shown:
        kernel = _cut(" ".join(filter(None, (node.kernel or node.operator, node.precision))), _KERNEL)
        yield (
            f"  {share_words(node.seconds, found.nodes_seconds):>6} {time_words(node.seconds):>8}  "
            f"{_cut(node.added or node.kind, _KIND):<{_KIND}} {names[node.name]:<{_NODE}} {kernel}"
        ).rstrip()
        if inside := contents(node):
            yield _cut(f"{'':19}{inside}", WIDTH)
    if rest:
        seconds = sum(node.seconds or 0.0 for node in rest)
        share = share_words(seconds, found.nodes_seconds)
        yield f"  {share:>6} {time_words(seconds):>8}  {len(rest)} further nodes (--all)"


def contents(node: RanNode) -> str:
    """Return what is in a node where it is more than its own, or that the ONNX file has no such node."""
    if node.is_stranger:
        return "not in the ONNX file"
    parts = [part for part in node.parts if not part.lower().endswith(_QUANTISING)]
    quantising = len(node.parts) - len(parts)
    if len(node.parts) < 2:
        return ""
    more = [f"{quantising} Q/DQ"] if quantising and parts else []
    return f"= {' + '.join([*(parts or node.parts), *more])}"


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else f"{text[: width - 1]}…"


def share_words(seconds: float | None, whole: float) -> str:
    """Write which share of all nodes some seconds are."""
    return "?" if seconds is None or not whole else f"{100 * seconds / whole:.1f} %"


def time_words(seconds: float | None) -> str:
    """Write what a node takes, where its profile says so."""
    return "no time" if seconds is None else units.seconds(seconds)


def comparison_lines(found: Comparison, most: int | None = MOST_ROWS) -> Iterator[str]:
    """Yield what differs between two cells: the sentence, or why there is none, and the parts that cost most."""
    yield from _folded(found.sentence, "", "  ")
    for fact in comparison_facts(found):
        yield from _folded(fact)
    rows = differing_rows(found)
    shown, rest = (rows, []) if most is None else (rows[:most], rows[most:])
    names = cut_apart((row.name for row in shown), _PART)
    cut = cut_apart(found.names, 9)
    heads = [cut[name] for name in found.names]
    yield f"  {'differs':>9} {heads[0]:>9} {heads[1]:>9}  {'what':<10} {'kind':<{_KIND}} part"
    for row in shown:
        times = [
            units.seconds(seconds) if nodes else "-"
            for seconds, nodes in zip(row.seconds, (row.first, row.second), strict=True)
        ]
        what = row_words(row.what, len(row.first), len(row.second))
        yield (
            f"  {signed_time(row.delta):>9} {times[0]:>9} {times[1]:>9}  {what:<10} "
            f"{_cut(row.kind, _KIND):<{_KIND}} {names[row.name]}"
        ).rstrip()
    if rest:
        yield f"  {signed_time(sum(row.delta for row in rest)):>9} {'':19}  {len(rest)} further parts (--all)"


def comparison_facts(found: Comparison) -> list[str]:
    """Return what clock and profiles say of two cells, and what their parts are joined by."""
    first, second = found.names
    measured, one, two = found.measured, found.first.nodes_seconds, found.second.nodes_seconds
    clock = units.factor(measured.second / measured.first) if measured.first > 0 else "?"
    interval = units.interval(measured.low, measured.high, units.factor)
    profile = units.factor(two / one) if one > 0 else "?"
    return [
        f"{second} takes {clock}{interval} of the time of {first} by {measured.source}, {profile} by the profiles, "
        f"which see {units.fraction(found.first.coverage)} and {units.fraction(found.second.coverage)} of a plain call",
        f"joined by {found.joined_by}",
    ]


def differing_rows(found: Comparison) -> list[Row]:
    """Return the parts that differ, the one that costs most first."""
    return [row for row in found.rows if row.delta or row.what in ("added", "gone")]


def row_words(what: str, first: int, second: int) -> str:
    """Write how a part differs: ``1 -> 3`` nodes, or another kernel or precision."""
    return f"{first} -> {second}" if what in ("fused", "unfused") else what


def signed_time(seconds: float) -> str:
    """Write by how much something is slower, or faster."""
    return f"{'+' if seconds > 0 else '-' if seconds < 0 else ''}{units.seconds(abs(seconds))}"


def explanation_rows(found: Explanation) -> list[dict[str, Any]]:
    """Return a row for each node, in the order in which they ran, with every digit."""
    whole = found.nodes_seconds
    return [
        {
            "cell": found.label,
            "place": number,
            "node": node.name,
            "kind": node.added or node.kind,
            "operator": node.operator,
            "seconds": node.seconds,
            "share": None if node.seconds is None or not whole else node.seconds / whole,
            "provider": node.provider,
            "kernel": node.kernel,
            "precision": node.precision,
            "added": bool(node.added),
            "in_onnx_file": None if not (node.parts or node.is_stranger) else not node.is_stranger,
            "onnx_nodes": " ".join(node.parts),
            "layers": " ".join(node.layers),
        }
        for number, node in enumerate(found.nodes, 1)
    ]


def comparison_json(found: Comparison) -> Mapping[str, Any]:
    """Return a comparison as JSON-able values."""
    return {
        "names": list(found.names),
        "sentence": found.sentence,
        "is_said": found.is_said,
        "joined_by": found.joined_by,
        "measured": {
            "seconds": [found.measured.first, found.measured.second],
            "ratio_interval": [found.measured.low, found.measured.high],
            "source": found.measured.source,
        },
        "parts": [
            {
                "part": row.name,
                "kind": row.kind,
                "what": row.what,
                "seconds": list(row.seconds),
                "nodes": [_names(row.first), _names(row.second)],
            }
            for row in found.rows
        ],
    }


def _names(nodes: Sequence[RanNode]) -> list[str]:
    return [node.name for node in nodes]

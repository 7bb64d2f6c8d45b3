"""Two explanations side by side: which nodes one has and the other has not, what is slower, and what makes it so."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from pytest_ngraph import units
from pytest_ngraph.explain.explanation import Explanation, RanNode
from pytest_ngraph.explain.families import ADDED
from pytest_ngraph.explain.profile import ONNX

# Of a difference in time that no launches have measured: what is less may well be noise.
_LEAST_UNMEASURED = 1.1
# A profile that sees less of a call, or more than all of it, explains nothing. Neither do profiles by which a cell is
# slower by so many times more or less than measured.
LEAST_COVERAGE, MOST_COVERAGE, MOST_OFF = 0.5, 1.6, 2.0
# A sentence names as many groups, and stops where they are so much of the difference.
_MOST_GROUPS, _ENOUGH = 3, 0.8
_LEAST_SHARE = 0.05
# From here on a ratio is written without an exponent.
_MANY = 100
BY_KIND = "kinds of operators, as not both name their nodes"
OF_TWO_MODELS = "kinds of operators, as these are two models"
_BY_KINDS = (BY_KIND, OF_TWO_MODELS)


@dataclass(frozen=True, slots=True)
class Row:
    """The same part of the model in two cells: its nodes on either side, and what they take there in seconds.

    One side may have none. ``what`` says what the other has more of.
    """

    name: str
    kind: str
    first: tuple[RanNode, ...]
    second: tuple[RanNode, ...]
    what: str

    @property
    def seconds(self) -> tuple[float, float]:
        """Return what the nodes of either side take."""
        return _seconds(self.first), _seconds(self.second)

    @property
    def delta(self) -> float:
        """Return by how much the second side is slower."""
        one, two = self.seconds
        return two - one


@dataclass(frozen=True, slots=True)
class Measured:
    """What the clock says of two cells: seconds of a call of each, and where from.

    ``low`` and ``high`` are the interval of how many times slower the second is, from launches that measured both.
    """

    first: float
    second: float
    source: str
    low: float | None = None
    high: float | None = None

    @property
    def is_decided(self) -> bool:
        """Return whether one of them is slower beyond what may be noise."""
        ratio = self.second / self.first
        if self.low is not None and self.high is not None:
            return self.low > 1 or self.high < 1
        return max(ratio, 1 / ratio) >= _LEAST_UNMEASURED


@dataclass(frozen=True, slots=True)
class Comparison:
    """What differs between two cells, the part that costs most first. ``joined_by`` says what parts are known by."""

    first: Explanation
    second: Explanation
    names: tuple[str, str]
    joined_by: str
    rows: tuple[Row, ...]
    measured: Measured
    sentence: str
    is_said: bool


def compare(
    first: Explanation,
    second: Explanation,
    names: tuple[str, str],
    measured: Measured | None = None,
    *,
    is_one_model: bool = True,
    refused: str = "",
) -> Comparison:
    """Join two explanations. ``names`` are what a sentence calls them, ``measured`` what launches say of both.

    Without launches the times of the passes themselves are taken, which say less. Nodes of two models that have the
    same name are not the same part of anything. ``refused`` is why no profile says what makes one of them slower, if
    that is known.
    """
    clock = measured or Measured(first.plain_seconds, second.plain_seconds, "one pass of each")
    joined_by, rows = _rows(first, second, is_one_model=is_one_model)
    slower = 1 if clock.second >= clock.first else -1
    rows = sorted(rows, key=lambda row: -slower * row.delta)
    refusal = f"no sentence: {refused}" if refused else _refusal(first, second, names, clock)
    said = refusal or _sentence(rows, names, clock, slower, by_kind=joined_by in _BY_KINDS)
    return Comparison(first, second, names, joined_by, tuple(rows), clock, said, not refusal)


def _seconds(nodes: Iterable[RanNode]) -> float:
    return math.fsum(node.seconds or 0.0 for node in nodes)


# Joining


def _rows(first: Explanation, second: Explanation, *, is_one_model: bool) -> tuple[str, list[Row]]:
    if not is_one_model:
        by, keys = OF_TWO_MODELS, (_kinds, _kinds)
    elif first.names == second.names == ONNX:
        by, keys = "the names of the ONNX nodes", (_onnx, _onnx)
    elif first.names and second.names:
        by, keys = "the module's layers", (_layers, _layers)
    else:
        by, keys = BY_KIND, (_kinds, _kinds)
    groups = _connected(
        [
            (key(node), side, node)
            for side, (each, key) in enumerate(zip((first, second), keys, strict=True))
            for node in each.nodes
        ]
    )
    rows = [_row(group, by_kind=by in _BY_KINDS) for group in groups]
    return by, [row for row in rows if row.first or row.second]


def _onnx(node: RanNode) -> tuple[str, ...]:
    return node.parts


def _layers(node: RanNode) -> tuple[str, ...]:
    return node.layers


def _kinds(node: RanNode) -> tuple[str, ...]:
    return (node.added or node.kind,)


def _connected(entries: Sequence[tuple[Sequence[str], int, RanNode]]) -> list[tuple[list[RanNode], list[RanNode]]]:
    """Return the nodes of both sides in groups that share parts. A node without parts is a group of its own."""
    above: dict[str, str] = {}

    def root(part: str) -> str:
        above.setdefault(part, part)
        while above[part] != part:
            above[part] = part = above[above[part]]
        return part

    for parts, _, _ in entries:
        for part in parts[1:]:
            above[root(part)] = root(parts[0])
    groups: dict[object, tuple[list[RanNode], list[RanNode]]] = {}
    for number, (parts, side, node) in enumerate(entries):
        groups.setdefault(root(parts[0]) if parts else number, ([], []))[side].append(node)
    return list(groups.values())


def _row(group: tuple[list[RanNode], list[RanNode]], *, by_kind: bool) -> Row:
    first, second = map(tuple, group)
    both = (*first, *second)
    # What does the arithmetic names the part, else what takes longest.
    main = max(both, key=lambda node: (not node.added, node.seconds or 0.0))
    kind = main.added or main.kind
    return Row(kind if by_kind else main.name, kind, first, second, _what(first, second))


def _what(first: tuple[RanNode, ...], second: tuple[RanNode, ...]) -> str:
    if not first or not second:
        return "added" if second else "gone"
    if len(first) != len(second):
        return "fused" if len(second) < len(first) else "unfused"
    kinds = [{node.precision for node in nodes} - {""} for nodes in (first, second)]
    if all(kinds) and kinds[0] != kinds[1]:
        return "precision"
    return "kernel" if {node.kernel for node in first} != {node.kernel for node in second} else "same"


# What is said of them


def _refusal(first: Explanation, second: Explanation, names: tuple[str, str], clock: Measured) -> str:
    """Return why nothing can be said of what makes one slower, or nothing."""
    for name, each in zip(names, (first, second), strict=True):
        if not LEAST_COVERAGE <= each.coverage <= MOST_COVERAGE:
            return f"no sentence: the profile of {name} accounts for {units.fraction(each.coverage)} of its call"
    if not (clock.first > 0 and clock.second > 0):
        return "no sentence: a call has no time"
    if not clock.is_decided:
        return f"no sentence: {names[1]} is not shown to be slower or faster ({_ratio(clock)} by {clock.source})"
    measured, profiled = clock.second - clock.first, second.nodes_seconds - first.nodes_seconds
    if measured * profiled <= 0:
        slow, fast = names[::-1] if measured > 0 else names
        return f"no sentence: {slow} is slower than {fast} by the clock, and not by the profile"
    # As factors: when launches measured, the machine may have been slower for both.
    slow = names[1] if measured > 0 else names[0]
    by_clock, by_profile = (
        max(one, two) / min(one, two)
        for one, two in ((clock.first, clock.second), (first.nodes_seconds, second.nodes_seconds))
    )
    if not 1 / MOST_OFF <= (by_profile - 1) / (by_clock - 1) <= MOST_OFF:
        both = f"{_times(by_clock)} times slower by the clock, and {_times(by_profile)} by the profiles"
        return f"no sentence: {slow} is {both}"
    return ""


def _ratio(clock: Measured) -> str:
    interval = units.interval(clock.low, clock.high, units.factor)
    return f"{units.factor(clock.second / clock.first)}{interval}"


def _times(ratio: float) -> str:
    return f"{ratio:.2g}" if ratio < _MANY else f"{ratio:.0f}"


def _sentence(rows: Sequence[Row], names: tuple[str, str], clock: Measured, slower: int, *, by_kind: bool) -> str:
    """Return what makes the slower one slower, the groups that cost most first, as shares of the difference."""
    slow, fast = names[::-1] if slower > 0 else names
    ratio = clock.second / clock.first if slower > 0 else clock.first / clock.second
    head = f"{slow} is {_times(ratio)} times slower than {fast}"
    whole = math.fsum(slower * row.delta for row in rows)
    groups = _by_kind(rows, slower) if by_kind else _groups(rows, slower)
    chosen: list[tuple[str, float]] = []
    for text, seconds in groups[:_MOST_GROUPS]:
        if seconds < _LEAST_SHARE * whole:
            break
        chosen.append((text, seconds))
        if math.fsum(taken for _, taken in chosen) >= _ENOUGH * whole * (1 - 1e-9):
            break
    if not chosen:
        return f"{head}: no group of nodes is as much as {units.fraction(_LEAST_SHARE)} of it"
    share = math.fsum(seconds for _, seconds in chosen) / whole
    verb = "is" if len(chosen) == 1 and chosen[0][0].startswith("1 ") else "are"
    back = ", of which others win back a part" if share > 1 else ""
    return f"{head}: {_listed([text for text, _ in chosen])} {verb} {units.fraction(share)} of it{back}"


def _by_kind(rows: Sequence[Row], slower: int) -> list[tuple[str, float]]:
    """Return the same where only kinds are known: how many nodes of each the slower side has, and seconds."""
    found = []
    for row in rows:
        mine = row.second if slower > 0 else row.first
        if mine and slower * row.delta > 0:
            found.append((f"{len(mine)} {row.kind}", slower * row.delta))
    return sorted(found, key=lambda group: -group[1])


def _groups(rows: Sequence[Row], slower: int) -> list[tuple[str, float]]:
    """Return what costs time on the slower side: how many nodes of which kind, and seconds, the most first."""
    found: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for row in rows:
        mine, other = (row.second, row.first) if slower > 0 else (row.first, row.second)
        if slower * row.delta <= 0:
            continue
        if not other:
            found.setdefault(("added", row.kind), []).append((len(mine), slower * row.delta))
            continue
        # What was added within a part is told apart from what is slower in it.
        extra = [node for node in mine if node.added]
        spent = min(slower * row.delta, _seconds(extra))
        for kind in ADDED:
            of_kind = [node for node in extra if node.added == kind]
            if of_kind and spent > 0:
                share = _seconds(of_kind) / (_seconds(extra) or 1.0)
                found.setdefault(("added", kind), []).append((len(of_kind), spent * share))
        rest = slower * row.delta - max(0.0, spent)
        if rest > 0:
            how = "unfused" if len(mine) - len(extra) > len([node for node in other if not node.added]) else "slower"
            found.setdefault((how, row.kind), []).append((1, rest))
    groups = [
        (_phrase(how, kind, sum(count for count, _ in each)), math.fsum(s for _, s in each))
        for (how, kind), each in found.items()
    ]
    return sorted(groups, key=lambda group: -group[1])


_ONE: Mapping[str, str] = {"reorders": "reorder", "casts": "cast", "copies": "copy", "Q/DQ": "Q/DQ"}


def _phrase(how: str, kind: str, count: int) -> str:
    """Write a group of nodes, such as ``31 unfused Q/DQ`` or ``4 reorders``."""
    if how == "added":
        word = (_ONE[kind] if count == 1 else kind) if kind in _ONE else f"added {kind}"
        return f"{count} {'unfused ' if kind == 'Q/DQ' else ''}{word}"
    longer = f"that take{'s' if count == 1 else ''} longer"
    return f"{count} {kind} {'in several nodes' if how == 'unfused' else longer}"


def _listed(texts: Sequence[str]) -> str:
    return texts[0] if len(texts) == 1 else f"{', '.join(texts[:-1])} and {texts[-1]}"

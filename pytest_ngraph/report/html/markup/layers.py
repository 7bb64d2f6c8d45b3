"""What ran in a run's cells as markup: bars of the largest nodes, tables, and what differs from a baseline."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.explain.compare import Comparison
from pytest_ngraph.explain.explanation import Explanation, RanNode
from pytest_ngraph.explain.lines import (
    comparison_facts,
    contents,
    differing_rows,
    explanation_facts,
    kinds_of,
    row_words,
    share_words,
    signed_time,
    time_words,
)
from pytest_ngraph.quantities.explained import call_words
from pytest_ngraph.report.html.markup.tables import Markup, element, joined, shown, table
from pytest_ngraph.report.layers.stored import Explained, Layers
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.texts.fitting import cut_apart
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    from pytest_ngraph.report.html.drawing import Look

_TITLE = "What ran, layer by layer"
_SAYS = (
    "What a runtime's own profile says of a few calls in a process of its own, in which nothing is measured. Bars are "
    "the nodes that take longest, as shares of what all nodes take together; how much of a call that is stands above. "
    "Dashed: added by the compiler, such as reorders and Q/DQ that nothing absorbed. Faint: all others together. Of a "
    "sentence the factor is of the launches, its shares are of the difference between the profiles. Filters hide cells "
    "and change no number."
)
# So many nodes have a bar, so many a row, and so many parts that differ.
_BARS, _ROWS, _PARTS = 12, 60, 30
# Letters of names beside bars, of names in tables, of kernels, of what is in a node, and of notes.
_BESIDE, _NAME, _KERNEL, _INSIDE, _NOTES = 22, 100, 60, 200, 1200
# Of a picture, in its own units.
_WIDTH, _LEFT, _STEP, _THICK, _END = 340, 128, 17, 12, 42


def layers_link(layers: Layers) -> str:
    """Return what leads to the section, or nothing where there is none."""
    return f'<li><a href="#layers">{_TITLE}</a></li>' if layers.shown else ""


def layers_section(layers: Layers, cells: Mapping[Cell, int], look: Look) -> str:
    """Return the section of the page, or nothing where nothing was explained. ``cells`` numbers those of the page."""
    if not layers.shown:
        return ""
    notes = [_SAYS]
    if layers.left_out:
        notes.append(f"{units.count(layers.left_out, 'more cell')}: ngraph explain shows them.")
    if layers.unreadable:
        notes.append(f"{units.count(layers.unreadable, 'more cell')}: what is stored of them cannot be read.")
    figures = joined(_figure(one, cells.get(one.cell), look) for one in layers.shown)
    return (
        f'<section id="layers" aria-labelledby="layers-title"><h2 id="layers-title">{_TITLE}</h2>'
        f'<p class="says">{shown(" ".join(notes))}</p><div class="past layers">{figures}</div>'
        '<p class="empty" hidden>The filters hide all of this.</p></section>'
    )


def _figure(one: Explained, number: int | None, look: Look) -> Markup:
    """Return a cell: its times, its picture, what makes it faster or slower than its baseline, and the tables."""
    found, label = one.explanation, one.cell.label
    name = element("a", label, href=f"#cell-{number}") if number is not None else shown(label)
    when = f"explained {one.at[:16].replace('T', ' ')} UTC"
    measured = one.measured.value if one.measured is not None else None
    facts = one_line("; ".join([*explanation_facts(found, call_words(one.measured), measured), when]), _NOTES)
    parts = [
        element("figcaption", joined([name, element("small", facts)])),
        _picture(found, label),
        *([element("p", f"by kind: {', '.join(kinds_of(found))}", class_="kinds")] if found.nodes else []),
        *_held_against(one),
        _folded(units.count(len(found.nodes), "node"), f"Nodes of {label}", _nodes(found)),
    ]
    if found.notes:
        parts.append(element("p", one_line(f"Notes: {'; '.join(found.notes)}.", _NOTES), class_="kinds"))
    of_cell = {} if number is None else {"data_cell": str(number)}
    colour = look.colours.get(str(one.cell.compiler), "currentColor")
    return element("figure", joined(parts), style=f"--of: {colour}", **of_cell)


def _folded(title: str, label: str, content: Markup) -> Markup:
    holder = element("div", content, class_="table", tabindex="0", role="region", aria_label=label)
    return element("details", joined([element("summary", title), holder]))


# The picture


def _picture(found: Explanation, label: str) -> Markup:
    """Return a bar for each node that takes longest, and one for the others. Nothing where no node has a time."""
    whole, order = found.nodes_seconds, _longest(found)
    rows = [(node.name, node.seconds or 0.0, "added" if node.added else "own") for node in order[:_BARS]]
    rows = [row for row in rows if row[1] > 0]
    if not rows or not whole > 0:
        return Markup("")
    if rest := order[_BARS:]:
        rows.append((units.count(len(rest), "further node"), _seconds(rest), "rest"))
    names = cut_apart((one_line(name, _NAME) for name, _, _ in rows), _BESIDE)
    room = (_WIDTH - _LEFT - _END) / max(seconds for _, seconds, _ in rows)
    bars = joined(_bar(names, row, place, room, whole) for place, row in enumerate(rows))
    said = f"{label}: shares of the {len(rows) - bool(rest)} nodes that take longest; numbers in the table"
    size = f"0 0 {_WIDTH} {_STEP * len(rows) + 4}"
    return Markup(f'<svg viewBox="{size}" role="img" aria-label="{shown(said)}">{bars}</svg>')


def _bar(names: Mapping[str, str], row: tuple[str, float, str], place: int, room: float, whole: float) -> Markup:
    name, seconds, kind = row
    top, base, width = 2 + _STEP * place, _STEP * place + 12, max(room * seconds, 0.5)
    name, share = one_line(name, _NAME), share_words(seconds, whole)
    return Markup(
        f'<g class="{kind}"><title>{shown(f"{name}: {share}, {time_words(seconds)}")}</title>'
        f'<text x="{_LEFT - 5}" y="{base}" text-anchor="end">{shown(names[name])}</text>'
        f'<rect x="{_LEFT}" y="{top}" width="{width:.1f}" height="{_THICK}"/>'
        f'<text class="share" x="{_LEFT + width + 4:.1f}" y="{base}">{shown(share)}</text></g>'
    )


def _longest(found: Explanation) -> list[RanNode]:
    return sorted(found.nodes, key=lambda node: -(node.seconds or 0.0))


def _seconds(nodes: Sequence[RanNode]) -> float:
    return math.fsum(node.seconds or 0.0 for node in nodes)


# Tables


def _nodes(found: Explanation) -> Markup:
    """Return the nodes that take longest, without columns that say nothing of any of them."""
    order, whole = _longest(found), found.nodes_seconds
    rows = [_node(node, whole) for node in order[:_ROWS]]
    if rest := order[_ROWS:]:
        seconds = _seconds(rest)
        name = f"{units.count(len(rest), 'further node')} (ngraph explain --all)"
        rows.append([name, "", "", "", "", _time(seconds), _share(seconds, whole), ""])
    heads = ("node", "kind", "provider", "kernel or algorithm", "precision", _SECONDS, "share", "what is in it")
    return _without_empty(heads, rows, (_SECONDS, "share"))


def _node(node: RanNode, whole: float) -> list[str]:
    return [
        one_line(node.name, _NAME),
        one_line(node.added or node.kind, _KERNEL),
        one_line(node.provider, _KERNEL),
        one_line(node.kernel or node.operator, _KERNEL),
        one_line(node.precision, _KERNEL),
        _time(node.seconds),
        _share(node.seconds, whole),
        one_line(contents(node).removeprefix("= "), _INSIDE),
    ]


def _without_empty(heads: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[str]) -> Markup:
    used = [place for place, _ in enumerate(heads) if not place or any(row[place] for row in rows)]
    return table([heads[place] for place in used], [[row[place] for place in used] for row in rows], numbers=numbers)


def _exact(words: str, value: object) -> Markup:
    """Return a number as it is read, with all of its digits for who copies it."""
    return element("data", words, value=str(value))


_SECONDS = _exact("time", "seconds")


def _time(seconds: float | None) -> Markup:
    return shown(time_words(None)) if seconds is None else _exact(time_words(seconds), repr(seconds))


def _share(seconds: float | None, whole: float) -> Markup:
    words = share_words(seconds, whole)
    return shown(words) if seconds is None or not whole else _exact(words, repr(seconds / whole))


# Against the baseline


def _held_against(one: Explained) -> Iterator[Markup]:
    """Yield the sentence, or why there is none, and the parts that differ; else how to come to it."""
    baseline, cell = one.baseline, one.cell
    if one.compared is not None:
        yield element("p", one_line(f"{one.compared.sentence}.", _NOTES), class_="sentence")
        yield element("p", one_line(f"{'; '.join(comparison_facts(one.compared))}.", _NOTES), class_="kinds")
        yield _folded("What differs", f"What differs between {' and '.join(one.compared.names)}", _parts(one.compared))
    elif baseline is not None and not any(each.side or each.compiler.name == "null" for each in (baseline, cell)):
        command = f"ngraph explain {shlex.quote(baseline.label)} {shlex.quote(cell.label)}"
        yield element("p", joined(["Its baseline is not explained: ", element("code", command)]), class_="kinds")


def _parts(found: Comparison) -> Markup:
    first, second = (one_line(name, _KERNEL) for name in found.names)
    rows: list[list[str]] = []
    every = differing_rows(found)
    for row in every[:_PARTS]:
        times = [
            _time(seconds) if nodes else Markup("")
            for seconds, nodes in zip(row.seconds, (row.first, row.second), strict=True)
        ]
        what = row_words(row.what, len(row.first), len(row.second))
        name, kind = one_line(row.name, _NAME), one_line(row.kind, _KERNEL)
        rows.append([name, kind, what, _exact(signed_time(row.delta), repr(row.delta)), *times])
    if rest := every[_PARTS:]:
        delta = math.fsum(row.delta for row in rest)
        name = f"{units.count(len(rest), 'further part')} (ngraph explain --all)"
        rows.append([name, "", "", _exact(signed_time(delta), repr(delta)), "", ""])
    heads = ("part", "kind", "what", _exact("differs", "differs by seconds"))
    ends = tuple(_exact(name, f"{name}, seconds") for name in (first, second))
    return table((*heads, *ends), rows, numbers=(heads[-1], *ends))

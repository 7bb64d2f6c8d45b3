"""The fronts of a run as markup: a picture of two objectives for each task, and a table with every reason."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.choosing.comparing import Candidate
from pytest_ngraph.choosing.front import Front, Place, Standing
from pytest_ngraph.choosing.objectives import Objective
from pytest_ngraph.choosing.written import place_words, promised, reasons
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.html.markup.tables import Markup, exact, exact_head, shown
from pytest_ngraph.report.html.pictures.axes import Row, both_ways, span_of
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.texts.shown import clean

if TYPE_CHECKING:
    from pytest_ngraph.report.html.drawing import Look

_TITLE = "Which configuration to choose"
_SAYS = (
    "A configuration is on the front unless another one is shown to be at least as good by all objectives and better "
    "by one. Filled: on the front, with the line of the front by these two objectives. Ringed: undecided. Small and "
    "faint: off the front, dominated by one that the table names. Boxes are drawn $spread. Numbers are those of the "
    "table. Places are of the whole run, whatever the filters leave."
)
# What is drawn against what, the first that a front is over.
_PAIRS = (
    ("latency", "accuracy"), ("latency", "agreement"), ("throughput", "memory"), ("latency", "throughput"),
    ("throughput", "size"), ("latency", "size"), ("memory", "size"),
)  # fmt: skip
# Of a picture, in its own units: the whole, and where its axes are.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 340, 236, 58, 330, 12, 190
_TICKS, _APART = 4, 11
# A smaller box is below its mark.
_SEEN = 5.0
_ORDER = (Place.OFF, Place.UNDECIDED, Place.FRONT)


def fronts_link(fronts: Sequence[Front]) -> str:
    """Return what leads to the section, or nothing where there is none."""
    return f'<li><a href="#fronts">{_TITLE}</a></li>' if fronts else ""


def fronts_section(fronts: Sequence[Front], left_out: int, cells: Mapping[Cell, int], look: Look) -> str:
    """Return the section of the page, or nothing where no task has a choice. ``cells`` numbers those of the page."""
    if not fronts:
        return ""
    protocol = fronts[0].protocol
    says = _SAYS.replace("$spread", SPREADS.get(protocol, f"intervals by the protocol {protocol}"))
    notes = [says, f"{promised(fronts[0]).capitalize()}."]
    if left_out:
        notes.append(f"{units.count(left_out, 'more task')}: ngraph pareto shows them.")
    figures = "".join(_figure(front, cells, look) for front in fronts)
    return (
        f'<section id="fronts" aria-labelledby="fronts-title"><h2 id="fronts-title">{_TITLE}</h2>'
        f'<p class="says">{_text(" ".join(notes))}</p><div class="past fronts">{figures}</div>'
        '<p class="empty" hidden>The filters hide all of this.</p></section>'
    )


def _figure(front: Front, cells: Mapping[Cell, int], look: Look) -> str:
    label = _text(str(front.task))
    numbered = _numbered(front)
    counts = ", ".join(f"{len(front.at(place))} {place}" for place in reversed(_ORDER) if front.at(place))
    said = f"over {', '.join(each.name for each in front.over)}: {counts}{', by points' if front.by_points else ''}"
    small = "; ".join([said, *front.left_out])
    axes = _axes(front)
    picture = (
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}, {_text(said)}; numbers in the table">'
        f"{''.join(_drawn(front, axes, numbered, cells, look))}</svg>"
        if axes is not None
        else ""
    )
    who = " ".join(
        f'<li value="{number}"{_of_cell(one, cells)}>{_text(one.candidate.name)}{_asked(one)}</li>'
        for number, one in enumerate(numbered, 1)
        if one.place in (Place.FRONT, Place.UNDECIDED)
    )
    return (
        f"<figure><figcaption>{label}<small>{_text(small)}</small></figcaption>{picture}<ol>{who}</ol>"
        f'<details><summary>Table</summary><div class="table" tabindex="0" role="region" aria-label="{label}">'
        f"{_table(front, numbered, cells)}</div></details></figure>"
    )


def _asked(standing: Standing) -> str:
    return " (undecided)" if standing.place is Place.UNDECIDED else ""


def _of_cell(standing: Standing, cells: Mapping[Cell, int]) -> str:
    number = cells.get(standing.candidate.cell)
    return f' data-cell="{number}"' if number is not None else ""


def _numbered(front: Front) -> list[Standing]:
    """Return the configurations in the order of their numbers: those on the front first, left out last."""
    places = [*reversed(_ORDER), Place.OUT]
    return sorted(front.standings, key=lambda one: places.index(one.place))


@dataclass(frozen=True, slots=True)
class _Axis:
    """One axis of a picture: its objective, where a value stands, and its marks."""

    objective: Objective
    place: Callable[[float], float]
    ends: tuple[float, float]

    @property
    def title(self) -> str:
        return f"{self.objective.name} ({self.objective.metric.better} is better)"

    def ticks(self) -> list[float]:
        """Return round values on the axis."""
        low, high = self.ends
        if self.objective.metric.scale == "log" and high > 4 * low:
            powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
            marks = [step * 10.0**power for power in powers for step in ((1,) if high > 100 * low else (1, 2, 5))]
        else:
            power = 10.0 ** math.floor(math.log10((high - low) / 2))
            step = next(each for each in (power, 2 * power, 5 * power, 10 * power) if (high - low) / each <= _TICKS + 1)
            marks = [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
        found = [mark for mark in marks if low <= mark <= high]
        return found[:: math.ceil(len(found) / (_TICKS + 1)) or 1]


def _axes(front: Front) -> tuple[_Axis, _Axis] | None:
    """Return what is drawn against what, or None where no two objectives are known of anything."""
    by_name = {each.name: each for each in front.over}
    for across, up in _PAIRS:
        if across in by_name and up in by_name:
            pairs = [_both(one, by_name[across], by_name[up]) for one in front.candidates]
            known = [(one, other) for one, other in pairs if one is not None and other is not None]
            if known:
                return (
                    _axis(by_name[across], [one for one, _ in known], _LEFT + 10, _RIGHT - 14),
                    _axis(by_name[up], [other for _, other in known], _BOTTOM - 8, _TOP + 8),
                )
    return None


def _both(candidate: Candidate, across: Objective, up: Objective) -> tuple[Estimate | None, Estimate | None]:
    return candidate.estimate(across), candidate.estimate(up)


def _axis(objective: Objective, estimates: Sequence[Estimate], first: float, last: float) -> _Axis:
    is_log = objective.metric.scale == "log"
    rows: list[Row] = [{"value": one.value, "low": one.low, "high": one.high} for one in estimates]
    low, high = span_of(rows, is_log=is_log)
    scaled, _ = both_ways(is_log)

    def place(value: float) -> float:
        inside = min(max(value, low), high)
        return first + (last - first) * (scaled(inside) - scaled(low)) / (scaled(high) - scaled(low))

    return _Axis(objective, place, (low, high))


def _drawn(
    front: Front, axes: tuple[_Axis, _Axis], numbered: Sequence[Standing], cells: Mapping[Cell, int], look: Look
) -> Iterator[str]:
    """Yield what a picture is made of: grid, the line of the front, then each configuration with its interval."""
    across, up = axes
    for tick in up.ticks():
        y, name = up.place(tick), _text(up.objective.metric.format(tick))
        yield f'<path class="grid" d="M{_LEFT},{y:.1f}H{_RIGHT}"/>'
        yield f'<text x="{_LEFT - 5}" y="{y + 3.5:.1f}" text-anchor="end">{name}</text>'
    for tick in across.ticks():
        x, name = across.place(tick), _text(across.objective.metric.format(tick))
        yield f'<path class="grid" d="M{x:.1f},{_TOP}V{_BOTTOM}"/>'
        yield f'<text x="{x:.1f}" y="{_BOTTOM + 14}" text-anchor="middle">{name}</text>'
    yield f'<text class="axis" x="{(_LEFT + _RIGHT) / 2}" y="{_BOTTOM + 32}" text-anchor="middle">{across.title}</text>'
    yield f'<text class="axis" x="{_LEFT}" y="{_TOP - 3}">{up.title}</text>'
    yield _line(front, axes)
    names: list[tuple[float, float]] = []
    for place in _ORDER:
        for number, standing in enumerate(numbered, 1):
            if standing.place is place:
                yield from _point(standing, number, axes, cells, look, names)


def _line(front: Front, axes: tuple[_Axis, _Axis]) -> str:
    """Return the steps between the configurations on the front, as far as these two objectives tell them apart."""
    across, up = axes
    signs = [1 if axis.objective.is_higher_better else -1 for axis in axes]
    points = []
    for standing in front.at(Place.FRONT):
        one, other = _both(standing.candidate, across.objective, up.objective)
        if one is not None and other is not None:
            points.append((signs[0] * one.value, signs[1] * other.value))
    best, kept = -math.inf, []
    for one_value, other_value in sorted(points, reverse=True):
        if other_value > best:
            kept.append((across.place(signs[0] * one_value), up.place(signs[1] * other_value)))
            best = other_value
    if len(kept) < 2:
        return ""
    way = f"M{kept[0][0]:.1f},{kept[0][1]:.1f}" + "".join(f"V{y:.1f}H{x:.1f}" for x, y in kept[1:])
    return f'<path class="front" d="{way}"/>'


def _point(
    standing: Standing,
    number: int,
    axes: tuple[_Axis, _Axis],
    cells: Mapping[Cell, int],
    look: Look,
    names: list[tuple[float, float]],
) -> Iterator[str]:
    one, other = _both(standing.candidate, axes[0].objective, axes[1].objective)
    if one is None or other is None:
        return
    x, y = axes[0].place(one.value), axes[1].place(other.value)
    compiler = str(standing.candidate.cell.compiler)
    colour, shape = look.colours.get(compiler, "currentColor"), look.shapes.get(compiler, "circle")
    kind = {Place.FRONT: "on", Place.UNDECIDED: "open"}.get(standing.place, "off")
    of_cell = _of_cell(standing, cells)
    said = _text(f"{number}. {standing.candidate.name}: {standing.place}")
    yield f'<g class="{kind}" style="--of: {colour}"{of_cell}><title>{said}</title>'
    left, right = (axes[0].place(end) if math.isfinite(end) else x for end in (one.low, one.high))
    low, high = (axes[1].place(end) if math.isfinite(end) else y for end in (other.low, other.high))
    width, height = abs(right - left), abs(low - high)
    if max(width, height) > _SEEN:
        corner = f'x="{min(left, right):.1f}" y="{min(low, high):.1f}"'
        yield f'<rect class="box" {corner} width="{max(width, 1):.1f}" height="{max(height, 1):.1f}"/>'
    yield f'<path class="mark" d="{mark_of(shape, x, y, 3.0 if kind == "off" else 5.0)}"/>'
    if kind != "off":
        at = _free(x + 7, y - 5, names)
        yield f'<text class="name" x="{at[0]:.1f}" y="{at[1]:.1f}">{number}</text>'
    yield "</g>"


def _free(x: float, y: float, names: list[tuple[float, float]]) -> tuple[float, float]:
    """Return a place for a number near a point, where no other number stands."""
    if x > _RIGHT - 6:
        x -= 20
    while any(abs(x - other) < 2 * _APART and abs(y - up) < _APART for other, up in names):
        y += _APART
    names.append((x, y))
    return x, y


def mark_of(shape: str, x: float, y: float, size: float) -> str:
    """Return one of the shapes of the page's charts around a place."""
    corners = {
        "square": [(-0.9, -0.9), (0.9, -0.9), (0.9, 0.9), (-0.9, 0.9)],
        "diamond": [(0, -1.25), (1.05, 0), (0, 1.25), (-1.05, 0)],
        "triangle-up": [(0, -1.2), (1.1, 0.9), (-1.1, 0.9)],
        "triangle-down": [(0, 1.2), (1.1, -0.9), (-1.1, -0.9)],
        "triangle-right": [(1.2, 0), (-0.9, 1.1), (-0.9, -1.1)],
        "triangle-left": [(-1.2, 0), (0.9, 1.1), (0.9, -1.1)],
        "cross": [(-0.4, -1.1), (0.4, -1.1), (0.4, -0.4), (1.1, -0.4), (1.1, 0.4), (0.4, 0.4), (0.4, 1.1), (-0.4, 1.1),
                  (-0.4, 0.4), (-1.1, 0.4), (-1.1, -0.4), (-0.4, -0.4)],
    }.get(shape)  # fmt: skip
    if corners is None:
        return f"M{x - size:.1f},{y:.1f}a{size},{size} 0 1,0 {2 * size},0a{size},{size} 0 1,0 {-2 * size},0Z"
    return "M" + "L".join(f"{x + size * right:.1f},{y + size * down:.1f}" for right, down in corners) + "Z"


def _table(front: Front, numbered: Sequence[Standing], cells: Mapping[Cell, int]) -> str:
    measured = [exact_head(each.name, each.metric.unit) for each in front.over]
    heads = ("configuration", "place", *measured, "why")
    rows = []
    for number, standing in enumerate(numbered, 1):
        is_out = standing.place is Place.OUT
        estimates = [shown("") if is_out else _written(standing.candidate.estimate(each)) for each in front.over]
        why = "; ".join(reasons(front, standing))
        values = (standing.candidate.name, place_words(front, standing), *estimates, why)
        cell, of_cell = cells.get(standing.candidate.cell), _of_cell(standing, cells)
        name, *others = map(shown, values)
        link = f'<a href="#cell-{cell}">{name}</a>' if cell is not None else name
        # By its number it is found in the picture.
        begins = f'<th scope="row">{number} {link}</th>'
        rows.append(f"<tr{of_cell}>{begins}{''.join(f'<td>{value}</td>' for value in others)}</tr>")
    head = "".join(f'<th scope="col">{shown(title)}</th>' for title in heads)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(rows)}</tbody></table>"


def _written(estimate: Estimate | None) -> Markup:
    if estimate is None:
        return shown("not measured")
    return exact(str(estimate).partition(" (no interval")[0], estimate.value, estimate.low, estimate.high)


def _text(text: str) -> str:
    return html.escape(clean(text))

"""What compressions cost and bring in a run as markup: times, and accuracy where there is any, by what was done.

After Figures 3 to 7 of the second paper: a row for each compression, in it a mark for each that computes it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.html.markup.fronts import mark_of
from pytest_ngraph.report.html.markup.tables import Markup, element, exact, exact_head, joined, shown, table
from pytest_ngraph.report.html.pictures.axes import Row, both_ways, span_of
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.stack.cells import Point, hows, in_order, points
from pytest_ngraph.report.stack.names import short_names
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.texts.fitting import cut_apart

if TYPE_CHECKING:
    from pytest_ngraph.report.html.drawing import Look

_TITLE = "What was done to networks"
_SAYS = (
    "The time of a call, logarithmic, and the accuracy of the compiled network where it was asked for, by what was "
    "done to it: a row for each compression, in it a mark for each compiler, from above in the order of the table, "
    "with its interval. WP and CP are pruned weights and channels, with the per cent that was asked for; f16 and int8 "
    "have fewer bits. The names are those of the second paper, whose figures these are after."
)
# So many networks have a picture.
_MOST = 12
# Of a picture, in its own units: its width, where its axis is, and how high a mark's line is.
_WIDTH, _LEFT, _RIGHT, _TOP, _STEP, _LETTERS = 340, 112, 328, 8, 10, 18
# What is drawn: the metric's name, its title, how it is written and whether its axis is logarithmic.
_DRAWN = (("latency", "time", "s", units.seconds, True), ("accuracy:top1", "accuracy", "", units.share, False))


@dataclass(frozen=True, slots=True)
class Stack:
    """One network on one device: its cells by what was done to it and what computes it."""

    title: str
    points: Sequence[Point]

    @property
    def compressions(self) -> list[str]:
        """Return what was done, nothing first."""
        return in_order(point.compression for point in self.points)


def stacks_of(reports: Sequence[CellReport]) -> tuple[list[Stack], int]:
    """Return the networks to which several things were done and that have times, and how many more there are."""
    timed = [point for point in points(reports) if point.latency is not None]
    found: dict[tuple[str, str], list[Point]] = {}
    for point in timed:
        found.setdefault((point.model, str(point.platform)), []).append(point)
    has_devices = len({platform for _, platform in found}) > 1
    stacks = [
        Stack(f"{model} on {platform}" if has_devices else model, some)
        for (model, platform), some in sorted(found.items(), key=lambda one: tuple(map(natural, one[0])))
        if len({point.compression for point in some}) > 1
    ]
    return stacks[:_MOST], max(0, len(stacks) - _MOST)


def stacks_link(stacks: Sequence[Stack]) -> str:
    """Return what leads to the section, or nothing where there is none."""
    return f'<li><a href="#stacks">{_TITLE}</a></li>' if stacks else ""


def stacks_section(stacks: Sequence[Stack], left_out: int, cells: Mapping[Cell, int], look: Look) -> str:
    """Return the section of the page, or nothing where nothing was done to a network."""
    if not stacks:
        return ""
    notes = [_SAYS]
    if left_out:
        notes.append(f"{units.count(left_out, 'more network')}: ngraph export --table dlas-times has them.")
    figures = joined(_figure(stack, cells, look) for stack in stacks)
    return (
        f'<section id="stacks" aria-labelledby="stacks-title"><h2 id="stacks-title">{_TITLE}</h2>'
        f'<p class="says">{shown(" ".join(notes))}</p><div class="past fronts stacks">{figures}</div>'
        '<p class="empty" hidden>The filters hide all of this.</p></section>'
    )


def _figure(stack: Stack, cells: Mapping[Cell, int], look: Look) -> Markup:
    drawn = [row for row in _DRAWN if _values(stack, row[0])]
    pictures = joined(_picture(stack, *row, cells, look) for row in drawn)
    said = ", ".join(
        [units.count(len(stack.compressions), "compression"), units.count(len(hows(stack.points)), "compiler")]
    )
    caption = element("figcaption", joined([stack.title, element("small", said), _key(stack, look)]))
    holder = element(
        "div", _table(stack, [row[:3] for row in drawn], cells), class_="table", tabindex="0", role="region",
        aria_label=stack.title,
    )  # fmt: skip
    return element(
        "figure", joined([caption, pictures, element("details", joined([element("summary", "Table"), holder]))])
    )


def _key(stack: Stack, look: Look) -> Markup:
    """Return what computes, each with its mark."""
    names = {point.how: str(point.report.cell.compiler) for point in stack.points}
    keys = (
        f'<span style="--of: {look.colours.get(names[how], "currentColor")}">'
        f'<svg class="key" viewBox="0 0 12 12" aria-hidden="true">'
        f'<path class="mark" d="{mark_of(look.shapes.get(names[how], "circle"), 6, 6, 3.6)}"/></svg>{shown(how)}</span>'
        for how in hows(stack.points)
    )
    return element("small", Markup(" ".join(keys)))


def _estimate(point: Point, metric: str) -> Estimate | None:
    return point.report.estimates.get(metric)


def _values(stack: Stack, metric: str) -> list[Row]:
    known = [_estimate(point, metric) for point in stack.points]
    return [{"value": one.value, "low": one.low, "high": one.high} for one in known if one is not None]


def _picture(
    stack: Stack,
    metric: str,
    title: str,
    unit: str,
    write: Callable[[float], str],
    is_log: bool,
    cells: Mapping[Cell, int],
    look: Look,
) -> Markup:
    computed, compressions = hows(stack.points), stack.compressions
    low, high = span_of(_values(stack, metric), is_log=is_log)
    scaled, _ = both_ways(is_log)

    def across(value: float) -> float:
        inside = min(max(value, low), high)
        return _LEFT + 6 + (_RIGHT - _LEFT - 12) * (scaled(inside) - scaled(low)) / (scaled(high) - scaled(low))

    high_row = _STEP * len(computed) + 6
    bottom = _TOP + high_row * len(compressions)
    parts = [*_grid(title, write, is_log, (low, high), across, bottom)]
    names = cut_apart(short_names(compressions).values(), _LETTERS)
    for place, name in enumerate(short_names(compressions).values()):
        y = _TOP + high_row * place
        parts.append(f'<path class="grid" d="M{_LEFT},{y:.1f}H{_RIGHT}"/>')
        middle = y + high_row / 2 + 3.5
        parts.append(
            f'<text x="{_LEFT - 5}" y="{middle:.1f}" text-anchor="end"><title>{shown(name)}</title>'
            f"{shown(names[name])}</text>"
        )
    for point in stack.points:
        estimate = _estimate(point, metric)
        if estimate is not None:
            at = _TOP + high_row * compressions.index(point.compression) + 3 + _STEP * (computed.index(point.how) + 0.5)
            parts.append(_mark(point, estimate, write, across, at, cells, look))
    label = shown(f"{stack.title}: {title}; numbers in the table")
    return Markup(f'<svg viewBox="0 0 {_WIDTH} {bottom + 34}" role="img" aria-label="{label}">{"".join(parts)}</svg>')


def _grid(
    title: str,
    write: Callable[[float], str],
    is_log: bool,
    ends: tuple[float, float],
    across: Callable[[float], float],
    bottom: float,
) -> Iterator[str]:
    for tick in _ticks(*ends, is_log=is_log):
        x = across(tick)
        yield f'<path class="grid" d="M{x:.1f},{_TOP}V{bottom}"/>'
        yield f'<text x="{x:.1f}" y="{bottom + 13}" text-anchor="middle">{shown(write(tick))}</text>'
    words = f"{title} ({'lower' if is_log else 'higher'} is better)"
    yield f'<text class="axis" x="{(_LEFT + _RIGHT) / 2}" y="{bottom + 28}" text-anchor="middle">{words}</text>'


def _ticks(low: float, high: float, *, is_log: bool) -> list[float]:
    """Return round values on an axis, mostly two to five."""
    if is_log:
        powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
        steps = (1,) if high > 100 * low else (1, 2, 5) if high > 3 * low else (1, 1.5, 2, 3, 4, 5, 6, 8)
        marks = [step * 10.0**power for power in powers for step in steps]
    else:
        step: float = 10.0 ** math.floor(math.log10((high - low) / 2))
        step = next(each for each in (step, 2 * step, 5 * step, 10 * step) if (high - low) / each <= 4)
        marks = [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
    found = [mark for mark in marks if low <= mark <= high]
    return found[:: math.ceil(len(found) / 5) or 1]


def _of_cell(point: Point, cells: Mapping[Cell, int]) -> dict[str, str]:
    number = cells.get(point.report.cell)
    return {} if number is None else {"data_cell": str(number)}


def _mark(
    point: Point,
    estimate: Estimate,
    write: Callable[[float], str],
    across: Callable[[float], float],
    y: float,
    cells: Mapping[Cell, int],
    look: Look,
) -> str:
    compiler = str(point.report.cell.compiler)
    colour, shape = look.colours.get(compiler, "currentColor"), look.shapes.get(compiler, "circle")
    x = across(estimate.value)
    ends = [across(end) if math.isfinite(end) else x for end in (estimate.low, estimate.high)]
    title = element("title", f"{point.compression} by {point.how}: {write(estimate.value)}")
    arm = f'<path class="arm" d="M{ends[0]:.1f},{y:.1f}H{ends[1]:.1f}"/>'
    mark = f'<path class="mark" d="{mark_of(shape, x, y, 3.6)}"/>'
    return element("g", joined([title, Markup(arm), Markup(mark)]), style=f"--of: {colour}", **_of_cell(point, cells))


def _table(stack: Stack, drawn: Sequence[tuple[str, str, str]], cells: Mapping[Cell, int]) -> Markup:
    order = {name: place for place, name in enumerate(stack.compressions)}
    computed = hows(stack.points)
    rows, attributes = [], []
    for point in sorted(stack.points, key=lambda one: (order[one.compression], computed.index(one.how))):
        number = cells.get(point.report.cell)
        name: object = point.compression
        if number is not None:
            name = element("a", point.compression, href=f"#cell-{number}")
        numbers = (_written(_estimate(point, metric)) for metric, *_ in drawn)
        rows.append((name, point.how, *numbers))
        attributes.append(_of_cell(point, cells))
    return table(
        ("compression", "compiler", *(exact_head(title, unit) for _, title, unit in drawn)), rows, each=attributes
    )


def _written(estimate: Estimate | None) -> Markup:
    if estimate is None:
        return shown("")
    return exact(str(estimate).partition(" (no interval")[0], estimate.value, estimate.low, estimate.high)

"""Panels on sheets of a true width: as many as fit beside and below one another, the rest on more sheets."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.figures.panels import GRID, INK, RULE, Panel
from pytest_ngraph.report.figures.size import HIGHEST_MM, POINTS_PER_MM, Size
from pytest_ngraph.report.html.drawing import NAMES, shown_in
from pytest_ngraph.report.html.libraries import drawing, vega_lite
from pytest_ngraph.texts.fitting import cut_apart

# A family that every converter has metrics of; the first that is installed is embedded.
_FONT = "Helvetica, Arial, Liberation Sans, DejaVu Sans, sans-serif"
_HEAD = re.compile(r'<svg[^>]*? width="([\d.]+)" height="([\d.]+)"[^>]*>')
# The width of letters over the size of type: a little more than it is.
_LETTER, _NARROW, _WIDE = 0.58, 0.34, 0.9
_TRIES = 6
# Points of the width that may be left free: a drawing has whole ones, and every try takes a second.
_SPARE = 6.0


@dataclass(frozen=True, slots=True)
class Sheet:
    """One file of a figure: SVG whose unit is a point, its size in points, and its panels."""

    svg: str
    width_pt: float
    height_pt: float
    panels: tuple[Panel, ...]

    @property
    def in_millimetres(self) -> str:
        """Return the SVG with its size as printers read it."""
        width, height = (number / POINTS_PER_MM for number in (self.width_pt, self.height_pt))
        return self.svg.replace(
            f'width="{self.width_pt:.4f}" height="{self.height_pt:.4f}"',
            f'width="{width:.4f}mm" height="{height:.4f}mm"',
            1,
        )


def sheets(panels: Sequence[Panel], size: Size) -> Iterator[Sheet]:
    """Yield the sheets that these panels take, each as wide as asked for and none higher than a page.

    Panels with a ``place`` stand in a grid of families by sizes, or of sizes by families, where one of them fits.
    Raises SpecError where not even one panel fits beside its axis.
    """
    ordered, beside = _arranged(panels, size)
    rest = list(ordered)
    below = max(1, len(rest))
    while rest:
        sheet = _highest(rest, beside, below, size)
        rest = rest[len(sheet.panels) :]
        below = max(1, math.ceil(len(sheet.panels) / beside))
        yield sheet


def _highest(rest: Sequence[Panel], beside: int, below: int, size: Size) -> Sheet:
    """Return the sheet with as many rows of panels as a page is high."""
    limit = HIGHEST_MM * POINTS_PER_MM
    # Only so many can fit: the lowest panels with their axes.
    below = min(below, math.ceil(len(rest) / beside), max(1, int(limit / (5 * size.font_pt))))
    while True:
        sheet = _sheet(rest[: beside * below], beside, size)
        if sheet.height_pt <= limit or below == 1:
            return sheet
        below = min(below - 1, max(1, int(below * limit / sheet.height_pt)))


def _arranged(panels: Sequence[Panel], size: Size) -> tuple[list[Panel], int]:
    """Return the panels row by row, and how many stand in a row."""
    narrowest = max([5.5 * size.font_pt, *(panel.narrowest_pt for panel in panels)])
    beside = max(1, int(size.width_pt / (narrowest + 4 * size.font_pt)))
    families: dict[str, list[Panel]] = {}
    for panel in panels:
        families.setdefault(panel.place[0] if panel.place else "", []).append(panel)
    sizes = {len(members) for members in families.values()}
    if len(families) > 1 and len(sizes) == 1:
        most = sizes.pop()
        if len(families) <= beside:
            return [family[row] for row in range(most) for family in families.values()], len(families)
        if most <= beside:
            return [panel for family in families.values() for panel in family], most
    return list(panels), min(beside, max(1, len(panels)))


def _sheet(panels: Sequence[Panel], beside: int, size: Size) -> Sheet:
    """Draw panels on a sheet: their width is found by drawing, since only then is known what axes take."""
    target = size.width_pt
    inner = target / beside - 4 * size.font_pt
    drawn = best = None
    for _ in range(_TRIES):
        svg = _drawn(panels, beside, max(inner, 12.0), size)
        found = _HEAD.match(svg)
        if found is None:
            raise SpecError(
                "--figures: the installed vl-convert-python writes SVG without a size; take another release"
            )
        width, height = float(found[1]), float(found[2])
        drawn = (svg, width, height)
        if width <= target and (best is None or width > best[1]):
            best = drawn
        if (best is not None and best[1] >= target - _SPARE) or inner <= 12.0:
            break
        inner = max(inner + (target - 1 - width) / beside, 12.0)
    if best is None:
        wide = drawn[1] / POINTS_PER_MM if drawn else 0.0
        raise SpecError(
            f"--width: {size.width_mm:g}mm is too narrow for this figure with type of {size.font_pt:g} pt (it takes "
            f"{wide:.0f}mm): give a larger --width, such as page, or a smaller --font"
        )
    svg, width, height = best
    return Sheet(_padded(svg, width, height, target), target, height, tuple(panels))


def _padded(svg: str, width: float, height: float, target: float) -> str:
    """Return a drawing in the middle of a white sheet of the width that was asked for."""
    left = (target - width) / 2
    head = (
        '<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" version="1.1" '
        f'width="{target:.4f}" height="{height:.4f}" viewBox="{-left:.4f} 0 {target:.4f} {height:.4f}">'
        f'<rect x="{-left:.4f}" y="0" width="{target:.4f}" height="{height:.4f}" fill="white"/>'
    )
    return _HEAD.sub(lambda _: head, svg, count=1)


def _drawn(panels: Sequence[Panel], beside: int, inner: float, size: Size) -> str:
    _, convert = drawing()
    last = len(panels) - beside
    specs = [
        _spec(panel, inner, size, is_first=number % beside == 0, is_last=number >= last)
        for number, panel in enumerate(panels)
    ]
    names = legend_names(panels)
    room = int((size.width_pt - 4 * size.font_pt) / (_LETTER * size.font_pt))
    spec = {
        "params": [
            {"name": name, "value": value}
            for name, value in zip(NAMES, (names, [*cut_apart(names, room).values()]), strict=True)
        ],
        "$schema": f"https://vega.github.io/schema/vega-lite/{vega_lite()}.json",
        "concat": specs,
        "columns": beside,
        "align": "each",
        "bounds": "full",
        "spacing": {"row": 0.8 * size.font_pt, "column": 0.6 * size.font_pt},
        "resolve": {"scale": {"color": "shared", "shape": "shared", "strokeDash": "shared"}},
        "padding": 1,
        "config": _config(panels, size),
    }
    drawn: str = convert.vegalite_to_svg(spec, vl_version=vega_lite(), allowed_base_urls=[])
    return drawn


def _spec(panel: Panel, inner: float, size: Size, *, is_first: bool, is_last: bool) -> dict[str, Any]:
    """Return a panel as Vega-Lite. What an axis shows stands at the left and at the bottom of the sheet only."""
    layers = []
    for layer in panel.layers:
        encoding = dict(layer["encoding"])
        for channel, is_shown in (("x", is_last), ("y", is_first)):
            if channel in encoding and not is_shown:
                axis = {**encoding[channel].get("axis", {}), "title": None}
                encoding[channel] = {**encoding[channel], "axis": axis}
            elif channel in encoding and "axis" not in encoding[channel] and channel == "y":
                encoding[channel] = {**encoding[channel], "title": panel.y}
        for channel in ("color", "shape", "strokeDash"):
            if encoding.get(channel, {}).get("legend", True) is not None and "scale" in encoding.get(channel, {}):
                encoding[channel] = {**encoding[channel], "legend": {"labelExpr": shown_in(NAMES)}}
        layers.append({**layer, "encoding": encoding})
    lines = [line for text in panel.title for line in wrapped(text, inner + 0.5 * size.font_pt, size.font_pt)]
    return {
        "title": {"text": lines, "anchor": "start", "frame": "group"},
        "width": inner,
        "height": max(panel.lowest_pt, min(0.7 * inner, 110.0), 4 * size.font_pt),
        "layer": layers,
        **panel.extra,
    }


def wrapped(text: str, room_pt: float, font_pt: float) -> list[str]:
    """Break a text into lines that fit, behind spaces and signs where it can be, so that nothing of it is cut."""
    room = room_pt / font_pt
    lines = [""]
    for part in re.findall(r"[^\s_,:/.\-]*[\s_,:/.\-]?", text):
        if lines[-1] and _width(lines[-1] + part.rstrip()) > room:
            lines.append("")
        for letter in part:
            if lines[-1] and _width(lines[-1] + letter.strip()) > room:
                lines.append("")
            lines[-1] += letter
    return [line.strip() for line in lines if line.strip()] or [""]


def _width(text: str) -> float:
    """Return about how wide a text is, over the size of its type."""
    return sum(_NARROW if one in "fijlrt.,:;'|![]() -I" else _WIDE if one in "mwMW@%" else _LETTER for one in text)


def _config(panels: Sequence[Panel], size: Size) -> dict[str, Any]:
    font = size.font_pt
    text = {"labelFontSize": font, "titleFontSize": font, "labelColor": INK, "titleColor": INK,
            "titleFontWeight": "normal", "labelFontWeight": "normal"}  # fmt: skip
    return {
        "background": None,
        "font": _FONT,
        "view": {"stroke": RULE, "strokeWidth": 0.5},
        "axis": {
            **text, "domain": False, "tickColor": RULE, "tickWidth": 0.5, "tickSize": 2.5, "gridColor": GRID,
            "gridWidth": 0.4, "labelPadding": 1.5, "titlePadding": 2.5, "labelLimit": 0, "labelFlush": False,
        },
        "title": {"fontSize": font, "fontWeight": "bold", "color": INK, "offset": 2, "lineHeight": 1.15 * font,
                  "limit": 0},
        "legend": {
            **text, "orient": "bottom", "direction": "horizontal", "columns": _legend_columns(panels, size),
            "symbolSize": 20, "symbolStrokeWidth": 1, "symbolOpacity": 1, "rowPadding": 1.5, "columnPadding": 6,
            "labelLimit": 0, "offset": 4, "titleLimit": 0,
        },
    }  # fmt: skip


def _legend_columns(panels: Sequence[Panel], size: Size) -> int:
    """Return how many names of a legend fit beside one another."""
    longest = max(map(_width, legend_names(panels)), default=1.0)
    return max(1, int(size.width_pt / (size.font_pt * (longest + 3.5))))


def legend_names(panels: Sequence[Panel]) -> list[str]:
    """Return what the legend of these panels names, if they have one."""
    names: dict[str, None] = {}
    for panel in panels:
        for layer, kind in product(panel.layers, ("strokeDash", "shape")):
            channel: Mapping[str, Any] = layer["encoding"].get(kind, {})
            if channel.get("legend", True) is not None and "scale" in channel:
                names |= dict.fromkeys(channel["scale"]["domain"])
    return list(names)

"""The panels that figures are made of, as Vega-Lite in points: curves, maps of squares, pairs that change places."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.report.html.pictures.axes import DOUBLED, span_of

Row = dict[str, Any]
INK, RULE, GRID = "#000000", "#555555", "#d9d9d9"
# Of the two models of a pair.
WHOLE, BROKEN = [1, 0], [4, 2]
# What an axis is called in print, where that is not the name of its field.
_TITLES = {"sequence": "tokens"}


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel: its title in lines, its marks, and what its axes say where they say it.

    ``place`` is where it stands in a grid of families by sizes, if it does. ``is_cut`` says that an interval goes on
    beyond its frame.
    """

    title: tuple[str, ...]
    layers: tuple[dict[str, Any], ...]
    x: str
    y: str
    place: tuple[str, str] | None = None
    is_cut: bool = False
    lowest_pt: float = 0.0
    narrowest_pt: float = 0.0
    extra: Mapping[str, Any] = field(default_factory=dict)


def curves(
    title: Sequence[str],
    rows: Sequence[Row],
    look: Look,
    names: Collection[str],
    *,
    x: str,
    y: str,
    line_at: float | None = None,
    zero: bool = False,
    place: tuple[str, str] | None = None,
    number: str = "~r",
    is_log: bool = False,
) -> Panel:
    """Return a panel with a line for each compiler over an axis: batches and lengths by their logarithm, depths as
    they are. Values are so where ``is_log``.

    ``names`` are the compilers of all panels of the figure, which its legend names. Each row has ``compiler``,
    ``value``, ``low``, ``high`` and the axis. A whisker that would set the scale of all the others ends at the frame,
    with an open triangle there.
    """
    low, high = span_of(rows, is_log=True) if is_log else _domain(rows, line_at, zero=zero)
    drawn = [_cut(row, low, high) for row in rows]
    at = sorted({row[x] for row in rows})
    scale: dict[str, Any] = {"type": "log", "base": 2} if x in DOUBLED else {"zero": False}
    if len(at) > 1:
        scale |= {"nice": False, "padding": 4}
    across = {
        "field": x, "type": "quantitative", "scale": scale,
        "axis": {"values": at, "format": "d", "title": _TITLES.get(x, x), "labelOverlap": "greedy", "grid": False},
    }  # fmt: skip
    colour = {"field": "compiler", "type": "nominal", "title": None, "scale": scale_of(look.colours, names)}
    kind = {"type": "log"} if is_log else {"zero": False}
    up = {"type": "quantitative", "scale": {"domain": [low, high], "nice": False, **kind}}
    axis = {"title": y, "format": number, "tickCount": 4}
    layers: list[dict[str, Any]] = []
    if line_at is not None:
        rule = {"type": "rule", "color": RULE, "strokeWidth": 0.6, "strokeDash": [2, 2]}
        layers.append({"data": {"values": [{"at": line_at}]}, "mark": rule, "encoding": {"y": {"field": "at", **up}}})
    data = {"values": drawn}
    layers += [
        {"data": data, "transform": [{"filter": "isValid(datum.from) && isValid(datum.to)"}],
         "mark": {"type": "rule", "strokeWidth": 0.7},
         "encoding": {"x": across, "y": {"field": "from", **up}, "y2": {"field": "to"}, "color": colour}},
        {"data": data, "mark": {"type": "line", "strokeWidth": 1},
         "encoding": {"x": across, "y": {"field": "value", **up, "axis": axis}, "color": colour,
                      "strokeDash": {"field": "compiler", "type": "nominal", "title": None,
                                     "scale": scale_of(dashes_of(look), names)}}},
        {"data": data, "mark": {"type": "point", "filled": True, "size": 11, "opacity": 1},
         "encoding": {"x": across, "y": {"field": "value", **up}, "color": colour,
                      "shape": {"field": "compiler", "type": "nominal", "title": None,
                                "scale": scale_of(look.shapes, names)}}},
    ]  # fmt: skip
    cut = _triangles(drawn, across, up, {"color": colour})
    return Panel(tuple(title), (*layers, *cut), x, y, place, is_cut=bool(cut))


def dashes_of(look: Look) -> dict[str, list[float]]:
    """Return the dashes of each compiler, in points: those of the page, which are drawn larger."""
    return {name: [0.6 * length for length in dash] for name, dash in look.dashes.items()}


def scale_of(values: Mapping[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return what these compilers look like, in the order and the look that they have in all figures."""
    shown = {name: value for name, value in values.items() if name in names}
    return {"domain": list(shown), "range": list(shown.values())}


def _domain(rows: Sequence[Row], line_at: float | None, *, zero: bool) -> tuple[float, float]:
    """Return the ends of an axis: all points, and whiskers as far as they are no wider than the points and a half."""
    values = [row["value"] for row in rows] + ([line_at] if line_at is not None else []) + ([0.0] if zero else [])
    least, most = min(values), max(values)
    room = max(most - least, 0.3 * max(abs(most), abs(least)))
    low = min([least, *(row["low"] for row in rows if row["low"] is not None)])
    high = max([most, *(row["high"] for row in rows if row["high"] is not None)])
    low, high = max(low, least - 0.5 * room), min(high, most + 0.5 * room)
    rim = 0.06 * ((high - low) or abs(high) or 1.0)
    return (0.0 if zero and low >= 0 else low - rim), high + rim


def _cut(row: Row, low: float, high: float) -> Row:
    """Return a row with the ends of its whisker within the frame, and whether it goes on."""
    if row["low"] is None or row["high"] is None:
        return {**row, "from": None, "to": None, "is_below": False, "is_above": False}
    return {
        **row, "from": max(row["low"], low), "to": min(row["high"], high),
        "is_below": row["low"] < low, "is_above": row["high"] > high,
    }  # fmt: skip


def _triangles(
    drawn: Sequence[Row], x: Mapping[str, Any], y: Mapping[str, Any], colour: Mapping[str, Any]
) -> list[dict[str, Any]]:
    """Return the layers with an open triangle where a whisker ends at the frame and goes on, none where none does."""
    layers: list[dict[str, Any]] = []
    for end, at, shape in (("is_above", "to", "triangle-up"), ("is_below", "from", "triangle-down")):
        if any(row[end] for row in drawn):
            layers.append(
                {"data": {"values": [row for row in drawn if row[end]]},
                 "mark": {"type": "point", "shape": shape, "filled": False, "size": 12, "strokeWidth": 0.7},
                 "encoding": {"x": x, "y": {"field": at, **y}, **colour}}
            )  # fmt: skip
    return layers


def squares(title: Sequence[str], rows: Sequence[Row], font_pt: float) -> Panel:
    """Return a map of widths by batch: each square is as dark as its scaling efficiency is low, and has its number."""
    data = {"values": list(rows)}
    x = {"field": "batch", "type": "ordinal", "axis": {"title": "batch", "labelAngle": 0}}
    y = {"field": "width", "type": "ordinal", "sort": "descending", "axis": {"title": "width"}}
    scale = {"scheme": "greys", "domain": [1, 0], "clamp": True}
    ink = {"condition": {"test": "datum.value < 0.5", "value": "white"}, "value": INK}
    layers = (
        {"data": data, "mark": {"type": "rect", "stroke": "white", "strokeWidth": 0.5},
         "encoding": {"x": x, "y": y, "color": {"field": "value", "type": "quantitative", "scale": scale,
                                                "legend": None}}},
        {"data": data, "mark": {"type": "text", "fontSize": font_pt},
         "encoding": {"x": x, "y": y, "text": {"field": "value", "type": "quantitative", "format": ".2f"},
                      "color": ink}},
    )  # fmt: skip
    batches, widths = len({row["batch"] for row in rows}), len({row["width"] for row in rows})
    return Panel(
        tuple(title), layers, "batch", "width",
        lowest_pt=widths * 1.6 * font_pt, narrowest_pt=batches * 2.2 * font_pt,
    )  # fmt: skip


def pair(title: Sequence[str], rows: Sequence[Row], sides: tuple[str, str]) -> Panel:
    """Return two models' throughput with the baseline and compiled: the first a solid line, the second a dashed one.

    Each row has ``role``, which is 1 or 2, ``side``, ``value``, ``low`` and ``high``. Whiskers end as in ``curves``.
    """
    low, high = _domain(rows, None, zero=False)
    low = max(low, 0.0)
    drawn = [_cut(row, low, high) for row in rows]
    x = {"field": "side", "type": "nominal", "sort": list(sides), "scale": {"type": "point", "padding": 0.3},
         "axis": {"title": None, "labelAngle": 0, "labelLimit": 0, "labelOverlap": False}}  # fmt: skip
    up = {"type": "quantitative", "scale": {"domain": [low, high], "nice": False, "zero": False}}
    data = {"values": drawn}

    def by(channel: str, values: Sequence[Any]) -> dict[str, Any]:
        scale = {"domain": [1, 2], "range": list(values)}
        return {channel: {"field": "role", "type": "nominal", "legend": None, "scale": scale}}

    colour = by("color", ("#000000", "#b3541e"))
    layers = (
        {"data": data, "transform": [{"filter": "isValid(datum.from) && isValid(datum.to)"}],
         "mark": {"type": "rule", "strokeWidth": 0.7},
         "encoding": {"x": x, "y": {"field": "from", **up}, "y2": {"field": "to"}, **colour}},
        {"data": data, "mark": {"type": "line", "strokeWidth": 1},
         "encoding": {"x": x, "y": {"field": "value", **up, "axis": {"title": "samples/s", "tickCount": 4}},
                      **colour, **by("strokeDash", (WHOLE, BROKEN))}},
        {"data": data, "mark": {"type": "point", "filled": True, "size": 20, "opacity": 1},
         "encoding": {"x": x, "y": {"field": "value", **up}, **colour, **by("shape", ("circle", "triangle-up"))}},
    )  # fmt: skip
    cut = _triangles(drawn, x, up, colour)
    return Panel(tuple(title), (*layers, *cut), "", "samples/s", is_cut=bool(cut), narrowest_pt=70.0)


def finite(value: float) -> float | None:
    """Return a number, or None for one that is not bounded."""
    return value if math.isfinite(value) else None


def compared(
    drawn: Sequence[Row],
    x: Mapping[str, Any],
    y: Mapping[str, Any],
    axis: Mapping[str, Any],
    look: Look,
    names: Collection[str],
    size: int,
) -> tuple[dict[str, Any], ...]:
    """Return the layers of a panel with a mark for each compiler, beside those of the others, over its interval.

    A row has ``value``, and ``from`` and ``to``, None without an interval. ``x`` is the encoding of the places, ``y``
    that of the values, ``axis`` their axis, and ``size`` that of a mark in square pixels.
    """  # fmt: skip
    beside = {"field": "compiler", "type": "nominal", "sort": [name for name in look.colours if name in names]}
    colour = {"field": "compiler", "type": "nominal", "title": None, "scale": scale_of(look.colours, names)}
    shape = {"field": "compiler", "type": "nominal", "title": None, "scale": scale_of(look.shapes, names)}
    return (
        {"data": {"values": drawn}, "transform": [{"filter": "isValid(datum.from) && isValid(datum.to)"}],
         "mark": {"type": "rule", "strokeWidth": 0.7},
         "encoding": {"x": x, "xOffset": beside, "y": {"field": "from", **y}, "y2": {"field": "to"},
                      "color": colour}},
        {"data": {"values": drawn}, "mark": {"type": "point", "filled": True, "size": size, "opacity": 1},
         "encoding": {"x": x, "xOffset": beside, "y": {"field": "value", **y, "axis": axis}, "color": colour,
                      "shape": shape}},
    )  # fmt: skip

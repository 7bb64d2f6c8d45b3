"""Figures with what the paper states of a device and ours side by side: for each compiler a line from one to the other.

The paper prints no numbers with its figures. Those of its tables that say the same of a device are drawn: Table VI for
Figures 5, 6 and 12, Tables VII and VIII for Figure 7, and Table III, which has no figure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.figures.chosen import look_of
from pytest_ngraph.report.figures.files import (
    Request,
    check_formats,
    chosen_names,
    machine,
    made_by,
    suffix_of,
    write_captions,
    write_sheets,
)
from pytest_ngraph.report.figures.layout import sheets
from pytest_ngraph.report.figures.panels import RULE, Panel, Row, dashes_of, finite, scale_of
from pytest_ngraph.report.figures.paper import SUITE
from pytest_ngraph.report.html.content import Content
from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.report.html.pictures.axes import both_ways
from pytest_ngraph.report.paper.against import Comparison
from pytest_ngraph.report.paper.pairs import Pair
from pytest_ngraph.report.paper.published import DEVICES, VERSIONS
from pytest_ngraph.texts.shown import clean

_SIDES = ("paper", "here")
_BLOCKS = {"block:conv": "conv blocks", "block:mha": "attention blocks"}
_MEANS = (
    "The paper's is the mean over the three networks of a family and both batches; so is ours where a panel does not "
    "say what it is of."
)
_CUT = " Whiskers that end at the frame go on beyond it."
_RATIOS = "Of two machines the ratios are comparable, the times are not."


@dataclass(frozen=True, slots=True)
class Beside:
    """What stands beside one figure or table of the paper: which numbers, how they are drawn, and what says so.

    ``metrics`` are the axis of each and where its dashed rule is, if it has one. Panels of one metric share their axis;
    where there are several each panel says its own, and has an axis by itself.
    """

    name: str
    table: str
    says: str
    metrics: Mapping[str, tuple[str, float | None]]
    command: str
    is_log: bool = False


_ROWS = (
    Beside("5", "Table VI", f"Throughput, logarithmic. {_MEANS} {_RATIOS}", {"throughput": ("samples/s", None)},
           f"{SUITE}/test_compiler_support.py -k gain", is_log=True),
    Beside("6", "Table VI", f"Throughput over that of the dynamic graph; the dashed rule is at 1. {_MEANS}",
           {"speedup": ("speed-up", 1.0)}, f"{SUITE}/test_compiler_support.py -k gain"),
    Beside("7", "Tables VII and VIII", "What the speed-up of a stack gains for each further block (slope; the dashed "
           "rule is at 0), and that of six blocks over that of one (retention; at 1).",
           {"slope": ("slope", 0.0), "retention": ("retention", 1.0)}, f"{SUITE}/test_depth_scaling.py"),
    Beside("12", "Table VI", f"CPU time over wall time, in per cent of all CPUs of the device. {_MEANS}",
           {"cpu_percent": ("CPU [%]", None)}, f"{SUITE}/test_resource_use.py"),
    Beside("iii", "Table III", f"Seconds to compile, logarithmic. {_RATIOS}", {"compile_seconds": ("seconds", None)},
           f"{SUITE}/test_compile_time.py", is_log=True),
)  # fmt: skip
BESIDE: Mapping[str, Beside] = MappingProxyType({row.name: row for row in _ROWS})


def beside_of(names: Sequence[str]) -> list[Beside]:
    """Return what stands beside these figures, all where none is named. Raise SpecError for one without numbers."""
    wanted = list(dict.fromkeys(name.strip().lower() for text in names for name in text.split(",")))
    for name in wanted:
        if name not in BESIDE:
            raise SpecError(
                f"--figure: {name!r} with --against paper: it states no numbers (known: {', '.join(BESIDE)})"
            )
    return [BESIDE[name] for name in wanted] if wanted else list(BESIDE.values())


def write_beside(content: Content, comparison: Comparison, folder: Path, request: Request) -> Iterator[str]:
    """Write figures with the paper's numbers and ours. Yield what to say: the files, and what there is nothing for.

    Each device has files of its own. Raises SpecError for what cannot be chosen, for a figure that was named and has
    nothing to show, and where there is none at all, StoreError for a folder that cannot be written.
    """
    check_formats(request)
    wanted = beside_of(request.figures)
    devices, compilers = chosen_names(content, content.reports, request)
    look, written, lacking = look_of(content), 0, []
    for one in wanted:
        pairs = [
            pair
            for pair in comparison.pairs
            if pair.metric in one.metrics and pair.device in devices and pair.compiler in compilers
        ]
        for device in dict.fromkeys(pair.device for pair in pairs):
            mine = [pair for pair in pairs if pair.device == device]
            made = list(sheets(list(_panels(one, mine, look)), request.size))
            suffix = suffix_of(device) if len(comparison.devices) > 1 else ""
            text = _caption(one, mine, content, comparison)
            yield from write_sheets(f"beside-{_stem(one)}{suffix}", f"{_title(one)}{suffix}", made, folder, request)
            texts = [text + _CUT if any(panel.is_cut for panel in sheet.panels) else text for sheet in made]
            yield from write_captions(f"beside-{_stem(one)}{suffix}", texts, folder, request)
            written += 1
        if not pairs:
            theirs = ", ".join(f"{device} {_class_of(comparison, device)}" for device in devices)
            lacking.append(f"{_title(one)}: nothing here is like {one.table} ({theirs}); measure it: {one.command}")
            if request.figures:
                raise SpecError(f"--figure {one.name}: {lacking[-1].partition(': ')[2]}")
    yield from lacking
    if not written:
        raise SpecError(f"{folder}: the run has nothing beside the paper's numbers")


def _stem(one: Beside) -> str:
    return f"figure-{one.name}" if one.name.isdecimal() else f"table-{one.name}"


def _title(one: Beside) -> str:
    return _stem(one).replace("-", " ")


def _class_of(comparison: Comparison, device: str) -> str:
    theirs, machine_of = comparison.devices[device]
    return f"beside its {theirs}" if theirs else f"beside nothing: {machine_of}"


# Panels


def _panels(one: Beside, pairs: Sequence[Pair], look: Look) -> Iterator[Panel]:
    """Yield a panel for each thing that both have numbers of, in the order of the paper's tables."""
    found: dict[tuple[str, ...], list[Pair]] = {}
    for pair in pairs:
        found.setdefault((pair.metric, pair.subject, pair.at, pair.here), []).append(pair)
    names = {pair.compiler for pair in pairs}
    has_one_axis = len(one.metrics) == 1
    for (metric, subject, at, here), some in found.items():
        y, line_at = one.metrics[metric]
        rows = [row for pair in (pairs if has_one_axis else some) for row in _both(pair)]
        ends = _ends(rows, line_at, is_log=one.is_log)
        title = [_BLOCKS.get(subject, subject), at, *([f"here {here}"] if here else []), *([] if has_one_axis else [y])]
        axis = y if has_one_axis else ""
        yield _lines(title, some, look, names, ends=ends, y=axis, line_at=line_at, is_log=one.is_log)


def _lines(
    title: Sequence[str],
    pairs: Sequence[Pair],
    look: Look,
    names: Collection[str],
    *,
    ends: tuple[float, float],
    y: str,
    line_at: float | None,
    is_log: bool,
) -> Panel:
    """Return a panel: the paper's numbers at the left, hollow, ours at the right, filled, on one axis."""
    low, high = ends
    drawn = [_within(row, low, high) for pair in pairs for row in _both(pair)]
    x = {"field": "side", "type": "nominal", "sort": list(_SIDES), "scale": {"type": "point", "padding": 0.35},
         "axis": {"title": None, "labelAngle": 0, "labelLimit": 0, "labelOverlap": False}}  # fmt: skip
    kind: dict[str, Any] = {"type": "log"} if is_log else {"zero": False}
    up = {"type": "quantitative", "scale": {**kind, "domain": [low, high], "nice": False}}
    axis = {"title": y or None, "format": "~s" if is_log else "~r", "tickCount": 4}

    def by(channel: str, values: Mapping[str, Any]) -> dict[str, Any]:
        return {channel: {"field": "compiler", "type": "nominal", "title": None, "scale": scale_of(values, names)}}

    colour, shape = by("color", look.colours), by("shape", look.shapes)
    data = {"values": drawn}
    layers: list[dict[str, Any]] = []
    if line_at is not None:
        rule = {"type": "rule", "color": RULE, "strokeWidth": 0.6, "strokeDash": [2, 2]}
        layers.append({"data": {"values": [{"at": line_at}]}, "mark": rule, "encoding": {"y": {"field": "at", **up}}})
    layers += [
        {"data": data, "transform": [{"filter": "isValid(datum.from) && isValid(datum.to)"}],
         "mark": {"type": "rule", "strokeWidth": 0.7},
         "encoding": {"x": x, "y": {"field": "from", **up}, "y2": {"field": "to"}, **colour}},
        {"data": data, "mark": {"type": "line", "strokeWidth": 1},
         "encoding": {"x": x, "y": {"field": "value", **up, "axis": axis}, **colour,
                      **by("strokeDash", dashes_of(look))}},
        {"data": data, "transform": [{"filter": "datum.side == 'here'"}],
         "mark": {"type": "point", "filled": True, "size": 20, "opacity": 1},
         "encoding": {"x": x, "y": {"field": "value", **up}, **colour, **shape}},
        {"data": data, "transform": [{"filter": "datum.side == 'paper'"}],
         "mark": {"type": "point", "fill": "white", "size": 20, "opacity": 1, "strokeWidth": 0.9},
         "encoding": {"x": x, "y": {"field": "value", **up}, **colour, **shape}},
    ]  # fmt: skip
    is_cut = any(row["is_cut"] for row in drawn)
    return Panel(tuple(title), tuple(layers), "", y, is_cut=is_cut, narrowest_pt=62.0)


def _both(pair: Pair) -> Iterator[Row]:
    around = pair.deviation
    yield {
        "side": "paper", "compiler": pair.compiler, "value": pair.value,
        "low": None if around is None else pair.value - around, "high": None if around is None else pair.value + around,
    }  # fmt: skip
    mine = pair.mine
    low, high = finite(mine.low), finite(mine.high)
    is_bounded = low is not None and high is not None
    yield {
        "side": "here", "compiler": pair.compiler, "value": mine.value,
        "low": low if is_bounded else None, "high": high if is_bounded else None,
    }  # fmt: skip


def _ends(rows: Sequence[Row], line_at: float | None, *, is_log: bool) -> tuple[float, float]:
    """Return the ends of an axis that holds every point, and whiskers no longer than the points are apart."""
    scaled, back = both_ways(is_log)
    marks = [scaled(row["value"]) for row in rows] + ([scaled(line_at)] if line_at is not None else [])
    least, most = min(marks), max(marks)
    reach = max(most - least, 0.1 * max(abs(most), abs(least)), 0.05)
    ends = [
        scaled(row[end])
        for row in rows
        for end in ("low", "high")
        if row[end] is not None and (row[end] > 0 or not is_log)
    ]
    low, high = max(min([least, *ends]), least - reach), min(max([most, *ends]), most + reach)
    room = 0.08 * (high - low) or 0.08
    return back(low - room), back(high + room)


def _within(row: Row, low: float, high: float) -> Row:
    """Return a row with its whisker cut at the frame."""
    if row["low"] is None:
        return {**row, "from": None, "to": None, "is_cut": False}
    start, end = max(row["low"], low), min(row["high"], high)
    return {**row, "from": start, "to": end, "is_cut": (start, end) != (row["low"], row["high"])}


# Words


def _caption(one: Beside, pairs: Sequence[Pair], content: Content, comparison: Comparison) -> str:
    """Return what a reader must know: from which device and how each number is, and what an interval is."""
    device = pairs[0].device
    theirs = comparison.devices[device][0]
    assert theirs is not None
    run = content.run
    launches = sorted({pair.mine.launches for pair in pairs})
    several = f"{launches[0]} to {launches[-1]}" if len(launches) > 1 else str(launches[0])
    spread = SPREADS.get(run.protocol, "")
    is_spread = any(pair.deviation is not None for pair in pairs)
    beside = f"Figure {one.name}" if one.name.isdecimal() else one.table
    parts = [
        one.says,
        f"Hollow, at the left: {one.table} of NGraphBench (Furutanpey et al.), beside {beside}: its {theirs}, "
        f"{DEVICES[theirs]}, {', '.join(f'{name} {version}' for name, version in _versions(pairs))}"
        + (", with the standard deviation of 100 repetitions." if is_spread else "."),
        f"Filled, at the right: run {run.id}, protocol {run.protocol}, {spread + ', ' if spread else ''}of {several} "
        f"{'launch' if launches == [1] else 'launches'}. {machine(content, device)}",
        "Compilers that one of the two does not have are not in it.",
        made_by(content),
    ]
    return " ".join(clean(part) for part in parts)


def _versions(pairs: Sequence[Pair]) -> Iterator[tuple[str, str]]:
    """Yield the versions that the paper had of what these numbers were measured with."""
    used = {pair.compiler for pair in pairs}
    names = {"tvm": "apache-tvm"}
    wanted = {"torch", *(names.get(compiler, compiler) for compiler in used)}
    yield from ((name, version) for name, version in VERSIONS.items() if name in wanted)

"""The second paper's Figures 3 to 7 of a run: accuracy over ratios of compression, and times by compression."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.dlas.tables import SUITE, is_gpu
from pytest_ngraph.report.figures.chosen import Chosen, Figure, look_of
from pytest_ngraph.report.figures.panels import Panel, Row, compared, curves, finite
from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.report.html.pictures.axes import both_ways
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.stack.cells import Point, in_order, method_of, nominal_ratio, points
from pytest_ngraph.report.stack.names import short_names, shortened
from pytest_ngraph.spec.cells import DENSE

_AFTER = "of Gibson, Cano et al. (DLAS)"
_NAMES = (
    "WP and CP are pruned weights and channels, with the per cent that was asked for; a name in brackets says of what."
)


def accuracy(chosen: Chosen) -> list[Panel]:
    """Figure 3: for each model and method of compression accuracy, and below it time, over the per cent taken away."""
    found = [point for point in _points(chosen) if nominal_ratio(point.compression) or point.compression == DENSE]
    known = {point.model for point in found if point.accuracy is not None}
    found = [point for point in found if point.model in known]
    look, names = look_of(chosen.content), {_compiler(point) for point in found}
    panels = []
    for model in sorted(known, key=natural):
        of_model = [point for point in found if point.model == model]
        for method in _methods(of_model):
            some = [point for point in of_model if point.compression == DENSE or method_of(point.compression) == method]
            for metric, y in (("accuracy:top1", "top 1 [%]"), ("latency", "ms")):
                rows = list(filter(None, (_over_ratios(point, metric) for point in some)))
                if len({row["gone"] for row in rows}) > 1:
                    panels.append(
                        curves([model, shortened(method), y], rows, look, names, x="gone", y=y)
                    )  # fmt: skip
    return panels


def times(chosen: Chosen, is_large: bool, on_gpu: bool) -> list[Panel]:
    """Figures 4 to 7: for each model the time of a call by compression, each compiler with its own colour and shape."""
    found = [
        point for point in _points(chosen, is_large)
        if point.latency is not None and is_gpu(point.platform.device) is on_gpu
    ]  # fmt: skip
    if len({point.compression for point in found}) < 2:
        return []
    look, names = look_of(chosen.content), {_compiler(point) for point in found}
    models = sorted({point.model for point in found}, key=natural)
    return [_by_compression(model, [p for p in found if p.model == model], look, names) for model in models]


def _points(chosen: Chosen, is_large: bool | None = None) -> list[Point]:
    return points(chosen.content.reports, is_large)


def _compiler(point: Point) -> str:
    return str(point.report.cell.compiler)


def _methods(found: Sequence[Point]) -> list[str]:
    """Return the methods that took away several shares, or that are one of bits."""
    compressions = in_order(point.compression for point in found)
    return [name for name in dict.fromkeys(map(method_of, compressions)) if name != DENSE]


def _over_ratios(point: Point, metric: str) -> Row | None:
    estimate = point.report.estimates.get(metric)
    if estimate is None:
        return None
    gone = round(100 * (nominal_ratio(point.compression) or 0.0), 1)
    scale = 100.0 if metric.startswith("accuracy") else 1e3
    return {"compiler": _compiler(point), "gone": gone, **_scaled(estimate, scale)}


def _scaled(estimate: Estimate, scale: float) -> Row:
    low, high = finite(estimate.low), finite(estimate.high)
    is_bounded = low is not None and high is not None
    return {
        "value": scale * estimate.value,
        "low": scale * low if is_bounded and low is not None else None,
        "high": scale * high if is_bounded and high is not None else None,
    }


def _by_compression(model: str, found: Sequence[Point], look: Look, names: Collection[str]) -> Panel:
    """Return one model's times: a place for each compression, in it a mark for each compiler beside the others."""
    compressions = in_order(point.compression for point in found)
    short = short_names(compressions)
    rows: list[Row] = []
    for point in found:
        assert point.latency is not None
        rows.append({"what": short[point.compression], "compiler": _compiler(point), **_scaled(point.latency, 1e3)})
    low, high = _ends(rows)
    drawn = [_within(row, low, high) for row in rows]
    x = {"field": "what", "type": "nominal", "sort": [short[name] for name in compressions],
         "axis": {"title": None, "labelAngle": -40, "labelLimit": 0, "labelOverlap": False}}  # fmt: skip
    up = {"type": "quantitative", "scale": {"type": "log", "domain": [low, high], "nice": False}}
    axis = {"title": "ms", "format": "~s", "tickCount": 4}
    layers = compared(drawn, x, up, axis, look, names, 16)
    width = 7.0 * len(compressions) * max(1, len({row["compiler"] for row in rows}))
    return Panel((model,), layers, "", "ms", is_cut=any(row["is_cut"] for row in drawn), narrowest_pt=max(70.0, width))


def _ends(rows: Sequence[Row]) -> tuple[float, float]:
    """Return the ends of a logarithmic axis that holds every time, and some room around them."""
    scaled, back = both_ways(True)
    marks = [scaled(row["value"]) for row in rows]
    room = 0.15 * (max(marks) - min(marks)) or 0.2
    return back(min(marks) - room), back(max(marks) + room)


def _within(row: Row, low: float, high: float) -> Row:
    if row["low"] is None or row["high"] is None:
        return {**row, "from": None, "to": None, "is_cut": False}
    start, end = max(row["low"], low), min(row["high"], high)
    return {**row, "from": start, "to": end, "is_cut": (start, end) != (row["low"], row["high"])}


def _row(number: int, what: str, is_large: bool, on_gpu: bool) -> Figure:
    on = "GPUs" if on_gpu else "CPUs"
    device = " --ngraph-device=cuda" if on_gpu else ""
    selected = " -m full -k imagenet" if is_large else ""
    return Figure(
        f"dlas-{number}",
        f"Milliseconds of a call, logarithmic, of {what} on {on} by what was done to the network, a panel for each of "
        f"them. {_NAMES} After Figure {number} {_AFTER}.",
        partial(times, is_large=is_large, on_gpu=on_gpu), ("latency",), f"{SUITE}/test_dlas_speed.py{selected}{device}",
    )  # fmt: skip


_ROWS = (
    Figure("dlas-3", "Accuracy (top 1, in per cent) of compiled networks and milliseconds of a call by the per cent of "
           f"weights, channels or bits that was taken away. "
           f"{_NAMES} After Figure 3 {_AFTER}.",
           accuracy, ("accuracy:top1",), f"{SUITE}/test_dlas_digits.py"),
    _row(4, "networks for small images", is_large=False, on_gpu=False),
    _row(5, "networks for small images", is_large=False, on_gpu=True),
    _row(6, "networks for large images", is_large=True, on_gpu=False),
    _row(7, "networks for large images", is_large=True, on_gpu=True),
)  # fmt: skip
DLAS_FIGURES: Mapping[str, Figure] = MappingProxyType({figure.name: figure for figure in _ROWS})

"""The third paper's Figures 1 and 2 of a run: six metrics of its models in one configuration, side by side."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.figures.chosen import Chosen, Figure, look_of
from pytest_ngraph.report.figures.panels import Panel, Row, compared, finite
from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.report.lvt.published import LATENCY, METRICS, THROUGHPUT, Metric
from pytest_ngraph.report.lvt.setups import SUITE, Setup, setups

# Longer names stand askew.
_LETTERS = 10
_AFTER = "of Nassef et al. (Standard against TensorRT-Optimized)"


def metrics(chosen: Chosen, focus: str) -> list[Panel]:
    """Return a panel for each metric that the run has: a place for each model, in it a mark for each that ran it."""
    found = [one for one in setups(chosen.content.reports) if one.focus == focus]
    if not any(one.estimate(metric) for one in found for metric in METRICS if metric.name == "latency"):
        return []
    look, names = look_of(chosen.content), {_compiler(one) for one in found}
    models = list(dict.fromkeys(one.model for one in found))
    made = (_panel(metric, found, models, look, names) for metric in METRICS)
    return [panel for panel in made if panel is not None]


def _compiler(one: Setup) -> str:
    return str(one.report.cell.compiler)


def _rows(metric: Metric, found: Sequence[Setup]) -> list[Row]:
    rows: list[Row] = []
    for one in found:
        estimate = one.estimate(metric)
        if estimate is not None:
            batch = f"batch {one.report.cell.workload.batch}"
            rows.append({"what": one.model, "compiler": _compiler(one), "how": batch, **_numbers(estimate)})
    return rows


def _numbers(estimate: Estimate) -> Row:
    low, high = finite(estimate.low), finite(estimate.high)
    is_bounded = low is not None and high is not None
    return {"value": estimate.value, "from": low if is_bounded else None, "to": high if is_bounded else None}


def _panel(
    metric: Metric, found: Sequence[Setup], models: Sequence[str], look: Look, names: Collection[str]
) -> Panel | None:
    rows = _rows(metric, found)
    if not rows:
        return None
    # A length from zero on, as the paper's bars; an interval that is far longer than the values is cut.
    highest = max(row["value"] for row in rows)
    top = min(max([highest, *(row["to"] for row in rows if row["to"] is not None)]), 2 * highest) * 1.08 or 1.0
    is_cut = any(row["to"] is not None and (row["to"] > top or row["from"] < 0) for row in rows)
    drawn = [
        {**row, "from": None if row["from"] is None else max(row["from"], 0.0),
         "to": None if row["to"] is None else min(row["to"], top)}
        for row in rows
    ]  # fmt: skip
    x = {"field": "what", "type": "nominal", "sort": list(models),
         "axis": {"title": None, "labelAngle": -40 if any(len(name) > _LETTERS for name in models) else 0,
                  "labelLimit": 0, "labelOverlap": False}}  # fmt: skip
    up = {"type": "quantitative", "scale": {"domain": [0, top], "nice": False}}
    axis = {"title": None, "format": "~s" if highest >= 1000 else "~r", "tickCount": 4}
    layers = compared(drawn, x, up, axis, look, names, 22)
    width = 12.0 * len(models) * max(1, len({row["compiler"] for row in rows}))
    # What is drawn and its unit stand above it: each panel has an axis of its own.
    return Panel((metric.title,), layers, "", "", is_cut=is_cut, narrowest_pt=max(80.0, width))


def _figure(number: int, focus: str, how: str) -> Figure:
    return Figure(
        f"lvt-{number}",
        f"Six metrics of models in the {focus} configuration ({how}), a panel for each that could be read. Several "
        f"marks of a compiler are of several batches. After Figure {number} {_AFTER}.",
        partial(metrics, focus=focus), ("latency",), SUITE,
    )  # fmt: skip


_ROWS = (
    _figure(1, LATENCY, "one sample after the other"),
    _figure(2, THROUGHPUT, "batches, or several calls in flight"),
)
LVT_FIGURES: Mapping[str, Figure] = MappingProxyType({figure.name: figure for figure in _ROWS})

"""The charts of several runs: those of one run, a colour for each run on the same axes, a panel for each compiler."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

from pytest_ngraph.report.html.charts import CHARTS, Chart, has_place
from pytest_ngraph.report.html.content import Content
from pytest_ngraph.report.html.data import RUN
from pytest_ngraph.report.html.drawing import Look, Panels
from pytest_ngraph.report.html.pictures.palette import colours_of, dashes_of, shapes_of

# By their panels in the page of one run: those that a row has there, and a compiler beside each here.
_PANELS = {"subject": "series", "stack": "layers", "lengths": "spans"}
_MEANS = "scores"
# Of panels: their least width, as in the page of one run where it has several columns, and how many there are at first.
_WIDTH, _MOST = 215, 40
# Of a row of means in pixels: room for it, and for each run.
_LINE, _RUN = 8, 11
_OF_RUNS = " A colour for each run, a panel for each compiler, all on the same axes; no run is divided by another."


def look_of(names: Sequence[str]) -> Look:
    """Return the colour, the shape and the dash of each run."""
    return Look(colours_of(names, set()), shapes_of(names), dashes_of(names), RUN)


def charts_of_runs(contents: Sequence[Content]) -> list[Chart]:
    """Return the charts in the order of the page of one run. Without devices means of two of them share a panel."""
    charts, runs = [], len(contents)
    has_devices = any(content.has_devices for content in contents)
    for chart in CHARTS:
        if not has_place(chart, contents):
            continue
        if chart.name == _MEANS:
            says = f"{chart.says} A colour for each run."
            one_panel: dict[str, Any] = {} if has_devices else {"panel": None, "width": 0}
            charts.append(_of_runs(replace(chart, says=says, step=_LINE + _RUN * runs, **one_panel)))
        elif chart.along is not None and chart.panel in _PANELS and chart.rows != "break_even":
            panel = _PANELS[chart.panel]
            how: dict[str, Any] = {"panel": panel, "limits": panel, "build": _in_panels(chart.build, panel)}
            if panel == "series":
                # Compilers side by side, models below one another. Lines over depths have words at their ends instead.
                how |= {"columns": "compiler", "beside": "subject", "width": _WIDTH, "most": _MOST}
            charts.append(_of_runs(replace(chart, says=chart.says + _OF_RUNS, **how)))
    return charts


def _of_runs(chart: Chart) -> Chart:
    return replace(chart, legend=RUN, numbers=(RUN, *chart.numbers))


def _in_panels(build: Callable[[Look], Any], panel: str) -> Callable[[Look], Any]:
    def built(look: Look) -> Any:
        made: Panels = build(look)
        return replace(made, field=panel)

    return built

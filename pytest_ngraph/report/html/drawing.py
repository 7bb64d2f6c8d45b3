"""What the charts look like: each drawn once with Altair, in colours and fonts that page and figures share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pytest_ngraph.metrics import METRICS
from pytest_ngraph.report.html.content import FARTHEST, Content
from pytest_ngraph.report.html.palette import BASELINE, VERDICTS, colours_of, shapes_of
from pytest_ngraph.stats.verdict import Verdict

# The rows of a chart are a data set of this name: the page and the figures put in what is to be shown.
ROWS = "rows"
# Panels that a chart shows at most: more are no longer looked at, and take the browser seconds.
MOST_PANELS, MOST_LINES = 24, 60
PANEL_WIDTH = 210


@dataclass(frozen=True, slots=True)
class Look:
    """What all charts of a report have in common: the colour and the shape of each compiler."""

    colours: dict[str, str]
    shapes: dict[str, str]

    @classmethod
    def of(cls, content: Content) -> Look:
        """Return the look of a report."""
        names = content.compilers
        return cls(colours_of(names, content.baselines), shapes_of(names))


# Fonts that every system has; nothing is fetched. ``currentColor`` follows the page's theme.
_FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
CONFIG: dict[str, Any] = {
    "background": None,
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "domainOpacity": 0.35, "gridOpacity": 0.12, "tickOpacity": 0.35, "labelLimit": 260, "titleFontWeight": 500,
        "titlePadding": 8, "labelFontSize": 11, "titleFontSize": 11,
    },
    "header": {
        "labelFontWeight": 600, "labelFontSize": 12, "labelLimit": PANEL_WIDTH + 60, "title": None,
        "labelAnchor": "start",
    },
    "legend": {
        "orient": "top", "labelFontSize": 12, "symbolOpacity": 1, "symbolStrokeWidth": 1.5, "labelLimit": 260,
        "titleFontWeight": 500,
    },
    "point": {"filled": True, "size": 46},
    "line": {"strokeWidth": 1.8},
}  # fmt: skip
_COLOURED = ("labelColor", "titleColor", "domainColor", "tickColor", "gridColor")


def coloured(spec: dict[str, Any], colour: str) -> dict[str, Any]:
    """Return a definition whose texts, axes and grids have this colour."""
    config = dict(spec["config"])
    config["axis"] = {**config["axis"], **dict.fromkeys(_COLOURED, colour)}
    config["header"] = {**config["header"], "labelColor": colour, "titleColor": colour}
    config["legend"] = {**config["legend"], "labelColor": colour, "titleColor": colour}
    return {**spec, "config": config}


# What charts are made of


def _data() -> Any:
    import altair as alt

    return alt.NamedData(name=ROWS)


# An interval over one launch has no ends.
_BOUNDED = "isValid(datum.low) && isValid(datum.high)"


def _once() -> Any:
    """Return what is drawn once, not for every row."""
    import altair as alt

    return alt.Chart().transform_aggregate(rows="count()")


def _colour(look: Look, field: str = "compiler") -> Any:
    import altair as alt

    scale = alt.Scale(domain=list(look.colours), range=list(look.colours.values()))
    return alt.Color(f"{field}:N", scale=scale, title=None)


def _shape(look: Look, field: str = "compiler") -> Any:
    import altair as alt

    scale = alt.Scale(domain=list(look.shapes), range=list(look.shapes.values()))
    return alt.Shape(f"{field}:N", scale=scale, title=None)


def _tooltip(*fields: str) -> list[Any]:
    import altair as alt

    names = {"text": "value", "what": "metric"}
    return [alt.Tooltip(f"{field}:N", title=names.get(field, field)) for field in fields]


_OF_CELL = ("compiler", "subject", "batch", "what", "text")


def _over(
    metric: str,
    look: Look,
    *,
    x: str = "batch",
    panel: str = "subject",
    line_at: float | None = None,
    scale: str = "linear",
    zero: bool = True,
    title: str = "",
) -> Any:
    """Return lines with intervals over an axis, a panel for each of what runs."""
    import altair as alt

    axis = alt.X(f"{x}:O", title=x, axis=alt.Axis(labelAngle=0, labelOverlap=True))
    kind: Any = alt.Scale(type="log", nice=False) if scale == "log" else alt.Scale(zero=zero)
    label = (
        f"{title or METRICS[metric].title} [{METRICS[metric].unit}]" if METRICS[metric].unit else METRICS[metric].title
    )
    base = alt.Chart().encode(x=axis, color=_colour(look), detail="what:N")
    line = base.mark_line().encode(y=alt.Y("value:Q", title=label, scale=kind), strokeDash=_dash(metric))
    bars = base.transform_filter(_BOUNDED).mark_rule(strokeWidth=1.4, opacity=0.55).encode(y="low:Q", y2="high:Q")
    points = base.mark_point(opacity=1).encode(y="value:Q", shape=_shape(look), tooltip=_tooltip(*_OF_CELL))
    layers = [bars, line, points]
    if line_at is not None:
        layers.insert(0, _once().mark_rule(strokeDash=[5, 4], color=BASELINE).encode(y=alt.YDatum(line_at)))
    height = 130
    panels = alt.layer(*layers, data=_data()).properties(width=PANEL_WIDTH, height=height)
    return panels.facet(
        facet=alt.Facet(f"{panel}:N", title=None, sort=None), columns=4, spacing={"row": 18, "column": 26}
    ).resolve_scale(y="independent", x="independent" if x != "batch" else "shared")


# What is shown beside a metric in the same panels, by dashed lines.
_BESIDE = {"compile_seconds": "tuning_seconds", "cpu_percent": "cpu_reduction_percent"}


def _dash(metric: str) -> Any:
    import altair as alt

    if metric not in _BESIDE:
        return alt.Undefined
    titles = [METRICS[name].title for name in (metric, _BESIDE[metric])]
    return alt.StrokeDash("what:N", scale=alt.Scale(domain=titles, range=[[1, 0], [5, 3]]), title=None)


def throughput(look: Look) -> Any:
    """Samples per second by batch."""
    return _over("throughput", look)


def ase(look: Look) -> Any:
    """Scaling efficiency by batch, with the line at 1."""
    return _over("ase", look, line_at=1.0)


def bsr(look: Look) -> Any:
    """Resilience by batch, with the line at 1."""
    return _over("bsr", look, line_at=1.0, zero=False)


def cpu(look: Look) -> Any:
    """CPU usage by batch, and what is saved of it."""
    return _over("cpu_percent", look)


def compile_times(look: Look) -> Any:
    """Compile time by batch, logarithmic, and tuning time where there is any."""
    return _over("compile_seconds", look, scale="log", title="Time")


def depth(look: Look) -> Any:
    """Speed-up by depth, with the line at 1."""
    return _over("speedup", look, x="depth", panel="stack", line_at=1.0)


def _heat(value: str, title: str, *, y: str, panel: str, scale: Any, legend: Any, dark_when: str, written: str) -> Any:
    """Return a map of squares with their numbers, a panel for each compiler."""
    import altair as alt

    square = alt.Chart().encode(
        x=alt.X("batch:O", title="batch", axis=alt.Axis(labelAngle=0)),
        y=alt.Y(f"{y}:N" if y == "subject" else f"{y}:O", title=None if y == "subject" else y, sort=None),
    )
    fill = square.mark_rect(stroke="#8884", strokeWidth=0.5).encode(
        color=alt.Color(value, title=title, scale=scale, legend=legend), tooltip=_tooltip(*_OF_CELL)
    )
    ink = alt.condition(dark_when, alt.value("#ffffff"), alt.value("#111418"))
    number = square.mark_text(fontSize=10).encode(text=alt.Text("value:Q", format=written), color=ink)
    return (
        alt.layer(fill, number, data=_data())
        .properties(width={"step": 36}, height={"step": 22})
        .facet(facet=alt.Facet(f"{panel}:N", title=None), columns=4, spacing={"row": 18, "column": 22})
    )


def speedup_map(look: Look) -> Any:
    """Speed-up as a map of batch by model."""
    import altair as alt

    # Factors are compared by their logarithm: half and twice as fast are equally far from 1.
    scale = alt.Scale(scheme="blueorange", reverse=True, domain=[-2, 2], domainMid=0, clamp=True)
    legend = alt.Legend(
        labelExpr="format(pow(2, datum.value), '.2~f') + 'x'", values=[-2, -1, 0, 1, 2], gradientLength=220
    )
    chart = _heat(
        "ratio:Q", "speed-up", y="subject", panel="compiler", scale=scale, legend=legend,
        dark_when="abs(datum.ratio) > 1.5", written=".2f",
    )  # fmt: skip
    return chart.transform_calculate(ratio="log(datum.value) / LN2")


def width_map(look: Look) -> Any:
    """Scaling efficiency as a map of batch by width."""
    import altair as alt

    scale = alt.Scale(scheme="viridis", domain=[0, 1], clamp=True)
    chart = _heat(
        "value:Q", "ASE", y="width", panel="map", scale=scale, legend=alt.Legend(gradientLength=220),
        dark_when="datum.value < 0.6", written=".2f",
    )  # fmt: skip
    return chart


def trend(look: Look) -> Any:
    """Slope and retention of each stack, with the lines that say depth does not matter."""
    import altair as alt

    place = alt.Y("stack:N", title=None, sort=None, axis=alt.Axis(grid=True))
    base = alt.Chart().encode(y=place, yOffset=alt.YOffset("compiler:N"), color=_colour(look))
    bars = base.transform_filter(_BOUNDED).mark_rule(strokeWidth=1.6, opacity=0.6).encode(x="low:Q", x2="high:Q")
    points = base.mark_point(opacity=1).encode(
        x=alt.X("value:Q", title=None, scale=alt.Scale(zero=False)),
        shape=_shape(look),
        tooltip=_tooltip("compiler", "stack", "what", "text"),
    )
    neutral = alt.Chart().mark_rule(strokeDash=[5, 4], color=BASELINE).encode(x="mean(neutral):Q")
    panels = alt.layer(neutral, bars, points, data=_data()).properties(
        width=300, height={"step": 40, "for": "position"}
    )
    return panels.facet(facet=alt.Facet("what:N", title=None, sort=None), columns=2).resolve_scale(x="independent")


def errors(look: Look) -> Any:
    """Largest errors of each compiler, logarithmic, with the bound of the precision."""
    import altair as alt

    base = alt.Chart().encode(y=alt.Y("compiler:N", title=None, sort=list(look.colours)))
    points = base.mark_point(opacity=0.75).encode(
        x=alt.X("value:Q", title="largest error / largest reference value", scale=alt.Scale(type="log"),
                axis=alt.Axis(format=".0e")),
        color=_colour(look), shape=_shape(look), tooltip=_tooltip("compiler", "subject", "batch", "value"),
    )  # fmt: skip
    limit = alt.Chart().mark_rule(strokeDash=[5, 4], color=VERDICTS[Verdict.FAIL]).encode(x="mean(limit):Q")
    panels = alt.layer(points, limit, data=_data()).properties(width=320, height={"step": 24})
    return panels.facet(facet=alt.Facet("precision:N", title=None), columns=2)


def verdicts(look: Look) -> Any:
    """Claims in tolerances from their bounds."""
    import altair as alt

    names = [str(verdict) for verdict in VERDICTS]
    base = alt.Chart().encode(
        y=alt.Y("what:N", title=None, sort=None, axis=alt.Axis(grid=True)),
        color=alt.Color("verdict:N", scale=alt.Scale(domain=names, range=list(VERDICTS.values())), title=None),
    )
    scale = alt.Scale(domain=[-FARTHEST, FARTHEST], clamp=True)
    zone = _once().mark_rect(opacity=0.15, color=BASELINE).encode(x=alt.XDatum(-1), x2=alt.X2Datum(0))
    bound = _once().mark_rule(color=BASELINE, strokeWidth=1.5).encode(x=alt.XDatum(0))
    bars = (
        base.transform_filter(_BOUNDED)
        .mark_rule(strokeWidth=2.5, opacity=0.7)
        .encode(x=alt.X("low:Q", title="tolerances from the bound (good: right)", scale=scale), x2="high:Q")
    )
    shapes = alt.Scale(domain=names, range=["circle", "diamond", "cross", "square"])
    points = base.mark_point(opacity=1, size=64).encode(
        x="estimate:Q",
        shape=alt.Shape("verdict:N", scale=shapes, title=None),
        tooltip=_tooltip("test", "claim", "verdict", "text", "bound", "launches", "reason"),
    )
    return alt.layer(zone, bound, bars, points, data=_data()).properties(width=420, height={"step": 22})


def reversals(look: Look) -> Any:
    """Ratios of pairs of models under the baseline and compiled, logarithmic."""
    import altair as alt

    axis = alt.Axis(grid=True)
    base = alt.Chart().encode(y=alt.Y("pair:N", title=None, sort=None, axis=axis))
    title, scale = "throughput of the first over the second", alt.Scale(type="log", nice=False, padding=16)
    way = base.mark_line(color=BASELINE, opacity=0.5, strokeWidth=1.2).encode(x="value:Q", detail="pair:N")
    bars = (
        base.transform_filter(_BOUNDED)
        .mark_rule(strokeWidth=3, opacity=0.7)
        .encode(x=alt.X("low:Q", title=title, scale=scale), x2="high:Q", color=_colour(look, "under"))
    )
    points = base.mark_point(opacity=1, size=60).encode(
        x="value:Q",
        color=_colour(look, "under"),
        shape=_shape(look, "under"),
        tooltip=_tooltip("pair", "under", "text"),
    )
    even = _once().mark_rule(strokeDash=[5, 4], color=BASELINE).encode(x=alt.XDatum(1))
    return alt.layer(even, way, bars, points, data=_data()).properties(width=420, height={"step": 24})

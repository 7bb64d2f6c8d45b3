"""What the charts are made of: colours and fonts, lines with intervals and names, in page and figures alike."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ngraph.report.html.content import Content
from pytest_ngraph.report.html.pictures.axes import DOUBLED
from pytest_ngraph.report.html.pictures.palette import BASELINE, colours_of, dashes_of, shapes_of

# The rows of a chart are a data set of this name: the page and the figures put in what is to be shown.
ROWS = "rows"
# What a chart shows at first: more takes the browser seconds, and comes when it is asked for.
MOST_PANELS, MOST_LINES = 24, 60
PANEL_WIDTH, PANEL_HEIGHT = 230, 150
# Beside the lines, for the names at their ends.
NAMES_WIDTH = 92
# What the page and the figures know when they have the rows: the ends of both axes, and the marks on the lower one.
LOW, HIGH, FIRST, LAST, TICKS = "low_end", "high_end", "first_end", "last_end", "ticks"
# And names, whole and as there is room for them: those of lines or squares, which stand at an axis, and of panels.
NAMES, PANELS = ("whole_names", "shown_names"), ("whole_panels", "shown_panels")
# In files an axis takes the room that its names need, but for those of claims with all that they say; above panels and
# at the ends of lines there is no more than there is.
NAME_LETTERS, PANEL_LETTERS, LETTER_WIDTH = 120, 38, 5.9


@dataclass(frozen=True, slots=True)
class Look:
    """What all charts of a report have in common: the colour, the shape and the dash of each compiler.

    Where several runs share a page they are those of each run: ``by`` is the field of rows that they tell apart.
    """

    colours: dict[str, str]
    shapes: dict[str, str]
    dashes: dict[str, list[int]]
    by: str = "compiler"

    @classmethod
    def of(cls, content: Content) -> Look:
        """Return the look of a report."""
        names = content.compilers
        return cls(colours_of(names, content.baselines), shapes_of(names), dashes_of(names))


# Fonts that every system has; nothing is fetched. ``currentColor`` follows the page's theme.
_FONT = "system-ui, -apple-system, Segoe UI, Roboto, Helvetica, Arial, sans-serif"
CONFIG: dict[str, Any] = {
    "background": None,
    "font": _FONT,
    "view": {"stroke": None},
    "axis": {
        "domainOpacity": 0.35, "gridOpacity": 0.12, "tickOpacity": 0.35, "labelLimit": 0, "titleFontWeight": 500,
        "titlePadding": 8, "labelFontSize": 11, "titleFontSize": 11,
    },
    "header": {
        "labelFontWeight": 600, "labelFontSize": 12, "labelLimit": PANEL_WIDTH + 90, "title": None,
        "labelAnchor": "start",
    },
    "legend": {
        "orient": "top", "labelFontSize": 12, "symbolOpacity": 1, "symbolStrokeWidth": 1.5, "labelLimit": 0,
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
    config["text"] = {"color": colour}
    return {**spec, "config": config}


# What charts are made of


def data_of_rows() -> Any:
    """Return where a chart's rows come from."""
    import altair as alt

    return alt.NamedData(name=ROWS)


def shown_in(names: tuple[str, str]) -> str:
    """Return the expression of Vega that writes a name as there is room for it, so that no two look alike."""
    whole, shown = names
    return f"{shown}[indexof({whole}, datum.value)]"


def named_rows(field: str, *, order: Sequence[str] | None = None, grid: bool = True) -> Any:
    """Return the axis of what stands below one another by its names."""
    import altair as alt

    return alt.Y(f"{field}:N", title=None, sort=order, axis=alt.Axis(grid=grid, labelExpr=shown_in(NAMES)))


def headed(field: str) -> Any:
    """Return panels that have their names above them."""
    import altair as alt

    return alt.Facet(f"{field}:N", title=None, sort=None, header=alt.Header(labelExpr=shown_in(PANELS)))


# An interval over one launch has no ends.
BOUNDED = "isValid(datum.low) && isValid(datum.high)"


def once() -> Any:
    """Return what is drawn once, not for every row."""
    import altair as alt

    return alt.Chart().transform_aggregate(rows="count()")


def colour(look: Look, field: str = "") -> Any:
    """Return the colour of each compiler, or of what else a field says."""
    import altair as alt

    scale = alt.Scale(domain=list(look.colours), range=list(look.colours.values()))
    return alt.Color(f"{field or look.by}:N", scale=scale, title=None)


def shape(look: Look, field: str = "") -> Any:
    """Return the shape of each compiler, or of what else a field says."""
    import altair as alt

    scale = alt.Scale(domain=list(look.shapes), range=list(look.shapes.values()))
    return alt.Shape(f"{field or look.by}:N", scale=scale, title=None)


def dash(look: Look, field: str = "") -> Any:
    """Return the dash of each compiler, or of what else a field says."""
    import altair as alt

    scale = alt.Scale(domain=list(look.dashes), range=list(look.dashes.values()))
    return alt.StrokeDash(f"{field or look.by}:N", scale=scale, title=None)


def tooltip(*fields: str) -> list[Any]:
    """Return what is shown of a point that is looked at."""
    import altair as alt

    names = {"text": "value", "what": "metric"}
    return [alt.Tooltip(f"{field}:N", title=names.get(field, field)) for field in fields]


OF_CELL = ("compiler", "subject", "batch", "what", "text")


# What an axis is called that lines run along, where that is not the field's name.
_ALONG = {"sequence": "length [tokens]", "rate": "calls that arrive a second"}


def value_scale(*, is_log: bool) -> Any:
    """Return the scale of values, from one end to the other as ``axes.span_of`` says."""
    import altair as alt

    ends = [alt.ExprRef(LOW), alt.ExprRef(HIGH)]
    return alt.Scale(type="log", domain=ends, nice=False) if is_log else alt.Scale(domain=ends, nice=False, zero=False)


def whiskers(base: Any, look: Look, *, along: str, field: str = "") -> list[Any]:
    """Return intervals along ``x`` or ``y``, cut at the ends of the axis with a triangle that points to what is cut."""
    import altair as alt

    low, high = f"datum.low < {LOW}", f"datum.high > {HIGH}"
    known = base.transform_filter(BOUNDED).transform_calculate(
        shown_low=f"max(datum.low, {LOW})", shown_high=f"min(datum.high, {HIGH})"
    )
    # Altair looks through its whole schema for what a text stands for.
    ends = {"x": (alt.X, alt.X2), "y": (alt.Y, alt.Y2)}[along]
    places = {along: ends[0]("shown_low:Q"), f"{along}2": ends[1]("shown_high:Q")}
    bars = known.mark_rule(strokeWidth=1.5, opacity=0.6, clip=True).encode(**places, color=colour(look, field))
    turned = {"y": ("triangle-down", "triangle-up"), "x": ("triangle-left", "triangle-right")}[along]
    arrows = [
        base.transform_filter(f"{BOUNDED} && {cut}")
        .transform_calculate(cut_at=end)
        .mark_point(shape=kind, size=55, opacity=1, filled=True)
        .encode(**{along: ends[0]("cut_at:Q")}, color=colour(look, field))
        for cut, end, kind in ((low, LOW, turned[0]), (high, HIGH, turned[1]))
    ]
    return [bars, *arrows]


def over(
    title: str,
    look: Look,
    *,
    x: str = "batch",
    panel: str = "subject",
    line_at: float | None = None,
    is_log: bool = False,
    fitted: str = "",
    names_width: int = NAMES_WIDTH,
) -> Any:
    """Return lines with intervals over an axis, a panel for each of what runs, all on the same axes.

    Batches, lengths and rates stand as far apart as their logarithms are, depths and widths as they are. ``fitted``
    draws a line of least squares in place of one from point to point: ``linear``, or ``pow`` for one that is straight
    where both axes are logarithmic.
    """
    import altair as alt

    ends = [alt.ExprRef(FIRST), alt.ExprRef(LAST)]
    distances: Any = (
        alt.Scale(type="log", base=2, domain=ends, nice=False)
        if x in DOUBLED
        else alt.Scale(domain=ends, nice=False, zero=False)
    )
    marks = alt.Axis(
        values=alt.ExprRef(TICKS), labelOverlap=True, labelFlush=False, format="~r" if x == "rate" else "d", grid=False
    )
    scale = value_scale(is_log=is_log)
    # Over more than two powers of ten these alone have lines.
    count = alt.ExprRef(f"log({HIGH} / {LOW}) > 4.7 ? 2 : 5") if is_log else 5
    value = alt.Y("value:Q", title=title, scale=scale, axis=alt.Axis(tickCount=count, labelOverlap=True))
    base = alt.Chart().encode(
        x=alt.X(f"{x}:Q", title=_ALONG.get(x, x), scale=distances, axis=marks), detail=alt.Detail("what:N")
    )
    path = base.transform_regression(x, "value", method=fitted, groupby=[look.by, "what"]) if fitted else base
    line = path.mark_line(clip=True).encode(y=value, color=colour(look), strokeDash=dash(look))
    points = base.mark_point(opacity=1).encode(
        y=value, color=colour(look), shape=shape(look), tooltip=tooltip(*dict.fromkeys((look.by, *OF_CELL)))
    )
    names = (
        base.transform_filter("isValid(datum.label_at)")
        .mark_text(align="left", dx=8, fontSize=11, limit=names_width)
        .encode(y=alt.Y("label_at:Q", scale=scale), text=alt.Text("label:N"), color=colour(look))
    )
    layers = [*whiskers(base, look, along="y"), line, points, names]
    if line_at is not None:
        layers.insert(0, once().mark_rule(strokeDash=[5, 4], color=BASELINE).encode(y=alt.YDatum(line_at, scale=scale)))
    return Panels(layers, panel, names_width)


@dataclass(frozen=True, slots=True)
class Panels:
    """Layers of lines, a panel for each value of a field. Altair's own ``layer`` would copy them five times as long."""

    layers: list[Any]
    field: str
    names_width: int

    def to_dict(self, *, validate: bool = True) -> dict[str, Any]:
        """Return the definition as Vega-Lite. Raise what Altair raises where it is not valid."""
        import altair as alt

        made = [layer.to_dict(validate=False, context={"top_level": False}) for layer in self.layers]
        for layer in made:
            # What Altair writes for a chart without data, which would hide the data of all layers.
            if layer.get("data") == {"name": "empty"}:
                del layer["data"]
        spec = {
            "data": {"name": ROWS},
            "facet": {
                "field": self.field, "type": "nominal", "title": None, "sort": None,
                "header": {"labelExpr": shown_in(PANELS)},
            },
            "spec": {"layer": made, "width": PANEL_WIDTH, "height": PANEL_HEIGHT},
            "columns": 3,
            "spacing": {"row": 18, "column": 26 + self.names_width},
            "resolve": {"axis": {"x": "independent", "y": "independent"}},
        }  # fmt: skip
        if validate:
            alt.Chart.from_dict(spec, validate=True)
        return spec

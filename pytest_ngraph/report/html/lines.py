"""Charts with a line for each thing: scores, claims, pairs of models, errors, and how depth matters."""

from __future__ import annotations

from typing import Any

from pytest_ngraph.report.html.content import FARTHEST
from pytest_ngraph.report.html.drawing import (
    BOUNDED,
    Look,
    colour,
    data_of_rows,
    headed,
    named_rows,
    once,
    shape,
    tooltip,
    value_scale,
    whiskers,
)
from pytest_ngraph.report.html.pictures.palette import BASELINE, COLOURS, VERDICTS
from pytest_ngraph.stats.verdict import Verdict

# In the order of ``VERDICTS``.
VERDICT_SHAPES = ("circle", "diamond", "cross", "square", "triangle-up")


def trend(look: Look, title: str, neutral: float) -> Any:
    """Slope or retention of each stack, with the line that says depth does not matter."""
    import altair as alt

    base = alt.Chart().encode(y=named_rows("stack"), yOffset=alt.YOffset("compiler:N"))
    points = base.mark_point(opacity=1).encode(
        x=alt.X("value:Q", title=title, scale=value_scale(is_log=False), axis=alt.Axis(tickCount=7)),
        color=colour(look),
        shape=shape(look),
        tooltip=tooltip("compiler", "stack", "what", "text"),
    )
    line = once().mark_rule(strokeDash=[5, 4], color=BASELINE).encode(x=alt.XDatum(neutral))
    return alt.layer(line, *whiskers(base, look, along="x"), points, data=data_of_rows()).properties(
        width=420, height={"step": 40, "for": "position"}
    )


def tokens(look: Look) -> Any:
    """What the prompt and what each further token takes, below one another, logarithmic."""
    import altair as alt

    base = alt.Chart().encode(y=named_rows("place"), yOffset=_beside(look))
    points = base.mark_point(opacity=1).encode(
        x=alt.X("value:Q", title="seconds", scale=value_scale(is_log=True), axis=alt.Axis(format="~s", tickCount=5)),
        color=colour(look),
        shape=shape(look),
        tooltip=tooltip("compiler", "place", "what", "text"),
    )
    panels = alt.layer(*whiskers(base, look, along="x"), points, data=data_of_rows())
    panels = panels.properties(width=380, height={"step": 34, "for": "position"})
    return panels.facet(facet=headed("what"), columns=2)


def capacities(look: Look) -> Any:
    """Highest rates that hold a percentile, with the rate that was claimed as a stroke."""
    import altair as alt

    base = alt.Chart().encode(y=named_rows("place"))
    axis = alt.Axis(tickCount=7, format="~r")
    points = base.mark_point(opacity=1, size=60).encode(
        x=alt.X("value:Q", title="calls that arrive a second", scale=value_scale(is_log=True), axis=axis),
        color=colour(look),
        shape=shape(look),
        tooltip=tooltip("compiler", "place", "verdict", "text", "bound"),
    )
    claimed = (
        base.transform_filter("isValid(datum.limit)")
        .mark_tick(thickness=2.5, size=20, opacity=1, color=BASELINE)
        .encode(x="limit:Q", tooltip=tooltip("place", "bound", "verdict"))
    )
    layers = [*whiskers(base, look, along="x"), claimed, points]
    return alt.layer(*layers, data=data_of_rows()).properties(width=420, height={"step": 24})


def _beside(look: Look) -> Any:
    """Return what puts compilers below one another in the order of the legend."""
    import altair as alt

    return alt.YOffset(f"{look.by}:N", scale=alt.Scale(domain=list(look.colours)))


def scores(look: Look) -> Any:
    """Geometric means of families, logarithmic; hollow where the interval holds 1, so that nothing is claimed."""
    import altair as alt

    base = alt.Chart().encode(y=named_rows("place"))
    if look.by != "compiler":
        # Below one another in the order of the legend.
        base = base.encode(yOffset=_beside(look))
    place = alt.X("value:Q", title="geometric mean of the speed-ups", scale=value_scale(is_log=True))
    is_claimed = alt.condition("datum.claim != 'none'", alt.value(1), alt.value(0))
    points = base.mark_point(opacity=1, size=60, strokeWidth=1.8, filled=False).encode(
        x=place,
        color=colour(look),
        fill=alt.Fill(
            f"{look.by}:N", scale=alt.Scale(domain=list(look.colours), range=list(look.colours.values())), legend=None
        ),
        shape=shape(look),
        fillOpacity=is_claimed,
        tooltip=tooltip(*dict.fromkeys((look.by, "compiler")), "family", "device", "text", "basis"),
    )
    even = once().mark_rule(strokeDash=[5, 4], color=BASELINE).encode(x=alt.XDatum(1))
    layers = [even, *whiskers(base, look, along="x"), points]
    panels = alt.layer(*layers, data=data_of_rows()).properties(width=420, height={"step": 18})
    return panels.facet(facet=headed("device"), columns=2).resolve_scale(y="independent")


def visits(look: Look) -> Any:
    """The time of each visit of one cell by launch, with the percentiles of its samples."""
    import altair as alt

    scale = alt.Scale(zero=False, padding=8)
    value = alt.Y("value:Q", title="seconds for a call", scale=scale, axis=alt.Axis(format="~s"))
    dots = (
        alt.Chart()
        .transform_filter("datum.what == 'visit'")
        .mark_point(opacity=0.8, color=COLOURS[0])
        .encode(
            x=alt.X("launch:O", title="launch", axis=alt.Axis(labelAngle=0, labelOverlap=True)),
            y=value,
            tooltip=tooltip("launch", "text"),
        )
    )
    ranks = (
        alt.Chart()
        .transform_filter("datum.what != 'visit'")
        .transform_calculate(written="datum.what + ' ' + datum.text")
    )
    lines = ranks.mark_rule(strokeDash=[5, 4], color=BASELINE).encode(y=value)
    names = ranks.mark_text(align="left", dx=6, fontSize=11, color=BASELINE).encode(
        x=alt.value(alt.ExprRef("width")), y=value, text="written:N"
    )
    return alt.layer(lines, dots, names, data=data_of_rows()).properties(width=420, height=200)


def errors(look: Look) -> Any:
    """Largest errors of each compiler, logarithmic, with the bound of the precision."""
    import altair as alt

    base = alt.Chart().encode(y=named_rows("compiler", order=list(look.colours), grid=False))
    points = base.mark_point(opacity=0.75).encode(
        x=alt.X("value:Q", title="largest error / largest reference value", scale=alt.Scale(type="log"),
                axis=alt.Axis(format=".0e")),
        color=colour(look), shape=shape(look), tooltip=tooltip("compiler", "subject", "batch", "value"),
    )  # fmt: skip
    limit = alt.Chart().mark_rule(strokeDash=[5, 4], color=VERDICTS[Verdict.FAIL]).encode(x="mean(limit):Q")
    panels = alt.layer(points, limit, data=data_of_rows()).properties(width=320, height={"step": 24})
    return panels.facet(facet=headed("precision"), columns=2)


def verdicts(look: Look) -> Any:
    """Claims in tolerances from their bounds."""
    import altair as alt

    names = [str(verdict) for verdict in VERDICTS]
    paint = alt.Color("verdict:N", scale=alt.Scale(domain=names, range=list(VERDICTS.values())), title=None)
    base = alt.Chart().encode(y=named_rows("what"), color=paint)
    scale = alt.Scale(domain=[-FARTHEST, FARTHEST], clamp=True)
    zone = once().mark_rect(opacity=0.15, color=BASELINE).encode(x=alt.XDatum(-1), x2=alt.X2Datum(0))
    bound = once().mark_rule(color=BASELINE, strokeWidth=1.5).encode(x=alt.XDatum(0))
    bars = (
        base.transform_filter(BOUNDED)
        .mark_rule(strokeWidth=2.5, opacity=0.7)
        .encode(x=alt.X("low:Q", title="tolerances from the bound (good: right)", scale=scale), x2="high:Q")
    )
    cut = [
        base.transform_filter(f"{BOUNDED} && {test}").mark_point(shape=kind, size=70, opacity=1).encode(x=f"{end}:Q")
        for test, kind, end in (
            (f"datum.low <= {-FARTHEST}", "triangle-left", "low"),
            (f"datum.high >= {FARTHEST}", "triangle-right", "high"),
        )
    ]
    shapes = alt.Scale(domain=names, range=list(VERDICT_SHAPES))
    points = base.mark_point(opacity=1, size=64).encode(
        x="estimate:Q",
        shape=alt.Shape("verdict:N", scale=shapes, title=None),
        tooltip=tooltip("test", "claim", "verdict", "text", "bound", "launches", "reason"),
    )
    return alt.layer(zone, bound, bars, *cut, points, data=data_of_rows()).properties(width=420, height={"step": 22})


def reversals(look: Look) -> Any:
    """Ratios of pairs of models under the baseline and compiled, logarithmic."""
    import altair as alt

    base = alt.Chart().encode(y=named_rows("pair"))
    place = alt.X("value:Q", title="throughput of the first over the second", scale=value_scale(is_log=True))
    way = base.mark_line(color=BASELINE, opacity=0.5, strokeWidth=1.2).encode(x=place, detail="pair:N")
    points = base.mark_point(opacity=1, size=60).encode(
        x=place,
        color=colour(look, "under"),
        shape=shape(look, "under"),
        tooltip=tooltip("pair", "under", "text"),
    )
    even = once().mark_rule(strokeDash=[5, 4], color=BASELINE).encode(x=alt.XDatum(1))
    layers = [even, way, *whiskers(base, look, along="x", field="under"), points]
    return alt.layer(*layers, data=data_of_rows()).properties(width=420, height={"step": 24})

"""Charts that are maps of squares with their numbers."""

from __future__ import annotations

from typing import Any

from pytest_ngraph.report.html.drawing import OF_CELL, Look, colour, data_of_rows, headed, named_rows, tooltip


def _heat(value: str, title: str, *, y: str, panel: str, scale: Any, legend: Any, dark_when: str, written: str) -> Any:
    """Return a map of squares with their numbers, a panel for each compiler."""
    import altair as alt

    # Models stand in the order of the rows, widths in their own.
    rows = named_rows("subject", grid=False) if y == "subject" else alt.Y(f"{y}:O", title=y)
    square = alt.Chart().encode(
        x=alt.X("batch:O", title="batch", axis=alt.Axis(labelAngle=0)),
        y=rows,
    )
    fill = square.mark_rect(stroke="#8884", strokeWidth=0.5).encode(
        color=alt.Color(value, title=title, scale=scale, legend=legend), tooltip=tooltip(*OF_CELL)
    )
    ink = alt.condition(dark_when, alt.value("#ffffff"), alt.value("#111418"))
    number = square.mark_text(fontSize=10).encode(text=alt.Text("value:Q", format=written), color=ink)
    return (
        alt.layer(fill, number, data=data_of_rows())
        .properties(width={"step": 36}, height={"step": 22})
        .facet(facet=headed(panel), columns=4, spacing={"row": 18, "column": 22})
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


def reversal_map(look: Look) -> Any:
    """Pairs of models by batch: the ratio of the two under the baseline, and the one that it turns to when compiled."""
    import altair as alt

    place = alt.Chart().encode(
        x=alt.X("batch:O", title="batch", axis=alt.Axis(labelAngle=0)),
        y=named_rows("models", grid=False),
    )
    fill = place.mark_rect(strokeWidth=1, fillOpacity=0.18).encode(
        color=colour(look), tooltip=tooltip("pair", "under", "text")
    )
    number = place.mark_text(fontSize=10).encode(text="changed:N")
    panels = alt.layer(fill, number, data=data_of_rows()).properties(width={"step": 76}, height={"step": 22})
    return panels.facet(facet=headed("device"), columns=1).resolve_scale(y="independent")


def width_map(look: Look) -> Any:
    """Scaling efficiency as a map of batch by width, with the friction of each batch below."""
    import altair as alt

    is_friction = "datum.metric == 'friction'"
    scale = alt.Scale(scheme="viridis", domain=[0, 1], clamp=True)
    square = alt.Chart().encode(
        x=alt.X("batch:O", title="batch", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("place:N", title="width", sort=alt.EncodingSortField("rank", op="min")),
    )
    fill = (
        square.transform_filter(f"!({is_friction})")
        .mark_rect(stroke="#8884", strokeWidth=0.5)
        .encode(
            color=alt.Color("value:Q", title="ASE", scale=scale, legend=alt.Legend(gradientLength=220)),
            tooltip=tooltip(*OF_CELL),
        )
    )
    ink = alt.condition("datum.value < 0.6", alt.value("#ffffff"), alt.value("#111418"))
    text = alt.Text("value:Q", format=".2f")
    numbers = square.transform_filter(f"!({is_friction})").mark_text(fontSize=10).encode(text=text, color=ink)
    friction = (
        square.transform_filter(is_friction)
        .mark_text(fontSize=10, fontStyle="italic")
        .encode(text=alt.Text("value:Q", format="+.3f"), tooltip=tooltip(*OF_CELL))
    )
    panels = alt.layer(fill, numbers, friction, data=data_of_rows()).properties(width={"step": 40}, height={"step": 22})
    return panels.facet(facet=headed("map"), columns=4, spacing={"row": 18, "column": 22}).transform_calculate(
        place=f"{is_friction} ? 'friction' : toString(datum.width)", rank=f"{is_friction} ? 1e9 : datum.width"
    )

"""Charts that are maps of squares with their numbers."""

from __future__ import annotations

from typing import Any

from pytest_ngraph.report.html.drawing import OF_CELL, Look, data_of_rows, tooltip


def _heat(value: str, title: str, *, y: str, panel: str, scale: Any, legend: Any, dark_when: str, written: str) -> Any:
    """Return a map of squares with their numbers, a panel for each compiler."""
    import altair as alt

    # Models stand in the order of the rows, widths in their own.
    rows = alt.Y("subject:N", title=None, sort=None) if y == "subject" else alt.Y(f"{y}:O", title=y)
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
        .facet(facet=alt.Facet(f"{panel}:N", title=None, sort=None), columns=4, spacing={"row": 18, "column": 22})
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
    return _heat(
        "value:Q", "ASE", y="width", panel="map", scale=scale, legend=alt.Legend(gradientLength=220),
        dark_when="datum.value < 0.6", written=".2f",
    )  # fmt: skip

"""The same charts as files, for papers: SVG, PNG and PDF."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.report.export.files import write_bytes
from pytest_ngraph.report.html.charts import CHARTS, Chart, rows_of, spec_of
from pytest_ngraph.report.html.content import Content, Row
from pytest_ngraph.report.html.drawing import (
    HIGH,
    LETTER_WIDTH,
    LOW,
    NAME_LETTERS,
    NAMES,
    PANEL_HEIGHT,
    PANEL_LETTERS,
    PANELS,
    ROWS,
    Look,
    coloured,
)
from pytest_ngraph.report.html.libraries import drawing, vega_lite
from pytest_ngraph.report.html.pictures import axes
from pytest_ngraph.texts.fitting import cut_apart

FORMATS = ("svg", "png", "pdf")
_INK = "#1a1d21"
# Of PNG: at the width of a column in print.
_DOTS_PER_INCH = 300


def write_figures(content: Content, folder: Path, formats: Iterable[str]) -> Iterator[Path]:
    """Write each chart that has rows in each format. Yield the files.

    Raises SpecError for an unknown format or where what draws charts is not installed, StoreError for a folder that
    cannot be written.
    """
    wanted = list(dict.fromkeys(formats))
    unknown = [name for name in wanted if name not in FORMATS]
    if unknown or not wanted:
        raise SpecError(f"--format: {','.join(unknown) or 'none'} (known: {', '.join(FORMATS)})")
    look = Look.of(content)
    for chart in CHARTS:
        spec = figure(chart, content, look)
        if spec is None:
            continue
        svg = _drawn(spec)
        for name in wanted:
            path = folder / f"{chart.name}.{name}"
            write_bytes(_written(svg, name), path)
            yield path


def figure(chart: Chart, content: Content, look: Look) -> dict[str, Any] | None:
    """Return a chart with its rows as Vega-Lite, ready to be drawn on white, or None where it has none."""
    rows, left_out = rows_of(chart, content)
    if not rows:
        return None
    spec = coloured(spec_of(chart, look), _INK)
    spec["config"] = {**spec["config"], "background": "white"}
    if left_out:
        kind = "panels" if chart.panel == chart.limits else "lines"
        note = f"The first {chart.most} {kind} of {chart.most + left_out:,}"
        spec["title"] = {"text": note, "anchor": "start", "fontSize": 11, "fontWeight": "normal", "color": _INK}
    return with_rows(chart, spec, rows)


def with_rows(chart: Chart, spec: dict[str, Any], rows: list[Row]) -> dict[str, Any]:
    """Return a definition with its rows, the ends of its axes and the names at the ends of its lines."""
    known: dict[str, Any] = {}
    span = (0.0, 1.0)
    if chart.span:
        span = axes.span_of(rows, is_log=chart.is_log, line_at=chart.line_at)
        known |= {LOW: span[0], HIGH: span[1]}
    if "facet" in spec:
        # Panels in the order of the rows, as in the page.
        panels = list(dict.fromkeys(row[chart.panel or ""] for row in rows))
        spec["facet"] = {**spec["facet"], "sort": panels}
        headings = cut_apart(map(str, panels), PANEL_LETTERS)
        known |= dict(zip(PANELS, (panels, list(headings.values())), strict=True))
        if chart.along is not None:
            known |= axes.along(rows, chart.along)
            labels = cut_apart(map(axes.label_of, rows), int((chart.names_width - 12) / LETTER_WIDTH))
            rows = [{**row, "label": labels[axes.label_of(row)]} for row in rows]
            rows = [
                row
                for panel in panels
                for row in axes.place_names(
                    [row for row in rows if row[chart.panel or ""] == panel],
                    chart.along, span=span, is_log=chart.is_log, gap=13 / PANEL_HEIGHT,
                )
            ]  # fmt: skip
    if len(chart.line) == 1:
        names = list(dict.fromkeys(row[chart.line[0]] for row in rows))
        known |= dict(zip(NAMES, (names, list(cut_apart(names, NAME_LETTERS).values())), strict=True))
    params = [{"name": name, "value": value} for name, value in known.items()]
    return {**spec, "params": params, "datasets": {ROWS: rows}}


def _drawn(spec: dict[str, Any]) -> str:
    """Return a chart as SVG. Nothing that it names may be fetched."""
    _, convert = drawing()
    drawn: str = convert.vegalite_to_svg(spec, vl_version=vega_lite(), allowed_base_urls=[])
    return drawn


def _written(svg: str, name: str) -> bytes:
    _, convert = drawing()
    if name == "svg":
        return svg.encode()
    written: bytes = convert.svg_to_pdf(svg) if name == "pdf" else convert.svg_to_png(svg, ppi=_DOTS_PER_INCH)
    return written

"""The markup around a chart: its heading, how to read it, what to do where it is empty, and where it is drawn."""

from __future__ import annotations

import html

from pytest_ngraph.report.html.charts import Chart
from pytest_ngraph.texts.shown import clean


def section_of(chart: Chart) -> str:
    """Return the section of the page that a chart is drawn in."""
    return (
        f'<section id="{chart.name}" aria-labelledby="{chart.name}-title">'
        f'<h2 id="{chart.name}-title">{_text(chart.title)}</h2>'
        f'<p class="says">{_text(chart.says)}</p>'
        f'<p class="empty" hidden>{_text(chart.empty)}</p><p class="left-out" hidden></p>'
        f'<div class="chart" tabindex="0" role="group" aria-label="{_text(chart.title)}"></div>'
        "</section>"
    )


def _text(text: str) -> str:
    return html.escape(clean(text))

"""The markup around charts: headings, how to read them, what to choose between, and where they are drawn."""

from __future__ import annotations

import html
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from pytest_ngraph.texts.shown import clean

if TYPE_CHECKING:
    from pytest_ngraph.report.html.charts import Chart

# Of sections that several charts share.
_TITLES = {
    "places": "Which models change places",
    "models": "Models by batch",
    "lengths": "How length matters",
    "load": "Calls that arrive by themselves",
    "trend": "How depth matters",
    "cpu_usage": "CPU usage by batch",
    "cost": "Compile and tuning time",
}


def chart_sections(sections: Mapping[str, Sequence[Chart]]) -> dict[str, str]:
    """Return the markup of each section of charts, by its id."""
    return {name: _section(name, mine) for name, mine in sections.items()}


def chart_links(sections: Mapping[str, Sequence[Chart]]) -> str:
    """Return links to the sections of charts."""
    return "".join(f'<li><a href="#{name}">{_text(_title(name, mine))}</a></li>' for name, mine in sections.items())


def _title(name: str, charts: Sequence[Chart]) -> str:
    return _TITLES.get(name, charts[0].title)


def _section(name: str, charts: Sequence[Chart]) -> str:
    """Return a section. Charts that share it are chosen by buttons; each keeps an address of its own."""
    title = _text(_title(name, charts))
    choices = "".join(
        f'<button type="button" data-chart="{chart.name}" aria-pressed="false">{_text(chart.choice)}</button>'
        for chart in charts
        if len(charts) > 1
    )
    bar = f'<div class="choices" role="group" aria-label="{title}: show">{choices}</div>' if choices else ""
    places = "".join(_place(chart, title if len(charts) == 1 else _text(chart.title)) for chart in charts)
    return (
        f'<section id="{name}" aria-labelledby="{name}-title"><h2 id="{name}-title">{title}</h2>{bar}{places}</section>'
    )


def _place(chart: Chart, title: str) -> str:
    # A section of one chart has its name already.
    own = f' id="{chart.name}"' if chart.section else ""
    return (
        f'<div class="of-chart"{own} data-chart="{chart.name}">'
        f'<p class="says">{_text(chart.says)}</p>'
        f'<p class="empty" hidden>{_text(chart.empty)}</p>'
        f'<div class="legend" aria-hidden="true"></div>'
        f'<div class="chart" tabindex="0" role="group" aria-label="{title}"></div>'
        '<p class="left-out" hidden></p>'
        '<details class="numbers"><summary>These numbers as a table</summary><div class="table"></div></details></div>'
    )


def _text(text: str) -> str:
    return html.escape(clean(text))

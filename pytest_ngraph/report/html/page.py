"""One HTML file that needs nothing else: markup, style, scripts, libraries and the run's data once, as compact JSON."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import Any

from pytest_ngraph.options.masking import masked_command
from pytest_ngraph.report.answer.scoreboard import scoreboard
from pytest_ngraph.report.export.files import write_text
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.html.charts import Chart, charts_of, sections
from pytest_ngraph.report.html.content import (
    Content,
    Row,
    environment_rows,
    placement_rows,
    placements,
    reversal_rows,
    verdict_rows,
)
from pytest_ngraph.report.html.data import data_of
from pytest_ngraph.report.html.derived import capacity_rows, loads_of, spreads_of
from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.report.html.libraries import libraries, notices
from pytest_ngraph.report.html.markup import first_screen
from pytest_ngraph.report.html.markup.fronts import fronts_link, fronts_section
from pytest_ngraph.report.html.markup.history import history_link, history_section
from pytest_ngraph.report.html.markup.layers import layers_link, layers_section
from pytest_ngraph.report.html.markup.sections import chart_links, chart_sections
from pytest_ngraph.report.html.markup.stacks import Stack, stacks_link, stacks_of, stacks_section
from pytest_ngraph.report.html.pictures.palette import SIGNS
from pytest_ngraph.report.results.verdicts import family_line
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.texts.shown import clean, cleaned

# Of every page, then of that of one run.
_SCRIPTS = ("charts.js", "tables.js", "filters.js", "cells.js", "board.js", "columns.js", "frame.js")
_OF_ALL = '<p id="of-all" class="says" hidden>This is of the whole run, whatever the filters leave.</p>'
_GATES = " A number that a gate judged has the gate's interval, which holds over all looks of the gate."


def write_page(content: Content, path: Path) -> None:
    """Write the report of a run as one file.

    Raises SpecError where what draws charts is not installed, StoreError where the file cannot be written.
    """
    write_text(page(content), path)


def page(content: Content) -> str:
    """Return the report of a run as one HTML document."""
    run, charts, rows = content.run, charts_of(content), verdict_rows(content)
    family = family_line(content.verdicts)
    scores = scoreboard(content.reports, run.protocol)
    worst = [row for row in rows if row["verdict"] in first_screen.WORST]
    others = [row for row in rows if row["verdict"] not in first_screen.WORST]
    by_section = sections(charts)
    stacks = stacks_of(content.reports)
    drawn = list(chart_sections(by_section).values())
    parts = {
        "about": _about(content),
        "counts": first_screen.counts(content, SIGNS),
        "none": "" if worst or not rows else "No claim fails or is undecided.",
        "claims": first_screen.claims(worst, SIGNS),
        "others": first_screen.claims(others, SIGNS),
        "others_title": first_screen.passes_title(others),
        "no_others": "" if others else " hidden",
        "scoreboard": first_screen.scores(scores),
        "missing": _missing(content),
        "results": first_screen.results(content),
        "gates": _GATES if any(row["verdict"] != Verdict.NOT_JUDGED for row in rows) else "",
        "placement": first_screen.plain_rows(placement_rows(content)),
        "environment": first_screen.plain_rows(environment_rows(content)),
        "family": family and f'{_text(family)}<span id="family-of-all" hidden>. This is of the whole run.</span>',
        "spread": _text(SPREADS.get(run.protocol, f"by the protocol {run.protocol}")),
        "links": "".join(_links(content, stacks[0], chart_links(by_section))),
        "first": "".join(drawn[:2]),
        "charts": "".join(drawn[2:]),
        "fronts": fronts_section(*content.fronts, _numbers(content), Look.of(content)),
        "stacks": stacks_section(*stacks, _numbers(content), Look.of(content)),
        "history": history_section(*content.history),
        "layers": layers_section(content.layers, _numbers(content), Look.of(content)),
        "noise": "".join(f"<li>{_text(line.strip())}</li>" for line in content.noise),
    }
    return document(
        Document(
            f"ngraph report, run {run.id}, {run.started_at[:10]}",
            first_screen.answer(content, rows, scores) + _OF_ALL,
            Template(asset("page.html")).substitute(parts),
            _data_of(content, rows, charts),
            "page.js",
            origin=f"<p>{_text(str(content.origin))}</p>" if content.origin is not None else "",
        )
    )


@dataclass(frozen=True, slots=True)
class Document:
    """A page: its title, the markup of its head and its body, its data, and the script that makes it work."""

    title: str
    header: str
    main: str
    data: Mapping[str, Any]
    script: str
    heading: str = "ngraph report"
    origin: str = ""
    kind: str = ""


def document(made: Document) -> str:
    """Return a page as one HTML document, with filters, what draws its charts, and the style."""
    scripts = [libraries(), "".join(map(asset, (*_SCRIPTS, made.script)))]
    parts = {
        "policy": _policy(scripts),
        "title": _text(made.title),
        "heading": _text(made.heading),
        "body": f' class="{made.kind}"' if made.kind else "",
        "style": style(),
        "header": made.header,
        "main": made.main,
        "origin": made.origin,
        "notices": _text(notices()),
        "data": _embedded(made.data),
        "libraries": scripts[0],
        "script": scripts[1],
    }
    return Template(asset("shell.html")).substitute(parts)


def _policy(scripts: Iterable[str]) -> str:
    """Return what the browser may do with the page: run these two scripts, and fetch nothing from anywhere."""
    digests = (base64.b64encode(hashlib.sha256(script.encode()).digest()).decode("ascii") for script in scripts)
    allowed = " ".join(f"'sha256-{digest}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data: blob:; "
        "base-uri 'none'; form-action 'none'"
    )


def style() -> str:
    """Return the style of the page, light and dark, on a screen and in print."""
    return "".join(map(asset, ("page.css", "charts.css", "history.css", "fronts.css", "layers.css")))


@cache
def asset(name: str) -> str:
    """Return one of the page's own files."""
    return resources.files("pytest_ngraph.report.html").joinpath(name).read_text(encoding="utf-8")


def _embedded(value: Any) -> str:
    """Write JSON that can stand in a script element: no text of a user's can end it."""
    text = json.dumps(cleaned(value), ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return text.replace("&", r"\u0026").replace("<", r"\u003c").replace(">", r"\u003e")


# Markup


def _text(text: str) -> str:
    """Write a text as HTML that shows it, also as an attribute."""
    return html.escape(clean(text))


def _about(content: Content) -> str:
    run = content.run
    cells = len(content.reports)
    facts = {
        "run": f"{run.id}, {run.started_at.replace('T', ' ')[:16]} UTC, {run.status}",
        "seed": str(run.seed),
        "cells": f"{cells:,}",
        "devices": ", ".join(dict.fromkeys(report.cell.device for report in content.reports)) or "none",
        "command": " ".join(masked_command(run.command)),
    }
    return "".join(f"<div><dt>{_text(name)}</dt><dd>{_text(fact)}</dd></div>" for name, fact in facts.items())


def _links(content: Content, stacks: Sequence[Stack], charts: str) -> tuple[str, ...]:
    """Return what leads to the sections that not every page has."""
    return (
        fronts_link(content.fronts[0]),
        stacks_link(stacks),
        charts,
        history_link(content.history[0]),
        layers_link(content.layers),
    )


def _numbers(content: Content) -> dict[Cell, int]:
    """Return the numbers that the page knows its cells by."""
    return {report.cell: number for number, report in enumerate(content.reports)}


def _missing(content: Content) -> str:
    """Return the section of what could not run, where there is any."""
    found = first_screen.missing(content)
    return found and (
        '<section id="not-run" aria-labelledby="not-run-title"><h2 id="not-run-title">What could not run as asked</h2>'
        '<p class="says">By model and compiler: what became of it, why, and of how many of its cells.</p>'
        f'<div class="table" tabindex="0" role="region" aria-labelledby="not-run-title">{found}</div>'
        '<p class="empty" hidden>The filters hide all of this.</p></section>'
    )


def _data_of(content: Content, rows: Sequence[Row], charts: Sequence[Chart]) -> dict[str, Any]:
    """Return what the page of one run holds: what every page does, and more."""
    return {
        **data_of([content], [rows], Look.of(content), charts),
        "reversals": list(reversal_rows(content)),
        "spreads": spreads_of(content),
        "loads": _loads(content),
        "capacities": list(capacity_rows(content)),
        "placement": [
            {**row, "of": numbers}
            for row, numbers in zip(placement_rows(content), placements(content).values(), strict=True)
        ],
        "environment": environment_rows(content),
    }


def _loads(content: Content) -> dict[str, Any]:
    """Return the cells under load: what they are called, and of each its rate."""
    names, cells = loads_of(content)
    return {"names": names, "cells": cells}

"""One HTML file that needs nothing else: markup, style, scripts, libraries and the run's data once, as compact JSON."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import resources
from pathlib import Path
from string import Template
from typing import TYPE_CHECKING, Any

from pytest_ngraph.axes import AXES
from pytest_ngraph.compilers.toolkit.equality import MAX_ERROR
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.masking import masked_command
from pytest_ngraph.quantities.compared import top1_of
from pytest_ngraph.report.answer.break_even import break_even_calls
from pytest_ngraph.report.answer.not_run import outcome_of
from pytest_ngraph.report.answer.scoreboard import scoreboard
from pytest_ngraph.report.export.files import write_text
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.html.charts import Chart, charts_of, facts_of, look_of_page, spec_of
from pytest_ngraph.report.html.content import (
    MAX_ERROR_NAME,
    SMALLEST_ERROR,
    Content,
    Row,
    cell_row,
    environment_rows,
    error_of,
    interval_of,
    kind_of,
    placement_rows,
    reversal_rows,
    verdict_rows,
)
from pytest_ngraph.report.html.derived import score_rows, spreads_of
from pytest_ngraph.report.html.drawing import Look, coloured
from pytest_ngraph.report.html.libraries import libraries, notices
from pytest_ngraph.report.html.markup import first_screen
from pytest_ngraph.report.html.markup.history import history_link, history_section
from pytest_ngraph.report.html.pictures.palette import SIGNS
from pytest_ngraph.report.html.sections import chart_links, chart_sections
from pytest_ngraph.report.results.verdicts import family_line, verdicts_by_cell
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.texts.shown import clean, cleaned

if TYPE_CHECKING:
    from pytest_ngraph.quantities.quantity import Estimate
    from pytest_ngraph.report.results.cells import CellReport

_DIGITS = 5
# Powers of ten up to this one are exact.
_EXACT_POWER = 22
# Texts that many cells share are written once and numbered.
_SHARED = ("device", "compiler", "model", "precision", "subject", "stack", "blocks", "family")
_PLAIN = ("batch", "depth", "width")
_SCRIPTS = ("charts.js", "tables.js", "filters.js", "page.js")
_GATES = " A number that a gate judged has the gate's interval, which holds over all looks of the gate."
# Chosen from in every page; further axes where its cells differ in them.
_FILTERS = ("device", "compiler", "model", "batch")


def write_page(content: Content, path: Path) -> None:
    """Write the report of a run as one file.

    Raises SpecError where what draws charts is not installed, StoreError where the file cannot be written.
    """
    write_text(page(content), path)


def page(content: Content) -> str:
    """Return the report of a run as one HTML document."""
    scripts = [libraries(), "".join(map(_asset, _SCRIPTS))]
    run, charts, rows = content.run, charts_of(content), verdict_rows(content)
    scores = scoreboard(content.reports, run.protocol)
    worst = [row for row in rows if row["verdict"] in first_screen.WORST]
    others = [row for row in rows if row["verdict"] not in first_screen.WORST]
    sections = list(chart_sections(charts).values())
    parts = {
        "policy": _policy(scripts),
        "title": _text(f"ngraph report, run {run.id}, {run.started_at[:10]}"),
        "style": style(),
        "notices": _text(notices()),
        "libraries": scripts[0],
        "script": scripts[1],
        "data": _embedded(_data_of(content, rows)),
        "answer": first_screen.answer(content, rows, scores),
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
        "family": _text(family_line(content.verdicts)),
        "spread": _text(SPREADS.get(run.protocol, f"by the protocol {run.protocol}")),
        "links": "".join(
            f'<li><a href="#{name}">{_text(title)}</a></li>' for name, title in chart_links(charts).items()
        )
        + history_link(content.history[0]),
        "first": "".join(sections[:2]),
        "charts": "".join(sections[2:]),
        "history": history_section(*content.history),
        "origin": f"<p>{_text(str(content.origin))}</p>" if content.origin is not None else "",
        "noise": "".join(f"<li>{_text(line.strip())}</li>" for line in content.noise),
    }
    return Template(_asset("page.html")).substitute(parts)


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
    return "".join(map(_asset, ("page.css", "charts.css", "history.css")))


@cache
def _asset(name: str) -> str:
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


def _missing(content: Content) -> str:
    """Return the section of what could not run, where there is any."""
    found = first_screen.missing(content)
    return found and (
        '<section id="not-run" aria-labelledby="not-run-title"><h2 id="not-run-title">What could not run as asked</h2>'
        '<p class="says">By model and compiler: what became of it, why, and of how many of its cells.</p>'
        f'<div class="table" tabindex="0" role="region" aria-labelledby="not-run-title">{found}</div></section>'
    )


# Data


def _data_of(content: Content, rows: Sequence[Row]) -> dict[str, Any]:
    look = Look.of(content)
    return {
        **look_of_page(look),
        "baselines": sorted(content.baselines),
        "signs": SIGNS,
        "metrics": {
            name: {"title": metric.title, "unit": metric.unit, "kind": kind_of(name)}
            for name, metric in METRICS.items()
        },
        "limits": dict(MAX_ERROR),
        "smallest_error": SMALLEST_ERROR,
        "filters": _filters(content),
        "cells": _cells(content),
        "estimates": _estimates(content.reports),
        "verdicts": rows,
        "worst": first_screen.WORST,
        "break_even": [_calls(break_even_calls(report)) for report in content.reports],
        "reversals": list(reversal_rows(content)),
        "scores": list(score_rows(content)),
        "spreads": spreads_of(content),
        "placement": placement_rows(content),
        "environment": environment_rows(content),
        "charts": [_chart(chart, look) for chart in charts_of(content)],
    }


def _chart(chart: Chart, look: Look) -> dict[str, Any]:
    return {**facts_of(chart), "spec": coloured(spec_of(chart, look), "currentColor")}


def _filters(content: Content) -> list[str]:
    """Return what cells can be chosen by: device, compiler, and the axes of the table in their order."""
    workloads = [report.cell.workload for report in content.reports]
    differ = {row.name for row in AXES if len({workload.value(row.name) for workload in workloads}) > 1}
    axes = [row.name for row in AXES if row.name in _FILTERS or row.name in differ]
    return [*(name for name in _FILTERS if name not in axes), *axes]


def _cells(content: Content) -> dict[str, Any]:
    """Return what is known of each cell, column by column, and the texts that the columns number."""
    several = content.has_devices
    rows = [cell_row(report.cell, device=several) for report in content.reports]
    texts = {name: list(dict.fromkeys(row[name] for row in rows)) for name in _SHARED}
    numbers = {name: {text: number for number, text in enumerate(known)} for name, known in texts.items()}
    further = [name for name in _filters(content) if name not in (*_SHARED, *_PLAIN)]
    columns: dict[str, Any] = {name: [numbers[name][row[name]] for row in rows] for name in _SHARED}
    columns |= {name: [row[name] for row in rows] for name in _PLAIN}
    columns |= {name: [report.cell.workload.value(name) for report in content.reports] for name in further}
    outcomes = [outcome_of(report) for report in content.reports]
    known = verdicts_by_cell(content.verdicts)
    columns["outcome"] = [outcome for outcome, _ in outcomes]
    columns["verdict"] = [known.get(report.cell.label) if known else None for report in content.reports]
    reasons = {number: reason for number, (_, reason) in enumerate(outcomes) if reason}
    return {"texts": texts, "columns": columns, "reasons": reasons}


def _estimates(reports: Sequence[CellReport]) -> Mapping[str, Mapping[str, list[Any]]]:
    """Return, for each metric, the numbers of the cells that have it, with their values, intervals and launches."""
    found: dict[str, dict[str, list[Any]]] = {}
    estimates: dict[str, list[tuple[int, Estimate]]] = {}
    for number, report in enumerate(reports):
        for metric, estimate in report.estimates.items():
            if metric not in estimates:
                # Metrics stand in the order in which the cells have them.
                estimates[metric], found[metric] = [], {}
            estimates[metric].append((number, estimate))
        error = error_of(report)
        if error is not None:
            column = found.setdefault(MAX_ERROR_NAME, {"cell": [], "value": []})
            column["cell"].append(number)
            column["value"].append(_short(error))
        _add_agreement(found, number, report)
    for metric, rows in estimates.items():
        ends = [interval_of(estimate) for _, estimate in rows]
        found[metric] = {
            "cell": [number for number, _ in rows],
            "value": _shorts([estimate.value for _, estimate in rows]),
            "low": _shorts([low for low, _ in ends]),
            "high": _shorts([high for _, high in ends]),
            "launches": [estimate.launches for _, estimate in rows],
        }
    return found


def _add_agreement(found: dict[str, dict[str, list[Any]]], number: int, report: CellReport) -> None:
    """Add how well the outputs of a cell agree, beside their largest error."""
    record = report.failure or report.record
    if record is None:
        return
    for name in ("cosine", "centred_cosine"):
        value = getattr(record, name)
        if value is not None:
            column = found.setdefault(name, {"cell": [], "value": []})
            column["cell"].append(number)
            column["value"].append(_short(value))
    if (share := top1_of(record)) is not None:
        column = found.setdefault("top1_agreement", {"cell": [], "value": [], "low": [], "high": []})
        column["cell"].append(number)
        for name in ("value", "low", "high"):
            column[name].append(_short(getattr(share, name)))


def _calls(count: float | None) -> float | str | None:
    """Return a number of calls as the page has it: no JSON holds infinity."""
    return "never" if count == math.inf else _short(count)


def _shorts(values: Sequence[float | None]) -> list[float | int | None]:
    """Return numbers with few digits, each as ``_short`` does: a page of many cells has a million."""
    import numpy as np

    given, powers = np.array(values, dtype=float), np.array([float(f"1e{power}") for power in range(_EXACT_POWER + 1)])
    with np.errstate(all="ignore"):
        places = _DIGITS - 1 - np.floor(np.log10(np.abs(given)))
        places = np.where(np.abs(places) <= _EXACT_POWER, places, 0).astype(int)
        up, down = powers[np.maximum(places, 0)], powers[np.maximum(-places, 0)]
        digits = given * up / down
        # What is between two of them, or has not so many digits before its point, is left to what writes all of it.
        size, between = np.abs(digits), np.abs(digits - np.floor(digits) - 0.5)
        is_sure = (size >= 10.0 ** (_DIGITS - 1)) & (size < 10.0**_DIGITS - 1) & (between > 1e-6)
        # Whole numbers and powers of ten are exact here, so that this is rounded once, as reading the text would be.
        short = np.rint(digits) / up * down
    return [
        (int(one) if one.is_integer() and abs(one) < 1e15 else one) if sure else _short(value)
        for value, one, sure in zip(values, short.tolist(), is_sure.tolist(), strict=True)
    ]


def _short(value: float | None) -> float | int | None:
    """Return a number with few digits, whole ones without a fraction."""
    if value is None or not math.isfinite(value):
        return None
    short = float(f"{value:.{_DIGITS}g}")
    return int(short) if short.is_integer() and abs(short) < 1e15 else short

"""What a page holds of its runs, once, as compact JSON: cells by columns, estimates, claims, scores and charts."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pytest_ngraph.axes import AXES
from pytest_ngraph.metrics import METRICS, Metric
from pytest_ngraph.quantities.compared import top1_of
from pytest_ngraph.report.answer.break_even import break_even_calls
from pytest_ngraph.report.answer.not_run import outcome_of
from pytest_ngraph.report.answer.scoreboard import FEWEST_MODELS, counted, done_to, has_error_control, quantiles
from pytest_ngraph.report.html.charts import Chart, facts_of, look_of_page, spec_of
from pytest_ngraph.report.html.content import (
    MAX_ERROR_NAME,
    SMALLEST_ERROR,
    Content,
    Row,
    bounds_of,
    cell_row,
    error_of,
    interval_of,
    kind_of,
)
from pytest_ngraph.report.html.derived import lengths_of
from pytest_ngraph.report.html.drawing import Look, coloured
from pytest_ngraph.report.html.markup import first_screen
from pytest_ngraph.report.html.pictures.palette import SIGNS
from pytest_ngraph.report.html.pictures.sizes import models_by_size
from pytest_ngraph.report.results.verdicts import verdicts_by_cell
from pytest_ngraph.spec.cells import DENSE

if TYPE_CHECKING:
    from pytest_ngraph.quantities.quantity import Estimate
    from pytest_ngraph.report.results.cells import CellReport

_DIGITS = 5
# Of logarithms that means are made of: so that a mean has the digits of one that was made of all of theirs.
_DIGITS_OF_LOGARITHMS = 9
# Powers of ten up to this one are exact.
_EXACT_POWER = 22
# Texts that many cells share are written once and numbered.
_SHARED = ("device", "compiler", "model", "precision", "subject", "stack", "blocks", "family")
_PLAIN = ("batch", "depth", "width")
RUN = "run"
# Chosen from in every page; further axes where its cells differ in them.
_FILTERS = ("device", "compiler", "model", "batch")


def data_of(
    contents: Sequence[Content],
    claims: Sequence[Sequence[Row]],
    look: Look,
    charts: Sequence[Chart],
    names: Sequence[str] = (),
) -> dict[str, Any]:
    """Return what the page of some runs holds of them.

    ``claims`` are the rows of the verdicts of each, ``names`` what the runs are called: none where there is one.
    """
    reports = [report for content in contents for report in content.reports]
    filters = _filters(reports, names)
    return {
        **look_of_page(look),
        "by": look.by,
        "runs": list(names),
        "has_devices": any(content.has_devices for content in contents),
        "baselines": sorted({baseline for content in contents for baseline in content.baselines}),
        "signs": SIGNS,
        "metrics": {
            name: {"title": metric.title, "unit": metric.unit, "kind": kind_of(name)}
            for name, metric in _metrics_of(reports).items()
        },
        "smallest_error": SMALLEST_ERROR,
        "filters": filters,
        "models": models_by_size(reports),
        "cells": _cells(contents, names, filters),
        "estimates": _estimates(reports),
        "verdicts": list(_verdicts(contents, claims, names)),
        "worst": first_screen.WORST,
        "break_even": [_calls(break_even_calls(report)) for report in reports],
        "board": _board(contents, names),
        "lengths": _lengths(contents),
        "charts": [_chart(chart, look) for chart in charts],
    }


def _chart(chart: Chart, look: Look) -> dict[str, Any]:
    return {**facts_of(chart), "spec": coloured(spec_of(chart, look), "currentColor")}


def _lengths(contents: Sequence[Content]) -> dict[str, Any]:
    """Return the cells that differ in length only, the shortest first, by what they are called."""
    called, lots, before = list[str](), list[tuple[int, list[int]]](), 0
    for content in contents:
        names, mine = lengths_of(content)
        lots += [(len(called) + name, [before + number for number in lot]) for name, lot in mine]
        called += names
        before += len(content.reports)
    return {"names": called, "lots": lots}


def _filters(reports: Sequence[CellReport], names: Sequence[str]) -> list[str]:
    """Return what cells can be chosen by: run, device, compiler, and the axes of the table in their order."""
    workloads = [report.cell.workload for report in reports]
    differ = {row.name for row in AXES if len({workload.value(row.name) for workload in workloads}) > 1}
    axes = [row.name for row in AXES if row.name in _FILTERS or row.name in differ]
    return [*((RUN,) if names else ()), *(name for name in _FILTERS if name not in axes), *axes]


def _cells(contents: Sequence[Content], names: Sequence[str], filters: Sequence[str]) -> dict[str, Any]:
    """Return what is known of each cell, column by column, and the texts that the columns number."""
    has_devices = any(content.has_devices for content in contents)
    reports = [report for content in contents for report in content.reports]
    rows = [cell_row(report.cell, device=has_devices) for report in reports]
    shared: tuple[str, ...] = _SHARED
    if names:
        shared = (*_SHARED, RUN)
        of = [name for name, content in zip(names, contents, strict=True) for _ in content.reports]
        rows = [{**row, RUN: name} for row, name in zip(rows, of, strict=True)]
    texts = {name: list(dict.fromkeys(row[name] for row in rows)) for name in shared}
    numbers = {name: {text: number for number, text in enumerate(known)} for name, known in texts.items()}
    further = [name for name in filters if name not in (*shared, *_PLAIN)]
    columns: dict[str, Any] = {name: [numbers[name][row[name]] for row in rows] for name in shared}
    columns |= {name: [row[name] for row in rows] for name in _PLAIN}
    columns |= {name: [report.cell.workload.value(name) for report in reports] for name in further}
    outcomes = [outcome_of(report) for report in reports]
    columns["outcome"] = [outcome for outcome, _ in outcomes]
    columns["verdict"] = [verdict for content in contents for verdict in _verdicts_of_cells(content)]
    reasons = {number: reason for number, (_, reason) in enumerate(outcomes) if reason}
    return {"texts": texts, "columns": columns, "reasons": reasons}


def _verdicts_of_cells(content: Content) -> list[str | None]:
    known = verdicts_by_cell(content.verdicts)
    return [known.get(report.cell.label) if known else None for report in content.reports]


def _verdicts(contents: Sequence[Content], claims: Sequence[Sequence[Row]], names: Sequence[str]) -> Iterator[Row]:
    """Yield the claims of all runs, each with the number of its cell among those of all."""
    before = 0
    for place, (content, rows) in enumerate(zip(contents, claims, strict=True)):
        for row in rows:
            cell = None if row["cell"] is None else before + row["cell"]
            yield {**row, "cell": cell, **({RUN: names[place]} if names else {})}
        before += len(content.reports)


def _board(contents: Sequence[Content], names: Sequence[str]) -> dict[str, Any]:
    """Return what means of speed-ups are made of, so that the page makes them of the cells that are chosen there."""
    numbers: list[int] = []
    some: list[CellReport] = []
    before = 0
    for content in contents:
        place = {report.cell: number for number, report in enumerate(content.reports, before)}
        mine = counted(content.reports)
        numbers += [place[report.cell] for report in mine]
        some += mine
        before += len(content.reports)
    workloads = {report.cell.workload: 0 for report in some}
    workloads = {workload: number for number, workload in enumerate(workloads)}
    estimates = [report.estimates["speedup"] for report in some]
    ends = [interval_of(estimate) for estimate in estimates]
    most = len({report.cell.workload.model.text for report in some})
    return {
        "cell": numbers,
        "against": [str(report.baseline.compiler) for report in some if report.baseline is not None],
        "workload": [workloads[report.cell.workload] for report in some],
        # To the networks of those that are not dense in f32, by their place.
        "done": {place: done for place, report in enumerate(some) if (done := done_to(report.cell.workload)) != DENSE},
        "value": [_logarithm(estimate.value) for estimate in estimates],
        "low": [_logarithm(low) for low, _ in ends],
        "high": [_logarithm(high) for _, high in ends],
        "quantiles": [float(f"{one:.{_DIGITS_OF_LOGARITHMS}g}") for one in quantiles(range(FEWEST_MODELS, most + 1))],
        "error_control": {
            name: has_error_control(content.run.protocol)
            for name, content in zip(names or ("",), contents, strict=True)
        },
    }


def _logarithm(factor: float | None) -> float | None:
    """Return the logarithm of a factor, None for one without, such as the end of an interval that begins at 0."""
    if factor is None or factor <= 0:
        return None
    return float(f"{math.log(factor):.{_DIGITS_OF_LOGARITHMS}g}")


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
            column = found.setdefault(MAX_ERROR_NAME, {"cell": [], "value": [], "limit": [], "precision": []})
            column["cell"].append(number)
            column["value"].append(_short(error))
            for name, value in bounds_of(report).items():
                column[name].append(value)
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


def _metrics_of(reports: Sequence[CellReport]) -> dict[str, Metric]:
    """Return all metrics, and those of names that only models know: ``accuracy:top1``."""
    named = dict.fromkeys(name for report in reports for name in report.estimates)
    return {**METRICS, **{name: METRICS[name] for name in named}}


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

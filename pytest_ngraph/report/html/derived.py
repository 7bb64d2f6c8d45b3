"""Rows of charts that are made of several estimates: scores, when compiling pays, what depth brings, widths."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from itertools import product
from typing import Any

from pytest_ngraph import units
from pytest_ngraph.report.answer.break_even import break_even_calls
from pytest_ngraph.report.answer.scoreboard import ALL_MODELS, EVERY_MODEL, scoreboard
from pytest_ngraph.report.deploying.lengths import SCALING, exponent_words, lots_of_lengths
from pytest_ngraph.report.deploying.loads import capacities, loaded
from pytest_ngraph.report.html.content import (
    Content,
    Row,
    cell_row,
    estimate_rows,
    finite,
    name_without,
    numbers_of,
)
from pytest_ngraph.report.results.spreads import PERCENTILES


def score_rows(content: Content) -> Iterator[Row]:
    """Yield a row for each mean over models: families by compilers, on each device, those of all models first."""
    scores = scoreboard(content.reports, content.run.protocol)
    families = list(dict.fromkeys(score.family for score in scores))
    for score in sorted(scores, key=lambda score: families.index(score.family)):
        family = ALL_MODELS if score.family == EVERY_MODEL else score.family
        yield {
            "device": score.device,
            "compiler": score.compiler,
            "family": family,
            "place": f"{family} · {score.compiler}",
            "value": score.value,
            "low": score.low,
            "high": score.high,
            "text": str(score),
            "claim": score.claim or "none",
            "basis": score.basis,
        }


def break_even_rows(content: Content) -> Iterator[Row]:
    """Yield after how many calls compiling has paid, for each cell where it ever does."""
    for report in content.reports:
        calls = break_even_calls(report)
        if calls is not None and math.isfinite(calls):
            text = f"{calls:,.0f} {'call' if calls == 1 else 'calls'}"
            numbers = {"value": max(1.0, calls), "low": None, "high": None, "text": text}
            yield {**cell_row(report.cell, device=content.has_devices), "what": "Pays after", **numbers}


def visit_rows(content: Content) -> Iterator[Row]:
    """Yield each visit of the first cell that has any, by launch, and the percentiles of its samples.

    The page has those of the cell that is chosen there.
    """
    spread = next((report.spread for report in content.reports if report.spread is not None), None)
    if spread is None:
        return
    for number, times in spread.launches:
        for seconds in times:
            yield {"launch": number, "what": "visit", "value": seconds, "text": units.seconds(seconds)}
    for share, seconds in zip(PERCENTILES, spread.percentiles, strict=True):
        yield {"launch": None, "what": f"p{share}", "value": seconds, "text": units.seconds(seconds)}


def spreads_of(content: Content) -> list[list[Any] | None]:
    """Return how the times of each cell are distributed, as ``page.js`` reads it, in the order of the cells."""
    return [
        None
        if report.spread is None
        else [
            [[number, [_short(one) for one in times]] for number, times in report.spread.launches],
            [_short(one) for one in report.spread.percentiles],
            report.spread.samples,
            report.spread.calls,
            report.state,
        ]
        for report in content.reports
    ]


def _short(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def depth_rows(content: Content) -> Iterator[Row]:
    """Yield the speed-ups with the slope and the retention of each stack in its ``label``.

    A stack of one depth says nothing of depth, and is left out.
    """
    trends = {
        metric: {(row["compiler"], row["stack"]): row["value"] for row in estimate_rows(content, [metric])}
        for metric in ("slope", "retention")
    }
    rows = list(estimate_rows(content, ["speedup"]))
    depths: dict[str, set[int | None]] = {}
    for row in rows:
        depths.setdefault(row["stack"], set()).add(row["depth"])
    for row in rows:
        if row["depth"] is not None and len(depths[row["stack"]]) < 2:
            continue
        stack = (row["compiler"], row["stack"])
        known = [trends[metric].get(stack) for metric in ("slope", "retention")]
        if known[0] is None or known[1] is None:
            yield {**row, "label": row["compiler"]}
        else:
            yield {**row, "label": f"{row['compiler']} {known[0]:+.3f}/layer, {known[1]:.2f} kept"}


# The metric whose lines over length say by which exponent it grows.
_GROWS = "latency"


def length_rows(content: Content, metrics: Sequence[str]) -> Iterator[Row]:
    """Yield the values of cells over the lengths of their sequences, with the exponent of their time in ``label``.

    Cells of one length alone are left out.
    """
    lots = lots_of_lengths(content.reports)
    lot_of = {number: lot for lot in lots for number in lot}
    for metric, number in product(metrics, sorted(lot_of)):
        report, longest = content.reports[number], content.reports[lot_of[number][-1]]
        if numbers := numbers_of(report, metric):
            row = cell_row(report.cell, device=content.has_devices)
            name = name_without(report.cell, "sequence", device=content.has_devices)
            words = exponent_words(longest.estimates.get(SCALING)) if metric == _GROWS else ""
            label = " ".join(filter(None, [row["compiler"], words]))
            length = report.cell.workload.sequence
            yield {**row, **numbers, "sequence": length, "lengths": name, "label": label}


def lengths_of(content: Content) -> tuple[list[str], list[tuple[int, list[int]]]]:
    """Return what cells over lengths are called, and each lot of them by the number of its name and by its cells."""
    lots = lots_of_lengths(content.reports)
    names = [name_without(content.reports[lot[0]].cell, "sequence", device=content.has_devices) for lot in lots]
    known = {name: number for number, name in enumerate(dict.fromkeys(names))}
    return [*known], [(known[name], lot) for name, lot in zip(names, lots, strict=True)]


def token_rows(content: Content, metrics: Sequence[str]) -> Iterator[Row]:
    """Yield what the prompt and what each further token takes, of cells that generate some, by what they run."""
    for row in estimate_rows(content, metrics):
        yield {**row, "place": f"{row['subject']} batch{row['batch']}"}


def load_rows(content: Content, metrics: Sequence[str]) -> Iterator[Row]:
    """Yield a percentile of the latency, ``p99``, of each cell under load by how many calls arrive a second."""
    shares = {f"p{share}": place for place, share in enumerate(PERCENTILES)}
    for what in metrics:
        for number, rate in loaded(content.reports):
            report = content.reports[number]
            assert report.spread is not None
            seconds = report.spread.percentiles[shares[what]]
            yield {
                **cell_row(report.cell, device=content.has_devices),
                "rate": rate,
                "served": name_without(report.cell, "scenario", device=content.has_devices),
                "metric": what,
                "what": what,
                "value": seconds,
                "low": None,
                "high": None,
                "text": units.seconds(seconds),
            }


def loads_of(content: Content) -> tuple[list[str], list[tuple[int, float, int]]]:
    """Return what cells under load are called, and of each its number, its rate and the number of its name."""
    found = list(loaded(content.reports))
    names = [name_without(content.reports[number].cell, "scenario", device=content.has_devices) for number, _ in found]
    known = {name: place for place, name in enumerate(dict.fromkeys(names))}
    return [*known], [(number, rate, known[name]) for name, (number, rate) in zip(names, found, strict=True)]


def capacity_rows(content: Content) -> Iterator[Row]:
    """Yield each claim of capacity: the highest rate that holds its percentile, and the one that was claimed."""
    cells = {report.cell.label: number for number, report in enumerate(content.reports)}
    for one in capacities(content.verdicts):
        number = cells.get(str(one.row.extra.get("subject", "")))
        if number is None:
            continue
        row, cell = one.row, content.reports[number].cell
        low, high = (finite(end) if end is not None else None for end in (row.low, row.high))
        ends = units.interval(low, high, units.rate) if low is not None and high is not None else ""
        yield {
            **cell_row(cell, device=content.has_devices),
            "cell": number,
            "place": one.about,
            "value": row.estimate,
            "low": low,
            "high": high,
            "limit": row.bound,
            "bound": "" if row.bound is None else units.rate(row.bound),
            "verdict": row.verdict,
            "text": f"{units.rate(row.estimate or 0.0)}{ends}",
        }

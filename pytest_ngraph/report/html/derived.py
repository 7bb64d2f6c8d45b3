"""Rows of charts that are made of several estimates: scores, when compiling pays, what depth brings, widths."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from pytest_ngraph import units
from pytest_ngraph.report.answer.break_even import break_even_calls
from pytest_ngraph.report.answer.scoreboard import ALL_MODELS, EVERY_MODEL, scoreboard
from pytest_ngraph.report.html.content import Content, Row, cell_row, estimate_rows
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

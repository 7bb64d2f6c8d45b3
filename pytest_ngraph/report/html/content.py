"""What the page and the figures show: a run's cells, estimates, verdicts and reversals as plain rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_ngraph import units
from pytest_ngraph.axes import AXES
from pytest_ngraph.choosing.front import Front
from pytest_ngraph.metrics import METRICS, Metric
from pytest_ngraph.quantities.compared import limit_of
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.baselines.history import History, run_histories
from pytest_ngraph.report.fronts.stored import run_fronts
from pytest_ngraph.report.layers.stored import Layers, run_layers
from pytest_ngraph.report.results.cells import CellReport, cell_reports
from pytest_ngraph.report.results.families import family_of
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.results.offline import Judged, is_whole
from pytest_ngraph.report.results.reversals import Reversal, find_reversals
from pytest_ngraph.report.results.verdicts import without_terms
from pytest_ngraph.spec.cells import Cell, target_parts
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import Origin, RunRow, VerdictRow
from pytest_ngraph.store.sqlite import Store

Row = dict[str, Any]
# How the page writes the values of a metric; the rest are plain numbers.
_KINDS = {
    units.seconds: "seconds", units.size: "size", units.factor: "factor", units.rate: "rate", units.percent: "percent",
    units.share: "share", units.joules: "joules", units.watts: "watts",
}  # fmt: skip
# From here on a claim is as far from its bound as matters: the axis of the verdicts ends there.
FARTHEST = 8.0
# In place of the tolerance of a claim that has none, where claims are put in order: a fraction, of shares an amount.
_STAND_IN, _STAND_IN_OF_SHARES = 0.05, 0.01
# A claim about pairs of models has no single number that is compared with its bound.
PAIRWISE = ("assert_order:", "assert_pareto:")
_JUDGED = (Verdict.PASS, Verdict.FAIL, Verdict.INCONCLUSIVE)
_WORST_FIRST = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.NOT_JUDGED, Verdict.PASS)
# Agreement is not an estimate: it is compared once, before anything is timed.
MAX_ERROR_NAME = "max_error"
# What has no error at all stands at the end of a logarithmic axis.
SMALLEST_ERROR = 1e-9
# Outputs that cannot be compared, such as NaN or another shape, are infinitely far off.
LARGEST_ERROR = 1e3


@dataclass(frozen=True, slots=True)
class Content:
    """All that a report shows of one run. ``noise`` is what the terminal said of the machine."""

    run: RunRow
    reports: Sequence[CellReport]
    verdicts: Sequence[VerdictRow]
    reversals: Sequence[Reversal]
    noise: Sequence[str] = ()
    origin: Origin | None = None
    # What earlier sessions measured of its cells, and of how many more that is not shown.
    history: tuple[Sequence[History], int] = ((), 0)
    # Which configurations no other one is shown to be better than, and of how many more tasks that is not shown.
    fronts: tuple[Sequence[Front], int] = ((), 0)
    # What ran in those of its cells that were explained.
    layers: Layers = field(default_factory=Layers)

    @property
    def has_devices(self) -> bool:
        """Return whether there are several devices, so that names must say which."""
        return len({report.cell.device for report in self.reports}) > 1

    @property
    def compilers(self) -> list[str]:
        """Return the compilers by name, the baselines first: their colours follow this order."""
        baselines = {str(report.baseline.compiler) for report in self.reports if report.baseline is not None}
        names = {str(report.cell.compiler) for report in self.reports}
        return sorted(names, key=lambda name: (name not in baselines, natural(name)))

    @property
    def baselines(self) -> set[str]:
        """Return the compilers that others are compared with."""
        return {str(report.baseline.compiler) for report in self.reports if report.baseline is not None}


def content_of(
    run: RunRow,
    reports: Sequence[CellReport],
    verdicts: Sequence[VerdictRow],
    noise: Sequence[str] = (),
    origin: Origin | None = None,
    path: Path | None = None,
    judged: Judged | None = None,
) -> Content:
    """Return what is shown of a run whose estimates are known. ``path`` is the store that has its history, if any.

    ``judged`` are the cells of an offline run, which shows those of ``run``: its fronts, and what ran in its cells, are
    left out where that run has others.
    """
    reports = sorted(with_intervals_of_gates(reports, verdicts), key=_place)
    content = Content(run, reports, verdicts, find_reversals(reports, run.protocol), noise, origin)
    if path is None or not path.exists():
        return content
    with Store.open(path, read_only=True) as store:
        return _with_stored(content, store, reports, whole=judged is None or is_whole(store, run, judged))


def with_intervals_of_gates(reports: Sequence[CellReport], verdicts: Sequence[VerdictRow]) -> Sequence[CellReport]:
    """Return the reports, the numbers that a gate judged with the gate's interval.

    It holds over all looks of the gate, so that it is wider than the plain one of the same launches: a page with both
    would give two intervals of 99 % for one number. A number of other launches than the gate's keeps its own.
    """
    judged: dict[tuple[str, str], list[VerdictRow]] = {}
    for row in verdicts:
        if row.verdict in _JUDGED and row.estimate is not None and row.low is not None and row.high is not None:
            judged.setdefault((str(row.extra.get("subject", "")), row.metric), []).append(row)
    if not judged:
        return reports
    return [_with_intervals(report, judged) for report in reports]


def _with_intervals(report: CellReport, judged: Mapping[tuple[str, str], Sequence[VerdictRow]]) -> CellReport:
    label = report.cell.label
    changed: dict[str, Estimate] = {}
    for metric, estimate in report.estimates.items():
        for row in judged.get((label, metric), ()):
            is_same = row.launches == estimate.launches and math.isclose(
                row.estimate or 0, estimate.value, rel_tol=1e-9
            )
            if is_same and row.low is not None and row.high is not None:
                wider = changed.get(metric, estimate)
                changed[metric] = replace(estimate, low=min(row.low, wider.low), high=max(row.high, wider.high))
    return replace(report, estimates={**report.estimates, **changed}) if changed else report


def _place(report: CellReport) -> tuple[object, ...]:
    """Return where a cell stands: names and numbers in their natural order, a baseline before its rivals."""
    cell, workload = report.cell, report.cell.workload
    axes = [
        natural(str(value)) if isinstance(value := workload.value(row.name), str) else (-1 if value is None else value,)
        for row in AXES
        if row.name not in ("model", "batch")
    ]
    rank = (report.baseline is not None, natural(str(cell.compiler)), cell.side, cell.rebuild, cell.replica)
    return (natural(cell.device), natural(workload.model.text), *axes, workload.batch, *rank)


def read_content(store: Store, run: RunRow, *, is_page: bool = True) -> Content:
    """Return what is shown of a run, computed from the store.

    Histories, fronts and what ran take a while, and only the page of one run shows them: else they are left out.
    """
    from pytest_ngraph.report.noise.of_a_run import run_noise_lines

    reports = cell_reports(store, run.id)
    origin = Origin(run.id, store.read_digest())
    noise = [*run_noise_lines(store, run), *store.damage_lines]
    verdicts = store.verdicts(run.id)
    content = content_of(run, reports, verdicts, noise, origin)
    return _with_stored(content, store, reports) if is_page else content


def _with_stored(content: Content, store: Store, reports: Sequence[CellReport], *, whole: bool = True) -> Content:
    """Return what is shown of a run with what only its store has, where ``whole`` also what is of all its cells."""
    run, verdicts = content.run, content.verdicts
    content = replace(content, history=run_histories(store, run, reports, verdicts))
    if not whole:
        return content
    return replace(content, fronts=run_fronts(store, run), layers=run_layers(store, run, verdicts))


# Names


def compiler_of(report: CellReport) -> str:
    """Name a cell's compiler as its charts do."""
    return str(report.cell.compiler)


def cell_row(cell: Cell, *, device: bool) -> Row:
    """Return what charts know of a cell. ``subject``, ``stack`` and ``blocks`` name it without some axes."""
    workload, notes = cell.workload, _notes(cell, device=device)

    def without(*swept: str) -> str:
        return " ".join([workload.model.text, *workload.axis_labels(*swept), *notes])

    compiler, blocks = str(cell.compiler), without("batch", "width")
    return {
        "device": cell.device,
        "compiler": compiler,
        "model": workload.model.text,
        "batch": workload.batch,
        "depth": workload.depth,
        "width": workload.width,
        "precision": workload.precision,
        "subject": without("batch"),
        "stack": without("depth"),
        "blocks": blocks,
        "map": f"{compiler} · {blocks}",
        "family": family_of(workload.model.text),
    }


def name_without(cell: Cell, *swept: str, device: bool) -> str:
    """Name what a cell runs without its compiler and without some axes."""
    return " ".join([cell.workload.model.text, *cell.workload.axis_labels(*swept), *_notes(cell, device=device)])


def _notes(cell: Cell, *, device: bool) -> list[str]:
    notes = [f"of {cell.side}"] if cell.side else []
    notes += [*(["rebuilt"] if cell.rebuild else []), *(["second process"] if cell.replica else [])]
    return [*notes, *([f"on {cell.device}"] if device else [])]


# Rows of the charts: the page makes the same ones from what it holds (page.js), the figures have them from here.


def estimate_rows(content: Content, metrics: Sequence[str]) -> Iterator[Row]:
    """Yield a row for each cell and metric: the cell's, the value with its interval, and how it is written."""
    several = content.has_devices
    for metric in metrics:
        for report in content.reports:
            if metric == MAX_ERROR_NAME:
                error = error_of(report)
                if error is not None:
                    numbers = {"value": max(error, SMALLEST_ERROR), **bounds_of(report)}
                    yield {
                        **cell_row(report.cell, device=several),
                        "metric": metric,
                        "what": "Largest error",
                        **numbers,
                    }
            elif numbers := numbers_of(report, metric):
                yield {**cell_row(report.cell, device=several), **numbers}


def numbers_of(report: CellReport, metric: str) -> Row:
    """Return a cell's value of a metric with its interval, and how it is written. Empty where it has no such number."""
    estimate = report.estimates.get(metric)
    if estimate is None or not math.isfinite(estimate.value):
        return {}
    low, high = interval_of(estimate)
    numbers = {"value": estimate.value, "low": low, "high": high}
    return {"metric": metric, "what": METRICS[metric].title, **numbers, "text": str(estimate)}


def bounds_of(report: CellReport) -> Row:
    """Return where an error becomes too large, None where it is not by that outputs are judged, and in which precision.

    That is the one of the cell, or of a file that is written in another one.
    """
    record, precision = report.failure or report.record, report.cell.workload.precision
    if record is None:
        return {"limit": None, "precision": precision}
    of_file = f"{precision}, file in {record.held_to}" if record.held_to else precision
    return {"limit": limit_of(report.cell, record), "precision": of_file}


def error_of(report: CellReport) -> float | None:
    """Return how far a cell's outputs are from the reference's, at most ``LARGEST_ERROR``. None where not compared."""
    record = report.failure or report.record
    error = None if record is None else record.max_error
    return None if error is None or math.isnan(error) else min(error, LARGEST_ERROR)


def verdict_rows(content: Content) -> list[Row]:
    """Return a row for each claim, the worst first: how many tolerances it is from its bound, good to the right."""
    cells = {report.cell.label: number for number, report in enumerate(content.reports)}
    rows = []
    for verdict in sorted(content.verdicts, key=_how_bad):
        number = cells.get(str(verdict.extra.get("subject", "")))
        report = content.reports[number] if number is not None else None
        cell = report.cell if report is not None else None
        device, compiler = target_parts(str(verdict.extra.get("target", "")))
        write = METRICS[verdict.metric].format if verdict.metric in METRICS else units.number
        value = verdict.estimate
        rows.append(
            {
                "device": cell.device if cell else device,
                "compiler": str(cell.compiler) if cell else compiler,
                "model": cell.workload.model.text if cell else None,
                **{row.name: cell.workload.value(row.name) if cell else None for row in AXES if row.name != "model"},
                "test": verdict.nodeid,
                "what": f"{verdict.nodeid.partition('::')[2] or verdict.nodeid} · {verdict.claim}",
                "claim": verdict.claim,
                "about": without_terms(verdict.claim),
                "cell": number,
                "outcome": (report.outcome or "not measured") if report is not None else None,
                "verdict": verdict.verdict,
                "state": str(verdict.extra.get("state") or ""),
                "reason": "; ".join(filter(None, (verdict.extra.get("reason"), *verdict.extra.get("notes", ())))),
                "launches": verdict.launches,
                "bound": write(verdict.bound) if verdict.bound is not None else "",
                "off": _off(verdict, write),
                "text": f"{write(value)}{_spread(verdict, write)}" if value is not None else "not measured",
                **{name: _drawn(_distance(verdict, getattr(verdict, name))) for name in ("estimate", "low", "high")},
            }
        )
    return rows


def _how_bad(verdict: VerdictRow) -> tuple[int, bool, float]:
    """Return by what the worst claim comes first. Of two that are drawn where their chart ends one is worse."""
    if not verdict.tolerance:
        metric = _metric_of(verdict)
        is_share = metric is not None and metric.format is units.share
        verdict = replace(verdict, tolerance=_STAND_IN_OF_SHARES if is_share else _STAND_IN)
    distance = _distance(verdict, verdict.estimate)
    return _WORST_FIRST.index(verdict.verdict), distance is None, distance or 0.0


def _spread(verdict: VerdictRow, write: Callable[[float], str]) -> str:
    """Write what follows an estimate. Over how many launches an interval is has a column of its own."""
    if verdict.low is None or verdict.high is None or not math.isfinite(verdict.high - verdict.low):
        return f" (no interval from {units.count(verdict.launches, 'launch', 'launches')})"
    return units.interval(verdict.low, verdict.high, write)


def _off(verdict: VerdictRow, write: Callable[[float], str]) -> str:
    """Write how far an estimate is from its bound, or nothing where there is no such number."""
    metric, value, bound = _metric_of(verdict), verdict.estimate, verdict.bound
    if metric is None or value is None or bound is None or not verdict.launches:
        return ""
    if verdict.claim.startswith(PAIRWISE) and verdict.verdict != Verdict.FAIL:
        return ""
    if not math.isfinite(value) or (metric.scale == "log" and (value <= 0 or bound <= 0)):
        return ""
    amount = units.fraction(abs(value / bound - 1)) if metric.scale == "log" else write(abs(value - bound))
    side = "below" if value < bound else "above" if value > bound else "at"
    return "at the bound" if side == "at" else f"{amount} {side}"


def _metric_of(verdict: VerdictRow) -> Metric | None:
    """Return the metric of a claim, or None for one of another release."""
    if verdict.metric not in METRICS:
        return None
    # Not by ``get``, which finds no name with a colon.
    return METRICS[verdict.metric]


def _distance(verdict: VerdictRow, number: float | None) -> float | None:
    """Return how many tolerances a number is on the good side of its bound, or None."""
    metric = _metric_of(verdict)
    if verdict.claim.startswith(PAIRWISE):
        # Its one number is of a pair that may rightly be the other way round.
        return None
    if metric is None or verdict.bound is None or number is None or math.isnan(number) or not verdict.tolerance:
        return None
    if metric.scale == "log":
        if verdict.bound <= 0 or (verdict.at_least and verdict.tolerance >= 1):
            return None
        # The zone ends at bound (1 - tolerance) or bound (1 + tolerance); both count as one.
        gap = -math.log1p(-verdict.tolerance) if verdict.at_least else math.log1p(verdict.tolerance)
        off = math.log(number / verdict.bound) / gap if number > 0 else -math.inf
    else:
        off = (number - verdict.bound) / verdict.tolerance
    return off if verdict.at_least else -off


def _drawn(distance: float | None) -> float | None:
    """Return a distance as its chart has it, whose axis ends."""
    return None if distance is None else max(-FARTHEST, min(FARTHEST, distance))


def reversal_rows(content: Content) -> Iterator[Row]:
    """Yield two rows for each reversal: the ratio of the two models under the baseline, and under the compiler."""
    for reversal in content.reversals:
        where = ", ".join(
            [f"batch {reversal.batch}", *reversal.axes, *([reversal.device] if content.has_devices else [])]
        )
        models = " / ".join(model.removeprefix("timm:") for model in (reversal.first, reversal.second))
        changed = f"{reversal.baseline_ratio.value:.2f} → {reversal.compiled_ratio.value:.2f}"
        pair = f"{models}, {where}, {reversal.compiler}" + (" (points)" if reversal.by_points else "")
        sides = (
            (reversal.baseline, "baseline", reversal.baseline_ratio),
            (reversal.compiler, "compiled", reversal.compiled_ratio),
        )
        for under, side, ratio in sides:
            yield {
                "device": reversal.device,
                "compiler": reversal.compiler,
                "batch": reversal.batch,
                "first": reversal.first,
                "second": reversal.second,
                "pair": pair,
                "models": ", ".join([models, *reversal.axes, reversal.compiler]),
                "changed": changed if side == "compiled" else None,
                "under": under,
                "side": side,
                "value": ratio.value,
                "low": finite(ratio.low),
                "high": finite(ratio.high),
                "text": str(ratio),
            }


# Tables that are no charts


def placements(content: Content) -> Mapping[tuple[str, str, str], list[int]]:
    """Return what really ran, by device, compiler and placement: the numbers of its cells."""
    found: dict[tuple[str, str, str], list[int]] = {}
    for number, report in enumerate(content.reports):
        if report.record is not None and report.record.placement:
            facts = ", ".join(f"{key} {value}" for key, value in report.record.placement)
            found.setdefault((report.cell.device, compiler_of(report), facts), []).append(number)
    return {key: found[key] for key in sorted(found, key=lambda one: tuple(map(natural, one)))}


def placement_rows(content: Content) -> list[Row]:
    """Return what really ran, once for each compiler and placement, with the number of cells."""
    return [
        {"device": device, "compiler": compiler, "ran": ran, "cells": len(numbers)}
        for (device, compiler, ran), numbers in placements(content).items()
    ]


def environment_rows(content: Content) -> list[Row]:
    """Return the facts of the machines that were measured on: a row for each, by device."""
    rows = []
    for device in dict.fromkeys(report.cell.device for report in content.reports):
        for name, fact in content.run.on(device).environment.items():
            if isinstance(fact, Mapping):
                rows += [
                    {"device": device, "what": f"{name}: {key}", "is": _fact(value)} for key, value in fact.items()
                ]
            elif fact is not None:
                is_size = name.endswith("_bytes") and isinstance(fact, int)
                written = units.size(fact) if is_size else _fact(fact)
                rows.append({"device": device, "what": name.removesuffix("_bytes").replace("_", " "), "is": written})
    return rows


def _fact(fact: object) -> str:
    if isinstance(fact, (list, tuple)):
        return ", ".join(map(str, fact))
    return str(fact)


def interval_of(estimate: Estimate) -> tuple[float | None, float | None]:
    """Return an estimate's interval. Of one launch there is none, and a logarithm's would begin at 0."""
    if math.isfinite(estimate.low) and math.isfinite(estimate.high):
        return estimate.low, estimate.high
    return None, None


def finite(value: float) -> float | None:
    """Return a number, or None for one that JSON does not have: an interval over one launch is unbounded."""
    return value if math.isfinite(value) else None


def kind_of(metric: str) -> str:
    """Return how the page writes a metric's values, such as seconds, factor or number."""
    return _KINDS.get(METRICS[metric].format, "number")

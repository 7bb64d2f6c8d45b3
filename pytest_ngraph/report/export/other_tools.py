"""Results in the formats of other tools: Bencher, github-action-benchmark, and OpenMetrics as GitLab shows it.

Each keeps the interval, as far as its format has a place for one.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from functools import partial

from pytest_ngraph import units
from pytest_ngraph.metrics import METRICS, Metric
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import Origin, VerdictRow
from pytest_ngraph.texts.shown import clean, one_line

# Bencher takes no longer names.
_BENCHER_LETTERS = 1024
_NANOSECONDS = 1e9
# What OpenMetrics wants at the end of a name that has a unit.
_UNITS = {
    "s": "seconds", "bytes": "bytes", "samples/s": "samples_per_second", "%": "percent", "": "ratio",
    "per layer": "per_layer", "per doubling": "per_doubling", "bytes/s": "bytes_per_second", "trials": "trials",
    "exponent": "exponent", "tokens/s": "tokens_per_second", "calls/s": "calls_per_second", "J": "joules", "W": "watts",
    "samples/J": "samples_per_joule",
}  # fmt: skip
_PASSED: Mapping[str, str] = {Verdict.PASS: "1", Verdict.FAIL: "0"}
_RELATIVE = ("speedup", "bsr", "slope", "retention", "cpu_reduction_percent")
_Written = tuple[str, int]


def bencher(
    reports: Sequence[CellReport], spread: str, origin: Origin | None, verdicts: Sequence[VerdictRow]
) -> _Written:
    """Return the Bencher Metric Format: a benchmark a cell, a measure a metric, with the ends of its interval.

    Latency is in nanoseconds, as Bencher's own measure of this name; what the others are in is in their names or that
    of the metric table. The format has no place for anything else.
    """
    benchmarks: dict[str, dict[str, dict[str, float]]] = {}
    names = _names((report.cell.label for report in reports), _BENCHER_LETTERS)
    count = 0
    for report, metric, estimate in _estimates(reports):
        factor = _NANOSECONDS if metric.name == "latency" else 1.0
        values = {"value": factor * estimate.value}
        if _is_bounded(estimate):
            values |= {"lower_value": factor * estimate.low, "upper_value": factor * estimate.high}
        measures = benchmarks.setdefault(names[report.cell.label], {})
        measures[_slug(metric.name, measures)] = values
        count += 1
    return _json(benchmarks), count


def _slug(name: str, taken: Container[str]) -> str:
    """Return a metric's name as Bencher's slugs are made, no two of a benchmark the same."""
    slug = first = "-".join(re.findall("[a-z0-9]+", name.lower()))
    number = 1
    while slug in taken:
        number += 1
        slug = f"{first}-{number}"
    return slug


def custom(
    reports: Sequence[CellReport],
    spread: str,
    origin: Origin | None,
    verdicts: Sequence[VerdictRow],
    *,
    better: str,
) -> _Written:
    """Return what github-action-benchmark reads as its custom tools: the metrics of one direction, an entry each."""
    names, entries = _names(report.cell.label for report in reports), []
    for report, metric, estimate in _estimates(reports):
        if metric.better != better:
            continue
        against = f"against {report.baseline.compiler}" if report.baseline and metric.name in _RELATIVE else ""
        said = [units.count(estimate.launches, "launch", "launches"), against, str(origin or "")]
        name = f"{names[report.cell.label]}: {metric.title}"
        entry: dict[str, object] = {"name": name, "unit": metric.unit or "x", "value": estimate.value}
        if _is_bounded(estimate):
            entry["range"] = f"{_digits(estimate, estimate.low)} to {_digits(estimate, estimate.high)}"
            said.insert(0, spread)
        entries.append({**entry, "extra": "\n".join(filter(None, map(clean, said)))})
    return _json(entries), len(entries)


def openmetrics(
    reports: Sequence[CellReport], spread: str, origin: Origin | None, verdicts: Sequence[VerdictRow]
) -> _Written:
    """Return OpenMetrics text: a gauge a metric, and one of the gates, 1 for a pass, 0 for a fail, NaN undecided.

    GitLab compares values as texts, so that a number is rounded to what its interval leaves of it: noise within it
    mostly changes no text.
    """
    families: dict[str, list[str]] = {}
    names = _names(report.cell.label for report in reports)
    count = 0
    for report, metric, estimate in _estimates(reports):
        # What a user called a score is text, which the format has labels for.
        plain, _, score = metric.name.partition(":")
        unit, title = _UNITS[metric.unit], METRICS[plain].title
        name = f"ngraph_{plain}" + ("" if plain.endswith(f"_{unit}") else f"_{unit}")
        lines = families.setdefault(name, [f"# TYPE {name} gauge", f"# UNIT {name} {unit}",
                                           f"# HELP {name} {title}, {spread}."])  # fmt: skip
        cell = report.cell
        labels = {
            "cell": names[cell.label], "device": cell.device, "compiler": str(cell.compiler),
            "model": cell.workload.model.text, "batch": str(cell.workload.batch),
            **({"score": score} if score else {}),
        }  # fmt: skip
        lines.append(f"{name}{_labels(labels)} {_digits(estimate, estimate.value)}")
        count += 1
    gates = {(row.nodeid, row.claim): row for row in verdicts}
    claims = _names(f"{test}: {claim}" for test, claim in gates)
    for (test, claim), row in gates.items():
        name = "ngraph_gate_passed"
        lines = families.setdefault(
            name, [f"# TYPE {name} gauge", f"# HELP {name} 1 for a pass, 0 for a fail, NaN where it is not decided."]
        )
        lines.append(f"{name}{_labels({'gate': claims[f'{test}: {claim}']})} {_PASSED.get(row.verdict, 'NaN')}")
        count += 1
    return "".join(f"{line}\n" for lines in [*families.values(), ["# EOF"]] for line in lines), count


OTHER_TOOLS: Mapping[
    str, Callable[[Sequence[CellReport], str, Origin | None, Sequence[VerdictRow]], _Written]
] = {
    ".bencher.json": bencher,
    ".customSmallerIsBetter.json": partial(custom, better="lower"),
    ".customBiggerIsBetter.json": partial(custom, better="higher"),
    ".openmetrics.txt": openmetrics,
}  # fmt: skip


def _estimates(reports: Sequence[CellReport]) -> Iterator[tuple[CellReport, Metric, Estimate]]:
    """Yield each estimate that is a number. A cell without a time has none."""
    for report in reports:
        for name, estimate in report.estimates.items():
            if math.isfinite(estimate.value):
                yield report, METRICS[name], estimate


def _names(labels: Iterable[str], most: int = 4096) -> dict[str, str]:
    """Return a clean name of one line for each label, no two the same."""
    names: dict[str, str] = {}
    taken: set[str] = set()
    for label in dict.fromkeys(labels):
        name, number = one_line(label, most), 1
        while name in taken:
            number += 1
            name = f"{one_line(label, most - 8)} ({number})"
        names[label] = name
        taken.add(name)
    return names


def _is_bounded(estimate: Estimate) -> bool:
    # Of one launch a logarithm has 0 to infinity.
    return math.isfinite(estimate.low) and math.isfinite(estimate.high)


def _digits(estimate: Estimate, value: float) -> str:
    """Write a number to the first digit of half its interval, or with three digits where it has none."""
    half = (estimate.high - estimate.low) / 2 if _is_bounded(estimate) else 0.0
    size = half or abs(value) / 100
    if not size:
        return "0"
    places = -math.floor(math.log10(size))
    return f"{round(value, places) + 0.0:.{max(0, places)}f}"


def _labels(labels: Mapping[str, str]) -> str:
    written = ",".join(f'{name}="{_label(value)}"' for name, value in labels.items())
    return f"{{{written}}}"


def _label(value: str) -> str:
    return one_line(value, 4096).replace("\\", "\\\\").replace('"', '\\"')


def _json(content: object) -> str:
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False) + "\n"

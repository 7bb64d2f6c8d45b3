"""Samples as the JSON document that ``pytest-benchmark compare`` reads."""

from __future__ import annotations

import statistics
from bisect import bisect_left, bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.store.rows import RunRow

# The version of pytest-benchmark whose file format this is.
_FORMAT_VERSION = "5.0.0"
_IQR_FENCE = 1.5


@dataclass(frozen=True, slots=True)
class BenchmarkEntry:
    """One row of the comparison. Each sample is the seconds that ``calls`` back-to-back calls took together.

    Samples of different numbers of calls are given as seconds per call with ``calls=1``.
    """

    name: str
    fullname: str
    group: str | None
    params: Mapping[str, Any]
    samples_seconds: Sequence[float]
    calls: int = 1
    extra_info: Mapping[str, Any] = field(default_factory=dict)
    verdict: str | None = None


def benchmark_document(
    entries: Sequence[BenchmarkEntry], *, run: RunRow, machine: Mapping[str, Any], commit: Mapping[str, Any]
) -> dict[str, Any]:
    """Return the JSON-able document of a run. Raise SpecError for an entry without samples."""
    return {
        "machine_info": dict(machine),
        "commit_info": dict(commit),
        "benchmarks": [_benchmark(entry) for entry in entries],
        "datetime": run.started_at,
        "version": _FORMAT_VERSION,
    }


def _benchmark(entry: BenchmarkEntry) -> dict[str, Any]:
    if not entry.samples_seconds:
        raise SpecError(f"benchmark {entry.fullname}: it has no samples; leave it out")
    verdict = {} if entry.verdict is None else {"ngraph_verdict": entry.verdict}
    return {
        "group": entry.group,
        "name": entry.name,
        "fullname": entry.fullname,
        "params": dict(entry.params),
        "param": "-".join(str(value) for value in entry.params.values()) or None,
        "extra_info": {**entry.extra_info, **verdict},
        "options": {"timer": "perf_counter_ns", "warmup": True, "disable_gc": True},
        "stats": {**_stats([sample / entry.calls for sample in entry.samples_seconds]), "iterations": entry.calls},
    }


def _stats(data: Sequence[float]) -> dict[str, Any]:
    """Summarise seconds per call by pytest-benchmark's own definitions (``pytest_benchmark.stats.Stats``)."""
    ordered = sorted(data)
    mean, total = statistics.mean(data), sum(data)
    stddev = statistics.stdev(data) if len(data) > 1 else 0
    q1, q3 = _first_quartile(ordered), _first_quartile(ordered[::-1])
    low, high = q1 - _IQR_FENCE * (q3 - q1), q3 + _IQR_FENCE * (q3 - q1)
    iqr_outliers = sum(not low <= value <= high for value in data)
    stddev_outliers = sum(not mean - stddev <= value <= mean + stddev for value in data)
    return {
        "min": ordered[0],
        "max": ordered[-1],
        "mean": mean,
        "stddev": stddev,
        "rounds": len(data),
        "median": statistics.median(data),
        "iqr": q3 - q1,
        "q1": q1,
        "q3": q3,
        "iqr_outliers": iqr_outliers,
        "stddev_outliers": stddev_outliers,
        "outliers": f"{stddev_outliers};{iqr_outliers}",
        "ld15iqr": ordered[bisect_left(ordered, low)],
        "hd15iqr": ordered[bisect_right(ordered, high) - 1],
        "ops": len(data) / total if total else 0,
        "total": total,
        "data": list(data),
    }


def _first_quartile(ordered: Sequence[float]) -> float:
    """Return the quartile next to the first value: method 2 for an even number of values, method 3 for an odd one."""
    count, rest = divmod(len(ordered), 4)
    if len(ordered) == 1:
        return ordered[0]
    if rest == 1:
        return 0.25 * ordered[count - 1] + 0.75 * ordered[count]
    if rest == 3:
        return 0.75 * ordered[count] + 0.25 * ordered[count + 1]
    return statistics.median(ordered[: len(ordered) // 2])

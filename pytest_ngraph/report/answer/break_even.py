"""After how many calls compiling pays: what compiling and tuning took, over what a call saves."""

from __future__ import annotations

import math

from pytest_ngraph.report.results.cells import CellReport


def break_even_calls(report: CellReport) -> float | None:
    """Return after how many calls the time to compile and to tune is won back against the baseline.

    Infinity where a call is not faster. None where the compile time or the speed-up is not known, and where the
    interval of the speed-up holds 1, so that nobody knows whether it ever pays.
    """
    found = [report.estimates.get(name) for name in ("compile_seconds", "latency", "speedup")]
    if any(one is None for one in found):
        return None
    build, latency, speedup = (one for one in found if one is not None)
    if not (math.isfinite(speedup.low) and math.isfinite(speedup.high)) or speedup.low <= 1 <= speedup.high:
        return None
    if speedup.value <= 1:
        return math.inf
    tuning = report.estimates.get("tuning_seconds")
    saved_seconds = latency.value * (speedup.value - 1)
    return float(math.ceil((build.value + (tuning.value if tuning is not None else 0.0)) / saved_seconds))

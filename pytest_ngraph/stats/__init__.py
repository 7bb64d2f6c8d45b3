"""Estimators, intervals and sequential verdicts. NumPy and SciPy are imported only when a function needs them."""

from __future__ import annotations

from pytest_ngraph.stats.family import false_fail_chance
from pytest_ngraph.stats.launches import (
    Interval,
    Intervals,
    LaunchValue,
    dominant_noise,
    interval,
    intervals,
    launch_value,
    launch_values,
    p_value,
    trimmed_mean,
)
from pytest_ngraph.stats.order import discoveries, judge_kept, judge_one_of
from pytest_ngraph.stats.sequential import looks_for, spending
from pytest_ngraph.stats.verdict import (
    CONFIRMING_ALPHA,
    CONFIRMING_LAUNCHES,
    CONFIRMING_LOOKS,
    Bound,
    Verdict,
    contradicts,
    design_effect,
    is_clear_fail,
    judge,
    judge_percentile,
    percentile_bound,
    smallest_visible,
)
from pytest_ngraph.stats.visits import VisitSummary, batch_noise, settled, summarise

__all__ = [
    "CONFIRMING_ALPHA",
    "CONFIRMING_LAUNCHES",
    "CONFIRMING_LOOKS",
    "Bound",
    "Interval",
    "Intervals",
    "LaunchValue",
    "Verdict",
    "VisitSummary",
    "batch_noise",
    "contradicts",
    "dominant_noise",
    "interval",
    "intervals",
    "design_effect",
    "discoveries",
    "false_fail_chance",
    "is_clear_fail",
    "judge",
    "judge_kept",
    "judge_one_of",
    "judge_percentile",
    "launch_value",
    "launch_values",
    "looks_for",
    "p_value",
    "percentile_bound",
    "settled",
    "smallest_visible",
    "spending",
    "summarise",
    "trimmed_mean",
]

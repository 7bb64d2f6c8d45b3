"""Estimators, intervals and sequential verdicts; numpy and scipy are imported only when a function needs them."""

from __future__ import annotations

from pytest_ngraph.stats.launches import (
    Interval,
    LaunchValue,
    dominant_noise,
    interval,
    launch_value,
    trimmed_mean,
)
from pytest_ngraph.stats.sequential import looks_for, looks_from, spending
from pytest_ngraph.stats.verdict import (
    CONFIRMING_LAUNCHES,
    CONFIRMING_LEVEL,
    Bound,
    Verdict,
    channels_agree,
    confirm,
    judge,
    percentile_bound,
    smallest_visible,
)
from pytest_ngraph.stats.visits import VisitSummary, batch_noise, settled, summarise

__all__ = [
    "CONFIRMING_LAUNCHES",
    "CONFIRMING_LEVEL",
    "Bound",
    "Interval",
    "LaunchValue",
    "Verdict",
    "VisitSummary",
    "batch_noise",
    "channels_agree",
    "confirm",
    "dominant_noise",
    "interval",
    "judge",
    "launch_value",
    "looks_for",
    "looks_from",
    "percentile_bound",
    "settled",
    "smallest_visible",
    "spending",
    "summarise",
    "trimmed_mean",
]

"""What the store gives back besides launches: runs and verdicts."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class RunRow:
    """One run of a suite; ``status`` is ``running`` until the run says how it ended. Times of day are UTC, ISO 8601."""

    id: int
    uid: str
    started_at: str
    finished_at: str | None
    status: str
    command: tuple[str, ...]
    seed: int
    protocol: str
    environment: Mapping[str, Any]
    fresh: bool
    resumed: bool
    environment_end: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class LaunchRow:
    """One finished launch of a run without its samples: the machine at its start and end, and why it does not count."""

    id: int
    number: int
    seed: int
    invalid: str
    environment: Mapping[str, Any]
    environment_end: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class VerdictRow:
    """One claim of a test as it was judged, its numbers in the unit of the metric.

    ``tolerance`` and ``smallest_effect`` are fractions on log-scale metrics and amounts on linear ones. ``None``
    means there is no such number; a NaN comes back as ``None``. Within a run a test's claims have distinct texts.
    """

    nodeid: str
    claim: str
    metric: str
    bound: float | None
    at_least: bool
    tolerance: float | None
    estimate: float | None
    low: float | None
    high: float | None
    launches: int
    verdict: str
    smallest_effect: float | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)

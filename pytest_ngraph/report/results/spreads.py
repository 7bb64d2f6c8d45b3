"""How the times of one cell are distributed: visit by visit in each launch, and percentiles of all its samples."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median

from pytest_ngraph.load.queues import has_no_latency
from pytest_ngraph.spec.cells import Cell, LaunchRecord

PERCENTILES = (50, 90, 99)


@dataclass(frozen=True, slots=True)
class Spread:
    """The times of a cell in seconds for a call: the median of each visit, by launch, and percentiles of all samples.

    ``launches`` has a number and the visits for each launch that counts. ``percentiles`` are those of ``PERCENTILES``
    by the nearest rank. A sample is the mean of ``calls`` calls one after the other, or one request where several were
    in flight: ``calls`` is then 1. It is 0 where visits differ in it.
    """

    launches: tuple[tuple[int, tuple[float, ...]], ...]
    percentiles: tuple[float, ...]
    samples: int
    calls: int


def spread_of(launches: Iterable[LaunchRecord], cell: Cell) -> Spread | None:
    """Return how the times of a cell are distributed over these launches, or None where none has any.

    Launches in which its queue did not settle are left out: how long it was watched would decide what they show.
    """
    found: list[tuple[int, tuple[float, ...]]] = []
    samples: list[float] = []
    calls: set[int] = set()
    for launch in launches:
        medians = []
        record = launch.prepared.get(cell)
        if record is not None and has_no_latency(record):
            continue
        for visit in launch.visits_for(cell).values():
            seconds = [1e-9 * each for each in visit.in_flight_ns] or [
                1e-9 * each / visit.calls for each in visit.wall_ns
            ]
            if seconds:
                samples += seconds
                medians.append(median(seconds))
                calls.add(1 if visit.in_flight_ns else visit.calls)
        if medians:
            found.append((launch.number, tuple(medians)))
    if not samples:
        return None
    samples.sort()
    return Spread(tuple(found), _ranks(samples), len(samples), calls.pop() if len(calls) == 1 else 0)


def _ranks(samples: Sequence[float]) -> tuple[float, ...]:
    return tuple(samples[max(0, math.ceil(share / 100 * len(samples)) - 1)] for share in PERCENTILES)

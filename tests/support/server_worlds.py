"""Worlds of calls in a queue: how long they may be served, what is true of their latency, and launches of visits.

What is true is known without a simulation: the wait of M/G/1 is, by Pollaczek and Khinchine, a geometric sum of the
times that are left of a service, whose law is computed here on a grid. One unit of time is the mean service.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
from scipy.special import ndtr

from pytest_ngraph.load.queues import Traffic, window_of

Array = np.ndarray[Any, np.dtype[np.float64]]
SERVICE = 0.01  # seconds
VISITS = 4
_STEP, _CELLS = 1 / 100, 1 << 18
_SIGMA = 1.2


@dataclass(frozen=True, slots=True)
class Law:
    """How long calls are served, with a mean of 1.

    ``least`` is the mean of the shorter of a service and a limit, ``below`` the share of services up to a limit.
    """

    draw: Callable[[np.random.Generator, tuple[int, ...]], Array]
    least: Callable[[Array], Array]
    below: Callable[[Array], Array]
    variation: float


def _lognormal_least(limits: Array) -> Array:
    with np.errstate(divide="ignore"):
        far = (np.log(limits) + _SIGMA**2 / 2) / _SIGMA
    return np.asarray(ndtr(far - _SIGMA) + limits * (1 - ndtr(far)))


def _lognormal_below(limits: Array) -> Array:
    with np.errstate(divide="ignore"):
        return np.asarray(ndtr((np.log(np.maximum(limits, 0)) + _SIGMA**2 / 2) / _SIGMA))


def _two(short: float, long: float, few: float) -> Law:
    return Law(
        lambda rng, shape: np.where(rng.random(shape) < few, long, short),
        lambda limits: (1 - few) * np.minimum(limits, short) + few * np.minimum(limits, long),
        lambda limits: (1 - few) * (limits >= short) + few * (limits >= long),
        (1 - few) * short**2 + few * long**2 - 1,
    )


LAWS: Mapping[str, Law] = {
    "M/M/1": Law(
        lambda rng, shape: rng.exponential(size=shape),
        lambda limits: -np.expm1(-limits),
        lambda limits: -np.expm1(-np.maximum(limits, 0)),
        1.0,
    ),
    "M/D/1": Law(
        lambda rng, shape: np.ones(shape),
        lambda limits: np.minimum(limits, 1.0),
        lambda limits: (limits >= 1.0).astype(float),
        0.0,
    ),
    "heavy tail": Law(
        lambda rng, shape: rng.lognormal(-(_SIGMA**2) / 2, _SIGMA, shape),
        _lognormal_least,
        _lognormal_below,
        math.expm1(_SIGMA**2),
    ),
    "bimodal": _two(0.5, 5.5, 0.1),
    # One call of two hundred is a stall: too rare to be seen in as many calls as a gate has now and then.
    "rare stalls": _two(0.9, 20.9, 0.005),
}


@cache
def _law_of_latency(name: str, utilisation: float) -> tuple[Array, Array]:
    """Return the probability of each place of the grid, of the time from arrival to answer, and its sums."""
    law = LAWS[name]
    edges: Array = (np.arange(_CELLS + 1, dtype=np.float64) - 0.5) * _STEP
    left = np.diff(law.least(np.asarray(np.clip(edges, 0.0, None), dtype=np.float64)))
    served = np.diff(law.below(edges))
    # Twice as long as the grid, so that what is beyond its end is not counted at its beginning.
    waits = (1 - utilisation) / (1 - utilisation * np.fft.rfft(left, 2 * _CELLS))
    found = np.fft.irfft(waits * np.fft.rfft(served, 2 * _CELLS), 2 * _CELLS)[:_CELLS]
    return found, found.cumsum()


def latency_percentile(name: str, utilisation: float, percentile: float) -> float:
    """Return a percentile of the time from arrival to answer, in mean services, of the queue of a law."""
    found, sums = _law_of_latency(name, utilisation)
    share = percentile / 100
    place = int(np.searchsorted(sums, share - 1e-12))
    if found[place] > 3 * (found[place - 1] + found[place + 1]):
        return place * _STEP  # so many calls take exactly as long
    before = float(sums[place - 1])
    return (place - 0.5 + (share - before) / float(found[place])) * _STEP


@dataclass(frozen=True, slots=True)
class Launch:
    """The calls of a launch in its windows: their latencies and services, in mean services, and its visits' traffic."""

    latencies: Sequence[Array]
    services: Sequence[Array]
    traffic: Sequence[Traffic]


def launches(name: str, utilisation: float, count: int, rng: np.random.Generator) -> list[Launch]:
    """Return launches of four visits each, at a utilisation, with the windows that a cell of that rate would get."""
    law, rate = LAWS[name], utilisation / SERVICE
    window = window_of(rate, SERVICE)
    begin, until = window.discard_seconds / SERVICE, (window.discard_seconds + window.seconds) / SERVICE
    mean = utilisation * until
    size = (count * VISITS, math.ceil(mean + 6 * math.sqrt(mean) + 10))
    arrived = rng.exponential(1 / utilisation, size).cumsum(axis=1)
    services = law.draw(rng, size)
    total = services.cumsum(axis=1)
    times = np.maximum.accumulate(arrived - (total - services), axis=1) + total - arrived
    kept = (arrived >= begin) & (arrived < until)
    made = []
    for first in range(0, count * VISITS, VISITS):
        rows = range(first, first + VISITS)
        each = [services[row][kept[row]] for row in rows]
        traffic = [
            Traffic(
                len(one), 0, float(one.mean()) * SERVICE, float(one.var() / one.mean() ** 2), window.seconds, (0, 0)
            )
            for one in each
        ]
        made.append(Launch([times[row][kept[row]] for row in rows], each, traffic))
    return made

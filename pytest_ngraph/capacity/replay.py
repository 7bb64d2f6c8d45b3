"""The queue of a launch once more, at other rates: where a percentile of the latency meets its bound.

From a visit is known when each call arrived and how long it was served. At another rate the same calls arrive by the
same draws, closer together or further apart, and are served as they were.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from heapq import heapify, heapreplace

from pytest_ngraph.spec.cells import Visit

# A call as it was served: when it arrived and how long it took, in seconds.
Served = tuple[float, float]
# How near the search comes to the rate, and between which multiples of the measured one it looks.
_NEAR = 0.002
_LEAST, _MOST = 1 / 64, 64.0


def served_of(visit: Visit, slots: int) -> list[Served]:
    """Return the calls of a visit in the order of their arrival, which is that in which they began.

    A call began when it had arrived and one of the ``slots`` was free. Its service lasted from there to its answer.
    """
    done, calls, ended = 0, list[tuple[int, int]](), list[int]()
    for wall, request in zip(visit.wall_ns, visit.request_ns, strict=True):
        done += wall
        calls.append((done - request, done))
        ended.append(done)
    calls.sort()
    found = []
    for place, (arrived, answered) in enumerate(calls):
        free = ended[place - slots] if place >= slots else arrived
        found.append((arrived * 1e-9, max(1, answered - max(arrived, min(free, answered - 1))) * 1e-9))
    return found


def latencies_at(calls: Sequence[Served], closer: float, slots: int) -> list[float]:
    """Return what each call takes from arrival to answer where all arrive so many times closer together."""
    first, free = calls[0][0], [-math.inf] * slots
    heapify(free)
    found = []
    for arrived, service in calls:
        at = (arrived - first) / closer
        done = max(at, free[0]) + service
        heapreplace(free, done)
        found.append(done - at)
    return found


def capacity_of(visits: Sequence[Visit], rate: float, slots: int, percentile: float, within: float) -> float | None:
    """Return the highest rate, in calls a second, at which a percentile of all calls stays within so many seconds.

    None where there is none: a call alone takes longer. It is never as high as what the slots can serve at all, and
    no more than 64 times the measured ``rate``.
    """
    each = [served_of(visit, slots) for visit in visits if visit.request_ns]
    services = [service for calls in each for _, service in calls]
    if not services:
        return None
    able = slots * len(services) / math.fsum(services)

    def holds(closer: float) -> bool:
        times = sorted(time for calls in each for time in latencies_at(calls, closer, slots))
        return times[max(0, math.ceil(percentile / 100 * len(times) - 1e-9) - 1)] <= within

    least, most = _LEAST, min(_MOST, able / rate)
    if not least < most or not holds(least):
        return None
    while most / least > 1 + _NEAR:
        middle = math.sqrt(least * most)
        least, most = (middle, most) if holds(middle) else (least, middle)
    return rate * least

"""The queue of some launches once more, at other rates: where a percentile of the latency meets its bound.

From a visit is known how long each call was served. A long queue is made of these services: runs of calls that followed
one another are drawn from what was measured, arrive as a Poisson process of their own, and what comes while the line
fills is not looked at. A queue that is as short as a visit and begins with an empty line would look shorter than it is.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from heapq import heapify, heapreplace
from typing import TYPE_CHECKING, Any

from pytest_ngraph.spec.cells import Visit

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

# How many calls a queue has, where each is computed in Python fewer, and which share of them fills the line.
CALLS, CALLS_IN_SLOTS, _FILLING = 100_000, 20_000, 0.2
# So many calls follow one another as they were measured: what makes one slow may last for some.
_RUN = 10
# How near the search comes to the rate, and between which multiples of the measured one it looks.
_NEAR = 0.002
_MOST = 64.0


def services_of(visit: Visit, slots: int) -> list[float]:
    """Return how many seconds each call of a visit was served, in the order in which they arrived and began.

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
        found.append(max(1, answered - max(arrived, min(free, answered - 1))) * 1e-9)
    return found


def latencies(arrived: Array, services: Array, slots: int) -> Array:
    """Return what calls take from arrival to answer that wait in one line for one of some slots, in seconds."""
    import numpy as np

    if slots == 1:
        total = services.cumsum()
        # Of Lindley: who waits begins when all have been served since the line was empty.
        return np.asarray(np.maximum.accumulate(arrived - (total - services)) + total - arrived)
    free = [-math.inf] * slots
    heapify(free)
    found = []
    for at, service in zip(arrived.tolist(), services.tolist(), strict=True):
        done = max(at, free[0]) + service
        heapreplace(free, done)
        found.append(done - at)
    return np.asarray(found)


class Queue:
    """A long queue with the services that were measured. At any rate it has the same ones, and the same draws.

    ``able`` is how many calls a second the slots can answer at all. ``calls`` is how long it is.
    """

    def __init__(self, services: Sequence[float], slots: int, seed: str, calls: int = 0) -> None:
        import numpy as np

        draw = np.random.default_rng(random.Random(f"replay {seed}").getrandbits(64))  # noqa: S311 - a queue
        calls = calls or (CALLS if slots == 1 else CALLS_IN_SLOTS)
        measured = np.asarray(services, dtype=float)
        begin = draw.integers(len(measured), size=math.ceil(calls / _RUN))
        places = (begin[:, None] + np.arange(_RUN)).ravel()[:calls] % len(measured)
        gaps = draw.exponential(size=calls)
        # The means are those that are known, so that only what waits is left to chance.
        self._services = measured[places] * (measured.mean() / measured[places].mean())
        self._arrived = gaps.cumsum() / gaps.mean()
        self._slots, self.able = slots, float(slots / measured.mean())

    def percentile(self, rate: float, percentile: float) -> float:
        """Return a percentile of the latency in seconds where so many calls arrive a second."""
        import numpy as np

        times = latencies(self._arrived / rate, self._services, self._slots)
        times = times[math.floor(_FILLING * len(times)) :]
        place = max(0, math.ceil(percentile / 100 * len(times) - 1e-9) - 1)
        return float(np.partition(times, place)[place])


def highest(holds: Callable[[float], bool], rate: float, able: float) -> float:
    """Return the highest rate that holds, of those below ``able`` and within 64 times ``rate``. 0 where none does."""
    least, most = rate / _MOST, min(_MOST * rate, able)
    if not least < most or not holds(least):
        return 0.0
    while most / least > 1 + _NEAR:
        middle = math.sqrt(least * most)
        least, most = (middle, most) if holds(middle) else (least, middle)
    return least


def capacity_of(queue: Queue, rate: float, percentile: float, within: float) -> float:
    """Return the highest rate at which a percentile of a queue stays within so many seconds, in calls a second.

    0 where there is none: a call alone takes longer. It is never as high as what the slots can serve at all, and no
    more than 64 times the measured ``rate``.
    """
    return highest(lambda at: queue.percentile(at, percentile) <= within, rate, queue.able)


class Launches:
    """The queues of some launches at one measured rate, each by itself and all as one."""

    def __init__(self, services: Sequence[Sequence[float]], slots: int, seeds: Sequence[str]) -> None:
        long = (CALLS if slots == 1 else CALLS_IN_SLOTS) // 2
        self._each = [Queue(one, slots, seed, long) for one, seed in zip(services, seeds, strict=True)]
        # As long as all of them: chance adds as much to it as it does to their mean, and no more than they show.
        whole = [each for one in services for each in one]
        self._all = Queue(whole, slots, " and ".join(seeds), long * max(2, len(seeds)))

    def percentile(self, rate: float, percentile: float, level: float) -> tuple[float, float, float]:
        """Return (low, value, high) of a percentile at a rate, in seconds, at a one-sided level over launches.

        The value is that of all calls: a percentile of few is too low. How far it is off is said by how it scatters
        over launches. From one launch nothing is known of that.
        """
        value = self._all.percentile(rate, percentile)
        half = _half([math.log(each.percentile(rate, percentile)) for each in self._each], level)
        return value * math.exp(-half), value, value * math.exp(min(half, 700.0))

    def value(self, rate: float, percentile: float, within: float) -> float:
        """Return the capacity by all calls, in calls a second, 0 where there is none."""
        return capacity_of(self._all, rate, percentile, within)

    def capacity(self, rate: float, percentile: float, within: float, level: float) -> tuple[float, float, float]:
        """Return (low, value, high) of the capacity, in calls a second, at a one-sided level over launches.

        The interval has the rates at which the percentile may be the bound.
        """
        half, able = _half([math.log(each.able) for each in self._each], level), self._all.able
        value = self.value(rate, percentile, within)
        if not math.isfinite(half):
            return 0.0, value, math.inf

        def surely(at: float) -> bool:
            return self.percentile(at, percentile, level)[2] <= within

        def perhaps(at: float) -> bool:
            return self.percentile(at, percentile, level)[0] <= within

        low, high = highest(surely, rate, able * math.exp(-half)), highest(perhaps, rate, able * math.exp(half))
        return min(low, value), value, max(high, value)


def _half(values: Sequence[float], level: float) -> float:
    """Return half the interval of a mean by Student's t, infinite where there is one value."""
    if len(values) < 2:
        return math.inf
    from statistics import stdev

    from scipy.special import stdtrit

    return float(stdtrit(len(values) - 1, 1 - level)) * stdev(values) / math.sqrt(len(values))

"""What is known of a queue by its load: how soon it forgets how it began, how its slow calls cluster, when it grows.

Calls arrive as a Poisson process and wait in one line. The formulas are those of a single server (M/G/1).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean, stdev

from pytest_ngraph.spec.cells import CompileRecord, Outcome

UTILISATION, CLUSTERING, LATE = "utilisation", "clustering", "late_p99_us"
_ENDLESS = "endless"
OVERLOADED, TOO_NEAR = "overloaded", "too near its capacity"
# A visit begins with an empty line. So many relaxation times later hardly anything is left of that, and so many more
# are looked at.
_FORGOTTEN, _LOOKED_AT = 4, 6
# How many calls a visit sees, and how many for each call that a cluster of slow ones has.
_CALLS, _CLUSTERS = 100, 50
_LEAST_SECONDS, _MOST_SECONDS = 1.0, 20.0
# What neighbouring busy periods add to a cluster, and what those do that begin with a call far longer than others.
_NEIGHBOURING, _BEHIND_LONG = 1.5, 3.0
# One-sided: how often a launch calls a load more than the server can bear that is not.
_OVERLOAD_LEVEL = 0.005
# Where every visit says so, however far they scatter.
_PLAINLY = 1.1


@dataclass(frozen=True, slots=True)
class Window:
    """How long a visit discards calls that arrive, and how long it looks at them, in seconds."""

    discard_seconds: float
    seconds: float


@dataclass(frozen=True, slots=True)
class Traffic:
    """One visit under load: how many calls arrived in its window, and how many of them were never answered.

    ``service_seconds`` is the mean time of a call from its beginning to its answer, ``variation`` its squared
    coefficient of variation. ``seconds`` is the window. ``late_ns`` is by how much calls began late though there was
    room, at the percentile 99 and at most.
    """

    calls: int
    unfinished: int
    service_seconds: float
    variation: float
    seconds: float
    late_ns: tuple[int, int]


def relaxation_seconds(utilisation: float, service_seconds: float) -> float:
    """Return the time in which a queue forgets a factor of e of how it began: that of M/M/1, 1 / (mu (1 - sqrt rho)^2).

    Where services differ less it is shorter. Infinite from a utilisation of 1 on.
    """
    return math.inf if utilisation >= 1 else service_seconds / (1 - math.sqrt(utilisation)) ** 2


def clustering(utilisation: float, variation: float = 1.0) -> float:
    """Return of how many calls a cluster of slow ones is: by so many times fewer they count.

    A slow call makes those behind it slow until the line is empty again. It is E[K^2] / E[K] of the calls K of a busy
    period of M/G/1, whose mean is 1 / (1 - rho) and whose variance rho (1 + rho c^2) / (1 - rho)^3, c^2 the squared
    coefficient of variation of a service, which is taken to be 1 at least. Busy periods of a loaded line follow one
    another, so it is half as much again, which the error rates in ``tests/load/test_load_queues.py`` need. Infinite
    from a utilisation of 1 on.
    """
    if utilisation >= 1:
        return math.inf
    idle = 1 - utilisation
    period = utilisation * (1 + utilisation * max(1.0, variation)) / idle**2 + 1 / idle
    return 1 + _NEIGHBOURING * (period - 1)


def behind_long_calls(utilisation: float, variation: float) -> float:
    """Return by how many calls clusters of slow ones are larger where few calls are far longer than others.

    Slow calls then are those behind a long one, and no busy period as they are on average. Nothing where services
    scatter no more than exponential ones. By how often gates err (``benchmarks/server_gates.py``), not by a law.
    """
    if utilisation >= 1:
        return math.inf
    return _BEHIND_LONG * utilisation * max(0.0, variation - 1) / (1 - utilisation)


def window_of(rate: float, call_seconds: float, slots: int = 1) -> Window:
    """Return how long visits to a cell are at a rate, given what its calls take when they are made one after another.

    Of several in flight that is the time of a turn of all ``slots``. What is beyond its capacity shows that soon.
    """
    utilisation = rate * call_seconds / slots
    if utilisation >= 1:
        seconds = min(_MOST_SECONDS / 2, max(_LEAST_SECONDS, _CALLS * call_seconds / slots))
        return Window(seconds / 4, seconds)
    relaxation = relaxation_seconds(utilisation, call_seconds)
    calls = max(_CALLS, _CLUSTERS * clustering(utilisation))
    wanted = max(_LEAST_SECONDS, calls / rate, _LOOKED_AT * relaxation)
    discard = max(_LEAST_SECONDS / 10, call_seconds, _FORGOTTEN * relaxation)
    share = min(1.0, _MOST_SECONDS / (wanted + discard))
    return Window(share * discard, share * wanted)


def why_unsettled(rate: float, slots: int, visits: Sequence[Traffic]) -> str:
    """Return why the visits of a launch have no latency to show, or nothing.

    From its capacity on a queue grows for as long as it is watched, and a latency would say how long that was. Near
    it, a queue takes longer to settle than it was watched.
    """
    loads = [rate * visit.service_seconds / slots for visit in visits]
    load, arrive = fmean(loads), f"{rate:g} calls a second arrive"
    able = rate / load
    if _lowest(loads) > 1 or min(loads) > _PLAINLY:
        return (
            f"{OVERLOADED}: {arrive}, and it can answer {able:.3g} (utilisation {load:.2f}): the queue grows without "
            "end, so that a latency would say how long it was watched"
        )
    needed = _LOOKED_AT * relaxation_seconds(load, fmean(visit.service_seconds for visit in visits))
    seconds = fmean(visit.seconds for visit in visits)
    # What was planned by calls of the warm-up is a little too short now and then.
    if needed > 2 * seconds or any(visit.unfinished for visit in visits):
        watched = f"needs to be watched for {needed:.0f} s" if math.isfinite(needed) else "does not settle"
        return (
            f"{TOO_NEAR}: {arrive}, and it can answer {able:.3g} (utilisation {load:.2f}): the queue "
            f"{watched}, and visits lasted {seconds:.0f} s"
        )
    return ""


def facts_of(rate: float, slots: int, visits: Sequence[Traffic]) -> Mapping[str, str]:
    """Return what is kept of the visits of a launch beside their times."""
    load = fmean(rate * visit.service_seconds / slots for visit in visits)
    spread = max(visit.variation for visit in visits)
    late, latest = (max(visit.late_ns[place] for visit in visits) for place in (0, 1))
    # Several servers with one line clear it sooner than one that is as fast as all of them.
    cluster = clustering(load, spread) + behind_long_calls(load, _variation(visits))
    return {
        "arrivals": str(sum(visit.calls for visit in visits)),
        UTILISATION: f"{load:.3f}",
        CLUSTERING: f"{cluster:.4g}" if math.isfinite(cluster) else _ENDLESS,
        LATE: f"{late / 1000:.0f}",
        "late_most_us": f"{latest / 1000:.0f}",
    }


def _variation(visits: Sequence[Traffic]) -> float:
    """Return the squared coefficient of variation of all services of some visits."""
    calls = sum(visit.calls for visit in visits)
    mean = sum(visit.calls * visit.service_seconds for visit in visits) / calls if calls else 0.0
    squares = sum(visit.calls * (1 + visit.variation) * visit.service_seconds**2 for visit in visits)
    return squares / calls / mean**2 - 1 if mean else 0.0


def clustering_of(placement: Mapping[str, str]) -> float:
    """Return of how many calls the clusters of a launch were, by what was kept of it. 1 where nothing was.

    A fact of that name may be an adapter's own, and is then whatever it says.
    """
    kept = placement.get(CLUSTERING)
    if kept == _ENDLESS:
        return math.inf
    try:
        number = float(kept or 1.0)
    except ValueError:
        return 1.0
    return max(1.0, number) if math.isfinite(number) else 1.0


def is_overloaded(record: CompileRecord) -> bool:
    """Return whether more calls arrived in a launch than could be answered."""
    return record.outcome is Outcome.UNSTABLE and record.reason.startswith(OVERLOADED)


def has_no_latency(record: CompileRecord) -> bool:
    """Return whether the queue of a launch did not settle: a latency would say how long it was watched."""
    return is_overloaded(record) or (record.outcome is Outcome.UNSTABLE and record.reason.startswith(TOO_NEAR))


def _lowest(loads: Sequence[float]) -> float:
    """Return what a load is at least, by its visits."""
    if len(loads) < 2:
        return 0.0
    from scipy.special import stdtrit

    quantile = float(stdtrit(len(loads) - 1, 1 - _OVERLOAD_LEVEL))
    return fmean(loads) - quantile * stdev(loads) / math.sqrt(len(loads))

"""From the raw batches of one visit to its two numbers: which batches count, and when a cell has warmed up."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import fmean, median, quantiles
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Visit

if TYPE_CHECKING:
    import numpy as np

    Integers = np.ndarray[Any, np.dtype[np.int64]]
    Floats = np.ndarray[Any, np.dtype[np.float64]]
    Flags = np.ndarray[Any, np.dtype[np.bool_]]

RUN_DELAY_LIMITS = (0.01, 0.02, 0.05, 0.10)
# Whole numbers below it are exact as floating-point numbers.
_EXACT = 1 << 53
# Of the time in which a visit's threads ran or could have run: beyond that they were hardly ever alone.
_MOST_WAITED = 1 / 3
_HALF = 10  # batches; two such runs are compared
_MEDIAN_STEP = 0.9539  # median of |x - y| of two independent standard normal values: 0.6745 sqrt(2)
# Two standard errors, in standard deviations of one batch, of each statistic of 2 x 10 normal batches.
_MEDIANS, _QUARTILES, _DRIFT = (0.01, 1.1), (0.05, 1.2), (0.01, 1.5)


@dataclass(frozen=True, slots=True)
class TokenTimes:
    """What a visit to a cell that decodes says: ln of seconds, medians over the clean batches, and the shortest.

    ``ln_first`` is the time to the first token, ``ln_step`` the mean time of the further tokens of a call.
    """

    ln_first: float
    ln_step: float
    ln_first_minimum: float
    ln_step_minimum: float


@dataclass(frozen=True, slots=True)
class VisitSummary:
    """What one visit says: ln of the time of a call in seconds by two channels, and how it was cleaned.

    ``ln_seconds`` (median, or mean of calls in flight together) and ``ln_minimum`` are None where the visit must be
    dropped. ``kept`` of ``total`` batches count. ``threshold`` is the run-delay they were allowed, as a share of the
    wall time (infinite where nothing was rejected). ``faults_per_call`` (median over the batches that count, so that a
    single event does not look like another state of the allocator) and ``cpu_share`` (CPU time / wall time, in cores)
    are None where not measured. ``ln_request_seconds`` is ln of the mean time from the submission of a call to its
    completion, over all of them, or None where calls were not in flight together. ``tokens`` is None where calls do
    not generate tokens one by one.
    """

    ln_seconds: float | None
    ln_minimum: float | None
    kept: int
    total: int
    threshold: float
    faults_per_call: float | None
    cpu_share: float | None
    ln_request_seconds: float | None = None
    tokens: TokenTimes | None = None


def token_seconds(visit: Visit) -> tuple[list[float], list[float]]:
    """Return the seconds to the first token and those of a further one, the means of each batch."""
    tokens, of_batch = visit.tokens, visit.tokens * visit.calls
    first: list[float] = []
    step: list[float] = []
    for start in range(0, len(visit.request_ns) if tokens else 0, of_batch or 1):
        taken = visit.request_ns[start : start + of_batch]
        firsts = sum(taken[::tokens])
        first.append(firsts / visit.calls * 1e-9)
        step.append((sum(taken) - firsts) / (visit.calls * (tokens - 1)) * 1e-9)
    return first, step


def _token_times(visit: Visit, kept: Sequence[int]) -> TokenTimes | None:
    if not visit.tokens:
        return None
    first, step = ([each[index] for index in kept] for each in token_seconds(visit))
    return TokenTimes(*(math.log(pick(each)) for pick in (median, min) for each in (first, step)))


def summarise(visit: Visit, *, clean: bool = True, shared: bool = False) -> VisitSummary:
    """Reduce a visit to ln of the median and of the minimum time of a call, over its clean batches.

    With several calls in flight the mean takes the place of the median: completions come in bursts, and the median
    batch would say how they come instead of how many.

    A batch is clean by its run-delay only, never by its time: at most 1 % of its wall time. Where fewer than
    max(3, n/3) of n batches are left, the whole visit is widened to 2, 5, 10 %, else dropped (docs/measuring.md,
    steps 6 and 7). A visit of one or two long batches needs all of them. Of one that the host took too much of none is
    clean. Without run-delay, or with ``clean=False``, every batch counts. ``shared`` is the stricter rule for launches
    beside others, see ``clean_batches``. Raises SpecError for a visit whose arrays do not fit together or whose times
    are not positive.
    """
    _check(visit)
    total = len(visit.wall_ns)
    threshold, kept = _clean(visit, shared=shared) if clean else (math.inf, list(range(total)))
    if not kept:
        return VisitSummary(None, None, 0, total, threshold, None, None)
    walls = [visit.wall_ns[i] for i in kept]
    in_flight_ns = visit.in_flight_ns
    return VisitSummary(
        ln_seconds=math.log((fmean(walls) if in_flight_ns else median(walls)) / visit.calls * 1e-9),
        ln_minimum=math.log(min(walls) / visit.calls * 1e-9),
        kept=len(kept),
        total=total,
        threshold=threshold,
        faults_per_call=median(visit.faults[i] for i in kept) / visit.calls if visit.faults else None,
        cpu_share=sum(visit.cpu_ns[i] for i in kept) / sum(walls) if visit.cpu_ns else None,
        ln_request_seconds=math.log(fmean(in_flight_ns) * 1e-9) if in_flight_ns else None,
        tokens=_token_times(visit, kept),
    )


def summarise_all(visits: Sequence[Visit]) -> list[VisitSummary]:
    """Return what ``summarise`` does of each of them, those with as many batches in one go."""
    alike: dict[tuple[int, ...], list[int]] = {}
    for place, visit in enumerate(visits):
        if not visit.is_stolen():
            alike.setdefault(_lengths(visit), []).append(place)
    found = {place: summarise(visit) for place, visit in enumerate(visits) if visit.is_stolen()}
    for lengths, places in alike.items():
        some = [visits[place] for place in places]
        made = _summarised(some) if _are_regular(lengths) else None
        found.update(zip(places, made or map(summarise, some), strict=True))
    return [found[place] for place in range(len(visits))]


def _lengths(visit: Visit) -> tuple[int, ...]:
    arrays = (visit.wall_ns, visit.cpu_ns, visit.run_delay_ns, visit.faults, visit.request_ns)
    return tuple(map(len, arrays))


def _are_regular(lengths: tuple[int, ...]) -> bool:
    """Return whether visits with arrays of these lengths are of calls one after the other, and fit together."""
    batches, *covariates, requests = lengths
    return batches > 0 and not requests and all(length in (0, batches) for length in covariates)


def _summarised(visits: Sequence[Visit]) -> list[VisitSummary] | None:
    """Summarise visits whose arrays are of the same lengths, or return None where their numbers are out of the way.

    Sums of whole numbers and their quotients are exact up to 2^53, so that each number is the one of ``summarise``.
    """
    import numpy as np

    try:
        walls, cpus, delays, faults = (
            np.array([getattr(visit, name) for visit in visits], dtype=np.int64)
            for name in ("wall_ns", "cpu_ns", "run_delay_ns", "faults")
        )
    except OverflowError:
        return None
    calls, total = [visit.calls for visit in visits], walls.shape[1]
    ends = [int(end) for each in (walls, cpus, delays, faults) for end in (each.min(initial=0), each.max(initial=0))]
    if min(calls) < 1 or walls.min() <= 0 or max(map(abs, ends)) * total >= _EXACT or max(calls) >= _EXACT:
        return None
    if delays.size:
        shares, needed = delays / walls, min(total, max(3, math.ceil(total / 3)))
        limits = np.array(RUN_DELAY_LIMITS)
        enough = (shares[:, None, :] <= limits[:, None]).sum(axis=2) >= needed
        thresholds = np.where(enough.any(axis=1), limits[enough.argmax(axis=1)], limits[-1])
        kept = (shares <= thresholds[:, None]) & enough.any(axis=1)[:, None]
    else:
        thresholds, kept = np.full(len(visits), math.inf), np.ones_like(walls, dtype=bool)
    counts = kept.sum(axis=1)
    middle = _medians(walls, kept, counts).tolist()
    fastest = np.where(kept, walls, _EXACT).min(axis=1).tolist()
    used, lasted = (np.where(kept, each, 0).sum(axis=1) for each in (cpus if cpus.size else walls, walls))
    busy = (used / lasted.clip(1)).tolist() if cpus.size else None
    faulted = _medians(faults, kept, counts).tolist() if faults.size else None
    return [
        VisitSummary(
            ln_seconds=math.log(middle[place] / calls[place] * 1e-9),
            ln_minimum=math.log(fastest[place] / calls[place] * 1e-9),
            kept=count,
            total=total,
            threshold=threshold,
            faults_per_call=None if faulted is None else faulted[place] / calls[place],
            cpu_share=None if busy is None else busy[place],
        )
        if count
        else VisitSummary(None, None, 0, total, threshold, None, None)
        for place, (count, threshold) in enumerate(zip(counts.tolist(), thresholds.tolist(), strict=True))
    ]


def clean_seconds(visit: Visit, channel: str, *, shared: bool = False) -> list[float]:
    """Return the seconds of a call in each clean batch, or of the tokens of its calls by a channel of tokens."""
    clean = clean_batches(visit, shared=shared)
    if channel in ("first", "step"):
        each = token_seconds(visit)[channel == "step"]
        return [each[index] for index in clean]
    return [visit.wall_ns[index] / visit.calls * 1e-9 for index in clean]


def ln_mean(visit: Visit, *, shared: bool = False) -> float | None:
    """Return ln of the mean time of a call in seconds, over the clean batches. None where the visit must be dropped."""
    walls = [visit.wall_ns[index] for index in clean_batches(visit, shared=shared)]
    return math.log(fmean(walls) / visit.calls * 1e-9) if walls else None


def _medians(values: Integers, kept: Flags, counts: Integers) -> Floats:
    """Return the median of what is kept in each row. A row of which nothing is has some number."""
    import numpy as np

    ordered = np.sort(np.where(kept, values, _EXACT), axis=1)
    rows = np.arange(len(values))
    middle: Floats = (ordered[rows, (counts - 1) // 2] + ordered[rows, counts // 2]) / 2
    return middle


def clean_batches(visit: Visit, *, shared: bool = False) -> list[int]:
    """Return the indices of a visit's clean batches, as ``summarise`` counts them. None: it must be dropped.

    In a launch that is ``shared`` with others nothing is widened: batches that wait for up to 10 % of their time would
    make the cell that waits more look slower by as much. A visit without run-delay is dropped, and one whose threads
    waited for more than a third of the time that they could have run. One that the host took too much of always is
    (``Visit.is_stolen``).
    """
    return _clean(visit, shared=shared)[1]


def _clean(visit: Visit, *, shared: bool) -> tuple[float, list[int]]:
    """Return the narrowest limit that leaves enough batches, and which it leaves. None where even the last does not."""
    total = len(visit.wall_ns)
    if visit.is_stolen(shared=shared):
        return RUN_DELAY_LIMITS[-1], []
    if not visit.run_delay_ns:
        return math.inf, [] if shared else list(range(total))
    waited, ran = sum(visit.run_delay_ns), sum(visit.cpu_ns or visit.wall_ns)
    limits = RUN_DELAY_LIMITS[:1] if shared else RUN_DELAY_LIMITS
    if shared and waited > _MOST_WAITED * (waited + ran):
        return limits[-1], []
    needed = min(total, max(3, math.ceil(total / 3)))
    shares = [delay / wall for delay, wall in zip(visit.run_delay_ns, visit.wall_ns, strict=True)]
    for limit in limits:
        kept = [i for i, share in enumerate(shares) if share <= limit]
        if len(kept) >= needed:
            return limit, kept
    return limits[-1], []


def _check(visit: Visit) -> None:
    if visit.calls < 1 or any(wall <= 0 for wall in visit.wall_ns):
        raise SpecError(f"visit: {visit.calls} calls, wall times {visit.wall_ns[:5]} ns: both must be positive")
    for name in ("cpu_ns", "run_delay_ns", "faults"):
        length = len(getattr(visit, name))
        if length not in (0, len(visit.wall_ns)):
            raise SpecError(f"visit: {length} values of {name} for {len(visit.wall_ns)} batches (expected none or all)")
    calls = visit.calls * len(visit.wall_ns)
    if len(visit.in_flight_ns) not in (0, calls):
        raise SpecError(f"visit: {len(visit.request_ns)} values of request_ns for {calls} calls (expected none or all)")
    if visit.tokens and min(visit.request_ns) <= 0:
        raise SpecError(f"visit: a token took {min(visit.request_ns)} ns: times must be positive")


def settled(batch_seconds: Sequence[float], *, noise: float = 0.0) -> bool:
    """Return whether the last 2 x 10 batches agree: the cell has warmed up (docs/measuring.md, step 4).

    Medians within 1 %, both quartiles within 5 %, Theil-Sen drift over the 20 batches under 1 %, all relative to the
    median. ``noise`` is the relative standard deviation of one batch as measured on this machine, such as
    ``batch_noise`` gives. Each limit widens by two standard errors of its statistic. Fewer than 20 batches have not
    settled.
    """
    if len(batch_seconds) < 2 * _HALF:
        return False
    window = batch_seconds[-2 * _HALF :]
    early, late = window[:_HALF], window[_HALF:]
    level = median(window)
    if not level > 0:
        raise SpecError(f"settled: the median of the last batches is {level} s (expected a positive time)")

    def agree(limit: tuple[float, float], difference: float) -> bool:
        return abs(difference) / level <= limit[0] + limit[1] * noise

    before, after = quantiles(early, method="inclusive"), quantiles(late, method="inclusive")
    steps = [(window[j] - window[i]) / (j - i) for i, j in combinations(range(len(window)), 2)]
    return (
        agree(_MEDIANS, median(late) - median(early))
        and all(agree(_QUARTILES, after[k] - before[k]) for k in (0, 2))
        and agree(_DRIFT, median(steps) * (len(window) - 1))
    )


def batch_noise(batch_seconds: Sequence[float]) -> float:
    """Return the relative standard deviation of one batch, from the median step between neighbours.

    So neither a warm-up's drift nor a few slow batches look like noise. It is 0 for fewer than two batches.
    """
    if len(batch_seconds) < 2:
        return 0.0
    step = median(abs(after - before) for before, after in pairwise(batch_seconds))
    return step / (_MEDIAN_STEP * median(batch_seconds))

"""The search for the capacity over rates that are measured: each is judged as a gate at it would be."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pytest_ngraph import units
from pytest_ngraph.capacity.claims import bounds_of, estimated
from pytest_ngraph.claims.given import number
from pytest_ngraph.claims.percentiles import decide_percentile
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.load.scenarios import LEAST_RATE, MOST_RATE, server
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, NarrowedAway
from pytest_ngraph.stats.verdict import Bound, Verdict

_HELPER = "find_capacity"
_MOST_RATES = 8
# A rate that is so near to one that was judged says nothing new.
_APART = 1.02


class Measures(Protocol):
    """What measures a cell by the keywords of the marker: the fixture ``ngraph``, or a session of a script."""

    def measure(self, **axes: Any) -> Any:
        """Measure one cell."""
        ...


@dataclass(frozen=True, slots=True)
class Capacity:
    """Between which measured rates the capacity is, in calls a second.

    ``held`` is the highest rate that passed, 0 where none did, ``lost`` the lowest that failed, infinite where none
    did, and ``judged`` has the verdict at each. ``estimate`` is that of the rate that was measured last. ``error_rate``
    is how often one of the verdicts is wrong to one side at most, all of them together.
    """

    held: float
    lost: float
    judged: Mapping[float, Verdict]
    estimate: Estimate
    error_rate: float

    def __str__(self) -> str:
        held = f"held at {self.held:g}" if self.held else "held at no rate"
        lost = f"not held at {self.lost:g}" if math.isfinite(self.lost) else "at no rate not held"
        undecided = [f"undecided at {rate:g}" for rate, verdict in self.judged.items() if verdict not in _SIDES]
        said = f"{', '.join([held, lost, *undecided])} calls a second"
        rates = units.count(len(self.judged), "rate")
        return f"{said} (of {rates}, wrong in {100 * self.error_rate:.2g} % at most; replayed: {self.estimate})"


_SIDES = (Verdict.PASS, Verdict.FAIL)


def find_capacity(
    ngraph: Measures,
    *,
    percentile: float,
    within: float,
    between: tuple[float, float],
    nearer: float = 1.25,
    tolerance: float | None = None,
    **axes: Any,
) -> Capacity:
    """Search for the highest rate of arrivals at which a percentile of the latency stays within so many seconds.

    Rates ``between`` two, in calls a second, are measured one after the other, each as a cell of
    ``scenario="server[rate=N]"`` with the ``axes`` of the marker, and judged as
    ``assert_latency(cell, percentile=, at_most=within)`` is, so each takes launches of its own. The next rate is an end
    of the interval that replaying the last one gives, else half way on the log scale. It ends with two rates that are
    ``nearer`` one another than this factor, at one that its launches cannot decide, or after eight. No test fails by
    it: claim the rate that you need by ``assert_capacity``. A protocol without error control judges no rate, so that
    under one the test is skipped.
    """
    percentile, within = bounds_of(_HELPER, percentile, within)
    bottom, top = _ends(between)
    if (nearer := number(f"{_HELPER}: nearer", nearer)) <= _APART:
        raise ClaimError(f"{_HELPER}: nearer={nearer:g} (expected a factor above {_APART:g}, such as 1.25)")
    judged: dict[float, Verdict] = {}
    estimate, rate, errs = _nothing(), _rounded(math.sqrt(bottom * top)), 0.0
    while len(judged) < _MOST_RATES and rate not in judged:
        cell = _measured(ngraph, rate, axes)
        verdict, estimate, errs = _judged(cell, percentile, within, tolerance)
        judged[rate] = verdict
        bottom, top = (rate if verdict is Verdict.PASS else bottom), (rate if verdict is Verdict.FAIL else top)
        if verdict not in _SIDES or top / bottom <= nearer:
            break
        rate = _next(bottom, top, estimate, upwards=verdict is Verdict.PASS)
    held = max((rate for rate, verdict in judged.items() if verdict is Verdict.PASS), default=0.0)
    lost = min((rate for rate, verdict in judged.items() if verdict is Verdict.FAIL), default=math.inf)
    return Capacity(held, lost, judged, estimate, min(1.0, errs * len(judged)))


def _judged(
    cell: Measurement, percentile: float, within: float, tolerance: float | None
) -> tuple[Verdict, Estimate, float]:
    """Return the verdict at the rate of a cell, the capacity that replaying it gives, and how often the first errs."""
    latency = cell.quantity("latency")
    source = latency.measurer
    if not source.error_control:
        raise NarrowedAway(f"{_HELPER}: the protocol {source.protocol.name!r} has no error control (allowed: gate)")
    allowed = source.tolerance if tolerance is None else number(f"{_HELPER}: tolerance", tolerance, "fraction")
    decision = decide_percentile(latency, percentile, Bound(within, False, allowed, "log"), allowed or source.tolerance)
    estimate, _ = estimated(cell, decision, percentile, within)
    return decision.verdict, estimate, source.error_rate


def _next(bottom: float, top: float, estimate: Estimate, *, upwards: bool) -> float:
    """Return the rate to measure next: where the last one says that it will hold, or will not."""
    ends = (estimate.high, estimate.low) if upwards else (estimate.low, estimate.high)
    inside = (end for end in ends if bottom * _APART < end < top / _APART)
    return _rounded(next(inside, math.sqrt(bottom * top)))


def _measured(ngraph: Measures, rate: float, axes: Mapping[str, Any]) -> Measurement:
    if "scenario" in axes:
        raise ClaimError(f"{_HELPER}: scenario={axes['scenario']!r} (it measures server[rate=N]; leave it out)")
    cell = ngraph.measure(**axes, scenario=server(rate))
    if not isinstance(cell, Measurement):
        raise ClaimError(f"{_HELPER}: {', '.join(axes)} make several cells (expected one value each, and one compiler)")
    return cell


def _ends(between: tuple[float, float]) -> tuple[float, float]:
    place, expected = f"{_HELPER}: between", f"expected two rates, {LEAST_RATE:g} <= low < high <= {MOST_RATE:.0f}"
    if not isinstance(between, (tuple, list)) or len(between) != 2:
        raise ClaimError(f"{place}={between!r} ({expected})")
    low, high = (number(place, end, "calls a second") for end in between)
    if not LEAST_RATE <= low < high <= MOST_RATE:
        raise ClaimError(f"{place}=({low:g}, {high:g}) ({expected})")
    return low, high


def _rounded(rate: float) -> float:
    return min(MOST_RATE, max(LEAST_RATE, float(f"{rate:.3g}")))


def _nothing() -> Estimate:
    return Estimate("capacity", math.nan, math.nan, math.nan, 0)

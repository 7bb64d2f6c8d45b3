"""The claim that so many calls a second may arrive: judged at that rate, with the rate that could as an estimate."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_ngraph import units
from pytest_ngraph.capacity.replay import Launches, Queue, capacity_of, services_of
from pytest_ngraph.claims.assertions import claim
from pytest_ngraph.claims.decide import Decision, looks_of
from pytest_ngraph.claims.given import fraction, number, of_kind, several
from pytest_ngraph.claims.percentiles import calls_of, cannot_keep_up, clusters_of, counted, decide_percentile
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.load.scenarios import rate_of, slots_of
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import LEVEL, CellFailed, Estimate, NotStored, Quantity
from pytest_ngraph.spec.cells import LaunchRecord
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.verdict import Bound, Verdict, judge_percentile

_HELPER = "assert_capacity"
CAPACITY = "capacity"


def assert_capacity(
    cells: Measurement | Sequence[Measurement],
    *,
    percentile: float,
    within: float,
    at_least: float,
    tolerance: float | None = None,
) -> Estimate:
    """Claim that a percentile of the latency stays within so many seconds where ``at_least`` calls a second arrive.

    ``cells`` is a cell of ``scenario="server[rate=N]"`` with that rate, or several that differ in their rate only: the
    others narrow down between which rates the capacity is. The verdict is that of
    ``assert_latency(cell, percentile=, at_most=within)`` at ``at_least``; the tolerance is one of ``within``. The
    estimate is the highest rate that holds the percentile, in calls a second: by the services that were measured,
    replayed at other rates, with the interval over launches.
    """
    __tracebackhide__ = True
    given = [cells] if isinstance(cells, Measurement) else several(_HELPER, cells)
    given = [of_kind(_HELPER, one, Measurement) for one in given]
    percentile, within = bounds_of(_HELPER, percentile, within)
    asked = number(f"{_HELPER}: at_least", at_least, "calls a second")
    cell = _at_rate(given, asked)
    measurer = cell.quantity("latency").measurer
    allowed = measurer.tolerance if tolerance is None else fraction(_HELPER, tolerance)
    limit = Bound(within, False, allowed, "log")
    quantity, shown = capacity(cell, percentile, within), f"{units.seconds(within)} + {100 * allowed:g} %"
    # The tolerance is one of the seconds, and a claim with another one is another claim.
    quantity = replace(quantity, label=f"{quantity.label} + {100 * allowed:g} %")
    planned = allowed or measurer.tolerance

    def judge(quantity: Quantity, bound: Bound, tolerance: float) -> Decision:
        # Services that others made longer are no queue to replay.
        latency = replace(cell.quantity("latency"), disturbed=None)
        decision = decide_percentile(latency, percentile, limit, planned)
        said = f"p{percentile:g} at {asked:g} calls a second"
        if math.isfinite(decision.estimate.value):
            said += f": {decision.estimate}"
        notes = (
            *decision.notes,
            f"{said}, to stay within {shown}",
            *_bracket(_judged(given, cell, decision.verdict, percentile, limit, planned), measurer.error_rate),
        )
        estimate, doubt = estimated(cell, decision, percentile, within)
        notes += (doubt,) if doubt else ()
        return replace(decision, estimate=estimate, smallest_visible=None, notes=notes, confidence=1 - 2 * LEVEL)

    # A rate that was not measured passes for none that was.
    return claim(_HELPER, quantity, cell.target, asked, None, 0.0, judge, name=f"capacity at p{percentile:g}")


def capacity(cell: Measurement, percentile: float, within: float) -> Quantity:
    """Return the highest rate that holds a percentile of a cell as a quantity, by the calls of each launch."""
    rate, slots, known = _rate_of(cell), slots_of(cell.cell), dict[str, float]()

    def of_launch(record: LaunchRecord) -> LaunchValue | None:
        key = f"{record.run} {_seed_of(record)}"
        if key not in known:
            services = _services(record, cell)
            queue = Queue(services, slots, _seed_of(record)) if services else None
            known[key] = 0.0 if queue is None else capacity_of(queue, rate, percentile, within)
        return LaunchValue(math.log(known[key]), 0.0, 1) if known[key] else None

    label = f"capacity of {cell.cell.label} at percentile {percentile:g} within {units.seconds(within)}"
    return Quantity(cell.source, METRICS[CAPACITY], label, (cell.cell,), cell.cell, of_launch, timed=True)


def _rate_of(cell: Measurement) -> float:
    rate = rate_of(cell.workload.scenario)
    assert rate is not None
    return rate


def _seed_of(record: LaunchRecord) -> str:
    return f"{record.number} {record.seed}"


def _services(record: LaunchRecord, cell: Measurement) -> list[float]:
    """Return how many seconds each call of a launch was served."""
    visits, slots = record.visits_for(cell.cell).values(), slots_of(cell.cell)
    return [service for visit in visits if visit.request_ns for service in services_of(visit, slots)]


def estimated(cell: Measurement, decision: Decision, percentile: float, within: float) -> tuple[Estimate, str]:
    """Return the capacity by the launches that a decision rests on, and what to know of it.

    That is where the queue that is replayed is not the one that was measured.
    """
    records = _rested_on(cell.quantity("latency"), decision)
    each = [(services, _seed_of(record)) for record in records if (services := _services(record, cell))]
    if not each:
        return Estimate(CAPACITY, math.nan, math.nan, math.nan, len(records)), ""
    rate = _rate_of(cell)
    replayed = Launches([calls for calls, _ in each], slots_of(cell.cell), [seed for _, seed in each])
    low, value, high = replayed.capacity(rate, percentile, within, LEVEL)
    measured, (least, middle, most) = decision.estimate, replayed.percentile(rate, percentile, LEVEL)
    note = ""
    if math.isfinite(measured.value) and len(each) > 1 and not (least <= measured.high and measured.low <= most):
        note = (
            f"replayed at {rate:g} calls a second its p{percentile:g} is {units.seconds(middle)}, and it was "
            f"{measured}: its calls depend on one another, or on the load, so the capacity is a guess"
        )
    return Estimate(CAPACITY, value, low, high, len(records)), note


def _rested_on(latency: Quantity, decision: Decision) -> list[LaunchRecord]:
    """Return the launches that a decision rests on: of one state of the machine, those in which the queue settled.

    Of a queue that did not settle in one of them it is all there are.
    """
    count = decision.estimate.launches
    if math.isinf(decision.estimate.value):
        return counted(latency)[:count]
    return [record for record, _ in latency.rows()[:count]] if count else []


def _judged(
    cells: Sequence[Measurement],
    claimed: Measurement,
    verdict: Verdict,
    percentile: float,
    limit: Bound,
    planned: float,
) -> dict[float, Verdict]:
    """Return the verdict at each rate that was measured: at the claimed one its own, which is the ``verdict``."""
    if not claimed.source.error_control:
        return {}
    return {
        _rate_of(cell): verdict if cell is claimed else _at_looks(cell, percentile, limit, planned) for cell in cells
    }


def _at_looks(cell: Measurement, percentile: float, limit: Bound, planned: float) -> Verdict:
    """Return the verdict at a rate that nobody claims, by the launches that there are: of the first look that decides.

    How many there are the verdict at the claimed rate decides, which the same launches may have made late. Looking at
    all of them at once would be looking when it suits; the looks of a gate spend its error rate however many there are.
    """
    quantity = cell.quantity("latency")
    try:
        records = [record for record in cell.source.records(quantity) if not record.invalid]
    except (CellFailed, NotStored):
        return Verdict.INCONCLUSIVE
    for look, level in looks_of(cell.source, planned):
        first = records[:look]
        rows = quantity.rows_of(first)
        if len(first) == look and all(cannot_keep_up(record, cell.cell) for record in first):
            return Verdict.FAIL
        if len(rows) < look:
            # Too few, or a queue that did not settle in one of them.
            break
        calls, least = calls_of(rows, cell.cell), clusters_of(rows, cell.cell)
        verdict = judge_percentile(calls, percentile, limit, level, least_effect=least)
        if verdict is not Verdict.INCONCLUSIVE:
            return verdict
    return Verdict.INCONCLUSIVE


def _bracket(judged: Mapping[float, Verdict], error_rate: float) -> list[str]:
    """Return between which of the rates that were measured the capacity is, and how often each is wrong."""
    held = [rate for rate, verdict in judged.items() if verdict is Verdict.PASS]
    lost = [rate for rate, verdict in judged.items() if verdict is Verdict.FAIL]
    if not held and not lost:
        return []
    said = [f"held at {max(held):g}"] if held else []
    said += [f"not held at {min(lost):g}"] if lost else []
    each = f"each wrong in {100 * error_rate:g} % at most"
    if held and lost and max(held) > min(lost):
        each += "; one of these is, or more than the load differed"
    return [f"of the rates that were measured it was {' and '.join(said)} calls a second ({each})"]


def bounds_of(helper: str, percentile: float, within: float) -> tuple[float, float]:
    """Return a percentile and what it has to stay within. Raise ClaimError where there is none like it."""
    percentile, within = number(f"{helper}: percentile", percentile, "%"), number(f"{helper}: within", within, "s")
    if not 1 <= percentile < 100:
        raise ClaimError(f"{helper}: percentile={percentile:g} (expected per cent, from 1 on and below 100)")
    if within <= 0:
        raise ClaimError(f"{helper}: within={within:g} (expected seconds above 0)")
    return percentile, within


def _at_rate(cells: Sequence[Measurement], asked: float) -> Measurement:
    """Return the cell to which as many calls arrive as are asked for. Raise ClaimError where none is, or it differs."""
    rates = {cell.cell.label: rate_of(cell.workload.scenario) for cell in cells}
    for label, rate in rates.items():
        if rate is None:
            raise ClaimError(
                f'{_HELPER}: {label}: no calls arrive (expected a cell of scenario="server[rate={asked:g}]")'
            )
    apart = {replace(cell.cell, workload=replace(cell.workload, scenario="latency")) for cell in cells}
    if len(apart) > 1:
        raise ClaimError(f"{_HELPER}: cells differ in more than their rate: {', '.join(rates)}")
    found = next((cell for cell in cells if rate_of(cell.workload.scenario) == asked), None)
    if found is None:
        known = ", ".join(f"{rate:g}" for rate in rates.values() if rate is not None)
        raise ClaimError(
            f"{_HELPER}: at_least={asked:g}, and nothing was measured at that rate (rates: {known}); add a cell of "
            f'scenario="server[rate={asked:g}]"'
        )
    return found

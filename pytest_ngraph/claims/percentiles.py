"""Claims about a percentile of calls, by the binomial law, and about what is read where a queue did not settle."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.claims.decide import Decision, Rule, beyond, decide, looks_of, shown, unjudged, without_error_control
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.load.neighbours import NONE
from pytest_ngraph.load.queues import clustering_of, has_no_latency, is_overloaded
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.quantities.quantity import LEVEL, Estimate, Quantity, summaries
from pytest_ngraph.session.session import FIRST_LOOK
from pytest_ngraph.spec.cells import Cell, LaunchRecord
from pytest_ngraph.spec.shapes.mixes import is_mix
from pytest_ngraph.stats.verdict import (
    CONFIRMING_LOOKS,
    Bound,
    Verdict,
    design_effect,
    judge_percentile,
    percentile_bound,
    with_room,
)
from pytest_ngraph.stats.visits import clean_batches

if TYPE_CHECKING:
    from pytest_ngraph.claims.decide import Rows


def decide_percentile(quantity: Quantity, percentile: float, bound: Bound, tolerance: float) -> Decision:
    """Judge a percentile of the calls of a cell, by the binomial law instead of a mean.

    ``quantity`` is the cell's latency. Raises ClaimError for calls so short that several are timed together. Those of
    several in flight never are.
    """
    cell = quantity.subject
    if (overloaded := _decided_by_overload(quantity, bound)) is not None:
        return overloaded

    def clusters(rows: Rows, bound: Bound, *, disturbed: bool) -> float:
        return max(clusters_of(rows, cell), _clusters_beside(rows, cell, bound, disturbed=disturbed))

    def judged(rows: Rows, level: float, bound: Bound, *, disturbed: bool = False) -> Verdict:
        calls, least = calls_of(rows, cell, disturbed=disturbed), clusters(rows, bound, disturbed=disturbed)
        return judge_percentile(calls, percentile, bound, level, least_effect=least)

    def at(rows: Rows, level: float) -> Verdict:
        return judged(rows, level, bound)

    def far_within(rows: Rows, level: float) -> bool:
        return judged(rows, level, with_room(bound), disturbed=True) is Verdict.PASS

    controlled = quantity.source.error_control
    if controlled:
        # The fastest calls say nothing of a percentile: they are what it is not about.
        decision = decide(quantity, bound, tolerance, Rule(at, lambda *_: "", far_within=far_within))
    else:
        decision = without_error_control(quantity, beyond(bound))
    if not decision.estimate.launches:
        return decision
    worst = decision.disturbed
    rows = (quantity.disturbed if worst and quantity.disturbed else quantity).rows()[: decision.estimate.launches]
    if controlled and (held := read_until(quantity, rows, decision.verdict)) and any(map(_did_not_settle(cell), held)):
        return _of_no_latency(quantity, held, Verdict.INCONCLUSIVE)
    each, clustered = calls_of(rows, cell, disturbed=worst), clusters(rows, bound, disturbed=worst)
    pooled = [seconds for launch in each for seconds in launch]
    if not pooled:
        # The launch has a time all the same, where some visit was held to less.
        verdict = Verdict.INCONCLUSIVE if controlled else Verdict.NOT_JUDGED
        said = "no call counts: all had to wait for a CPU that others or the host used"
        return replace(decision, verdict=verdict, reason=said)
    thinned = max(clustered, design_effect(each, bound.value))
    sure = 1 - 2 * LEVEL
    low, value, high = percentile_bound(pooled, percentile, sure, design_effect=thinned)
    estimate = Estimate(quantity.metric.name, value, low, high, decision.estimate.launches)
    if not controlled:
        return shown(quantity, estimate, beyond(bound))
    reason = decision.reason
    least = looks_of(quantity.source, tolerance)[-1][1]
    needed = math.ceil(clustered * math.log(least) / math.log(percentile / 100))
    if decision.verdict is Verdict.INCONCLUSIVE and len(pooled) < needed:
        reason = f"{len(pooled)} calls; percentile {percentile:g} needs {needed} at least, so a larger budget"
    return replace(
        decision, estimate=estimate, smallest_visible=None, reason=reason, confidence=sure, of_launches=False
    )


def decided_by_overload(quantity: Quantity, bound: Bound) -> Decision | None:
    """Return what becomes of a claim about a mean where more calls arrive than a cell can answer, or None.

    A latency of such a cell is beyond every bound. How many calls that answers is not, nor its share of CPUs.
    """
    has_queue = quantity.source.error_control and quantity.metric.name == "latency" and _arriving(quantity)
    return _decided_by_overload(quantity, bound) if has_queue else None


def open_where_unsettled(quantity: Quantity, decision: Decision) -> Decision:
    """Return a decision by means, open where a queue did not settle in one of the launches that it has seen.

    Looks drop such launches, and later ones take their places: that would be to choose them by what they say.
    """
    cells, count = _arriving(quantity), decision.estimate.launches
    if not (cells and count and quantity.source.error_control) or decision.verdict is Verdict.INVALID:
        return decision
    way = quantity.disturbed if decision.disturbed and quantity.disturbed else quantity
    rows = way.rows()[:count]
    held = read_until(quantity, rows, decision.verdict) if rows else []
    odd = [(record, cell) for record in held for cell in cells if has_no_latency(record.prepared[cell])]
    if not odd:
        return decision
    record, cell = odd[-1]
    reason = _how_many(len({one.identity for one, _ in odd}), held, record.prepared[cell].reason)
    return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=reason)


def _arriving(quantity: Quantity) -> list[Cell]:
    """Return the cells of a quantity to which calls arrive at a rate, none where it is not read from their visits."""
    cells = quantity.cells if quantity.is_of_visits else ()
    return [cell for cell in cells if rate_of(cell.workload.scenario) is not None]


def calls_of(rows: Rows, cell: Cell, *, disturbed: bool = False) -> list[list[float]]:
    """Return the seconds of every call of a cell that counts, by launch: every clean one, all if several in flight."""
    return [
        [seconds for visit in _clean_visits(record, cell, disturbed=disturbed) for seconds in visit]
        for record, _ in rows
    ]


def clusters_of(rows: Rows, cell: Cell) -> float:
    """Return of how many calls clusters of slow ones are at least: by the load of a queue, or as many as are in flight.

    What makes one call slow makes those slow that run beside it. 1 where calls are made one after the other.
    """
    placements = [dict(record.prepared[cell].placement) for record, _ in rows]
    if rate_of(cell.workload.scenario) is not None:
        return max(map(clustering_of, placements), default=1.0)
    if cell.workload.scenario == "latency":
        return 1.0
    return max(map(_in_flight, placements), default=1.0)


def _in_flight(placement: Mapping[str, str]) -> float:
    """Return how many calls a launch kept in flight, by what was kept of it. 1 where that is no number."""
    kept = placement.get("in_flight", "")
    return float(max(1, int(kept))) if kept.isdecimal() else 1.0


def _clusters_beside(rows: Rows, cell: Cell, bound: Bound, *, disturbed: bool = False) -> float:
    """Return of how many calls clusters of slow ones are beside a neighbour, by the visits. 1 where there is none.

    How many calls it slows differs from visit to visit. A few launches hardly show by how much, their visits do.
    """
    if cell.workload.neighbour == NONE:
        return 1.0
    visits = [visit for record, _ in rows for visit in _clean_visits(record, cell, disturbed=disturbed)]
    return max(design_effect(visits, math.exp(limit)) for limit in (bound.edge, bound.line))


def _decided_by_overload(quantity: Quantity, bound: Bound) -> Decision | None:
    """Return what becomes of a claim about a cell whose queue did not settle in the first look, None where it did.

    Where more calls arrive than it can answer its latency is beyond every bound. Each launch says so at its own error
    rate (``load.queues``), and all of the first look and of those that confirm it must. Otherwise nothing is known: to
    judge by the launches in which it did settle would be to choose them by what they say. Launches that came later, for
    another claim, change nothing.
    """
    source, cell = quantity.source, quantity.subject
    first, wanted = (FIRST_LOOK, FIRST_LOOK + CONFIRMING_LOOKS[0]) if source.error_control else (None, 1)
    source.records(quantity)
    if not any(map(_did_not_settle(cell), counted(quantity)[:first])):
        return None

    def agree(found: Sequence[LaunchRecord]) -> bool:
        return all(cannot_keep_up(record, cell) for record in found)

    found = until_confirmed(quantity, wanted, agree)[: wanted if source.error_control else None]
    verdict = Verdict.INCONCLUSIVE
    if len(found) >= wanted and agree(found):
        verdict = Verdict.PASS if bound.at_least else Verdict.FAIL
    decision = _of_no_latency(quantity, found, verdict)
    if source.error_control:
        return decision
    verdict = Verdict.FAIL if source.fails_unjudged and verdict is Verdict.FAIL else Verdict.NOT_JUDGED
    return replace(decision, verdict=verdict, reason=f"{unjudged(source)}: {decision.reason}")


def cannot_keep_up(record: LaunchRecord, cell: Cell) -> bool:
    """Return whether more calls arrive than a cell can answer, and nobody else used the CPUs and kept it from that."""
    return is_overloaded(record.prepared[cell]) and not record.shared


def until_confirmed(
    quantity: Quantity, wanted: int, agree: Callable[[Sequence[LaunchRecord]], bool]
) -> list[LaunchRecord]:
    """Return the launches that count, measuring more until as many as wanted agree, or one does not."""
    while len(found := counted(quantity)) < wanted and agree(found):
        quantity.source.one_more(quantity, beyond_budget=True)
        if len(counted(quantity)) == len(found):
            break
    return found


def counted(quantity: Quantity) -> list[LaunchRecord]:
    """Return the launches that count, in whatever state of the machine, whether or not a queue settled in them."""
    return [record for record in quantity.source.holding(quantity) if not record.invalid]


def _did_not_settle(cell: Cell) -> Callable[[LaunchRecord], bool]:
    return lambda record: has_no_latency(record.prepared[cell])


def read_until(quantity: Quantity, rows: Rows, verdict: Verdict) -> list[LaunchRecord]:
    """Return the launches that a verdict has seen: up to the last that it rests on, all there are where it is open.

    Among them are those in which the queue did not settle. Others took their places, which looks do not see.
    """
    held, last = counted(quantity), rows[-1][0].identity
    if verdict not in (Verdict.PASS, Verdict.FAIL):
        return held
    return held[: 1 + [record.identity for record in held].index(last)]


def _of_no_latency(quantity: Quantity, found: Sequence[LaunchRecord], verdict: Verdict) -> Decision:
    """Return a decision by launches in some of which a queue did not settle, so that there is no latency to show."""
    cell = quantity.subject
    grew = [record for record in found if is_overloaded(record.prepared[cell])]
    odd = grew or [record for record in found if has_no_latency(record.prepared[cell])]
    nothing = Estimate(quantity.metric.name, math.inf, math.inf, math.inf, len(found))
    reason = _how_many(len(odd), found, odd[-1].prepared[cell].reason)
    return Decision(verdict, nothing, None, "", reason, state=found[0].home, of_launches=False)


def _how_many(odd: int, found: Sequence[LaunchRecord], reason: str) -> str:
    return f"{odd} of {units.count(len(found), 'launch', 'launches')}: {reason}"


def _clean_visits(record: LaunchRecord, cell: Cell, *, disturbed: bool) -> list[list[float]]:
    """Return the seconds of the calls of a launch that count, by visit."""
    visits: list[list[float]] = []
    held, found = record.visits_of(cell), summaries(record, cell)
    # Calls in flight have no run-delay, so that beside others each of them is taken for what it is at worst.
    usable = [
        block
        for block, visit in held.items()
        if (visit.in_flight_ns and not visit.is_stolen(shared=bool(record.shared))) or found[block].kept
    ]
    for visit in (held[block] for block in record.blocks_for([cell], usable, disturbed=disturbed)):
        if visit.in_flight_ns:
            # Each was timed by itself, however short it is.
            visits.append([nanoseconds * 1e-9 for nanoseconds in visit.in_flight_ns])
        elif is_mix(cell.workload.shapes):
            raise ClaimError(
                f"{cell.label}: percentile= needs calls that are timed one by one, and of a mix whole turns are timed; "
                "claim the latency without percentile=, or that of each batch"
            )
        elif visit.calls > 1:
            raise ClaimError(
                f"{cell.label}: percentile= needs calls that are timed one by one, and these are so short that "
                f"{visit.calls} are timed together; claim the latency without percentile="
            )
        else:
            visits.append([visit.wall_ns[index] * 1e-9 for index in clean_batches(visit)])
    return visits

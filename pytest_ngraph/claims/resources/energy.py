"""The helpers that claim energy and the use of a GPU: of passes with idle windows beside, judged as times are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from statistics import fmean

from pytest_ngraph import units
from pytest_ngraph.claims.assertions import claim, is_itself, settled_as_unchanged
from pytest_ngraph.claims.decide import Decision, decide
from pytest_ngraph.claims.given import BoundGiven, of_kind
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.quantities.comparisons import refuse_apart, refuse_other_calls
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.power import ENERGY, GPU_UTILISATION, energy_ratio, joules_above_idle, why_unread
from pytest_ngraph.quantities.quantity import Estimate, Quantity
from pytest_ngraph.session.session import FIRST_LOOK
from pytest_ngraph.spec.cells import LaunchRecord
from pytest_ngraph.spec.resources.power import ABOVE_IDLE, Power
from pytest_ngraph.stats.verdict import Bound, Verdict

_OF = {"total": ENERGY, "above_idle": ABOVE_IDLE}
_WHAT_TO_DO = "ngraph doctor says which probes there are here, and what the others lack (docs/energy.md)"
_NOT_ITS_OWN = "leave the machine idle before and during the run: the idle power must be below that of the calls"
# Of others it is said from here on what they did.
_SAID_CPUS = 0.05


def assert_energy(
    cell: Measurement,
    *,
    over: Measurement | None = None,
    of: str = "total",
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the joules of a sample: what the probe covers draws while calls run, over the samples of these calls.

    ``of="above_idle"`` takes the power of the idle machine away, which is measured in the same passes; both powers are
    shown with every verdict, and what they are of: the whole machine, a module, the CPU packages or a GPU's board,
    never one process. With ``over`` it claims the ratio to another cell's, measured in turn in the same passes.

    Where no probe can be read the claim is inconclusive and says why. So it is where the idle machine drew as much.
    """
    __tracebackhide__ = True
    helper = "assert_energy"
    cell = of_kind(helper, cell, Measurement)
    if of not in _OF:
        raise ClaimError(f"{helper}: of={of!r} (expected {' or '.join(map(repr, _OF))})")
    if over is None:
        quantity = cell.quantity(_OF[of])
        return claim(helper, quantity, cell.target, at_least, at_most, tolerance, _judge, name=_name(of))
    over, is_same = of_kind(f"{helper}: over", over, Measurement), is_itself(f"{helper}: over", cell, over)
    if of != "total":
        raise ClaimError(f"{helper}: of={of!r} with over= (expected of='total': the idle power is that of both)")
    if is_same:
        label = f"energy of {cell.cell.label} over {cell.beside.cell.side}"
        return settled_as_unchanged(helper, cell, label, "energy_ratio", at_least, at_most, tolerance)
    refuse_apart(helper, [cell, over])
    refuse_other_calls(helper, cell, over)
    label = f"energy of {cell.cell.label} over that of {over.cell.label}"
    quantity = energy_ratio(cell.source, label, cell.cell, over.cell, ())
    return claim(helper, quantity, cell.target, at_least, at_most, tolerance, _judge, name="energy ratio")


def assert_gpu_utilisation(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the per cent of the time in which the GPU ran anything at all while calls ran.

    It is a duty cycle: a GPU that is always busy with one small kernel is at 100. The tolerance is in percentage
    points. Where nothing says it, and on a device that computes on CPUs, the claim is inconclusive and says why.
    """
    __tracebackhide__ = True
    helper = "assert_gpu_utilisation"
    cell = of_kind(helper, cell, Measurement)
    quantity = cell.quantity(GPU_UTILISATION)
    return claim(helper, quantity, cell.target, at_least, at_most, tolerance, _judge, name="GPU utilisation")


def _name(of: str) -> str:
    return "energy" if of == "total" else "energy above idle"


def _judge(quantity: Quantity, bound: Bound, tolerance: float) -> Decision:
    """Judge as times are judged, unless nothing can be read or the idle machine drew as much as the busy one.

    It did in the passes that a verdict rests on: those that came after it change nothing.
    """
    if why := why_unread(quantity):
        nothing = Estimate(quantity.metric.name, math.nan, math.nan, math.nan, 0)
        return Decision(Verdict.INCONCLUSIVE, nothing, None, "", why, advice=_WHAT_TO_DO)
    records = quantity.source.records(quantity)
    first = records[:FIRST_LOOK] if quantity.source.error_control else records
    if (odd := _contradicting(quantity, first)) is not None:
        return _of_nothing(quantity, odd, first)
    decision = decide(quantity, bound, tolerance)
    held = _rested_on(quantity, decision)
    if decision.verdict is not Verdict.INVALID and (odd := _contradicting(quantity, held)) is not None:
        return _of_nothing(quantity, odd, held)
    return replace(decision, notes=(*decision.notes, *_notes(quantity, held)))


def _rested_on(quantity: Quantity, decision: Decision) -> Sequence[LaunchRecord]:
    """Return the passes that a decision rests on: up to the last one that it has a number of.

    Where numbers were lacking those that gave none were made for it, too.
    """
    records = quantity.source.records(quantity)
    rows = quantity.rows_of(records)
    if not rows or (decision.verdict is Verdict.INCONCLUSIVE and decision.estimate.launches == len(rows)):
        return records
    last = rows[: decision.estimate.launches][-1][0]
    return records[: 1 + next(place for place, record in enumerate(records) if record is last)]


def _powers(quantity: Quantity, records: Sequence[LaunchRecord]) -> list[Power]:
    return [power for one in records for cell in quantity.cells if (power := one.prepared[cell].power) is not None]


def _why_not(quantity: Quantity, power: Power) -> str:
    """Return why the joules of a pass are not those of the cell, or not known to be above idle, or nothing."""
    return power.indistinct if quantity.metric.name == ABOVE_IDLE else power.contradiction


def _contradicting(quantity: Quantity, records: Sequence[LaunchRecord]) -> Power | None:
    """Return the pass with the least above idle of those whose joules are not known to be the cell's, or None."""
    if quantity.metric.name == GPU_UTILISATION:
        return None
    odd = (each for each in _powers(quantity, records) if _why_not(quantity, each))
    return min(odd, key=lambda each: each.above_idle_watts, default=None)


def _of_nothing(quantity: Quantity, odd: Power, records: Sequence[LaunchRecord]) -> Decision:
    """Return that a claim is open: what was measured is not what the cell drew. Its number is shown all the same.

    It is of all of these passes, those in which nothing was above idle included. The reason is of one of these alone.
    """
    known = [each for each in _powers(quantity, records) if each.has_energy]
    if quantity.metric.name == ABOVE_IDLE:
        value, low = fmean(map(joules_above_idle, known)), -math.inf
    else:
        values = [value for _, value in quantity.rows_of(records)]
        value, low = quantity.present(values).value if values else math.nan, 0.0
    estimate = Estimate(quantity.metric.name, value, low, math.inf, len(records))
    said = f"{units.watts(odd.above_idle_watts)}, give or take {units.watts(odd.error_watts)}"
    reason = (
        f"{_why_not(quantity, odd)}: what is above idle is {said}, so that these joules are not known to be the cell's"
    )
    notes = tuple(_notes(quantity, records))
    return Decision(Verdict.INCONCLUSIVE, estimate, None, "", reason, notes=notes, advice=_NOT_ITS_OWN)


def _notes(quantity: Quantity, records: Sequence[LaunchRecord]) -> list[str]:
    """Return both powers and of what they are, and what others did meanwhile."""
    powers = [each for each in _powers(quantity, records) if each.has_energy]
    if not powers or quantity.metric.name == GPU_UTILISATION:
        return []
    idle, busy = fmean(one.idle_watts for one in powers), fmean(one.busy_watts for one in powers)
    seconds = math.fsum(window.seconds for one in powers for window in one.busy)
    notes = [
        f"{units.watts(busy)} while calls ran ({units.seconds(seconds)} in all), {units.watts(idle)} idle beside",
        f"measured by {powers[-1].covers}",
    ]
    if clocks := _clocks(powers):
        notes.append(clocks)
    others = max((one.others_cpus for one in powers if one.others_cpus is not None), default=0.0)
    if others >= _SAID_CPUS:
        # A GPU's board has no CPU on it.
        among = "" if powers[-1].covers.startswith("nvml:") else ", whose joules are among these"
        notes.append(f"other processes kept up to {others:.2f} CPUs busy meanwhile{among}")
    if any(one.others_cpus is None for one in powers):
        notes.append("what other processes did meanwhile is not known")
    return notes


def _clocks(powers: list[Power]) -> str:
    """Return how fast the CPUs ran, while calls ran and idle, or nothing where no pass says it."""
    busy, idle = (
        [each.megahertz for one in powers for each in getattr(one, name) if each.megahertz is not None]
        for name in ("busy", "idle")
    )
    if not busy:
        return ""
    said = f"the CPUs ran at {fmean(busy) / 1000:.2f} GHz ({min(busy) / 1000:.2f} to {max(busy) / 1000:.2f})"
    return f"{said} while calls ran" + (f", {fmean(idle) / 1000:.2f} GHz idle" if idle else "")

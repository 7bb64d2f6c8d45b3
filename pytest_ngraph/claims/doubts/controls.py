"""What speaks against launches that gave numbers: equal processes that differ, and others that used the machine."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.quantities.quantity import Quantity, combine, counts_left_alone, summaries
from pytest_ngraph.spec.cells import Cell, LaunchRecord
from pytest_ngraph.spec.states import hardly_counts
from pytest_ngraph.stats.launches import LaunchValue, interval
from pytest_ngraph.stats.verdict import ROOM

if TYPE_CHECKING:
    Rows = Sequence[tuple[LaunchRecord, LaunchValue]]

# One side of the 0.1 % at which identity against a second identity must not exclude 1 (docs/measuring.md, step 12).
_CONTROL_LEVEL = 0.0005
# The same beside others, where a difference is to be expected rather than a rare accident.
_SHARED_CONTROL_LEVEL = 0.025
# By so many CPUs, or an eighth of them, others may use more during the visits to one cell than during those to all,
# and so sure it has to be.
_UNEVEN_CPUS, _UNEVEN_LEVEL = 0.25, 0.01
# By so much of their time the host may have a CPU for longer.
_UNEVEN_STOLEN = 0.01


def violated_control(records: Sequence[LaunchRecord], level: float = _CONTROL_LEVEL) -> str:
    """Return why these launches prove nothing, or nothing: one of two equal processes was the faster in all of them.

    Equal processes come out as different by chance at twice the one-sided ``level``.
    """
    for twin in _twins(records):
        first = replace(twin, replica=0)
        values = _control_values(records, twin)
        if len(values) < 2:
            continue
        spread = interval(values, level)
        if not spread.low <= 0 <= spread.high:
            low, ratio, high = map(math.exp, (spread.low, spread.theta, spread.high))
            return (
                f"the control is violated: {first.compiler} against a second process of it is {ratio:.3f}x "
                f"[{low:.3f}x, {high:.3f}x] over {len(values)} launches and should be 1"
            )
    return ""


def _twins(records: Sequence[LaunchRecord]) -> list[Cell]:
    return sorted({cell for record in records for cell in record.prepared if cell.replica}, key=lambda cell: cell.label)


def _control_values(records: Sequence[LaunchRecord], twin: Cell) -> list[LaunchValue]:
    """Return the ratio of a cell and its second process in the launches that count for both.

    By what counts of them, or by all visits where fewer than two launches have that.
    """
    pair = replace(twin, replica=0), twin
    counting = [record for record in records if record.counts_for(pair)]
    for disturbed in (False, True):
        values = [combine(record, pair, lambda ln: ln[0] - ln[1], disturbed=disturbed) for record in counting]
        known = [value for value in values if value is not None]
        if len(known) > 1:
            break
    return known


def never_settles(quantity: Quantity) -> bool:
    """Return whether a cell of a claim was unstable in so many launches in a row that another would hardly settle.

    In launches of this run: what kept it from settling in an earlier one need not be there any more.
    """
    in_a_row = 0
    for record in reversed(quantity.source.records(quantity)):
        if record.run != quantity.source.run or record.unsettled(quantity.cells) is None:
            break
        in_a_row += 1
    return hardly_counts(in_a_row, 0)


# Beside others


def violated_beside_others(quantity: Quantity, rows: Rows) -> str:
    """Return why launches prove nothing although others, who shared them, left visits enough, or nothing.

    Others slow calls down that need not wait for them, by what they take of caches and memory. So equal processes must
    have been compared beside them, in whatever launches there are. And others must have been there for all cells alike:
    what comes and goes with one of them makes that one look slow. So must what the host took, in whatever launches: it
    stops who keeps more CPUs busy than it allows, and visits that it took little of show that cell as it never is.
    """
    if uneven := _unevenly_stolen(quantity, [record for record, _ in rows]):
        return uneven
    shared = [record for record, _ in rows if record.shared]
    if not shared:
        return ""
    last, launches = rows[-1][0], quantity.source.records(quantity)
    place = next((place for place, one in enumerate(launches) if one.identity == last.identity), 0)
    held = launches[: place + 1]
    if violated := violated_control(held, _SHARED_CONTROL_LEVEL):
        return f"{violated}, beside others"
    if _twins(held) and not any(len(_control_values(held, twin)) > 1 for twin in _twins(held)):
        return f"{shared[-1].shared}, and fewer than two launches compared equal processes beside them as a control"
    return _unevenly_shared(quantity, shared)


def _unevenly_shared(quantity: Quantity, records: Sequence[LaunchRecord]) -> str:
    """Return which cell others were beside far more, or far less, than beside all cells of a quantity, or nothing."""
    by_launch = [[record.prepared[cell].others_cpus for cell in quantity.cells] for record in records]
    known = [[cpus for cpus in each if cpus is not None] for each in by_launch]
    complete = [each for each in known if len(each) == len(quantity.cells)]
    if len(complete) < 2:
        return ""
    least = max(_UNEVEN_CPUS, quantity.source.cpus / 8)
    if (found := _uneven(quantity.cells, complete, least)) is None:
        return ""
    cell, beside, usual = found
    return (
        f"other processes kept {beside:.1f} CPUs busy during the visits to {cell.label} and {usual:.1f} during "
        "those to all cells of the claim: what they slowed looks like what is slow"
    )


def _unevenly_stolen(quantity: Quantity, records: Sequence[LaunchRecord]) -> str:
    """Return which cell the host took far more time from, or far less, than from all cells of a quantity, or nothing.

    That is of all visits, those among them that do not count or were made again.
    """
    by_launch = [[record.prepared[cell].stolen_share or 0.0 for cell in quantity.cells] for record in records]
    if len(by_launch) < 2 or not any(map(any, by_launch)):
        return ""
    if (found := _uneven(quantity.cells, by_launch, _UNEVEN_STOLEN)) is None:
        return ""
    cell, *shares = found
    mine, usual = (f"{100 * share:.0f} %" for share in shares)
    return (
        f"the host took a CPU for {mine} of the time of {cell.label} and {usual} of that of all cells of the claim "
        "(steal): what it stopped looks like what is slow"
    )


def _uneven(
    cells: Sequence[Cell], by_launch: Sequence[Sequence[float]], least: float
) -> tuple[Cell, float, float] | None:
    """Return the first cell that surely has more, or less, than all have on average, and both means, or None."""
    means = [math.fsum(each) / len(each) for each in by_launch]
    for cell, mine in zip(cells, zip(*by_launch, strict=True), strict=True):
        apart = [LaunchValue(value - mean, 0.0, 1) for value, mean in zip(mine, means, strict=True)]
        spread = interval(apart, _UNEVEN_LEVEL)
        if abs(spread.theta) > least and not spread.low <= 0 <= spread.high:
            one, usual = (math.fsum(each) / len(by_launch) for each in (mine, means))
            return cell, one, usual
    return None


def too_shared(quantity: Quantity) -> str:
    """Return why the last launches say nothing of a quantity, if others shared so many in a row, or nothing.

    In launches of whatever runs: what is stored is judged as it was judged live.
    """
    reasons, are_enough = _of_no_use(quantity, quantity.source.records(quantity))
    return f"the last {len(reasons)} launches say nothing of it: {reasons[0]}" if are_enough else ""


def stays_shared(quantity: Quantity) -> bool:
    """Return whether others shared so many launches of this run in a row that another would hardly say more.

    Those of an earlier run do not count here: who was beside it then need not be there any more.
    """
    mine = [record for record in quantity.source.records(quantity) if record.run == quantity.source.run]
    return _of_no_use(quantity, mine)[1]


def _of_no_use(quantity: Quantity, records: Sequence[LaunchRecord]) -> tuple[list[str], bool]:
    """Return why the last of these launches say nothing of a quantity, the latest first, and whether they are enough.

    Others that leave the machine alone for too little of a launch may well leave it alone for more of the next.
    """
    reasons: list[str] = []
    lost, are_enough = 0, False
    for record in reversed(records if quantity.source.error_control else []):
        reason = quantity.why_not(record)
        if not reason or are_enough:
            break
        reasons.append(reason)
        lost += bool(record.shared) or record.alone is None or record.was_left_alone
        are_enough = hardly_counts(lost, len(reasons))
    return reasons, are_enough


def ended_after(quantity: Quantity, records: Sequence[LaunchRecord]) -> int | None:
    """Return after how many of these launches so many in a row were of no use that they end a gate, None where never.

    Launches that come later do not change it: what is stored is judged as it was judged live.
    """
    counts = range(1, len(records) + 1)
    return next((count for count in counts if _of_no_use(quantity, records[:count])[1]), None)


def last_shared(quantity: Quantity) -> str:
    """Return why the latest launch that others shared too much says nothing of a quantity, or nothing."""
    reasons = (quantity.why_not(record) for record in reversed(quantity.source.records(quantity)))
    return next(filter(None, reasons), "")


def shared_note(quantity: Quantity, rows: Rows) -> str:
    """Return how many visits were dropped in the launches of a verdict that others shared, or nothing."""
    shared = [record for record, _ in rows if record.shared]
    if not shared:
        return ""
    kept = [one.kept > 0 for record in shared for cell in quantity.cells for one in summaries(record, cell).values()]
    launches = f"{len(shared)} of {units.count(len(rows), 'launch', 'launches')}"
    dropped = f"{len(kept) - sum(kept)} of {units.count(len(kept), 'visit')} dropped"
    return f"{launches} beside others, {dropped} that had to wait ({shared[-1].shared})"


def left_alone(quantity: Quantity, rows: Rows) -> list[LaunchRecord]:
    """Return in which launches of a verdict the calls count for which others left the machine alone."""
    if not quantity.is_relative or quantity.takes_disturbed:
        return []
    return [record for record, _ in rows if counts_left_alone(record, quantity.cells)]


def left_alone_note(quantity: Quantity, rows: Rows) -> str:
    """Return by how many launches of a verdict only those calls count, or nothing."""
    if not (found := left_alone(quantity, rows)):
        return ""
    launches = units.count(len(rows), "launch", "launches")
    share = units.fraction(min(record.alone or 0.0 for record in found))
    return (
        f"others disturbed most blocks of {len(found)} of {launches}, and left the machine alone for {share} or more "
        "of each: there, the fastest calls of both sides count"
    )


def disturbed_note(quantity: Quantity, disturbed: int, count: int) -> str:
    """Return that a pass rests on launches that others disturbed, and why it may."""
    launches = f"{disturbed} of {units.count(count, 'launch', 'launches')}"
    if quantity.is_relative:
        return f"others disturbed {launches}; it holds with them, and would if it were {ROOM:g} times worse"
    return (
        f"others disturbed {launches}, which only makes calls longer; it holds with them, and would if usual ones took "
        f"{ROOM:g} times as long"
    )

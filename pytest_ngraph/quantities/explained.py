"""What launches have measured of explained cells, which their profiles are held against."""

from __future__ import annotations

import math
import shlex
import textwrap
from dataclasses import replace

from pytest_ngraph import units
from pytest_ngraph.axes import AXES
from pytest_ngraph.errors import StoreError
from pytest_ngraph.explain.compare import Comparison, Measured, compare
from pytest_ngraph.explain.explanation import Explanation
from pytest_ngraph.load.neighbours import NONE
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.quantities.comparisons import throughput_ratio
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import CellFailed, Estimate, Measurer, NotStored, Quantity, Source
from pytest_ngraph.spec.cells import Cell

# What compares two cells of one launch, where one that is slower can be explained.
_OF_SPEED = ("speedup", "throughput_ratio")
_WIDTH = 100


def measured_call(source: Source, cell: Cell) -> Estimate | None:
    """Return the time of a call by the launches that count for a cell, or None where there are none."""
    return _estimate(Measurement(source, cell, cell).quantity("latency"))


def call_words(measured: Estimate | None) -> str:
    """Write the time of a call and over how many launches it is, or nothing where it was not measured."""
    if measured is None:
        return ""
    return f"{units.seconds(measured.value)} ({units.count(measured.launches, 'launch', 'launches')})"


def measured_pair(source: Source, first: Cell, second: Cell) -> Measured | None:
    """Return how many times slower the second of two cells is, by launches that measured both where there are any.

    None where one of them was not measured.
    """
    one, two = measured_call(source, first), measured_call(source, second)
    if one is None or two is None:
        return None
    # Of calls that arrive as many are answered, however long they take.
    is_by_calls = all(rate_of(cell.workload.scenario) is None for cell in (first, second))
    if first.workload.batch == second.workload.batch and is_by_calls:
        ratio = _estimate(throughput_ratio(Measurement(source, first, first), Measurement(source, second, second)))
        if ratio is not None:
            over = units.count(ratio.launches, "launch", "launches")
            ends = (ratio.low, ratio.high) if math.isfinite(ratio.high - ratio.low) else (None, None)
            # The ratio within launches, which is sharper than that of two means.
            return Measured(one.value, one.value * ratio.value, over, *ends)
    return Measured(one.value, two.value, "launches of each apart")


def as_measured(found: Explanation, cell: Cell) -> Explanation:
    """Return what ran in a cell with a note of what it is measured under and is not profiled under, if anything."""
    workload, notes = cell.workload, []
    if workload.neighbour != NONE:
        notes.append(
            f"profiled without its neighbour {workload.neighbour}: what that does to the measured calls is in no node"
        )
    if (rate := rate_of(workload.scenario)) is not None:
        notes.append(
            f"profiled one call after the other: {rate:g} calls a second arrive where it is measured, and what they "
            "wait in line is in no node"
        )
    return replace(found, notes=(*notes, *found.notes))


def compared(source: Source, cells: tuple[Cell, Cell], found: tuple[Explanation, Explanation]) -> Comparison:
    """Return what makes one of two explained cells slower, by what launches have measured of both."""
    first, second = cells
    return compare(
        *found,
        pair_names(first, second),
        measured_pair(source, first, second),
        is_one_model=first.workload.model == second.workload.model,
        refused=_why_no_profile_says(first, second),
    )


def _why_no_profile_says(first: Cell, second: Cell) -> str:
    """Return why what makes one of two cells slower is in no profile, or nothing."""
    if first.workload.neighbour != second.workload.neighbour:
        return "they are not beside the same neighbour, and profiles are made with nothing beside them"
    if any(rate_of(cell.workload.scenario) is not None for cell in (first, second)):
        return 'calls that arrive wait in line, and profiles have no line (explain the cells of scenario="latency")'
    return ""


def _estimate(quantity: Quantity) -> Estimate | None:
    try:
        found = quantity.estimate()
    except (NotStored, CellFailed):
        return None
    return found if found.launches and found.value > 0 and math.isfinite(found.value) else None


def pair_names(first: Cell, second: Cell) -> tuple[str, str]:
    """Return what a sentence calls two cells: what differs between them, or their labels where that is much."""
    one: list[str] = []
    two: list[str] = []
    for mine, other in ((first.device, second.device), (str(first.compiler), str(second.compiler))):
        if mine != other:
            one.append(mine)
            two.append(other)
    for row in AXES:
        values = first.workload.value(row.name) if row.name != "model" else first.workload.model.text
        others = second.workload.value(row.name) if row.name != "model" else second.workload.model.text
        if values != others:
            stem = f"{row.stem or row.name}" if isinstance(values, int) or isinstance(others, int) else ""
            one.append(f"{stem}{'' if values is None else values}")
            two.append(f"{stem}{'' if others is None else others}")
    if first.side != second.side:
        one.append(first.side or "here")
        two.append(second.side or "here")
    names = " ".join(one), " ".join(two)
    return names if all(names) and names[0] != names[1] else (first.label, second.label)


def what_ran_lines(quantity: Quantity) -> list[str]:
    """Return what makes the cell of a red gate slow by the stored explanations, or the command that finds it out.

    Nothing is profiled here: a test that fails is no place to run anything else.
    """
    source = quantity.source
    if quantity.metric.name not in _OF_SPEED or len(quantity.cells) != 2 or not isinstance(source, Measurer):
        return []
    cell, other = quantity.cells
    if any(each.side or each.compiler.name == "null" for each in (cell, other)):
        return []
    if why := _why_no_profile_says(other, cell):
        return _folded(f"what ran: no profile says it: {why}")
    try:
        kept = [source.session.explained(each) for each in (other, cell)]
    except StoreError:
        return []
    try:
        found = [Explanation.from_json(each) for each in kept if each is not None]
    except StoreError:
        found = []
    if len(found) < len(kept):
        # A label is what the command knows a cell by.
        names = " ".join(shlex.quote(each.label) for each in (other, cell))
        return [f"  what ran: ngraph explain {names}"]
    first, second = found
    said = compared(source, (other, cell), (first, second)).sentence
    neighbour = cell.workload.neighbour
    return _folded(f"what ran: {said}" + ("" if neighbour == NONE else f" (profiled without {neighbour} beside them)"))


def _folded(text: str) -> list[str]:
    return textwrap.wrap(text, _WIDTH, initial_indent="  ", subsequent_indent="    ", break_on_hyphens=False)

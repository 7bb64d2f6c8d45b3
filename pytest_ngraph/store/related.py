"""Reading a whole run: its cells in groups that launches connect, so that only one group's samples are held at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ngraph.conditions import of_one_state
from pytest_ngraph.spec import Cell, CompileRecord, LaunchRecord, Outcome, Reading, Visit
from pytest_ngraph.store import statements
from pytest_ngraph.store.codec import cell_to_text, from_blob, from_text

_Read = Callable[[str, Sequence[object] | Mapping[str, object]], list[Any]]


@dataclass(frozen=True, slots=True)
class Related:
    """Cells that share launches, and all that counts for them, as ``Store.launches`` and ``Store.failed`` give it.

    ``invalid`` has those that were timed and have no launch that counts, with why the latest does not.
    """

    cells: Sequence[Cell]
    timed: Sequence[LaunchRecord]
    memory: Sequence[LaunchRecord]
    failed: Mapping[Cell, CompileRecord]
    invalid: Mapping[Cell, str]


class _Links:
    """Which cells are connected by what they share, by the number of each cell (union-find, paths halved)."""

    def __init__(self, cells: int) -> None:
        self._above = list(range(cells))

    def root(self, cell: int) -> int:
        above = self._above
        while above[cell] != cell:
            above[cell] = cell = above[above[cell]]
        return cell

    def connect(self, one: int, other: int) -> None:
        self._above[self.root(other)] = self.root(one)


def read_related(read: _Read, evidence: Mapping[Cell, str]) -> Iterator[Related]:
    """Yield these cells in groups that timed launches connect; a cell without any is a group of its own.

    What counts is found first, in one look at each cell; a launch that has finished never changes.
    """
    cells = list(evidence)
    links, first_of = _Links(len(cells)), dict[int, int]()
    timed: list[list[int]] = []
    memory: list[list[int]] = []
    failed: dict[int, int] = {}
    invalid: dict[int, str] = {}
    numbers: dict[int, int] = {}  # of the store's own numbers for cells
    for place, (cell, key) in enumerate(evidence.items()):
        found = read(statements.LAUNCHES_OF_CELL, {"evidence": key, "cell": cell_to_text(cell)})
        timed.append([launch for _, launch, kind, why_not, _ in found if not why_not and kind == "timed"])
        memory.append([launch for _, launch, kind, why_not, _ in found if not why_not and kind == "memory"])
        for launch in timed[place]:
            links.connect(first_of.setdefault(launch, place), place)
        latest = next(((launch, outcome) for _, launch, kind, _, outcome in reversed(found) if kind != "memory"), None)
        if latest is not None and latest[1] != Outcome.OK.value:
            failed[place] = latest[0]
        elif found and not timed[place]:
            invalid[place] = next((why_not for _, _, kind, why_not, _ in reversed(found) if kind == "timed"), "")
        if found:
            numbers[found[0][0]] = place
    groups: dict[int, list[int]] = {}
    for place in range(len(cells)):
        groups.setdefault(links.root(place), []).append(place)

    def launches(places: Sequence[int], of: Sequence[Sequence[int]]) -> list[LaunchRecord]:
        """Return the launches of some cells, oldest first, each with what it has of just these cells."""
        holders: dict[int, set[int]] = {}
        for place in places:
            for launch in of[place]:
                holders.setdefault(launch, set()).add(place)
        return [launch_with(launch, holders[launch]) for launch in sorted(holders)]

    def launch_with(launch: int, wanted: set[int]) -> LaunchRecord:
        prepared = {
            cells[place]: record_of(text)
            for number, text in read(statements.PREPARED_IN_LAUNCH, (launch,))
            if (place := numbers.get(number, -1)) in wanted
        }
        visits = {
            (cells[place], block): Visit(calls, *map(from_blob, samples))
            for number, block, calls, *samples in read(statements.VISITS_IN_LAUNCH, (launch,))
            if (place := numbers.get(number, -1)) in wanted
        }
        return launch_of(read(statements.LAUNCH, (launch,))[0], prepared, visits)

    def record_in(launch: int, cell: Cell) -> CompileRecord:
        return record_of(read(statements.RECORD_IN_LAUNCH, (launch, cell_to_text(cell)))[0][0])

    for places in groups.values():
        yield Related(
            [cells[place] for place in places],
            launches(places, timed),
            launches(places, memory),
            {cells[place]: record_in(failed[place], cells[place]) for place in places if place in failed},
            {cells[place]: invalid[place] for place in places if invalid.get(place)},
        )


def record_of(text: str) -> CompileRecord:
    """Read what preparing a cell gave, as the store keeps it."""
    return CompileRecord.from_json(from_text(text))


def launch_of(
    row: Sequence[Any], prepared: Mapping[Cell, CompileRecord], visits: Mapping[tuple[Cell, int], Visit]
) -> LaunchRecord:
    """Return a launch from its row (``statements.LAUNCH``) and what belongs to it; keeps the visits of one state."""
    number, seed, protocol, invalid, seconds, text = row
    around = [pair and tuple(_reading(one) for one in pair) for pair in from_text(text)]
    kept, state = of_one_state(visits, around)
    return LaunchRecord(number, int(seed), protocol, prepared, kept, invalid, seconds, state)


def _reading(fields: Mapping[str, Any]) -> Reading:
    return Reading(fields["arithmetic_ns"], tuple(fields["crossing_ns"]))

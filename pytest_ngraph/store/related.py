"""Reading a whole run: its cells in groups that launches connect, so that only one group's samples are held at once."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord, Outcome, Reading, Visit
from pytest_ngraph.spec.states import of_one_state
from pytest_ngraph.store import statements
from pytest_ngraph.store.codec import cell_to_text, from_blob, from_text

_Read = Callable[[str, Sequence[object] | Mapping[str, object]], list[Any]]


@dataclass(frozen=True, slots=True)
class Related:
    """Cells that share launches, and all that counts for them, as ``Store.launches`` and ``Store.failed`` give it.

    ``finished`` are all of their timed launches. Those that do not count are without samples. ``invalid`` has the
    cells that were timed and have no launch that counts, with why the latest does not.
    """

    cells: Sequence[Cell]
    finished: Sequence[LaunchRecord]
    memory: Sequence[LaunchRecord]
    failed: Mapping[Cell, CompileRecord]
    invalid: Mapping[Cell, str]

    @property
    def timed(self) -> Sequence[LaunchRecord]:
        """Return the timed launches that count."""
        return [launch for launch in self.finished if not launch.invalid]


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


def read_related(read: _Read, evidence: Mapping[Cell, str], is_sound: Callable[[int], bool]) -> Iterator[Related]:
    """Yield these cells in groups that timed launches connect. A cell without any is a group of its own.

    ``is_sound`` says whether a launch is what was written. One that is not does not count.

    What counts is found first, in one look at each cell. A launch that has finished never changes.
    """
    cells = list(evidence)
    links, first_of = _Links(len(cells)), dict[int, int]()
    # The launches of each cell, and by what number the store knows it there.
    finished: list[dict[int, int]] = []
    memory: list[dict[int, int]] = []
    uncounted: set[int] = set()
    failed: dict[int, tuple[int, int]] = {}
    invalid: dict[int, str] = {}
    for place, (cell, key) in enumerate(evidence.items()):
        rows = read(statements.LAUNCHES_OF_CELL, {"evidence": key, "cell": cell_to_text(cell)})
        found = list({row[0]: row for row in rows if is_sound(row[0])}.values())
        uncounted.update(launch for launch, _, kind, why_not, _ in found if kind == "timed" and why_not)
        finished.append({launch: number for launch, number, kind, *_ in found if kind == "timed"})
        memory.append(
            {launch: number for launch, number, kind, why_not, _ in found if kind == "memory" and not why_not}
        )
        for launch in finished[place]:
            links.connect(first_of.setdefault(launch, place), place)
        latest = next((row for row in reversed(found) if row[2] != "memory"), None)
        if latest is not None and latest[4] != Outcome.OK.value:
            failed[place] = latest[:2]
        elif found and uncounted.issuperset(finished[place]):
            invalid[place] = next((why_not for _, _, kind, why_not, _ in reversed(found) if kind == "timed"), "")
    groups: dict[int, list[int]] = {}
    for place in range(len(cells)):
        groups.setdefault(links.root(place), []).append(place)

    def launches(places: Sequence[int], of: Sequence[Mapping[int, int]]) -> list[LaunchRecord]:
        """Return the launches of some cells, oldest first, each with what it has of just these cells."""
        holders: dict[int, dict[int, list[Cell]]] = {}
        for place in places:
            for launch, number in of[place].items():
                holders.setdefault(launch, {}).setdefault(number, []).append(cells[place])
        return [launch_with(launch, holders[launch]) for launch in sorted(holders)]

    def launch_with(launch: int, wanted: Mapping[int, Sequence[Cell]]) -> LaunchRecord:
        prepared = {
            cell: record_of(text)
            for number, text in read(statements.PREPARED_IN_LAUNCH, (launch,))
            for cell in wanted.get(number, ())
        }
        rows = [] if launch in uncounted else read(statements.VISITS_IN_LAUNCH, (launch,))
        visits = {
            (cell, block): Visit(calls, *map(from_blob, samples))
            for number, block, calls, *samples in rows
            for cell in wanted.get(number, ())
        }
        return launch_of(read(statements.LAUNCH, (launch,))[0], prepared, visits)

    def record_in(launch: int, number: int) -> CompileRecord:
        return record_of(read(statements.RECORD_IN_LAUNCH, (launch, number))[0][0])

    for places in groups.values():
        yield Related(
            [cells[place] for place in places],
            launches(places, finished),
            launches(places, memory),
            {cells[place]: record_in(*failed[place]) for place in places if place in failed},
            {cells[place]: invalid[place] for place in places if invalid.get(place)},
        )


def record_of(text: str) -> CompileRecord:
    """Read what preparing a cell gave, as the store keeps it."""
    return CompileRecord.from_json(from_text(text))


def launch_of(
    row: Sequence[Any], prepared: Mapping[Cell, CompileRecord], visits: Mapping[tuple[Cell, int], Visit]
) -> LaunchRecord:
    """Return a launch from its row (``statements.LAUNCH``) and what belongs to it. Keeps the visits of one state."""
    number, seed, protocol, invalid, seconds, text, should_be = row
    kept, state = of_one_state(visits, readings_of(text))
    usual = None if should_be is None else _reading(from_text(should_be))
    return LaunchRecord(number, int(seed), protocol, prepared, kept, invalid, seconds, state, usual)


def readings_of(text: str) -> list[tuple[Reading, Reading] | None]:
    """Read what the reference kernel said around each block of a launch, as the store keeps it."""
    return [pair and (_reading(pair[0]), _reading(pair[1])) for pair in from_text(text)]


def _reading(fields: Mapping[str, Any]) -> Reading:
    return Reading(fields["arithmetic_ns"], tuple(fields["crossing_ns"]))

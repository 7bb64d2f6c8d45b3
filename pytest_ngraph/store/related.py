"""Reading a whole run: its cells in groups that launches connect, so that only one group's samples are held at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord, Outcome, Reading, Visit
from pytest_ngraph.spec.evaluations import AGREEMENT, EVALUATION
from pytest_ngraph.spec.resources.power import (
    ABOVE_IDLE,
    OF_ENERGY,
    OF_LOAD,
    POWER,
    Power,
    of_one_probe,
    why_indistinct,
)
from pytest_ngraph.spec.states import is_slower, of_one_state
from pytest_ngraph.store import statements
from pytest_ngraph.store.codec import cell_to_text, from_blobs, from_text, to_text

# How many cells are looked up by one statement.
_CELLS_AT_ONCE = 100
_Read = Callable[[str, Sequence[object] | Mapping[str, object]], list[Any]]


@dataclass(frozen=True, slots=True)
class Related:
    """Cells that share launches, and all that counts for them, as ``Store.launches`` and ``Store.failed`` give it.

    ``finished`` are all of their timed launches. Those that do not count are without samples. ``invalid`` has the
    cells that were timed and have no launch that counts, with why the latest does not. ``passes`` has what untimed
    passes said of outputs, by their kind: the latest of each cell that said anything. ``power`` are the passes that
    measured what cells draw, ``unread`` what their latest pass says of each cell that it lacks, by metric.
    """

    cells: Sequence[Cell]
    finished: Sequence[LaunchRecord]
    memory: Sequence[LaunchRecord]
    failed: Mapping[Cell, CompileRecord]
    invalid: Mapping[Cell, str]
    passes: Mapping[str, Mapping[Cell, CompileRecord]] = field(default_factory=dict)
    power: Sequence[LaunchRecord] = ()
    unread: Mapping[Cell, Mapping[str, str]] = field(default_factory=dict)

    @property
    def timed(self) -> Sequence[LaunchRecord]:
        """Return the timed launches that count."""
        return [launch for launch in self.finished if not launch.invalid]


class _Links:
    """Which cells are connected by what they share, by the number of each cell (union-find, paths halved)."""

    def __init__(self, cells: Iterable[int]) -> None:
        self._above = {cell: cell for cell in cells}

    def root(self, cell: int) -> int:
        above = self._above
        while above[cell] != cell:
            above[cell] = cell = above[above[cell]]
        return cell

    def connect(self, one: int, other: int) -> None:
        self._above[self.root(other)] = self.root(one)


def read_related(
    read: _Read,
    evidence: Mapping[Cell, str],
    is_sound: Callable[[int], bool],
    samples_of: Callable[[int], list[Any] | None],
) -> Iterator[Related]:
    """Yield these cells in groups that timed launches connect. A cell without any is a group of its own.

    ``is_sound`` says whether a launch is what was written, ``samples_of`` gives the visits of one as rows
    (``statements.VISITS_IN_LAUNCH``), or None where it is not. What is not does not count.

    What counts is found first, for all cells. A launch that has finished never changes.
    """
    return _Run(read, evidence, is_sound, samples_of).groups(range(len(evidence)))


class _Run:
    """The cells of a run by their places, and which launches count for each."""

    def __init__(
        self,
        read: _Read,
        evidence: Mapping[Cell, str],
        is_sound: Callable[[int], bool],
        samples_of: Callable[[int], list[Any] | None],
    ) -> None:
        self._read, self._samples_of = read, samples_of
        self._cells = list(evidence)
        # The kind of each launch and why it does not count. For each cell its launches, oldest first, and by what
        # number the store knows it there.
        self._launches: dict[int, tuple[str, str]] = {}
        self._found: list[dict[int, int]] = [{} for _ in self._cells]
        wanted = [(key, cell_to_text(cell)) for cell, key in evidence.items()]
        for begin in range(0, len(wanted), _CELLS_AT_ONCE):
            some = to_text(wanted[begin : begin + _CELLS_AT_ONCE])
            for place, launch, number, kind, why_not in read(statements.LAUNCHES_OF_CELLS, {"wanted": some}):
                if launch not in self._launches:
                    self._launches[launch] = kind, why_not
                # Samples are looked at when they are read.
                if kind == "timed" or is_sound(launch):
                    self._found[begin + place][launch] = number

    def groups(self, places: Iterable[int]) -> Iterator[Related]:
        """Yield some of the cells in groups."""
        for connected in self._connected(places):
            yield from self._group(connected)

    def _connected(self, places: Iterable[int]) -> Iterable[list[int]]:
        links, first_of = _Links(places), dict[int, int]()
        groups: dict[int, list[int]] = {}
        for place in places:
            for launch in self._of_kind(place, "timed"):
                links.connect(first_of.setdefault(launch, place), place)
        for place in places:
            groups.setdefault(links.root(place), []).append(place)
        return groups.values()

    def _of_kind(self, place: int, kind: str) -> Iterator[int]:
        return (launch for launch in self._found[place] if self._launches[launch][0] == kind)

    def _group(self, places: Sequence[int]) -> Iterator[Related]:
        finished = self._records(places, "timed")
        damaged = [launch for launch, record in finished.items() if record is None]
        if damaged:
            # Without them fewer cells may be connected.
            for place in places:
                for launch in damaged:
                    self._found[place].pop(launch, None)
            yield from self.groups(places)
            return
        memory = self._records(places, "memory")
        failed: dict[Cell, CompileRecord] = {}
        invalid: dict[Cell, str] = {}
        for place in places:
            cell, timed = self._cells[place], list(self._of_kind(place, "timed"))
            latest = self._latest(place, finished)
            if latest is not None and latest.outcome is not Outcome.OK:
                failed[cell] = latest
            elif timed and all(self._launches[launch][1] for launch in timed):
                invalid[cell] = self._launches[timed[-1]][1]
        power = [one for one in self._records(places, POWER).values() if one is not None]
        yield Related(
            [self._cells[place] for place in places],
            [record for record in finished.values() if record is not None],
            [record for record in memory.values() if record is not None and not record.invalid],
            failed,
            invalid,
            {kind: self._passes(places, kind) for kind in (EVALUATION, AGREEMENT)},
            [one for one in power if not one.invalid],
            _unread([one for one in memory.values() if one is not None], power),
        )

    def _passes(self, places: Sequence[int], kind: str) -> Mapping[Cell, CompileRecord]:
        """Return what passes of a kind said of some cells, the latest of each that said anything."""
        found: dict[Cell, CompileRecord] = {}
        for record in self._records(places, kind).values():
            if record is not None and not record.invalid:
                found |= {cell: one for cell, one in record.prepared.items() if one.evaluation or one.agreed}
        return found

    def _latest(self, place: int, finished: Mapping[int, LaunchRecord | None]) -> CompileRecord | None:
        """Return what preparing a cell gave in its latest launch that was no untimed pass."""
        for launch in reversed(self._found[place]):
            kind, _ = self._launches[launch]
            if kind == "timed":
                record = finished[launch]
                assert record is not None  # those that are damaged are gone
                return record.prepared[self._cells[place]]
            if kind not in ("memory", EVALUATION, AGREEMENT, POWER):
                number = self._found[place][launch]
                return record_of(self._read(statements.RECORD_IN_LAUNCH, (launch, number))[0][0])
        return None

    def _records(self, places: Sequence[int], kind: str) -> dict[int, LaunchRecord | None]:
        """Return the launches of a kind of some cells, oldest first, each with what it has of just these cells.

        None is one that is damaged.
        """
        holders: dict[int, dict[int, list[Cell]]] = {}
        for place in places:
            for launch in self._of_kind(place, kind):
                number = self._found[place][launch]
                holders.setdefault(launch, {}).setdefault(number, []).append(self._cells[place])
        return {launch: self._record(launch, holders[launch]) for launch in sorted(holders)}

    def _record(self, launch: int, wanted: Mapping[int, Sequence[Cell]]) -> LaunchRecord | None:
        rows = self._samples_of(launch)
        if rows is None:
            return None
        prepared = {
            cell: record_of(text)
            for number, text in self._read(statements.PREPARED_IN_LAUNCH, (launch,))
            for cell in wanted.get(number, ())
        }
        _, why_not = self._launches[launch]
        row = self._read(statements.LAUNCH, (launch,))[0]
        visits, places = {}, {}
        for _, number, block, position, calls, *samples, _ in [] if why_not else rows:
            for cell in wanted.get(number, ()):
                visits[cell, block] = Visit(calls, *from_blobs(samples))
                places[cell, block] = position
        return launch_of(row, prepared, visits, places)


def _unread(memory: Sequence[LaunchRecord], power: Sequence[LaunchRecord]) -> dict[Cell, dict[str, str]]:
    """Return why untimed passes of each cell lack what they are for, oldest first, those that do not count among them.

    Of memory the latest that says it. Of power the latest, but for what is above idle, which all that count must have.
    """
    found: dict[Cell, dict[str, str]] = {}
    powered: dict[Cell, list[tuple[str, Power]]] = {}
    for launch in memory:
        for cell, record in launch.prepared.items():
            found.setdefault(cell, {}).update(record.unread)
    for launch in power:
        for cell, record in launch.prepared.items():
            if record.power is not None:
                powered.setdefault(cell, []).append((launch.invalid, record.power))
    for cell, passes in powered.items():
        found.setdefault(cell, {}).update(_without_power(passes))
    return found


def _without_power(passes: Sequence[tuple[str, Power]]) -> dict[str, str]:
    """Return why passes for power of a cell, each with why it does not count, lack their metrics."""
    why_not, last = passes[-1]
    found = dict(last.unread)
    counted = [power for invalid, power in passes if not invalid]
    of_last = [power for power, is_of in zip(counted, of_one_probe(counted), strict=True) if is_of]
    if why := why_indistinct(of_last):
        found.setdefault(ABOVE_IDLE, why)
    if why_not:
        found = {**dict.fromkeys((OF_LOAD, *OF_ENERGY), f"the latest pass does not count: {why_not}"), **found}
    return found


def record_of(text: str) -> CompileRecord:
    """Read what preparing a cell gave, as the store keeps it.

    An agreement that cannot be one is left out, so that it is measured again: there were such, of more scores than
    samples.
    """
    data = from_text(text)
    try:
        return CompileRecord.from_json(data)
    except ValueError:
        if data.get("agreed") is None:
            raise
        return CompileRecord.from_json({**data, "agreed": None})


def launch_of(
    row: Sequence[Any],
    prepared: Mapping[Cell, CompileRecord],
    visits: Mapping[tuple[Cell, int], Visit],
    places: Mapping[tuple[Cell, int], int],
) -> LaunchRecord:
    """Return a launch from its row (``statements.LAUNCH``) and what belongs to it. Keeps the visits of one state.

    ``visits`` are by cell and block, and so are their ``places`` in the order of the block.
    """
    number, seed, protocol, invalid, seconds, text, should_be, shared, run, unsteady_text, stolen_text, alone = row
    readings = readings_of(text)
    kept, state, torn = of_one_state(visits, readings)
    usual = None if should_be is None else _reading(from_text(should_be))
    shaken = {(block, position) for block, position in from_text(unsteady_text)}
    stolen = {(block, position): nanoseconds for block, position, nanoseconds in from_text(stolen_text)}
    unsteady = frozenset(place for place in kept if (place[1], places[place]) in shaken)
    for place in kept if stolen else ():
        if taken_ns := stolen.get((place[1], places[place])):
            kept[place] = replace(kept[place], stolen_ns=taken_ns)
    return LaunchRecord(
        number,
        int(seed),
        protocol,
        prepared,
        kept,
        invalid,
        seconds,
        state,
        usual,
        shared,
        run,
        unsteady,
        torn,
        _share(alone),
        is_slower(readings),
    )


def _share(value: object) -> float | None:
    """Return a share as a launch keeps it, None of what is none."""
    return value if isinstance(value, float) and 0 <= value <= 1 else None


def readings_of(text: str) -> list[tuple[Reading, Reading] | None]:
    """Read what the reference kernel said around each block of a launch, as the store keeps it."""
    return [pair and (_reading(pair[0]), _reading(pair[1])) for pair in from_text(text)]


def readings_to_text(pairs: Iterable[tuple[Reading, Reading] | None]) -> str:
    """Write what ``readings_of`` reads."""
    return to_text([pair and [asdict(reading) for reading in pair] for pair in pairs])


def _reading(fields: Mapping[str, Any]) -> Reading:
    return Reading(fields["arithmetic_ns"], tuple(fields["crossing_ns"]))

"""The sink of a launch: what is measured is committed as it arrives."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from pytest_ngraph.session.ledger import NO_TIME, Ledger, Listener
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, Reading, Visit
from pytest_ngraph.spec.states import is_slower
from pytest_ngraph.spec.states.steadiness import usual_crowding
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.worker.counting import Counting, Snapshots

_REPETITIONS = PROTOCOLS["paper"].visit_calls


class StoreSink:
    """Commits what a launch measures as it arrives, and reports to the listener how far it is.

    ``begin`` makes the launch in the store, with the state of the machine then, and returns its id.
    """

    def __init__(
        self,
        store: Store,
        begin: Callable[..., int],
        ledger: Ledger,
        listener: Listener,
        where: tuple[str, int, int],
        controls: frozenset[Cell],
        cpus: int,
        crowding: float | None,
    ) -> None:
        self._controls, self._cpus = controls, cpus
        self._store, self._begin, self._ledger = store, begin, ledger
        self._listener, self._where = listener, where
        self._launch_id = 0
        self._around: dict[str, Mapping[str, Any]] = {}
        self.call_seconds: dict[Cell, float] = {}
        self._counting = Counting(crowding=crowding)
        self._positions: dict[tuple[Cell, int], int] = {}

    def surroundings(self, when: str, snapshot: Mapping[str, Any]) -> None:
        """Take the state of the machine. With the first the launch begins in the store."""
        if when == "begun":
            self._launch_id = self._begin(environment=snapshot)
        self._around[when] = snapshot

    @property
    def snapshots(self) -> Snapshots:
        """Return the states of the machine when the launch began, before its first visit, and at its end."""
        begun = self._around["begun"]
        return begun, self._around.get("blocks", begun), self._around["ended"]

    def finish(self, invalid: str) -> None:
        """End the launch in the store. With a reason it does not count."""
        # By block and position, which one cell each has in a launch.
        unsteady = sorted((block, self._positions[cell, block]) for cell, block in self._counting.unsteady())
        taken = self._counting.stolen.items()
        stolen = sorted((block, self._positions[cell, block], nanoseconds) for (cell, block), nanoseconds in taken)
        seen, known = self._counting.seen(), self._ledger
        crowding, alone = seen.crowding, seen.alone(usual_crowding(known.fastest), seen.home)
        # Beside others over most readings glances look fast.
        fastest = None if is_slower(self._counting.readings) else seen.fastest
        kept = {"shared": self._counting.shared, "unsteady": unsteady, "stolen": stolen, "visits": len(self._positions)}
        ended = {**self._around["ended"], **kept, "crowding": crowding, "fastest": fastest, "alone": alone}
        if not invalid:
            known.crowding += filter(None, [crowding])
            known.fastest += filter(None, [fastest])
        self._store.finish_launch(self._launch_id, invalid=invalid, environment=ended, readings=self._counting.readings)

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        """Keep what preparing a cell gave. One without a time has failed."""
        self._store.add_prepared(self._launch_id, cell, self._ledger.keys[cell], record)
        self._counting.records[cell] = record
        if record.call_seconds is not None:
            self.call_seconds[cell] = record.call_seconds
            self._count_fixed(cell, record)
        if record.outcome in NO_TIME:
            self._ledger.failures[cell] = record

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        """Keep a visit, to be committed with its block."""
        self._store.add_visit(self._launch_id, cell, block, position, visit)
        self._positions[cell, block] = position
        self._ledger.tally.calls += visit.calls * len(visit.wall_ns)
        self._counting.visited(cell, block, visit)

    def block_done(self, block: int, readings: tuple[Reading, Reading] | None) -> None:
        """Commit the visits of a block."""
        self._counting.readings.append(readings)
        self._store.commit()

    def _count_fixed(self, cell: Cell, record: CompileRecord) -> None:
        """Count once what the fixed protocol would have used for a cell: its preparation and 100 calls."""
        if cell not in self._ledger.timed and cell not in self._controls:
            self._ledger.timed.add(cell)
            tally = self._ledger.tally
            tally.fixed_calls += _REPETITIONS
            seconds = (record.compile_seconds or 0.0) + (record.first_call_seconds or 0.0)
            tally.fixed_seconds += seconds + _REPETITIONS * (record.call_seconds or 0.0)

    def book_unstable(self) -> None:
        """Keep which cells turned out to have two speeds."""
        for cell, record in self._counting.unstable().items():
            self.prepared(cell, record)

    def why_invalid(self, mode: object) -> str:
        """Return why the launch must not count, or nothing. ``mode`` is the power mode of the first one that counts."""
        return self._counting.why_not(self.snapshots, self._cpus, mode)

    def progress(self, doing: str, done: int, total: int) -> None:
        """Report to the listener which launch does what."""
        self._listener.progress(*self._where, doing, done, total)

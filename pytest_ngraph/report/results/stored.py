"""What is stored as quantities read it: launches of a store where a running test has its own."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pytest_ngraph.quantities.compared import as_seen_in
from pytest_ngraph.quantities.quantity import CellFailed, NotStored, Quantity, Source
from pytest_ngraph.session.ledger import NO_TIME
from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord, Protocol
from pytest_ngraph.spec.evaluations import AGREEMENT, EVALUATION
from pytest_ngraph.spec.resources.power import Power, of_one_probe
from pytest_ngraph.spec.states import Fruitless, fruitless_of, same_state, state_words
from pytest_ngraph.stats.sequential import FEWEST_LAUNCHES
from pytest_ngraph.store.related import Related


class Stored(Source):
    """Gives quantities their records from one reading of the store. Measures nothing.

    Stands where a running test has its ``Measurer``, so that reports and claims read the same formulas.
    """

    closed = "the store has no further launch"

    def __init__(
        self,
        timed: Sequence[LaunchRecord],
        memory: Sequence[LaunchRecord],
        protocol: Protocol,
        cpus: int,
        passes: Mapping[str, Mapping[Cell, CompileRecord]] = MappingProxyType({}),
        power: Sequence[LaunchRecord] = (),
    ) -> None:
        self.protocol, self.cpus, self._passes = protocol, cpus, passes
        self._timed, self._memory, self._power = _by_cell(timed), _by_cell(memory), _by_cell(power)
        self._of_one: dict[Cell, list[LaunchRecord]] = {}
        # Most cells are in the same launches: by these, which of them are of one state.
        self._states: dict[tuple[int, ...], list[LaunchRecord]] = {}

    def records(self, quantity: Quantity) -> list[LaunchRecord]:
        """Return the launches that hold all cells of a quantity. Raise NotStored where there are none."""
        first = quantity.cells[0]
        if quantity.power:
            found = self._powered(quantity.cells)
        elif quantity.memory:
            found = self._memory.get(first, [])
        elif len(quantity.cells) == 1:
            # Most metrics are about one cell alone.
            if first not in self._of_one:
                self._of_one[first] = self._of_one_state(quantity.cells)
            found = self._of_one[first]
        else:
            found = self._of_one_state(quantity.cells)
        if not found:
            raise NotStored(quantity.label)
        return found

    def evaluation(self, cell: Cell) -> CompileRecord:
        """Return what a model's own evaluation gave of a cell. Raise NotStored where it was not asked."""
        return self._passed(EVALUATION, cell)

    def agreement(self, cell: Cell, dense: Cell, samples: int) -> CompileRecord:
        """Return how well a cell agreed with the dense one, of however many samples. Raise NotStored without."""
        return self._passed(AGREEMENT, cell)

    def _passed(self, kind: str, cell: Cell) -> CompileRecord:
        found = self._passes.get(kind, {}).get(cell)
        if found is None:
            raise NotStored(f"{kind} of {cell.label}")
        return found

    def holding(self, quantity: Quantity) -> list[LaunchRecord]:
        """Return the launches that hold all cells of a quantity, in whatever state of the machine."""
        return [] if quantity.kind != "timed" else self._holding(quantity.cells)

    def _powered(self, cells: Sequence[Cell]) -> list[LaunchRecord]:
        """Return the passes for power that hold these cells, of the probe that the last one was read by."""
        held = [one for one in self._power.get(cells[0], []) if all(cell in one.prepared for cell in cells)]
        counts = of_one_probe([one.prepared[cells[0]].power or Power() for one in held])
        return [one for one, does in zip(held, counts, strict=True) if does]

    def _holding(self, cells: Sequence[Cell]) -> list[LaunchRecord]:
        return [record for record in self._timed.get(cells[0], []) if record.holds(cells)]

    def _of_one_state(self, cells: Sequence[Cell]) -> list[LaunchRecord]:
        holding = self._holding(cells)
        place = tuple(map(id, holding))
        if place not in self._states:
            self._states[place] = same_state(holding)
        return self._states[place]

    def records_of(self, cell: Cell) -> list[LaunchRecord]:
        """Return the launches of one state of the machine that hold a cell."""
        return self._of_one_state([cell])

    def latest(self, cell: Cell) -> CompileRecord:
        """Return what ``known`` does. Raise NotStored where there is none."""
        record = self.known(cell)
        if record is None:
            raise NotStored(cell.label)
        return record

    def known(self, cell: Cell) -> CompileRecord | None:
        """Return what the latest launch of a cell said, and how outputs agreed over the first look, or None."""
        records = self._timed.get(cell)
        if not records:
            return None
        return as_seen_in(records[-1].prepared[cell], [record.prepared[cell] for record in records[:FEWEST_LAUNCHES]])

    def state_of(self, cell: Cell) -> str:
        """Write in which state of the machine the launches of a cell that count were, empty where it reported none."""
        held = self._of_one_state([cell])
        return state_words(held[0].home, self._timed[cell][0].usual) if held and held[0].home is not None else ""

    def has(self, cell: Cell, field: str) -> bool:
        """Return whether any launch of a cell has this field of its record."""
        return any(getattr(record.prepared[cell], field) is not None for record in self._timed.get(cell, ()))


class Judged(Stored):
    """The same for claims, which are judged by it as a test run judges them that measures nothing.

    So a state of the machine that is not the usual one counts only where a run would have judged in it, cells whose
    latest preparation failed have no time, and launch after launch that did not count makes a claim invalid.
    """

    def __init__(self, related: Related, protocol: Protocol, cpus: int, most_launches: int) -> None:
        super().__init__(related.timed, related.memory, protocol, cpus, related.passes, related.power)
        self.most_launches = most_launches
        self._finished = related.finished
        self._failed: Mapping[Cell, CompileRecord] = {
            cell: record for cell, record in related.failed.items() if record.outcome in NO_TIME
        }

    def records(self, quantity: Quantity) -> list[LaunchRecord]:
        """Return the launches that hold all cells of a quantity. Raise CellFailed or NotStored where there are none."""
        for cell in quantity.cells:
            if cell in self._failed:
                raise CellFailed(cell, self._failed[cell])
        if self.holding(quantity) or self.fruitless(quantity).is_given_up:
            return self._of_one_state(quantity.cells)
        return super().records(quantity)

    def _of_one_state(self, cells: Sequence[Cell]) -> list[LaunchRecord]:
        return same_state(self._holding(cells), waits=True)

    def fruitless(self, quantity: Quantity) -> Fruitless:
        """Return which launches served nothing, and whether so many did not that no further one was tried."""
        return Fruitless() if quantity.kind != "timed" else fruitless_of(self._finished, quantity.cells)


def _by_cell(records: Sequence[LaunchRecord]) -> dict[Cell, list[LaunchRecord]]:
    """Index launches by the cells they prepared."""
    index: dict[Cell, list[LaunchRecord]] = {}
    for record in records:
        for cell in record.prepared:
            index.setdefault(cell, []).append(record)
    return index

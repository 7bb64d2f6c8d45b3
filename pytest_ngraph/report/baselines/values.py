"""What a saved baseline holds: metrics of cells and sweeps as means of launches, by the sessions that measured them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ngraph.machine.kinship import Kinship, Machine
from pytest_ngraph.quantities.derived import Derived, derived_of, together
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, NotStored, Quantity, Source
from pytest_ngraph.report.baselines.saved import SavedCell, SavedMetric, SavedSweep, key_of, sweep_key
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import Cell, LaunchRecord, Protocol, digest
from pytest_ngraph.spec.states import name_of
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.sessions import LEVEL, Mean, mean_of
from pytest_ngraph.store.rows import RunRow
from pytest_ngraph.store.sqlite import Store

# What is kept of a cell.
METRICS_KEPT = ("latency", "speedup", "compile_seconds", "peak_memory_bytes")


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric by the launches that count: its estimate, and their mean by sessions."""

    quantity: Quantity
    estimate: Estimate
    mean: Mean
    records: Sequence[LaunchRecord]

    @property
    def saved(self) -> SavedMetric:
        """Return what a baseline keeps of it."""
        return SavedMetric(self.estimate.value, self.estimate.low, self.estimate.high, self.mean)


@dataclass(frozen=True, slots=True)
class Kept:
    """What a baseline keeps of cells that share launches, and what that was made of.

    ``other_machines`` are the machines of launches that were left out as they were not of the one asked for.
    """

    cells: Mapping[Cell, tuple[SavedCell, Mapping[str, Measured]]]
    sweeps: Sequence[tuple[Derived, SavedSweep, Measured]]
    other_machines: Collection[str]


def sessions_of(rows: Sequence[tuple[LaunchRecord, LaunchValue]]) -> dict[int, list[LaunchValue]]:
    """Return the values of launches by the run that measured them: a session."""
    found: dict[int, list[LaunchValue]] = {}
    for record, value in rows:
        found.setdefault(record.run, []).append(value)
    return found


def _measured(quantity: Quantity) -> Measured | None:
    """Return what two launches or more say of a quantity, or None for fewer."""
    try:
        rows = quantity.rows()
    except NotStored:
        return None
    sessions = sessions_of(rows)
    values = [value for session in sessions.values() for value in session]
    if len(values) < 2:
        return None
    records = [record for record, _ in rows]
    return Measured(quantity, quantity.present(values, LEVEL), mean_of(list(sessions.values())), records)


def _of_cell(source: Stored, cell: Cell, baseline: Cell | None, *, has_memory: bool) -> dict[str, Measured]:
    measurement = Measurement(source, cell, baseline or cell)
    found = {}
    for name in METRICS_KEPT:
        if (name == "speedup" and baseline is None) or (name == "peak_memory_bytes" and not has_memory):
            continue
        if (one := _measured(measurement.quantity(name))) is not None:
            found[name] = one
    return found


def kept_of(
    store: Store,
    cells: Mapping[Cell, str],
    baselines: Mapping[Cell, Cell],
    protocol: Protocol,
    rootdir: Path,
    machine_of: Callable[[str], Machine],
) -> Iterator[Kept]:
    """Yield what a baseline keeps of cells, given with their evidence, by the groups that share launches.

    Cells of another side, second processes and cells without a time are left out, and so are launches of another
    machine than the device's, or of the same one set otherwise: a store may have been copied, or a governor changed.
    """
    runs = {run.id: run for run in store.runs()}
    for related in store.related(cells):
        here = _Here(runs, related.cells[0].device, machine_of(related.cells[0].device))
        timed, memory = here.only(related.timed), here.only(related.memory)
        source = Stored(timed, memory, protocol, 1)
        mine = [cell for cell in related.cells if not cell.side and not cell.replica and cell not in related.failed]
        kept = {}
        for cell in mine:
            if found := _of_cell(source, cell, baselines.get(cell), has_memory=bool(memory)):
                kept[cell] = _saved_cell(source, cell, found, cells, baselines, rootdir), found
        sweeps = []
        for one in _derived(
            source, [{cell for cell in mine if cell in record.prepared} for record in timed], baselines
        ):
            if all(cell in cells for cell in one.quantity.cells) and (measured := _measured(one.quantity)) is not None:
                sweeps.append((one, _saved_sweep(source, one, measured, cells, rootdir), measured))
        yield Kept(kept, sweeps, here.other_machines)


class _Here:
    """Which launches of a device are of one machine. ``other_machines`` are the machines of those that are not."""

    def __init__(self, runs: Mapping[int, RunRow], device: str, machine: Machine) -> None:
        self._runs, self._device, self._machine = runs, device, machine
        self._is_here: dict[int, bool] = {}
        self.other_machines: set[str] = set()

    def only(self, records: Iterable[LaunchRecord]) -> list[LaunchRecord]:
        """Return those of this machine."""
        return [record for record in records if self._of(record.run)]

    def _of(self, run: int) -> bool:
        if run not in self._is_here:
            theirs = Machine.of(self._runs[run].on(self._device).environment)
            self._is_here[run] = theirs.kinship(self._machine) is Kinship.SAME
            if not self._is_here[run]:
                self.other_machines.add(theirs.name)
        return self._is_here[run]


def _derived(source: Source, held: Iterable[set[Cell]], baselines: Mapping[Cell, Cell]) -> Iterable[Derived]:
    """Return what is made of several cells that launches hold together, each once."""
    found = (one for cells in together(held) for one in derived_of(source, cells, baselines))
    return {(one.quantity.metric.name, one.quantity.cells): one for one in found}.values()


def _saved_cell(
    source: Stored,
    cell: Cell,
    found: Mapping[str, Measured],
    cells: Mapping[Cell, str],
    baselines: Mapping[Cell, Cell],
    rootdir: Path,
) -> SavedCell:
    baseline = baselines.get(cell)
    threads, state = _circumstances(source, cell, source.records_of(cell))
    return SavedCell(
        key=key_of(cell, rootdir),
        label=cell.label,
        device=cell.device,
        evidence=cells[cell],
        baseline=cells.get(baseline, "") if baseline is not None else "",
        threads=threads,
        state=state,
        metrics={name: one.saved for name, one in found.items()},
    )


def _saved_sweep(source: Stored, one: Derived, found: Measured, cells: Mapping[Cell, str], rootdir: Path) -> SavedSweep:
    quantity = one.quantity
    keys = tuple(key_of(cell, rootdir) for cell in quantity.cells)
    threads, state = _circumstances(source, quantity.subject, found.records)
    return SavedSweep(
        key=sweep_key(quantity.metric.name, keys),
        metric=quantity.metric.name,
        label=quantity.label,
        device=quantity.subject.device,
        cells=keys,
        evidence=digest([cells[cell] for cell in quantity.cells]),
        threads=threads,
        state=state,
        scale=one.scale(),
        saved=found.saved,
    )


def _circumstances(source: Stored, cell: Cell, records: Sequence[LaunchRecord]) -> tuple[str, str]:
    """Return how many threads a cell's runtime had, and in which state the machine was, each empty where not known."""
    record, homes = source.known(cell), [one.home for one in records if one.home is not None]
    threads = dict(record.placement).get("threads", "") if record is not None else ""
    return threads, name_of(homes[0]) if homes else ""

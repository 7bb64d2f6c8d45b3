"""What a saved baseline holds of cells: their metrics as means of launches, by the sessions that measured them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, NotStored, Quantity
from pytest_ngraph.report.baselines.file import SavedCell, SavedMetric, key_of
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import Cell, LaunchRecord, Protocol
from pytest_ngraph.spec.states import name_of
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.sessions import LEVEL, Mean, mean_of
from pytest_ngraph.store.sqlite import Store

# What is kept of a cell, each with whether more of it is better.
METRICS_KEPT: Mapping[str, bool] = {
    "latency": False, "speedup": True, "compile_seconds": False, "peak_memory_bytes": False,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Measured:
    """A metric of a cell by the launches that count: its estimate, the mean by sessions, and the means of these."""

    quantity: Quantity
    estimate: Estimate
    mean: Mean
    of_sessions: Mapping[int, float]
    records: Sequence[LaunchRecord]


def sessions_of(rows: Sequence[tuple[LaunchRecord, LaunchValue]]) -> dict[int, list[LaunchValue]]:
    """Return the values of launches by the run that measured them: a session."""
    found: dict[int, list[LaunchValue]] = {}
    for record, value in rows:
        found.setdefault(record.run, []).append(value)
    return found


def measured(source: Stored, cell: Cell, baseline: Cell | None, *, has_memory: bool) -> Iterator[Measured]:
    """Yield the metrics of a cell that two launches or more say something of."""
    measurement = Measurement(source, cell, baseline or cell)
    for name in METRICS_KEPT:
        if (name == "speedup" and baseline is None) or (name == "peak_memory_bytes" and not has_memory):
            continue
        quantity = measurement.quantity(name)
        try:
            rows = quantity.rows()
        except NotStored:
            continue
        sessions = sessions_of(rows)
        values = [value for session in sessions.values() for value in session]
        if len(values) < 2:
            continue
        means = {run: math.fsum(one.value for one in session) / len(session) for run, session in sessions.items()}
        records = [record for record, _ in rows]
        yield Measured(quantity, quantity.present(values, LEVEL), mean_of(list(sessions.values())), means, records)


def saved_cells(
    store: Store,
    cells: Mapping[Cell, str],
    baselines: Mapping[Cell, Cell],
    protocol: Protocol,
    rootdir: Path,
) -> Iterator[tuple[Cell, SavedCell, Mapping[str, Measured]]]:
    """Yield what a baseline keeps of cells, given with their evidence, and what it was made of.

    Cells of another side, second processes and cells without a time are left out.
    """
    for related in store.related(cells):
        source = Stored(related.timed, related.memory, protocol, 1)
        for cell in related.cells:
            if cell.side or cell.replica or cell in related.failed:
                continue
            baseline = baselines.get(cell)
            found = {
                one.quantity.metric.name: one
                for one in measured(source, cell, baseline, has_memory=bool(related.memory))
            }
            if not found:
                continue
            record, homes = source.known(cell), [launch.home for launch in source.records_of(cell) if launch.home]
            threads = dict(record.placement).get("threads", "") if record is not None else ""
            yield (
                cell,
                SavedCell(
                    key=key_of(cell, rootdir),
                    label=cell.label,
                    device=cell.device,
                    evidence=cells[cell],
                    baseline=cells.get(baseline, "") if baseline is not None else "",
                    threads=threads,
                    state=name_of(homes[0]) if homes else "",
                    metrics={
                        name: SavedMetric(one.estimate.value, one.estimate.low, one.estimate.high, one.mean)
                        for name, one in found.items()
                    },
                ),
                found,
            )

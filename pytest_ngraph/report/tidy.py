"""Tidy rows: one per cell and metric, computed from the store alone, for tables and exports."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pytest_ngraph.conditions import same_state
from pytest_ngraph.estimates import Estimate, NotStored, Quantity, Source
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.spec import PROTOCOLS, Cell, CompileRecord, LaunchRecord, Protocol
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.sweeps import BatchSweep, Measurement

CELL_METRICS = (
    "throughput", "latency", "speedup", "cpu_percent", "compile_seconds", "load_seconds", "export_seconds",
    "first_call_seconds", "warmup_seconds", "tuning_seconds", "tuning_trials", "peak_memory_bytes", "model_bytes",
)  # fmt: skip
SWEEP_METRICS = ("rtr", "ase", "bsr")


@dataclass(frozen=True, slots=True)
class CellReport:
    """A cell of a run with its estimates by metric, and what became of it where it has no time."""

    cell: Cell
    baseline: Cell | None
    estimates: Mapping[str, Estimate]
    failure: CompileRecord | None
    record: CompileRecord | None


class Stored(Source):
    """Gives quantities their records from one reading of the store; measures nothing.

    Stands where a running test has its ``Measurer``, so that reports and claims read the same formulas.
    """

    def __init__(self, store: Store, cells: Mapping[Cell, str], protocol: Protocol, cpus: int) -> None:
        self._timed = _by_cell(store.launches(cells))
        self._memory = _by_cell(store.launches(cells, kind="memory"))
        self.error_control, self.cpus = protocol.error_control, cpus

    def records(self, quantity: Quantity) -> list[LaunchRecord]:
        """Return the launches that hold all cells of a quantity; raise NotStored where there are none."""
        first = quantity.cells[0]
        if quantity.memory:
            found = self._memory.get(first, [])
        else:
            found = same_state([record for record in self._timed.get(first, []) if record.holds(quantity.cells)])
        if not found:
            raise NotStored(quantity.label)
        return found

    def latest(self, cell: Cell) -> CompileRecord:
        """Return what the latest launch of a cell said; raise NotStored where there is none."""
        record = self.known(cell)
        if record is None:
            raise NotStored(cell.label)
        return record

    def known(self, cell: Cell) -> CompileRecord | None:
        """Return what the latest launch of a cell said, or None."""
        records = self._timed.get(cell)
        return records[-1].prepared[cell] if records else None


def _by_cell(records: Sequence[LaunchRecord]) -> dict[Cell, list[LaunchRecord]]:
    """Index launches by the cells they prepared."""
    index: dict[Cell, list[LaunchRecord]] = {}
    for record in records:
        for cell in record.prepared:
            index.setdefault(cell, []).append(record)
    return index


def cell_reports(store: Store, run_id: int) -> list[CellReport]:
    """Return every cell that a run used, baselines included, with all estimates its launches allow."""
    run = next(run for run in store.runs() if run.id == run_id)
    protocol = PROTOCOLS.get(run.protocol, PROTOCOLS["gate"])
    cpus = len(run.environment.get("affinity", [0]))
    return reports_of(store, dict(store.cells(run_id)), store.baselines(run_id), protocol, cpus)


def reports_of(
    store: Store, cells: Mapping[Cell, str], baselines: Mapping[Cell, Cell], protocol: Protocol, cpus: int
) -> list[CellReport]:
    """Return these cells, each given with its evidence and its baseline, with all estimates their launches allow."""
    source = Stored(store, cells, protocol, cpus)
    failures = store.failed(cells)
    reports = []
    for cell in cells:
        baseline = baselines.get(cell)
        if cell.replica and baseline is None:
            # A second process that controls the baseline is not a result.
            continue
        estimates: dict[str, Estimate] = {}
        measurement = Measurement(source, cell, baseline or cell)
        for metric in CELL_METRICS:
            if metric != "speedup" or baseline is not None:
                _add(estimates, measurement.quantity(metric))
        if cell.workload.batch > 1:
            _add_sweep(estimates, source, cell, baseline, cells)
        reports.append(CellReport(cell, baseline, estimates, failures.get(cell), source.known(cell)))
    return reports


def _add(estimates: dict[str, Estimate], quantity: Quantity) -> None:
    try:
        estimates[quantity.metric.name] = quantity.estimate()
    except NotStored:
        return


def _add_sweep(
    estimates: dict[str, Estimate],
    source: Stored,
    cell: Cell,
    baseline: Cell | None,
    cells: Mapping[Cell, str],
) -> None:
    one = replace(cell, workload=replace(cell.workload, batch=1))
    if one not in cells:
        return
    first = replace(baseline, workload=one.workload) if baseline is not None else one
    sweep = BatchSweep(
        source,
        {
            1: Measurement(source, one, first),
            cell.workload.batch: Measurement(source, cell, baseline or cell),
        },
        (cell.workload.batch,),
    )
    for metric in SWEEP_METRICS:
        if metric != "bsr" or (baseline is not None and first in cells):
            _add(estimates, sweep.quantity(metric, cell.workload.batch))


def tidy_rows(reports: Sequence[CellReport]) -> Iterator[dict[str, Any]]:
    """Yield one row per cell and metric, units named in the columns; a cell without a time has one row that says so."""
    for report in reports:
        workload = report.cell.workload
        common: dict[str, Any] = {
            "device": report.cell.device,
            "compiler": str(report.cell.compiler),
            "replica": report.cell.replica,
            "rebuild": report.cell.rebuild,
            "model": workload.model.text,
            "batch": workload.batch,
            "depth": workload.depth,
            "width": workload.width,
            "image_size [px]": workload.image_size,
            "precision": workload.precision,
            "scenario": workload.scenario,
            "baseline": str(report.baseline.compiler) if report.baseline is not None else None,
            "outcome": _outcome(report),
            "placement": _placement(report.record),
        }
        numbers = {"metric": None, "unit": None, "value": None, "low": None, "high": None, "launches": None}
        if not report.estimates:
            yield {**common, **numbers}
        for name, estimate in report.estimates.items():
            yield {
                **common,
                "metric": name,
                "unit": METRICS[name].unit,
                "value": estimate.value,
                "low": _finite(estimate.low),
                "high": _finite(estimate.high),
                "launches": estimate.launches,
            }


def _outcome(report: CellReport) -> str | None:
    record = report.failure or report.record
    return None if record is None else record.outcome.value


def _finite(value: float) -> float | None:
    """An interval over one launch is unbounded: null says so, infinity would break JSON."""
    return value if math.isfinite(value) else None


def _placement(record: CompileRecord | None) -> str | None:
    return None if record is None else " ".join(f"{key}={value}" for key, value in record.placement)

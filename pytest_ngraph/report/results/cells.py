"""Tidy rows: one per cell and metric, computed from the store alone, for tables and exports."""

from __future__ import annotations

import gc
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_ngraph.axes import AXES, REFERENCES
from pytest_ngraph.load.neighbours import NONE
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities import compared
from pytest_ngraph.quantities.accuracy import accuracies, agreements
from pytest_ngraph.quantities.comparisons import change
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.power import POWER_METRICS
from pytest_ngraph.quantities.quantity import Estimate, NotStored, Quantity
from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep, SequenceSweep
from pytest_ngraph.report.at_once import Connected, Found, estimates_at_once
from pytest_ngraph.report.results.frictions import with_friction
from pytest_ngraph.report.results.reversals import Contest, contests_of
from pytest_ngraph.report.results.spreads import Spread, spread_of
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import Cell, CompileRecord, Protocol, protocol_of
from pytest_ngraph.spec.evaluations import AGREEMENT, EVALUATION
from pytest_ngraph.spec.resources.peaks import METRIC_OF
from pytest_ngraph.spec.sides import other_sides
from pytest_ngraph.store.related import Related
from pytest_ngraph.store.rows import Origin, RunRow
from pytest_ngraph.store.sqlite import Store

# Each with the field of a record that it is made of, if of one: where no launch has that there is nothing to look for.
CELL_METRICS: Mapping[str, str] = {
    "throughput": "", "latency": "", "time_to_first_token": "", "time_per_token": "", "tokens_per_second": "",
    "speedup": "", "cpu_percent": "", "cpu_reduction_percent": "",
    "compile_seconds": "compile_seconds", "load_seconds": "compile_seconds", "export_seconds": "export_seconds",
    "first_call_seconds": "first_call_seconds", "warmup_seconds": "slow_start_seconds",
    "new_shape_seconds": "new_shape_seconds",
    "tuning_seconds": "tuning_seconds", "tuning_trials": "tuning_trials", "peak_memory_bytes": "",
    "model_bytes": "model_bytes", "parameters": "achieved", "parameters_removed_percent": "achieved",
    "macs": "achieved", "macs_removed_percent": "achieved", "sparsity_percent": "achieved",
    "layers_touched_percent": "achieved", "packed_bytes": "achieved", "sparse_bytes": "achieved",
    **dict.fromkeys(METRIC_OF.values(), ""), **dict.fromkeys(POWER_METRICS, ""),
}  # fmt: skip
_OF_MEMORY = frozenset(METRIC_OF.values())
_RELATIVE = ("speedup", "cpu_reduction_percent")
# Of cells that generate tokens only.
OF_TOKENS = ("time_to_first_token", "time_per_token", "tokens_per_second")
SWEEP_METRICS = ("rtr", "ase", "bsr")
# What is read before estimates are made of it.
_SAMPLES_AT_ONCE = 20_000
# Those of a whole stack stand with its deepest cell.
STACK_METRICS = ("slope", "retention")


@dataclass(frozen=True, slots=True)
class CellReport:
    """A cell of a run with its estimates by metric, and what became of it where it has no time.

    ``invalid`` is why its latest launch does not count, where none does. ``contests`` are the pairs with another model
    that seem to change places when compiled, if this one was the faster. ``state`` is that of the machine in words,
    ``spread`` how the times of its launches are distributed. ``unread`` says why metrics of passes of their own are not
    among the estimates.
    """

    cell: Cell
    baseline: Cell | None
    estimates: Mapping[str, Estimate]
    failure: CompileRecord | None
    record: CompileRecord | None
    contests: Sequence[Contest] = ()
    invalid: str = ""
    state: str = ""
    spread: Spread | None = None
    unread: Mapping[str, str] = field(default_factory=dict)

    @property
    def outcome(self) -> str:
        """Return what became of the cell in a word: ``invalid`` where no launch counts, nothing where it has none."""
        record = self.failure or self.record
        return str(record.outcome) if record is not None else "invalid" if self.invalid else ""


def cell_reports(store: Store, run_id: int) -> list[CellReport]:
    """Return every cell that a run used, baselines included, with all estimates its launches allow."""
    run = next(run for run in store.runs() if run.id == run_id)
    protocol = protocol_of(run.protocol)
    return reports_of(store, dict(store.cells(run_id)), store.baselines(run_id), protocol, cpus_of(run))


def cpus_of(run: RunRow) -> Callable[[str], int]:
    """Return how many CPUs a run's devices had, by name."""
    return lambda device: len(run.on(device).environment.get("affinity", [0]))


def reports_of(
    store: Store,
    cells: Mapping[Cell, str],
    baselines: Mapping[Cell, Cell],
    protocol: Protocol,
    cpus: Callable[[str], int] | int,
) -> list[CellReport]:
    """Return these cells, each given with its evidence and its baseline, with all estimates their launches allow.

    ``cpus`` is the size of a device's CPU set, by its name or for all. Cells are read in the groups that share
    launches, so that the samples of a few groups at a time are held.
    """
    reports: dict[Cell, CellReport] = {}
    with uncollected():
        for some in _few(store.related(cells)):
            groups = [
                Connected(each.cells, each.timed, cpus if isinstance(cpus, int) else cpus(each.cells[0].device))
                for each in some
            ]
            made = estimates_at_once(groups, baselines, protocol)
            for related, group in zip(some, groups, strict=True):
                source = Stored(group.launches, related.memory, protocol, group.cpus, power=related.power)
                reports.update((report.cell, report) for report in _reports(source, related, made, cells, baselines))
    return with_friction([reports[cell] for cell in cells if cell in reports])


def _few(groups: Iterable[Related]) -> Iterator[list[Related]]:
    """Yield groups together as long as they have few samples."""
    some: list[Related] = []
    samples = 0
    for related in groups:
        some.append(related)
        samples += sum(len(visit.wall_ns) for launch in related.finished for visit in launch.visits.values())
        if samples >= _SAMPLES_AT_ONCE:
            yield some
            some, samples = [], 0
    if some:
        yield some


@contextmanager
def uncollected() -> Iterator[None]:
    """Keep the collector of cycles away: there are none, and it would look through all rows over and over again."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _reports(
    source: Stored, related: Related, made: Found, cells: Mapping[Cell, str], baselines: Mapping[Cell, Cell]
) -> Iterator[CellReport]:
    stacks, contests = _stacks(related.cells), contests_of(source, related.cells, baselines)
    lengths = _lengths(related.cells)
    others = other_sides(related.cells)
    for cell in related.cells:
        baseline = baselines.get(cell)
        if cell.replica and baseline is None:
            # A second process that controls the baseline is not a result.
            continue
        estimates: dict[str, Estimate] = {}
        known = made[cell]
        other = others.get(cell)
        measurement = Measurement(source, cell, baseline or cell, other)
        is_loaded = rate_of(cell.workload.scenario) is not None
        has_power = not is_loaded and cell.workload.neighbour == NONE
        if other is not None:
            _add(estimates, change(measurement))
        for metric, made_by in CELL_METRICS.items():
            if metric in known:
                _keep(estimates, known[metric])
            elif (
                (metric in _OF_MEMORY and not related.memory)
                or (metric in POWER_METRICS and not (related.power and has_power))
                or (metric in OF_TOKENS and cell.workload.decode is None)
            ):
                continue
            elif (metric not in _RELATIVE or baseline is not None) and (not made_by or source.has(cell, made_by)):
                _add(estimates, measurement.quantity(metric))
        for kind, made_of in ((EVALUATION, accuracies), (AGREEMENT, agreements)):
            estimates |= made_of(related.passes.get(kind, {}).get(cell))
        if cell.workload.batch > 1 and not is_loaded:
            _add_sweep(estimates, source, cell, baseline, cells, known)
        if cell in stacks and baseline is not None and not is_loaded:
            _add_stack(estimates, source, stacks[cell], baselines)
        if cell in lengths and not is_loaded:
            each = {one.workload.sequence or 1: Measurement(source, one, one) for one in lengths[cell]}
            _add(estimates, SequenceSweep(source, each, tuple(each)).quantity("sequence_scaling"))
        failure, record, invalid = related.failed.get(cell), source.known(cell), related.invalid.get(cell, "")
        state = source.state_of(cell)
        spread = spread_of(source.records_of(cell), cell)
        unread = {name: why for name, why in related.unread.get(cell, {}).items() if name not in estimates}
        yield CellReport(
            cell, baseline, estimates, failure, record, contests.get(cell, ()), invalid, state, spread, unread
        )


def _keep(estimates: dict[str, Estimate], estimate: Estimate | None) -> None:
    if estimate is not None:
        estimates[estimate.metric] = estimate


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
    known: Mapping[str, Estimate | None],
) -> None:
    if known.keys() >= set(SWEEP_METRICS if baseline is not None else SWEEP_METRICS[:2]):
        for metric in SWEEP_METRICS:
            _keep(estimates, known.get(metric))
        return
    one = replace(cell, workload=replace(cell.workload, batch=1))
    if one not in cells:
        return
    first = replace(baseline, workload=one.workload) if baseline is not None else one
    at = Measurement(source, cell, baseline or cell)
    sweep = BatchSweep(source, {1: Measurement(source, one, first), cell.workload.batch: at}, (cell.workload.batch,))
    for metric in SWEEP_METRICS:
        if metric in known:
            _keep(estimates, known[metric])
        elif metric != "bsr" or (baseline is not None and first in cells):
            _add(estimates, sweep.quantity(metric, cell.workload.batch))


def _stacks(cells: Sequence[Cell]) -> dict[Cell, list[Cell]]:
    """Return the cells that differ in depth only, from a single block on, under the deepest of each such stack."""
    stacks: dict[Cell, list[Cell]] = {}
    for cell in cells:
        if cell.workload.depth is not None:
            stacks.setdefault(replace(cell, workload=replace(cell.workload, depth=None)), []).append(cell)
    ordered = (sorted(stack, key=lambda cell: cell.workload.depth or 0) for stack in stacks.values())
    return {stack[-1]: stack for stack in ordered if len(stack) > 1 and stack[0].workload.depth == 1}


def _lengths(cells: Sequence[Cell]) -> dict[Cell, list[Cell]]:
    """Return the cells that differ in the length of their sequences only, under the longest of each such lot."""
    lots: dict[Cell, list[Cell]] = {}
    for cell in cells:
        if cell.workload.sequence is not None:
            lots.setdefault(replace(cell, workload=replace(cell.workload, sequence=None)), []).append(cell)
    ordered = (sorted(lot, key=lambda cell: cell.workload.sequence or 0) for lot in lots.values())
    return {lot[-1]: lot for lot in ordered if len(lot) > 1}


def _add_stack(
    estimates: dict[str, Estimate], source: Stored, stack: Sequence[Cell], baselines: Mapping[Cell, Cell]
) -> None:
    if not all(cell in baselines for cell in stack):
        return
    depths = {cell.workload.depth or 1: Measurement(source, cell, baselines[cell]) for cell in stack}
    sweep = DepthSweep(source, depths, tuple(depths))
    for metric in STACK_METRICS:
        _add(estimates, sweep.quantity(metric))


def tidy_rows(reports: Sequence[CellReport], origin: Origin | None = None) -> Iterator[dict[str, Any]]:
    """Yield one row per cell and metric, units named in the columns. A cell without a time has one row that says so."""
    made_from = {"run": origin.run if origin else None, "digest": origin.digest if origin else None}
    for report in reports:
        workload = report.cell.workload
        common: dict[str, Any] = {
            "device": report.cell.device,
            "compiler": str(report.cell.compiler),
            "replica": report.cell.replica,
            "rebuild": report.cell.rebuild,
            "side": report.cell.side or None,
            **{
                row.column: workload.model.text if row.values == REFERENCES else workload.value(row.name)
                for row in AXES
            },
            "baseline": str(report.baseline.compiler) if report.baseline is not None else None,
            "outcome": report.outcome or None,
            "placement": _placement(report.record),
            **compared.columns(report.failure or report.record),
            "state": report.state or None,
        }
        numbers = {"metric": None, "unit": None, "value": None, "low": None, "high": None, "launches": None}
        if not report.estimates:
            yield {**common, **numbers, **made_from}
        for name, estimate in report.estimates.items():
            # Of one launch a logarithm has 0 to infinity.
            bounded = math.isfinite(estimate.low) and math.isfinite(estimate.high)
            yield {
                **common,
                "metric": name,
                "unit": METRICS[name].unit,
                "value": estimate.value,
                "low": estimate.low if bounded else None,
                "high": estimate.high if bounded else None,
                "launches": estimate.launches,
                **made_from,
            }


def _placement(record: CompileRecord | None) -> str | None:
    return None if record is None else " ".join(f"{key}={value}" for key, value in record.placement)

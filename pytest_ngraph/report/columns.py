"""Estimates of all cells of a group at once, as arrays: what ``Quantity.estimate`` gives one by one.

A run of 50,000 cells has half a million estimates, each from a handful of numbers. The formulas are those of
``Measurement`` and ``BatchSweep``, and tests/test_report_tidy.py holds the two to each other. Only what is regular is
made here - launches with the same blocks, in one state, cells with all of their visits usable or none - and whatever is
not is left to them.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pytest_ngraph.conditions import same_state
from pytest_ngraph.estimates import LEVEL, WHOLE, Estimate, but_told_again, summaries
from pytest_ngraph.measurement import building, until_warm
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.spec import Cell, CompileRecord, LaunchRecord, Outcome, Protocol

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

# What preparing a cell gives in each launch. What is told again by every launch is left to Quantity.
_ONCE: Mapping[str, Callable[[CompileRecord], float | None]] = {
    "compile_seconds": building,
    "load_seconds": lambda record: record.compile_seconds if record.loaded else None,
    "first_call_seconds": lambda record: record.first_call_seconds,
    "warmup_seconds": until_warm,
    "model_bytes": lambda record: record.model_bytes,
}
# By metric; None is a metric that the cell does not have, one that is not there was not made here.
Found = Mapping[Cell, Mapping[str, "Estimate | None"]]


@dataclass(slots=True)
class _Wanted:
    """Estimates of one kind to be made together: whose, of which metric, and the numbers of each launch and block."""

    of: list[tuple[Cell, str]] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)

    def add(self, cell: Cell, metric: str, numbers: Any) -> None:
        self.of.append((cell, metric))
        self.numbers.append(numbers)


def estimates_at_once(
    cells: Sequence[Cell],
    baselines: Mapping[Cell, Cell],
    launches: Sequence[LaunchRecord],
    protocol: Protocol,
    cpus: int,
) -> Found:
    """Return the estimates of cells that launches connect, as far as these are regular; ``launches`` are timed ones."""
    import numpy as np

    found: dict[Cell, dict[str, Estimate | None]] = {cell: {} for cell in cells}
    blocks = {block for launch in launches for _, block in launch.visits}
    usual = protocol.error_control and all(launch.protocol != "paper" for launch in launches)
    if not usual or not blocks or len(same_state(launches)) < len(launches):
        return found
    timed, once = _Wanted(), _Wanted()
    ln, shares = _columns(cells, launches, sorted(blocks))
    singles = {_but_for_batch(cell): cell for cell in cells if cell.workload.batch == 1}
    for cell in cells:
        baseline = baselines.get(cell)
        if cell in ln:
            single = singles.get(_but_for_batch(cell)), baseline and singles.get(_but_for_batch(baseline))
            for metric, numbers in _contrasts(cell.workload.batch, ln, cell, baseline, *single):
                timed.add(cell, metric, numbers)
        if cell in shares:
            timed.add(cell, "cpu_percent", 100 * shares[cell] / cpus)
            if baseline in shares:
                timed.add(cell, "cpu_reduction_percent", 100 * (1 - shares[cell] / shares[baseline]))
        for metric, values in _told(cell, launches):
            if values is None:
                found[cell][metric] = None
            else:
                once.add(cell, metric, values)
    for wanted in (timed, once):
        if wanted.of:
            _estimate(wanted.of, np.stack(wanted.numbers, axis=-1), found)
    return found


def _but_for_batch(cell: Cell) -> tuple[object, ...]:
    workload = cell.workload
    axes = (workload.depth, workload.width, workload.image_size, workload.precision, workload.scenario)
    return (cell.device, cell.compiler, workload.model, *axes, cell.replica, cell.rebuild)


def _contrasts(
    batch: int,
    ln: Mapping[Cell | None, Array],
    cell: Cell,
    other: Cell | None,
    one: Cell | None,
    other_one: Cell | None,
) -> Iterator[tuple[str, Array]]:
    """Yield what the ln times of a cell, its baseline and the two at batch 1 say, as far as they are there."""
    yield "throughput", math.log(batch) - ln[cell]
    yield "latency", ln[cell]
    if other in ln:
        yield "speedup", ln[other] - ln[cell]
    if batch > 1 and one in ln:
        efficiency = ln[one] - ln[cell]
        yield "rtr", math.log(batch) + efficiency
        yield "ase", efficiency
        if other in ln and other_one in ln:
            yield "bsr", efficiency - (ln[other_one] - ln[other])


def _columns(
    cells: Sequence[Cell], launches: Sequence[LaunchRecord], blocks: Sequence[int]
) -> tuple[dict[Cell | None, Array], dict[Cell | None, Array]]:
    """Return ln(seconds) and CPUs used of each regular cell, by launch and block; NaN in launches without the cell."""
    import numpy as np

    ln: dict[Cell | None, Array] = {}
    shares: dict[Cell | None, Array] = {}
    nothing: list[float | None] = [math.nan] * len(blocks)
    for cell in cells:
        times: list[list[float | None]] = []
        used: list[list[float | None]] = []
        for launch in launches:
            record = launch.prepared.get(cell)
            visits = summaries(launch, cell) if record is not None and record.outcome is Outcome.OK else {}
            each = [visits.get(block) for block in blocks]
            times.append([None if one is None else one.ln_seconds for one in each] if visits else nothing)
            used.append([None if one is None else one.cpu_share for one in each] if visits else nothing)
        if cell.workload.scenario == "latency" and not any(None in launch for launch in times):
            ln[cell] = np.array(times, dtype=float)
            if all(share for launch in used for share in launch):
                shares[cell] = np.array(used, dtype=float)
    return ln, shares


def _told(cell: Cell, launches: Sequence[LaunchRecord]) -> Iterator[tuple[str, Array | None]]:
    """Yield what each launch of a cell says once, as ln and as if it were of one block; None where none says it."""
    import numpy as np

    records = [launch.prepared.get(cell) for launch in launches]
    held = [
        record if record is not None and record.outcome is Outcome.OK and launch.visits_of(cell) else None
        for record, launch in zip(records, launches, strict=True)
    ]
    for metric, pick in _ONCE.items():
        values = [pick(record) if record is not None else None for record in held]
        if pick is building:
            counts = but_told_again(values, [record is not None and record.loaded for record in held])
            values = [value if does else None for value, does in zip(values, counts, strict=True)]
        told = np.array([[math.log(value) if value else math.nan] for value in values]) if any(values) else None
        yield metric, told


def _estimate(of: Sequence[tuple[Cell, str]], numbers: Array, found: Mapping[Cell, dict[str, Estimate | None]]) -> None:
    """Make launch values and an interval of numbers by launch, block and estimate (``stats.launches``)."""
    import numpy as np
    from scipy.special import stdtrit

    blocks = numbers.shape[1]
    cut = int(0.2 * blocks)
    left = blocks - 2 * cut
    middle = np.sort(numbers, axis=1)[:, cut : blocks - cut]
    values = _mean(middle, 1)
    ends = [np.repeat(middle[:, place], cut, axis=1) for place in (slice(0, 1), slice(-1, None))]
    spread = _variance(np.concatenate([ends[0], middle, ends[1]], axis=1), 1, blocks)
    within = (blocks - 1) * spread / (left * (left - 1)) if left > 1 else np.zeros_like(values)
    there = ~np.isnan(values)
    counts = there.sum(axis=0)
    some = np.maximum(counts, 1)
    # Launches without a value count for nothing.
    first = values[np.argmax(there, axis=0), np.arange(values.shape[1])]
    apart = np.where(there, values - first, 0.0)
    centre = apart.sum(axis=0) / some
    between = np.where(there, (apart - centre) ** 2, 0.0).sum(axis=0) / np.maximum(counts - 1, 1)
    inner = np.where(there, within, 0.0).sum(axis=0) / some
    error = np.sqrt(np.maximum(between, inner) / some)
    half = np.where(counts > 1, stdtrit(np.maximum(counts - 1, 1), 1 - LEVEL) * error, np.inf)
    theta = first + centre
    each = zip(of, theta.tolist(), half.tolist(), counts.tolist(), strict=True)
    for (cell, metric), middle_value, half_width, count in each:
        if not count:
            found[cell][metric] = None
            continue
        row = METRICS[metric]
        three = [middle_value, middle_value - half_width, middle_value + half_width]
        if row.scale == "log":
            three = [math.exp(number) if number < 700 else math.inf for number in three]
        if row.unit in WHOLE:
            three = [float(round(number)) if math.isfinite(number) else number for number in three]
        found[cell][metric] = Estimate(metric, three[0], three[1], three[2], count)


def _mean(values: Array, axis: int) -> Array:
    """Return the mean as differences from the first value, so that equal values have just that one."""
    first = values.take([0], axis=axis)
    mean: Array = (first + (values - first).mean(axis=axis, keepdims=True)).squeeze(axis)
    return mean


def _variance(values: Array, axis: int, count: int) -> Array:
    apart = values - values.take([0], axis=axis)
    squares = ((apart - apart.mean(axis=axis, keepdims=True)) ** 2).sum(axis=axis)
    variance: Array = squares / max(1, count - 1)
    return variance

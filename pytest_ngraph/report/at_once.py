"""Estimates of all cells of some groups at once: what ``Quantity.estimate`` gives one by one, by the same formulas.

A run of 50,000 cells has half a million estimates, each from a handful of numbers. ``metrics`` and ``stats`` take
arrays, so that groups with as many launches of as many blocks need each formula once. Only what is regular is made
here - launches with the same blocks, in one state, cells with all of their visits usable or none - and whatever is not
is left to the quantities.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ngraph import metrics
from pytest_ngraph.axes import AXES
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.measurement import ONCE, speedup_of
from pytest_ngraph.quantities.quantity import LEVEL, Estimate, but_reused, in_units, summaries, summaries_at_once
from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord, Outcome, Protocol
from pytest_ngraph.spec.states import same_state
from pytest_ngraph.stats.launches import intervals, launch_values

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, np.dtype[np.float64]]

# By metric; None is a metric that the cell does not have, one that is not there was not made here.
Found = Mapping[Cell, Mapping[str, "Estimate | None"]]
# A metric of some cells: its value by cell, launch and block.
_Made = tuple[str, Sequence[Cell], "Array"]


class Connected(NamedTuple):
    """Cells that launches connect, these launches, which are timed ones, and the size of the device's CPU set."""

    cells: Sequence[Cell]
    launches: Sequence[LaunchRecord]
    cpus: int

    @property
    def blocks(self) -> list[int]:
        """Return the numbers of all blocks of the launches."""
        return sorted({block for launch in self.launches for _, block in launch.visits})

    @property
    def is_regular(self) -> bool:
        """Return whether there is anything to make here: launches of one state, by no repetitions, beside nobody."""
        all_count = not any(launch.is_disturbed for launch in self.launches)
        usual = all_count and all(launch.protocol != "paper" for launch in self.launches)
        return usual and len(same_state(self.launches)) == len(self.launches)


def estimates_at_once(groups: Sequence[Connected], baselines: Mapping[Cell, Cell], protocol: Protocol) -> Found:
    """Return the estimates of the cells of some groups, as far as these are regular."""
    found: dict[Cell, dict[str, Estimate | None]] = {cell: {} for group in groups for cell in group.cells}
    alike: dict[tuple[int, int, int], list[Connected]] = {}
    for group in groups if protocol.error_control else ():
        if (blocks := len(group.blocks)) and group.is_regular:
            alike.setdefault((len(group.launches), blocks, group.cpus), []).append(group)
    for (_, _, cpus), some in alike.items():
        summaries_at_once([launch for group in some for launch in group.launches])
        regular = _Regular.of(some, baselines)
        _estimate([*regular.of_times(), *regular.of_cpus(cpus)], found)
        _estimate(list(_once(some, found)), found)
    return found


class _Stack:
    """Numbers of cells by launch and block, in one array."""

    def __init__(
        self, numbers: Mapping[Cell, Sequence[Sequence[float | None]]], *, are_logarithms: bool = False
    ) -> None:
        import numpy as np

        self._places = {cell: place for place, cell in enumerate(numbers)}
        values = np.array(list(numbers.values()), dtype=float)
        self._values = np.exp(values) if are_logarithms else values

    def __iter__(self) -> Iterator[Cell]:
        return iter(self._places)

    def __contains__(self, cell: Cell) -> bool:
        return cell in self._places

    def of(self, cells: Iterable[Cell]) -> Array:
        """Return the numbers of some of the cells, in their order."""
        taken: Array = self._values[[self._places[cell] for cell in cells]]
        return taken


@dataclass(frozen=True, slots=True)
class _Regular:
    """The cells that are regular: seconds per call and CPUs used, NaN in launches without the cell.

    ``group`` numbers the groups: what cells of different ones have is not of the same launches.
    """

    group: Mapping[Cell, int]
    baselines: Mapping[Cell, Cell]
    seconds: _Stack
    busy: _Stack

    @classmethod
    def of(cls, groups: Sequence[Connected], baselines: Mapping[Cell, Cell]) -> _Regular:
        """Find them among the cells of groups with as many launches and blocks."""
        ln_seconds: dict[Cell, list[list[float | None]]] = {}
        busy: dict[Cell, list[list[float | None]]] = {}
        for group in groups:
            blocks = group.blocks
            nothing: list[float | None] = [math.nan] * len(blocks)
            for cell in group.cells:
                times: list[list[float | None]] = []
                used: list[list[float | None]] = []
                for launch in group.launches:
                    record = launch.prepared.get(cell)
                    visits = summaries(launch, cell) if record is not None and record.outcome is Outcome.OK else {}
                    each = [visits.get(block) for block in blocks]
                    times.append([None if one is None else one.ln_seconds for one in each] if visits else nothing)
                    used.append([None if one is None else one.cpu_share for one in each] if visits else nothing)
                if cell.workload.scenario == "latency" and not any(None in launch for launch in times):
                    ln_seconds[cell] = times
                    if all(share for launch in used for share in launch):
                        busy[cell] = used
        numbers = {cell: number for number, group in enumerate(groups) for cell in group.cells}
        return cls(numbers, baselines, _Stack(ln_seconds, are_logarithms=True), _Stack(busy))

    def of_times(self) -> Iterator[_Made]:
        """Yield what the times of the cells say, those of one batch together."""
        by_batch: dict[int, list[Cell]] = {}
        for cell in self.seconds:
            by_batch.setdefault(cell.workload.batch, []).append(cell)
        singles = {(self.group[cell], *_but_for_batch(cell)): cell for cell in by_batch.get(1, ())}
        places = {cell: (self.group[cell], *_but_for_batch(cell)) for cell in self.seconds}
        single = {cell: singles[place] for cell, place in places.items() if place in singles}

        def rates(cells: Sequence[Cell], batch: int) -> dict[int, Array]:
            ones = [single[cell] for cell in cells]
            return {at: metrics.throughput(self.seconds.of(each), at) for at, each in ((1, ones), (batch, cells))}

        for batch, cells in by_batch.items():
            seconds = self.seconds.of(cells)
            yield "latency", cells, seconds
            yield "throughput", cells, metrics.throughput(seconds, batch)
            pairs = self._with_baselines(cells, self.seconds)
            if pairs:
                mine, others = map(self.seconds.of, zip(*pairs, strict=True))
                yield "speedup", [cell for cell, _ in pairs], speedup_of(mine, others)
            grown = [cell for cell in cells if batch > 1 and cell in single]
            if grown:
                swept = rates(grown, batch)
                yield "rtr", grown, metrics.rtr(swept, batch)
                yield "ase", grown, metrics.ase(swept, batch)
            pairs = [pair for pair in self._with_baselines(grown, self.seconds) if pair[1] in single]
            if pairs:
                compiled, against = (list(side) for side in zip(*pairs, strict=True))
                yield "bsr", compiled, metrics.bsr(rates(compiled, batch), rates(against, batch), batch)

    def of_cpus(self, cpus: int) -> Iterator[_Made]:
        """Yield what the CPU time of the cells says."""
        cells = list(self.busy)
        if cells:
            yield "cpu_percent", cells, metrics.cpu_percent(self.busy.of(cells), cpus)
        pairs = self._with_baselines(cells, self.busy)
        if pairs:
            mine, others = map(self.busy.of, zip(*pairs, strict=True))
            yield "cpu_reduction_percent", [cell for cell, _ in pairs], metrics.cpu_reduction(mine, others)

    def _with_baselines(self, cells: Sequence[Cell], of: _Stack) -> list[tuple[Cell, Cell]]:
        return [
            (cell, other)
            for cell in cells
            if (other := self.baselines.get(cell)) is not None and other in of and self.group[other] == self.group[cell]
        ]


_OTHERS = tuple(row.name for row in AXES if row.name not in ("model", "batch"))


def _but_for_batch(cell: Cell) -> tuple[object, ...]:
    workload = cell.workload
    axes = (*(workload.value(name) for name in _OTHERS), workload.further)
    return (cell.device, cell.compiler, workload.model, *axes, cell.replica, cell.rebuild, cell.side)


def _once(groups: Sequence[Connected], found: Mapping[Cell, dict[str, Estimate | None]]) -> Iterator[_Made]:
    """Yield what each launch of the cells says once, as if it were of one block. Note where none says it."""
    import numpy as np

    made: dict[str, dict[Cell, list[float]]] = {}
    for cell, launches in ((cell, group.launches) for group in groups for cell in group.cells):
        held = [_counted(launch, cell) for launch in launches]
        for metric, once in ONCE.items():
            if once.memory:
                continue
            values = [None if record is None else once.pick(record) for record in held]
            if once.reused is not None and any(values):
                counts = but_reused(values, [record is not None and once.reused(record) for record in held])
                values = [value if does else None for value, does in zip(values, counts, strict=True)]
            if any(values):
                made.setdefault(metric, {})[cell] = [value or math.nan for value in values]
            else:
                found[cell][metric] = None
    for metric, values_of in made.items():
        yield metric, list(values_of), np.array(list(values_of.values()))[..., None]


def _counted(launch: LaunchRecord, cell: Cell) -> CompileRecord | None:
    """Return what preparing a cell gave in a launch that has times of it."""
    record = launch.prepared.get(cell)
    return record if record is not None and record.outcome is Outcome.OK and launch.visits_of(cell) else None


def _estimate(made: Sequence[_Made], found: Mapping[Cell, dict[str, Estimate | None]]) -> None:
    """Make launch values, intervals and estimates of all of them together."""
    import numpy as np

    if not made:
        return
    scaled = [np.log(values) if METRICS[metric].scale == "log" else values for metric, _, values in made]
    each = intervals(*launch_values(np.concatenate(scaled)), LEVEL)
    ends = (each.theta, each.theta - each.half_width, each.theta + each.half_width)
    begin = 0
    for metric, cells, _ in made:
        here = slice(begin, begin + len(cells))
        begin = here.stop
        numbers = (in_units(METRICS[metric], end[here].tolist()) for end in ends)
        for cell, count, value, low, high in zip(cells, each.launches[here].tolist(), *numbers, strict=True):
            found[cell][metric] = Estimate(metric, value, low, high, count) if count else None

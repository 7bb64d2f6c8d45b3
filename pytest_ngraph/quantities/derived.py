"""What is made of several cells of a sweep: the quantities that cells measured together allow."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.quantities.comparisons import friction, friction_scale
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Quantity, Source
from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep, SequenceSweep
from pytest_ngraph.spec.cells import Cell

# Of RTR, which is ASE times the batch, ASE says all.
DERIVED = ("ase", "bsr", "slope", "retention", "friction", "sequence_scaling")


@dataclass(frozen=True, slots=True)
class Derived:
    """A quantity of a sweep. ``cells`` are the sweep's own, without what they are compared with.

    ``scale`` gives what a tolerance is a fraction of: 1 on the log scale, an amount in the metric's unit else. It
    raises like ``Quantity.rows``.
    """

    quantity: Quantity
    cells: tuple[Cell, ...]
    scale: Callable[[], float]


def derived_of(source: Source, cells: Collection[Cell], baselines: Mapping[Cell, Cell]) -> Iterator[Derived]:
    """Yield what is made of several of these cells, which are given with what each is compared with.

    Batches need batch 1 beside them, depths a single block, widths another width at the same batches, lengths another
    length. Second processes, cells of another side and those under load are left out.
    """
    mine = [cell for cell in cells if not cell.replica and not cell.side and rate_of(cell.workload.scenario) is None]
    yield from _of_batches(source, mine, baselines)
    yield from _of_depths(source, mine, baselines)
    yield from _of_widths(source, mine, baselines)
    yield from _of_lengths(source, mine, baselines)


def together(sets: Iterable[Collection[Cell]]) -> list[frozenset[Cell]]:
    """Return the sets of cells that no other one contains: what launches measured together at most."""
    found = sorted({frozenset(one) for one in sets}, key=len, reverse=True)
    most: list[frozenset[Cell]] = []
    for one in found:
        if not any(one < other for other in most):
            most.append(one)
    return most


def _of_batches(source: Source, cells: Sequence[Cell], baselines: Mapping[Cell, Cell]) -> Iterator[Derived]:
    known = set(cells)
    for cell in sorted(cells, key=lambda cell: cell.workload.batch):
        one, batch = replace(cell, workload=replace(cell.workload, batch=1)), cell.workload.batch
        if batch == 1 or one not in known:
            continue
        first, at = baselines.get(one), baselines.get(cell)
        pair = {1: Measurement(source, one, first or one), batch: Measurement(source, cell, at or cell)}
        sweep = BatchSweep(source, pair, (batch,))
        yield Derived(sweep.quantity("ase", batch), (one, cell), _fraction)
        if first is not None and at is not None and first.compiler == at.compiler:
            yield Derived(sweep.quantity("bsr", batch), (one, cell), _fraction)


def _of_depths(source: Source, cells: Sequence[Cell], baselines: Mapping[Cell, Cell]) -> Iterator[Derived]:
    for stack in _apart(cells, baselines, lambda cell: cell.workload.depth, "depth"):
        if len(stack) < 2 or stack[0].workload.depth != 1:
            continue
        depths = {cell.workload.depth or 1: Measurement(source, cell, baselines[cell]) for cell in stack}
        sweep = DepthSweep(source, depths, tuple(depths))
        yield Derived(sweep.quantity("slope"), tuple(stack), sweep.tolerance_scale)
        yield Derived(sweep.quantity("retention"), (stack[0], stack[-1]), _fraction)


def _of_widths(source: Source, cells: Sequence[Cell], baselines: Mapping[Cell, Cell]) -> Iterator[Derived]:
    known = set(cells)
    wide = [cell for cell in cells if cell.workload.batch > 1]
    for same in _apart(wide, {**dict.fromkeys(wide), **baselines}, lambda cell: cell.workload.width, "width"):
        pairs = [(replace(cell, workload=replace(cell.workload, batch=1)), cell) for cell in same]
        used = [
            Measurement(source, cell, baselines.get(cell) or cell)
            for one, at in pairs
            if one in known and _divisor(one, baselines) == _divisor(at, baselines)
            for cell in (one, at)
        ]
        if len(used) > 2:
            batch = same[0].workload.batch
            own = tuple(each.cell for each in used)
            yield Derived(friction(used, batch), own, partial(friction_scale, used, batch))


def _of_lengths(source: Source, cells: Sequence[Cell], baselines: Mapping[Cell, Cell]) -> Iterator[Derived]:
    known = {**dict.fromkeys(cells), **baselines}
    for same in _apart(cells, known, lambda cell: cell.workload.sequence, "sequence"):
        if len(same) > 1:
            each = {
                cell.workload.sequence or 1: Measurement(source, cell, baselines.get(cell) or cell) for cell in same
            }
            sweep = SequenceSweep(source, each, tuple(each))
            yield Derived(sweep.quantity("sequence_scaling"), tuple(same), sweep.tolerance_scale)


def _divisor(cell: Cell, baselines: Mapping[Cell, Cell]) -> object:
    baseline = baselines.get(cell)
    return baseline and baseline.compiler


def _apart(
    cells: Sequence[Cell], baselines: Mapping[Cell, Cell | None], value: Callable[[Cell], int | None], axis: str
) -> Iterator[list[Cell]]:
    """Yield the cells that have a baseline by what is the same but for an axis, in ascending order of that."""
    found: dict[object, list[Cell]] = {}
    for cell in cells:
        if value(cell) is not None and cell in baselines:
            apart = replace(cell, workload=replace(cell.workload, **{axis: None}))  # type: ignore[arg-type]
            baseline = baselines[cell]
            found.setdefault((apart, baseline and baseline.compiler), []).append(cell)
    for same in found.values():
        yield sorted(same, key=lambda cell: value(cell) or 0)


def _fraction() -> float:
    return 1.0

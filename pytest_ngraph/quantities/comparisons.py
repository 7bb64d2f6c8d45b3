"""Quantities of measurements that no sweep holds together: one model over another, and one block over its widths."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pytest_ngraph import metrics
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.quantity import Measurer, NarrowedAway, Quantity, of_times
from pytest_ngraph.quantities.sweeps import Measurement
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.spec.shapes.mixes import is_mix
from pytest_ngraph.spec.shapes.mixes import parse as parse_mix

# By width, narrowest first: the measurements at batch 1 and at another batch.
_Widths = Mapping[int, tuple[Measurement, Measurement]]


def as_baseline(cell: Measurement) -> Measurement:
    """Return the measurement of what a cell is compared with."""
    return Measurement(cell.source, cell.baseline, cell.baseline)


def refuse_apart(helper: str, cells: Sequence[Measurement]) -> None:
    """Raise ClaimError where a test's measurements are not of one launch group."""
    first = cells[0].source
    for cell in cells[1:]:
        if isinstance(first, Measurer) and isinstance(cell.source, Measurer) and cell.source.group != first.group:
            raise ClaimError(
                f"{helper}: {cells[0].cell.label} and {cell.cell.label} were not measured together, so their ratio "
                "would carry what changed between their launches; put both into one test, as models=[...], or into one "
                "call, ngraph.measure(batch=[1, 8])"
            )


def refuse_other_calls(helper: str, one: Measurement, other: Measurement) -> None:
    """Raise ClaimError for a mix of shapes beside anything but the same calls."""
    texts = [each.workload.shapes for each in (one, other)]
    asked = {parse_mix(text).asked if is_mix(text) else "" for text in texts}
    if len(asked) > 1:
        raise ClaimError(
            f"{helper}: {one.cell.label} and {other.cell.label} are not of the same calls (shapes {texts[0]!r} and "
            f"{texts[1]!r}), so their ratio would say what was asked for and not what a build is worth; give both the "
            "same batches and lengths - buckets may differ - or claim the throughput of each"
        )


def refuse_incomparable(helper: str, one: Measurement, other: Measurement) -> None:
    """Raise ClaimError where which of two measurements is faster is not what their throughputs say.

    Calls that arrive at a rate are answered at that rate by whatever keeps up. A cell beside itself has no ratio but 1,
    which says nothing: only where the other side is the same is it compared with itself.
    """
    refuse_apart(helper, [one, other])
    if one.cell == other.cell and not (one.is_unchanged or other.is_unchanged):
        raise ClaimError(f"{helper}: {other.cell.label} is the cell itself (expected another one)")
    refuse_other_calls(helper, one, other)
    for each in (one, other):
        # Of two scenarios nothing is compared anyway, and that is said.
        if one.workload.scenario == other.workload.scenario and rate_of(each.workload.scenario) is not None:
            raise ClaimError(
                f"{helper}: {each.cell.label}: as many calls are answered as arrive, whatever they take, so that "
                'throughputs say little (expected cells of scenario="latency" or "throughput"; of calls that arrive '
                "claim the latency of each, or assert_capacity)"
            )


def throughput_ratio(first: Measurement, second: Measurement, *, beside: Sequence[Cell] = ()) -> Quantity:
    """Return the throughput of one measurement over another's as a quantity.

    It is made of the launches, and of the blocks in them, that hold the cells ``beside`` them as well: so ratios that
    are compared with one another are of the same launches.
    """
    label = f"throughput of {first.cell.label} over {second.cell.label}"
    batches = (first.workload.samples_per_call, second.workload.samples_per_call)

    def ratio(seconds: Sequence[float]) -> float:
        mine, other = (metrics.throughput(each, batch) for each, batch in zip(seconds, batches, strict=False))
        return metrics.speedup(mine, other)

    return of_times(
        first.source,
        "throughput_ratio",
        label,
        [first.cell, second.cell, *beside],
        ratio,
        subject=first.cell,
        parts=(first.quantity("throughput"), second.quantity("throughput")),
    )


def change(cell: Measurement) -> Quantity:
    """Return the throughput of a cell over that of the same cell on the other side. Raise NoOtherSide without one.

    Of calls that arrive at a rate it is the latency of the other side over that of here, for as many are answered as
    arrive. Launches in which one of the two does not keep up have none.
    """
    other, is_offered = cell.beside, rate_of(cell.workload.scenario) is not None
    what = "latency" if is_offered else "throughput"
    return of_times(
        cell.source,
        "change",
        f"{'speed' if is_offered else what} of {cell.cell.label} over {other.cell.side}",
        [cell.cell, other.cell],
        lambda seconds: metrics.speedup(
            *(metrics.throughput(each, cell.workload.samples_per_call) for each in seconds)
        ),
        subject=cell.cell,
        parts=(cell.quantity(what), other.quantity(what)),
        channel="requests" if is_offered else "usual",
    )


def friction(cells: Sequence[Measurement], batch: int) -> Quantity:
    """Return the scaling efficiency that each doubling of the width costs at a batch, as a quantity.

    ``metrics.friction`` of every block, as the slope over depths is made (docs/measuring.md, step 9). The measurements
    are of one launch group and at least two widths, each at batch 1 and at ``batch``, such as
    ``ngraph.measure(model="block:conv", width=[64, 128], batch=[1, 8])`` gives. Other batches are left out. Raises
    ClaimError for others, and NarrowedAway where the command line took what is missing.
    """
    widths = _widths(cells, batch)
    used = [one for pair in widths.values() for one in pair]
    refuse_apart("friction", used)

    def cost(seconds: Sequence[float]) -> float:
        ases = [_ase(seconds[2 * k], seconds[2 * k + 1], batch) for k in range(len(widths))]
        return metrics.friction(dict(zip(widths, ases, strict=True)))

    narrow, wide = min(widths), max(widths)
    widest = widths[wide][1]
    label = f"{METRICS['friction'].title} at batch {batch} of {widest.target} {widest.workload.model}"
    return of_times(
        widest.source,
        "friction",
        f"{label} over widths {narrow} to {wide}",
        [one.cell for one in used],
        cost,
        subject=widest.cell,
        parts=(_efficiency(*widths[narrow]), _efficiency(*widths[wide])),
    )


def friction_scale(cells: Sequence[Measurement], batch: int) -> float:
    """Return the mean ASE at a batch over the doublings from the narrowest to the widest: what a tolerance is of."""
    widths = _widths(cells, batch)
    mean = math.fsum(_efficiency(*pair).estimate().value for pair in widths.values()) / len(widths)
    return mean / math.log2(max(widths) / min(widths))


def _widths(cells: Sequence[Measurement], batch: int) -> _Widths:
    if batch < 2:
        raise ClaimError(f"friction: batch {batch} (expected 2 or more: it is about what batching gains)")
    used = [one for one in cells if one.workload.batch in (1, batch) and one.workload.width is not None]
    if len({(one.target, one.baseline.compiler, replace(one.workload, batch=1, width=None)) for one in used}) > 1:
        raise ClaimError("friction: the measurements differ in more than width and batch; give those of one model")
    places = {(one.workload.width or 0, one.workload.batch): one for one in used}
    widths = {
        width: (places[width, 1], places[width, batch])
        for width in sorted({width for width, _ in places})
        if (width, 1) in places and (width, batch) in places
    }
    if len(widths) < 2:
        there = ", ".join(one.workload.label for one in cells) or "none"
        lacking = f"friction: batch {batch} needs two widths, each at batch 1 and {batch} (there: {there})"
        if any(_is_narrowed(one) for one in cells):
            raise NarrowedAway(f"{lacking}; the others were narrowed away on the command line")
        raise ClaimError(f"{lacking}; measure them together: ngraph.measure(width=[64, 128], batch=[1, {batch}])")
    return widths


def _is_narrowed(cell: Measurement) -> bool:
    if not isinstance(cell.source, Measurer):
        return False
    narrowing = cell.source.session.settings.narrowing
    return narrowing["width"] is not None or narrowing["batch"] is not None


def _efficiency(one: Measurement, at: Measurement) -> Quantity:
    """Return ASE of a measurement, given that of the same workload at batch 1."""
    label = f"{METRICS['ase'].title} of {at.cell.label}"
    batch = at.workload.batch
    return of_times(
        at.source,
        "ase",
        label,
        [one.cell, at.cell],
        lambda seconds: _ase(seconds[0], seconds[1], batch),
        subject=at.cell,
    )


def _ase(one: float, at: float, batch: int) -> float:
    """Return the scaling efficiency at a batch, given seconds per call at batch 1 and at that batch."""
    return metrics.ase({1: metrics.throughput(one, 1), batch: metrics.throughput(at, batch)}, batch)

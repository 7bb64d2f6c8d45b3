"""What a cell draws, and how busy it keeps a GPU: from the windows of a pass to a launch's value."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from pytest_ngraph import metrics
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.load.neighbours import NONE
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.quantity import Estimate, NotStored, Quantity, Source
from pytest_ngraph.spec.cells import Cell, LaunchRecord
from pytest_ngraph.spec.resources import power as spec
from pytest_ngraph.spec.resources.power import ABOVE_IDLE, OF_LOAD, Power, Window
from pytest_ngraph.stats.launches import LaunchValue, launch_value

GPU_UTILISATION, ENERGY = OF_LOAD, "joules_per_sample"


def _joules(window: Window) -> float:
    if not window.samples or not window.joules:
        return math.nan
    return metrics.joules_per_sample(window.joules, window.samples)


def _logs(windows: tuple[Window, ...], of: Callable[[Window], float]) -> LaunchValue | None:
    return launch_value([math.log(value) for value in map(of, windows) if value > 0])


def joules_above_idle(power: Power) -> float:
    """Return the joules of a sample above idle over all windows of a pass that has energy, 0 and less included.

    NaN where nothing was drawn, or no call ended.
    """
    joules, seconds = (
        math.fsum(each) for each in zip(*((one.joules or 0.0, one.seconds) for one in power.busy), strict=True)
    )
    samples = sum(one.samples for one in power.busy)
    return metrics.joules_above_idle(joules, seconds, power.idle_watts, samples) if joules and samples else math.nan


def _above_idle(power: Power) -> LaunchValue | None:
    """Return ln of what is above idle, None where that is nothing: see ``Power.indistinct``."""
    if not power.has_energy or power.indistinct:
        return None
    above = joules_above_idle(power)
    return LaunchValue(math.log(above), 0.0, 1) if above > 0 else None


def _utilisation(power: Power) -> LaunchValue | None:
    return launch_value([100 * one.gpu_share for one in power.busy if one.gpu_share is not None])


# What of a cell's windows makes a launch's value, by metric.
_VALUES: Mapping[str, Callable[[Power], LaunchValue | None]] = MappingProxyType(
    {
        GPU_UTILISATION: _utilisation,
        ENERGY: lambda power: _logs(power.busy, _joules),
        ABOVE_IDLE: _above_idle,
        "samples_per_joule": lambda power: _logs(power.busy, lambda one: 1 / _joules(one)),
        "idle_watts": lambda power: _logs(power.idle, lambda one: one.watts),
        "busy_watts": lambda power: _logs(power.busy, lambda one: one.watts),
    }
)
POWER_METRICS = tuple(_VALUES)


class _AboveIdle(Quantity):
    """What is above idle: a mean of all passes, or none.

    A mean of those in which it could be told from nothing would be too large: they were chosen for what they say.
    """

    def estimate(self) -> Estimate:
        """Return value and interval. Raise NotStored where it could not be told from nothing in one of the passes."""
        if why := why_indistinct(self):
            raise NotStored(f"{self.label}: {why}")
        return super().estimate()


def refuse_load(label: str, cell: Cell) -> None:
    """Raise ClaimError for a cell to which calls arrive, or that has a neighbour: a pass for power has neither."""
    if rate_of(cell.workload.scenario) is not None:
        raise ClaimError(
            f"{label}: nothing arrives in a pass for power, so what is drawn at this rate is not known (expected a "
            'cell of scenario="latency" or "throughput")'
        )
    if cell.workload.neighbour != NONE:
        raise ClaimError(
            f"{label}: nothing runs beside a cell in a pass for power, so what is drawn beside "
            f"{cell.workload.neighbour} is not known (expected a cell without a neighbour)"
        )


def of_power(source: Source, metric: str, label: str, cell: Cell) -> Quantity:
    """Return a metric of the passes for power as a quantity. Raise ClaimError as ``refuse_load``."""
    refuse_load(label, cell)
    value_of = _VALUES[metric]

    def of_launch(record: LaunchRecord) -> LaunchValue | None:
        power = record.prepared[cell].power
        return None if power is None else value_of(power)

    kind = _AboveIdle if metric == ABOVE_IDLE else Quantity
    return kind(source, METRICS[metric], label, (cell,), cell, of_launch, power=True)


def energy_ratio(source: Source, label: str, cell: Cell, other: Cell, parts: tuple[Quantity, ...]) -> Quantity:
    """Return the energy of a sample of one cell over that of another, block by block of the same passes.

    Raises ClaimError where one of them is under load, or has a neighbour.
    """
    for one in (cell, other):
        refuse_load(label, one)

    def of_launch(record: LaunchRecord) -> LaunchValue | None:
        powers = [record.prepared[each].power for each in (cell, other)]
        mine, theirs = ({one.block: _joules(one) for one in power.busy} if power else {} for power in powers)
        logs = [math.log(mine[block] / theirs[block]) for block in mine.keys() & theirs.keys()]
        return launch_value(logs)

    return Quantity(source, METRICS["energy_ratio"], label, (cell, other), cell, of_launch, parts, power=True)


def why_unread(quantity: Quantity) -> str:
    """Return why the passes say nothing of a quantity, measuring them first, or nothing where they do.

    Raises CellFailed where a cell has no outputs that are right.
    """
    try:
        records = quantity.source.records(quantity)
    except NotStored as error:
        return str(error).removeprefix(f"{quantity.label}: ")
    return next((why for each in _powers(quantity, records) if (why := each.unread.get(quantity.metric.name))), "")


def why_indistinct(quantity: Quantity) -> str:
    """Return why a cell is not known to draw more than the idle machine, or nothing. Raises like ``Source.records``.

    One pass in which it is not is enough.
    """
    return spec.why_indistinct(_powers(quantity, quantity.source.records(quantity)))


def _powers(quantity: Quantity, records: Sequence[LaunchRecord]) -> list[Power]:
    return [power for one in records if (power := one.prepared[quantity.subject].power) is not None]

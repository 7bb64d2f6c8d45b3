"""The header: what is about to be measured, so that a reader can do it again."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.environment import cpu_model
from pytest_ngraph.settings import Settings
from pytest_ngraph.spec import Device

if TYPE_CHECKING:
    from pytest_ngraph.grid import Point


def header_lines(settings: Settings, device: Device, points: Sequence[Point]) -> list[str]:
    """Return the lines after collection: devices, compilers, models, protocol, seed and store."""
    cells = {cell for point in points for cell in point.cells}
    models = _few(cell.workload.model.text for cell in cells)
    compilers = _few(str(point.compiler) for point in points)
    baseline = str(settings.baseline) if settings.baseline else "identity (onnxruntime[graph=disabled] for ONNX files)"
    cpus, threads = units.count(len(device.cpus), "CPU"), units.count(device.threads, "thread")
    items = f"{units.count(len(points), 'item')}, {units.count(len(cells), 'cell')}"
    lines = [
        f"ngraph: device {device.name}: {cpu_model()}, {cpus}, {threads} a compiler",
        f"ngraph: {items}; compilers {compilers}; baseline {baseline}",
    ]
    if models:
        lines.append(f"ngraph: models {models}")
    lines.append(
        f"ngraph: protocol {settings.protocol.name}, tolerance {100 * settings.tolerance:g} %, budget "
        f"{settings.budget}, seed {settings.seed}; store {settings.store}"
    )
    return lines


def cost_lines(groups: int, seconds: float) -> list[str]:
    """Return what the run will cost at least, before anything is measured."""
    if not groups:
        return []
    return [
        f"ngraph: to measure: {units.count(groups, 'launch group')}, about {units.seconds(seconds)} where nothing is "
        "stored and the first look decides"
    ]


def _few(names: Iterable[str], most: int = 6) -> str:
    """Return names in order, the first few of many."""
    known = list(dict.fromkeys(names))
    rest = f" and {len(known) - most} more" if len(known) > most else ""
    return ", ".join(known[:most]) + rest

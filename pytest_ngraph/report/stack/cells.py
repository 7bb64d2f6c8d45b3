"""A run by the layers of the second paper: model, compression, what computes it, tuned or not, and device."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.spec.cells import DENSE, CompilerSpec, Workload
from pytest_ngraph.spec.optimizing import written

ALGORITHM = "algorithm"
# Options of TVM by which its schedules are searched for.
_SEARCHED = frozenset({"tuned", "trials", "patience", "seconds"})
# Axes that are not one of the paper's layers, and so belong to the name of a model.
_LAYERS = ("optimize", "precision")
# From here on a library's network is beside the paper's ImageNet tables, which have 224 pixels.
_LARGE_IMAGE = 128
_LIBRARIES = ("torchvision", "timm")
_BITS = {"f16": 0.5, "bf16": 0.5, "int8": 0.75}


@dataclass(frozen=True, slots=True)
class Platform:
    """Where cells ran: a device, and whether their code was searched for."""

    device: str
    is_tuned: bool

    def __str__(self) -> str:
        return f"{self.device} ({'tuned' if self.is_tuned else 'untuned'})"


@dataclass(frozen=True, slots=True)
class Point:
    """One cell by the paper's layers. ``how`` is what computes it: a compiler with its algorithm of convolution."""

    platform: Platform
    model: str
    compression: str
    how: str
    report: CellReport

    @property
    def latency(self) -> Estimate | None:
        """Return the time of a call, where it has one."""
        return self.report.estimates.get("latency")

    @property
    def accuracy(self) -> Estimate | None:
        """Return the share of samples that the compiled cell got right, where it was asked."""
        return self.report.estimates.get("accuracy:top1")


def points(reports: Iterable[CellReport], is_large: bool | None = None) -> list[Point]:
    """Return the cells of a run by these layers, second processes and other sides apart.

    ``is_large`` keeps networks of libraries for 128 pixels and more, or all others.
    """
    kept: dict[object, CellReport] = {}
    for report in reports:
        cell = report.cell
        if cell.replica or cell.side or (is_large is not None and is_large_image(cell.workload) is not is_large):
            continue
        known = replace(cell, rebuild=False)
        if known not in kept or not cell.rebuild:
            kept[known] = report
    made = [point_of(report) for report in kept.values()]
    # Two searches of one compiler, such as of 64 trials and of 512, have each their own time.
    alike = Counter(map(_place, made))
    return [replace(one, how=str(one.report.cell.compiler)) if alike[_place(one)] > 1 else one for one in made]


def _place(point: Point) -> tuple[Platform, str, str, str]:
    return point.platform, point.model, point.compression, point.how


def point_of(report: CellReport) -> Point:
    """Return one cell by these layers."""
    cell = report.cell
    how, is_tuned = how_of(cell.compiler)
    return Point(Platform(cell.device, is_tuned), model_of(cell.workload), compression_of(cell.workload), how, report)


def how_of(compiler: CompilerSpec) -> tuple[str, bool]:
    """Return what computes, by name, and whether its schedules were searched for."""
    is_tuned = bool(_SEARCHED & {name for name, _ in compiler.options})
    options = tuple(option for option in compiler.options if option[0] not in _SEARCHED)
    options = tuple(option for option in options if option != ("untuned", ""))
    return str(replace(compiler, options=options)), is_tuned


def compression_of(workload: Workload) -> str:
    """Return what was done to a network: its steps and its precision, ``dense`` for neither."""
    return written(workload.optimize, workload.precision)


def model_of(workload: Workload) -> str:
    """Return a model with its axes but those that compress it."""
    left = [label for label in workload.axis_labels(*_LAYERS) if label != "batch1"]
    return " ".join([workload.model.text, *left])


def is_large_image(workload: Workload) -> bool:
    """Return whether a cell belongs beside the paper's ImageNet tables."""
    is_library = workload.model.text.partition(":")[0] in _LIBRARIES
    return is_library and (workload.image_size or 224) >= _LARGE_IMAGE


def nominal_ratio(compression: str) -> float | None:
    """Return the share that one step, or fewer bits, ask to take away. None of several of them, and of dense."""
    if compression == DENSE:
        return None
    base = compression.partition("[")[0]
    if base in _BITS:
        return _BITS[base]
    steps = compression.split("+")
    if len(steps) > 1:
        return None
    try:
        return float(compression.rpartition("=")[2])
    except ValueError:
        return None


def method_of(compression: str) -> str:
    """Return a compression without its ratio, as its curve over ratios is called."""
    return compression if nominal_ratio(compression) is None or "=" not in compression else (
        compression.rpartition("=")[0]
    )  # fmt: skip


def in_order(names: Iterable[str]) -> list[str]:
    """Return compressions in the order of tables: dense, then by name and ratio, quantised ones last."""
    known = dict.fromkeys(names)
    return sorted(known, key=lambda name: (name != DENSE, "=" not in name, natural(name)))


def hows(found: Iterable[Point]) -> list[str]:
    """Return what computes, in the order of tables."""
    return sorted({point.how for point in found}, key=natural)


def ratio_of(first: Estimate, second: Estimate) -> Estimate:
    """Return how many times faster the second time is, with an interval as if the two were independent.

    They share launches, where what is slow for both cancels out: the interval is rather too wide.
    """
    value = first.value / second.value
    reach = math.hypot(_reach(first), _reach(second))
    launches = min(first.launches, second.launches)
    return Estimate("speedup", value, value * math.exp(-reach), value * math.exp(reach), launches)


def _reach(estimate: Estimate) -> float:
    """Return half an interval on the scale of logarithms, where what stands below zero is unbounded."""
    if not (math.isfinite(estimate.low) and math.isfinite(estimate.high)) or estimate.low <= 0:
        return math.inf
    return math.log(estimate.high / estimate.low) / 2


@dataclass(frozen=True, slots=True)
class Winner:
    """What was the fastest of several: its name, and whether its interval lies below that of each other one."""

    name: str
    point: Point
    is_shown: bool

    def __str__(self) -> str:
        return self.name if self.is_shown else f"{self.name}?"


def fastest(found: Mapping[str, Point] | Sequence[tuple[str, Point]]) -> Winner | None:
    """Return the fastest of these, None where none has a time."""
    pairs = list(found.items()) if isinstance(found, Mapping) else list(found)
    timed = [(name, point, point.latency) for name, point in pairs if point.latency is not None]
    if not timed:
        return None
    name, point, best = min(timed, key=lambda one: one[2].value)
    others = [latency for _, other, latency in timed if other is not point]
    return Winner(name, point, all(best.high < other.low for other in others))

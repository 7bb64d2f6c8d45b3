"""Means over architectural families and ranges of batches, as in NGraphBench's Table VI."""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import TYPE_CHECKING

from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.quantity import LEVEL, Estimate
from pytest_ngraph.report.results.natural import natural

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport

# The paper's families (its Table IV) by how the names of their models begin in timm.
_FAMILIES = {
    "resnet": "ResNets",
    "efficientnet": "EfficientNets",
    "deit": "DeiTs",
    "swin": "Swins",
    "convnext": "ConvNeXts",
}
# Their names begin with the family.
_LIBRARIES = ("timm", "torchvision")
_BLOCKS = {"block:conv": "Conv blocks", "block:mha": "MHA blocks"}
BATCH_RANGES = ((2, 4), (8, 16))


@functools.cache
def family_of(model: str) -> str:
    """Return the family of a model reference: one of the paper's, else what its name in a library begins with.

    A model that is neither of a library nor a block is a family of its own.
    """
    scheme, _, name = model.partition(":")
    if scheme not in _LIBRARIES:
        return _BLOCKS.get(model, model)
    letters = re.match(r"[A-Za-z]+?(?=v?\d|[_.]|$)", name)
    stem = letters.group().lower() if letters else ""
    return _FAMILIES.get(stem, stem or model)


@dataclass(frozen=True, slots=True)
class Mean:
    """The mean of a metric over cells, in its unit.

    ``deviation`` is the mean of the cells' standard deviations, over repetitions (protocol ``paper``) or over launches,
    which is what stands behind the paper's plus-minus: models of one family and batches of one range differ by far
    more. None under ``quick``, and where a cell has only one launch of a protocol with error control. ``low`` and
    ``high`` are the means of the cells' bounds: an interval that holds however the cells depend on one another.
    """

    metric: str
    value: float
    deviation: float | None
    low: float
    high: float

    def __str__(self) -> str:
        write = METRICS[self.metric].format
        return f"{write(self.value)} ± {write(self.deviation) if self.deviation is not None else '?'}"


@dataclass(frozen=True, slots=True)
class FamilyRow:
    """A family on one device and compiler over the batches of one range.

    ``cells`` are averaged. ``missing`` names workloads that other compilers of the device have a throughput of and
    this one has not, so that its means are of something else. ``cpu_percent`` is None where it could not be read.
    """

    device: str
    compiler: str
    family: str
    batches: tuple[int, int]
    throughput: Mean
    cpu_percent: Mean | None
    cells: int
    missing: tuple[str, ...]


def family_table(
    reports: Sequence[CellReport], ranges: Sequence[tuple[int, int]] = BATCH_RANGES, *, protocol: str = "gate"
) -> list[FamilyRow]:
    """Return the rows of Table VI: families in the order of their first models, the baseline before its rivals.

    ``ranges`` are batches from and to, both included. Cells that differ in another axis than model and batch, such as
    their precision, are families of their own. Cells of the second process of a baseline and those of another side are
    left out, and those that were rebuilt where the same was measured without. ``protocol`` says what the estimates'
    intervals are made of.
    """
    timed = [one for one in reports if "throughput" in one.estimates]
    measured = [one for one in timed if not one.cell.replica and not one.cell.side]
    plain = {one.cell for one in measured if not one.cell.rebuild}
    measured = [one for one in measured if not one.cell.rebuild or replace(one.cell, rebuild=False) not in plain]
    rows = []
    families = dict.fromkeys(_kin(one) for one in reports)
    targets = dict.fromkeys((one.cell.device, str(one.cell.compiler)) for one in _baselines_first(measured))
    for family in families:
        for device, compiler in targets:
            for batches in ranges:
                among = [one for one in measured if one.cell.device == device and _belongs(one, family, batches)]
                mine = [one for one in among if str(one.cell.compiler) == compiler]
                there = {one.cell.workload.label for one in among}
                if mine:
                    rows.append(_row(mine, device, compiler, " ".join(family), batches, there, protocol))
    return rows


def _baselines_first(reports: Sequence[CellReport]) -> list[CellReport]:
    return sorted(reports, key=lambda one: (one.baseline is not None, natural(str(one.cell.compiler))))


def _kin(report: CellReport) -> tuple[str, ...]:
    """Return a cell's family and the axes that are not averaged over."""
    workload = report.cell.workload
    return (family_of(workload.model.text), *workload.axis_labels("batch"))


def _belongs(report: CellReport, family: tuple[str, ...], batches: tuple[int, int]) -> bool:
    return _kin(report) == family and batches[0] <= report.cell.workload.batch <= batches[1]


def _row(
    mine: Sequence[CellReport],
    device: str,
    compiler: str,
    family: str,
    batches: tuple[int, int],
    there: set[str],
    protocol: str,
) -> FamilyRow:
    cpu = [one.estimates["cpu_percent"] for one in mine if "cpu_percent" in one.estimates]
    have = {one.cell.workload.label for one in mine}
    return FamilyRow(
        device=device,
        compiler=compiler,
        family=family,
        batches=batches,
        throughput=_mean([one.estimates["throughput"] for one in mine], protocol),
        cpu_percent=_mean(cpu, protocol) if len(cpu) == len(mine) else None,
        cells=len(mine),
        missing=tuple(sorted(there - have, key=natural)),
    )


def _mean(estimates: Sequence[Estimate], protocol: str) -> Mean:
    deviations = [_deviation(one, protocol) for one in estimates]
    known = [one for one in deviations if one is not None]
    return Mean(
        estimates[0].metric,
        fmean(one.value for one in estimates),
        fmean(known) if len(known) == len(deviations) else None,
        fmean(one.low for one in estimates),
        fmean(one.high for one in estimates),
    )


def _deviation(estimate: Estimate, protocol: str) -> float | None:
    """Return the standard deviation that an estimate's interval was made of, in the metric's unit, if of one.

    On the log scale it is that of the logarithm, times the value. A standard error within one launch is not made of it.
    """
    if (
        protocol == "quick"
        or (protocol != "paper" and estimate.launches < 2)
        or not (math.isfinite(estimate.low) and math.isfinite(estimate.high))
    ):
        return None
    if METRICS[estimate.metric].scale == "log":
        half = estimate.value * math.log(estimate.high / estimate.low) / 2 if estimate.low > 0 else math.inf
    else:
        half = (estimate.high - estimate.low) / 2
    if protocol == "paper":
        return half
    from scipy.special import stdtrit

    return half * math.sqrt(estimate.launches) / float(stdtrit(estimate.launches - 1, 1 - LEVEL))

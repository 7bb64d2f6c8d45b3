"""A run by the third paper's two setups: which cell is of which, of which of its models, and how it ran."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.lvt.published import BERT, LATENCY, METRICS, RESNET, THROUGHPUT, Metric
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.shapes.mixes import is_mix
from pytest_ngraph.texts.shown import one_line

FOCUSES = (LATENCY, THROUGHPUT)
SUITE = "pytest example_suites/latency_vs_throughput"
# Those of the paper; a server under load is another question, as are mixes of batches and calls that generate tokens.
_SCENARIOS = ("latency", "throughput")
# What stands for what cannot be read, and how much of the reason stands beside it.
NULL = "null"
_LETTERS = 80


@dataclass(frozen=True, slots=True)
class Setup:
    """One cell: what it is set up for, latency or throughput, which of the paper's models it is of, and how it ran."""

    focus: str
    model: str
    how: str
    report: CellReport

    @property
    def device(self) -> str:
        """Return where it ran."""
        return self.report.cell.device

    def estimate(self, metric: Metric) -> Estimate | None:
        """Return one of the six metrics in the paper's unit, or None where the run has none."""
        found = self.report.estimates.get(metric.name)
        if found is None:
            return None
        value, low, high = (metric.factor * each for each in (found.value, found.low, found.high))
        return replace(found, value=value, low=low, high=high)


def focus_of(workload: Workload) -> str:
    """Return what a cell is set up for: one sample after the other for latency; batches, or several calls, else."""
    return LATENCY if workload.scenario == "latency" and workload.batch == 1 else THROUGHPUT


def model_of(workload: Workload) -> str:
    """Return what the paper calls a model, or its own name."""
    kind, _, name = workload.model.text.partition(":")
    name = name.partition("[")[0]
    if kind in ("torchvision", "timm") and name == "resnet50" and workload.image_size in (None, 224):
        return RESNET
    return BERT if workload.model.text == "transformers:bert-base-uncased" else workload.model.text


def how_of(report: CellReport) -> str:
    """Return what a cell ran as: its compiler, then its axes but for those that are as usual."""
    cell = report.cell
    return ", ".join([str(cell.compiler), *cell.workload.axis_labels()])


def _is_asked(workload: Workload) -> bool:
    return workload.scenario in _SCENARIOS and workload.decode is None and not is_mix(workload.shapes)


def setups(reports: Iterable[CellReport]) -> list[Setup]:
    """Return the cells of a run that have one of the metrics: by device, setup, model and how they ran.

    Second processes and other sides are left out.
    """
    kept: dict[object, CellReport] = {}
    for report in reports:
        cell = report.cell
        if cell.replica or cell.side or not _is_asked(cell.workload):
            continue
        if not any(metric.name in report.estimates for metric in METRICS):
            continue
        known = replace(cell, rebuild=False)
        if known not in kept or not cell.rebuild:
            kept[known] = report
    made = [Setup(focus_of(one.cell.workload), model_of(one.cell.workload), how_of(one), one) for one in kept.values()]
    models = {name: place for place, name in enumerate((RESNET, BERT))}
    return sorted(
        made,
        key=lambda one: (
            natural(one.device),
            FOCUSES.index(one.focus),
            models.get(one.model, len(models)),
            natural(one.model),
            natural(one.how),
        ),
    )


def why_null(metric: Metric, setup: Setup, *, on_gpu: bool) -> str:
    """Return why a cell lacks one of the metrics."""
    if metric.name == "gpu_utilisation_percent" and not on_gpu:
        return "no GPU"
    if why := setup.report.unread.get(metric.name):
        # Where several were asked, what the last one said: the others are of other machines.
        return one_line(why.rpartition("; ")[2], _LETTERS)
    if metric.name == "gpu_utilisation_percent":
        return "its use was not read"
    failure = setup.report.failure
    return str(failure.outcome) if failure is not None else "not measured"

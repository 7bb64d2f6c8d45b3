"""What the fixtures give: a measurement, or a sweep over batches, depths or models; lazy until first asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.estimates import (
    CellFailed,
    Channel,
    Estimate,
    NarrowedAway,
    Quantity,
    Source,
    combine,
    has_second_channel,
    log_contrast,
    once_per_launch,
    summaries,
)
from pytest_ngraph.metrics import METRICS, slope_weights
from pytest_ngraph.spec import Cell, CompileRecord, LaunchRecord, Outcome, Workload

if TYPE_CHECKING:
    from pytest_ngraph.stats.launches import LaunchValue


class Measurement:
    """One cell, measured when first asked: every metric is an Estimate; nothing is measured before."""

    def __init__(self, source: Source, cell: Cell, baseline: Cell) -> None:
        self._source, self.cell, self.baseline = source, cell, baseline

    def __repr__(self) -> str:
        return f"<Measurement {self.cell.label}>"

    @property
    def target(self) -> str:
        """Name the compiler-device pair."""
        return self.cell.target

    @property
    def workload(self) -> Workload:
        """Return what is run."""
        return self.cell.workload

    # Each metric stands twice: as a quantity, which claims are made of, and as an estimate.

    def quantity(self, metric: str) -> Quantity:
        """Return a metric of this cell as a quantity; raise SpecError where a single cell does not have it."""
        makers = {
            "latency": self._latency,
            "throughput": self._throughput,
            "speedup": self._speedup,
            "compile_seconds": lambda: self._once("compile_seconds", lambda r: None if r.loaded else r.compile_seconds),
            "load_seconds": lambda: self._once("load_seconds", lambda r: r.compile_seconds if r.loaded else None),
            "export_seconds": lambda: self._once("export_seconds", lambda r: r.export_seconds, told_again=True),
            "first_call_seconds": lambda: self._once("first_call_seconds", lambda r: r.first_call_seconds),
            "warmup_seconds": lambda: self._once("warmup_seconds", _until_warm),
            "tuning_seconds": lambda: self._once("tuning_seconds", lambda r: r.tuning_seconds, told_again=True),
            "tuning_trials": lambda: self._once("tuning_trials", lambda r: r.tuning_trials, told_again=True),
            "model_bytes": lambda: self._once("model_bytes", lambda r: r.model_bytes),
            "peak_memory_bytes": lambda: self._once("peak_memory_bytes", lambda r: r.peak_memory_bytes, memory=True),
            "cpu_percent": self._cpu_percent,
        }
        if metric not in makers:
            raise SpecError(f"metric {metric!r} is not one of a single cell (known: {', '.join(sorted(makers))})")
        return makers[metric]()

    def _label(self, metric: str) -> str:
        return f"{METRICS[metric].title} of {self.cell.label}"

    def _latency(self) -> Quantity:
        """Return the time of a call: of several in flight it is not the time between two completions."""
        channel: Channel = "usual" if self.workload.scenario == "latency" else "requests"
        terms = [(self.cell, 1.0)]
        return log_contrast(self._source, "latency", self._label("latency"), terms, subject=self.cell, channel=channel)

    def _throughput(self) -> Quantity:
        terms, offset = [(self.cell, -1.0)], math.log(self.workload.batch)
        return log_contrast(
            self._source, "throughput", self._label("throughput"), terms, subject=self.cell, offset=offset
        )

    def _once(self, metric: str, pick: Callable[[CompileRecord], float | None], **how: bool) -> Quantity:
        return once_per_launch(self._source, metric, self._label(metric), self.cell, pick, **how)

    def _speedup(self) -> Quantity:
        other = Measurement(self._source, self.baseline, self.baseline)
        label = f"speed-up of {self.cell.label} over {self.baseline.compiler}"
        seen_as = "latency" if self.workload.scenario == "latency" else "throughput"
        parts = (self.quantity(seen_as), other.quantity(seen_as))
        return log_contrast(
            self._source, "speedup", label, [(self.baseline, 1.0), (self.cell, -1.0)], subject=self.cell, parts=parts
        )

    def _cpu_percent(self) -> Quantity:
        cell, cpus = self.cell, self._source.cpus

        def of_launch(record: LaunchRecord) -> LaunchValue | None:
            from pytest_ngraph.stats.launches import launch_value

            shares = [summary.cpu_share for summary in summaries(record, cell).values()]
            return launch_value([100 * share / cpus for share in shares if share is not None])

        return Quantity(self._source, METRICS["cpu_percent"], self._label("cpu_percent"), (cell,), cell, of_launch)

    @property
    def latency(self) -> Estimate:
        """Seconds per call; with several in flight the mean time from submission to completion."""
        return self.quantity("latency").estimate()

    @property
    def throughput(self) -> Estimate:
        """Samples per second: batch / seconds per call; with several in flight, samples completed / wall time."""
        return self.quantity("throughput").estimate()

    @property
    def speedup(self) -> Estimate:
        """Throughput over the baseline's (the paper's Figure 6)."""
        return self.quantity("speedup").estimate()

    @property
    def compile_seconds(self) -> Estimate:
        """Seconds of compiling, export and first call apart; launches that loaded a cached result do not count."""
        return self.quantity("compile_seconds").estimate()

    @property
    def load_seconds(self) -> Estimate:
        """Seconds of loading what was compiled before, in the launches that could."""
        return self.quantity("load_seconds").estimate()

    @property
    def export_seconds(self) -> Estimate:
        """Seconds the export to the shared ONNX file took, once, when it was made."""
        return self.quantity("export_seconds").estimate()

    @property
    def first_call_seconds(self) -> Estimate:
        """Seconds of the first call after compiling."""
        return self.quantity("first_call_seconds").estimate()

    @property
    def warmup_seconds(self) -> Estimate:
        """Seconds from the first call, itself included, until calls are as fast as they stay."""
        return self.quantity("warmup_seconds").estimate()

    @property
    def tuning_seconds(self) -> Estimate:
        """Seconds that searching for the best code has cost in all, in whatever runs; compiling is apart."""
        return self.quantity("tuning_seconds").estimate()

    @property
    def tuning_trials(self) -> Estimate:
        """Candidates that the search has tried in all."""
        return self.quantity("tuning_trials").estimate()

    @property
    def peak_memory_bytes(self) -> Estimate:
        """Peak resident bytes of a process that loads, compiles and runs just this cell, in an untimed pass."""
        return self.quantity("peak_memory_bytes").estimate()

    @property
    def model_bytes(self) -> Estimate:
        """Bytes of the model as this compiler reads it."""
        return self.quantity("model_bytes").estimate()

    @property
    def cpu_percent(self) -> Estimate:
        """CPU time / wall time while calls run, as percent of the device's CPUs (the paper's Table VI)."""
        return self.quantity("cpu_percent").estimate()

    @property
    def record(self) -> CompileRecord:
        """What preparing the cell gave in its latest launch; raises CellFailed where the cell has no time."""
        return self._source.latest(self.cell)

    @property
    def placement(self) -> Mapping[str, str]:
        """What really ran: provider, precision as read back, threads, and what else the adapter reads."""
        return dict(self.record.placement)

    @property
    def outcome(self) -> Outcome:
        """What became of the cell; measures it first."""
        try:
            return self.record.outcome
        except CellFailed as failed:
            return failed.record.outcome

    @property
    def max_error(self) -> float | None:
        """Max |y - reference| / max |reference| over all outputs; None where there is nothing to compare."""
        return self.record.max_error

    def ensure(self) -> None:
        """Measure the cell now if it was not; raise CellFailed where it has no time."""
        self._source.ensure((self.cell,))


class BatchSweep(Mapping[int, Measurement]):
    """The cells of one target and model over batches; batch 1 is always there as the reference."""

    def __init__(self, source: Source, cells: Mapping[int, Measurement], asked: Sequence[int]) -> None:
        self._source, self._cells, self.batches = source, dict(cells), tuple(asked)

    def __getitem__(self, batch: int) -> Measurement:
        return self._cells[_known(batch, self._cells, "batch", self.batches)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        return f"<BatchSweep {self.target} {', '.join(map(str, self.batches))}>"

    @property
    def target(self) -> str:
        """Name the compiler-device pair."""
        return self._cells[1].target

    def quantity(self, metric: str, batch: int) -> Quantity:
        """Return rtr, ase or bsr at a batch, or any metric of that batch's cell, as a quantity."""
        at, one = self[batch], self[1]
        title = METRICS[metric].title if metric in METRICS else metric
        label = f"{title} at batch {batch} of {self.target} {_model(self[1], 'batch')}"
        terms = [(one.cell, 1.0), (at.cell, -1.0)]
        parts = (one.quantity("throughput"), at.quantity("throughput"))
        if metric == "rtr":
            return log_contrast(self._source, "rtr", label, terms, subject=at.cell, offset=math.log(batch), parts=parts)
        if metric == "ase":
            return log_contrast(self._source, "ase", label, terms, subject=at.cell, parts=parts)
        if metric == "bsr":
            other = [(one.baseline, -1.0), (at.baseline, 1.0)]
            against = log_contrast(
                self._source,
                "ase",
                f"{METRICS['ase'].title} at batch {batch} of {one.baseline.target} {_model(one, 'batch')}",
                [(one.baseline, 1.0), (at.baseline, -1.0)],
                subject=at.baseline,
            )
            parts = (self.quantity("ase", batch), against)
            return log_contrast(
                self._source,
                "bsr",
                f"{label} over {one.baseline.compiler}",
                [*terms, *other],
                subject=at.cell,
                parts=parts,
            )
        return at.quantity(metric)

    def rtr(self, batch: int) -> Estimate:
        """RTR_c(b) = T_c(b) / T_c(1) (the paper's section V-A4)."""
        return self.quantity("rtr", batch).estimate()

    def ase(self, batch: int) -> Estimate:
        """ASE_c(b) = T_c(b) / (b T_c(1)) (the paper's section V-A4)."""
        return self.quantity("ase", batch).estimate()

    def bsr(self, batch: int) -> Estimate:
        """BSR_c(b) = ASE_c(b) / ASE_baseline(b) (the paper's section V-A4)."""
        return self.quantity("bsr", batch).estimate()

    def ensure(self) -> None:
        """Measure the sweep now if it was not; raise CellFailed where a cell has no time."""
        self._source.ensure([measurement.cell for measurement in self._cells.values()])


class DepthSweep(Mapping[int, Measurement]):
    """The cells of one target and model over depths; depth 1 is always there as the reference."""

    def __init__(self, source: Source, cells: Mapping[int, Measurement], asked: Sequence[int]) -> None:
        self._source, self._cells, self.depths = source, dict(cells), tuple(asked)

    def __getitem__(self, depth: int) -> Measurement:
        return self._cells[_known(depth, self._cells, "depth", self.depths)]

    def __iter__(self) -> Iterator[int]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def __repr__(self) -> str:
        return f"<DepthSweep {self.target} {', '.join(map(str, self.depths))}>"

    @property
    def target(self) -> str:
        """Name the compiler-device pair."""
        return self._cells[1].target

    def quantity(self, metric: str) -> Quantity:
        """Return slope or retention as a quantity."""
        first, last = min(self._cells), max(self._cells)
        gone = [depth for depth in self.depths if depth not in self._cells]
        if gone and (metric == "slope" or max(gone) > last):
            raise NarrowedAway(f"{metric}: depths {', '.join(map(str, gone))} were narrowed away on the command line")
        if first == last:
            raise ClaimError(f"{metric} of {self.target}: one depth only ({first}); name at least two in depths=")
        label = f"{METRICS[metric].title} over depths {first} to {last} of {self.target}"
        label += f" {_model(self[first], 'depth')} over {self[first].baseline.compiler}"
        parts = (self[first].quantity("speedup"), self[last].quantity("speedup"))
        if metric == "retention":
            terms = [
                (self[last].baseline, 1.0),
                (self[last].cell, -1.0),
                (self[first].baseline, -1.0),
                (self[first].cell, 1.0),
            ]
            return log_contrast(self._source, "retention", label, terms, subject=self[last].cell, parts=parts)
        if metric != "slope":
            raise SpecError(f"metric {metric!r} is not one of a depth sweep (known: retention, slope)")
        return self._slope(label, parts)

    def _slope(self, label: str, parts: tuple[Quantity, ...]) -> Quantity:
        """Return the least-squares slope of the speed-up on depth, evaluated per block (MEASUREMENT, step 9)."""
        depths = sorted(self._cells)
        cells = [cell for depth in depths for cell in (self[depth].baseline, self[depth].cell)]
        weights = list(slope_weights(depths).values())

        def function(values: Sequence[float]) -> float:
            speedups = [math.exp(values[2 * k] - values[2 * k + 1]) for k in range(len(depths))]
            return math.fsum(weight * speedup for weight, speedup in zip(weights, speedups, strict=True))

        def of_launch(record: LaunchRecord, *, channel: Channel = "usual") -> LaunchValue | None:
            # For the paper's deviations only: the speed-up is about one, so d slope / d ln t is about the weight.
            slopes = [sign * weight for weight in weights for sign in (1.0, -1.0)]
            return combine(record, cells, function, slopes, channel=channel)

        return Quantity(
            self._source,
            METRICS["slope"],
            label,
            tuple(cells),
            self[depths[-1]].cell,
            of_launch,
            parts,
            timed=True,
            of_minimum=partial(of_launch, channel="fastest") if has_second_channel(cells) else None,
        )

    @property
    def slope(self) -> Estimate:
        """Least-squares slope of the speed-up on depth, per layer (the paper's section V-C)."""
        return self.quantity("slope").estimate()

    @property
    def retention(self) -> Estimate:
        """Speed-up of the deepest stack over that of a single block (the paper's section V-C)."""
        return self.quantity("retention").estimate()

    def mean_speedup(self) -> float:
        """Return the mean speed-up over the depths, which scales the slope's tolerance."""
        return math.fsum(measurement.speedup.value for measurement in self._cells.values()) / len(self._cells)

    def ensure(self) -> None:
        """Measure the sweep now if it was not; raise CellFailed where a cell has no time."""
        self._source.ensure([measurement.cell for measurement in self._cells.values()])


class ModelSweep(Mapping[str, Measurement]):
    """The cells of one target over models, by the reference the suite wrote."""

    def __init__(self, source: Source, cells: Mapping[str, Measurement], asked: Sequence[str] = ()) -> None:
        self._source, self._cells, self.models = source, dict(cells), tuple(asked)

    def __getitem__(self, model: str) -> Measurement:
        return self._cells[_known(model, self._cells, "model", self.models)]

    def __iter__(self) -> Iterator[str]:
        return iter(self._cells)

    def __len__(self) -> int:
        return len(self._cells)

    def ensure(self) -> None:
        """Measure all models now if they were not; raise CellFailed where one has no time."""
        self._source.ensure([measurement.cell for measurement in self._cells.values()])


_Value = TypeVar("_Value", int, str)


def _known(value: _Value, cells: Mapping[_Value, Measurement], axis: str, asked: Sequence[_Value]) -> _Value:
    if value in cells:
        return value
    there = ", ".join(map(str, cells))
    if value in asked:
        raise NarrowedAway(f"{axis} {value} was narrowed away on the command line (left: {there})")
    raise ClaimError(f"{axis} {value} is not in this sweep (there: {there})")


def _until_warm(record: CompileRecord) -> float | None:
    """Return the seconds of the first call and of those that were slow after it."""
    if record.first_call_seconds is None or record.slow_start_seconds is None:
        return None
    return record.first_call_seconds + record.slow_start_seconds


def _model(measurement: Measurement, swept: str) -> str:
    """Name a sweep's model with the axes that are the same for all of its cells."""
    fixed = [label for label in measurement.workload.axis_labels() if not label.startswith(swept)]
    return " ".join([measurement.workload.model.text, *fixed])

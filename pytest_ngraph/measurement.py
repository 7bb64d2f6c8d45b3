"""One cell as a test sees it: every metric is an estimate, lazy until first asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from statistics import fmean, variance
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compared import top1_of
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.estimates import (
    CellFailed,
    Channel,
    Estimate,
    Quantity,
    Source,
    log_contrast,
    once_per_launch,
    summaries,
)
from pytest_ngraph.metrics import METRICS, cpu_reduction
from pytest_ngraph.spec import Cell, CompileRecord, LaunchRecord, Outcome, Workload

if TYPE_CHECKING:
    from pytest_ngraph.stats.launches import LaunchValue
    from pytest_ngraph.stats.shares import Share


class Measurement:
    """One cell, measured when first asked: every metric is an Estimate; nothing is measured before."""

    def __init__(self, source: Source, cell: Cell, baseline: Cell) -> None:
        self.source, self.cell, self.baseline = source, cell, baseline

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
            "compile_seconds": lambda: self._once("compile_seconds", building, told_again=lambda r: r.loaded),
            "load_seconds": lambda: self._once("load_seconds", lambda r: r.compile_seconds if r.loaded else None),
            "export_seconds": lambda: self._once("export_seconds", lambda r: r.export_seconds, told_again=_always),
            "first_call_seconds": lambda: self._once("first_call_seconds", lambda r: r.first_call_seconds),
            "warmup_seconds": lambda: self._once("warmup_seconds", until_warm),
            "tuning_seconds": lambda: self._once("tuning_seconds", lambda r: r.tuning_seconds, told_again=_always),
            "tuning_trials": lambda: self._once("tuning_trials", lambda r: r.tuning_trials, told_again=_always),
            "model_bytes": lambda: self._once("model_bytes", lambda r: r.model_bytes),
            "peak_memory_bytes": lambda: self._once("peak_memory_bytes", lambda r: r.peak_memory_bytes, memory=True),
            "cpu_percent": self._cpu_percent,
            "cpu_reduction_percent": self._cpu_reduction,
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
        return log_contrast(self.source, "latency", self._label("latency"), terms, subject=self.cell, channel=channel)

    def _throughput(self) -> Quantity:
        terms, offset = [(self.cell, -1.0)], math.log(self.workload.batch)
        return log_contrast(
            self.source, "throughput", self._label("throughput"), terms, subject=self.cell, offset=offset
        )

    def _once(self, metric: str, pick: Callable[[CompileRecord], float | None], **how: Any) -> Quantity:
        return once_per_launch(self.source, metric, self._label(metric), self.cell, pick, **how)

    def _speedup(self) -> Quantity:
        other = Measurement(self.source, self.baseline, self.baseline)
        label = f"speed-up of {self.cell.label} over {self.baseline.compiler}"
        seen_as = "latency" if self.workload.scenario == "latency" else "throughput"
        parts = (self.quantity(seen_as), other.quantity(seen_as))
        return log_contrast(
            self.source, "speedup", label, [(self.baseline, 1.0), (self.cell, -1.0)], subject=self.cell, parts=parts
        )

    def _cpu_percent(self) -> Quantity:
        cell, cpus = self.cell, self.source.cpus

        def of_launch(record: LaunchRecord) -> LaunchValue | None:
            from pytest_ngraph.stats.launches import LaunchValue, launch_value

            if record.protocol == "paper":
                # Mean and deviation of the repetitions, as for the times; there are none where it cannot be read.
                each = [
                    100 * cpu / wall / cpus
                    for visit in record.visits_of(cell).values()
                    for cpu, wall in zip(visit.cpu_ns, visit.wall_ns, strict=False)
                ]
                return LaunchValue(fmean(each), variance(each), len(each)) if len(each) > 1 else None
            shares = [summary.cpu_share for summary in summaries(record, cell).values()]
            return launch_value([100 * share / cpus for share in shares if share is not None])

        return Quantity(self.source, METRICS["cpu_percent"], self._label("cpu_percent"), (cell,), cell, of_launch)

    def _cpu_reduction(self) -> Quantity:
        cell, baseline = self.cell, self.baseline

        def of_launch(record: LaunchRecord) -> LaunchValue | None:
            from pytest_ngraph.stats.launches import launch_value

            mine, other = (
                {block: one.cpu_share for block, one in summaries(record, which).items() if one.cpu_share}
                for which in (cell, baseline)
            )
            return launch_value([cpu_reduction(share, other[block]) for block, share in mine.items() if block in other])

        label = f"{self._label('cpu_reduction_percent')} over {baseline.compiler}"
        parts = (self.quantity("cpu_percent"), Measurement(self.source, baseline, baseline).quantity("cpu_percent"))
        return Quantity(self.source, METRICS["cpu_reduction_percent"], label, (cell, baseline), cell, of_launch, parts)

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
        """Seconds of compiling, export and first call apart; launches that load a cached result tell its time again."""
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
    def cpu_reduction_percent(self) -> Estimate:
        """By how many per cent less CPU is used than by the baseline, below 0 where more (the paper's Figure 12)."""
        return self.quantity("cpu_reduction_percent").estimate()

    def tcr_per_second(self, bytes_before: float, bytes_after: float) -> Estimate:
        """Bytes that a compressing model saves to send, per second of computing (the paper's section IV, TCR/s).

        The sizes are those of one sample without and with compression. Raises ClaimError where nothing is saved.
        """
        saved = bytes_before - bytes_after
        if not (math.isfinite(saved) and saved > 0 and bytes_after >= 0):
            given = f"bytes_before={bytes_before}, bytes_after={bytes_after}"
            raise ClaimError(
                f"tcr_per_second: {given} (expected sizes of one sample, the second smaller than the first)"
            )
        terms, offset = [(self.cell, -1.0)], math.log(self.workload.batch) + math.log(saved)
        label = self._label("tcr_per_second")
        return log_contrast(self.source, "tcr_per_second", label, terms, subject=self.cell, offset=offset).estimate()

    @property
    def record(self) -> CompileRecord:
        """What preparing the cell gave in its latest launch; raises CellFailed where the cell has no time."""
        return self.source.latest(self.cell)

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
        """``max |y - reference| / max |reference|`` over all outputs; None where there is nothing to compare."""
        return self.record.max_error

    @property
    def cosine(self) -> float | None:
        """The smallest cosine of the angle between an output and its reference; None where nothing was compared."""
        return self.record.cosine

    @property
    def centred_cosine(self) -> float | None:
        """The same once the mean reference over a set of inputs is taken from both sides, or None."""
        return self.record.centred_cosine

    @property
    def top1_agreement(self) -> Share | None:
        """Of how many samples the largest class score is where the reference has it, with ``low`` and ``high``.

        None where outputs are no class scores, and where the reference gives one class to all samples.
        """
        return top1_of(self.record)

    @property
    def outputs_told_apart(self) -> bool | None:
        """Whether the check would have refused the outputs of other inputs; None where nothing was compared."""
        return self.record.outputs_told_apart

    def ensure(self) -> None:
        """Measure the cell now if it was not; raise CellFailed where it has no time."""
        self.source.ensure((self.cell,))


def until_warm(record: CompileRecord) -> float | None:
    """Return the seconds of the first call and of those that were slow after it."""
    if record.first_call_seconds is None or record.slow_start_seconds is None:
        return None
    return record.first_call_seconds + record.slow_start_seconds


def building(record: CompileRecord) -> float | None:
    """Return the seconds of compiling: of this launch, or of the one whose result it loads."""
    return record.built_seconds if record.loaded else record.compile_seconds


def _always(record: CompileRecord) -> bool:
    return True

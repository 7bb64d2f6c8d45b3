"""One cell as a test sees it: every metric is an estimate, lazy until first asked."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from functools import partial
from statistics import fmean, variance
from types import MappingProxyType
from typing import TYPE_CHECKING

from pytest_ngraph import metrics
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.metrics import METRICS, Number
from pytest_ngraph.quantities.accuracy import (
    ACCURACY,
    AGREEMENT,
    SAMPLES,
    TOP1,
    accuracies,
    agreements,
    dense_of,
    of_a_pass,
)
from pytest_ngraph.quantities.compared import top1_of
from pytest_ngraph.quantities.power import POWER_METRICS, of_power, why_indistinct, why_unread
from pytest_ngraph.quantities.quantity import (
    CellFailed,
    Channel,
    Estimate,
    NoOtherSide,
    NotStored,
    Once,
    Quantity,
    Source,
    of_times,
    once_per_launch,
    summaries,
)
from pytest_ngraph.spec.achieved import number, removed_percent, share_percent
from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord, Outcome, Workload
from pytest_ngraph.spec.resources import peaks
from pytest_ngraph.spec.resources.peaks import NAMES
from pytest_ngraph.spec.resources.power import ABOVE_IDLE
from pytest_ngraph.stats.launches import LaunchValue, launch_value

if TYPE_CHECKING:
    from pytest_ngraph.stats.shares import Share


HOW_TO_COMPARE = (
    "--ngraph-against=main (a revision, merge-base, onnxruntime==1.27.0 or python:PATH) measures the other side, too"
)


class Measurement:
    """One cell, measured when first asked: every metric is an Estimate. Nothing is measured before."""

    def __init__(self, source: Source, cell: Cell, baseline: Cell, other: Cell | None = None) -> None:
        """Take where launches come from, the cell, what it is compared with, and itself on the other side, if any."""
        self.source, self.cell, self.baseline, self.other = source, cell, baseline, other

    def __repr__(self) -> str:
        return self.source.text_of({self.cell: self.baseline}) or f"<Measurement {self.cell.label}>"

    def _repr_html_(self) -> str | None:
        return self.source.html_of({self.cell: self.baseline})

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
        """Return a metric of this cell as a quantity. Raise SpecError where a single cell does not have it."""
        if metric in ONCE:
            return once_per_launch(self.source, metric, self._label(metric), self.cell, ONCE[metric])
        makers: dict[str, Callable[[], Quantity]] = {
            "latency": self._latency,
            "throughput": self._throughput,
            "speedup": self._speedup,
            "time_to_first_token": lambda: self._of_tokens("time_to_first_token", "first"),
            "time_per_token": lambda: self._of_tokens("time_per_token", "step"),
            "tokens_per_second": self._tokens_per_second,
            "cpu_percent": self._cpu_percent,
            "cpu_reduction_percent": self._cpu_reduction,
        }
        if metric in POWER_METRICS:
            return of_power(self.source, metric, self._label(metric), self.cell)
        if metric.partition(":")[0] in (ACCURACY, AGREEMENT):
            return self._of_a_pass(metric)
        if metric not in makers:
            known = ", ".join(sorted([*makers, *ONCE, *POWER_METRICS, f"{ACCURACY}:{TOP1}", f"{AGREEMENT}:{TOP1}"]))
            raise SpecError(f"metric {metric!r} is not one of a single cell (known: {known})")
        return makers[metric]()

    def _label(self, metric: str) -> str:
        return f"{METRICS[metric].title} of {self.cell.label}"

    def _of_a_pass(self, metric: str) -> Quantity:
        """Return accuracy or agreement, such as ``accuracy:top1``, which it is of where nothing else is said."""
        what, _, of = metric.partition(":")
        metric = f"{what}:{of or TOP1}"
        estimates = self._accuracies if what == ACCURACY else self._agreements
        return of_a_pass(self.source, metric, self._label(metric), self.cell, estimates)

    def _accuracies(self) -> dict[str, Estimate]:
        return accuracies(self.source.evaluation(self.cell))

    def _agreements(self) -> dict[str, Estimate]:
        return agreements(self.source.agreement(self.cell, self.dense, SAMPLES))

    def _latency(self) -> Quantity:
        """Return the time of a call: of several in flight it is not the time between two completions."""
        channel: Channel = "usual" if self.workload.scenario == "latency" else "requests"
        label = self._label("latency")
        return of_times(
            self.source, "latency", label, [self.cell], lambda seconds: seconds[0], subject=self.cell, channel=channel
        )

    def _throughput(self) -> Quantity:
        batch = self.workload.samples_per_call
        return of_times(
            self.source,
            "throughput",
            self._label("throughput"),
            [self.cell],
            lambda seconds: metrics.throughput(seconds[0], batch),
            subject=self.cell,
        )

    def _of_tokens(self, metric: str, channel: Channel) -> Quantity:
        """Return the time of the first token of a call, or of each further one."""
        self._steps(metric)
        return of_times(
            self.source,
            metric,
            self._label(metric),
            [self.cell],
            lambda seconds: seconds[0],
            subject=self.cell,
            channel=channel,
        )

    def _tokens_per_second(self) -> Quantity:
        metric, batch = "tokens_per_second", self.workload.batch
        steps = self._steps(metric)
        return of_times(
            self.source,
            metric,
            self._label(metric),
            [self.cell],
            lambda seconds: metrics.tokens_per_second(seconds[0], batch, steps),
            subject=self.cell,
        )

    def _steps(self, metric: str) -> int:
        """Return how many tokens follow the first in a call. Raise ClaimError where it generates none."""
        if self.workload.decode is None:
            raise ClaimError(f"{self._label(metric)}: its calls generate no tokens; give decode=N in the marker")
        return self.workload.decode

    def _speedup(self) -> Quantity:
        other = Measurement(self.source, self.baseline, self.baseline)
        seen_as = "latency" if self.workload.scenario == "latency" else "throughput"
        return of_times(
            self.source,
            "speedup",
            f"speed-up of {self.cell.label} over {self.baseline.compiler}",
            [self.cell, self.baseline],
            lambda seconds: speedup_of(*seconds),
            subject=self.cell,
            parts=(self.quantity(seen_as), other.quantity(seen_as)),
        )

    def _cpu_percent(self) -> Quantity:
        cell, cpus = self.cell, self.source.cpus

        def of_launch(record: LaunchRecord) -> LaunchValue | None:
            if record.protocol == "paper":
                # Mean and deviation of the repetitions, as for the times; there are none where it cannot be read.
                each = [
                    metrics.cpu_percent(cpu / wall, cpus)
                    for visit in record.visits_of(cell).values()
                    for cpu, wall in zip(visit.cpu_ns, visit.wall_ns, strict=False)
                ]
                return LaunchValue(fmean(each), variance(each), len(each)) if len(each) > 1 else None
            shares = _cpu_shares(record, cell)
            counted = [shares[block] for block in record.blocks_for([cell], shares)]
            return launch_value([metrics.cpu_percent(share, cpus) for share in counted])

        return Quantity(self.source, METRICS["cpu_percent"], self._label("cpu_percent"), (cell,), cell, of_launch)

    def _cpu_reduction(self) -> Quantity:
        cell, baseline = self.cell, self.baseline

        def of_launch(record: LaunchRecord) -> LaunchValue | None:
            mine, other = (_cpu_shares(record, which) for which in (cell, baseline))
            both = [block for block, share in mine.items() if share and other.get(block)]
            blocks = record.blocks_for([cell, baseline], both, disturbed=True)
            return launch_value([metrics.cpu_reduction(mine[block], other[block]) for block in blocks])

        label = f"{self._label('cpu_reduction_percent')} over {baseline.compiler}"
        parts = (self.quantity("cpu_percent"), Measurement(self.source, baseline, baseline).quantity("cpu_percent"))
        return Quantity(self.source, METRICS["cpu_reduction_percent"], label, (cell, baseline), cell, of_launch, parts)

    def why_null(self, metric: str) -> str:
        """Return why a metric cannot be read of this cell, measuring it first, or nothing where it can.

        Raises SpecError where a single cell does not have it, CellFailed where this one has no time.
        """
        quantity = self.quantity(metric)
        if metric in POWER_METRICS and (why := why_unread(quantity)):
            return why
        try:
            quantity.estimate()
        except NotStored as reason:
            return self._why_unread(metric) or str(reason).removeprefix(f"{quantity.label}: ")
        return ""

    def _why_unread(self, metric: str) -> str:
        """Return what passes said of what they lack, or what is known of a size that is none."""
        if metric in POWER_METRICS:
            quantity = self.quantity(metric)
            if metric == ABOVE_IDLE and (why := why_indistinct(quantity)):
                return why
            lost = self.source.fruitless(quantity)
            return f"{len(lost.reasons)} passes do not count: {lost.reasons[-1]}" if lost.reasons else ""
        if metric == "model_bytes":
            return f"nothing is deployed: {self.cell.compiler.name} neither writes a file nor reads a model"
        if not (metric in ONCE and ONCE[metric].memory):
            return ""
        try:
            passes = self.source.records(self.quantity(metric))
        except NotStored:
            return ""
        reasons = (dict(one.prepared[self.cell].unread).get(metric) for one in reversed(passes))
        return next(filter(None, reasons), "")

    @property
    def latency(self) -> Estimate:
        """Seconds per call. With several in flight the mean time from submission to completion."""
        return self.quantity("latency").estimate()

    @property
    def throughput(self) -> Estimate:
        """Samples per second: batch / seconds per call. With several in flight, samples completed / wall time."""
        return self.quantity("throughput").estimate()

    @property
    def time_to_first_token(self) -> Estimate:
        """Seconds from the prompt to the logits of the first token, of a workload with ``decode=``."""
        return self.quantity("time_to_first_token").estimate()

    @property
    def time_per_token(self) -> Estimate:
        """Seconds of each token after the first: the mean over the steps of a call, of a workload with ``decode=``."""
        return self.quantity("time_per_token").estimate()

    @property
    def tokens_per_second(self) -> Estimate:
        """Tokens of whole calls over their seconds, the prompt's among them, of a workload with ``decode=``."""
        return self.quantity("tokens_per_second").estimate()

    @property
    def speedup(self) -> Estimate:
        """Throughput over the baseline's (the paper's Figure 6)."""
        return self.quantity("speedup").estimate()

    @property
    def compile_seconds(self) -> Estimate:
        """Seconds of compiling, without export and first call. Launches that load a cached result reuse its time."""
        return self.quantity("compile_seconds").estimate()

    @property
    def load_seconds(self) -> Estimate:
        """Seconds of loading what was compiled before, in the launches that could."""
        return self.quantity("load_seconds").estimate()

    @property
    def export_seconds(self) -> Estimate:
        """Seconds of the one export to the shared ONNX file, when it was made."""
        return self.quantity("export_seconds").estimate()

    @property
    def first_call_seconds(self) -> Estimate:
        """Seconds of the first call after compiling."""
        return self.quantity("first_call_seconds").estimate()

    @property
    def new_shape_seconds(self) -> Estimate:
        """Seconds of the first call at another batch of what was built for open shapes, with binding its inputs."""
        return self.quantity("new_shape_seconds").estimate()

    @property
    def warmup_seconds(self) -> Estimate:
        """Seconds from the first call, itself included, until calls are as fast as they stay."""
        return self.quantity("warmup_seconds").estimate()

    @property
    def tuning_seconds(self) -> Estimate:
        """Seconds that searching for the best code has cost in all, over all runs, without compiling."""
        return self.quantity("tuning_seconds").estimate()

    @property
    def tuning_trials(self) -> Estimate:
        """Candidates that the search has tried in all."""
        return self.quantity("tuning_trials").estimate()

    @property
    def peak_memory_bytes(self) -> Estimate:
        """Peak resident bytes of a process, with its children, that loads, compiles and runs just this cell."""
        return self.quantity("peak_memory_bytes").estimate()

    @property
    def compile_peak_memory_bytes(self) -> Estimate:
        """The same until the cell was compiled and called once, in passes that compiled it and loaded nothing."""
        return self.quantity("compile_peak_memory_bytes").estimate()

    @property
    def run_peak_memory_bytes(self) -> Estimate:
        """The same while further calls run."""
        return self.quantity("run_peak_memory_bytes").estimate()

    @property
    def peak_gpu_memory_bytes(self) -> Estimate:
        """Peak bytes that the processes of such a pass held on the GPU."""
        return self.quantity("peak_gpu_memory_bytes").estimate()

    @property
    def gpu_utilisation_percent(self) -> Estimate:
        """Per cent of the time in which the GPU ran anything at all while calls ran: a duty cycle."""
        return self.quantity("gpu_utilisation_percent").estimate()

    @property
    def joules_per_sample(self) -> Estimate:
        """Joules that what the probe covers drew while calls ran, over their samples."""
        return self.quantity("joules_per_sample").estimate()

    @property
    def joules_above_idle(self) -> Estimate:
        """The same less what the idle machine drew in windows beside."""
        return self.quantity("joules_above_idle").estimate()

    @property
    def samples_per_joule(self) -> Estimate:
        """Samples that a joule is enough for."""
        return self.quantity("samples_per_joule").estimate()

    @property
    def idle_watts(self) -> Estimate:
        """Power of the idle machine, measured in turn with the cell."""
        return self.quantity("idle_watts").estimate()

    @property
    def busy_watts(self) -> Estimate:
        """Power while calls ran."""
        return self.quantity("busy_watts").estimate()

    @property
    def model_bytes(self) -> Estimate:
        """Bytes of what is deployed: the engine, the ONNX file, or the parameters and buffers of a module."""
        return self.quantity("model_bytes").estimate()

    @property
    def cpu_percent(self) -> Estimate:
        """CPU time / wall time while calls run, as a percentage of the device's CPUs (the paper's Table VI)."""
        return self.quantity("cpu_percent").estimate()

    @property
    def cpu_reduction_percent(self) -> Estimate:
        """By how many per cent it uses less CPU than the baseline, below 0 if more (the paper's Figure 12)."""
        return self.quantity("cpu_reduction_percent").estimate()

    @property
    def dense(self) -> Cell:
        """The cell that accuracy and agreement are held to: the model as it was built, f32, under the baseline."""
        return dense_of(self.cell, self.baseline)

    @property
    def accuracy(self) -> Mapping[str, Estimate]:
        """Accuracy by name, such as ``["top1"]``: what the model's own ``evaluate(predict)`` says of the cell.

        It is measured once, in a pass of its own. The interval is over samples: binomial, exact, 99 %.
        """
        return {name.partition(":")[2]: estimate for name, estimate in self._accuracies().items()}

    @property
    def agreement(self) -> Mapping[str, Estimate]:
        """Agreement with the dense f32 model on seeded inputs: ``["top1"]`` and ``["centred_cosine"]``.

        It says nothing of how often either is right. ``top1`` is left out where outputs are no class scores.
        """
        return {name.partition(":")[2]: estimate for name, estimate in self._agreements().items()}

    def tcr_per_second(self, bytes_before: float, bytes_after: float) -> Estimate:
        """Bytes that a compressing model saves in transfer, per second of computing (the paper's section IV, TCR/s).

        The sizes are those of one sample without and with compression. Raises ClaimError where nothing is saved.
        """
        saved = bytes_before - bytes_after
        if not (math.isfinite(saved) and saved > 0 and bytes_after >= 0):
            given = f"bytes_before={bytes_before}, bytes_after={bytes_after}"
            raise ClaimError(
                f"tcr_per_second: {given} (expected sizes of one sample, the second smaller than the first)"
            )
        batch = self.workload.samples_per_call
        return of_times(
            self.source,
            "tcr_per_second",
            self._label("tcr_per_second"),
            [self.cell],
            lambda times: metrics.tcr_per_second(bytes_before, bytes_after, metrics.throughput(times[0], batch)),
            subject=self.cell,
        ).estimate()

    @property
    def record(self) -> CompileRecord:
        """What preparing the cell gave in its latest launch. Raises CellFailed where the cell has no time.

        How well outputs agreed is that of the worst launch of the first look.
        """
        return self.source.latest(self.cell)

    @property
    def placement(self) -> Mapping[str, str]:
        """What really ran: provider, precision as read back, threads, and what else the adapter reads."""
        return dict(self.record.placement)

    @property
    def outcome(self) -> Outcome:
        """What became of the cell. Measures it first."""
        try:
            return self.record.outcome
        except CellFailed as failed:
            return failed.record.outcome

    @property
    def max_error(self) -> float | None:
        """The largest ``max |y - reference| / max |reference|`` over all outputs, or None where nothing was compared.

        It is over the launches of the first look, as what follows is.
        """
        return self.record.max_error

    @property
    def cosine(self) -> float | None:
        """The smallest cosine of the angle between an output and its reference, or None where nothing was compared."""
        return self.record.cosine

    @property
    def centred_cosine(self) -> float | None:
        """The same once the mean reference over a set of inputs is taken from both sides, or None."""
        return self.record.centred_cosine

    @property
    def top1_agreement(self) -> Share | None:
        """The share of samples whose largest class score is that of the reference, with ``low`` and ``high``.

        None where outputs are not class scores, or the reference gives one class to all samples.
        """
        return top1_of(self.record)

    @property
    def outputs_told_apart(self) -> bool | None:
        """Whether the check would have refused the outputs of other inputs, or None where nothing was compared."""
        return self.record.outputs_told_apart

    @property
    def against(self) -> Measurement:
        """The same cell on the other side (``--ngraph-against``), measured in the same launches.

        Where nothing differs between the two it is this cell itself. Without another side its test is skipped.
        """
        return Measurement(self.source, self.cell, self.baseline) if self.is_unchanged else self.beside

    @property
    def beside(self) -> Measurement:
        """The same cell on the other side, whatever is known of it. Raises as ``against``."""
        if self.other is None:
            raise NoOtherSide(f"{self.cell.label}: nothing to compare with; {HOW_TO_COMPARE}")
        return Measurement(self.source, self.other, self.baseline)

    @property
    def is_unchanged(self) -> bool:
        """Whether code, versions and options of the other side are those of here, so that nothing is measured there."""
        return self.other is not None and self.source.is_unchanged(self.other)

    @property
    def change(self) -> Estimate:
        """Its throughput over that of the other side: below 1 it has become slower.

        Of calls that arrive at a rate it is the latency of the other side over its own.

        Where nothing differs it is 1, over no launch. Without another side its test is skipped.
        """
        if self.is_unchanged:
            return Estimate("change", 1.0, 1.0, 1.0, 0)
        from pytest_ngraph.quantities.comparisons import change

        return change(self).estimate()

    def ensure(self) -> None:
        """Measure the cell now unless that was done. Raise CellFailed where it has no time."""
        self.source.ensure((self.cell,))


def _cpu_shares(record: LaunchRecord, cell: Cell) -> dict[int, float]:
    """Return the CPUs that a cell used in each block of a launch, as far as that is known."""
    shares = {block: summary.cpu_share for block, summary in summaries(record, cell).items()}
    return {block: share for block, share in shares.items() if share is not None}


def speedup_of(seconds: Number, baseline: Number) -> Number:
    """Return the speed-up of calls of so many seconds over those of the baseline, of the same batch."""
    return metrics.speedup(metrics.throughput(seconds, 1), metrics.throughput(baseline, 1))


def _until_warm(record: CompileRecord) -> float | None:
    """Return the seconds of the first call and of those that were slow after it."""
    if record.first_call_seconds is None or record.slow_start_seconds is None:
        return None
    return record.first_call_seconds + record.slow_start_seconds


def _always(record: CompileRecord) -> bool:
    return True


def _peak(record: CompileRecord, name: str) -> int | None:
    return peaks.number(record.peaks, name)


# What preparing a cell gives once per launch. A compilation is of this launch, or of the one whose result it loads.
ONCE: Mapping[str, Once] = MappingProxyType(
    {
        "compile_seconds": Once(lambda r: r.built_seconds if r.loaded else r.compile_seconds, lambda r: r.loaded),
        "load_seconds": Once(lambda r: r.compile_seconds if r.loaded else None),
        "export_seconds": Once(lambda r: r.export_seconds, _always),
        "first_call_seconds": Once(lambda r: r.first_call_seconds),
        "warmup_seconds": Once(_until_warm),
        "new_shape_seconds": Once(lambda r: r.new_shape_seconds),
        "tuning_seconds": Once(lambda r: r.tuning_seconds, _always),
        "tuning_trials": Once(lambda r: r.tuning_trials, _always),
        "model_bytes": Once(lambda r: r.model_bytes),
        "peak_memory_bytes": Once(lambda r: r.peak_memory_bytes, memory=True),
        "peak_gpu_memory_bytes": Once(lambda r: r.peak_gpu_memory_bytes, memory=True),
        **{name: Once(partial(_peak, name=name), memory=True) for name in sorted(NAMES)},
        "parameters": Once(lambda r: number(r.achieved, "parameters")),
        "parameters_removed_percent": Once(lambda r: removed_percent(r.achieved, "parameters")),
        "macs": Once(lambda r: number(r.achieved, "macs")),
        "macs_removed_percent": Once(lambda r: removed_percent(r.achieved, "macs")),
        "sparsity_percent": Once(lambda r: share_percent(r.achieved, "zeros", "weights")),
        "layers_touched_percent": Once(lambda r: share_percent(r.achieved, "touched_layers", "layers")),
        "packed_bytes": Once(lambda r: number(r.achieved, "packed_bytes")),
        "sparse_bytes": Once(lambda r: number(r.achieved, "sparse_bytes")),
    }
)

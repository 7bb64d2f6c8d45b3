"""The paper's metrics as pure functions of numbers, and the table with one row for every metric there is.

Each formula stands here and nowhere else. The functions take numbers, or arrays of NumPy of one shape, whose elements
are taken one by one. NaN in an array is a missing number.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal, TypeVar

from pytest_ngraph import units
from pytest_ngraph.errors import SpecError

if TYPE_CHECKING:
    import numpy as np

Number = TypeVar("Number", float, "np.ndarray[Any, np.dtype[np.float64]]")


def throughput(seconds: Number, batch: float) -> Number:
    """Return the samples per second of calls of so many seconds, each of a batch.

    Of several calls in flight the seconds are those from completion to completion. Raises SpecError for seconds that
    are not positive and for a batch below 1.
    """
    if batch < 1:
        raise SpecError(f"throughput: batch {batch} (expected a whole number of at least 1)")
    return batch / _positive("throughput", "seconds", seconds)


def tokens_per_second(seconds: Number, batch: int, steps: int) -> Number:
    """Return the tokens per second of calls of so many seconds, each a prompt and ``steps`` tokens after the first.

    Each row of the batch is given 1 + ``steps`` tokens in such a call. Raises SpecError as ``throughput`` does.
    """
    return throughput(seconds, batch) * (1 + steps)


def rtr(throughput: Mapping[int, Number], batch: int) -> Number:
    """Return the relative throughput rate T(b) / T(1) (NGraphBench, section V-A4).

    ``throughput`` maps batch to samples per second. Raises SpecError where batch 1 or ``batch`` is missing or a
    throughput is not positive.
    """
    return _point("rtr", "throughput", throughput, batch) / _point("rtr", "throughput", throughput, 1)


def ase(throughput: Mapping[int, Number], batch: int) -> Number:
    """Return the scaling efficiency T(b) / (b T(1)), which is 1 for perfect batching (NGraphBench, section V-A4).

    ``throughput`` and errors are those of ``rtr``.
    """
    if batch < 1:
        raise SpecError(f"ase: batch {batch} (expected a whole number of at least 1)")
    return rtr(throughput, batch) / batch


def bsr(compiled: Mapping[int, Number], identity: Mapping[int, Number], batch: int) -> Number:
    """Return the batch scaling resilience ASE_compiled(b) / ASE_identity(b) (NGraphBench, section V-A4).

    Above 1 the compiler loses less to larger batches than the baseline. Arguments and errors are those of ``rtr``.
    """
    return ase(compiled, batch) / ase(identity, batch)


def speedup(compiled: Number, identity: Number) -> Number:
    """Return how many times the baseline's throughput the compiler reaches (NGraphBench, Figure 6), given samples/s."""
    return _positive("speedup", "compiled throughput", compiled) / _positive("speedup", "identity throughput", identity)


def slope_weights(depths: Iterable[int]) -> dict[int, float]:
    """Return w_k = (d_k - mean d) / sum (d - mean d)^2 for each depth. The slope is sum w_k S(d_k).

    As in docs/measuring.md, step 9. Raises SpecError for fewer than two different depths.
    """
    different = sorted(set(depths))
    if len(different) < 2:
        raise SpecError(f"slope: depths {different} (expected at least two different depths)")
    mean = math.fsum(different) / len(different)
    squares = math.fsum((depth - mean) ** 2 for depth in different)
    return {depth: (depth - mean) / squares for depth in different}


def slope(speedups: Mapping[int, Number]) -> Number:
    """Return the least-squares slope of the speed-up on depth, per layer (NGraphBench, section V-C).

    Its Tables VII and VIII list it. ``speedups`` maps depth to a factor. Raises SpecError for fewer than two depths or
    a factor that is not positive.
    """
    weights = slope_weights(speedups)
    return _sum({depth: _point("slope", "speed-up", speedups, depth) for depth in weights}, weights)


def retention(speedups: Mapping[int, Number]) -> Number:
    """Return S(deepest) / S(1), above 1 if depth is exploited (NGraphBench, section V-C).

    Its Tables VII and VIII list it. ``speedups`` maps depth to a factor. Raises SpecError where depth 1 or a deeper
    one is missing or a factor is not positive.
    """
    single = _point("retention", "speed-up", speedups, 1)
    deepest = max(speedups)
    if deepest == 1:
        raise SpecError("retention: only depth 1 is given (expected depth 1 and a deeper one)")
    return _point("retention", "speed-up", speedups, deepest) / single


def friction_weights(widths: Iterable[int]) -> dict[int, float]:
    """Return v_k for each width, so that sum v_k ASE(w_k) is the least-squares slope of ASE on log2(width), negated.

    Raises SpecError for fewer than two different widths or one below 1.
    """
    different = sorted(set(widths))
    if len(different) < 2 or different[0] < 1:
        raise SpecError(f"friction: widths {different} (expected at least two different widths of 1 or more)")
    places = {width: math.log2(width) for width in different}
    mean = math.fsum(places.values()) / len(places)
    squares = math.fsum((place - mean) ** 2 for place in places.values())
    return {width: (mean - place) / squares for width, place in places.items()}


def friction(efficiency: Mapping[int, Number]) -> Number:
    """Return the scaling efficiency that each doubling of the width costs at one batch, 0 where width costs none.

    ``efficiency`` maps width to ASE at that batch. NGraphBench names batch-width scaling friction (section IV-B3) and
    shows it as heat maps of ASE over width and batch (section V-E, Figure 10) without a number. This one is the
    least-squares slope of such a row on log2(width), negated. Raises SpecError for fewer than two widths or an ASE
    that is not positive.
    """
    weights = friction_weights(efficiency)
    return _sum({width: _point("friction", "ASE", efficiency, width) for width in weights}, weights)


def sequence_scaling_weights(lengths: Iterable[int]) -> dict[int, float]:
    """Return v_k for each length, so that sum v_k ln t(n_k) is the least-squares slope of ln t on ln n.

    Raises SpecError for fewer than two different lengths or one below 1.
    """
    different = sorted(set(lengths))
    if len(different) < 2 or different[0] < 1:
        raise SpecError(f"sequence_scaling: lengths {different} (expected at least two different lengths of 1 or more)")
    places = {length: math.log(length) for length in different}
    mean = math.fsum(places.values()) / len(places)
    squares = math.fsum((place - mean) ** 2 for place in places.values())
    return {length: (place - mean) / squares for length, place in places.items()}


def sequence_scaling(seconds: Mapping[int, Number]) -> Number:
    """Return the exponent of the time of a call over the length of its samples: t ~ n^exponent.

    ``seconds`` maps length to seconds per call at one batch. It is 1 where twice the length takes twice the time, 2
    where it takes four times, as attention alone does, and 0 where length does not matter. The least-squares slope of
    ln t on ln n. Raises SpecError for fewer than two lengths or seconds that are not positive.
    """
    weights = sequence_scaling_weights(seconds)
    return _sum({length: _ln(_point("sequence_scaling", "seconds", seconds, length)) for length in weights}, weights)


def cpu_percent(busy: Number, cpus: int) -> Number:
    """Return the CPU usage in per cent of all CPUs (NGraphBench, Table VI), given how many were busy on average.

    That is CPU time / wall time while calls run. Raises SpecError for no CPUs.
    """
    if cpus < 1:
        raise SpecError(f"cpu_percent: {cpus} CPUs (expected at least 1)")
    return 100 * busy / cpus


def cpu_reduction(compiled: Number, identity: Number) -> Number:
    """Return by how many per cent a compiler uses less CPU than the baseline (NGraphBench, section V-F, Figure 12).

    100 (1 - compiled / identity), given CPU usage in any one unit, negative where it uses more. Raises SpecError for a
    usage that is not positive.
    """
    used = _positive("cpu_reduction", "compiled usage", compiled)
    return 100 * (1 - used / _positive("cpu_reduction", "identity usage", identity))


def joules_per_sample(joules: Number, samples: int) -> Number:
    """Return the energy of a sample, given the joules of a window and the samples that were computed in it.

    *TensorRT vs. ONNX Runtime* lists energy without a formula. Raises SpecError for no samples and no joules.
    """
    if samples < 1:
        raise SpecError(f"joules_per_sample: {samples} samples (expected at least 1)")
    return _positive("joules_per_sample", "joules", joules) / samples


def joules_above_idle(joules: float, seconds: float, idle_watts: float, samples: int) -> float:
    """Return what of the energy of a sample is above that of the idle machine, below 0 where idle drew more.

    (joules - idle watts x seconds) / samples, of a window that lasted so long. Raises as ``joules_per_sample``.
    """
    return joules_per_sample(joules, samples) - idle_watts * seconds / samples


def tcr_per_second(bytes_before: float, bytes_after: float, throughput: Number) -> Number:
    """Return the transfer cost reduction per second: bytes that need not be sent, per second of computing.

    (bytes_before - bytes_after) * throughput, in bytes/s: sizes of one sample as it would be sent without and with
    compression, throughput of the compressing network in samples/s. Negative where compression inflates. NGraphBench,
    section IV, names the metric and takes it from its reference [4] without a formula. This formula is the product of
    saving and speed that its text describes.
    """
    _positive("tcr_per_second", "bytes_before", bytes_before)
    if not (math.isfinite(bytes_after) and bytes_after >= 0):
        raise SpecError(f"tcr_per_second: bytes_after {bytes_after} (expected a finite size, not below 0)")
    return (bytes_before - bytes_after) * _positive("tcr_per_second", "throughput", throughput)


def _point(metric: str, what: str, values: Mapping[int, Number], at: int) -> Number:
    axis = {"throughput": "batch", "speed-up": "depth", "ASE": "width", "seconds": "length"}[what]
    if at not in values:
        given = ", ".join(str(key) for key in sorted(values)) or "none"
        raise SpecError(f"{metric}: no {what} at {axis} {at} (given: {given}); the metric needs it")
    return _positive(metric, f"{what} at {axis} {at}", values[at])


def _sum(values: Mapping[int, Number], weights: Mapping[int, float]) -> Number:
    first, *others = [weights[at] * values[at] for at in weights]
    for each in others:
        first = first + each
    return first


def _ln(value: Number) -> Number:
    if isinstance(value, float | int):
        return math.log(value)
    import numpy as np

    logarithm: Number = np.log(value)
    return logarithm


def _positive(metric: str, what: str, value: Number) -> Number:
    if isinstance(value, float | int) or not value.ndim:
        if not (math.isfinite(value) and value > 0):
            raise SpecError(f"{metric}: {what} is {value} (expected a finite number above 0)")
    elif (wrong := (value <= 0) | (value == math.inf)).any():
        raise SpecError(f"{metric}: {what} is {value[wrong][0]} (expected finite numbers above 0)")
    return value


@dataclass(frozen=True, slots=True)
class Metric:
    """One row of the metric table.

    ``scale`` says what a tolerance means: a fraction (``log``) or an amount in the metric's unit (``linear``).
    ``format`` writes a value with its unit. ``better`` is the direction in which it is.
    """

    name: str
    unit: str
    scale: Literal["log", "linear"]
    format: Callable[[float], str]
    title: str
    better: Literal["higher", "lower"]


def _small(value: float) -> str:
    return f"{value:.3g}"


def _byte_rate(value: float) -> str:
    return f"{units.size(value)}/s"


def _per_joule(value: float) -> str:
    return f"{units.number(value)} /J"


_ROWS = (
    Metric("latency", "s", "log", units.seconds, "Latency", "lower"),
    Metric("throughput", "samples/s", "log", units.rate, "Throughput", "higher"),
    Metric("capacity", "calls/s", "log", units.rate, "Capacity", "higher"),
    Metric("time_to_first_token", "s", "log", units.seconds, "Time to the first token", "lower"),
    Metric("time_per_token", "s", "log", units.seconds, "Time per token", "lower"),
    Metric("tokens_per_second", "tokens/s", "log", units.rate, "Tokens per second", "higher"),
    Metric("speedup", "", "log", units.factor, "Speed-up", "higher"),
    Metric("change", "", "log", units.factor, "Change", "higher"),
    Metric("throughput_ratio", "", "log", units.factor, "Throughput ratio", "higher"),
    Metric("advantage", "", "log", units.factor, "Advantage", "higher"),
    Metric("saved_ratio", "", "log", units.factor, "Ratio to a saved baseline", "higher"),
    Metric("saved_difference", "", "linear", units.number, "Difference from a saved baseline", "higher"),
    Metric("rtr", "", "log", units.factor, "Relative throughput rate", "higher"),
    Metric("ase", "", "log", units.number, "Scaling efficiency", "higher"),
    Metric("bsr", "", "log", units.number, "Batch scaling resilience", "higher"),
    Metric("retention", "", "log", units.number, "Retention", "higher"),
    Metric("slope", "per layer", "linear", units.number, "Slope", "higher"),
    Metric("friction", "per doubling", "linear", units.number, "Batch-width friction", "lower"),
    Metric("sequence_scaling", "exponent", "linear", units.number, "Sequence scaling", "lower"),
    Metric("compile_seconds", "s", "log", units.seconds, "Compile time", "lower"),
    Metric("export_seconds", "s", "log", units.seconds, "Export time", "lower"),
    Metric("load_seconds", "s", "log", units.seconds, "Load time", "lower"),
    Metric("first_call_seconds", "s", "log", units.seconds, "First call", "lower"),
    Metric("new_shape_seconds", "s", "log", units.seconds, "First call at a new shape", "lower"),
    Metric("warmup_seconds", "s", "log", units.seconds, "Warm-up", "lower"),
    Metric("tuning_seconds", "s", "log", units.seconds, "Tuning time", "lower"),
    Metric("tuning_trials", "trials", "log", units.number, "Tuning trials", "lower"),
    Metric("peak_memory_bytes", "bytes", "log", units.size, "Peak memory", "lower"),
    Metric("compile_peak_memory_bytes", "bytes", "log", units.size, "Peak memory until called once", "lower"),
    Metric("run_peak_memory_bytes", "bytes", "log", units.size, "Peak memory while calls run", "lower"),
    Metric("peak_gpu_memory_bytes", "bytes", "log", units.size, "Peak GPU memory", "lower"),
    Metric("compile_peak_gpu_memory_bytes", "bytes", "log", units.size, "Peak GPU memory until called once", "lower"),
    Metric("run_peak_gpu_memory_bytes", "bytes", "log", units.size, "Peak GPU memory while calls run", "lower"),
    Metric("model_bytes", "bytes", "log", units.size, "Model size", "lower"),
    Metric("parameters", "", "log", units.number, "Parameters", "lower"),
    Metric("parameters_removed_percent", "%", "log", units.percent, "Parameters removed", "higher"),
    Metric("macs", "", "log", units.number, "MACs of a sample", "lower"),
    Metric("macs_removed_percent", "%", "log", units.percent, "MACs removed", "higher"),
    Metric("sparsity_percent", "%", "log", units.percent, "Sparsity", "higher"),
    Metric("layers_touched_percent", "%", "log", units.percent, "Layers touched", "higher"),
    Metric("packed_bytes", "bytes", "log", units.size, "Compressed size", "lower"),
    Metric("sparse_bytes", "bytes", "log", units.size, "Sparse size", "lower"),
    Metric("cpu_percent", "%", "linear", units.percent, "CPU usage", "lower"),
    Metric("cpu_reduction_percent", "%", "linear", units.percent, "CPU usage reduction", "higher"),
    Metric("gpu_utilisation_percent", "%", "linear", units.percent, "GPU utilisation", "higher"),
    Metric("joules_per_sample", "J", "log", units.joules, "Energy of a sample", "lower"),
    Metric("joules_above_idle", "J", "log", units.joules, "Energy of a sample above idle", "lower"),
    Metric("samples_per_joule", "samples/J", "log", _per_joule, "Samples per joule", "higher"),
    Metric("energy_ratio", "", "log", units.factor, "Energy ratio", "lower"),
    Metric("idle_watts", "W", "log", units.watts, "Idle power", "lower"),
    Metric("busy_watts", "W", "log", units.watts, "Power while calls run", "lower"),
    Metric("max_error", "", "log", _small, "Largest error", "lower"),
    Metric("accuracy", "", "linear", units.share, "Accuracy", "higher"),
    Metric("accuracy_drop", "", "linear", units.share, "Drop of accuracy", "lower"),
    Metric("agreement", "", "linear", units.share, "Agreement with dense f32", "higher"),
    Metric("tcr_per_second", "bytes/s", "log", _byte_rate, "TCR/s", "higher"),
)


class _Table(dict[str, Metric]):
    """The rows by their names. What stands behind a colon says of what a metric is: ``accuracy:top1``."""

    def __missing__(self, name: str) -> Metric:
        metric, colon, of = name.partition(":")
        if not (colon and of and metric in self):
            raise KeyError(name)
        row = self[metric]
        return replace(row, name=name, title=f"{row.title} ({of})")

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and super().__contains__(name.partition(":")[0])


METRICS: Mapping[str, Metric] = MappingProxyType(_Table({row.name: row for row in _ROWS}))

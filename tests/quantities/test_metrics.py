"""The paper's formulas against hand-worked numbers, and the metric table."""

from __future__ import annotations

import math
import subprocess
import sys
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.errors import SpecError
from pytest_ngraph.metrics import (
    METRICS,
    ase,
    bsr,
    cpu_reduction,
    friction,
    friction_weights,
    joules_per_sample,
    retention,
    rtr,
    sequence_scaling,
    sequence_scaling_weights,
    slope,
    slope_weights,
    speedup,
    tcr_per_second,
)

THROUGHPUT = {1: 100.0, 2: 180.0, 16: 800.0}
BASELINE = {1: 50.0, 16: 500.0}

RATES = st.floats(1e-3, 1e6)
SWEEPS = st.fixed_dictionaries({1: RATES, 4: RATES})


def test_batch_metrics_worked_by_hand() -> None:
    assert rtr(THROUGHPUT, 16) == 8.0
    assert ase(THROUGHPUT, 16) == 0.5
    assert ase(THROUGHPUT, 2) == 0.9
    assert bsr(THROUGHPUT, BASELINE, 16) == pytest.approx(0.5 / 0.625)
    assert rtr(THROUGHPUT, 1) == ase(THROUGHPUT, 1) == bsr(THROUGHPUT, BASELINE, 1) == 1.0
    assert speedup(120.0, 100.0) == 1.2


def test_depth_metrics_worked_by_hand() -> None:
    # Mean depth 2, weights -1/2, 0, 1/2.
    assert slope({1: 2.0, 2: 9.0, 3: 4.0}) == 1.0
    assert slope_weights([3, 1, 2]) == {1: -0.5, 2: 0.0, 3: 0.5}
    # NGraphBench, section V-C: twice the baseline on one block, eightfold with six.
    assert retention({1: 2.0, 3: 5.0, 6: 8.0}) == 4.0


def test_friction_is_the_efficiency_that_a_doubling_costs() -> None:
    # From 64 to 256 are two doublings: weights 1/2, 0, -1/2.
    assert friction({64: 0.9, 128: 0.1, 256: 0.5}) == pytest.approx(0.2)
    assert friction_weights([256, 64, 128]) == {64: 0.5, 128: 0.0, 256: -0.5}
    assert friction({64: 0.7, 96: 0.7, 256: 0.7}) == pytest.approx(0.0)
    assert friction({1: 0.5, 2: 0.8}) == pytest.approx(-0.3)


@given(st.dictionaries(st.integers(1, 1024), st.floats(0.01, 2), min_size=2, max_size=8))
def test_friction_is_the_least_squares_fit_over_doublings(efficiency: dict[int, float]) -> None:
    widths = sorted(efficiency)
    fitted = np.polyfit(np.log2(widths), [efficiency[width] for width in widths], 1)[0]
    assert friction(efficiency) == pytest.approx(-fitted, rel=1e-6, abs=1e-6)


def test_sequence_scaling_is_the_exponent_of_time_over_length() -> None:
    assert sequence_scaling({32: 1.0, 128: 4.0}) == pytest.approx(1.0)
    assert sequence_scaling({32: 1.0, 64: 4.0, 128: 16.0}) == pytest.approx(2.0)
    assert sequence_scaling({1: 3.0, 512: 3.0}) == pytest.approx(0.0)
    assert sequence_scaling_weights([4, 1, 2]) == pytest.approx({1: -0.5 / math.log(2), 2: 0, 4: 0.5 / math.log(2)})


@given(st.dictionaries(st.integers(1, 4096), RATES, min_size=2, max_size=6))
def test_sequence_scaling_is_the_least_squares_fit_of_logarithms(seconds: dict[int, float]) -> None:
    lengths = sorted(seconds)
    fitted = np.polyfit(np.log(lengths), np.log([seconds[length] for length in lengths]), 1)[0]
    assert sequence_scaling(seconds) == pytest.approx(fitted, rel=1e-5, abs=1e-5)


def test_the_reduction_of_cpu_usage_is_in_per_cent_of_the_baselines() -> None:
    # NGraphBench, section V-F: up to 80 %.
    assert cpu_reduction(1.25, 6.25) == 80.0
    assert cpu_reduction(50.0, 50.0) == 0.0
    assert cpu_reduction(75.0, 50.0) == -50.0


def test_the_transfer_cost_reduction_is_the_saving_times_the_speed() -> None:
    assert tcr_per_second(1_000_000, 10_000, 200.0) == 198_000_000
    assert tcr_per_second(100, 150, 2.0) == -100


@given(SWEEPS, SWEEPS, RATES)
def test_batch_metrics_do_not_depend_on_the_unit_of_throughput(
    compiled: dict[int, float], identity: dict[int, float], unit: float
) -> None:
    scaled = {batch: unit * value for batch, value in compiled.items()}
    assert rtr(scaled, 4) == pytest.approx(rtr(compiled, 4))
    assert ase(scaled, 4) == pytest.approx(ase(compiled, 4))
    assert bsr(scaled, identity, 4) == pytest.approx(bsr(compiled, identity, 4))


@given(SWEEPS, SWEEPS)
def test_bsr_is_the_ratio_of_ases_and_turns_round_with_its_arguments(
    compiled: dict[int, float], identity: dict[int, float]
) -> None:
    assert bsr(compiled, identity, 4) == pytest.approx(ase(compiled, 4) / ase(identity, 4))
    assert bsr(compiled, identity, 4) * bsr(identity, compiled, 4) == pytest.approx(1.0)
    ratio = speedup(compiled[4], identity[4]) / speedup(compiled[1], identity[1])
    assert bsr(compiled, identity, 4) == pytest.approx(ratio)


@given(st.dictionaries(st.integers(1, 64), st.floats(0.01, 100), min_size=2, max_size=10))
def test_slope_is_the_least_squares_fit(speedups: dict[int, float]) -> None:
    depths = sorted(speedups)
    fitted = np.polyfit(depths, [speedups[depth] for depth in depths], 1)[0]
    assert slope(speedups) == pytest.approx(fitted, abs=1e-8)


@given(st.floats(0.1, 10), st.floats(0.01, 10))
def test_a_speedup_linear_in_depth_has_that_slope(start: float, step: float) -> None:
    line = {depth: start + step * depth for depth in range(1, 7)}
    assert slope(line) == pytest.approx(step)
    assert retention(line) == pytest.approx((start + 6 * step) / (start + step))


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda bad: rtr({1: bad, 2: 1.0}, 2), "rtr: throughput at batch 1 is"),
        (lambda bad: ase({1: 1.0, 2: bad}, 2), "rtr: throughput at batch 2 is"),
        (lambda bad: bsr({1: 1.0, 2: 1.0}, {1: bad, 2: 1.0}, 2), "rtr: throughput at batch 1 is"),
        (lambda bad: speedup(bad, 1.0), "speedup: compiled throughput is"),
        (lambda bad: speedup(1.0, bad), "speedup: identity throughput is"),
        (lambda bad: slope({1: 1.0, 2: bad}), "slope: speed-up at depth 2 is"),
        (lambda bad: retention({1: 1.0, 2: bad}), "retention: speed-up at depth 2 is"),
        (lambda bad: friction({64: 1.0, 128: bad}), "friction: ASE at width 128 is"),
        (lambda bad: sequence_scaling({32: 1.0, 64: bad}), "sequence_scaling: seconds at length 64 is"),
        (lambda bad: cpu_reduction(bad, 1.0), "cpu_reduction: compiled usage is"),
        (lambda bad: cpu_reduction(1.0, bad), "cpu_reduction: identity usage is"),
        (lambda bad: tcr_per_second(bad, 1, 1), "tcr_per_second: bytes_before is"),
        (lambda bad: tcr_per_second(1, 1, bad), "tcr_per_second: throughput is"),
    ],
)
def test_numbers_that_are_no_measurement_are_refused(
    metric: Callable[[float], float], message: str, bad: float
) -> None:
    with pytest.raises(SpecError, match=rf"^{message} {bad} \(expected a finite number above 0\)$"):
        metric(bad)


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        (lambda: rtr({2: 1.0, 4: 1.0}, 4), r"no throughput at batch 1 \(given: 2, 4\)"),
        (lambda: ase({1: 1.0}, 8), r"no throughput at batch 8 \(given: 1\)"),
        (lambda: bsr({1: 1.0, 8: 1.0}, {}, 8), r"no throughput at batch 8 \(given: none\)"),
        (lambda: ase({0: 1.0, 1: 1.0}, 0), r"batch 0 \(expected a whole number of at least 1\)"),
        (lambda: slope({3: 1.0}), r"depths \[3\] \(expected at least two different depths\)"),
        (lambda: slope({}), r"depths \[\]"),
        (lambda: retention({2: 1.0, 4: 1.0}), r"no speed-up at depth 1 \(given: 2, 4\)"),
        (lambda: retention({1: 1.0}), r"only depth 1 is given"),
        (
            lambda: friction({64: 1.0}),
            r"friction: widths \[64\] \(expected at least two different widths of 1 or more\)",
        ),
        (lambda: friction({0: 1.0, 64: 1.0}), r"widths \[0, 64\]"),
        (
            lambda: sequence_scaling({64: 1.0}),
            r"lengths \[64\] \(expected at least two different lengths of 1 or more\)",
        ),
        (lambda: joules_per_sample(1.0, 0), r"0 samples \(expected at least 1\)"),
        (lambda: joules_per_sample(0.0, 1), r"joules is 0.0 \(expected a finite number above 0\)"),
        (lambda: tcr_per_second(1, -1, 1), r"bytes_after -1 "),
        (lambda: tcr_per_second(1, math.nan, 1), r"bytes_after nan "),
    ],
)
def test_what_is_missing_is_named(metric: Callable[[], float], message: str) -> None:
    with pytest.raises(SpecError, match=message):
        metric()


def test_the_table_has_a_row_for_every_metric() -> None:
    assert list(METRICS) == [
        "latency", "throughput", "capacity", "time_to_first_token", "time_per_token", "tokens_per_second",
        "speedup", "change", "throughput_ratio", "advantage", "saved_ratio",
        "saved_difference", "rtr", "ase", "bsr", "retention", "slope", "friction", "sequence_scaling",
        "compile_seconds", "export_seconds", "load_seconds",
        "first_call_seconds", "new_shape_seconds", "warmup_seconds", "tuning_seconds",
        "tuning_trials", "peak_memory_bytes", "compile_peak_memory_bytes", "run_peak_memory_bytes",
        "peak_gpu_memory_bytes", "compile_peak_gpu_memory_bytes", "run_peak_gpu_memory_bytes", "model_bytes",
        "parameters", "parameters_removed_percent", "macs",
        "macs_removed_percent", "sparsity_percent", "layers_touched_percent", "packed_bytes", "sparse_bytes",
        "cpu_percent", "cpu_reduction_percent", "gpu_utilisation_percent", "joules_per_sample", "joules_above_idle",
        "samples_per_joule", "energy_ratio", "idle_watts", "busy_watts", "max_error",
        "accuracy", "accuracy_drop", "agreement", "tcr_per_second",
    ]  # fmt: skip
    assert all(name == row.name and row.title for name, row in METRICS.items())
    assert {name for name, row in METRICS.items() if row.scale == "linear"} == {
        "slope", "friction", "sequence_scaling", "cpu_percent", "cpu_reduction_percent", "gpu_utilisation_percent",
        "saved_difference",
        "accuracy", "accuracy_drop", "agreement",
    }  # fmt: skip
    assert not hasattr(METRICS, "__setitem__")


def test_what_stands_behind_a_colon_says_of_what_a_metric_is() -> None:
    row = METRICS["accuracy:top1"]
    assert (row.name, row.title, row.format(0.97222)) == ("accuracy:top1", "Accuracy (top1)", "0.9722")
    assert "accuracy:top1" in METRICS
    assert "accuracy:top1" not in list(METRICS)
    for name in ("accuracy:", "nothing:top1", "nothing"):
        assert name == "accuracy:" or name not in METRICS
        with pytest.raises(KeyError, match=name):
            METRICS[name]


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("latency", 0.0123, "12.3 ms"),
        ("throughput", 1047.32, "1047 /s"),
        ("speedup", 1.234, "1.23x"),
        ("bsr", 0.9, "0.90"),
        ("slope", 0.0006561, "0.00066"),
        ("slope", -0.01775, "-0.018"),
        ("compile_seconds", 125.0, "2 min 05 s"),
        ("peak_memory_bytes", 49_073_357, "46.8 MiB"),
        ("throughput_ratio", 0.71, "0.71x"),
        ("friction", 0.0312, "0.031"),
        ("cpu_percent", 99.83, "99.8 %"),
        ("joules_per_sample", 0.01234, "12.3 mJ"),
        ("samples_per_joule", 81.2, "81.2 /J"),
        ("idle_watts", 45.21, "45.2 W"),
        ("cpu_reduction_percent", -12.5, "-12.5 %"),
        ("tcr_per_second", 198_000_000, "189 MiB/s"),
    ],
)
def test_a_row_writes_its_values(name: str, value: float, text: str) -> None:
    assert METRICS[name].format(value) == text


@pytest.mark.parametrize("module", ["pytest_ngraph.metrics", "pytest_ngraph.stats"])
def test_importing_costs_neither_numpy_nor_scipy(module: str) -> None:
    code = f"import sys, {module}; sys.exit(bool({{'numpy', 'scipy'}} & set(sys.modules)))"
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0

"""Each metric has one formula: the public functions of numbers are what claims, tables and reports are made of."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph import metrics
from pytest_ngraph.errors import SpecError
from pytest_ngraph.quantities.comparisons import friction, throughput_ratio
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep, Measurement, SequenceSweep
from pytest_ngraph.report.at_once import Connected, estimates_at_once
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    LaunchRecord,
    Outcome,
    Visit,
    Workload,
)
from pytest_ngraph.stats import LaunchValue, interval, intervals, launch_value, launch_values
from pytest_ngraph.workloads.kinds import parse_model

COMPILED, BASELINE = CompilerSpec("openvino"), CompilerSpec("identity")
GATE = PROTOCOLS["gate"]


def cell(compiler: CompilerSpec = COMPILED, **axes: Any) -> Cell:
    return Cell("local", compiler, Workload(parse_model("block:conv"), **{"batch": 1, **axes}))


def launch(seconds: Mapping[Cell, float], number: int, protocol: str = "gate") -> LaunchRecord:
    """Return a launch of four blocks; a process keeps 1.5 CPUs busy with the baseline and 0.5 compiled."""
    visits = {}
    for one, each in seconds.items():
        wall = round(1e9 * each * (1 + 0.001 * number))
        cpu = round(wall * (1.5 if one.compiler == BASELINE else 0.5))
        for block in range(4):
            visits[one, block] = Visit(1, (wall, wall + 1000, wall + 2000), (cpu,) * 3)
    return LaunchRecord(number, number, protocol, {one: CompileRecord(Outcome.OK) for one in seconds}, visits)


def against(one: Cell) -> Cell:
    return replace(one, compiler=BASELINE)


def source_of(cells: Sequence[Cell]) -> tuple[Stored, list[LaunchRecord]]:
    """Return three launches of cells, whose calls take longer the larger their workload is, and of their baselines."""
    seconds: dict[Cell, float] = {}
    for one in cells:
        load = one.workload
        each = 0.001 * load.batch**0.8 * (load.depth or 1) ** 0.9 * (load.width or 64) / 64
        each *= (load.sequence or 1) ** 1.3
        seconds |= {one: each, against(one): 0.001 + 2 * each}
    launches = [launch(seconds, number) for number in range(3)]
    return Stored(launches, [], GATE, 2), launches


def measured(source: Stored, one: Cell) -> Measurement:
    return Measurement(source, one, against(one))


def batches() -> tuple[BatchSweep, list[LaunchRecord]]:
    cells = {batch: cell(batch=batch) for batch in (1, 8)}
    source, launches = source_of(list(cells.values()))
    return BatchSweep(source, {batch: measured(source, one) for batch, one in cells.items()}, (1, 8)), launches


def depths() -> DepthSweep:
    cells = {depth: cell(depth=depth) for depth in (1, 3, 6)}
    source, _ = source_of(list(cells.values()))
    return DepthSweep(source, {depth: measured(source, one) for depth, one in cells.items()}, (1, 3, 6))


def lengths() -> SequenceSweep:
    cells = {length: cell(sequence=length) for length in (32, 128, 512)}
    source, _ = source_of(list(cells.values()))
    return SequenceSweep(source, {length: measured(source, one) for length, one in cells.items()}, (32, 128, 512))


def widths() -> list[Measurement]:
    cells = [cell(width=width, batch=batch) for width in (64, 128) for batch in (1, 8)]
    source, _ = source_of(cells)
    return [measured(source, one) for one in cells]


def at_batch_8(metric: str) -> Estimate:
    """Return what a report says, which makes all cells of a group at once."""
    sweep, launches = batches()
    cells = [*(one.cell for one in sweep.values()), *(one.baseline for one in sweep.values())]
    baselines = {one.cell: one.baseline for one in sweep.values()}
    found = estimates_at_once([Connected(cells, launches, 2)], baselines, GATE)[sweep[8].cell][metric]
    assert found is not None
    return found


PRODUCT: Mapping[str, Sequence[Callable[[], Estimate]]] = {
    "throughput": (lambda: batches()[0][8].throughput, lambda: at_batch_8("throughput")),
    "speedup": (
        lambda: batches()[0][8].speedup,
        lambda: at_batch_8("speedup"),
        lambda: throughput_ratio(batches()[0][8], batches()[0][1]).estimate(),
    ),
    "rtr": (lambda: batches()[0].rtr(8), lambda: at_batch_8("rtr")),
    "ase": (lambda: batches()[0].ase(8), lambda: at_batch_8("ase")),
    "bsr": (lambda: batches()[0].bsr(8), lambda: at_batch_8("bsr")),
    "cpu_percent": (lambda: batches()[0][8].cpu_percent, lambda: at_batch_8("cpu_percent")),
    "cpu_reduction": (lambda: batches()[0][8].cpu_reduction_percent, lambda: at_batch_8("cpu_reduction_percent")),
    "tcr_per_second": (lambda: batches()[0][8].tcr_per_second(1000, 10),),
    "slope": (lambda: depths().slope,),
    "retention": (lambda: depths().retention,),
    "friction": (lambda: friction(widths(), 8).estimate(),),
    "sequence_scaling": (lambda: lengths().scaling,),
}


@pytest.mark.parametrize("name", PRODUCT)
def test_what_is_claimed_and_reported_is_what_the_public_function_says(
    monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    usual = [each().value for each in PRODUCT[name]]
    formula = getattr(metrics, name)
    monkeypatch.setattr(metrics, name, lambda *given: 2 * formula(*given))
    assert [each().value for each in PRODUCT[name]] == pytest.approx([2 * value for value in usual])


def test_the_figures_are_those_worked_by_hand() -> None:
    sweep, _ = batches()
    mine, other = (0.001, 0.001 * 8**0.8), (0.003, 0.001 + 0.002 * 8**0.8)
    assert sweep[8].speedup.value == pytest.approx(other[1] / mine[1], rel=1e-3)
    assert sweep.ase(8).value == pytest.approx(mine[0] / mine[1], rel=1e-3)
    assert sweep.rtr(8).value == pytest.approx(8 * mine[0] / mine[1], rel=1e-3)
    assert sweep.bsr(8).value == pytest.approx(mine[0] / mine[1] * other[1] / other[0], rel=1e-3)
    assert sweep[8].throughput.value == pytest.approx(8 / mine[1], rel=1e-2)
    assert sweep[8].cpu_percent.value == pytest.approx(25, rel=1e-3)
    assert sweep[8].cpu_reduction_percent.value == pytest.approx(100 * (1 - 0.5 / 1.5), rel=1e-2)


# The formulas of arrays are those of numbers

RATES = st.floats(1e-3, 1e6)
GRIDS = st.lists(st.lists(st.one_of(RATES, st.just(math.nan)), min_size=3, max_size=3), min_size=1, max_size=4)


@given(GRIDS, RATES)
def test_an_array_has_each_of_its_numbers_metric(grid: list[list[float]], rate: float) -> None:
    array = np.array(grid)
    full = np.full_like(array, rate)
    formulas: list[Callable[[Any, Any], Any]] = [
        lambda a, b: metrics.throughput(a, 8),
        lambda a, b: metrics.rtr({1: b, 8: a}, 8),
        lambda a, b: metrics.ase({1: b, 8: a}, 8),
        lambda a, b: metrics.bsr({1: b, 8: a}, {1: a, 8: b}, 8),
        lambda a, b: metrics.speedup(a, b),
        lambda a, b: metrics.slope({1: a, 2: b, 4: b}),
        lambda a, b: metrics.retention({1: b, 6: a}),
        lambda a, b: metrics.friction({64: a, 128: b}),
        lambda a, b: metrics.sequence_scaling({32: a, 128: b}),
        lambda a, b: metrics.cpu_percent(a, 4),
        lambda a, b: metrics.cpu_reduction(a, b),
        lambda a, b: metrics.tcr_per_second(100, 10, a),
    ]
    for formula in formulas:
        found = formula(array, full)
        for place, value in np.ndenumerate(array):
            if math.isnan(value):
                assert math.isnan(found[place])
            else:
                assert found[place] == formula(float(value), rate)


@pytest.mark.parametrize("wrong", [0.0, -2.0, math.inf])
def test_an_array_with_a_number_that_is_none_is_refused(wrong: float) -> None:
    with pytest.raises(
        SpecError, match=rf"speedup: compiled throughput is {wrong} \(expected finite numbers above 0\)"
    ):
        metrics.speedup(np.array([1.0, wrong, math.nan]), np.ones(3))


BLOCKS = st.integers(1, 12).flatmap(
    lambda blocks: st.lists(
        st.lists(st.floats(-10, 10), min_size=blocks, max_size=blocks), min_size=1, max_size=6
    )
)  # fmt: skip


@given(BLOCKS)
def test_launch_values_are_those_of_each_launch(blocks: list[list[float]]) -> None:
    values, variances = launch_values(np.array(blocks))
    for number, launch_blocks in enumerate(blocks):
        one = launch_value(launch_blocks)
        assert one is not None
        assert one.value == pytest.approx(values[number], rel=1e-12, abs=1e-12)
        assert one.within_variance == pytest.approx(variances[number], rel=1e-9, abs=1e-12)


@given(
    st.lists(
        st.lists(st.one_of(st.floats(-10, 10), st.just(math.nan)), min_size=6, max_size=6), min_size=1, max_size=5
    ),
    st.floats(0, 1),
)
def test_intervals_are_those_of_each_gate(gates: list[list[float]], within: float) -> None:
    found = intervals(np.array(gates), np.full((len(gates), 6), within), 0.005)
    for number, values in enumerate(gates):
        there = [LaunchValue(value, within, 8) for value in values if not math.isnan(value)]
        assert found.launches[number] == len(there)
        if there:
            one = interval(there, 0.005)
            assert one.theta == pytest.approx(found.theta[number], rel=1e-9, abs=1e-9)
            assert one.half_width == pytest.approx(found.half_width[number], rel=1e-9, abs=1e-9)


# The paper's deviations


def test_a_deviation_follows_from_the_formula() -> None:
    """Each speed-up of 2 has a deviation of 3 % and weights of one half: 2 * 3 % / sqrt(2) of slope."""
    walls = {cell(depth=1): 0.010, cell(depth=3): 0.030}
    source, _ = source_of([])
    visits, spread = {}, 0.03
    for one, seconds in walls.items():
        for each, times in ((one, 1.0), (against(one), 2.0)):
            wall = 1e9 * seconds * times
            apart = spread if each.compiler == COMPILED else 0.0
            visits[each, 0] = Visit(1, tuple(round(wall * (1 + apart * sign)) for sign in (-1, 1) * 50), ())
    record = LaunchRecord(0, 0, "paper", {one: CompileRecord(Outcome.OK) for one, _ in visits}, visits)
    source = Stored([record], [], PROTOCOLS["paper"], 2)
    slope = DepthSweep(source, {one.workload.depth or 1: measured(source, one) for one in walls}, (1, 3)).slope
    assert slope.value == pytest.approx(0.0, abs=1e-9)
    assert slope.high == pytest.approx(2 * spread / math.sqrt(2), rel=0.02)


def test_what_has_unsteady_visits_is_left_to_the_quantities_one_by_one() -> None:
    """At once all visits would count: a table would say something else than the gate below it."""
    sweep, launches = batches()
    one = sweep[8]
    shaken = [replace(each, unsteady=frozenset({(one.cell, 0)}), derived={}) for each in launches]
    cells, baselines = [one.cell, one.baseline], {one.cell: one.baseline}
    assert estimates_at_once([Connected(cells, launches, 2)], baselines, GATE)[one.cell]
    assert estimates_at_once([Connected(cells, shaken, 2)], baselines, GATE)[one.cell] == {}

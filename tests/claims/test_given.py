"""What claims are given: the wrong fixture, bounds that are no numbers, names that do not exist, and on which line."""

# What is given here has the wrong type on purpose.
# mypy: disable-error-code="arg-type,dict-item,list-item,attr-defined,no-untyped-call"

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from pytest_ngraph.claims import assertions, changes
from pytest_ngraph.claims.assertions import (
    assert_ase,
    assert_bsr,
    assert_compile_time,
    assert_cpu_usage,
    assert_faster,
    assert_friction,
    assert_latency,
    assert_memory,
    assert_order,
    assert_outputs_match,
    assert_retention,
    assert_rtr,
    assert_slope,
    assert_speedup,
    assert_throughput,
)
from pytest_ngraph.claims.changes import assert_no_larger, assert_no_slower
from pytest_ngraph.claims.given import bound_for, number
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep
from pytest_ngraph.spec.cells import CompilerSpec, Workload
from tests.claims.test_claims import BLOCK, Laboratory, Made
from tests.conftest import Suite

OF_A_CELL = (assert_speedup, assert_throughput, assert_latency, assert_compile_time, assert_memory, assert_cpu_usage)
OF_BATCHES = (assert_rtr, assert_ase, assert_bsr)
OF_DEPTHS = (assert_slope, assert_retention)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def sweep(lab: Laboratory) -> BatchSweep:
    cell = lab.run()
    return BatchSweep(cell.source, {1: cell}, (1,))


def test_no_helper_is_forgotten_here() -> None:
    others = {
        assert_faster, assert_no_larger, assert_no_slower, assert_order, assert_outputs_match, assert_friction,
    }  # fmt: skip
    public = {
        getattr(module, name) for module in (assertions, changes) for name in dir(module) if name.startswith("assert_")
    }
    assert public == {*OF_A_CELL, *OF_BATCHES, *OF_DEPTHS, *others}


@pytest.mark.parametrize("helper", OF_A_CELL)
def test_a_sweep_is_no_cell(lab: Laboratory, helper: Callable[..., object]) -> None:
    said = r"given a BatchSweep, what ngraph_batches gives \(expected a Measurement: the fixture ngraph_cell, one of a "
    with pytest.raises(ClaimError, match=f"{helper.__name__}: {said}"):
        helper(sweep(lab), at_least=1)


@pytest.mark.parametrize("helper", OF_BATCHES)
def test_a_cell_is_no_sweep_over_batches(lab: Laboratory, helper: Callable[..., object]) -> None:
    said = r"given a Measurement, what ngraph_cell gives \(expected a BatchSweep: the fixture ngraph_batches"
    with pytest.raises(ClaimError, match=f"{helper.__name__}: {said}"):
        helper(lab.run(), batch=8, at_least=1)


@pytest.mark.parametrize("helper", OF_DEPTHS)
@pytest.mark.parametrize("given", [None, 3, "ngraph_depths"])
def test_whatever_else_is_no_sweep_over_depths(helper: Callable[..., object], given: object) -> None:
    with pytest.raises(ClaimError, match=f"{helper.__name__}: given {given!r} .expected a DepthSweep"):
        helper(given, at_least=1)


def test_the_helpers_of_several_say_what_they_take(lab: Laboratory) -> None:
    cell = lab.run()
    for wrong, said in (
        (lambda: assert_faster(cell, sweep(lab)), "assert_faster: given a BatchSweep"),
        (lambda: assert_faster(cell, None), "assert_faster: given None"),
        (lambda: assert_no_slower(3.0), "assert_no_slower: given 3.0"),
        (lambda: assert_no_slower(cell, 3.0), "assert_no_slower: given 3.0"),
        (lambda: assert_order(cell), r"assert_order: <Measurement .* \(expected the fixture ngraph_models, or a list"),
        (lambda: assert_order(3), "assert_order: 3 .expected the fixture ngraph_models"),
        (lambda: assert_friction(cell, batch=8), r"assert_friction: given a Measurement.*\(expected a list of measure"),
        (lambda: assert_friction([cell, 3], batch=8), "assert_friction: given 3 .expected a Measurement"),
        (lambda: assert_outputs_match(sweep(lab)), "assert_outputs_match: given a BatchSweep"),
    ):
        with pytest.raises(ClaimError, match=said):
            wrong()
    assert lab.launched == 0


def depths(lab: Laboratory) -> DepthSweep:
    cells = lab.run_all([Workload(BLOCK, depth=depth) for depth in (1, 4)])
    return DepthSweep(cells[0].source, dict(zip((1, 4), cells, strict=True)), (1, 4))


def widths(lab: Laboratory) -> list[Measurement]:
    return lab.run_all([Workload(BLOCK, batch, width=width) for width in (64, 128) for batch in (1, 8)])


@pytest.mark.parametrize("tolerance", [5, 1.0, -0.1])
@pytest.mark.parametrize(
    "claim",
    [
        lambda lab, tolerance: assert_slope(depths(lab), at_least=0.1, tolerance=tolerance),
        lambda lab, tolerance: assert_friction(widths(lab), batch=8, at_most=0.1, tolerance=tolerance),
        lambda lab, tolerance: assert_latency(lab.run(), at_most=1, tolerance=tolerance),
    ],
)
def test_a_tolerance_that_is_no_fraction_is_refused_on_whatever_scale(
    lab: Laboratory, claim: Callable[..., object], tolerance: float
) -> None:
    """5, meant as 5 %, would let pass whatever there is on a linear scale."""
    lab.script = [Made(1.2)] * 3
    meant = rf"; {tolerance / 100:g} is meant\?" if tolerance >= 1 else ""
    said = rf"assert_\w+: tolerance {tolerance:g} \(expected a fraction, 0 <= tolerance < 1{meant}\)"
    with pytest.raises(ClaimError, match=said):
        claim(lab, tolerance)


@pytest.mark.parametrize("tolerance", [5, 1.0, -0.1])
def test_of_bytes_it_is_a_fraction_too(lab: Laboratory, tolerance: float) -> None:
    cell = lab.run()
    compared = Measurement(cell.source, cell.cell, cell.baseline, replace(cell.cell, compiler=CompilerSpec("other")))
    with pytest.raises(ClaimError, match=rf"assert_no_larger: tolerance {tolerance:g} \(expected a fraction, 0 <="):
        assert_no_larger(compared, tolerance=tolerance)


@pytest.mark.parametrize(
    ("claim", "said"),
    [
        (lambda cell: assert_latency(cell, at_most="5ms"),
         r"assert_latency: at_most='5ms' \(expected seconds as a number, such as 0.005; 0.005 is meant\?\)"),
        (lambda cell: assert_latency(cell, at_most="fast"), r"'fast' \(expected seconds as a number, such as 0.005\)"),
        (lambda cell: assert_latency(cell, at_most="..ms"), r"expected seconds as a number, such as 0.005\)"),
        (lambda cell: assert_memory(cell, at_most="500MB"), r"expected bytes as a number.*; 5e\+08 is meant\?"),
        (lambda cell: assert_throughput(cell, at_least=[250]), r"\[250\] \(expected samples per second as a number"),
        (lambda cell: assert_cpu_usage(cell, at_most="80 %"), "expected per cent as a number.*; 80 is meant"),
        (lambda cell: assert_speedup(cell, at_least="1.2x"), r"expected a factor as a number.*; 1.2 is meant\?"),
        (lambda cell: assert_speedup(cell, at_least=True), r"at_least=True \(expected a factor as a number"),
        (lambda cell: assert_speedup(cell, at_least=math.nan), r"at_least=nan \(expected a factor.*, and finite\)"),
        (lambda cell: assert_speedup(cell, at_most=math.inf), r"at_most=inf \(expected a factor.*, and finite\)"),
        (lambda cell: assert_speedup(cell, at_least=np.float64("nan")), "at_least=nan"),
        (lambda cell: assert_speedup(cell, at_least={"*": "1.2x"}), r"at_least: '\*'='1.2x' \(expected a factor"),
        (lambda cell: assert_speedup(cell, at_least={"null": 1.0, "openvino": math.nan}), "'openvino'=nan"),
        (lambda cell: assert_speedup(cell, at_least=1j), r"at_least=1j \(expected a factor"),
        (lambda cell: assert_speedup(cell, at_least=1, tolerance="5%"),
         r"tolerance='5%' \(expected a fraction as a number, such as 0.05; 0.05 is meant\?\)"),
        (lambda cell: assert_speedup(cell, at_least=1, tolerance=True), r"tolerance=True \(expected a fraction"),
        (lambda cell: assert_cpu_usage(cell, at_most=80, tolerance="5"), "expected percentage points as a number"),
        (lambda cell: assert_latency(cell, at_most=1, percentile="99"), "percentile='99' .expected per cent"),
        (lambda cell: assert_latency(cell, at_most=1, percentile=0.99), r"percentile=0.99 .expected .*; 99 is meant\?"),
        (lambda cell: assert_speedup(cell, at_most=10**400), r"at_most=inf \(expected a factor.*, and finite\)"),
        (lambda cell: assert_faster(cell, cell, by="10%"), r"by='10%' \(expected a fraction.*; 0.1 is meant\?\)"),
        (lambda cell: assert_outputs_match(cell, at_most="1e-4"), r"at_most='1e-4' \(expected a fraction"),
        (lambda cell: assert_speedup(cell), "give either at_least= or at_most=, a factor as a number, such as 1.2"),
        (lambda cell: assert_latency(cell), "give either at_least= or at_most=, seconds as a number"),
    ],
)  # fmt: skip
def test_a_bound_that_is_no_number_says_which_unit_is_meant(
    lab: Laboratory, claim: Callable[[Measurement], object], said: str
) -> None:
    with pytest.raises(ClaimError, match=said):
        claim(lab.run())
    assert lab.launched == 0
    assert lab.kept == []


@pytest.mark.parametrize("batch", ["8", 8.0, True, 0, None])
def test_a_batch_is_a_whole_number(lab: Laboratory, batch: object) -> None:
    with pytest.raises(ClaimError, match=r"assert_bsr: batch=.* \(expected a whole number from 1 on, such as 8\)"):
        assert_bsr(sweep(lab), batch=batch, at_least=1)


def test_numbers_of_numpy_are_numbers(lab: Laboratory) -> None:
    assert number("here", np.float32(1.5)) == 1.5
    assert number("here", np.int64(2)) == 2.0


@pytest.mark.parametrize(
    ("bounds", "said"),
    [
        (
            {"openvnno": 1.1, "*": 1.0},
            r"compiler 'openvnno' in 'openvnno' \(known: .*; did you mean 'openvino'\?",
        ),
        ({"local:openvnno": 1.1, "*": 1.0}, "unknown compiler 'openvnno'"),
        ({"loca:null": 1.1, "*": 1.0}, r"unknown device 'loca' in 'loca:null' \(known: .*; did you mean 'local'\?"),
        ({"local": 1.1, "*": 1.0}, r"'local' is a device \(expected a compiler such as"),
        ({"null[sample=5]": 1.1, "*": 1.0}, "sample"),
        ({"null[sample_us": 1.1, "*": 1.0}, "expected NAME or NAME"),
        ({"": 1.1, "*": 1.0}, "unknown compiler ''"),
        ({3: 1.1, "*": 1.0}, r"3 \(expected a compiler such as 'openvino'"),
        ({}, r"no bound for local:null\[sample_us=5\] \(given: none\)"),
    ],
)
def test_a_misspelt_name_does_not_take_the_bound_of_all_the_others(
    lab: Laboratory, bounds: dict[str, float], said: str
) -> None:
    with pytest.raises(ClaimError, match=said):
        assert_speedup(lab.run(), at_least=bounds)
    assert lab.kept == []


def test_names_that_exist_may_be_bounded_though_they_do_not_run(lab: Laboratory) -> None:
    bounds = {"cuda:1:tensorrt": 9.0, "cuda:tensorrt": 9.0, "openvino[threads=1]": 9.0, "local:null": 1.5, "*": 9.0}
    assert bound_for(lab.run().quantity("speedup").measurer, "local:null[sample_us=5]", bounds, "here") == 1.5


def test_options_may_come_in_any_order(lab: Laboratory) -> None:
    measurer = lab.run().quantity("speedup").measurer
    bounds = {"null[sample_us=5,fixed_us=1]": 2.0, "*": 9.0}
    assert bound_for(measurer, "local:null[fixed_us=1,sample_us=5]", bounds, "here") == 2.0


@pytest.mark.parametrize(
    ("compare", "said"),
    [
        (lambda one: one > 1, r"Speed-up 2.00x \[1.90x, 2.10x\] > 1: .*claim it: assert_speedup\(..., at_least=1\)"),
        (lambda one: one >= 1.5, "at_least=1.5"),
        (lambda one: one < 3, r"assert_speedup\(..., at_most=3\), or compare its .value, which has no error rate"),
        (lambda one: one <= 3, "at_most=3"),
        (lambda one: one > 1, "at_least=1"),
        (lambda one: one > one, r"two estimates have no order.*assert_faster\(a, b\)"),
    ],
)
def test_an_estimate_is_no_number_to_compare(compare: Callable[[Estimate], object], said: str) -> None:
    with pytest.raises(ClaimError, match=said):
        compare(Estimate("speedup", 2.0, 1.9, 2.1, 3))


def test_an_estimate_is_no_bound(lab: Laboratory) -> None:
    with pytest.raises(ClaimError, match=r"a bound is fixed, and an estimate is not"):
        assert_speedup(lab.run(), at_least=Estimate("speedup", 2.0, 1.9, 2.1, 3))


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("assert ngraph_cell.speedup > 1", "an estimate is not a number; claim it: assert_speedup(..., at_least=1)"),
        ("assert_bsr(ngraph_cell, batch=8, at_least=1)", "(expected a BatchSweep: the fixture ngraph_batches"),
        ("assert_speedup(ngraph_cell, at_least={'nul': 2, '*': 1})", "did you mean 'null'?"),
        ("assert_speedup(ngraph_cell, at_least='2x')", "2 is meant?"),
    ],
)
def test_the_users_line_is_named(suite: Suite, line: str, said: str) -> None:
    path = suite.write(f"""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_it(ngraph_cell):
    {line}
""")
    result = suite.run()
    result.assert_outcomes(failed=1)
    assert said in result.stdout.str()
    place = path.read_text().splitlines().index(f"    {line}") + 1
    assert f"  at {path}:{place}: {line}" in result.stdout.str()
    assert "Traceback" not in result.stdout.str()


def test_a_compiler_that_is_not_installed_skips_whatever_it_is_asked(suite: Suite) -> None:
    suite.add_compilers()
    suite.write("""
@pytest.fixture
def gate(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1)

@pytest.mark.ngraph(model="block:conv", batch=1)
def test_it(ngraph_cell, gate):
    pass
""")
    suite.run(compiler="absent").assert_outcomes(skipped=1)

"""Every compiler of the catalogue, held to the compiler contract."""

from __future__ import annotations

import os
import subprocess
import sys
from dataclasses import replace
from typing import Any

import pytest

from pytest_ngraph.axes import PRECISIONS, SCENARIOS, SHAPES
from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.conformance.cases import CASES, CAST, EXCLUDED, HEAVY, LEAKS, MANY, Case
from pytest_ngraph.conformance.checks import NAMES, OUTPUT_CHECKS, THROUGHPUT_CHECKS, difference
from pytest_ngraph.conformance.laboratory import Laboratory
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Cell, CompilerSpec

_HEAVY = {"numpy", *(module for name in Catalogue() for module in Catalogue().get(name).requires)}
_SMALL = CASES[0]
# Rounds of compiling and closing: in the first ones runtimes fill their caches, the others must leave nothing behind.
_FIRST_ROUNDS, _ROUNDS = 3, 4
_HEAVY_BYTES = 16 << 20


def _found(answer: dict[str, Any], compiler: CompilerSpec, case: Case, precision: str = "f32") -> dict[str, list[str]]:
    """Return what the checks found. Skip an expected refusal, fail an unexpected one of a built-in compiler."""
    if failure := answer.get("failed"):
        pytest.fail(f"{compiler}, {case.name}: {failure}", pytrace=False)
    excluded = EXCLUDED.get((compiler.name, case.name, precision))
    if reason := answer.get("unsupported"):
        if compiler.name in BUILT_IN and not excluded:
            pytest.fail(f"{compiler} refused {case.name}: {reason}", pytrace=False)
        pytest.skip(f"{compiler} does not run {case.name}: {excluded or reason}")
    if excluded:
        pytest.fail(f"{compiler} runs {case.name}, which EXCLUDED says it cannot: {excluded}", pytrace=False)
    found: dict[str, list[str]] = answer["found"]
    return found


def _assert_found_nothing(
    answer: dict[str, Any], compiler: CompilerSpec, case: Case, check: str, precision: str = "f32"
) -> None:
    """Fail where a check found something. Skip one that there are no outputs for."""
    found = _found(answer, compiler, case, precision)
    if check == "is_quiet":
        assert answer["stdout"] == "", "it printed to standard output"
        return
    if check in OUTPUT_CHECKS and check not in found:
        pytest.skip(f"{compiler} has no outputs to compare")
    assert found[check] == []


def _difference(first: dict[str, Any], second: dict[str, Any]) -> str:
    """Return how the outputs of two processes differ, or nothing where they do not or there are none."""
    import numpy as np

    if not first["keep"].exists():
        return ""
    left, right = (list(np.load(answer["keep"]).values()) for answer in (first, second))
    return difference(left, right)


def test_it_refuses_an_unknown_option(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """resolve() raises SpecError that names what is unknown."""
    with pytest.raises(SpecError, match="unknown option 'no_such_option'"):
        laboratory.adapter(compiler).resolve(CompilerSpec(compiler.name, (("no_such_option", "1"),)))


def test_it_gives_a_reason_for_whatever_it_does_not_declare(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """why_not() gives a reason for each precision, scenario and kind of device that the adapter does not list."""
    adapter, device = laboratory.adapter(compiler), laboratory.device
    [plain, *_] = laboratory.workloads(_SMALL)
    others = [
        *((replace(plain, precision=each), device) for each in PRECISIONS if each not in adapter.precisions),
        *((replace(plain, scenario=each), device) for each in SCENARIOS if each not in adapter.scenarios),
        *((replace(plain, shapes=each), device) for each in SHAPES if each not in adapter.shapes),
        *(
            (plain, replace(device, accelerator=each))
            for each in ("cpu", "cuda:0")
            if each.partition(":")[0] not in adapter.accelerators
        ),
    ]
    for workload, place in others:
        reason = adapter.why_not(Cell(place.name, compiler, workload), place)
        assert isinstance(reason, str), f"no reason for {workload.label} on {place.accelerator}"
        assert reason


def test_it_bears_its_name_and_says_what_brings_it(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """The adapter's attributes are those the catalogue and the messages rely on."""
    adapter = laboratory.adapter(compiler)
    assert adapter.name == compiler.name
    assert not adapter.requires or adapter.extra or adapter.install
    assert adapter.reads in ("module", "onnx", "nothing")
    assert {"f32"} <= set(adapter.precisions) <= set(PRECISIONS)
    assert {"latency"} <= set(adapter.scenarios) <= set(SCENARIOS)
    assert {"static"} <= set(adapter.shapes) <= set(SHAPES)


def test_its_module_is_cheap_to_import(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """Importing the adapter, which happens in the pytest process, imports no runtime."""
    laboratory.adapter(compiler)
    module = laboratory.catalogue.place(compiler.name).partition(":")[0]
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; before = set(sys.modules); import {module}; "
        f"loaded = sorted((set(sys.modules) - before) & set({_HEAVY!r})); sys.exit(', '.join(loaded) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"importing {module} imports {done.stderr}"


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_contract(compiler: CompilerSpec, case: Case, check: str, laboratory: Laboratory) -> None:
    """The cell compiles, runs and gives what each check asks for, at every batch of the case."""
    _assert_found_nothing(laboratory.examine(compiler, case), compiler, case, check)


@pytest.mark.parametrize("check", NAMES)
@pytest.mark.parametrize("case", CAST, ids=lambda case: case.name)
def test_further_precisions(
    compiler: CompilerSpec, precision: str, case: Case, check: str, laboratory: Laboratory
) -> None:
    """In each precision that the adapter declares the cell keeps the contract too, in the bounds of the precision."""
    answer = laboratory.examine(compiler, case, precision=precision)
    if "unsupported" in answer and "unsupported" in laboratory.examine(compiler, CAST[0], precision=precision):
        pytest.skip(f"{compiler} has no {precision} here: {answer['unsupported']}")
    _assert_found_nothing(answer, compiler, case, check, precision)


@pytest.mark.parametrize("check", [*NAMES, *THROUGHPUT_CHECKS])
def test_throughput(compiler: CompilerSpec, check: str, laboratory: Laboratory) -> None:
    """Where the adapter declares the scenario, calls in flight keep the contract of submit() and next_done()."""
    if "throughput" not in laboratory.adapter(compiler).scenarios:
        pytest.skip(f"{compiler} does not declare the scenario throughput")
    answer = laboratory.examine(compiler, _SMALL, scenario="throughput")
    _assert_found_nothing(answer, compiler, _SMALL, check)


def test_two_processes_agree(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """Weights, inputs and outputs come from the seed, not from the process nor from whether it compiled or loaded."""
    first, second = (laboratory.examine(compiler, _SMALL, process=process) for process in (0, 1))
    if "agrees" not in _found(first, compiler, _SMALL):
        pytest.skip(f"{compiler} has no outputs to compare")
    assert _difference(first, second) == ""


def test_what_it_keeps_is_built_once(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """Where the adapter keeps what it builds, the second process loads it and says so."""
    first, second = (laboratory.examine(compiler, _SMALL, process=process) for process in (0, 1))
    _found(first, compiler, _SMALL)
    kept = [path for path in laboratory.compiled.glob(f"{compiler.name}-*") if "-records-" not in path.name]
    if not kept:
        pytest.skip(f"{compiler} keeps nothing that it builds")
    assert (first["loaded"], second["loaded"]) == (False, True)


def test_a_rebuilt_cell_reuses_nothing_and_leaves_nothing(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """With ``rebuild`` nothing that was built is loaded, the outputs are the same, and what was built is dropped."""
    kept = laboratory.examine(compiler, _SMALL)
    before = set(laboratory.compiled.glob("*"))
    rebuilt = laboratory.examine(compiler, _SMALL, rebuild=True)
    assert not any(_found(rebuilt, compiler, _SMALL).values()), rebuilt["found"]
    assert rebuilt["loaded"] is False
    assert set(laboratory.compiled.glob("*")) == before
    assert _difference(kept, rebuilt) == ""


def test_calls_do_their_work_when_they_are_timed(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """On a model whose calls take long enough to show it, nothing is computed before or after run(), or kept."""
    answer = laboratory.examine(compiler, HEAVY)
    for check in ("works_when_called", "leaves_clocks_alone"):
        _assert_found_nothing(answer, compiler, HEAVY, check)


def test_closing_gives_memory_back(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """Compiling and closing again and again does not grow the process by anything near the model each time."""
    answer = laboratory.release(compiler, HEAVY, _FIRST_ROUNDS + _ROUNDS)
    _found({"found": {}, **answer}, compiler, HEAVY)
    resident = answer["resident"]
    grown = (resident[-1] - resident[_FIRST_ROUNDS - 1]) / _ROUNDS
    said = f"each round leaves {grown / 2**20:.1f} MB of a model of 16 MB behind: {resident}"
    if cause := LEAKS.get(str(compiler)) or LEAKS.get(compiler.name):
        assert grown >= _HEAVY_BYTES / 2, f"{compiler} gives its memory back, which LEAKS says it does not: {cause}"
        pytest.skip(f"{cause}; {said}")
    assert grown < _HEAVY_BYTES / 2, said


def test_it_runs_on_the_threads_it_is_given(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """Two threads were asked for and placement says two."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU is not enough to distinguish two threads from one")
    found = _found(laboratory.examine(compiler, _SMALL, threads=2), compiler, _SMALL)
    assert found["tells_placement"] == []


def test_one_process_holds_many_cells_of_one_model(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """A sweep over ten batches lives in one process, and every cell of it stays right."""
    found = _found(laboratory.examine(compiler, MANY), compiler, MANY)
    assert not any(found.values()), found

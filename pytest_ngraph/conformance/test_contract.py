"""Every compiler of the catalogue, held to the compiler contract."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from pytest_ngraph.compilers.catalogue import BUILT_IN
from pytest_ngraph.conformance.cases import CASES, EXCLUDED, MANY, Case
from pytest_ngraph.conformance.checks import NAMES, OUTPUT_CHECKS, difference
from pytest_ngraph.conformance.laboratory import Laboratory
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec import CompilerSpec

_HEAVY = ("torch", "numpy", "onnx", "onnxruntime", "openvino", "tensorrt", "tvm")


def _found(answer: dict[str, Any], compiler: CompilerSpec, case: Case) -> dict[str, list[str]]:
    """Return what the checks found; skip an expected refusal, fail an unexpected one of a built-in compiler."""
    if failure := answer.get("failed"):
        pytest.fail(f"{compiler}, {case.name}: {failure}", pytrace=False)
    excluded = EXCLUDED.get((compiler.name, case.name))
    if reason := answer.get("unsupported"):
        if compiler.name in BUILT_IN and not excluded:
            pytest.fail(f"{compiler} refused {case.name}: {reason}", pytrace=False)
        pytest.skip(f"{compiler} does not run {case.name}: {excluded or reason}")
    if excluded:
        pytest.fail(f"{compiler} runs {case.name}, which EXCLUDED says it cannot: {excluded}", pytrace=False)
    found: dict[str, list[str]] = answer["found"]
    return found


def test_it_refuses_an_unknown_option(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """resolve() raises SpecError that names what is unknown."""
    with pytest.raises(SpecError, match="unknown option 'no_such_option'"):
        laboratory.adapter(compiler).resolve(CompilerSpec(compiler.name, (("no_such_option", "1"),)))


def test_it_bears_its_name_and_says_what_brings_it(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """The adapter's attributes are those the catalogue and the messages rely on."""
    adapter = laboratory.adapter(compiler)
    assert adapter.name == compiler.name
    assert not adapter.requires or adapter.extra or adapter.install
    assert adapter.reads in ("module", "onnx", "nothing")


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
    answer = laboratory.examine(compiler, case)
    found = _found(answer, compiler, case)
    if check == "is_quiet":
        assert answer["stdout"] == "", "it printed to standard output"
        return
    if check in OUTPUT_CHECKS and check not in found:
        pytest.skip(f"{compiler} has no outputs to compare")
    assert found[check] == []


def test_two_processes_agree(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """Weights, inputs and outputs come from the seed and not from the process."""
    import numpy as np

    case = CASES[0]
    answers = [laboratory.examine(compiler, case, process=process) for process in (0, 1)]
    if "agrees" not in _found(answers[0], compiler, case):
        pytest.skip(f"{compiler} has no outputs to compare")
    first, second = (list(np.load(answer["keep"]).values()) for answer in answers)
    assert difference(first, second) == ""


def test_it_runs_on_the_threads_it_is_given(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """Two threads were asked for and placement says two."""
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("one CPU is not enough to tell two threads from one")
    case = CASES[0]
    found = _found(laboratory.examine(compiler, case, threads=2), compiler, case)
    assert found["tells_placement"] == []


def test_one_process_holds_many_cells_of_one_model(compiler: CompilerSpec, laboratory: Laboratory) -> None:
    """A sweep over ten batches lives in one process, and every cell of it stays right."""
    found = _found(laboratory.examine(compiler, MANY), compiler, MANY)
    assert not any(found.values()), found

"""A kind of model outside the package, held to its contract: ``--ngraph-model=mykind:NAME`` says by which models."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph import interpreter
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import SpecError
from pytest_ngraph.launches.process import python_path
from pytest_ngraph.spec.cells import CompilerSpec, ModelRef, Workload
from pytest_ngraph.workloads.kinds import kind_of
from pytest_ngraph.workloads.kinds.axes import axes_taken, axis_values
from pytest_ngraph.workloads.modules.fingerprint import is_same

_HEAVY = ("torch", "torchvision", "timm", "numpy", "onnx", "onnxruntime", "transformers")
_LIMIT_SECONDS = 600
# What an axis without a default is tried at; one with a default at that and at twice as much.
_TRIED = {"depth": 1, "width": 16, "image_size": 64, "sequence": 8}

Facts = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def built(tmp_path: Path) -> Facts:
    """Return what builds workloads in a process of their own and says what came of each."""
    folder = tmp_path

    def build(*workloads: Workload) -> list[dict[str, Any]]:
        answer = folder / f"answer-{len(list(folder.iterdir()))}.json"
        request = {"sys_path": sys.path, "seed": 0, "workloads": [each.to_json() for each in workloads]}
        done = subprocess.run(
            interpreter.command("pytest_ngraph.conformance.kind_process", str(answer)),
            input=json.dumps(request),
            env={**os.environ, "PYTHONPATH": python_path()},
            capture_output=True,
            text=True,
            timeout=_LIMIT_SECONDS,
            check=False,
        )
        if done.returncode:
            pytest.fail(f"building ended with status {done.returncode}\n{done.stderr[-4000:]}", pytrace=False)
        found: list[dict[str, Any]] = json.loads(answer.read_text(encoding="utf-8"))
        for each in found:
            if "failed" in each:
                pytest.fail(each["failed"], pytrace=False)
        return found

    return build


def _plain(model: ModelRef) -> Workload:
    """Return a model with every axis that it takes set: to its default, or to what it is tried at."""
    tried: dict[str, Any] = {axis: value or _TRIED[axis] for axis, value in kind_of(model).axes(model).items()}
    return Workload(model, 2, **tried)


def test_its_module_is_cheap_to_import(model: ModelRef) -> None:
    """Importing the kind, which happens in the pytest process, imports no runtime."""
    module = model.kind.partition(":")[0] or type(kind_of(model)).__module__
    code = (
        f"import sys; sys.path[:] = {sys.path!r}; before = set(sys.modules); import {module}; "
        f"loaded = sorted((set(sys.modules) - before) & set({_HEAVY!r})); sys.exit(', '.join(loaded) or 0)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, f"importing {module} imports {done.stderr}"


def test_it_says_what_it_needs(model: ModelRef) -> None:
    """What it needs is installed here, and its default baseline is a compiler that there is."""
    kind = kind_of(model)
    assert kind.missing() is None
    Catalogue().check(CompilerSpec.parse(kind.default_baseline))


def test_it_takes_the_axes_that_it_says(model: ModelRef) -> None:
    """axes() gives known axes with defaults that are allowed, and those are what a workload without any is built by."""
    taken = axes_taken(model)
    assert set(axis_values(_plain(model))) == taken


@pytest.mark.parametrize("axis", _TRIED)
def test_each_axis_makes_another_model(model: ModelRef, axis: str, built: Facts) -> None:
    """A model of twice the depth, width, image size or length has other weights, other inputs or computes more."""
    if axis not in axes_taken(model):
        pytest.skip(f"{model} does not take {axis}")
    plain = _plain(model)
    one, other = built(plain, replace(plain, **{axis: 2 * getattr(plain, axis)}))
    parts = ("parameters", "inputs", "flops")
    assert [one[part] for part in parts] != [other[part] for part in parts], f"{axis} changes nothing of {model}"


def test_two_processes_build_the_same(model: ModelRef, built: Facts) -> None:
    """Weights and inputs come from the seed, not from the process."""
    [one], [other] = built(_plain(model)), built(_plain(model))
    assert is_same(one["weights"], other["weights"]), "other weights in each process"
    assert one["numbers"] == pytest.approx(other["numbers"]), "other inputs in each process"


def test_inputs_follow_the_batch(model: ModelRef, built: Facts) -> None:
    """example_inputs(batch) gives inputs of that batch, and the same number of weights whatever it is."""
    plain = _plain(model)
    two, three = built(plain, replace(plain, batch=3))
    assert two["parameters"] == three["parameters"]
    assert two["inputs"] != three["inputs"]


def test_a_name_that_it_lacks_is_refused(model: ModelRef) -> None:
    """Where names() says which models there are, another one is an error, and this one is not."""
    kind = kind_of(model)
    kind.check_name(model)
    if kind.names() is None:
        pytest.skip("the kind does not say which models there are")
    with pytest.raises(SpecError, match="has no model"):
        kind.check_name(replace(model, locator="surely_no_model_of_this_name"))

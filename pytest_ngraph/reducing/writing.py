"""The folder that is shared: the model, a test of it, and the text of an issue."""

from __future__ import annotations

import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pytest_ngraph import units
from pytest_ngraph.compilers.base import Compiler
from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine import files
from pytest_ngraph.machine.facts import available_cpus, cpu_model, version_of, version_of_module
from pytest_ngraph.reducing.failing import Failure, first_line
from pytest_ngraph.spec.cells import Cell, Outcome
from pytest_ngraph.texts.shown import clean

MODEL, SAMPLES, TEST, ISSUE = "reduced.onnx", "reduced.npz", "test_reduced.py", "ISSUE.md"
_NAMES = (MODEL, SAMPLES, TEST, ISSUE)
_MOST_LINES = 30
# How each compiler is asked without this plugin, as a function of a path and the inputs by name.
_BY_ITSELF: Mapping[str, str] = {
    "onnxruntime": """import onnxruntime

def compiled(path, inputs):
    return onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"]).run(None, inputs)
""",
    "openvino": """import openvino

def compiled(path, inputs):
    model = openvino.Core().compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return list(model(inputs).values())
""",
    "tvm": """import tvm
from tvm.relax.frontend.onnx import from_onnx

def compiled(path, inputs):
    module = from_onnx(onnx.load(path), keep_params_in_input=False)
    machine = tvm.relax.VirtualMachine(tvm.compile(module, target="llvm"), tvm.cpu())
    found = machine["main"](*(tvm.runtime.tensor(array) for array in inputs.values()))
    return [each.numpy() for each in ([found] if hasattr(found, "numpy") else found)]
""",
}
_SCRIPT = """import json
import time

import numpy as np
import onnx
import onnxruntime as reference

{compiled}
model = onnx.load("reduced.onnx")
ranges = json.loads(next(each.value for each in model.metadata_props if each.key == "ngraph.inputs"))
random = np.random.default_rng(0)
inputs = {{}}
for value in model.graph.input:
    shape = [dim.dim_value for dim in value.type.tensor_type.shape.dim]
    kind, spread = onnx.helper.tensor_dtype_to_np_dtype(value.type.tensor_type.elem_type), ranges[value.name]
    if "values" in spread:
        array = random.choice(spread["values"], size=shape)
    elif "mean" in spread:
        array = random.normal(spread["mean"], spread["std"], shape).clip(spread["low"], spread["high"])
        array = np.where(random.random(shape) < spread["zeros"], 0, array)
    else:
        array = random.integers(spread["low"], spread["high"], shape, endpoint=True)
    inputs[value.name] = np.asarray(array).astype(kind)
plain = reference.SessionOptions()
plain.graph_optimization_level = reference.GraphOptimizationLevel.ORT_DISABLE_ALL
expected = reference.InferenceSession("reduced.onnx", plain, providers=["CPUExecutionProvider"]).run(None, inputs)
began = time.perf_counter()
outputs = compiled("reduced.onnx", inputs)
print("compiled and called in", time.perf_counter() - began, "s")
for ours, theirs in zip(outputs, expected):
    print("max |y - reference|:", np.abs(np.asarray(ours, float) - np.asarray(theirs, float)).max())
"""


@dataclass(frozen=True, slots=True)
class Shared:
    """What is said of a reduced model: how it fails, of how many nodes, and what was done to its weights and inputs.

    ``sizes`` are those of the cell that it is cut from, such as ``batch1 seq128``: its file has no open dimension.
    """

    failure: Failure
    cell: Cell
    reason: str
    nodes: tuple[int, int]
    operators: str
    weights: str
    inputs: str
    numbers: tuple[str, ...] = ()
    placement: tuple[tuple[str, str], ...] = ()
    sizes: str = ""


def check_folder(folder: Path, *, force: bool) -> None:
    """Raise SpecError where a folder cannot take the files, or has one of them already."""
    # Also where a folder above may not be searched, of which Path.exists() raises an error of its own.
    there = next((each for each in (folder, *folder.parents) if os.path.lexists(each)), Path())
    if not there.is_dir():
        raise SpecError(f"--out: {there} is a file (expected a folder, new or with none of {', '.join(_NAMES)})")
    if not os.access(there, os.W_OK | os.X_OK):
        raise SpecError(f"--out: {there} cannot be written to (expected a folder of yours)")
    for name in _NAMES:
        path = folder / name
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise SpecError(f"--out: {path} is a link or a folder: nothing is written through it; name another --out")
        if path.exists() and not force:
            raise SpecError(f"--out: {path} is there already; --force writes over it, or name another --out")


def write(folder: Path, scratch: Path, shared: Shared, adapter: Compiler, *, force: bool = False) -> list[Path]:
    """Write the files into a folder: the model, and what samples it names, from ``scratch``. Return their paths.

    Raises SpecError for a folder that cannot take them, as it may have become since the search began.
    """
    try:
        return _write(folder, scratch, shared, adapter, force=force)
    except SpecError as error:
        raise SpecError(
            f"{error}; what was tried is kept: the same command with another --out writes it soon"
        ) from None


def _write(folder: Path, scratch: Path, shared: Shared, adapter: Compiler, *, force: bool) -> list[Path]:
    check_folder(folder, force=force)
    contents: dict[str, bytes | str] = {MODEL: (scratch / MODEL).read_bytes()}
    if (scratch / SAMPLES).exists():
        contents[SAMPLES] = (scratch / SAMPLES).read_bytes()
    contents |= {TEST: _test(shared), ISSUE: _issue(shared, adapter, has_samples=SAMPLES in contents)}
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, content in contents.items():
            files.write(folder / name, content)
        if SAMPLES not in contents:
            # Of an earlier reduction.
            (folder / SAMPLES).unlink(missing_ok=True)
    except OSError as error:
        raise SpecError(f"--out: {folder}: {error.strerror or error}") from None
    return [folder / name for name in contents]


def _marker(shared: Shared) -> str:
    cell, failure = shared.cell, shared.failure
    words = [f'model="onnx:{MODEL}"', f"batch={cell.workload.batch}", f'compilers=["{cell.compiler}"]']
    words += [f'precision="{cell.workload.precision}"'] if cell.workload.precision != "f32" else []
    words += [f'scenario="{cell.workload.scenario}"'] if cell.workload.scenario != "latency" else []
    words += [f'devices=["{cell.device}"]'] if cell.device != "local" else []
    words += [f'baseline="{failure.baseline}"'] if failure.is_slow else []
    lines = "".join(f"    {word},\n" for word in words)
    return f"@pytest.mark.ngraph(\n{lines})\n"


def _test(shared: Shared) -> str:
    failure = shared.failure
    head = '"""Fails on purpose: made by ngraph reduce, of the model beside it."""\n\nimport pytest\n'
    if failure.is_slow:
        tolerance = f", tolerance={failure.tolerance:g}" if failure.tolerance else ""
        claim = f"    assert_speedup(ngraph_cell, at_least={failure.at_least:.6g}{tolerance})\n"
        head += "\nfrom pytest_ngraph import assert_speedup\n"
    else:
        skips = "Skipped without --ngraph-strict" if failure.outcome is Outcome.UNSUPPORTED else "Fails"
        claim = f"    # {skips}: {failure.outcome}.\n    assert ngraph_cell.latency.value > 0\n"
    return f"{head}\n\n{_marker(shared)}def test_reduced(ngraph_cell):\n{claim}"


def _issue(shared: Shared, adapter: Compiler, *, has_samples: bool) -> str:
    failure, name = shared.failure, adapter.name
    what = "slower than it should be" if failure.is_slow else str(failure.outcome)
    kept, before = shared.nodes
    at = f" at {shared.sizes}, whose shapes are fixed in it" if shared.sizes else ""
    lines = [
        f"# {name}: {what} on a graph of {units.count(kept, 'node')} ({shared.operators})",
        "",
        f"`{MODEL}` is cut from a model of {units.count(before, 'node')}{at}. {shared.weights} {shared.inputs}",
        "",
        "## What happens",
        "",
        failure.words if failure.is_slow else f"{failure.outcome}:",
        *_quoted(shared.reason),
        *([f"- {line}" for line in shared.numbers] + [""] if shared.numbers else []),
        "## Where",
        "",
        *(f"- {name} {version}" for name, version in _versions(adapter).items()),
        f"- Python {platform.python_version()}, {platform.system()} {platform.machine()}",
        f"- {clean(cpu_model())}, {units.count(len(available_cpus()), 'CPU')}",
        f"- asked for as `{shared.cell.compiler}`" + _placed(shared.placement),
        "",
        "## How to see it",
        "",
        "With pytest-ngraph:",
        "",
        "```",
        f'pip install "{adapter.install or _requirement(adapter)}"',
        f"pytest --ngraph-strict {TEST}",
        "```",
        "",
    ]
    if adapter.name not in _BY_ITSELF:
        lines += [
            f"Without it: `{MODEL}` in {name}, which is no compiler of pytest-ngraph's own, so that the test needs its "
            "adapter (`pytest_ngraph_compilers`).",
            "",
        ]
        return "\n".join(lines)
    inputs = "inputs in the same range" if has_samples else "the same kind of inputs"
    script = _SCRIPT.format(compiled=_BY_ITSELF[adapter.name])
    lines += [f"Without it, on {inputs}:", "", "```python", script.rstrip(), "```", ""]
    return "\n".join(lines)


def _requirement(adapter: Compiler) -> str:
    return f"pytest-ngraph[{adapter.extra}]" if adapter.extra else "pytest-ngraph[onnxruntime]"


def _quoted(reason: str) -> list[str]:
    lines = [line.rstrip() for line in clean(reason).splitlines() if line.strip()][:_MOST_LINES]
    return ["", *(f"    {line}" for line in lines), ""]


def _placed(placement: Sequence[tuple[str, str]]) -> str:
    return f", ran as {', '.join(f'{key}: {value}' for key, value in placement)}" if placement else ""


def _versions(adapter: Compiler) -> dict[str, str]:
    found = {module: version_of_module(module) for module in adapter.requires}
    found |= {name: version_of(name) for name in ("onnx", "onnxruntime", "numpy", "pytest-ngraph")}
    return {name: version for name, version in found.items() if version}


def sayable(reason: str, folders: Sequence[Path]) -> str:
    """Return a reason without the folders of this machine, and of a traceback its first line only."""
    text = first_line(reason) if "Traceback" in reason or '  File "' in reason else reason
    # A home of / is no folder of somebody's, but in every path.
    known = {str(each) for each in (*folders, Path.home(), Path.cwd()) if each.name}
    for folder in sorted(known, key=len, reverse=True):
        text = text.replace(folder + os.sep, "").replace(folder, ".")
    return text

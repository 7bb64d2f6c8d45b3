"""Which bracket options each built-in compiler takes, when it says that it cannot run, and what its import costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.compilers.catalogue import BUILT_IN, Catalogue
from pytest_ngraph.compilers.torch import inductor
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model

DEFAULTS: dict[str, dict[str, Any]] = {
    "identity": {"threads": 0, "requests": 0},
    "torchscript": {"threads": 0, "optimize": "freeze", "requests": 0},
    "inductor": {"threads": 0, "mode": "default", "freezing": "on", "aot": False, "requests": 0},
    "onnxruntime": {
        "threads": 0, "graph": "all", "cuda": False, "tensorrt": False, "openvino": False, "fallback": "off",
        "requests": 0,
    },
    "openvino": {"threads": 0, "hint": "scenario", "streams": 0, "requests": 0, "stateful": "off"},
    "executorch": {"threads": 0},
    "iree": {"threads": 0, "level": "O3"},
}  # fmt: skip


def resolve(text: str) -> dict[str, Any]:
    spec = CompilerSpec.parse(text)
    return Catalogue().get(spec.name).resolve(spec)


def why_not(text: str, *, accelerator: str = "cpu", precision: str = "f32") -> str | None:
    spec = CompilerSpec.parse(text)
    workload = Workload(parse_model("block:conv"), precision=precision)
    return Catalogue().get(spec.name).why_not(Cell("local", spec, workload), Device(accelerator=accelerator))


@pytest.mark.parametrize("name", DEFAULTS)
def test_defaults_are_what_the_documentation_says(name: str) -> None:
    assert resolve(name) == DEFAULTS[name]


@pytest.mark.parametrize(
    ("text", "option", "value"),
    [
        ("identity[threads=2]", "threads", 2),
        ("torchscript[optimize=inference]", "optimize", "inference"),
        ("inductor[mode=max-autotune]", "mode", "max-autotune"),
        ("inductor[freezing=off]", "freezing", "off"),
        ("inductor[aot]", "aot", True),
        ("executorch[threads=2]", "threads", 2),
        ("iree[level=O0]", "level", "O0"),
        ("onnxruntime[graph=disabled]", "graph", "disabled"),
        ("onnxruntime[graph=layout,threads=1]", "graph", "layout"),
        ("openvino[hint=throughput]", "hint", "throughput"),
        ("openvino[streams=4]", "streams", 4),
    ],
)
def test_an_option_is_read_in_its_type(text: str, option: str, value: object) -> None:
    assert resolve(text)[option] == value


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("identity[graph=all]", "unknown option 'graph' (options of identity: threads, requests)"),
        ("identity[threads=-1]", "option threads='-1' is not allowed (allowed: a whole number >= 0)"),
        ("torchscript[optimize]", "option optimize='' is not allowed (allowed: freeze, inference)"),
        ("inductor[freezing=yes]", "option freezing='yes' is not allowed (allowed: on, off)"),
        ("inductor[aot=maybe]", "option aot='maybe' is not allowed (allowed: no value)"),
        ("executorch[delegate=coreml]", "unknown option 'delegate' (options of executorch: threads)"),
        ("iree[level=O4]", "option level='O4' is not allowed (allowed: O0, O1, O2, O3)"),
        ("iree[threads=many]", "option threads='many' is not allowed (allowed: a whole number >= 0)"),
        ("onnxruntime[graph=99]", "(allowed: all, layout, extended, basic, disabled)"),
        ("openvino[hint=speed]", "(allowed: scenario, latency, throughput)"),
        ("openvino[precision=bf16]", "(options of openvino: threads, hint, streams, requests, stateful)"),
    ],
)
def test_what_is_not_an_option_is_refused_with_what_is(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        resolve(text)
    assert said in str(caught.value)


@pytest.mark.parametrize(
    ("name", "precision", "said"),
    [
        ("identity", "int8", "precision int8 (it runs f32, tf32, f16, bf16)"),
        ("torchscript", "int8", "precision int8 (it runs f32, tf32, f16, bf16)"),
        ("inductor", "int8", "precision int8 (it runs f32, tf32, f16, bf16)"),
        ("onnxruntime", "f16", "precision f16 (its provider cpu runs f32, int8)"),
        ("openvino", "tf32", "precision tf32 (it runs f32, bf16, f16, int8)"),
        ("tvm", "f16", "precision f16 (it runs f32)"),
        ("executorch", "f16", "precision f16 (it runs f32)"),
        ("executorch", "int8", "precision int8 (it runs f32)"),
        ("iree", "f16", "precision f16 (it runs f32)"),
        ("iree", "int8", "precision int8 (it runs f32)"),
        ("null", "f16", "precision f16 (it runs f32)"),
    ],
)
def test_another_precision_is_refused_with_what_runs(name: str, precision: str, said: str) -> None:
    assert why_not(name, precision=precision) == said


def test_another_device_is_refused_with_what_runs() -> None:
    assert why_not("tensorrt") == "device cpu (it runs cuda)"
    assert why_not("openvino", accelerator="cuda:0") == "device cuda (it runs cpu)"


@pytest.fixture
def no_cxx(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))


def test_inductor_says_that_it_lacks_a_cxx_compiler(no_cxx: None) -> None:
    assert why_not("inductor") == "needs a C++ compiler: none of g++, clang++, c++ on PATH and no $CXX"


def test_inductor_says_that_the_named_cxx_compiler_is_missing(no_cxx: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "icpx")
    assert why_not("inductor") == "needs a C++ compiler and $CXX=icpx is not one on PATH"


def test_inductor_takes_any_of_the_usual_cxx_compilers(no_cxx: None, tmp_path: Path) -> None:
    for name in ("c++", "clang++"):
        (tmp_path / name).touch(mode=0o755)
    assert inductor.find_cxx() == str(tmp_path / "clang++")
    assert why_not("inductor") is None


def test_cuda_graphs_are_not_measured_where_there_are_none() -> None:
    assert "CUDA graphs" in (why_not("inductor[mode=reduce-overhead]") or "")


def test_adapters_are_imported_without_their_runtimes() -> None:
    modules = ", ".join(place.partition(":")[0] for place in BUILT_IN.values())
    heavy = {"torch", "numpy", "onnx", "onnxruntime", "openvino"}
    code = f"import sys, {modules}; sys.exit(sorted({heavy} & set(sys.modules)) or 0)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["onnxruntime", "openvino", "identity", "null"])
def test_calls_in_flight_are_refused_where_one_call_follows_the_other(name: str) -> None:
    refused = why_not(f"{name}[requests=4]")

    assert refused is not None
    assert 'option requests: it is of scenario="throughput"' in refused
    assert why_not(f"{name}[requests=0]") is None

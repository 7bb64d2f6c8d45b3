"""The adapters on their runtimes, each in a process of its own, where every warning is an error."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.conformance.cases import Case
from pytest_ngraph.conformance.laboratory import Laboratory
from pytest_ngraph.spec.cells import CompilerSpec
from tests.conftest import skip_without
from tests.support import workers
from tests.support.fork_server import STRICT

pytestmark = pytest.mark.real

REQUIRES = {
    "identity": ("torch",),
    "torchscript": ("torch",),
    "torchscript[optimize=inference]": ("torch",),
    "onnxruntime": ("torch", "onnxscript", "onnxruntime"),
    "onnxruntime[graph=disabled]": ("torch", "onnxscript", "onnxruntime"),
    "openvino": ("torch", "onnxscript", "openvino"),
    "openvino[hint=throughput,streams=1]": ("torch", "onnxscript", "openvino"),
}
MODELS = "pytest_ngraph.conformance.models"
CONV = Case("conv", f"{MODELS}:ConvNet", batches=(2,))
VIT = Case("vit", "timm:test_vit", batches=(1,), image_size=64, needs=("torch", "timm", "torchvision"))
BROKEN = Case("graph-break", f"{MODELS}:GraphBreak", batches=(2,))


def need(*modules: str) -> None:
    for module in modules:
        pytest.importorskip(module)


@pytest.fixture(scope="module")
def laboratory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Laboratory]:
    with workers.forking_conformance():
        yield Laboratory(Catalogue(), tmp_path_factory.mktemp("real"))


@pytest.fixture
def strict(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every warning is an error from the start on, which is no fork's."""
    monkeypatch.setenv("PYTHONWARNINGS", "error")


@pytest.fixture
def strict_fork(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every warning is an error once the runtime is imported."""
    monkeypatch.setenv(STRICT, "error")


def examine(laboratory: Laboratory, text: str, case: Case = CONV, **kwargs: Any) -> dict[str, Any]:
    return workers.examined(laboratory, CompilerSpec.parse(text), case, **kwargs)


@pytest.mark.parametrize("text", REQUIRES)
def test_an_adapter_keeps_the_contract_without_a_warning(laboratory: Laboratory, text: str, strict: None) -> None:
    need(*REQUIRES[text])
    answer = examine(laboratory, text)
    assert not any(answer["found"].values()), answer["found"]
    assert answer["stdout"] == ""
    assert answer["placement"]["precision"] == "f32"
    assert answer["placement"]["threads"] == 1
    assert answer["loaded"] is False


def test_importing_inductor_warns_of_nothing() -> None:
    """It is the only one that is forked below from what has imported it."""
    need("torch")
    code = "from pytest_ngraph.compilers.torch.inductor import COMPILER\nCOMPILER.load()\nprint(1)"
    assert run_code(code, PYTHONWARNINGS="error") == 1


def test_inductor_tells_a_cold_cache_from_a_warm_one(laboratory: Laboratory, strict_fork: None) -> None:
    need("torch")
    first, second = (examine(laboratory, "inductor", process=process) for process in (0, 1))
    assert not any(first["found"].values()), first["found"]
    assert (first["placement"]["cache"], first["placement"]["cache_folder"], first["loaded"]) == (
        "cold",
        "empty",
        False,
    )
    # The graph has packed weights, which inductor does not keep: it is made again, of kernels that are kept.
    assert (second["placement"]["cache"], second["placement"]["cache_folder"], second["loaded"]) == (
        "kernels",
        "used",
        True,
    )
    assert (first["placement"]["graphs"], first["placement"]["graph_breaks"]) == (1, 0)


def test_inductor_compiles_a_network_of_others_with_attention(laboratory: Laboratory, strict_fork: None) -> None:
    """The smallest of timm's, built like those of the quickstart, which run on the other compilers."""
    skip_without(*VIT.needs)
    answer = examine(laboratory, "inductor", VIT)
    assert not any(answer["found"].values()), answer["found"]
    assert (answer["placement"]["graphs"], answer["placement"]["graph_breaks"]) == (1, 0)


def test_a_graph_break_is_refused_with_its_reason(laboratory: Laboratory) -> None:
    need("torch")
    said = examine(laboratory, "inductor", BROKEN)["unsupported"]
    assert said.startswith("torch.compile cannot take the whole graph: Data-dependent branching")


def test_a_model_that_cannot_be_exported_is_refused_with_the_reason(laboratory: Laboratory) -> None:
    need("torch", "onnxscript", "onnxruntime")
    answer = laboratory.examine(CompilerSpec("onnxruntime"), BROKEN)
    assert "unsupported" not in answer, "a model that can no longer be exported is a failure, not a skip"
    assert "cannot be exported to ONNX" in answer["failed"]


def run_code(code: str, *arguments: str, **variables: str) -> Any:
    """Run code in a process on one CPU; return what it printed, read as JSON."""
    path = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(code), *arguments],
        env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path, **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def artifacts(laboratory: Laboratory) -> Path:
    """Return the folder that holds the convolution's ONNX file."""
    need("torch", "onnxscript", "onnxruntime")
    examine(laboratory, "onnxruntime")
    return laboratory.folder / "artifacts"


OPEN = """
import json, os, sys
from pathlib import Path
from time import perf_counter_ns
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.compilers.toolkit.equality import compare
from pytest_ngraph.spec.cells import CompilerSpec, Device, ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.loaded import LoadedWorkload

spec = CompilerSpec.parse(sys.argv[1])
adapter = Catalogue().get(spec.name)
workload = Workload(parse_model("pytest_ngraph.conformance.models:ConvNet"), 2)
loaded = LoadedWorkload(workload, 0, artifacts.find(workload, 0, Path(sys.argv[2]), True))
executable = adapter.compile(loaded, Device(threads=1), adapter.resolve(spec))
executable.bind(loaded.inputs)
executable.run()
"""


@pytest.mark.measures
def test_onnxruntime_costs_no_more_than_a_bare_loop(artifacts: Path) -> None:
    ratios = run_code(
        OPEN
        + """
import onnxruntime
settings = onnxruntime.SessionOptions()
settings.intra_op_num_threads = settings.inter_op_num_threads = 1
session = onnxruntime.InferenceSession(str(loaded.onnx_path), settings, providers=["CPUExecutionProvider"])

def best(call):
    least = 10**12
    for _ in range(300):
        began = perf_counter_ns()
        call()
        least = min(least, perf_counter_ns() - began)
    return least

bare = lambda: session.run(None, loaded.inputs)
pairs = [(best(executable.run), best(bare)) for _ in range(15)]
print(json.dumps(sorted(mine / theirs for mine, theirs in pairs)))
""",
        "onnxruntime",
        str(artifacts),
    )
    # Each pair takes a hundredth of a second: a machine whose clock changes meanwhile spoils few of them. The adapter
    # binds once and so is the faster one.
    assert ratios[len(ratios) // 2] <= 1.1, ratios


# Weights become zero after the module was compiled: what was computed of constants, such as a convolution with its
# norm, is none the wiser.
ZEROED = """
import numpy as np, torch
before = [array.copy() for array in executable.outputs()]
for weight in loaded.module().body.parameters():
    weight.data.zero_()
executable.run()
same = all(np.array_equal(one, other) for one, other in zip(before, executable.outputs()))
print(json.dumps({"same": bool(same), **{key: executable.placement[key] for key in ("freezing", "graphs")}}))
"""


@pytest.mark.parametrize("freezing", ["on", "off"])
def test_inductor_makes_constants_of_weights_where_it_says_so(artifacts: Path, freezing: str) -> None:
    answer = run_code(OPEN + ZEROED, f"inductor[freezing={freezing}]", str(artifacts))
    assert answer == {"same": freezing == "on", "freezing": freezing, "graphs": 1}


def test_inductor_does_not_take_weights_for_constants_that_are_inputs(artifacts: Path) -> None:
    """As it would be where Dynamo is not told in time: inductor itself says nothing of it."""
    late = "import torch._dynamo.variables.builder as builder\nbuilder.is_parameter_freezing = lambda: False\n"
    said = """
except Unsupported as error:
    print(json.dumps(str(error)))
"""
    tried = "from pytest_ngraph.errors import Unsupported\ntry:\n" + textwrap.indent(OPEN, "    ") + said
    answer = run_code(late + tried, "inductor", str(artifacts))
    assert "torch.compile left 14 weights as inputs" in answer
    assert "inductor[freezing=off]" in answer


@pytest.mark.parametrize("freezing", ["on", "off"])
def test_inductor_compiles_every_cell_of_a_worker_though_two_are_of_the_same_code(
    artifacts: Path, freezing: str
) -> None:
    again = """
other = LoadedWorkload(workload, 0, artifacts.find(workload, 0, Path(sys.argv[2]), True))
second = adapter.compile(other, Device(threads=1), adapter.resolve(spec))
print(json.dumps([each.placement["graphs"] for each in (executable, second)]))
"""
    assert run_code(OPEN + again, f"inductor[freezing={freezing}]", str(artifacts)) == [1, 1]


def test_openvino_does_not_lower_f32_where_it_would_by_itself(artifacts: Path) -> None:
    need("openvino")
    answer = run_code(
        OPEN
        + """
import openvino
from pytest_ngraph.workloads.artifacts import reference as of
reference = of(loaded.artifact).timed
compiled = openvino.Core().compile_model(str(loaded.onnx_path), "CPU")
left_alone = [array.copy() for array in compiled(list(loaded.inputs.values())).values()]
print(json.dumps({
    "placement": dict(executable.placement),
    "error": compare(executable.outputs(), reference, "f32").max_error,
    "left_alone": compiled.get_property("INFERENCE_PRECISION_HINT").get_type_name(),
    "its_error": compare(left_alone, reference, "f32").max_error,
    "reason": compare(left_alone, reference, "f32").reason,
}))
""",
        "openvino",
        str(artifacts),
    )
    assert answer["placement"]["precision"] == "f32"
    assert "f16" not in answer["placement"]["runtime_precision"]  # bf16 neither
    assert answer["error"] < 1e-4
    if answer["left_alone"] == "f32":
        pytest.skip("this CPU has no bf16, so OpenVINO by itself stays with f32 too")
    assert answer["its_error"] > 1e-3
    assert "hidden lowering" in answer["reason"]


def test_openvino_does_not_call_home(artifacts: Path) -> None:
    need("openvino")
    answer = run_code(
        "import os, tempfile; os.environ['HOME'] = home = tempfile.mkdtemp()\n"
        + OPEN
        + "\nimport threading\n"
        + "print(json.dumps([os.listdir(home), [each.name for each in threading.enumerate()]]))",
        "openvino",
        str(artifacts),
    )
    assert answer == [[], ["MainThread"]]


def test_runtimes_that_read_onnx_do_not_import_torch(artifacts: Path) -> None:
    need("openvino")
    for name in ("onnxruntime", "openvino"):
        assert run_code(OPEN + "\nprint(json.dumps('torch' in sys.modules))", name, str(artifacts)) is False


def test_an_onnx_file_that_is_broken_fails_with_the_runtimes_words(tmp_path: Path) -> None:
    need("onnxruntime", "openvino")
    (tmp_path / "model.onnx").write_bytes(b"this is not a protobuf")
    code = """
import json, sys
from pathlib import Path
from types import SimpleNamespace
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.spec.cells import CompilerSpec, Device, ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model

adapter = Catalogue().get(sys.argv[1])
spec = Workload(parse_model("block:conv"))
workload = SimpleNamespace(onnx_path=Path(sys.argv[2]), spec=spec, kept=None, inputs={}, open_axes={})
workload.is_bucket = False
try:
    adapter.compile(workload, Device(), adapter.resolve(CompilerSpec(adapter.name)))
except NgraphError as error:
    print(json.dumps([type(error).__name__, str(error)]))
"""
    kind, said = run_code(code, "onnxruntime", str(tmp_path / "model.onnx"))
    assert kind == "CompileFailed"
    assert "INVALID_PROTOBUF" in said
    kind, said = run_code(code, "openvino", str(tmp_path / "model.onnx"))
    assert kind == "Unsupported"
    assert "Exception from" not in said
    assert "\n" not in said

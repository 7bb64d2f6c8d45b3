"""Workers import libraries of models without Dynamo, and whoever asks for it gets it all the same."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import skip_without
from tests.support.workers import run_code

pytestmark = pytest.mark.real

# A worker is greeted, then code of a user's is run in its process.
GREETED = """
import sys
from pathlib import Path
from pytest_ngraph.spec.cells import Device
from pytest_ngraph.worker.worker import Worker
from pytest_ngraph.workloads.kinds import parse_model

job = {"device": Device("local", (0,), 1).to_json(), "artifacts": ".", "logs": ".", "seed": 0,
       "places": {"identity": "pytest_ngraph.compilers.torch.identity:COMPILER",
                  "inductor": "pytest_ngraph.compilers.torch.inductor:COMPILER"}}
def greet(compiler, *models):
    models = [parse_model(text).to_json() for text in models]
    answer = Worker(job, print).answer({"do": "hello", "compiler": compiler, "models": models})
    assert answer["ok"], answer
def is_loaded():
    return "torch._dynamo" in sys.modules
"""
BLOCK = """
import sys
from pytest_ngraph.workloads.modules.dynamo import without_dynamo
def is_loaded():
    return "torch._dynamo" in sys.modules
assert not is_loaded()
sys.path.insert(0, ".")
"""


def prints(code: str, folder: Path) -> list[str]:
    """Return the lines that code prints in a fresh interpreter."""
    command = [sys.executable, "-W", "ignore", "-c", code]
    return lines(subprocess.run(command, capture_output=True, text=True, cwd=folder, check=False))


def prints_with_torch(code: str, folder: Path) -> list[str]:
    """Return the lines that code prints where PyTorch is imported, and Dynamo is not."""
    return lines(run_code("torch", BLOCK + code, folder=folder))


def lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_an_eager_worker_imports_libraries_of_models_without_dynamo_and_their_models_run(tmp_path: Path) -> None:
    skip_without("torch", "timm", "torchvision", "onnx2torch")
    (tmp_path / "net.onnx").write_bytes(b"")
    code = """
greet("identity", "timm:resnet10t", "torchvision:resnet18", "onnx:net.onnx")
print(is_loaded(), {"timm", "torchvision", "onnx2torch"} <= {*sys.modules})
import torch
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads.building import build
from pytest_ngraph.workloads.modules.dynamo import import_dynamo_for
model = build(Workload(parse_model("timm:resnet10t"), image_size=64), 0)
import_dynamo_for(model.module)
with torch.inference_mode():
    model.module(model.example_inputs(1))
print(is_loaded())
"""
    assert prints(GREETED + code, tmp_path) == ["False True", "False"]


def test_a_worker_whose_compiler_compiles_has_it_before(tmp_path: Path) -> None:
    skip_without("torch", "timm", "torchvision")
    code = """
greet("inductor", "timm:resnet10t")
import timm, torch, torchvision
print(is_loaded(), torchvision.ops.roi_align.__globals__["is_compile_supported"].__module__)
"""
    assert prints(GREETED + code, tmp_path) == ["True torch._dynamo.utils"]


def test_a_model_of_a_users_own_that_needs_dynamo_has_the_real_one(tmp_path: Path) -> None:
    skip_without("torch", "timm", "torchvision")
    (tmp_path / "net.py").write_text(
        """
import torch, torch._dynamo, torch._dynamo.config
from torch._dynamo.utils import counters

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 2)
        self.compiled = torch.compile(self.layer, backend="eager")
    def forward(self, x):
        counters["frames"].clear()
        y = self.compiled(x)
        assert counters["frames"]["ok"] <= 1 and torch._dynamo.config.recompile_limit
        return y
    def example_inputs(self, batch):
        return torch.randn(batch, 4)
"""
    )
    code = """
greet("identity", "timm:resnet10t")
print(is_loaded())
sys.path.insert(0, ".")
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads.building import build
model = build(Workload(parse_model("net.py:Net", (Path("."),))), 0)
print(tuple(model.module(model.example_inputs(3)).shape), is_loaded())
import torch, torchvision
print(torchvision.ops.roi_align.__globals__["is_compile_supported"]("cpu") == torch._dynamo.is_dynamo_supported())
"""
    assert prints(GREETED + code, tmp_path) == ["False", "(3, 2) True", "True"]


def test_functions_that_dynamo_is_kept_from_work_and_their_models_import_it_before_they_are_timed(
    tmp_path: Path,
) -> None:
    skip_without("torch")
    (tmp_path / "decorating.py").write_text(
        """
import torch
class Net(torch.nn.Module):
    @torch.compiler.disable
    def forward(self, x):
        assert not torch.compiler.is_compiling()
        return x + 1
class Other(torch.nn.Module):
    pass
"""
    )
    code = """
import torch
from torch import nn
with without_dynamo():
    import decorating
from pytest_ngraph.workloads.modules.dynamo import import_dynamo_for
import_dynamo_for(nn.Sequential(nn.ReLU()))
print(is_loaded())
import_dynamo_for(nn.Sequential(decorating.Net()))
print(is_loaded())
model = torch.compile(nn.Sequential(nn.ReLU(), decorating.Net()), backend="eager")
print(model(torch.zeros(1)).item(), decorating.Net()(torch.zeros(1)).item())
"""
    assert prints_with_torch(code, tmp_path) == ["False", "True", "1.0 1.0"]


@pytest.mark.parametrize(
    "asks",
    [
        "import torch._dynamo.config; torch._dynamo.config.recompile_limit",
        "from torch._dynamo.config import recompile_limit",
        "from torch._dynamo import explain",
        "from torch._dynamo.utils import counters",
        "import torch._dynamo as d; d.reset()",
        "import torch; torch._dynamo.reset()",
        "import torch; f = torch.compiler.disable(recursive=False); assert f(len)([1]) == 1",
        "import torch; f = torch.compiler.disable(torch.nn.ReLU()); f(torch.zeros(1))",
        "from torch._dynamo.utils import is_compile_supported; assert is_compile_supported('cpu') in (True, False)",
    ],
)
def test_what_else_is_asked_of_it_in_such_a_block_imports_it(tmp_path: Path, asks: str) -> None:
    skip_without("torch")
    (tmp_path / "asking.py").write_text(asks)
    code = """
with without_dynamo():
    import asking
    print(is_loaded())
import torch
import torch._dynamo.config as config
print(config is torch._dynamo.config is sys.modules["torch._dynamo.config"], config.__spec__.origin == config.__file__)
print(torch._dynamo.__file__ is not None, torch._dynamo.utils.counters is not None)
"""
    assert prints_with_torch(code, tmp_path) == ["True", "True True", "True True"]


def test_an_import_that_fails_leaves_nothing_behind(tmp_path: Path) -> None:
    skip_without("torch")
    (tmp_path / "failing.py").write_text(
        "import torch._dynamo\nfrom torch._dynamo.utils import is_compile_supported as one\n"
        "from torch._dynamo import nothing\n"
    )
    code = """
before = list(sys.meta_path)
try:
    with without_dynamo():
        import failing
except ImportError as error:
    print(error)
print(sys.meta_path == before)
try:
    with without_dynamo():
        raise KeyError("mine")
except KeyError as error:
    print(error)
import torch._dynamo
print(torch._dynamo.is_dynamo_supported is not None)
"""
    said = prints_with_torch(code, tmp_path)
    assert "cannot import name 'nothing'" in said[0]
    assert said[1:] == ["True", "'mine'", "True"]


def test_without_pytorch_the_block_does_nothing(tmp_path: Path) -> None:
    code = """
sys.modules["torch"] = None
with without_dynamo():
    import json
print(sys.meta_path[0].__class__.__name__ != "_Finder")
"""
    assert prints(BLOCK + code, tmp_path) == ["True"]

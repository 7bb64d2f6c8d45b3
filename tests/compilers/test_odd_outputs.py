"""What a model may take and give - None, dataclasses, ``**kwargs``, conjugate views - compilers of PyTorch can run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import skip_without
from tests.support import workers

pytestmark = pytest.mark.real

NETS = """
from dataclasses import dataclass

import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 3)

    def forward(self, x):
        return self.layer(x)

    def example_inputs(self, batch):
        return torch.randn(batch, 4)


class Pair(Net):
    def forward(self, x):
        return self.layer(x), (x * 2, self.layer(x).sum(-1))


class Named(Net):
    def forward(self, x, scale):
        return {"scaled": self.layer(x) * scale, "plain": x + 1}

    def example_inputs(self, batch):
        return {"scale": torch.randn(batch, 1), "x": torch.randn(batch, 4)}


class WithNone(Net):
    def forward(self, x):
        return self.layer(x), None


@dataclass
class Output:
    logits: torch.Tensor
    hidden: torch.Tensor
    loss: object = None


class AsDataclass(Net):
    def forward(self, x):
        return Output(self.layer(x), x.tanh())


class Mixed(Net):
    def forward(self, x):
        return {"logits": self.layer(x), "states": (x * 3, x.exp()), "loss": None}


class AnyKeywords(Named):
    def forward(self, **given):
        return self.layer(given["x"]) * given["scale"]


class KeywordOnly(Named):
    def forward(self, *, x, scale):
        return self.layer(x) - scale


class InPlaceWithNone(Net):
    def forward(self, x):
        return self.layer(x.add_(1)), None


class Conjugated(Net):
    def forward(self, x):
        found = torch.fft.fft(self.layer(x))
        return found.conj(), found.conj().imag


class Broken(Net):
    def forward(self, x):
        if torch.jit.is_tracing():
            raise RuntimeError("not while it is traced")
        return self.layer(x)
"""
RUN = """
import json, sys, warnings
from pathlib import Path
warnings.simplefilter("error")
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.compilers.toolkit.equality import compare
from pytest_ngraph.compilers.torch import torchscript
from pytest_ngraph.spec.cells import CompilerSpec, Device, Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.loaded import LoadedWorkload

folder, text, precision, scenario, *names = sys.argv[1:]
spec = CompilerSpec.parse(text)
adapter = Catalogue().get(spec.name)
wrapped = []
by_position = torchscript.by_position
torchscript.by_position = lambda *given: wrapped.append(1) or by_position(*given)
found = {}
for name in names:
    workload = Workload(
        parse_model(f"nets.py:{name}", (Path(folder),)), 2, precision=precision, scenario=scenario
    )
    made = artifacts.build(workload, 0, Path(folder) / "artifacts", False)
    wrapped.clear()
    loaded = LoadedWorkload(workload, 0, made)
    try:
        executable = adapter.compile(loaded, Device(threads=2), adapter.resolve(spec))
    except Exception as error:
        found[name] = f"{type(error).__name__}: {str(error).strip().splitlines()[-1]}"
        continue
    executable.bind(loaded.copied_inputs)
    executable.run()
    expected = artifacts.reference(made).timed
    said = compare(executable.outputs(), expected, precision).reason
    if scenario == "throughput":
        executable.bind(loaded.copied_inputs)
        executable.submit(1)
        executable.next_done()
        said = said or compare(executable._slots[1].outputs(), expected, precision).reason
    found[name] = [said, bool(wrapped)]
    executable.close()
print(json.dumps(found))
"""


def look(folder: Path, text: str, *names: str, precision: str = "f32", scenario: str = "latency") -> dict[str, Any]:
    """Compile and call each of the networks; return what is wrong with its outputs, and whether it was wrapped."""
    skip_without("torch")
    (folder / "nets.py").write_text(NETS)
    done = workers.run_code("torch", RUN, str(folder), text, precision, scenario, *names)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


AS_IT_IS = ("Net", "Pair", "Named")
WRAPPED = ("WithNone", "AsDataclass", "Mixed", "AnyKeywords", "KeywordOnly", "InPlaceWithNone")


@pytest.mark.parametrize("text", ["torchscript", "torchscript[optimize=inference]"])
def test_torchscript_takes_what_the_model_takes_and_gives(tmp_path: Path, text: str) -> None:
    found = look(tmp_path, text, *AS_IT_IS, *WRAPPED)
    # What the tracer can take is traced as it is.
    assert found == {name: ["", name in WRAPPED] for name in (*AS_IT_IS, *WRAPPED)}


def test_torchscript_does_so_in_other_precisions_and_side_by_side(tmp_path: Path) -> None:
    cast = look(tmp_path, "torchscript", "Net", "WithNone", "AnyKeywords", precision="bf16")
    # A module that is cast gives its tensors alone.
    assert cast == {"Net": ["", False], "WithNone": ["", False], "AnyKeywords": ["", True]}
    beside = look(tmp_path, "torchscript[requests=2]", "WithNone", "AnyKeywords", scenario="throughput")
    assert beside == {"WithNone": ["", True], "AnyKeywords": ["", True]}


def test_what_cannot_be_traced_says_so_in_its_own_words(tmp_path: Path) -> None:
    assert look(tmp_path, "torchscript", "Broken") == {"Broken": "RuntimeError: not while it is traced"}


def test_views_with_the_conjugate_or_negative_bit_are_outputs_like_others(tmp_path: Path) -> None:
    for text in ("identity", "torchscript"):
        assert look(tmp_path, text, "Conjugated") == {"Conjugated": ["", False]}

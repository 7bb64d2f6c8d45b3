"""Inputs that are called as operations are, or that lie in memory in another order, and how an export tells of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.artifacts import Artifact
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.loaded import LoadedWorkload
from tests.conftest import skip_without
from tests.support.references import must_give

pytestmark = pytest.mark.real
NETS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x, mean):
        return self.layer(x) - x.mean(-1, keepdim=True) + mean

    def example_inputs(self, batch):
        return torch.randn(batch, 4), torch.randn(batch, 4)


class Select(Net):
    def forward(self, select, index):
        return select.select(1, 2) * self.layer(index).select(1, 0)


class Embedding(Net):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(8, 4)

    def forward(self, embedding, where):
        found = self.table(embedding.long().abs() % 8).sum(1)
        return torch.where(where > 0, found, where)


class Output(Net):
    def forward(self, output, x):
        return output + self.layer(x)


class Keywords(Net):
    def forward(self, x, linear):
        return self.layer(x).relu() * linear

    def example_inputs(self, batch):
        return {"linear": torch.randn(batch, 4), "x": torch.randn(batch, 4)}


class Plain(Net):
    def forward(self, x, y):
        return self.layer(x).softmax(-1) @ y.t() + y.mean()


class Last(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(3, 4, 3)

    def forward(self, image, weights, plain):
        return self.layer(image) * weights.sum() + plain.mean()

    def example_inputs(self, batch):
        image = torch.randn(batch, 3, 8, 8).contiguous(memory_format=torch.channels_last)
        return image, torch.randn(4, batch).t(), torch.randn(batch, 2)
"""


def workload(folder: Path, name: str, precision: str = "f32") -> Workload:
    (folder / "nets.py").write_text(NETS)
    return Workload(parse_model(f"nets.py:{name}", (folder,)), 2, precision=precision)


def made(folder: Path, name: str, precision: str = "f32") -> Artifact:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime")
    return artifacts.build(workload(folder, name, precision), 0, folder / "artifacts", True)


@pytest.mark.parametrize("precision", ["f32", "bf16"])
@pytest.mark.parametrize("name", ["Net", "Select", "Embedding", "Output", "Keywords"])
def test_an_input_may_have_the_name_of_an_operation(tmp_path: Path, name: str, precision: str) -> None:
    artifact = made(tmp_path, name, precision)
    import onnx

    assert artifact.onnx is not None, artifact.meta["onnx_unsupported"]
    onnx.checker.check_model(str(artifact.onnx), full_check=True)
    # They are fed by the names that the model gives them.
    graph = onnx.load(artifact.onnx).graph
    assert [each.name for each in graph.input] == [each["name"] for each in artifact.meta["inputs"]]
    if precision == "bf16":
        return  # ONNX Runtime has no kernels of it on a CPU
    import numpy as np
    import onnxruntime

    loaded = LoadedWorkload(workload(tmp_path, name), 0, artifact)
    session = onnxruntime.InferenceSession(str(artifact.onnx), providers=["CPUExecutionProvider"])
    for given, expected in zip(session.run(None, loaded.inputs), must_give(loaded), strict=True):
        np.testing.assert_allclose(given, expected, atol=1e-5)


def test_a_file_without_such_a_name_is_written_as_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with_names = made(tmp_path, "Plain")
    from pytest_ngraph.workloads.modules import export

    monkeypatch.setattr(export, "_leave_names_to_inputs", lambda model: None)
    left_alone = artifacts.build(workload(tmp_path, "Plain"), 0, tmp_path / "others", True)
    assert with_names.onnx is not None
    assert left_alone.onnx is not None
    assert with_names.onnx.read_bytes() == left_alone.onnx.read_bytes()


def test_a_file_that_the_checker_refuses_is_no_export(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime")
    import onnx

    def refuse(path: str) -> None:
        raise onnx.checker.ValidationError("No Op registered for Frob\nand more")

    monkeypatch.setattr(onnx.checker, "check_model", refuse)
    artifact = made(tmp_path, "Plain")
    assert artifact.onnx is None
    said = "it cannot be exported to ONNX: the checker refuses the file: ValidationError: No Op registered for Frob"
    assert artifact.meta["onnx_unsupported"] == said


def test_an_input_in_another_order_in_memory_is_noted(tmp_path: Path) -> None:
    skip_without("torch")
    import torch

    from pytest_ngraph.compilers.torch import shared

    cell = workload(tmp_path, "Last")
    artifact = artifacts.build(cell, 0, tmp_path / "artifacts", False)
    assert artifact.meta["notes"] == [
        "its input image is given in channels_last, and called contiguous",
        "its input weights is given in strides (1, 2), and called contiguous",
    ]
    loaded = LoadedWorkload(cell, 0, artifact)
    assert all(array.flags["C_CONTIGUOUS"] for array in loaded.inputs.values())
    place = shared.Place("cpu", torch.device("cpu"), 1, 1, tf32=False)
    placement = shared.describe(loaded.module(), loaded, place)
    assert placement["made_contiguous"] == "image (channels_last), weights (strides (1, 2))"

    cell = workload(tmp_path, "Plain")
    loaded = LoadedWorkload(cell, 0, artifacts.build(cell, 0, tmp_path / "artifacts", False))
    assert "made_contiguous" not in shared.describe(loaded.module(), loaded, place)


def test_tensors_with_the_conjugate_or_negative_bit_become_arrays() -> None:
    skip_without("torch")
    import numpy as np
    import torch

    from pytest_ngraph.workloads.modules.export import as_array

    given = torch.complex(torch.tensor([1.0, 2.0]), torch.tensor([3.0, -4.0])).conj()
    assert given.is_conj()
    assert given.imag.is_neg()
    np.testing.assert_array_equal(as_array(given), np.array([1 - 3j, 2 + 4j], np.complex64))
    np.testing.assert_array_equal(as_array(given.imag), np.array([-3, 4], np.float32))

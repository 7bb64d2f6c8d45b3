"""Models are known by their weights, also where these are infinite, sparse, quantised, counted up or not there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts
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

    def forward(self, x):
        return self.layer(x)

    def example_inputs(self, batch):
        return torch.randn(batch, 4)

class Causal(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("mask", torch.full((4, 4), float("-inf")).triu(1))

    def forward(self, x):
        return (self.layer(x)[:, None] + self.mask).softmax(-1).sum(1)

class Sparse(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.eye(4).to_sparse())

    def forward(self, x):
        return torch.sparse.mm(self.edges, self.layer(x).t()).t()

class Compressed(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("edges", torch.eye(4).to_sparse_csr())

    def forward(self, x):
        return (self.edges @ self.layer(x).t()).t()

class Quantised(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("scale", torch.quantize_per_tensor(torch.ones(4), 0.1, 0, torch.qint8))

    def forward(self, x):
        return self.layer(x) * self.scale.dequantize()

class Counting(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x):
        self.calls += 1
        return self.layer(x)

class Rotary(Net):
    def __init__(self):
        super().__init__()
        self.register_buffer("turns", torch.polar(torch.ones(2), torch.tensor([0.5, 2.0])))

    def forward(self, x):
        pairs = torch.view_as_complex(self.layer(x).float().unflatten(-1, (2, 2)).contiguous())
        return torch.view_as_real(pairs * self.turns).flatten(1)

class Lazy(Net):
    def __init__(self):
        super().__init__()
        self.layer = nn.LazyLinear(4)

def called():
    net = Lazy()
    net(torch.zeros(1, 4))
    return net
"""
MODELS = ["Causal", "Sparse", "Compressed", "Quantised", "Counting", "Rotary", "called"]


def loaded(folder: Path, name: str, precision: str = "f32") -> LoadedWorkload:
    skip_without("torch")
    (folder / "nets.py").write_text(NETS)
    workload = Workload(parse_model(f"nets.py:{name}", (folder,)), 2, precision=precision)
    return LoadedWorkload(workload, 0, artifacts.build(workload, 0, folder / "artifacts", False))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta state")
@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor.* are deprecated")
@pytest.mark.parametrize("name", MODELS)
def test_a_model_of_odd_weights_is_built_as_its_reference_was(tmp_path: Path, name: str) -> None:
    import numpy as np
    import torch

    workload = loaded(tmp_path, name)
    with torch.inference_mode():
        given = workload.module()(*workload.arguments(workload.inputs)[0])
    np.testing.assert_allclose(given.numpy(), must_give(workload)[0], atol=1e-5)


def test_a_module_that_is_still_lazy_is_refused_with_what_to_do(tmp_path: Path) -> None:
    said = (
        "model 'nets.py:Lazy': its 'layer.weight' has no shape before the first call (a lazy module); call the module"
    )
    with pytest.raises(SpecError, match=re.escape(said)):
        loaded(tmp_path, "Lazy")


def test_what_is_infinite_counts() -> None:
    skip_without("torch")
    import torch

    from pytest_ngraph.workloads.modules.fingerprint import fingerprint, is_same

    def sums(*numbers: float) -> list[list[float]]:
        holder = torch.nn.Module()
        holder.register_buffer("held", torch.tensor(numbers))
        return fingerprint(holder)

    up, nan = float("inf"), float("nan")
    different = [(2.0, up, nan), (2.0, -up, nan), (2.0, up, up), (2.5, up, nan), (2.0, 0.0, 0.0)]
    for place, numbers in enumerate(different):
        assert [is_same(sums(*numbers), sums(*other)) for other in different] == [n == place for n in range(5)]
    assert is_same([[-up, up]], sums(1.0, -up))  # as 0.2.0 kept them


@pytest.mark.parametrize("precision", ["f16", "bf16"])
@pytest.mark.filterwarnings("error:Casting complex values to real")
def test_complex_weights_stay_complex_in_a_smaller_precision(tmp_path: Path, precision: str) -> None:
    from pytest_ngraph.compilers.toolkit.equality import compare

    workload = loaded(tmp_path, "Rotary", precision)
    import torch

    module = workload.module()
    kinds = {name.rpartition(".")[2]: str(tensor.dtype) for name, tensor in module.state_dict().items()}
    smaller = "torch.float16" if precision == "f16" else "torch.bfloat16"
    assert kinds == {"turns": "torch.complex64", "weight": smaller, "bias": smaller}
    with torch.inference_mode():
        given = workload.flatten(module(*workload.arguments(workload.inputs)[0]))
    assert compare([each.numpy() for each in given], must_give(workload), precision).reason == ""
    assert workload.artifact is not None
    # Sixteen numbers and four of two bytes, and two complex ones of eight.
    assert workload.artifact.meta["cast_bytes"] == 20 * 2 + 2 * 8


def test_both_parts_of_complex_weights_count() -> None:
    skip_without("torch")
    import torch

    from pytest_ngraph.workloads.modules.fingerprint import fingerprint, is_same

    def sums(*tensors: torch.Tensor) -> list[list[float]]:
        holder = torch.nn.Module()
        for index, tensor in enumerate(tensors):
            holder.register_buffer(f"held_{index}", tensor)
        return fingerprint(holder)

    nan = float("nan")
    different = [
        torch.tensor(numbers) for numbers in ([1 + 2j, 3 - 1j], [1 + 2j, 3 + 1j], [1 + 2j, complex(3, nan)], [1 + 2j])
    ]
    for place, one in enumerate(different):
        assert [is_same(sums(one), sums(other)) for other in different] == [n == place for n in range(4)]
    turned = different[0].conj()
    assert turned.is_conj()
    assert is_same(sums(turned), sums(turned.resolve_conj()))
    assert not is_same(sums(turned), sums(different[0]))
    # What was kept up to 0.3.0 leaves them out, and is of the same model still; one that lacks a weight is another.
    real, other = torch.tensor([1.0, 2.0]), torch.tensor([5.0])
    assert is_same(sums(real, other), sums(real, different[0], other))
    assert not is_same(sums(real), sums(real, different[0], other))
    assert not is_same(sums(real, other), sums(real, different[0], real))

"""Batches of a model share one building of it in a worker, unless somebody changed what was built."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.loaded import LoadedWorkload
from tests.support.references import must_give

pytestmark = pytest.mark.real
NET = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        with open("LOG", "a") as log:
            log.write("built\\n")
        self.first = nn.Linear(4, 400)
        self.norm = nn.BatchNorm1d(400)
        self.last = nn.Linear(400, 3)

    def forward(self, x):
        return self.last(self.norm(self.first(x)).relu())

    def example_inputs(self, batch):
        return torch.randn(batch, 4)

class Uncopied(Net):
    def __deepcopy__(self, memo):
        raise RuntimeError("not me")

class Forgetful(Net):
    def __deepcopy__(self, memo):
        return type(self)()
"""
# What each remembers is of the batch that it was called with first.
REMEMBERING = """
class Lists(Net):
    def __init__(self):
        super().__init__()
        self.made = []

    def forward(self, x):
        if not self.made:
            self.made.append(torch.ones(len(x), 3))
        return super().forward(x) * self.made[0]

class Nested(Net):
    def __init__(self):
        super().__init__()
        self.made = {"masks": {}}

    def forward(self, x):
        mask = self.made["masks"].setdefault("first", torch.ones(len(x), 3))
        return super().forward(x) * mask

class Cache:
    mask = None

class Objects(Net):
    def __init__(self):
        super().__init__()
        self.cache = Cache()

    def forward(self, x):
        if self.cache.mask is None:
            self.cache.mask = torch.ones(len(x), 3)
        return super().forward(x) * self.cache.mask

class Sets(Net):
    def __init__(self):
        super().__init__()
        self.seen = set()

    def forward(self, x):
        self.seen.add(len(x))
        return super().forward(x) * len(self.seen)

class Tensors(Net):
    def __init__(self):
        super().__init__()
        self.size = torch.zeros(())

    def forward(self, x):
        if self.size == 0:
            self.size.fill_(len(x))
        return super().forward(x) * (self.size == len(x))
"""
# A deep copy of each refers to what it was copied from.
REFERRING = """
import weakref

class Functions(Net):
    def __init__(self):
        super().__init__()
        self.call = lambda x: self.last(self.norm(self.first(x)))

    def forward(self, x):
        return self.call(x)

class Patched(Net):
    def __init__(self):
        super().__init__()
        usual = self.forward
        self.forward = lambda x: usual(x) * 2

class Hooked(Net):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.full((3,), 2.0))
        self.last.register_forward_hook(lambda module, inputs, output: output * self.gain)

class Defaults(Net):
    def __init__(self):
        super().__init__()
        def call(x, last=self.last, first=self.first):
            return last(first(x))
        self.call = call

    def forward(self, x):
        return self.call(x)

class Weak(Net):
    def __init__(self):
        super().__init__()
        self.reference = weakref.ref(self.last)

    def forward(self, x):
        return self.reference()(self.first(x))

class Stubborn(Net):
    def __deepcopy__(self, memo):
        return self

class Single(nn.Linear):
    def __deepcopy__(self, memo):
        return self

class Parted(Net):
    def __init__(self):
        super().__init__()
        self.last = Single(400, 3)

class Storage(nn.Linear):
    def __deepcopy__(self, memo):
        made = Storage(400, 3)
        made.weight.data, made.bias.data = self.weight.data, self.bias.data
        return made

class Stored(Net):
    def __init__(self):
        super().__init__()
        self.last = Storage(400, 3)
"""
# What a copy is as good for as what is built.
COPIED = """
class Tied(Net):
    def __init__(self):
        super().__init__()
        self.again = nn.Linear(400, 3)
        self.again.weight = self.last.weight

    def forward(self, x):
        return super().forward(x) + self.again(self.first(x))

class Recurrent(Net):
    def __init__(self):
        super().__init__()
        self.unit = nn.LSTM(4, 4, batch_first=True)

    def forward(self, x):
        return super().forward(self.unit(x[:, None])[0][:, 0])

class Parametrized(Net):
    def __init__(self):
        super().__init__()
        nn.utils.parametrizations.spectral_norm(self.last)

class Methods(Net):
    def __init__(self):
        super().__init__()
        self.relu = torch.relu
        self.call = self.last.forward
        self.sizes = (4, [400, {"out": 3}])

    def forward(self, x):
        return self.call(self.relu(self.norm(self.first(x))))
"""
FURTHER = [
    (text, name) for text in (REMEMBERING, REFERRING, COPIED) for name in re.findall(r"class (\w+)\(Net\)", text)
]


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where all workers of these tests find the artifacts, as those of one run do."""
    return tmp_path_factory.mktemp("models")


class Worker:
    """The workloads that a worker has loaded so far."""

    def __init__(self, folder: Path, name: str = "Net") -> None:
        self.log = folder / "log"
        (folder / "net.py").write_text((NET + REMEMBERING + REFERRING + COPIED).replace("LOG", str(self.log)))
        self._folder, self._name, self._loaded = folder, name, []  # type: ignore[var-annotated]

    def load(self, batch: int, **axes: Any) -> LoadedWorkload:
        workload = Workload(parse_model(f"net.py:{self._name}", (self._folder,)), batch, **axes)
        artifact = artifacts.build(workload, 0, self._folder / "artifacts", False)
        self.log.write_text("")
        self._loaded.append(LoadedWorkload(workload, 0, artifact, None, self._loaded))
        return self._loaded[-1]  # type: ignore[no-any-return]

    @property
    def times_built(self) -> int:
        return len(self.log.read_text().split())


def test_another_batch_gets_a_copy_with_weights_of_its_own(folder: Path) -> None:
    import torch

    worker = Worker(folder)
    one = worker.load(1).module()
    assert worker.times_built == 1
    other = worker.load(2).module()
    assert worker.times_built == 0

    assert not other.training
    assert [torch.equal(*pair) for pair in zip(one.state_dict().values(), other.state_dict().values(), strict=True)]
    addresses = {value.data_ptr() for value in one.state_dict().values()}
    assert not addresses & {value.data_ptr() for value in other.state_dict().values()}


def test_a_precision_is_copied_within_itself_only(folder: Path) -> None:
    worker = Worker(folder)
    worker.load(1).module()
    worker.load(1, precision="bf16").module()
    assert worker.times_built == 1
    made = worker.load(2, precision="bf16").module()
    assert worker.times_built == 0
    assert {str(value.dtype) for value in made.parameters()} == {"torch.bfloat16"}


def fused(module: Any) -> None:
    from torch.nn.utils.fusion import fuse_linear_bn_eval

    module.first = fuse_linear_bn_eval(module.first, module.norm)


def scaled(module: Any) -> None:
    import torch

    with torch.no_grad():
        module.last.weight.mul_(1.5)


def scaled_behind_its_back(module: Any) -> None:
    module.last.weight.data.mul_(1.5)


def replaced(module: Any) -> None:
    module.last.weight.data = module.last.weight.data.clone()


def patched(module: Any) -> None:
    module.forward = lambda x: x


def hooked(module: Any) -> None:
    module.last.register_forward_hook(lambda module, inputs, output: output * 0)


def cast(module: Any) -> None:
    module.double()


def retrained(module: Any) -> None:
    module.norm.train()


CHANGES = (fused, scaled, scaled_behind_its_back, replaced, patched, hooked, cast, retrained)


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: change.__name__)
def test_whoever_changes_a_module_changes_that_of_its_own_batch_only(
    folder: Path, change: Callable[[Any], None]
) -> None:
    import numpy as np
    import torch

    worker = Worker(folder)
    change(worker.load(1).module())
    other = worker.load(2)
    fresh = other.module()
    assert worker.times_built == 1
    assert not any(part.training for part in fresh.modules())
    with torch.inference_mode():
        arguments, _ = other.arguments(other.inputs)
        np.testing.assert_allclose(fresh(*arguments).numpy(), must_give(other)[0], atol=1e-5)


@pytest.mark.parametrize("name", ["Uncopied", "Forgetful"])
def test_what_cannot_be_copied_faithfully_is_built(folder: Path, name: str) -> None:
    worker = Worker(folder, name)
    worker.load(1).module()
    worker.load(2).module()
    assert worker.times_built >= 1


@pytest.mark.parametrize(("text", "name"), FURTHER, ids=[name for _, name in FURTHER])
def test_a_batch_has_nothing_of_another(folder: Path, text: str, name: str) -> None:
    import numpy as np
    import torch

    worker = Worker(folder, name)
    one = worker.load(4)
    module = one.module()
    with torch.inference_mode():
        module(*one.arguments(one.inputs)[0])
    two = worker.load(1)
    made = two.module()
    assert (worker.times_built == 0) == (text is COPIED)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    with torch.inference_mode():
        np.testing.assert_allclose(made(*two.arguments(two.inputs)[0]).numpy(), must_give(two)[0], atol=1e-5)


def test_another_file_of_the_same_name_is_another_model(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    worker, other = Worker(tmp_path / "a"), Worker(tmp_path / "b")
    first = worker.load(1)
    first.module()
    mine = other.load(2)
    assert not mine._is_of_the_same_module(first)

"""What optimizers do to networks: what goes, what stays, what is refused, and what breaks a promise."""

from __future__ import annotations

import math
import shutil
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import folders, keys
from pytest_ngraph.workloads.building import build
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without

pytestmark = pytest.mark.real
NETS = """
import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Conv2d(16, 16, 3, padding=1)
        self.third = nn.Conv2d(16, 16, 3, padding=1)
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        x = self.first(x).relu()
        x = x + self.third(self.second(x).relu())
        return self.head(x.mean((2, 3)))

    def example_inputs(self, batch):
        return torch.randn(batch, 3, 8, 8)


class Grouped(Residual):
    def __init__(self):
        super().__init__()
        self.second = nn.Conv2d(16, 32, 3, padding=1, groups=4)
        self.third = nn.Conv2d(32, 16, 3, padding=1)


class Depthwise(Residual):
    def __init__(self):
        super().__init__()
        self.second = nn.Conv2d(16, 16, 3, padding=1, groups=16)


class Rigid(Residual):
    "Its shape is written in its code, so no channel of the first layers can go."

    def forward(self, x):
        x = self.first(x).relu()
        x = self.second(x).reshape(-1, 16, 8, 8)
        return self.head(self.third(x).mean((2, 3)))


class Sum(Residual):
    "All that it gives is a residual stream: no channel can go but those between."

    def forward(self, x):
        x = self.first(x)
        return x + self.third(self.second(x).relu())


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.head = nn.Linear(16, 4)

    def forward(self, x):
        return self.head(self.layer(x).mean(1))

    def example_inputs(self, batch):
        return torch.randn(batch, 6, 16)


class Single(nn.Module):
    def __init__(self):
        super().__init__()
        self.only = nn.Linear(8, 4)

    def forward(self, x):
        return self.only(x)

    def example_inputs(self, batch):
        return torch.randn(batch, 8)


class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(8, 8, bias=False), nn.Linear(8, 8, bias=False)
        self.two.weight = self.one.weight

    def forward(self, x):
        return self.two(self.one(x).relu())

    def example_inputs(self, batch):
        return torch.randn(batch, 8)


class Bare(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(4))

    def forward(self, x):
        return x * self.scale

    def example_inputs(self, batch):
        return torch.randn(batch, 4)
"""
# Optimizers that keep no promise, each in its own way.
BAD = """
import os
import torch
from torch import nn
from pytest_ngraph.optimizers.contract import Option, Optimizer


class Zeros(Optimizer):
    options = (Option("every", "2", "Which of them", kind="int"),)

    def apply(self, module, ratio, example_inputs, seed, every):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.view(-1)[::every] = 0
        return module


class Raises(Optimizer):
    def apply(self, module, ratio, example_inputs, seed):
        raise KeyError("no such thing")


class Other(Optimizer):
    def apply(self, module, ratio, example_inputs, seed):
        return {"module": module}


class Nothing(Optimizer):
    def apply(self, module, ratio, example_inputs, seed):
        return module


class Jitter(Optimizer):
    "Weights differ, and nothing is gone."

    def apply(self, module, ratio, example_inputs, seed):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.mul_(1.000001)
        return module


class Two(Optimizer):
    def apply(self, module, ratio, example_inputs, seed):
        class Both(nn.Module):
            def __init__(self):
                super().__init__()
                self.inner = module

            def forward(self, x):
                return self.inner(x), x

        return Both()


class Broken(Optimizer):
    def apply(self, module, ratio, example_inputs, seed):
        module.head = nn.Linear(3, 10)
        return module


class Fate(Optimizer):
    "Another network in each process, and each time."

    def apply(self, module, ratio, example_inputs, seed):
        drawn = torch.Generator().manual_seed(int.from_bytes(os.urandom(4), "big"))
        with torch.no_grad():
            for parameter in module.parameters():
                parameter[torch.rand(parameter.shape, generator=drawn) < ratio] = 0
        return module


class Seeded(Optimizer):
    def apply(self, module, ratio, example_inputs, seed):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter[torch.rand_like(parameter) < ratio] = 0
        return module


class Absent(Optimizer):
    requires = ("no_such_package",)
    install = "no-such-package"


class Rounded(Optimizer):
    "As many weights as before, of which few differ."

    def apply(self, module, ratio, example_inputs, seed):
        with torch.no_grad():
            for parameter in module.parameters():
                parameter.copy_((parameter * 8).round() / 8)
        return module


class Searches(Zeros):
    "Says which of them it has found, as a set above a half, which JSON has none of."
    options, searches = (), True

    def apply(self, module, ratio, example_inputs, seed, found):
        found.setdefault("every", 2 if ratio < 0.5 else {2})
        return super().apply(module, ratio, example_inputs, seed, 2)


zeros, raises, other, nothing, jitter, two, broken, fate, seeded, absent, rounded, searches = (
    Zeros(), Raises(), Other(), Nothing(), Jitter(), Two(), Broken(), Fate(), Seeded(), Absent(), Rounded(), Searches()
)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    skip_without("torch")
    (tmp_path / "opt_nets.py").write_text(NETS)
    (tmp_path / "opt_bad.py").write_text(BAD)
    monkeypatch.syspath_prepend(str(tmp_path))
    for name in ("opt_nets", "opt_bad"):
        sys.modules.pop(name, None)
    return tmp_path


def workload(folder: Path, net: str, optimize: str, **more: Any) -> Workload:
    model = parse_model(f"opt_nets.py:{net}", [folder])
    names = {step.partition("=")[0].partition("[")[0] for step in optimize.split("+")}
    places = tuple((name, f"opt_bad:{name}") for name in sorted(names - {"channel_prune", "weight_prune", "dense"}))
    return Workload(model, optimize=optimize, optimizers=places, **more)


def achieved(folder: Path, net: str, optimize: str) -> dict[str, int]:
    found: dict[str, int] = {}
    build(workload(folder, net, optimize), 0, found)
    return found


def test_channels_are_gone_and_what_the_network_gives_is_not(folder: Path) -> None:
    skip_without("torch_pruning")
    built = build(workload(folder, "Residual", "channel_prune[scope=local]=0.5"), 0)
    assert [layer.out_channels for layer in (built.module.first, built.module.second, built.module.third)] == [8, 8, 8]
    assert built.module.head.weight.shape == (10, 8)
    assert not built.module.training
    assert all(each.requires_grad for each in built.module.parameters())


@pytest.mark.parametrize("net", ["Residual", "Grouped", "Depthwise", "Sum", "Encoder"])
def test_a_network_is_smaller_and_still_runs(folder: Path, net: str) -> None:
    skip_without("torch_pruning")
    found = achieved(folder, net, "channel_prune=0.5")
    for name in ("parameters", "macs", "bytes", "packed_bytes"):
        assert found[name] < found[f"dense_{name}"], name
    assert 0 < found["touched_layers"] <= found["layers"]


@pytest.mark.parametrize(("of", "ratio"), [("parameters", 0.25), ("parameters", 0.75), ("macs", 0.5)])
def test_a_share_of_parameters_or_macs_is_reached_as_nearly_as_channels_do(folder: Path, of: str, ratio: float) -> None:
    skip_without("torch_pruning")
    found = achieved(folder, "Residual", f"channel_prune[of={of},scope=local]={ratio}")
    # Sixteen channels: one of them is a tenth of what is left.
    assert 1 - found[of] / found[f"dense_{of}"] == pytest.approx(ratio, abs=0.07)


@pytest.mark.parametrize("of", ["parameters", "macs"])
def test_a_share_that_channels_cannot_come_to_is_unsupported(folder: Path, of: str) -> None:
    """What was left after less than was asked for went by the name of what was asked for."""
    skip_without("torch_pruning")
    with pytest.raises(Unsupported, match=rf"of={of}: a share of 0.9 cannot go: with nearly all .* 0\.4\d* of them"):
        achieved(folder, "Encoder", f"channel_prune[of={of}]=0.9")


@pytest.mark.parametrize("net", ["Residual", "Grouped", "Encoder"])
def test_more_is_gone_the_more_is_asked_for(folder: Path, net: str) -> None:
    """A layer that was to lose all of its channels kept all of them: more ratio, a larger network."""
    skip_without("torch_pruning")
    left = [achieved(folder, net, f"channel_prune={ratio}")["parameters"] for ratio in (0.5, 0.7, 0.8)]
    assert left == sorted(left, reverse=True)
    assert len(set(left)) > 1


def test_a_layer_that_would_be_empty_is_said(folder: Path) -> None:
    skip_without("torch_pruning")
    with pytest.raises(Unsupported, match=r"0.97 takes all channels of 2 of 2 groups of layers; .*scope=global, which"):
        achieved(folder, "Residual", "channel_prune[scope=local]=0.97")
    with pytest.raises(Unsupported, match=r"0.99 takes all channels of 2 of 2 groups of layers; ask for less$"):
        achieved(folder, "Residual", "channel_prune=0.99")


@pytest.mark.parametrize(
    ("net", "said"),
    [
        ("Single", "no channel can go without changing what the network gives, so nothing was removed"),
        ("Rigid", "channel_prune: .*(does not run|cannot prune this network)"),
        ("Bare", "no channel can go|cannot prune"),
    ],
)
def test_a_network_without_a_channel_that_can_go_is_unsupported(folder: Path, net: str, said: str) -> None:
    skip_without("torch_pruning")
    with pytest.raises(Unsupported, match=said):
        achieved(folder, net, "channel_prune=0.5")


@pytest.mark.parametrize("scope", ["global", "local"])
def test_weights_are_zero_and_masks_are_gone(folder: Path, scope: str) -> None:
    built = build(workload(folder, "Encoder", f"weight_prune[scope={scope}]=0.75"), 0)
    weights = [built.module.layer.self_attn.in_proj_weight, built.module.layer.linear1.weight, built.module.head.weight]
    shares = [float((each == 0).float().mean()) for each in weights]
    assert all(share == pytest.approx(0.75, abs=0.02) for share in shares) == (scope == "local")
    assert not any("_orig" in name for name, _ in built.module.named_parameters())
    assert not any("_mask" in name for name, _ in built.module.named_buffers())


def test_sizes_of_zeros_are_counted(folder: Path) -> None:
    found = achieved(folder, "Residual", "weight_prune=0.9")
    zeros, weights = found["zeros"], found["weights"]
    assert zeros == math.floor(0.9 * weights + 0.5)
    rows = 16 + 16 + 16 + 10
    rest = found["bytes"] - 4 * weights
    assert found["sparse_bytes"] == rest + 8 * (weights - zeros) + 4 * (rows + 4)
    assert found["bytes"] == found["dense_bytes"]
    assert found["packed_bytes"] < 0.4 * found["dense_packed_bytes"]


def test_a_weight_that_two_layers_share_stays_shared(folder: Path) -> None:
    module = build(workload(folder, "Tied", "weight_prune=0.5"), 0).module
    assert module.one.weight is module.two.weight
    assert int((module.one.weight == 0).sum()) == 32


def test_what_has_no_weight_is_unsupported(folder: Path) -> None:
    with pytest.raises(Unsupported, match="no convolution, linear layer or attention in it, so nothing was removed"):
        achieved(folder, "Bare", "weight_prune=0.5")


@pytest.mark.parametrize(
    ("optimize", "said"),
    [
        ("raises=0.5", r"optimizer 'raises=0.5': its apply\(\) raised KeyError: 'no such thing'"),
        ("other=0.5", r"its apply\(\) gave dict .expected a torch.nn.Module"),
        ("nothing=0.5", "nothing was removed: 5,.* parameters, 5,.* of them not zero, as before"),
        ("jitter=0.5", "optimizer 'jitter=0.5': nothing was removed"),
        ("two=0.5", r"outputs of float32\[1, 10\] became float32\[1, 10\], float32\[1, 3, 8, 8\] .expected the same"),
        ("broken=0.5", "what it made does not run on the example inputs: RuntimeError"),
        ("absent=0.5", 'optimizer .absent=0.5.: not installed .pip install "no-such-package"'),
        # Each step is held to its promise, not only what all of them came to.
        ("weight_prune=0.5+nothing=0.5", "optimizer 'nothing=0.5': nothing was removed"),
        ("searches=0.6", r"what its apply\(\) put into found is not as JSON has it: .*every"),
        ("zeros[most=1]=0.5", "unknown option 'most' .options of zeros: every"),
    ],
)
def test_a_broken_promise_is_said(folder: Path, optimize: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        achieved(folder, "Residual", optimize)


def test_weights_of_which_few_differ_count_as_less(folder: Path) -> None:
    found = achieved(folder, "Residual", "rounded=0.5")
    assert found["packed_bytes"] < 0.5 * found["dense_packed_bytes"]


def test_one_seed_gives_one_network_and_chance_is_caught(folder: Path) -> None:
    for batch in (1, 2):
        build(workload(folder, "Residual", "seeded=0.5", batch=batch), 0, {})
    build(workload(folder, "Residual", "fate=0.5"), 0, {})
    with pytest.raises(
        SpecError, match=r"fate=0.5: it gives other weights each time.*generator of the seed that apply"
    ):
        build(workload(folder, "Residual", "fate=0.5", batch=2), 0, {})


def test_chance_is_caught_where_no_compiler_builds_the_network(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With ONNX compilers alone a later file was of another network than its reference, and a mismatch their fault."""
    skip_without("onnx", "onnxscript")
    from pytest_ngraph.workloads import artifacts, optimizing

    root = folder / "artifacts"
    first = artifacts.build(workload(folder, "Single", "fate=0.5"), 0, root, False)
    monkeypatch.setattr(optimizing, "_KNOWN", {})  # as in another process
    with pytest.raises(SpecError, match=r"Single': fate=0.5: what is left of it has not the weights .*: delete"):
        artifacts.build(workload(folder, "Single", "fate=0.5"), 0, root, True)
    monkeypatch.setattr(optimizing, "_KNOWN", {})
    same = workload(folder, "Single", "seeded=0.5")
    assert artifacts.build(same, 0, root, False).key != first.key
    assert artifacts.build(same, 0, root, True).onnx is not None


def test_what_was_achieved_is_counted_once_for_all_batches(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from pytest_ngraph.workloads import optimizing

    counted: list[str] = []
    seen = optimizing._Seen

    def count(module: Any, example: Any, who: str) -> Any:
        counted.append(who)
        return seen(module, example, who)

    monkeypatch.setattr(optimizing, "_Seen", count)
    facts: list[dict[str, int]] = [{}, {}]
    for batch, found in zip((4, 8), facts, strict=True):
        build(workload(folder, "Grouped", "weight_prune=0.25", batch=batch), 0, found)
    assert len(counted) == 2, "the dense network and what is left of it"
    assert facts[0] == facts[1] != {}


def test_the_key_is_of_what_was_done_and_by_what(folder: Path) -> None:
    def key(optimize: str, files: dict[str, str] | None = None) -> str:
        return keys.sample_key(workload(folder, "Residual", optimize), 0, files or {})

    dense = key("dense")
    texts = ["weight_prune=0.5", "weight_prune=0.6", "weight_prune[scope=local]=0.5", "channel_prune=0.5"]
    assert len({dense, *map(key, texts)}) == 5
    # An option that is written as what it is anyway is the same network.
    assert key("weight_prune[scope=global]=0.5") == key("weight_prune=0.5")
    # One from outside is known by its files, which are followed once it was built.
    assert not keys.has_files(Workload(parse_model("block:conv"), optimize="weight_prune=0.5"))
    assert keys.has_files(Workload(parse_model("block:conv"), optimize="zeros=0.5", optimizers=(("zeros", "a:b"),)))
    files = build(workload(folder, "Residual", "zeros=0.5"), 0).files
    assert {"opt_bad.py", "opt_nets.py"} <= {Path(name).name for name in files}


@pytest.fixture
def tries(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the ratios that are tried from here on."""
    skip_without("torch_pruning")
    from pytest_ngraph.optimizers import channel_prune

    tried: list[float] = []
    pruned = channel_prune._pruned

    def counted(module: Any, ratio: float, *given: Any) -> Any:
        tried.append(ratio)
        return pruned(module, ratio, *given)

    monkeypatch.setattr(channel_prune, "_pruned", counted)
    return tried


def test_a_ratio_is_searched_once_for_all_batches_and_processes(folder: Path, tries: list[float]) -> None:
    from pytest_ngraph.evaluation.seeded import Seeded
    from pytest_ngraph.workloads import artifacts
    from pytest_ngraph.workloads.loaded import LoadedWorkload

    root, asked = folder / "artifacts", workload(folder, "Residual", "channel_prune[of=macs]=0.3")
    first = artifacts.build(asked, 0, root, False)
    assert len(set(tries)) > 1
    [kept] = root.glob("found-*")
    ratio = folders.read(kept)["found"]["0"]["ratio"]  # type: ignore[index]
    tries.clear()
    other = artifacts.build(replace(asked, batch=2), 0, root, False)
    left = LoadedWorkload(asked, 0, first).module()
    assert tries == [ratio, ratio]
    # Nor is it for the inputs that agreement is measured on.
    Seeded(LoadedWorkload(asked, 0, first)).batch(0)
    assert tries == [ratio] * 3
    assert other.meta["weights"] == first.meta["weights"]
    assert sum(each.numel() for each in left.parameters()) == first.meta["achieved"]["parameters"]
    # Another share, another seed and another code are other networks.
    for different in (workload(folder, "Residual", "channel_prune[of=macs]=0.4"), asked):
        tries.clear()
        artifacts.build(different, int(different is asked), root, False)
        assert len(tries) > 1
    (folder / "opt_nets.py").write_text(f"{NETS}# changed\n")
    tries.clear()
    artifacts.build(replace(asked, batch=3), 0, root, False)
    assert len(tries) > 1


def test_a_ratio_that_was_kept_and_leaves_something_else_is_searched_again(folder: Path, tries: list[float]) -> None:
    from pytest_ngraph.workloads import artifacts

    root, asked = folder / "artifacts", workload(folder, "Residual", "channel_prune[of=parameters]=0.3")
    first = artifacts.build(asked, 0, root, False)
    [kept] = root.glob("found-*")
    right = folders.read(kept)
    for batch, ratio in enumerate((0.9, 1.5, "most"), start=2):
        shutil.rmtree(kept)
        wrong = {"0": {"ratio": ratio, "left": 4711}}
        folders.publish(kept, lambda _, wrong=wrong: {"found": wrong})  # type: ignore[misc]
        tries.clear()
        again = artifacts.build(replace(asked, batch=batch), 0, root, False)
        assert len(tries) > 1
        assert again.meta["weights"] == first.meta["weights"]
        assert folders.read(kept) == right


def test_what_an_optimizer_from_outside_finds_is_kept(folder: Path) -> None:
    from pytest_ngraph.workloads import artifacts

    root = folder / "artifacts"
    artifacts.build(workload(folder, "Single", "weight_prune=0.1+searches=0.3"), 0, root, False)
    [kept] = root.glob("found-*")
    assert folders.read(kept) == {"found": {"1": {"every": 2}}}

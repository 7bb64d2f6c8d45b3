"""Built-in PyTorch models: the same in every process, and every layer of them counts."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import CompileFailed, SpecError, Unsupported
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.loaded import LoadedWorkload
from tests.support.references import must_give

pytestmark = pytest.mark.real

ROOT = Path(__file__).parents[2]
DIGESTS = """
import hashlib, sys, torch
torch.manual_seed(int(sys.argv[1]))  # where a process stands must not matter
torch.set_num_threads(int(sys.argv[1]))
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads.kinds import parse_model
from pytest_ngraph.workloads.building import build
for text in ("timm:resnet10t", "timm:convnext_atto", "block:conv", "block:mha"):
    content = hashlib.sha256()
    for name, tensor in build(Workload(parse_model(text)), 7).module.state_dict().items():
        content.update(name.encode() + tensor.numpy().tobytes())
    print(text, content.hexdigest())
"""


@pytest.fixture(autouse=True)
def _timm() -> Iterator[None]:
    torch = pytest.importorskip("torch")
    if importlib.util.find_spec("timm") is None:  # importing it may need the cure that is tested here
        pytest.skip("timm is not installed")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # as many small layers as here are slower on threads that share their cores
    yield
    torch.set_num_threads(threads)


def built(text: str, seed: int = 0, **axes: int) -> Any:
    from pytest_ngraph.workloads.building import build

    return build(Workload(parse_model(text), 1, **axes), seed)  # type: ignore[arg-type]


def inputs_of(model: Any, seed: int = 0) -> Any:
    from pytest_ngraph.workloads.modules.seeding import seeded

    with seeded(seed):
        return model.example_inputs(2)


def test_every_process_builds_the_same_weights() -> None:
    outputs = [
        subprocess.run(
            [sys.executable, "-c", DIGESTS, threads], cwd=ROOT, check=True, capture_output=True, text=True
        ).stdout
        for threads in ("1", "2")
    ]
    assert outputs[0] == outputs[1]
    assert len(set(outputs[0].split())) == 8


def test_another_seed_gives_other_weights_and_the_callers_generators_stay_as_they_were() -> None:
    import random

    import numpy as np
    import torch

    before = torch.get_rng_state().clone(), np.random.get_state()[1].copy(), random.getstate()  # type: ignore[index]
    one, other = (built("block:mha", seed).module.state_dict() for seed in (0, 1))
    assert not any(torch.equal(one[name], other[name]) for name in one)
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all()  # type: ignore[index]
    assert random.getstate() == before[2]


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("timm:resnet18", 64),
        ("timm:efficientnet_b0", 96),
        ("timm:mobilenetv3_small_050", 64),
        ("timm:convnext_atto", 64),
        ("timm:deit_tiny_patch16_224", 64),
    ],
)
def test_the_output_depends_on_the_input_and_on_every_gain(text: str, size: int) -> None:
    import torch

    model = built(text, image_size=size)
    image, other = inputs_of(model).split(1)
    gains = [tensor for name, tensor in model.module.named_parameters() if tensor.ndim == 1 and "bias" not in name]
    assert len(gains) > 15
    with torch.inference_mode():
        output = model.module(image)
        largest = output.abs().max()
        assert 0.1 < largest < 10
        assert (model.module(other) - output).abs().max() > 0.02 * largest
        for gain in gains[:: len(gains) // 16]:
            kept = gain.clone()
            gain.zero_()
            # Twenty times the tolerance at which outputs of compilers are compared.
            assert float((model.module(image) - output).abs().max()) > 2e-3 * largest
            gain.copy_(kept)


def test_no_parameter_is_left_constant() -> None:
    from pytest_ngraph.workloads.modules.constants import _is_constant

    for text in ("timm:resnet18", "timm:convnext_atto", "timm:swin_s3_tiny_224", "block:conv", "block:mha"):
        module = built(text).module
        for name, tensor in [*module.named_parameters(), *module.named_buffers()]:
            if tensor.is_floating_point() and tensor.numel() > 1:
                assert not _is_constant(tensor) or "attn_mask" in name, (text, name)


@pytest.mark.parametrize(
    ("text", "size"),
    [("timm:resnet10t", 64), ("timm:deit_tiny_patch16_224", 96), ("timm:swin_tiny_patch4_window7_224", 160)],
)
def test_an_image_size_reaches_models_of_any_and_of_one_size(text: str, size: int) -> None:
    import torch

    model = built(text, image_size=size)
    images = inputs_of(model)
    assert images.shape == (2, 3, size, size)
    with torch.inference_mode():
        assert model.module(images).shape == (2, 1000)


def test_a_size_that_a_model_cannot_take_is_unsupported_with_the_reason(tmp_path: Path) -> None:
    workload = Workload(parse_model("timm:vgg11"), 1, image_size=16)
    with pytest.raises(Unsupported, match=r"timm:vgg11 batch1 size16 cannot run: RuntimeError: .*size"):
        artifacts.build(workload, 0, tmp_path, False)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("timm:resnet81", r"timm .* has no model 'resnet81' \(close: .*resnet18"),
        ("timm:zzzzzzz", r"timm .* has no model 'zzzzzzz'$"),
        ("timm:resnet18.nonsense", "no tag 'nonsense' of it"),
        ("timm:hf_hub:timm/resnet18", "has no model 'hf_hub:timm/resnet18'"),
    ],
)
def test_an_unknown_timm_name_is_refused_with_close_ones(text: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        built(text)


def test_blocks_keep_their_shape_at_any_depth_and_width() -> None:
    import torch

    conv, mha = built("block:conv", depth=3, width=16, image_size=20), built("block:mha", depth=4, width=36)
    with torch.inference_mode():
        output = conv.module(inputs_of(conv))
        assert output.shape == (2, 16, 20, 20)
        assert 0.3 < output.std() < 3  # neither lost nor blown up with depth
        assert mha.module(inputs_of(mha)).shape == (2, 10, 36)


def test_a_worker_sees_what_the_builder_made(tmp_path: Path) -> None:
    import numpy as np
    import torch

    workload = Workload(parse_model("timm:resnet10t"), 2, image_size=64)
    artifact = artifacts.build(workload, 3, tmp_path, False)
    loaded = LoadedWorkload(workload, 3, artifact)
    args, kwargs = loaded.arguments(loaded.inputs)
    with torch.inference_mode():
        outputs = loaded.flatten(loaded.module()(*args, **kwargs))
    np.testing.assert_allclose(outputs[0].numpy(), must_give(loaded)[0], atol=1e-5)


def test_without_an_artifact_there_is_nothing_to_read() -> None:
    loaded = LoadedWorkload(Workload(parse_model("block:mha")), 0, None)
    assert loaded.inputs == {}
    with pytest.raises(CompileFailed, match="block:mha batch1: no ONNX file was made of it"):
        _ = loaded.onnx_path

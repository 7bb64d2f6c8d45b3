"""The second paper's suite: what its pruning promises, in a copy of it with a network that is hardly trained."""

from __future__ import annotations

import importlib
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph import Unsupported
from tests.conftest import skip_without

SUITE = Path(__file__).parents[1] / "example_suites" / "dlas"
MODULES = ("digits", "digits_pruning", "digits_kept")


@pytest.fixture(scope="module")
def suite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Any, Any]]:
    """Give ``digits`` and ``digits_pruning`` of a copy, where a training is one epoch."""
    skip_without("torch", "torch_pruning", "sklearn")
    folder = tmp_path_factory.mktemp("dlas") / "dlas"
    shutil.copytree(SUITE, folder, ignore=shutil.ignore_patterns(".ngraph", "__pycache__"))
    before = list(sys.path)
    sys.path.insert(0, str(folder))
    try:
        made: list[Any] = [importlib.import_module(name) for name in MODULES[:2]]
        digits, pruning = made
        digits.EPOCHS = 1
        pruning.WEIGHTS.epochs = 1
        yield digits, pruning
    finally:
        sys.path[:] = before
        for name in MODULES:
            sys.modules.pop(name, None)


def apply(method: Any, net: Any, ratio: float) -> Any:
    return method.apply(net, ratio, net.example_inputs(1), 0)


@pytest.mark.real
def test_weights_are_masked_and_channels_gone(suite: tuple[Any, Any]) -> None:
    digits, pruning = suite
    net = digits.Digits()
    count = sum(parameter.numel() for parameter in net.parameters())
    masked = apply(pruning.WEIGHTS, net, 0.6)
    weights = [layer.weight for layer in masked.features if hasattr(layer, "out_channels")]
    zeros = sum(int((weight == 0).sum()) for weight in weights) / sum(weight.numel() for weight in weights)
    assert zeros == pytest.approx(0.6, abs=0.001)
    assert masked.weights()[0] == list(digits.WIDTHS)
    smaller = apply(pruning.CHANNELS_OUT, net, 0.1)
    assert sum(parameter.numel() for parameter in smaller.parameters()) < count
    assert sum(smaller.weights()[0]) == pytest.approx(0.9 * sum(digits.WIDTHS), abs=3)
    # What came in is as it was, so that a second step begins with the same.
    assert sum(parameter.numel() for parameter in net.parameters()) == count
    assert not any(int((parameter == 0).sum()) for parameter in net.features.parameters())


@pytest.mark.real
def test_a_training_is_kept_and_is_the_same_without_its_file(suite: tuple[Any, Any]) -> None:
    import torch

    digits, pruning = suite
    net = digits.Digits()
    first = apply(pruning.CHANNELS_OUT, net, 0.05).weights()[1]
    files = list((Path(digits.__file__).parent / ".ngraph" / "trained").iterdir())
    assert files
    for file in files:
        file.write_bytes(b"not what was written")
    torch.manual_seed(7)
    again = apply(pruning.CHANNELS_OUT, digits.Digits(), 0.05).weights()[1]
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.real
def test_accuracy_is_of_images_that_nothing_was_trained_or_chosen_by(suite: tuple[Any, Any]) -> None:
    digits, _ = suite
    parts = {name: digits.part(name) for name in ("train", "choose", "test")}
    assert [len(labels) for _, labels in parts.values()] == [997, 400, 400]
    whole, _ = digits.data()
    assert sum(len(images) for images, _ in parts.values()) == len(whole)
    net, asked = digits.Digits(), []

    def predict(images: Any) -> Any:
        asked.append(images)
        return net(images)

    right = digits.Net.evaluate(predict)["top1"]
    assert len(right) == 400
    assert asked[0].equal(parts["test"][0])
    calibrated = next(iter(digits.Net.calibration_inputs()))
    assert calibrated.shape == (1, 1, 8, 8)


@pytest.mark.real
def test_a_network_without_data_is_refused(suite: tuple[Any, Any]) -> None:
    import torch

    _, pruning = suite
    with pytest.raises(Unsupported, match=r"Conv2d cannot be fine-tuned .*digits.py:Digits can"):
        pruning.WEIGHTS.apply(torch.nn.Conv2d(1, 1, 3), 0.5, torch.zeros(1, 1, 8, 8), 0)


@pytest.mark.real
def test_the_elbow_is_before_the_first_drop(suite: tuple[Any, Any]) -> None:
    _, pruning = suite
    curve = [(0.5, 0.99), (0.8, 0.975), (0.9, 0.90), (0.95, 0.99)]
    # What recovers after a drop is no elbow.
    assert pruning.elbow(curve, 0.99) == 0.8
    assert pruning.elbow(curve, 0.99, most=0.001) == 0.5
    assert pruning.elbow([(0.5, 0.5)], 0.99) == 0.0

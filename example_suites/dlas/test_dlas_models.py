"""What are the second paper's networks made of? Parameters and multiply-accumulates of its Tables 2 and 5.

The parameters are those of the forms here, to the last digit that the paper prints, but for DenseNet161: it has 28.7
million, the table 27.7. The MACs are met by a count that takes four operations for each element that a BatchNorm
normalises, and those of pooling layers, for multiply-accumulates (the rule of the package thop 0.1), cut after the
digits that the paper prints, not rounded. What convolutions and linear layers multiply stands beside them: that is what
a speed-up can be expected from. It is up to 7 % less (MobileNetV2).

    pytest example_suites/dlas/test_dlas_models.py              only shapes are computed
"""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_ngraph.report.dlas.published import models
from pytest_ngraph.workloads import facts
from pytest_ngraph.workloads.modules.torchvision_import import import_torchvision

# Model, its name in the paper, parameters, true multiply-accumulates, and those by the rule above.
TABLE_2 = [
    ("cifar.py:MobileNetV2", "MobileNetV2", 2_296_922, 91_154_944, 98_054_656),
    ("cifar.py:ResNet18", "ResNet18", 11_173_962, 555_422_720, 557_880_320),
    ("cifar.py:VGG16", "VGG-16", 14_728_266, 313_201_664, 314_307_584),
    ("cifar.py:MobileNetV1", "MobileNetV1", 3_217_226, 46_354_432, 48_001_024),
]
TABLE_5 = [
    ("torchvision:mobilenet_v2", "MobileNetV2", 3_504_872, 300_774_272, 327_486_720),
    ("torchvision:resnet50", "ResNet50", 25_557_032, 4_089_184_256, 4_133_742_592),
    ("torchvision:densenet161", "DenseNet161", 28_681_000, 7_727_907_072, 7_845_841_056),
    ("torchvision:efficientnet_b0", "EfficientNetB0", 5_288_548, 385_814_752, 415_145_024),
]
# The one parameter count that is not its network's: the paper prints 27.7M.
SLIPS = {"DenseNet161"}


@pytest.mark.parametrize(("model", "name", "parameters", "macs", "counted"), TABLE_2 + TABLE_5)
def test_counts(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, model: str, name: str,
                parameters: int, macs: int, counted: int) -> None:  # fmt: skip
    """Parameters, true multiply-accumulates, and those that the paper prints."""
    monkeypatch.chdir(request.path.parent)
    found = facts(model)
    assert (found.parameters, found.macs, found.macs + besides(model)) == (parameters, macs, counted)
    printed = next(one for table in (2, 5) for one in models(table) if one.name == name and
                   model.startswith("cifar") == (table == 2))  # fmt: skip
    assert as_printed(counted, printed.texts[1]) == printed.texts[1]
    is_met = as_printed(parameters, printed.texts[0], cut=False) == printed.texts[0]
    assert is_met is (name not in SLIPS)


def besides(model: str) -> int:
    """Return what the paper's count has besides multiply-accumulates: 4 per normalised element, and pooling layers."""
    import torch
    from torch import nn

    counted = 0

    def normalised(layer: nn.Module, inputs: Any, output: torch.Tensor) -> None:
        nonlocal counted
        counted += 4 * output.numel()

    def averaged(layer: nn.Module, inputs: tuple[torch.Tensor], output: torch.Tensor) -> None:
        # Of a pooling layer one operation an output, of one to a given size one an input as well.
        nonlocal counted
        counted += output.numel() + (inputs[0].numel() if isinstance(layer, nn.AdaptiveAvgPool2d) else 0)

    module, size = _built(model)
    for layer in module.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.register_forward_hook(normalised)
        elif isinstance(layer, (nn.AdaptiveAvgPool2d, nn.AvgPool2d)):
            layer.register_forward_hook(averaged)
    module.to("meta").eval()(torch.empty(1, 3, size, size, device="meta"))
    return counted


def _built(model: str) -> tuple[Any, int]:
    kind, _, name = model.partition(":")
    if kind == "torchvision":
        import torch

        import_torchvision()
        from torchvision.models import get_model

        with torch.device("meta"):
            return get_model(name, weights=None), 224
    import runpy
    from pathlib import Path

    return runpy.run_path(str(Path(__file__).with_name(kind)))[name](), 32


def as_printed(number: float, like: str, *, cut: bool = True) -> str:
    """Write a number with the unit and the digits of another one, cut or rounded."""
    unit, digits = like[-1], len(like[:-1].partition(".")[2])
    scaled = number / {"M": 1e6, "G": 1e9}[unit] * 10**digits
    return f"{(math.floor(scaled) if cut else round(scaled)) / 10**digits:.{digits}f}{unit}"


@pytest.mark.smoke
@pytest.mark.parametrize("row", TABLE_2[:1], ids=["MobileNetV2"])
def test_smoke(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, row: tuple[Any, ...]) -> None:
    """One network."""
    test_counts(request, monkeypatch, *row)

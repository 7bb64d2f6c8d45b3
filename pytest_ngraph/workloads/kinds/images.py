"""Networks of libraries that take square images: random weights that make every layer count, and random images."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.workloads.kinds.contract import Built
from pytest_ngraph.workloads.modules.constants import randomise_constants, settle_statistics

if TYPE_CHECKING:
    import torch

# Last feature maps are 32 times smaller than the image; their statistics need about this many values.
_STRIDE, _VALUES = 32, 100
# Thousand millions of multiply-accumulates of an image of 224 x 224, as their authors and libraries have them.
_SIDE = 224
_GIGA_MACS: Mapping[str, float] = {
    "alexnet": 0.7, "densenet121": 2.9, "densenet169": 3.4, "densenet201": 4.3, "efficientnet_b0": 0.39,
    "efficientnet_b1": 0.6, "efficientnet_b2": 0.7, "efficientnet_b3": 1.0, "googlenet": 1.5, "inception_v3": 2.9,
    "mobilenet_v2": 0.31, "mobilenetv2_100": 0.31, "mobilenet_v3_large": 0.22, "mobilenetv3_large_100": 0.22,
    "mobilenet_v3_small": 0.06, "mobilenetv3_small_100": 0.06, "resnet18": 1.8, "resnet34": 3.7, "resnet50": 4.1,
    "resnet101": 7.8, "resnet152": 11.5, "resnext50_32x4d": 4.2, "wide_resnet50_2": 11.4, "squeezenet1_0": 0.8,
    "squeezenet1_1": 0.35, "vgg11": 7.6, "vgg13": 11.3, "vgg16": 15.5, "vgg19": 19.6, "vit_b_16": 17.6,
    "vit_tiny_patch16_224": 1.3, "vit_small_patch16_224": 4.6, "vit_base_patch16_224": 17.6,
    "deit_tiny_patch16_224": 1.3, "deit_small_patch16_224": 4.6, "deit_base_patch16_224": 17.6, "convnext_tiny": 4.5,
    "swin_t": 4.5, "swin_tiny_patch4_window7_224": 4.5,
}  # fmt: skip


def rough_macs(name: str, image_size: int | None) -> float | None:
    """Return about how many multiply-accumulates an image is for a network of this name, None for one of others."""
    plain = name.partition(".")[0]
    known = _GIGA_MACS.get(plain, _GIGA_MACS.get(plain.removesuffix("_bn")))
    return None if known is None else known * 1e9 * ((image_size or _SIDE) / _SIDE) ** 2


def images(model: ModelRef, module: torch.nn.Module, shape: tuple[int, int, int]) -> Built:
    """Return a network as its library initialises it with constants varied and statistics that fit its layers.

    ``shape`` is channels, height and width of an image, height and width being equal. Raises Unsupported for a size
    that the network cannot take.
    """
    import torch

    randomise_constants(module)
    size = shape[-1]
    probes = max(2, math.ceil(_VALUES * (_STRIDE / size) ** 2))
    try:
        settle_statistics(module, torch.randn(probes, *shape))
    except (AssertionError, IndexError, RuntimeError, ValueError) as error:
        raise Unsupported(f"{model.text} cannot take images of {size} x {size}: {error}") from error
    return Built(module, lambda batch: torch.randn(batch, *shape))

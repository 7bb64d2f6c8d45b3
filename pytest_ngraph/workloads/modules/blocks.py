"""The repeated blocks of the paper (Table V): convolution and multi-head attention stacks of any depth and width."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.spec import ModelRef
from pytest_ngraph.workloads.modules.building import Built
from pytest_ngraph.workloads.modules.constants import randomise_constants
from pytest_ngraph.workloads.modules.seeding import seeded

if TYPE_CHECKING:
    import torch

SEQUENCE_LENGTH = 10
_MOST_HEADS = 8  # the paper does not say how many; parameters do not depend on it


def build_block(model: ModelRef, seed: int, axes: Mapping[str, int]) -> Built:
    """Build a stack of ``depth`` blocks of ``width`` channels or embedding dimensions.

    ``block:conv`` takes (batch, 3, size, size) through a stem that Table V does not count, and keeps height and
    width; ``block:mha`` takes (batch, 10, width).
    """
    import torch

    with seeded(seed):
        module = create(model, axes)
        randomise_constants(module)
    shape = input_shape(model, axes)
    return Built(module, lambda batch: torch.randn(batch, *shape))


def input_shape(model: ModelRef, axes: Mapping[str, int]) -> tuple[int, ...]:
    """Return the shape of one sample."""
    if model.locator == "conv":
        return 3, axes["image_size"], axes["image_size"]
    return SEQUENCE_LENGTH, axes["width"]


def create(model: ModelRef, axes: Mapping[str, int]) -> Any:
    """Create a stack of blocks as PyTorch initialises them."""
    from torch import nn

    depth, width = axes["depth"], axes["width"]
    if model.locator == "mha":
        block = _attention_block()
        return nn.Sequential(*(block(width) for _ in range(depth)))
    stem = nn.Conv2d(3, width, 3, padding=1)
    stack = nn.Sequential(stem, *(_convolution_block(width) for _ in range(depth)))
    for layer in stack.modules():
        if isinstance(layer, nn.Conv2d):
            # PyTorch's own initialisation loses a third of the signal's power in each block, and the deep end with it.
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return stack


def _convolution_block(channels: int) -> torch.nn.Module:
    from torch import nn

    return nn.Sequential(nn.Conv2d(channels, channels, 3, padding=1), nn.BatchNorm2d(channels), nn.ReLU())


def _attention_block() -> type[torch.nn.Module]:
    """Return the class of attention blocks; it is made here because torch is not imported before it is needed."""
    from torch import nn

    class AttentionBlock(nn.Module):  # type: ignore[misc]
        def __init__(self, width: int) -> None:
            super().__init__()
            self.attention = nn.MultiheadAttention(width, math.gcd(width, _MOST_HEADS), batch_first=True)
            self.norm = nn.LayerNorm(width, elementwise_affine=False)

        def forward(self, tokens: torch.Tensor) -> torch.Tensor:
            attended, _ = self.attention(tokens, tokens, tokens, need_weights=False)
            activated: torch.Tensor = nn.functional.relu(self.norm(tokens + attended))
            return activated

    return AttentionBlock

"""The repeated blocks of the paper (Table V): convolution and multi-head attention stacks of any depth and width."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.workloads.kinds.contract import Built, Kind
from pytest_ngraph.workloads.modules.constants import randomise_constants

if TYPE_CHECKING:
    import torch

SEQUENCE_LENGTH = 10
_BLOCKS: Mapping[str, Mapping[str, int]] = {
    "conv": {"depth": 1, "width": 64, "image_size": 244},
    "mha": {"depth": 1, "width": 128, "sequence": SEQUENCE_LENGTH},
}
_MOST_HEADS = 8  # the paper does not say how many; parameters do not depend on it


class Block(Kind):
    """``block:conv``, ``block:mha``: a stack of ``depth`` blocks of ``width`` channels or embedding dimensions.

    ``block:conv`` takes (batch, 3, size, size) through a stem that Table V does not count, and keeps height and
    width. ``block:mha`` takes (batch, sequence, width), of which the paper has 10.
    """

    form = "block:conv, block:mha"
    made_by = ("torch",)
    has_files = False
    unwritten: Mapping[str, int] = {"sequence": SEQUENCE_LENGTH}

    def parse(self, text: str, name: str, search: Sequence[Path]) -> str:
        """Return the name of a block that is known."""
        if name not in _BLOCKS:
            raise SpecError(f"model {text!r}: unknown block {name!r} (known: block:conv, block:mha)")
        return name

    def axes(self, model: ModelRef) -> Mapping[str, int | None]:
        """Return depth and width, of convolutions the side of the images, and of attention the length."""
        return _BLOCKS[model.locator]

    def rough_macs(self, model: ModelRef, values: Mapping[str, int]) -> float:
        """Return those of its convolutions and stem, or of its projections and attention."""
        depth, width = values["depth"], values["width"]
        if model.locator == "conv":
            return 9.0 * width * (3 + depth * width) * values["image_size"] ** 2
        length = values["sequence"]
        return 2.0 * depth * width * length * (2 * width + length)

    def build(self, model: ModelRef, axes: Mapping[str, int], seed: int) -> Built:
        """Build a stack whose every layer counts."""
        import torch

        module, shape = self.outline(model, axes)
        randomise_constants(module)
        if model.locator == "conv":
            return Built(module, lambda batch: torch.randn(batch, *shape))
        return Built(module, lambda batch, sequence: torch.randn(batch, sequence, axes["width"]))

    def outline(self, model: ModelRef, axes: Mapping[str, int]) -> tuple[torch.nn.Module, tuple[int, ...]]:
        """Return the stack as PyTorch initialises it."""
        if model.locator == "conv":
            return _convolutions(axes["depth"], axes["width"]), (3, axes["image_size"], axes["image_size"])
        length = axes.get("sequence", SEQUENCE_LENGTH)
        return _attentions(axes["depth"], axes["width"]), (length, axes["width"])


KIND = Block()


def _attentions(depth: int, width: int) -> torch.nn.Module:
    from torch import nn

    block = _attention_block()
    return nn.Sequential(*(block(width) for _ in range(depth)))


def _convolutions(depth: int, width: int) -> torch.nn.Module:
    from torch import nn

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
    """Return the class of attention blocks. It is made here because torch is not imported before it is needed."""
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

"""What transformers are fed: token ids with their mask, images, or the spectrogram of half a minute of sound."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

    Inputs = Callable[..., Mapping[str, torch.Tensor]]

# Of the lengths of texts: from this share of the sequence to all of it, each as likely as the other.
SHORTEST = 1 / 8


def text(vocab: int, pad: int, *, padded: bool) -> Inputs:
    """Return what draws ``input_ids`` and ``attention_mask``, both int64 of [batch, sequence].

    Each token is any word but the one that pads. Where they are ``padded`` each sample has a length of its own, padded
    on the right, as tokenizers do it: so no row of a causal mask is empty.
    """

    def draw(batch: int, sequence: int) -> Mapping[str, torch.Tensor]:
        import torch

        ids = torch.randint(0, vocab - 1, (batch, sequence))
        ids = ids + (ids >= pad).to(torch.int64)
        mask = torch.ones(batch, sequence, dtype=torch.int64)
        if padded:
            shortest = max(1, round(sequence * SHORTEST))
            lengths = torch.randint(shortest, sequence + 1, (batch, 1))
            mask = (torch.arange(sequence)[None] < lengths).to(torch.int64)
            ids = torch.where(mask == 1, ids, torch.full_like(ids, pad))
        return {"input_ids": ids, "attention_mask": mask}

    return draw


def images(channels: int, size: int) -> Inputs:
    """Return what draws ``pixel_values`` of [batch, channels, size, size]."""

    def draw(batch: int) -> Mapping[str, torch.Tensor]:
        import torch

        return {"pixel_values": torch.randn(batch, channels, size, size)}

    return draw


def sound(mels: int, frames: int) -> Inputs:
    """Return what draws ``input_features`` of [batch, mels, frames]."""

    def draw(batch: int) -> Mapping[str, torch.Tensor]:
        import torch

        return {"input_features": torch.randn(batch, mels, frames)}

    return draw

"""Models of texts that may be padded, and some that may not."""

from __future__ import annotations

import torch
from torch import nn


class Masked(nn.Module):  # type: ignore[misc]
    """Attention that a mask keeps to the real tokens: each token's vector, and a mean of them."""

    positions = 64

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = nn.Embedding(50, 16), nn.Embedding(self.positions, 16)
        self.parts, self.norm = nn.Linear(16, 48), nn.LayerNorm(16)

    def forward(self, tokens: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = self.words(tokens) + self.places(torch.arange(tokens.shape[1]))
        queries, keys, values = self.parts(hidden).chunk(3, dim=-1)
        real = attention_mask.to(hidden.dtype)
        apart = (1.0 - real).unsqueeze(1) * -1e4
        weights = torch.softmax(queries @ keys.transpose(1, 2) / 4.0 + apart, dim=-1)
        hidden = self.norm(hidden + weights @ values)
        pooled = (hidden * real.unsqueeze(-1)).sum(dim=1) / real.sum(dim=1, keepdim=True)
        return hidden, pooled

    def example_inputs(self, batch: int, sequence: int = 16) -> dict[str, torch.Tensor]:
        mask = torch.ones(batch, sequence, dtype=torch.int64)
        return {"tokens": torch.randint(0, 50, (batch, sequence)), "attention_mask": mask}


class Ignores(Masked):
    """Takes a mask and forgets it in its mean."""

    def forward(self, tokens: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        hidden, _ = super().forward(tokens, attention_mask)
        return hidden, hidden.mean(dim=1)


class Alone(nn.Module):  # type: ignore[misc]
    """Looks at each token by itself, so that it needs no mask."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 8)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        vectors: torch.Tensor = self.words(tokens)
        return vectors

    def example_inputs(self, batch: int, sequence: int = 16) -> torch.Tensor:
        return torch.randint(0, 50, (batch, sequence))


class Maskless(Alone):
    """Looks at all tokens, and has no mask."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens).mean(dim=1)


class Halved(Alone):
    """Gives a vector for each pair of tokens: which of them are real nobody says."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return super().forward(tokens)[:, ::2]

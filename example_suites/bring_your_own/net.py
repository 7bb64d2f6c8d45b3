"""A network of our own: two inputs, one of them integer, and a depth to vary."""

from __future__ import annotations

import torch
from torch import nn


class TwoTower(nn.Module):
    """Embeds ten tokens and a vector of features, joins them, and goes through ``depth`` layers."""

    def __init__(self, depth: int = 1) -> None:
        super().__init__()
        self.tokens = nn.Embedding(1000, 128)
        self.features = nn.Linear(32, 128)
        self.layers = nn.Sequential(*(nn.Sequential(nn.Linear(256, 256), nn.ReLU()) for _ in range(depth)))

    def forward(self, tokens: torch.Tensor, features: torch.Tensor) -> torch.Tensor:
        """Return one vector of 256 numbers a sample."""
        joined = torch.cat([self.tokens(tokens).mean(dim=1), self.features(features)], dim=1)
        return self.layers(joined)

    def example_inputs(self, batch: int) -> dict[str, torch.Tensor]:
        """Return the arguments of ``forward`` by name."""
        return {"tokens": torch.randint(0, 1000, (batch, 10)), "features": torch.randn(batch, 32)}

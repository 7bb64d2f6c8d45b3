"""User modules whose inputs and outputs have every shape that a suite may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn


class TwoInputs(nn.Module):  # type: ignore[misc]
    """Takes two tensors by position, in an order that is not alphabetical."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(8, 4)
        self.right = nn.Linear(6, 4)

    def forward(self, wide: torch.Tensor, narrow: torch.Tensor) -> torch.Tensor:
        return torch.tanh(self.left(wide)) - self.right(narrow)

    def example_inputs(self, batch: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(batch, 8), torch.randn(batch, 6)


class Keywords(nn.Module):  # type: ignore[misc]
    """Takes keyword arguments, given in another order than its signature has, one of them whole numbers."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(50, 8)
        self.scale = nn.Linear(8, 8)

    def forward(self, tokens: torch.Tensor, weights: torch.Tensor | None = None) -> dict[str, torch.Tensor]:
        states = self.scale(self.embedding(tokens))
        if weights is not None:
            states = states * weights.unsqueeze(-1)
        return {"states": states, "pooled": states.mean(dim=1)}

    def example_inputs(self, batch: int) -> dict[str, torch.Tensor]:
        return {"weights": torch.rand(batch, 5), "tokens": torch.randint(0, 50, (batch, 5))}


@dataclass
class Answer:
    """What a module of transformers might return."""

    logits: torch.Tensor
    loss: torch.Tensor | None
    hidden: tuple[torch.Tensor, ...]


class Structured(nn.Module):  # type: ignore[misc]
    """Returns a dataclass with a tuple and a None in it."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Linear(4, 6)
        self.second = nn.Linear(6, 3)

    def forward(self, values: torch.Tensor) -> Answer:
        hidden = torch.relu(self.first(values))
        return Answer(self.second(hidden), None, (values + 1, hidden))

    def example_inputs(self, batch: int) -> torch.Tensor:
        return torch.randn(batch, 4)


class ChangesItsInput(nn.Module):  # type: ignore[misc]
    """Writes into its input, as models with in-place activations at their front do."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values.add_(1.0) * 2.0

    def example_inputs(self, batch: int) -> torch.Tensor:
        return torch.randn(batch, 3)


class ScalesItsInput(nn.Module):  # type: ignore[misc]
    """Normalises its input in place, further with each call on it, and gives that, too."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, values: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        values.sub_(1.0).div_(2.0)
        return self.layer(values), values

    def example_inputs(self, batch: int) -> torch.Tensor:
        return torch.randn(batch, 6)


class OneStep(nn.Module):  # type: ignore[misc]
    """Takes a number alone beside its input, as a model of diffusion takes its step."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, values: torch.Tensor, step: torch.Tensor) -> torch.Tensor:
        return self.layer(values) * torch.cos(step) + step

    def example_inputs(self, batch: int) -> tuple[torch.Tensor, ...]:
        return torch.randn(batch, 6), torch.rand(())


class BranchesOnData(nn.Module):  # type: ignore[misc]
    """Cannot be exported: what it does depends on the values of its input."""

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * 2 if float(values.sum()) > 0 else values - 1

    def example_inputs(self, batch: int) -> torch.Tensor:
        return torch.randn(batch, 3)


def stack(depth: int = 2, *, width: int = 8) -> nn.Module:
    """Build a stack whose axes a suite may set."""
    return nn.Sequential(*(nn.Linear(width, width) for _ in range(depth)), nn.Linear(width, 2))


def _stack_inputs(batch: int) -> torch.Tensor:
    return torch.randn(batch, 8)


stack.example_inputs = _stack_inputs  # type: ignore[attr-defined]


def silent() -> nn.Module:
    """Build a module that does not say what it is fed."""
    return nn.Linear(2, 2)


def broken() -> nn.Module:
    """Fail as user code may."""
    raise KeyError("the weights")


def not_a_module() -> Any:
    """Return something that is no module."""
    return [1, 2]


def unseeded() -> nn.Module:
    """Give other weights in each process, which no seed can cure."""
    import os

    layer = nn.Linear(3, 3)
    with torch.no_grad():
        layer.weight.fill_(int.from_bytes(os.urandom(2), "big") + 1.0)
    return layer


unseeded.example_inputs = lambda batch: torch.randn(batch, 3)  # type: ignore[attr-defined]

ready = TwoInputs()

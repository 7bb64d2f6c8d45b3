"""Small models, each with one trait that compilers have stumbled over. Batch 1 and more, image sides of 16."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

_SIDE = 16


def _images(batch: int) -> Tensor:
    return torch.randn(batch, 3, _SIDE, _SIDE)


def _conv(inputs: int, outputs: int, side: int = 3, groups: int = 1) -> nn.Sequential:
    """Return a convolution, a batch norm and a ReLU. The norm's statistics are not those that fold to nothing."""
    norm = nn.BatchNorm2d(outputs)
    nn.init.uniform_(norm.weight, 0.5, 1.5)
    nn.init.normal_(norm.running_mean, std=0.1)
    nn.init.uniform_(norm.running_var, 0.5, 1.5)
    return nn.Sequential(nn.Conv2d(inputs, outputs, side, padding=side // 2, groups=groups), norm, nn.ReLU())


class ConvNet(nn.Module):  # type: ignore[misc]
    """Convolutions with batch norm, a residual, pooling and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 16)
        self.body = nn.Sequential(_conv(16, 16), _conv(16, 16))
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images to ten logits each."""
        features = functional.max_pool2d(self.stem(images), 2)
        logits: Tensor = self.head((features + self.body(features)).mean((2, 3)))
        return logits

    @staticmethod
    def example_inputs(batch: int) -> Tensor:
        """Return random images."""
        return _images(batch)


class Transformer(nn.Module):  # type: ignore[misc]
    """Attention with biases, layer norm, GELU and residuals over a sequence of 10."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)
        self.norms = nn.ModuleList([nn.LayerNorm(32), nn.LayerNorm(32)])
        self.feed = nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.Linear(64, 32))

    def forward(self, tokens: Tensor) -> Tensor:
        """Map token vectors to token vectors."""
        tokens = self.norms[0](tokens + self.attention(tokens, tokens, tokens, need_weights=False)[0])
        result: Tensor = self.norms[1](tokens + self.feed(tokens))
        return result

    @staticmethod
    def example_inputs(batch: int) -> Tensor:
        """Return random token vectors."""
        return torch.randn(batch, 10, 32)


class Hybrid(nn.Module):  # type: ignore[misc]
    """Depthwise and pointwise convolutions, squeeze and excitation, then attention over the positions."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 16)
        self.depthwise = _conv(16, 16, groups=16)
        self.gate = nn.Sequential(nn.Conv2d(16, 4, 1), nn.SiLU(), nn.Conv2d(4, 16, 1), nn.Sigmoid())
        self.pointwise = _conv(16, 16, side=1)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)

    def forward(self, images: Tensor) -> Tensor:
        """Map images to one vector for each of 64 positions."""
        features = functional.avg_pool2d(self.depthwise(self.stem(images)), 2)
        features = self.pointwise(features * self.gate(features.mean((2, 3), keepdim=True)))
        positions = features.flatten(2).transpose(1, 2)
        result: Tensor = positions + self.attention(positions, positions, positions, need_weights=False)[0]
        return result

    @staticmethod
    def example_inputs(batch: int) -> Tensor:
        """Return random images."""
        return _images(batch)


class ConvAttention(nn.Module):  # type: ignore[misc]
    """Attention over positions whose queries, keys and values come from a convolution. Channel norm, classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 16, 4, stride=2, padding=1)
        self.norm = nn.LayerNorm(16)
        self.mix = nn.Conv2d(16, 48, 3, padding=1)
        self.project = nn.Conv2d(16, 16, 1)
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images to ten logits each."""
        features = self.norm(self.stem(images).permute(0, 2, 3, 1)).permute(0, 3, 1, 2)
        queries, keys, values = self.mix(features).flatten(2).chunk(3, dim=1)
        weights = torch.softmax(queries.transpose(1, 2) @ keys / 4.0, dim=-1)
        attended = (values @ weights.transpose(1, 2)).reshape(features.shape)
        logits: Tensor = self.head(functional.silu(features + self.project(attended)).mean((2, 3)))
        return logits

    @staticmethod
    def example_inputs(batch: int) -> Tensor:
        """Return random images."""
        return _images(batch)


class Depthwise(nn.Module):  # type: ignore[misc]
    """An inverted residual of depthwise convolutions with hard swish, a stride and a classifier."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = _conv(3, 8)
        self.expand = nn.Conv2d(8, 24, 1)
        self.depthwise = nn.Conv2d(24, 24, 5, padding=2, groups=24)
        self.project = nn.Conv2d(24, 8, 1)
        self.down = nn.Conv2d(8, 16, 3, stride=2, padding=1, groups=8)
        self.head = nn.Linear(16, 10)

    def forward(self, images: Tensor) -> Tensor:
        """Map images to ten logits each."""
        features = self.stem(images)
        inner = functional.hardswish(self.depthwise(functional.hardswish(self.expand(features))))
        logits: Tensor = self.head(self.down(features + self.project(inner)).mean((2, 3)))
        return logits

    @staticmethod
    def example_inputs(batch: int) -> Tensor:
        """Return random images."""
        return _images(batch)


class TwoInputs(nn.Module):  # type: ignore[misc]
    """Two inputs of unlike shapes, by position, in an order that matters."""

    def __init__(self) -> None:
        super().__init__()
        self.left = nn.Linear(8, 12)
        self.right = nn.Linear(5, 12)

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        """Subtract one projection from the other."""
        return torch.tanh(self.left(left)) - self.right(right)

    @staticmethod
    def example_inputs(batch: int) -> tuple[Tensor, Tensor]:
        """Return two random matrices."""
        return torch.randn(batch, 8), torch.randn(batch, 5)


class Tokens(nn.Module):  # type: ignore[misc]
    """Integer inputs through an embedding, with learned positions. Float and integer outputs."""

    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(50, 16)
        self.positions = nn.Parameter(torch.randn(12, 16))
        self.head = nn.Linear(16, 7)

    def forward(self, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Map token ids to logits and to the most likely class of each token."""
        logits: Tensor = self.head(functional.gelu(self.words(ids) * self.positions))
        return logits, logits.argmax(-1)

    @staticmethod
    def example_inputs(batch: int) -> Tensor:
        """Return random token ids."""
        return torch.randint(0, 50, (batch, 12))


class NamedInputs(nn.Module):  # type: ignore[misc]
    """Inputs and outputs by name, as in transformers. An integer mask among them, given before its elder."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(16, 16)

    def forward(self, hidden: Tensor, mask: Tensor) -> dict[str, Tensor]:
        """Return each vector projected and their masked mean."""
        states = torch.relu(self.project(hidden))
        weight = mask.unsqueeze(-1).to(states.dtype)
        return {"states": states, "pooled": (states * weight).sum(1) / weight.sum(1)}

    @staticmethod
    def example_inputs(batch: int) -> dict[str, Tensor]:
        """Return random vectors and a mask that keeps the first of each."""
        mask = torch.randint(0, 2, (batch, 6))
        mask[:, 0] = 1
        return {"mask": mask, "hidden": torch.randn(batch, 6, 16)}


class NestedOutputs(nn.Module):  # type: ignore[misc]
    """Outputs of different shapes in nested tuples, one of them all zero."""

    def __init__(self) -> None:
        super().__init__()
        self.body = _conv(3, 8)

    def forward(self, images: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """Return features, their mean, and nothing but zeros."""
        features = self.body(images)
        return features, (features.mean((2, 3)), features.clamp(max=0.0))

    @staticmethod
    def example_inputs(batch: int) -> Tensor:
        """Return random images."""
        return _images(batch)


class Heavy(nn.Module):  # type: ignore[misc]
    """Weights of 16 MB and little else: what is not released shows."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 1024))

    def forward(self, vectors: Tensor) -> Tensor:
        """Map vectors to vectors."""
        result: Tensor = self.layers(vectors)
        return result

    @staticmethod
    def example_inputs(batch: int) -> Tensor:
        """Return random vectors."""
        return torch.randn(batch, 1024)


class GraphBreak(nn.Module):  # type: ignore[misc]
    """Control flow that depends on the data: no static graph holds it."""

    def __init__(self) -> None:
        super().__init__()
        self.project = nn.Linear(4, 4)

    def forward(self, vectors: Tensor) -> Tensor:
        """Project, and take one branch or the other."""
        result: Tensor = self.project(vectors)
        return result if result.sum() > 0 else -2 * result

    @staticmethod
    def example_inputs(batch: int) -> Tensor:
        """Return random vectors."""
        return torch.randn(batch, 4)

"""Networks of other people's kind but known size, for the benchmarks: about 2 ms a call, and about 20 us a call.

Their references are ``benchmarks.networks:NAME``; times are those of eager PyTorch on two cores of 3 GHz.
"""

from __future__ import annotations

from torch import Tensor, nn, randn

SMALL = ("convolutions", "bottleneck", "depthwise", "attention", "perceptron", "patches")
TINY = ("tiny_convolution", "tiny_perceptron", "tiny_gate")


class _Residual(nn.Module):  # type: ignore[misc]
    """x + inner(x)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        return x + self.inner(x)


class _Attention(nn.Module):  # type: ignore[misc]
    """Self-attention of 4 heads, written out, so that every compiler sees the same operators."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.project, self.back, self.width = nn.Linear(width, 3 * width), nn.Linear(width, width), width

    def forward(self, x: Tensor) -> Tensor:
        batch, length, width = x.shape
        query, key, value = self.project(x).reshape(batch, length, 3, 4, width // 4).permute(2, 0, 3, 1, 4)
        weights = (query @ key.transpose(-2, -1) * (width // 4) ** -0.5).softmax(-1)
        return self.back((weights @ value).transpose(1, 2).reshape(batch, length, width))


def _takes(model: nn.Module, *shape: int) -> nn.Module:
    """Let a model say which input it takes, the batch apart."""
    model.example_inputs = lambda batch: randn(batch, *shape)
    return model


def convolutions() -> nn.Module:
    """Four plain 3 x 3 convolutions."""
    layers = [layer for _ in range(4) for layer in (nn.Conv2d(32, 32, 3, padding=1), nn.ReLU())]
    return _takes(nn.Sequential(*layers), 32, 48, 48)


def bottleneck() -> nn.Module:
    """Two of ResNet-50's residual blocks."""

    def block() -> nn.Module:
        reduce = (nn.Conv2d(128, 32, 1), nn.BatchNorm2d(32), nn.ReLU())
        spread = (nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 128, 1))
        return _Residual(nn.Sequential(*reduce, *spread))

    return _takes(nn.Sequential(block(), nn.ReLU(), block()), 128, 28, 28)


def depthwise() -> nn.Module:
    """MobileNet's separable convolutions."""
    layers = [
        layer
        for _ in range(3)
        for layer in (nn.Conv2d(64, 64, 3, padding=1, groups=64), nn.ReLU6(), nn.Conv2d(64, 64, 1), nn.ReLU6())
    ]
    return _takes(nn.Sequential(*layers), 64, 40, 40)


def attention() -> nn.Module:
    """Two layers of self-attention with their normalisation."""
    layer = (nn.LayerNorm(128), _Attention(128))
    other = (nn.LayerNorm(128), _Attention(128))
    return _takes(nn.Sequential(_Residual(nn.Sequential(*layer)), _Residual(nn.Sequential(*other))), 256, 128)


def perceptron() -> nn.Module:
    """Wide layers on many rows: matrix products and little else."""
    return _takes(nn.Sequential(nn.Linear(512, 1024), nn.GELU(), nn.Linear(1024, 512)), 96, 512)


def patches() -> nn.Module:
    """A vision transformer's beginning: patches, then one feed-forward layer."""
    return _takes(nn.Sequential(nn.Conv2d(3, 192, 8, 8), nn.Flatten(2), nn.Linear(784, 768), nn.GELU()), 3, 224, 224)


def tiny_convolution() -> nn.Module:
    """One convolution."""
    return _takes(nn.Conv2d(4, 4, 3), 4, 10, 10)


def tiny_perceptron() -> nn.Module:
    """Two small layers."""
    return _takes(nn.Sequential(nn.Linear(64, 64), nn.ReLU()), 4, 64)


def tiny_gate() -> nn.Module:
    """A linear unit with a gate."""
    return _takes(nn.Sequential(nn.Linear(32, 32), nn.GLU()), 8, 32)

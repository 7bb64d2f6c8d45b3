"""Three networks for a GPU, of about 50 us, 1 ms and 20 ms a call in eager PyTorch on a large one of 2023."""

from __future__ import annotations

from torch import nn, randn


def _takes(model: nn.Module, *shape: int) -> nn.Module:
    """Say which input a model takes, and scale its weights so that it still matters behind dozens of layers."""
    for layer in model:
        if hasattr(layer, "weight"):
            nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    model.example_inputs = lambda batch: randn(batch, *shape)
    return model


def short() -> nn.Module:
    """A few kernels that take no time: what is measured is starting them."""
    return _takes(nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 8)), 64)


def middle() -> nn.Module:
    """Convolutions of which the GPU computes some while the host starts the next."""
    layers = [layer for _ in range(24) for layer in (nn.Conv2d(64, 64, 3, padding=1), nn.ReLU())]
    return _takes(nn.Sequential(*layers), 64, 48, 48)


def long() -> nn.Module:
    """Convolutions that the GPU computes while the host has long been done: 640 GFLOP."""
    layers = [layer for _ in range(32) for layer in (nn.Conv2d(128, 128, 3, padding=1), nn.ReLU(inplace=True))]
    return _takes(nn.Sequential(*layers), 128, 256, 256)

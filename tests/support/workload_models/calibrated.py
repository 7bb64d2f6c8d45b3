"""A small network in many forms, each of which brings other samples to be calibrated on."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn

SIDE = 12


class Net(nn.Module):  # type: ignore[misc]
    """Two convolutions and a layer, on images of a few pixels. It brings no samples."""

    def __init__(self) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1, groups=8)
        self.head = nn.Linear(8 * SIDE * SIDE // 4, 10)
        with torch.no_grad():
            # So that one scale for all channels is another than one for each.
            self.first.weight *= torch.linspace(0.25, 4, 8).reshape(-1, 1, 1, 1)
            self.head.bias.zero_()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.relu(self.first(x))
        x = nn.functional.max_pool2d(nn.functional.relu(self.second(x)), 2)
        return self.head(x.flatten(1))

    def example_inputs(self, batch: int) -> torch.Tensor:
        return torch.randn(batch, 3, SIDE, SIDE)


class Sums(nn.Module):  # type: ignore[misc]
    """Nothing with weights, so nothing to quantise."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.softmax(1) + x

    def example_inputs(self, batch: int) -> torch.Tensor:
        return torch.randn(batch, 4)


def images(count: int, seed: int = 5) -> torch.Tensor:
    return torch.randn(count, 3, SIDE, SIDE, generator=torch.Generator().manual_seed(seed))


def _bringing(offered: Any) -> Callable[[], Net]:
    """Return a factory whose samples are those."""

    def make() -> Net:
        return Net()

    make.calibration_inputs = offered  # type: ignore[attr-defined]
    return make


def _with_outliers() -> list[torch.Tensor]:
    found = images(64)
    found[0, 0, 0, 0] = 60.0  # one of 27,648 numbers
    return [found]


def _endless() -> Iterator[torch.Tensor]:
    return (images(1, seed) for seed in itertools.count())


def _broken() -> Iterator[torch.Tensor]:
    yield images(2)
    raise OSError("the disk is gone")


def _raises() -> None:
    raise RuntimeError("no data here")


def _spoilt() -> list[torch.Tensor]:
    found = images(2)
    found[1, 0, 0, 0] = float("nan")
    return [images(1), found]


plain = Net
sums = Sums
six = _bringing(lambda: [images(6)])
six_one_by_one = _bringing(lambda: list(images(6).split(1)))
outliers = _bringing(_with_outliers)
zeros = _bringing(lambda: [torch.zeros(4, 3, SIDE, SIDE)])
endless = _bringing(_endless)
raises = _bringing(_raises)
broken = _bringing(_broken)
spoilt = _bringing(_spoilt)
empty = _bringing(lambda: [])
nobody = _bringing(lambda: itertools.repeat(images(0)))
labelled = _bringing(lambda: [(images(2), torch.zeros(2))])
flat = _bringing(lambda: [torch.randn(4, 3, SIDE)])
wide = _bringing(lambda: [torch.randn(4, 3, SIDE, SIDE + 1)])
double = _bringing(lambda: [images(2).double()])
tensor = _bringing(lambda: images(2))
words = _bringing(lambda: ["one", "two"])
number = _bringing(lambda: 7)
attribute = _bringing([images(2)])

"""A network that can be right: trained in seconds on scikit-learn's handwritten digits, which come with the package.

1,797 images of 8 x 8 pixels: 997 to train on, 400 to choose a ratio of pruning by (``validate``), 400 that nothing has
seen before a compiled cell is asked about them (``evaluate``). Training is the second paper's in small: SGD with
momentum 0.9, weight decay 5e-4, and one cycle of the learning rate up to 0.05.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

from pytest_ngraph.workloads.modules.one_thread import one_thread

# Workers import this file by its path.
sys.path.insert(0, str(Path(__file__).parent))
from digits_kept import Weights, kept

WIDTHS = (16, 32, 64, 64)
EPOCHS, BATCH, RATE, FINE_RATE = 12, 50, 5e-2, 1e-2
_TRAINED, _CHOSEN_BY = 997, 400
_SEED = 0


@functools.cache
def data() -> tuple[torch.Tensor, torch.Tensor]:
    """Return all images, in an order that is drawn once, and what they show."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    order = torch.randperm(len(digits.target), generator=torch.Generator().manual_seed(_SEED))
    images = torch.tensor(digits.images, dtype=torch.float32).div(8.0).sub(1.0).unsqueeze(1)
    return images[order], torch.tensor(digits.target)[order]


def part(name: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the images to ``train``, ``choose`` or ``test`` by, with what they show."""
    images, labels = data()
    start, end = {
        "train": (0, _TRAINED),
        "choose": (_TRAINED, _TRAINED + _CHOSEN_BY),
        "test": (_TRAINED + _CHOSEN_BY, len(labels)),
    }[name]
    return images[start:end], labels[start:end]


class Net(nn.Module):
    """Four convolutions with BatchNorm, a halving of the image between them, and a classifier of ten digits."""

    def __init__(self, widths: Sequence[int] = WIDTHS) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        inputs = 1
        for place, outputs in enumerate(widths):
            layers += [nn.Conv2d(inputs, outputs, 3, padding=1, bias=False), nn.BatchNorm2d(outputs), nn.ReLU()]
            if place == 1:
                layers.append(nn.MaxPool2d(2))
            inputs = outputs
        self.features = nn.Sequential(*layers)
        self.classifier = nn.Linear(inputs, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Return ten logits an image."""
        return self.classifier(self.features(images).mean(dim=(2, 3)))

    @staticmethod
    def example_inputs(batch: int) -> torch.Tensor:
        """Return images that the network was trained on, drawn at random."""
        images, _ = part("train")
        return images[torch.randint(len(images), (batch,))]

    @staticmethod
    def calibration_inputs() -> Iterator[torch.Tensor]:
        """Yield images to calibrate int8 on, which no accuracy is measured on."""
        images, _ = part("train")
        yield from images[:256].split(1)

    @staticmethod
    def evaluate(predict: Callable[[torch.Tensor], torch.Tensor]) -> dict[str, Any]:
        """Say of each image of the test part whether it was read rightly."""
        images, labels = part("test")
        return {"top1": predict(images).argmax(1) == labels}

    def weights(self) -> Weights:
        """Return the channels of the convolutions, and all weights: what ``Net.of`` makes the same network of."""
        widths = [layer.out_channels for layer in self.features if isinstance(layer, nn.Conv2d)]
        return widths, {name: value.detach().clone() for name, value in self.state_dict().items()}

    @classmethod
    def of(cls, weights: Weights) -> Net:
        """Return a network with these weights."""
        net = cls(weights[0])
        net.load_state_dict({name: value.clone() for name, value in weights[1].items()})
        net.eval()
        return net

    def validate(self) -> float:
        """Return the share of images to choose by that are read rightly, without a compiler."""
        images, labels = part("choose")
        with torch.no_grad(), one_thread():
            return float((self.eval()(images).argmax(1) == labels).float().mean())

    def fine_tune(self, epochs: int, seed: int, rate: float = FINE_RATE) -> None:
        """Train in place, the same in every process. What pruning has masked stays masked."""
        images, labels = part("train")
        draws = torch.Generator().manual_seed(seed)
        # The last images of an epoch that make no whole batch are left out, others each time.
        steps = len(labels) // BATCH
        optimizer = torch.optim.SGD(self.parameters(), lr=rate, momentum=0.9, weight_decay=5e-4)
        cycle = torch.optim.lr_scheduler.OneCycleLR(optimizer, rate, total_steps=epochs * steps)
        # Models are built where no gradients are kept.
        with one_thread(), torch.inference_mode(False), torch.enable_grad():
            self.train()
            for _ in range(epochs):
                for chosen in torch.randperm(len(labels), generator=draws)[: steps * BATCH].split(BATCH):
                    optimizer.zero_grad()
                    F.cross_entropy(self(images[chosen]), labels[chosen]).backward()
                    optimizer.step()
                    cycle.step()
        self.eval()


def _trained() -> Weights:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(_SEED)
        net = Net()
        net.fine_tune(EPOCHS, _SEED, RATE)
    return net.weights()


def Digits() -> Net:  # noqa: N802
    """Return the trained network. Its weights are its own: no seed of a suite changes them."""
    return Net.of(kept({"network": "dense"}, _trained))

"""Pruning as the second paper does it, as optimizers from outside: step by step, with fine-tuning after each of them.

``iterative_weight_prune=0.95`` masks weights of the convolutions at 50, 60, 70, 80, 90, 95 and 99 %,
``iterative_channel_prune=0.5`` takes channels out at 5, 10, 15 % and so on, each up to the ratio that is asked for. The
smallest by L1 of the whole network go first. Every step is followed by some epochs of training, about as many for
either method in all. A network without ``fine_tune`` and ``weights`` is refused: nobody knows its data.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from digits_kept import digest_of, kept

from pytest_ngraph import Unsupported
from pytest_ngraph.optimizers.channel_prune import OPTIMIZER as CHANNELS
from pytest_ngraph.optimizers.contract import Optimizer

if TYPE_CHECKING:
    import torch

# The paper's (section 4.2).
WEIGHT_STEPS = (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99)
CHANNEL_STEPS = (*(place / 20 for place in range(1, 20)), 0.99)
# 20 steps of channels get one epoch each, 7 of weights three: nearly as many in all, as in the paper.
WEIGHT_EPOCHS, CHANNEL_EPOCHS = 3, 1
_NEEDS = ("fine_tune", "weights", "of")


class Iterative(Optimizer):
    """Steps of pruning, each followed by fine-tuning."""

    steps: tuple[float, ...]
    epochs: int
    name: str

    def apply(
        self, module: torch.nn.Module, ratio: float, example_inputs: Any, seed: int, **options: Any
    ) -> torch.nn.Module:
        """Return the network at this ratio. Raise Unsupported for one that cannot be trained here."""
        if not all(hasattr(module, name) for name in _NEEDS):
            raise Unsupported(
                f"{self.name}: {type(module).__name__} cannot be fine-tuned (it has no {', '.join(_NEEDS)}); "
                "digits.py:Digits can"
            )
        own: Any = module

        def last() -> Any:
            return list(self.curve(own, example_inputs, ratio))[-1][1].weights()

        # What comes in may have been pruned by another method before.
        return type(own).of(kept({"method": self.name, "ratio": ratio, "of": digest_of(own.weights())}, last))

    def curve(self, module: Any, example_inputs: Any, until: float = 0.99) -> Iterator[tuple[float, Any]]:
        """Yield each ratio up to the last, with the network pruned so far and trained again."""
        steps = [step for step in self.steps if step < until]
        pruned, before = copy.deepcopy(module), 0.0
        for place, ratio in enumerate([*steps, until]):
            pruned = self.pruned(pruned, ratio, before, example_inputs)
            pruned.fine_tune(self.epochs, place)
            yield ratio, self.finished(pruned)
            before = ratio

    def pruned(self, module: Any, ratio: float, before: float, example_inputs: Any) -> Any:
        """Take away so much that ``ratio`` of the dense network is gone, of which ``before`` already is."""
        raise NotImplementedError

    def finished(self, module: Any) -> Any:
        """Return a copy without what fine-tuning needed."""
        return type(module).of(module.weights())


class Weights(Iterative):
    """Weights of the convolutions, masked. Nothing gets smaller, and what exploits zeros could skip them."""

    requires = ("torch", "sklearn")
    install = "scikit-learn"
    made_by = ("torch", "scikit-learn")
    steps, epochs, name = WEIGHT_STEPS, WEIGHT_EPOCHS, "iterative_weight_prune"

    def pruned(self, module: Any, ratio: float, before: float, example_inputs: Any) -> Any:
        """Mask the smallest of the weights that are left."""
        from torch.nn.utils import prune

        layers = _convolutions(module)
        count = sum(layer.weight.numel() for layer in layers)
        more = round(ratio * count) - round(before * count)
        prune.global_unstructured([(layer, "weight") for layer in layers], prune.L1Unstructured, amount=more)
        return module

    def finished(self, module: Any) -> Any:
        """Return a copy with its masks applied."""
        widths, state = module.weights()
        plain = {name: value for name, value in state.items() if not name.endswith(("_orig", "_mask"))}
        for name, mask in state.items():
            if name.endswith("_mask"):
                weight = name.removesuffix("_mask")
                plain[weight] = mask * state[f"{weight}_orig"]
        return type(module).of((widths, plain))


class Channels(Iterative):
    """Channels of the convolutions, gone."""

    requires = ("torch", "torch_pruning", "sklearn")
    install = "torch-pruning scikit-learn"
    made_by = ("torch", "torch-pruning", "scikit-learn")
    steps, epochs, name = CHANNEL_STEPS, CHANNEL_EPOCHS, "iterative_channel_prune"

    def pruned(self, module: Any, ratio: float, before: float, example_inputs: Any) -> Any:
        """Take out the smallest of the channels that are left."""
        more = 1 - (1 - ratio) / (1 - before)
        given = {option.name: option.default for option in CHANNELS.options}
        try:
            return CHANNELS.apply(module, more, example_inputs, 0, **given)
        except Unsupported:
            # Where less than a channel is left to go the network stays as it is for a step.
            return module


def _convolutions(module: Any) -> list[Any]:
    from torch import nn

    return [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]


WEIGHTS, CHANNELS_OUT = Weights(), Channels()


def elbow(curve: list[tuple[float, float]], dense: float, most: float = 0.02) -> float:
    """Return the highest ratio before the accuracy is more than ``most`` below the dense one's, 0 where none is.

    What comes after the first such drop does not count, though it may recover.
    """
    best = 0.0
    for ratio, accuracy in curve:
        if accuracy < dense - most:
            break
        best = ratio
    return best

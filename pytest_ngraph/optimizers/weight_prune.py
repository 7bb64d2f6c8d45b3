"""Weights of small magnitude become zero, by torch's own pruning. No weight leaves its place."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.optimizers.contract import Optimizer, Option
from pytest_ngraph.optimizers.layers import weights_of

if TYPE_CHECKING:
    import torch


class WeightPrune(Optimizer):
    """``weight_prune[scope=global|local]=0.8``: the 80 % of the weights that are smallest by magnitude become zero.

    Of the weights of convolutions, linear layers and attention, together (``global``) or layer by layer (``local``).
    The masks are made permanent: what is left is a module of the same shapes, with zeros.
    """

    made_by = ("torch",)
    options = (
        Option("scope", "global", "Smallest of the whole network, or of each layer", choices=("global", "local")),
    )

    def apply(
        self, module: torch.nn.Module, ratio: float, example_inputs: Any, seed: int, **options: Any
    ) -> torch.nn.Module:
        """Zero weights. Raise Unsupported for a network that has none to zero."""
        from torch.nn.utils import prune

        weights = [*weights_of(module).values()]
        if not weights:
            raise Unsupported(
                "weight_prune: there is no convolution, linear layer or attention in it, so nothing was removed"
            )
        if options["scope"] == "global":
            prune.global_unstructured(weights, pruning_method=prune.L1Unstructured, amount=ratio)
        for layer, name in weights:
            if options["scope"] == "local":
                prune.l1_unstructured(layer, name, amount=ratio)
            prune.remove(layer, name)
        return module


OPTIMIZER = WeightPrune()

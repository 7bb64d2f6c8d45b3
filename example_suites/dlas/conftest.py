"""Offer pruning with fine-tuning beside the optimizers that are built in."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_ngraph.optimizers.catalogue import Optimizers


def pytest_ngraph_optimizers(catalogue: Optimizers) -> None:
    """Make both known; whoever builds a model imports the strings."""
    catalogue.add("iterative_weight_prune", "digits_pruning:WEIGHTS")
    catalogue.add("iterative_channel_prune", "digits_pruning:CHANNELS_OUT")

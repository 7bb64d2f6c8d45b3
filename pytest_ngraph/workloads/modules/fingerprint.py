"""Tell whether a module built again has the weights that its reference outputs were made with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch


def fingerprint(module: torch.nn.Module) -> list[list[float]]:
    """Return sum and Euclidean norm of each parameter and buffer, in order.

    Sums rather than a hash: random draws may differ in the last bit between processors, and that is no other model.
    """
    held = [*module.parameters(), *module.buffers()]
    numbers = [tensor.detach().double() for tensor in held if not tensor.is_complex()]
    return [[float(tensor.sum()), float(tensor.norm())] for tensor in numbers]


def is_same(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> bool:
    """Return whether two fingerprints are of the same weights."""
    return len(one) == len(other) and all(
        abs(total - other_total) <= 1e-4 * norm + 1e-12 and abs(norm - other_norm) <= 1e-4 * norm + 1e-12
        for (total, norm), (other_total, other_norm) in zip(one, other, strict=True)
    )

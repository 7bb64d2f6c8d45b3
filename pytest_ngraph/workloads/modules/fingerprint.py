"""Tell whether a module built again has the weights that its reference outputs were made with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_CHUNK = 1 << 15


def fingerprint(module: torch.nn.Module) -> list[list[float]]:
    """Return sum and Euclidean norm of each parameter and buffer, in order.

    Sums rather than a hash: random draws may differ in the last bit between processors, and that is no other model.
    """
    held = (tensor.detach() for tensor in (*module.parameters(), *module.buffers()) if not tensor.is_complex())
    return [_sums(tensor) for tensor in held]


def _sums(tensor: torch.Tensor) -> list[float]:
    """Return sum and norm in f64, chunk by chunk: a copy of a whole weight in f64 would leave every cache."""
    total, squares = 0.0, 0.0
    for part in tensor.flatten().split(_CHUNK):
        numbers = part.double()
        total += float(numbers.sum())
        squares += float(numbers.dot(numbers))
    return [total, math.sqrt(squares)]


def is_same(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> bool:
    """Return whether two fingerprints are of the same weights."""
    return len(one) == len(other) and all(
        abs(total - other_total) <= 1e-4 * norm + 1e-12 and abs(norm - other_norm) <= 1e-4 * norm + 1e-12
        for (total, norm), (other_total, other_norm) in zip(one, other, strict=True)
    )

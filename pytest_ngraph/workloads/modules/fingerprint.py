"""Tell whether a module built again has the weights that its reference outputs were made with."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_ngraph.workloads.modules.one_thread import one_thread

if TYPE_CHECKING:
    import torch

_ROW = 1 << 12
# Numbers that are kept of a complex tensor, and of no other.
_COMPLEX = 6
# Squares of numbers below it may be nothing in f32.
_SMALL = 1e-16


def fingerprint(module: torch.nn.Module) -> list[list[float]]:
    """Return sum and Euclidean norm of each parameter and buffer, in order.

    They are of the finite numbers. Where there are others, as in a mask of ``-inf``, it follows how many are ``inf``,
    ``-inf`` and finite. Of what is sparse the numbers that it stores count. Of complex numbers both parts do, and what
    follows is always there, with how many parts there are. Sums rather than a hash: random draws may differ in the last
    bit between processors, and that is no other model.

    One thread adds up: workers load side by side, and several threads each, which wait for one another at every weight,
    take four times the CPU time and more.
    """
    held = (tensor.detach() for tensor in (*module.parameters(), *module.buffers()))
    with one_thread():
        return [_sums(_numbers(tensor)) for tensor in held]


def _numbers(tensor: torch.Tensor) -> torch.Tensor:
    import torch

    if tensor.is_quantized:
        return tensor.dequantize()
    if tensor.layout is torch.strided:
        return tensor
    return (tensor.coalesce() if tensor.layout is torch.sparse_coo else tensor).values()


def _sums(tensor: torch.Tensor) -> list[float]:
    """Return sum and norm without a copy of a whole weight in f64, which would leave every cache.

    Squares are added up in f32 by rows, which loses nothing that is looked for: where f32 cannot hold them there is a
    copy after all. The sum is added up in f64, since rows of one number over and over are all off to the same side.
    """
    import torch

    if tensor.is_complex():
        return _sums_of_complex(torch.view_as_real(tensor.resolve_conj()))
    flat, norm = tensor.flatten(), torch.linalg.vector_norm
    if tensor.dtype == torch.float32:
        whole = flat.numel() - flat.numel() % _ROW
        parts = flat[:whole].view(-1, _ROW), flat[whole:].view(1, -1)
        length = math.hypot(*(float(norm(norm(rows, dim=1).double())) for rows in parts))
        if _SMALL < length < math.inf:
            return [float(flat.sum(dtype=torch.float64)), length]
    numbers = flat.double()
    finite = numbers[numbers.isfinite()]
    sums = [float(finite.sum()), float(norm(finite))]
    if len(finite) == len(numbers):
        return sums
    return [*sums, float((numbers == math.inf).sum()), float((numbers == -math.inf).sum()), float(len(finite))]


def _sums_of_complex(parts: torch.Tensor) -> list[float]:
    """Return the same of complex numbers, whose parts are given."""
    total, norm, *odd = _sums(parts)
    return [total, norm, *(odd or (0.0, 0.0, float(parts.numel()))), float(parts.numel())]


def is_same(one: Sequence[Sequence[float]], other: Sequence[Sequence[float]]) -> bool:
    """Return whether two fingerprints are of the same weights."""
    if len(one) != len(other):
        # Those that were kept up to 0.3.0 know nothing of complex weights.
        one, other = ([sums for sums in each if len(sums) != _COMPLEX] for each in (one, other))
    return len(one) == len(other) and all(_is_same_tensor(*pair) for pair in zip(one, other, strict=True))


def _is_same_tensor(one: Sequence[float], other: Sequence[float]) -> bool:
    (total, norm, *odd), (other_total, other_norm, *other_odd) = one, other
    if not math.isfinite(norm + other_norm):
        return True  # 0.2.0 kept sums with infinities in them, which say nothing
    off = 1e-4 * norm + 1e-12
    return odd == other_odd and abs(total - other_total) <= off and abs(norm - other_norm) <= off

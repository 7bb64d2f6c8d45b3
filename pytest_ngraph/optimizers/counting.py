"""What a network is, counted: its parameters, its multiply-accumulates, the shapes of what it gives."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import torch


def called(module: torch.nn.Module, example: Any) -> Any:
    """Call a module with copies of its example inputs: a tensor, a tuple of them or a dict of keyword arguments."""
    if isinstance(example, Mapping):
        return module(**{str(name): value.clone() for name, value in example.items()})
    values = example if isinstance(example, (tuple, list)) else (example,)
    return module(*(value.clone() for value in values))


def tensors(outputs: Any) -> list[torch.Tensor]:
    """Return the tensors in outputs, in order, whatever holds them."""
    import torch

    if isinstance(outputs, torch.Tensor):
        return [outputs]
    if isinstance(outputs, Mapping):
        outputs = outputs.values()
    elif dataclasses.is_dataclass(outputs) and not isinstance(outputs, type):
        outputs = [getattr(outputs, field.name) for field in dataclasses.fields(outputs)]
    elif not isinstance(outputs, (tuple, list)):
        return []
    return [tensor for part in outputs for tensor in tensors(part)]


def shapes(module: torch.nn.Module, example: Any) -> list[str]:
    """Return type and shape of each output, such as ``float32[1, 1000]``."""
    import torch

    with torch.no_grad():
        outputs = tensors(called(module, example))
    return [f"{str(each.dtype).removeprefix('torch.')}{list(each.shape)}" for each in outputs]


def numbers(module: torch.nn.Module) -> int:
    """Return how many parameters a module has."""
    return sum(parameter.numel() for parameter in module.parameters())


def macs(module: torch.nn.Module, example: Any) -> int:
    """Return the multiply-accumulates of a call, as PyTorch counts them."""
    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    counter = FlopCounterMode(display=False)
    # The counter sees matrix products only where attention is not one fused operator; with gradients on, PyTorch
    # takes no fused path of its own.
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        called(module, example)
    return int(counter.get_total_flops() // 2)

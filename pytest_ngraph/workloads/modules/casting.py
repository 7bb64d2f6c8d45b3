"""What a precision changes of a model, and a PyTorch module in another floating type, with f32 on its outside.

Inputs, outputs and the reference are f32 whatever the precision. It is in the graph, which casts at its edges: f16 and
bf16 are the model in that type, int8 is the f32 ONNX file with Q/DQ nodes. tf32 changes no graph: it is a policy of the
runtime.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pytest_ngraph.spec.precisions import QUANTISED, base_of
from pytest_ngraph.workloads.modules import calls

if TYPE_CHECKING:
    import torch

# What PyTorch calls the type that a model is cast to.
CAST: Mapping[str, str] = {"f16": "float16", "bf16": "bfloat16"}


def changes_graph(precision: str) -> bool:
    """Return whether a precision makes another graph of a model."""
    return precision in CAST or base_of(precision) == QUANTISED


def cast(module: torch.nn.Module, precision: str) -> torch.nn.Module:
    """Return a copy of the module in f16 or bf16 that casts floating inputs to it and floating outputs back to f32.

    Inputs of other types are left as they are. Outputs come as a flat tuple, in the order of ``calls.flatten``.
    """
    import torch

    dtype = getattr(torch, CAST[precision])

    class Cast(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            # A copy: factories may remember what they made, and another cell of this process may run it in f32.
            self.module = _cast(copy.deepcopy(module), dtype)

        def forward(self, *args: torch.Tensor, **kwargs: torch.Tensor) -> tuple[torch.Tensor, ...]:
            inner = [_to(value, dtype) for value in args]
            named = {name: _to(value, dtype) for name, value in kwargs.items()}
            return tuple(_to(tensor, torch.float32) for tensor in calls.flatten(self.module(*inner, **named)))

    # torch.jit.trace finds the names of keyword arguments in it.
    Cast.forward.__signature__ = _with_self(inspect.signature(module.forward))  # type: ignore[attr-defined]
    return Cast().eval()


def _cast(module: torch.nn.Module, dtype: torch.dtype) -> torch.nn.Module:
    """Cast the floating weights and buffers of a module in place. Complex numbers stay as they are."""
    if not any(tensor.is_complex() for tensor in (*module.parameters(), *module.buffers())):
        return module.to(dtype)
    # Module.to() casts complex numbers, too, and drops their imaginary parts.
    return module._apply(lambda tensor: _to(tensor, dtype))


def _to(tensor: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _with_self(signature: inspect.Signature) -> inspect.Signature:
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)
    return inspect.Signature([own, *signature.parameters.values()])

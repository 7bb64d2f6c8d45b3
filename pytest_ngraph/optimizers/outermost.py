"""The outermost layers of a network: those whose channels are channels of what it gives."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ngraph.optimizers.counting import called, tensors
from pytest_ngraph.optimizers.layers import weights_of

if TYPE_CHECKING:
    import torch

# Autograd's names of what a convolution or a linear layer computes by: what is before it has channels of its own.
_PRODUCTS = ("AddmmBackward", "MmBackward", "ConvolutionBackward", "LinearBackward", "MkldnnConvolutionBackward")


def outermost(module: torch.nn.Module, example: Any) -> list[torch.nn.Module]:
    """Return the layers from which outputs follow without another layer in between, found by autograd.

    A sum, as of a residual network without a last layer, has several.
    """
    import torch

    asked = {name: parameter.requires_grad for name, parameter in module.named_parameters()}
    module.requires_grad_(True)
    with torch.enable_grad():
        outputs = tensors(called(module, example))
    of = {id(layer._parameters[name]): layer for layer, name in weights_of(module).values()}
    found: dict[int, torch.nn.Module] = {}
    waiting, seen = [each.grad_fn for each in outputs if each.grad_fn is not None], set()
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        following = [after for after, _ in node.next_functions if after is not None]
        if node.name().rstrip("0123456789").startswith(_PRODUCTS):
            layers = [of[id(weight)] for weight in _weights(following) if id(weight) in of]
            found |= {id(layer): layer for layer in layers}
            if layers:
                continue
        waiting += following
    for name, parameter in module.named_parameters():
        parameter.requires_grad_(asked[name])
    return [*found.values()]


def _weights(nodes: list[Any]) -> list[Any]:
    """Return the parameters that a product takes, as they are or transposed."""
    found = []
    for node in nodes:
        for each in (node, *(after for after, _ in node.next_functions if after is not None)):
            if hasattr(each, "variable") and (each is node or node.name().startswith("TBackward")):
                found.append(each.variable)
    return found

"""The weights of a network that can be taken away: those of convolutions, linear layers and attention."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import torch

_OF_ATTENTION = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


def is_layer(module: torch.nn.Module) -> bool:
    """Return whether a module is a convolution or a linear layer."""
    from torch import nn
    from torch.nn.modules.conv import _ConvNd

    return isinstance(module, (_ConvNd, nn.Linear))


def weights_of(module: torch.nn.Module) -> dict[str, tuple[torch.nn.Module, str]]:
    """Return each weight of a network by its name: the module that has it and what it is called there.

    One that several layers share is there once.
    """
    from torch import nn

    found: dict[str, tuple[torch.nn.Module, str]] = {}
    seen: set[int] = set()
    for name, each in module.named_modules():
        own = ("weight",) if is_layer(each) else _OF_ATTENTION if isinstance(each, nn.MultiheadAttention) else ()
        for weight in own:
            parameter = each._parameters.get(weight)
            if parameter is not None and id(parameter) not in seen:
                seen.add(id(parameter))
                found[f"{name}.{weight}" if name else weight] = (each, weight)
    return found

"""Values for what is constant at construction and would hide whole branches of a model: parameters, statistics.

A model without trained weights has BatchNorm gains of one, last gains of residual blocks of zero and layer scales of
1e-6. Then its output hardly depends on most of its layers, and comparing outputs passes vacuously. With running
statistics that do not fit the layer before them, signals fade or explode: the output of an EfficientNet then hardly
depends on its input.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ngraph.workloads.modules.one_thread import one_thread

if TYPE_CHECKING:
    import torch

_GAINS = ("weight", "gamma", "gamma_1", "gamma_2", "gamma1", "gamma2", "gamma3", "scale", "layer_scale")

# Random deep nets stand on the edge of chaos. With variances as they are met, rounding errors of 1e-7 grow to 4e-5 in
# a resnet152; with twice those, an efficientnet_b5 forgets its input. With this, 8e-6 and a dependence of 3 percent.
_WIDER = 1.1


def randomise_constants(module: torch.nn.Module) -> None:
    """Replace constant parameters and running statistics in place, drawn from torch's global generator.

    Gains near one vary around one and gains that started near zero get 0.2 to 0.5, so that residual branches count
    and deep stacks stay bounded. Offsets get a small spread around what they were.
    """
    import torch

    with torch.no_grad():
        for name, parameter in module.named_parameters():
            if parameter.is_floating_point() and parameter.numel() and _is_constant(parameter):
                _vary(name.rpartition(".")[2], parameter)
        for name, buffer in module.named_buffers():
            kind = name.rpartition(".")[2]
            if kind == "running_mean":
                buffer.normal_(0.0, 0.1)
            elif kind == "running_var":
                buffer.uniform_(0.8, 1.2)


def settle_statistics(module: torch.nn.Module, probe: torch.Tensor) -> None:
    """Give BatchNorms the running statistics that they meet on a probe, as training would.

    One thread computes them, so that every process gets the same ones to the last bit.
    """
    import torch
    from torch.nn.modules.batchnorm import _BatchNorm

    norms = [layer for layer in module.modules() if isinstance(layer, _BatchNorm) and layer.running_var is not None]
    if not norms:
        return
    momenta = [norm.momentum for norm in norms]
    try:
        module.eval()
        for norm in norms:
            norm.train()
            norm.momentum = None  # the average over all calls since the reset: of one
            norm.reset_running_stats()
        with one_thread(), torch.no_grad():
            module(probe)
    finally:
        module.eval()
    for norm, momentum in zip(norms, momenta, strict=True):
        norm.momentum = momentum
        # A channel that is nearly dead on the probe would amplify any other input without bound.
        norm.running_var.clamp_(min=0.1 * float(norm.running_var.mean())).mul_(_WIDER)


def _is_constant(values: torch.Tensor) -> bool:
    flat = values.flatten()
    # Nearly all that are not show it in their first two; comparing whole weights takes longer than drawing them.
    return bool(flat[0] == flat[-1]) and bool((flat == flat[0]).all())


def _vary(kind: str, values: torch.Tensor) -> None:
    start = float(values.flatten()[0])
    if kind not in _GAINS or (values.ndim > 1 and start == 0.0):
        values.add_(values.new_empty(values.shape).normal_(0.0, 0.02))
    elif abs(start) < 0.5:
        values.uniform_(0.2, 0.5)
    else:
        values.mul_(values.new_empty(values.shape).uniform_(0.8, 1.2))

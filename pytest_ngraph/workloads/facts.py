"""Parameters and multiply-accumulates of a model, truly counted and as the paper counts them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import ModelRef, Workload
from pytest_ngraph.workloads.kinds.axes import axes_taken, axis_values
from pytest_ngraph.workloads.kinds.catalogue import kind_of, parse_model

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Facts:
    """What a model is made of, for one sample.

    ``macs`` counts every multiply-accumulate of convolutions and matrix products. ``macs_paper`` is Table IV's count
    (torchinfo's rule): it takes a linear layer once per forward pass instead of once per token, so it is far lower
    for transformers.
    """

    parameters: int
    macs: int
    macs_paper: int


def facts(model: str | ModelRef, *, depth: int = 1, width: int | None = None, image_size: int = 224) -> Facts:
    """Count a model's parameters and multiply-accumulates at batch 1, without a large computation for built-in models.

    Axes that the model does not take may keep their defaults. A relative path is looked for in the working folder.
    Raises SpecError for a reference that cannot be used and for an ONNX file, which is not counted.
    """
    reference = model if isinstance(model, ModelRef) else parse_model(model, (Path.cwd(),))
    if kind_of(reference).is_onnx:
        raise SpecError(f"model {reference.text!r}: only PyTorch models are counted, not ONNX files")
    workload = _workload(reference, depth, width, image_size)

    import torch
    from torch.nn.attention import SDPBackend, sdpa_kernel
    from torch.utils.flop_counter import FlopCounterMode

    module, args, kwargs = _on_meta(workload) or _as_built(workload)
    paper = _PaperCount()
    handles = [layer.register_forward_hook(paper.add) for layer in module.modules()]
    counter = FlopCounterMode(display=False)
    # The counter sees matrix products only where attention is not one fused operator; with gradients on, PyTorch
    # takes no fused path of its own.
    with torch.enable_grad(), sdpa_kernel(SDPBackend.MATH), counter:
        module(*args, **kwargs)
    for handle in handles:
        handle.remove()
    parameters = sum(parameter.numel() for parameter in module.parameters())
    return Facts(parameters, counter.get_total_flops() // 2, paper.macs)


class _PaperCount:
    """Sum up the multiply-accumulates of each layer without children, as torchinfo 1.8 does (layer_info.py)."""

    def __init__(self) -> None:
        self.macs = 0

    def add(self, layer: torch.nn.Module, inputs: Any, output: Any) -> None:
        """Count one call of a layer: a convolution's weights per output position, any other's per sample."""
        if next(layer.children(), None) is not None or not hasattr(output, "shape"):
            return
        shape = output.shape
        times = math.prod((*shape[:1], *shape[2:])) if "Conv" in type(layer).__name__ else shape[0]
        for name, parameter in layer.named_parameters(recurse=False):
            if name in ("weight", "bias"):
                self.macs += times * parameter.numel()


def _workload(model: ModelRef, depth: int, width: int | None, image_size: int) -> Workload:
    given: dict[str, int | None] = {"depth": depth, "width": width, "image_size": image_size}
    left: dict[str, int | None] = {"depth": 1, "width": None, "image_size": 224}
    if not kind_of(model).is_asked_when_called:
        left = {axis: value for axis, value in left.items() if axis not in axes_taken(model)}
    axes = {axis: value for axis, value in given.items() if axis not in left or value != left[axis]}
    return Workload(model, depth=axes.get("depth"), width=axes.get("width"), image_size=axes.get("image_size"))


def _on_meta(workload: Workload) -> tuple[Any, tuple[Any, ...], dict[str, Any]] | None:
    """Return a model without any data, of which only shapes are computed, where its kind has one."""
    import torch

    with torch.device("meta"):
        outline = kind_of(workload.model).outline(workload.model, axis_values(workload))
        return None if outline is None else (outline[0].eval(), (torch.empty(1, *outline[1]),), {})


def _as_built(workload: Workload) -> tuple[Any, tuple[Any, ...], dict[str, Any]]:
    from pytest_ngraph.workloads.building import build
    from pytest_ngraph.workloads.modules import calls

    built = build(workload, seed=0)
    call = calls.read_call(workload.model.text, built.module, built.example_inputs(1), 1)
    return (built.module, *calls.arguments(call.kind, call.tensors))

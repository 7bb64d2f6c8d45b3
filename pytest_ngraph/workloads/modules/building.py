"""Build the PyTorch module of a workload from its seed, identical in every process."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec import Workload
from pytest_ngraph.workloads.axes import axis_values
from pytest_ngraph.workloads.requirements import require

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True, slots=True)
class Built:
    """A module in eval mode, how to make example inputs for a batch, and the user's files that it came from.

    ``example_inputs(batch)`` gives a tensor, a tuple (positional arguments) or a dict (keyword arguments).
    """

    module: torch.nn.Module
    example_inputs: Callable[[int], Any]
    files: Mapping[str, str] = field(default_factory=dict)


def preload(schemes: Iterable[str]) -> None:
    """Import what building models of these schemes needs and takes a second; what is not installed is told later."""
    if "timm" in schemes and find_spec("timm") is not None:
        from pytest_ngraph.workloads.modules.torchvision_import import import_torchvision

        import_torchvision()
        import timm  # noqa: F401


def build(workload: Workload, seed: int) -> Built:
    """Build the module of a workload that is not an ONNX file.

    Raises SpecError where the reference, its axes or the user's factory cannot be used.
    """
    axes = axis_values(workload)
    require(workload.model.text, "torch", "torch")
    if workload.model.scheme == "timm":
        from pytest_ngraph.workloads.modules.timm_models import build_timm

        built = build_timm(workload.model, seed, axes)
    elif workload.model.scheme == "block":
        from pytest_ngraph.workloads.modules.blocks import build_block

        built = build_block(workload.model, seed, axes)
    elif workload.model.scheme in ("file", "import"):
        from pytest_ngraph.workloads.modules.factories import build_from_factory

        built = build_from_factory(workload.model, seed, axes)
    else:
        raise SpecError(f"model {workload.model.text!r}: no PyTorch module is built for {workload.model.scheme!r}")
    built.module.eval()
    return built

"""Models of the timm library by name, with random weights that make every layer count."""

from __future__ import annotations

import difflib
import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.spec import ModelRef
from pytest_ngraph.workloads.modules.building import Built
from pytest_ngraph.workloads.modules.constants import randomise_constants, settle_statistics
from pytest_ngraph.workloads.modules.seeding import seeded
from pytest_ngraph.workloads.modules.torchvision_import import import_torchvision
from pytest_ngraph.workloads.requirements import require

if TYPE_CHECKING:
    import torch

# Last feature maps are 32 times smaller than the image; their statistics need about this many values.
_STRIDE, _VALUES = 32, 100


def build_timm(model: ModelRef, seed: int, axes: Mapping[str, int]) -> Built:
    """Build a timm classifier for square images of ``axes["image_size"]`` pixels.

    Raises SpecError with close matches for a name that timm does not have, Unsupported for a size that the model
    cannot take.
    """
    size = axes["image_size"]
    import torch

    with seeded(seed):
        module = create(model, size)
        randomise_constants(module)
        shape = input_shape(module, size)
        probes = max(2, math.ceil(_VALUES * (_STRIDE / size) ** 2))
        try:
            settle_statistics(module, torch.randn(probes, *shape))
        except (AssertionError, IndexError, RuntimeError, ValueError) as error:
            raise Unsupported(f"{model.text} cannot take images of {size} x {size}: {error}") from error

    def example_inputs(batch: int) -> torch.Tensor:
        return torch.randn(batch, *shape)

    return Built(module, example_inputs)


def input_shape(module: Any, size: int) -> tuple[int, int, int]:
    """Return channels, height and width of one image."""
    return module.pretrained_cfg["input_size"][0], size, size


def create(model: ModelRef, size: int) -> Any:
    """Create a timm model as timm initialises it, for square images of ``size`` pixels."""
    require(model.text, "timm", "timm", "torchvision")
    import_torchvision()
    import timm

    name = model.locator
    if ":" in name or not timm.is_model(name):
        near = difflib.get_close_matches(name, timm.list_models(), n=3, cutoff=0.6)
        hint = f" (close: {', '.join(near)})" if near else ""
        raise SpecError(f"model {model.text!r}: timm {timm.__version__} has no model {name!r}{hint}")
    if "." in name and name not in timm.list_pretrained(f"{name.partition('.')[0]}.*"):
        raise SpecError(f"model {model.text!r}: timm {timm.__version__} has no tag {name.partition('.')[2]!r} of it")
    config = timm.get_pretrained_cfg(name, allow_unregistered=True)
    # Transformers whose position embeddings or windows belong to one image size are told the size when constructed.
    told = config is not None and config.fixed_input_size and tuple(config.input_size[1:]) != (size, size)
    try:
        return timm.create_model(name, pretrained=False, **({"img_size": size} if told else {}))
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        if not told:
            raise
        raise Unsupported(f"{model.text} cannot take images of {size} x {size}: {error}") from error

"""Networks of libraries that take square images: random weights that make every layer count, and random images."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.workloads.kinds.contract import Built
from pytest_ngraph.workloads.modules.constants import randomise_constants, settle_statistics

if TYPE_CHECKING:
    import torch

# Last feature maps are 32 times smaller than the image; their statistics need about this many values.
_STRIDE, _VALUES = 32, 100


def images(model: ModelRef, module: torch.nn.Module, shape: tuple[int, int, int]) -> Built:
    """Return a network as its library initialises it with constants varied and statistics that fit its layers.

    ``shape`` is channels, height and width of an image, height and width being equal. Raises Unsupported for a size
    that the network cannot take.
    """
    import torch

    randomise_constants(module)
    size = shape[-1]
    probes = max(2, math.ceil(_VALUES * (_STRIDE / size) ** 2))
    try:
        settle_statistics(module, torch.randn(probes, *shape))
    except (AssertionError, IndexError, RuntimeError, ValueError) as error:
        raise Unsupported(f"{model.text} cannot take images of {size} x {size}: {error}") from error
    return Built(module, lambda batch: torch.randn(batch, *shape))

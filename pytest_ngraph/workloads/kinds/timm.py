"""Models of the timm library by name, with random weights that make every layer count."""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import SpecError, Unsupported
from pytest_ngraph.machine.imports import require
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.workloads.kinds.contract import Built, Kind
from pytest_ngraph.workloads.kinds.images import images, rough_macs
from pytest_ngraph.workloads.modules.dynamo import without_dynamo
from pytest_ngraph.workloads.modules.torchvision_import import import_torchvision

if TYPE_CHECKING:
    import torch


class Timm(Kind):
    """``timm:NAME``: a classifier of the timm library for square images."""

    form = "timm:NAME"
    requires = ("torch", "timm")
    extra = "timm"
    made_by = ("torch", "timm")
    has_files = False

    def axes(self, model: ModelRef) -> Mapping[str, int | None]:
        """Return the side of the images, in pixels."""
        return {"image_size": 224}

    def build(self, model: ModelRef, axes: Mapping[str, int], seed: int) -> Built:
        """Build a classifier.

        Raises SpecError with close matches for a name that timm does not have, Unsupported for a size that the model
        cannot take.
        """
        size = axes["image_size"]
        module = _create(model, size)
        return images(model, module, _input_shape(module, size))

    def rough_macs(self, model: ModelRef, values: Mapping[str, int]) -> float | None:
        """Return about how many multiply-accumulates an image is for a network of a well-known name."""
        return rough_macs(model.locator, values.get("image_size"))

    def outline(self, model: ModelRef, axes: Mapping[str, int]) -> tuple[torch.nn.Module, tuple[int, ...]]:
        """Return the classifier as timm makes it."""
        module = _create(model, axes["image_size"])
        return module, _input_shape(module, axes["image_size"])

    def preload(self) -> None:
        """Import timm, which takes a second, without what takes another."""
        if find_spec("timm") is not None:
            with without_dynamo():
                import_torchvision()
                import timm  # noqa: F401


KIND = Timm()


def _input_shape(module: Any, size: int) -> tuple[int, int, int]:
    """Return channels, height and width of one image."""
    return module.pretrained_cfg["input_size"][0], size, size


def _create(model: ModelRef, size: int) -> Any:
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
    # Transformers whose position embeddings or windows belong to one image size are given the size when constructed.
    fixed = config is not None and config.fixed_input_size and tuple(config.input_size[1:]) != (size, size)
    try:
        return timm.create_model(name, pretrained=False, **({"img_size": size} if fixed else {}))
    except (AssertionError, RuntimeError, TypeError, ValueError) as error:
        if not fixed:
            raise
        raise Unsupported(f"{model.text} cannot take images of {size} x {size}: {error}") from error

"""Models of the torchvision library by name, with random weights that make every layer count."""

from __future__ import annotations

from collections.abc import Collection, Mapping
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

_CHANNELS = 3
# Branches that are there for training only, whose initialisation takes longer than building the rest.
_ASKED: Mapping[str, Mapping[str, Any]] = {
    "googlenet": {"aux_logits": False, "init_weights": False},
    "inception_v3": {"aux_logits": False, "init_weights": False},
}


class Torchvision(Kind):
    """``torchvision:NAME``: a network for classification or segmentation that takes square images.

    Its factories do not say what they are fed, so this does.
    """

    form = "torchvision:NAME"
    requires = ("torch", "torchvision")
    extra = "timm"
    made_by = ("torch", "torchvision")
    has_files = False

    def names(self) -> Collection[str]:
        """Return the networks that take a batch of images and nothing else."""
        models = _models()
        return [*models.list_models(module=models), *models.list_models(module=models.segmentation)]

    def axes(self, model: ModelRef) -> Mapping[str, int | None]:
        """Return the side of the images, in pixels."""
        return {"image_size": 224}

    def build(self, model: ModelRef, axes: Mapping[str, int], seed: int) -> Built:
        """Build a network.

        Raises SpecError with close matches for a name that torchvision does not have, Unsupported for a size that the
        network cannot take.
        """
        module, shape = self.outline(model, axes)
        return images(model, module, shape)

    def rough_macs(self, model: ModelRef, values: Mapping[str, int]) -> float | None:
        """Return about how many multiply-accumulates an image is for a network of a well-known name."""
        return rough_macs(model.locator, values.get("image_size"))

    def outline(self, model: ModelRef, axes: Mapping[str, int]) -> tuple[torch.nn.Module, tuple[int, int, int]]:
        """Return the network as torchvision makes it."""
        require(model.text, self.extra, "torchvision")
        self.check_name(model)
        size = axes["image_size"]
        return _create(model, size), (_CHANNELS, size, size)

    def check_name(self, model: ModelRef) -> None:
        """Raise SpecError where torchvision lacks a model of this name, or it takes something else than images."""
        if model.locator in _models().list_models() and model.locator not in self.names():
            raise SpecError(
                f"model {model.text!r}: it does not take a batch of images and nothing else (detection, video, optical "
                "flow and quantised models are not built here); write a factory of it with example_inputs"
            )
        super().check_name(model)

    def preload(self) -> None:
        """Import torchvision, which takes half a second, without what takes another."""
        if find_spec("torchvision") is not None:
            with without_dynamo():
                _models()


KIND = Torchvision()


def _models() -> Any:
    """Return the module of torchvision that has its models."""
    import_torchvision()
    from torchvision import models

    return models


def _create(model: ModelRef, size: int) -> Any:
    """Create a network for square images of ``size`` pixels. Segmentation networks without trained backbones."""
    models, name = _models(), model.locator
    asked = dict(_ASKED.get(name, {}))
    # Position embeddings and windows belong to one size of images.
    if name.startswith("vit_"):
        asked["image_size"] = size
    elif name.startswith("maxvit"):
        asked["input_size"] = (size, size)
    if name in models.list_models(module=models.segmentation):
        asked["weights_backbone"] = None
    try:
        return models.get_model(name, weights=None, **asked)
    except (AssertionError, ValueError) as error:
        raise Unsupported(f"{model.text} cannot take images of {size} x {size}: {error}") from error

"""Transformers: ``transformers:NAME[options]`` from the table of sizes."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.imports import require
from pytest_ngraph.spec.cells import ModelRef
from pytest_ngraph.workloads.kinds.contract import Built, Kind
from pytest_ngraph.workloads.kinds.transformers import networks, options
from pytest_ngraph.workloads.kinds.transformers.options import Wanted
from pytest_ngraph.workloads.kinds.transformers.sizes import ARCHITECTURES, IMAGES, TEXT
from pytest_ngraph.workloads.modules.constants import randomise_constants
from pytest_ngraph.workloads.modules.dynamo import without_dynamo

_TOKENS, _PIXELS = 128, 224


class Named(Kind):
    """``transformers:NAME``: an architecture by the sizes that it has in the table, with seeded random weights.

    Nothing is downloaded. ``transformers:NAME[layers=2]`` has other sizes.
    """

    form = "transformers:NAME"
    requires = ("torch", "transformers")
    extra = "transformers"
    made_by = ("torch", "transformers")
    has_files = False

    def parse(self, text: str, name: str, search: Sequence[Path]) -> str:
        """Return the name with those options that change something. Raise SpecError for others."""
        return options.normal(name)

    def spelled(self, text: str) -> str:
        """Return the reference with its options in one order, without those that change nothing."""
        front, _, name = text.partition(":")
        return f"{front}:{options.normal(name)}"

    def bare(self, text: str) -> str:
        """Return the reference without its options."""
        return options.split(text)[0]

    def names(self) -> Collection[str]:
        """Return the names of the table."""
        return ARCHITECTURES

    def check_name(self, model: ModelRef) -> None:
        """Raise SpecError where the table lacks the name."""
        super().check_name(ModelRef(model.text, model.scheme, options.split(model.locator)[0], model.kind))

    def axes(self, model: ModelRef) -> Mapping[str, int | None]:
        """Return the length of texts in tokens, or the side of images in pixels."""
        wanted = options.wanted(model.locator)
        if wanted.fed == TEXT:
            return {"sequence": min(_TOKENS, wanted.most_tokens)}
        return {"image_size": _PIXELS} if wanted.fed == IMAGES else {}

    def check_values(self, model: ModelRef, values: Mapping[str, int]) -> None:
        """Raise SpecError for a text that is longer than its positions, or an image that is smaller than a patch."""
        wanted = options.wanted(model.locator)
        refuse_sizes(model, wanted, values)

    def build(self, model: ModelRef, axes: Mapping[str, int], seed: int) -> Built:
        """Build a network whose every layer counts. Raise Unsupported where its weights do not fit into memory."""
        require(model.text, self.extra, "transformers")
        wanted = options.wanted(model.locator)
        networks.refuse_too_large(model.text, wanted)
        module = networks.make(wanted, axes)
        randomise_constants(module)
        return Built(module, networks.inputs(wanted, axes, module.network.config))

    def preload(self) -> None:
        """Import the part of the library that all networks share, which takes a second or two."""
        if find_spec("transformers") is not None and find_spec("torch") is not None:
            with without_dynamo():
                networks.preload()


NAMED = Named()


def refuse_sizes(model: ModelRef, wanted: Wanted, values: Mapping[str, int]) -> None:
    """Raise SpecError for values of axes that a network cannot have."""
    length, size = values.get("sequence", 1), values.get("image_size")
    if wanted.fed == TEXT and length > wanted.most_tokens:
        raise SpecError(
            f"model {model.text!r}: sequence is {length} (allowed: at most {wanted.most_tokens}, as it has "
            f"{wanted.sizes['positions']} positions; [positions={length + wanted.reserved}] gives it more)"
        )
    if wanted.fed == IMAGES and size is not None and size < wanted.sizes["patch"]:
        raise SpecError(
            f"model {model.text!r}: image_size is {size} (allowed: {wanted.sizes['patch']} or more, the side of a "
            "patch)"
        )

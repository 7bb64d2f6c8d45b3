"""Networks of the transformers library: from sizes, with seeded weights, and what calls them with tensors alone."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import Unsupported
from pytest_ngraph.workloads.kinds.transformers import feeding, generating
from pytest_ngraph.workloads.kinds.transformers.options import LENGTHS, Wanted
from pytest_ngraph.workloads.kinds.transformers.sizes import FAMILIES, IMAGES, SOUND, TEXT
from pytest_ngraph.workloads.modules.torchvision_import import import_torchvision

if TYPE_CHECKING:
    import torch

_BYTES = 4  # of a number in f32


def make(wanted: Wanted, axes: Mapping[str, int]) -> torch.nn.Module:
    """Return a network as the library initialises it from its configuration, called with tensors alone."""
    family = FAMILIES[wanted.family]
    network = network_class(wanted.family, family.networks[wanted.head])
    return with_tensors(network(configuration(wanted, axes)), family.fed)


def configuration(wanted: Wanted, axes: Mapping[str, int]) -> Any:
    """Return the configuration of a network of the table."""
    family = FAMILIES[wanted.family]
    sizes: dict[str, Any] = {family.names[name]: size for name, size in wanted.sizes.items()}
    sizes |= dict(wanted.more or {})
    if family.fed == IMAGES:
        sizes["image_size"] = axes["image_size"]
    if "vocab" in wanted.sizes:
        sizes |= _words_within(wanted)
    return config_class(wanted.family)(**sizes, attn_implementation=wanted.attention, use_cache=False)


def preload() -> None:
    """Import what all networks share."""
    _module("bert", "modeling")


def config_class(family: str) -> Any:
    """Return the class of the configurations of a family."""
    return getattr(_module(family, "configuration"), FAMILIES[family].config)


def network_class(family: str, name: str) -> Any:
    """Return a class of networks of a family."""
    return getattr(_module(family, "modeling"), name)


def with_tensors(network: torch.nn.Module, fed: str) -> torch.nn.Module:
    """Return a module that takes the inputs of a network by name, in order, and returns a tuple of tensors.

    The network itself stays reachable as its ``network``.
    """
    import torch

    def tensors(outputs: Any) -> tuple[torch.Tensor, ...]:
        return tuple(each for each in outputs if isinstance(each, torch.Tensor))

    class Text(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tensors(self.network(input_ids=input_ids, attention_mask=attention_mask, return_dict=False))

    class Images(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, pixel_values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tensors(self.network(pixel_values=pixel_values, return_dict=False))

    class Sound(torch.nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.network = network

        def forward(self, input_features: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return tensors(self.network(input_features=input_features, return_dict=False))

    made: torch.nn.Module = generating.with_steps({TEXT: Text, IMAGES: Images, SOUND: Sound}[fed], network)()
    return made


def inputs(wanted: Wanted, axes: Mapping[str, int], config: Any) -> feeding.Inputs:
    """Return what draws the inputs of a network."""
    fed, sizes = FAMILIES[wanted.family].fed, wanted.sizes
    if fed == TEXT:
        return feeding.text(sizes["vocab"], pad_of(config), padded=wanted.mask == LENGTHS)
    if fed == IMAGES:
        return feeding.images(config.num_channels, axes["image_size"])
    return feeding.sound(sizes["mels"], 2 * sizes["positions"])


def pad_of(config: Any) -> int:
    """Return the word that pads a text: that of the configuration, or the last one, which ends a text of GPT-2."""
    pad = getattr(config, "pad_token_id", None)
    return int(config.vocab_size) - 1 if pad is None or not 0 <= pad < config.vocab_size else int(pad)


def refuse_too_large(label: str, wanted: Wanted) -> None:
    """Raise Unsupported where the weights would not fit into the memory of this machine, before anything is built."""
    import psutil

    needed, there = _BYTES * least_parameters(wanted), psutil.virtual_memory().total
    if needed > there:
        raise Unsupported(
            f"{label}: its weights take {needed / 2**30:.0f} GiB in f32 at least, and this machine has "
            f"{there / 2**30:.0f} GiB of memory; ask for fewer layers, a smaller hidden or a smaller vocab"
        )


def least_parameters(wanted: Wanted) -> int:
    """Return how many numbers its large matrices have: of layers and of words."""
    sizes = wanted.sizes
    hidden = sizes["hidden"]
    shared = sizes.get("kv_heads", sizes["heads"]) / sizes["heads"]
    layer = int((2 + 2 * shared) * hidden * hidden) + 2 * hidden * sizes["intermediate"]
    return sizes["layers"] * layer + sizes.get("vocab", 0) * hidden


def _words_within(wanted: Wanted) -> dict[str, int]:
    """Return the words with a meaning that are beyond a vocabulary that was asked for, moved into it."""
    config, vocab = config_class(wanted.family)(), wanted.sizes["vocab"]
    names = ("pad_token_id", "bos_token_id", "eos_token_id")
    found = {name: getattr(config, name, None) for name in names}
    return {name: vocab - 1 for name, word in found.items() if isinstance(word, int) and word >= vocab}


def _module(family: str, part: str) -> Any:
    import_torchvision()
    return importlib.import_module(f"transformers.models.{family}.{part}_{family}")

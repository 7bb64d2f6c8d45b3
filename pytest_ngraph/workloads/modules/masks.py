"""Masks among a model's inputs: how many of the tokens that it is fed are padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

PADDING = "padding"


def padding(*calls: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, str]:
    """Return the share of masked tokens of some calls as a fact for people, by mask: none where no input is a mask.

    A mask is an input of (batch, tokens) whose name says so and that has zeros and ones only. A zero is padding, but
    where the name says ``pad``, as of ``key_padding_mask``: there a one is.
    """
    shares = []
    names = [mask_names(inputs) for inputs in calls]
    for name in (name for name in (names[0] if names else []) if all(name in others for others in names)):
        tokens = sum(inputs[name].size for inputs in calls)
        ones = sum(int((inputs[name] == 1).sum()) for inputs in calls)
        share = (ones if is_padding_mask(name) else tokens - ones) / tokens
        shares.append(f"{100 * share:.1f} % of {name}")
    return {PADDING: ", ".join(shares)} if shares else {}


def is_padding_mask(name: str) -> bool:
    """Return whether a mask of this name has ones where there is padding, as ``key_padding_mask`` does."""
    return "mask" in name.lower() and "pad" in name.lower()


def mask_names(inputs: Mapping[str, np.ndarray[Any, Any]]) -> list[str]:
    """Return the names of the inputs that are masks of (batch, tokens)."""
    return [
        name
        for name, array in inputs.items()
        if "mask" in name.lower()
        and array.ndim == 2
        and array.size
        and int((array == 1).sum()) + int((array == 0).sum()) == array.size
    ]

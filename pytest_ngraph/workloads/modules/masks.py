"""Masks among a model's inputs: how many of the tokens that it is fed are padding."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import numpy as np

PADDING = "padding"


def padding(inputs: Mapping[str, np.ndarray[Any, Any]]) -> dict[str, str]:
    """Return the share of masked tokens as a fact for people, by mask: none where no input is a mask.

    A mask is an input of (batch, tokens) whose name says so and that has zeros and ones only. A zero is padding, but
    where the name says ``pad``, as of ``key_padding_mask``: there a one is.
    """
    shares = []
    for name, array in inputs.items():
        if "mask" not in name.lower() or array.ndim != 2 or not array.size:
            continue
        ones, zeros = int((array == 1).sum()), int((array == 0).sum())
        if ones + zeros == array.size:
            share = (ones if "pad" in name.lower() else zeros) / array.size
            shares.append(f"{100 * share:.1f} % of {name}")
    return {PADDING: ", ".join(shares)} if shares else {}

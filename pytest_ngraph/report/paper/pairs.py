"""One published number beside ours, as numbers: what the pictures of the comparison are made of."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ngraph.quantities.quantity import Estimate


@dataclass(frozen=True, slots=True)
class Pair:
    """A number of the paper's and ours of the same metric, in its unit.

    ``device`` is ours. ``subject`` is a family, a network or a block, ``at`` its batches and width in words, ``here``
    what ours is of where that is less than the paper's. ``deviation`` is what the paper prints behind the plus-minus,
    if anything.
    """

    device: str
    metric: str
    subject: str
    at: str
    compiler: str
    value: float
    deviation: float | None
    mine: Estimate
    here: str = ""

"""Claims about sequences: how the time of a call grows with their length."""

from __future__ import annotations

from pytest_ngraph.claims.assertions import claim
from pytest_ngraph.claims.given import BoundGiven, of_kind
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.quantities.sweeps import SequenceSweep


def assert_sequence_scaling(
    sweep: SequenceSweep,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the exponent of the time of a call over length: 1 is linear, 2 what attention alone takes.

    The tolerance is a fraction of the time of the longest: tolerance / ln(longest / shortest) of the exponent.
    """
    __tracebackhide__ = True
    sweep = of_kind("assert_sequence_scaling", sweep, SequenceSweep)
    quantity = sweep.quantity("sequence_scaling")
    return claim(
        "assert_sequence_scaling",
        quantity,
        sweep.target,
        at_least,
        at_most,
        tolerance,
        scale=sweep.tolerance_scale(),
        name="exponent over length",
    )

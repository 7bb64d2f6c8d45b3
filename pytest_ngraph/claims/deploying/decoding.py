"""Claims about cells that generate tokens: the first token, each further one, and tokens per second."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ngraph.claims.assertions import claim
from pytest_ngraph.claims.given import of_kind
from pytest_ngraph.quantities.measurement import Measurement

if TYPE_CHECKING:
    from pytest_ngraph.claims.given import BoundGiven
    from pytest_ngraph.quantities.quantity import Estimate


def assert_first_token(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the seconds from the prompt to the logits of its first token, of a workload with ``decode=``.

    No step is part of it. It is judged as ``assert_latency`` is: the median of a launch, averaged over launches.
    """
    __tracebackhide__ = True
    cell = of_kind("assert_first_token", cell, Measurement)
    quantity = cell.quantity("time_to_first_token")
    return claim("assert_first_token", quantity, cell.target, at_least, at_most, tolerance)


def assert_per_token(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the seconds of each token after the first: the mean over the steps of a call.

    The prompt is no part of it. It is judged as ``assert_latency`` is: the median of a launch, averaged over launches.
    """
    __tracebackhide__ = True
    cell = of_kind("assert_per_token", cell, Measurement)
    quantity = cell.quantity("time_per_token")
    return claim("assert_per_token", quantity, cell.target, at_least, at_most, tolerance)


def assert_tokens_per_second(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the tokens per second of whole calls: batch x (1 + N) tokens over the seconds of prompt and steps."""
    __tracebackhide__ = True
    cell = of_kind("assert_tokens_per_second", cell, Measurement)
    quantity = cell.quantity("tokens_per_second")
    return claim("assert_tokens_per_second", quantity, cell.target, at_least, at_most, tolerance)

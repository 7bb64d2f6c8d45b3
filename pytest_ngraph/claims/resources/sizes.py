"""The helper that claims the size of what is deployed."""

from __future__ import annotations

import math

from pytest_ngraph.claims.assertions import claim
from pytest_ngraph.claims.decide import Decision, decide
from pytest_ngraph.claims.given import BoundGiven, of_kind
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, Quantity
from pytest_ngraph.stats.verdict import Bound, Verdict


def assert_model_size(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the bytes of what is deployed: the engine, the ONNX file, or parameters and buffers of a module.

    They are counted in each launch. Where nothing is deployed the claim is inconclusive and says so.
    """
    __tracebackhide__ = True
    cell = of_kind("assert_model_size", cell, Measurement)
    quantity = cell.quantity("model_bytes")

    def judge(quantity: Quantity, bound: Bound, allowed: float) -> Decision:
        records = quantity.source.records(quantity)
        if records and not quantity.rows_of(records):
            nothing = Estimate(quantity.metric.name, math.nan, math.nan, math.nan, 0)
            return Decision(Verdict.INCONCLUSIVE, nothing, None, "", cell.why_null("model_bytes"))
        return decide(quantity, bound, allowed)

    return claim("assert_model_size", quantity, cell.target, at_least, at_most, tolerance, judge)

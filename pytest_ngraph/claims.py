"""A claim and how it is decided: looks at the launches there are, asks for more, ends in a verdict with its numbers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ngraph.errors import ClaimError
from pytest_ngraph.estimates import Estimate, Quantity
from pytest_ngraph.spec import Outcome

if TYPE_CHECKING:
    from pytest_ngraph.stats.launches import LaunchValue
    from pytest_ngraph.stats.verdict import Bound, Verdict

# Stated as at most 1 % a side: with plain t over few launches the looks together spend up to 1.15 times what is
# set here (tests/test_stats_verdicts.py holds the figure).
ALPHA = 0.0085
# Numbers that a launch may not give, because a cache did.
_ONCE = ("compile_seconds", "load_seconds", "export_seconds")


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with what it rests on; ``reason`` says why a gate stayed inconclusive."""

    verdict: Verdict
    estimate: Estimate
    smallest_visible: float | None
    noise: str
    reason: str = ""


def bound_for(target: str, given: float | Mapping[str, float], helper: str) -> float:
    """Return the bound that applies to a target: a number, or the mapping's entry for it.

    A mapping is asked for ``device:compiler``, then the compiler with its options, then its bare name, then ``*``.
    Raises ClaimError where it has none of them.
    """
    if not isinstance(given, Mapping):
        return float(given)
    compiler = target.partition(":")[2]
    device = target.partition(":")[0]
    bare = compiler.partition("[")[0]
    for key in (target, f"{device}:{bare}", compiler, bare, "*"):
        if key in given:
            return float(given[key])
    raise ClaimError(
        f"{helper}: no bound for {target} (given: {', '.join(given)}); add {bare!r}, or '*' for all the others"
    )


def decide(quantity: Quantity, bound: Bound, tolerance: float) -> Decision:
    """Judge a quantity against a bound, with as few launches as its error rate allows (MEASUREMENT: the verdict).

    ``tolerance`` is the fraction that the looks are planned by; on linear metrics the bound has its own amount.
    Raises CellFailed where one of its cells has no time.
    """
    from pytest_ngraph.errors import SpecError
    from pytest_ngraph.stats.launches import interval
    from pytest_ngraph.stats.sequential import looks_for, spending
    from pytest_ngraph.stats.verdict import Verdict, judge

    measurer = quantity.measurer
    values = quantity.values()
    while not values and measurer.one_more(quantity):
        values = quantity.values()
    if not values:
        return _unmeasured(quantity)
    if not measurer.error_control:
        return _without_error_control(quantity, values, bound)
    try:
        looks = looks_for(measurer.most_launches, tolerance)
    except SpecError as error:
        raise ClaimError(str(error)) from None
    levels = spending(ALPHA, looks, looks[-1])
    for look, level in zip(looks, levels, strict=True):
        while len(values) < look:
            before = len(values)
            if not measurer.one_more(quantity):
                return _decision(quantity, values, level, bound, Verdict.INCONCLUSIVE, _why_no_more(quantity, values))
            values = quantity.values()
            if len(values) == before and quantity.metric.name in _ONCE:
                return _decision(quantity, values, level, bound, Verdict.INCONCLUSIVE, _why_no_more(quantity, values))
        # Always the first launches, however many there are by now: what is stored is judged as it was judged live.
        verdict = judge(interval(values[:look], level), bound)
        if verdict is not Verdict.INCONCLUSIVE:
            return _decision(quantity, values[:look], level, bound, verdict)
    used = values[: looks[-1]]
    return _decision(quantity, used, levels[-1], bound, Verdict.INCONCLUSIVE, "the budget is spent")


def _decision(
    quantity: Quantity, values: list[LaunchValue], level: float, bound: Bound, verdict: Verdict, reason: str = ""
) -> Decision:
    from pytest_ngraph.stats.launches import dominant_noise, interval
    from pytest_ngraph.stats.verdict import smallest_visible

    spread = interval(values, level)
    return Decision(
        verdict,
        quantity.of_interval(spread),
        smallest_visible(spread, bound.scale) if len(values) > 1 else None,
        dominant_noise(values),
        reason,
    )


def _without_error_control(quantity: Quantity, values: list[LaunchValue], bound: Bound) -> Decision:
    """Compare the point estimate with the bound: what ``quick`` and ``paper`` can say."""
    from pytest_ngraph.stats.launches import dominant_noise
    from pytest_ngraph.stats.verdict import Verdict

    estimate = quantity.present(values)
    good = estimate.value >= bound.value if bound.at_least else estimate.value <= bound.value
    protocol = quantity.measurer.session.settings.protocol.name
    verdict = Verdict.PASS if good else Verdict.FAIL
    return Decision(verdict, estimate, None, dominant_noise(values), f"{protocol}, no error control")


def _unmeasured(quantity: Quantity) -> Decision:
    from pytest_ngraph.stats.verdict import Verdict

    nothing = Estimate(quantity.metric.name, float("nan"), float("nan"), float("nan"), 0)
    return Decision(Verdict.INCONCLUSIVE, nothing, None, "", _why_no_more(quantity, []))


def _why_no_more(quantity: Quantity, values: list[LaunchValue]) -> str:
    """Say why a gate got no further launch."""
    measurer = quantity.measurer
    if measurer.session.settings.offline:
        return "only what is stored is judged (--ngraph-offline)"
    launches = len(measurer.records(quantity))
    if quantity.metric.name in _ONCE:
        return f"{len(values)} of {launches} launches gave this number; the others took a cached result"
    unstable = _unstable(quantity)
    if unstable:
        return f"{launches - len(values)} of {launches} launches do not count: {unstable}"
    if len(values) < launches:
        return f"only {len(values)} of {launches} launches had usable visits: too much else ran on this machine"
    invalid = measurer.group.invalid
    return "the budget is spent" + (f"; launches that do not count: {len(invalid)}, {invalid[-1]}" if invalid else "")


def _unstable(quantity: Quantity) -> str:
    """Return why a cell of the claim is unstable in some launch, or nothing."""
    for record in quantity.measurer.records(quantity):
        for cell in quantity.cells:
            prepared = record.prepared[cell]
            if prepared.outcome is Outcome.UNSTABLE:
                return f"{cell.label}: {prepared.reason}"
    return ""

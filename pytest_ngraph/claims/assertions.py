"""The assertion helpers: claims in tests, each judged with its error rate and explained when it does not hold."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from pytest_ngraph.claims.decide import Decision, FirstLook, decide, decide_read
from pytest_ngraph.claims.explain import advice, explain, short_name, terms
from pytest_ngraph.claims.given import BoundGiven, bound_for, fraction, in_words, number, of_kind, several, whole
from pytest_ngraph.claims.history import by_history
from pytest_ngraph.claims.judged_state import state_of_claim
from pytest_ngraph.claims.order import Order, decide_order, explain_order, order_of
from pytest_ngraph.claims.percentiles import decide_percentile, decided_by_overload, open_where_unsettled
from pytest_ngraph.claims.plans import Plan, plan_of_claim, test_of
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.bounds import HISTORY, SIDES, Entry
from pytest_ngraph.quantities.compared import WHY_NOT_TOLD_APART, figures, limit_of
from pytest_ngraph.quantities.comparisons import (
    friction,
    friction_scale,
    refuse_apart,
    refuse_incomparable,
    refuse_other_calls,
    throughput_ratio,
)
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, Measurer, NarrowedAway, NotStored, Quantity
from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep
from pytest_ngraph.spec.resources.peaks import HOST, METRIC_OF
from pytest_ngraph.spec.sides import UNCHANGED
from pytest_ngraph.stats.verdict import Bound, Scale, Verdict
from pytest_ngraph.store.rows import VerdictRow

if TYPE_CHECKING:
    from pytest_ngraph.spec.cells import Cell


class InconclusiveWarning(UserWarning):
    """A gate that its budget could not decide, where ``--ngraph-inconclusive=warn``."""


def assert_speedup(
    cell: Measurement,
    *,
    over: Measurement | None = None,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the speed-up: the cell's throughput divided by the baseline's at the same workload, a factor.

    With ``over`` it is divided by that cell's, of the same launch group: what a precision gains, or a pruning.
    """
    __tracebackhide__ = True
    cell = of_kind("assert_speedup", cell, Measurement)
    helper = "assert_speedup"
    if is_itself(f"{helper}: over", cell, over):
        label = f"throughput of {cell.cell.label} over {cell.beside.cell.side}"
        return settled_as_unchanged(helper, cell, label, "throughput_ratio", at_least, at_most, tolerance)
    quantity = cell.quantity("speedup") if over is None else _ratio(f"{helper}: over", cell, over)
    return claim(helper, quantity, cell.target, at_least, at_most, tolerance)


def assert_throughput(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the cell's throughput in samples per second."""
    __tracebackhide__ = True
    cell = of_kind("assert_throughput", cell, Measurement)
    return claim("assert_throughput", cell.quantity("throughput"), cell.target, at_least, at_most, tolerance)


def assert_latency(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
    percentile: float | None = None,
) -> Estimate:
    """Claim the cell's time per call in seconds: the median of a launch, averaged over launches.

    With several calls in flight (``scenario="throughput"``) it is the mean time from submission to completion, under
    load (``scenario="server[rate=20]"``) that from arrival to answer. Where more calls arrive than can be answered
    there is none: a claim ``at_most`` then fails.

    ``percentile``, from 1 on and below 100, claims the time that this share of all clean calls stays within. It is
    judged by the binomial law and not by means (MLPerf LoadGen's early stopping). It needs calls that are timed one by
    one, that is calls of a millisecond or more, several in flight or under load, and enough of them: at least 588 for
    percentile 99 and a budget of 16 launches, and more where they wait for one another or several are in flight.
    """
    __tracebackhide__ = True
    cell = of_kind("assert_latency", cell, Measurement)
    quantity = cell.quantity("latency")
    if percentile is None:
        return claim("assert_latency", quantity, cell.target, at_least, at_most, tolerance)
    if not isinstance(percentile, float):
        percentile = number("assert_latency: percentile", percentile, "%")
    if not 0 < percentile < 100:
        raise ClaimError(f"assert_latency: percentile={percentile:g} (expected a number between 0 and 100)")
    if percentile < 1:
        # The fastest calls would pass for the slowest.
        meant = f"{100 * percentile:g} is meant?"
        raise ClaimError(f"assert_latency: percentile={percentile:g} (expected per cent, from 1 on; {meant})")
    quantity = replace(quantity, label=f"percentile {percentile:g} of the latency of {cell.cell.label}")

    def judge(quantity: Quantity, bound: Bound, tolerance: float) -> Decision:
        return decide_percentile(quantity, percentile, bound, tolerance)

    name = f"p{percentile:g} latency"
    return claim("assert_latency", quantity, cell.target, at_least, at_most, tolerance, judge, name=name)


def assert_rtr(
    sweep: BatchSweep,
    *,
    batch: int,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim RTR_c(b) = T_c(b) / T_c(1) at a batch (the paper's section V-A4)."""
    __tracebackhide__ = True
    sweep, batch = of_kind("assert_rtr", sweep, BatchSweep), whole("assert_rtr: batch", batch)
    return claim("assert_rtr", sweep.quantity("rtr", batch), sweep.target, at_least, at_most, tolerance)


def assert_ase(
    sweep: BatchSweep,
    *,
    batch: int,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim ASE_c(b) = T_c(b) / (b T_c(1)) at a batch (the paper's section V-A4)."""
    __tracebackhide__ = True
    sweep, batch = of_kind("assert_ase", sweep, BatchSweep), whole("assert_ase: batch", batch)
    return claim("assert_ase", sweep.quantity("ase", batch), sweep.target, at_least, at_most, tolerance)


def assert_bsr(
    sweep: BatchSweep,
    *,
    batch: int,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim BSR_c(b) = ASE_c(b) / ASE_baseline(b) at a batch (the paper's section V-A4)."""
    __tracebackhide__ = True
    sweep, batch = of_kind("assert_bsr", sweep, BatchSweep), whole("assert_bsr: batch", batch)
    return claim("assert_bsr", sweep.quantity("bsr", batch), sweep.target, at_least, at_most, tolerance)


def assert_slope(
    sweep: DepthSweep,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the least-squares slope of the speed-up on depth, per layer (the paper's section V-C).

    The tolerance is a fraction of the mean speed-up over the range of depths: tolerance x mean / (deepest - 1), by the
    launches of the first look.
    """
    __tracebackhide__ = True
    sweep = of_kind("assert_slope", sweep, DepthSweep)
    quantity = sweep.quantity("slope")
    first = FirstLook(quantity)
    depths = {depth: Measurement(first, one.cell, one.baseline) for depth, one in sweep.items()}
    scale = _scale(DepthSweep(first, depths, sweep.depths).tolerance_scale)
    return claim("assert_slope", quantity, sweep.target, at_least, at_most, tolerance, scale=scale)


def assert_retention(
    sweep: DepthSweep,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the speed-up of the deepest stack over that of a single block (the paper's section V-C)."""
    __tracebackhide__ = True
    sweep = of_kind("assert_retention", sweep, DepthSweep)
    return claim("assert_retention", sweep.quantity("retention"), sweep.target, at_least, at_most, tolerance)


def assert_compile_time(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the seconds that compiling takes, without importing, exporting, tuning and the first call.

    Launches that loaded what an earlier one had built do not count. So a compiler that keeps its results has a single
    sample, which decides nothing. ``rebuild=True`` in the marker makes every launch compile again.
    """
    __tracebackhide__ = True
    cell = of_kind("assert_compile_time", cell, Measurement)
    return claim("assert_compile_time", cell.quantity("compile_seconds"), cell.target, at_least, at_most, tolerance)


def assert_memory(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
    of: str = HOST,
    phase: str = "",
) -> Estimate:
    """Claim the peak resident bytes of a process that runs just this cell, and of what it starts, in untimed passes.

    ``of="gpu"`` claims what they held on the GPU. ``phase`` is ``compiling``, until the cell was called once, or
    ``running``, while further calls run; without it both count. What cannot be read leaves the claim inconclusive.
    """
    __tracebackhide__ = True
    cell = of_kind("assert_memory", cell, Measurement)
    if (metric := METRIC_OF.get((of, phase))) is None:
        expected = "of='host' or 'gpu', and phase='compiling' or 'running' or none"
        raise ClaimError(f"assert_memory: of={of!r}, phase={phase!r} (expected {expected})")
    return claim("assert_memory", cell.quantity(metric), cell.target, at_least, at_most, tolerance, decide_read)


def assert_cpu_usage(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim CPU time / wall time while calls run, as a percentage of the device's CPUs.

    The tolerance is in percentage points. Without one it is ``--ngraph-tolerance`` x 100 points.
    """
    __tracebackhide__ = True
    cell = of_kind("assert_cpu_usage", cell, Measurement)
    quantity = cell.quantity("cpu_percent")
    return claim("assert_cpu_usage", quantity, cell.target, at_least, at_most, tolerance)


def assert_faster(a: Measurement, b: Measurement, *, by: float = 0.0) -> Estimate:
    """Claim that ``a`` is faster than ``b`` by throughput. Both must be of one launch group.

    It passes where the whole interval is above 1, with ``by=0.1`` above 1.1, and fresh launches confirm it. It
    fails where the whole interval is below that, confirmed in the same way. There is no tolerance: of equal code at
    most 1 in 100 passes, and most stays inconclusive. To claim "not slower" use ``assert_no_slower``.
    """
    __tracebackhide__ = True
    a, b = of_kind("assert_faster", a, Measurement), of_kind("assert_faster", b, Measurement)
    margin = number("assert_faster: by", by, "fraction")
    if margin < 0:
        raise ClaimError(f"assert_faster: by={by} (expected 0 or more; what may be slower is for assert_no_slower)")
    refuse_incomparable("assert_faster", a, b)
    return claim("assert_faster", throughput_ratio(a, b), a.target, 1.0 + margin, None, None, is_strict=True)


def assert_order(
    models: Mapping[str, Measurement] | Sequence[Measurement],
    order: Sequence[str] | None = None,
    *,
    tolerance: float | None = None,
) -> Estimate:
    """Claim that compiling keeps the order of models by throughput, or that they come in a given order.

    ``models`` are what ``ngraph_models`` gives, or measurements of one launch group. Without ``order`` no pair of them
    may change places between the baseline and the compiler (the paper's Figure 1). A pair that differs by less than the
    tolerance on one of the two sides has not changed places. ``order`` names models, fastest first: each must have at
    least the throughput of the next, and the baseline does not matter. Of claims that hold at most 1 in 100 fails,
    however many pairs there are. Returns the compiled ratio, first over second, of the pair that decides.
    """
    __tracebackhide__ = True
    return _claim_order("assert_order", order_of("assert_order", models, order), tolerance)


def assert_friction(
    cells: Sequence[Measurement],
    *,
    batch: int,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the scaling efficiency that each doubling of the width costs at a batch (the paper's section V-E).

    ``cells`` are of two widths or more, each at batch 1 and at ``batch``, measured together:
    ``ngraph.measure(model="block:conv", width=[64, 128], batch=[1, 8])``. The tolerance is a fraction of the mean
    efficiency over the doublings from the narrowest to the widest: tolerance x mean / log2(widest / narrowest), by the
    launches of the first look.
    """
    __tracebackhide__ = True
    cells = several("assert_friction", cells)
    quantity = friction(cells, whole("assert_friction: batch", batch))
    first = FirstLook(quantity)
    scale = _scale(lambda: friction_scale([Measurement(first, one.cell, one.baseline) for one in cells], batch))
    return claim("assert_friction", quantity, cells[0].target, at_least, at_most, tolerance, scale=scale)


def _scale(measured: Callable[[], float]) -> float:
    """Return what a tolerance is a fraction of, or 1 where no launch counts: the claim then says why there is none."""
    try:
        return measured()
    except NotStored:
        return 1.0


def _ratio(what: str, cell: Measurement, over: Measurement) -> Quantity:
    """Return the throughput of a cell over that of another one. Raise ClaimError for what cannot be compared."""
    over = of_kind(what, over, Measurement)
    refuse_apart(what, [cell, over])
    refuse_other_calls(what, cell, over)
    return throughput_ratio(cell, over)


def assert_outputs_match(cell: Measurement, *, at_most: float | None = None) -> None:
    """Claim that the outputs agree with the reference: ``max |y - ref| / max |ref|`` is at most ``at_most``.

    Without a bound the precision's own applies, which every cell is checked against before and after it is timed. Where
    the check would have accepted the outputs of other inputs as well, the claim is inconclusive.
    """
    __tracebackhide__ = True
    cell = of_kind("assert_outputs_match", cell, Measurement)
    if at_most is not None:
        at_most = number("assert_outputs_match: at_most", at_most, "fraction")
    error, found = cell.max_error, figures(cell.record)
    if error is None:
        raise NarrowedAway(f"assert_outputs_match: {cell.cell.label} has no outputs to compare")
    fails = at_most is not None and not error <= at_most
    is_open = not fails and cell.outputs_told_apart is False
    verdict = Verdict.FAIL if fails else Verdict.INCONCLUSIVE if is_open else Verdict.PASS
    measurer = cell.source if isinstance(cell.source, Measurer) else None
    if measurer is not None:
        limit = at_most if at_most is not None else limit_of(cell.cell, cell.record)
        held_to = cell.record.held_to or cell.workload.precision
        terms = f"at_most {limit:g} (no tolerance)" if limit is not None else f"in {held_to}"
        settle(
            measurer,
            cell,
            "assert_outputs_match",
            f"assert_outputs_match: outputs of {cell.cell.label} {terms}",
            Estimate("max_error", error, math.nan, math.nan, 1),
            verdict,
            WHY_NOT_TOLD_APART if is_open else "",
            limit,
            name="max error",
            advice=_MAKE_THEM_DIFFER if is_open else "",
        )
    if fails:
        raise AssertionError(
            f"max error {error:.3g} > {at_most:.3g}: assert_outputs_match: {cell.cell.label}\n"
            f"  max |y - reference| / max |reference| is {error:.3g}, "
            f"claimed at most {at_most:.3g} ({found})"
        )
    if is_open:
        message = (
            f"max error {error:.3g}, inconclusive: assert_outputs_match: {cell.cell.label}\n"
            f"  {found}: {WHY_NOT_TOLD_APART}\n"
            f"  what to do: {_MAKE_THEM_DIFFER}"
        )
        inconclusive("fail" if measurer is None else measurer.session.settings.inconclusive, message)


_MAKE_THEM_DIFFER = "weights and inputs (example_inputs) with which the model's outputs differ from input to input"


def claim(
    helper: str,
    quantity: Quantity,
    target: str,
    at_least: BoundGiven | None,
    at_most: BoundGiven | None,
    tolerance: float | None,
    judge: Callable[[Quantity, Bound, float], Decision] | None = None,
    *,
    scale: float = 1.0,
    is_strict: bool = False,
    name: str = "",
) -> Estimate:
    """Judge one claim, keep its verdict, and do to the test what the verdict says.

    ``scale`` is what the tolerance is a fraction of, on metrics whose own unit it is not in. A strict claim has no
    tolerance. ``name`` is what its message calls the number, where that is not the metric. Without ``judge`` a mean is
    judged by the looks, and where calls arrive at a rate not by those launches alone in which a queue settled.
    """
    __tracebackhide__ = True
    measurer, metric = quantity.measurer, quantity.metric
    asked = _asked(helper, measurer, metric.unit, at_least, at_most, tolerance, is_strict=is_strict)
    side, given, allowed = asked.side, asked.given, asked.tolerance
    if given == HISTORY:
        if judge not in (None, decide_read):
            raise ClaimError(f"{helper}: {side}='history' (expected a number: only what is a mean has a history)")
        held = by_history(quantity)
        limit, judge = held.limit, held.judge
    else:
        limit = bound_for(measurer, target, given, asked.place, metric.unit)
    bound = _bound(helper, limit, side == "at_least", allowed * scale, metric.scale, is_strict=is_strict)
    # A strict claim is planned as the test's others are: what is far from its bound shows early.
    planned_by = bound.tolerance if metric.scale == "log" and not is_strict else measurer.tolerance
    if judge is not None:
        decision = judge(quantity, bound, planned_by)
    elif (overloaded := decided_by_overload(quantity, bound)) is not None:
        decision = overloaded
    else:
        decision = open_where_unsettled(quantity, decide(quantity, bound, planned_by))
    # A claim is known by its words, and the level of a history moves with every session.
    words = f"{side} history (tolerance {allowed:g})" if given == HISTORY else terms(bound, allowed)
    claim = f"{helper}: {quantity.label} {words}"
    plan, decision = claim_context(quantity, decision, claim, quantity.cells)
    message = explain(helper, quantity, bound, decision, name)
    keep(claim, helper, quantity, target, bound, decision, message, plan, name or short_name(quantity))
    if decision.verdict is Verdict.FAIL:
        raise AssertionError(message)
    if decision.verdict not in (Verdict.PASS, Verdict.NOT_JUDGED):
        inconclusive(measurer.session.settings.inconclusive, message)
    return decision.estimate


def of_the_file(
    measurer: Measurer,
    helper: str,
    at_least: BoundGiven | None,
    at_most: BoundGiven | None,
    tolerance: float | None,
) -> Entry | None:
    """Return what the file of bounds gives to a claim. Raise ClaimError where its test gives that as well."""
    bounds = measurer.session.settings.bounds
    entry = None if bounds is None else bounds.of(test_of(measurer), helper)
    if entry is not None:
        theirs = {"at_least": at_least, "at_most": at_most}
        if entry.tolerance is not None:
            theirs["tolerance"] = tolerance
        both = [name for name, value in theirs.items() if value is not None]
        if both:
            raise ClaimError(f"{helper}: {both[0]}= is given in the test, and {entry.place} gives it too; keep one")
    return entry


def _claim_order(helper: str, order: Order, tolerance: float | None) -> Estimate:
    """Judge an order by its pairs, keep its verdict under the pair that matters most, and do what it says."""
    __tracebackhide__ = True
    measurer = order.measurer
    bound = _bound(helper, 1.0, True, _tolerance(helper, tolerance, measurer, ""), "log")
    decided = decide_order(order, bound)
    # What passes is not above a bound: pairs that are as fast as one another may come in any order.
    claim = f"{helper}: {order.label} {bound.words} {bound.value:g} (tolerance {bound.tolerance:g})"
    pair, decision = decided[0]
    plan, decision = claim_context(pair.compiled, decision, claim, [one.cell for one in order.cells.values()])
    message = explain_order(helper, order, bound, [(pair, decision), *decided[1:]])
    named = replace(decision, reason="; ".join(filter(None, [pair.name, decision.reason])))
    keep(claim, helper, pair.compiled, order.target, bound, named, message, plan, pair.name)
    if decision.verdict is Verdict.FAIL:
        raise AssertionError(message)
    if decision.verdict not in (Verdict.PASS, Verdict.NOT_JUDGED):
        inconclusive(measurer.session.settings.inconclusive, message)
    return decision.estimate


def claim_context(quantity: Quantity, decision: Decision, claim: str, cells: Sequence[Cell]) -> tuple[Plan, Decision]:
    """Return by which plan a claim was judged, and the decision with that and the state of the machine."""
    plan = plan_of_claim(quantity.measurer, claim, cells, decision.known)
    state = state_of_claim(quantity, decision)
    notes = tuple(filter(None, [*decision.notes, plan.note, state.note]))
    return plan, replace(decision, notes=notes, state_words=state.words)


def is_itself(what: str, cell: Measurement, over: Measurement | None) -> bool:
    """Return whether a cell is compared with its other side, where that is the same (``Measurement.against``).

    Raise ClaimError where it is compared with itself and there is no such side.
    """
    if over is None or of_kind(what, over, Measurement).cell != cell.cell:
        return False
    if not cell.is_unchanged:
        raise ClaimError(f"{what}={over.cell.label} is the cell itself (expected another one)")
    return True


def settled_as_unchanged(
    helper: str,
    cell: Measurement,
    label: str,
    metric: str,
    at_least: BoundGiven | None,
    at_most: BoundGiven | None,
    tolerance: float | None,
) -> Estimate:
    """Judge a ratio to the other side where nothing differs, which is 1 and needs no launch."""
    __tracebackhide__ = True
    measurer, row = cell.quantity("throughput").measurer, METRICS[metric]
    asked = _asked(helper, measurer, row.unit, at_least, at_most, tolerance)
    limit = 1.0 if asked.given == HISTORY else bound_for(measurer, cell.target, asked.given, asked.place, row.unit)
    bound = _bound(helper, limit, asked.side == "at_least", asked.tolerance, row.scale)
    holds = bound.passing <= 1 if bound.at_least else bound.passing >= 1
    one, words = Estimate(metric, 1.0, 1.0, 1.0, 0), f"{helper}: {label} {terms(bound, asked.tolerance)}"
    verdict = Verdict.PASS if holds else Verdict.FAIL
    settle(
        measurer, cell, helper, words, one, verdict, UNCHANGED, limit, bound.tolerance, at_least=bound.at_least,
        side=cell.beside.cell.side,
    )  # fmt: skip
    if not holds:
        raise AssertionError(f"{words}\n  {verdict}: {row.format(1.0)}, {UNCHANGED}")
    return one


@dataclass(frozen=True, slots=True)
class _Asked:
    """What a claim asks for: which side of which bound, where that is given, and with which tolerance."""

    side: str
    given: BoundGiven
    place: str
    tolerance: float


def _asked(
    helper: str,
    measurer: Measurer,
    unit: str,
    at_least: BoundGiven | None,
    at_most: BoundGiven | None,
    tolerance: float | None,
    *,
    is_strict: bool = False,
) -> _Asked:
    """Return what a claim asks for, by its arguments and the file of bounds. Raise ClaimError for neither or both."""
    place, entry = f"{helper}: ", None if is_strict else of_the_file(measurer, helper, at_least, at_most, tolerance)
    if entry is not None:
        place, tolerance = f"{helper}: {entry.place}: ", entry.tolerance if tolerance is None else tolerance
        at_least, at_most = (entry.bound if entry.side == side else None for side in SIDES)
    if (at_least is None) == (at_most is None):
        bounds = measurer.session.settings.bounds
        where = "" if bounds is None or at_least is not None else f" ({bounds.path} has none for {test_of(measurer)})"
        raise ClaimError(f"{helper}: give either at_least= or at_most=, {in_words(unit)}{where}")
    side, given = ("at_least", at_least) if at_least is not None else ("at_most", at_most)
    assert given is not None
    return _Asked(side, given, f"{place}{side}", 0.0 if is_strict else _tolerance(helper, tolerance, measurer, unit))


def _tolerance(helper: str, given: float | None, measurer: Measurer, unit: str) -> float:
    """Return a claim's own tolerance, or the test's, which is a fraction: of metrics in per cent, in points."""
    if given is None:
        return 100 * measurer.tolerance if unit == "%" else measurer.tolerance
    return number(f"{helper}: tolerance", given, "points") if unit == "%" else fraction(helper, given)


def _bound(
    helper: str, value: float, at_least: bool, tolerance: float, scale: Scale, *, is_strict: bool = False
) -> Bound:
    try:
        return Bound(value, at_least, tolerance, scale, is_strict)
    except SpecError as error:
        raise ClaimError(f"{helper}: {error}") from None


def inconclusive(choice: str, message: str) -> None:
    """Do to the running test what ``--ngraph-inconclusive`` says, for a gate that is undecided or invalid."""
    __tracebackhide__ = True
    if choice == "fail":
        raise AssertionError(message)
    if choice == "skip":
        import pytest

        pytest.skip(message)
    warnings.warn(InconclusiveWarning(message), stacklevel=4)


def settle(
    measurer: Measurer,
    cell: Measurement,
    helper: str,
    claim: str,
    estimate: Estimate,
    verdict: Verdict,
    reason: str,
    bound: float | None,
    tolerance: float = 0.0,
    *,
    at_least: bool = False,
    **extra: object,
) -> None:
    """Keep a verdict that no statistics were needed for: it cannot err by chance. NaN stands for no number."""
    numbers = (estimate.value, estimate.low, estimate.high)
    value, low, high = (None if math.isnan(each) else each for each in numbers)
    measurer.session.keep_verdict(
        VerdictRow(
            nodeid=test_of(measurer),
            claim=claim,
            metric=estimate.metric,
            bound=bound,
            at_least=at_least,
            tolerance=tolerance,
            estimate=value,
            low=low,
            high=high,
            launches=estimate.launches,
            verdict=verdict.value,
            extra={
                "target": cell.target,
                "helper": helper,
                "reason": reason,
                "message": f"{claim}\n  {verdict.value}: {reason}",
                "subject": cell.cell.label,
                "unmeasured": True,
                **extra,
            },
        )
    )


def keep(
    claim: str,
    helper: str,
    quantity: Quantity,
    target: str,
    bound: Bound,
    decision: Decision,
    message: str,
    plan: Plan,
    name: str,
    **extra: object,
) -> None:
    """Keep a verdict in the store, under the test that made the claim. ``name`` is of what its number is.

    ``claim`` has its bound and the tolerance that was given: a claim that is judged again is known by its words.
    """
    estimate = decision.estimate
    quantity.measurer.session.keep_verdict(
        VerdictRow(
            nodeid=test_of(quantity.measurer),
            claim=claim,
            metric=quantity.metric.name,
            bound=None if decision.unknown_bound else bound.value,
            at_least=bound.at_least,
            tolerance=bound.tolerance,
            estimate=estimate.value,
            low=estimate.low,
            high=estimate.high,
            launches=estimate.launches,
            verdict=decision.verdict.value,
            smallest_effect=decision.smallest_visible,
            extra={
                "target": target,
                "helper": helper,
                "reason": decision.reason,
                "name": name,
                "message": message,
                "advice": advice(quantity, bound, decision),
                "subject": quantity.subject.label,
                "state": decision.state_words,
                "notes": list(decision.notes),
                **plan.kept,
                **extra,
            },
        )
    )

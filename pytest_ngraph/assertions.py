"""The assertion helpers: claims in tests, each judged with its error rate and explained when it does not hold."""

from __future__ import annotations

import math
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.claims import Decision, bound_for, decide, decide_percentile, lacks_builds
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.estimates import Estimate, Quantity, log_contrast
from pytest_ngraph.sweeps import BatchSweep, DepthSweep, Measurement

if TYPE_CHECKING:
    from pytest_ngraph.stats.verdict import Bound

BoundGiven = float | Mapping[str, float]
_REBUILD = "rebuild=True in the marker: every launch then compiles anew and gives a compile time of its own"


class InconclusiveWarning(UserWarning):
    """A gate that its budget could not decide, where ``--ngraph-inconclusive=warn``."""


def assert_speedup(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the cell's throughput over the baseline's at the same workload, a factor."""
    __tracebackhide__ = True
    return _claim("assert_speedup", cell.quantity("speedup"), cell.target, at_least, at_most, tolerance)


def assert_throughput(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the cell's throughput in samples per second."""
    __tracebackhide__ = True
    return _claim("assert_throughput", cell.quantity("throughput"), cell.target, at_least, at_most, tolerance)


def assert_latency(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
    percentile: float | None = None,
) -> Estimate:
    """Claim the cell's time per call in seconds: the median of a launch, averaged over launches.

    With several calls in flight (``scenario="throughput"``) it is the mean time from submission to completion.

    With ``percentile``, between 0 and 100: the time that so many per cent of all clean calls stay within, judged by
    the binomial law and not by means (MLPerf LoadGen's early stopping). It needs calls that are timed one by one, so of
    a millisecond or more, or several in flight, and enough of them: 585 at least for percentile 99 and a budget of 8
    launches.
    """
    __tracebackhide__ = True
    quantity = cell.quantity("latency")
    if percentile is None:
        return _claim("assert_latency", quantity, cell.target, at_least, at_most, tolerance)
    if not 0 < percentile < 100:
        raise ClaimError(f"assert_latency: percentile={percentile:g} (expected a number between 0 and 100)")
    quantity = replace(quantity, label=f"percentile {percentile:g} of the latency of {cell.cell.label}")

    def judge(quantity: Quantity, bound: Bound, tolerance: float) -> Decision:
        return decide_percentile(quantity, percentile, bound, tolerance)

    return _claim("assert_latency", quantity, cell.target, at_least, at_most, tolerance, judge)


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
    return _claim("assert_rtr", sweep.quantity("rtr", batch), sweep.target, at_least, at_most, tolerance)


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
    return _claim("assert_ase", sweep.quantity("ase", batch), sweep.target, at_least, at_most, tolerance)


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
    return _claim("assert_bsr", sweep.quantity("bsr", batch), sweep.target, at_least, at_most, tolerance)


def assert_slope(
    sweep: DepthSweep,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the least-squares slope of the speed-up on depth, per layer (the paper's section V-C).

    The tolerance is a fraction of the mean speed-up over the range of depths: tolerance x mean / (deepest - 1).
    """
    __tracebackhide__ = True
    quantity = sweep.quantity("slope")
    fraction = quantity.measurer.tolerance if tolerance is None else tolerance
    amount = fraction * sweep.mean_speedup() / (max(sweep) - min(sweep))
    return _claim("assert_slope", quantity, sweep.target, at_least, at_most, amount)


def assert_retention(
    sweep: DepthSweep,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the speed-up of the deepest stack over that of a single block (the paper's section V-C)."""
    __tracebackhide__ = True
    return _claim("assert_retention", sweep.quantity("retention"), sweep.target, at_least, at_most, tolerance)


def assert_compile_time(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the seconds that compiling takes; importing, exporting, tuning and the first call are apart.

    Launches that loaded what an earlier one had built do not count, so that a compiler that keeps its results has one
    sample, which decides nothing: ``rebuild=True`` in the marker makes every launch compile anew.
    """
    __tracebackhide__ = True
    return _claim("assert_compile_time", cell.quantity("compile_seconds"), cell.target, at_least, at_most, tolerance)


def assert_memory(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim the peak resident bytes of a process that runs just this cell, in untimed passes."""
    __tracebackhide__ = True
    return _claim("assert_memory", cell.quantity("peak_memory_bytes"), cell.target, at_least, at_most, tolerance)


def assert_cpu_usage(
    cell: Measurement,
    *,
    at_least: BoundGiven | None = None,
    at_most: BoundGiven | None = None,
    tolerance: float | None = None,
) -> Estimate:
    """Claim CPU time / wall time while calls run, as percent of the device's CPUs.

    The tolerance is in percentage points; without one it is the fraction of ``--ngraph-tolerance`` of 100 %.
    """
    __tracebackhide__ = True
    quantity = cell.quantity("cpu_percent")
    points = 100 * quantity.measurer.tolerance if tolerance is None else tolerance
    return _claim("assert_cpu_usage", quantity, cell.target, at_least, at_most, points)


def assert_faster(a: Measurement, b: Measurement, *, tolerance: float | None = None) -> Estimate:
    """Claim that ``a`` has at least the throughput of ``b``; both must be of one launch group."""
    __tracebackhide__ = True
    left, right = a.quantity("throughput"), b.quantity("throughput")
    if left.measurer.group != right.measurer.group:
        raise ClaimError(
            f"assert_faster: {a.cell.label} and {b.cell.label} were not measured together, so their ratio would carry "
            "what changed between their launches; put both into one test, as models=[...], or into one call, "
            "ngraph.measure(batch=[1, 8])"
        )
    label = f"throughput of {a.cell.label} over {b.cell.label}"
    offset = math.log(a.workload.batch) - math.log(b.workload.batch)
    terms = [(a.cell, -1.0), (b.cell, 1.0)]
    quantity = log_contrast(left.measurer, "speedup", label, terms, subject=a.cell, offset=offset, parts=(left, right))
    return _claim("assert_faster", quantity, a.target, 1.0, None, tolerance)


def assert_outputs_match(cell: Measurement, *, at_most: float | None = None) -> None:
    """Claim that the outputs agree with the reference: max |y - ref| / max |ref| is at most ``at_most``.

    Without a bound the precision's own holds, which is checked before anything is timed anyway.
    """
    __tracebackhide__ = True
    error = cell.max_error
    if error is None:
        import pytest

        pytest.skip(f"assert_outputs_match: {cell.cell.label} has no outputs to compare")
    if at_most is not None and not error <= at_most:
        raise AssertionError(
            f"assert_outputs_match: {cell.cell.label}\n  max |y - reference| / max |reference| is {error:.3g}, "
            f"claimed at most {at_most:.3g}"
        )


def _claim(
    helper: str,
    quantity: Quantity,
    target: str,
    at_least: BoundGiven | None,
    at_most: BoundGiven | None,
    tolerance: float | None,
    judge: Callable[[Quantity, Bound, float], Decision] = decide,
) -> Estimate:
    """Judge one claim, keep its verdict, and do to the test what the verdict says."""
    __tracebackhide__ = True
    from pytest_ngraph.errors import SpecError
    from pytest_ngraph.stats.verdict import Bound, Verdict

    if (at_least is None) == (at_most is None):
        raise ClaimError(f"{helper}: give either at_least= or at_most=")
    given = at_least if at_least is not None else at_most
    assert given is not None
    measurer = quantity.measurer
    try:
        bound = Bound(
            bound_for(target, given, helper),
            at_least is not None,
            measurer.tolerance if tolerance is None else tolerance,
            quantity.metric.scale,
        )
    except SpecError as error:
        raise ClaimError(f"{helper}: {error}") from None
    planned_by = bound.tolerance if quantity.metric.scale == "log" else measurer.tolerance
    decision = judge(quantity, bound, planned_by)
    message = explain(helper, quantity, bound, decision)
    keep(helper, quantity, target, bound, decision, message)
    if decision.verdict is Verdict.FAIL:
        raise AssertionError(message)
    if decision.verdict is not Verdict.PASS:
        inconclusive(measurer.session.settings.inconclusive, message)
    return decision.estimate


def inconclusive(choice: str, message: str) -> None:
    """Do to the running test what ``--ngraph-inconclusive`` says, for a gate that is undecided or invalid."""
    __tracebackhide__ = True
    if choice == "fail":
        raise AssertionError(message)
    if choice == "skip":
        import pytest

        pytest.skip(message)
    warnings.warn(InconclusiveWarning(message), stacklevel=4)


def keep(helper: str, quantity: Quantity, target: str, bound: Bound, decision: Decision, message: str) -> None:
    """Keep a verdict in the store, under the test that made the claim."""
    from pytest_ngraph.store.rows import VerdictRow

    # A call of ngraph.measure has a number behind the test's own id.
    session, nodeid = quantity.measurer.session, quantity.measurer.nodeid
    estimate = decision.estimate
    session.keep_verdict(
        VerdictRow(
            nodeid=re.sub(r"#\d+$", "", nodeid),
            claim=f"{helper}: {quantity.label} {bound.words} {bound.value:g} (tolerance {bound.tolerance:g})",
            metric=quantity.metric.name,
            bound=bound.value,
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
                "message": message,
                "subject": quantity.subject.label,
            },
        )
    )


def explain(helper: str, quantity: Quantity, bound: Bound, decision: Decision) -> str:
    """Write a verdict for people: the claim, the estimate, both sides, what could be seen, and what to do."""
    from pytest_ngraph.stats.verdict import Verdict

    write = quantity.metric.format
    linear = bound.scale == "linear"
    tolerance = write(bound.tolerance) if linear else f"{100 * bound.tolerance:g} %"
    words = "at least" if bound.at_least else "at most"
    estimate = decision.estimate
    lines = [
        f"{helper}: {quantity.label}",
        f"  claimed {words} {write(bound.value)} (tolerance {tolerance})",
    ]
    if not estimate.launches:
        advice = [f"  what to do: {_REBUILD}"] if lacks_builds(quantity) else []
        return "\n".join([*lines, f"  {decision.verdict}: {decision.reason}", *advice])
    controlled = quantity.measurer.error_control
    is_paper = quantity.measurer.session.settings.protocol.name == "paper"
    spread = "99 % interval" if controlled else f"+- one standard {'deviation' if is_paper else 'error'}"
    launches = units.count(estimate.launches, "launch", "launches")
    lines.append(
        f"  {decision.verdict}: {write(estimate.value)}, {spread} {write(estimate.low)} to {write(estimate.high)}, "
        f"{launches}{'; ' + decision.reason if decision.reason else ''}"
    )
    for part in quantity.parts:
        side = part.estimate()
        lines.append(f"    {part.label}: {side}")
    lines += _thread_notes(quantity)
    if decision.smallest_visible is not None:
        visible = write(decision.smallest_visible) if linear else units.fraction(decision.smallest_visible)
        lines.append(f"  smallest effect this gate could have seen: {visible}; most noise is {decision.noise}")
    if decision.verdict in (Verdict.INCONCLUSIVE, Verdict.INVALID):
        lines.append(f"  what to do: {_advice(quantity, decision)}")
    return "\n".join(lines)


def _advice(quantity: Quantity, decision: Decision) -> str:
    """Say what helps against what kept a gate from being decided."""
    from pytest_ngraph.stats.verdict import Verdict

    if decision.verdict is Verdict.INVALID:
        return "end what else runs on this machine, or measure on another (ngraph doctor --noise)"
    if lacks_builds(quantity):
        return _REBUILD
    return {
        "drift": "let the machine come to a steady state first (clocks, heat; ngraph doctor --noise), then run again "
        "with --ngraph-fresh",
        "between launches": "a larger --ngraph-budget, a wider tolerance=, or a steadier machine (ngraph doctor "
        "--noise)",
        "within a launch": "a quieter machine (ngraph doctor --noise), a larger --ngraph-budget, or a wider tolerance=",
    }.get(decision.noise, "a larger --ngraph-budget or a wider tolerance=")


def _thread_notes(quantity: Quantity) -> list[str]:
    """Say where a relative claim compares compilers that were given different numbers of threads."""
    usual = quantity.measurer.session.device.threads
    given = {cell.compiler: int(dict(cell.compiler.options).get("threads") or usual) for cell in quantity.cells}
    if len(set(given.values())) < 2:
        return []
    return ["  note: different threads: " + ", ".join(f"{compiler} has {count}" for compiler, count in given.items())]

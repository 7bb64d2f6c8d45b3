"""Claims about a change: a cell here against the same cell on the other side (``--ngraph-against``)."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from pytest_ngraph import units
from pytest_ngraph.claims.assertions import claim, inconclusive, settle
from pytest_ngraph.claims.decide import Decision, decide
from pytest_ngraph.claims.explain import terms
from pytest_ngraph.claims.given import fraction, of_kind
from pytest_ngraph.claims.percentiles import cannot_keep_up, counted, read_until, until_confirmed
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.load.queues import has_no_latency
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.quantities.comparisons import change, refuse_incomparable, throughput_ratio
from pytest_ngraph.quantities.measurement import HOW_TO_COMPARE, Measurement
from pytest_ngraph.quantities.quantity import (
    CellFailed,
    Estimate,
    Measurer,
    NarrowedAway,
    NoOtherSide,
    NotStored,
    Quantity,
)
from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep, ModelSweep, SequenceSweep
from pytest_ngraph.session.session import FIRST_LOOK
from pytest_ngraph.spec.cells import Cell, LaunchRecord, Outcome
from pytest_ngraph.spec.sides import NOT_THERE, UNCHANGED
from pytest_ngraph.stats.verdict import CONFIRMING_LOOKS, Bound, Verdict

# What a claim about a cell here and on the other side is of, whoever makes it.
CHANGE = "change"
Sweep = BatchSweep | DepthSweep | ModelSweep | SequenceSweep


def assert_no_slower(
    a: Measurement | Sweep, b: Measurement | None = None, *, tolerance: float | None = None
) -> Estimate:
    """Claim that ``a`` has at least the throughput of ``b``, less the tolerance. Both must be of one launch group.

    Without ``b`` it is compared with itself on the other side (``--ngraph-against``), and of a sweep each cell is.
    Where nothing differs between the two sides it passes and nothing is measured. A model that is not on the other side
    is new, and passes as well. Without another side the test is skipped. Calls that arrive at a rate are compared by
    their latency, and where one side does not keep up, by which one. Returns the ratio of throughputs, of such calls
    that of latencies, of a sweep the smallest.

    Code that is slower by less than the tolerance may pass. To claim "faster" use ``assert_faster``.
    """
    __tracebackhide__ = True
    if b is not None:
        a, b = of_kind("assert_no_slower", a, Measurement), of_kind("assert_no_slower", b, Measurement)
        refuse_incomparable("assert_no_slower", a, b)
        return claim("assert_no_slower", throughput_ratio(a, b), a.target, 1.0, None, tolerance)
    if isinstance(a, Sweep):
        return _each("assert_no_slower", a, lambda one: assert_no_slower(one, tolerance=tolerance))
    a = of_kind("assert_no_slower", a, Measurement)
    measurer = _measurer("assert_no_slower", a)
    allowed = measurer.tolerance if tolerance is None else fraction("assert_no_slower", tolerance)
    ratio = change(a)
    words = f"assert_no_slower: {ratio.label} {terms(Bound(1.0, True, allowed, 'log'), allowed)}"
    if a.is_unchanged:
        return _settled(a, "assert_no_slower", words, CHANGE, Verdict.PASS, UNCHANGED, a.change)
    judge = decide if rate_of(a.workload.scenario) is None else decide_served
    try:
        return claim("assert_no_slower", ratio, a.target, 1.0, None, tolerance, judge)
    except CellFailed as failed:
        return _without_other(a, "assert_no_slower", words, CHANGE, failed)


def assert_no_larger(cell: Measurement | Sweep, *, tolerance: float = 0.0) -> Estimate:
    """Claim that what is deployed has at most as many bytes as on the other side: an engine, a file, or a module.

    ``tolerance`` is a fraction of the bytes there. They are counted, not sampled, so there is no error rate. The rest
    is as in ``assert_no_slower``. Returns the bytes, of a sweep the most. Skips where a side has no size to read.
    """
    __tracebackhide__ = True
    if isinstance(cell, Sweep):
        return _each("assert_no_larger", cell, lambda one: assert_no_larger(one, tolerance=tolerance), max)
    cell = of_kind("assert_no_larger", cell, Measurement)
    _measurer("assert_no_larger", cell)
    allowed = fraction("assert_no_larger", tolerance)
    metric, beside = "model_bytes", cell.beside
    words = f"assert_no_larger: model size of {cell.cell.label} over {beside.cell.label} (tolerance {allowed:g})"
    if cell.is_unchanged:
        return _settled(cell, "assert_no_larger", words, metric, Verdict.PASS, UNCHANGED)
    try:
        mine, theirs = cell.record.model_bytes, beside.record.model_bytes
    except CellFailed as failed:
        return _without_other(cell, "assert_no_larger", words, metric, failed)
    if mine is None or theirs is None:
        raise NarrowedAway(f"assert_no_larger: {cell.cell.label} has no size that can be read on both sides")
    estimate = Estimate(metric, float(mine), float(mine), float(mine), 1)
    holds = mine <= theirs * (1 + allowed)
    verdict = Verdict.PASS if holds else Verdict.FAIL
    _settled(cell, "assert_no_larger", words, metric, verdict, "", estimate, float(theirs), allowed)
    if not holds:
        write = METRICS[metric].format
        raise AssertionError(
            f"size {write(mine)} > {write(theirs)}: assert_no_larger: {cell.cell.label}\n"
            f"  {write(mine)} here, {write(theirs)} on {beside.cell.side}: "
            f"{100 * (mine / theirs - 1) if theirs else math.inf:.3g} % more, allowed {100 * allowed:g} %"
        )
    return estimate


def decide_served(quantity: Quantity, bound: Bound, tolerance: float) -> Decision:
    """Judge a change of calls that arrive at a rate: by latencies where both sides keep up, else by which one does.

    Where a queue did not settle there is no latency, and to judge by the launches in which it did would be to choose
    them by what they say. So all of the first look and of those that confirm it must say the same of the two sides.
    """
    source, (mine, theirs) = quantity.source, quantity.cells
    if not source.error_control:
        return decide(quantity, bound, tolerance)
    source.records(quantity)
    if not any(_unsettled(record, quantity.cells) for record in counted(quantity)[:FIRST_LOOK]):
        decision = decide(quantity, bound, tolerance)
        rows = quantity.rows()[: decision.estimate.launches]
        held = read_until(quantity, rows, decision.verdict) if rows else []
        odd = [record for record in held if _unsettled(record, quantity.cells)]
        if not odd or decision.verdict not in (Verdict.PASS, Verdict.FAIL):
            return decision
        return replace(decision, verdict=Verdict.INCONCLUSIVE, reason=_why_unsettled(odd, held, quantity.cells))

    def slower_side(found: Sequence[LaunchRecord]) -> Cell | None:
        for side, other in ((mine, theirs), (theirs, mine)):
            if all(cannot_keep_up(one, side) and not has_no_latency(one.prepared[other]) for one in found):
                return side
        return None

    wanted = FIRST_LOOK + CONFIRMING_LOOKS[0]
    found = until_confirmed(quantity, wanted, lambda found: slower_side(found) is not None)[:wanted]
    side, odd = slower_side(found), [record for record in found if _unsettled(record, quantity.cells)]
    verdict = Verdict.INCONCLUSIVE
    if side is not None and len(found) >= wanted:
        verdict = Verdict.FAIL if side == mine else Verdict.PASS
    answered = throughput_ratio(Measurement(source, mine, mine), Measurement(source, theirs, theirs))
    values = [value for record in found if (value := answered.of_launch(record)) is not None]
    estimate = quantity.present(values) if values else Estimate(quantity.metric.name, math.nan, math.nan, math.nan, 0)
    reason = _why_unsettled(odd, found, quantity.cells)
    return Decision(verdict, estimate, None, "", reason, state=found[0].home, of_launches=False)


def _unsettled(record: LaunchRecord, cells: Sequence[Cell]) -> Cell | None:
    """Return the first of these cells whose queue did not settle in a launch, None where all did."""
    return next((cell for cell in cells if has_no_latency(record.prepared[cell])), None)


def _why_unsettled(odd: Sequence[LaunchRecord], found: Sequence[LaunchRecord], cells: Sequence[Cell]) -> str:
    """Return in how many launches a queue did not settle, and what the last of these says of which side."""
    cell = _unsettled(odd[-1], cells)
    assert cell is not None
    where = f"on {cell.side}" if cell.side else "here"
    return f"{len(odd)} of {units.count(len(found), 'launch', 'launches')}: {where} {odd[-1].prepared[cell].reason}"


class Together:
    """What becomes of cells that are judged one after the other, each whatever became of those before it."""

    def __init__(self) -> None:
        self._failed: list[str] = []
        # By how much it says: a cell without a time, a skip, and what was not there to be judged.
        self._kept: dict[int, BaseException] = {}

    @contextlib.contextmanager
    def judging(self) -> Iterator[None]:
        """Keep what the claim of one cell raises where the others can be judged all the same."""
        import pytest

        try:
            yield
        except AssertionError as error:
            self._failed.append(str(error))
        except CellFailed as error:
            self._kept.setdefault(0, error)
        except pytest.skip.Exception as error:
            self._kept.setdefault(1, error)
        except (NarrowedAway, NotStored) as error:
            self._kept.setdefault(2, error)

    @property
    def failed(self) -> str:
        """Return what failed, all of it, or nothing where nothing did."""
        return "\n\n".join(self._failed)

    def raise_what_was_kept(self) -> None:
        """Raise what says the most of those that could not be decided, the first of its kind, if there are any."""
        __tracebackhide__ = True
        if self._kept:
            raise self._kept[min(self._kept)]


def _measurer(helper: str, cell: Measurement) -> Measurer:
    """Return the running test's door to the session. Raise NoOtherSide where the run compares nothing."""
    if cell.other is None:
        raise NoOtherSide(f"{helper}: {cell.cell.label} is compared with nothing; {HOW_TO_COMPARE}")
    if not isinstance(cell.source, Measurer):
        raise ClaimError(f"{helper}: {cell.cell.label} is read from the store; claims are made in tests")
    return cell.source


def _each(
    helper: str,
    sweep: Mapping[int, Measurement] | Mapping[str, Measurement],
    judge: Callable[[Measurement], Estimate],
    worst: Callable[..., Estimate] = min,
) -> Estimate:
    """Judge every cell of a sweep, whatever becomes of the others. Return the worst. Raise what failed, all of it."""
    __tracebackhide__ = True
    found: list[Estimate] = []
    together = Together()
    for one in sweep.values():
        with together.judging():
            found.append(judge(one))
    if together.failed:
        raise AssertionError(together.failed)
    together.raise_what_was_kept()
    if not found:
        raise ClaimError(f"{helper}: the sweep has no cells")
    return worst(found, key=lambda estimate: estimate.value)


def _without_other(cell: Measurement, helper: str, words: str, metric: str, failed: CellFailed) -> Estimate:
    """Judge a cell that has no time on the other side: new, wrong, or not to be compared."""
    __tracebackhide__ = True
    if failed.cell != cell.other or failed.record.outcome is Outcome.MISMATCH:
        raise failed
    reason, measurer = failed.record.reason, _measurer(helper, cell)
    if reason.startswith(NOT_THERE):
        return _settled(cell, helper, words, metric, Verdict.PASS, f"new: {reason}")
    why = f"no time on the other side: {failed.record.outcome}: {reason}"
    estimate = _settled(cell, helper, words, metric, Verdict.INCONCLUSIVE, why)
    inconclusive(measurer.session.settings.inconclusive, f"{words}\n  inconclusive: {why}")
    return estimate


def _settled(
    cell: Measurement,
    helper: str,
    words: str,
    metric: str,
    verdict: Verdict,
    reason: str,
    estimate: Estimate | None = None,
    bound: float = 1.0,
    tolerance: float | None = None,
) -> Estimate:
    """Keep a verdict that no statistics were needed for, and return its number, NaN where there is none."""
    measurer = _measurer(helper, cell)
    known = estimate or Estimate(metric, math.nan, math.nan, math.nan, 0)
    settle(
        measurer,
        cell,
        helper,
        words,
        known,
        verdict,
        reason,
        bound,
        measurer.tolerance if tolerance is None else tolerance,
        at_least=metric != "model_bytes",
        side=cell.beside.cell.side,
    )
    return known

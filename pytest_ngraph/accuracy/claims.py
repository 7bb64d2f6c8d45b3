"""The helpers that claim accuracy and agreement: of one pass over samples, judged by exact intervals over these."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from pytest_ngraph.accuracy.judging import Judged, by_interval, of_drop, of_share
from pytest_ngraph.claims.assertions import inconclusive, keep, of_the_file
from pytest_ngraph.claims.decide import Decision
from pytest_ngraph.claims.given import BoundGiven, bound_for, of_kind, whole
from pytest_ngraph.claims.plans import ANOTHER_PLAN, FRESH, Plan, test_of
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.options.bounds import HISTORY
from pytest_ngraph.quantities.accuracy import (
    ACCURACY,
    AGREEMENT,
    CENTRED,
    SAMPLES,
    TOP1,
    OfAPass,
    agreed_of,
    of_a_pass,
    score_of,
)
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, Measurer
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.spec.evaluations import Evaluation
from pytest_ngraph.stats.verdict import ERROR_RATE, Bound, Verdict

DROP = "accuracy_drop"


def assert_accuracy(cell: Measurement, *, at_least: BoundGiven | None = None, of: str = TOP1) -> Estimate:
    """Claim the share of samples that a compiled cell gets right, by the model's own ``evaluate(predict)``.

    ``of`` is one of the names that it gives. The claim is about whatever the samples were drawn from: it passes where
    the exact binomial interval over them lies at ``at_least`` or above, and fails where it lies below. It is judged by
    every protocol, for it has nothing to do with time.
    """
    __tracebackhide__ = True
    claim = _Claim("assert_accuracy", of_kind("assert_accuracy", cell, Measurement), _name("assert_accuracy", of))
    bound = claim.bound("at_least", at_least)
    score = score_of(cell.cell, claim.evaluation(cell.cell), of)
    return claim.settle(f"{ACCURACY}:{of}", bound, of_share(score.hits, score.samples, claim.level, bound))


def assert_accuracy_drop(cell: Measurement, *, at_most: BoundGiven = 0.01, of: str = TOP1) -> Estimate:
    """Claim by how much less often a cell is right than the dense f32 model under the baseline, on the same samples.

    A drop of 0.01 is one sample in a hundred. It is judged by the samples on which only one of the two is right: the
    interval for the difference of two paired shares is exact, and the p-value of McNemar's test is beside it. Where an
    evaluation gives shares only, samples cannot be paired, and the interval is wider.
    """
    __tracebackhide__ = True
    helper = "assert_accuracy_drop"
    claim = _Claim(helper, of_kind(helper, cell, Measurement), _name(helper, of))
    bound, dense = claim.bound("at_most", at_most), cell.dense
    mine = claim.evaluation(cell.cell)
    theirs = mine if dense == cell.cell else claim.evaluation(dense)
    if mine.inputs != theirs.inputs:
        raise ClaimError(
            f"{helper}: {cell.cell.label} was evaluated on other samples than {dense.label} ({mine.samples} and "
            f"{theirs.samples}); evaluate must show predict the same ones in the same order in every process; where "
            "its data have changed since one of them was evaluated, --ngraph-fresh evaluates both again"
        )
    found = of_drop(score_of(cell.cell, mine, of), score_of(dense, theirs, of), claim.level, bound, dense.label)
    if dense == cell.cell:
        found = Judged(Verdict.PASS, 0.0, 0.0, 0.0, "it is the dense f32 model under the baseline itself")
    return claim.settle(f"{DROP}:{of}", bound, found, [dense])


def assert_agreement(
    cell: Measurement, *, at_least: BoundGiven | None = None, of: str = TOP1, samples: int = SAMPLES
) -> Estimate:
    """Claim how well a cell agrees with the dense f32 model under the baseline, on inputs drawn from the seed.

    It needs no data and says nothing of accuracy: a model that is always wrong agrees with itself. ``of`` is ``top1``,
    the share of ``samples`` whose largest class score is at the same place, judged by its exact binomial interval, or
    ``centred_cosine``, the cosine of outputs once their mean is taken away, a number without chance. What outputs for
    other inputs would have passed, too, is inconclusive.
    """
    __tracebackhide__ = True
    helper = "assert_agreement"
    if of not in (TOP1, CENTRED):
        raise ClaimError(f"{helper}: of={of!r} (expected {TOP1!r} or {CENTRED!r})")
    claim = _Claim(helper, of_kind(helper, cell, Measurement), of)
    bound, dense, count = claim.bound("at_least", at_least), cell.dense, whole(f"{helper}: samples", samples)
    if dense == cell.cell:
        found = Judged(Verdict.PASS, 1.0, 1.0, 1.0, "it is the dense f32 model under the baseline itself")
        return claim.settle(f"{AGREEMENT}:{of}", bound, found)
    agreed = agreed_of(cell.source.agreement(cell.cell, dense, count), cell.cell)
    if of == CENTRED:
        if agreed.centred is None:
            raise ClaimError(f"{helper}: {dense.label} gives the same for all inputs: nothing is left to agree on")
        found = by_interval(agreed.centred, agreed.centred, agreed.centred, bound, f"{agreed.samples} seeded inputs")
        chance = agreed.centred_by_chance or 0.0
    else:
        if not agreed.scored:
            raise ClaimError(
                f"{helper}: {dense.label} gives no class scores, no row for each sample, or one class for all "
                f"{agreed.samples} seeded inputs, so there is no top-1 to agree on; claim of={CENTRED!r}"
            )
        found = of_share(agreed.matches, agreed.scored, claim.level, bound, "seeded inputs")
        chance = agreed.by_chance / agreed.scored
    return claim.settle(f"{AGREEMENT}:{of}", bound, found.beside_chance(chance, bound), [dense])


@dataclass(frozen=True, slots=True)
class _Claim:
    """A claim of a helper about a cell: how its bound is read, what it is judged by, and what becomes of it."""

    helper: str
    cell: Measurement
    of: str

    @property
    def level(self) -> float:
        """Return how often it may err to each side: both together err at the run's error rate."""
        return self.cell.source.error_rate / 2

    def bound(self, side: str, given: BoundGiven | None) -> Bound:
        """Return the bound, that of the file of bounds where none is given. Raise ClaimError for what is no share."""
        place = f"{self.helper}: {side}"
        measurer = of_a_pass(self.cell.source, ACCURACY, "", self.cell.cell, dict).measurer
        if side == "at_least" and (entry := of_the_file(measurer, self.helper, given, None, None)) is not None:
            place = f"{self.helper}: {entry.place}: {entry.side}"
            if entry.side != side or entry.tolerance is not None:
                raise ClaimError(f"{place} (expected {side}, without a tolerance)")
            given = entry.bound
        if given is None:
            raise ClaimError(f"{self.helper}: give {side}=, a share from 0 to 1")
        if given == HISTORY:
            raise ClaimError(f"{place}={HISTORY!r} (expected a share from 0 to 1: there is no history of accuracy)")
        limit = bound_for(measurer, self.cell.target, given, place, "fraction")
        if not 0 <= limit <= 1:
            meant = f"; {limit / 100:g} is meant?" if 1 < limit <= 100 else ""
            raise ClaimError(f"{place}={limit:g} (expected a share from 0 to 1{meant})")
        return Bound(limit, side == "at_least", 0.0, "linear")

    def evaluation(self, cell: Cell) -> Evaluation:
        """Return what the evaluation gave of a cell, asking it first."""
        found = self.cell.source.evaluation(cell).evaluation
        if found is None:
            raise ClaimError(f"{self.helper}: {cell.label} was not evaluated")
        return found

    def settle(self, metric: str, bound: Bound, found: Judged, others: Sequence[Cell] = ()) -> Estimate:
        """Keep the verdict of a claim, and do to the test what it says."""
        __tracebackhide__ = True
        cell, title = self.cell.cell, METRICS[metric].title
        quantity = of_a_pass(self.cell.source, metric, f"{title} of {cell.label}", cell, dict)
        estimate = Estimate(metric, found.value, found.low, found.high, 1)
        claim = f"{self.helper}: {quantity.label} {bound.words} {bound.value:g} (no tolerance)"
        plan = _plan(quantity.measurer, claim, [cell, *others], found)
        notes = tuple(filter(None, [*found.notes, plan.note]))
        decision = Decision(found.verdict, estimate, None, "", found.reason, notes=notes, advice=found.advice)
        message = _message(self.helper, quantity, bound, decision, found, 1 - 2 * self.level)
        name = metric.replace(":", " ").replace("_", " ")
        keep(
            claim,
            self.helper,
            quantity,
            self.cell.target,
            bound,
            decision,
            message,
            plan,
            name,
            untimed=True,
            over=found.of,
        )
        if found.verdict is Verdict.FAIL:
            raise AssertionError(message)
        if found.verdict is not Verdict.PASS:
            inconclusive(quantity.measurer.session.settings.inconclusive, message)
        return estimate


def _plan(measurer: Measurer, claim: str, cells: Sequence[Cell], found: Judged) -> Plan:
    """Return the plan by which a claim over samples is judged now, which is another one at another error rate only.

    How many launches a budget allows, and how they confirm a fail, is of what is timed. What has no interval has no
    chance in it, and is the same at any rate.
    """
    session, rate = measurer.session, measurer.error_rate
    evidence, first = session.first_judgement(test_of(measurer), claim, cells)
    note = FRESH if session.settings.fresh else ""
    if first is not None and found.low < found.high:
        judged_at = first.extra.get("error_rate", ERROR_RATE)
        if judged_at != rate:
            note = (
                f"{ANOTHER_PLAN}: an error rate of {rate:g} now, {judged_at:g} when it was first judged, "
                f"{first.verdict}"
            )
    return Plan(measurer.most_launches, evidence, note, rate)


def _message(helper: str, quantity: OfAPass, bound: Bound, decision: Decision, found: Judged, confidence: float) -> str:
    write = quantity.metric.format
    value, limit = write(found.value), write(bound.value)
    name = quantity.metric.name.replace(":", " ").replace("_", " ")
    is_beyond = found.value < bound.value if bound.at_least else found.value > bound.value
    sign = ("<" if bound.at_least else ">") if found.verdict is Verdict.FAIL and is_beyond else ""
    side = bound.words.replace("_", " ")
    first = f"{name} {value} {sign} {limit}" if sign else f"{name} {value}, {found.verdict}: {side} {limit}"
    interval = f"{100 * confidence:g} % interval {write(found.low)} to {write(found.high)}"
    exact = math.isclose(found.low, found.high) and found.low == found.value
    lines = [
        f"{first}: {helper}: {quantity.label}",
        f"  claimed {side} {limit}",
        f"  {found.verdict}: {value}{'' if exact else f', {interval}'}{f', {found.of}' if found.of else ''}"
        + (f"; {found.reason}" if found.reason else ""),
        *(f"  note: {note}" for note in decision.notes),
    ]
    if decision.advice:
        lines.append(f"  what to do: {decision.advice}")
    return "\n".join(lines)


def _name(helper: str, of: object) -> str:
    if not isinstance(of, str) or not of:
        raise ClaimError(f"{helper}: of={of!r} (expected a name that evaluate gives, such as {TOP1!r})")
    return of

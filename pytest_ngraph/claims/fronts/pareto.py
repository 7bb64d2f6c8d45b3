"""That a configuration stays on the front: no other one dominates it, judged as every gate is."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pytest_ngraph import units
from pytest_ngraph.choosing.comparing import TIMED, Candidate, Compared, Rows, of_launches, paired, shares, unknown
from pytest_ngraph.choosing.front import task_of
from pytest_ngraph.choosing.objectives import Objective, is_share, objectives
from pytest_ngraph.claims.assertions import claim_context, inconclusive, keep
from pytest_ngraph.claims.decide import Decision, Rule, decide, rows_of, without_error_control
from pytest_ngraph.claims.explain import advice, headline
from pytest_ngraph.claims.given import number, several
from pytest_ngraph.claims.percentiles import open_where_unsettled
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.metrics import METRICS, Metric
from pytest_ngraph.quantities.accuracy import ACCURACY, TOP1
from pytest_ngraph.quantities.comparisons import refuse_apart
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import CellFailed, Estimate, NarrowedAway, NotStored, Quantity, in_unit
from pytest_ngraph.session.session import FIRST_LOOK
from pytest_ngraph.spec.cells import Cell, LaunchRecord
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.order import Contrast, cannot_dominate, dominates
from pytest_ngraph.stats.sessions import difference, mean_of
from pytest_ngraph.stats.verdict import Bound, Verdict, smallest_visible

_HELPER = "assert_pareto"
_WORST_FIRST = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.NOT_JUDGED, Verdict.PASS)
_MOST_PAIRS = 8


def assert_pareto(
    cells: Measurement | Sequence[Measurement],
    *,
    among: Iterable[Measurement] | None = None,
    over: Sequence[str] = ("latency", "throughput"),
    tolerance: float | None = None,
) -> Estimate:
    """Claim that a configuration stays on the front: that no other one dominates it.

    ``cells`` is the configuration, or several of which each is claimed to be on it, and ``among`` are those that it is
    compared with, without it the claimed ones themselves. All are of one model and one launch group, such as
    ``ngraph.measure(compiler=["onnxruntime", "openvino"], batch=[1, 8])`` gives. One dominates another if it is no
    worse by any objective of ``over`` and better by one, each by more than the tolerance (docs/choosing.md). Of claims
    that hold at most 1 in 100 fails, however many there are to compare with. Those that have no time, or give wrong
    outputs, dominate nothing. Returns the factor by which the rival that decides is better by the first objective; of a
    share of samples it is the difference.
    """
    __tracebackhide__ = True
    front = _front_of(cells, among, over, tolerance)
    decided = _decide(front)
    pair, decision = decided[0]
    label = f"{', '.join(one.cell.label for one in front.claimed)} among {len(front.rivals)}"
    names = ", ".join(each.name for each in front.over)
    claim = f"{_HELPER}: {label} over {names} (tolerance {front.tolerance:g})"
    plan, decision = claim_context(
        pair.quantity, decision, claim, [one.cell for one in (*front.claimed, *front.rivals)]
    )
    message = _explain(front, claim, [(pair, decision), *decided[1:]])
    named = replace(decision, reason="; ".join(filter(None, [pair.name, decision.reason])))
    keep(claim, _HELPER, pair.told, pair.one.cell.target, front.bound, named, message, plan, pair.name)
    if decision.verdict is Verdict.FAIL:
        raise AssertionError(message)
    if decision.verdict not in (Verdict.PASS, Verdict.NOT_JUDGED):
        inconclusive(front.claimed[0].quantity("latency").measurer.session.settings.inconclusive, message)
    return decision.estimate


@dataclass(frozen=True)
class _Claim:
    """Who is claimed to be on the front, against whom, and by what. ``left_out`` are those without a time."""

    claimed: Sequence[Measurement]
    rivals: Sequence[Measurement]
    over: Sequence[Objective]
    tolerance: float
    left_out: Sequence[str]

    @property
    def bound(self) -> Bound:
        """Return the line that a rival is better beyond, on the scale of the first objective."""
        first = self.over[0]
        if first.metric.scale == "linear":
            return Bound(0.0, False, first.tolerance, "linear")
        return Bound(1.0, False, self.tolerance, "log")

    def pairs(self) -> list[_Pair]:
        """Return the pairs that make the claim: a rival over each of the claimed ones."""
        return [_Pair(rival, one, self.over) for one in self.claimed for rival in self.rivals if rival.cell != one.cell]


@dataclass(frozen=True)
class _Pair:
    """A rival and one that is claimed to be on the front."""

    rival: Measurement
    one: Measurement
    over: Sequence[Objective]

    @property
    def name(self) -> str:
        """Name the pair."""
        return f"{Candidate(self.rival).name} over {Candidate(self.one).name}"

    @property
    def quantity(self) -> Quantity:
        """Return by what launches are counted: the ratio of the two by the first objective that is timed.

        Where none is, by passes for memory or by whatever launches both were in: no control is about what is not timed.
        """
        timed = next((each for each in self.over if each.name in TIMED), None)
        if timed is not None:
            return paired(self.rival, self.one, timed)
        if any(each.metric.name == "peak_memory_bytes" for each in self.over):
            return self.one.quantity("peak_memory_bytes")
        cells = (self.rival.cell, self.one.cell)
        label = f"{self.over[0].name} of {cells[0].label} over {cells[1].label}"
        return Quantity(self.rival.source, self.metric, label, cells, cells[0], _counted, takes_disturbed=True)

    @property
    def metric(self) -> Metric:
        """Return what the number of a claim is: a factor by the first objective, a difference of shares of samples."""
        first = self.over[0]
        if first.name in TIMED:
            return METRICS["throughput_ratio"]
        if first.metric.scale == "log":
            return METRICS[f"advantage:{first.name}"]
        if first.metric.name == ACCURACY:
            return METRICS[f"accuracy_drop:{first.of or TOP1}"]
        return METRICS[f"{first.metric.name}:difference"]

    @property
    def told(self) -> Quantity:
        """Return the quantity as a verdict is told and kept: with the metric of its number."""
        return replace(self.quantity, metric=self.metric)

    def compared(self, rows: Rows, *, by_second: bool = False) -> list[Compared]:
        """Return how the rival compares by each objective, in just these launches."""
        return [self.by(each, rows, by_second=by_second) for each in self.over]

    def by(self, objective: Objective, rows: Rows, *, by_second: bool = False) -> Compared:
        """Return how the rival compares by one objective, in just these launches."""
        if objective.name in TIMED:
            quantity = paired(self.rival, self.one, objective)
            of_launch = quantity.of_second if by_second and quantity.of_second is not None else quantity.of_launch
            values = [value for record, _ in rows if (value := of_launch(record)) is not None]
            return of_launches(objective, values, 1.0) if values else unknown(objective, "no launch of both counts")
        if is_share(objective.metric):
            try:
                return shares(Candidate(self.rival), Candidate(self.one), objective)
            except (NotStored, CellFailed):
                return unknown(objective, f"{objective.name} not measured")
        return self._apart(objective, rows)

    def _apart(self, objective: Objective, rows: Rows) -> Compared:
        """Return the same where each has launches of its own: as many of them, and from the same one on."""
        start, both = self._place(rows), []
        for cell in (self.rival, self.one):
            try:
                found = rows_of(cell.quantity(objective.quantity), start + len(rows), beyond_budget=start > 0)
            except (NotStored, SpecError):
                found = []
            both.append([value for _, value in found[start:]] or [value for _, value in found])
        if not all(both):
            return unknown(objective, f"{objective.name} not measured")
        sign = 1 if objective.is_higher_better else -1
        means = [math.fsum(value.value for value in values) / len(values) for values in both]
        is_counted = objective.metric.unit == "bytes" and not self.one.quantity(objective.metric.name).memory
        if is_counted and all(len({value.value for value in values}) == 1 for values in both):
            contrast = Contrast.exactly(sign * (means[0] - means[1]), objective.zone)
            return Compared(objective, contrast, "exact", "", len(both[0]))
        now, then = (mean_of([values]) for values in (both if sign > 0 else both[::-1]))
        spread = difference(now, then, None)
        return Compared(
            objective, Contrast.of(spread, objective.zone, 1.0), "own launches", "", spread.launches, spread
        )

    def _place(self, rows: Rows) -> int:
        """Return which of the pair's launches the first of these is: fresh ones are looked at by themselves."""
        known, first = [record.identity for record, _ in self.quantity.rows()], rows[0][0].identity
        return known.index(first) if first in known else 0


def _counted(record: LaunchRecord) -> LaunchValue:
    """Return that a launch counts, whatever it says of times."""
    return LaunchValue(0.0, 0.0, 1)


def _front_of(
    cells: Measurement | Sequence[Measurement],
    among: Iterable[Measurement] | None,
    over: Sequence[str],
    tolerance: float | None,
) -> _Claim:
    """Return the claim. Raise ClaimError for what cannot be compared, NarrowedAway where nothing is left to compare."""
    given = [cells] if isinstance(cells, Measurement) else several(_HELPER, cells)
    others = given if among is None else several(_HELPER, among)
    if not given:
        raise ClaimError(f"{_HELPER}: no measurement is given (expected one, or a list of them)")
    if isinstance(over, str):
        raise ClaimError(f"{_HELPER}: over={over!r} (expected several names, such as over=({over!r},))")
    every = list({one.cell: one for one in [*given, *others]}.values())
    tasks = dict.fromkeys(str(task_of(one.cell)) for one in every)
    if len(tasks) > 1:
        raise ClaimError(f"{_HELPER}: the measurements are of {'; '.join(tasks)} (expected one model on one device)")
    refuse_apart(_HELPER, every)
    measurer = given[0].quantity("latency").measurer
    allowed = measurer.tolerance if tolerance is None else number(f"{_HELPER}: tolerance", tolerance, "fraction")
    if not 0 <= allowed < 1:
        raise ClaimError(f"{_HELPER}: tolerance={allowed:g} (expected a fraction, 0 <= tolerance < 1)")
    try:
        chosen = objectives(over, f"{_HELPER}: over", {"": allowed})
    except SpecError as error:
        raise ClaimError(str(error)) from None
    for one in given:
        one.ensure()
    rivals, left_out = [], []
    for other in others:
        try:
            other.ensure()
            rivals.append(other)
        except CellFailed as failed:
            left_out.append(f"{other.cell.label}: {failed.record.outcome}")
    claim = _Claim(given, rivals, chosen, allowed, left_out)
    if not claim.pairs():
        there = ", ".join(dict.fromkeys(one.cell.label for one in given))
        lacking = f"{_HELPER}: a front needs two configurations (there: {there}"
        if left_out:
            raise NarrowedAway(f"{lacking}; without a time: {', '.join(left_out)})")
        if not others:
            raise ClaimError(f"{lacking}, and among= is empty); leave it away to compare those with one another")
        raise ClaimError(f"{lacking}); measure several: ngraph.measure(compiler=[...], batch=[1, 8])")
    return claim


# Deciding


def _decide(front: _Claim) -> list[tuple[_Pair, Decision]]:
    """Judge the pairs, those first that seem to fail, of each claimed one until it fails. The worst leads.

    The claim fails if any pair does and passes if all do. So a pair may fail at its share of the error rate only
    (Bonferroni), and pass at all of it (``stats.order``).
    """
    pairs = sorted(front.pairs(), key=_lead)
    bound, decided = Bound(1.0, False, front.tolerance, "log"), list[tuple[_Pair, Decision]]()
    failed: set[Cell] = set()
    for pair in pairs:
        if pair.one.cell in failed:
            # It is off the front already.
            continue
        source = pair.quantity.source
        if source.error_control:
            decision = decide(pair.quantity, bound, front.tolerance, _rule(pair, len(pairs)))
            decision = open_where_unsettled(pair.quantity, decision)
        else:
            decision = without_error_control(pair.quantity, lambda _, pair=pair: _by_points(pair))  # type: ignore[misc]
        decided.append((pair, _by_the_first(pair, decision)))
        if decision.verdict is Verdict.FAIL:
            failed.add(pair.one.cell)
    return sorted(decided, key=lambda one: _WORST_FIRST.index(one[1].verdict))


def _by_the_first(pair: _Pair, decision: Decision) -> Decision:
    """Return a decision with the number that is promised, by the first objective, whatever launches were counted by.

    NaN stands for what is not known by it, where another objective decides.
    """
    first, estimate = pair.over[0], decision.estimate
    if first.name in TIMED or not estimate.launches:
        # By this launches were counted.
        return decision
    found = pair.by(first, pair.quantity.rows()[: estimate.launches])
    theta, (low, high) = found.contrast.theta, found.contrast.ends((1 - decision.confidence) / 2)
    value, low, high = (math.nan if math.isnan(theta) else in_unit(pair.metric, end) for end in (theta, low, high))
    visible = None
    if found.spread is not None and found.spread.launches > 1:
        visible = smallest_visible(found.spread, first.metric.scale)
    # What the counted launches scatter by is of another number.
    return replace(
        decision,
        estimate=Estimate(pair.metric.name, value, low, high, estimate.launches),
        smallest_visible=visible,
        noise="",
        of_launches=False,
    )


def _lead(pair: _Pair) -> float:
    """Return by how much the rival seems to be worse, at most, in the launches of the first look.

    Of further ones, which others measured, each would take a pass for what has passes of its own.
    """
    rows = pair.quantity.rows()[:FIRST_LOOK]
    thetas = [each.contrast.theta for each in pair.compared(rows) if math.isfinite(each.contrast.theta)] if rows else []
    return max((-theta for theta in thetas), default=0.0)


def _by_points(pair: _Pair) -> bool:
    rows = pair.quantity.rows()
    points = [Contrast.exactly(each.contrast.theta, each.contrast.zone) for each in pair.compared(rows)]
    return dominates(points, 0.1)


def _rule(pair: _Pair, claims: int) -> Rule:
    def said(rows: Rows, level: float, claims: int, *, by_second: bool = False) -> Verdict:
        contrasts = [each.contrast for each in pair.compared(rows, by_second=by_second)]
        if cannot_dominate(contrasts, level):
            return Verdict.PASS
        return Verdict.FAIL if dominates(contrasts, level / claims) else Verdict.INCONCLUSIVE

    def opposed(verdict: Verdict, rows: Rows, level: float) -> str:
        opposite = {Verdict.PASS: Verdict.FAIL, Verdict.FAIL: Verdict.PASS}.get(verdict)
        if opposite is None or said(rows, level, claims, by_second=True) is not opposite:
            return ""
        return ", ".join(each.text(level) for each in pair.compared(rows, by_second=True))

    # Fresh launches confirm a fail that has had its share of the error rate already.
    return Rule(partial(said, claims=claims), opposed, partial(said, claims=1))


# Explaining


def _explain(front: _Claim, claim: str, decided: Sequence[tuple[_Pair, Decision]]) -> str:
    worst, decision = decided[0]
    lines = [
        f"{headline(worst.name, worst.told, front.bound, decision)}: {claim}",
        "  claimed that no other configuration is as good by all of these and better by one",
    ]
    if not decision.estimate.launches:
        return "\n".join([*lines, f"  {decision.verdict}: {decision.reason}"])
    alike = [one for one in decided if one[1].verdict is decision.verdict]
    shown = alike[: 1 if decision.verdict is Verdict.PASS else _MOST_PAIRS]
    lines += [f"  {one.verdict}: {_words(pair, one)}" for pair, one in shown]
    if len(alike) > len(shown):
        lines.append(f"  and {units.count(len(alike) - len(shown), 'pair')} more")
    lines += [f"  without a time, so better than nothing: {', '.join(front.left_out)}"] if front.left_out else []
    lines += [f"  state of the machine: {decision.state_words}"] if decision.state_words else []
    lines += [f"  note: {note}" for note in decision.notes]
    if what := advice(worst.told, front.bound, decision):
        lines.append(f"  what to do: {what}")
    return "\n".join(lines)


def _words(pair: _Pair, decision: Decision) -> str:
    rows = pair.quantity.rows()[: decision.estimate.launches]
    said = ", ".join(each.text(0.005) for each in pair.compared(rows))
    reason = f"; {decision.reason}" if decision.reason else ""
    launches = units.count(decision.estimate.launches, "launch", "launches")
    return f"{pair.name}: {said}, {launches}{reason}"

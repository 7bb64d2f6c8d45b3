"""Whether an order of models by throughput holds: each pair is a gate of its own, and one error rate is for all."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import combinations, pairwise
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.claims.decide import Decision, Rule, decide, second_values, without_error_control
from pytest_ngraph.claims.explain import advice, headline, thread_notes
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.quantities.comparisons import as_baseline, refuse_incomparable, throughput_ratio
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, Measurer, NarrowedAway, Quantity
from pytest_ngraph.quantities.sweeps import ModelSweep
from pytest_ngraph.stats.launches import LaunchValue, interval
from pytest_ngraph.stats.order import judge_kept, judge_one_of
from pytest_ngraph.stats.verdict import Bound, Verdict

if TYPE_CHECKING:
    from pytest_ngraph.claims.decide import Rows

_MOST_PAIRS = 8
_WORST_FIRST = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE, Verdict.NOT_JUDGED, Verdict.PASS)


@dataclass(frozen=True, slots=True)
class Pair:
    """The throughput of one model over another's. With the baseline, too, where that says what their order is."""

    name: str
    compiled: Quantity
    baseline: Quantity | None = None

    @property
    def lead(self) -> float:
        """Return ln of how far the pair is from having changed places, by its points. Measures the first look."""
        after = _mean(self.compiled)
        return after if self.baseline is None else max(-abs(_mean(self.baseline)), after)


@dataclass(frozen=True, slots=True)
class Order:
    """A claim about the order of models: ``cells`` by name, fastest first where ``is_given``, else as it came."""

    cells: Mapping[str, Measurement]
    is_given: bool

    @property
    def measurer(self) -> Measurer:
        """Return the running test's door to the session."""
        return next(iter(self.cells.values())).quantity("throughput").measurer

    @property
    def target(self) -> str:
        """Name the compiler-device pair."""
        return next(iter(self.cells.values())).target

    @property
    def baseline(self) -> str:
        """Name what the cells are compared with."""
        return str(next(iter(self.cells.values())).baseline.compiler)

    @property
    def label(self) -> str:
        """Name the claim in a line that is the same whatever is measured."""
        axes = {tuple(one.workload.axis_labels()) for one in self.cells.values()}
        shared = f" at {' '.join(axes.pop())}" if len(axes) == 1 else ""
        if self.is_given:
            return f"throughput with {self.target}{shared}, fastest first: {', '.join(self.cells)}; each over the next"
        return f"throughput with {self.target}{shared} in the order of {self.baseline}: {', '.join(self.cells)}"

    def pairs(self) -> list[Pair]:
        """Return the pairs that make the claim.

        Neighbours are enough for a chain of models. Where the order is the baseline's, all pairs are needed: models
        that are equally fast with the baseline may come in any order between themselves, and neighbours in one such
        order would miss what is not next to each other. The first of a pair is the faster one with the baseline.
        """
        named = list(self.cells.items())
        if self.is_given:
            return [Pair(f"{a} over {b}", throughput_ratio(one, other)) for (a, one), (b, other) in pairwise(named)]
        return [_kept(*pair) for pair in combinations(named, 2)]


def _kept(one: tuple[str, Measurement], other: tuple[str, Measurement]) -> Pair:
    """Return a pair whose order is the baseline's."""
    compiled, baselines = (one[1].cell, other[1].cell), (one[1].baseline, other[1].baseline)
    against = throughput_ratio(as_baseline(one[1]), as_baseline(other[1]), beside=compiled)
    if _mean(against) < 0:
        return _kept(other, one)
    return Pair(f"{one[0]} over {other[0]}", throughput_ratio(one[1], other[1], beside=baselines), against)


def _mean(quantity: Quantity) -> float:
    values = quantity.values()
    return math.fsum(value.value for value in values) / len(values) if values else 0.0


def order_of(
    helper: str, models: Mapping[str, Measurement] | Sequence[Measurement], order: Sequence[str] | None
) -> Order:
    """Return the claim that models come in an order by throughput, that of the baseline where none is given.

    Raises ClaimError where the models cannot be compared or the order is not one of them, NarrowedAway where the
    command line left too few.
    """
    cells = _named(helper, models)
    if order is not None:
        given = list(order)
        if isinstance(order, str) or len(given) < 2 or len(set(given)) < len(given):
            raise ClaimError(f"{helper}: order {order!r} (expected two or more different models, fastest first)")
        unknown = [name for name in given if name not in cells]
        if unknown and not isinstance(models, ModelSweep):
            raise ClaimError(f"{helper}: {unknown[0]} is not among the models (there: {', '.join(cells)})")
        # A sweep knows what the command line narrowed away.
        cells = {name: models[name] if isinstance(models, ModelSweep) else cells[name] for name in given}
    if len(cells) < 2:
        lacking = f"{helper}: an order needs two models (there: {', '.join(cells) or 'none'})"
        if isinstance(models, ModelSweep) and len(models.models) > 1:
            raise NarrowedAway(f"{lacking}; the others were narrowed away on the command line")
        raise ClaimError(f"{lacking}; name them in models=[...]")
    targets = dict.fromkeys(one.target for one in cells.values())
    if len(targets) > 1:
        raise ClaimError(
            f"{helper}: the measurements are of {', '.join(targets)} (expected one compiler on one device)"
        )
    baselines = dict.fromkeys(str(one.baseline.compiler) for one in cells.values())
    if order is None and len(baselines) > 1:
        raise ClaimError(
            f"{helper}: the models have different baselines ({', '.join(baselines)}), so there is no order to keep; "
            "give baseline= in the marker, or the order"
        )
    for one, other in combinations(cells.values(), 2):
        refuse_incomparable(helper, one, other)
    return Order(cells, order is not None)


def _named(helper: str, models: Mapping[str, Measurement] | Sequence[Measurement]) -> dict[str, Measurement]:
    """Return measurements by the shortest name that is unique among them."""
    if isinstance(models, Mapping):
        return {str(name): one for name, one in models.items()}
    if isinstance(models, str | Measurement) or not isinstance(models, Iterable):
        raise ClaimError(f"{helper}: {models!r} (expected the fixture ngraph_models, or a list of measurements)")
    for one in models:
        if not isinstance(one, Measurement):
            raise ClaimError(f"{helper}: {one!r} (expected the fixture ngraph_models, or a list of measurements)")
    by_model = {one.workload.model.text: one for one in models}
    by_workload = {one.workload.label: one for one in models}
    if len(by_workload) < len(models):
        raise ClaimError(f"{helper}: two of the measurements are of the same workload ({', '.join(by_workload)})")
    return by_model if len(by_model) == len(models) else by_workload


# Deciding


def decide_order(order: Order, bound: Bound) -> list[tuple[Pair, Decision]]:
    """Judge all pairs of an order, those first that seem to have changed places. The worst leads.

    The claim fails if any pair does and passes if all do. So a pair may fail at its share of the error rate only
    (Bonferroni), and pass at all of it (``stats.order``).
    """
    pairs = sorted(order.pairs(), key=lambda pair: pair.lead)
    decided: list[tuple[Pair, Decision]] = []
    for pair in pairs:
        if pair.compiled.source.error_control:
            decision = decide(pair.compiled, bound, bound.tolerance, _rule(pair, bound, len(pairs)))
        else:
            decision = without_error_control(pair.compiled, partial(_is_reversed, pair))
        decided.append((pair, decision))
    return sorted(decided, key=lambda one: _WORST_FIRST.index(one[1].verdict))


def _is_reversed(pair: Pair, compiled: Estimate) -> bool:
    """Return whether the whole interval of a ratio says that a pair has changed places, and with the baseline, too."""
    return compiled.high < 1 and (pair.baseline is None or pair.baseline.estimate().low > 1)


def _rule(pair: Pair, bound: Bound, claims: int) -> Rule:
    baseline = pair.baseline

    def said(before: Sequence[LaunchValue], after: Sequence[LaunchValue], level: float, claims: int) -> Verdict:
        if baseline is None:
            return judge_one_of(after, bound, level, claims)
        return judge_kept(before, after, bound, level, claims)

    def judged(rows: Rows, level: float, claims: int = claims) -> Verdict:
        records = [record for record, _ in rows] if baseline is not None else []
        before = [value for record in records if baseline and (value := baseline.of_launch(record)) is not None]
        return said(before, [value for _, value in rows], level, claims)

    def opposed(verdict: Verdict, rows: Rows, level: float) -> str:
        after = second_values(pair.compiled, rows)
        before = second_values(baseline, rows) if baseline is not None else []
        opposite = {Verdict.PASS: Verdict.FAIL, Verdict.FAIL: Verdict.PASS}.get(verdict)
        if not after or said(before, after, level, claims) is not opposite:
            return ""
        return str(pair.compiled.of_interval(interval(after, level)))

    # Fresh launches confirm a fail that has had its share of the error rate already.
    return Rule(judged, opposed, partial(judged, claims=1))


# Explaining


def explain_order(helper: str, order: Order, bound: Bound, decided: Sequence[tuple[Pair, Decision]]) -> str:
    """Write the verdict on an order for people: the pairs that matter, both orders with intervals, and what to do."""
    worst, decision = decided[0]
    claimed = "in the order given" if order.is_given else f"in the order that {order.baseline} gives them"
    lines = [
        f"{headline(worst.name, worst.compiled, bound, decision)}: {helper}: {order.label}",
        f"  claimed to be {claimed} (tolerance {100 * bound.tolerance:g} %)",
    ]
    if not decision.estimate.launches:
        return "\n".join([*lines, f"  {decision.verdict}: {decision.reason}"])
    alike = [one for one in decided if one[1].verdict is decision.verdict]
    shown = alike[: 1 if decision.verdict is Verdict.PASS else _MOST_PAIRS]
    lines += [f"  {one.verdict}: {_words(order, pair, one)}" for pair, one in shown]
    if len(alike) > len(shown):
        lines.append(f"  and {units.count(len(alike) - len(shown), 'pair')} more")
    lines += _places(order)
    lines += thread_notes(worst.compiled)
    lines += [f"  state of the machine: {decision.state_words}"] if decision.state_words else []
    lines += [f"  note: {note}" for note in decision.notes]
    if decision.smallest_visible is not None:
        visible = units.fraction(decision.smallest_visible)
        lines.append(f"  smallest effect this gate could have seen: {visible}; most noise is {decision.noise}")
    if what := advice(worst.compiled, bound, decision):
        lines.append(f"  what to do: {what}")
    return "\n".join(lines)


def _words(order: Order, pair: Pair, decision: Decision) -> str:
    """Return what became of a pair."""
    against = f"{pair.baseline.estimate()} with {order.baseline}, " if pair.baseline is not None else ""
    compiler = pair.compiled.subject.compiler
    launches = units.count(decision.estimate.launches, "launch", "launches")
    reason = f"; {decision.reason}" if decision.reason else ""
    return f"{pair.name}: {against}{decision.estimate} with {compiler}, {launches}{reason}"


def _places(order: Order) -> list[str]:
    """Return a line for each model, fastest first, with its throughputs and its places where two orders matter."""
    compiled = {name: one.throughput for name, one in order.cells.items()}
    places = sorted(compiled, key=lambda name: -compiled[name].value)
    if order.is_given:
        return [f"    {rank}. {name}: {compiled[name]}" for rank, name in enumerate(places, 1)]
    baseline = {name: as_baseline(one).throughput for name, one in order.cells.items()}
    return [
        f"    {rank}. {name}: {baseline[name]} with {order.baseline}, {compiled[name]} as number "
        f"{places.index(name) + 1} compiled"
        for rank, name in enumerate(sorted(baseline, key=lambda name: -baseline[name].value), 1)
    ]

"""A claim and how it is decided: looks at the launches there are, asks for more, ends in a verdict with its numbers.

Whatever gives it launches is judged here: a running test, on this machine or a remote device, and what is stored. All
of it reads the launches in their order, the first three, the first four and so on, however many there are by now:
what is stored is judged as it was judged live, so that running again changes nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.claims.doubts.controls import (
    disturbed_note,
    ended_after,
    left_alone,
    left_alone_note,
    shared_note,
    violated_beside_others,
    violated_control,
)
from pytest_ngraph.claims.doubts.lacking import COMPILE_PEAKS, ONCE, SPENT, hardly_serves, undecided, why_no_more
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.quantities.past import scatter_before
from pytest_ngraph.quantities.quantity import LEVEL, Estimate, Quantity, Source, second_channel
from pytest_ngraph.session.session import FIRST_LOOK
from pytest_ngraph.spec.cells import LaunchRecord, Reading
from pytest_ngraph.stats.launches import Interval, LaunchValue, dominant_noise, interval
from pytest_ngraph.stats.patterns import pattern_advice, pattern_words
from pytest_ngraph.stats.sequential import looks_for, spending
from pytest_ngraph.stats.sessions import KnownScatter, scatters_as_known, with_known_scatter
from pytest_ngraph.stats.verdict import (
    CONFIRMING_ALPHA,
    CONFIRMING_LOOKS,
    ERROR_RATE,
    Bound,
    Verdict,
    contradicts,
    is_clear_fail,
    judge,
    smallest_visible,
    with_room,
)

if TYPE_CHECKING:
    Rows = Sequence[tuple[LaunchRecord, LaunchValue]]

# Stated as at most 1 % a side: with plain t over few launches the looks together spend up to 1.15 times what is
# set here (tests/stats/test_stats_verdicts.py holds the figure).
ALPHA = 0.0085
# The share of the rate that is stated, whatever a run asks for.
_SHARE = ALPHA / ERROR_RATE
# Passes in a row that say nothing: no further one is made.
MOST_FRUITLESS = 3
_COMPILES_EACH_TIME = "rebuild=True in the marker: every pass then compiles again and gives a peak of its own"
CLEAR = "so far beyond the bound that it needs no confirmation"


@dataclass(frozen=True, slots=True)
class Decision:
    """A verdict with what it rests on. ``reason`` says why a gate stayed inconclusive."""

    verdict: Verdict
    estimate: Estimate
    smallest_visible: float | None
    noise: str
    reason: str = ""
    # What else must be known of it, such as that it was judged by another plan before.
    notes: tuple[str, ...] = ()
    # The state of the machine that its launches were in; None where the machine reports none.
    state: Reading | None = None
    state_words: str = ""
    # What stands in place of a bound that is not known yet.
    unknown_bound: str = ""
    # What would make it known, or help against what the launches do, in place of what usually helps.
    advice: str = ""
    # How its launches scattered in earlier runs, where it was judged by that, too.
    known: KnownScatter | None = None
    # It rests on visits that others disturbed, and holds all the same.
    disturbed: bool = False
    # How sure the interval is to hold the truth, by the level of the look that it is shown at.
    confidence: float = 1 - 2 * LEVEL
    # Its estimate is what the quantity says of launches, and no percentile of their calls.
    of_launches: bool = True


def _by_themselves(rows: Rows, level: float) -> Interval:
    return interval([value for _, value in rows], level)


@dataclass(frozen=True, slots=True)
class Rule:
    """How launches are judged at a one-sided level.

    ``judged`` is asked at every look. ``confirmed`` says whether fresh launches fail, too (``judged`` where it is
    None), ``opposed`` what the second channel says where that is the opposite of a verdict, else nothing. A pass is
    confirmed as a fail is where ``confirms_passes``, and a fail that ``is_clear`` needs no confirmation. What is
    ``far_within`` a bound passes by disturbed launches, too. ``spread`` is the interval that is shown, and ``known``
    how launches scattered before those of a gate, where that is in it.
    """

    judged: Callable[[Rows, float], Verdict]
    opposed: Callable[[Verdict, Rows, float], str]
    confirmed: Callable[[Rows, float], Verdict] | None = None
    confirms_passes: bool = False
    is_clear: Callable[[Rows, float], bool] = lambda rows, level: False
    far_within: Callable[[Rows, float], bool] = lambda rows, level: False
    spread: Callable[[Rows, float], Interval] = _by_themselves
    known: Callable[[Rows], KnownScatter | None] = lambda rows: None


class FirstLook(Source):
    """The launches of a gate's first look, which are measured where they are missing. Raises like ``Quantity.rows``.

    What a tolerance is a fraction of is read from them alone: launches that come later must not move it.
    """

    def __init__(self, quantity: Quantity) -> None:
        self.protocol, self.cpus = quantity.source.protocol, quantity.source.cpus
        self._launches = [record for record, _ in rows_of(quantity, FIRST_LOOK)]

    def records(self, quantity: Quantity) -> list[LaunchRecord]:
        """Return these launches, whatever the quantity."""
        return self._launches


def decide(quantity: Quantity, bound: Bound, tolerance: float, rule: Rule | None = None) -> Decision:
    """Judge a quantity against a bound, with as few launches as its error rate allows (docs/measuring.md, step 10).

    It looks at the launches as planned until one of the looks decides by the rule, that of the means where none is
    given, and checks what it says. ``tolerance`` is the fraction that the looks are planned by, ``bound`` says on which
    scale, and on linear metrics it has its own amount. Raises CellFailed where one of the cells has no time.
    """
    if rule is None and not quantity.source.error_control:
        return without_error_control(quantity, beyond(bound))
    rule, taking = rule or _rule_of_means(quantity, bound), quantity.disturbed or quantity
    quantity.source.records(quantity)  # the shortest way to the launches of the first look
    looks = looks_of(quantity.source, tolerance)
    for look, level in looks:
        rows = _within(taking, rows_of(taking, look)) if _may_have_room(quantity, look, bound) else []
        if (passed := _passed_with_room(rule, quantity, rows, look, level, bound)) is not None:
            return passed
        rows = _within(quantity, rows_of(quantity, look))
        if (passed := _passed_before_its_end(rule, quantity, rows, look, looks, bound)) is not None:
            return passed
        if len(rows) < look:
            return _lacking(rule, quantity, rows, level, bound)
        verdict, reason = rule.judged(rows, level), ""
        if verdict is Verdict.FAIL and rule.is_clear(rows, level):
            reason = CLEAR
        elif verdict is Verdict.FAIL or (verdict is Verdict.PASS and rule.confirms_passes):
            return _confirmed(rule, quantity, look, level, bound, verdict)
        if verdict is not Verdict.INCONCLUSIVE:
            return _checked(rule, quantity, rows, level, bound, verdict, reason)
    return _decision(rule, quantity, rows, level, bound, Verdict.INCONCLUSIVE, SPENT)


def _within(quantity: Quantity, rows: Rows) -> Rows:
    """Return the launches that the budget allowed of these: the first look, and what began before its end.

    Launches of later, which confirm something or are another gate's, must not change what was said without them.
    """
    if quantity.kind != "timed":
        return rows
    source = quantity.source
    records = source.records(quantity)[: source.most_launches]
    allowed = {
        record.identity for place, record in enumerate(records) if place < FIRST_LOOK or source.is_within(record)
    }
    if quantity.reused is not None:
        # Which launch stands for a number that many reuse is said of those that the budget allowed alone.
        return quantity.rows_of([record for record in records if record.identity in allowed])[: len(rows)]
    return [row for row in rows if row[0].identity in allowed]


def _lacking(rule: Rule, quantity: Quantity, rows: Rows, level: float, bound: Bound) -> Decision:
    """Return what becomes of a gate that got too few launches for a look."""
    if not rows:
        return _unmeasured(quantity)
    reason = why_no_more(quantity, len(rows))
    return _decision(rule, quantity, rows, level, bound, undecided(quantity), reason)


def _unmeasured(quantity: Quantity) -> Decision:
    nothing = Estimate(quantity.metric.name, math.nan, math.nan, math.nan, 0)
    return Decision(undecided(quantity), nothing, None, "", why_no_more(quantity, 0))


def _may_have_room(quantity: Quantity, look: int, bound: Bound) -> bool:
    """Return whether launches that others disturbed may let a gate pass at a look: where there are any, or may be."""
    taking = quantity.disturbed
    if taking is None or bound.is_strict or (not quantity.is_relative and bound.at_least == quantity.rises):
        return False
    known = taking.source.records(taking)
    return len(known) < look or any(record.is_disturbed for record in known)


def _passed_before_its_end(
    rule: Rule, quantity: Quantity, rows: Rows, look: int, looks: Sequence[tuple[int, float]], bound: Bound
) -> Decision | None:
    """Return the pass with room by the launches up to those that ended a gate before a look, or None.

    These are asked at the later looks, too. Launches that a later run adds change nothing of it.
    """
    if quantity.disturbed is None or not _may_have_room(quantity, 0, bound):
        return None
    records = quantity.source.records(quantity)
    if (end := ended_after(quantity, records)) is None:
        return None
    before = {record.identity for record in records[:end]}
    if len(rows) >= look and rows[look - 1][0].identity in before:
        return None
    taking = [row for row in _within(quantity.disturbed, quantity.disturbed.rows()) if row[0].identity in before]
    tried = (_passed_with_room(rule, quantity, taking[:some], some, level, bound) for some, level in looks)
    return next(filter(None, tried), None)


def _passed_with_room(
    rule: Rule, quantity: Quantity, rows: Rows, look: int, level: float, bound: Bound
) -> Decision | None:
    """Return the pass of what holds with room although others disturbed it, or None.

    What compares cells is disturbed on both sides, more or less alike. What others do to a time makes it longer: it
    says nothing against a bound that it exceeds, but for one that it stays far within. The launches of the look are
    read as they come, ``rows`` of them: which later ones there are changes nothing.
    """
    taking = quantity.disturbed or quantity
    disturbed = sum(bool(quantity.why_not(record)) for record, _ in rows)
    if len(rows) < look or not disturbed or not rule.far_within(rows, level):
        return None
    passed = _checked(rule, taking, rows, level, bound, Verdict.PASS)
    if passed.verdict is not Verdict.PASS:
        return None
    return replace(passed, notes=(*passed.notes, disturbed_note(quantity, disturbed, look)), disturbed=True)


def _rule_of_means(quantity: Quantity, bound: Bound) -> Rule:
    known = _scatter_before(quantity)

    def spread(rows: Rows, level: float) -> Interval:
        alone, scatter = _by_themselves(rows, level), known(rows)
        return alone if scatter is None else with_known_scatter(alone, scatter, level)

    def at(rows: Rows, level: float) -> Verdict:
        return judge(spread(rows, level), bound)

    def confirmed(rows: Rows, level: float) -> Verdict:
        return judge(_by_themselves(rows, level), bound)

    def is_clear(rows: Rows, level: float) -> bool:
        return is_clear_fail(_by_themselves(rows, level), bound, quantity.source.error_rate)

    def far_within(rows: Rows, level: float) -> bool:
        return bound.scale == "log" and judge(_by_themselves(rows, level), with_room(bound)) is Verdict.PASS

    # That something is faster is as strong a word as that it is slower: launches that happen to agree must not say it.
    opposed, strict = _by_the_second_channel(quantity, bound), bound.is_strict
    return Rule(
        at,
        opposed,
        confirmed,
        confirms_passes=strict,
        is_clear=is_clear,
        far_within=far_within,
        spread=spread,
        known=known,
    )


def _scatter_before(quantity: Quantity) -> Callable[[Rows], KnownScatter | None]:
    """Return what knows how a gate's launches scattered in earlier runs, where the run is to be judged by that."""
    if not quantity.source.noise_history or not quantity.timed:
        return lambda rows: None

    @cache
    def before(run: int, state: Reading | None) -> KnownScatter | None:
        session = quantity.measurer.session
        return scatter_before(session.book, quantity, run, state, Machine.of(session.bench.facts()))

    return lambda rows: before(rows[0][0].run, rows[0][0].home)


def looks_of(source: Source, tolerance: float) -> list[tuple[int, float]]:
    """Return after how many launches a gate is looked at, and the level of each. Raise ClaimError for too few."""
    try:
        looks = looks_for(source.most_launches, tolerance)
    except SpecError as error:
        raise ClaimError(str(error)) from None
    return [*zip(looks, spending(_SHARE * source.error_rate, looks, looks[-1]), strict=True)]


def decide_read(quantity: Quantity, bound: Bound, tolerance: float) -> Decision:
    """Judge a number that a machine may not say. Where too few launches have it, that is why it is open."""
    records = quantity.source.records(quantity)
    reasons = [dict(record.prepared[quantity.subject].unread).get(quantity.metric.name, "") for record in records]
    if records and not quantity.rows_of(records) and any(reasons):
        nothing = Estimate(quantity.metric.name, math.nan, math.nan, math.nan, 0)
        return Decision(Verdict.INCONCLUSIVE, nothing, None, "", f"it cannot be read: {next(filter(None, reasons))}")
    decision = decide(quantity, bound, tolerance)
    is_loaded = quantity.metric.name in COMPILE_PEAKS and not quantity.subject.rebuild and any(reasons)
    # What a pass loaded it did not compile, so that no budget is large enough.
    return replace(decision, advice=_COMPILES_EACH_TIME) if is_loaded else decision


def rows_of(quantity: Quantity, wanted: int, *, beyond_budget: bool = False, confirms: Bound | None = None) -> Rows:
    """Return the first launches of a quantity, as many as wanted or available."""
    rows, fruitless = quantity.rows(), 0
    # Of launches that time calls the group knows when no further one serves. Passes are a cell's own.
    while len(rows) < wanted and not hardly_serves(quantity) and fruitless < MOST_FRUITLESS:
        before = len(rows)
        if not quantity.source.one_more(quantity, beyond_budget=beyond_budget, confirms=confirms):
            break
        rows = quantity.rows()
        if len(rows) == before and quantity.metric.name in ONCE:
            break
        fruitless = fruitless + 1 if len(rows) == before and quantity.kind != "timed" else 0
    return rows[:wanted]


def _confirmed(rule: Rule, quantity: Quantity, look: int, level: float, bound: Bound, verdict: Verdict) -> Decision:
    """Return what a fail, or a pass, at a look becomes: it is confirmed if the launches that follow it agree.

    They are asked for beyond the budget, since a fail stops somebody's work, and are looked at by themselves until they
    have confirmed it or say the opposite. Pooled with the first ones, which were chosen for what they say, they would
    err far more often.
    """
    said = f"the first {look} launches said {verdict}"
    levels = spending(CONFIRMING_ALPHA, CONFIRMING_LOOKS, CONFIRMING_LOOKS[-1])
    for wanted, share in zip(CONFIRMING_LOOKS, levels, strict=True):
        rows = rows_of(quantity, look + wanted, beyond_budget=True, confirms=bound)
        fresh = rows[look:]
        if len(fresh) < wanted:
            why = why_no_more(quantity, len(rows))
            reason = f"{said}; of the {wanted} that confirm it there are {len(fresh)}: {why}"
            return _checked(rule, quantity, rows, level, bound, undecided(quantity), reason)
        now = (rule.confirmed or rule.judged)(fresh, share)
        if now is verdict:
            return _checked(rule, quantity, rows, level, bound, verdict, f"{said}, {wanted} fresh ones confirmed it")
        if now is not Verdict.INCONCLUSIVE:
            break
    reason = f"{said}, {wanted} fresh ones did not confirm it"
    return _checked(rule, quantity, rows, level, bound, Verdict.INCONCLUSIVE, reason)


def _checked(
    rule: Rule, quantity: Quantity, rows: Rows, level: float, bound: Bound, verdict: Verdict, reason: str = ""
) -> Decision:
    """Return a verdict, unless the controls or the second channel speak against it."""
    if quantity.timed:
        violated = violated_control([record for record, _ in rows]) or violated_beside_others(quantity, rows)
        if violated:
            return _decision(rule, quantity, rows, level, bound, Verdict.INVALID, violated)
    opposed = rule.opposed(verdict, rows, level)
    if opposed:
        reason = f"{_first_words(quantity, rows)} {verdict}, {_second_words(quantity, rows)} the opposite ({opposed})"
        verdict = Verdict.INCONCLUSIVE
    return _decision(rule, quantity, rows, level, bound, verdict, reason)


def _by_the_second_channel(quantity: Quantity, bound: Bound) -> Callable[[Verdict, Rows, float], str]:
    """Return what asks the second channel of a gate: the same quantity by the fastest batches, or the mean of all."""

    def opposed(verdict: Verdict, rows: Rows, level: float) -> str:
        second = second_values(quantity, rows)
        if not second or not contradicts(verdict, interval(second, level), bound):
            return ""
        return str(quantity.of_interval(interval(second, level)))

    return opposed


def second_values(quantity: Quantity, rows: Rows) -> list[LaunchValue]:
    """Return what the second channel of these launches says of a quantity, or nothing where it has none."""
    if quantity.of_second is None:
        return []
    values = (quantity.of_second(record) for record, _ in rows)
    return [value for value in values if value is not None]


def _first_words(quantity: Quantity, rows: Rows) -> str:
    return "what was left alone says" if left_alone(quantity, rows) else "medians say"


def _second_words(quantity: Quantity, rows: Rows) -> str:
    if some := left_alone(quantity, rows):
        return "medians say" if len(some) == len(rows) else "the other channel says"
    return "the mean of all calls says" if second_channel(quantity.cells) == "mean" else "the fastest calls say"


def _decision(
    rule: Rule, quantity: Quantity, rows: Rows, level: float, bound: Bound, verdict: Verdict, reason: str = ""
) -> Decision:
    values, alone = [value for _, value in rows], [value.value for _, value in rows]
    spread, known = rule.spread(rows, level), rule.known(rows)
    # A pass rests on few launches mostly, and needs no word of what they might be.
    pattern = pattern_words(alone, bound.scale) if verdict is not Verdict.PASS else ""
    quick, earlier = left_alone_note(quantity, rows), _noise_note(quantity, rows, level, known)
    noise = dominant_noise(values)
    return Decision(
        verdict,
        quantity.of_interval(spread),
        smallest_visible(spread, bound.scale) if len(values) > 1 else None,
        noise,
        reason,
        notes=tuple(filter(None, [shared_note(quantity, rows), quick, pattern, earlier])),
        state=rows[0][0].home,
        known=known,
        advice=pattern_advice(alone) if reason == SPENT and noise != "drift" and not bound.is_strict else "",
        confidence=1 - 2 * level,
    )


def _noise_note(quantity: Quantity, rows: Rows, level: float, known: KnownScatter | None) -> str:
    """Return what earlier runs had to do with an interval, or nothing."""
    if known is None or len(rows) < 2:
        return ""
    write = units.fraction if quantity.metric.scale == "log" else quantity.metric.format
    alone = _by_themselves(rows, level)
    now, then = write(alone.s), write(math.sqrt(known.variance))
    if scatters_as_known(alone, known):
        return f"judged by the scatter of {known.runs} earlier runs, too: {then}, here {now} (--ngraph-noise-history)"
    return f"launches scatter by {now}, in {known.runs} earlier runs by {then}: judged by themselves"


def without_error_control(quantity: Quantity, is_beyond: Callable[[Estimate], bool]) -> Decision:
    """Show what ``quick`` and ``paper`` measured: they judge nothing, as they cannot say how often they would err.

    With ``--ngraph-quick-gates=fail`` what is wholly on the wrong side of its bound fails, interval and all.
    """
    values = quantity.values()
    if not values:
        return _unmeasured(quantity)
    return shown(quantity, quantity.present(values), is_beyond)


def shown(quantity: Quantity, estimate: Estimate, is_beyond: Callable[[Estimate], bool]) -> Decision:
    """Return what is not judged but shown, or failed where that was asked for."""
    source = quantity.source
    fails = source.fails_unjudged and is_beyond(estimate)
    verdict, noise = Verdict.FAIL if fails else Verdict.NOT_JUDGED, dominant_noise(quantity.values())
    return Decision(verdict, estimate, None, noise, unjudged(source))


def unjudged(source: Source) -> str:
    """Return why a claim is not judged, or fails all the same, by which runs count what they judged."""
    return f"{source.protocol.name}, no error control"


def beyond(bound: Bound) -> Callable[[Estimate], bool]:
    """Return what says whether an estimate is beyond a bound with all of its interval."""
    return lambda estimate: estimate.high < bound.value if bound.at_least else estimate.low > bound.value

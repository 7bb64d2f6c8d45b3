"""Claims against this machine's own history: the level since its last change, instead of a number in the suite."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace

from pytest_ngraph import units
from pytest_ngraph.claims.decide import Decision, decide, rows_of
from pytest_ngraph.claims.doubts.controls import violated_control
from pytest_ngraph.claims.percentiles import open_where_unsettled
from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.quantities.past import Past, line_here, lines_of, sessions_of
from pytest_ngraph.quantities.quantity import Quantity, in_unit
from pytest_ngraph.session.session import FIRST_LOOK
from pytest_ngraph.stats.changes import NOT_INSTALLED, Level, can_find_changes, levels_of, one_level
from pytest_ngraph.stats.launches import LaunchValue, dominant_noise
from pytest_ngraph.stats.sessions import LEAST_SESSIONS, LEVEL, Between, Mean, difference, mean_of
from pytest_ngraph.stats.verdict import ERROR_RATE, Bound, Verdict, judge

_MORE_SESSIONS = "measure it in further runs, on other occasions (--ngraph-fresh measures again what is stored)"


@dataclass(frozen=True, slots=True)
class Held:
    """What a claim is held to by history: a bound in the metric's unit, and how it is judged."""

    limit: float
    judge: Callable[[Quantity, Bound, float], Decision]


def by_history(quantity: Quantity) -> Held:
    """Return the level that this machine's sessions have had since their last change, as a bound.

    The launches of the first look are measured where they are missing, and these are judged: what came later, for
    other claims or by other runs, changes nothing. History are the sessions before them. Raises like ``Quantity.rows``.
    """
    rows = rows_of(quantity, FIRST_LOOK)
    of_runs: dict[int, list[LaunchValue]] = {}
    for record, value in rows:
        of_runs.setdefault(record.run, []).append(value)
    state = rows[0][0].home if rows else None
    session = quantity.measurer.session
    here = Machine.of(session.bench.facts())
    first = min(of_runs, default=math.inf)
    past = line_here((one for one in sessions_of(session.book, quantity) if one.run.id < first), here, state)
    level, lacking = _level(past)

    def judged(quantity: Quantity, bound: Bound, tolerance: float) -> Decision:
        unknown = "its history" if level is None else ""
        if not rows or not quantity.source.error_control:
            return replace(decide(quantity, bound, tolerance), unknown_bound=unknown)
        values = [value for _, value in rows]
        now, noise = mean_of(list(of_runs.values())), dominant_noise(values)
        if level is None or lacking:
            estimate = quantity.present(values)
            what = _MORE_SESSIONS if can_find_changes() else ""
            return Decision(
                Verdict.INCONCLUSIVE, estimate, None, noise, lacking, state=state, unknown_bound=unknown, advice=what
            )
        # The level is the mean of its sessions, and this one scatters as they do.
        then, between = Mean(level.mean, 0.0, (1,) * level.sessions), Between(level.deviation**2, level.sessions - 1)
        apart = difference(now, then, between, LEVEL * quantity.source.error_rate / ERROR_RATE)
        ends = (level.mean + end for end in (apart.theta, apart.low, apart.high))
        theta, low, high = ends
        spread = replace(apart, theta=theta, low=low, high=high, launches=now.launches)
        verdict = judge(spread, bound)
        reason = (
            f"against {units.count(level.sessions, 'session')} of this machine since run {past[level.first].run.id}"
        )
        if quantity.timed and (violated := violated_control([record for record, _ in rows])):
            verdict, reason = Verdict.INVALID, violated
        decision = Decision(verdict, quantity.of_interval(spread), None, noise, reason, state=state)
        return open_where_unsettled(quantity, decision)

    nothing = quantity.present([value for _, value in rows]).value if rows else 1.0
    return Held(nothing if level is None else in_unit(quantity.metric, level.mean), judged)


def _level(past: list[Past]) -> tuple[Level | None, str]:
    """Return the level since the last change, and what is lacking for it to decide anything, or nothing."""
    if not can_find_changes():
        return None, NOT_INSTALLED
    if not past:
        return None, f"no history of this machine yet: {LEAST_SESSIONS} sessions are missing"
    line = lines_of(past)[0]
    level = levels_of(line.means, line.within)[-1] if len(past) >= LEAST_SESSIONS else one_level(line.means)
    missing = LEAST_SESSIONS - level.sessions
    if missing <= 0:
        return level, ""
    since = f" since the change at run {past[level.first].run.id}" if level.first else ""
    have = units.count(level.sessions, "session")
    return level, f"history of this machine: {have}{since}, {missing} of {LEAST_SESSIONS} missing"

"""How two configurations compare by an objective: in the launches that have both, else by two independent means."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import Literal, TypeAlias

from pytest_ngraph import metrics, units
from pytest_ngraph.axes import AXES
from pytest_ngraph.choosing.objectives import Objective, is_share
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.quantities.accuracy import ACCURACY, AGREEMENT, SAMPLES, TOP1, agreed_of
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import CellFailed, Channel, Estimate, NotStored, Quantity, of_times
from pytest_ngraph.spec.cells import Cell, LaunchRecord
from pytest_ngraph.stats.launches import Interval, LaunchValue, interval
from pytest_ngraph.stats.order import Contrast, at_any_stop
from pytest_ngraph.stats.sequential import FEWEST_LAUNCHES
from pytest_ngraph.stats.sessions import difference, mean_of
from pytest_ngraph.stats.shares import interval_apart, quick_paired_interval

Rows: TypeAlias = Sequence[tuple[LaunchRecord, LaunchValue]]
# Why launches prove nothing of a quantity, or nothing.
Violated: TypeAlias = Callable[[Quantity, Rows], str]

# What of a workload makes a configuration; by the others it is another task.
OF_CONFIGURATION = ("batch", "precision", "optimize")
_OF_TASK = tuple(row.name for row in AXES if row.name not in OF_CONFIGURATION)
How = Literal["same launches", "own launches", "exact", "same samples", "own samples", "points", "unknown"]
TIMED = ("latency", "throughput")
_LEVEL = 0.005


@dataclass(frozen=True)
class Candidate:
    """A configuration of a front: its cell as it was measured. ``why_not`` is why it has no time, where it has none."""

    measurement: Measurement
    why_not: str = ""
    _rows: dict[str, Rows | str] = field(default_factory=dict, repr=False, compare=False)

    @property
    def cell(self) -> Cell:
        """Return the cell."""
        return self.measurement.cell

    @cached_property
    def name(self) -> str:
        """Name the configuration in short: compiler, batch, precision, and what else makes it one."""
        cell = self.cell
        notes = ["rebuilt"] if cell.rebuild else []
        return " ".join([str(cell.compiler), *cell.workload.axis_labels(*_OF_TASK), *notes])

    def quantity(self, objective: Objective) -> Quantity:
        """Return the objective of this cell as a quantity."""
        return self.measurement.quantity(objective.quantity)

    def rows(self, objective: Objective) -> Rows:
        """Return the launches that have the objective and what each says, none where it was not measured."""
        found = self._found(objective)
        return [] if isinstance(found, str) else found

    def why_none(self, objective: Objective) -> str:
        """Return why there is no number of the objective, or nothing where there is one."""
        found = self._found(objective)
        return found if isinstance(found, str) else ""

    def _found(self, objective: Objective) -> Rows | str:
        name = objective.name
        if name not in self._rows:
            try:
                rows: Rows = self.quantity(objective).rows()
                self._rows[name] = rows or f"{name} has no launch that counts"
            except ClaimError:
                # Nobody measures it of such a cell: what is drawn under load, say.
                self._rows[name] = f"{name} not measured"
            except NotStored:
                gave = ", ".join(self.scores()) if objective.metric.name == ACCURACY else ""
                self._rows[name] = f"{name} not measured" + (f" (its evaluation gave {gave})" if gave else "")
            except CellFailed as failed:
                self._rows[name] = f"{failed.record.outcome}"
        return self._rows[name]

    def scores(self) -> Sequence[str]:
        """Return the names of what its evaluation gave, none where it was not evaluated."""
        try:
            evaluation = self.measurement.source.evaluation(self.cell).evaluation
        except (NotStored, CellFailed):
            return ()
        return evaluation.names if evaluation is not None else ()

    def estimate(self, objective: Objective) -> Estimate | None:
        """Return the objective with its interval at 99 %, or None where it was not measured."""
        rows = self.rows(objective)
        return self.quantity(objective).present([value for _, value in rows]) if rows else None


@dataclass(frozen=True, slots=True)
class Compared:
    """One configuration over another by one objective: ``contrast`` is above 0 where the first is better.

    ``how`` says by what, ``why`` why nothing is known of it, ``launches`` how many there are that say something.
    ``spread`` is what the contrast was made of where it has an interval over launches.
    """

    objective: Objective
    contrast: Contrast
    how: How
    why: str = ""
    launches: int = 0
    spread: Interval | None = None

    def mirrored(self) -> Compared:
        """Return the second over the first."""
        contrast, spread = self.contrast, self.spread

        def ends(level: float) -> tuple[float, float]:
            low, high = contrast.ends(level)
            return -high, -low

        turned = None if spread is None else replace(spread, theta=-spread.theta, low=-spread.high, high=-spread.low)
        return replace(self, contrast=Contrast(-contrast.theta, ends, contrast.zone), spread=turned)

    def text(self, level: float) -> str:
        """Write how the first compares with the second, with the interval at a level: ``latency 1.32x shorter``."""
        name, theta = self.objective.name, self.contrast.theta
        if self.how == "unknown":
            return f"{name} not compared ({self.why})"
        is_sampled = self.spread is not None or self.how in ("same samples", "own samples")
        low, high = self.contrast.ends(level) if is_sampled else (math.nan, math.nan)
        if self.objective.metric.scale == "linear":
            return f"{name} {theta:+.3g}{units.interval(low, high, '{:+.3g}'.format)}"
        if theta == 0 and self.spread is None:
            return f"{name} equal"
        more, less = {"latency": ("longer", "shorter"), "throughput": ("higher", "lower")}.get(name, ("more", "less"))
        word = (
            (more if self.objective.is_higher_better else less)
            if theta >= 0
            else (less if self.objective.is_higher_better else more)
        )
        if theta < 0:
            low, high = -high, -low
        ends = units.interval(factor_of(low), factor_of(high), units.factor)
        return f"{name} {units.factor(factor_of(abs(theta)))}{ends} {word}"


def factor_of(logarithm: float) -> float:
    """Return the factor of a difference of logarithms, infinity where no float holds it."""
    return math.exp(logarithm) if abs(logarithm) < 700 else math.inf


class Comparison:
    """Candidates compared by objectives, each pair once. ``violated`` says which launches prove nothing, and why.

    Where the protocol controls no error, or ``by_points`` says so, points are compared.
    """

    def __init__(
        self, candidates: Sequence[Candidate], over: Sequence[Objective], violated: Violated, *, by_points: bool = False
    ) -> None:
        self.candidates, self.over, self.violated = candidates, over, violated
        self.by_points = by_points or any(not one.measurement.source.error_control for one in candidates)
        self._known: dict[tuple[int, int, str], Compared] = {}
        self._controls: dict[tuple[int, ...], str] = {}

    def contrasts(self, first: int, second: int) -> list[Contrast]:
        """Return the contrasts of one candidate over another, by objective."""
        return [self.compared(first, second, each).contrast for each in self.over]

    def compared(self, first: int, second: int, objective: Objective) -> Compared:
        """Return how one candidate compares with another by an objective."""
        if first > second:
            return self.compared(second, first, objective).mirrored()
        place = (first, second, objective.name)
        if place not in self._known:
            self._known[place] = self._compare(self.candidates[first], self.candidates[second], objective)
        return self._known[place]

    def _compare(self, one: Candidate, other: Candidate, objective: Objective) -> Compared:
        lacking = [each for each in (one, other) if each.why_none(objective)]
        if lacking:
            return unknown(objective, "; ".join(f"{each.name}: {each.why_none(objective)}" for each in lacking))
        if self.by_points:
            return _exactly(one, other, objective, "points")
        if objective.name in TIMED and (found := self._paired(one, other, objective)) is not None:
            return found
        if is_share(objective.metric):
            return shares(one, other, objective)
        return _apart(one, other, objective)

    def _paired(self, one: Candidate, other: Candidate, objective: Objective) -> Compared | None:
        """Return the contrast within the launches that have both, or None where there is no such launch."""
        quantity = paired(one.measurement, other.measurement, objective)
        try:
            rows = quantity.rows()
        except NotStored:
            return None
        if not rows:
            return unknown(objective, "no launch of both counts")
        if violated := self._violated_once(quantity, rows):
            return unknown(objective, violated)
        return of_launches(objective, [value for _, value in rows])

    def _violated_once(self, quantity: Quantity, rows: Rows) -> str:
        # What speaks against launches is of them all, and the same for most pairs. Beside others it is of the pair.
        if any(record.shared for record, _ in rows):
            return self.violated(quantity, rows)
        place = tuple(id(record) for record, _ in rows)
        if place not in self._controls:
            self._controls[place] = self.violated(quantity, rows)
        return self._controls[place]


def paired(one: Measurement, other: Measurement, objective: Objective) -> Quantity:
    """Return by what factor a cell is better than another by latency, of calls, or by throughput, of samples."""
    batches = (one.workload.batch, other.workload.batch)

    def better(seconds: Sequence[float]) -> float:
        if objective.name == "latency":
            return seconds[1] / seconds[0]
        return metrics.speedup(*(metrics.throughput(each, batch) for each, batch in zip(seconds, batches, strict=True)))

    # Of several calls in flight the latency is that of requests, as ``Measurement`` has it.
    in_flight = objective.name == "latency" and one.workload.scenario != "latency"
    channel: Channel = "requests" if in_flight else "usual"
    label = f"{objective.name} of {one.cell.label} over {other.cell.label}"
    cells = [one.cell, other.cell]
    return of_times(one.source, "throughput_ratio", label, cells, better, subject=one.cell, channel=channel)


def of_launches(objective: Objective, values: Sequence[LaunchValue], share: float | None = None) -> Compared:
    """Return the contrast that launches show, which have both of a pair. ``share`` is that of ``Contrast.of``."""
    spread = interval(values, _LEVEL)
    why = "" if len(values) >= FEWEST_LAUNCHES else _too_few(len(values))
    contrast = Contrast.of(spread, objective.zone, share)
    return Compared(objective, contrast, "unknown" if why else "same launches", why, len(values), spread)


def unknown(objective: Objective, why: str) -> Compared:
    """Return that nothing is known of a pair, and why."""
    return Compared(objective, Contrast.unknown(objective.zone), "unknown", why)


def _too_few(launches: int) -> str:
    return f"{units.count(launches, 'launch', 'launches')} of both, and {FEWEST_LAUNCHES} say something"


def _exactly(one: Candidate, other: Candidate, objective: Objective, how: How) -> Compared:
    """Return the contrast of two points."""
    means = [math.fsum(value.value for _, value in rows) / len(rows) for rows in _both(one, other, objective)]
    theta = (means[0] - means[1]) * (1 if objective.is_higher_better else -1)
    launches = min(len(rows) for rows in _both(one, other, objective))
    return Compared(objective, Contrast.exactly(theta, objective.zone), how, "", launches)


def _both(one: Candidate, other: Candidate, objective: Objective) -> tuple[Rows, Rows]:
    return one.rows(objective), other.rows(objective)


def _apart(one: Candidate, other: Candidate, objective: Objective) -> Compared:
    """Return the contrast of two that have launches of their own: two means, each with its own scatter.

    The bytes of a model are counted, not sampled, so they have no error where all launches agree. Times of different
    runs are not compared: what differs between runs is in none of them.
    """
    both = _both(one, other, objective)
    # The bytes of a file are counted; those of a process are a sample.
    is_counted = objective.metric.unit == "bytes" and not one.quantity(objective).memory
    if is_counted and all(len({value.value for _, value in rows}) == 1 for rows in both):
        return _exactly(one, other, objective, "exact")
    by_run = [_by_run(rows) for rows in both]
    if objective.name in TIMED and by_run[0].keys() != by_run[1].keys():
        return unknown(
            objective, "measured in launches of different runs only; one test with both has them in the same"
        )
    few = min(len(rows) for rows in both)
    if few < FEWEST_LAUNCHES:
        return replace(unknown(objective, _too_few(few)), launches=few)
    now, then = (mean_of(list(each.values())) for each in by_run)
    if not objective.is_higher_better:
        now, then = then, now
    spread = difference(now, then, None, _LEVEL)
    share = at_any_stop(now.launches) * at_any_stop(then.launches)
    contrast = Contrast.of(spread, objective.zone, share)
    return Compared(objective, contrast, "own launches", "", few, spread)


def _by_run(rows: Rows) -> Mapping[int, list[LaunchValue]]:
    found: dict[int, list[LaunchValue]] = {}
    for record, value in rows:
        found.setdefault(record.run, []).append(value)
    return found


def shares(one: Candidate, other: Candidate, objective: Objective) -> Compared:
    """Return the contrast of two shares of samples, within the same samples where it is known of each.

    A share is measured once, and its interval is over samples: nothing stops early.
    """
    found = [counted(each, objective) for each in (one, other)]
    first, second = found
    if first is None or second is None:
        lacking = one if first is None else other
        return unknown(objective, f"{lacking.name}: {objective.name} is no count of samples")
    theta = first.hits / first.samples - second.hits / second.samples
    if first.inputs and first.inputs == second.inputs and len(first.flags) == len(second.flags) > 0:
        pairs = list(zip(first.flags, second.flags, strict=True))
        mine, theirs = pairs.count((True, False)), pairs.count((False, True))
        same = partial(quick_paired_interval, mine, theirs, len(pairs))
        return Compared(objective, Contrast(theta, same, objective.zone), "same samples")
    ends = partial(interval_apart, (first.hits, second.hits), (first.samples, second.samples))
    return Compared(objective, Contrast(theta, ends, objective.zone), "own samples")


@dataclass(frozen=True, slots=True)
class Counted:
    """How many of so many samples are right, with what says that two were shown the same ones."""

    hits: float
    samples: int
    inputs: str = ""
    flags: Sequence[bool] = ()


def counted(candidate: Candidate, objective: Objective) -> Counted | None:
    """Return what a share is made of, or None where it is no count."""
    measurement, name = candidate.measurement, objective.metric.name
    if name == AGREEMENT:
        agreed = agreed_of(measurement.source.agreement(candidate.cell, measurement.dense, SAMPLES), candidate.cell)
        return Counted(agreed.matches, agreed.scored) if agreed.scored else None
    evaluation = measurement.source.evaluation(candidate.cell).evaluation
    score = evaluation.score(objective.of or TOP1) if evaluation is not None else None
    if evaluation is None or score is None:
        return None
    return Counted(score.hits, score.samples, evaluation.inputs, score.flags())

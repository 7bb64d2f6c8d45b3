"""The front of a task on a device: which configurations no other one is shown to be better than."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from pytest_ngraph.choosing.comparing import OF_CONFIGURATION, Candidate, Compared, Comparison, Violated
from pytest_ngraph.choosing.objectives import OBJECTIVES, Objective, objective
from pytest_ngraph.quantities.accuracy import ACCURACY
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.stats.launches import Interval
from pytest_ngraph.stats.order import at_any_stop, cannot_dominate, dominates, front_levels, left_behind
from pytest_ngraph.stats.verdict import ERROR_RATE

# So many launches are proposed at most; what they do not decide hardly differs.
_LOOKS = (3, 4, 6, 8, 12, 16, 24, 32, 48, 64)


class Place(str, enum.Enum):
    """Where a configuration stands: ``out`` is one without a time, which is not compared."""

    FRONT = "on the front"
    OFF = "off the front"
    UNDECIDED = "undecided"
    OUT = "left out"

    def __str__(self) -> str:
        return self.value


@dataclass(frozen=True, slots=True)
class Rival:
    """Another configuration that is better, or may be: by number, with how it compares by each objective.

    ``open`` are the objectives that leave it open, ``launches`` how many would be enough, as far as one can know: None
    where no number of them would, or something is not measured.
    """

    number: int
    compared: Sequence[Compared]
    open: Sequence[str] = ()
    launches: int | None = None

    @property
    def is_better(self) -> Sequence[Compared]:
        """Return the objectives by which it is, by its points."""
        return [each for each in self.compared if each.contrast.theta > each.contrast.zone]


@dataclass(frozen=True, slots=True)
class Standing:
    """A configuration's place, with those that dominate it, or those of which it is open whether they do."""

    candidate: Candidate
    place: Place
    by: Sequence[Rival] = ()
    open: Sequence[Rival] = ()


@dataclass(frozen=True, slots=True)
class Task:
    """What is to be done: a model at its sizes, called in a way, on a device and a side. Fronts are of one."""

    device: str
    model: str
    axes: tuple[str, ...]
    side: str = ""

    def __str__(self) -> str:
        side = f" of {self.side}" if self.side else ""
        return f"{self.device}: {' '.join([self.model, *self.axes])}{side}"


@dataclass(frozen=True)
class Front:
    """The configurations of a task, each with its place. ``left_out`` are objectives that not all have, with why.

    With ``by_points`` nothing is shown: points were compared, since the protocol controls no error.
    """

    task: Task
    comparison: Comparison
    rate: float
    standings: Sequence[Standing]
    left_out: Sequence[str] = ()
    protocol: str = "gate"
    level: float = field(default=0.0)

    @property
    def over(self) -> Sequence[Objective]:
        """Return the objectives."""
        return self.comparison.over

    @property
    def by_points(self) -> bool:
        """Return whether points were compared."""
        return self.comparison.by_points

    @property
    def candidates(self) -> Sequence[Candidate]:
        """Return those that are compared."""
        return self.comparison.candidates

    def at(self, place: Place) -> list[Standing]:
        """Return the configurations in a place."""
        return [one for one in self.standings if one.place is place]


def task_of(cell: Cell) -> Task:
    """Return what a cell does, whatever configuration it is."""
    workload = cell.workload
    axes = (label for label in workload.axis_labels("model", *OF_CONFIGURATION) if label != workload.model.text)
    return Task(cell.device, workload.model.text, tuple(axes), cell.side)


def shared_objectives(
    candidates: Sequence[Candidate], tolerances: dict[str, float]
) -> tuple[list[Objective], list[str]]:
    """Return the objectives that all of the configurations have, and of which others some have them, in words."""
    found, left_out = [], []
    for name in OBJECTIVES:
        each = objective(name, "objective", tolerances)
        have = sum(not one.why_none(each) for one in candidates)
        if have and have == len(candidates):
            found.append(each)
        elif have:
            left_out.append(f"{name}: measured of {have} of {len(candidates)} configurations, so left out")
        elif name == ACCURACY and (scores := sorted({score for one in candidates for score in one.scores()})):
            left_out.append(f"{name}: no top1 was evaluated; --over {name}:{scores[0]} compares {scores[0]}")
    return found, left_out


def front_of(
    task: Task,
    candidates: Sequence[Candidate],
    over: Sequence[Objective],
    violated: Violated,
    *,
    rate: float = ERROR_RATE,
    left_out: Sequence[str] = (),
    protocol: str = "gate",
) -> Front:
    """Return the front of some configurations of one task over objectives (docs/choosing.md).

    At most at ``rate`` any of them is called off the front that nothing dominates, and any of them on it that something
    does. Those without a time, such as one whose outputs are wrong, are neither on it nor better than others.
    """
    timed = [one for one in candidates if not one.why_not]
    comparison = Comparison(timed, over, violated)
    off_level, on_level = front_levels(rate, len(timed))
    numbers = range(len(timed))
    pairs = {one: [other for other in numbers if other != one] for one in numbers}
    over_it = {
        one: [other for other in pairs[one] if dominates(comparison.contrasts(other, one), off_level)]
        for one in numbers
    }
    is_off = left_behind([over_it[one] for one in numbers])
    standings = {}
    for one in numbers:
        if is_off[one]:
            by = [other for other in over_it[one] if one not in over_it[other]]
            # Those first that are on the front themselves.
            by.sort(key=lambda other: is_off[other])
            rivals = [_rival(comparison, other, one, off_level, on_level) for other in by]
            standings[one] = Standing(timed[one], Place.OFF, by=rivals)
            continue
        # What is as good as it within the zones, both ways round, leaves it where it is.
        left = [
            other
            for other in pairs[one]
            if other not in over_it[one] and not cannot_dominate(comparison.contrasts(other, one), on_level)
        ]
        rivals = [_rival(comparison, other, one, off_level, on_level) for other in left]
        standings[one] = Standing(timed[one], Place.UNDECIDED if rivals else Place.FRONT, open=rivals)
    places = {id(one): standings[number] for number, one in enumerate(timed)}
    shown = [places.get(id(one)) or Standing(one, Place.OUT) for one in candidates]
    return Front(task, comparison, rate, shown, left_out, protocol, off_level)


def _rival(comparison: Comparison, other: int, one: int, off_level: float, on_level: float) -> Rival:
    compared = [comparison.compared(other, one, each) for each in comparison.over]
    is_no_worse = all(each.contrast.ends(off_level)[0] >= -each.contrast.zone for each in compared)
    is_open, needed = [], [1]
    for each in compared:
        contrast, count = each.contrast, len(compared)
        low, high = contrast.ends(off_level / count if is_no_worse else off_level)
        edge = contrast.zone if is_no_worse else -contrast.zone
        is_shown_worse = contrast.ends(on_level / 2 / count)[1] < -contrast.zone
        if (low > edge or high <= edge) if is_no_worse else (low >= edge or is_shown_worse):
            continue
        is_open.append(each.objective.name)
        spread = each.spread
        needed.append((launches_for(spread, edge, off_level / count) or 0) if spread is not None else 0)
    return Rival(other, compared, is_open, max(needed) if all(needed) and is_open else None)


def launches_for(spread: Interval, edge: float, level: float) -> int | None:
    """Return about how many launches would show on which side of an edge a mean is, or None where 64 would not.

    As far as the launches there are can say that: where they scatter no more and no less.
    """
    if spread.df < 1 or not math.isfinite(spread.s):
        return _LOOKS[0]
    from scipy.special import stdtrit

    apart = abs(spread.theta - edge)
    for launches in _LOOKS:
        half = -float(stdtrit(launches - 1, level * at_any_stop(launches))) * spread.s / math.sqrt(launches)
        if launches > spread.launches and half < apart:
            return launches
    return None

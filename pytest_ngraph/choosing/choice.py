"""Which configuration to deploy: the best by an objective of those that keep to limits, or what is open about it."""

from __future__ import annotations

import enum
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from pytest_ngraph.choosing.comparing import Candidate, Compared, Counted, counted
from pytest_ngraph.choosing.front import Front, Place, launches_for
from pytest_ngraph.choosing.objectives import Limit, Objective, is_share
from pytest_ngraph.errors import SpecError
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.stats.launches import Interval, LaunchValue, interval
from pytest_ngraph.stats.order import Contrast
from pytest_ngraph.stats.shares import exact_interval

_LEVEL = 0.005


class Kept(str, enum.Enum):
    """Whether a configuration keeps to a limit, as far as is shown."""

    YES = "kept"
    NO = "broken"
    OPEN = "undecided"
    UNKNOWN = "not measured"

    def __str__(self) -> str:
        return self.value


class Answer(enum.IntEnum):
    """What came of choosing, as the exit status of ``ngraph choose``: 2 is that of an error."""

    ONE = 0
    NONE = 1
    UNDECIDED = 3


@dataclass(frozen=True, slots=True)
class Checked:
    """A limit and what is known of a configuration: its estimate, and how many launches would be enough where open.

    ``why`` says why there is no estimate, where there is none.
    """

    limit: Limit
    kept: Kept
    estimate: Estimate | None
    launches: int | None = None
    why: str = ""


@dataclass(frozen=True, slots=True)
class Option:
    """A configuration with its limits checked. ``number`` is its place among the front's candidates."""

    number: int
    candidate: Candidate
    checked: Sequence[Checked]
    place: Place

    @property
    def keeps(self) -> bool:
        """Return whether it is shown to keep to all limits."""
        return all(each.kept is Kept.YES for each in self.checked)

    @property
    def breaks(self) -> bool:
        """Return whether it is shown not to keep to one of them."""
        return any(each.kept is Kept.NO for each in self.checked)


@dataclass(frozen=True, slots=True)
class Choice:
    """The answer with its reasons. ``best`` is the leading configuration: the one to deploy where the answer is one.

    ``open`` are those of which it is not shown that they are no better choice, each with how it compares with the best
    one, if at all.
    """

    front: Front
    limits: Sequence[Limit]
    by: Objective
    answer: Answer
    options: Sequence[Option]
    best: Option | None
    open: Sequence[tuple[Option, Compared | None]] = ()


def choose(front: Front, limits: Sequence[Limit], by: Objective) -> Choice:
    """Return which configuration of a front to deploy: of those that keep to the limits the best by an objective.

    Half of the error rate of the front is for limits, half for which is the best, each shared out over configurations:
    at most at that rate the answer is one that breaks a limit, that another one which keeps to them is better than by
    the tolerance, or that there is none where there is one. Raises SpecError where the objective is not compared.
    """
    if by not in front.over:
        raise SpecError(f"{by.name} is not compared (the front is over {', '.join(each.name for each in front.over)})")
    count = max(1, len(front.candidates))
    level = front.rate / (2 * count)
    places = {id(one.candidate): one.place for one in front.standings}
    options = [
        Option(
            number, one, [_checked(front, one, limit, level / max(1, len(limits))) for limit in limits], places[id(one)]
        )
        for number, one in enumerate(front.candidates)
    ]
    left = [one for one in options if not one.breaks]
    if not left:
        return Choice(front, limits, by, Answer.NONE, options, None)
    keeping = [one for one in left if one.keeps and one.candidate.estimate(by) is not None]
    best = _leader(front, keeping or left, by)
    rivals: list[tuple[Option, Compared | None]] = []
    for one in left:
        if best is None or one is best:
            continue
        compared = front.comparison.compared(one.number, best.number, by)
        if compared.contrast.ends(level)[1] > compared.contrast.zone:
            rivals.append((one, compared))
    if best is None or not best.keeps:
        return Choice(front, limits, by, Answer.UNDECIDED, options, best, rivals)
    return Choice(front, limits, by, Answer.UNDECIDED if rivals else Answer.ONE, options, best, rivals)


def _leader(front: Front, among: Sequence[Option], by: Objective) -> Option | None:
    """Return the best by its points; of those that are as good within the tolerance one that is not off the front."""
    sign = -1.0 if by.is_higher_better else 1.0
    known = [(sign * estimate.value, one) for one in among if (estimate := one.candidate.estimate(by)) is not None]
    if not known:
        return among[0] if among else None
    first = min(value for value, _ in known)

    def behind(value: float) -> float:
        return math.log(abs(value / first)) * (1 if first > 0 else -1) if by.metric.scale == "log" else value - first

    alike = [(value, one) for value, one in known if behind(value) <= by.zone]
    return min(alike, key=lambda each: (each[1].place is Place.OFF, each[0]))[1]


def _checked(front: Front, candidate: Candidate, limit: Limit, level: float) -> Checked:
    """Return whether a configuration keeps to a limit, at a one-sided level."""
    estimate = candidate.estimate(limit.objective)
    if estimate is None:
        why = candidate.why_none(limit.objective).removeprefix(f"{limit.objective.name} ")
        return Checked(limit, Kept.UNKNOWN, None, why=why)
    contrast, spread = _over(front, candidate, limit)
    low, high = contrast.ends(level)
    if low >= 0:
        return Checked(limit, Kept.YES, estimate)
    if high < 0:
        return Checked(limit, Kept.NO, estimate)
    needed = launches_for(spread, 0.0, level) if spread is not None else None
    return Checked(limit, Kept.OPEN, estimate, needed)


def _over(front: Front, candidate: Candidate, limit: Limit) -> tuple[Contrast, Interval | None]:
    """Return by how much a configuration is better than a limit."""
    of = limit.objective
    line = math.log(limit.value) if of.metric.scale == "log" else limit.value
    sign = 1 if of.is_higher_better else -1
    rows = candidate.rows(of)
    values = [LaunchValue(sign * (value.value - line), value.within_variance, value.blocks) for _, value in rows]
    if is_share(of.metric) and not front.by_points:
        found = counted(candidate, of)
        if found is None:
            return Contrast.unknown(), None
        share = found.hits / found.samples
        return Contrast(share - line, partial(_share_over, found, line)), None
    is_counted = of.metric.unit == "bytes" and not candidate.quantity(of).memory
    if front.by_points or (is_counted and len({each.value for each in values}) == 1):
        return Contrast.exactly(math.fsum(each.value for each in values) / len(values)), None
    violated = front.comparison.violated(candidate.quantity(of), rows) if candidate.quantity(of).timed else ""
    spread = interval(values, _LEVEL)
    return (Contrast.unknown(), None) if violated else (Contrast.of(spread), spread)


def _share_over(found: Counted, line: float, level: float) -> tuple[float, float]:
    low, high = exact_interval(found.hits, found.samples, level)
    return low - line, high - line

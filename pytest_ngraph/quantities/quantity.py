"""Estimates: a metric of certain cells, from raw launches to a value with its interval."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, NoReturn

from pytest_ngraph import units
from pytest_ngraph.errors import ClaimError, NgraphError
from pytest_ngraph.load.neighbours import NONE
from pytest_ngraph.load.queues import has_no_latency
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.metrics import METRICS, Metric
from pytest_ngraph.quantities.compared import as_seen_in
from pytest_ngraph.spec.cells import (
    LEFT_ALONE,
    Cell,
    CompileRecord,
    LaunchRecord,
    Outcome,
    Protocol,
    Reading,
    Visit,
    protocol_of,
)
from pytest_ngraph.spec.resources.peaks import METRIC_OF
from pytest_ngraph.spec.resources.power import POWER
from pytest_ngraph.spec.states import Fruitless, fruitless_of
from pytest_ngraph.stats.launches import Interval, LaunchValue, interval, launch_quantile, launch_value, share_alike
from pytest_ngraph.stats.sequential import FEWEST_LAUNCHES
from pytest_ngraph.stats.verdict import ERROR_RATE, Bound, Verdict, is_clear_fail, judge
from pytest_ngraph.stats.visits import (
    TokenTimes,
    VisitSummary,
    clean_seconds,
    ln_mean,
    summarise,
    summarise_all,
    token_seconds,
)
from pytest_ngraph.texts.shown import excerpt

if TYPE_CHECKING:
    from pytest_ngraph.plan.groups import Group
    from pytest_ngraph.plan.items import ItemPlan
    from pytest_ngraph.session.session import Session
    from pytest_ngraph.stats.launches import Array

# What of a visit stands for the time of a call: what is usual for its batches, the fastest of them (the second channel
# of docs/measuring.md, step 7) or their mean (the same beside a neighbour), or the mean of its requests from submission
# to completion. Of what decodes also those of the first token, and of a further one.
Channel = Literal["usual", "fastest", "mean", "requests", "first", "fastest first", "step", "fastest step"]
_FASTEST: Mapping[Channel, Channel] = {"first": "fastest first", "step": "fastest step"}
# What fast calls show of a machine that was left alone, and what is the second channel of it otherwise.
_LEFT_ALONE: Mapping[Channel, Channel] = {"usual": "fastest", **_FASTEST}
# Of that many times the share of the glances that found it alone: low enough to be of such calls where these are fewer
# than the glances say, and not so low that calls which are slow for most of the time do not show.
QUANTILE = 0.3
# So many of the calls that should have been left alone must be as fast as that.
LEAST_ALIKE = 0.5
# Others stay for some tens of milliseconds.
_LONGEST_SECONDS = 0.02
# How the times of a cell change with its workload.
_SCALING = ("rtr", "ase", "bsr", "slope", "retention", "friction", "sequence_scaling")
# Two-sided 99 %, as the gates' alpha; a gate's own look has its own level.
LEVEL = 0.005
# Where a row of what is compared (cell behind baseline, before the other side) has the two cells of a ratio, the slower
# first where it is above 1.
_COMPARED = {"speedup": (0, 1), "change": (2, 1)}
_NAMED_LIKE_THEIR_HELPERS = (
    "speedup", "throughput", "latency", "rtr", "ase", "bsr", "slope", "retention", "friction", "sequence_scaling",
)  # fmt: skip
# Which helper claims a metric.
_HELPERS = {
    "compile_seconds": "assert_compile_time",
    **dict.fromkeys(METRIC_OF.values(), "assert_memory"),
    "joules_per_sample": "assert_energy",
    "joules_above_idle": "assert_energy",
    "gpu_utilisation_percent": "assert_gpu_utilisation",
    "model_bytes": "assert_model_size",
    "cpu_percent": "assert_cpu_usage",
    "time_to_first_token": "assert_first_token",
    "time_per_token": "assert_per_token",
    "tokens_per_second": "assert_tokens_per_second",
    "accuracy": "assert_accuracy",
    "agreement": "assert_agreement",
    **{metric: f"assert_{metric}" for metric in _NAMED_LIKE_THEIR_HELPERS},
}
# Units that are counted: the exponential of a logarithm is a hair off.
WHOLE = ("bytes", "trials")
# Of ln(seconds), for a derivative of what is smooth in it.
_STEP = 1e-4


class CellFailed(NgraphError):
    """A cell has no time: ``record`` is what became of ``cell``, with its outcome and why."""

    def __init__(self, cell: Cell, record: CompileRecord) -> None:
        super().__init__(excerpt(f"{cell.label}: {record.outcome}: {record.reason}"))
        self.cell, self.record = cell, record


class NotStored(NgraphError):
    """A number has no launch that gives it, and none may be measured now."""


class NarrowedAway(NgraphError):
    """A claim about what is not there, such as a point that the options narrowed away: its test skips and says so."""


class NoOtherSide(NarrowedAway):
    """A claim about a change in a run that compares nothing: its test skips and says so."""


@dataclass(frozen=True, slots=True)
class Estimate:
    """A metric's value with its interval, in the metric's unit, over ``launches`` launches.

    The interval is the two-sided 99 % t-interval over launches. That of a judged gate is at its look's own level. Under
    ``paper`` it is one standard deviation of the repetitions to each side, under ``quick`` one standard error, both
    without error control. A number that was measured once has an unbounded interval.
    """

    metric: str
    value: float
    low: float
    high: float
    launches: int

    def __float__(self) -> float:
        return self.value

    def __str__(self) -> str:
        write = METRICS[self.metric].format
        if not (math.isfinite(self.low) and math.isfinite(self.high)):
            return f"{write(self.value)} (no interval from {units.count(self.launches, 'launch', 'launches')})"
        return f"{write(self.value)} [{write(self.low)}, {write(self.high)}]"

    def _refuse(self, sign: str, other: object) -> NoReturn:
        """Raise ClaimError for a comparison: it would throw the interval away, and keep nothing of the claim."""
        if isinstance(other, Estimate):
            what = "two estimates have no order by themselves; claim it: assert_faster(a, b) or assert_no_slower(a, b)"
        else:
            bound = "at_least" if ">" in sign else "at_most"
            helper = _HELPERS.get(self.metric.partition(":")[0])
            claim = f"claim it: {helper}(..., {bound}={other!r})" if helper else "there is no helper that claims it"
            what = f"an estimate is not a number; {claim}, or compare its .value, which has no error rate"
        raise ClaimError(f"{METRICS[self.metric].title} {self} {sign} {other}: {what}")

    def __lt__(self, other: object) -> bool:
        self._refuse("<", other)

    def __le__(self, other: object) -> bool:
        self._refuse("<=", other)

    def __gt__(self, other: object) -> bool:
        self._refuse(">", other)

    def __ge__(self, other: object) -> bool:
        self._refuse(">=", other)


@dataclass(frozen=True, slots=True)
class Quantity:
    """A metric of certain cells that claims can be made of: what one launch says of it, on the metric's scale.

    ``subject`` is the cell that the metric is about, the others are what it is compared with.
    """

    source: Source
    metric: Metric
    label: str
    cells: tuple[Cell, ...]
    subject: Cell
    of_launch: Callable[[LaunchRecord], LaunchValue | None]
    parts: tuple[Quantity, ...] = ()
    memory: bool = False
    # Which launches only reuse what was measured once, before them: that is one value, not one per launch.
    reused: Callable[[LaunchRecord], bool] | None = None
    # Made of timed calls, which is what the controls control.
    timed: bool = False
    # The same by the second channel instead of the median batches.
    of_second: Callable[[LaunchRecord], LaunchValue | None] | None = None
    # Measured in passes for power, which hold all of its cells.
    power: bool = False
    # The same of whatever visits there are, where it is not that (docs/measuring.md, step 6).
    disturbed: Quantity | None = None
    takes_disturbed: bool = False
    # Whether it is larger where calls take longer.
    rises: bool = True

    @property
    def kind(self) -> str:
        """Return in what kind of launches it is measured, as the store knows them."""
        return POWER if self.power else "memory" if self.memory else "timed"

    @property
    def is_of_visits(self) -> bool:
        """Return whether it is read from visits, and not from what preparing a cell gave or from passes."""
        return self.timed or self.metric.name == "cpu_percent"

    @property
    def measurer(self) -> Measurer:
        """Return the running test's door to the session. Raise ClaimError for what is read from a store only."""
        if not isinstance(self.source, Measurer):
            raise ClaimError(f"{self.label} is read from the store; claims are made in tests")
        return self.source

    def of_source(self, source: Source) -> Quantity:
        """Return the same of what another source has."""
        return replace(self, source=source, disturbed=self.disturbed and replace(self.disturbed, source=source))

    def shown(self) -> Quantity:
        """Return the same, or of whatever visits there are where a comparison lacks launches for a first look."""
        has_others = self.is_relative and self.disturbed is not None
        if not has_others or not any(record.is_disturbed for record in self.source.records(self)):
            return self
        return self.disturbed if len(self.values()) < FEWEST_LAUNCHES and self.disturbed is not None else self

    def values(self) -> list[LaunchValue]:
        """Return what each launch says, as ``rows`` does."""
        return [value for _, value in self.rows()]

    def rows(self) -> list[tuple[LaunchRecord, LaunchValue]]:
        """Return the launches and what each says. Measures the first look where it is missing.

        Raises CellFailed where one of the cells has no time, NotStored where nothing may be measured.
        """
        return self.rows_of(self.source.records(self))

    def rows_of(self, records: Sequence[LaunchRecord]) -> list[tuple[LaunchRecord, LaunchValue]]:
        """Return which of these launches count, and what each says. Nothing is measured."""
        if self.source.error_control:
            # One in which a cell never settled, or others left too little of it, says nothing; another takes its place.
            records = [one for one in records if one.unsettled(self.cells) is None and not self.why_not(one)]
        rows = [(record, value) for record in records if (value := self.of_launch(record)) is not None]
        if self.reused is None:
            return rows
        counts = but_reused([value.value for _, value in rows], [self.reused(record) for record, _ in rows])
        return [row for row, does in zip(rows, counts, strict=True) if does]

    def why_not(self, record: LaunchRecord) -> str:
        """Return why a launch that others shared or disturbed says nothing of this, or nothing.

        What is compared within a launch is compared in the visits that did not have to wait, and needs no machine that
        is steady, but one that others left alone for a part of it (docs/measuring.md, step 6). A time by itself has
        nothing beside it that would show what else slowed it.
        """
        if self.kind != "timed" or self.metric.unit in WHOLE or (self.takes_disturbed and not self.is_relative):
            return ""
        if not record.shared:
            count = sum(cell in self.cells for cell, _ in record.unsteady)
            if not self.is_of_visits or not record.holds(self.cells):
                return ""
            stolen = sum(visit.is_stolen() for cell in self.cells for visit in record.visits_of(cell).values())
            if not (count or stolen or record.torn):
                return ""
            if self.of_launch(record) is not None:
                return ""
            if record.torn:
                why = "the machine was in another state for most blocks"
                return f"{why}; fewer than {record.least_blocks} of the others were steady for all of its cells"
            why = f"the machine was not steady around {units.count(count, 'visit')}"
            if stolen:
                why = f"the host took CPU time of {units.count(stolen, 'visit')} (steal)"
            elif not (record.alone is None or record.was_left_alone or self.takes_disturbed):
                left, needed = units.fraction(record.alone), units.fraction(LEFT_ALONE)
                return f"{why}, and left alone in {left} of the glances at it ({needed} needed)"
            if counts_left_alone(record, self.cells):
                return f"{why}, and fewer calls of a cell were quick than were left alone"
            left = (
                "blocks without them are left" if self.is_relative else "others are left, which a time by itself needs"
            )
            return f"{why}; fewer than {record.least_blocks} {left}"
        if not self.is_relative:
            return f"{record.shared}, and then a time says something beside another of its launch only"
        if self.of_launch(record) is None:
            return f"{record.shared}; fewer than {record.least_blocks} blocks left all of its cells without a wait"
        return ""

    @property
    def is_relative(self) -> bool:
        """Return whether it compares calls of one launch with one another."""
        return self.timed and len(self.cells) > 1

    def estimate(self) -> Estimate:
        """Return value and interval over the launches there are, as far as ``shown`` has them."""
        values = self.shown().values()
        if not values:
            raise NotStored(f"{self.label}: no launch has a usable value")
        return self.present(values)

    def present(self, values: Sequence[LaunchValue], level: float = LEVEL) -> Estimate:
        """Return these launch values as an estimate, at a one-sided level."""
        if self.source.error_control:
            spread = interval(values, level)
            low, high, theta = spread.low, spread.high, spread.theta
        else:
            theta = math.fsum(value.value for value in values) / len(values)
            half = self._uncontrolled(values)
            low, high = theta - half, theta + half
        return self._from_scale(theta, low, high, len(values))

    def _uncontrolled(self, values: Sequence[LaunchValue]) -> float:
        """Return half the interval without error control, infinite where a number was measured once."""
        if not all(value.within_variance or value.blocks > 1 for value in values):
            return math.inf
        total = math.fsum(value.within_variance for value in values)
        return math.sqrt(total / len(values)) if self.source.repetitions else math.sqrt(total) / len(values)

    def of_interval(self, interval: Interval) -> Estimate:
        """Return an interval on the working scale in the metric's unit."""
        return self._from_scale(interval.theta, interval.low, interval.high, interval.launches)

    def _from_scale(self, theta: float, low: float, high: float, launches: int) -> Estimate:
        value, low, high = (in_unit(self.metric, number) for number in (theta, low, high))
        return Estimate(self.metric.name, value, low, high, launches)


def in_unit(metric: Metric, number: float) -> float:
    """Return a number of a metric's working scale in its unit."""
    if metric.scale == "linear":
        return number
    # An interval over one launch is infinite; exp of it is 0 or infinity, as it should be.
    value = math.exp(number) if number < 700 else math.inf
    return float(round(value)) if metric.unit in WHOLE and math.isfinite(value) else value


def in_units(metric: Metric, numbers: Sequence[float]) -> list[float]:
    """Return several of them, each as ``in_unit`` does."""
    if metric.scale == "linear":
        return list(numbers)
    if metric.unit in WHOLE:
        return [in_unit(metric, number) for number in numbers]
    return [math.exp(number) if number < 700 else math.inf for number in numbers]


class Source:
    """Where quantities get their launches, and claims their verdicts: a running test, or what is stored.

    ``cpus`` is the size of the device's CPU set. A claim is looked at up to ``most_launches``. In the state ``chosen``
    of the machine, where one is. ``closed`` is why no launch can be added, or nothing; it ``is_over`` where that is the
    time of the whole run. ``fails_unjudged`` claims that are wholly beyond their bound where the protocol controls no
    error. Where it does, a claim errs to each side at the ``error_rate`` at most. With ``noise_history`` it is judged
    by how its launches scattered in earlier runs, too.
    ``run`` is the number of the run that measures, 0 where none does.
    """

    protocol: Protocol
    cpus: int
    most_launches: int
    run: int = 0
    chosen: Reading | None = None
    closed: str = ""
    is_over: bool = False
    fails_unjudged: bool = False
    error_rate: float = ERROR_RATE
    noise_history: bool = False

    @property
    def error_control(self) -> bool:
        """Return whether what is claimed of these launches can be judged."""
        return self.protocol.error_control

    @property
    def repetitions(self) -> bool:
        """Return whether these are the paper's repetitions, which have its standard deviation instead of an error."""
        return self.protocol.name == "paper"

    def text_of(self, against: Mapping[Cell, Cell]) -> str:
        """Return a table of cells, each given with its baseline, or nothing where that would measure them first."""
        return ""

    def html_of(self, against: Mapping[Cell, Cell]) -> str | None:
        """Return the same for a notebook, or None."""
        return None

    def records(self, quantity: Quantity) -> list[LaunchRecord]:
        """Return the launches that hold all cells of a quantity. Raise CellFailed or NotStored where there are none."""
        raise NotImplementedError

    def latest(self, cell: Cell) -> CompileRecord:
        """Return what preparing a cell gave in its latest launch, and how outputs agreed over those of its first look.

        Raises like ``records``.
        """
        raise NotImplementedError

    def ensure(self, cells: Sequence[Cell]) -> None:
        """Measure the first look of these cells where it is missing. Raise CellFailed where one has no time."""
        raise NotImplementedError

    def holding(self, quantity: Quantity) -> list[LaunchRecord]:
        """Return the launches that hold all cells of a quantity, in whatever state of the machine."""
        raise NotImplementedError

    def fruitless(self, quantity: Quantity) -> Fruitless:
        """Return which launches served nothing, and whether so many did not that no further one is tried."""
        raise NotImplementedError

    def evaluation(self, cell: Cell) -> CompileRecord:
        """Return the record of the pass that asked a model's own evaluation about a cell. Raises like ``records``."""
        raise NotImplementedError

    def agreement(self, cell: Cell, dense: Cell, samples: int) -> CompileRecord:
        """Return the record of the pass that held a cell to a dense one on seeded inputs. Raises like ``records``."""
        raise NotImplementedError

    def is_within(self, record: LaunchRecord) -> bool:
        """Return whether a launch began before the budget ended, where that is in seconds."""
        return True

    def is_unchanged(self, cell: Cell) -> bool:
        """Return whether a cell of the other side is what the same cell is here."""
        return False

    def one_more(self, quantity: Quantity, *, beyond_budget: bool = False, confirms: Bound | None = None) -> bool:
        """Measure one more launch for a quantity, within the budget or beyond it. Return whether there is one.

        One that ``confirms`` what was said of a bound is for others, too, of which the same is said.
        """
        return False


class Measurer(Source):
    """One test's door to the session: whose plan counts, and which records a quantity is made of."""

    def __init__(self, session: Session, nodeid: str) -> None:
        self.session, self.nodeid = session, nodeid
        settings = session.settings
        self.protocol, self.cpus = settings.protocol, max(1, len(session.device.cpus))
        self.fails_unjudged = settings.quick_gates == "fail"
        self.error_rate, self.noise_history = settings.error_rate, settings.noise_history

    @property
    def group(self) -> Group:
        """Return the launch group."""
        return self.session.group(self.nodeid)

    @property
    def tolerance(self) -> float:
        """Return the test's tolerance, a fraction."""
        return self.session.item(self.nodeid).tolerance

    @property
    def most_launches(self) -> int:  # type: ignore[override]
        """Return the number of launches after which the test's budget ends at the latest."""
        return self.session.item(self.nodeid).most_launches

    def is_within(self, record: LaunchRecord) -> bool:
        """Return whether a launch began before the test's budget ended, where that is in seconds."""
        seconds = self.session.item(self.nodeid).budget.seconds
        return seconds is None or self.group.seconds_before(record) < seconds

    @property
    def closed(self) -> str:  # type: ignore[override]
        """Return why no launch can be added for the test, or nothing."""
        return self.session.closed(self.nodeid)

    @property
    def is_over(self) -> bool:  # type: ignore[override]
        """Return whether the time that the whole run may take ended before the test's own budget."""
        return bool(self.closed) and not self.session.settings.offline

    @property
    def run(self) -> int:  # type: ignore[override]
        """Return the number of the run."""
        return self.session.run_number

    def is_unchanged(self, cell: Cell) -> bool:
        """Return whether a cell of the other side is what the same cell is here. Nothing is measured to know."""
        return self.session.is_unchanged(self.nodeid, cell)

    @property
    def chosen(self) -> Reading | None:  # type: ignore[override]
        """Return the state of the machine that was asked for, if one was."""
        return self.group.chosen

    def one_more(self, quantity: Quantity, *, beyond_budget: bool = False, confirms: Bound | None = None) -> bool:
        """Measure one more launch for a quantity, within the budget or beyond it. Return whether there is one."""
        if quantity.kind != "timed":
            have = len(self._passes(quantity))
            if not beyond_budget and (have >= self.most_launches or self.closed):
                return False
            return len(self._passes(quantity, have + 1)) > have
        along = partial(self._along, self._alike(quantity, confirms))
        return self.session.one_more(self.nodeid, quantity.cells, beyond_budget=beyond_budget, along=along)

    def _along(self, is_alike: Callable[[Sequence[Cell], float], bool], item: ItemPlan) -> ItemPlan | None:
        """Return what of a test takes more launches than there are, as far as these say: another test as a whole.

        By their scatter no gate that is on its bound could tell its tolerance, or what is about to be confirmed of
        another cell is to be expected of it (docs/measuring.md, steps 10 and 11).
        """
        taking = [
            row[1]
            for row in item.compared
            if is_alike(row, item.tolerance) or any(self._scatters(pair, item.tolerance) for pair in pairwise(row))
        ]
        if not taking:
            return None
        return item.only(taking) if item.nodeid == self.nodeid else item

    def _scatters(self, pair: Sequence[Cell], tolerance: float) -> bool:
        if len(self.session.alive(pair)) < len(pair):
            # No launch will say how they compare.
            return False
        values = self._ratios(pair)
        return len(values) < FEWEST_LAUNCHES or interval(values, LEVEL).half_width > math.log1p(tolerance)

    def _ratios(self, pair: Sequence[Cell]) -> list[LaunchValue]:
        launches = [record for record in self.group.launches_with(pair) if record.counts_for(pair)]
        ratios = [combine(record, pair, lambda ln: ln[0] - ln[1]) for record in launches]
        return [ratio for ratio in ratios if ratio is not None]

    def _alike(self, quantity: Quantity, confirms: Bound | None) -> Callable[[Sequence[Cell], float], bool]:
        """Return what says whether a row's cell will take the launches that confirm a speed-up's, or a change's, fail.

        What makes one cell slower often makes others slower. Each of them would be confirmed by launches of its own,
        one after the other; which launches there are has no part in what is said of them.
        """
        places = _COMPARED.get(quantity.metric.name)
        if confirms is None or places is None:
            return lambda row, tolerance: False
        bound, have = confirms, len(self.group.launches_with(quantity.cells))

        def is_alike(row: Sequence[Cell], tolerance: float) -> bool:
            pair = [row[place] for place in places if place < len(row)]
            # One that lacks more than the asking cell would be measured until it has as many.
            if len(pair) < len(places) or len(self.group.launches_with(pair)) != have:
                return False
            values = self._ratios(pair)
            if len(values) < FEWEST_LAUNCHES:
                return False
            spread, theirs = interval(values, LEVEL), bound if bound.is_strict else replace(bound, tolerance=tolerance)
            return judge(spread, theirs) is Verdict.FAIL and not is_clear_fail(spread, theirs, self.error_rate)

        return is_alike

    def records(self, quantity: Quantity) -> list[LaunchRecord]:
        """Return the launches that hold all cells of a quantity. Raise CellFailed or NotStored where there are none."""
        is_timed = quantity.kind == "timed"
        records = self.session.launches(self.nodeid, quantity.cells) if is_timed else self._passes(quantity)
        self.check(quantity.cells)
        if not records and not self.holding(quantity) and not self.fruitless(quantity).is_given_up:
            raise NotStored(self._why_no_records(quantity))
        return records

    def _why_no_records(self, quantity: Quantity) -> str:
        why = self.session.why_no_power(quantity.cells) if quantity.power else ""
        return f"{quantity.label}: {why}" if why else self._why_none(quantity.label)

    def _passes(self, quantity: Quantity, wanted: int = 0) -> list[LaunchRecord]:
        """Return the passes that a quantity is measured in, which are of their own, as many as wanted."""
        if quantity.power:
            return self.session.power(self.nodeid, quantity.cells, wanted)
        return self.session.memory(self.nodeid, quantity.cells[0], wanted)

    def holding(self, quantity: Quantity) -> list[LaunchRecord]:
        """Return the launches that hold all cells of a quantity, in whatever state of the machine."""
        return [] if quantity.kind != "timed" else self.group.holding(quantity.cells)

    def fruitless(self, quantity: Quantity) -> Fruitless:
        """Return which launches of this run served nothing. Where nothing is measured, which of the stored ones."""
        if quantity.memory:
            # A pass for memory is not timed, so nothing that disturbs it makes it count for less.
            return Fruitless()
        if quantity.power:
            return self.session.fruitless_power(quantity.cells)
        if self.session.settings.offline:
            return fruitless_of(self.group.finished, quantity.cells, self.chosen)
        return Fruitless(self.group.invalid, self.group.is_given_up)

    def _why_none(self, label: str) -> str:
        if self.group.is_given_up:
            return f"{label}: {len(self.group.invalid)} launches do not count: {self.group.invalid[-1]}"
        settings = self.session.settings
        if self.closed and not settings.offline:
            return f"{label}: not measured: {self.closed}"
        return f"{label}: not in the store {settings.store}"

    def check(self, cells: Sequence[Cell]) -> None:
        """Raise CellFailed where one of the cells has no time."""
        failed = self.session.failure(cells)
        if failed is not None:
            raise CellFailed(*failed)

    def latest(self, cell: Cell) -> CompileRecord:
        """Return the same, measuring the first look where it is missing."""
        records = self.session.launches(self.nodeid, [cell])
        self.check([cell])
        if not records:
            raise NotStored(self._why_none(cell.label))
        # In whatever state of the machine: it moves times.
        first = [record for record in self.group.holding([cell]) if not record.invalid][:FEWEST_LAUNCHES]
        return as_seen_in(records[-1].prepared[cell], [record.prepared[cell] for record in first])

    def evaluation(self, cell: Cell) -> CompileRecord:
        """Return what a model's own evaluation gave of a cell, asking it first. Raise CellFailed where it failed."""
        return self._passed([cell], self.session.evaluation(self.nodeid, cell))

    def agreement(self, cell: Cell, dense: Cell, samples: int) -> CompileRecord:
        """Return how well a cell agrees with a dense one, comparing them first. Raise CellFailed where it fails."""
        return self._passed([cell, dense], self.session.agreement(self.nodeid, cell, dense, samples))

    def _passed(self, cells: Sequence[Cell], record: CompileRecord | None) -> CompileRecord:
        self.check(cells)
        if record is None:
            raise NotStored(self._why_none(cells[0].label))
        if record.outcome is not Outcome.OK:
            raise CellFailed(cells[0], record)
        return record

    def ensure(self, cells: Sequence[Cell]) -> None:
        """Measure the first look of these cells. Raise CellFailed where one has no time, NotStored offline."""
        records = self.session.launches(self.nodeid, cells)
        self.check(cells)
        if not records:
            raise NotStored(self._why_none(cells[0].label))


# From visits to block values. ``clean`` follows the protocol that measured the launch.


def summaries(record: LaunchRecord, cell: Cell) -> dict[int, VisitSummary]:
    """Return the summary of each visit to a cell by block. Made once for each record."""
    if cell not in record.derived:
        protocol = protocol_of(record.protocol)
        shared, visits = bool(record.shared), record.visits_of(cell)
        record.derived[cell] = {block: _summary(visit, protocol, shared=shared) for block, visit in visits.items()}
    known: dict[int, VisitSummary] = record.derived[cell]
    return known


def summaries_at_once(records: Iterable[LaunchRecord]) -> None:
    """Make the summaries of all visits of some launches, where they are not made in a way of their own."""
    alone = [record for record in records if not record.shared]
    usual = [record for record in alone if _is_usual(protocol_of(record.protocol))]
    missing = [(record, cell) for record in usual for cell in record.visited if cell not in record.derived]
    visits = [visit for record, cell in missing for visit in record.visits_of(cell).values()]
    made = iter(summarise_all(visits))
    for record, cell in missing:
        record.derived[cell] = {block: next(made) for block in record.visits_of(cell)}


def _is_usual(protocol: Protocol) -> bool:
    return protocol.clean and protocol.error_control


def _summary(visit: Visit, protocol: Protocol, *, shared: bool) -> VisitSummary:
    summary = summarise(visit, clean=protocol.clean, shared=shared)
    # Where no verdict rests on it a disturbed number is of more use than none; the summary says how many there are.
    return summary if summary.kept or protocol.error_control else summarise(visit, clean=False)


def _ln_seconds(record: LaunchRecord, cell: Cell, channel: Channel) -> dict[int, tuple[float, float]]:
    """Return ln(seconds per call) and its variance of each block in which a cell has a usable visit.

    A queue that did not settle has no latency: it would say how long it was watched.
    """
    if channel == "requests" and has_no_latency(record.prepared[cell]):
        return {}
    if record.protocol == "paper":
        return {block: _mean_of_repetitions(visit, channel) for block, visit in record.visits_of(cell).items()}
    if channel == "mean":
        each = {block: ln_mean(visit, shared=bool(record.shared)) for block, visit in record.visits_of(cell).items()}
    else:
        each = {block: _of_channel(summary, channel) for block, summary in summaries(record, cell).items()}
    return {block: (value, 0.0) for block, value in each.items() if value is not None}


def _of_channel(summary: VisitSummary, channel: Channel) -> float | None:
    if channel == "requests":
        return summary.ln_request_seconds
    if channel.endswith(("first", "step")):
        return _of_tokens(summary.tokens, channel)
    return summary.ln_minimum if channel == "fastest" else summary.ln_seconds


def _of_tokens(times: TokenTimes | None, channel: Channel) -> float | None:
    if times is None:
        return None
    if channel.endswith("first"):
        return times.ln_first_minimum if channel == "fastest first" else times.ln_first
    return times.ln_step_minimum if channel == "fastest step" else times.ln_step


def _mean_of_repetitions(visit: Visit, channel: Channel) -> tuple[float, float]:
    """Return ln of the mean time per call and the squared coefficient of variation: the paper's mean and deviation."""
    if channel == "requests":
        seconds = [nanoseconds * 1e-9 for nanoseconds in visit.request_ns]
    elif channel.endswith(("first", "step")):
        seconds = token_seconds(visit)[not channel.endswith("first")]
    else:
        seconds = [wall / visit.calls * 1e-9 for wall in visit.wall_ns]
    mean = math.fsum(seconds) / len(seconds)
    spread = math.fsum((value - mean) ** 2 for value in seconds) / max(1, len(seconds) - 1)
    return math.log(mean), spread / mean**2


def combine(
    record: LaunchRecord,
    cells: Sequence[Cell],
    function: Callable[[Sequence[float]], float],
    *,
    channel: Channel = "usual",
    disturbed: bool = False,
) -> LaunchValue | None:
    """Evaluate a function of the cells' ln times in every block that has them all, and reduce it to a launch value.

    Where too few blocks were steady for a comparison it is evaluated once, of what the machine left alone: of a low
    quantile of each cell's calls. Its second channel is then that of all blocks as they come. With ``disturbed`` ones
    these count in its place (``LaunchRecord.blocks_for``), and so they do where other processes shared a launch that
    would say nothing.
    """
    columns = [_ln_seconds(record, cell, channel) for cell in cells]
    usable = set(columns[0]).intersection(*columns[1:])
    # Where no verdict rests on it a disturbed number is of more use than none.
    disturbed = disturbed or (len(cells) > 1 and not protocol_of(record.protocol).error_control)
    blocks = record.blocks_for(cells, usable, disturbed=disturbed, half=_has_quantile(record, cells, channel))
    if not blocks and not disturbed and counts_left_alone(record, cells, channel):
        if channel in _LEFT_ALONE:
            return _left_alone(record, cells, function, channel)
        usual = next(usual for usual, fastest in _LEFT_ALONE.items() if fastest == channel)
        columns, blocks = [_ln_seconds(record, cell, usual) for cell in cells], sorted(usable)
    if not blocks and len(cells) > 1 and _is_shared_here(record, cells):
        # Who is beside it shows in what waits, and the controls are held against that.
        blocks = record.blocks_for(cells, usable, disturbed=True)
    value = launch_value([function([column[block][0] for column in columns]) for block in blocks])
    if value is None or record.protocol != "paper":
        return value
    values, variances = zip(*(column[blocks[0]] for column in columns), strict=True)
    slopes = [_slope(function, values, place) for place in range(len(values))]
    total = math.fsum(slope**2 * variance for slope, variance in zip(slopes, variances, strict=True))
    return LaunchValue(value.value, total, value.blocks)


def _is_shared_here(record: LaunchRecord, cells: Sequence[Cell]) -> bool:
    """Return whether others shared a launch on this machine, and not on its host, which took nothing of these cells."""
    return bool(record.shared) and not any(
        visit.stolen_ns for cell in cells for visit in record.visits_of(cell).values()
    )


def counts_left_alone(record: LaunchRecord, cells: Sequence[Cell], channel: Channel = "usual") -> bool:
    """Return whether a launch in which few blocks are steady counts by the calls for which the machine was left alone.

    Enough blocks must have usable visits of all cells.
    """
    if not record.was_left_alone or not _has_quantile(record, cells, channel):
        return False
    each = ({block for block, one in summaries(record, cell).items() if one.kept} for cell in cells)
    usable = set.intersection(*each)
    return len(usable) >= record.least_blocks and not record.blocks_for(cells, usable, half=True)


def _has_quantile(record: LaunchRecord, cells: Sequence[Cell], channel: Channel) -> bool:
    """Return whether low quantiles of cells compare them on a machine that was left alone.

    That is where calls are made one after the other and have no neighbour, and most blocks are in one state of the
    machine, the fastest that it was in. Calls that are long enough to be disturbed in part are all alike, while short
    ones fall between: of such the quantiles are not of the same machine. A time by itself is that of usual calls.
    """
    # Most launches are disturbed by nobody, and every value of a launch asks this.
    if not record.unsteady or record.torn or record.slower:
        return False
    channels = (*_LEFT_ALONE, *_LEFT_ALONE.values())
    if len(cells) < 2 or channel not in channels or second_channel(cells) != "fastest":
        return False
    return all(_batch_seconds(record, cell) <= _LONGEST_SECONDS for cell in cells)


def _batch_seconds(record: LaunchRecord, cell: Cell) -> float:
    """Return how long a usual batch of a cell takes in the visit in which that is least, 0 without any."""
    visits = record.visits_of(cell)
    each = {block: one.ln_seconds for block, one in summaries(record, cell).items() if one.ln_seconds is not None}
    return min((math.exp(value) * visits[block].calls for block, value in each.items()), default=0.0)


def _left_alone(
    record: LaunchRecord, cells: Sequence[Cell], function: Callable[[Sequence[float]], float], channel: Channel
) -> LaunchValue | None:
    """Return what a launch says by a low quantile of the calls of each cell (docs/measuring.md, step 6).

    None where the calls that are as fast as it are much fewer than the machine was left alone for. Then they are not
    what the cell is like by itself: it is quick now and then.
    """
    alone, each = record.alone or 0.0, [_clean_seconds(record, cell, channel) for cell in cells]
    blocks = sorted(block for block in each[0] if all(block in one for one in each))
    columns = [[one[block] for block in blocks] for one in each]
    if not blocks or any(share_alike(column, QUANTILE * alone) < LEAST_ALIKE * alone for column in columns):
        return None
    return launch_quantile(columns, QUANTILE * alone, function)


def _clean_seconds(record: LaunchRecord, cell: Cell, channel: Channel) -> dict[int, Array]:
    """Return the seconds of each clean batch of a cell by block, of blocks with any. Made once for each record."""
    import numpy as np

    if (cell, channel) not in record.derived:
        shared = bool(record.shared)
        each = {block: clean_seconds(visit, channel, shared=shared) for block, visit in record.visits_of(cell).items()}
        record.derived[cell, channel] = {block: np.array(some) for block, some in each.items() if some}
    known: dict[int, Array] = record.derived[cell, channel]
    return known


def _slope(function: Callable[[Sequence[float]], float], values: Sequence[float], place: int) -> float:
    """Return the derivative of a function by one of its values, as the propagation of deviations needs it."""
    ends = [function([value + step * (at == place) for at, value in enumerate(values)]) for step in (_STEP, -_STEP)]
    return (ends[0] - ends[1]) / (2 * _STEP)


def of_times(
    source: Source,
    metric: str,
    label: str,
    cells: Sequence[Cell],
    formula: Callable[[Sequence[float]], float],
    *,
    subject: Cell,
    parts: tuple[Quantity, ...] = (),
    channel: Channel = "usual",
) -> Quantity:
    """Return a metric as a quantity. ``formula`` gives it from the seconds per call of the cells, in their order.

    It is evaluated in every block (docs/measuring.md, step 7). Raises ClaimError for cells of different scenarios: a
    time between completions is not one from call to return. So it does for how cells scale to which calls arrive.
    """
    cells, row = tuple(cells), METRICS[metric]
    scenarios = sorted({cell.workload.scenario for cell in cells})
    if len(scenarios) > 1:
        raise ClaimError(f"{label}: its cells are of the scenarios {' and '.join(scenarios)}; compare cells of one")
    if metric in _SCALING and rate_of(subject.workload.scenario) is not None:
        raise ClaimError(
            f"{label}: as many calls are answered as arrive, whatever they take, so nothing scales (expected cells of "
            'scenario="latency" or "throughput")'
        )

    def function(ln_seconds: Sequence[float]) -> float:
        value = formula([math.exp(value) for value in ln_seconds])
        return math.log(value) if row.scale == "log" else value

    def of_launch(record: LaunchRecord, *, channel: Channel = channel, disturbed: bool = False) -> LaunchValue | None:
        return combine(record, cells, function, channel=channel, disturbed=disturbed)

    second = second_channel(cells)
    of_second = None if second is None else partial(of_launch, channel=_FASTEST.get(channel, second))
    made = Quantity(source, row, label, cells, subject, of_launch, parts, timed=True, of_second=of_second)
    # A time by itself that is disturbed is only too long, and its fastest calls too short.
    also = None if of_second is None or len(cells) == 1 else partial(of_second, disturbed=True)
    taking = replace(made, of_launch=partial(of_launch, disturbed=True), of_second=also, takes_disturbed=True)
    rises = len(cells) > 1 or function([1.0]) > function([0.0])
    return replace(made, disturbed=taking, rises=rises)


def second_channel(cells: Sequence[Cell]) -> Channel | None:
    """Return what else than the median batch says how fast calls of cells are, None where nothing does.

    Where several are in flight the fastest batches say how unevenly calls finish, and where calls arrive, which found
    nobody before them. Beside a neighbour they are those that it happened to leave alone: what would have it the other
    way there is the mean of all calls, since a cell that is slowed in half of them has no usual one.
    """
    if any(cell.workload.scenario != "latency" for cell in cells):
        return None
    return "mean" if any(cell.workload.neighbour != NONE for cell in cells) else "fastest"


def but_reused(values: Sequence[float | None], reused: Sequence[bool]) -> list[bool]:
    """Return which values of launches count: those measured and, of those ``reused``, the last if it is none of them.

    None is no value.
    """
    measured = {value for value, again in zip(values, reused, strict=True) if not again}
    last = max((place for place, again in enumerate(reused) if again and values[place] is not None), default=None)
    return [not again or (place == last and values[place] not in measured) for place, again in enumerate(reused)]


@dataclass(frozen=True, slots=True)
class Once:
    """A number that preparing a cell gives once per launch, or None: how it is picked from the record.

    ``reused`` says of which records it was measured before and is reused. With ``memory`` the launches are
    untimed passes for memory.
    """

    pick: Callable[[CompileRecord], float | None]
    reused: Callable[[CompileRecord], bool] | None = None
    memory: bool = False


def once_per_launch(source: Source, metric: str, label: str, cell: Cell, once: Once) -> Quantity:
    """Return a number that preparing a cell gives once per launch as a quantity. Launches without it do not count."""

    def of_launch(record: LaunchRecord) -> LaunchValue | None:
        value = once.pick(record.prepared[cell])
        return LaunchValue(math.log(value), 0.0, 1) if value else None

    again = once.reused
    reused = None if again is None else lambda record: again(record.prepared[cell])
    return Quantity(source, METRICS[metric], label, (cell,), cell, of_launch, (), once.memory, reused)

"""Reversals: pairs of models whose order by throughput is another one when they are compiled (the paper's Figure 1).

A pair that seems to change places may do so by chance, and among many pairs some will. So a reversal is a pair both of
whose ratios, with the baseline and compiled, exclude 1 on opposite sides with intervals of 99 %, and of the reversals
that a report shows at most 5 % are expected to be chance (``stats.discoveries``, over all pairs whose points have
changed places). The ratios are of launches that hold all four cells. How many launches there are was decided by gates
that looked at the same numbers: intervals and p-values hold whenever measuring stopped, because the k-th launch from
the third on spends 1 / (k (k + 1)) of their error rate, which adds up to all of it.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.claims.doubts.controls import violated_beside_others, violated_control
from pytest_ngraph.quantities.comparisons import as_baseline, throughput_ratio
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, NotStored, Source
from pytest_ngraph.spec.cells import Cell, Workload, protocol_of
from pytest_ngraph.stats.launches import interval, p_value
from pytest_ngraph.stats.order import discoveries

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport

FALSE_SHARE, LEVEL = 0.05, 0.01
_FEWEST_LAUNCHES = 3
_MOST_LINES = 5
# The protocol that compares as the paper did.
_BY_POINTS = "paper"
# How sure the reversals of a run are, those by points as well.
_SURE = {
    False: f"at most {100 * FALSE_SHARE:g} % of reversals shown are expected to be chance",
    True: "points compared as the paper did, without error control: some may be chance",
}
# Stands for a space where no line may be broken.
_GLUE = "\0"


@dataclass(frozen=True, slots=True)
class Reversal:
    """Two models of one device, batch and further axes: the first is faster with the baseline, the second compiled.

    The ratios are throughput of the first over the second, with intervals of 99 % that hold whenever measuring stopped.
    Those of a reversal ``by_points`` are ratios of two means, with the standard deviation that those of the two make.
    """

    device: str
    compiler: str
    baseline: str
    batch: int
    axes: tuple[str, ...]
    first: str
    second: str
    baseline_ratio: Estimate
    compiled_ratio: Estimate
    by_points: bool = False

    def __str__(self) -> str:
        where = ", ".join([f"batch {self.batch}", *self.axes])
        return (
            f"at {where} {self.first} is {self.baseline_ratio} faster than {self.second} with {self.baseline}, "
            f"{self.compiled_ratio} with {self.compiler}"
        )


@dataclass(frozen=True, slots=True)
class Contest:
    """A pair of models that change places by their points, and the probability of such a thing by chance."""

    reversal: Reversal
    p_value: float


def not_looked_for(protocol: str) -> str:
    """Return why nobody looked for reversals in a run by a protocol, or nothing where somebody did."""
    if protocol_of(protocol).error_control or protocol == _BY_POINTS:
        return ""
    return (
        f"Not looked for: the protocol {protocol} controls no error, so that a pair that seems to change places may be "
        "chance. --ngraph-protocol=gate looks for them, and --ngraph-protocol=paper compares points as the paper did."
    )


def find_reversals(reports: Sequence[CellReport], protocol: str = "gate") -> list[Reversal]:
    """Return the reversals of a run by a protocol, the clearest first. Noise is none: see the head of this module.

    Of ``paper`` they are ``by_points``. Of another protocol without error control there are none, and
    ``not_looked_for`` says so.
    """
    if protocol == _BY_POINTS:
        return sorted(_changed_points(reports), key=_gap, reverse=True)
    if not_looked_for(protocol):
        return []
    found = [contest for report in reports for contest in report.contests]
    sure = [found[index] for index in discoveries([each.p_value for each in found], FALSE_SHARE, most=LEVEL)]
    return [each.reversal for each in sorted(sure, key=lambda each: _gap(each.reversal), reverse=True)]


def _gap(reversal: Reversal) -> float:
    """Return how far the nearer of the two ratios is from 1, as a factor."""
    return min(reversal.baseline_ratio.value, 1 / reversal.compiled_ratio.value)


def _changed_points(reports: Sequence[CellReport]) -> Iterator[Reversal]:
    """Yield the pairs of models whose means are one way round with the baseline and the other way round compiled."""
    known = {report.cell: report.estimates["throughput"] for report in reports if "throughput" in report.estimates}
    alike: dict[object, list[tuple[Cell, Cell]]] = {}
    for report in reports:
        cell, baseline = report.cell, report.baseline
        if baseline is not None and cell in known and baseline in known:
            alike.setdefault(_kind(cell, baseline), []).append((cell, baseline))
    for pairs in alike.values():
        for pair in combinations(pairs, 2):
            # The first is the faster one with the baseline.
            first, second = sorted(pair, key=lambda each: known[each[1]].value, reverse=True)
            before, after = (_ratio(known[first[side]], known[second[side]]) for side in (1, 0))
            if before.value > 1 > after.value:
                yield _reversal(*first, second[0], before, after, by_points=True)


def _ratio(first: Estimate, second: Estimate) -> Estimate:
    """Return a ratio of two independent means, its deviation being that of both together."""
    value = first.value / second.value
    ends = (first.low, first.high, second.low, second.high)
    if not all(math.isfinite(end) and end > 0 for end in ends):
        return Estimate("throughput_ratio", value, 0.0, math.inf, 1)
    spread = math.hypot(math.log(first.high / first.low) / 2, math.log(second.high / second.low) / 2)
    low, high = value * math.exp(-spread), value * math.exp(spread)
    return Estimate("throughput_ratio", value, low, high, min(first.launches, second.launches))


def _reversal(
    cell: Cell, baseline: Cell, other: Cell, before: Estimate, after: Estimate, *, by_points: bool = False
) -> Reversal:
    workload = cell.workload
    return Reversal(
        device=cell.device,
        compiler=str(cell.compiler),
        baseline=str(baseline.compiler),
        batch=workload.batch,
        axes=tuple(workload.axis_labels("batch")),
        first=workload.model.text,
        second=other.workload.model.text,
        baseline_ratio=before,
        compiled_ratio=after,
        by_points=by_points,
    )


def _kind(cell: Cell, baseline: Cell) -> object:
    """Return what the cells of two models have in common where they are a pair."""
    workload = _without_model(cell.workload)
    return (cell.target, cell.replica, cell.rebuild, cell.side, baseline.compiler, workload)


def contests_of(source: Source, cells: Sequence[Cell], baselines: Mapping[Cell, Cell]) -> Mapping[Cell, list[Contest]]:
    """Return the pairs of models among cells that change places by their points, under the first one's compiled cell.

    ``cells`` are what launches connect, such as the models of one test. Cells that never shared one are no pair.
    """
    if not source.error_control:
        return {}
    alike: dict[object, list[Measurement]] = {}
    for cell in cells:
        baseline = baselines.get(cell)
        if baseline is not None:
            alike.setdefault(_kind(cell, baseline), []).append(Measurement(source, cell, baseline))
    found: dict[Cell, list[Contest]] = {}
    for models in alike.values():
        for one, other in combinations(models, 2):
            for first, contest in _contest(one, other):
                found.setdefault(first, []).append(contest)
    return found


def _without_model(workload: Workload) -> tuple[object, ...]:
    return (workload.batch, *workload.axis_labels())


def _contest(one: Measurement, other: Measurement) -> Iterator[tuple[Cell, Contest]]:
    """Yield a pair if it changes places by its points, the first being the faster one with the baseline."""
    before = throughput_ratio(as_baseline(one), as_baseline(other), beside=(one.cell, other.cell))
    try:
        values = before.values()
    except NotStored:
        return
    if len(values) < _FEWEST_LAUNCHES:
        return
    chances = len(values) - _FEWEST_LAUNCHES + 1
    share = 1 / (chances * (chances + 1))
    with_baseline = interval(values, LEVEL / 2 * share)
    if with_baseline.theta < 0:
        yield from _contest(other, one)
        return
    after = throughput_ratio(one, other, beside=(one.baseline, other.baseline))
    compiled = interval(after.values(), LEVEL / 2 * share)
    if with_baseline.theta == 0 or compiled.theta >= 0:
        return
    rows = before.rows()
    if violated_control([record for record, _ in rows]) or violated_beside_others(before, rows):
        # Gates of these launches are invalid, too.
        return
    reversal = _reversal(
        one.cell, one.baseline, other.cell, before.of_interval(with_baseline), after.of_interval(compiled)
    )
    yield one.cell, Contest(reversal, min(1.0, max(p_value(with_baseline), p_value(compiled)) / share))


def reversal_lines(reversals: Sequence[Reversal], width: int) -> list[str]:
    """Return what the terminal says of reversals: the clearest in full, and how many more there are."""
    if not reversals:
        return []
    lines = []
    for reversal in reversals[:_MOST_LINES]:
        on = f"{reversal.device}: " if len({each.device for each in reversals}) > 1 else ""
        by_points = " by points" if reversal.by_points else ""
        text = f"reversal{by_points}: {on}{reversal}"
        for ratio in (reversal.baseline_ratio, reversal.compiled_ratio):
            text = text.replace(str(ratio), str(ratio).replace(" ", _GLUE))
        lines += textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)
    more = len(reversals) - _MOST_LINES
    rest = f"{units.count(more, 'reversal')} more; " if more > 0 else ""
    lines.append(f"  {rest}{_SURE[reversals[0].by_points]}")
    return [line.replace(_GLUE, " ") for line in lines]

"""Reversals: pairs of models whose order by throughput is another one when they are compiled (the paper's Figure 1).

A pair that seems to change places may do so by chance, and among many pairs some will. So a reversal is a pair both of
whose ratios, with the baseline and compiled, exclude 1 on opposite sides with intervals of 99 %, and of the reversals
that a report shows at most 5 % are expected to be chance (``stats.discoveries``, over all pairs whose points have
changed places). The ratios are of launches that hold all four cells. How many launches there are was decided by gates
that looked at the same numbers: intervals and p-values hold whenever measuring stopped, because the k-th launch from
the third on spends 1 / (k (k + 1)) of their error rate, which adds up to all of it.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.claims.controls import violated_beside_others, violated_control
from pytest_ngraph.quantities.comparisons import as_baseline, throughput_ratio
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, NotStored, Source
from pytest_ngraph.spec.cells import Cell, Workload
from pytest_ngraph.stats.launches import interval, p_value
from pytest_ngraph.stats.order import discoveries

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport

FALSE_SHARE, LEVEL = 0.05, 0.01
_FEWEST_LAUNCHES = 3
_MOST_LINES = 5
# Stands for a space where no line may be broken.
_GLUE = "\0"


@dataclass(frozen=True, slots=True)
class Reversal:
    """Two models of one device, batch and further axes: the first is faster with the baseline, the second compiled.

    The ratios are throughput of the first over the second, with intervals of 99 % that hold whenever measuring stopped.
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


def find_reversals(reports: Sequence[CellReport]) -> list[Reversal]:
    """Return the reversals of a run, the clearest first. Noise is none: see the head of this module.

    A protocol without error control has no intervals, so that it shows no reversal.
    """
    found = [contest for report in reports for contest in report.contests]
    sure = [found[index] for index in discoveries([each.p_value for each in found], FALSE_SHARE, most=LEVEL)]
    return [each.reversal for each in sorted(sure, key=lambda each: _gap(each.reversal), reverse=True)]


def _gap(reversal: Reversal) -> float:
    """Return how far the nearer of the two ratios is from 1, as a factor."""
    return min(reversal.baseline_ratio.value, 1 / reversal.compiled_ratio.value)


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
            kind = (
                cell.target,
                cell.replica,
                cell.rebuild,
                cell.side,
                baseline.compiler,
                _without_model(cell.workload),
            )
            alike.setdefault(kind, []).append(Measurement(source, cell, baseline))
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
    workload = one.workload
    reversal = Reversal(
        device=one.cell.device,
        compiler=str(one.cell.compiler),
        baseline=str(one.baseline.compiler),
        batch=workload.batch,
        axes=tuple(workload.axis_labels("batch")),
        first=workload.model.text,
        second=other.workload.model.text,
        baseline_ratio=before.of_interval(with_baseline),
        compiled_ratio=after.of_interval(compiled),
    )
    yield one.cell, Contest(reversal, min(1.0, max(p_value(with_baseline), p_value(compiled)) / share))


def reversal_lines(reversals: Sequence[Reversal], width: int) -> list[str]:
    """Return what the terminal says of reversals: the clearest in full, and how many more there are."""
    if not reversals:
        return []
    lines = []
    for reversal in reversals[:_MOST_LINES]:
        on = f"{reversal.device}: " if len({each.device for each in reversals}) > 1 else ""
        text = f"reversal: {on}{reversal}"
        for ratio in (reversal.baseline_ratio, reversal.compiled_ratio):
            text = text.replace(str(ratio), str(ratio).replace(" ", _GLUE))
        lines += textwrap.wrap(text, width, subsequent_indent="    ", break_on_hyphens=False)
    more = len(reversals) - _MOST_LINES
    rest = f"{units.count(more, 'reversal')} more; " if more > 0 else ""
    lines.append(f"  {rest}at most {100 * FALSE_SHARE:g} % of reversals shown are expected to be chance")
    return [line.replace(_GLUE, " ") for line in lines]

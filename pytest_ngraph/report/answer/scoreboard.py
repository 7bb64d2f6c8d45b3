"""How much faster each compiler is over several models: geometric means of speed-ups, by family of models."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, stdev

from pytest_ngraph import units
from pytest_ngraph.load.neighbours import NONE
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.quantities.quantity import LEVEL, Estimate
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.families import family_of
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.spec.cells import DENSE, Cell, Workload, protocol_of
from pytest_ngraph.spec.optimizing import written

# Of fewer models nothing is said about others: the interval is that of measuring these.
FEWEST_MODELS = 3
EVERY_MODEL, ALL_MODELS = "all", "all models"


@dataclass(frozen=True, slots=True)
class Score:
    """The geometric mean of a compiler's speed-ups over its baseline, of one family of models or of all, on a device.

    Each model counts once, by the mean over its cells. Pruned ones and those of another precision than f32 have scores
    of their own, with what was ``done`` to them in the name of their ``family``. The interval is at 99 %: over models
    from three on, else over launches, where it is made of the cells' bounds and holds however these depend on one
    another. It is None where a cell has none, and over launches of a protocol without error control. ``missing`` counts
    the workloads that other compilers have a speed-up of and this one has not, so that its mean is of something else.
    """

    device: str
    compiler: str
    baseline: str
    family: str
    value: float
    low: float | None
    high: float | None
    models: int
    cells: int
    missing: int
    done: str = DENSE

    @property
    def is_of_all(self) -> bool:
        """Return whether it is the mean of all models to which the same was done."""
        return self.family == heading(EVERY_MODEL, self.done)

    @property
    def is_over_models(self) -> bool:
        """Return whether the interval says something of other models of the kind, rather than of these alone."""
        return self.models >= FEWEST_MODELS

    @property
    def claim(self) -> str:
        """Return ``faster`` or ``slower``, or nothing where the interval holds 1 or there is none."""
        if self.low is None or self.high is None:
            return ""
        return "faster" if self.low > 1 else "slower" if self.high < 1 else ""

    @property
    def basis(self) -> str:
        """Say what it is a mean of, and what its interval is over."""
        text = f"{units.count(self.models, 'model')}, {units.count(self.cells, 'cell')}"
        if self.low is not None:
            text += ", interval over models" if self.is_over_models else ", interval over launches"
        return text + (f"; {units.count(self.missing, 'cell')} missing" if self.missing else "")

    def __str__(self) -> str:
        spread = "" if self.low is None or self.high is None else f" [{_factor(self.low)}, {_factor(self.high)}]"
        return units.factor(self.value) + spread


def _factor(value: float) -> str:
    return units.factor(value) if value < 1e4 else "more than 10,000x"


def counted(reports: Sequence[CellReport]) -> list[CellReport]:
    """Return the cells that means are made of.

    Second processes and cells of other sides are left out, and what was rebuilt where the same was not rebuilt. So are
    cells under load, whose speed-up is 1 where they keep up, and those with a neighbour, which say how two share a
    machine.
    """
    plain = {one.cell for one in reports if not one.cell.rebuild}
    return [
        one
        for one in reports
        if "speedup" in one.estimates
        and one.baseline is not None
        and not one.cell.replica
        and not one.cell.side
        and rate_of(one.cell.workload.scenario) is None
        and one.cell.workload.neighbour == NONE
        and (not one.cell.rebuild or replace(one.cell, rebuild=False) not in plain)
    ]


def has_error_control(protocol: str) -> bool:
    """Return whether the intervals of a run's protocol hold over its launches."""
    return protocol_of(protocol).error_control


def quantiles(models: Iterable[int]) -> list[float]:
    """Return by how many standard errors an interval over so many models reaches to each side of their mean."""
    from scipy.special import stdtrit

    return [float(stdtrit(count - 1, 1 - LEVEL)) for count in models]


def scoreboard(reports: Sequence[CellReport], protocol: str) -> list[Score]:
    """Return the scores of a run: by device and compiler, that of all models first, then the families'.

    The page makes those of the cells that are chosen there (``board.js``), by the same rules.
    """
    timed = counted(reports)
    against = {one.cell: str(one.baseline.compiler) for one in timed if one.baseline is not None}
    families = list(dict.fromkeys(family_of(one.cell.workload.model.text) for one in timed))
    families.sort(key=natural)
    scores = []
    for device in sorted({one.cell.device for one in timed}, key=natural):
        for done in _all_done(one for one in timed if one.cell.device == device):
            here = [one for one in timed if (one.cell.device, done_to(one.cell.workload)) == (device, done)]
            scores += [*_scores(here, families, against, done, protocol)]
    return scores


def done_to(workload: Workload) -> str:
    """Return what was done to a network: what is pruned or in fewer bits is no longer the model of the others."""
    return written(workload.optimize, workload.precision)


def _all_done(reports: Iterable[CellReport]) -> list[str]:
    """Return what was done to the networks of cells, nothing first."""
    return sorted({done_to(one.cell.workload) for one in reports}, key=lambda done: (done != DENSE, natural(done)))


def _scores(
    here: Sequence[CellReport], families: Sequence[str], against: Mapping[Cell, str], done: str, protocol: str
) -> Iterator[Score]:
    """Yield the scores of the cells of a device, to the networks of which the same was done."""
    by_family = _by_family(here)
    targets = dict.fromkeys((str(one.cell.compiler), against[one.cell]) for one in here)
    for compiler, baseline in sorted(targets, key=lambda names: tuple(map(natural, names))):
        # Where there is one family its mean is that of all.
        for family in (EVERY_MODEL, *(families if len(by_family) > 1 else ())):
            among = here if family == EVERY_MODEL else by_family.get(family, [])
            rivals = [one for one in among if against[one.cell] == baseline]
            mine = [one for one in rivals if str(one.cell.compiler) == compiler]
            if mine:
                there = {one.cell.workload for one in rivals}
                yield _score(mine, there, family, done, baseline, protocol)


def heading(family: str, done: str) -> str:
    """Name models as a column does, with what was done to them."""
    return family if done == DENSE else f"{ALL_MODELS if family == EVERY_MODEL else family}, {done}"


def _by_family(reports: Iterable[CellReport]) -> Mapping[str, list[CellReport]]:
    found: dict[str, list[CellReport]] = {}
    for one in reports:
        found.setdefault(family_of(one.cell.workload.model.text), []).append(one)
    return found


def _score(
    mine: Sequence[CellReport], there: set[Workload], family: str, done: str, baseline: str, protocol: str
) -> Score:
    cell = mine[0].cell
    by_model: dict[str, list[Estimate]] = {}
    for one in mine:
        by_model.setdefault(one.cell.workload.model.text, []).append(one.estimates["speedup"])
    models = list(by_model.values())
    logs = [fmean(math.log(each.value) for each in estimates) for estimates in models]
    is_controlled = has_error_control(protocol)
    low, high = _over_models(logs) if len(models) >= FEWEST_MODELS else _over_launches(models, is_controlled)
    missing = len(there - {one.cell.workload for one in mine})
    value = math.exp(fmean(logs))
    named, counts = heading(family, done), (len(logs), len(mine), missing)
    return Score(cell.device, str(cell.compiler), baseline, named, value, low, high, *counts, done)


def _over_models(logs: Sequence[float]) -> tuple[float | None, float | None]:
    """Return the t-interval of a mean of logarithms, back as factors."""
    (reach,) = quantiles([len(logs)])
    half = reach * stdev(logs) / math.sqrt(len(logs))
    middle = fmean(logs)
    # Beyond this a float has no exponential.
    return math.exp(max(-700.0, middle - half)), math.exp(min(700.0, middle + half))


def _over_launches(models: Sequence[Sequence[Estimate]], is_controlled: bool) -> tuple[float | None, float | None]:
    """Return the mean of the cells' bounds, weighted as their values are. None where one has none that hold."""
    each = [one for estimates in models for one in estimates]
    if not is_controlled or not all(math.isfinite(one.low) and math.isfinite(one.high) and one.low > 0 for one in each):
        return None, None
    lows = [fmean(math.log(one.low) for one in estimates) for estimates in models]
    highs = [fmean(math.log(one.high) for one in estimates) for estimates in models]
    return math.exp(fmean(lows)), math.exp(fmean(highs))

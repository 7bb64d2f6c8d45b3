"""Models whose throughputs are written by hand, measured together by the sessions of ``tests.claims.test_claims``."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from pytest_ngraph.options.settings import Budget
from pytest_ngraph.plan.items import item_plan
from pytest_ngraph.quantities.quantity import Measurer
from pytest_ngraph.quantities.sweeps import Measurement, ModelSweep
from pytest_ngraph.spec.cells import Cell, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.claims.test_claims import BASELINE, FAST, Laboratory, Made

NODE = "test_suite.py::test_models"


@dataclass(frozen=True)
class Ranked(Made):
    """What one launch measures: samples per second of each model, with the baseline and compiled.

    ``fastest`` are those of the fastest calls of the compiled cells, where they say something else.
    """

    before: Mapping[str, float] = field(default_factory=dict)
    after: Mapping[str, float] = field(default_factory=dict)
    by_fastest: Mapping[str, float] = field(default_factory=dict)

    def wall_ns(self, cell: Cell, block: int) -> tuple[int, ...]:
        """Return the batches of one visit: the fastest first, then nine like the median."""
        model, rates = cell.workload.model.locator, self.after if cell.compiler == FAST else self.before
        usual = 1e9 * cell.workload.batch / rates[model]
        if cell.replica:
            usual *= self.twin
        fastest = 1e9 * cell.workload.batch / self.by_fastest[model] if self._is_apart(cell) else usual
        return (round(0.9 * fastest), *[round(usual)] * 9)

    def _is_apart(self, cell: Cell) -> bool:
        return cell.compiler == FAST and bool(self.by_fastest)


def launches(before: Sequence[float], after: Sequence[float], count: int, scatter: float = 0.0) -> list[Made]:
    """Return launches of models a, b, c, ...; compiled, each scatters by turns around its throughput."""
    return list(_launches(before, after, count, scatter))


def _launches(before: Sequence[float], after: Sequence[float], count: int, scatter: float) -> Iterator[Ranked]:
    names = "abcdefgh"
    for number in range(count):
        # Three in a row have mean 0 and standard deviation ``scatter``; models scatter in opposite directions.
        off = (-1, 0, 1)[number % 3] * scatter / 2
        rates = [rate * math.exp(off if place % 2 else -off) for place, rate in enumerate(after)]
        yield Ranked(before=dict(zip(names, before, strict=False)), after=dict(zip(names, rates, strict=False)))


def models(lab: Laboratory, count: int, *, batch: int = 1, tolerance: float = 0.05, **how: object) -> ModelSweep:
    """Begin a run, and return the sweep over models a, b, c, ... of its one test."""
    lab.run(tolerance=tolerance, **how)  # type: ignore[arg-type]
    session = lab._sessions[-1]
    names = [f"timm:{name}" for name in "abcdefgh"[:count]]
    cells = [Cell("local", FAST, Workload(parse_model(name), batch)) for name in names]
    budget = Budget.parse(str(how.get("budget", "8")))
    plan = item_plan(NODE, cells, session.settings, baseline=BASELINE, budget=budget, tolerance=tolerance)
    session.plan([plan])
    measurer = Measurer(session, NODE)
    pairs = zip(plan.cells, plan.baselines, strict=True)
    return ModelSweep(measurer, {a.workload.model.text: Measurement(measurer, a, b) for a, b in pairs}, tuple(names))

"""The catalogue of optimizers: names and where they stand, as strings: nothing is imported early."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from pytest_ngraph.errors import SpecError, known
from pytest_ngraph.optimizers.contract import Optimizer
from pytest_ngraph.places import Places, load_place
from pytest_ngraph.spec.cells import DENSE
from pytest_ngraph.spec.optimizing import Optimization, Step, parse

if TYPE_CHECKING:
    from pytest_ngraph.spec.cells import Workload

_HERE = "pytest_ngraph.optimizers"
BUILT_IN: Mapping[str, str] = {
    "channel_prune": f"{_HERE}.channel_prune:OPTIMIZER",
    "weight_prune": f"{_HERE}.weight_prune:OPTIMIZER",
}


class Optimizers(Places):
    """Names of optimizers and the places of their instances. The steps of a suite are checked by them."""

    what, part = "optimizer", "instance"

    def __init__(self) -> None:
        super().__init__(BUILT_IN)

    def check(self, optimization: Optimization) -> None:
        """Raise SpecError where a step is of no optimizer that there is, or has an option that it does not take."""
        for step in optimization.steps:
            if step.name not in self:
                raise SpecError(f"unknown optimizer {step.name!r} ({known(step.name, sorted(self))})")
            _load(step.name, self._places[step.name]).resolve(step)

    def normal(self, optimization: Optimization) -> Optimization:
        """Return the same without options that say what they would be anyway: one network is one cell.

        Steps of optimizers that are not known here stay as they are.
        """
        return replace(optimization, steps=tuple(map(self._normal, optimization.steps)))

    def _normal(self, step: Step) -> Step:
        if step.name not in self or not step.options:
            return step
        known = {option.name: option for option in _load(step.name, self._places[step.name]).options}
        left = tuple((name, text) for name, text in step.options if name not in known or not known[name].is_unset(text))
        return replace(step, options=left)

    def places_of(self, optimization: Optimization) -> tuple[tuple[str, str], ...]:
        """Return where those of the steps stand that are not built in, as a workload carries them."""
        names = sorted({step.name for step in optimization.steps if step.name not in BUILT_IN})
        return tuple((name, self._places[name]) for name in names)

    def missing(self, workload: Workload) -> str | None:
        """Return what an optimizer of a workload lacks here, or None. Nothing is imported to find out."""
        for step, optimizer in steps_of(workload):
            if (missing := optimizer.missing()) is not None:
                return f"optimizer {step.name}: {missing}"
        return None


def steps_of(workload: Workload) -> Iterator[tuple[Step, Optimizer]]:
    """Yield the steps of a workload, each with its optimizer. Raise SpecError for one that cannot be had."""
    if workload.optimize == DENSE:
        return
    places = {**BUILT_IN, **dict(workload.optimizers)}
    for step in parse(workload.optimize).steps:
        if step.name not in places:
            raise SpecError(
                f"{workload.label}: no optimizer is called {step.name!r} here (built in: {', '.join(BUILT_IN)})"
            )
        yield step, _load(step.name, places[step.name])


@cache
def _load(name: str, place: str) -> Optimizer:
    return load_place(f"optimizer {name!r}", "instance", place, Optimizer)

"""The fixture ``ngraph``: measuring inside a test, one call a launch group."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.estimates import Measurer
from pytest_ngraph.grid import PLURAL, SINGULAR, Grid, Marker, Point, read_marker
from pytest_ngraph.planner import ItemPlan, item_plan
from pytest_ngraph.session import Session
from pytest_ngraph.spec import Cell
from pytest_ngraph.sweeps import BatchSweep, DepthSweep, Measurement, ModelSweep

Measured = Measurement | BatchSweep | DepthSweep | ModelSweep


def measured(session: Session, plan: ItemPlan, point: Point, marker: Marker) -> Measured:
    """Return what a fixture gives for one point of a grid: a measurement or a sweep."""
    measurer = Measurer(session, plan.nodeid)
    baselines = {cell.workload: cell for cell in plan.baselines}
    each = [Measurement(measurer, cell, baselines[cell.workload]) for cell in plan.cells]
    if marker.plural == "batches":
        return BatchSweep(measurer, {one.workload.batch: one for one in each}, point.asked)
    if marker.plural == "depths":
        return DepthSweep(measurer, {one.workload.depth or 1: one for one in each}, point.asked)
    if marker.plural == "models":
        return ModelSweep(measurer, {one.workload.model.text: one for one in each})
    return each[0]


def plan_of(nodeid: str, point: Point, marker: Marker, grid: Grid) -> ItemPlan:
    """Plan one item: its cells, their baselines and the test's own terms."""
    settings = grid.settings
    return item_plan(
        nodeid,
        point.cells,
        settings,
        baseline=marker.baseline,
        budget=marker.budget or settings.budget,
        tolerance=marker.tolerance if marker.tolerance is not None else settings.tolerance,
    )


class Imperative:
    """Measures when told to, on the device-compiler pair of the test."""

    def __init__(self, session: Session, grid: Grid, point: Point, nodeid: str) -> None:
        self._session, self._grid, self._point, self._nodeid = session, grid, point, nodeid
        self._calls = 0

    @property
    def target(self) -> str:
        """Name the device-compiler pair."""
        return f"{self._point.device}:{self._point.compiler}"

    def measure(self, **axes: Any) -> Measured | list[Measurement]:
        """Measure one cell, or a sweep (``batches=``, ``depths=``, ``models=``), with the marker's keywords.

        A singular axis given several values gives a list of measurements, measured as one launch group. Raises
        ClaimError where the keywords cannot be used.
        """
        refused = [key for key in axes if key not in SINGULAR and key not in PLURAL and key not in _TERMS]
        if refused:
            raise ClaimError(
                f"ngraph.measure: unknown keyword {refused[0]!r} (allowed: {', '.join((*SINGULAR, *PLURAL, *_TERMS))})"
            )
        try:
            marker = read_marker([((), axes)])
            points, _ = self._grid.points(self._only_here(marker))
        except SpecError as error:
            raise ClaimError(f"ngraph.measure: {error}") from None
        if points[0].deselected:
            raise ClaimError("ngraph.measure: the options narrow this call to nothing")
        self._calls += 1
        nodeid = f"{self._nodeid}#{self._calls}"
        together = Point(
            self._point.device, self._point.compiler, tuple(cell for point in points for cell in point.cells)
        )
        plan = plan_of(nodeid, together, marker, self._grid)
        self._session.plan([plan])
        if marker.plural is not None:
            if len(points) > 1:
                raise ClaimError(f"ngraph.measure: {marker.plural}= beside several values of an axis; call it for each")
            return measured(self._session, plan, points[0], marker)
        each = [self._one(plan, cell) for cell in plan.cells]
        several = any(isinstance(value, (list, tuple, range)) for value in axes.values())
        return each if several else each[0]

    def _one(self, plan: ItemPlan, cell: Cell) -> Measurement:
        baseline = next(other for other in plan.baselines if other.workload == cell.workload)
        return Measurement(Measurer(self._session, plan.nodeid), cell, baseline)

    def _only_here(self, marker: Marker) -> Marker:
        """Return the marker for this test's own pair."""
        return Marker(
            axes=marker.axes,
            plural=marker.plural,
            compilers=(self._point.compiler,),
            devices=(self._point.device,),
            baseline=marker.baseline,
            budget=marker.budget,
            tolerance=marker.tolerance,
        )


_TERMS: Mapping[str, str] = {"baseline": "", "budget": "", "tolerance": ""}

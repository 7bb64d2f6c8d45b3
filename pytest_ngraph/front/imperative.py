"""What the fixtures give: sweeps of a point, measuring inside a test, and the compiled model in this process."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, NoReturn

from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.plan.items import ItemPlan, left_out
from pytest_ngraph.plan.marker import DIMS, PLURAL, SINGULAR, Marker, is_several, read_compilers, read_marker
from pytest_ngraph.quantities.quantity import CellFailed, Measurer, NarrowedAway
from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep, Measurement, ModelSweep, SequenceSweep
from pytest_ngraph.session.session import Session
from pytest_ngraph.spec.cells import CompileRecord, Outcome

Measured = Measurement | BatchSweep | DepthSweep | ModelSweep | SequenceSweep
TERMS = ("baseline", "budget", "tolerance", "rebuild")
COMPILER = "compiler"
_ALL_NARROWED_AWAY = "ngraph.measure: all of its points were narrowed away on the command line"


def measured(measurer: Measurer, plan: ItemPlan) -> Measured:
    """Return what a fixture gives for one item: a measurement or a sweep."""
    each = each_measured(measurer, plan)
    if plan.marker.plural == "batches":
        return BatchSweep(measurer, {one.workload.batch: one for one in each}, plan.asked)
    if plan.marker.plural == "depths":
        return DepthSweep(measurer, {one.workload.depth or 1: one for one in each}, plan.asked)
    if plan.marker.plural == "sequences":
        return SequenceSweep(measurer, {one.workload.sequence or 1: one for one in each}, plan.asked)
    if plan.marker.plural == "models":
        return ModelSweep(measurer, {one.workload.model.text: one for one in each}, plan.asked)
    return each[0]


def each_measured(measurer: Measurer, plan: ItemPlan) -> list[Measurement]:
    """Return the measurements of an item's cells, each with what it is compared with."""
    baselines = {cell.workload: cell for cell in plan.baselines}
    plan = measurer.session.item(plan.nodeid)
    return [Measurement(measurer, cell, baselines[cell.workload], plan.other(cell)) for cell in plan.cells]


class Imperative:
    """Measures on request, on the device-compiler pair of the test and on the terms of its marker."""

    def __init__(self, session: Callable[[], Session], plan: ItemPlan) -> None:
        assert plan.grid is not None
        self._session, self._plan, self._grid = session, plan, plan.grid
        # The test's own terms; its axes are those of its fixtures.
        terms = replace(plan.marker, axes={}, plural=None, dims=())
        self._terms = replace(terms, compilers=(plan.compiler,), devices=(plan.device,))
        self._calls = 0
        # What was measured so far.
        self.made: list[Measurement] = []

    @property
    def target(self) -> str:
        """Name the device-compiler pair."""
        return f"{self._plan.device}:{self._plan.compiler}"

    def measure(self, points: Sequence[Mapping[str, Any]] | None = None, **axes: Any) -> Measured | list[Measurement]:
        """Measure one cell, or a sweep (``batches=``, ``depths=``, ``sequences=``, ...), with the marker's keywords.

        ``compiler=`` names another compiler than the test's own, or several to compare. As a baseline, what is named
        here is measured whatever compilers the command line selects. A singular axis, ``dims=`` or ``compiler=`` given
        several values gives a list of measurements, measured as one launch group, and so does a call without ``model=``
        where ``--ngraph-model`` names several. So do ``points``, which has the
        keywords of each cell that are not those of all: ``points=[{"compiler": "openvino", "batch": 8}, ...]``
        measures these and no others, where lists of values measure all that they combine to. Raises ClaimError where
        the keywords cannot be used, NarrowedAway where the options leave none of the values, and CellFailed where
        something is not installed.
        """
        if points is not None:
            return self._measured(self._listed(points, axes), several=True)
        marker, found, named = self._points(axes)
        if marker.plural is not None and len(found) > 1:
            raise ClaimError(f"ngraph.measure: {marker.plural}= beside several values of an axis; call it for each")
        given = {axis: axes[axis] for axis in SINGULAR if axis in axes}
        several = is_several(named) or any(is_several(given[axis], axis) for axis in given) or len(marker.dims) > 1
        # The options may name several models for a call that names none.
        return self._measured(found, several=several or len(found) > 1)

    def _listed(self, points: Sequence[Mapping[str, Any]], axes: Mapping[str, Any]) -> list[ItemPlan]:
        """Return the points of cells that are given one by one, of those that the command line leaves.

        Raises ClaimError where they cannot be used, NarrowedAway where none is left.
        """
        if not isinstance(points, (list, tuple)) or not points or not all(isinstance(one, Mapping) for one in points):
            raise ClaimError(
                "ngraph.measure: points= is not a list of keywords (expected such as "
                '[{"compiler": "openvino", "batch": 8}, {"batch": 1}])'
            )
        found: dict[object, ItemPlan] = {}
        for number, point in enumerate(points, 1):
            if both := [key for key in point if key in axes or key in TERMS]:
                raise ClaimError(
                    f"ngraph.measure: point {number} of points=: {both[0]}= is for all of them (expected axes that are "
                    "not given beside points=, and compiler=)"
                )
            try:
                marker, mine, _ = self._points({**axes, **point})
            except NarrowedAway:
                # The others may be left.
                continue
            if marker.plural is not None or len(mine) != 1:
                raise ClaimError(
                    f"ngraph.measure: point {number} of points= is {len(mine)} cells (expected one value of each axis)"
                )
            found.setdefault(mine[0].cells, mine[0])
        if not found:
            raise NarrowedAway(_ALL_NARROWED_AWAY)
        return [*found.values()]

    def _points(self, axes: dict[str, Any]) -> tuple[Marker, list[ItemPlan], Any]:
        """Return a call's marker, what of it the command line leaves, and which compilers it names.

        Raises ClaimError where the keywords cannot be used, NarrowedAway where nothing is left.
        """
        allowed = (*SINGULAR, *PLURAL, DIMS, COMPILER, *TERMS)
        refused = [key for key in axes if key not in allowed]
        if refused:
            raise ClaimError(f"ngraph.measure: unknown keyword {refused[0]!r} (allowed: {', '.join(allowed)})")
        named = axes.get(COMPILER)
        axes = {axis: value for axis, value in axes.items() if axis != COMPILER}
        try:
            marker, grid = self._on_own_terms(read_marker([((), axes)], self._grid.search)), self._grid
            if named is not None:
                marker = replace(marker, compilers=read_compilers(named, COMPILER))
                grid = replace(grid, settings=replace(grid.settings, compilers=None))
            offered = [point for _, point in grid.points(marker) if not point.deselected]
        except SpecError as error:
            raise ClaimError(f"ngraph.measure: {error}") from None
        # A bare name stands for every variant of it on the command line; this test has the one.
        points = [point for point in offered if named is not None or point.compiler == self._plan.compiler]
        if not points:
            raise NarrowedAway(_ALL_NARROWED_AWAY)
        return marker, points, named

    def _on_own_terms(self, marker: Marker) -> Marker:
        """Return a call's marker with the test's terms where the call gives none, for this test's own pair."""
        given = {term: getattr(marker, term) for term in TERMS if getattr(marker, term) is not None}
        return replace(self._terms, axes=marker.axes, plural=marker.plural, dims=marker.dims, **given)

    def _measured(self, points: list[ItemPlan], *, several: bool) -> Measured | list[Measurement]:
        self._calls += 1
        for point in points:
            if (missing := point.missing) is not None:
                self._session().leave_out(left_out(points))
                raise CellFailed(point.cells[0], CompileRecord(Outcome.UNAVAILABLE, missing))
        plan = replace(
            points[0],
            nodeid=f"{self._plan.nodeid}#{self._calls}",
            cells=tuple(cell for point in points for cell in point.cells),
            baselines=tuple(dict.fromkeys(cell for point in points for cell in point.baselines)),
        )
        session = self._session()
        session.plan([plan])
        measurer = Measurer(session, plan.nodeid)
        self.made += (each := each_measured(measurer, plan))
        return each if several and plan.marker.plural is None else measured(measurer, plan)


class NotInstalled:
    """Stands for what a fixture gives where something is not installed: whatever is asked of it raises CellFailed.

    The test itself does not run, but fixtures of its author's may ask before.
    """

    def __init__(self, plan: ItemPlan, missing: str) -> None:
        self._failed = CellFailed(plan.cells[0], CompileRecord(Outcome.UNAVAILABLE, missing))

    def __getattr__(self, name: str) -> NoReturn:
        raise self._failed

    def __getitem__(self, key: object) -> NoReturn:
        raise self._failed

    def __iter__(self) -> NoReturn:
        raise self._failed

    def __len__(self) -> NoReturn:
        raise self._failed


class InProcess:
    """The compiled cell in this process, as a callable without arguments. Compiled once, when first needed."""

    def __init__(self, session: Callable[[], Session], plan: ItemPlan) -> None:
        # Here is no second process of anything, and what was built before serves.
        cell = replace(plan.cells[0], replica=0, rebuild=False)
        self._session, self._cell, self._missing = session, cell, plan.missing
        self._open = contextlib.ExitStack()
        self._run: Callable[[], None] | None = None

    @property
    def label(self) -> str:
        """Name the cell."""
        return self._cell.label

    def __call__(self) -> None:
        """Do one call and wait for its end."""
        if self._run is None:
            self._run = self.compile()
        self._run()

    def compile(self) -> Callable[[], None]:
        """Compile the cell here. Raise CellFailed or CompileFailed where that does not work."""
        from pytest_ngraph.front.in_process import compiled

        if self._missing is not None:
            raise CellFailed(self._cell, CompileRecord(Outcome.UNAVAILABLE, self._missing))
        session = self._session()
        refusal = session.catalogue.why_not(self._cell, session.device)
        if refusal is not None:
            raise CellFailed(self._cell, CompileRecord(Outcome.UNSUPPORTED, refusal))
        self._run = self._open.enter_context(compiled(session, self._cell))
        return self._run

    def close(self) -> None:
        """Release what was compiled."""
        self._open.close()

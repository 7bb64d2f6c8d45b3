"""What the plugin keeps for one pytest run: its settings, the items that will run, and the session they share."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import SpecError
from pytest_ngraph.options import ROWS

if TYPE_CHECKING:
    from pytest_ngraph.grid import Grid, Marker, Point
    from pytest_ngraph.launcher import Tally
    from pytest_ngraph.planner import ItemPlan
    from pytest_ngraph.report.ci import Gates
    from pytest_ngraph.session import Session
    from pytest_ngraph.settings import Settings
    from pytest_ngraph.spec import Cell, Device
    from pytest_ngraph.store.rows import VerdictRow


class Planned(NamedTuple):
    """What an item of ours needs: its point of the grid, its merged marker, and the grid it came from."""

    point: Point
    marker: Marker
    grid: Grid

    @property
    def missing(self) -> str | None:
        """Return what has to be installed before the item can run, or None."""
        return self.grid.missing(self.point, self.marker)

    def plan(self, nodeid: str) -> ItemPlan:
        """Return what the session has to know of the item."""
        from pytest_ngraph.imperative import plan_of

        return plan_of(nodeid, self.point, self.marker, self.grid)


class State:
    """What the plugin keeps for one pytest run; ``resolve`` makes the settings when they are first asked for."""

    def __init__(self, config: pytest.Config, resolve: Callable[[], Settings], uid: str) -> None:
        self.config, self._resolve, self.uid = config, resolve, uid
        self.catalogue = Door()
        self.items: list[pytest.Item] = []
        self.folders: list[str] = []
        # What the workers of pytest-xdist have done, as ``done`` gives it; empty in a run of one process.
        self.reported: list[Mapping[str, Any]] = []
        # Tests that could not run, functions that claim nothing (see ``Gates``), and by test what is not stored.
        self.skipped: list[tuple[str, str]] = []
        self.claimless: set[str] = set()
        self.not_stored: dict[str, str] = {}
        self._first_claim = 0
        self._over: set[str] = set()
        self._session: Session | None = None

    @cached_property
    def has_options(self) -> bool:
        """Tell whether any option of ours was given, on the command line or in the ini file."""
        return any(self.config.getoption(row.dest) or self.config.getini(row.ini) for row in ROWS)

    @cached_property
    def settings(self) -> Settings:
        """Return every option, resolved; raise UsageError for one that cannot be used."""
        return self._resolve()

    @property
    def device(self) -> Device:
        """Return the device that is measured, with this run's settings; raise UsageError where it is not there."""
        from pytest_ngraph.devices.local import device_named

        try:
            return device_named(self.settings.devices[0], self.settings)
        except SpecError as error:
            raise pytest.UsageError(str(error)) from None

    @property
    def session(self) -> Session:
        """Return the session; the first call plans all collected items."""
        if self._session is None:
            from pytest_ngraph.devices.local import job
            from pytest_ngraph.report.progress import Progress
            from pytest_ngraph.session import Session

            self._session = Session(
                self.settings,
                self.catalogue,
                job(self.settings, self.catalogue, self.device, self.folders),
                Progress(self.config),
                uid=self.uid,
                command=sys.argv,
            )
            planned = [(item.nodeid, item.stash[PLANNED]) for item in self.items]
            self._session.plan(
                each.plan(nodeid) for nodeid, each in planned if each.point.cells and each.missing is None
            )
            for nodeid in self._over:
                self._session.finished(nodeid)
        return self._session

    def over(self, nodeid: str) -> None:
        """Hear that a test is over: later launches need not serve it."""
        self._over.add(nodeid)
        if self._session is not None:
            self._session.finished(nodeid)

    @property
    def run_uid(self) -> str:
        """Return the name of the run in the store: that of the run which is resumed, if one is."""
        return self._session.uid if self._session is not None else self.uid

    @property
    def verdicts(self) -> Sequence[VerdictRow]:
        """Return what this process has judged."""
        return self._session.verdicts if self._session is not None else ()

    @property
    def judged(self) -> tuple[Mapping[Cell, str], Mapping[Cell, Cell]] | None:
        """Return this process's cells with their evidence, and their baselines; None where nothing was asked for."""
        return self._session.judged if self._session is not None else None

    # What became of each test

    def begin(self) -> None:
        """Hear that a test begins, or begins again: the claims from here on are this try's."""
        self._first_claim = len(self.verdicts)

    @property
    def claims(self) -> Sequence[VerdictRow]:
        """Return what the running test has claimed so far."""
        return self.verdicts[self._first_claim :]

    @property
    def tally(self) -> Tally | None:
        """Return what was measured here and by the workers of pytest-xdist, or None where nothing was."""
        from dataclasses import asdict

        reported = [each["tally"] for each in self.reported]
        done = [*reported, *([asdict(self._session.tally)] if self._session is not None else [])]
        if not any(done):
            return None
        from pytest_ngraph.launcher import Tally

        return Tally(**{name: sum(each.get(name, 0) for each in done) for name in next(filter(None, done))})

    @property
    def gates(self) -> Gates:
        """Return what became of the gates here and in the workers of pytest-xdist."""
        from pytest_ngraph.report.ci import Gates

        gates = Gates(skipped=list(self.skipped), claimless=sorted(self.claimless))
        gates.judged(self.verdicts)
        for reason in self.not_stored.values():
            gates.left_open(reason)
        for each in self.reported:
            gates.add(each["gates"])
        return gates

    @property
    def done(self) -> dict[str, Any]:
        """Return what a worker of pytest-xdist tells the controller: plain values only."""
        from dataclasses import asdict

        return {"tally": asdict(self.tally) if self.tally is not None else {}, "gates": asdict(self.gates)}

    def close(self, *, interrupted: bool) -> None:
        """End the run in the store, if anything was asked of it."""
        if self._session is not None:
            self._session.close("interrupted" if interrupted else "finished")


class Door(Catalogue):
    """The catalogue as conftests and plugins see it: what they add wrongly is a usage error."""

    def add(self, name: str, place: str) -> None:
        """Add a compiler: its name and ``module:ATTRIBUTE`` of its adapter; raise UsageError where that cannot be."""
        __tracebackhide__ = True
        try:
            super().add(name, place)
        except SpecError as error:
            raise pytest.UsageError(f"pytest_ngraph_compilers: {error}") from None


STATE = pytest.StashKey[State]()
PLANNED = pytest.StashKey[Planned]()

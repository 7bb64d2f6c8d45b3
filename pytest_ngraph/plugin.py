"""The pytest plugin: options, marker, fixtures, planning after collection, measuring in the call phase, summary.

It reads in pytest's own order. Nothing heavy is imported before the first item that needs it runs.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import NgraphError, SpecError
from pytest_ngraph.settings import ROWS, Settings, resolve
from pytest_ngraph.spec import Device

if TYPE_CHECKING:
    from pytest_ngraph.grid import Grid, Marker, Point
    from pytest_ngraph.imperative import Imperative, Measured
    from pytest_ngraph.report.progress import Progress
    from pytest_ngraph.session import Session

GRID_FIXTURES = ("ngraph_cell", "ngraph_batches", "ngraph_depths", "ngraph_models", "ngraph_callable")
TARGET_FIXTURES = ("ngraph_target", "ngraph")
_POINT = "_ngraph_point"

MARKER_HELP = (
    "ngraph(model, batch, depth, width, image_size, precision, models, batches, depths, compilers, devices, baseline, "
    "budget, tolerance): measure this grid of models; a singular axis with several values makes several items, a "
    "plural one is swept inside one item"
)


@dataclass(frozen=True, slots=True)
class Planned:
    """What an item of ours needs: its point of the grid, its merged marker, and the grid it came from."""

    point: Point
    marker: Marker
    grid: Grid


class State:
    """What the plugin keeps for one pytest run."""

    def __init__(self, config: pytest.Config, settings: Settings, catalogue: Catalogue) -> None:
        self.config, self.settings, self.catalogue = config, settings, catalogue
        self.items: list[pytest.Item] = []
        self.conftests: list[str] = []
        self.uid = ""
        self._session: Session | None = None
        self._progress: Progress | None = None

    @property
    def device(self) -> Device:
        """Return the device ``local`` with this run's settings."""
        from pytest_ngraph.devices.local import local_device

        return local_device(self.settings)

    @property
    def session(self) -> Session:
        """Return the session; the first call plans all collected items."""
        if self._session is None:
            from pytest_ngraph.devices.local import job
            from pytest_ngraph.imperative import plan_of
            from pytest_ngraph.report.progress import Progress
            from pytest_ngraph.session import Session

            self._progress = Progress(self.config)
            self._session = Session(
                self.settings,
                self.catalogue,
                job(self.settings, self.catalogue, self.device, self.conftests),
                self._progress,
                uid=self.uid,
                command=sys.argv,
            )
            plans = []
            for item in self.items:
                planned = item.stash.get(PLANNED, None)
                if planned is not None and planned.point.cells and _why_unavailable(self, planned) is None:
                    plans.append(plan_of(item.nodeid, planned.point, planned.marker, planned.grid))
            self._session.plan(plans)
        return self._session

    @property
    def has_session(self) -> bool:
        """Tell whether anything was measured or looked up."""
        return self._session is not None


STATE = pytest.StashKey[State]()
PLANNED = pytest.StashKey[Planned]()


# Options and start-up


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register every option with its ini twin, from the one table in settings."""
    group = parser.getgroup("ngraph", "graph compilers on real devices (pytest-ngraph)")
    for row in ROWS:
        if row.metavar is None:
            group.addoption(row.flag, action="store_true", default=False, dest=_dest(row.field), help=row.help)
        else:
            group.addoption(
                row.flag, action="append", metavar=row.metavar, default=None, dest=_dest(row.field), help=row.help
            )
        parser.addini(row.ini, f"Ini twin of {row.flag}", type="string", default="")


def _dest(field: str) -> str:
    return f"ngraph_{field}"


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Offer the hook through which compilers from elsewhere come in."""
    from pytest_ngraph import hookspec

    pluginmanager.add_hookspecs(hookspec)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, resolve the options once, and let every conftest, now or later, add compilers."""
    config.addinivalue_line("markers", MARKER_HELP)
    try:
        settings = resolve(
            {row.field: config.getoption(_dest(row.field)) for row in ROWS},
            {row.ini: config.getini(row.ini) for row in ROWS},
            rootdir=config.rootpath,
            invocation_dir=config.invocation_params.dir,
            environ=os.environ,
        )
        unknown = [name for name in settings.devices if name != "local"]
        if unknown:
            raise SpecError(f"--ngraph-device: unknown device {unknown[0]!r} (known: local)")
    except SpecError as error:
        raise pytest.UsageError(str(error)) from None
    state = State(config, settings, Catalogue())
    state.uid = _run_uid(config)
    config.stash[STATE] = state
    config.hook.pytest_ngraph_compilers.call_historic(kwargs={"catalogue": state.catalogue})


def _run_uid(config: pytest.Config) -> str:
    """Return what identifies the run: the same for all workers of pytest-xdist."""
    shared = getattr(config, "workerinput", {}).get("testrunuid") or os.environ.get("PYTEST_XDIST_TESTRUNUID")
    if shared:
        return str(shared)
    import uuid

    return uuid.uuid4().hex


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tell an xdist worker which run it belongs to, under the controller's name for it."""
    node.config.stash[STATE].uid = str(node.workerinput["testrunuid"])


# Collection


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn a marker into items: one per point of its grid, or per device-compiler pair."""
    fixtures = [name for name in GRID_FIXTURES if name in metafunc.fixturenames]
    if not fixtures and _POINT not in metafunc.fixturenames:
        own = [mark for mark in metafunc.definition.own_markers if mark.name == "ngraph"]
        if own:
            _refuse(metafunc, "the test asks for none of the fixtures " + ", ".join((*GRID_FIXTURES, *TARGET_FIXTURES)))
        return
    from pytest_ngraph.grid import Grid, Point, read_marker

    config = metafunc.config
    state = config.stash[STATE]
    try:
        marker = read_marker([(mark.args, mark.kwargs) for mark in metafunc.definition.iter_markers("ngraph")])
        grid = Grid(state.settings, state.catalogue, (metafunc.definition.path.parent, config.rootpath))
        _check_fixtures(fixtures, marker)
        if fixtures:
            points, ids = grid.points(marker)
        else:
            targets = grid.targets(marker, state.settings.baseline or _identity())
            points = [Point(device, compiler) for device, compiler in targets]
            ids = [f"{point.device}-{point.compiler}" for point in points]
            if not points:
                points, ids = [Point("", _identity(), deselected=True)], ["narrowed-away"]
    except SpecError as error:
        _refuse(metafunc, str(error))
    planned = [Planned(point, marker, grid) for point in points]
    metafunc.parametrize(_POINT, planned, ids=ids, indirect=True)


def _identity() -> Any:
    from pytest_ngraph.planner import IDENTITY

    return IDENTITY


def _check_fixtures(fixtures: list[str], marker: Marker) -> None:
    """Refuse a plural axis with the wrong fixture, and a sweep's fixture without its axis."""
    from pytest_ngraph.grid import FIXTURES

    right = FIXTURES[marker.plural]
    accepted = (right, "ngraph_callable") if marker.plural is None else (right,)
    wrong = [name for name in fixtures if name not in accepted]
    if not wrong:
        return
    if marker.plural is not None:
        raise SpecError(f"{marker.plural}= goes with the fixture {right}, not with {wrong[0]}")
    needed = next(plural for plural, name in FIXTURES.items() if name == wrong[0])
    raise SpecError(f"the fixture {wrong[0]} needs {needed}= in the marker")


def _refuse(metafunc: pytest.Metafunc, message: str) -> None:
    pytest.fail(f"{metafunc.definition.nodeid}: @pytest.mark.ngraph: {message}", pytrace=False)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Note what each item needs, deselect what the options emptied, and check the named compilers."""
    state = config.stash[STATE]
    try:
        option = "--ngraph-compiler"
        for spec in state.settings.compilers or ():
            state.catalogue.check(spec)
        option = "--ngraph-baseline"
        if state.settings.baseline is not None:
            state.catalogue.check(state.settings.baseline)
    except SpecError as error:
        raise pytest.UsageError(f"{option}: {error}") from None
    gone: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        callspec = getattr(item, "callspec", None)
        planned = callspec.params.get(_POINT) if callspec is not None else None
        if planned is not None:
            item.stash[PLANNED] = planned
        (gone if planned is not None and planned.point.deselected else kept).append(item)
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


@pytest.hookimpl(trylast=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the items that will run, and the folders of the conftests for the workers' import path."""
    state = session.config.stash[STATE]
    state.items = [item for item in session.items if PLANNED in item.stash]
    if state.items:
        folders = dict.fromkeys(
            str(Path(plugin.__file__).parent)
            for plugin in session.config.pluginmanager.get_plugins()
            if (getattr(plugin, "__file__", None) or "").endswith("conftest.py")
        )
        state.conftests = list(folders)


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Print what is about to be measured, if anything is."""
    state = config.stash[STATE]
    if not state.items:
        return []
    from pytest_ngraph.report.header import header_lines

    return header_lines(state.settings, state.device, [item.stash[PLANNED].point for item in state.items])


# Running


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what cannot run here for want of an installed compiler, or fail it where that was asked for."""
    planned = item.stash.get(PLANNED, None)
    if planned is None:
        return
    state = item.config.stash[STATE]
    reason = _why_unavailable(state, planned)
    if reason is None:
        return
    if state.settings.strict or _named_in_ci(state):
        pytest.fail(f"{reason} (missing compilers fail: --ngraph-strict, or named where CI is set)", pytrace=False)
    pytest.skip(reason)


def _why_unavailable(state: State, planned: Planned) -> str | None:
    """Return what has to be installed before this item can run on this machine, or None."""
    from pytest_ngraph.planner import baseline_for
    from pytest_ngraph.workloads.requirements import missing_for

    point = planned.point
    missing = state.catalogue.get(point.compiler.name).missing()
    if missing is not None:
        return f"{point.compiler} on {point.device}: {missing}"
    if not point.cells:
        return None
    baseline = baseline_for(point.cells[0], planned.marker.baseline or state.settings.baseline)
    missing = state.catalogue.get(baseline.name).missing()
    if missing is not None:
        return f"{baseline}, the baseline, on {point.device}: {missing}"
    if any(state.catalogue.get(spec.name).reads != "nothing" for spec in (point.compiler, baseline)):
        missing = missing_for(point.cells[0].workload.model)
    return None if missing is None else f"model {point.cells[0].workload.model}: {missing}"


def _named_in_ci(state: State) -> bool:
    return bool(os.environ.get("CI")) and state.settings.compilers is not None


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Measure an item that never touched its cell, and say what became of cells without a time."""
    planned = pyfuncitem.stash.get(PLANNED, None)
    if planned is None:
        return (yield)
    from pytest_ngraph.errors import ClaimError
    from pytest_ngraph.estimates import CellFailed, NarrowedAway, NotStored

    state = pyfuncitem.config.stash[STATE]
    try:
        result = yield
        if planned.point.cells and "ngraph_callable" not in pyfuncitem.fixturenames:
            _measured(state, pyfuncitem, planned).ensure()
    except NarrowedAway as narrowed:
        pytest.skip(str(narrowed))
    except CellFailed as failed:
        _end_failed(state, failed)
    except NotStored as missing:
        from pytest_ngraph.assertions import inconclusive

        inconclusive(state.settings.inconclusive, f"inconclusive: {missing}")
        return True
    except (ClaimError, NgraphError) as error:
        pytest.fail(str(error), pytrace=False)
    return result


def _end_failed(state: State, failed: Any) -> None:
    """End a test whose cell has no time: only what a compiler cannot do in principle is a skip."""
    from pytest_ngraph.spec import Outcome

    text = f"{failed.record.outcome}: {failed.cell.label}: {failed.record.reason}"
    if failed.record.outcome is Outcome.UNSUPPORTED and not (state.settings.strict or _named_in_ci(state)):
        pytest.skip(text)
    pytest.fail(text, pytrace=False)


def pytest_runtest_teardown(item: pytest.Item) -> None:
    """Tell the session that later launches need not serve this test."""
    state = item.config.stash[STATE]
    if state.has_session:
        state.session.finished(item.nodeid)


# Fixtures


@pytest.fixture
def _ngraph_point(request: pytest.FixtureRequest) -> Planned:
    """Return the item's point of the grid."""
    planned = getattr(request, "param", None)
    if not isinstance(planned, Planned):
        pytest.fail(
            "an ngraph fixture was asked for in a way that makes no items (request.getfixturevalue); name it as an "
            "argument of the test",
            pytrace=False,
        )
    return planned


def _measured(state: State, item: pytest.Item, planned: Planned) -> Measured:
    from pytest_ngraph.imperative import measured

    session = state.session
    return measured(session, session.item(item.nodeid), planned.point, planned.marker)


def _lazy(_ngraph_point: Planned, request: pytest.FixtureRequest) -> Any:
    return _measured(request.config.stash[STATE], request.node, _ngraph_point)


@pytest.fixture
def ngraph_target(_ngraph_point: Planned) -> Point:
    """The device-compiler pair of this item, with ``.device`` and ``.compiler``."""
    return _ngraph_point.point


@pytest.fixture
def ngraph_cell(_ngraph_point: Planned, request: pytest.FixtureRequest) -> Any:
    """The ``Measurement`` of this item's cell; nothing is measured before a metric is asked for."""
    return _lazy(_ngraph_point, request)


@pytest.fixture
def ngraph_batches(_ngraph_point: Planned, request: pytest.FixtureRequest) -> Any:
    """The ``BatchSweep`` of this item: its cells over ``batches=``, batch 1 always among them."""
    return _lazy(_ngraph_point, request)


@pytest.fixture
def ngraph_depths(_ngraph_point: Planned, request: pytest.FixtureRequest) -> Any:
    """The ``DepthSweep`` of this item: its cells over ``depths=``, depth 1 always among them."""
    return _lazy(_ngraph_point, request)


@pytest.fixture
def ngraph_models(_ngraph_point: Planned, request: pytest.FixtureRequest) -> Any:
    """A mapping of each model of ``models=`` to its ``Measurement``, all measured together."""
    return _lazy(_ngraph_point, request)


@pytest.fixture
def ngraph(_ngraph_point: Planned, request: pytest.FixtureRequest) -> Imperative:
    """Measure inside the test: ``ngraph.measure(model=..., batch=...)`` on this item's device-compiler pair."""
    from pytest_ngraph.imperative import Imperative

    state = request.config.stash[STATE]
    return Imperative(state.session, _ngraph_point.grid, _ngraph_point.point, request.node.nodeid)


@pytest.fixture
def ngraph_callable(_ngraph_point: Planned, request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """The compiled cell in this process, as a callable without arguments for ``benchmark(ngraph_callable)``.

    A number measured here has no verdict: nothing is parked, interleaved or repeated over launches.
    """
    from pytest_ngraph.in_process import compiled

    state = request.config.stash[STATE]
    with compiled(state.session, _ngraph_point.point.cells[0]) as run:
        yield run


# Ending


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    """End the run in the store, with how it ended."""
    state = session.config.stash.get(STATE, None)
    if state is not None and state.has_session:
        interrupted = exitstatus in (pytest.ExitCode.INTERRUPTED, pytest.ExitCode.INTERNAL_ERROR)
        state.session.close("interrupted" if interrupted else "finished")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Show what was measured and decided, from the store; write the exports that were asked for."""
    state = config.stash[STATE]
    if not state.items:
        return
    from pytest_ngraph.report.summary import write_summary

    write_summary(terminalreporter, state.settings, state.uid, state.session.tally if state.has_session else None)

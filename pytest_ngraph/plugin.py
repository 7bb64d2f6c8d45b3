"""The pytest plugin: options, marker, fixtures, planning after collection, measuring in the call phase, summary.

It reads in pytest's own order. Nothing heavy is imported before the first item that needs it runs.
"""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ngraph.axes import AXES, plural
from pytest_ngraph.errors import ClaimError, DeviceOffline, DeviceUnusable, NgraphError, SpecError, Unsupported
from pytest_ngraph.front.run import PLANNED, STATE, ModelsDoor, Planned, State
from pytest_ngraph.options.table import ROWS
from pytest_ngraph.texts.shown import excerpt

if TYPE_CHECKING:
    from pytest_ngraph.front.imperative import Imperative, InProcess, Measured
    from pytest_ngraph.options.settings import Settings
    from pytest_ngraph.plan.grid import Point

GRID_FIXTURES = ("ngraph_cell", *(row.fixture for row in AXES if row.fixture), "ngraph_callable")
TARGET_FIXTURES = ("ngraph_target", "ngraph")
_POINT = "_ngraph_point"
# The attribute of a report whose test passed with a gate that was not decided.
_UNDECIDED = "ngraph_undecided"

MARKER_HELP = (
    f"ngraph({', '.join([*(row.name for row in AXES), *plural()])}, compilers, devices, baseline, budget, tolerance, "
    "rebuild): measure this grid of models; a singular axis with several values makes several items, a plural one is "
    "swept inside one item"
)


# Options and start-up


def pytest_addoption(parser: pytest.Parser) -> None:
    """Register every option with its ini twin, from the one table in settings."""
    group = parser.getgroup("ngraph", "graph compilers on real devices (pytest-ngraph)")
    for row in ROWS:
        if row.metavar is None:
            group.addoption(row.flag, action="store_true", default=False, dest=row.dest, help=row.help)
        else:
            group.addoption(row.flag, action="append", metavar=row.metavar, default=None, dest=row.dest, help=row.help)
        parser.addini(row.ini, f"Ini twin of {row.flag}", type="string", default="")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Offer the hooks through which compilers and kinds of models from elsewhere come in."""
    from pytest_ngraph import hookspec

    pluginmanager.add_hookspecs(hookspec)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, resolve the options once, and let every conftest, now or later, add compilers and kinds."""
    config.addinivalue_line("markers", MARKER_HELP)
    config.stash[STATE] = state = State(config, lambda: _resolve(config), _run_uid(config))
    if state.has_options:
        # A wrong option is told at once; where none was given, a run without ngraph tests pays for nothing.
        _ = state.settings
    config.hook.pytest_ngraph_compilers.call_historic(kwargs={"catalogue": state.catalogue})
    config.hook.pytest_ngraph_models.call_historic(kwargs={"catalogue": ModelsDoor(lambda: state.models)})


def _resolve(config: pytest.Config) -> Settings:
    from pytest_ngraph.interpreter import standard_library_first
    from pytest_ngraph.options.settings import resolve

    # There is something to do: what is imported for it from now on must not come from the suite's folders.
    preferring = contextlib.ExitStack()
    preferring.enter_context(standard_library_first())
    config.add_cleanup(preferring.close)
    try:
        return resolve(
            {row.field: config.getoption(row.dest) for row in ROWS},
            {row.ini: config.getini(row.ini) for row in ROWS},
            rootdir=config.rootpath,
            invocation_dir=config.invocation_params.dir,
            environ=os.environ,
        )
    except SpecError as error:
        raise pytest.UsageError(str(error)) from None


def _run_uid(config: pytest.Config) -> str:
    """Return what identifies the run: the same for all workers of pytest-xdist."""
    shared = getattr(config, "workerinput", {}).get("testrunuid")
    if shared:
        return str(shared)
    import uuid

    return uuid.uuid4().hex


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Take the controller's name of the run from what an xdist worker is told."""
    node.config.stash[STATE].uid = str(node.workerinput["testrunuid"])


# Collection


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn a marker into items: one per point of its grid, or per device-compiler pair."""
    fixtures = [name for name in GRID_FIXTURES if name in metafunc.fixturenames]
    own = [(mark.args, mark.kwargs) for mark in metafunc.definition.own_markers if mark.name == "ngraph"]
    if not fixtures and _POINT not in metafunc.fixturenames:
        if own:
            _refuse(metafunc, "the test asks for none of the fixtures " + ", ".join((*GRID_FIXTURES, *TARGET_FIXTURES)))
        return
    from pytest_ngraph.plan.grid import Grid
    from pytest_ngraph.plan.marker import check_fixtures, read_marker

    state = metafunc.config.stash[STATE]
    search = (metafunc.definition.path.parent, metafunc.config.rootpath)
    grid = Grid(state.settings, state.catalogue, state.devices, search, state.models)
    try:
        marker = read_marker(((mark.args, mark.kwargs) for mark in _marks(metafunc.definition)), search)
        # Axes of a module or class are there for the tests that have a use for them.
        check_fixtures(fixtures, marker if fixtures else read_marker(own))
        points = grid.points(marker) if fixtures else grid.pairs(marker)
    except (SpecError, DeviceUnusable) as error:
        _refuse(metafunc, str(error))
    planned = [Planned(point, marker, grid) for _, point in points]
    metafunc.parametrize(_POINT, planned, ids=[name for name, _ in points], indirect=True)


def _marks(definition: pytest.Item) -> Iterator[pytest.Mark]:
    """Yield the markers of a test, the nearest first: its own, its class's, those of base classes, its module's."""
    for node in reversed(definition.listchain()):
        marks = list(node.own_markers)
        if isinstance(node, pytest.Class):
            # pytest puts those of base classes first.
            given = [cls.__dict__.get("pytestmark", ()) for cls in node.obj.__mro__]
            several = [each if isinstance(each, (list, tuple)) else (each,) for each in given]
            nearest: list[Any] = [getattr(each, "mark", each) for of_class in several for each in of_class]
            marks = [*nearest, *(mark for mark in marks if mark not in nearest)]
        yield from (mark for mark in marks if mark.name == "ngraph")


def _refuse(metafunc: pytest.Metafunc, message: str) -> None:
    __tracebackhide__ = True
    raise pytest.fail.Exception(
        excerpt(f"{metafunc.definition.nodeid}: @pytest.mark.ngraph: {message}"), pytrace=False
    ) from None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the names in the options, note what each item needs, and deselect what the options emptied."""
    state = config.stash[STATE]
    with _refused(session):
        _check_names(config, state)
        _check_marked(items)
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


@contextlib.contextmanager
def _refused(session: pytest.Session) -> Iterator[None]:
    """Turn a SpecError about what was collected into a usage error."""
    try:
        yield
    except SpecError as error:
        # For the controller of pytest-xdist, which asks its workers how they ended; it cannot see a usage error.
        session.shouldfail = str(error)
        raise pytest.UsageError(str(error)) from None


def _check_names(config: pytest.Config, state: State) -> None:
    """Check devices and compilers in the options, now that every conftest has been heard; raise SpecError."""
    if not state.has_options:
        return
    from pytest_ngraph.options.settings import place

    given = {row.field: place(row, config.getoption(row.dest)) for row in ROWS}
    if state.settings.devices != ("local",):
        for name in state.settings.devices:
            try:
                state.devices.check(name)
            except SpecError as error:
                raise SpecError(f"{given['devices']}: {error}") from None
    named = {"compilers": state.settings.compilers or (), "baseline": filter(None, [state.settings.baseline])}
    for field, specs in named.items():
        for spec in specs:
            try:
                state.catalogue.check(spec)
            except SpecError as error:
                raise SpecError(f"{given[field]}: {error}") from None


def _check_marked(items: list[pytest.Item]) -> None:
    """Raise SpecError for a mark that came too late to be read.

    That of a parameter is put on the item alone, and no fixture can reach a method of a unittest.TestCase.
    """
    for item in items:
        callspec = getattr(item, "callspec", None)
        if any(mark.name == "ngraph" for mark in getattr(callspec, "marks", ())):
            raise SpecError(
                f"{item.nodeid}: pytest.param(marks=pytest.mark.ngraph(...)): the mark of a parameter comes too late "
                "to make items; write @pytest.mark.ngraph(...) over the function, with lists for axes of several values"
            )
        if callspec is None and any(mark.name == "ngraph" for mark in item.own_markers):
            raise SpecError(
                f"{item.nodeid}: @pytest.mark.ngraph: it is not a function of pytest's and takes no fixtures; write it "
                "as a function or as a method of a plain class"
            )


def _check_models(items: list[pytest.Item]) -> None:
    """Raise SpecError where two models go by one name: no table or report could tell them apart."""
    found: dict[str, str] = {}
    for model in dict.fromkeys(cell.workload.model for item in items for cell in item.stash[PLANNED].point.cells):
        other = found.setdefault(model.text, model.locator)
        if other != model.locator:
            raise SpecError(
                f"two models of this run are called {model.text!r}: {other} and {model.locator}; write the path of one "
                "of them from the rootdir, or run the tests apart"
            )


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the items that will run, and the folders that the measuring processes import from."""
    state = session.config.stash[STATE]
    state.items = [item for item in session.items if PLANNED in item.stash]
    if state.items:
        with _refused(session):
            _check_models(state.items)
        files = [getattr(plugin, "__file__", None) or "" for plugin in session.config.pluginmanager.get_plugins()]
        conftests = [str(Path(file).parent) for file in files if Path(file).name == "conftest.py"]
        state.folders = list(dict.fromkeys([*conftests, str(session.config.rootpath)]))


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Print what is about to be measured, if anything is."""
    state = config.stash[STATE]
    if not state.items:
        return []
    from pytest_ngraph.front.header import (
        cost_lines,
        device_line,
        header_lines,
        noise_line,
        size_lines,
        thread_lines,
        warning_lines,
        wrapped,
    )
    from pytest_ngraph.front.summary import width_of

    points = [item.stash[PLANNED].point for item in state.items]
    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    lines: list[str] = []
    noise: list[str] = []
    threads: list[str] = []
    try:
        for name in dict.fromkeys(point.device for point in points):
            if not state.devices.is_asked(name):
                lines.append(f"ngraph: device {name}: not asked what it has, as nothing is measured")
                continue
            try:
                device = state.devices.bench(name).device
                lines.append(device_line(device, state.devices.cpu(name)))
                noise.append(noise_line(state.settings, device))
                threads += thread_lines(device, points)
            except DeviceOffline as offline:
                lines.append(f"ngraph: {offline}")
        lines += [*header_lines(state.settings, points), *size_lines(state.settings), *noise, *threads]
        if not config.option.collectonly and not state.settings.offline:
            state.plan()
            lines += cost_lines([session.expected() for session in state.sessions], state.settings.protocol)
            for session in state.sessions:
                lines += warning_lines(state.settings, session.device, session.plans)
    except (SpecError, DeviceUnusable) as error:
        raise pytest.UsageError(str(error)) from None
    return wrapped(lines, width_of(reporter))


# Running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Tell the session when a test is over, all reruns of it included."""
    try:
        return (yield)
    finally:
        if PLANNED in item.stash:
            item.config.stash[STATE].over(item.nodeid)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Mark as skipped what cannot run here for want of an installed compiler, unless it has to run.

    What a fixture of the user's measures ends the test as its own body would.
    """
    planned = item.stash.get(PLANNED, None)
    if planned is None:
        return (yield)
    state = item.config.stash[STATE]
    state.begin(item.nodeid)
    missing = planned.missing
    if missing is not None and _has_to_run(planned) is None:
        item.add_marker(pytest.mark.skip(reason=missing))
    with _as_outcomes(item, planned):
        return (yield)
    # It has been warned of; without what the fixture gives the test cannot go on.
    reason = state.not_stored.get(item.nodeid, "inconclusive: a fixture of the test is not stored")
    raise pytest.skip.Exception(reason, _use_item_location=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give a test's claims to its reports, for JUnit XML, and note whether it made any."""
    planned = item.stash.get(PLANNED, None)
    if planned is None:
        return (yield)
    from pytest_ngraph.front.ci import PREFIX, properties

    state = item.config.stash[STATE]
    # A test that is run again has those of its last try only.
    others = [each for each in item.user_properties if not each[0].startswith(PREFIX)]
    item.user_properties[:] = [*others, *properties(state.claims)]
    report = yield
    if call.when == "setup" and report.skipped and call.excinfo is not None and planned.missing is not None:
        # Not one that its author skips anyway.
        if getattr(call.excinfo.value, "msg", None) == planned.missing:
            state.leave_out(_function(item), planned.missing, planned.missing)
    elif call.when == "call" and report.passed and not state.claims:
        state.claimless.add(_function(item))
    undecided = state.leaves_undecided(item.nodeid, call.when)
    if undecided and report.passed and call.when != "setup":
        # A plain value in the report, which the workers of pytest-xdist hand over with it.
        setattr(report, _UNDECIDED, True)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Show a test that passed with a gate that was not decided as what it is, neither passed nor failed.

    It passed for everything else: the exit status, JUnit XML, ``--lf``. One that was expected to fail is pytest's own
    matter, and of a subtest its test speaks.
    """
    if getattr(report, _UNDECIDED, False) and type(report) is pytest.TestReport and not hasattr(report, "wasxfail"):
        return "undecided", "U", ("UNDECIDED", {"yellow": True})
    return None


def _function(item: pytest.Item) -> str:
    """Return the id of the test function that an item is of."""
    return item.nodeid.partition("[")[0]


def _has_to_run(planned: Planned) -> str | None:
    """Return why a test must not be skipped for what its compiler lacks, or None."""
    if planned.grid.settings.strict:
        return "--ngraph-strict"
    named = planned.grid.settings.compilers is not None or planned.marker.compilers is not None
    return "a compiler that is named has to run where CI is set" if named and os.environ.get("CI") else None


def _cannot_run(item: pytest.Item, planned: Planned, reason: str, what: str = "") -> None:
    """Skip a test, or fail it where it has to run; ``what`` is the reason without the cell, where that is another."""
    __tracebackhide__ = True
    why = _has_to_run(planned)
    if why is not None:
        raise pytest.fail.Exception(f"{reason} ({why})", pytrace=False) from None
    item.config.stash[STATE].leave_out(_function(item), reason, what or reason)
    # Where the test is, not where this was found out.
    raise pytest.skip.Exception(reason, _use_item_location=True) from None


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Measure an item that never touched its cell, and say what became of cells without a time."""
    planned = pyfuncitem.stash.get(PLANNED, None)
    if planned is None:
        return (yield)
    in_process: Any = pyfuncitem.funcargs.get("ngraph_callable")
    result: object = True
    with _as_outcomes(pyfuncitem, planned):
        if planned.missing is not None:
            _cannot_run(pyfuncitem, planned, planned.missing)
        if in_process is not None:
            in_process.compile()
        result = yield
        if in_process is None and planned.point.cells:
            _measured(pyfuncitem, planned).ensure()
    return result


@contextlib.contextmanager
def _as_outcomes(item: pytest.Item, planned: Planned) -> Iterator[None]:
    """Turn what measuring raises into outcomes of the test: only what cannot be run in principle is a skip."""
    __tracebackhide__ = True
    from pytest_ngraph.claims.assertions import inconclusive
    from pytest_ngraph.quantities.quantity import CellFailed, NarrowedAway, NotStored
    from pytest_ngraph.spec.cells import Outcome

    point = planned.point
    try:
        yield
    except NarrowedAway as narrowed:
        raise pytest.skip.Exception(str(narrowed), _use_item_location=True) from None
    except CellFailed as failed:
        cell, record = failed.cell, failed.record
        # pytest itself puts "Failed: " in front.
        outcome = "" if record.outcome is Outcome.FAILED else f"{record.outcome}: "
        text = excerpt(f"{outcome}{cell.label}: {record.reason}")
        if record.outcome in (Outcome.UNSUPPORTED, Outcome.UNAVAILABLE):
            _cannot_run(item, planned, text, f"{cell.compiler} on {cell.device}: {record.reason}")
        raise pytest.fail.Exception(text, pytrace=False) from None
    except NotStored as missing:
        if any(row.is_open for row in item.config.stash[STATE].claims):
            # The test's own claim has said so.
            return
        item.config.stash[STATE].not_stored[item.nodeid] = f"inconclusive: {missing}"
        inconclusive(planned.grid.settings.inconclusive, f"inconclusive: {missing}")
    except Unsupported as error:
        what = f"{point.compiler} on {point.device}: {error}"
        _cannot_run(item, planned, excerpt(f"unsupported: {what}"), what)
    except (ClaimError, SpecError) as error:
        raise pytest.fail.Exception(f"{excerpt(str(error))}{_place_of(error)}", pytrace=False) from None
    except NgraphError as error:
        raise pytest.fail.Exception(excerpt(str(error)), pytrace=False) from None


def _place_of(error: Exception) -> str:
    """Return the user's line that an error came from, for a message without a traceback; nothing without any."""
    import traceback

    ours = (str(Path(__file__).parent), str(Path(pytest.__file__).parents[1]))
    theirs = [frame for frame in traceback.extract_tb(error.__traceback__) if not frame.filename.startswith(ours)]
    return f"\n  at {theirs[-1].filename}:{theirs[-1].lineno}: {theirs[-1].line}" if theirs else ""


# Fixtures


@pytest.fixture
def _ngraph_point(request: pytest.FixtureRequest) -> Planned:
    """Return the item's point of the grid."""
    planned = getattr(request, "param", None)
    if not isinstance(planned, Planned):
        pytest.fail(_BY_NAME, pytrace=False)
    return planned


_BY_NAME = (
    "an ngraph fixture was asked for in a way that makes no items (request.getfixturevalue); name it as an argument "
    "of the test"
)


def _measured(item: pytest.Item, planned: Planned) -> Measured:
    from pytest_ngraph.front.imperative import measured

    session = item.config.stash[STATE].session(planned.point.device)
    return measured(session, planned.plan(item.nodeid), planned.point, planned.marker)


def _lazy(planned: Planned, request: pytest.FixtureRequest) -> Any:
    from pytest_ngraph.front.imperative import NotInstalled
    from pytest_ngraph.plan.marker import FIXTURES

    if not planned.point.cells or request.fixturename != FIXTURES[planned.marker.plural]:
        pytest.fail(_BY_NAME, pytrace=False)
    missing = planned.missing
    return _measured(request.node, planned) if missing is None else NotInstalled(planned.point, missing)


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
    from pytest_ngraph.front.imperative import Imperative

    state, planned = request.config.stash[STATE], _ngraph_point
    session = functools.partial(state.session, planned.point.device)
    return Imperative(session, planned.grid, planned.point, planned.marker, request.node.nodeid)


@pytest.fixture
def ngraph_callable(_ngraph_point: Planned, request: pytest.FixtureRequest) -> Iterator[InProcess]:
    """The compiled cell in this process, as a callable without arguments for ``benchmark(ngraph_callable)``.

    A number measured here has no verdict: nothing is parked, interleaved or repeated over launches.
    """
    from pytest_ngraph.front.imperative import InProcess

    if not _ngraph_point.point.cells:
        pytest.fail(_BY_NAME, pytrace=False)
    state = request.config.stash[STATE]
    session = functools.partial(state.session, _ngraph_point.point.device)
    with contextlib.closing(InProcess(session, _ngraph_point.point, _ngraph_point.missing)) as run:
        if "benchmark" in request.fixturenames:
            extra_info = getattr(request.getfixturevalue("benchmark"), "extra_info", {})
            extra_info["ngraph"] = f"{_ngraph_point.point.cells[0].label}: no verdict"
        yield run


# Ending

# How a run ends that nothing cut short.
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Note whether all tests were run, or as many as ``-x`` and ``--maxfail`` let."""
    state = session.config.stash[STATE]
    try:
        result = yield
    except pytest.Session.Failed:
        state.ran_through = True
        raise
    state.ran_through = True
    return result


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int | pytest.ExitCode) -> None:
    """End the run in the store, with how it ended, and fail one that decided no gate where CI is set."""
    state = session.config.stash.get(STATE, None)
    if state is None:
        return
    # Not by the exit status: a second Ctrl-C while the first is dealt with leaves it at what it was.
    state.close(interrupted=not state.ran_through)
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        # The controller of pytest-xdist judges the run, by what its workers have done.
        if state.items:
            output["ngraph"] = state.done
    elif session.exitstatus in _ENDED and _undecided(state):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_unconfigure(config: pytest.Config) -> None:
    """Say how to go on with a run that was cut short, whatever of its end was cut short as well."""
    state = config.stash.get(STATE, None)
    if state is None or state.ran_through or not state.has_begun:
        return
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line("ngraph: cut short; what was measured is kept, --ngraph-resume goes on with this run")


def _undecided(state: State) -> list[str]:
    """Return what to say of a run that had gates and decided none of them, where CI is set; else nothing."""
    if not os.environ.get("CI") or not (state.items or state.reported):
        return []
    settings = state.settings
    return state.gates.none_was_decided(offline=settings.offline) if settings.protocol.error_control else []


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what an xdist worker has done, where it had items of ours."""
    done = getattr(node, "workeroutput", {}).get("ngraph")
    if done is not None:
        node.config.stash[STATE].reported.append(done)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int | pytest.ExitCode, config: pytest.Config
) -> None:
    """Show what was measured and decided, from the store; write the exports that were asked for."""
    state = config.stash[STATE]
    if not state.items and not state.reported:
        return
    from pytest_ngraph.front.summary import write_summary

    settings, judged = state.settings, state.judged
    write_summary(terminalreporter, settings, state.run_uid, state.tally, state.verdicts, judged, state.gates.left_out)
    for line in _undecided(state) if exitstatus in _ENDED else ():
        terminalreporter.write_line(line, red=True, bold=True)

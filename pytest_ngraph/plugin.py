"""The pytest plugin: options, marker, fixtures, planning after collection, measuring in the call phase, summary.

It reads in pytest's own order. Nothing heavy is imported before the first item that needs it runs.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.axes import AXES, plural
from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.front.fixtures import (
    GRID_FIXTURES,
    POINT,
    TARGET_FIXTURES,
    _ngraph_point,
    ngraph,
    ngraph_batches,
    ngraph_callable,
    ngraph_cell,
    ngraph_depths,
    ngraph_models,
    ngraph_sequences,
    ngraph_target,
)
from pytest_ngraph.front.run import IN_TOML, PLAN, STATE, UNDECIDED, Door, State, id_of
from pytest_ngraph.options.table import ROWS

# pytest finds fixtures in the module that is its plugin.
__all__ = [
    "_ngraph_point", "ngraph", "ngraph_batches", "ngraph_callable", "ngraph_cell", "ngraph_depths", "ngraph_models",
    "ngraph_sequences", "ngraph_target",
]  # fmt: skip

MARKER_HELP = (
    f"ngraph({', '.join([*(row.name for row in AXES), *plural()])}, compilers, devices, baseline, budget, tolerance, "
    "rebuild, against): measure this grid of models; a singular axis with several values makes several items, a plural "
    "one is swept inside one item"
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
        parser.addini(row.ini, f"Ini twin of {row.flag}", type=IN_TOML, default="")


def pytest_addhooks(pluginmanager: pytest.PytestPluginManager) -> None:
    """Offer the hooks through which compilers, kinds of models and optimizers are added from outside."""
    from pytest_ngraph import hookspec

    pluginmanager.add_hookspecs(hookspec)


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, resolve the options once, and ask every conftest, now or later, for what they add."""
    config.addinivalue_line("markers", MARKER_HELP)
    config.stash[STATE] = state = State(config)
    if state.has_options:
        # A wrong option is reported at once; where none was given, a run without ngraph tests pays for nothing.
        _ = state.settings
    state.meet_neighbours()
    config.hook.pytest_ngraph_compilers.call_historic(kwargs={"catalogue": state.catalogue})
    for hook, offered in {"models": lambda: state.models, "optimizers": lambda: state.optimizers}.items():
        name = f"pytest_ngraph_{hook}"
        getattr(config.hook, name).call_historic(kwargs={"catalogue": Door(name, offered)})


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Take the controller's name of the run from what an xdist worker receives."""
    node.config.stash[STATE].uid = str(node.workerinput["testrunuid"])


# Collection


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Turn a marker into items: one per point of its grid, or per device-compiler pair."""
    fixtures = [name for name in GRID_FIXTURES if name in metafunc.fixturenames]
    own = [mark for mark in metafunc.definition.own_markers if mark.name == "ngraph"]
    if fixtures or POINT in metafunc.fixturenames:
        from pytest_ngraph.front.collection import parametrize

        parametrize(metafunc, fixtures, own)
    elif own:
        from pytest_ngraph.front.collection import refuse

        refuse(metafunc, "the test asks for none of the fixtures " + ", ".join((*GRID_FIXTURES, *TARGET_FIXTURES)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(session: pytest.Session, config: pytest.Config, items: list[pytest.Item]) -> None:
    """Check the names in the options, note what each item needs, and deselect what the options emptied."""
    state = config.stash[STATE]
    marked = [item for item in items if any(mark.name == "ngraph" for mark in item.own_markers)]
    if marked or state.has_options:
        from pytest_ngraph.front.collection import check_marked, check_names, refused

        with refused(session):
            if state.has_options:
                check_names(config, state)
            check_marked(marked)
    gone: list[pytest.Item] = []
    kept: list[pytest.Item] = []
    for item in items:
        callspec = getattr(item, "callspec", None)
        plan = callspec.params.get(POINT) if callspec is not None else None
        if plan is not None:
            item.stash[PLAN] = plan
        (gone if plan is not None and plan.deselected else kept).append(item)
    if gone:
        config.hook.pytest_deselected(items=gone)
        items[:] = kept


@pytest.hookimpl(tryfirst=True)
def pytest_collection_finish(session: pytest.Session) -> None:
    """Keep the items that will run, and the folders that the measuring processes import from."""
    state = session.config.stash[STATE]
    state.items = [item for item in session.items if PLAN in item.stash]
    if state.items:
        from pytest_ngraph.front.collection import check_models, refused

        with refused(session):
            check_models(state.items)
        # ``get_plugins`` gives a set: of two modules of one name now one and now the other would be found.
        plugins = session.config.pluginmanager.list_name_plugin()
        files = [getattr(plugin, "__file__", None) or "" for _, plugin in plugins]
        conftests = [str(Path(file).parent) for file in files if Path(file).name == "conftest.py"]
        state.folders = list(dict.fromkeys([*conftests, str(session.config.rootpath)]))


def pytest_report_collectionfinish(config: pytest.Config) -> list[str]:
    """Print what is about to be measured, if anything is."""
    state = config.stash[STATE]
    if not state.items:
        return []
    from pytest_ngraph.front.header import lines_of_run, wrapped
    from pytest_ngraph.front.summary.summary import width_of

    reporter: Any = config.pluginmanager.get_plugin("terminalreporter")
    try:
        lines = wrapped(lines_of_run(state, collects=bool(config.option.collectonly)), width_of(reporter))
        # With -q, too, a device that cannot be used ends the run.
        return lines if config.get_verbosity() >= 0 else []
    except (SpecError, DeviceUnusable) as error:
        raise pytest.UsageError(str(error)) from None


# Running


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Inform the session when a test is over, with all reruns of it."""
    try:
        return (yield)
    finally:
        if PLAN in item.stash:
            item.config.stash[STATE].over(id_of(item))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Mark as skipped what cannot run here for want of an installed compiler, unless it has to run.

    What a fixture of the user's measures ends the test as its own body would.
    """
    plan = item.stash.get(PLAN, None)
    if plan is None:
        return (yield)
    from pytest_ngraph.front.outcomes import as_outcomes, has_to_run

    # Not before: a grid of many items is often only collected, and others may rename what they collect.
    plan = item.stash[PLAN] = replace(plan, nodeid=id_of(item))
    state = item.config.stash[STATE]
    state.begin(plan.nodeid)
    missing = plan.missing
    if missing is not None and has_to_run(item, plan) is None:
        item.add_marker(pytest.mark.skip(reason=missing))
    with as_outcomes(item, plan):
        return (yield)
    # It has been warned of; without what the fixture gives the test cannot go on.
    reason = state.not_stored.get(plan.nodeid, "inconclusive: a fixture of the test is not stored")
    raise pytest.skip.Exception(reason, _use_item_location=True)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Give a test's claims to its reports, for JUnit XML, and note whether it made any."""
    plan = item.stash.get(PLAN, None)
    if plan is None:
        return (yield)
    from pytest_ngraph.front.ci import PREFIX, properties
    from pytest_ngraph.front.outcomes import function_of, is_undecided, numbers_first
    from pytest_ngraph.front.pull_request.noting import note

    state = item.config.stash[STATE]
    # A test that is run again has those of its last try only.
    others = [each for each in item.user_properties if not each[0].startswith(PREFIX)]
    item.user_properties[:] = [*others, *properties(state.claims)]
    report = yield
    if call.when == "setup" and report.skipped and call.excinfo is not None and plan.missing is not None:
        # Not one that its author skips anyway.
        if getattr(call.excinfo.value, "msg", None) == plan.missing:
            state.leave_out(function_of(item), plan.missing, plan.missing)
    elif call.when == "call" and report.passed and not state.claims:
        state.claimless.add(function_of(item))
    note(state, item, report, call)
    numbers_first(report, call)
    if is_undecided(state, id_of(item), report):
        # A plain value in the report, which the workers of pytest-xdist hand over with it.
        setattr(report, UNDECIDED, True)
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_report_teststatus(
    report: pytest.CollectReport | pytest.TestReport,
) -> tuple[str, str, tuple[str, dict[str, bool]]] | None:
    """Show a test that passed with a gate that was not decided as what it is, neither passed nor failed.

    It passed for everything else: the exit status, JUnit XML, ``--lf``. One that was expected to fail is pytest's own
    matter, and of a subtest its test speaks.
    """
    if getattr(report, UNDECIDED, False) and type(report) is pytest.TestReport and not hasattr(report, "wasxfail"):
        return "undecided", "U", ("UNDECIDED", {"yellow": True})
    return None


@pytest.hookimpl(wrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Generator[None, object, object]:
    """Measure an item that never touched its cell, hold it to what the run asks, and say what has no time and why."""
    plan = pyfuncitem.stash.get(PLAN, None)
    if plan is None:
        return (yield)
    from pytest_ngraph.front.outcomes import Ask, as_outcomes, prepare, with_what_the_run_asks

    held: Ask | None = None
    if pyfuncitem.config.stash[STATE].settings.compare is not None:
        from pytest_ngraph.front.baselines.comparing import compare as held
    result: object = True
    with as_outcomes(pyfuncitem, plan):
        prepare(pyfuncitem, plan)
        with with_what_the_run_asks(pyfuncitem, plan, held):
            result = yield
    return result


# Ending

# How a run ends that nothing cut short.
_ENDED = (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED)


@pytest.hookimpl(wrapper=True)
def pytest_runtestloop(session: pytest.Session) -> Generator[None, object, object]:
    """Note whether all tests were run, or as many as ``-x`` and ``--maxfail`` allow."""
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
    state.end(session)
    output = getattr(session.config, "workeroutput", None)
    if output is not None:
        # The controller of pytest-xdist judges the run, by what its workers have done.
        if state.items:
            output["ngraph"] = state.done
        return
    if session.exitstatus in _ENDED and state.undecided:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
    if state.items or state.reported:
        from pytest_ngraph.front.outcomes import without_undecided
        from pytest_ngraph.front.pull_request.publish import publish

        reporter = session.config.pluginmanager.getplugin("terminalreporter")
        without_undecided(reporter)
        # Whether or not there is a terminal.
        publish(state)
        if reporter is None and not session.config.option.collectonly:
            from pytest_ngraph.front.summary.files import write_files_alone

            write_files_alone(state)


def pytest_unconfigure(config: pytest.Config) -> None:
    """Show how to continue a run that was cut short, whatever of its end was cut short as well."""
    state = config.stash.get(STATE, None)
    if state is None or state.ran_through or not state.has_begun:
        return
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        reporter.ensure_newline()
        reporter.write_line("ngraph: cut short; what was measured is kept, --ngraph-resume goes on with this run")


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """Take what an xdist worker has done, where it had items of this package."""
    done = getattr(node, "workeroutput", {}).get("ngraph")
    if done is not None:
        node.config.stash[STATE].reported.append(done)


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, exitstatus: int | pytest.ExitCode, config: pytest.Config
) -> None:
    """Show what was measured and decided, from the store. Write the exports that were asked for."""
    state = config.stash[STATE]
    if (not state.items and not state.reported) or config.option.collectonly:
        return
    from pytest_ngraph.front.summary.summary import write_end

    write_end(terminalreporter, state, has_ended=exitstatus in _ENDED)

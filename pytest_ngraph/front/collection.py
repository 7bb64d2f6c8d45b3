"""From markers to items: the points of each test's grid, and what is refused of what was collected."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NoReturn

import pytest

from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.front.fixtures import POINT
from pytest_ngraph.front.run import PLAN, STATE, State
from pytest_ngraph.options.settings import place
from pytest_ngraph.options.table import ROWS
from pytest_ngraph.plan.grid import Grid, check_settings
from pytest_ngraph.plan.marker import check_fixtures, read_marker
from pytest_ngraph.texts.shown import excerpt


def parametrize(metafunc: pytest.Metafunc, fixtures: Sequence[str], own: Iterable[pytest.Mark]) -> None:
    """Make the items of a test: one per point of its grid, or per device-compiler pair where it asks for no fixture
    of a grid. ``own`` are the markers of the function itself."""
    state = metafunc.config.stash[STATE]
    search = (metafunc.definition.path.parent, metafunc.config.rootpath)
    grid = Grid(state.settings, state.catalogue, state.devices, search, state.models, state.optimizers)
    try:
        marker = read_marker(((mark.args, mark.kwargs) for mark in _marks(metafunc.definition)), search)
        # Axes of a module or class are there for the tests that have a use for them.
        check_fixtures(fixtures, marker if fixtures else read_marker((mark.args, mark.kwargs) for mark in own))
        points = grid.points(marker) if fixtures else grid.pairs(marker)
    except (SpecError, DeviceUnusable) as error:
        refuse(metafunc, str(error))
    metafunc.parametrize(POINT, [point for _, point in points], ids=[name for name, _ in points], indirect=True)


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


def refuse(metafunc: pytest.Metafunc, message: str) -> NoReturn:
    """Fail the collection of a test, with its name and what is wrong with its marker."""
    __tracebackhide__ = True
    raise pytest.fail.Exception(
        excerpt(f"{metafunc.definition.nodeid}: @pytest.mark.ngraph: {message}"), pytrace=False
    ) from None


@contextlib.contextmanager
def refused(session: pytest.Session) -> Iterator[None]:
    """Turn a SpecError about what was collected into a usage error."""
    try:
        yield
    except SpecError as error:
        # For the controller of pytest-xdist, which asks its workers how they ended; it cannot see a usage error.
        session.shouldfail = str(error)
        raise pytest.UsageError(str(error)) from None


def check_names(config: pytest.Config, state: State) -> None:
    """Check devices and compilers in the options, now that every conftest was asked. Raise SpecError."""
    given = {row.field: place(row, config.getoption(row.dest)) for row in ROWS}
    # Devices are not looked for where none is named.
    devices = state.devices if state.settings.devices != ("local",) else None
    check_settings(state.settings, state.catalogue, devices, given)


def check_marked(items: list[pytest.Item]) -> None:
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


def check_models(items: list[pytest.Item]) -> None:
    """Raise SpecError where two models go by one name: no table or report could distinguish them."""
    found: dict[str, str] = {}
    workloads = (cell.workload for item in items for cell in item.stash[PLAN].cells)
    models = {id(model): model for workload in workloads for model in (workload.model, workload.beside)}
    for model in filter(None, models.values()):
        other = found.setdefault(model.text, model.locator)
        if other != model.locator:
            raise SpecError(
                f"two models of this run are called {model.text!r}: {other} and {model.locator}; write the path of one "
                "of them from the rootdir, or run the tests apart"
            )

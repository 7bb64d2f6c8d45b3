"""The fixtures that tests ask for. What they give is made when an item that asks for it runs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ngraph.axes import AXES
from pytest_ngraph.front.run import STATE, Planned

if TYPE_CHECKING:
    from pytest_ngraph.front.imperative import Imperative, InProcess, Measured
    from pytest_ngraph.plan.grid import Point

GRID_FIXTURES = ("ngraph_cell", *(row.fixture for row in AXES if row.fixture), "ngraph_callable")
TARGET_FIXTURES = ("ngraph_target", "ngraph")
# What an item is parametrized with; all of the fixtures below ask for it.
POINT = "_ngraph_point"
_BY_NAME = (
    "an ngraph fixture was asked for in a way that makes no items (request.getfixturevalue); name it as an argument "
    "of the test"
)


@pytest.fixture
def _ngraph_point(request: pytest.FixtureRequest) -> Planned:
    """Return the item's point of the grid."""
    planned = getattr(request, "param", None)
    if not isinstance(planned, Planned):
        pytest.fail(_BY_NAME, pytrace=False)
    return planned


def measured_by(item: pytest.Item, planned: Planned) -> Measured:
    """Return the measurement or sweep of an item. Nothing is measured before it is asked."""
    from pytest_ngraph.front.imperative import measured

    session = item.config.stash[STATE].session(planned.point.device)
    return measured(session, planned.plan(item.nodeid), planned.point, planned.marker)


def _lazy(planned: Planned, request: pytest.FixtureRequest) -> Any:
    from pytest_ngraph.front.imperative import NotInstalled
    from pytest_ngraph.plan.marker import FIXTURES

    if not planned.point.cells or request.fixturename != FIXTURES[planned.marker.plural]:
        pytest.fail(_BY_NAME, pytrace=False)
    missing = planned.missing
    return measured_by(request.node, planned) if missing is None else NotInstalled(planned.point, missing)


@pytest.fixture
def ngraph_target(_ngraph_point: Planned) -> Point:
    """The device-compiler pair of this item, with ``.device`` and ``.compiler``."""
    return _ngraph_point.point


@pytest.fixture
def ngraph_cell(_ngraph_point: Planned, request: pytest.FixtureRequest) -> Any:
    """The ``Measurement`` of this item's cell. Nothing is measured before a metric is asked for."""
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

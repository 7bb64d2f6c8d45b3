"""The fixtures that tests ask for. What they give is made when an item that asks for it runs."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ngraph.axes import AXES
from pytest_ngraph.front.run import PLAN, STATE

if TYPE_CHECKING:
    from pytest_ngraph.front.imperative import Imperative, InProcess, Measured
    from pytest_ngraph.plan.items import ItemPlan

GRID_FIXTURES = ("ngraph_cell", *(row.fixture for row in AXES if row.fixture), "ngraph_callable")
TARGET_FIXTURES = ("ngraph_target", "ngraph")
# What an item is parametrized with; all of the fixtures below ask for it.
POINT = "_ngraph_point"
_BY_NAME = (
    "an ngraph fixture was asked for in a way that makes no items (request.getfixturevalue); name it as an argument "
    "of the test"
)


@pytest.fixture
def _ngraph_point(request: pytest.FixtureRequest) -> ItemPlan:
    """Return the plan of the item."""
    plan: ItemPlan | None = request.node.stash.get(PLAN, None)
    if plan is None or not hasattr(request, "param"):
        pytest.fail(_BY_NAME, pytrace=False)
    return plan


def measured_by(item: pytest.Item, plan: ItemPlan) -> Measured:
    """Return the measurement or sweep of an item. Nothing is measured before it is asked."""
    from pytest_ngraph.front.imperative import measured
    from pytest_ngraph.quantities.quantity import Measurer

    return measured(Measurer(item.config.stash[STATE].session(plan.device), plan.nodeid), plan)


def _lazy(plan: ItemPlan, request: pytest.FixtureRequest) -> Any:
    from pytest_ngraph.front.imperative import NotInstalled
    from pytest_ngraph.plan.marker import FIXTURES

    if not plan.cells or request.fixturename != FIXTURES[plan.marker.plural]:
        pytest.fail(_BY_NAME, pytrace=False)
    missing = plan.missing
    return measured_by(request.node, plan) if missing is None else NotInstalled(plan, missing)


@pytest.fixture
def ngraph_target(_ngraph_point: ItemPlan) -> ItemPlan:
    """The device-compiler pair of this item, with ``.device`` and ``.compiler``."""
    return _ngraph_point


@pytest.fixture
def ngraph_cell(_ngraph_point: ItemPlan, request: pytest.FixtureRequest) -> Any:
    """The ``Measurement`` of this item's cell. Nothing is measured before a metric is asked for."""
    return _lazy(_ngraph_point, request)


@pytest.fixture
def ngraph_batches(_ngraph_point: ItemPlan, request: pytest.FixtureRequest) -> Any:
    """The ``BatchSweep`` of this item: its cells over ``batches=``, batch 1 always among them."""
    return _lazy(_ngraph_point, request)


@pytest.fixture
def ngraph_depths(_ngraph_point: ItemPlan, request: pytest.FixtureRequest) -> Any:
    """The ``DepthSweep`` of this item: its cells over ``depths=``, depth 1 always among them."""
    return _lazy(_ngraph_point, request)


@pytest.fixture
def ngraph_sequences(_ngraph_point: ItemPlan, request: pytest.FixtureRequest) -> Any:
    """The ``SequenceSweep`` of this item: its cells over ``sequences=``, the shortest first."""
    return _lazy(_ngraph_point, request)


@pytest.fixture
def ngraph_models(_ngraph_point: ItemPlan, request: pytest.FixtureRequest) -> Any:
    """A mapping of each model of ``models=`` to its ``Measurement``, all measured together."""
    return _lazy(_ngraph_point, request)


@pytest.fixture
def ngraph(_ngraph_point: ItemPlan, request: pytest.FixtureRequest) -> Imperative:
    """Measure inside the test: ``ngraph.measure(model=..., batch=...)`` on this item's device-compiler pair."""
    from pytest_ngraph.front.imperative import Imperative

    session = functools.partial(request.config.stash[STATE].session, _ngraph_point.device)
    return Imperative(session, _ngraph_point)


@pytest.fixture
def ngraph_callable(_ngraph_point: ItemPlan, request: pytest.FixtureRequest) -> Iterator[InProcess]:
    """The compiled cell in this process, as a callable without arguments for ``benchmark(ngraph_callable)``.

    A number measured here has no verdict: nothing is parked, interleaved or repeated over launches.
    """
    from pytest_ngraph.front.imperative import InProcess

    if not _ngraph_point.cells:
        pytest.fail(_BY_NAME, pytrace=False)
    state = request.config.stash[STATE]
    session = functools.partial(state.session, _ngraph_point.device)
    with contextlib.closing(InProcess(session, _ngraph_point)) as run:
        if "benchmark" in request.fixturenames:
            extra_info = getattr(request.getfixturevalue("benchmark"), "extra_info", {})
            extra_info["ngraph"] = f"{run.label}: no verdict"
        yield run

"""The catalogue of optimizers: what may be added to it, and where those from outside stand."""

from __future__ import annotations

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.optimizers.catalogue import Optimizers, steps_of
from pytest_ngraph.spec.cells import Workload
from pytest_ngraph.spec.optimizing import parse
from pytest_ngraph.workloads.kinds import parse_model

NET = parse_model("block:conv")


@pytest.mark.parametrize(
    ("name", "place", "said"),
    [
        ("weight_prune", "a:b", "optimizer 'weight_prune': already taken by pytest_ngraph.optimizers.weight_prune"),
        ("my prune", "a:b", "optimizer 'my prune': expected a name of letters"),
        (3, "a:b", "optimizer 3: expected a name of letters"),
        ("mine", "module", "instance 'module' is not of the form 'package.module:ATTRIBUTE'"),
    ],
)
def test_what_cannot_be_added_is_said(name: str, place: str, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        Optimizers().add(name, place)


def test_what_stands_at_a_place_is_an_optimizer() -> None:
    catalogue = Optimizers()
    catalogue.add("json", "json:JSONEncoder")
    catalogue.add("gone", "pytest_ngraph.no_such_module:OPTIMIZER")

    with pytest.raises(SpecError, match=r"'json:JSONEncoder' is not a pytest_ngraph.optimizers.contract.Optimizer"):
        catalogue.check(parse("json=0.5"))
    with pytest.raises(SpecError, match=r"optimizer 'gone': its instance .* cannot be imported"):
        catalogue.check(parse("gone=0.5"))


def test_a_workload_carries_the_places_of_those_from_outside() -> None:
    catalogue = Optimizers()
    catalogue.add("mine", "pytest_ngraph.optimizers.weight_prune:OPTIMIZER")
    steps = parse("weight_prune=0.5+mine=0.25")
    places = catalogue.places_of(steps)
    there = Workload.from_json(Workload(NET, optimize=str(steps), optimizers=places).to_json())

    assert there.optimizers == places == (("mine", "pytest_ngraph.optimizers.weight_prune:OPTIMIZER"),)
    assert [(step.name, step.ratio) for step, _ in steps_of(there)] == [("weight_prune", 0.5), ("mine", 0.25)]
    # The name alone is not enough in another process.
    with pytest.raises(SpecError, match="no optimizer is called 'mine' here"):
        list(steps_of(Workload(NET, optimize=str(steps))))


def test_a_dense_cell_says_nothing_of_it() -> None:
    assert "optimize" not in Workload(NET).to_json()
    assert "optimizers" not in Workload(NET, optimize="weight_prune=0.5").to_json()
    with pytest.raises(SpecError, match="expected names with module:ATTRIBUTE"):
        Workload.from_json({**Workload(NET).to_json(), "optimizers": ["mine"]})

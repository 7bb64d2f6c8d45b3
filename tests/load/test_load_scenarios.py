"""Scenarios as they are written, and what a compiler sees of a cell under load."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.errors import ClaimError, SpecError
from pytest_ngraph.load.scenarios import as_compiled, normal, rate_of, slots_of
from pytest_ngraph.plan.marker import read_marker
from pytest_ngraph.quantities.derived import derived_of
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.sweeps import BatchSweep
from pytest_ngraph.spec.cells import Cell, Device
from tests.support.measuring import cell


def under_load(compiler: str, rate: float = 20) -> Cell:
    one = cell(compiler)
    return replace(one, workload=replace(one.workload, scenario=f"server[rate={rate:g}]"))


@pytest.mark.parametrize(
    ("given", "means", "rate"),
    [
        ("latency", "latency", None),
        ("throughput", "throughput", None),
        ("server[rate=20]", "server[rate=20]", 20),
        (" server[ rate = 20.50 ] ", "server[rate=20.5]", 20.5),
        ("server[rate=020.0]", "server[rate=20]", 20),
        ("server[rate=100000]", "server[rate=100000]", 100_000),
        ("server[rate=12345.125]", "server[rate=12345.125]", 12345.125),
    ],
)
def test_equal_scenarios_are_written_equally(given: str, means: str, rate: float | None) -> None:
    assert normal(given) == means
    assert normal(means) == means
    assert rate_of(means) == rate


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("server", "allowed: latency, throughput, or server[rate=N]"),
        ("server[]", "such as server[rate=20]"),
        ("server[qps=20]", "allowed: latency, throughput, or server[rate=N]"),
        ("server[rate=]", "rate='' is not allowed (expected calls a second from 1 to 100000"),
        ("server[rate=0]", "rate='0' is not allowed"),
        ("server[rate=-5]", "rate='-5' is not allowed"),
        ("server[rate=nan]", "rate='nan' is not allowed"),
        ("server[rate=1e3]", "rate='1e3' is not allowed"),
        ("server[rate=200000]", "rate='200000' is not allowed"),
        ("server[rate=20,rate=30]", "allowed: latency, throughput, or server[rate=N]"),
        ("Latency", "scenario 'Latency' is not allowed"),
    ],
)
def test_what_is_no_scenario_is_refused_and_it_is_said_what_is_one(given: str, says: str) -> None:
    with pytest.raises(SpecError) as error:
        read_marker([((), {"scenario": given})])
    assert says in str(error.value)


def test_two_ways_to_write_a_scenario_are_one_value_of_the_axis() -> None:
    marker = read_marker([((), {"scenario": ["server[rate=20.0]", "server[rate=20]", "latency"]})])
    assert marker.axes["scenario"] == ("server[rate=20]", "latency")


def test_a_compiler_sees_one_call_after_the_other_or_the_calls_in_flight_that_it_was_told() -> None:
    assert as_compiled(cell("null")) == cell("null")
    assert as_compiled(under_load("null")) == cell("null")
    assert slots_of(under_load("null")) == 1
    several = under_load("null[requests=4]")
    assert as_compiled(several).workload.scenario == "throughput"
    assert slots_of(several) == 4


def test_every_compiler_can_be_under_load_and_one_without_calls_in_flight_is_not_given_any() -> None:
    catalogue, device = Catalogue(), Device()
    for name in catalogue:
        alone, loaded = (catalogue.why_not(one, device) for one in (cell(name), under_load(name)))
        assert loaded == alone
    assert catalogue.why_not(under_load("null[requests=4]"), device) is None


def test_cells_under_load_have_names_and_keys_of_their_own() -> None:
    one = under_load("null")
    assert one.label == "local:null block:conv batch1 server[rate=20]"
    assert one != under_load("null", 21)
    assert Cell.from_json(one.to_json()) == one


@pytest.mark.parametrize("metric", ["rtr", "ase", "bsr"])
def test_what_arrives_scales_with_nothing(metric: str) -> None:
    source: Any = None
    loaded = under_load("null")
    cells = [replace(loaded, workload=replace(loaded.workload, batch=batch)) for batch in (1, 8)]
    sweep = BatchSweep(source, {one.workload.batch: Measurement(source, one, one) for one in cells}, (8,))

    with pytest.raises(ClaimError, match="as many calls are answered as arrive, whatever they take, so nothing scales"):
        sweep.quantity(metric, 8)
    assert sweep.quantity("throughput", 8).cells == (cells[1],)
    assert list(derived_of(source, cells, {})) == []

"""The search for the capacity over measured rates: which rates, how many, and what is said of the error."""

from __future__ import annotations

import math
from typing import Any

import pytest

from pytest_ngraph.capacity import search
from pytest_ngraph.capacity.search import find_capacity
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.stats.verdict import Verdict
from tests.conftest import Suite
from tests.load.test_load_claims import FIVE_MS, QUEUES
from tests.support.pretended import Pretended
from tests.support.server_worlds import latency_percentile


class Nobody:
    def measure(self, **axes: Any) -> Any:
        raise AssertionError("nothing is measured")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"between": (20, 20)}, "between=(20, 20) (expected two rates, 1 <= low < high <= 100000)"),
        ({"between": (0, 20)}, "between=(0, 20) (expected two rates"),
        ({"between": (20, 1e6)}, "between=(20, 1e+06) (expected two rates"),
        ({"between": (20, "many")}, "between='many'"),
        ({"between": 20}, "between=20 (expected two rates"),
        ({"between": []}, "between=[] (expected two rates"),
        ({"nearer": 1}, "nearer=1 (expected a factor above 1.02, such as 1.25)"),
        ({"percentile": 0.99}, "percentile=0.99 (expected per cent, from 1 on and below 100)"),
        ({"within": 0}, "within=0 (expected seconds above 0)"),
        ({"scenario": "latency"}, "scenario='latency' (it measures server[rate=N]; leave it out)"),
    ],
)
def test_what_cannot_be_searched_for_is_refused_before_anything_is_measured(given: dict[str, Any], says: str) -> None:
    terms: dict[str, Any] = {"percentile": 99, "within": 0.05, "between": (10, 100), "model": "block:conv", **given}
    with pytest.raises(ClaimError) as error:
        find_capacity(Nobody(), **terms)
    assert f"find_capacity: {says}" in str(error.value)


def searched(monkeypatch: pytest.MonkeyPatch, truth: float, blind: float, **given: Any) -> tuple[Any, list[float]]:
    """Return what a search finds where rates within a factor of the truth are undecided, and the rates it measured."""
    rates: list[float] = []

    def measured(ngraph: Any, rate: float, axes: Any) -> float:
        rates.append(rate)
        return rate

    def judged(rate: float, *_: Any) -> tuple[Verdict, Estimate, float]:
        verdict = Verdict.PASS if rate * blind <= truth else Verdict.FAIL if rate >= blind * truth else None
        estimate = Estimate("capacity", truth, truth / 1.1, truth * 1.1, 3)
        return verdict or Verdict.INCONCLUSIVE, estimate, 0.01

    monkeypatch.setattr(search, "_measured", measured)
    monkeypatch.setattr(search, "_judged", judged)
    return find_capacity(Nobody(), percentile=99, within=0.05, **given), rates


@pytest.mark.parametrize("truth", [12.0, 40.0, 77.0, 140.0])
def test_it_ends_with_two_rates_near_one_another_in_few_steps(monkeypatch: pytest.MonkeyPatch, truth: float) -> None:
    found, rates = searched(monkeypatch, truth, 1.05, between=(10, 200))
    assert found.held <= truth <= found.lost <= 1.25 * found.held
    assert len(rates) == len(set(rates)) == len(found.judged) <= 4
    assert found.error_rate == pytest.approx(0.01 * len(rates))
    assert str(found).startswith(f"held at {found.held:g}, not held at {found.lost:g} calls a second (of ")
    assert f"wrong in {len(rates)} % at most" in str(found)


def test_a_rate_that_launches_cannot_decide_ends_it_and_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    found, _ = searched(monkeypatch, 45.0, 1.5, between=(10, 200))
    assert (found.held, found.lost) == (0, math.inf)
    assert str(found).startswith("held at no rate, at no rate not held, undecided at 44.7 calls a second (of 1 rate")


@pytest.mark.parametrize(("truth", "held", "lost"), [(1.0, 0.0, 10.0), (5000.0, 200.0, math.inf)])
def test_a_capacity_beyond_the_ends_is_not_said_to_be_between_them(
    monkeypatch: pytest.MonkeyPatch, truth: float, held: float, lost: float
) -> None:
    found, rates = searched(monkeypatch, truth, 1.05, between=(10, 200))
    assert all(10 <= rate <= 200 for rate in rates)
    assert len(rates) <= 8
    assert (found.held == 0) is (held == 0)
    assert math.isinf(found.lost) is math.isinf(lost)
    assert held / 1.25 <= found.held <= 200
    assert found.lost >= 10
    assert found.lost == math.inf or found.lost <= 1.25 * lost


def test_measured_rates_narrow_down_a_capacity_that_is_known(suite: Suite) -> None:
    pretended = Pretended(suite.pytester)
    conftest = pretended.path / "conftest.py"
    conftest.write_text(conftest.read_text() + QUEUES)
    pretended.write("""
from pytest_ngraph import find_capacity
def test_it(ngraph):
    found = find_capacity(ngraph, model="block:conv", percentile=90, within=0.01, between=(20, 190))
    print("FOUND", found.held, found.lost, found.estimate.low, found.estimate.high, len(found.judged))
""")

    result = pretended.bare(*FIVE_MS)

    result.assert_outcomes(passed=1)
    held, lost, low, high, rates = map(float, result.stdout.str().rpartition("FOUND ")[2].split()[:5])
    # There percentile 90 of M/D/1 is twice a service.
    truth = 78.0
    assert latency_percentile("M/D/1", truth / 200, 90) == pytest.approx(2, rel=0.005)
    assert held <= truth * 1.05
    assert truth <= lost
    assert low <= truth * 1.03
    assert truth <= high * 1.03
    assert rates >= 2


@pytest.mark.parametrize("protocol", ["quick", "paper"])
def test_a_protocol_that_judges_no_rate_skips_the_search(suite: Suite, protocol: str) -> None:
    pretended = Pretended(suite.pytester)
    pretended.write("""
from pytest_ngraph import find_capacity
def test_it(ngraph):
    find_capacity(ngraph, model="block:conv", percentile=90, within=0.01, between=(20, 190))
""")

    result = pretended.bare(*FIVE_MS, f"--ngraph-protocol={protocol}")

    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines([f"SKIPPED *find_capacity: the protocol '{protocol}' has no error control*gate)"])

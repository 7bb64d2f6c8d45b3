"""Gates on cells beside a neighbour: their second channel is the mean of all calls, and not the fastest ones."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_ngraph.claims.decide import Decision, decide
from pytest_ngraph.claims.percentiles import _clusters_beside
from pytest_ngraph.load.neighbours import parse, with_neighbour
from pytest_ngraph.load.scenarios import server
from pytest_ngraph.quantities.quantity import second_channel
from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord, Outcome, Visit, Workload
from pytest_ngraph.stats import Bound, LaunchValue
from pytest_ngraph.stats.visits import ln_mean
from pytest_ngraph.workloads.kinds import parse_model
from tests.claims.test_claims import BLOCK, FAST, Laboratory, Made

AT_LEAST_1 = Bound(1.0, True, 0.05, "log")
ALONE = Workload(BLOCK, 1)
BESIDE = with_neighbour(ALONE, parse("block:mha@null[fixed_us=5]"), parse_model("block:mha"))


@dataclass(frozen=True)
class Touched(Made):
    """A launch whose cell takes just these milliseconds, call by call, where its baseline takes ten."""

    calls_ms: Sequence[float] = (10.0,)

    def wall_ns(self, cell: Cell, block: int) -> tuple[int, ...]:
        each = self.calls_ms if cell.compiler == FAST else (10.0,) * 10
        return tuple(round(1e6 * milliseconds) for milliseconds in each)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def decided(lab: Laboratory, workload: Workload, bound: Bound = AT_LEAST_1) -> Decision:
    return decide(lab.run_all([workload], tolerance=bound.tolerance)[0].quantity("speedup"), bound, bound.tolerance)


def test_a_fail_beside_a_neighbour_needs_no_fastest_calls_and_one_alone_does(lab: Laboratory) -> None:
    """Beside itself a network had 0.22 of its throughput, and its fastest calls, which nobody touched, 0.70."""
    lab.script = [Made(value, fastest=1.2) for value in (0.50, 0.51, 0.50)] * 2

    beside = decided(lab, BESIDE)
    alone = decided(lab, ALONE)

    assert beside.verdict == "fail"
    assert beside.estimate.launches == 3
    assert alone.verdict == "inconclusive"
    assert alone.reason.startswith("medians say fail, the fastest calls say the opposite (1.20x [")


def test_a_pass_by_usual_calls_is_open_beside_a_neighbour_that_makes_the_others_far_slower(lab: Laboratory) -> None:
    """Four of ten calls take ten times as long: their median says nothing, and a second has a quarter of the calls."""
    lab.script = [Touched(calls_ms=(*[10.0 + step] * 6, *[100.0] * 4)) for step in (0.0, 0.1, 0.05)]

    decision = decided(lab, BESIDE, Bound(0.9, True, 0.05, "log"))

    assert decision.verdict == "inconclusive"
    assert decision.reason.startswith("medians say pass, the mean of all calls says the opposite (0.22x [")


def test_a_fail_by_usual_calls_is_open_where_all_calls_together_meet_the_bound(lab: Laboratory) -> None:
    lab.script = [Touched(calls_ms=(*[20.0 + step] * 6, *[1.0] * 4)) for step in (0.0, 0.1, 0.05)]

    decision = decided(lab, BESIDE, Bound(0.7, True, 0.05, "log"))

    assert decision.verdict == "inconclusive"
    assert decision.reason.startswith("medians say fail, the mean of all calls says the opposite (0.80x [")


def test_what_is_judged_anew_from_the_store_says_the_same(lab: Laboratory) -> None:
    lab.script = [Made(value, fastest=1.2) for value in (0.50, 0.51, 0.50)]
    live = decided(lab, BESIDE)
    again = lab.run_all([BESIDE], offline=True)[0]

    assert decide(again.quantity("speedup"), AT_LEAST_1, 0.05) == live


def test_the_second_channel_is_that_of_all_cells_of_a_claim() -> None:
    """One with a neighbour is enough: what that costs is claimed over the cell alone, which has fastest calls."""
    alone, beside = (Cell("local", FAST, workload) for workload in (ALONE, BESIDE))
    several, arriving = (
        replace(alone, workload=replace(ALONE, scenario=scenario)) for scenario in ("throughput", server(20))
    )
    assert second_channel([alone]) == "fastest"
    assert second_channel([beside, alone]) == second_channel([alone, beside]) == second_channel([beside]) == "mean"
    # Calls that wait for one another, or that arrive, have fastest ones by chance; their usual time is a mean already.
    assert second_channel([several]) is None
    assert second_channel([arriving]) is None


def test_slow_calls_that_are_all_of_few_visits_count_for_fewer_in_a_percentile() -> None:
    """What would pass on garbage: launches that agree on how many calls are slow, and visits that do not at all."""
    seconds = math.log(0.02)

    def clusters(workload: Workload, together: bool) -> float:
        one, prepared = Cell("local", FAST, workload), CompileRecord(Outcome.OK)
        slow = [20 if block < 2 else 0 for block in range(8)] if together else [5] * 8
        rows = []
        for number in range(3):
            visits = {
                (one, block): Visit(1, (10_000_000,) * (40 - count) + (30_000_000,) * count)
                for block, count in enumerate(slow)
            }
            record = LaunchRecord(number, number, "gate", {one: prepared}, visits, "", 2.0, None)
            rows.append((record, LaunchValue(seconds, 0.0, 8)))
        return _clusters_beside(rows, one, Bound(0.02, False, 0.05, "log"))

    assert clusters(BESIDE, together=False) == 1
    assert 15 < clusters(BESIDE, together=True) < 20
    assert clusters(ALONE, together=True) == 1


def test_the_mean_is_of_the_batches_that_count() -> None:
    visit = Visit(2, (10, 20, 60, 600), (), (0, 0, 0, 300))
    assert ln_mean(visit) == pytest.approx(math.log(15e-9))
    assert ln_mean(replace(visit, run_delay_ns=())) == pytest.approx(math.log(86.25e-9))
    # A visit without a word on who waited does not count where others shared the launch.
    assert ln_mean(replace(visit, run_delay_ns=()), shared=True) is None

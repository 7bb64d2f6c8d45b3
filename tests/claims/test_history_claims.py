"""Claims against this machine's own history: what decides them, and what is missing where nothing does."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pytest_ngraph.claims.history import by_history
from pytest_ngraph.quantities.derived import derived_of
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Measurer, Quantity
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.report.results.verdicts import family_line
from pytest_ngraph.spec.cells import PROTOCOLS, Cell
from pytest_ngraph.stats import changes
from pytest_ngraph.stats.changes import levels_of
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.sessions import LEAST_SESSIONS, LEVEL, Between, Mean, difference, mean_of
from pytest_ngraph.stats.verdict import ERROR_RATE, Bound, Verdict, judge
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.support.sessions import BASE, FACTS, FAST, Day, add_day, add_sweep, cell, evidence, keys_of

WITH_CHANGES = pytest.mark.skipif(not changes.can_find_changes(), reason="ruptures is not installed")


class Session:
    """What a claim asks of its session."""

    def __init__(self, book: Store, facts: Any) -> None:
        self.book, self.bench = book, self
        self._facts = facts

    def facts(self) -> Any:
        return self._facts


class Door(Stored):
    """The launches of the last day in a store, as a running test has them."""

    session: Session


def decided(
    path: Path,
    levels: list[float],
    now: float,
    metric: str = "latency",
    *,
    launches: int = 3,
    later: Sequence[float] = (),
    error_rate: float = 0.01,
    **facts: str,
) -> tuple[Any, float]:
    """Return how a day is judged against those before it, and the bound that it is held to. ``later`` follow it."""
    for number, ms in enumerate(levels, 1):
        add_day(path, Day(ms=ms, code=f"c{number}"), number)
    last = Day(ms=now, code="now", launches=launches)
    add_day(path, last, 99)
    for number, ms in enumerate(later, 100):
        add_day(path, Day(ms=ms, code=f"c{number}"), number)
    with Store.open(path, read_only=True) as store:
        source = Door(store.launches(evidence(last)), [], PROTOCOLS["gate"], 1)
        source.session, source.error_rate = Session(store, {**FACTS, **facts}), error_rate
        quantity = Measurement(source, FAST, BASE).quantity(metric)
        held = by_history(cast(Quantity, _Claimed(quantity)))
        bound = Bound(held.limit, metric == "speedup", 0.05, "log")
        return held.judge(quantity, bound, 0.05), held.limit


class _Claimed:
    """A quantity whose source stands for a running test's."""

    def __init__(self, quantity: Quantity) -> None:
        self._quantity = quantity
        self.measurer = cast(Measurer, quantity.source)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._quantity, name)


@WITH_CHANGES
def test_the_level_since_the_last_change_is_the_bound(tmp_path: Path) -> None:
    """An accepted change moves the bound: what would fail by the first sessions passes by the last ones."""
    levels = [4.0] * 6 + [4.6] * 7
    decision, limit = decided(tmp_path / "a.sqlite", levels, 4.6)
    assert limit == pytest.approx(0.0046, rel=0.005)
    assert decision.verdict is Verdict.PASS
    assert "against 7 sessions of this machine since run 7" in decision.reason
    decision, _ = decided(tmp_path / "b.sqlite", levels, 5.2)
    assert decision.verdict is Verdict.FAIL
    decision, limit = decided(tmp_path / "c.sqlite", levels, 5.2, "speedup")
    assert limit == pytest.approx(8 / 4.6, rel=0.01)
    assert decision.verdict is Verdict.FAIL


def batches(factor: float) -> dict[Cell, float]:
    base = {cell("identity", batch): 8.0 * batch for batch in (1, 8)}
    return base | {cell("onnxruntime", 1): 4.0, cell("onnxruntime", 8): 40.0 * factor}


def depths(factor: float) -> dict[Cell, float]:
    """Return times of a stack whose speed-ups fall: its slope is negative, and the more so by a factor."""
    base = {cell("identity", 1, depth=depth): 8.0 * depth for depth in (1, 2, 4)}
    fast = {1: 4.0, 2: 10.0, 4: 32.0 * factor}
    return base | {cell("onnxruntime", 1, depth=depth): ms for depth, ms in fast.items()}


def widths(factor: float) -> dict[Cell, float]:
    times = {(64, 1): 4.0, (64, 8): 4.0, (128, 1): 4.0, (128, 8): 6.0 * factor}
    return {cell("onnxruntime", batch, width=width): ms for (width, batch), ms in times.items()}


@WITH_CHANGES
@pytest.mark.parametrize(("launches", "later"), [(16, []), (3, [9.0] * 7), (16, [4.3])])
def test_what_is_measured_later_changes_nothing(launches: int, later: list[float], tmp_path: Path) -> None:
    """Launches that another claim took, and sessions after the one that is judged, were not there when it was."""
    first = decided(tmp_path / "first.sqlite", [4.0] * 8, 4.1)
    assert decided(tmp_path / "again.sqlite", [4.0] * 8, 4.1, launches=launches, later=later) == first
    assert first[0].estimate.launches == 3


@WITH_CHANGES
@pytest.mark.parametrize(
    ("metric", "times"),
    [("ase", batches), ("bsr", batches), ("slope", depths), ("retention", depths), ("friction", widths)],
)
def test_what_is_made_of_a_sweep_is_held_to_its_own_history(
    metric: str, times: Callable[[float], dict[Cell, float]], tmp_path: Path
) -> None:
    for now, expected in ((1.0, Verdict.PASS), (1.5, Verdict.FAIL)):
        path = tmp_path / f"{now}.sqlite"
        for number in range(8):
            add_sweep(path, Day(code=f"c{number}"), number, times(1.0))
        last = Day(code="now")
        add_sweep(path, last, 99, times(now))
        with Store.open(path, read_only=True) as store:
            cells = times(1.0)
            against = {one: cell("identity", one.workload.batch, **_depth(one)) for one in cells}
            against = {one: base for one, base in against.items() if base in cells and base != one}
            source = Door(store.launches(keys_of(last, cells)), [], PROTOCOLS["gate"], 1)
            source.session = Session(store, FACTS)
            derived = [one for one in derived_of(source, list(cells), against) if one.quantity.metric.name == metric]
            one = next(one for one in derived if "onnxruntime" in one.quantity.label)
            held = by_history(cast(Quantity, _Claimed(one.quantity)))
            row = one.quantity.metric
            bound = Bound(held.limit, row.better == "higher", 0.05 * one.scale(), row.scale)
            decision = held.judge(one.quantity, bound, 0.05)
        assert decision.verdict is expected
        assert "against 8 sessions of this machine since run 1" in decision.reason
        assert decision.estimate.low < decision.estimate.value < decision.estimate.high


def _depth(one: Cell) -> dict[str, int]:
    return {} if one.workload.depth is None else {"depth": one.workload.depth}


@WITH_CHANGES
def test_a_history_that_is_too_short_says_how_many_sessions_are_missing(tmp_path: Path) -> None:
    decision, _ = decided(tmp_path / "a.sqlite", [], 4.0)
    assert (decision.verdict, decision.reason) == (
        Verdict.INCONCLUSIVE, "no history of this machine yet: 6 sessions are missing",
    )  # fmt: skip
    decision, _ = decided(tmp_path / "b.sqlite", [4.0] * 4, 9.0)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert decision.reason == "history of this machine: 4 sessions, 2 of 6 missing"
    decision, _ = decided(tmp_path / "c.sqlite", [4.0] * 8 + [5.0] * 3, 9.0)
    assert decision.reason == "history of this machine: 3 sessions since the change at run 9, 3 of 6 missing"


@WITH_CHANGES
def test_the_history_of_another_machine_is_none(tmp_path: Path) -> None:
    decision, _ = decided(tmp_path / "a.sqlite", [4.0] * 8, 9.0, node="bench-2")
    assert decision.reason.startswith("no history of this machine yet")
    decision, _ = decided(tmp_path / "b.sqlite", [4.0] * 8, 9.0, governor="powersave")
    assert decision.reason.startswith("no history of this machine yet")


def test_without_ruptures_it_is_undecided_and_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda name: None)
    decision, _ = decided(tmp_path / "a.sqlite", [4.0] * 8, 9.0)
    assert decision.verdict is Verdict.INCONCLUSIVE
    assert 'pip install "pytest-ngraph[history]"' in decision.reason


@WITH_CHANGES
def test_a_smaller_error_rate_makes_the_interval_wider(tmp_path: Path) -> None:
    levels, widths = [4.0, 4.1, 3.95, 4.05, 4.0, 3.9, 4.1, 4.0], []
    for rate in (0.1, 0.01, 0.001):
        decision, _ = decided(tmp_path / f"{rate}.sqlite", levels, 4.0, error_rate=rate)
        widths.append(math.log(decision.estimate.high / decision.estimate.low))
    assert widths == sorted(widths)
    assert widths[0] < 0.8 * widths[1] < 0.8 * 0.8 * widths[2]


@WITH_CHANGES
@pytest.mark.parametrize("rate", [0.001, 0.01, 0.05, 0.1])
def test_of_sessions_of_equal_code_no_more_fail_than_the_error_rate(rate: float) -> None:
    draw, fails, judged = np.random.default_rng(11), 0, 0
    for _ in range(1500):
        sessions = [list(draw.normal(0, 0.015) + draw.normal(0, 0.008, 3)) for _ in range(16)]
        *past, now = [mean_of([[LaunchValue(value, 0.0, 1) for value in each]]) for each in sessions]
        level = levels_of([one.theta for one in past])[-1]
        if level.sessions < LEAST_SESSIONS:
            continue
        then, between = Mean(level.mean, 0.0, (1,) * level.sessions), Between(level.deviation**2, level.sessions - 1)
        apart = difference(then, now, between, LEVEL * rate / ERROR_RATE)
        judged += 1
        fails += judge(apart, Bound(1.0, True, 0.05, "log")) is Verdict.FAIL
    assert judged > 1200
    # Of 1 in 1,000 so few sessions have one or two now and then.
    assert fails / judged <= max(rate, 2 / judged)
    assert not math.isnan(apart.theta)


def test_such_claims_count_as_comparisons_of_sessions() -> None:
    row = VerdictRow(
        "t", "assert_latency: x at_most history (tolerance 0.05)", "latency", 1.0, False, 0.05, 1.0, 0.9, 1.1, 3, "pass"
    )
    assert family_line([row]).startswith("1 gate: chance of a false fail at most 1 %")
    rarer = replace(row, extra={"error_rate": 0.001})
    assert family_line([rarer]).startswith("1 gate: chance of a false fail at most 0.1 %")
    # Saved ones are compared at a level of their own.
    compared = replace(row, claim="compare", extra={"error_rate": 0.001, "helper": "compare"})
    assert family_line([compared]).startswith("1 gate: chance of a false fail at most 1 %")


SUITE = """
from pytest_ngraph import assert_latency

@pytest.mark.ngraph(model="block:conv", batch=1)
def test_speed(ngraph_cell):
    assert_latency(ngraph_cell, at_most="history"{more})
"""


def test_a_suite_claims_by_history(suite: Suite) -> None:
    suite.write(SUITE.format(more=""))
    names = ("--ngraph-compiler=null[fixed_us=1000]", "--ngraph-baseline=null[fixed_us=2000]", "--ngraph-budget=3")
    done = suite.bare(*names, "-Wdefault", plugins="tests.support.undelayed")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*INCONCLUSIVE test_suite.py::test_speed*", "*at_most history (tolerance 0.05)*"])
    # What was measured is no bound, nor is more of the same launches what helps.
    assert "claimed" not in done.stdout.str()
    with Store.open(suite.store, read_only=True) as store:
        (row,) = store.verdicts(store.runs()[-1].id)
    assert row.bound is None
    assert "claimed at most its history (tolerance 5 %)" in row.extra["message"]
    assert ("further runs" in row.extra["advice"]) == changes.can_find_changes()
    suite.write(SUITE.format(more=", percentile=99"))
    done = suite.bare(*names)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*at_most='history' (expected a number: only what is a mean has a history)*"])


@pytest.mark.parametrize("protocol", ["quick", "paper"])
def test_without_an_error_rate_what_was_measured_is_no_bound_either(suite: Suite, protocol: str) -> None:
    suite.write(SUITE.format(more=""))
    names = ("--ngraph-compiler=null[fixed_us=1000]", "--ngraph-baseline=null[fixed_us=2000]")
    done = suite.bare(*names, f"--ngraph-protocol={protocol}", plugins="tests.support.undelayed")
    assert done.ret == 0
    with Store.open(suite.store, read_only=True) as store:
        (row,) = store.verdicts(store.runs()[-1].id)
    assert (row.verdict, row.bound) == ("not judged", None)
    assert "claimed at most its history (tolerance 5 %)" in row.extra["message"]


SWEEPS = """
from pytest_ngraph import assert_ase, assert_bsr, assert_retention, assert_slope

@pytest.mark.ngraph(model="block:conv", batches=[1, 4])
def test_batches(ngraph_batches):
    assert_ase(ngraph_batches, batch=4, at_least="history")
    assert_bsr(ngraph_batches, batch=4)

@pytest.mark.ngraph(model="block:conv", depths=[1, 2])
def test_depths(ngraph_depths):
    assert_slope(ngraph_depths, at_least="history")
    assert_retention(ngraph_depths)
"""


def test_a_suite_and_its_file_of_bounds_claim_sweeps_by_history(suite: Suite) -> None:
    suite.write(SWEEPS)
    (suite.path / "bounds.toml").write_text("""
[test_batches]
assert_bsr = { at_least = "history", tolerance = 0.1 }
[test_depths]
assert_retention = { at_least = "history" }
""")
    names = ("--ngraph-compiler=null[fixed_us=1000,layer_us=200]", "--ngraph-baseline=null[fixed_us=2000,layer_us=200]")
    bounds = ("--ngraph-budget=3", "--ngraph-bounds=bounds.toml")
    done = suite.bare(*names, *bounds, "-Wdefault", plugins="tests.support.undelayed")
    assert done.ret == 0
    with Store.open(suite.store, read_only=True) as store:
        rows = store.verdicts(store.runs()[-1].id)
    assert [(row.metric, row.verdict) for row in rows] == [
        (metric, "inconclusive") for metric in ("ase", "bsr", "slope", "retention")
    ]
    assert [row.claim.partition("at_least ")[2] for row in rows] == [
        f"history (tolerance {tolerance})" for tolerance in ("0.05", "0.1", "0.05", "0.05")
    ]
    assert all("6 sessions are missing" in row.extra["reason"] or "ruptures" in row.extra["reason"] for row in rows)
    (suite.path / "bounds.toml").write_text("[test_batches]\nassert_bsr = { at_least = 'last week' }\n")
    assert (
        "'last week' (expected a finite number, or a table"
        in suite.bare(*names, "--ngraph-bounds=bounds.toml").stderr.str()
    )

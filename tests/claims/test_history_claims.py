"""Claims against this machine's own history: what decides them, and what is missing where nothing does."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest

from pytest_ngraph.claims.history import by_history
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Measurer, Quantity
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.report.results.verdicts import family_line
from pytest_ngraph.spec.cells import PROTOCOLS
from pytest_ngraph.stats import changes
from pytest_ngraph.stats.changes import levels_of
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.sessions import LEAST_SESSIONS, Between, Mean, difference, mean_of
from pytest_ngraph.stats.verdict import Bound, Verdict, judge
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.support.sessions import BASE, FACTS, FAST, Day, add_day, evidence

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


def decided(path: Path, levels: list[float], now: float, metric: str = "latency", **facts: str) -> tuple[Any, float]:
    """Return how the last of some days is judged against those before it, and the bound that it is held to."""
    for number, ms in enumerate(levels, 1):
        add_day(path, Day(ms=ms, code=f"c{number}"), number)
    last = Day(ms=now, code="now")
    add_day(path, last, 99)
    with Store.open(path, read_only=True) as store:
        source = Door(store.launches(evidence(last)), [], PROTOCOLS["gate"], 1)
        source.session = Session(store, {**FACTS, **facts})
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
def test_of_sessions_of_equal_code_at_most_one_of_100_fails() -> None:
    draw, fails, judged = np.random.default_rng(11), 0, 0
    for _ in range(1500):
        sessions = [list(draw.normal(0, 0.015) + draw.normal(0, 0.008, 3)) for _ in range(16)]
        *past, now = [mean_of([[LaunchValue(value, 0.0, 1) for value in each]]) for each in sessions]
        level = levels_of([one.theta for one in past])[-1]
        if level.sessions < LEAST_SESSIONS:
            continue
        then, between = Mean(level.mean, 0.0, (1,) * level.sessions), Between(level.deviation**2, level.sessions - 1)
        apart = difference(then, now, between)
        judged += 1
        fails += judge(apart, Bound(1.0, True, 0.05, "log")) is Verdict.FAIL
    assert judged > 1200
    assert fails / judged <= 0.01
    assert not math.isnan(apart.theta)


def test_such_claims_count_as_comparisons_of_sessions() -> None:
    row = VerdictRow(
        "t", "assert_latency: x at_most history (tolerance 0.05)", "latency", 1.0, False, 0.05, 1.0, 0.9, 1.1, 3, "pass"
    )
    assert family_line([row]).startswith("1 gate: chance of a false fail at most 1 %")


SUITE = """
from pytest_ngraph import assert_latency

@pytest.mark.ngraph(model="block:conv", batch=1)
def test_speed(ngraph_cell):
    assert_latency(ngraph_cell, at_most="history"{more})
"""


def test_a_suite_claims_by_history(suite: Suite) -> None:
    suite.write(SUITE.format(more=""))
    names = ("--ngraph-compiler=null[fixed_us=1000]", "--ngraph-baseline=null[fixed_us=2000]", "--ngraph-budget=3")
    done = suite.bare(*names, "-Wdefault")
    assert done.ret == 0
    done.stdout.fnmatch_lines(["*INCONCLUSIVE test_suite.py::test_speed*", "*at_most history (tolerance 0.05)*"])
    suite.write(SUITE.format(more=", percentile=99"))
    done = suite.bare(*names)
    done.assert_outcomes(failed=1)
    done.stdout.fnmatch_lines(["*at_most='history' (expected a number: the history has means, no percentiles)*"])

"""From the verdicts of a run to what is said of a candidate."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.bisecting import judging
from pytest_ngraph.bisecting.judging import WIDENING, Claim, Judge, Judged, answer_of, error_of, run_pytest
from pytest_ngraph.bisecting.search import Answer
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, CompilerSpec, ModelRef, Outcome, Workload
from pytest_ngraph.stats.family import false_fail_chance
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store

ONE, TWO = ("test_it.py::test_it", "null batch1"), ("test_it.py::test_it", "null batch2")


def row(verdict: str, estimate: float | None = 1.0, **extra: Any) -> VerdictRow:
    low, high = (None, None) if estimate is None else (estimate - 0.01, estimate + 0.01)
    return VerdictRow(
        ONE[0], "claim", "change", 1.0, True, 0.05, estimate, low, high, 4 if estimate else 0, verdict, 0.02, extra
    )


def settled(verdict: str, reason: str) -> VerdictRow:
    return row(verdict, None, unmeasured=True, reason=reason)


@pytest.mark.parametrize(
    ("rows", "asked", "answer", "may_decide"),
    [
        ({ONE: row("pass"), TWO: row("fail", 0.8)}, (), Answer.BAD, False),
        ({ONE: row("pass"), TWO: row("pass")}, (), Answer.GOOD, False),
        ({ONE: row("pass"), TWO: row("inconclusive", 0.97)}, (), Answer.OPEN, True),
        ({ONE: row("invalid"), TWO: row("inconclusive", 0.97)}, (), Answer.OPEN, False),
        ({ONE: row("not judged")}, (), Answer.OPEN, False),
        ({ONE: settled("pass", "unchanged: all is the same")}, (), Answer.GOOD, False),
        ({ONE: settled("pass", "new: not on this side: net.py")}, (), Answer.OPEN, False),
        ({ONE: settled("inconclusive", "no time on the other side")}, (), Answer.OPEN, False),
        ({}, (), Answer.OPEN, False),
        # Of what is asked for alone: something else may have become slower as well, and faster again.
        ({ONE: row("fail", 0.8), TWO: row("pass")}, (TWO,), Answer.GOOD, False),
        ({ONE: row("inconclusive"), TWO: row("fail", 0.8)}, (TWO,), Answer.BAD, False),
        # What failed is not good because it is not there.
        ({ONE: row("pass")}, (TWO,), Answer.OPEN, False),
        ({ONE: row("pass")}, (ONE, TWO), Answer.OPEN, False),
        ({}, (ONE,), Answer.OPEN, False),
    ],
)
def test_what_verdicts_say_of_a_candidate(
    rows: Mapping[Claim, VerdictRow], asked: tuple[Claim, ...], answer: Answer, may_decide: bool
) -> None:
    judged, more = answer_of(rows, frozenset(asked))
    assert (judged.answer, more) == (answer, may_decide)


@pytest.mark.parametrize(
    ("rows", "answer"),
    [
        ({ONE: row("pass")}, Answer.OPEN),
        ({ONE: row("pass"), TWO: row("pass")}, Answer.GOOD),
        ({ONE: row("fail", 0.8)}, Answer.BAD),
    ],
)
def test_where_nothing_is_asked_each_cell_has_to_pass(rows: Mapping[Claim, VerdictRow], answer: Answer) -> None:
    judged, more = answer_of(rows, frozenset(), "FAILED test_it.py::test_it - no", frozenset([ONE[1], TWO[1]]))
    assert (judged.answer, more) == (answer, False)
    if answer is Answer.OPEN:
        assert judged.reason == "no verdict on null batch2: FAILED test_it.py::test_it - no"


def test_the_slowest_claim_is_shown_and_all_that_failed_are_kept() -> None:
    judged, _ = answer_of({ONE: row("fail", 0.9), TWO: row("fail", 0.7)}, frozenset())
    assert judged.claims == (ONE, TWO)
    assert judged.words == "null batch2: 0.700x [0.690, 0.710] in 4 launches"


def test_an_undecided_one_says_what_could_have_been_seen_and_a_lost_one_what_failed() -> None:
    undecided, _ = answer_of({ONE: row("inconclusive", reason="the budget is spent")}, frozenset())
    assert undecided.reason == "undecided: the budget is spent; it could have seen 2 %"
    lost, _ = answer_of({}, frozenset([ONE]), "FAILED test_it.py::test_it - Failed: no speed")
    assert lost.reason == "no verdict on null batch1: FAILED test_it.py::test_it - Failed: no speed"
    assert lost.words == "not measured"


def test_many_gates_err_more_often_than_one() -> None:
    one, many = (Judged(Answer.BAD, "", gates=gates) for gates in (1, 100))
    assert error_of(one, 0.003) == 0.003
    assert error_of(many, 0.003) == pytest.approx(len(WIDENING) * 100 * false_fail_chance(1, rate=0.001))
    assert error_of(many, 0.003) > 0.01


def test_a_claim_about_two_cells_of_one_side_says_nothing_of_a_candidate(tmp_path: Path) -> None:
    """It is made by the same helper, and holds or fails whatever the other side is."""
    store, log = tmp_path / "results.sqlite", tmp_path / "log"
    helper: dict[str, Any] = {"helper": "assert_no_slower", "subject": "local:null batch1"}
    between, over = replace(row("fail", 0.7, **helper), metric="throughput_ratio"), row("pass", **helper)
    with Store.open(store) as opened:
        run = opened.start_run(
            "u", command=[], seed=0, protocol=PROTOCOLS["gate"], environment={}, fresh=False, resumed=False
        )
        for each in (over, replace(between, claim="another")):
            opened.add_verdict(run, each)
        opened.finish_run(run, "finished")

    found = Judge("main", [], store, log, 16)._verdicts(run)

    assert [each.verdict for each in found.values()] == ["pass"]


@pytest.mark.parametrize(
    ("outcome", "has_failed", "expected"),
    [
        (Outcome.FAILED, False, {"second"}),
        (Outcome.MISMATCH, True, {"first", "second"}),
        # A test that leaves a cell out is skipped, and so is one of what cannot run there.
        (Outcome.OK, False, set()),
        (Outcome.OK, True, {"first", "second"}),
        (Outcome.UNSUPPORTED, True, {"first"}),
        (Outcome.UNAVAILABLE, False, set()),
    ],
)
def test_something_is_expected_of_each_cell_of_a_run_that_can_run(
    tmp_path: Path, outcome: Outcome, has_failed: bool, expected: set[str]
) -> None:
    path, compiler = tmp_path / "results.sqlite", CompilerSpec("null")
    plain = {name: Cell("local", compiler, Workload(ModelRef(name, "null", ""))) for name in ("first", "second")}
    with Store.open(path) as store:
        run = store.start_run(
            "u", command=[], seed=0, protocol=PROTOCOLS["gate"], environment={}, fresh=False, resumed=False
        )
        for side in ("", "here", "there"):
            cells = {name: replace(cell, side=side) for name, cell in plain.items()}
            store.use_cells(run, {cell: f"{side} {name}" for name, cell in cells.items()})
            launch = store.start_launch(
                run, group="g", number=1, seed=0, protocol=PROTOCOLS["gate"], order=[], environment={}
            )
            store.add_prepared(launch, cells["first"], f"{side} first", CompileRecord(Outcome.OK))
            record = CompileRecord(outcome if side == "here" else Outcome.OK)
            store.add_prepared(launch, cells["second"], f"{side} second", record)
            store.finish_launch(launch)

    found = Judge("main", [], path, tmp_path / "log", 16)._expected(run, has_failed=has_failed)

    assert found == {plain[name].label for name in expected}


class Child:
    """A process that gets signals at some moments of its life, or whose parent does."""

    def __init__(self, number: int, when: str, *, obeys: bool = True) -> None:
        self._number, self._when, self._obeys = number, when, obeys
        self.did: list[object] = []

    def __call__(self, words: list[str], **how: Any) -> Child:
        self._at("start")
        return self

    def _at(self, moment: str) -> None:
        if moment == self._when:
            self._when = ""
            os.kill(os.getpid(), self._number)

    def wait(self, seconds: float | None = None) -> int:
        self._at("wait")
        self.did.append(("wait", seconds))
        if seconds is not None and not self._obeys:
            raise subprocess.TimeoutExpired("pytest", seconds)
        return 1

    def send_signal(self, number: int) -> None:
        self.did.append(number)

    def kill(self) -> None:
        self.did.append("kill")


@pytest.mark.parametrize("obeys", [True, False])
@pytest.mark.parametrize("when", ["start", "wait"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_whoever_ends_the_command_interrupts_pytest_first(
    monkeypatch: pytest.MonkeyPatch, number: int, when: str, obeys: bool
) -> None:
    # Tests may run under nohup, which has one of them ignored.
    child, before = Child(number, when, obeys=obeys), signal.signal(number, signal.SIG_DFL)
    monkeypatch.setattr(judging.subprocess, "Popen", child)  # type: ignore[attr-defined]
    try:
        with pytest.raises(SystemExit) as ended:
            run_pytest(["-q"])
        assert signal.getsignal(number) == signal.SIG_DFL
    finally:
        signal.signal(number, before)

    assert ended.value.code == 128 + number
    assert child.did == [signal.SIGINT, ("wait", judging._GRACE_SECONDS), "kill"]


def test_a_signal_that_is_ignored_stays_so(monkeypatch: pytest.MonkeyPatch) -> None:
    """As under nohup."""
    child, before = Child(signal.SIGHUP, "wait"), signal.signal(signal.SIGHUP, signal.SIG_IGN)
    monkeypatch.setattr(judging.subprocess, "Popen", child)  # type: ignore[attr-defined]
    try:
        assert run_pytest(["-q"]) == 1
        assert signal.getsignal(signal.SIGHUP) == signal.SIG_IGN
    finally:
        signal.signal(signal.SIGHUP, before)
    assert child.did == [("wait", None)]

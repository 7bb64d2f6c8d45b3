"""A judgement: pytest measures a candidate against the good one, and the store says what came of it."""

from __future__ import annotations

import contextlib
import math
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from pytest_ngraph.bisecting.search import Answer
from pytest_ngraph.claims.changes import CHANGE
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import TIMED, Outcome
from pytest_ngraph.stats.family import false_fail_chance
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import RunRow, VerdictRow
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.texts.shown import excerpt, one_line

# What a judgement may cost, one after the other, as multiples of the budget.
WIDENING = (1, 2, 4)
# What the search says itself.
OURS = (
    "--ngraph-side", "--ngraph-against", "--ngraph-gate-changes", "--ngraph-budget", "--ngraph-error-rate",
    "--ngraph-protocol", "--ngraph-inconclusive", "--ngraph-store", "--ngraph-fresh", "--ngraph-offline",
    "--ngraph-resume",
)  # fmt: skip
# What a test is skipped for.
_SKIPPED = (Outcome.UNSUPPORTED, Outcome.UNAVAILABLE)
_PASSED, _FAILED, _USAGE_ERROR = 0, 1, 4
_COLUMNS = "300"
_TAIL_LINES = 12
_GRACE_SECONDS = 30.0
# What ends a process that does nothing about it, as a supervisor sends it to this process alone.
_ENDING = (signal.SIGTERM, signal.SIGHUP)
# A test with what of it is measured, on whatever side.
Claim = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Judged:
    """What came of a judgement and why, with the number that decided it, where there is one.

    ``claims`` are those that said so, ``gates`` how many were asked, ``run`` is that of the store that has it all.
    """

    answer: Answer
    reason: str
    subject: str = ""
    estimate: float | None = None
    low: float | None = None
    high: float | None = None
    launches: int = 0
    gates: int = 0
    run: int = 0
    claims: tuple[Claim, ...] = ()

    @property
    def words(self) -> str:
        """Return the throughput against the good one with its interval, and the launches that it is of."""
        # What is the same on both sides has a number without a launch.
        if not self.launches or self.estimate is None or self.low is None or self.high is None:
            return "not measured"
        how = f"{self.estimate:.3f}x [{self.low:.3f}, {self.high:.3f}] in {self.launches} launches"
        return f"{self.subject}: {how}" if self.subject else how


class _Ended(BaseException):
    """A signal has come that ends this process."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class _Signals:
    """Notes the signals that end this process while it is entered, and raises them from ``are_raised`` on."""

    def __init__(self) -> None:
        self._came, self._is_raised = 0, False
        self._before: dict[signal.Signals, Any] = {}

    def __enter__(self) -> _Signals:
        # Python has handlers in this thread only.
        if threading.current_thread() is threading.main_thread():
            for number in _ENDING:
                # What is ignored, as under nohup, stays so, and what is none of Python's could not be put back.
                if signal.getsignal(number) not in (signal.SIG_IGN, None):
                    self._before[number] = signal.signal(number, self._comes)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def are_raised(self) -> None:
        self._is_raised = True
        if self._came:
            raise _Ended(self._came)

    def _comes(self, number: int, frame: FrameType | None) -> None:
        self._came = number
        if self._is_raised:
            raise _Ended(number)


def run_pytest(words: Sequence[str], **how: Any) -> int:
    """Run pytest in a process of its own and return its exit status. ``how`` is for ``subprocess.Popen``.

    At Ctrl-C, of which it gets a signal of its own, it has the time to end its workers and its run before
    KeyboardInterrupt is raised here; at a second one it is killed. So it has at SIGTERM and SIGHUP, where these come to
    this process alone: they are Ctrl-C for it, and SystemExit with 128 and the signal's number is raised here.
    """
    # Nothing is raised while the process is being started: it would go on without anybody to end it.
    with _Signals() as signals:
        child = subprocess.Popen([sys.executable, "-m", "pytest", *words], **how)
        try:
            signals.are_raised()
            return child.wait()
        except (KeyboardInterrupt, _Ended) as ended:
            with contextlib.suppress(subprocess.TimeoutExpired, KeyboardInterrupt, _Ended):
                if isinstance(ended, _Ended):
                    child.send_signal(signal.SIGINT)
                child.wait(_GRACE_SECONDS)
            child.kill()
            if isinstance(ended, _Ended):
                raise SystemExit(128 + ended.number) from None
            raise


def error_of(judged: Judged, rate: float) -> float:
    """Return how likely it is at most that a judgement at some error rate is wrong, where launches scatter evenly.

    A candidate that is slower by more than the tolerance is called good where each of its gates is wrong, and one that
    is not slower is called bad where any of them is.
    """
    each = rate / len(WIDENING)
    return max(rate, len(WIDENING) * false_fail_chance(judged.gates, rate=each))


class Judge:
    """Judges candidates by pytest runs whose output goes to a log. ``rest`` is what they are given besides."""

    def __init__(self, good: str, rest: Sequence[str], store: Path, log: Path, budget: int) -> None:
        self._good, self._rest, self._store, self._log, self._budget = good, tuple(rest), store, log, budget

    def judge(self, side: str, rate: float, claims: Iterable[Claim] = ()) -> Judged:
        """Judge a side against the good one, again with a wider budget where that may decide it.

        Asked are the claims given, or all. Raises SpecError where pytest itself does not run, and KeyboardInterrupt.
        """
        asked = frozenset(claims)
        for wider in WIDENING:
            number, status = self._measure(side, self._budget * wider, rate / len(WIDENING))
            if number is None:
                said = self._last_lines()
                if asked and status == _USAGE_ERROR:
                    return Judged(Answer.OPEN, f"it cannot be had: {one_line(said, 200)}")
                raise SpecError(f"pytest measured nothing (exit status {status}); {self._log} ends with:\n{said}")
            complaint = self._complaint()
            expected = self._expected(number, has_failed=bool(complaint))
            judged, may_decide = answer_of(self._verdicts(number), asked, complaint, expected)
            judged = replace(judged, run=number)
            if not may_decide:
                break
        return judged

    def _measure(self, side: str, budget: int, rate: float) -> tuple[int | None, int]:
        """Run pytest. Return the number of its run in the store, None where it began none, and its exit status."""
        before = max((run.id for run in self._runs()), default=0)
        here = f"--ngraph-side={side}"
        words = [
            *(*self._rest, "-rfE", here, f"--ngraph-against={self._good}"),
            *("--ngraph-gate-changes", "--ngraph-protocol=gate", "--ngraph-inconclusive=skip"),
            *(f"--ngraph-budget={budget}", f"--ngraph-error-rate={rate:.3g}", f"--ngraph-store={self._store}"),
        ]
        with self._log.open("wb") as log:
            status = run_pytest(
                words,
                env={**os.environ, "COLUMNS": _COLUMNS},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )
        if status not in (_PASSED, _FAILED, _USAGE_ERROR):
            raise SpecError(
                f"pytest ended with exit status {status}; {self._log} ends with:\n{self._last_lines()}\n"
                "what was decided so far is kept, and the same command goes on from there"
            )
        # Others may use the store meanwhile.
        mine = [run.id for run in self._runs() if run.id > before and here in run.command]
        return (max(mine) if mine else None), status

    def _runs(self) -> list[RunRow]:
        if not self._store.exists():
            return []
        with Store.open(self._store, read_only=True) as store:
            return store.runs()

    def _verdicts(self, number: int) -> dict[Claim, VerdictRow]:
        """Return what a run says of changes, by test and cell."""
        with Store.open(self._store, read_only=True) as store:
            plain = {cell.label: replace(cell, side="").label for cell, _ in store.cells(number)}
            rows = [row for row in store.verdicts(number) if row.metric == CHANGE]
        return {(row.nodeid, plain.get(subject := str(row.extra.get("subject")), subject)): row for row in rows}

    def _expected(self, number: int, *, has_failed: bool) -> frozenset[str]:
        """Return the cells that a run has to say something of, on whatever side: those without a time among them.

        What cannot run there in principle is skipped, and so is what a test leaves out where none ``has_failed``.
        """
        with Store.open(self._store, read_only=True) as store:
            cells = {cell: evidence for cell, evidence in store.cells(number) if cell.side}
            failed = {cell: each.outcome for cell, each in store.failed(cells).items() if each.outcome not in TIMED}
        names = {cell: replace(cell, side="").label for cell in cells}
        skipped = {names[cell] for cell, outcome in failed.items() if outcome in _SKIPPED}
        return frozenset(name for cell, name in names.items() if has_failed or cell in failed) - skipped

    def _last_lines(self) -> str:
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return excerpt("\n".join([line for line in lines if line.strip()][-_TAIL_LINES:]))

    def _complaint(self) -> str:
        """Return what pytest says of the first test that failed."""
        lines = self._log.read_text(encoding="utf-8", errors="replace").splitlines()
        return next((one_line(line, 200) for line in lines if line.startswith(("FAILED ", "ERROR "))), "")


def answer_of(
    rows: Mapping[Claim, VerdictRow],
    asked: frozenset[Claim],
    complaint: str = "",
    expected: frozenset[str] = frozenset(),
) -> tuple[Judged, bool]:
    """Return what verdicts say, and whether more launches may say more.

    Bad is where one of the claims ``asked`` fails, good where all of them pass. Without any all are asked, of the cells
    ``expected`` at least. A claim without a verdict, a cell that is new and one without a time on the other side leave
    it open, and more launches do not change it. ``complaint`` is what pytest says of a failed test.
    """
    chosen = {claim: row for claim, row in rows.items() if not asked or claim in asked}
    gates = len(asked or chosen)
    if failed := {claim: row for claim, row in chosen.items() if row.verdict == Verdict.FAIL}:
        (_, name), row = min(failed.items(), key=lambda one: one[1].estimate or 0.0)
        return _numbered(Answer.BAD, row, name, gates, _reason(row, "slower"), tuple(failed)), False
    lacking = [name for _, name in sorted(asked - set(chosen))]
    if not asked:
        lacking = sorted(expected - {name for _, name in chosen})
    if lacking or not chosen:
        what = f"no verdict on {lacking[0]}" if lacking else "no cell of these tests was compared"
        return Judged(Answer.OPEN, f"{what}{f': {complaint}' if complaint else ''}", gates=gates), False
    for (_, name), row in chosen.items():
        unmeasured = row.extra.get("unmeasured")
        is_new = unmeasured and str(row.extra.get("reason", "")).startswith("new:")
        is_judged = row.verdict == Verdict.PASS or (row.verdict == Verdict.INCONCLUSIVE and not unmeasured)
        if is_new or not is_judged:
            return _numbered(Answer.OPEN, row, name, gates, _reason(row, row.verdict)), False
    if undecided := [(claim, row) for claim, row in chosen.items() if row.verdict == Verdict.INCONCLUSIVE]:
        (_, name), row = undecided[0]
        return _numbered(Answer.OPEN, row, name, gates, _reason(row, "undecided")), True
    # The slowest that was measured, else one that is unchanged.
    (_, name), row = min(chosen.items(), key=lambda one: math.inf if one[1].estimate is None else one[1].estimate)
    return _numbered(Answer.GOOD, row, name, gates, _reason(row, "no slower")), False


def _reason(row: VerdictRow, said: str) -> str:
    reason = one_line(str(row.extra.get("reason", "")), 200)
    visible = row.smallest_effect
    if row.verdict == Verdict.INCONCLUSIVE and visible is not None and math.isfinite(visible):
        reason = "; ".join(filter(None, [reason, f"it could have seen {100 * visible:.2g} %"]))
    return f"{said}: {reason}" if reason else said


def _numbered(
    answer: Answer, row: VerdictRow, name: str, gates: int, reason: str, claims: tuple[Claim, ...] = ()
) -> Judged:
    if row.estimate is None or row.low is None or row.high is None:
        return Judged(answer, reason, name, gates=gates, claims=claims)
    return Judged(answer, reason, name, row.estimate, row.low, row.high, row.launches, gates, 0, claims)

"""From launches to verdicts: confirmation, controls, the second channel, percentiles and groups that are given up.

Everything is real but the worker processes: sessions, launcher and store. What a launch measures is written by hand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from statistics import stdev
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest
from scipy.special import stdtrit
from scipy.stats import binomtest

from pytest_ngraph.claims.assertions import (
    InconclusiveWarning,
    assert_compile_time,
    assert_friction,
    assert_latency,
    assert_memory,
    assert_outputs_match,
    assert_slope,
    assert_speedup,
)
from pytest_ngraph.claims.decide import ALPHA, Decision, decide
from pytest_ngraph.claims.explain import advice, explain
from pytest_ngraph.claims.percentiles import calls_of, clusters_of, decide_percentile
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices import local
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.launch import LaunchPlan, Sink
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.options.settings import Budget
from pytest_ngraph.plan.items import item_plan
from pytest_ngraph.quantities.quantity import Measurer, NotStored
from pytest_ngraph.quantities.sweeps import DepthSweep, Measurement
from pytest_ngraph.session import launcher
from pytest_ngraph.session.ledger import Tally
from pytest_ngraph.session.session import Session
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    LaunchRecord,
    Outcome,
    Reading,
    Visit,
    Workload,
)
from pytest_ngraph.stats import Bound, LaunchValue, looks_for, spending
from pytest_ngraph.stats.verdict import Verdict, judge_percentile
from pytest_ngraph.store import sqlite
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model
from tests.options.test_settings import settings
from tests.support import measuring

BLOCK = parse_model("block:conv")
BASELINE, FAST = CompilerSpec("null"), CompilerSpec("null", (("sample_us", "5"),))
HOME, AWAY = Reading(100_000, (360,)), Reading(100_000, (720,))
NODE = "test_suite.py::test_it"
AT_LEAST_1 = Bound(1.0, True, 0.05, "log")


@dataclass(frozen=True)
class Made:
    """What one launch measures. The baseline's calls take 10 ms, those of the cell and the twin as these factors say.

    ``speedup`` is that of the median calls and ``fastest`` that of the fastest ones; ``calls`` are the seconds of all
    calls of the cell instead, dealt out to the blocks; ``together`` is how many calls are timed together.
    """

    speedup: float = 1.0
    fastest: float | None = None
    twin: float = 1.0
    calls: Sequence[float] = ()
    together: int = 1
    invalid: str = ""
    readings: Sequence[tuple[Reading, Reading] | None] = ((HOME, HOME),) * 8
    seconds: float = 0.0
    outcome: Outcome = Outcome.OK
    model_bytes: int | None = None
    max_error: float | None = None
    told_apart: bool | None = None
    compile_seconds: float = 0.5

    def wall_ns(self, cell: Cell, block: int) -> tuple[int, ...]:
        """Return the batches of one visit: the fastest first, then nine like the median."""
        if cell.compiler == FAST and self.calls:
            return tuple(round(1e9 * seconds) for seconds in self.calls[block::8])
        median, fastest = 10e6, 5e6
        if cell.replica and cell.compiler == BASELINE:
            median, fastest = self.twin * median, self.twin * fastest
        if cell.compiler == FAST:
            median, fastest = median / self.speedup, fastest / (self.fastest or self.speedup)
        return (round(fastest * self.together), *[round(median * self.together)] * 9)

    def faults(self, cell: Cell, block: int) -> tuple[int, ...]:
        """Return the minor faults of each batch of one visit; none where they are not read."""
        return ()

    def visit(self, cell: Cell, block: int) -> Visit:
        """Return one visit."""
        return Visit(self.together, self.wall_ns(cell, block), faults=self.faults(cell, block))

    def others_cpus(self, cell: Cell) -> float | None:
        """Return how many CPUs others keep busy during the visits to a cell, None where that is not known."""
        return None

    def stolen_share(self, cell: Cell) -> float | None:
        """Return for which part of the visits to a cell the host had a CPU, None where it had none."""
        return None


@dataclass
class Quiet:
    """A listener that remembers notes."""

    notes: list[str] = field(default_factory=list)

    def group_started(self, name: str, cells: int, launches: int, seconds: float) -> None:
        pass

    def progress(self, name: str, launch: int, of: int, doing: str, done: int, total: int) -> None:
        pass

    def note(self, text: str) -> None:
        self.notes.append(text)

    def idle(self) -> None:
        pass


class Laboratory:
    """One store, and sessions over it whose launches come out as the script says, one after the other.

    One is open at a time in a process: what a test leaves open ends with the next one.
    """

    _last: ClassVar[Laboratory | None] = None

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        if Laboratory._last is not None:
            Laboratory._last.close()
        Laboratory._last = self
        self._folder, self._clock = folder, 0.0
        self.script: list[Made] = []
        self.plans: list[tuple[Cell, ...]] = []
        self.states: list[tuple[Reading, ...]] = []
        self.patience: list[float] = []
        self.crowding: list[float | None] = []
        self.store = folder / "results.sqlite"
        self.listener = Quiet()
        self.compiler = FAST
        self.quick_gates = "show"
        self.noise_history = False
        self.state: Reading | None = None
        self._sessions: list[Session] = []
        monkeypatch.setattr(local, "run_launch", self._run)
        monkeypatch.setattr(environment, "disturbance", lambda *_: self._made.invalid)
        # Two processes a run, which say nothing of verdicts.
        monkeypatch.setattr(environment, "git_commit", lambda *_: None)
        monkeypatch.setattr(local, "device_lock", lambda *_, **__: nullcontext())
        monkeypatch.setattr(launcher, "time", SimpleNamespace(monotonic=lambda: self._clock))
        # A launch takes as long as the device's own clock says.
        monkeypatch.setattr(environment, "time", SimpleNamespace(monotonic=lambda: self._clock))
        monkeypatch.setattr(sqlite, "_now", self._now)

    @property
    def launched(self) -> int:
        """Return how many launches were measured, in all sessions."""
        return len(self.plans)

    @property
    def tally(self) -> Tally:
        """Return what the last session has done."""
        return self._sessions[-1].tally

    @property
    def kept(self) -> list[VerdictRow]:
        """Return the verdicts that the last session kept."""
        return self._sessions[-1].verdicts

    def run(
        self,
        *,
        budget: str = "8",
        tolerance: float = 0.05,
        offline: bool = False,
        protocol: str = "gate",
        inconclusive: str = "fail",
        error_rate: float = 0.01,
        batches: Sequence[int] = (1,),
        rebuild: bool = False,
    ) -> Measurement:
        """Begin a run, and return the measurement of the first batch's cell in its one test."""
        return self.run_all(
            [Workload(BLOCK, batch) for batch in batches],
            budget=budget,
            tolerance=tolerance,
            offline=offline,
            protocol=protocol,
            inconclusive=inconclusive,
            error_rate=error_rate,
            rebuild=rebuild,
        )[0]

    def run_all(
        self,
        workloads: Sequence[Workload],
        *,
        budget: str = "8",
        tolerance: float = 0.05,
        offline: bool = False,
        protocol: str = "gate",
        inconclusive: str = "fail",
        error_rate: float = 0.01,
        rebuild: bool = False,
    ) -> list[Measurement]:
        """Begin a run, and return the measurements of its one test."""
        self.close()
        chosen = replace(
            settings(),
            store=self.store,
            error_rate=error_rate,
            offline=offline,
            protocol=PROTOCOLS[protocol],
            inconclusive=inconclusive,
            quick_gates=self.quick_gates,
            noise_history=self.noise_history,
            state=self.state,
        )
        bench = local.LocalBench(measuring.job(self._folder), Catalogue(), chosen.protocol, chosen.seed)
        uid = f"run {len(self._sessions)}"
        self._sessions.append(Session(chosen, Catalogue(), bench, self.listener, uid=uid, command=["pytest"]))
        cells = [Cell("local", self.compiler, workload) for workload in workloads]
        budgeted = Budget.parse(budget)
        plan = item_plan(NODE, cells, chosen, baseline=BASELINE, budget=budgeted, tolerance=tolerance, rebuild=rebuild)
        self._sessions[-1].plan([plan])
        measurer, baselines = Measurer(self._sessions[-1], NODE), {cell.workload: cell for cell in plan.baselines}
        return [Measurement(measurer, cell, baselines[cell.workload]) for cell in plan.cells]

    def close(self) -> None:
        """End every run, which closes its files."""
        for one in self._sessions:
            one.close("finished")

    def decide(self, bound: Bound = AT_LEAST_1, **how: object) -> Decision:
        """Begin a run and judge the speed-up of its cell."""
        tolerance = bound.tolerance
        return decide(self.run(tolerance=tolerance, **how).quantity("speedup"), bound, tolerance)  # type: ignore[arg-type]

    def percentile(self, percentile: float, bound: Bound, **how: object) -> Decision:
        """Begin a run and judge a percentile of the latency of its cell."""
        return decide_percentile(self.run(**how).quantity("latency"), percentile, bound, 0.05)  # type: ignore[arg-type]

    @property
    def _made(self) -> Made:
        return self.script[self.launched - 1]

    def _now(self) -> str:
        return (datetime.now(timezone.utc) + timedelta(seconds=self._clock)).isoformat(timespec="milliseconds")

    def _run(self, job: Job, plan: LaunchPlan, sink: Sink, *, spare_memory: Callable[[], float]) -> None:
        self.plans.append(plan.cells)
        self.states.append(plan.states)
        self.patience.append(plan.patience_seconds)
        self.crowding.append(plan.crowding)
        assert len(self.script) >= self.launched, "a launch more than the script has"
        made = self._made
        self._clock += made.seconds
        for cell in plan.cells:
            outcome = made.outcome if cell.compiler == FAST else Outcome.OK
            others = made.others_cpus(cell)
            given = {"compile_seconds": made.compile_seconds, "call_seconds": 0.01, "model_bytes": made.model_bytes}
            given |= {"max_error": made.max_error, "outputs_told_apart": made.told_apart}
            given |= {"stolen_share": made.stolen_share(cell)}
            sink.prepared(cell, CompileRecord(outcome, others_cpus=others, **given))  # type: ignore[arg-type]
        for block, readings in enumerate(made.readings):
            for position, cell in enumerate(plan.cells):
                sink.visited(cell, block, position, made.visit(cell, block))
            sink.block_done(block, readings)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def speedups(*values: float) -> list[Made]:
    return [Made(value) for value in values]


SLOWER, EQUAL = (0.90, 0.91, 0.90), (1.0, 1.01, 1.0, 0.99)
# The looks after 3, 4, 6 and 8 launches all leave it open.
OPEN = (0.9, 1.1, 0.95, 1.05, 0.9, 1.1, 0.95, 1.05)


@pytest.mark.parametrize(
    ("budget", "rate", "words"),
    [
        ("16", 0.01, "99 % interval"),
        ("8", 0.01, "99 % interval"),
        ("3", 0.01, "98 % interval"),
        ("3", 0.1, "83 % interval"),
        ("16", 0.05, "97 % interval"),
        ("16", 0.001, "99.9 % interval"),
    ],
)
def test_an_interval_is_said_to_be_as_sure_as_its_look_makes_it(
    lab: Laboratory, budget: str, rate: float, words: str
) -> None:
    values = (1.2, 1.21, 1.2)
    lab.script = speedups(*values)
    quantity = lab.run(budget=budget, error_rate=rate).quantity("speedup")

    decision = decide(quantity, AT_LEAST_1, 0.05)

    assert (decision.verdict, decision.estimate.launches) == ("pass", 3)
    assert f"  pass: 1.20x, {words} " in explain("assert_speedup", quantity, AT_LEAST_1, decision)
    # It is the interval that is shown, not the sure one of somebody else.
    half = float(stdtrit(2, (1 + decision.confidence) / 2)) * stdev(map(math.log, values)) / math.sqrt(3)
    assert math.log(decision.estimate.high / decision.estimate.value) == pytest.approx(half, rel=1e-4)


@pytest.mark.parametrize(("error", "terms"), [(2e-5, "at_most 0.0001 (no tolerance)"), (2e-3, "in f32")])
def test_outputs_beyond_the_bounds_of_f32_that_counted_are_of_a_file_in_another_precision(
    lab: Laboratory, error: float, terms: str
) -> None:
    """The workload says f32 of it, and the check was that of what it is written in: no bound of another is shown."""
    lab.script = [Made(1.2, max_error=error)] * 3

    assert_outputs_match(lab.run())

    (row,) = lab.kept
    assert row.claim.endswith(terms)
    assert (row.verdict, row.bound) == ("pass", 1e-4 if error < 1e-4 else None)


@pytest.mark.parametrize("errors", [(5e-4, 2e-6, 2e-6), (2e-6, 5e-4, 2e-6), (2e-6, 2e-6, 5e-4)])
def test_an_excess_in_any_launch_of_the_first_look_is_not_passed_over(lab: Laboratory, errors: Sequence[float]) -> None:
    """Another gate's launches come later, whatever they say of the outputs."""
    lab.script = [Made(1.2, max_error=error) for error in (*errors, 1e-7)]
    measured = lab.run()

    with pytest.raises(AssertionError, match=r"max error 0\.0005 > 0\.0001"):
        assert_outputs_match(measured, at_most=1e-4)
    assert measured.source.one_more(measured.quantity("latency"))
    with pytest.raises(AssertionError, match=r"max error 0\.0005 > 0\.0001"):
        assert_outputs_match(measured, at_most=1e-4)
    assert measured.max_error == 5e-4


def test_an_excess_of_a_later_launch_changes_nothing_of_what_was_said_of_outputs(lab: Laboratory) -> None:
    lab.script = [Made(1.2, max_error=error) for error in (2e-6, 3e-6, 1e-6, 5e-4)]
    measured = lab.run()
    assert_outputs_match(measured, at_most=1e-4)
    assert measured.source.one_more(measured.quantity("latency"))
    assert_outputs_match(measured, at_most=1e-4)
    assert measured.max_error == 3e-6


def test_outputs_that_were_not_told_apart_in_one_launch_are_open(lab: Laboratory) -> None:
    lab.script = [Made(1.2, max_error=2e-6, told_apart=number != 1) for number in range(3)]

    with pytest.raises(AssertionError, match="inconclusive: assert_outputs_match"):
        assert_outputs_match(lab.run())


# Confirmation


def test_a_fail_is_confirmed_by_the_four_launches_that_follow_it(lab: Laboratory) -> None:
    lab.script = speedups(*SLOWER, 0.91, 0.90, 0.89, 0.90)

    decision = lab.decide()

    assert decision.verdict == "fail"
    assert decision.reason == "the first 3 launches said fail, 4 fresh ones confirmed it"
    assert (decision.estimate.launches, lab.launched) == (7, 7)
    assert decision.estimate.high < 1.0


@dataclass(frozen=True)
class TwoBatches(Made):
    """A launch in which the cell of another batch is as fast as ``other`` says."""

    other: float = 0.93

    def wall_ns(self, cell: Cell, block: int) -> tuple[int, ...]:
        mine = cell.compiler == FAST and cell.workload.batch == 2
        return (replace(self, speedup=self.other) if mine else self).base_wall_ns(cell, block)

    def base_wall_ns(self, cell: Cell, block: int) -> tuple[int, ...]:
        return super().wall_ns(cell, block)


@pytest.mark.parametrize(
    ("values", "along"), [((0.90, 0.91, 0.90), 4), ((0.96, 0.88, 0.92, 0.93, 0.91, 0.92), 0)], ids=["as many", "fewer"]
)
def test_what_fails_alike_comes_along_where_it_has_as_many_launches(
    lab: Laboratory, values: Sequence[float], along: int
) -> None:
    """With fewer it would be measured until it has as many, before the gate that asked gets its next look."""
    lab.script = [TwoBatches(value) for value in (*values, 0.90, 0.905, 0.90, 0.905)]
    one, _ = lab.run_all([Workload(BLOCK, 1), Workload(BLOCK, 2)])

    decision = decide(one.quantity("speedup"), AT_LEAST_1, 0.05)

    assert decision.reason == f"the first {len(values)} launches said fail, 4 fresh ones confirmed it"
    assert lab.launched == len(values) + 4
    assert sum(any(cell.workload.batch == 2 for cell in plan) for plan in lab.plans[len(values) :]) == along


def test_fresh_launches_that_say_the_opposite_end_the_confirmation(lab: Laboratory) -> None:
    lab.script = speedups(*SLOWER, *EQUAL)

    decision = lab.decide()

    assert decision.verdict == "inconclusive"
    assert decision.reason == "the first 3 launches said fail, 4 fresh ones did not confirm it"
    assert lab.launched == 7


@pytest.mark.parametrize(
    ("spread", "fresh", "verdict"),
    [(0.010, 4, "fail"), (0.018, 6, "fail"), (0.028, 8, "fail"), (0.045, 12, "fail"), (0.07, 12, "inconclusive")],
)
def test_fresh_launches_alone_confirm_at_half_a_per_cent_over_their_looks(
    lab: Laboratory, spread: float, fresh: int, verdict: str
) -> None:
    # With mean -0.05 they lie below 0 up to s = 0.0130 (four at q = 0.00226), 0.0223 (six at 0.00137), 0.0311 (eight at
    # 0.00131) and 0.0469 (twelve at 0.00177); all of them with the first three always would.
    step = spread * math.sqrt(3) / 2
    lab.script = speedups(*SLOWER, *(math.exp(-0.05 + sign * step) for sign in (1, -1) * 6))

    decision = lab.decide()

    assert decision.verdict == verdict
    done = "confirmed it" if verdict == "fail" else "did not confirm it"
    assert decision.reason == f"the first 3 launches said fail, {fresh} fresh ones {done}"
    assert lab.launched == decision.estimate.launches == 3 + fresh
    assert lab.decide(offline=True) == decision


@pytest.mark.parametrize("at_least", [True, False])
@pytest.mark.parametrize(
    ("slower", "launches"), [((0.50, 0.51, 0.50), 3), ((0.84, 0.84, 0.84), 3), ((0.86, 0.86, 0.86), 7)]
)
def test_a_fail_beyond_three_tolerances_needs_no_confirmation(
    lab: Laboratory, at_least: bool, slower: tuple[float, ...], launches: int
) -> None:
    """0.95 ** 3 is 0.857: what is half as fast is said after three launches, and what is near the bound after seven."""
    values = [*slower, *[slower[0]] * 4]
    lab.script = speedups(*(value if at_least else 1.05 ** (math.log(value) / math.log(0.95)) for value in values))

    decision = lab.decide(Bound(1.0, at_least, 0.05, "log"))

    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("fail", launches, launches)
    clear = "so far beyond the bound that it needs no confirmation"
    assert (decision.reason == clear) is (launches == 3)


def test_a_fail_that_is_far_and_not_sure_is_confirmed(lab: Laboratory) -> None:
    # At -0.25 three launches are clear up to s = 0.0087 (t = 49.98 at 0.0002), and fail up to 0.0397.
    lab.script = speedups(*(math.exp(-0.25 + shift) for shift in (0.02, 0.0, -0.02, 0.0, 0.001, 0.0, 0.001)))
    assert lab.decide().reason == "the first 3 launches said fail, 4 fresh ones confirmed it"


def test_a_clear_fail_stands_before_the_controls_and_the_fastest_calls(lab: Laboratory) -> None:
    lab.script = [Made(value, twin=1.2) for value in (0.50, 0.51, 0.50)]
    assert lab.decide().verdict == "invalid"
    lab.script = [*lab.script, *[Made(value, fastest=1.2) for value in (0.50, 0.51, 0.50)]]
    decided = decide(lab.run_all([Workload(BLOCK, 2)])[0].quantity("speedup"), AT_LEAST_1, 0.05)
    assert decided.reason.startswith("medians say fail, the fastest calls say the opposite (1.20x [")


def test_without_a_tolerance_every_fail_is_confirmed(lab: Laboratory) -> None:
    lab.script = speedups(0.5, 0.51, 0.5, 0.5, 0.51, 0.5, 0.5, 0.51)
    assert lab.decide(Bound(1.0, True, 0.0, "log")).reason.endswith("4 fresh ones confirmed it")


def test_a_confirmation_costs_launches_beyond_the_budget(lab: Laboratory) -> None:
    lab.script = speedups(*SLOWER, 0.91, 0.90, 0.89, 0.90)
    assert lab.decide(budget="3").verdict == "fail"
    assert lab.launched == 7


def test_a_confirmation_costs_seconds_beyond_the_budget(lab: Laboratory) -> None:
    lab.script = [replace(made, seconds=30.0) for made in speedups(*SLOWER, 0.91, 0.90, 0.89, 0.90)]
    assert lab.decide(budget="90s").verdict == "fail"
    assert lab.launched == 7


def test_a_fail_at_a_later_look_is_confirmed_from_there_on(lab: Laboratory) -> None:
    # Three say nothing; the fourth look fails; then four more.
    lab.script = speedups(0.90, 0.93, 0.90, 0.91, 0.90, 0.90, 0.91, 0.90)

    decision = lab.decide()

    assert decision.verdict == "fail"
    assert decision.reason == "the first 4 launches said fail, 4 fresh ones confirmed it"
    assert decision.estimate.launches == 8


def test_a_pass_needs_no_confirmation(lab: Laboratory) -> None:
    lab.script = speedups(1.2, 1.21, 1.2)

    decision = lab.decide()

    assert (decision.verdict, decision.reason) == ("pass", "")
    assert (decision.estimate.launches, lab.launched) == (3, 3)


def test_at_most_is_confirmed_as_at_least_is(lab: Laboratory) -> None:
    bound = Bound(1.0, False, 0.05, "log")
    lab.script = speedups(1.12, 1.11, 1.12, 1.11, 1.12, 1.13, 1.12)
    assert lab.decide(bound).verdict == "fail"
    assert lab.decide(Bound(0.5, False, 0.05, "log")).verdict == "fail"
    assert lab.launched == 7


def test_an_open_gate_stays_within_its_budget(lab: Laboratory) -> None:
    lab.script = speedups(*OPEN)

    decision = lab.decide()

    assert (decision.verdict, decision.reason) == ("inconclusive", "the budget is spent")
    assert (decision.estimate.launches, lab.launched) == (8, 8)


def test_an_open_gate_says_what_its_launches_do_that_they_should_not(lab: Laboratory) -> None:
    # Processes get one of two memory layouts, 10 % apart, and the bound lies between.
    lab.script = speedups(*(1.05, 0.951, 0.95, 1.051, 0.95, 1.05, 1.049, 0.952))

    decision = lab.decide()

    assert decision.verdict == "inconclusive"
    (note,) = decision.notes
    assert note.startswith("launches come in two kinds, 10 % apart (4 lower, 4 higher)")
    # More launches hardly change it, so they are not what it asks for.
    assert advice(lab.run().quantity("speedup"), AT_LEAST_1, decision).startswith("a bound or a tolerance= that both")


def test_a_gate_whose_launches_resemble_the_one_before_asks_for_others_in_between(lab: Laboratory) -> None:
    lab.script = speedups(*(1.0, 1.05, 1.07, 1.05, 1.0, 0.95, 0.93, 0.95))

    decision = lab.decide()

    assert decision.verdict == "inconclusive"
    assert decision.notes[0].startswith("each launch resembles the one before")
    assert advice(lab.run().quantity("speedup"), AT_LEAST_1, decision).startswith("space the launches: run the suite's")


def test_stored_launches_are_judged_as_they_were_judged_live(lab: Laboratory) -> None:
    lab.script = speedups(*SLOWER, *EQUAL)
    live = lab.decide()

    again, offline = lab.decide(), lab.decide(offline=True)

    assert live == again == offline
    assert lab.launched == 7


@pytest.mark.parametrize(
    ("values", "middle", "verdict"),
    [
        ((*SLOWER, 0.91, 0.90, 0.89, 0.90), 0.904, "fail"),
        ((*SLOWER, *EQUAL), 0.95, "inconclusive"),
        ((1.2, 1.21, 1.2), 1.2, "pass"),
        (OPEN, 1.0, "inconclusive"),
    ],
)
def test_launches_that_came_later_change_no_verdict(
    lab: Laboratory, values: tuple[float, ...], middle: float, verdict: str
) -> None:
    lab.script = speedups(*values, *[0.5, 1.5] * 8)
    live = lab.decide()
    # Another gate of the same cells, in the middle of what they scatter, takes as many launches as it may have.
    lab.decide(Bound(middle, True, 1e-9, "log"), budget="16")
    assert lab.launched == 16

    again, offline = lab.decide(), lab.decide(offline=True)

    assert live.verdict == verdict
    assert live == again == offline


def test_offline_a_fail_that_cannot_be_confirmed_is_inconclusive(lab: Laboratory) -> None:
    lab.script = speedups(*SLOWER, 0.90, 0.91)
    # A gate at its own value takes all of its budget of five.
    assert lab.decide(Bound(0.904, True, 1e-9, "log"), budget="5").verdict == "inconclusive"
    assert lab.launched == 5

    decision = lab.decide(offline=True)

    assert decision.verdict == "inconclusive"
    assert decision.reason == (
        "the first 3 launches said fail; of the 4 that confirm it there are 2: "
        "only what is stored is judged (--ngraph-offline)"
    )
    assert decision.estimate.launches == 5


def test_offline_a_gate_with_too_few_launches_for_its_first_look_is_inconclusive(lab: Laboratory) -> None:
    lab.script = speedups(*SLOWER)
    lab.decide(Bound(0.904, True, 1e-9, "log"), budget="3")

    # Below 4 % of tolerance the first look is the fourth launch's.
    decision = lab.decide(Bound(1.0, True, 0.03, "log"), offline=True)

    assert (decision.verdict, decision.estimate.launches) == ("inconclusive", 3)
    assert decision.reason == "only what is stored is judged (--ngraph-offline)"


def test_a_fail_can_wait_for_its_confirmation_till_the_next_run(lab: Laboratory) -> None:
    lab.script = [*speedups(*SLOWER), *[Made(invalid="steal")] * 3, *speedups(0.91, 0.90, 0.89, 0.90)]

    first = lab.decide()
    second = lab.decide()

    assert first.verdict == "invalid"
    assert first.reason.startswith("the first 3 launches said fail; of the 4 that confirm it there are 0: ")
    assert second.verdict == "fail"
    assert lab.launched == 10


# Budgets


def test_a_budget_of_seconds_ends_with_the_launch_that_spends_it(lab: Laboratory) -> None:
    lab.script = [replace(made, seconds=20.0) for made in speedups(*OPEN)]

    decision = lab.decide(budget="90s")

    assert (decision.verdict, lab.launched) == ("inconclusive", 5)
    assert decision.reason == "the budget is spent"


def test_seconds_of_stored_launches_are_spent(lab: Laboratory) -> None:
    lab.script = [replace(made, seconds=20.0) for made in speedups(*OPEN)]
    lab.decide(budget="90s")

    assert lab.decide(budget="90s").estimate.launches == 5
    assert lab.launched == 5
    # A larger one goes on from there.
    assert lab.decide(budget="110s").estimate.launches == 6
    assert lab.launched == 6


def test_what_is_built_and_what_does_not_count_is_spent_in_no_run(lab: Laboratory) -> None:
    """A second run knows of neither, and is to say the same."""
    lab.script = [replace(made, seconds=20.0) for made in (Made(invalid="steal"), *speedups(*OPEN))]
    first = lab.decide(budget="90s")

    assert (first.estimate.launches, lab.launched) == (5, 6)
    assert lab.decide(budget="90s").estimate == first.estimate == lab.decide(budget="90s", offline=True).estimate
    assert lab.launched == 6


def test_launches_beyond_a_budget_of_seconds_are_no_other_gates(lab: Laboratory) -> None:
    """Those that confirm one gate's fail would decide another one that was open at the end of its budget."""
    lab.script = [replace(made, seconds=20.0) for made in speedups(*SLOWER, 0.91, 0.90, 0.89, 0.90)]
    lower = Bound(0.9, True, 0.01, "log")
    before = lab.decide(lower, budget="50s")
    assert (before.verdict, before.estimate.launches) == ("inconclusive", 3)
    assert (lab.decide(budget="50s").verdict, lab.launched) == ("fail", 7)

    for offline in (True, False):
        after = lab.decide(lower, budget="50s", offline=offline)
        assert (after.verdict, after.estimate) == (before.verdict, before.estimate)


def test_nor_are_they_of_what_a_launch_gives_once(lab: Laboratory) -> None:
    """How long a launch compiled is no time of calls, and is judged in the same launches."""
    seconds = (0.5, 0.7, 0.6, *[0.4] * 4)
    made = zip(speedups(*SLOWER, 0.91, 0.90, 0.89, 0.90), seconds, strict=True)
    lab.script = [replace(one, seconds=20.0, compile_seconds=each) for one, each in made]

    def compiled(**how: object) -> Decision:
        quantity = lab.run(budget="50s", rebuild=True, **how).quantity("compile_seconds")  # type: ignore[arg-type]
        return decide(quantity, Bound(0.6, False, 0.05, "log"), 0.05)

    before = compiled()
    assert (before.verdict, before.estimate.launches) == ("inconclusive", 3)
    assert (lab.decide(budget="50s", rebuild=True).verdict, lab.launched) == ("fail", 7)

    for offline in (True, False):
        after = compiled(offline=offline)
        assert (after.verdict, after.estimate) == (before.verdict, before.estimate)


# Tolerances that are fractions of what was measured


def claim_slope(lab: Laboratory) -> None:
    cells = lab.run_all([Workload(BLOCK, depth=depth) for depth in (1, 3)])
    sweep = DepthSweep(cells[0].source, {1: cells[0], 3: cells[1]}, (1, 3))
    assert_slope(sweep, at_least=-0.5)
    assert_slope(sweep, at_least=-0.5, tolerance=0.2)


def claim_friction(lab: Laboratory) -> None:
    cells = lab.run_all([Workload(BLOCK, batch, width=width) for width in (64, 128) for batch in (1, 4)])
    assert_friction(cells, batch=4, at_most=0.5)
    assert_friction(cells, batch=4, at_most=0.5, tolerance=0.2)


@dataclass(frozen=True)
class Scaling(Made):
    """A launch whose calls take as long as the baseline's at batch 1 of a width: its speed-up is its efficiency."""

    def wall_ns(self, cell: Cell, block: int) -> tuple[int, ...]:
        workload = cell.workload
        like_the_baseline = workload.width is not None and workload.batch == 1
        return super(Scaling, replace(self, speedup=1.0) if like_the_baseline else self).wall_ns(cell, block)


@pytest.mark.parametrize("claim", [claim_slope, claim_friction])
def test_launches_that_came_later_do_not_move_a_tolerance(lab: Laboratory, claim: Callable[[Laboratory], None]) -> None:
    lab.script = [Scaling(value) for value in (1.0, 1.2, 1.1, *[2.0, 3.0] * 3)]
    claim(lab)
    live = lab.kept
    assert [row.claim.rpartition(" (")[2] for row in live] == ["tolerance 0.05)", "tolerance 0.2)"]
    assert live[0].tolerance == pytest.approx(0.05 * (1.0 * 1.2 * 1.1) ** (1 / 3) / (2 if claim is claim_slope else 1))
    # Another gate of the same cells takes all of its budget.
    session = lab._sessions[-1]
    subject = session.plans[0].cells[-1]
    while session.one_more(NODE, [subject]):
        pass
    assert lab.launched == 8

    claim(lab)

    for before, after in zip(live, lab.kept, strict=True):
        assert (before.claim, before.tolerance, before.verdict) == (after.claim, after.tolerance, after.verdict)


@pytest.mark.parametrize("claim", [claim_slope, claim_friction])
def test_where_no_launch_counts_there_is_nothing_to_take_a_fraction_of_and_the_reason_is_said(
    lab: Laboratory, claim: Callable[[Laboratory], None]
) -> None:
    lab.script = [Made(invalid="steal")] * 3
    with pytest.raises(AssertionError, match=r"3 launches do not count"):
        claim(lab)
    assert [row.verdict for row in lab.kept] == ["invalid"]


# Controls


def test_a_second_process_of_the_baseline_runs_in_every_launch_of_a_gate(lab: Laboratory) -> None:
    lab.script = speedups(1.2, 1.21, 1.2)
    lab.decide(batches=(8, 1, 4))

    for cells in lab.plans:
        assert [cell for cell in cells if cell.replica] == [
            Cell("local", BASELINE, Workload(parse_model("block:conv"), 1), 1)
        ]
        assert len(cells) == 7


def test_under_other_protocols_there_is_no_control(lab: Laboratory) -> None:
    lab.script = speedups(1.2)
    assert lab.decide(protocol="quick").verdict == "not judged"
    assert [cell.replica for cell in lab.plans[0]] == [0, 0]


def test_a_baseline_against_its_own_second_process_needs_no_third(lab: Laboratory) -> None:
    lab.compiler = BASELINE
    lab.script = [Made(twin=value) for value in (1.002, 0.998, 1.0)]
    assert lab.decide().verdict == "pass"
    assert [sorted(cell.replica for cell in cells) for cells in lab.plans] == [[0, 1]] * 3


def test_two_equal_processes_that_differ_make_a_verdict_invalid(lab: Laboratory) -> None:
    lab.script = [Made(1.5, twin=value) for value in (1.2, 1.201, 1.199)]

    decision = lab.decide()

    assert decision.verdict == "invalid"
    assert decision.reason == (
        "the control is violated: null against a second process of it is 0.833x [0.821x, 0.846x] over 3 launches "
        "and should be 1"
    )
    assert lab.launched == 3


def test_a_violated_control_makes_a_confirmed_fail_invalid(lab: Laboratory) -> None:
    lab.script = [Made(value, twin=0.8) for value in (*SLOWER, 0.91, 0.90, 0.89, 0.90)]
    assert lab.decide().verdict == "invalid"


@pytest.mark.parametrize(
    ("twins", "verdict"),
    [
        # t(0.9995, 2) = 31.6: at 0.1 % these three may come from equal processes, at 1 % they might not.
        ((1.018, 1.020, 1.022), "pass"),
        ((1.0195, 1.020, 1.0205), "invalid"),
        ((0.97, 1.0, 1.03), "pass"),
        ((1.0, 1.0, 1.0), "pass"),
    ],
)
def test_the_control_is_violated_beyond_chance_of_one_in_a_thousand(
    lab: Laboratory, twins: tuple[float, ...], verdict: str
) -> None:
    lab.script = [Made(1.5, twin=value) for value in twins]
    assert lab.decide().verdict == verdict


def test_a_control_that_fails_is_left_out_and_its_neighbours_are_judged(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = lab._run

    def crashing(job: Job, plan: LaunchPlan, sink: Sink, *, spare_memory: Callable[[], float]) -> None:
        twins = [cell for cell in plan.cells if cell.replica]
        real(
            job,
            replace(plan, cells=tuple(cell for cell in plan.cells if not cell.replica)),
            sink,
            spare_memory=spare_memory,
        )
        lab.plans[-1] = plan.cells
        for cell in twins:
            sink.prepared(cell, CompileRecord(Outcome.CRASH, "SIGSEGV"))

    monkeypatch.setattr(local, "run_launch", crashing)
    lab.script = speedups(1.2, 1.21, 1.2)

    assert lab.decide().verdict == "pass"
    assert [sum(cell.replica for cell in cells) for cells in lab.plans] == [1, 0, 0]


def test_numbers_that_are_no_times_are_not_held_against_the_control(lab: Laboratory) -> None:
    lab.script = [Made(twin=1.2)] * 3
    compiling = lab.run().quantity("compile_seconds")
    assert decide(compiling, Bound(1.0, False, 0.05, "log"), 0.05).verdict == "pass"


# The second channel


def test_medians_that_pass_against_fastest_calls_that_fail_decide_nothing(lab: Laboratory) -> None:
    lab.script = [Made(1.2, fastest=value) for value in (0.8, 0.801, 0.8)]

    decision = lab.decide()

    assert decision.verdict == "inconclusive"
    assert decision.reason.startswith("medians say pass, the fastest calls say the opposite (0.80x [")
    # What is shown is what the medians say.
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)


def test_medians_that_fail_against_fastest_calls_that_pass_decide_nothing(lab: Laboratory) -> None:
    lab.script = [Made(value, fastest=1.2) for value in (*SLOWER, 0.91, 0.90, 0.89, 0.90)]

    decision = lab.decide()

    assert decision.verdict == "inconclusive"
    assert decision.reason.startswith("medians say fail, the fastest calls say the opposite (1.20x [")


@pytest.mark.parametrize("fastest", [(0.8, 1.2, 1.0), (1.2, 1.2, 1.2), (1.9, 2.0, 2.1)])
def test_fastest_calls_that_say_less_or_more_of_the_same_change_nothing(
    lab: Laboratory, fastest: tuple[float, ...]
) -> None:
    lab.script = [Made(1.2, fastest=value) for value in fastest]
    assert lab.decide().verdict == "pass"


# Percentiles

TEN_MS = Bound(0.010, False, 0.05, "log")


def calls(count: int, slow: int, seconds: float = 0.009, slow_seconds: float = 0.020) -> list[float]:
    """Return the seconds of so many calls, some of them slow and spread evenly over the blocks."""
    every = count // slow if slow else count + 1
    return [
        slow_seconds if slow and number % every == 0 and number // every < slow else seconds for number in range(count)
    ]


def test_a_percentile_passes_when_few_calls_are_slow(lab: Laboratory) -> None:
    # 600 calls and none slow: 0.99 ** 600 = 0.0024, less than the first look's level.
    lab.script = [Made(calls=calls(200, 0))] * 3

    decision = lab.percentile(99, TEN_MS)

    assert decision.verdict == "pass"
    assert (decision.estimate.launches, decision.smallest_visible) == (3, None)
    interval = (decision.estimate.low, decision.estimate.value, decision.estimate.high)
    assert interval == pytest.approx((0.009, 0.009, 0.009))
    # Its interval is the binomial law's at 99 %, whatever the level of the look that decided it.
    assert decision.confidence == lab.percentile(99, TEN_MS, error_rate=0.1, budget="3").confidence == 0.99


def test_a_percentile_that_the_median_would_pass_fails_by_its_slow_calls(lab: Laboratory) -> None:
    # One call in ten takes twice the bound.
    lab.script = [Made(calls=calls(200, 20))] * 7

    decision = lab.percentile(99, TEN_MS)

    assert decision.verdict == "fail", decision.reason
    assert decision.reason == "the first 3 launches said fail, 4 fresh ones confirmed it"
    assert decision.estimate.launches == 7
    assert decision.estimate.value == pytest.approx(0.020)
    # Where one call in ten may be slow it passes.
    assert lab.percentile(80, TEN_MS).verdict == "pass"


def test_a_percentile_at_its_bound_is_inconclusive(lab: Laboratory) -> None:
    lab.script = [Made(calls=calls(200, 2))] * 8

    decision = lab.percentile(99, TEN_MS)

    assert (decision.verdict, decision.reason) == ("inconclusive", "the budget is spent")
    assert decision.estimate.low <= 0.010 <= decision.estimate.high


def test_a_percentile_may_be_claimed_to_be_at_least_something(lab: Laboratory) -> None:
    lab.script = [Made(calls=calls(200, 20))] * 8
    assert lab.percentile(99, Bound(0.010, True, 0.05, "log")).verdict == "pass"
    assert lab.percentile(80, Bound(0.010, True, 0.05, "log")).verdict == "fail"


def test_slow_calls_that_come_in_one_burst_count_as_what_they_are(lab: Laboratory) -> None:
    # 4 % of all calls are slow, but all of them in one launch of three: that may be an accident.
    lab.script = [Made(calls=calls(200, slow)) for slow in (0, 24, 0)]

    decision = lab.percentile(99, TEN_MS, budget="3")

    assert (decision.verdict, decision.reason) == ("inconclusive", "the budget is spent")


def test_as_many_slow_calls_in_every_launch_are_no_accident(lab: Laboratory) -> None:
    lab.script = [Made(calls=calls(200, 8))] * 7

    assert lab.percentile(99, TEN_MS, budget="3").reason.startswith("the first 3 launches said fail")


def test_too_few_calls_for_a_percentile_are_said(lab: Laboratory) -> None:
    lab.script = [Made(calls=calls(40, 0))] * 3

    decision = lab.percentile(99, TEN_MS, budget="3")

    needed = math.ceil(math.log(ALPHA) / math.log(0.99))
    assert decision.verdict == "inconclusive"
    assert decision.reason == f"120 calls; percentile 99 needs {needed} at least, so a larger budget"
    assert decision.estimate.high == math.inf


def test_launches_without_a_call_that_counts_say_so(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pytest_ngraph.claims.percentiles._clean_visits", lambda record, cell, disturbed: [])
    lab.script = [Made(calls=calls(40, 0))] * 3

    decision = lab.percentile(99, TEN_MS, budget="3")

    assert decision.verdict == "inconclusive"
    assert decision.reason == "no call counts: all had to wait for a CPU that others or the host used"


def test_calls_that_are_too_few_for_the_level_of_the_last_look_are_said_too(lab: Laboratory) -> None:
    # 480 calls, none slow: 0.99 ** 480 = 0.008 is less than all that may be spent, and more than the last look has.
    lab.script = [Made(calls=calls(60, 0))] * 8

    decision = lab.percentile(99, TEN_MS)

    last = spending(ALPHA, looks := looks_for(8, 0.05), looks[-1])[-1]
    needed = math.ceil(math.log(last) / math.log(0.99))
    assert decision.verdict == "inconclusive"
    assert decision.reason == f"480 calls; percentile 99 needs {needed} at least, so a larger budget"


def test_calls_that_are_timed_together_have_no_percentile(lab: Laboratory) -> None:
    lab.script = [Made(together=20)] * 3
    with pytest.raises(ClaimError, match=r"so short that 20 are timed together; claim the latency without percentile="):
        lab.percentile(99, TEN_MS)


def test_turns_of_a_mix_have_no_percentile_and_their_calls_are_not_said_to_be_short() -> None:
    workload = Workload(parse_model("block:conv"), 8, shapes="mix[batch=1x7+8x3]")
    cell = Cell("local", FAST, workload)
    record = LaunchRecord(0, 0, "gate", {cell: CompileRecord(Outcome.OK)}, {(cell, 0): Visit(10, (10**6,) * 9)})
    with pytest.raises(ClaimError, match=r"of a mix whole turns are timed; claim the latency without percentile="):
        calls_of([(record, LaunchValue(0.0, 0.0, 1))], cell)


def in_flight(scenario: str, *kept: str | None) -> tuple[Cell, list[tuple[LaunchRecord, LaunchValue]]]:
    """Return a cell, and launches of it that kept so many calls in flight."""
    one = Cell("local", FAST, Workload(BLOCK, scenario=scenario))
    facts = [() if many is None else (("in_flight", many),) for many in kept]
    launches = [LaunchRecord(n, 0, "gate", {one: CompileRecord(Outcome.OK, placement=f)}) for n, f in enumerate(facts)]
    return one, [(record, LaunchValue(0.0, 0.0, 1)) for record in launches]


@pytest.mark.parametrize(
    ("scenario", "kept", "clusters"),
    [
        ("throughput", ("4", "8", "4"), 8.0),
        ("throughput", ("1",), 1.0),
        ("throughput", (None, "?"), 1.0),
        ("latency", ("8",), 1.0),
        ("throughput", (), 1.0),
    ],
)
def test_slow_calls_come_by_as_many_as_are_in_flight(
    scenario: str, kept: tuple[str | None, ...], clusters: float
) -> None:
    one, rows = in_flight(scenario, *kept)
    assert clusters_of(rows, one) == clusters


def test_stalls_that_slow_all_calls_in_flight_let_no_more_pass_than_is_stated() -> None:
    """At the edge: 1 of 100 calls is beyond the tolerance, all eight in flight at once."""
    random = np.random.default_rng(0)
    one, rows = in_flight("throughput", "8", "8", "8")
    bound, passed, counted_each = Bound(0.010, False, 0.05, "log"), 0, 0
    for _ in range(1000):
        stalls = random.random((3, 200)) < 0.01
        launches = [np.repeat(np.where(stalled, 0.020, 0.005), 8).tolist() for stalled in stalls]
        effect = clusters_of(rows, one)
        passed += judge_percentile(launches, 99, bound, 0.01, least_effect=effect) is Verdict.PASS
        counted_each += judge_percentile(launches, 99, bound, 0.01) is Verdict.PASS
    assert binomtest(passed, 1000, 0.01, alternative="greater").pvalue > 0.01
    assert binomtest(counted_each, 1000, 0.03, alternative="greater").pvalue < 0.01


def test_percentiles_are_judged_from_the_store_as_they_were_live(lab: Laboratory) -> None:
    lab.script = [Made(calls=calls(200, slow)) for slow in (20, 19, 21, 20, 22, 18, 20)]
    live = lab.percentile(99, TEN_MS)
    assert live == lab.percentile(99, TEN_MS) == lab.percentile(99, TEN_MS, offline=True)
    assert lab.launched == 7


def test_a_percentile_without_error_control_fails_where_its_interval_is_beyond_if_asked_to(lab: Laboratory) -> None:
    lab.script = [Made(calls=calls(100, 10))]
    assert lab.percentile(99, TEN_MS, protocol="quick").verdict == "not judged"
    lab.quick_gates = "fail"
    slow = lab.percentile(99, TEN_MS, protocol="quick")
    assert slow.verdict == "fail"
    assert slow.estimate.value == pytest.approx(0.020)
    assert slow.reason == "quick, no error control"
    assert lab.percentile(80, TEN_MS, protocol="quick").verdict == "not judged"


def test_a_violated_control_makes_a_percentile_invalid(lab: Laboratory) -> None:
    lab.script = [Made(calls=calls(200, 0), twin=1.2)] * 3
    assert lab.percentile(99, TEN_MS).verdict == "invalid"


@pytest.mark.parametrize("percentile", [0, 100, -1, math.nan])
def test_a_percentile_that_is_none_is_refused(lab: Laboratory, percentile: float) -> None:
    with pytest.raises(ClaimError, match=r"percentile=.* \(expected a number between 0 and 100\)"):
        assert_latency(lab.run(), at_most=1.0, percentile=percentile)
    assert lab.launched == 0


# Launches that do not count


def test_after_three_invalid_launches_in_a_row_a_gate_is_invalid(lab: Laboratory) -> None:
    lab.script = [Made(invalid=f"steal {number}") for number in range(3)]

    decision = lab.decide()

    assert decision.verdict == "invalid"
    assert decision.reason == "3 launches do not count, and no further one was tried: steal 2"
    assert decision.estimate.launches == 0
    assert (lab.tally.invalid_launches, lab.tally.measured_launches) == (3, 3)
    assert [note.partition(": ")[2] for note in lab.listener.notes] == [
        f"launch {number + 1} does not count: steal {number}" for number in range(3)
    ]


def test_what_counted_before_a_group_was_given_up_is_shown(lab: Laboratory) -> None:
    lab.script = [*speedups(*OPEN[:3]), *[Made(invalid="steal")] * 3]

    decision = lab.decide()

    assert (decision.verdict, decision.estimate.launches) == ("invalid", 3)
    assert decision.reason == "3 launches do not count, and no further one was tried: steal"


def test_a_launch_that_counts_begins_the_row_anew(lab: Laboratory) -> None:
    bad = Made(invalid="steal")
    lab.script = [bad, bad, Made(1.2), bad, bad, Made(1.21), bad, Made(1.2)]

    assert lab.decide().verdict == "pass"
    assert lab.tally.invalid_launches == 5


def test_further_claims_of_a_given_up_group_are_invalid_at_no_cost(lab: Laboratory) -> None:
    lab.script = [Made(invalid="steal")] * 3
    measurement = lab.run()
    for bound in (0.5, 0.6):
        assert decide(measurement.quantity("speedup"), Bound(bound, True, 0.05, "log"), 0.05).verdict == "invalid"
    with pytest.raises(NotStored, match="3 launches do not count: steal"):
        measurement.ensure()
    with pytest.raises(NotStored):
        _ = measurement.latency
    assert lab.launched == 3


def test_the_next_run_tries_again(lab: Laboratory) -> None:
    lab.script = [*[Made(invalid="steal")] * 3, *speedups(1.2, 1.21, 1.2)]
    assert lab.decide().verdict == "invalid"
    assert lab.decide().verdict == "pass"


def test_invalid_is_treated_as_inconclusive_is(lab: Laboratory) -> None:
    def claim(choice: str) -> None:
        lab.script = [Made(invalid="steal")] * (lab.launched + 3)
        assert_speedup(lab.run(inconclusive=choice), at_least=1.0)

    with pytest.raises(AssertionError, match="invalid: 3 launches do not count"):
        claim("fail")
    with pytest.raises(pytest.skip.Exception, match="invalid: 3 launches do not count"):
        claim("skip")
    with pytest.warns(InconclusiveWarning, match="invalid: 3 launches do not count"):
        claim("warn")
    (row,) = lab.kept
    assert (row.verdict, row.launches) == ("invalid", 0)


def test_a_violated_control_says_what_to_do(lab: Laboratory) -> None:
    lab.script = [Made(1.5, twin=1.2)] * 3
    with pytest.raises(AssertionError, match=r"invalid: 1\.50x") as caught:
        assert_speedup(lab.run(), at_least=1.0)
    assert "the control is violated" in str(caught.value)
    assert "what to do: end what else runs on this machine, or measure on another" in str(caught.value)


def test_launches_that_drift_are_told_to_be_measured_in_a_steady_state(lab: Laboratory) -> None:
    lab.script = speedups(*(0.9 * 1.03**number for number in range(8)))
    with pytest.raises(AssertionError, match="most noise is drift") as caught:
        assert_speedup(lab.run(), at_least=1.0)
    assert "what to do: bring the machine to a steady state first" in str(caught.value)


# States of the machine


def test_blocks_in_another_state_are_stored_and_left_out(lab: Laboratory) -> None:
    around: list[tuple[Reading, Reading] | None] = [(HOME, HOME)] * 8
    around[2], around[5] = (AWAY, AWAY), (HOME, AWAY)
    lab.script = [Made(1.2, readings=around)] * 3
    assert lab.decide().verdict == "pass"

    with Store.open(lab.store, read_only=True) as store:
        cells = dict(store.cells(1))
        records = store.launches(cells)
    assert [record.home for record in records] == [HOME] * 3
    for record in records:
        assert {block for _, block in record.visits} == {0, 1, 3, 4, 6, 7}


@pytest.mark.parametrize(("left", "counts"), [(5, True), (4, True), (3, False), (0, False)])
def test_a_launch_whose_state_changed_in_most_blocks_does_not_count(lab: Laboratory, left: int, counts: bool) -> None:
    around = [(HOME, HOME)] * left + [(HOME, AWAY)] * (8 - left)
    lab.script = [Made(1.2, readings=around)] * 3

    decision = lab.decide()

    assert (decision.verdict == "pass") is counts
    if not counts:
        assert decision.verdict == "invalid"
        assert decision.reason.endswith(
            "the machine changed its state while it was timed "
            "(arithmetic 100 us, CPU to CPU 360 ns in most readings, "
            f"arithmetic 100 us, CPU to CPU 720 ns in the furthest; {8 - left} of 8 blocks differ)"
        )


def test_launches_in_another_state_are_not_mixed_with_the_others(lab: Laboratory) -> None:
    # The host moved the CPUs apart in the second launch, and everything is slower there.
    away = Made(0.5, readings=[(AWAY, AWAY)] * 8)
    lab.script = [Made(1.2), away, Made(1.21), away, Made(1.2)]

    decision = lab.decide()

    assert (decision.verdict, decision.estimate.launches) == ("pass", 3)
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)
    # Each launch was asked to wait for the states of those before it.
    assert lab.states == [(), (HOME,), (HOME, AWAY), (HOME,), (HOME, AWAY)]
    # For as long as it is estimated to take itself.
    assert all(2 < seconds < 30 for seconds in lab.patience)
    assert lab.decide(offline=True) == decision


def test_a_machine_that_never_comes_back_is_said(lab: Laboratory) -> None:
    away = Made(1.0, readings=[(AWAY, AWAY)] * 8)
    lab.script = [*speedups(*OPEN[:3]), *[away] * 40]

    decision = lab.decide()

    assert (decision.verdict, decision.estimate.launches) == ("invalid", 3)
    assert lab.launched == 3 + 6
    assert decision.reason.endswith("measured in another state of the machine (arithmetic 100 us, CPU to CPU 720 ns)")


def test_a_machine_that_comes_back_late_is_waited_for(lab: Laboratory) -> None:
    away = Made(1.0, readings=[(AWAY, AWAY)] * 8)
    lab.script = [*speedups(*OPEN[:3]), *[away] * 5, *speedups(*OPEN[3:4]), *[away] * 5, *speedups(*OPEN[4:])]

    decision = lab.decide()

    assert (decision.verdict, decision.estimate.launches) == ("inconclusive", len(OPEN))


# What a session has used


def test_the_fixed_protocol_is_counted_once_for_every_cell_that_a_test_asked_for(lab: Laboratory) -> None:
    lab.script = speedups(*OPEN)
    lab.decide(batches=(1, 4))

    # Two batches of two compilers; the control is ours alone. 0.5 s to compile and 100 calls of 10 ms each.
    assert lab.tally.fixed_calls == 400
    assert lab.tally.fixed_seconds == pytest.approx(4 * (0.5 + 1.0))
    assert lab.tally.measured_launches == 8
    assert lab.tally.calls == 8 * 5 * 8 * 10


def test_stored_launches_are_counted_as_reused(lab: Laboratory) -> None:
    lab.script = speedups(1.2, 1.21, 1.2)
    lab.decide()
    lab.decide()
    assert (lab.tally.reused_launches, lab.tally.measured_launches, lab.tally.calls) == (3, 0, 0)
    assert (lab.tally.fixed_calls, lab.tally.fixed_seconds) == (0, 0.0)


def test_a_memory_gate_is_confirmed_beyond_its_budget(lab: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    passes: list[int] = []

    def memory_pass(job: Job, cell: Cell, protocol: object, seed: int) -> tuple[CompileRecord, int]:
        passes.append((200 + len(passes) % 2) << 20)
        return CompileRecord(Outcome.OK, peak_memory_bytes=passes[-1], peaks=(("running", 1),)), passes[-1]

    monkeypatch.setattr(local, "memory_pass", memory_pass)
    with pytest.raises(AssertionError, match="the first 3 launches said fail, 4 fresh ones confirmed it"):
        assert_memory(lab.run(budget="3"), at_most=190 << 20)
    assert len(passes) == 7


@pytest.mark.parametrize("rebuild", [False, True])
def test_launches_that_do_not_count_are_not_said_to_have_loaded(lab: Laboratory, rebuild: bool) -> None:
    lab.script = [Made(invalid="steal")] * 9

    with pytest.raises(AssertionError) as caught:
        assert_compile_time(lab.run(rebuild=rebuild), at_most=1.0)

    assert "launches do not count, and no further one was tried: steal" in str(caught.value)
    assert "cached result" not in str(caught.value)

"""That a configuration stays on the front, from launches to the verdict that is kept."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from pytest_ngraph import assert_pareto
from pytest_ngraph.claims.assertions import InconclusiveWarning
from pytest_ngraph.devices import local
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.launches.client import Job
from pytest_ngraph.options.settings import Budget
from pytest_ngraph.plan.items import item_plan
from pytest_ngraph.quantities.comparisons import throughput_ratio
from pytest_ngraph.quantities.quantity import CellFailed, Measurer, NarrowedAway
from pytest_ngraph.quantities.sweeps import Measurement
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Outcome, Workload
from pytest_ngraph.spec.evaluations import Evaluation, Score
from tests.claims.test_claims import BASELINE, BLOCK, FAST, NODE, Laboratory, Made
from tests.conftest import Suite

SECOND, THIRD = CompilerSpec("null", (("sample_us", "7"),)), CompilerSpec("null", (("sample_us", "9"),))
COMPILERS = (FAST, SECOND, THIRD)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


@dataclass(frozen=True)
class Timed(Made):
    """What one launch measures: milliseconds of a call by compiler and batch, those of others are 10."""

    ms: Mapping[tuple[CompilerSpec, int], float] = field(default_factory=dict)
    fast_ms: Mapping[tuple[CompilerSpec, int], float] = field(default_factory=dict)

    def wall_ns(self, cell: Cell, block: int) -> tuple[int, ...]:
        """Return the batches of one visit: the fastest first, then nine like the median."""
        place = (cell.compiler, cell.workload.batch)
        usual = self.ms.get(place, 10.0)
        return (round(1e6 * self.fast_ms.get(place, 0.9 * usual)), *[round(1e6 * usual)] * 9)


def script(count: int, *ms: float, batches: Sequence[int] = (1,), scatter: float = 0.0, **more: object) -> list[Made]:
    """Return launches in which the compilers take so long, each batch after the other, and scatter by turns."""
    places = [(compiler, batch) for batch in batches for compiler in COMPILERS][: len(ms)]
    found: list[Made] = []
    for number in range(count):
        off = (-1, 0, 1)[number % 3] * scatter
        times = {place: each * math.exp(off if index % 2 else -off) for index, (place, each) in
                 enumerate(zip(places, ms, strict=True))}  # fmt: skip
        found.append(Timed(ms=times, **more))  # type: ignore[arg-type]
    return found


def measured(lab: Laboratory, count: int = 2, batches: Sequence[int] = (1,), **how: object) -> list[Measurement]:
    """Begin a run, and return the measurements of its one test: so many compilers at each batch."""
    lab.run(**how)  # type: ignore[arg-type]
    session = lab._sessions[-1]
    cells = [Cell("local", compiler, Workload(BLOCK, batch)) for batch in batches for compiler in COMPILERS[:count]]
    budget = Budget.parse(str(how.get("budget", "8")))
    plan = item_plan(NODE, cells, session.settings, baseline=BASELINE, budget=budget, tolerance=0.05)
    session.plan([plan])
    measurer = Measurer(session, NODE)
    baselines = {cell.workload: cell for cell in plan.baselines}
    return [Measurement(measurer, cell, baselines[cell.workload]) for cell in plan.cells]


def test_what_nothing_dominates_passes_and_its_verdict_is_kept(lab: Laboratory) -> None:
    lab.script = script(12, 5.0, 10.0)
    fast, slow = measured(lab)

    estimate = assert_pareto(fast, among=[fast, slow], over=["latency"])

    assert estimate.value == pytest.approx(0.5)
    (row,) = lab.kept
    assert (row.verdict, row.extra["helper"], row.metric) == ("pass", "assert_pareto", "throughput_ratio")
    assert row.claim == (
        "assert_pareto: local:null[sample_us=5] block:conv batch1 among 2 over latency (tolerance 0.05)"
    )
    assert row.extra["name"] == "null[sample_us=7] batch1 over null[sample_us=5] batch1"


def test_what_is_dominated_fails_and_says_by_whom_and_by_how_much(lab: Laboratory) -> None:
    lab.script = script(24, 5.0, 10.0)
    fast, slow = measured(lab)

    with pytest.raises(AssertionError) as failed:
        assert_pareto(slow, among=[fast], over=("latency", "throughput"))

    text = str(failed.value)
    assert "fail: null[sample_us=5] batch1 over null[sample_us=7] batch1: latency 2.00x [2.00x, 2.00x] shorter" in text
    assert "fresh ones confirmed it" in text
    assert lab.kept[0].verdict == "fail"


def test_a_larger_batch_stays_by_its_throughput(lab: Laboratory) -> None:
    lab.script = script(12, 10.0, 40.0, batches=(1, 8))
    # The first compiler at both batches: 100 samples a second, then 200.
    cells = measured(lab, 1, (1, 8))
    lab.script = [Timed(ms={(FAST, 1): 10.0, (FAST, 8): 40.0})] * 12
    assert_pareto(cells, over=("latency", "throughput"))
    assert lab.kept[0].verdict == "pass"


def test_each_of_several_is_claimed_and_the_worst_is_told(lab: Laboratory) -> None:
    lab.script = script(24, 5.0, 10.0, 5.1)
    cells = measured(lab, 3)
    with pytest.raises(AssertionError, match=r"null\[sample_us=[59]\] batch1 over null\[sample_us=7\] batch1"):
        assert_pareto(cells, over=["latency"])


def test_all_that_are_off_the_front_are_told_and_not_the_first_alone(lab: Laboratory) -> None:
    lab.script = script(40, 5.0, 10.0, 20.0)
    cells = measured(lab, 3)
    with pytest.raises(AssertionError) as failed:
        assert_pareto(cells, over=["latency"])

    told = [line for line in str(failed.value).splitlines() if line.startswith("  fail: ")]
    assert [line.partition(": latency")[0].rpartition(" over ")[2] for line in told] in (
        ["null[sample_us=9] batch1", "null[sample_us=7] batch1"],
        ["null[sample_us=7] batch1", "null[sample_us=9] batch1"],
    )
    # One verdict for one claim, under the pair that leads.
    assert [row.verdict for row in lab.kept] == ["fail"]


def test_twins_are_both_on_the_front(lab: Laboratory) -> None:
    lab.script = script(12, 10.0, 10.0)
    assert_pareto(measured(lab), over=["latency", "throughput"])
    assert lab.kept[0].verdict == "pass"


def test_noise_is_inconclusive_and_says_what_to_do(lab: Laboratory) -> None:
    lab.script = script(40, 10.0, 10.5, scatter=0.2)
    fast, slow = measured(lab, inconclusive="warn")
    with pytest.warns(InconclusiveWarning, match="what to do: "):
        assert_pareto(slow, among=[fast], over=["latency"])
    assert lab.kept[0].verdict == "inconclusive"


def test_the_fastest_calls_may_speak_against_it(lab: Laboratory) -> None:
    lab.script = script(24, 5.0, 10.0, fast_ms={(FAST, 1): 20.0, (SECOND, 1): 2.0})
    fast, slow = measured(lab, inconclusive="warn")
    with pytest.warns(InconclusiveWarning, match="the fastest calls say the opposite"):
        assert_pareto(slow, among=[fast], over=["latency"])


def test_a_violated_control_is_no_verdict(lab: Laboratory) -> None:
    lab.script = script(12, 5.0, 10.0)
    lab.script = [Twinned(ms=one.ms) for one in lab.script if isinstance(one, Timed)]
    fast, slow = measured(lab, inconclusive="warn")
    with pytest.warns(InconclusiveWarning, match="the control is violated"):
        assert_pareto(fast, among=[slow], over=["latency"])
    assert lab.kept[0].verdict == "invalid"


@dataclass(frozen=True)
class Twinned(Timed):
    """A launch whose second process of the baseline is slower than the first."""

    def wall_ns(self, cell: Cell, block: int) -> tuple[int, ...]:
        """Return the batches of one visit."""
        wall = super().wall_ns(cell, block)
        return tuple(2 * each for each in wall) if cell.replica else wall


def test_one_that_failed_dominates_nothing_and_is_itself_not_judged(lab: Laboratory) -> None:
    lab.script = script(12, 1.0, 10.0, 20.0, outcome=Outcome.MISMATCH)
    wrong, good, slow = measured(lab, 3)
    assert_pareto(good, among=[wrong, good, slow], over=["latency"])
    assert "without a time, so better than nothing" in lab.kept[0].extra["message"]
    with pytest.raises(CellFailed):
        assert_pareto(wrong, among=[good], over=["latency"])
    for claimed in (good, [good, slow]):
        with pytest.raises(NarrowedAway, match=r"a front needs two configurations .*; without a time: .*mismatch"):
            assert_pareto(claimed, among=[wrong], over=["latency"])


# What is not timed


@pytest.fixture
def passes(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Passes for memory by compiler: the first compiler takes 100 MiB, the second 200."""
    made: Counter[str] = Counter()

    def memory_pass(job: Job, cell: Cell, *_: object) -> tuple[CompileRecord, int]:
        made[str(cell.compiler)] += 1
        used = (100 if cell.compiler == FAST else 200) << 20
        return CompileRecord(Outcome.OK, peak_memory_bytes=used, peaks=(("running", 1),)), used

    monkeypatch.setattr(local, "memory_pass", memory_pass)
    return made


def test_of_memory_alone_the_number_is_the_factor_of_memory(lab: Laboratory, passes: Counter[str]) -> None:
    lab.script = script(3, 5.0, 5.0)
    small, large = measured(lab)

    estimate = assert_pareto(small, among=[large], over=["memory"])

    assert estimate.value == pytest.approx(0.5)
    assert str(estimate).startswith("0.50x [0.50x, 0.50x]")
    assert lab.kept[-1].estimate == pytest.approx(0.5)
    assert lab.kept[-1].metric == "advantage:memory"
    with pytest.raises(AssertionError, match=r"^null\[sample_us=5\] .* over null\[sample_us=7\] .* 2.00x > 1.00x: "):
        assert_pareto(large, among=[small], over=["memory"])
    assert passes == dict.fromkeys(map(str, (FAST, SECOND)), 7)


def test_the_number_is_by_the_first_objective_whatever_is_timed(lab: Laboratory, passes: Counter[str]) -> None:
    lab.script = script(3, 10.0, 5.0)
    small, large = measured(lab)
    assert assert_pareto(small, among=[large], over=["memory", "latency"]).value == pytest.approx(0.5)
    assert assert_pareto(small, among=[large], over=["latency", "memory"]).value == pytest.approx(2.0)
    assert passes.total() == 6


def test_what_is_not_timed_needs_no_control(lab: Laboratory) -> None:
    lab.script = [Twinned(ms={}, model_bytes=1 << 20)] * 3
    one, other = measured(lab)

    estimate = assert_pareto(one, among=[other], over=["size"])

    assert (estimate.value, lab.kept[-1].verdict, lab.kept[-1].metric) == (1.0, "pass", "advantage:size")
    with pytest.raises(AssertionError, match="the control is violated"):
        assert_pareto(one, among=[other], over=["latency"])


@pytest.mark.parametrize(("wrong", "verdict"), [((100, 300), "pass"), ((300, 100), "fail")])
def test_of_accuracy_the_number_is_the_difference(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch, wrong: tuple[int, int], verdict: str
) -> None:
    def evaluation_pass(job: Job, cell: Cell, *_: object) -> CompileRecord:
        first = wrong[cell.compiler != FAST]
        score = Score.of_flags("top1", [sample >= first for sample in range(1000)])
        return CompileRecord(Outcome.OK, evaluation=Evaluation(1000, 10, 64 * "a", (score,)))

    monkeypatch.setattr(local, "evaluation_pass", evaluation_pass)
    lab.script = script(7, 5.0, 5.0)
    one, other = measured(lab)
    if verdict == "pass":
        assert assert_pareto(one, among=[other], over=["accuracy"]).value == pytest.approx(-0.2)
    else:
        with pytest.raises(AssertionError, match=r" 0\.2 > 0: "):
            assert_pareto(one, among=[other], over=["accuracy"])
    row = lab.kept[-1]
    assert (row.verdict, row.metric, row.bound, row.tolerance) == (verdict, "accuracy_drop:top1", 0.0, 0.01)


def test_what_is_not_known_by_the_first_objective_is_no_number(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local, "evaluation_pass", lambda *_: CompileRecord(Outcome.FAILED, "no data"))
    lab.script = script(3, 5.0, 10.0)
    fast, slow = measured(lab)
    estimate = assert_pareto(fast, among=[slow], over=["accuracy", "latency"])
    assert math.isnan(estimate.value)
    assert lab.kept[-1].verdict == "pass"
    assert "accuracy not compared (accuracy not measured), latency 2.00x" in lab.kept[-1].extra["message"]


def test_launches_of_others_cost_no_passes(lab: Laboratory, passes: Counter[str]) -> None:
    lab.script = script(9, 5.0, 10.0)
    fast, slow = measured(lab, budget="16")
    ratio = throughput_ratio(fast, slow)
    for _ in range(6):
        ratio.rows()
        assert fast.source.one_more(ratio)
    assert lab.launched == 9

    assert assert_pareto(fast, among=[slow], over=["latency", "memory"]).launches == 3

    assert passes == dict.fromkeys(map(str, (FAST, SECOND)), 3)


@pytest.mark.parametrize("fails", ["show", "fail"])
def test_quick_judges_nothing_unless_it_is_asked_to(lab: Laboratory, fails: str) -> None:
    lab.script, lab.quick_gates = script(2, 5.0, 10.0), fails
    fast, slow = measured(lab, protocol="quick")
    if fails == "fail":
        with pytest.raises(AssertionError, match="quick, no error control"):
            assert_pareto(slow, among=[fast], over=["latency"])
    else:
        assert_pareto(slow, among=[fast], over=["latency"])
        assert lab.kept[0].verdict == "not judged"


def test_running_again_says_the_same_without_a_launch(lab: Laboratory) -> None:
    lab.script = script(12, 5.0, 10.0)
    fast, slow = measured(lab)
    assert_pareto(fast, among=[slow], over=["latency"])
    before, row = lab.launched, lab.kept[0]
    fast, slow = measured(lab, offline=True)
    assert_pareto(fast, among=[slow], over=["latency"])
    assert (lab.launched, lab.kept[0].verdict, lab.kept[0].estimate) == (before, row.verdict, row.estimate)


def test_what_cannot_be_claimed_says_what_can(lab: Laboratory) -> None:
    lab.script = script(12, 5.0, 10.0)
    fast, slow = measured(lab)
    for given, more, message in (
        (fast, {}, "a front needs two configurations"),
        ([], {}, "no measurement is given"),
        ([fast, slow], {"among": []}, "and among= is empty"),
        ("cell", {}, "expected a list of measurements"),
        ([fast, slow], {"over": "latency"}, r"over='latency' \(expected several names"),
        ([fast, slow], {"over": ("speed",)}, "unknown objective 'speed'"),
        ([fast, slow], {"over": ()}, "over: nothing"),
        ([fast, slow], {"tolerance": 1.0}, "0 <= tolerance < 1"),
        ([fast, slow], {"tolerance": "5%"}, "0.05 is meant"),
        ([fast, 3], {}, "expected a Measurement"),
    ):
        with pytest.raises(ClaimError, match=message):
            assert_pareto(given, **more)  # type: ignore[arg-type]


def test_models_are_not_mixed(lab: Laboratory) -> None:
    lab.script = script(12, 5.0, 10.0)
    one, _ = measured(lab)
    other = Measurement(one.source, Cell("local", FAST, Workload(BLOCK, 1, depth=2)), one.baseline)
    with pytest.raises(ClaimError, match=r"the measurements are of local: block:conv; local: block:conv depth2"):
        assert_pareto([one, other])


@pytest.mark.real
def test_in_a_suite_memory_and_size_are_measured_for_it(suite: Suite) -> None:
    suite.write(FRONT)
    result = suite.run(compiler="null[sample_us=20]")
    result.assert_outcomes(passed=1)


FRONT = """
from pytest_ngraph import assert_pareto

@pytest.mark.ngraph
def test_front(ngraph):
    cells = ngraph.measure(compiler=["null[sample_us=200]", "null[sample_us=900]"], model="block:conv")
    assert_pareto(cells[0], among=cells, over=("latency", "memory", "size"))
"""

"""Launches beside other processes: judged by the visits that did not have to wait, or said to be invalid."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_ngraph.claims.assertions import assert_speedup
from pytest_ngraph.claims.decide import Decision, decide
from pytest_ngraph.machine.facts import Company
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, Outcome, Visit
from pytest_ngraph.stats import Bound
from pytest_ngraph.stats.visits import summarise
from pytest_ngraph.store.sqlite import Store
from tests.claims.test_claims import AT_LEAST_1, BASELINE, FAST, Laboratory, Made, speedups
from tests.claims.test_one_engine import by, live, stored, told

OTHERS = "other processes kept 0.9 of 2 CPUs busy"
# Which share of its time every batch of a visit waits, by cell and block.
Waits = Callable[[Cell, int], float]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def half(cell: Cell, block: int) -> float:
    """Return that every second visit waits for most of its time, each cell's in other blocks, and the rest does not."""
    return 0.8 if block in ((1, 3, 5, 6) if cell.compiler == FAST else (1, 3, 5, 7)) else 0.0


@dataclass(frozen=True)
class Beside(Made):
    """A launch beside others. A batch that waits takes so much longer."""

    invalid: str = Company(OTHERS)
    waits: Waits = half
    knows_waits: bool = True
    others: Callable[[Cell], float | None] = lambda cell: 0.9
    slower: Callable[[Cell], float] = lambda cell: 1.0

    def visit(self, cell: Cell, block: int) -> Visit:
        share = self.waits(cell, block)
        ran = [round(wall * self.slower(cell)) for wall in self.wall_ns(cell, block)]
        delays = [round(wall * share / (1 - share)) for wall in ran]
        walls = [wall + delay for wall, delay in zip(ran, delays, strict=True)]
        known = tuple(delays) if self.knows_waits else ()
        return Visit(self.together, tuple(walls), cpu_ns=tuple(ran), run_delay_ns=known)

    def others_cpus(self, cell: Cell) -> float | None:
        return self.others(cell)


@dataclass(frozen=True)
class Taken(Made):
    """A launch in which the host took ticks of some visits, by cell and block, and these are three times as long."""

    ticks: Callable[[Cell, int], int] = lambda cell, block: 2 * (cell.compiler == FAST and block in (0, 3, 5))
    share: Callable[[Cell], float | None] = lambda cell: 0.02

    def visit(self, cell: Cell, block: int) -> Visit:
        ticks = self.ticks(cell, block)
        walls = tuple(wall * (3 if ticks else 1) for wall in self.wall_ns(cell, block))
        return Visit(self.together, walls, walls, (0,) * len(walls), stolen_ns=10_000_000 * ticks)

    def stolen_share(self, cell: Cell) -> float | None:
        return self.share(cell)


def beside(*values: float, **how: object) -> list[Made]:
    return [Beside(value, **how) for value in values]  # type: ignore[arg-type]


def by_all(lab: Laboratory) -> Decision:
    """Judge live, and see that what is stored says the same."""
    judge = by(AT_LEAST_1)
    decision = live(lab, "speedup", judge)
    assert decision is not None
    assert told(decision) == told(stored(lab, "speedup", judge)) == told(live(lab, "speedup", judge, offline=True))
    return decision


# What is left counts


def test_a_gate_beside_others_is_decided_by_the_visits_that_did_not_wait(lab: Laboratory) -> None:
    """What waits is five times as slow. Before, three launches were thrown away and the gate was invalid."""
    lab.script = beside(1.2, 1.21, 1.19)
    decision = by_all(lab)
    assert (decision.verdict, lab.launched, lab.tally.invalid_launches) == ("pass", 3, 0)
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)
    assert decision.notes == (f"3 of 3 launches beside others, 24 of 48 visits dropped that had to wait ({OTHERS})",)


def test_a_fail_beside_others_is_confirmed_and_says_what_was_dropped(lab: Laboratory) -> None:
    lab.script = beside(0.90, 0.91, 0.90, 0.91, 0.90, 0.89, 0.90)
    with pytest.raises(AssertionError) as failed:
        assert_speedup(lab.run(), at_least=1.0)
    assert "  fail: 0.90x" in str(failed.value)
    assert "note: 7 of 7 launches beside others, 56 of 112 visits dropped" in str(failed.value)
    # The times by themselves are those of a machine that others slowed.
    assert " of local:null[sample_us=5] block:conv batch1: not shown beside others" in str(failed.value)
    (row,) = lab.kept
    assert row.extra["notes"] == [
        f"7 of 7 launches beside others, 56 of 112 visits dropped that had to wait ({OTHERS})"
    ]


def test_launches_with_others_and_alone_are_judged_together(lab: Laboratory) -> None:
    lab.script = [*speedups(1.2), *beside(1.21), *speedups(1.19)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches) == ("pass", 3)
    assert decision.notes[0].startswith("1 of 3 launches beside others, 8 of 16 visits dropped")


def test_a_launch_in_which_too_few_blocks_have_both_sides_is_replaced(lab: Laboratory) -> None:
    def apart(cell: Cell, block: int) -> float:
        return 0.8 if (block % 2 == 0) == (cell.compiler == FAST) else 0.0

    lab.script = [*beside(1.2), *beside(9.0, waits=apart), *beside(1.2, 1.2)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 4)
    assert decision.estimate.value == pytest.approx(1.2)


# What cannot be told is invalid


def test_waiting_beside_one_cell_alone_is_never_a_verdict(lab: Laboratory) -> None:
    """Every batch of the cell waits for 5 % of its time: by the usual, wider limits it would be 5 % slower."""
    lab.script = beside(*[1.0] * 3, waits=lambda cell, block: 0.05 * (cell.compiler == FAST))
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("invalid", 3)
    assert decision.reason == (
        f"the last 3 launches say nothing of it: {OTHERS}; fewer than 3 blocks left all of its cells without a wait"
    )


def test_others_that_come_with_one_cell_are_no_verdict(lab: Laboratory) -> None:
    """They slow it without a wait, so that nothing of its own shows it."""

    def of_cell(cell: Cell) -> bool:
        return cell.compiler == FAST

    lab.script = beside(
        *[1.0, 1.001, 0.999] * 3,
        waits=lambda cell, block: 0.0,
        others=lambda cell: 1.0 if of_cell(cell) else 0.1,
        slower=lambda cell: 1.3 if of_cell(cell) else 1.0,
    )
    decision = by_all(lab)
    assert decision.verdict == "invalid"
    assert decision.estimate.value == pytest.approx(1 / 1.3, rel=0.01)
    assert decision.reason == (
        "other processes kept 1.0 CPUs busy during the visits to local:null[sample_us=5] block:conv batch1 and 0.6 "
        "during those to all cells of the claim: what they slowed looks like what is slow"
    )


def test_others_that_are_there_for_all_cells_now_more_and_now_less_are_no_objection(lab: Laboratory) -> None:
    lab.script = [
        Beside(value, others=lambda cell, cpus=cpus: cpus)  # type: ignore[misc]
        for value, cpus in ((1.2, 0.2), (1.21, 1.4), (1.19, None))
    ]
    assert by_all(lab).verdict == "pass"


def test_what_slows_the_baseline_unseen_is_seen_by_its_second_process(lab: Laboratory) -> None:
    """No covariate shows it. Beside others a difference of equal processes is looked for at 5 %, not 0.1 %."""

    def slower(cell: Cell) -> float:
        return 1.1 if cell.compiler == BASELINE and not cell.replica else 1.0

    lab.script = beside(0.95, 0.951, 0.95, slower=slower)
    # So far apart that a launch noise of 2 % leaves it to the stricter level.
    lab.script = [replace(one, twin=twin) for one, twin in zip(lab.script, (0.98, 1.02, 1.0), strict=True)]
    decision = by_all(lab)
    assert decision.verdict == "invalid"
    assert decision.reason.startswith("the control is violated: null against a second process of it is 1.100x [")
    assert decision.reason.endswith("over 3 launches and should be 1, beside others")
    lab.script += [Made(one.speedup / 1.1, twin=one.twin / 1.1) for one in lab.script]
    alone = decide(lab.run(batches=(2,)).quantity("speedup"), Bound(0.5, True, 0.05, "log"), 0.05)
    assert alone.verdict == "pass"


def test_without_a_control_beside_others_nothing_is_judged(lab: Laboratory) -> None:
    lab.script = beside(*[1.2] * 3, waits=lambda cell, block: 0.8 * bool(cell.replica))
    decision = by_all(lab)
    assert decision.verdict == "invalid"
    assert decision.reason == (
        f"{OTHERS}, and fewer than two launches compared equal processes beside them as a control"
    )


@pytest.mark.parametrize("kept", [3, 2])
def test_three_visits_in_all_are_too_few(lab: Laboratory, kept: int) -> None:
    """One of each cell, or two of one of them."""
    left = {(1, 0), (2, 1), (3, 2)} if kept == 3 else {(1, 0), (1, 1)}

    def waits(cell: Cell, block: int) -> float:
        place = 1 if cell.compiler == FAST else 2 + cell.replica
        return 0.0 if (place, block) in left else 0.8

    lab.script = beside(*[1.2] * 3, waits=waits)
    decision = by_all(lab)
    assert (decision.verdict, lab.launched, decision.notes) == ("invalid", 3, ())
    assert decision.reason == (
        "3 launches do not count, and no further one was tried: "
        f"{OTHERS}; {kept} of 24 visits did not have to wait, and no cell has 3 of them"
    )


def test_where_waiting_is_not_known_a_launch_beside_others_does_not_count(lab: Laboratory) -> None:
    lab.script = beside(*[1.2] * 3, knows_waits=False)
    decision = by_all(lab)
    assert decision.verdict == "invalid"
    assert decision.reason == f"3 launches do not count, and no further one was tried: {OTHERS}"


def test_beside_a_full_load_of_all_cpus_nothing_counts(lab: Laboratory) -> None:
    """Slices of the scheduler are longer than batches, most of which run without a wait while the visit waits."""

    @dataclass(frozen=True)
    class Sliced(Beside):
        def visit(self, cell: Cell, block: int) -> Visit:
            one = super().visit(cell, block)
            delays = tuple(3 * wall if number % 4 == 3 else 0 for number, wall in enumerate(one.wall_ns))
            walls = tuple(wall + delay for wall, delay in zip(one.wall_ns, delays, strict=True))
            return replace(one, wall_ns=walls, run_delay_ns=delays)

    lab.script = [Sliced(1.2, waits=lambda cell, block: 0.0)] * 3
    decision = by_all(lab)
    assert decision.verdict == "invalid"
    assert f"{OTHERS}; 0 of 24 visits did not have to wait, and no cell has 3 of them" in decision.reason


@pytest.mark.parametrize("metric", ["latency", "throughput", "compile_seconds", "cpu_percent"])
def test_a_time_by_itself_says_nothing_beside_others(lab: Laboratory, metric: str) -> None:
    lab.script = beside(*[1.2] * 3)
    # A bound on the time that it is within by a little, and one beyond which nothing is slowed.
    bound = Bound(0.009 if metric == "latency" else 1e9, False, 0.05, "log")
    decision = live(lab, metric, by(bound))
    assert decision is not None
    assert told(decision) == told(stored(lab, metric, by(bound)))
    assert (decision.verdict, lab.launched) == ("invalid", 3)
    assert decision.reason == (
        f"the last 3 launches say nothing of it: {OTHERS}, and then a time says something beside another of its "
        "launch only"
    )


def test_a_time_that_is_far_within_its_bound_passes_beside_others_that_make_it_longer(lab: Laboratory) -> None:
    lab.script = beside(*[1.2] * 3)
    judge = by(Bound(0.020, False, 0.05, "log"))
    decision = live(lab, "latency", judge)
    assert decision is not None
    assert told(decision) == told(stored(lab, "latency", judge)) == told(live(lab, "latency", judge, offline=True))
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 3)
    assert decision.notes[-1] == (
        "others disturbed 3 of 3 launches, which only makes calls longer; it holds with them, and would if usual ones "
        "took 1.5 times as long"
    )


# What was beside an earlier run


def never_together(cell: Cell, block: int) -> float:
    """Return that no block leaves both sides of a claim without a wait."""
    return 0.8 if (block % 2 == 0) == (cell.compiler == FAST) else 0.0


SPOILT = f"the last 3 launches say nothing of it: {OTHERS}; fewer than 3 blocks left all of its cells without a wait"


def test_a_gate_that_others_spoilt_in_an_earlier_run_is_tried_again(lab: Laboratory) -> None:
    """Who was beside it then need not be there any more; three such launches ended it for good."""
    lab.script = [*beside(*[1.2] * 3, waits=never_together), *speedups(1.2, 1.21, 1.19)]
    assert (by_all(lab).verdict, lab.launched) == ("invalid", 3)
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 6)


def test_others_that_are_still_there_end_it_after_three_more_launches(lab: Laboratory) -> None:
    lab.script = beside(*[1.2] * 20, waits=never_together)
    for launched in (3, 6):
        decision = by_all(lab)
        assert (decision.verdict, decision.reason, lab.launched) == ("invalid", SPOILT, launched)


def test_two_launches_after_those_of_an_earlier_run_are_not_yet_three_in_a_row(lab: Laboratory) -> None:
    lab.script = [*beside(*[1.2] * 5, waits=never_together), *speedups(1.2, 1.21, 1.19)]
    assert (by_all(lab).verdict, lab.launched) == ("invalid", 3)
    assert (by_all(lab).verdict, lab.launched) == ("pass", 8)


def test_a_time_that_others_spoilt_in_an_earlier_run_is_tried_again(lab: Laboratory) -> None:
    lab.script = [*beside(*[1.2] * 3), *speedups(1.2, 1.21, 1.19)]
    judge = by(Bound(0.009, False, 0.05, "log"))
    verdicts = [decision and decision.verdict for decision in (live(lab, "latency", judge) for _ in range(2))]
    assert (verdicts, lab.launched) == (["invalid", "pass"], 6)
    assert told(stored(lab, "latency", judge)) == told(live(lab, "latency", judge, offline=True))


def test_where_nothing_may_be_measured_it_stays_invalid_and_says_what_kept_it_from_another_launch(
    lab: Laboratory,
) -> None:
    lab.script = beside(*[1.2] * 20, waits=never_together)
    judge = by(AT_LEAST_1)
    assert live(lab, "speedup", judge) is not None
    offline = live(lab, "speedup", judge, offline=True)
    assert offline is not None
    assert offline.verdict == "invalid"
    assert offline.reason == f"{SPOILT}; only what is stored is judged (--ngraph-offline)"
    by_all(lab)
    assert lab.launched == 6
    # The budget of eight launches has two left.
    last = by_all(lab)
    assert (last.verdict, last.reason, lab.launched) == ("invalid", f"{SPOILT}; the budget is spent", 8)


# The rule


def test_beside_others_no_batch_that_waits_counts() -> None:
    """Alone it may wait for up to 10 % where too few wait for less."""
    visit = Visit(1, (100,) * 6, cpu_ns=(95,) * 6, run_delay_ns=(0, 0, 5, 5, 5, 5))
    assert (summarise(visit).kept, summarise(visit, shared=True).kept) == (6, 0)
    clean = replace(visit, run_delay_ns=(0, 0, 0, 50, 50, 50))
    assert (summarise(clean).kept, summarise(clean, shared=True).kept) == (3, 3)
    waiting = replace(clean, run_delay_ns=(0, 0, 0, 200, 200, 200))
    assert (summarise(waiting).kept, summarise(waiting, shared=True).kept) == (3, 0)
    assert summarise(replace(clean, run_delay_ns=()), shared=True).ln_seconds is None


@pytest.mark.parametrize("slow", [1, 1000])
def test_which_batches_count_is_never_a_matter_of_their_times(slow: int) -> None:
    walls = (100, 100, 100 * slow, 100, 100, 100)
    one = summarise(Visit(1, walls, cpu_ns=walls, run_delay_ns=(0, 0, 0, 0, 5, 5)), shared=True)
    assert one.kept == 4


# What was stored before


def test_what_did_not_count_before_still_does_not_and_what_counted_counts_as_it_did(lab: Laboratory) -> None:
    """Stored launches keep their verdicts: a launch is judged by the rule that it was measured under."""
    waits: Waits = lambda cell, block: 0.05  # noqa: E731
    lab.script = [replace(one, invalid="") for one in beside(1.2, 1.2, 1.2, waits=waits)]
    before = by_all(lab)
    assert (before.verdict, before.notes) == ("pass", ())
    with Store.open(lab.store) as store:
        run = store.runs()[-1]
        keys = dict(store.cells(run.id))
        old = store.start_launch(
            run.id, group="g", number=9, seed=9, protocol=PROTOCOLS["gate"], order=[], environment={}
        )  # fmt: skip
        made = Beside(5.0)
        for cell, key in keys.items():
            (record,) = {one.prepared[cell] for one in store.launches({cell: key})}
            store.add_prepared(old, cell, key, record)
            store.add_visit(old, cell, 0, 0, made.visit(cell, 0))
        store.finish_launch(old, invalid=OTHERS, environment={"at": 1.0})
        records = store.launches(keys, include_invalid=True)
    assert [(one.invalid, one.shared) for one in records] == [("", "")] * 3 + [(OTHERS, "")]
    assert told(stored(lab, "speedup", by(AT_LEAST_1))) == told(before)


# Nobody shares it, and a cell is unstable all the same


def test_a_cell_that_is_unstable_three_times_in_a_row_gets_no_further_launch(lab: Laboratory) -> None:
    lab.script = [Made(1.2, outcome=Outcome.UNSTABLE)] * 20
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("inconclusive", 3)
    assert decision.reason.startswith("3 of 3 launches do not count")


def test_a_cell_that_was_unstable_in_an_earlier_run_is_tried_again(lab: Laboratory) -> None:
    """What kept it from settling need not be there any more, and nobody has to say --ngraph-fresh."""
    lab.script = [*[Made(1.2, outcome=Outcome.UNSTABLE)] * 3, *speedups(1.2, 1.21, 1.19)]
    assert (by_all(lab).verdict, lab.launched) == ("inconclusive", 3)
    assert (by_all(lab).verdict, lab.launched) == ("pass", 6)


def test_a_cell_that_settles_in_the_third_launch_is_judged(lab: Laboratory) -> None:
    lab.script = [*[Made(1.2, outcome=Outcome.UNSTABLE)] * 2, *speedups(1.2, 1.21, 1.19)]
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("pass", 5)


# What the host takes


def test_visits_that_the_host_took_from_have_no_say_wherever_they_are_judged(lab: Laboratory) -> None:
    lab.script = [Taken(value) for value in (1.2, 1.21, 1.19)]
    decision = by_all(lab)
    assert (decision.verdict, lab.launched, decision.notes) == ("pass", 3, ())
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)


def test_a_launch_of_which_the_host_took_more_counts_with_what_lost_nothing(lab: Laboratory) -> None:
    reason = "the host took 9 % of the CPUs' time (steal)"
    lab.script = [Taken(value, invalid=Company(reason)) for value in (1.2, 1.21, 1.19)]
    decision = by_all(lab)
    assert (decision.verdict, lab.tally.invalid_launches) == ("pass", 0)
    assert decision.notes == (f"3 of 3 launches beside others, 9 of 48 visits dropped that had to wait ({reason})",)


def test_launches_that_lost_all_visits_to_a_cell_are_not_made_again_and_again(lab: Laboratory) -> None:
    """The launch as a whole lost little, so that it counts for the others."""
    lab.script = [Taken(1.2, ticks=lambda cell, block: 2 * (cell.compiler == FAST and block < 6))] * 3
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("invalid", 3)
    assert "the host took CPU time of 6 visits (steal); fewer than 3 blocks without them are left" in decision.reason


@pytest.mark.parametrize("whose", [FAST, BASELINE])
def test_whom_the_host_stops_more_than_others_is_not_compared_by_the_visits_that_it_left(
    lab: Laboratory, whose: object
) -> None:
    """A host with a quota stops who keeps more CPUs busy: between two stops that one is faster than it ever is."""
    lab.script = [
        Taken(value, ticks=lambda cell, block: 0, share=lambda cell: 0.3 if cell.compiler == whose else 0.01)
        for value in (1.2, 1.21, 1.19)
    ]
    decision = by_all(lab)
    assert decision.verdict == "invalid"
    assert "the host took a CPU for " in decision.reason
    assert decision.reason.endswith("of all cells of the claim (steal): what it stopped looks like what is slow")
    assert "30 % of the time of" in decision.reason or "1 % of the time of" in decision.reason

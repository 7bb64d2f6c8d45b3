"""Which launches count, and for which cells: one rule for gates and for what measures how noisy a machine is."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import fmean, variance
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.claims.percentiles import calls_of
from pytest_ngraph.launches import equal_code as noise
from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.equal_code import EqualLaunches, NoiseProfile, equal_launches
from pytest_ngraph.launches.launch import LaunchPlan, Sink
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.quantities.quantity import combine
from pytest_ngraph.report.noise.profile import profile_of
from pytest_ngraph.report.results.spreads import spread_of
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, LaunchRecord, Outcome, Reading, Visit
from pytest_ngraph.spec.states import is_slower
from pytest_ngraph.stats import LaunchValue
from pytest_ngraph.stats.launches import launch_quantile
from pytest_ngraph.stats.visits import summarise, summarise_all
from pytest_ngraph.worker.counting import Counting
from tests.claims.test_claims import FAST, Laboratory, Made
from tests.support.measuring import SMALL, cell, job

ONE, OTHER = cell("null"), cell("null[fixed_us=5]")
HERE, AWAY = Reading(100_000, (360,)), Reading(100_000, (720,))
SNAPSHOTS: tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]] = ({}, {}, {})
# What a visit in which memory came from the system at every call has, beside what keeps what it has.
STEADY, RENEWED = (2,) * 9, (12_000,) * 9


@pytest.fixture
def undisturbed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "disturbance", lambda *_: "")


def visit(faults: tuple[int, ...] = STEADY) -> Visit:
    return Visit(1, (10_000_000,) * 9, faults=faults)


def counting(*visits: tuple[Cell, int, Visit]) -> Counting:
    made = Counting({one: CompileRecord(Outcome.OK) for one, _, _ in visits})
    for one, block, each in visits:
        made.visited(one, block, each)
    made.readings += [(HERE, HERE)] * 4
    return made


def test_a_cell_of_two_speeds_is_unstable_and_its_neighbours_are_not() -> None:
    made = counting((ONE, 0, visit()), (OTHER, 0, visit()), (ONE, 1, visit(RENEWED)), (OTHER, 1, visit((99,) * 9)))
    (unstable,) = made.unstable().items()
    assert unstable == (ONE, made.records[ONE])
    assert (made.records[ONE].outcome, made.records[OTHER].outcome) == (Outcome.UNSTABLE, Outcome.OK)
    assert made.records[ONE].reason == "2 to 12000 minor faults a call, depending on the visit"
    assert made.unstable() == {}


def test_a_cell_that_failed_stays_failed() -> None:
    made = counting((ONE, 0, visit()), (ONE, 1, visit(RENEWED)))
    made.records[ONE] = CompileRecord(Outcome.CRASH, "signal 11")
    assert made.unstable() == {}
    assert made.records[ONE].outcome is Outcome.CRASH


def test_a_launch_that_was_disturbed_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counting((ONE, 0, visit()))
    monkeypatch.setattr(environment, "disturbance", lambda *given: f"steal on {given[-1]}")
    assert made.why_not(SNAPSHOTS, 0) == "steal on 1"


@pytest.mark.usefixtures("undisturbed")
def test_a_launch_with_too_few_usable_visits_does_not_count() -> None:
    waiting = Visit(1, (10_000_000,) * 9, run_delay_ns=(5_000_000,) * 9)
    good = [(ONE, block, visit()) for block in range(3)]
    assert counting(*good, (ONE, 3, waiting)).why_not(SNAPSHOTS, 2) == ""
    bad = [(ONE, block, waiting) for block in range(3)]
    assert counting(*good, *bad).why_not(SNAPSHOTS, 2).startswith("only 3 of 6 visits were usable")


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize(
    ("blocks", "here", "counts"),
    [(8, 8, True), (8, 4, True), (8, 3, False), (4, 3, True), (4, 2, False), (2, 2, True), (2, 1, False)],
)
def test_a_launch_counts_with_the_half_of_its_blocks_that_is_in_one_state_and_three_of_them(
    blocks: int, here: int, counts: bool
) -> None:
    made = counting(*((one, block, visit()) for block in range(blocks) for one in (ONE, OTHER)))
    # Wherever they are: the first block and the last ones.
    made.readings[:] = [(HERE, HERE)] + [(HERE, AWAY)] * (blocks - here) + [(HERE, HERE)] * (here - 1)
    assert (made.why_not(SNAPSHOTS, 2) == "") is counts


@pytest.mark.usefixtures("undisturbed")
def test_visits_that_waited_are_not_among_the_half_in_one_state() -> None:
    made = counting(*((ONE, block, WAITING if block == 0 else visit()) for block in range(8)))
    made.readings[:] = [(HERE, HERE)] * 4 + [(HERE, AWAY)] * 4
    assert made.why_not(SNAPSHOTS, 2).startswith("the machine changed its state while it was timed")


# Beside others

OTHERS = environment.Company("other processes kept 0.9 of 2 CPUs busy")
ALONE = Visit(1, (10_000_000,) * 9, cpu_ns=(10_000_000,) * 9, run_delay_ns=(0,) * 9)
WAITING = Visit(1, (10_000_000,) * 9, cpu_ns=(5_000_000,) * 9, run_delay_ns=(5_000_000,) * 9)
NUDGED = Visit(1, (10_000_000,) * 9, cpu_ns=(9_500_000,) * 9, run_delay_ns=(300_000,) * 9)


@pytest.fixture
def beside_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment, "disturbance", lambda *_: OTHERS)


@pytest.mark.usefixtures("beside_others")
@pytest.mark.parametrize(
    ("left", "said"),
    [(8, ""), (3, ""), (2, f"{OTHERS}; 2 of 8 visits did not have to wait, and no cell has 3 of them")],
)
def test_a_launch_beside_others_counts_with_three_visits_of_any_cell(left: int, said: str) -> None:
    made = counting(*((ONE, block, ALONE if block < left else WAITING) for block in range(8)))
    assert (made.why_not(SNAPSHOTS, 2), made.shared) == (said, "" if said else OTHERS)


@pytest.mark.usefixtures("beside_others")
def test_a_launch_of_fewer_blocks_needs_all_of_them() -> None:
    assert counting((ONE, 0, ALONE), (ONE, 1, ALONE)).why_not(SNAPSHOTS, 2) == ""
    said = counting((ONE, 0, ALONE), (ONE, 1, WAITING)).why_not(SNAPSHOTS, 2)
    assert said.endswith("1 of 2 visits did not have to wait, and no cell has 2 of them")


@pytest.mark.usefixtures("beside_others")
def test_beside_others_what_waits_a_little_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counting(*((ONE, block, NUDGED) for block in range(8)))
    assert "0 of 8 visits did not have to wait" in made.why_not(SNAPSHOTS, 2)
    # Alone such visits are widened, and count.
    monkeypatch.setattr(environment, "disturbance", lambda *_: "")
    assert (made.why_not(SNAPSHOTS, 2), made.shared) == ("", "")


@pytest.mark.usefixtures("beside_others")
def test_without_run_delay_a_launch_beside_others_is_thrown_away_as_before() -> None:
    made = counting(*((ONE, block, visit()) for block in range(8)))
    assert (made.why_not(SNAPSHOTS, 2), made.shared) == (OTHERS, "")
    assert counting().why_not(SNAPSHOTS, 2) == OTHERS


@pytest.mark.usefixtures("undisturbed")
def test_a_launch_in_which_most_visits_waited_is_shared_whoever_the_others_are() -> None:
    made = counting(*((ONE, block, ALONE if block < 3 else WAITING) for block in range(8)))
    assert made.why_not(SNAPSHOTS, 2) == ""
    assert made.shared == "only 3 of 8 visits were usable, too much else ran on this machine"


@pytest.mark.usefixtures("beside_others")
def test_a_machine_that_changes_its_state_does_so_beside_others_too() -> None:
    made = counting(*((ONE, block, ALONE) for block in range(8)))
    made.readings[:] = [(HERE, HERE)] * 3 + [(HERE, AWAY)] * 5
    assert made.why_not(SNAPSHOTS, 2).startswith("the machine changed its state while it was timed")
    # What was left of a cell in another state is not left.
    made = counting(*((ONE, block, ALONE if block in (0, 1, 7) else WAITING) for block in range(8)))
    made.readings[:] = [(HERE, HERE)] * 7 + [(HERE, AWAY)]
    assert made.why_not(SNAPSHOTS, 2).endswith("3 of 8 visits did not have to wait, and no cell has 3 of them")


# Where the host takes the CPUs

TAKEN = environment.Company("the host took 9 % of the CPUs' time (steal)")
TICK_NS = 10_000_000
LOST = replace(ALONE, stolen_ns=2 * TICK_NS)


@pytest.mark.parametrize("left", [8, 3, 2, 0])
def test_a_launch_of_which_the_host_took_some_counts_with_three_visits_that_it_left_alone(
    left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "disturbance", lambda *_: TAKEN)
    made = counting(*((ONE, block, ALONE if block < left else LOST) for block in range(8)))
    said = "" if left >= 3 else f"{TAKEN}; {left} of 8 visits did not have to wait, and no cell has 3 of them"
    assert (made.why_not(SNAPSHOTS, 2), made.shared) == (said, "" if said else TAKEN)
    assert made.stolen == {(ONE, block): 2 * TICK_NS for block in range(left, 8)}


@pytest.mark.usefixtures("undisturbed")
def test_of_a_launch_of_which_the_host_took_little_each_visit_has_its_account_too() -> None:
    made = counting(*((ONE, block, LOST if block < 3 else ALONE) for block in range(8)))
    assert (made.why_not(SNAPSHOTS, 2), made.shared) == ("", "")
    # Most of them lost time, though the launch as a whole lost little: no visit of another cell makes up for that.
    made = counting(*((ONE, block, LOST if block < 4 else ALONE) for block in range(8)))
    assert made.why_not(SNAPSHOTS, 2) == ""
    assert made.shared == "only 4 of 8 visits were usable, too much else ran on this machine"


def test_a_visit_may_lose_a_twentieth_or_a_single_tick_and_beside_others_a_hundredth() -> None:
    short, long = replace(ALONE, wall_ns=(6_000_000,) * 10), replace(ALONE, wall_ns=(100_000_000,) * 10)
    for stay, ticks, counts, counts_beside in (
        (short, 1, True, False), (short, 2, False, False), (long, 1, True, True),
        (long, 2, True, False), (long, 5, True, False), (long, 6, False, False),
    ):  # fmt: skip
        taken = replace(stay, stolen_ns=ticks * TICK_NS)
        assert (not taken.is_stolen(), not taken.is_stolen(shared=True)) == (counts, counts_beside)
    assert not short.is_stolen(shared=True)


def test_beside_others_what_lost_a_tick_is_not_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with run-delay: what is taken evenly, less than a visit may lose, makes two threads slower than one."""
    monkeypatch.setattr(environment, "disturbance", lambda *_: TAKEN)
    made = counting(*((ONE, block, replace(ALONE, stolen_ns=TICK_NS)) for block in range(8)))
    assert "0 of 8 visits did not have to wait" in made.why_not(SNAPSHOTS, 2)


def lost(places: set[tuple[Cell, int]], **fields: Any) -> LaunchRecord:
    """Return a launch in which the host took CPU time of some visits, which are three times as long."""
    visits = slowed(places).visits
    taken = {place: replace(stay, stolen_ns=3 * TICK_NS * (place in places)) for place, stay in visits.items()}
    return replace(slowed(set(), **fields), visits=taken, derived={})


def test_what_the_host_took_from_counts_for_nothing_though_little_else_is_left() -> None:
    """Not for a comparison, not for a time, its spread or single calls; and three blocks are left, or none."""
    found = lost({(ONE, block) for block in range(5)})
    assert value_of(found) == (0.0, 3)
    assert summarise_all(list(found.visits.values())) == [*map(summarise, found.visits.values())]
    assert list(found.visits_for(ONE)) == [5, 6, 7]
    assert calls_of(rows(found), ONE) == [[0.01] * 27]
    spread = spread_of([found], ONE)
    assert spread is not None
    assert spread.launches == ((1, (0.01,) * 3),)
    arriving = {place: replace(stay, request_ns=stay.wall_ns) for place, stay in found.visits.items()}
    assert calls_of(rows(replace(found, visits=arriving, derived={})), ONE) == [[0.01] * 27]
    for fields in ({}, {"shared": str(TAKEN)}):
        few = lost({(ONE, block) for block in range(6)}, **fields)
        assert combine(few, (ONE, OTHER), lambda ln: ln[0] - ln[1]) is None
        assert combine(few, (OTHER,), lambda ln: ln[0]) is not None


def test_where_no_verdict_rests_on_it_what_the_host_took_from_is_shown() -> None:
    whole = replace(lost({(ONE, block) for block in range(8)}), protocol="quick")
    assert value_of(whole)[0] == round(math.log(3), 3)
    assert len(whole.visits_for(ONE)) == 8


def test_what_stops_a_process_is_said_before_what_keeps_it_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    made = counting(*((ONE, block, ALONE) for block in range(8)))
    monkeypatch.setattr(environment, "disturbance", lambda *_: "the cgroup's CPU quota stopped this process 3 times")
    assert made.why_not(SNAPSHOTS, 2) == "the cgroup's CPU quota stopped this process 3 times"
    assert made.shared == ""


# The same rule for the noise of a machine


def measures(monkeypatch: pytest.MonkeyPatch, visit_of: Callable[[int, Cell, int], Visit]) -> None:
    """Let launches be made of these visits, by launch, cell and block."""
    count = 0

    def run_launch(job: Job, plan: LaunchPlan, sink: Sink, **_: object) -> None:
        nonlocal count
        for one in plan.cells:
            sink.prepared(one, CompileRecord(Outcome.OK))
        for block in range(4):
            for place, one in enumerate(plan.cells):
                sink.visited(one, block, place, visit_of(count, one, block))
            sink.block_done(block, (HERE, HERE))
        count += 1

    monkeypatch.setattr(noise, "run_launch", run_launch)


def faulty(faults_of: Callable[[int, Cell, int], tuple[int, ...]]) -> Callable[[int, Cell, int], Visit]:
    """Return visits that take 10 ms a call and have these faults."""

    def visit_of(launch: int, one: Cell, block: int) -> Visit:
        wall = round(10_000_000 * math.exp(0.001 * launch * (-1) ** launch * one.replica))
        return Visit(1, (wall,) * 9, faults=faults_of(launch, one, block))

    return visit_of


def equal(folder: Path, report: Callable[[str], None], launches: int = 3) -> EqualLaunches:
    null = CompilerSpec.parse("null")
    return equal_launches(job(folder), null, reads="nothing", launches=launches, protocol=SMALL, report=report)


@pytest.mark.usefixtures("undisturbed")
def test_equal_code_of_two_speeds_is_replaced_as_for_a_gate(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def first_launch(launch: int, one: Cell, block: int) -> tuple[int, ...]:
        return RENEWED if (launch, one.replica, one.workload.batch, block) == (0, 1, 8, 2) else STEADY

    measures(monkeypatch, faulty(first_launch))
    told: list[str] = []
    found = equal(tmp_path, told.append)
    assert (len(found.records), found.counted) == (4, 3)
    assert "; a gate would not count it: local:null block:conv " in told[0]
    assert told[0].endswith("2 to 12000 minor faults a call, depending on the visit")
    assert all("would not count" not in line for line in told[1:])
    profile = profile_of("local", found, NoiseProfile(0.01, 0.005, 0.001, None, 40))
    assert profile is not None
    assert (profile.launches, profile.counted) == (4, 3)


@pytest.mark.usefixtures("undisturbed")
def test_equal_code_that_never_settles_ends_as_what_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    measures(monkeypatch, faulty(lambda launch, one, block: RENEWED if block % 2 else STEADY))
    found = equal(tmp_path, lambda line: None, launches=1)
    assert (len(found.records), found.counted) == (4, 0)
    assert profile_of("local", found, NoiseProfile(0.01, 0.005, 0.001, None, 40)) is None


class Renewed(Made):
    """A launch in which the cell gets its memory from the system in one of its blocks."""

    def faults(self, one: Cell, block: int) -> tuple[int, ...]:
        return (12_000,) * 10 if one.compiler == FAST and block == 2 else (2,) * 10


def test_a_gate_says_the_same_of_such_a_launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lab = Laboratory(tmp_path, monkeypatch)
    lab.script = [Renewed(5.0), Made(1.2), Made(1.21), Made(1.2)]
    decision = lab.decide()
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 4)
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)


MODE, OTHER_MODE = {"nvpmodel": "pmode:0"}, {"nvpmodel": "pmode:2"}
IN_ANOTHER = "the power mode changed midway: nvpmodel from pmode:0 to pmode:2"


@pytest.mark.usefixtures("undisturbed")
def test_a_launch_counts_in_the_power_mode_of_the_first_one_only() -> None:
    made = counting(*((ONE, block, visit()) for block in range(4)))
    begun: tuple[dict[str, Any], dict[str, Any], dict[str, Any]] = ({"power_mode": OTHER_MODE}, {}, {})
    assert made.why_not(begun, 2, OTHER_MODE) == made.why_not(begun, 2) == made.why_not(SNAPSHOTS, 2, MODE) == ""
    assert made.why_not(begun, 2, MODE) == IN_ANOTHER


@pytest.mark.usefixtures("undisturbed")
def test_launches_of_equal_code_are_held_to_it_as_a_gate_would(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[dict[str, Any]] = []

    def steady(launch: int, one: Cell, block: int) -> tuple[int, ...]:
        begun[:] = [{"power_mode": OTHER_MODE if launch in (0, 1) else MODE}]
        return STEADY

    measures(monkeypatch, faulty(steady))
    monkeypatch.setattr(environment, "snapshot", lambda *_: begun[0] if begun else {"power_mode": MODE})
    found = equal(tmp_path, lambda line: None, launches=2)
    assert [record.invalid for record in found.records] == ["", IN_ANOTHER, IN_ANOTHER, ""]


# Glances around visits

STILL, SHAKEN = Reading(150_000, (360,)), Reading(225_000, (360,))


def seen(before: Reading = STILL, *, run_delay_ns: tuple[int, ...] = ()) -> Visit:
    return Visit(1, (10_000_000,) * 9, run_delay_ns=run_delay_ns, around=((before, STILL),))


@pytest.mark.usefixtures("undisturbed")
def test_visits_around_which_the_machine_was_not_steady_are_said_and_make_no_launch_one_beside_others() -> None:
    """Nobody else of this machine need have run: they are left out by themselves, and nothing had to wait."""
    steady = [(ONE, block, seen()) for block in range(5)]
    shaken = [(OTHER, block, seen(SHAKEN)) for block in range(5)]
    made = counting(*steady, *shaken)
    assert made.unsteady() == {(OTHER, block) for block in range(5)}
    assert (made.why_not(SNAPSHOTS, 2), made.shared) == ("", "")


@pytest.mark.usefixtures("undisturbed")
@pytest.mark.parametrize(
    ("glanced", "left", "counts"), [(True, 3, True), (True, 2, False), (False, 3, False)], ids=["three", "two", "blind"]
)
def test_three_steady_blocks_of_one_state_are_worth_a_launch_whatever_most_are(
    glanced: bool, left: int, counts: bool
) -> None:
    """Without glances whoever changes the machine that often was there for some of what is left, too."""
    visits = [
        (one, block, seen(SHAKEN if block >= left else STILL) if glanced else visit())
        for block in range(8)
        for one in (ONE, OTHER)
    ]
    made = counting(*visits)
    # Three blocks are in one state, the others each in one of its own.
    made.readings[:] = [(HERE, HERE)] * 3 + [
        (one, one) for one in (Reading(100_000, (400 * 2**n,)) for n in range(1, 6))
    ]
    assert (made.why_not(SNAPSHOTS, 2) == "") is counts
    assert made.shared == ""


def slowed(slow: set[tuple[Cell, int]], **fields: Any) -> LaunchRecord:
    """Return a launch of eight blocks in which some visits are three times as long, and the machine was not steady."""
    walls = {True: 30_000_000, False: 10_000_000}
    places = [(one, block) for one in (ONE, OTHER) for block in range(8)]
    visits = {place: Visit(1, (walls[place in slow],) * 9, run_delay_ns=(0,) * 9) for place in places}
    record = CompileRecord(Outcome.OK)
    return LaunchRecord(1, 1, "gate", {ONE: record, OTHER: record}, visits, unsteady=frozenset(slow), **fields)


def value_of(record: LaunchRecord) -> tuple[float, int]:
    value = combine(record, (ONE, OTHER), lambda ln: ln[0] - ln[1])
    assert value is not None
    return round(value.value, 3), value.blocks


def rows(record: LaunchRecord) -> list[tuple[LaunchRecord, LaunchValue]]:
    return [(record, LaunchValue(0.0, 0.0, 1))]


PAIR = (ONE, OTHER)


def difference(ln_seconds: Sequence[float]) -> float:
    return ln_seconds[0] - ln_seconds[1]


def test_of_a_launch_of_an_earlier_version_three_steady_blocks_count_or_none() -> None:
    """Glances do not see what comes and goes within a visit: a block or two of eight would say too much."""
    assert value_of(slowed({(ONE, block) for block in range(5)})) == (0.0, 3)
    few = slowed({(ONE, block) for block in range(6)})
    assert combine(few, PAIR, difference) is None
    # Six slow blocks of eight are more than a trimmed mean forgives: ln 3 in all of those that it keeps but one.
    all_of_it = combine(few, PAIR, difference, disturbed=True)
    assert all_of_it is not None
    assert all_of_it.value == pytest.approx(math.log(3) * 5 / 6)
    assert all_of_it.blocks == 8
    # And where no verdict rests on it.
    assert combine(replace(few, protocol="quick"), PAIR, difference) == all_of_it


@pytest.mark.parametrize(("unsteady", "blocks"), [(4, 4), (5, 8), (6, 8)])
def test_half_of_the_blocks_count_by_themselves_and_of_fewer_what_was_left_alone(unsteady: int, blocks: int) -> None:
    assert value_of(slowed({(ONE, block) for block in range(unsteady)}, alone=0.5)) == (0.0, blocks)


def test_a_time_by_itself_needs_a_machine_that_was_left_alone_and_no_half_of_the_blocks() -> None:
    """What is steady throughout a launch that never was is what the machine is like beside others."""
    five = {(ONE, block) for block in range(5)}
    alone = {share: combine(slowed(five, alone=share), [ONE], lambda ln: ln[0]) for share in (0.25, 0.24, 0.0)}
    assert alone[0.25] is not None
    assert (alone[0.25].blocks, alone[0.24], alone[0.0]) == (3, None, None)
    assert combine(slowed({*five, (ONE, 5)}, alone=0.9), [ONE], lambda ln: ln[0]) is None


# Calls for which the machine was left alone

NOISE = 0.003
TRUE = math.log(1.2)


def crowded(
    seed: int = 0,
    *,
    calm: float = 0.4,
    alone: float | None = 0.4,
    minds: tuple[float, float] = (1.5, 1.125),
    pair: tuple[Cell, Cell] = PAIR,
    regressed: tuple[float, float] = (0.0, 0.0),
    steady: int = 1,
    **fields: Any,
) -> LaunchRecord:
    """Return a launch in which the first cell takes 1.2 times as long as the second while nobody else is there.

    Others come and go batch by batch and are there in most of either cell, which ``minds`` them as many times. Of its
    batches the share ``regressed[0]`` of the first cell takes longer by the other. So many blocks look ``steady``.
    """
    rng = np.random.default_rng(seed)
    visits = {}
    for side, one in enumerate(pair):
        for block in range(8):
            walls = 1e7 * (1.2 if side == 0 else 1.0) * np.exp(NOISE * rng.standard_normal(20))
            walls *= np.where(rng.random(20) < calm, 1.0, minds[side])
            if side == 0:
                walls *= np.where(rng.random(20) < regressed[0], 1 + regressed[1], 1.0)
            visits[one, block] = Visit(1, tuple(int(wall) for wall in walls), run_delay_ns=(0,) * 20)
    unsteady = frozenset(place for place in visits if place[1] >= steady)
    prepared = dict.fromkeys(pair, CompileRecord(Outcome.OK))
    return LaunchRecord(seed, seed, "gate", prepared, visits, unsteady=unsteady, alone=alone, **fields)


def said(record: LaunchRecord, **how: Any) -> float:
    value = combine(record, tuple(record.prepared), difference, **how)
    assert value is not None
    return value.value


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("minds", [(1.5, 1.125), (1.125, 1.5), (1.5, 1.5)])
def test_where_few_blocks_are_steady_a_launch_says_what_calls_take_without_others(
    seed: int, minds: tuple[float, float]
) -> None:
    record = crowded(seed, minds=minds)
    assert said(record) == pytest.approx(TRUE, abs=0.01)
    assert (abs(said(record, disturbed=True) - TRUE) > 0.1) is (minds[0] != minds[1])


@pytest.mark.parametrize(("calm", "alone"), [(0.25, 0.25), (0.3, 0.5), (0.45, 0.7), (0.9, 0.3)])
def test_glances_need_not_be_right_about_how_many_calls_were_left_alone(calm: float, alone: float) -> None:
    """They are around visits, and others come and go within: the quantile is lower than they say."""
    assert said(crowded(calm=calm, alone=alone)) == pytest.approx(TRUE, abs=0.02)


def test_a_launch_in_which_far_fewer_calls_are_quick_than_were_left_alone_says_nothing() -> None:
    """They are not what the cell is like by itself: it is quick now and then, or glances are wrong."""
    assert combine(crowded(calm=0.3, alone=0.7), PAIR, difference) is None
    whole = crowded(alone=0.4)
    for side in PAIR:
        quick = {
            place: replace(stay, wall_ns=tuple(wall // (1 + (at % 7 == 0)) for at, wall in enumerate(stay.wall_ns)))
            if place[0] == side
            else stay
            for place, stay in whole.visits.items()
        }
        assert combine(replace(whole, visits=quick, derived={}), PAIR, difference) is None


@pytest.mark.parametrize(("alone", "counts"), [(None, False), (0.0, False), (0.2499, False), (0.25, True)])
def test_what_was_left_alone_for_less_than_a_quarter_says_nothing(alone: float | None, counts: bool) -> None:
    for channel in ("usual", "fastest"):
        assert (combine(crowded(alone=alone), PAIR, difference, channel=channel) is not None) is counts


@pytest.mark.parametrize("how", ["torn", "slower"])
def test_a_launch_of_several_states_says_nothing_by_its_fastest_calls(how: str) -> None:
    """They may be of another state of the machine than the one that it is taken for."""
    record = replace(crowded(), **{how: True})  # type: ignore[arg-type]
    assert combine(record, PAIR, difference) is None
    assert combine(record, PAIR, difference, channel="fastest") is None


@pytest.mark.parametrize("milliseconds", [19, 21])
def test_calls_that_others_may_disturb_in_part_have_no_fast_ones(milliseconds: int) -> None:
    """They are all alike, and short ones fall between. Three steady blocks are then what there is."""
    few, three = crowded(steady=1), crowded(steady=3)
    for side in PAIR:
        longer = milliseconds / 10 / (1.2 if side == ONE else 1)
        counted = []
        for whole in (few, three):
            visits = {
                place: replace(stay, wall_ns=tuple(round(wall / 1.3 * longer) for wall in stay.wall_ns))
                if place[0] == side
                else stay
                for place, stay in whole.visits.items()
            }
            counted.append(combine(replace(whole, visits=visits, derived={}), PAIR, difference))
        blocks = [None if value is None else value.blocks for value in counted]
        assert blocks in ([8, 8], [None, 3])


@pytest.mark.parametrize(
    ("other", "expected"),
    [
        ((120_000, 360), False),
        ((70_000, 360), True),
        ((100_000, 180), True),
        ((100_000, 720), False),
        ((150_000, 355), False),
        ((99_000, 720), False),
    ],
)
def test_a_launch_is_of_a_slower_state_where_some_reading_is_of_a_faster_one(
    other: tuple[int, int], expected: bool
) -> None:
    """Where most readings are alike, as those are that differ by little."""
    usual, jitter = Reading(100_000, (360,)), Reading(95_000, (350,))
    assert is_slower([(usual, jitter), None, (usual, usual), (usual, Reading(other[0], (other[1],)))]) is expected
    assert not is_slower([])


def test_beside_other_processes_all_blocks_count_where_nothing_else_would_and_beside_other_guests_none() -> None:
    """Who is on this machine shows in what waits. Who is on its host does not, but for what that takes."""
    whole = crowded(alone=0.1, shared="other processes kept 0.9 of 2 CPUs busy")
    assert value_of(whole) == (round(said(whole, disturbed=True), 3), 8)
    taken = {place: replace(stay, stolen_ns=1000) for place, stay in whole.visits.items()}
    assert combine(replace(whole, visits=taken, derived={}), PAIR, difference) is None
    assert combine(replace(whole, shared="", derived={}), PAIR, difference) is None


@pytest.mark.parametrize("change", [{"scenario": "throughput"}, {"neighbour": "block:conv"}], ids=str)
@pytest.mark.parametrize("side", [0, 1])
def test_fast_calls_say_nothing_of_a_cell_with_several_in_flight_or_a_neighbour(
    change: dict[str, str], side: int
) -> None:
    """Completions come in bursts, and a neighbour is part of what is measured, whenever it happens to pause."""
    pair = [ONE, OTHER]
    pair[side] = replace(pair[side], workload=replace(pair[side].workload, **change))  # type: ignore[arg-type]
    record = crowded(pair=(pair[0], pair[1]))
    assert combine(record, pair, difference) is None
    assert combine(record, pair, difference, channel="mean") is None
    assert combine(record, pair, difference, disturbed=True) is not None
    # Nothing of them says more than three steady blocks do, fewer than the half that others need.
    three = combine(crowded(pair=(pair[0], pair[1]), steady=3), pair, difference)
    assert three is not None
    assert three.blocks == 3


@pytest.mark.parametrize("steady", [0, 2, 3])
def test_the_second_channel_of_such_a_launch_is_that_of_all_medians(steady: int) -> None:
    """It is not the fastest calls again, which the first one is of, nor the few steady blocks."""
    record = crowded(steady=steady)
    second = combine(record, PAIR, difference, channel="fastest")
    assert second is not None
    assert second == combine(replace(record, unsteady=frozenset(), derived={}), PAIR, difference)
    assert second.blocks == 8
    assert abs(second.value - said(record)) > 0.1


def test_three_blocks_of_two_cells_are_needed_to_say_anything() -> None:
    whole = crowded()
    for left, counts in ((3, True), (2, False)):
        dropped = replace(WAITING, wall_ns=(10_000_000,) * 9)
        visits = {place: stay if place[1] < left else dropped for place, stay in whole.visits.items()}
        some = replace(whole, visits=visits, derived={}, unsteady=frozenset(visits))
        assert (combine(some, PAIR, difference) is not None) is counts


def test_calls_that_had_to_wait_are_none_of_the_fastest() -> None:
    """Whatever they took: every second batch is half as long, and waited."""
    whole = crowded()
    visits = {
        place: replace(
            stay,
            wall_ns=tuple(wall // (1 + at % 2 * (place[0] == ONE)) for at, wall in enumerate(stay.wall_ns)),
            run_delay_ns=tuple(wall // 4 * (at % 2) for at, wall in enumerate(stay.wall_ns)),
        )
        for place, stay in whole.visits.items()
    }
    assert said(replace(whole, visits=visits, derived={})) == pytest.approx(TRUE, abs=0.015)


def test_several_calls_timed_together_are_one_call_each() -> None:
    whole = crowded()
    together = {place: replace(stay, calls=4) if place[0] == ONE else stay for place, stay in whole.visits.items()}
    assert said(replace(whole, visits=together, derived={})) == pytest.approx(said(whole) - math.log(4))


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("calm", [0.3, 0.6])
def test_calls_that_are_slow_for_most_of_the_time_are_still_seen(calm: float, seed: int) -> None:
    """A regression of 10 % in four batches of five."""
    regressed = crowded(seed, calm=calm, alone=calm, regressed=(0.8, 0.1))
    shown = said(regressed) - said(crowded(seed, calm=calm, alone=calm))
    assert 0.06 < shown < 0.11


def spread_of_many(made: Callable[[int], LaunchRecord]) -> tuple[float, float]:
    """Return what launches say of their own variance, and what it is over launches."""
    values = [combine(made(seed), PAIR, difference) for seed in range(300)]
    known = [value for value in values if value is not None]
    assert len(known) == len(values)
    return fmean(value.within_variance for value in known), variance(value.value for value in known)


@pytest.mark.parametrize("calm", [0.25, 0.4, 0.8])
def test_the_variance_of_what_was_left_alone_is_that_over_launches(calm: float) -> None:
    within, over = spread_of_many(lambda seed: crowded(seed, calm=calm, alone=calm))
    assert 0.5 < within / over < 2


def test_so_it_is_where_blocks_differ() -> None:
    """Batches of one visit are alike: each adds little to what the others of it say."""

    def made(seed: int) -> LaunchRecord:
        record, rng = crowded(seed), np.random.default_rng(1_000_000 + seed)
        factors = {place: math.exp(0.02 * rng.standard_normal()) for place in record.visits}
        visits = {
            place: replace(stay, wall_ns=tuple(round(wall * factors[place]) for wall in stay.wall_ns))
            for place, stay in record.visits.items()
        }
        return replace(record, visits=visits, derived={})

    within, over = spread_of_many(made)
    assert 0.5 < within / over < 2


def test_a_quantile_of_one_block_has_no_variance_and_of_a_cell_without_times_there_is_none() -> None:
    assert launch_quantile([[[1.0, 2.0, 3.0]], [[1.0]]], 0.5, difference) == LaunchValue(math.log(2), 0.0, 1)
    assert launch_quantile([[[1.0]], []], 0.5, difference) is None
    assert launch_quantile([[[1.0]], [[]]], 0.5, difference) is None


def test_a_time_by_itself_is_of_steady_visits_or_of_none() -> None:
    """It has nothing beside it that is slowed as much, so it would only be too long. Others' visits do not matter."""
    few = slowed({(ONE, block) for block in range(6)})
    assert combine(few, [ONE], lambda ln: ln[0]) is None
    assert combine(few, [OTHER], lambda ln: ln[0]) == combine(slowed(set()), [OTHER], lambda ln: ln[0])
    assert [list(few.visits_for(one)) for one in (ONE, OTHER)] == [[], [*range(8)]]
    assert list(slowed({(ONE, 0), (OTHER, 3)}).visits_for(ONE)) == [1, 2, 3, 4, 5, 6, 7]
    # Nor is its spread, nor any of its single calls, of those that somebody disturbed.
    some = slowed({(ONE, 0), (ONE, 5)})
    spread = spread_of([some, few], ONE)
    assert spread is not None
    assert (spread.launches, spread.samples) == (((1, (0.01,) * 6),), 54)
    assert calls_of(rows(some), ONE) == [[0.01] * 54]
    assert calls_of(rows(few), ONE) == [[]]


def test_of_a_visit_that_had_to_wait_no_single_call_counts_though_it_was_steady() -> None:
    some = slowed({(ONE, block) for block in range(4)})
    waited = Visit(1, (10_000_000,) * 9, run_delay_ns=(5_000_000,) * 9)
    visits = {**some.visits, (ONE, 6): waited, (ONE, 7): waited}
    # Two are left, which are too few by the same rule as for a median.
    assert calls_of(rows(replace(some, visits=visits, derived={})), ONE) == [[]]
    assert combine(replace(some, visits=visits, derived={}), [ONE], lambda ln: ln[0]) is None


def test_of_a_launch_that_others_shared_three_blocks_count_or_none() -> None:
    unsteady = {(ONE, block) for block in range(6)}
    whole = slowed(unsteady, shared="others were here")
    assert value_of(whole)[1] == 8
    left = {place: stay for place, stay in whole.visits.items() if place[1] < 2}
    pair = (ONE, OTHER)
    some = {place: stay for place, stay in whole.visits.items() if place[0] == OTHER or place[1] < 2}
    assert combine(replace(whole, visits=some, derived={}), pair, lambda ln: ln[0] - ln[1]) is None
    # A launch that has two blocks altogether is as good as its blocks.
    assert combine(replace(whole, visits=left, derived={}), pair, lambda ln: ln[0] - ln[1]) is not None


@pytest.mark.usefixtures("undisturbed")
def test_the_noise_of_a_machine_is_of_the_visits_for_which_it_was_steady(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The second process takes three times as long in one visit of four, around which somebody was there."""

    def visit_of(launch: int, one: Cell, block: int) -> Visit:
        is_slow = (one.replica, block) == (1, 1)
        around = ((STILL, SHAKEN if is_slow else STILL),)
        return Visit(1, (30_000_000 if is_slow else 10_000_000,) * 9, around=around)

    measures(monkeypatch, visit_of)
    found = equal(tmp_path, lambda _: None)
    for record in found.records:
        assert {(one.replica, block) for one, block in record.unsteady} == {(1, 1)}
        pair = found.twins[0]
        value = combine(record, pair, lambda ln: ln[0] - ln[1])
        assert value is not None
        assert (value.value, value.blocks) == (0.0, 3)

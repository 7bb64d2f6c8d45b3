"""Gates on a machine that others disturb for some visits: judged by those for which it was steady, live and stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how_often
from hypothesis import strategies as st

from pytest_ngraph.claims.decide import decide
from pytest_ngraph.session.session import Session
from pytest_ngraph.spec.cells import Cell, Reading, Visit
from pytest_ngraph.stats import Bound
from tests.claims.test_claims import AT_LEAST_1, AWAY, FAST, HOME, Laboratory, Made
from tests.claims.test_one_engine import PLACES, Disturbed, by, live, stored, told
from tests.claims.test_shared import by_all
from tests.golden.store_content import change


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def test_a_gate_is_decided_by_the_visits_for_which_the_machine_was_steady(lab: Laboratory) -> None:
    """Three visits of eight to the cell are slow, more than a trimmed mean forgives."""
    lab.script = [Disturbed(value, of_cell=(1, 4, 6)) for value in (1.2, 1.21, 1.19)]
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("pass", 3)
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)


# In two blocks of eight the machine is steady for both cells, less than is worth a launch. In two others the cell alone
# is slow, and in one what it is compared with. Nearly three quarters of the glances find nobody.
FEW = Disturbed(4.0, of_cell=(0, 1, 2, 3, 4), of_others=(1, 2, 3, 5))
LEFT_ALONE = (
    "others disturbed most blocks of {}, and left the machine alone for {} or more of each: there, the fastest calls "
    "of both sides count"
)
NEVER = "the machine was not steady around 16 visits, and left alone in 0 % of the glances at it (25 % needed)"


@dataclass(frozen=True)
class Glanced(Made):
    """A launch in which arithmetic on both CPUs at once always takes so long."""

    at_once_ns: int = 110_000

    def visit(self, cell: Cell, block: int) -> Visit:
        glance = Reading(self.at_once_ns, (360,))
        return replace(super().visit(cell, block), around=((glance, glance),))


def calm(*values: float) -> list[Made]:
    return [Glanced(value) for value in values]


def packed(*values: float) -> list[Made]:
    """Return launches during all of which a host has both CPUs on one core, as calm ones before them tell."""
    return [Glanced(value, at_once_ns=170_000) for value in values]


@dataclass(frozen=True)
class Crowded(Made):
    """A launch that another guest disturbs for three fifths of it: what it makes calls longer by differs by cell."""

    mine: float = 1.5
    others: float = 1.5
    left_alone: int = 2  # of five batches, and of five glances

    def visit(self, cell: Cell, block: int) -> Visit:
        slower, usual = self.mine if cell.compiler == FAST else self.others, self.wall_ns(cell, block)[-1]
        beside = [slower if (3 * block + place) % 5 >= self.left_alone else 1.0 for place in range(20)]
        walls = tuple(round(usual * (1 + 0.001 * ((7 * place + block) % 10)) * beside[place]) for place in range(20))
        glances = (170_000 if (2 * block + end) % 5 >= self.left_alone else 110_000 for end in range(2))
        before, after = (Reading(glance, (360,)) for glance in glances)
        return Visit(self.together, walls, cpu_ns=walls, around=((before, after),))


@dataclass(frozen=True)
class Quick(Crowded):
    """One in which every fifth batch of the cell is twice as fast."""

    def visit(self, cell: Cell, block: int) -> Visit:
        taken = super().visit(cell, block)
        if cell.compiler != FAST:
            return taken
        walls = tuple(wall // (2 if place % 5 == 0 else 1) for place, wall in enumerate(taken.wall_ns))
        return replace(taken, wall_ns=walls, cpu_ns=walls)


def test_where_few_blocks_are_steady_the_fastest_calls_count_and_the_verdict_says_so(lab: Laboratory) -> None:
    """By all visits one contrast of six would be of the cell's slow one alone."""
    lab.script = [replace(FEW, speedup=value) for value in (4.0, 4.02, 3.98)]
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("pass", 3)
    assert decision.estimate.value == pytest.approx(4.0, rel=0.01)
    assert decision.notes == (LEFT_ALONE.format("3 of 3 launches", "73 %"),)


def test_those_with_few_steady_blocks_count_beside_others(lab: Laboratory) -> None:
    """By all of its visits the cell would be slower by a third in every second launch, between a fail and a pass."""
    disturbed = Crowded(1.0, mine=1.5, others=1.125)
    lab.script = [disturbed, *calm(1.001), disturbed]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 3)
    assert decision.estimate.value == pytest.approx(1.0, rel=0.001)
    assert decision.notes == (LEFT_ALONE.format("2 of 3 launches", "44 %"),)


def test_half_of_the_blocks_are_enough_to_be_judged_by_and_three_of_eight_are_not(lab: Laboratory) -> None:
    """So few may be steady by chance. Where they are enough nothing is said, as nothing else counts."""
    lab.script = [Disturbed(1.2, of_cell=(1, 4, 6), of_others=(2,)), *[Made(1.2)] * 2]
    assert by_all(lab).notes == ()
    lab.close()
    lab.script += [Disturbed(1.2, of_cell=(1, 4, 6), of_others=(2, 3)), *[Made(1.2)] * 2]
    decision = decide(lab.run(batches=(2,)).quantity("speedup"), AT_LEAST_1, 0.05)
    assert len(decision.notes) == 1
    assert decision.notes[0].startswith("others disturbed most blocks of 1 of 3 launches")


@pytest.mark.parametrize(
    ("speedup", "mine", "others", "verdict"),
    [(1.05, 1.5, 1.5, "pass"), (1.4, 1.5, 1.125, "pass"), (0.93, 1.5, 1.5, "fail"), (0.93, 1.5, 1.125, "fail")],
)
def test_a_gate_on_a_crowded_host_says_what_calls_take_by_themselves(
    lab: Laboratory, speedup: float, mine: float, others: float, verdict: str
) -> None:
    """Of unlike sides medians are those of calls beside the other guest, off by a third."""
    drift = (1.0, 1.002, 0.998, 1.001, 0.999, 1.0, 1.001)
    lab.script = [Crowded(speedup * one, mine=mine, others=others) for one in drift]
    decision = by_all(lab)
    assert decision.verdict == verdict
    assert decision.estimate.value == pytest.approx(speedup, rel=0.01)
    assert decision.notes[0] == LEFT_ALONE.format(f"{lab.launched} of {lab.launched} launches", "44 %")


@pytest.mark.parametrize(("speedup", "mine", "others", "said"), [(0.9, 1.125, 1.5, "fail"), (1.1, 1.5, 1.125, "pass")])
def test_what_medians_say_the_opposite_of_stays_open(
    lab: Laboratory, speedup: float, mine: float, others: float, said: str
) -> None:
    """A cell that is slower and minds others less would pass by its medians, and one that is faster fail."""
    lab.script = [Crowded(speedup * one, mine=mine, others=others) for one in (1.0, 1.002, 0.998, 1.001, 0.999, 1, 1)]
    decision = by_all(lab)
    assert decision.verdict == "inconclusive"
    assert decision.reason.startswith(f"what was left alone says {said}, medians say the opposite (")
    assert decision.estimate.value == pytest.approx(speedup, rel=0.01)


def test_what_the_budget_ends_is_judged_by_all_launches_that_were_left_alone(lab: Laboratory) -> None:
    lab.script = [Made(1.40), replace(FEW, speedup=1.41), Made(1.39)]
    decision = decide(lab.run(budget="3").quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 3)
    assert decision.notes == (LEFT_ALONE.format("1 of 3 launches", "73 %"),)


def test_a_budget_that_ends_with_one_that_never_was_leaves_a_gate_open(lab: Laboratory) -> None:
    """By all launches it would pass, though not with room."""
    lab.script = [*calm(1.40), *packed(1.41), *calm(1.39)]
    decision = decide(lab.run(budget="3").quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("inconclusive", 2, 3)
    assert decision.reason == f"2 of 3 launches gave this number: {NEVER}"


# Launches in which others never left the machine alone


def learn(lab: Laboratory, launches: int = 3) -> None:
    """Let a run of another cell see what the machine is like by itself."""
    lab.script = [Glanced(1.2)] * launches
    assert decide(lab.run(batches=(2,)).quantity("speedup"), AT_LEAST_1, 0.05).verdict == "pass"
    assert lab.launched == launches


def test_six_launches_in_a_row_that_never_were_left_alone_end_a_gate(lab: Laboratory) -> None:
    """One that is would be worth waiting for longer than for one that others share: these are three."""
    learn(lab)
    lab.script += packed(*[1.2] * 20)
    decision = by_all(lab)
    assert (decision.verdict, lab.launched - 3) == ("invalid", 6)
    assert decision.reason == f"the last 6 launches say nothing of it: {NEVER}"


def test_a_good_launch_in_between_counts_and_is_hoped_for_again(lab: Laboratory) -> None:
    learn(lab)
    lab.script += [*packed(*[0.3] * 5), *calm(1.2), *packed(*[0.3] * 5), Crowded(1.21), *calm(1.19)]
    decision = decide(lab.run(budget="16").quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.estimate.launches, lab.launched - 3) == ("pass", 3, 13)
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)


def test_what_holds_by_far_passes_by_all_visits_of_such_launches(lab: Laboratory) -> None:
    learn(lab)
    lab.script += packed(1.8, 1.81, 1.79)
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched - 3) == ("pass", 3, 3)
    assert decision.notes == (
        "others disturbed 3 of 3 launches; it holds with them, and would if it were 1.5 times worse",
    )


@pytest.mark.parametrize("speedup", [1.4, 1.0, 0.2])
def test_what_holds_by_less_or_does_not_hold_is_not_decided_by_them(lab: Laboratory, speedup: float) -> None:
    """A fail by far is none: others may slow one side alone."""
    learn(lab)
    lab.script += packed(*[speedup] * 6)
    assert (by_all(lab).verdict, lab.launched - 3) == ("invalid", 6)


def test_a_time_by_itself_is_not_of_launches_that_never_were_left_alone(lab: Laboratory) -> None:
    learn(lab)
    lab.script += packed(*[1.0] * 9)
    decision = live(lab, "latency", by(Bound(0.0105, False, 0.05, "log")))
    assert decision is not None
    assert (decision.verdict, lab.launched - 3) == ("invalid", 6)
    assert decision.reason.endswith(NEVER.replace("16 visits", "8 visits"))


def test_launches_of_earlier_versions_are_judged_by_their_steady_blocks(lab: Laboratory) -> None:
    """Nobody kept for how long others left the machine alone: three blocks are enough, and two are none."""
    three = Disturbed(1.2, of_cell=(0, 1, 2, 3), of_others=(4,))
    lab.script, judge = [three, replace(FEW, speedup=9.0), three, three], by(AT_LEAST_1)
    by_the_fastest = decide(lab.run(budget="4").quantity("speedup"), Bound(1.2, True, 0.0, "log"), 0.0)
    assert (by_the_fastest.estimate.launches, lab.launched) == (4, 4)
    change(lab.store, "UPDATE launches SET environment_end = json_remove(environment_end, '$.alone')")
    decision = live(lab, "speedup", judge, offline=True)
    assert decision is not None
    assert (decision.verdict, decision.estimate.launches, decision.notes) == ("pass", 3, ())
    assert decision.estimate.value == pytest.approx(1.2)
    assert told(decision) == told(stored(lab, "speedup", judge))


# A fail is confirmed


def test_a_fail_is_confirmed_by_launches_that_were_left_alone(lab: Laboratory) -> None:
    never = packed(4.0)
    lab.script = [*calm(0.9, 0.91, 0.9), *never, *calm(0.9), *never, *calm(0.89, 0.9), *never, *calm(0.91)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("fail", 7, 10)
    assert decision.reason == "the first 3 launches said fail, 4 fresh ones confirmed it"


def test_a_fail_is_confirmed_by_what_was_left_alone_of_launches(lab: Laboratory) -> None:
    lab.script = [Made(0.9), Made(0.91), Made(0.9), *[replace(FEW, speedup=value) for value in (0.6, 0.61, 0.6, 0.6)]]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("fail", 7, 7)
    assert decision.reason == "the first 3 launches said fail, 4 fresh ones confirmed it"
    assert decision.notes[0] == LEFT_ALONE.format("4 of 7 launches", "73 %")
    assert decision.estimate.value < 0.8


def test_a_fail_that_no_launch_may_confirm_is_none(lab: Laboratory) -> None:
    """All that follow its look would say the same, by all of their visits."""
    lab.script = [*calm(0.9, 0.91, 0.9), *packed(*[0.9] * 20)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("invalid", 3, 9)
    assert decision.reason == (
        "the first 3 launches said fail; of the 4 that confirm it there are 0: the last 6 launches say nothing of it: "
        + NEVER
    )


def test_what_was_left_alone_may_say_the_opposite_of_a_look(lab: Laboratory) -> None:
    lab.script = [Made(0.9), Made(0.91), Made(0.9), *[replace(FEW, speedup=value) for value in (1.9, 1.8, 1.9, 1.8)]]
    decision = by_all(lab)
    assert decision.verdict == "inconclusive"
    assert decision.reason == "the first 3 launches said fail, 4 fresh ones did not confirm it"


NEAR = st.sampled_from((0.9, 0.95, 0.97, 1.0, 1.02, 1.05, 1.1, 2.1, 2.6))


KINDS = st.sampled_from(("calm", "few", "alike", "crowded", "never"))


def of_kind(kind: str, speedup: float) -> Made:
    """Return a launch that others left alone, or disturbed in one way or another."""
    made: dict[str, Made] = {
        "calm": Glanced(speedup),
        "few": replace(FEW, speedup=speedup),
        "alike": slowed_alike(speedup),
        "crowded": Crowded(speedup, others=1.4),
        "never": Glanced(speedup, at_once_ns=240_000),
    }
    return made[kind]


@how_often(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(NEAR, KINDS), min_size=4, max_size=10), st.sampled_from((0.93, 1.0, 1.06)))
def test_what_was_judged_stays_so_whatever_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[tuple[float, str]], last: float
) -> None:
    """The first three launches leave the gate open, by what was left alone of them."""
    folder = tmp_path / str(next(PLACES))
    folder.mkdir()
    lab, judge = Laboratory(folder, monkeypatch), by(AT_LEAST_1)
    lab.script = [replace(FEW, speedup=value) for value in (0.98, 1.15, 1.05)]
    lab.script += [of_kind(kind, value) for value, kind in script]
    lab.script += [Made(last)] * 40
    decision = live(lab, "speedup", judge)
    assert told(decision) == told(stored(lab, "speedup", judge)) == told(live(lab, "speedup", judge, offline=True))
    # A second gate finds what the first one left.
    assert told(decision) == told(live(lab, "speedup", judge))


def again(lab: Laboratory, bound: Bound, budget: str, *, offline: bool = False) -> tuple[str, ...]:
    return told(decide(lab.run(budget=budget, offline=offline).quantity("speedup"), bound, bound.tolerance))


def slowed_alike(speedup: float) -> Made:
    """Return a launch in six of whose eight blocks both sides are slowed, by as much."""
    return Disturbed(speedup, of_cell=(0, 1, 2, 3, 4, 5), of_others=(0, 1, 2, 3, 4, 5))


ALIKE = [Made(0.93), slowed_alike(0.935), Made(0.925)]
LATER = [Made(0.93), Made(0.93), Made(0.93), Made(0.931), *[Made(1.0)] * 30]


@pytest.mark.parametrize("budget", ["3", "50s"])
def test_what_a_budget_ended_is_judged_by_no_launch_that_came_later(lab: Laboratory, budget: str) -> None:
    """By three launches it fails, and four confirm that, which the budget has no room for."""
    lab.script = [replace(one, seconds=20.0) for one in (*ALIKE, *LATER)]
    first = again(lab, AT_LEAST_1, budget)
    assert first[0] == "fail"
    launched = lab.launched
    assert first == again(lab, AT_LEAST_1, budget, offline=True) == again(lab, AT_LEAST_1, budget)
    assert lab.launched == launched == 7


def test_a_budget_of_seconds_ends_in_every_run_with_the_same_launch(lab: Laboratory) -> None:
    """One that does not count took time as well, of which a second run knows nothing."""
    lost = Made(invalid="steal")
    lab.script = [replace(one, seconds=20.0) for one in (ALIKE[0], lost, *ALIKE[1:], *LATER)]
    first = again(lab, AT_LEAST_1, "70s")
    launched = lab.launched
    assert first == again(lab, AT_LEAST_1, "70s", offline=True) == again(lab, AT_LEAST_1, "70s")
    assert lab.launched == launched


def test_what_another_gate_asked_for_changes_no_verdict(lab: Laboratory) -> None:
    lab.script = [*ALIKE, *LATER]
    lower = Bound(0.9, True, 0.05, "log")
    first = again(lab, lower, "3")
    assert (first[0], lab.launched) == ("pass", 3)
    assert again(lab, AT_LEAST_1, "3")[0] == "fail"
    assert lab.launched == 7
    assert first == again(lab, lower, "3", offline=True) == again(lab, lower, "3")


def test_where_the_time_of_the_whole_run_is_over_a_gate_stays_open_and_the_next_run_goes_on(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By all launches it would fail, which those of the next run that are left alone might not."""
    lab.script = [*calm(0.93), *packed(0.935), *calm(0.925), *calm(*[0.93] * 30)]
    with monkeypatch.context() as over:
        over.setattr(Session, "one_more", lambda *_, **__: False)
        over.setattr(Session, "closed", lambda *_: "the run's time is spent")
        decision = decide(lab.run().quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.reason) == ("inconclusive", "the run's time is spent")
    assert (decision.estimate.launches, lab.launched) == (2, 3)
    assert decide(lab.run().quantity("speedup"), AT_LEAST_1, 0.05).estimate.launches > 3
    assert lab.launched > 3


def test_a_group_that_is_given_up_while_a_fail_is_confirmed_is_tried_again(lab: Laboratory) -> None:
    never = packed(0.6)
    lab.script = [*calm(0.93, 0.935, 0.925), *never, *calm(0.93), *never, *calm(0.93), *[Made(invalid="steal")] * 3]
    lab.script += calm(*[0.93] * 8)
    assert decide(lab.run().quantity("speedup"), AT_LEAST_1, 0.05).verdict == "invalid"
    assert decide(lab.run().quantity("speedup"), AT_LEAST_1, 0.05).verdict == "fail"


@how_often(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(NEAR, KINDS), min_size=3, max_size=14),
    st.sampled_from(("3", "4", "6", "8", "16", "50s", "90s", "170s")),
    st.sampled_from((0.93, 1.0, 1.06)),
)
def test_a_verdict_is_that_of_a_second_run_whatever_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[tuple[float, str]], budget: str, last: float
) -> None:
    folder = tmp_path / str(next(PLACES))
    folder.mkdir()
    lab = Laboratory(folder, monkeypatch)
    lab.script = [of_kind(kind, value) for value, kind in script]
    lab.script += [Made(last)] * 60
    lab.script = [replace(one, seconds=20.0) for one in lab.script]
    first = again(lab, AT_LEAST_1, budget)
    assert first == again(lab, AT_LEAST_1, budget, offline=True) == again(lab, AT_LEAST_1, budget)


def test_an_estimate_is_of_launches_that_were_left_alone_where_they_are_enough(lab: Laboratory) -> None:
    """Before a first look of them a number of whatever visits there are is of more use than none."""
    lab.script = [*calm(1.2), *packed(9.0), *calm(1.2), *packed(9.0), *calm(1.2)]
    one = lab.run()
    quantity = one.quantity("speedup")
    estimate = quantity.estimate()
    assert (estimate.launches, lab.launched) == (3, 3)
    assert estimate.value > 2
    assert decide(quantity, AT_LEAST_1, 0.05).verdict == "pass"
    assert lab.launched == 5
    assert one.speedup.value == pytest.approx(1.2)
    assert one.speedup.launches == 3


def test_a_launch_that_is_crowded_throughout_is_known_by_the_ones_before(lab: Laboratory) -> None:
    """All of its glances are alike, and so are the readings of one CPU at a time in all launches."""
    lab.script = [Glanced(1.2), Glanced(9.0, at_once_ns=170_000), Glanced(1.2), Glanced(0.1, at_once_ns=160_000)]
    lab.script += [Glanced(1.21)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 5)
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)
    assert decision.notes == ()


def test_what_is_usual_is_known_from_earlier_runs(lab: Laboratory) -> None:
    calm, crowded = [Glanced(1.2)] * 3, Glanced(9.0, at_once_ns=170_000)
    lab.script = [*calm, crowded, *[Glanced(1.2, at_once_ns=115_000)] * 3]
    assert by_all(lab).verdict == "pass"
    decision = decide(lab.run(batches=(2,)).quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 7)
    assert decision.estimate.value == pytest.approx(1.2)


def test_a_launch_that_does_not_count_does_not_say_what_is_usual_in_its_run_or_a_later_one(lab: Laboratory) -> None:
    """Whoever fills the CPUs makes arithmetic on all of them at once take longer, and says nothing of the machine."""
    busy = Glanced(1.2, at_once_ns=190_000, invalid="others kept 1.9 of 2 CPUs busy")
    lab.script = [busy, *[Glanced(1.2)] * 6]
    assert by_all(lab).verdict == "pass"
    decide(lab.run(batches=(2,)).quantity("speedup"), AT_LEAST_1, 0.05)
    assert lab.crowding[:2] == [None, None]
    assert set(lab.crowding[2:]) == {110_000 / HOME.arithmetic_ns}


def test_where_all_launches_are_as_crowded_nothing_is_left_out(lab: Laboratory) -> None:
    lab.script = [Glanced(value, at_once_ns=170_000) for value in (1.2, 1.21, 1.19)]
    assert (by_all(lab).verdict, lab.launched) == ("pass", 3)


@pytest.mark.parametrize("garbage", ['"much"', "-1", "0", "[]", "1e999"])
@pytest.mark.parametrize("names", [("crowding",), ("fastest",), ("crowding", "fastest")])
def test_garbage_in_place_of_what_is_known_is_not_known(lab: Laboratory, garbage: str, names: tuple[str, ...]) -> None:
    lab.script = [*calm(1.2, 1.2, 1.2), *([*packed(1.3, 1.3, 1.3)] if len(names) > 1 else calm(1.3, 1.3, 1.3))]
    by_all(lab)
    for name in names:
        setting = f"json_set(environment_end, '$.{name}', json('{garbage}'))"
        change(lab.store, f"UPDATE launches SET environment_end = {setting}")
    decision = decide(lab.run(batches=(2,)).quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.estimate.launches) == ("pass", 3)


@pytest.mark.parametrize("garbage", ['"much"', "-1.0", "1.01", "[]", "1e999", "true", "null", '{"a": 1}'])
def test_garbage_in_place_of_how_long_a_launch_was_left_alone_is_none(lab: Laboratory, garbage: str) -> None:
    """Two steady blocks are then worth nothing, as in a launch of an earlier version."""
    lab.script = [replace(FEW, speedup=value) for value in (1.4, 1.41, 1.39)]
    assert by_all(lab).verdict == "pass"
    setting = f"json_set(environment_end, '$.alone', json('{garbage}'))"
    change(lab.store, f"UPDATE launches SET environment_end = {setting}")
    decision = live(lab, "speedup", by(AT_LEAST_1), offline=True)
    assert decision is not None
    assert (decision.verdict, decision.estimate.launches) == ("invalid", 0)


def test_one_calm_launch_is_not_forgotten_for_those_that_follow_it(lab: Laboratory) -> None:
    """If the crowd were what is usual after three of them it would fail, confirmed and without a word."""
    lab.script = [*calm(1.2), *packed(*[0.8] * 40)]
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("invalid", 7)


def test_what_holds_by_far_needs_no_launch_that_was_left_alone(lab: Laboratory) -> None:
    """The first three scatter by too much to show it. Those that follow in the hope for a better one do."""
    learn(lab)
    lab.script += packed(1.6, 2.6, 2.0, 2.2, 2.1, 2.15)
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched - 3) == ("pass", 6, 6)
    assert decision.notes == (
        "others disturbed 6 of 6 launches; it holds with them, and would if it were 1.5 times worse",
    )
    again = live(lab, "speedup", by(AT_LEAST_1), offline=True)
    assert again is not None
    assert told(again) == told(decision)


def test_what_held_by_far_still_does_whatever_came_later(lab: Laboratory) -> None:
    """By those that come it would fail. The ones that were left alone at last are not asked for what was said."""
    learn(lab)
    lab.script += packed(2.7, 1.95, 2.45, 2.2, 2.3, 2.25)
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches) == ("pass", 6)
    lab.close()
    lab.script += calm(*[0.9] * 12)
    # Another gate of these cells, which holds by too little for what was disturbed.
    strict = decide(lab.run(budget="16").quantity("speedup"), Bound(2.0, True, 0.05, "log"), 0.05)
    assert strict.verdict == "fail"
    for offline in (False, True):
        again = live(lab, "speedup", by(AT_LEAST_1), offline=offline)
        assert again is not None
        assert told(again) == told(decision)


def test_a_cell_that_is_quick_now_and_then_does_not_pass_by_that(lab: Laboratory) -> None:
    """Every fifth call returns half a result, or one that is kept: of those alone it would be twice as fast."""
    lab.script = [Quick(speedup) for speedup in (0.8, 0.801, 0.799, 0.8, 0.802, 0.798)]
    decision = decide(lab.run(budget="6").quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.estimate.launches) == ("invalid", 0)
    assert decision.reason == (
        "the last 3 launches say nothing of it: the machine was not steady around 12 visits, and fewer calls of a cell "
        "were quick than were left alone"
    )


SLOWED = Disturbed(1.0, of_cell=(0, 1, 2, 3, 4, 5), of_others=(0, 1, 2, 3, 6, 7))
# Of a cell whose calls take 10 ms, and 15 ms in six visits of eight: what neither of them must decide.
OPEN_BOUNDS = [
    # All visits would say that it is longer, in launch after launch: a fail that is confirmed.
    ("latency", Bound(0.0105, False, 0.05, "log")),
    ("throughput", Bound(95.0, True, 0.05, "log")),
    # It holds with all visits, but not with room.
    ("latency", Bound(0.019, False, 0.05, "log")),
    ("throughput", Bound(55.0, True, 0.05, "log")),
    # What is claimed to be longer is longer by what others did.
    ("latency", Bound(0.001, True, 0.05, "log")),
    ("throughput", Bound(1e9, False, 0.05, "log")),
    ("cpu_percent", Bound(1e9, False, 0.05, "log")),
]


@pytest.mark.parametrize(("metric", "bound"), OPEN_BOUNDS)
def test_a_time_by_itself_needs_steady_visits(lab: Laboratory, metric: str, bound: Bound) -> None:
    lab.script = [SLOWED] * 3
    judge = by(bound)
    decision = live(lab, metric, judge)
    assert decision is not None
    assert told(decision) == told(stored(lab, metric, judge))
    assert (decision.verdict, lab.launched) == ("invalid", 3)
    assert decision.reason == (
        "the last 3 launches say nothing of it: the machine was not steady around 6 visits; fewer than 3 others are "
        "left, which a time by itself needs"
    )


FAR_WITHIN = "others disturbed {} of 3 launches, which only makes calls longer; it holds with them, and would if usual "


@pytest.mark.parametrize("metric", ["latency", "throughput"])
def test_a_time_that_is_far_within_its_bound_passes_whatever_disturbed_it(lab: Laboratory, metric: str) -> None:
    lab.script = [SLOWED, Made(1.0), SLOWED]
    judge = by(Bound(0.200, False, 0.05, "log") if metric == "latency" else Bound(5.0, True, 0.05, "log"))
    decision = live(lab, metric, judge)
    assert decision is not None
    assert told(decision) == told(stored(lab, metric, judge)) == told(live(lab, metric, judge, offline=True))
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 3)
    assert decision.notes == (FAR_WITHIN.format(2) + "ones took 1.5 times as long",)
    # What is shown is what they took, longer than on a steady machine.
    assert decision.estimate.value == pytest.approx(0.013 if metric == "latency" else 77, rel=0.1)


def test_a_percentile_that_is_far_within_its_bound_passes_by_the_calls_it_shows(lab: Laboratory) -> None:
    lab.script = [SLOWED] * 3
    decision = lab.percentile(80, Bound(0.030, False, 0.05, "log"))
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 3)
    assert decision.notes == (FAR_WITHIN.format(3) + "ones took 1.5 times as long",)
    assert decision.estimate.value == pytest.approx(0.015)
    assert decision.estimate.low > 0
    assert decision == lab.percentile(80, Bound(0.030, False, 0.05, "log"), offline=True)


def test_a_percentile_within_its_bound_by_less_is_not_decided_by_disturbed_calls(lab: Laboratory) -> None:
    lab.script = [SLOWED] * 3
    assert lab.percentile(80, Bound(0.020, False, 0.05, "log")).verdict == "invalid"


def test_a_disturbed_pass_needs_equal_processes_that_are_equal(lab: Laboratory) -> None:
    lab.script = [replace(SLOWED, twin=1.4)] * 3
    decision = live(lab, "latency", by(Bound(0.030, False, 0.05, "log")))
    assert decision is not None
    assert decision.verdict == "invalid"


# A machine that is in another state for most blocks

ELSEWHERE = [reading for reading in (AWAY, Reading(100_000, (1_500,)), Reading(100_000, (3_000,))) for _ in range(2)]


def torn(*values: float, away: int = 5, of_cell: tuple[int, ...] = ()) -> list[Made]:
    """Return launches in which so many of eight blocks are in three other states."""
    readings = [(HOME, HOME)] * (8 - away) + [(reading, reading) for reading in ELSEWHERE[:away]]
    return [Disturbed(value, of_cell=of_cell, of_others=(), readings=tuple(readings)) for value in values]


def test_three_steady_blocks_of_the_usual_state_are_worth_a_launch(lab: Laboratory) -> None:
    lab.script = torn(1.2, 1.21, 1.19)
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 3)
    assert lab.listener.notes == []


def test_of_such_a_launch_visits_that_are_not_steady_never_count(lab: Laboratory) -> None:
    """Whoever changes the machine that often was there for some of what is left, too."""
    lab.script = torn(*[1.2] * 3, of_cell=(2,))
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("invalid", 3)
    assert decision.reason == (
        "the last 3 launches say nothing of it: the machine was in another state for most blocks; fewer than 3 of the "
        "others were steady for all of its cells"
    )
    # Not even for a time that is far within its bound: in another state it may be shorter.
    decided = live(lab, "latency", by(Bound(1.0, False, 0.05, "log")), offline=True)
    assert decided is not None
    assert decided.verdict == "invalid"


def test_two_blocks_of_the_usual_state_are_worth_none(lab: Laboratory) -> None:
    lab.script = [*torn(9.0, away=6), *torn(1.2, 1.21, 1.19)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 4)
    assert [note for note in lab.listener.notes if "launch 1 does not count: the machine changed its state" in note]


def test_without_glances_such_a_launch_does_not_count(lab: Laboratory) -> None:
    (one,) = torn(9.0)
    lab.script = [Made(9.0, readings=one.readings), *torn(1.2, 1.21, 1.19)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 4)
    assert [note for note in lab.listener.notes if "launch 1 does not count: the machine changed its state" in note]


def test_launches_in_which_a_time_had_no_steady_visits_are_replaced(lab: Laboratory) -> None:
    lab.script = [Made(1.0), SLOWED, SLOWED, Made(1.0), Made(1.0)]
    decision = live(lab, "latency", by(Bound(0.0105, False, 0.05, "log")))
    assert decision is not None
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 5)

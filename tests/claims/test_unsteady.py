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
from tests.claims.test_claims import AT_LEAST_1, AWAY, HOME, Laboratory, Made
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
# is slow, and in one what it is compared with.
FEW = Disturbed(4.0, of_cell=(0, 1, 2, 3, 4), of_others=(1, 2, 3, 5))
NOTED = "the machine was steady in fewer than 3 blocks of {}: there, unsteady visits count too"


def test_where_fewer_than_three_blocks_are_steady_all_visits_count_and_the_verdict_says_so(lab: Laboratory) -> None:
    """Of the six middle contrasts five are those of equal visits, and one is of the cell's slow one alone."""
    lab.script = [replace(FEW, speedup=value) for value in (4.0, 4.02, 3.98, 4.0, 4.01)]
    decision = by_all(lab)
    assert decision.verdict == "pass"
    assert decision.estimate.value == pytest.approx(4.0 / 1.5 ** (1 / 6), rel=0.01)
    assert decision.notes == (NOTED.format(f"{lab.launched} of {lab.launched} launches"),)


def test_where_all_of_a_look_are_far_within_the_bound_those_with_few_steady_blocks_count(lab: Laboratory) -> None:
    lab.script = [FEW, Made(4.0), Disturbed(4.0, of_cell=(1, 4, 6)), *[Made(4.0)] * 3]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches) == ("pass", lab.launched)
    assert decision.notes == (NOTED.format(f"1 of {lab.launched} launches"),)


def test_as_long_as_steady_launches_are_to_be_had_no_other_counts(lab: Laboratory) -> None:
    """The cell is slow in six blocks of eight of every second launch, and the others in three: by all of them it would
    be anywhere between a fail and a pass.
    """
    disturbed = Disturbed(1.0, of_cell=(0, 1, 2, 3, 4, 5), of_others=(0, 1, 2))
    lab.script = [disturbed, Made(1.0), disturbed, Made(1.001), disturbed, Made(0.999)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 6)
    assert decision.estimate.value == pytest.approx(1.0, rel=0.001)
    assert decision.notes == ()


def test_where_three_launches_in_a_row_have_too_few_steady_blocks_all_count(lab: Laboratory) -> None:
    """It holds by less than the room that a pass by such launches needs as long as others are to be had."""
    lab.script = [replace(FEW, speedup=value) for value in (1.40, 1.41, 1.39, 1.40, 1.41, 1.39)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches) == ("pass", lab.launched)
    assert 3 < lab.launched < 7
    assert decision.notes == (NOTED.format(f"{lab.launched} of {lab.launched} launches"),)


def test_what_the_budget_ends_is_judged_by_all_launches_there_are(lab: Laboratory) -> None:
    lab.script = [Made(1.40), replace(FEW, speedup=1.41), Made(1.39)]
    decision = decide(lab.run(budget="3").quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 3)
    assert decision.notes == (NOTED.format("1 of 3 launches"),)


def test_a_fail_is_confirmed_by_steady_launches(lab: Laboratory) -> None:
    slow, few = Made(0.9), replace(FEW, speedup=4.0)
    lab.script = [slow, Made(0.91), slow, few, slow, few, Made(0.89), slow, few, Made(0.91)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("fail", 7, 10)
    assert decision.reason == "the first 3 launches said fail, 4 fresh ones confirmed it"


def test_where_steady_launches_are_not_to_be_had_a_fail_is_confirmed_by_all_that_follow_its_look(
    lab: Laboratory,
) -> None:
    """By those of its look as well it would be confirmed by what it was chosen for."""
    few = [replace(FEW, speedup=value) for value in (0.6, 0.61, 0.6, 0.6)]
    lab.script = [Made(0.9), replace(FEW, speedup=9.0), Made(0.91), Made(0.9), *few]
    judge = by(AT_LEAST_1)
    decision = live(lab, "speedup", judge)
    assert decision is not None
    # One of the eight was before the look's last one, and has no part in what is said.
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("fail", 7, 8)
    assert decision.reason == "the first 3 launches said fail, 4 fresh ones confirmed it"
    assert decision.notes[0] == NOTED.format("4 of 7 launches")
    assert decision.estimate.value < 0.8
    assert told(decision) == told(stored(lab, "speedup", judge)) == told(live(lab, "speedup", judge, offline=True))


def test_all_that_follow_a_look_may_say_the_opposite_of_it(lab: Laboratory) -> None:
    lab.script = [Made(0.9), Made(0.91), Made(0.9), *[replace(FEW, speedup=value) for value in (1.9, 1.8, 1.9, 1.8)]]
    decision = by_all(lab)
    assert decision.verdict == "inconclusive"
    assert decision.reason == "the first 3 launches said fail, 4 fresh ones did not confirm it"


NEAR = st.sampled_from((0.9, 0.95, 0.97, 1.0, 1.02, 1.05, 1.1))


@how_often(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(NEAR, st.booleans()), min_size=4, max_size=10), st.sampled_from((0.93, 1.0, 1.06)))
def test_what_was_judged_by_all_launches_stays_so_whatever_steady_ones_came_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[tuple[float, bool]], last: float
) -> None:
    """Three launches in a row have too few steady blocks, and the gate was open by all of them."""
    folder = tmp_path / str(next(PLACES))
    folder.mkdir()
    lab, judge = Laboratory(folder, monkeypatch), by(AT_LEAST_1)
    lab.script = [replace(FEW, speedup=value) for value in (1.02, 1.15, 1.09)]
    lab.script += [replace(FEW, speedup=value) if few else Made(value) for value, few in script]
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
    """By all three launches it fails, four confirm that, and steady ones are enough for its look by then."""
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
    """By all launches it would fail, which steady ones of the next run might not."""
    lab.script = [*ALIKE, *LATER]
    with monkeypatch.context() as over:
        over.setattr(Session, "one_more", lambda *_, **__: False)
        over.setattr(Session, "closed", lambda *_: "the run's time is spent")
        decision = decide(lab.run().quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.reason) == ("inconclusive", "the run's time is spent")
    assert (decision.estimate.launches, lab.launched) == (2, 3)
    assert decide(lab.run().quantity("speedup"), AT_LEAST_1, 0.05).estimate.launches > 3
    assert lab.launched > 3


def test_a_group_that_is_given_up_while_a_fail_is_confirmed_is_tried_again(lab: Laboratory) -> None:
    few = replace(FEW, speedup=0.6)
    lab.script = [Made(0.93), Made(0.935), Made(0.925), few, Made(0.93), few, Made(0.93), *[Made(invalid="steal")] * 3]
    lab.script += [Made(0.93)] * 8
    assert decide(lab.run().quantity("speedup"), AT_LEAST_1, 0.05).verdict == "invalid"
    assert decide(lab.run().quantity("speedup"), AT_LEAST_1, 0.05).verdict == "fail"


@how_often(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(NEAR, st.booleans()), min_size=3, max_size=14),
    st.sampled_from(("3", "4", "6", "8", "16", "50s", "90s", "170s")),
    st.sampled_from((0.93, 1.0, 1.06)),
)
def test_a_verdict_is_that_of_a_second_run_whatever_the_budget(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: list[tuple[float, bool]], budget: str, last: float
) -> None:
    folder = tmp_path / str(next(PLACES))
    folder.mkdir()
    lab = Laboratory(folder, monkeypatch)
    lab.script = [slowed_alike(value) if few else Made(value) for value, few in script]
    lab.script += [Made(last)] * 60
    lab.script = [replace(one, seconds=20.0) for one in lab.script]
    first = again(lab, AT_LEAST_1, budget)
    assert first == again(lab, AT_LEAST_1, budget, offline=True) == again(lab, AT_LEAST_1, budget)


def test_an_estimate_is_of_steady_launches_where_they_are_enough(lab: Laboratory) -> None:
    few = replace(FEW, speedup=9.0)
    lab.script = [few, Made(1.2), few, Made(1.2), Made(1.2)]
    one = lab.run()
    quantity = one.quantity("speedup")
    assert quantity.estimate().launches == 3
    assert decide(quantity, AT_LEAST_1, 0.05).verdict == "pass"
    assert lab.launched == 5
    assert one.speedup.value == pytest.approx(1.2)
    assert one.speedup.launches == 3


@dataclass(frozen=True)
class Glanced(Made):
    """A launch in which arithmetic on both CPUs at once always takes so long."""

    at_once_ns: int = 110_000

    def visit(self, cell: Cell, block: int) -> Visit:
        glance = Reading(self.at_once_ns, (360,))
        return replace(super().visit(cell, block), around=((glance, glance),))


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
def test_garbage_in_place_of_what_is_known_is_not_known(lab: Laboratory, garbage: str) -> None:
    lab.script = [*[Glanced(1.2)] * 3, *[Glanced(1.3, at_once_ns=170_000)] * 3]
    by_all(lab)
    setting = f"json_set(environment_end, '$.crowding', json('{garbage}'))"
    change(lab.store, f"UPDATE launches SET environment_end = {setting}")
    decision = decide(lab.run(batches=(2,)).quantity("speedup"), AT_LEAST_1, 0.05)
    assert (decision.verdict, decision.estimate.launches) == ("pass", 3)


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

"""Gates on a machine that goes to and fro between two states, simulated: half of a launch's blocks are worth a launch.

What is simulated is which blocks are left, the launch values, the state that is judged, looks and confirmation.
"""

from __future__ import annotations

import math

import pytest

from pytest_ngraph.spec.cells import LEAST_BLOCKS
from pytest_ngraph.spec.states import STEADY_SHARE
from tests.support.launch_worlds import TOLERANCE
from tests.support.shared_worlds import BLOCKS
from tests.support.simulator import exceeds, falls_short
from tests.support.switching_worlds import Switching, judge_switching

GATES, RATE = 1000, 0.01
LEAST = math.ceil(STEADY_SHARE * BLOCKS)
# ln(2), as a truth in tolerances.
TWICE = math.log(2) / math.log1p(TOLERANCE)
# One of the two cells minds the other state hardly: what is not seen of it moves their ratio.
UNEQUAL = (0.4, 0.1, 0.4)
STAYS = [(100, 100), (10, 10), (4, 4), (2, 2), (1, 1), (0.5, 0.5), (6, 2), (3, 1), (1, 0.3), (20, 1)]


@pytest.mark.parametrize("slow", [(0.4, 0.3, 0.4), UNEQUAL], ids=["alike", "unequal"])
@pytest.mark.parametrize("stays", STAYS)
def test_however_long_a_machine_stays_in_its_states_no_rate_is_exceeded(
    stays: tuple[float, float], slow: tuple[float, float, float]
) -> None:
    edge, bound, room = judge_switching(Switching(stays, slow), -1.0, 0.0, 0.5, least=LEAST, gates=GATES, seed=3)
    assert not exceeds(edge.passes, GATES, RATE)
    assert not exceeds(bound.fails, GATES, RATE)
    assert not exceeds(room.fails, GATES, RATE)


@pytest.mark.parametrize(("stays", "decided"), [((4, 4), 0.8), ((3, 1), 0.75), ((6, 2), 0.9), ((2, 2), 0.2)])
def test_states_that_change_within_launches_leave_most_gates_decided(
    stays: tuple[float, float], decided: float
) -> None:
    """With five of eight blocks, as it was before, fewer of these are: 29, 47, 76 and 1 % at the edge."""
    now, before = (
        judge_switching(Switching(stays), -1.0, 0.0, least=least, gates=GATES, seed=5) for least in (LEAST, 5)
    )
    for one, other in zip(now, before, strict=True):
        assert not falls_short(round(one.decided * GATES), GATES, decided)
        assert one.decided > other.decided + 0.05


def test_with_three_blocks_of_eight_more_would_pass_than_is_promised() -> None:
    """The negative control: where states come and go within blocks most of what is left was in neither."""
    coming_and_going = Switching((0.5, 0.5), UNEQUAL)
    least = LEAST_BLOCKS
    assert least < LEAST
    (edge,) = judge_switching(coming_and_going, -1.0, least=least, gates=8 * GATES, seed=3)
    assert exceeds(edge.passes, 8 * GATES, RATE)


def test_who_does_not_look_at_the_state_lets_pass_what_is_too_slow_in_one_of_them() -> None:
    """A second negative control: in the other state the ratio is better, and its blocks are taken for this one's."""
    (edge,) = judge_switching(Switching((4, 4), UNEQUAL, read=False), -1.0, least=LEAST, gates=GATES, seed=7)
    assert edge.passes > 0.05 * GATES


# With glances around visits, those that nobody disturbed count if they are left in half of the blocks, and else what
# was left alone. No visit is repeated, but launches make up to eight further blocks where too few were quiet. What
# readings tell, too, is a state of the machine, and what glances alone tell is another guest.

ALIKE, EQUAL = (0.4, 0.3, 0.4), (0.4, 0.4, 0.4)
WORLDS = {
    "alike": (ALIKE, True),
    "unequal": (UNEQUAL, True),
    "equal": (EQUAL, True),
    "alike, a guest": (ALIKE, False),
    "unequal, a guest": (UNEQUAL, False),
}


@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("stays", [*STAYS, (0.2, 0.2), (0.5, 0.1), (2, 0.2), (0.3, 0.5), (0.1, 0.2)])
def test_whoever_comes_and_goes_between_glances_no_rate_is_exceeded(stays: tuple[float, float], world: str) -> None:
    slow, read = WORLDS[world]
    machine = Switching(stays, slow, read)
    edge, bound, room = judge_switching(machine, -1.0, 0.0, 0.5, least=LEAST, gates=GATES, seed=3, glances=True)
    assert not exceeds(edge.passes, GATES, RATE)
    assert not exceeds(bound.fails, GATES, RATE)
    assert not exceeds(room.fails, GATES, RATE)


def test_what_was_left_alone_of_a_launch_says_nothing_of_a_slower_state_that_it_was_measured_in() -> None:
    """The negative control: its fastest calls are of the other state, and what was left alone is only known of that."""
    machine = Switching((0.1, 0.2), UNEQUAL)
    (rightly,), (in_any,) = (
        judge_switching(machine, 0.0, least=LEAST, gates=GATES, seed=3, glances=True, any_state=each)
        for each in (False, True)
    )
    assert rightly.fails == 0
    assert in_any.fails > 0.2 * GATES


@pytest.mark.parametrize("read", [True, False], ids=["a state", "a guest"])
@pytest.mark.parametrize("stays", [(2, 0.3), (1, 0.3), (4, 1)])
def test_where_others_come_for_a_few_visits_glances_decide_what_readings_around_blocks_leave_open(
    stays: tuple[float, float], read: bool
) -> None:
    with_glances, without = (
        judge_switching(Switching(stays, EQUAL, read), -1.0, 0.0, least=LEAST, gates=GATES, seed=5, glances=glances)
        for glances in (True, False)
    )
    for one, other in zip(with_glances, without, strict=True):
        assert one.decided > other.decided + 0.01
        assert one.launches < other.launches


@pytest.mark.parametrize("slow", [UNEQUAL, EQUAL], ids=["unequal", "equal"])
@pytest.mark.parametrize(("stays", "decided"), [((2, 2), 0.95), ((1, 1), 0.95), ((0.5, 0.5), 0.95), ((0.3, 0.5), 0.85)])
def test_beside_a_guest_that_leaves_few_steady_blocks_what_was_left_alone_decides(
    stays: tuple[float, float], decided: float, slow: tuple[float, float, float]
) -> None:
    machine = Switching(stays, slow, read=False)
    now, by_steady = (
        judge_switching(machine, -1.0, 0.0, least=LEAST, gates=GATES, seed=5, glances=True, only_steady=only)
        for only in (False, True)
    )
    for one, other in zip(now, by_steady, strict=True):
        assert not falls_short(round(one.decided * GATES), GATES, decided)
        assert other.decided < 0.5


@pytest.mark.parametrize("stays", [(0.5, 0.5), (0.3, 0.5), (0.5, 0.1), (1, 1)])
def test_a_claim_with_room_is_decided_beside_a_guest_as_often_as_if_nobody_had_glanced(
    stays: tuple[float, float],
) -> None:
    """At twice the bound, in launches of eight blocks."""
    machine = Switching(stays, EQUAL, read=False)
    (now,), (without,) = (
        judge_switching(machine, TWICE, least=LEAST, gates=GATES, seed=5, glances=glances, further=False)
        for glances in (True, False)
    )
    assert now.decided >= without.decided - 0.01
    assert now.fails == 0


def test_where_launches_say_nothing_else_a_claim_with_room_passes_by_those_there_are_or_is_invalid() -> None:
    """A guest leaves the machine alone for a sixth of the time."""
    machine = Switching((0.2, 1), EQUAL, read=False)
    bound, twice, four_times = judge_switching(
        machine, 0.0, TWICE, 2 * TWICE, least=LEAST, gates=GATES, seed=5, glances=True, further=False
    )
    assert bound.invalid > 0.8 * GATES
    assert not falls_short(twice.passes, GATES, 0.9)
    assert not falls_short(four_times.passes, GATES, 0.95)
    assert twice.fails == four_times.fails == 0


@pytest.mark.parametrize(
    ("stays", "read", "more"),
    [((2, 2), True, 0.04), ((1, 1), True, 0.3), ((1, 0.3), True, 0.05), ((0.3, 0.5), False, 0.05)],
)
def test_further_blocks_decide_gates_that_launches_of_eight_leave_open(
    stays: tuple[float, float], read: bool, more: float
) -> None:
    """At the bound itself, with no more false verdicts: how many blocks there are is said by readings and glances."""
    machine = Switching(stays, EQUAL, read)
    (edge, bound), (_, without) = (
        judge_switching(machine, -1.0, 0.0, least=LEAST, gates=GATES, seed=9, glances=True, further=further)
        for further in (True, False)
    )
    assert bound.decided > without.decided + more
    assert not exceeds(edge.passes, GATES, RATE)
    assert not exceeds(bound.fails, GATES, RATE)

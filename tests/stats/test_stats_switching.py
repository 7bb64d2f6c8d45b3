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
    """With five of eight blocks, as it was before, fewer of these are: 34, 48, 78 and 2 % at the edge."""
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
    (edge,) = judge_switching(Switching((4, 4), UNEQUAL), -1.0, least=LEAST, gates=GATES, seed=7, blind=True)
    assert edge.passes > 0.05 * GATES


# With glances around visits, those that nobody disturbed count if they are left in three blocks, and else all. No visit
# is repeated, but launches make up to eight further blocks where too few were quiet.


@pytest.mark.parametrize("slow", [(0.4, 0.3, 0.4), UNEQUAL, (0.4, 0.4, 0.4)], ids=["alike", "unequal", "equal"])
@pytest.mark.parametrize("stays", [*STAYS, (0.2, 0.2), (0.5, 0.1), (2, 0.2), (0.3, 0.5)])
def test_whoever_comes_and_goes_between_glances_no_rate_is_exceeded(
    stays: tuple[float, float], slow: tuple[float, float, float]
) -> None:
    machine = Switching(stays, slow)
    edge, bound, room = judge_switching(machine, -1.0, 0.0, 0.5, least=LEAST, gates=GATES, seed=3, glances=True)
    assert not exceeds(edge.passes, GATES, RATE)
    assert not exceeds(bound.fails, GATES, RATE)
    assert not exceeds(room.fails, GATES, RATE)


@pytest.mark.parametrize("stays", [(2, 0.3), (1, 0.3), (4, 1)])
def test_where_others_come_for_a_few_visits_glances_decide_what_readings_around_blocks_leave_open(
    stays: tuple[float, float],
) -> None:
    machine = Switching(stays, (0.4, 0.4, 0.4))
    with_glances, without = (
        judge_switching(machine, -1.0, 0.0, least=LEAST, gates=4 * GATES, seed=5, glances=glances)
        for glances in (True, False)
    )
    for one, other in zip(with_glances, without, strict=True):
        assert one.decided > other.decided + 0.01
        assert one.launches < other.launches


@pytest.mark.parametrize("stays", [(0.5, 0.5), (0.3, 0.5), (0.5, 0.1), (1, 1)])
def test_a_claim_with_room_is_decided_as_often_as_if_nobody_had_glanced(stays: tuple[float, float]) -> None:
    """At twice the bound. If only steady blocks counted more of these gates stayed open, in launches of eight."""
    machine, room = Switching(stays, (0.4, 0.4, 0.4)), math.log(2) / math.log1p(TOLERANCE)
    kept = {"further": False}
    (now,), (eight,), (never,), (without,) = (
        judge_switching(machine, room, least=LEAST, gates=GATES, seed=5, **how)
        for how in (
            {"glances": True},
            {"glances": True, **kept},
            {"glances": True, "fallback": False, **kept},
            {},
        )
    )
    assert now.decided >= without.decided - 0.01
    assert eight.decided > never.decided + 0.05
    assert now.fails == eight.fails == 0


@pytest.mark.parametrize(("stays", "more"), [((2, 2), 0.04), ((1, 1), 0.4), ((1, 0.3), 0.05), ((0.3, 0.5), 0.1)])
def test_further_blocks_decide_gates_that_launches_of_eight_leave_open(stays: tuple[float, float], more: float) -> None:
    """At the bound itself, with no more false verdicts: how many blocks there are is said by readings and glances."""
    machine = Switching(stays, (0.4, 0.4, 0.4))
    (edge, bound), (_, without) = (
        judge_switching(machine, -1.0, 0.0, least=LEAST, gates=GATES, seed=9, glances=True, further=further)
        for further in (True, False)
    )
    assert bound.decided > without.decided + more
    assert not exceeds(edge.passes, GATES, RATE)
    assert not exceeds(bound.fails, GATES, RATE)

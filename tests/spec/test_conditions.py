"""States of the machine: which readings are of one state, and which blocks and launches are compared."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ngraph.spec.cells import LaunchRecord, Reading
from pytest_ngraph.spec.states import alike, away, describe, home, same_state, wanted_states, why_changed

NEAR, FAR, SLOW = Reading(100_000, (360,)), Reading(100_000, (720,)), Reading(150_000, (360,))
# Like both of two that are not like each other: to be of one state is not transitive.
WIDE, BETWEEN = Reading(100_000, (600,)), Reading(100_000, (465,))


def launches(*homes: Reading | None) -> list[LaunchRecord]:
    return [LaunchRecord(number, 0, "gate", home=state) for number, state in enumerate(homes)]


def numbers(found: Sequence[LaunchRecord]) -> list[int]:
    return [record.number for record in found]


@pytest.mark.parametrize(
    ("one", "other", "expected"),
    [
        (NEAR, NEAR, True),
        (NEAR, FAR, False),
        (NEAR, SLOW, False),
        (NEAR, replace(NEAR, arithmetic_ns=119_900), True),
        (NEAR, replace(NEAR, arithmetic_ns=120_100), False),
        (NEAR, Reading(100_000, (485,)), True),
        (NEAR, Reading(100_000, (487,)), False),
        (Reading(100_000), Reading(110_000), True),
        (Reading(100_000), Reading(130_000), False),
        (Reading(1, (360, 360, 360)), Reading(1, (360, 400, 360)), True),
        (Reading(1, (360, 360, 360)), Reading(1, (360, 720, 360)), False),
        # Another number of CPUs is another machine.
        (Reading(1, (360,)), Reading(1, (360, 360)), False),
        (Reading(1), Reading(1, (360,)), False),
    ],
)
def test_readings_of_one_state_differ_by_little_whichever_comes_first(
    one: Reading, other: Reading, expected: bool
) -> None:
    assert alike(one, other) is expected
    assert alike(other, one) is expected


def test_home_is_what_most_readings_are_like_and_the_first_of_several() -> None:
    assert home([]) is None
    assert home([FAR]) is FAR
    assert home([FAR, NEAR, NEAR]) == NEAR
    assert home([FAR, NEAR, NEAR, FAR]) == FAR
    assert home([NEAR, FAR, FAR, NEAR]) == NEAR
    # Both others are like it.
    assert home([NEAR, WIDE, BETWEEN]) == BETWEEN
    assert home(iter([SLOW, NEAR, NEAR])) == NEAR


@given(
    st.lists(
        st.builds(
            Reading, st.sampled_from((90_000, 100_000, 119_000, 150_000)), st.sampled_from(((360,), (465,), (600,)))
        ),
        max_size=16,
    )
)
def test_home_is_the_same_as_by_comparing_each_with_each(readings: list[Reading]) -> None:
    """Also of readings that another launch had: what is found once is kept."""
    expected = max(readings, key=lambda one: sum(alike(one, other) for other in readings), default=None)
    assert home(readings) is home(list(readings)) is expected


def test_blocks_between_other_readings_are_away() -> None:
    usual = (NEAR, NEAR)

    assert away([]) == frozenset()
    assert away([usual] * 4) == frozenset()
    assert away([usual, usual, (FAR, FAR), usual]) == {2}
    # The machine changed in the middle of a block: what it measured is of two states.
    assert away([usual, (NEAR, FAR), (FAR, FAR), (FAR, NEAR), usual, usual]) == {1, 2, 3}
    # Half of them each: the first state is the usual one.
    assert away([(FAR, FAR), (FAR, FAR), usual, usual]) == {2, 3}


def test_blocks_without_readings_are_where_most_are() -> None:
    assert away([None, None]) == frozenset()
    assert away([None, (NEAR, NEAR), (NEAR, NEAR), (FAR, FAR)]) == {3}


def test_launches_without_readings_are_of_one_state() -> None:
    found = launches(None, None, None, None)
    assert same_state(found) == found
    assert same_state([]) == []
    # They are not of the state of those that have any.
    assert numbers(same_state(launches(None, NEAR, NEAR))) == [1, 2]


def test_the_first_state_with_three_launches_is_judged_whatever_follows() -> None:
    assert numbers(same_state(launches(NEAR, FAR))) == [0]
    assert numbers(same_state(launches(NEAR, FAR, FAR))) == [1, 2]
    assert numbers(same_state(launches(NEAR, FAR, FAR, NEAR))) == [0, 3]
    assert numbers(same_state(launches(NEAR, FAR, FAR, NEAR, FAR))) == [1, 2, 4]
    assert numbers(same_state(launches(NEAR, FAR, FAR, NEAR, FAR, *[NEAR] * 5))) == [1, 2, 4]
    assert numbers(same_state(launches(NEAR, FAR, FAR, NEAR, FAR, NEAR, FAR))) == [1, 2, 4, 6]


STATES = st.lists(st.sampled_from([NEAR, FAR, SLOW, BETWEEN, WIDE, None]), max_size=14)


@given(STATES)
def test_once_three_launches_are_chosen_later_ones_only_join_them(homes: list[Reading | None]) -> None:
    """What is judged live at the third launch is what a later run, with more of them in the store, judges."""
    found = launches(*homes)
    chosen: list[int] = []
    for count in range(len(found) + 1):
        now = numbers(same_state(found[:count]))
        assert now == sorted(now)
        if len(chosen) >= 3:
            assert now[: len(chosen)] == chosen
            assert set(now[len(chosen) :]) <= {count - 1}
        chosen = now


@given(STATES)
def test_launches_of_one_state_are_like_one_of_them(homes: list[Reading | None]) -> None:
    chosen = same_state(launches(*homes))

    assert bool(chosen) == bool(homes)
    assert any(
        all(one.home is other.home or (one.home and other.home and alike(one.home, other.home)) for other in chosen)
        for one in chosen
    ) == bool(chosen)


@given(STATES)
def test_a_wanted_state_is_of_a_launch_and_after_three_it_is_theirs(homes: list[Reading | None]) -> None:
    found = launches(*homes)
    wanted = wanted_states(found)

    assert set(wanted) <= set(homes)
    chosen = same_state(found)
    if len(chosen) >= 3:
        assert len(wanted) <= 1
        assert (wanted == ()) == (chosen[0].home is None)
        assert all(any(one.home == state for one in chosen) for state in wanted)


@given(STATES, st.sampled_from([NEAR, FAR, SLOW, BETWEEN, WIDE]))
@example([NEAR, BETWEEN, WIDE, WIDE, WIDE], NEAR)
def test_a_launch_in_the_wanted_state_is_judged_with_the_others(homes: list[Reading | None], state: Reading) -> None:
    found = launches(*homes)
    chosen, wanted = same_state(found), wanted_states(found)

    if len(chosen) >= 3 and any(alike(one, state) for one in wanted):
        assert len(same_state(launches(*homes, state))) == len(chosen) + 1


def test_a_further_launch_is_wanted_in_the_state_that_leads_or_in_any_of_several() -> None:
    assert wanted_states([]) == ()
    assert wanted_states(launches(None, None)) == ()
    assert wanted_states(launches(NEAR)) == (NEAR,)
    assert wanted_states(launches(NEAR, FAR)) == (NEAR, FAR)
    assert wanted_states(launches(NEAR, FAR, FAR)) == (FAR,)
    assert wanted_states(launches(NEAR, FAR, FAR, NEAR)) == (NEAR, FAR)
    assert wanted_states(launches(NEAR, FAR, FAR, NEAR, FAR)) == (FAR,)
    # The third one decided, though others lead by now.
    assert wanted_states(launches(FAR, FAR, FAR, *[NEAR] * 7)) == (FAR,)


def test_a_reading_is_written_for_people() -> None:
    assert describe(Reading(187_400, (360, 720))) == "arithmetic 187 us, CPU to CPU 360/720 ns"
    assert describe(Reading(187_400)) == "arithmetic 187 us"


def test_a_change_of_state_names_the_reading_that_differs_most_and_not_eight_alike() -> None:
    usual, near, far = Reading(231_000, (341,)), Reading(214_000, (330,)), Reading(160_000, (271,))
    around = [(usual, near), (near, usual), (usual, usual), (far, usual), (usual, far), (far, far), (near, far)]

    said = why_changed([(block, True) for block in range(len(around))], around)

    assert said == (
        "the machine changed its state while it was timed (arithmetic 231 us, CPU to CPU 341 ns in most readings, "
        "arithmetic 160 us, CPU to CPU 271 ns in the furthest; 4 of 7 blocks differ)"
    )

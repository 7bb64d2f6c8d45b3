"""Which visits a machine was steady for: what glances usually read, and what a cell does to the machine itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.spec.cells import Cell, CompilerSpec, Reading, Workload
from pytest_ngraph.spec.states.steadiness import (
    Around,
    Steadiness,
    lacks_blocks,
    seen,
    unsteady,
    usual_crowding,
)
from pytest_ngraph.workloads.kinds import parse_model

USUAL = Reading(150_000, (290,))
SLOWER, APART, TOGETHER = Reading(225_000, (330,)), Reading(150_000, (470,)), Reading(150_000, (180,))
BLOCKS = 8
MODEL = parse_model("block:conv")
CELLS = [Cell("local", CompilerSpec("null"), Workload(MODEL, batch)) for batch in (1, 2, 4, 8)]
Visits = dict[tuple[Cell, int], Sequence[Around]]


def visits() -> Visits:
    """Return a launch of steady visits."""
    return {(cell, block): [(USUAL, USUAL)] for cell in CELLS for block in range(BLOCKS)}


def steadiness(*glances: Reading) -> Steadiness:
    """Return what these glances say is usual."""
    found = Steadiness()
    for glance in glances:
        found.saw(glance)
    return found


@pytest.mark.parametrize("other", [SLOWER, APART, TOGETHER], ids=["slower", "apart", "together"])
def test_what_differs_from_most_is_unusual_and_jitter_is_not(other: Reading) -> None:
    known = steadiness(*[USUAL] * 9, other, other)
    assert not known.is_usual(other)
    assert known.is_usual(Reading(160_000, (350,)))


def test_faster_arithmetic_was_not_slowed_and_up_to_seventy_of_a_hundred_glances_may_have_been() -> None:
    """On a busy host most glances may be at a machine that is disturbed, and differ from one another."""
    assert steadiness(*[USUAL] * 9).is_usual(replace(USUAL, arithmetic_ns=100_000))
    slowed = [replace(USUAL, arithmetic_ns=215_000 + 500 * number) for number in range(70)]
    known = steadiness(*[USUAL] * 30, *slowed)
    assert known.is_usual(USUAL)
    assert not any(map(known.is_usual, slowed))


def test_of_few_glances_any_is_usual() -> None:
    assert steadiness(*[USUAL] * 7).is_usual(APART)
    assert not steadiness(*[USUAL] * 8).is_usual(APART)
    assert Steadiness().is_usual(APART)


def test_a_glance_at_other_cpus_is_unusual() -> None:
    known = steadiness(*[USUAL] * 9)
    assert not known.is_usual(Reading(150_000, ()))
    assert not known.is_usual(Reading(150_000, (290, 290)))


def test_on_one_cpu_the_arithmetic_alone_says_it() -> None:
    known = steadiness(*[Reading(150_000)] * 9)
    assert known.is_usual(Reading(155_000))
    assert not known.is_usual(Reading(225_000))


def test_a_visit_is_left_out_for_what_came_before_it_or_after_it() -> None:
    found = visits()
    before, after = (CELLS[0], 1), (CELLS[2], 5)
    found[before], found[after] = [(SLOWER, USUAL)], [(USUAL, APART)]
    assert unsteady(found) == {before, after}


def test_visits_without_glances_and_of_launches_without_any_stay() -> None:
    assert unsteady({}) == frozenset()
    assert unsteady(dict.fromkeys(visits(), ())) == frozenset()
    found = visits()
    found[CELLS[0], 3] = []
    assert unsteady(found) == frozenset()


def test_a_cell_that_slows_the_machine_down_itself_keeps_its_visits() -> None:
    """Its clocks fall under what it does, or it goes on when its calls have ended: part of what it costs."""
    found = visits()
    for block in range(BLOCKS):
        found[CELLS[3], block] = [(USUAL, SLOWER)]
    # Somebody else comes and goes as well.
    found[CELLS[0], 2] = [(SLOWER, USUAL)]
    assert unsteady(found) == {(CELLS[0], 2)}


def test_a_cell_cannot_have_its_slow_visits_left_out_by_disturbing_what_follows_them() -> None:
    """An adapter that burns the CPUs after each slow visit would be left with the fast ones."""
    found = visits()
    slow = [(CELLS[1], block) for block in range(5)]
    found |= {key: [(USUAL, SLOWER)] for key in slow}
    assert not unsteady(found) & set(slow)


def test_tries_that_were_made_again_tell_whose_doing_it_is() -> None:
    """What is left looks clean but for one visit; the glances of what it was made again for are kept."""
    found = visits()
    found |= {(CELLS[1], block): [(USUAL, SLOWER), (USUAL, USUAL)] for block in range(7)}
    found[CELLS[1], 7] = [(USUAL, SLOWER)] * 4
    assert unsteady(found) == frozenset()
    assert unsteady({place: tries[-1:] for place, tries in found.items()}) == {(CELLS[1], 7)}


def test_what_disturbs_all_cells_alike_is_nobodys_doing() -> None:
    draw = random.Random(4)
    taken = 0
    for _ in range(200):
        found = visits()
        shaken = {place for place in found if draw.random() < 0.3}
        found |= {key: [(USUAL, SLOWER)] for key in shaken}
        taken += unsteady(found) != shaken
    # By chance a cell has so many more than the others in 1 of 100 launches.
    assert taken <= 6


def test_a_single_cell_is_compared_with_nobody() -> None:
    found: Visits = {(CELLS[0], block): [(USUAL, SLOWER if block < 3 else USUAL)] for block in range(BLOCKS)}
    assert unsteady(found) == {(CELLS[0], block) for block in range(3)}


readings = st.builds(Reading, st.integers(1, 10**9), st.tuples(st.integers(1, 10**6)))


@given(st.lists(st.lists(st.tuples(readings, readings), max_size=3), max_size=24), st.randoms())
def test_whatever_was_read_visits_without_glances_stay_and_some_of_the_others(
    tries: list[list[Around]], draw: random.Random
) -> None:
    found = {(CELLS[number % 4], number // 4): each for number, each in enumerate(tries)}
    left_out = unsteady(found)
    assert left_out <= {place for place, each in found.items() if each}
    if 0 < 2 * sum(map(len, tries)) < 8:
        assert not left_out


# A machine that is crowded throughout a launch

CALM = [(Reading(140_000, (290,)), Reading(140_000, (290,)))] * BLOCKS
CROWD = Reading(240_000, (290,))


def crowded(*but: tuple[Cell, int]) -> Visits:
    """Return a launch in which both CPUs shared a core but for some visits. One at a time they were as fast as ever."""
    return {place: [(USUAL, USUAL) if place in but else (CROWD, CROWD)] for place in visits()}


def test_what_earlier_launches_knew_tells_that_a_whole_launch_is_crowded() -> None:
    """By itself it looks steady: all of its glances are alike."""
    left = {(cell, 2) for cell in CELLS}
    found = crowded(*left)
    assert unsteady(found, CALM) == frozenset()
    assert unsteady(found, CALM, 1.09) == found.keys() - left
    assert lacks_blocks(CALM, found, 1.09)
    assert not lacks_blocks(CALM, found)
    assert not lacks_blocks(CALM, crowded(), 1.09), "no block is to be hoped for"


def test_other_clocks_are_no_crowd() -> None:
    """All arithmetic takes half as long again, one CPU at a time, too."""
    slow = [tuple(replace(reading, arithmetic_ns=210_000) for reading in pair) for pair in CALM]
    assert unsteady(crowded(), slow, 1.09) == frozenset()  # type: ignore[arg-type]


def test_a_machine_that_is_always_crowded_is_steady_as_it_is() -> None:
    """Its two CPUs are threads of one core. And what is less crowded than usual needs no excuse."""
    assert unsteady(crowded(), CALM, 1.71) == frozenset()
    assert unsteady(visits(), CALM, 1.71) == frozenset()


def test_the_crowding_of_a_launch_is_of_what_is_usual_in_it() -> None:
    assert seen(CALM, visits()).crowding == pytest.approx(150 / 140)
    assert seen(CALM, crowded()).crowding == pytest.approx(240 / 140)
    shaken = crowded(*((cell, block) for cell in CELLS for block in range(3)))
    assert seen(CALM, shaken).crowding == pytest.approx(150 / 140)
    assert seen([None] * BLOCKS, visits()).crowding is None
    assert seen(CALM, dict.fromkeys(visits(), ())).crowding is None


def test_what_is_usual_is_what_an_eighth_of_the_latest_launches_are_below() -> None:
    """In a bad hour most launches are crowded; a machine that has changed for good is believed after some.

    Of fewer than eight it is the least: three crowded ones must not make crowded what one calm launch was not.
    """
    assert usual_crowding([1.09, *[1.7] * 6]) == 1.09
    assert usual_crowding([]) is None
    assert usual_crowding([1.7, 1.09]) == 1.09
    assert usual_crowding([1.09] * 15 + [1.7] * 35) == 1.09
    assert usual_crowding([1.09] * 50 + [1.7] * 43) == 1.09
    assert usual_crowding([1.09] * 50 + [1.7] * 44) == 1.7


def test_before_eight_glances_a_crowd_is_known_by_earlier_launches_alone() -> None:
    known = Steadiness(1.09)
    assert known.is_usual(CROWD)
    known.saw_state(CALM[0][0])
    assert not known.is_usual(CROWD)
    assert known.is_usual(USUAL)


# For how long others left the machine alone


def test_a_launch_that_is_disturbed_throughout_was_never_left_alone_by_what_earlier_ones_knew() -> None:
    """By itself it is its own lower quartile, and nothing in it differs from anything else."""
    found = seen(CALM, crowded())
    assert unsteady(crowded(), CALM) == frozenset()
    assert found.fastest == pytest.approx(240 / 140)
    assert found.alone(None) == 1.0
    assert found.alone(240 / 140 / 1.5) == 0.0


@pytest.mark.parametrize("known", [None, 150 / 140, 1.3])
def test_a_launch_with_half_of_its_glances_calm_was_left_alone_for_half_of_it(known: float | None) -> None:
    """However slow the others are, and whatever slower ones earlier launches knew."""
    draw = random.Random(1)
    half: Visits = {
        place: [(draw.choice((USUAL, Reading(draw.randint(180_000, 400_000), (290,)))), USUAL)] for place in visits()
    }
    half |= {place: [(each[0][0], CROWD)] for place, each in half.items() if place[1] % 2}
    read = [glance for each in half.values() for pair in each for glance in pair]
    share = sum(glance == USUAL for glance in read) / len(read)
    assert 0.4 < share < 0.6
    assert seen(CALM, half).alone(known) == pytest.approx(share)


def test_a_single_glance_that_is_faster_than_any_does_not_say_what_the_machine_is_like() -> None:
    found = visits()
    found[CELLS[0], 0] = [(Reading(90_000, (290,)), USUAL)]
    assert seen(CALM, found).alone(None) == 1.0


def test_a_single_reading_that_is_faster_than_any_does_not_say_it_either() -> None:
    odd = [*CALM[:-1], (Reading(80_000, (290,)), CALM[0][0])]
    assert seen(odd, visits()).alone(150 / 140) == 1.0


def test_a_words_way_is_that_of_calm_glances_though_most_are_others() -> None:
    """Two CPUs on one core are close to one another, and slow one another."""
    close = Reading(240_000, (180,))
    found: Visits = {place: [(USUAL, USUAL) if place[1] < 3 else (close, close)] for place in visits()}
    share = sum(place[1] < 3 for place in found) / len(found)
    assert share < 0.5
    assert seen(CALM, found).alone(150 / 140) == pytest.approx(share)


@pytest.mark.parametrize(("state", "share"), [(None, 0.0), (Reading(220_000, (290,)), 1.0), (CALM[0][0], 0.0)])
def test_in_a_state_of_slower_clocks_a_launch_is_alone_by_these(state: Reading | None, share: float) -> None:
    """By those of its readings, of which the one that stands for it may be a slow one."""
    slow: Visits = {place: [(Reading(214_000, (290,)), Reading(214_000, (290,)))] for place in visits()}
    readings = [*[(Reading(200_000, (290,)), Reading(220_000, (290,)))] * 6, CALM[0], CALM[0]]
    assert seen(readings, slow).alone(150 / 140, state) == share
    crowd: Visits = {place: [(Reading(250_000, (290,)), Reading(250_000, (290,)))] for place in visits()}
    assert seen(readings, crowd).alone(150 / 140, state) == 0.0


def test_a_few_calm_glances_are_enough_to_know_the_others_without_earlier_launches() -> None:
    found = crowded((CELLS[0], 2), (CELLS[1], 5))
    assert seen(CALM, found).alone(None) == pytest.approx(2 / len(found))


@given(st.lists(st.integers(100_000, 300_000), min_size=8, max_size=40), st.floats(1.0, 2.0))
def test_other_clocks_change_nothing_of_how_long_it_was_left_alone(arithmetic: list[int], known: float) -> None:
    def of_clocks(slower: int) -> float | None:
        around: Visits = {
            (CELLS[0], block): [(Reading(slower * one, (290,)), Reading(slower * one, (290,)))]
            for block, one in enumerate(arithmetic)
        }
        calm = Reading(slower * 140_000, (290,))
        return seen([(calm, calm)] * BLOCKS, around).alone(known)

    assert of_clocks(1) == of_clocks(2)


def test_cpus_that_are_moved_apart_are_not_left_alone() -> None:
    found = visits() | {(cell, block): [(APART, USUAL)] for cell in CELLS for block in range(4)}
    assert seen(CALM, found).alone(150 / 140) == pytest.approx(0.75)


@pytest.mark.parametrize("known", [None, 1.07])
def test_without_readings_or_with_few_glances_nobody_knows_how_long_it_was_left_alone(known: float | None) -> None:
    four: Visits = {(CELLS[0], block): [(USUAL, USUAL)] for block in range(4)}
    assert seen(CALM, four).alone(known) == 1.0
    three = {place: each for place, each in four.items() if place[1] < 3}
    for nothing in (seen([], visits()), seen([None] * BLOCKS, visits()), seen(CALM, three), seen(CALM, {})):
        assert (nothing.alone(known), nothing.fastest, nothing.crowding) == (None, None, None)


# Whether a launch goes on

HERE, THERE = Reading(100_000, (360,)), Reading(150_000, (360,))
TWO, ONE_OF_TWO = CELLS[:2], CELLS[0]


def of_two(blocks: int, *shaken: tuple[Cell, int]) -> Visits:
    """Return the glances of a launch of two cells, that were not as usual before some visits."""
    places = [(cell, block) for block in range(blocks) for cell in TWO]
    return {place: [(SLOWER if place in shaken else USUAL, USUAL)] for place in places}


def test_a_launch_of_which_the_host_took_many_visits_goes_on() -> None:
    """However usual the glances around them are."""
    calm, taken = [(HERE, HERE)] * 8, {(TWO[0], block) for block in range(6)}
    assert not lacks_blocks(calm, of_two(8))
    assert lacks_blocks(calm, of_two(8), None, taken)
    assert not lacks_blocks(calm, of_two(8), None, of_two(8).keys()), "no block is to be hoped for"


def test_a_quiet_launch_has_blocks_enough_and_so_has_one_without_readings_and_glances() -> None:
    assert not lacks_blocks([(HERE, HERE)] * 8, of_two(8))
    assert not lacks_blocks([None] * 8, dict.fromkeys(of_two(8), ()))
    assert not lacks_blocks([None] * 8, {})


def test_it_goes_on_until_three_blocks_were_steady_for_both_of_two_cells() -> None:
    """One cell's visits were steady in four blocks, the other's in four: they share two, then three."""
    shaken = [*((TWO[0], block) for block in range(4)), *((TWO[1], block) for block in range(2, 6))]
    assert lacks_blocks([(HERE, HERE)] * 8, of_two(8, *shaken))
    assert lacks_blocks([(HERE, HERE)] * 10, of_two(10, *shaken, (TWO[0], 8), (TWO[1], 9)))
    assert not lacks_blocks([(HERE, HERE)] * 10, of_two(10, *shaken, (TWO[0], 8)))


def test_it_does_not_go_on_where_the_machine_was_steady_for_less_than_a_visit_to_each_cell() -> None:
    shaken = [(cell, block) for cell in TWO for block in range(1, 8)]
    assert lacks_blocks([(HERE, HERE)] * 8, of_two(8, *shaken)), "one each"
    assert lacks_blocks([(HERE, HERE)] * 8, of_two(8, *shaken, (TWO[0], 0)) | of_two(2, (TWO[0], 0))), "two of one"
    assert not lacks_blocks([(HERE, HERE)] * 8, of_two(8, *shaken, (TWO[0], 0))), "one of one"
    assert lacks_blocks([(THERE, THERE), *[(HERE, HERE)] * 7], of_two(8, *shaken)), "in another state, but steady"


def test_cells_that_are_not_compared_need_share_no_block() -> None:
    """Of another compiler and another batch: each has blocks enough of its own."""
    others = [CELLS[0], replace(CELLS[1], compiler=CompilerSpec("other"))]
    found: Visits = {
        (cell, block): [(SLOWER if (block < 4) == (cell == others[0]) else USUAL, USUAL)]
        for block in range(8)
        for cell in others
    }
    assert not lacks_blocks([(HERE, HERE)] * 8, found)


def test_a_cell_by_itself_needs_three_steady_visits() -> None:
    shaken: Visits = {(ONE_OF_TWO, block): [(SLOWER if block < 6 else USUAL, USUAL)] for block in range(8)}
    assert lacks_blocks([(HERE, HERE)] * 8, shaken)
    assert not lacks_blocks(
        [(HERE, HERE)] * 10, shaken | {(ONE_OF_TWO, 8): [(USUAL, USUAL)], (ONE_OF_TWO, 9): [(USUAL, USUAL)]}
    )


def test_what_is_steady_must_be_in_the_usual_state_of_the_machine() -> None:
    other = Reading(100_000, (720,))
    readings = [(HERE, HERE)] * 2 + [(THERE, THERE)] * 3 + [(other, other)] * 2 + [(HERE, THERE)]
    assert lacks_blocks([*readings, (HERE, HERE), (THERE, HERE)], of_two(10)) is False
    assert lacks_blocks(readings, of_two(8, (TWO[0], 2)))
    assert lacks_blocks([(HERE, HERE)] * 5 + [(THERE, THERE)] * 3, of_two(8, *((TWO[0], block) for block in range(3))))


def test_without_glances_it_goes_on_while_most_blocks_were_in_another_state() -> None:
    """Of eight blocks three are in the usual state, which would not count; of ten five are."""
    other, none = Reading(100_000, (720,)), dict.fromkeys(of_two(8), ())
    readings = [(HERE, HERE)] * 3 + [(THERE, THERE)] * 2 + [(other, other)] * 2 + [(HERE, THERE)]
    assert lacks_blocks(readings, none)
    assert not lacks_blocks([*readings, (HERE, HERE), (HERE, HERE)], dict.fromkeys(of_two(10), ()))


def test_a_cell_that_failed_meanwhile_keeps_no_launch_going() -> None:
    found = {(cell, block): tries for (cell, block), tries in of_two(8).items() if cell == TWO[0] or block < 2}
    assert not lacks_blocks([(HERE, HERE)] * 8, found)


def test_of_three_blocks_or_fewer_nothing_is_left_out() -> None:
    assert not lacks_blocks([(HERE, HERE)] * 3, of_two(3, (TWO[0], 0), (TWO[0], 1), (TWO[1], 2)))

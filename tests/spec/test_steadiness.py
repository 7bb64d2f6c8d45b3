"""Which visits a machine was steady for: what glances usually read, and what a cell does to the machine itself."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.spec.cells import Cell, CompilerSpec, Reading, Workload
from pytest_ngraph.spec.states.steadiness import Around, Steadiness, unsteady
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

"""Each second of a launch belongs to one phase, whatever the phases are within one another."""

from __future__ import annotations

import math

import pytest

from pytest_ngraph.spec.phases import COMPILE, LOAD, OUTPUTS, PHASES, REST, START, VISITS, WAITING, Spent


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now

    def passes(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_what_passes_belongs_to_the_innermost_phase_and_all_of_it_is_counted(clock: Clock) -> None:
    spent = Spent(clock)
    clock.passes(1)
    with spent.phase(VISITS, "a"):
        clock.passes(2)
        with spent.phase(START, "b"):
            clock.passes(4)
        clock.passes(8)
    with spent.phase(VISITS, "b"):
        clock.passes(16)
    clock.passes(32)
    assert spent.end().seconds == {(REST, ""): 33, (VISITS, "a"): 10, (START, "b"): 4, (VISITS, "b"): 16}
    assert (spent.of(VISITS), spent.of(WAITING), spent.total) == (26, 0, 63)
    assert spent.of_compiler(VISITS, "b") == 16


def test_a_phase_that_ends_in_an_error_is_counted_and_over(clock: Clock) -> None:
    spent = Spent(clock)

    def fail() -> None:
        with spent.phase(VISITS, "a"):
            clock.passes(2)
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    clock.passes(1)
    assert spent.end().seconds == {(REST, ""): 1, (VISITS, "a"): 2}


def test_a_worker_says_what_of_a_phase_was_another(clock: Clock) -> None:
    spent = Spent(clock)
    with spent.phase(OUTPUTS, "a"):
        clock.passes(10)
        spent.divide({LOAD: 3.0, COMPILE: 6.0})
        clock.passes(1)
    assert spent.end().seconds == {(REST, ""): 0, (OUTPUTS, "a"): 2, (LOAD, "a"): 3, (COMPILE, "a"): 6}


@pytest.mark.parametrize("said", [1e9, math.inf, -math.inf, math.nan, -5.0])
def test_what_a_worker_cannot_have_taken_adds_no_second(clock: Clock, said: float) -> None:
    spent = Spent(clock)
    with spent.phase(OUTPUTS, "a"):
        clock.passes(10)
        spent.divide({LOAD: said})
    spent.beside(START, "a", said)
    assert spent.end().total == 10
    assert all(0 <= seconds <= 10 for seconds in spent.seconds.values())
    assert spent.side_by_side[START, "a"] in (0.0, 1e9)


def test_what_workers_took_side_by_side_is_theirs_and_no_part_of_the_whole(clock: Clock) -> None:
    spent = Spent(clock)
    with spent.phase(START):
        clock.passes(3)
    spent.beside(START, "a", 2.5)
    spent.beside(START, "b", 2.9)
    with spent.phase(START, "a"):
        clock.passes(1)
    assert spent.end().total == 4
    assert [spent.of_compiler(START, name) for name in spent.compilers] == [3.5, 2.9]


def test_every_phase_is_explained() -> None:
    assert all(text and text == text.strip() for text in PHASES.values())

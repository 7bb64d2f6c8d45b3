"""The closed loop: what its track holds, and when a neighbour is said to have run all through."""

from __future__ import annotations

import os
from itertools import count
from pathlib import Path

import pytest

from pytest_ngraph.load import closed_loop
from pytest_ngraph.load.closed_loop import Ran, Track, ran

MS = 1_000_000


def marks(*ends_ms: float, each: int = 1) -> list[tuple[int, int]]:
    return [(round(at * MS), each * number) for number, at in enumerate(ends_ms, 1)]


def evenly(step_ms: float, until_ms: float, since_ms: float = -1.0) -> list[float]:
    return [since_ms + step_ms * number for number in range(int((until_ms - since_ms) / step_ms) + 1)]


class Ends(Exception):
    pass


class Calls:
    """An executable that stops the loop after some calls."""

    def __init__(self, most: int) -> None:
        self.left = most

    def run(self) -> None:
        if self.left == 0:
            raise Ends
        self.left -= 1

    def synchronize(self) -> None:
        pass


def test_a_track_has_each_call_or_one_a_millisecond_and_is_read_in_another_mapping(tmp_path: Path) -> None:
    path = tmp_path / "track"
    track = Track(path, new=True)
    clock = count(0, 400_000)
    with pytest.raises(Ends):
        closed_loop.run(Calls(10), path, clock=lambda: next(clock))

    # They end every 0.4 ms, so that every third has a mark.
    assert track.calls == 10
    assert track.marks(0, 10 * MS) == [(0, 1), (1_200_000, 4), (2_400_000, 7), (3_600_000, 10)]
    # From the last before the first moment, up to the second.
    assert track.marks(2 * MS, 3 * MS) == [(1_200_000, 4), (2_400_000, 7)]
    track.close()


def test_a_track_keeps_the_latest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(closed_loop, "_MARKS", 4)
    track = Track(tmp_path / "track", new=True)
    for at in range(10):
        track.called(2 * at * MS)
    assert track.marks(0, 100 * MS) == [(12 * MS, 7), (14 * MS, 8), (16 * MS, 9), (18 * MS, 10)]
    track.close()


def test_a_loop_ends_with_the_process_that_started_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Track(tmp_path / "track", new=True).close()
    parents = iter([7, 7, 7, 1])
    monkeypatch.setattr(os, "getppid", lambda: next(parents))
    assert closed_loop.run(Calls(100), tmp_path / "track") == 2


def test_one_that_runs_all_through_has_as_many_calls_as_ended_in_the_window() -> None:
    assert ran(marks(*evenly(5, 250)), 0, 240 * MS) == Ran(48, 240 * MS, 5 * MS)
    # Marks of many calls each.
    assert ran(marks(*evenly(5, 250), each=100), 0, 240 * MS).calls == 4800
    # Calls that take as long as a few of them make a visit.
    assert ran(marks(-10, 90, 180, 290, 380), 0, 400 * MS).why_not == ""
    # One that has to wait for a CPU now and then.
    assert ran(marks(*evenly(5, 100), *evenly(5, 250, 122)), 0, 240 * MS).why_not == ""


@pytest.mark.parametrize(
    ("ends", "says"),
    [
        ((), "it ended no call in the 240 ms"),
        ((-5,), "it ended no call in the 240 ms"),
        ((-5, 100), "it ended 1 of at least 2 calls"),
        # Nothing from before says that the first one began in the window.
        ((3, 100), "it ended 1 of at least 2 calls"),
        # It stopped in the middle, or right after the first calls.
        (tuple(evenly(5, 120)), "it made no call for 121 ms of the 240 ms"),
        ((-1, 1, 2), "it made no call for 238 ms of the 240 ms"),
        # It started late.
        ((-1, *evenly(5, 250, 100)), "it made no call for 100 ms of the 240 ms"),
        # It paused in between.
        ((*evenly(5, 100), *evenly(5, 250, 160)), "it made no call for 61 ms of the 240 ms"),
    ],
)
def test_one_that_did_not_is_said_to_be(ends: tuple[float, ...], says: str) -> None:
    assert says in ran(marks(*ends), 0, 240 * MS).why_not


def test_marks_of_many_calls_hide_no_end() -> None:
    # A mark a millisecond, with fifty calls each: after the first one nothing came.
    assert "made no call for 239" in ran(marks(-1, 1, each=50), 0, 240 * MS).why_not


def test_what_it_was_ready_to_run_and_did_not_is_no_pause() -> None:
    late = marks(*evenly(5, 100), *evenly(5, 250, 160))
    assert ran(late, 0, 240 * MS, waited_ns=20 * MS).why_not
    assert ran(late, 0, 240 * MS, waited_ns=40 * MS).why_not == ""

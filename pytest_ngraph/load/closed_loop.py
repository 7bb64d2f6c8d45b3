"""The closed loop of a neighbour: it calls again and again, and keeps in a shared file when, so that others can tell.

The file outlives whatever ends the process. The process that started it stops all its threads while no cell is to have
a neighbour, and reads the file then: nothing that it says later counts.
"""

from __future__ import annotations

import mmap
import os
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median_high
from typing import Protocol

from pytest_ngraph.machine import clock as clocks

# Calls so far and marks so far; then the marks, in turn: when a call ended, and how many had by then.
_HEAD = _MARK = struct.Struct("<qq")
# So many are kept, and calls that end within so long of a mark get none.
_MARKS, _APART_NS = 1 << 15, 1_000_000
_BYTES = _HEAD.size + _MARKS * _MARK.size
# A neighbour ran all through a visit if it ended at least so many calls in it, and never paused: for longer than some
# of its calls take, than schedulers make a thread wait, and than a share of the visit. What the kernel says that it
# was ready to run and did not is no pause.
LEAST_CALLS = 2
_CALLS, _LEAST_PAUSE_NS, _SHARE = 3, 25_000_000, 0.1


class Serves(Protocol):
    """What is called: an executable."""

    def run(self) -> None:
        """Do one call."""

    def synchronize(self) -> None:
        """Wait until it has finished."""


class Track:
    """When the calls of a neighbour ended. Both processes map the same file."""

    def __init__(self, path: Path, *, new: bool = False) -> None:
        with path.open("w+b" if new else "r+b") as file:
            if new:
                file.truncate(_BYTES)
            self._map = mmap.mmap(file.fileno(), _BYTES)
        self._calls = self._marks = 0
        self._marked_ns = -(1 << 62)

    # In the neighbour's process

    def called(self, now_ns: int) -> None:
        """Note that a call has ended."""
        self._calls += 1
        if now_ns - self._marked_ns >= _APART_NS:
            self._marked_ns = now_ns
            _MARK.pack_into(self._map, _HEAD.size + self._marks % _MARKS * _MARK.size, now_ns, self._calls)
            self._marks += 1
        _HEAD.pack_into(self._map, 0, self._calls, self._marks)

    # In the process that started it

    @property
    def calls(self) -> int:
        """Return how many calls have ended so far."""
        return int(_HEAD.unpack_from(self._map, 0)[0])

    def marks(self, since_ns: int, until_ns: int) -> list[tuple[int, int]]:
        """Return when calls ended and how many had by then, from the last before the first moment to the second one."""
        count = int(_HEAD.unpack_from(self._map, 0)[1])
        found: list[tuple[int, int]] = []
        for number in range(count - 1, max(-1, count - 1 - _MARKS), -1):
            ended_ns, calls = _MARK.unpack_from(self._map, _HEAD.size + number % _MARKS * _MARK.size)
            if ended_ns <= until_ns:
                found.append((ended_ns, calls))
            if ended_ns < since_ns:
                break
        return found[::-1]

    def close(self) -> None:
        """Close the file."""
        self._map.close()


def run(executable: Serves, path: Path, clock: Callable[[], int] = clocks.nanoseconds) -> int:
    """Call again and again for as long as the process that started this one lives. Return how many calls were made."""
    track, parent = Track(path), os.getppid()
    try:
        while os.getppid() == parent:
            executable.run()
            executable.synchronize()
            track.called(clock())
        return track.calls
    finally:
        track.close()


@dataclass(frozen=True, slots=True)
class Ran:
    """What a neighbour did in a stretch of time: how many calls it ended, and its longest time without one, in ns."""

    calls: int
    lasted_ns: int
    longest_ns: int
    why_not: str = ""


def ran(marks: Sequence[tuple[int, int]], since_ns: int, until_ns: int, waited_ns: int = 0) -> Ran:
    """Return what a neighbour did between two moments, and why that is not running all through, if it is not.

    ``marks`` are what ``Track.marks`` gave for them. ``waited_ns`` is how long its main thread was ready to run
    meanwhile and did not.
    """
    lasted = until_ns - since_ns
    inside = [mark for mark in marks if since_ns <= mark[0] <= until_ns]
    before = next((calls for ended, calls in reversed(marks) if ended < since_ns), None)
    if not inside:
        return Ran(0, lasted, lasted, f"it ended no call in the {_ms(lasted)} that were timed")
    # Without one before the first mark may stand for a call that had begun long ago.
    calls = inside[-1][1] - (inside[0][1] if before is None else before)
    ends = [ended for ended, _ in inside]
    steps = [after - one for one, after in zip([since_ns, *ends], [*ends, until_ns], strict=True)]
    *others, longest = sorted(steps)
    found = Ran(calls, lasted, longest)
    if calls < LEAST_CALLS:
        why_not = f"it ended {calls} of at least {LEAST_CALLS} calls in the {_ms(lasted)} that were timed"
    elif found.longest_ns > waited_ns + max(_CALLS * median_high(others), _LEAST_PAUSE_NS, _SHARE * lasted):
        why_not = f"it made no call for {_ms(found.longest_ns)} of the {_ms(lasted)} that were timed"
    else:
        return found
    return Ran(calls, lasted, found.longest_ns, why_not)


def _ms(nanoseconds: float) -> str:
    return f"{nanoseconds * 1e-6:.0f} ms"

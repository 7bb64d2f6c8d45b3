"""Whether what a probe says is of now: how often it changes, for how long it stood still, and whether it jumped.

What changes once a second is no less true for it, but a window that begins and ends between two changes is off by up
to one at each end. A driver that is asleep, or a file that somebody else writes, may be far slower than its kind is.

A rail may stand at one number because it draws that, to a step of its register, or because nobody refreshes it. It is
believed where its driver says how often it is refreshed and what a step is, and where it follows a change of load.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise

from pytest_ngraph import units
from pytest_ngraph.probes.contract import (
    MOST_SECONDS,
    Count,
    EnergyCounter,
    PowerSensor,
    Unreadable,
    integrate,
    window_of,
)

LOOK_SECONDS = 3.0
# So many changes say how often they come, and the look is over.
_CHANGES = 20
# Read so often that what changes every millisecond is seen to.
_POLL_SECONDS = 0.002
# What is left to chance: a counter may stand still for that many of its updates, or that share of a window.
_UPDATES, _SHARE = 5, 1 / 20
# A rail's readings may rightly be equal now and then. So many of them are not, and change more often than this.
_READINGS, _LEAST_CHANGES = 20, 3
# Between so many steps of its register readings change by chance.
_STEPS = 2

Energy = EnergyCounter | PowerSensor
# What counters said, between one second and another: the process may be held up between reading them and the clock.
Counts = Sequence[tuple[float, float, Mapping[str, Count]]]


def update_seconds(
    probe: Energy, clock: Callable[[], float] = time.monotonic, sleep: Callable[[float], object] = time.sleep
) -> float:
    """Look at a probe for a moment. Return how often what it reads changes, no less than its kind does.

    Raises Unreadable where it stands still, where it cannot be read again, and where it changes so seldom that no
    window of at most ``MOST_SECONDS`` holds a hundred changes.
    """
    began = clock()
    changes: dict[str, list[float]] = {}
    last: Mapping[str, float] = {}
    seen: list[float] = []
    while True:
        now, read = clock(), _numbers(probe)
        seen += read.values()
        for name, number in read.items():
            if name not in last:
                changes[name] = []
            elif number != last[name]:
                changes[name].append(now)
        last = read
        if now - began >= LOOK_SECONDS or all(len(each) >= _CHANGES for each in changes.values()):
            break
        sleep(_POLL_SECONDS)
    every = probe.resolution_seconds
    if isinstance(probe, PowerSensor) and is_steady(seen, probe.step_watts()):
        changes = {}
    for name, moments in changes.items():
        every = max(every, _every(probe, name, moments, began, now, last[name]))
    if window_of(every) > MOST_SECONDS:
        raise Unreadable(
            f"{probe.name} changes every {units.seconds(every)} or so: a window would have to last "
            f"{units.seconds(window_of(every))} for an error of 1 % at its ends, and {MOST_SECONDS:g} s is the most"
        )
    return every


def _every(probe: Energy, name: str, moments: Sequence[float], began: float, ended: float, number: float) -> float:
    """Return how often one of the numbers changes, by when it did."""
    if isinstance(probe, PowerSensor):
        # Two readings may be equal by chance, so the shortest time between two changes says it. None at all may be a
        # steady load: the windows say more.
        return min((after - before for before, after in pairwise(moments)), default=0.0)
    if not moments:
        raise Unreadable(f"{name} stood still at {number:.6g} J for {ended - began:.3g} s")
    # Energy never stops: it is counted as seldom as it stood still. One of many may be this process held up.
    still = sorted(after - before for before, after in pairwise([began, *moments, ended]))
    return still[-2] if len(moments) >= _CHANGES / 2 else still[-1]


def _numbers(probe: Energy) -> Mapping[str, float]:
    if isinstance(probe, PowerSensor):
        return {"": probe.read()}
    return {name: count.joules for name, count in probe.read().items()}


def hold_counts(counts: Counts, update: float, window: float) -> None:
    """Raise Unreadable where a counter that was read again and again in a window stood still in it, or jumped.

    ``update`` is how often it changes. Its two ends alone do not say so: it may have caught up, or been set.
    """
    for (before, _, first), (_, after, second) in pairwise(counts):
        for name in first.keys() & second.keys():
            # A reading may be of one update before it.
            second[name].advanced(first[name], after - before + 2 * update, name)
    most = max(_UPDATES * update, _SHARE * window)
    for name in counts[0][2] if counts else ():
        still, joules = _longest(counts, name)
        if still > most:
            raise Unreadable(
                f"{name} stood still at {joules:.6g} J for {units.seconds(still)} of a window of "
                f"{units.seconds(window)}, where it changed every {units.seconds(update)} before"
            )


def _longest(counts: Counts, name: str) -> tuple[float, float]:
    """Return for how long a counter was seen at one number at most, and that number."""
    found = [(0.0, 0.0)]
    since, joules = 0.0, float("nan")
    for _, at, each in counts:
        if name not in each:
            continue
        if each[name].joules != joules:
            since, joules = at, each[name].joules
        found.append((at - since, joules))
    return max(found)


def joules_of(
    samples: Sequence[tuple[float, float]], begin: float, end: float, resolution: float, step: float | None = None
) -> float:
    """Return the joules of samples ``(second, watts)`` of a window, as ``integrate`` does. Raise Unreadable.

    So it does for readings that are all the same, and for such as change too seldom for the length of the window,
    unless they are within the ``step`` of a register of which its driver says how often it is refreshed.
    """
    joules = integrate(samples, begin, end, resolution)
    inside = [(at, watts) for at, watts in samples if begin <= at <= end]
    if len(inside) < _READINGS or is_steady([watts for _, watts in inside], step):
        return joules
    changes = [after for (_, one), (after, other) in pairwise(inside) if one != other]
    if not changes:
        raise Unreadable(
            f"the power stood at {inside[0][1]:.4g} W throughout, {len(inside)} readings of it, and nothing says how "
            "often it is refreshed"
        )
    shortest = min((after - before for before, after in pairwise(changes)), default=end - begin)
    if len(changes) < _LEAST_CHANGES or shortest > max(_UPDATES * resolution, _SHARE * (end - begin) / 2):
        raise Unreadable(
            f"the power changed {units.count(len(changes), 'time')} in {units.seconds(end - begin)}: it is refreshed "
            "too seldom for a window of that length"
        )
    return joules


def is_steady(watts: Sequence[float], step: float | None) -> bool:
    """Return whether readings differ by no more than a register's steps, where it is known what a step is."""
    return step is not None and (not watts or max(watts) - min(watts) <= _STEPS * step)


class Follower:
    """Holds a rail to the load, from window to window: one that stands at a number must not do so beyond its window."""

    def __init__(self) -> None:
        self._load: object = None
        self._last: float | None = None

    def saw(self, load: object, watts: Sequence[float]) -> None:
        """Take the readings of the next window, and of which load they are.

        Raises Unreadable where all of them are the last one of another load: who stands still says that, too.
        """
        if not watts:
            return
        if len(watts) >= _READINGS and load != self._load and set(watts) == {self._last}:
            raise Unreadable(
                f"the power stood at {self._last:.4g} W throughout, {len(watts)} readings of it, as before the load "
                "changed"
            )
        self._load, self._last = load, watts[-1]

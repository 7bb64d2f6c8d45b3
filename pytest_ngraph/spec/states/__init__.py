"""In which state the machine was: blocks and launches are compared within one state only.

States are distinguished by the reference kernel, never by what was measured: this is a covariate as in
docs/measuring.md, step 6. A host that moves virtual CPUs apart makes two-threaded code slower by a third for a minute.
Launches of before and after, taken together, would say more of the host than of the compilers.
"""

from __future__ import annotations

import functools
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass

from pytest_ngraph.spec.cells import Cell, LaunchRecord, Reading, Visit

# Readings of one state differ by less. A clock that changes by less moves both sides of a ratio alike.
_ARITHMETIC, _CROSSING = math.log(1.2), math.log(1.35)
# The first state with so many launches is the one that a gate is judged in.
_ENOUGH = 3
# Where the machine has a usual state, another one needs so many.
_ELSEWHERE = 6
USABLE_SHARE = 0.6  # of the visits of a launch that counts
# And so many of them in one state of the machine, whose coming and going within blocks no reading shows.
STEADY_SHARE = 0.5
# After so many launches in a row that do not count, or in another state of the machine, no further one is tried.
_FRUITLESS_IN_A_ROW, _OUTSIDE_IN_A_ROW = 3, 6


def alike(one: Reading, other: Reading) -> bool:
    """Return whether two readings are of the same state of the machine."""
    return _distance(one, other) <= 1


def home(readings: Iterable[Reading]) -> Reading | None:
    """Return the reading that most readings are like, the first of several, or None without any."""
    known = tuple(readings)
    return known[_at_home(known)] if known else None


@functools.lru_cache(maxsize=1024)
def _at_home(known: tuple[Reading, ...]) -> int:
    """Return its place. Reading a launch asks several times, and each pair of readings takes logarithms."""
    often = Counter(known)
    return known.index(max(often, key=lambda one: sum(n for other, n in often.items() if alike(one, other))))


def away(readings: Sequence[tuple[Reading, Reading] | None]) -> frozenset[int]:
    """Return the blocks that were measured in another state than most, given the readings around each block."""
    usual = home(reading for pair in readings if pair is not None for reading in pair)
    if usual is None:
        return frozenset()
    return frozenset(
        block
        for block, pair in enumerate(readings)
        if pair is not None and not all(alike(usual, reading) for reading in pair)
    )


def is_torn(readings: Sequence[tuple[Reading, Reading] | None]) -> bool:
    """Return whether more than half of the blocks were measured in another state than the rest.

    A machine that changes so often was in neither for many of these, as glances alone can tell.
    """
    return _is_most(away(readings), len(readings))


def is_slower(readings: Sequence[tuple[Reading, Reading] | None]) -> bool:
    """Return whether a launch is of a slower state than some of its readings: its fastest calls may be of theirs."""
    known = [reading for pair in readings if pair is not None for reading in pair]
    usual = home(known)
    return usual is not None and any(_is_faster(one, usual) for one in known)


def _is_faster(one: Reading, other: Reading) -> bool:
    """Return whether a reading is of a faster state than another, by what tells states apart."""
    ways = zip(one.crossing_ns, other.crossing_ns, strict=False)
    is_quicker = math.log(other.arithmetic_ns / one.arithmetic_ns) > _ARITHMETIC
    return is_quicker or any(math.log(theirs / mine) > _CROSSING for mine, theirs in ways)


def _is_most(outside: Set[int], blocks: int) -> bool:
    return bool(outside) and blocks - len(outside) < STEADY_SHARE * blocks


def dwell_seconds(launches: Iterable[tuple[float, Sequence[tuple[Reading, Reading] | None]]]) -> float:
    """Return about how long the machine stays in a state: the seconds of launches over the changes that they saw.

    ``launches`` are those of one machine in the order in which they were measured: how long each took, and its readings
    around each block. A machine that was never seen to change stays at least for as long as it was watched.
    """
    watched, changes = 0.0, 0
    last: Reading | None = None
    for seconds, readings in launches:
        watched += seconds
        for reading in (reading for pair in readings if pair is not None for reading in pair):
            changes += last is not None and not alike(last, reading)
            last = reading
    return watched / max(1, changes)


def of_one_state(
    visits: Mapping[tuple[Cell, int], Visit], readings: Sequence[tuple[Reading, Reading] | None]
) -> tuple[dict[tuple[Cell, int], Visit], Reading | None, bool]:
    """Return the visits of a launch, by cell and block, in the state of most of its readings, that state, and whether
    most blocks were in another one (``is_torn``).
    """
    outside = away(readings)
    kept = {(cell, block): visit for (cell, block), visit in visits.items() if block not in outside}
    usual = home(reading for pair in readings if pair is not None for reading in pair)
    return kept, usual, _is_most(outside, len(readings))


def why_disturbed(visits: Sequence[tuple[int, bool]]) -> str:
    """Return that too many visits of a launch had to wait, or nothing (docs/measuring.md, step 6).

    ``visits`` are the block of each visit and whether it has clean batches enough.
    """
    clean = sum(usable for _, usable in visits)
    if clean < USABLE_SHARE * len(visits):
        return f"only {clean} of {len(visits)} visits were usable, too much else ran on this machine"
    return ""


def why_changed(
    visits: Sequence[tuple[int, bool]], readings: Sequence[tuple[Reading, Reading] | None], *, least: int = 0
) -> str:
    """Return that too few of these visits are usable and in one state of the machine, or nothing.

    Half of them are enough, in ``least`` blocks or all that there are (docs/measuring.md, step 6).
    """
    outside = away(readings)
    left = [block for block, usable in visits if usable and block not in outside]
    least = min(least, len({block for block, _ in visits}))
    if outside and (len(left) < STEADY_SHARE * len(visits) or len({*left}) < least):
        return f"the machine changed its state while it was timed ({_change(readings, outside)})"
    return ""


def _change(readings: Sequence[tuple[Reading, Reading] | None], outside: frozenset[int]) -> str:
    """Write the state of most blocks and the reading furthest from it: those in between say nothing more."""
    around = [reading for pair in readings if pair is not None for reading in pair]
    usual = home(around)
    assert usual is not None  # otherwise no block would be outside
    furthest = max(around, key=lambda reading: _distance(usual, reading))
    differ = f"{len(outside)} of {len(readings)} blocks differ"
    return f"{describe(usual)} in most readings, {describe(furthest)} in the furthest; {differ}"


def _distance(one: Reading, other: Reading) -> float:
    """Return how far apart two readings are, in units of what separates two states."""
    if len(one.crossing_ns) != len(other.crossing_ns):
        return math.inf
    crossings = zip(one.crossing_ns, other.crossing_ns, strict=True)
    return max(
        abs(math.log(one.arithmetic_ns / other.arithmetic_ns)) / _ARITHMETIC,
        *(abs(math.log(mine / theirs)) / _CROSSING for mine, theirs in crossings),
        0.0,
    )


def same_state(
    launches: Sequence[LaunchRecord], chosen: Reading | None = None, *, waits: bool = False
) -> list[LaunchRecord]:
    """Return the launches of the one state that is judged, in their order.

    Where a usual state is known - ``chosen``, or the one that the machine was mostly in before the first of these
    launches began - it is that one as soon as three launches are of it, unless another has had six by then. Where none
    is known it is the first state with three. As long as that is open: the usual one's, and where there are none those
    of the state with the most, or with ``waits`` none. A launch that is added never changes the choice, so what is
    stored is judged as it was judged live. Launches without readings are all of one state.
    """
    leading, is_decided = _states(launches, _usual(launches, chosen))
    if not leading and not is_decided and not waits:
        leading, _ = _states(launches, None)
    return [launch for launch in launches if leading and _together(leading[0].home, launch.home)]


@dataclass(frozen=True, slots=True)
class Fruitless:
    """The launches of some cells that did not serve a claim: why each did not, and whether no further one is tried."""

    reasons: Sequence[str] = ()
    is_given_up: bool = False


def hardly_counts(in_a_row: int, outside_in_a_row: int) -> bool:
    """Return whether so many launches in a row did not count, or were in another state, that another hardly would."""
    return in_a_row >= _FRUITLESS_IN_A_ROW or outside_in_a_row >= _OUTSIDE_IN_A_ROW


def fruitless_of(launches: Sequence[LaunchRecord], cells: Sequence[Cell], chosen: Reading | None = None) -> Fruitless:
    """Return which of the finished launches of some cells served nothing, as the runs counted that measured them.

    ``launches`` are in their order, those that do not count among them.
    """
    kept: list[LaunchRecord] = []
    reasons: list[str] = []
    served = in_a_row = outside = 0
    for launch in launches:
        if not all(cell in launch.prepared for cell in cells):
            continue
        counts = not launch.invalid and launch.holds(cells)
        if counts:
            kept.append(launch)
        serves = len(same_state(kept, chosen, waits=True)) if counts else served
        if serves > served:
            served, in_a_row, outside = serves, 0, 0
        elif counts and launch.home is not None:
            in_a_row, outside = 0, outside + 1
            reasons.append(in_another_state(launch.home))
        else:
            in_a_row += 1
            reasons += filter(None, [launch.invalid])
    return Fruitless(reasons, hardly_counts(in_a_row, outside))


def in_another_state(reading: Reading) -> str:
    """Return why a launch in another state of the machine did not serve."""
    return f"measured in another state of the machine ({describe(reading)})"


def wanted_states(launches: Sequence[LaunchRecord], usual: Reading | None = None) -> tuple[Reading, ...]:
    """Return the states that a further launch would best be measured in, empty where any will do.

    That of the launches that are judged. As long as that is open the usual one, or where none is known each of those
    with the most launches.
    """
    usual = _usual(launches, usual)
    leading, is_decided = _states(launches, usual)
    if usual is not None and not is_decided:
        return (usual,)
    homes = [launch.home for launch in (leading[:1] if is_decided else leading)]
    return tuple(home for home in homes if home is not None)


def _usual(launches: Sequence[LaunchRecord], chosen: Reading | None) -> Reading | None:
    """Return the state that these launches should be of. None where it is unknown or the machine reports no states."""
    first = launches[0] if launches else None
    usual = chosen or (first.usual if first is not None else None)
    return None if first is not None and first.home is None else usual


def _states(launches: Sequence[LaunchRecord], usual: Reading | None) -> tuple[list[LaunchRecord], bool]:
    """Return the first launches of the states with the most of them, and whether one has enough to be the chosen one.

    Where a usual state is known, it is that of its first launch, if there is one. A state is known by its first launch,
    and a launch belongs to the first state that it is like.
    """
    counts: dict[int, int] = {}
    for number, launch in enumerate(launches):
        first = next((n for n in counts if _together(launches[n].home, launch.home)), number)
        counts[first] = counts.get(first, 0) + 1
        is_awaited = usual is None or _together(usual, launches[first].home)
        if counts[first] == (_ENOUGH if is_awaited else _ELSEWHERE):
            return [launches[first]], True
    if usual is not None:
        return [launches[n] for n in counts if _together(usual, launches[n].home)][:1], False
    most = max(counts.values(), default=0)
    return [launches[n] for n, count in counts.items() if count == most], False


def _together(one: Reading | None, other: Reading | None) -> bool:
    if one is None or other is None:
        return one is other
    return alike(one, other)


def describe(reading: Reading) -> str:
    """Write a reading for people."""
    crossing = "/".join(str(value) for value in reading.crossing_ns)
    return f"arithmetic {reading.arithmetic_ns / 1000:.0f} us" + (f", CPU to CPU {crossing} ns" if crossing else "")


_NAME = re.compile(r"(\d+(?:\.\d+)?)us(?:/(\d+(?:\+\d+)*)ns)?\Z")


def name_of(reading: Reading) -> str:
    """Return the name of a state, such as ``75us/360ns``: the kernel's arithmetic, and from CPU to CPU and back."""
    crossing = "+".join(str(value) for value in reading.crossing_ns)
    return f"{reading.arithmetic_ns / 1000:.0f}us" + (f"/{crossing}ns" if crossing else "")


def state_words(state: Reading, usual: Reading | None, *, is_chosen: bool = False) -> str:
    """Write in which state something was judged, and whether it is the usual one, as far as that is known."""
    if usual is None:
        return name_of(state)
    word = "chosen" if is_chosen else "usual"
    return (
        f"{name_of(usual)} ({word})" if alike(usual, state) else f"{name_of(state)} (not the {word} {name_of(usual)})"
    )


def state_named(name: str) -> Reading:
    """Return the state of a name as ``name_of`` writes it. Raise ValueError that says what is allowed."""
    match = _NAME.match(name.strip())
    if match is None or not float(match[1]):
        raise ValueError("usual, or a state as verdicts name it, such as 75us/360ns")
    return Reading(round(float(match[1]) * 1000), tuple(int(each) for each in (match[2] or "").split("+") if each))


def is_same_state(one: str, other: str) -> bool:
    """Return whether two states in words, as ``state_words`` writes them, are the same."""
    (name, _, rest), (name_of_other, _, rest_of_other) = one.partition(" "), other.partition(" ")
    return rest == rest_of_other and alike(state_named(name), state_named(name_of_other))

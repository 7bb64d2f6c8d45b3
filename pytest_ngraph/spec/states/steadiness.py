"""Which visits the machine was steady for, by glances at it before and after each (docs/measuring.md, step 6).

A state of the machine that lasts shows in the readings around blocks. What comes and goes within a block does not: on a
virtual machine another guest that gets the other thread of a core, or CPUs that are moved apart and back, for a tenth
of a second or two. Calls take half as long again meanwhile, and no counter of the guest says so. Like everything else
that leaves visits out this is a covariate: the times that are judged have no part in it.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Mapping, Sequence, Set
from itertools import combinations_with_replacement

from pytest_ngraph.spec.cells import LEAST_BLOCKS, Cell, Reading
from pytest_ngraph.spec.states import alike, away, home, is_torn

Around = tuple[Reading, Reading]
Readings = Sequence[tuple[Reading, Reading] | None]
# The arithmetic is slower than usual by more than this, or a word's way longer or shorter than usual by more.
_ARITHMETIC, _CROSSING = 1.1, 1.35
# Of fewer glances nobody knows which are usual.
_FEWEST = 8
# What is usual in a launch may be slower by this than in earlier ones. A host that packs all CPUs on one core for more
# than a launch makes it slower by half, and leaves the readings of one CPU at a time as they were.
_CROWDED = 1.2
# Of so many launches the latest ones say what is usual.
LATEST = 50
# What follows one cell's visits so much more often than those of others, by chance, is its own doing.
_OWN = 0.01


class Steadiness:
    """What glances at the machine usually read in one launch.

    Usual are the lower quartile of the arithmetic, which others can only slow down, and the median of a word's way,
    which a host that moves CPUs can make longer or shorter. What most glances are like is no measure: on a busy host
    that is often a machine that somebody else disturbs, more one time and less another. Nor is a launch that is
    disturbed throughout: it is known by the ``crowding`` of earlier ones, how many times as long arithmetic usually
    takes on all CPUs at once as on one at a time, whatever their clocks are.
    """

    def __init__(self, crowding: float | None = None) -> None:
        """Begin without any, with what is known of the machine."""
        self._known = crowding
        self._states: list[Reading] = []
        self._alone: list[int] = []
        self._arithmetic: list[int] = []
        self._crossings: list[list[int]] = []
        self._glances: list[tuple[int, Sequence[int]]] = []

    def saw_state(self, reading: Reading) -> None:
        """Take one more reading of one CPU at a time."""
        self._states.append(reading)
        insort(self._alone, reading.arithmetic_ns)

    def saw(self, glance: Reading) -> None:
        """Take one more glance."""
        self._glances.append((glance.arithmetic_ns, glance.crossing_ns))
        insort(self._arithmetic, glance.arithmetic_ns)
        self._crossings = self._crossings or [[] for _ in glance.crossing_ns]
        for known, crossing in zip(self._crossings, glance.crossing_ns, strict=False):
            insort(known, crossing)

    def is_usual(self, glance: Reading) -> bool:
        """Return whether a glance is as usual, by those seen so far. Any is, as long as they are few and none known."""
        most = math.inf if self._known is None or not self._alone else _CROWDED * self._known * _lower(self._alone)
        if len(self._arithmetic) < _FEWEST:
            return glance.arithmetic_ns <= most
        if len(glance.crossing_ns) != len(self._crossings):
            return False
        usual = _lower(self._arithmetic)
        if glance.arithmetic_ns > _ARITHMETIC * (usual if usual <= most else most / _CROWDED):
            return False
        return all(
            1 / _CROSSING <= crossing / known[len(known) // 2] <= _CROSSING
            for crossing, known in zip(glance.crossing_ns, self._crossings, strict=True)
        )

    @property
    def home(self) -> Reading | None:
        """Return the state of most readings."""
        return home(self._states)

    def alone(self, fastest: float | None, state: Reading | None = None) -> float | None:
        """Return the share of the glances that found the machine as it is by itself, None where it is not known.

        That is known by the ``fastest`` glances of earlier launches and of this one, and in the ``state`` that it is of
        where that is a slower one. A word's way is then as it mostly is.
        """
        own = self.fastest
        if own is None:
            return None
        of_state = sorted(one.arithmetic_ns for one in self._states if state is not None and alike(one, state))
        usual_ns = max(_eighth(self._alone), _eighth(of_state) if of_state else 0)
        most = _ARITHMETIC * usual_ns * (own if fastest is None else min(own, fastest))
        quick = [crossing_ns for arithmetic_ns, crossing_ns in self._glances if arithmetic_ns <= most]
        middle = [sorted(ways)[len(ways) // 2] for ways in zip(*quick, strict=False)]
        as_usual = [
            all(1 / _CROSSING <= one / usual <= _CROSSING for one, usual in zip(ways, middle, strict=False))
            for ways in quick
        ]
        return sum(as_usual) / len(self._glances)

    @property
    def fastest(self) -> float | None:
        """Return how many times as long the fastest glances take as readings of one CPU at a time."""
        enough = self._alone and len(self._arithmetic) >= _FEWEST
        return self._arithmetic[max(1, len(self._arithmetic) // 50)] / _eighth(self._alone) if enough else None

    @property
    def crowding(self) -> float | None:
        """Return that of what was seen, None where that is too little."""
        enough = self._alone and len(self._arithmetic) >= _FEWEST
        return _lower(self._arithmetic) / _lower(self._alone) if enough else None


def _lower(ordered: Sequence[float]) -> float:
    """Return the lower quartile."""
    return ordered[len(ordered) // 4]


def _eighth(ordered: Sequence[float]) -> float:
    """Return what an eighth is below: the least of fewer than eight."""
    return ordered[len(ordered) // 8]


def usual_crowding(launches: Sequence[float]) -> float | None:
    """Return what is usual by the crowding of launches, the latest last, None without any: what an eighth is below.

    The same goes for their fastest glances. Others can only add to either, as long as they leave readings of one CPU
    alone. A machine that has changed for good is taken as it is after some launches.
    """
    return _eighth(sorted(launches[-LATEST:])) if launches else None


def seen(
    readings: Readings, around: Mapping[tuple[Cell, int], Sequence[Around]], crowding: float | None = None
) -> Steadiness:
    """Return what is known by a whole launch: by the ``readings`` around its blocks and the glances at its visits."""
    usual = Steadiness(crowding)
    for reading in (reading for pair in readings if pair is not None for reading in pair):
        usual.saw_state(reading)
    for glance in (glance for tries in around.values() for pair in tries for glance in pair):
        usual.saw(glance)
    return usual


def unsteady(
    around: Mapping[tuple[Cell, int], Sequence[Around]], readings: Readings = (), crowding: float | None = None
) -> frozenset[tuple[Cell, int]]:
    """Return the visits of a launch, by cell and block, before or after which the machine was not as usual.

    ``around`` are the glances before and after each, all of one launch: of every try, the last of which is the visit. A
    cell whose visits are followed by an unusual machine far more often than those of the others does that itself: its
    clocks fall, or it works on when its calls have ended. That is part of what it costs, so it keeps its visits.
    ``readings`` are those around its blocks, and ``crowding`` what is usual on this machine, where that is known.
    """
    known = {place: tries for place, tries in around.items() if tries}
    usual, followed = seen(readings, known, crowding), Followed()
    for (cell, _), tries in known.items():
        for before, after in tries:
            if usual.is_usual(before):
                followed.by(cell, unusual=not usual.is_usual(after))
    return frozenset(
        place
        for place, (*_, (before, after)) in known.items()
        if not usual.is_usual(before) or (not usual.is_usual(after) and not followed.is_own_doing(place[0]))
    )


def lacks_blocks(
    readings: Readings,
    around: Mapping[tuple[Cell, int], Sequence[Around]],
    crowding: float | None = None,
    stolen: Set[tuple[Cell, int]] = frozenset(),
    *,
    wanted: int = LEAST_BLOCKS,
) -> bool:
    """Return whether further blocks would serve a launch, as too few were quiet (docs/measuring.md, step 5).

    ``readings`` are around each block, the others as in ``unsteady``. It lacks blocks where two cells of one workload
    or of one compiler, which is what is mostly compared, have fewer than ``wanted`` in the usual state in which the
    machine was steady for both, and the host did not take time of either (``stolen``). Where it was steady, in whatever
    state, for less than a visit to each cell on average, further ones would be in vain. Without glances it lacks blocks
    where it is torn. Where three are all that was planned they are taken as they come.
    """
    if len(readings) <= LEAST_BLOCKS:
        return False
    if not all(around.values()):
        return is_torn(readings)
    # A cell that failed meanwhile gets no further visits.
    steady: dict[Cell, set[int]] = {cell: set() for cell, block in around if block == len(readings) - 1}
    for cell, block in around.keys() - unsteady(around, readings, crowding) - stolen:
        if cell in steady:
            steady[cell].add(block)
    if sum(map(len, steady.values())) < len(steady):
        return False
    outside = away(readings)
    return any(
        len(steady[one] & steady[other] - outside) < wanted
        for one, other in combinations_with_replacement(steady, 2)
        if one.workload == other.workload or one.target == other.target
    )


class Followed:
    """How often an unusual machine followed the visits of each cell before which it was as usual."""

    def __init__(self) -> None:
        """Begin without any."""
        self._visits: Counter[Cell] = Counter()
        self._unusual: Counter[Cell] = Counter()

    def by(self, cell: Cell, *, unusual: bool) -> None:
        """Take what followed one more visit."""
        self._visits[cell] += 1
        self._unusual[cell] += unusual

    def is_own_doing(self, cell: Cell) -> bool:
        """Return whether it follows this cell's visits more often than chance would have it, given those of the others.

        That is Fisher's exact test against all others, the levels of all cells together being 1 %.
        """
        total, marked = self._visits.total(), self._unusual.total()
        drawn, found = self._visits[cell], self._unusual[cell]
        if not 0 < drawn < total:
            return False
        ways = sum(
            math.comb(marked, count) * math.comb(total - marked, drawn - count)
            for count in range(found, min(drawn, marked) + 1)
        )
        return ways / math.comb(total, drawn) <= _OWN / len(self._visits)

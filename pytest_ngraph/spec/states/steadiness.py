"""Which visits the machine was steady for, by glances at it before and after each (docs/measuring.md, step 6).

A state of the machine that lasts shows in the readings around blocks. What comes and goes within a block does not: on a
virtual machine another guest that gets the other thread of a core, or CPUs that are moved apart and back, for a tenth
of a second or two. Calls take half as long again meanwhile, and no counter of the guest says so. Like everything else
that leaves visits out this is a covariate: the times that are judged have no part in it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from pytest_ngraph.spec.cells import Cell, Reading

Around = tuple[Reading, Reading]
# Glances that differ by more in arithmetic, or in a word's way, are of a machine that was disturbed in one of them.
_ARITHMETIC, _CROSSING = math.log(1.1), math.log(1.35)
# Of fewer glances nobody knows which are usual.
_FEWEST = 8
# What follows one cell's visits so much more often than those of others, by chance, is its own doing.
_OWN = 0.01


class Steadiness:
    """What glances at the machine usually read in one launch: the one that most are like, the first of several."""

    def __init__(self) -> None:
        """Begin without any."""
        self._glances: list[tuple[float, ...]] = []
        # How many of the glances each of them is like.
        self._like: list[int] = []

    def saw(self, glance: Reading) -> None:
        """Take one more glance."""
        new = _logarithms(glance)
        like = 1
        for place, known in enumerate(self._glances):
            if _alike(known, new):
                self._like[place] += 1
                like += 1
        self._glances.append(new)
        self._like.append(like)

    def is_usual(self, glance: Reading) -> bool:
        """Return whether a glance is as most are, by those seen so far. Any is, as long as they are few."""
        if len(self._glances) < _FEWEST:
            return True
        return _alike(self._glances[self._like.index(max(self._like))], _logarithms(glance))


def _logarithms(glance: Reading) -> tuple[float, ...]:
    return tuple(math.log(nanoseconds) for nanoseconds in (glance.arithmetic_ns, *glance.crossing_ns))


def _alike(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    if len(one) != len(other) or abs(one[0] - other[0]) > _ARITHMETIC:
        return False
    return all(abs(mine - theirs) <= _CROSSING for mine, theirs in zip(one[1:], other[1:], strict=True))


def unsteady(around: Mapping[tuple[Cell, int], Sequence[Around]]) -> frozenset[tuple[Cell, int]]:
    """Return the visits of a launch, by cell and block, before or after which the machine was not as usual.

    ``around`` are the glances before and after each, all of one launch: of every try, the last of which is the visit. A
    cell whose visits are followed by an unusual machine far more often than those of the others does that itself: its
    clocks fall, or it works on when its calls have ended. That is part of what it costs, so it keeps its visits.
    """
    known = {place: tries for place, tries in around.items() if tries}
    usual, followed = Steadiness(), Followed()
    for glance in (glance for tries in known.values() for pair in tries for glance in pair):
        usual.saw(glance)
    for (cell, _), tries in known.items():
        for before, after in tries:
            if usual.is_usual(before):
                followed.by(cell, unusual=not usual.is_usual(after))
    return frozenset(
        place
        for place, (*_, (before, after)) in known.items()
        if not usual.is_usual(before) or (not usual.is_usual(after) and not followed.is_own_doing(place[0]))
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

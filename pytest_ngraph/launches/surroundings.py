"""The machine around blocks and visits: waiting for the state that is wanted, and for a steady one.

That is docs/measuring.md, step 5.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace

from pytest_ngraph.launches.reference import Reference
from pytest_ngraph.spec.cells import LEAST_BLOCKS, Cell, Reading, Visit
from pytest_ngraph.spec.phases import KERNEL, WAITING, Spent
from pytest_ngraph.spec.states import alike, describe
from pytest_ngraph.spec.states.steadiness import Around, Followed, Steadiness, lacks_blocks

_WAIT_SECONDS = 0.25
_PAUSE_SECONDS = 0.002
# Of the blocks that were planned: five of eight, the fewest of which a trimmed mean leaves any out. Whoever comes and
# goes between two glances would spoil three.
_WANTED_SHARE = 5 / 8
# Of a visit around which the machine is not as usual. What keeps it so for longer is waited for before the next one.
MOST_TRIES = 4


class Surroundings:
    """What the reference kernel says of the machine during one launch, and the waiting for what it should say.

    Blocks are wanted in one of the ``states``, or else in that of the first block: together they wait for up to
    ``patience_seconds``. ``crowding`` is what is usual on this machine (``spec.states.steadiness``). What it takes is
    booked in ``spent``, and ``said`` what it waits for.
    """

    def __init__(
        self,
        states: tuple[Reading, ...],
        patience_seconds: float,
        crowding: float | None,
        spent: Spent,
        said: Callable[[str], None],
    ) -> None:
        self._states, self._patience = states, patience_seconds
        self._spent, self._said = spent, said
        self._reference: Reference | None = None
        self._steadiness, self._followed, self._spare_seconds = Steadiness(crowding), Followed(), 0.0
        self._steady_in: tuple[Reading, ...] = ()
        self._crowding = crowding
        # Of the blocks so far: the readings around each, and the glances around each visit.
        self._readings: list[tuple[Reading, Reading] | None] = []
        self._visits: dict[tuple[Cell, int], tuple[Around, ...]] = {}
        self._stolen: set[tuple[Cell, int]] = set()

    def start(self, cpus: Sequence[int]) -> None:
        """Start the reference kernel on these CPUs. Without it nothing is waited for."""
        # Where no process is to be had the workers will say so.
        with suppress(OSError):
            self._reference = Reference(cpus)

    def close(self) -> None:
        """End the reference kernel."""
        if self._reference is not None:
            self._reference.close()

    def spare(self, seconds: float) -> None:
        """Set how long waiting for a steady machine and visiting again may take from here on."""
        self._spare_seconds = seconds

    def read(self) -> Reading | None:
        """Return what the reference kernel reads now, or None without one."""
        with self._spent.phase(KERNEL):
            reading = self._reference.read() if self._reference is not None else None
        if reading is not None:
            self._steadiness.saw_state(reading)
        return reading

    def usual_state(self) -> Reading | None:
        """Read the reference kernel before a block, waiting with patience for a state that blocks are wanted in.

        A block in another state would be measured in vain.
        """
        reading = self.read()
        while reading is not None and self._states and not any(alike(reading, state) for state in self._states):
            if self._patience <= 0:
                break
            self._said(f"waiting for the machine's usual state (now {describe(reading)})")
            with self._spent.phase(WAITING):
                time.sleep(_WAIT_SECONDS)
            self._patience -= _WAIT_SECONDS
            reading = self.read()
        if reading is not None:
            self._states = self._states or (reading,)
            # Where the machine stays elsewhere visits in vain would be repeated in vain.
            self._steady_in = tuple(state for state in self._states if alike(reading, state))
        return reading

    def end_block(self, before: Reading | None) -> tuple[Reading, Reading] | None:
        """Read the reference kernel after a block, and return that with the reading before it, None without either."""
        after = self.read()
        self._readings.append((before, after) if before is not None and after is not None else None)
        return self._readings[-1]

    def lacks_blocks(self, planned: int) -> bool:
        """Return whether too few of the blocks so far were quiet, so that further ones serve it. Times have no say."""
        wanted = max(LEAST_BLOCKS, _WANTED_SHARE * planned)
        return lacks_blocks(self._readings, self._visits, self._crowding, self._stolen, wanted=math.ceil(wanted))

    def visited_steadily(self, cell: Cell, visit: Callable[[], Visit | None], most_tries: int) -> Visit | None:
        """Return a visit with the glances around it: again where the machine was not as usual, or None where it failed.

        Nor is it as usual where the host took a CPU between two glances. Each is made ``most_tries`` times at most,
        with 0 without a glance, and waiting and visiting again may take as long as was spared for it. After that
        visits are taken as they come; which of them count is found from their glances, and from what the host took,
        when the launch has ended. A cell that is followed by an unusual machine more often than others is not visited
        again for it: it would be rid of such visits.
        """
        tries: list[Around] = []
        place = cell, len(self._readings)
        while True:
            before, began = self._steady_glance() if most_tries else None, time.monotonic()
            taken = visit()
            if taken is None:
                return None
            self._visits[place] = ()
            if before is None or (after := self._glance()) is None:
                return taken
            tries.append((before, after))
            for glance in (before, after):
                self._steadiness.saw(glance)
            was_usual, stayed_usual = self._is_usual(before), self._is_usual(after)
            if was_usual:
                self._followed.by(cell, unusual=not stayed_usual)
            is_steady = was_usual and (stayed_usual or self._followed.is_own_doing(cell)) and not taken.is_stolen()
            self._spare_seconds -= 0.0 if is_steady else time.monotonic() - began
            if is_steady or self._spare_seconds <= 0 or len(tries) == most_tries:
                self._visits[place] = tuple(tries)
                if taken.is_stolen():
                    self._stolen.add(place)
                return replace(taken, around=tuple(tries))

    def _steady_glance(self) -> Reading | None:
        """Glance at the machine until it is as usual, as long as the launch has seconds for it."""
        glance = self._glance()
        while glance is not None and self._spare_seconds > 0 and not self._is_usual(glance):
            began = time.monotonic()
            with self._spent.phase(WAITING):
                time.sleep(_PAUSE_SECONDS)
            glance = self._glance()
            self._spare_seconds -= time.monotonic() - began
        return glance

    def _is_usual(self, glance: Reading) -> bool:
        """Return whether a glance is as most are, and a word's way as in the state that the block began in."""
        if not self._steadiness.is_usual(glance):
            return False
        # The arithmetic of glances is another than that of states, which is of one CPU at a time.
        ways = (replace(glance, arithmetic_ns=state.arithmetic_ns) for state in self._steady_in)
        return not self._steady_in or any(map(alike, ways, self._steady_in))

    def _glance(self) -> Reading | None:
        with self._spent.phase(KERNEL):
            return self._reference.glance() if self._reference is not None else None

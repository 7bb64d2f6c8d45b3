"""Where the seconds of a launch go: phases that follow one another, and what each compiler took in them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

# In the order in which they come, as a table names them. What INTERPRETER and IMPORTS take is within START, where the
# workers run side by side.
START, INTERPRETER, IMPORTS, LOAD = "start", "interpreter", "imports", "load"
COMPILE, FIRST_CALL, OUTPUTS, WARM_UP = "compile", "first call", "outputs", "warm-up"
VISITS, KERNEL, WAITING, CHECKS, END, REST = "visits", "kernel", "waiting", "checks", "end", "rest"
PHASES: Mapping[str, str] = {
    START: "workers start, side by side",
    INTERPRETER: "from its command line to the worker's own code",
    IMPORTS: "a compiler and the libraries of models",
    LOAD: "inputs, models and their weights; the first of each worker side by side",
    COMPILE: "compiling, or loading what was compiled",
    FIRST_CALL: "the first call of each cell",
    OUTPUTS: "outputs handed over and compared with the reference",
    WARM_UP: "calls until they are level",
    VISITS: "the calls that are timed, and those before them that are not",
    KERNEL: "the reference kernel around every block and visit",
    WAITING: "for the machine's usual state",
    CHECKS: "calls on inputs that were not seen before",
    END: "workers end",
    REST: "all else",
}


class Spent:
    """The seconds of a launch by phase and compiler, by the clock of the process that runs it.

    Each moment belongs to the innermost phase that is open, so all seconds together are those that have passed.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin to count."""
        self._clock = clock
        self._since = clock()
        self._open = [(REST, "")]
        # By phase and compiler, which is empty where it is none's or that of several.
        self.seconds: dict[tuple[str, str], float] = {}
        # What workers that run side by side took by themselves: not part of the above.
        self.side_by_side: dict[tuple[str, str], float] = {}

    @contextmanager
    def phase(self, name: str, compiler: str = "") -> Iterator[None]:
        """Count what passes in this block for a phase, but for the phases within."""
        self._book()
        self._open.append((name, compiler))
        try:
            yield
        finally:
            self._book()
            self._open.pop()

    def divide(self, parts: Mapping[str, float]) -> None:
        """Count so many seconds of the innermost phase for others, as the worker says that it was busy with them.

        No more is taken than that phase has for this compiler.
        """
        self._book()
        place = self._open[-1]
        for name, said in parts.items():
            taken = min(_sane(said), self.seconds[place])
            self.seconds[place] -= taken
            self._add((name, place[1]), taken)

    def beside(self, name: str, compiler: str, seconds: float) -> None:
        """Note what a worker took by itself while others ran, too."""
        self.side_by_side[name, compiler] = self.side_by_side.get((name, compiler), 0.0) + _sane(seconds)

    def end(self) -> Spent:
        """Count what has passed until now. Return this."""
        self._book()
        return self

    @property
    def total(self) -> float:
        """Return all seconds that were counted."""
        return math.fsum(self.seconds.values())

    def of(self, phase: str) -> float:
        """Return the seconds of a phase, those of all compilers."""
        return math.fsum(seconds for (name, _), seconds in self.seconds.items() if name == phase)

    def of_compiler(self, phase: str, compiler: str) -> float:
        """Return what a compiler took in a phase, by itself and beside others."""
        return self.seconds.get((phase, compiler), 0.0) + self.side_by_side.get((phase, compiler), 0.0)

    @property
    def compilers(self) -> list[str]:
        """Return all compilers that took some time, in the order in which they first did."""
        return list(dict.fromkeys(compiler for _, compiler in (*self.side_by_side, *self.seconds) if compiler))

    def _book(self) -> None:
        now = self._clock()
        self._add(self._open[-1], now - self._since)
        self._since = now

    def _add(self, place: tuple[str, str], seconds: float) -> None:
        self.seconds[place] = self.seconds.get(place, 0.0) + seconds


def _sane(seconds: float) -> float:
    """Return seconds as another process says them, nothing where they cannot be any."""
    return seconds if math.isfinite(seconds) and seconds > 0 else 0.0

"""What is known of the cells of a session, what it has done, and who is informed of it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Protocol as TypingProtocol

from pytest_ngraph.spec.cells import TIMED, Cell, CompileRecord, Outcome

NO_TIME = frozenset(Outcome) - {*TIMED}


class Listener(TypingProtocol):
    """What shows the user what is being done."""

    def group_started(self, name: str, cells: int, launches: int, seconds: float) -> None:
        """Note that a launch of a group begins: up to which launch is wanted, and the estimated seconds of each."""

    def progress(self, name: str, launch: int, of: int, doing: str, done: int, total: int) -> None:
        """Note what the running launch does: step ``done`` of ``total``."""

    def note(self, text: str) -> None:
        """Show a text that a user wants to know at once."""

    def idle(self) -> None:
        """Note that measuring paused."""


@dataclass(slots=True)
class Tally:
    """What a session has done, for the summary.

    ``fixed_calls`` and ``fixed_seconds`` are what the paper's 100 repetitions of each measured cell would have used.
    """

    measured_launches: int = 0
    invalid_launches: int = 0
    measured_seconds: float = 0.0
    reused_launches: int = 0
    calls: int = 0
    fixed_calls: int = 0
    fixed_seconds: float = 0.0


@dataclass(slots=True)
class Ledger:
    """What is known of cells in this session: their evidence keys, and what became of those without a time.

    ``counted`` has the seeds of the launches that are in the tally: several groups may read the same ones.
    """

    keys: dict[Cell, str] = field(default_factory=dict)
    failures: dict[Cell, CompileRecord] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    timed: set[Cell] = field(default_factory=set)
    counted: set[int] = field(default_factory=set)
    # Cells of another side that are what the same cells here are: there is nothing to measure.
    unchanged: set[Cell] = field(default_factory=set)
    # Of the latest launches on this machine, the last one last (``spec.states.steadiness``).
    crowding: list[float] = field(default_factory=list)
    fastest: list[float] = field(default_factory=list)

    def anew(self) -> Ledger:
        """Return a ledger of what was done and how the machine was, in which nothing is known of cells."""
        return Ledger(tally=self.tally, counted=self.counted, crowding=self.crowding, fastest=self.fastest)

    def failed(self, cells: Iterable[Cell]) -> tuple[Cell, CompileRecord] | None:
        """Return the first of these cells that has no time, with what became of it, or None where all have one."""
        return next(((cell, self.failures[cell]) for cell in cells if cell in self.failures), None)

    def alive(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that did not fail and that there is something to measure of."""
        return [cell for cell in cells if cell not in self.failures and cell not in self.unchanged]

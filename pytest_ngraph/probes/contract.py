"""What a probe is: where energy or load is read from, what it covers, and why it cannot be read where it cannot."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

# An error of one update at each end of a window is then 1 % of it.
LEAST_UPDATES, LEAST_SECONDS = 100, 2.0
# A pass of longer ones would take an hour.
MOST_SECONDS = 30.0


class Unreadable(Exception):
    """What a probe cannot say. The text says why."""


@dataclass(frozen=True, slots=True)
class Count:
    """A counter of energy at a moment. ``wraps_at`` is where it begins again at 0, None where it never does.

    ``most_watts`` is more than what it counts can draw: what would need more is no energy.
    """

    joules: float
    most_watts: float
    wraps_at: float | None = None

    def since(self, before: Count, seconds: float, name: str) -> float:
        """Return the joules that were drawn since an earlier reading. Raise Unreadable where it cannot be known."""
        drawn = self.advanced(before, seconds, name)
        if drawn == 0:
            raise Unreadable(f"{name} stood still at {self.joules:.6g} J for {seconds:.3g} s")
        return drawn

    def advanced(self, before: Count, seconds: float, name: str) -> float:
        """Return the same of so short a time that it may be nothing."""
        most = self.most_watts * seconds
        if self.wraps_at is not None and most >= self.wraps_at:
            raise Unreadable(
                f"{name} begins again at {self.wraps_at:.4g} J, which {self.most_watts:g} W reach in "
                f"{self.wraps_at / self.most_watts:.3g} s: a window of {seconds:.3g} s is too long for it"
            )
        drawn = self.joules - before.joules
        if drawn < 0 and self.wraps_at is not None:
            drawn += self.wraps_at
            if drawn > most:
                raise Unreadable(f"{name} went backwards, from {before.joules:.6g} to {self.joules:.6g} J")
        if drawn < 0:
            raise Unreadable(f"{name} went backwards, from {before.joules:.6g} to {self.joules:.6g} J")
        if drawn > most:
            raise Unreadable(f"{name} jumped by {drawn:.4g} J in {seconds:.3g} s, more than {self.most_watts:g} W")
        return drawn


class Probe(ABC):
    """A source of energy or load. ``name`` is its word, ``covers`` what the numbers are of, in words."""

    name: str
    covers: str
    # How often what is read changes.
    resolution_seconds: float
    # Whether what CPUs do is part of what it counts.
    counts_cpus: bool = True

    @abstractmethod
    def read(self) -> object:
        """Return what it says now. Raise Unreadable."""

    def why_not(self) -> str:
        """Return why it cannot be read here and what to do, empty where it can."""
        try:
            self.read()
        except Unreadable as reason:
            return str(reason)
        return ""

    @property
    def window_seconds(self) -> float:
        """Return how long a window must be: at least 2 s and a hundred updates."""
        return window_of(self.resolution_seconds)


class EnergyCounter(Probe):
    """A probe that counts joules, in one counter or several that are added."""

    @abstractmethod
    def read(self) -> Mapping[str, Count]:
        """Return each counter by its name. Raise Unreadable."""

    def between(self, before: Mapping[str, Count], after: Mapping[str, Count], seconds: float) -> float:
        """Return the joules between two readings. Raise Unreadable where one of the counters does not say."""
        if before.keys() != after.keys():
            gone = ", ".join(sorted(before.keys() ^ after.keys()))
            raise Unreadable(f"{self.name}: {gone} was there for one reading only")
        return math.fsum(after[name].since(before[name], seconds, name) for name in before)


class PowerSensor(Probe):
    """A probe that says the watts of a moment, which are sampled and added up."""

    @abstractmethod
    def read(self) -> float:
        """Return the power in watts. Raise Unreadable."""

    def step_watts(self) -> float | None:
        """Return by how much neighbouring readings differ, None where nothing says it. Raise Unreadable.

        Who knows it knows as well how often there is a new reading: ``resolution_seconds`` is its driver's word then.
        """
        return None


class LoadSensor(Probe):
    """A probe that says how busy a GPU is. ``looks_back_seconds`` is over how long a reading tells."""

    looks_back_seconds: float = 1.0

    @abstractmethod
    def read(self) -> float:
        """Return the share of the time in which anything ran, 0 to 1. Raise Unreadable."""

    def others(self, pids: Sequence[int]) -> str:
        """Return which processes other than these had it work since the last call, nothing where none is known."""
        return ""


def window_of(update_seconds: float) -> float:
    """Return how long a window must be where what is read changes that often: at least 2 s and a hundred updates."""
    return max(LEAST_SECONDS, LEAST_UPDATES * update_seconds)


def integrate(samples: Sequence[tuple[float, float]], begin: float, end: float, resolution: float) -> float:
    """Return the joules of samples ``(second, watts)`` from one moment to another, by the trapezoidal rule.

    The ends take the power of the nearest sample. Raises Unreadable where there are too few or where they have a gap.
    """
    inside = [(at, watts) for at, watts in samples if begin <= at <= end]
    if len(inside) < 2:
        raise Unreadable(f"{len(inside)} readings of the power in {end - begin:.3g} s")
    if any(not math.isfinite(watts) or watts < 0 for _, watts in inside):
        raise Unreadable("a reading of the power is no power")
    path = [(begin, inside[0][1]), *inside, (end, inside[-1][1])]
    widest = max(after - before for (before, _), (after, _) in pairwise(path))
    if widest > max(10 * resolution, (end - begin) / 4):
        raise Unreadable(f"the power was not read for {widest:.3g} s of {end - begin:.3g} s")
    steps = pairwise(path)
    joules = math.fsum((after - before) * (one + other) / 2 for (before, one), (after, other) in steps)
    if joules == 0:
        raise Unreadable("the power stood at 0 W throughout")
    return joules


def text_of(path: Path) -> str:
    """Return what a file of the kernel says. Raise Unreadable with the reason."""
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError as error:
        raise Unreadable(f"{path}: {error.strerror or error}") from None


def number_of(path: Path) -> int:
    """Return the whole number in a file of the kernel. Raise Unreadable with the reason."""
    text = text_of(path)
    try:
        return int(text)
    except ValueError:
        raise Unreadable(f"{path}: {text[:60]!r} is no number") from None

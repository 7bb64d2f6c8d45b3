"""What a cell and the idle machine drew in the windows of a pass, and how busy the GPU was meanwhile."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

# The kind of launches, as the store knows them, in which power is measured.
POWER = "power"
# What of a pass is of joules, and what of how busy the GPU was.
OF_LOAD, ABOVE_IDLE = "gpu_utilisation_percent", "joules_above_idle"
OF_ENERGY = ("joules_per_sample", ABOVE_IDLE, "samples_per_joule", "energy_ratio", "idle_watts", "busy_watts")
_MOST_WINDOWS = 1000
# Of sums of equal readings over windows of other lengths.
_ROUNDING = 1e-6
# What a window is off by at most where it was not noted how often its counter changes: an update of a hundred.
_AN_UPDATE = 0.01
# Standard errors that a difference must be larger by than nothing.
_ERRORS = 2.0


@dataclass(frozen=True, slots=True)
class Window:
    """A window of one block: how long it was, what was drawn in it, and the samples that were computed meanwhile.

    An idle one has no samples. ``joules`` and ``gpu_share``, of the time in which the GPU did anything, are None where
    they cannot be read. So is ``megahertz``, the mean clock of the device's CPUs meanwhile.
    """

    block: int
    seconds: float
    joules: float | None
    samples: int = 0
    gpu_share: float | None = None
    megahertz: float | None = None

    @property
    def watts(self) -> float:
        """Return the mean power, NaN where it is not known."""
        return math.nan if self.joules is None else self.joules / self.seconds


@dataclass(frozen=True, slots=True)
class Power:
    """What a pass measured of a cell: its windows, and those of the idle machine beside them.

    ``covers`` says of what the joules are, ``why_no_energy`` and ``why_no_load`` why there are none. ``invalid`` is why
    the pass must not count. ``others_cpus`` is how many CPUs other processes kept busy, None where that is not known.
    ``update_seconds`` is how often what was read changes, None in passes of before it was looked at. ``step_watts`` is
    what a step of a rail's register is, 0 where nothing says it.
    """

    covers: str = ""
    idle: tuple[Window, ...] = ()
    busy: tuple[Window, ...] = ()
    why_no_energy: str = ""
    why_no_load: str = ""
    invalid: str = ""
    others_cpus: float | None = None
    update_seconds: float | None = None
    step_watts: float = 0.0

    @property
    def has_energy(self) -> bool:
        """Return whether joules were read."""
        return not self.why_no_energy and bool(self.busy) and bool(self.idle)

    @property
    def unread(self) -> Mapping[str, str]:
        """Return why there are none of its metrics, by their names."""
        reasons = {OF_LOAD: self.why_no_load, **dict.fromkeys(OF_ENERGY, self.why_no_energy)}
        return {name: reason for name, reason in reasons.items() if reason}

    @property
    def idle_watts(self) -> float:
        """Return the mean power of the idle windows."""
        return _watts(self.idle)

    @property
    def busy_watts(self) -> float:
        """Return the mean power while calls ran."""
        return _watts(self.busy)

    @property
    def contradiction(self) -> str:
        """Return why the joules are none of the cell's, or nothing: idle it drew as much as busy, or more."""
        if not self.has_energy or self.busy_watts > self.idle_watts * (1 + _ROUNDING):
            return ""
        return f"the idle machine drew {self.idle_watts:.4g} W and {self.busy_watts:.4g} W while calls ran"

    @property
    def above_idle_watts(self) -> float:
        """Return by how much more was drawn while calls ran."""
        return self.busy_watts - self.idle_watts

    @property
    def error_watts(self) -> float:
        """Return by how much that may be off: an update of the counter in each window, a step, how windows scatter."""
        parts = (self.idle, self.busy)
        updates = math.fsum(_watts(windows) * self._update_share(windows) for windows in parts)
        return updates + self.step_watts + _ERRORS * math.sqrt(math.fsum(map(_variance_of_mean, parts)))

    @property
    def indistinct(self) -> str:
        """Return why nothing of the joules is known to be above those of the idle machine, or nothing."""
        if not self.has_energy or self.contradiction or self.above_idle_watts > self.error_watts:
            return self.contradiction
        return (
            f"the idle machine drew {self.idle_watts:.4g} W and {self.busy_watts:.4g} W while calls ran, which is no "
            f"more than the {self.error_watts:.2g} W that these windows may be off by"
        )

    def _update_share(self, windows: Sequence[Window]) -> float:
        shortest = min(each.seconds for each in windows)
        return _AN_UPDATE if self.update_seconds is None else min(1.0, self.update_seconds / shortest)

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that ``from_json`` reads back."""
        data = asdict(self)
        return {**data, "idle": list(data["idle"]), "busy": list(data["busy"])}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Power:
        """Read the form that ``to_json`` writes. Raise ValueError for what cannot be one."""
        windows = {name: tuple(Window(**each) for each in data[name]) for name in ("idle", "busy")}
        found = cls(**{**data, **windows})
        texts = (found.covers, found.why_no_energy, found.why_no_load, found.invalid)
        if not all(isinstance(text, str) and len(text) <= 4000 for text in texts):
            raise ValueError(f"{str(data)[:200]} has texts that are none")
        if found.others_cpus is not None and not _is_number(found.others_cpus):
            raise ValueError(f"{found.others_cpus!r} are no CPUs")
        if found.update_seconds is not None and not _is_number(found.update_seconds):
            raise ValueError(f"{found.update_seconds!r} is no time between two updates")
        if not _is_number(found.step_watts):
            raise ValueError(f"{found.step_watts!r} is no step of a register")
        for window in (*found.idle, *found.busy):
            _check(window)
        if any(window.samples for window in found.idle) or len(found.idle) + len(found.busy) > _MOST_WINDOWS:
            raise ValueError("idle windows have samples, or there are too many")
        return found


def of_one_probe(powers: Sequence[Power]) -> list[bool]:
    """Return which of the passes, oldest first, measured what the last one measured: joules of other things differ."""
    last = next((each.covers for each in reversed(powers) if each.has_energy), "")
    return [not each.has_energy or each.covers == last for each in powers]


def why_indistinct(powers: Sequence[Power]) -> str:
    """Return why a cell is not known to draw more than the idle machine, as one of some passes says, or nothing.

    All of them are of one probe.
    """
    said = [each.indistinct for each in powers if each.indistinct]
    if not said or len(said) == len(powers):
        return said[-1] if said else ""
    return f"in {len(said)} of {len(powers)} passes {said[-1]}"


def _watts(windows: Sequence[Window]) -> float:
    seconds = math.fsum(each.seconds for each in windows)
    known = [each.joules for each in windows if each.joules is not None]
    return math.fsum(known) / seconds if seconds and len(known) == len(windows) else math.nan


def _variance_of_mean(windows: Sequence[Window]) -> float:
    """Return the variance of the mean power of some windows, 0 where there are too few to tell."""
    number = len(windows)
    if number < 2:
        return 0.0
    mean = math.fsum(each.watts for each in windows) / number
    return math.fsum((each.watts - mean) ** 2 for each in windows) / (number - 1) / number


def _check(window: Window) -> None:
    known = (window.joules, window.gpu_share, window.megahertz)
    numbers = [window.seconds, *(each for each in known if each is not None)]
    if not all(map(_is_number, numbers)) or window.seconds <= 0 or (window.gpu_share or 0.0) > 1:
        raise ValueError(f"{window} is no window")
    if any(type(each) is not int or each < 0 for each in (window.block, window.samples)):
        raise ValueError(f"{window} counts what cannot be counted")


def _is_number(value: object) -> bool:
    return type(value) in (int, float) and math.isfinite(value) and value >= 0  # type: ignore[arg-type,operator]

"""Reading probes over windows: joules, and how busy a GPU was."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from statistics import fmean
from threading import Event, Thread
from typing import Generic, TypeVar

from pytest_ngraph.machine.speed import Speed
from pytest_ngraph.probes import catalogue
from pytest_ngraph.probes.contract import Count, EnergyCounter, LoadSensor, PowerSensor, Unreadable, window_of
from pytest_ngraph.probes.freshness import hold_counts, joules_of, update_seconds

Value = TypeVar("Value")
# A counter is read as often in a window, or as often as it changes, and clocks are.
_WATCHED_SECONDS, _CLOCK_SECONDS = 0.05, 0.2


@dataclass(frozen=True, slots=True)
class Metered:
    """What one window said. ``megahertz`` is the mean clock of the device's CPUs, None where it is not known.

    ``watts`` are the readings of a rail, and ``step_watts`` what a step of it is, 0 where nothing says it.
    """

    seconds: float
    joules: float | None
    gpu_share: float | None
    megahertz: float | None = None
    watts: Sequence[float] = ()
    step_watts: float = 0.0


@dataclass(frozen=True, slots=True)
class Meters:
    """The probes that a pass reads, each None where there is none, with why.

    ``update_seconds`` is how often what the probe of energy reads was seen to change, ``speed`` whose clocks are noted.
    """

    energy: EnergyCounter | PowerSensor | None
    load: LoadSensor | None
    why_no_energy: str = ""
    why_no_load: str = ""
    update_seconds: float = 0.0
    speed: Speed | None = None

    @classmethod
    def of(cls, accelerator: str, cpus: Sequence[int] = ()) -> Meters:
        """Return those of a device with these CPUs."""
        energy, why_no_energy = catalogue.first_of(catalogue.energy_probes(accelerator))
        load, why_no_load = catalogue.first_of(catalogue.load_probes(accelerator))
        assert energy is None or isinstance(energy, EnergyCounter | PowerSensor)
        assert load is None or isinstance(load, LoadSensor)
        if accelerator == "cpu":
            why_no_load = "the device computes on CPUs: its load is cpu_percent"
        why_no_energy = why_no_energy and f"no probe of energy: {why_no_energy}"
        return cls(energy, load, why_no_energy, why_no_load, speed=Speed(cpus))

    def looked(self) -> Meters:
        """Look for a moment how often the counter or the power changes, as windows must be that much longer.

        One that stands still, or that changes too seldom for any window, is no probe, with the reason.
        """
        if self.energy is None:
            return self
        try:
            return replace(self, update_seconds=update_seconds(self.energy))
        except Unreadable as reason:
            return replace(self, energy=None, why_no_energy=f"no probe of energy: {reason}")

    @property
    def read_every_seconds(self) -> float:
        """Return how often what the probe of energy reads changes: as it was seen to, no less than its kind does."""
        return max(self.update_seconds, 0.0 if self.energy is None else self.energy.resolution_seconds)

    @property
    def window_seconds(self) -> float:
        """Return how long a window must be for all of them."""
        needed = [each.window_seconds for each in (self.energy, self.load) if each is not None]
        return max([*needed, *([window_of(self.update_seconds)] if self.energy is not None else [])], default=0.0)

    @property
    def settle_seconds(self) -> float:
        """Return how long after a change readings say nothing of what is new."""
        return 1.0 if self.load is None else max(1.0, self.load.looks_back_seconds)

    def open(self) -> OpenWindow:
        """Begin a window. Raise Unreadable where a probe does not answer."""
        return OpenWindow(self)


class OpenWindow:
    """A window that is being read. ``close`` it, also where nothing is to be known of it."""

    def __init__(self, meters: Meters) -> None:
        self._meters = meters
        energy, load, speed = meters.energy, meters.load, meters.speed
        self._power: _Sampler[float] | None = None
        self._watched: _Sampler[Mapping[str, Count]] | None = None
        self._load = None if load is None else _Sampler(load.read, load.name, load.resolution_seconds)
        self._clock: _Sampler[float | None] | None = None
        if speed is not None and speed.megahertz() is not None:
            self._clock = _Sampler(speed.megahertz, "clocks", _CLOCK_SECONDS)
        self._counted: Mapping[str, Count] | None = None
        if isinstance(energy, EnergyCounter):
            often = max(_WATCHED_SECONDS, energy.resolution_seconds)
            self._watched = _Sampler(energy.read, energy.name, often)
        elif energy is not None:
            self._power = _Sampler(energy.read, energy.name, energy.resolution_seconds)
        self._asked = time.monotonic()
        try:
            # What is counted from here on is of the window: nothing comes between.
            self._counted = energy.read() if isinstance(energy, EnergyCounter) else None
        except Unreadable:
            with suppress(Unreadable):
                self.drop()
            raise
        self._began = time.monotonic()

    def close(self) -> Metered:
        """End the window and return what it said. Raise Unreadable where a probe says what cannot be."""
        energy, ended = self._meters.energy, time.monotonic()
        try:
            counted = energy.read() if isinstance(energy, EnergyCounter) else None
            answered = time.monotonic()
        finally:
            self.drop()
        seconds = ended - self._began
        joules: float | None = None
        watts: Sequence[float] = ()
        step: float | None = None
        if isinstance(energy, EnergyCounter):
            assert self._counted is not None
            assert counted is not None
            joules = energy.between(self._counted, counted, answered - self._asked)
            samples = self._watched.samples if self._watched is not None else []
            # What is read while a window ends may be later than its end.
            between = [each for each in samples if self._began < each[0] and each[1] < ended]
            all_of_it = [(self._asked, self._began, self._counted), *between, (ended, answered, counted)]
            hold_counts(all_of_it, self._meters.read_every_seconds, seconds)
        elif self._power is not None and energy is not None:
            step, read = energy.step_watts(), [(at, each) for _, at, each in self._power.samples]
            joules = joules_of(read, self._began, ended, energy.resolution_seconds, step)
            watts = tuple(each for at, each in read if self._began <= at <= ended)
        share = None
        if self._load is not None:
            each = [value for *_, value in self._load.samples]
            if not each:
                raise Unreadable("the load was not read once in the window")
            share = math.fsum(each) / len(each)
        clocks = [] if self._clock is None else [value for *_, value in self._clock.samples if value is not None]
        return Metered(seconds, joules, share, fmean(clocks) if clocks else None, watts, step or 0.0)

    def drop(self) -> None:
        """Stop reading. Raise Unreadable where a reading failed, when nothing reads any more."""
        with ExitStack() as stack:
            for each in (self._power, self._watched, self._load, self._clock):
                if each is not None:
                    stack.callback(each.stop)


class _Sampler(Generic[Value]):
    """Reads something again and again until ``stop``, which raises what reading did.

    ``samples`` has the second before a reading, that after it, and what it said.
    """

    def __init__(self, read: Callable[[], Value], name: str, every: float) -> None:
        self.samples: list[tuple[float, float, Value]] = []
        self._read, self._every = read, every
        self._over, self._failed = Event(), ""
        self._thread = Thread(target=self._watch, name=f"probe {name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Read no more. Raise Unreadable where a reading failed."""
        self._over.set()
        self._thread.join()
        if self._failed:
            raise Unreadable(self._failed)

    def _watch(self) -> None:
        while True:
            asked = time.monotonic()
            try:
                value = self._read()
            except Unreadable as reason:
                self._failed = str(reason)
                return
            self.samples.append((asked, time.monotonic(), value))
            if self._over.wait(self._every):
                return

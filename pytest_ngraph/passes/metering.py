"""Reading probes over windows: joules, and how busy a GPU was."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from threading import Event, Thread

from pytest_ngraph.probes import catalogue
from pytest_ngraph.probes.contract import Count, EnergyCounter, LoadSensor, PowerSensor, Unreadable, integrate


@dataclass(frozen=True, slots=True)
class Metered:
    """What one window said."""

    seconds: float
    joules: float | None
    gpu_share: float | None


@dataclass(frozen=True, slots=True)
class Meters:
    """The probes that a pass reads, each None where there is none, with why."""

    energy: EnergyCounter | PowerSensor | None
    load: LoadSensor | None
    why_no_energy: str = ""
    why_no_load: str = ""

    @classmethod
    def of(cls, accelerator: str) -> Meters:
        """Return those of a device."""
        energy, why_no_energy = catalogue.first_of(catalogue.energy_probes(accelerator))
        load, why_no_load = catalogue.first_of(catalogue.load_probes(accelerator))
        assert energy is None or isinstance(energy, EnergyCounter | PowerSensor)
        assert load is None or isinstance(load, LoadSensor)
        if accelerator == "cpu":
            why_no_load = "the device computes on CPUs: its load is cpu_percent"
        return cls(energy, load, why_no_energy and f"no probe of energy: {why_no_energy}", why_no_load)

    @property
    def window_seconds(self) -> float:
        """Return how long a window must be for all of them."""
        return max((each.window_seconds for each in (self.energy, self.load) if each is not None), default=0.0)

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
        self._power = _Sampler(meters.energy.read, meters.energy) if isinstance(meters.energy, PowerSensor) else None
        self._load = _Sampler(meters.load.read, meters.load) if meters.load is not None else None
        self._counted: Mapping[str, Count] | None = None
        try:
            if isinstance(meters.energy, EnergyCounter):
                self._counted = meters.energy.read()
        except Unreadable:
            self.drop()
            raise
        self._began = time.monotonic()

    def close(self) -> Metered:
        """End the window and return what it said. Raise Unreadable where a probe says what cannot be."""
        energy, ended = self._meters.energy, time.monotonic()
        try:
            counted = energy.read() if isinstance(energy, EnergyCounter) else None
        finally:
            self.drop()
        seconds = ended - self._began
        joules = None
        if isinstance(energy, EnergyCounter):
            assert self._counted is not None
            assert counted is not None
            joules = energy.between(self._counted, counted, seconds)
        elif self._power is not None and energy is not None:
            joules = integrate(self._power.samples, self._began, ended, energy.resolution_seconds)
        share = None
        if self._load is not None:
            each = [value for _, value in self._load.samples]
            if not each:
                raise Unreadable("the load was not read once in the window")
            share = math.fsum(each) / len(each)
        return Metered(seconds, joules, share)

    def drop(self) -> None:
        """Stop reading. Raise Unreadable where a reading failed, when nothing reads any more."""
        with ExitStack() as stack:
            for each in (self._power, self._load):
                if each is not None:
                    stack.callback(each.stop)


class _Sampler:
    """Reads a sensor again and again until ``stop``, which raises what reading did."""

    def __init__(self, read: Callable[[], float], probe: PowerSensor | LoadSensor) -> None:
        self.samples: list[tuple[float, float]] = []
        self._read, self._every = read, probe.resolution_seconds
        self._over, self._failed = Event(), ""
        self._thread = Thread(target=self._watch, name=f"probe {probe.name}", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Read no more. Raise Unreadable where a reading failed."""
        self._over.set()
        self._thread.join()
        if self._failed:
            raise Unreadable(self._failed)

    def _watch(self) -> None:
        while True:
            try:
                value = self._read()
            except Unreadable as reason:
                self._failed = str(reason)
                return
            self.samples.append((time.monotonic(), value))
            if self._over.wait(self._every):
                return

"""A machine whose files say what it draws, brought up to date when they are read, as the kernel's are.

It draws 10 W, and 100 W more for each CPU that workers of this process keep busy, unless there is a file ``flat`` in
its root: then it draws 10 W whatever they do. In tests it is made by hand; as a
plugin for suites its root is in NGRAPH_TESTS_MACHINE. Nothing outside of the tests has such a variable: the constants
that say where the kernel's files are get replaced here. What else this process reads of the machine stays as it is.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Lock
from typing import Any

from pytest_ngraph.launches.client import WorkerClient
from pytest_ngraph.machine import facts, modes
from pytest_ngraph.passes import power
from pytest_ngraph.probes import catalogue, contract, freshness
from tests.support.fake_nvml import Card, FakeNvml
from tests.support.fake_sys import jetson_gpu, orin, zone

VARIABLE = "NGRAPH_TESTS_MACHINE"
IDLE_WATTS, CPU_WATTS = 10.0, 100.0
_MILLIVOLTS = 5000
_NOT_OF_A_JETSON = ("nvmlDeviceGetTotalEnergyConsumption", "nvmlDeviceGetUtilizationRates")
# Of snapshots: what else runs here must not make launches invalid.
_CALM = {"set_busy_seconds": None, "set_steal_seconds": None, "own_seconds": None, "throttled": None}


class Machine:
    """What a machine drew so far. ``counter`` is its package's, if it has one; ``does`` is what is wrong with it.

    It may be ``still``, or ``slow`` and written once a second only.
    """

    def __init__(self, root: Path, *, is_jetson: bool = False) -> None:
        self.root, self.does = root, ""
        self.counter = root / "sys/class/powercap/intel-rapl:0/energy_uj"
        if is_jetson:
            orin(root / "sys")
            jetson_gpu(root / "sys")
        else:
            zone(root / "sys", "intel-rapl:0", "package-0", 1_000_000)
        self._pids: dict[int, int] = {}
        self._at, self._joules, self._written = time.monotonic(), 1.0, 0.0
        self._lock = Lock()

    def note(self, pid: int) -> None:
        """Count a process from now on."""
        self._pids[pid] = _cpu_ns(pid)

    def refresh(self) -> None:
        """Bring the files up to date."""
        with self._lock:
            now, spent = time.monotonic(), 0.0
            if now - self._at < 1e-4:
                return
            for pid, before in list(self._pids.items()):
                self._pids[pid] = max(before, _cpu_ns(pid))
                spent += (self._pids[pid] - before) * 1e-9
            seconds, self._at = now - self._at, now
            if (self.root / "flat").exists():
                spent = 0.0
            self._joules += IDLE_WATTS * seconds + CPU_WATTS * spent
            if self.does == "still" or (self.does == "slow" and now - self._written < 1.0):
                return
            self._written = now
            self._write(IDLE_WATTS + CPU_WATTS * spent / seconds, spent / seconds)

    def _write(self, watts: float, share: float) -> None:
        if self.counter.exists():
            _put(self.counter, round(self._joules * 1e6))
        current = self.root / "sys/class/hwmon/hwmon1/curr1_input"
        if current.exists():
            _put(self.root / "sys/class/hwmon/hwmon1/in1_input", _MILLIVOLTS)
            # No two readings of a live rail are quite the same.
            _put(current, round(watts * 1e6 / _MILLIVOLTS) + time.monotonic_ns() % 3)
            _put(self.root / "sys/class/devfreq/17000000.ga10b/device/load", min(1000, round(1000 * share)))


def _put(path: Path, number: int) -> None:
    """Write a file that others read meanwhile: never half of it."""
    part = path.with_suffix(".part")
    part.write_text(f"{number}\n")
    part.replace(path)


def _cpu_ns(pid: int) -> int:
    try:
        # What clock_getcpuclockid(3) gives.
        return time.clock_gettime_ns((~pid << 3) | 2)
    except OSError:
        return 0


def attach(machine: Machine, replace: Callable[[Any, str, Any], None]) -> None:
    """Have the probes of this process read a machine, by ``setattr`` or a monkeypatch's."""
    read, begin = contract.text_of, WorkerClient.__init__

    def text_of(path: Path) -> str:
        if path.is_relative_to(machine.root):
            machine.refresh()
        return read(path)

    def begun(self: WorkerClient, *arguments: Any, **named: Any) -> None:
        begin(self, *arguments, **named)
        machine.note(self.pid)

    replace(contract, "text_of", text_of)
    replace(WorkerClient, "__init__", begun)
    replace(catalogue, "SYS", machine.root / "sys")
    replace(modes, "ROOT", machine.root)
    replace(facts, "busy_seconds", lambda cpus: None)
    replace(facts, "used_seconds", lambda cpus: (None, ()))
    # As long as it takes to see what a machine of a test does.
    replace(freshness, "LOOK_SECONDS", 0.2)


def install(root: Path) -> None:
    """Make this process one of a machine that was laid out before, whose passes are short, for as long as it lives."""
    is_jetson = (root / "jetson").exists()
    attach(Machine(root, is_jetson=is_jetson), setattr)
    if is_jetson:
        # NVML knows the GPU of a Jetson and says next to nothing of it.
        sys.modules["pynvml"] = FakeNvml(Card(name="Orin", refused=set(_NOT_OF_A_JETSON)))
    short = classmethod(lambda cls, protocol, meters: cls(blocks=2, window_seconds=0.25, settle_seconds=0.02))
    setattr(power.Course, "of", short)  # noqa: B010


def pytest_configure() -> None:
    """Have launches judged by the power mode alone. Other plugins are imported by now, and some have none judged."""
    disturbance = _as_it_is("pytest_ngraph.machine.facts").disturbance

    def of_power_alone(*snapshots: Any) -> str:
        *states, cpus = snapshots
        return str(disturbance(*(_calm(state) for state in states), cpus))

    setattr(facts, "disturbance", of_power_alone)  # noqa: B010 - a function of theirs


def _calm(state: Mapping[str, Any]) -> dict[str, Any]:
    return {**state, **_CALM}


def _as_it_is(name: str) -> Any:
    """Return a module once more, without what plugins have changed in it."""
    spec = importlib.util.find_spec(name)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


if VARIABLE in os.environ:
    install(Path(os.environ[VARIABLE]))

"""What else runs while something is measured: nothing, a burst now and then, a full load; or a CPU quota."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path

from pytest_ngraph.machine.facts import available_cpus
from pytest_ngraph.worker.worker import die_with_parent

CONDITIONS = {
    "quiet": "nothing else runs",
    "bursty": "beside a process that is busy for 30 ms and sleeps for 60 ms",
    "busy": "beside a busy loop on every core",
    "quota": "under a CPU quota of three quarters of the cores",
}
_BUSY_SECONDS, _ASLEEP_SECONDS = 0.03, 0.06
# How a neighbour takes its share of a CPU: seconds from one burst to the next, and whether it copies memory meanwhile.
LOADS = {"bursty": (0.12, False), "steady": (0.004, False), "memory": (0.02, True)}
_COPIED_BYTES = 1 << 25
_QUOTA_SHARE, _PERIOD_US = 0.75, 100_000
_CGROUPS = Path("/sys/fs/cgroup")
_HOME = Path(__file__).resolve().parents[1]


class NotPossible(Exception):
    """A condition that this process may not make here; the text says why."""


@contextmanager
def beside(condition: str) -> Iterator[Path | None]:
    """Keep a condition up; give the cgroup that a process has to join to be under it, if there is one.

    Raises NotPossible where it cannot be made. Whatever was started has ended afterwards, also where this process dies.
    """
    with ExitStack() as stack:
        if condition == "bursty":
            stack.enter_context(_neighbour("bursty", ()))
        elif condition == "busy":
            for cpu in available_cpus():
                stack.enter_context(_neighbour("busy", (cpu,)))
        yield stack.enter_context(_quota()) if condition == "quota" else None


@contextmanager
def beside_load(load: str, share: float, *, everywhere: bool) -> Iterator[None]:
    """Keep up a neighbour that wants a share of one CPU, wherever it runs, or one of each CPU that stays there."""
    with ExitStack() as stack:
        for cpu in available_cpus() if everywhere else [None]:
            stack.enter_context(_neighbour(f"{load}:{share}", () if cpu is None else (cpu,)))
        yield


@contextmanager
def _neighbour(kind: str, cpus: Sequence[int]) -> Iterator[None]:
    command = [sys.executable, "-m", "benchmarks.neighbours", kind, str(os.getpid()), *map(str, cpus)]
    process = subprocess.Popen(command, cwd=_HOME)
    try:
        yield
    finally:
        process.kill()
        process.wait()


@contextmanager
def _quota() -> Iterator[Path]:
    """Make a cgroup with the quota and remove it, once what ran in it has ended."""
    place = _parent_group() / f"quota-{os.getpid()}"
    quota_us = round(_QUOTA_SHARE * len(available_cpus()) * _PERIOD_US)
    try:
        place.mkdir()
    except OSError as error:
        raise NotPossible(f"no cgroup may be made here ({error.strerror})") from None
    try:
        if (place / "cpu.max").exists():
            (place / "cpu.max").write_text(f"{quota_us} {_PERIOD_US}")
        elif (place / "cpu.cfs_quota_us").exists():
            (place / "cpu.cfs_period_us").write_text(str(_PERIOD_US))
            (place / "cpu.cfs_quota_us").write_text(str(quota_us))
        else:
            raise NotPossible("the cgroups here do not limit CPU time")
        yield place
    except OSError as error:
        raise NotPossible(f"no quota may be set here ({error.strerror})") from None
    finally:
        _remove(place)


def _parent_group() -> Path:
    """Return the cgroup of this process that may hold one with a quota (version 2, or the CPU part of version 1)."""
    for line in Path("/proc/self/cgroup").read_text(encoding="ascii").splitlines():
        number, controllers, path = line.split(":", 2)
        if "cpu" in controllers.split(","):
            return _CGROUPS / "cpu" / path.lstrip("/")
        if number == "0" and (_CGROUPS / "cgroup.controllers").exists():
            return _CGROUPS / path.lstrip("/")
    raise NotPossible("this process is in no cgroup that could limit its CPU time")


def _remove(place: Path) -> None:
    for _ in range(50):
        with suppress(OSError):
            place.rmdir()
            return
        # What was killed in it is still being cleared away.
        time.sleep(0.1)
    print(f"could not remove {place}", file=sys.stderr)


def _spin(seconds: float) -> None:
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def _take(load: str, share: float) -> None:
    """Use a share of a CPU for ever, as CPU time: what is kept waiting goes on for longer."""
    period, copies = LOADS[load]
    here, there = bytearray(_COPIED_BYTES), bytearray(_COPIED_BYTES)
    piece, place, due = 1 << 18, 0, time.monotonic()
    while True:
        end = time.process_time() + share * period
        while time.process_time() < end:
            if copies:
                there[place : place + piece] = memoryview(here)[place : place + piece]
                place = (place + piece) % _COPIED_BYTES
        due = max(due + period, time.monotonic() - period)
        time.sleep(max(0.0, due - time.monotonic()))


def main() -> None:
    """Be a neighbour until the parent ends or kills this process."""
    kind, parent, *cpus = sys.argv[1:]
    die_with_parent(int(parent))
    if cpus:
        os.sched_setaffinity(0, map(int, cpus))
    load, _, share = kind.partition(":")
    if share:
        _take(load, float(share))
    while True:
        _spin(_BUSY_SECONDS)
        if kind == "bursty":
            time.sleep(_ASLEEP_SECONDS)


if __name__ == "__main__":
    main()

"""What a process can say of itself: CPU time, run-delay and page faults around a timed batch, and peak memory."""

from __future__ import annotations

import os
import sys
from os import pread
from pathlib import Path
from resource import RUSAGE_SELF, getrusage

from pytest_ngraph.machine import clock

_TASKS = Path("/proc/self/task")


class Covariates:
    """Reads the covariates of this process. Open it for one visit, since threads come and go between visits.

    Run-delay is the time threads were ready to run and did not, summed over ``/proc/self/task/*/schedstat``. Where
    the kernel does not offer it, or where ``run_delay`` says not to read it, ``has_run_delay`` is false.
    """

    def __init__(self, *, run_delay: bool = True) -> None:
        self._files: list[int] = []
        for task in _TASKS.iterdir() if run_delay and _TASKS.is_dir() else ():
            try:
                self._files.append(os.open(task / "schedstat", os.O_RDONLY | os.O_CLOEXEC))
            except OSError:
                # The thread ended since it was listed, or the kernel keeps no schedstat.
                continue
        self._delays = [0] * len(self._files)
        # A kernel that keeps no account of its threads still has the file, with three zeros.
        self.has_run_delay = any(self._read(index)[2] for index in range(len(self._files)))

    def read(self) -> tuple[int, int, int]:
        """Return CPU nanoseconds of the process, run-delay nanoseconds and minor faults, each since its start."""
        for index in range(len(self._files)):
            self._delays[index] = self._read(index)[1]
        return clock.cpu_nanoseconds(), sum(self._delays), getrusage(RUSAGE_SELF).ru_minflt

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            os.close(file)
        self._files = []

    def _read(self, index: int) -> tuple[int, int, int]:
        """Return nanoseconds run, nanoseconds waited and time slices of one thread."""
        try:
            ran, waited, slices = (int(word) for word in pread(self._files[index], 64, 0).split())
        except (OSError, ValueError):
            # It has ended; what it waited until then has happened all the same.
            return 0, self._delays[index], 0
        return ran, waited, slices


def peak_memory_bytes() -> int:
    """Return the most memory this process has had resident.

    The kernel's ``ru_maxrss`` is no answer on Linux: across fork and exec it begins with the parent's peak.
    """
    try:
        with Path("/proc/self/status").open(encoding="ascii", errors="replace") as lines:
            for line in lines:
                if line.startswith("VmHWM:"):
                    return int(line.split()[1]) * 1024
    except OSError:
        pass
    unit = 1 if sys.platform == "darwin" else 1024
    return getrusage(RUSAGE_SELF).ru_maxrss * unit

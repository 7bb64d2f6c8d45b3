"""What surrounds a timed batch in its process: CPU time, run-delay and page faults."""

from __future__ import annotations

import os
import resource
import time
from pathlib import Path

_TASKS = Path("/proc/self/task")


class Covariates:
    """Reads the covariates of this process; open it for one visit, since threads come and go between visits.

    Run-delay is the time threads were ready to run and did not, summed over ``/proc/self/task/*/schedstat``. Where
    the kernel does not offer it ``has_run_delay`` is false.
    """

    def __init__(self) -> None:
        self._files: list[int] = []
        if _TASKS.is_dir():
            for task in _TASKS.iterdir():
                try:
                    self._files.append(os.open(task / "schedstat", os.O_RDONLY | os.O_CLOEXEC))
                except OSError:
                    # The thread ended since it was listed, or the kernel keeps no schedstat.
                    continue
        self.has_run_delay = bool(self._files)

    def read(self) -> tuple[int, int, int]:
        """Return CPU nanoseconds of the process, run-delay nanoseconds and minor faults, each since its start."""
        delay = 0
        for file in self._files:
            try:
                delay += int(os.pread(file, 64, 0).split()[1])
            except (OSError, IndexError):
                # A thread that ended mid-visit: what it waited is lost, which one batch may notice.
                continue
        return time.process_time_ns(), delay, resource.getrusage(resource.RUSAGE_SELF).ru_minflt

    def close(self) -> None:
        """Close the files."""
        for file in self._files:
            os.close(file)
        self._files = []

"""An adapter whose process is stopped once, by SIGSTOP, within a call: what a worker meets on a busy machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.compilers.null import NullCompiler, NullExecutable
from pytest_ngraph.spec.cells import Device
from pytest_ngraph.workloads.loaded import LoadedWorkload

# Where it is told that the next visit is the one, and in which call of that.
NOW, CALL = "NGRAPH_TEST_STALL", 60
STALL_SECONDS = 0.3
# It waits until the process really stands still: a signal to go on that comes first would leave it so for ever.
_WAKE = """
import os, pathlib, signal, sys, time
process = int(sys.argv[1])
while pathlib.Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] != "T":
    time.sleep(0.001)
time.sleep(float(sys.argv[2]))
os.kill(process, signal.SIGCONT)
"""


class _Stalling(NullExecutable):
    def __init__(self, wait_ns: int, told: Path) -> None:
        super().__init__(wait_ns)
        self._told, self._left = told, CALL

    def run(self) -> None:
        super().run()
        if self._left and self._told.exists():
            self._left -= 1
            if not self._left:
                waker = subprocess.Popen([sys.executable, "-c", _WAKE, str(os.getpid()), str(STALL_SECONDS)])
                os.kill(os.getpid(), signal.SIGSTOP)
                waker.wait()


class StallingCompiler(NullCompiler):
    """``stalling[fixed_us=...]``: so many microseconds a call, and once it stands still."""

    name = "stalling"

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        return _Stalling(round(options["fixed_us"] * 1000), Path(os.environ[NOW]))


COMPILER = StallingCompiler()

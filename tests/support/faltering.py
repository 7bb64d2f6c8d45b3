"""An adapter whose calls wait, until a file is there: then they ``die``, ``hang`` or ``fail``, some time after that."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Executable, Option
from pytest_ngraph.compilers.null import NullExecutable
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    from pytest_ngraph.workloads.loaded import LoadedWorkload


class Faltering(NullExecutable):
    """Busy for half a millisecond a call."""

    def __init__(self, how: str, file: Path, after: float) -> None:
        super().__init__(500_000)
        self._how, self._file, self._after = how, file, after

    def run(self) -> None:
        super().run()
        if not self._file.exists() or time.time() - self._file.stat().st_mtime < self._after:
            return
        if self._how == "die":
            os.kill(os.getpid(), signal.SIGKILL)
        if self._how == "fail":
            raise RuntimeError("the runtime lost its device")
        time.sleep(3600)


class FalteringCompiler(Compiler):
    name, reads, named_only, rough_seconds = "faltering", "nothing", True, (0.0, 0.0)
    options = (
        Option("how", "hang", "What becomes of its calls", choices=("die", "fail", "hang")),
        Option("file", "nowhere", "The file that it waits for", kind="text"),
        Option("after_ms", "0", "So long after it is there", kind="number", minimum=0),
    )

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        return Faltering(options["how"], Path(options["file"]), options["after_ms"] * 1e-3)


COMPILER = FalteringCompiler()

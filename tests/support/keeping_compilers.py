"""An adapter from out of tree that keeps what it builds, and that can search first; it needs no runtime."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.compilers.base import Compiler, Executable, Option, Progress
from pytest_ngraph.spec.cells import Device

if TYPE_CHECKING:
    import numpy as np

    from pytest_ngraph.workloads.loaded import LoadedWorkload

BUILD_SECONDS = 0.8
TRIALS, TRIAL_SECONDS = 5, 0.01
_FIRST_NS = 100_000


class Engine(Executable):
    """Busy-waits as long as it was built to; its first call takes longer."""

    placement: Mapping[str, str | int] = {"provider": "keeper"}

    def __init__(self, wait_ns: int) -> None:
        self._wait_ns, self._first_ns = wait_ns, 20_000_000

    def bind(self, inputs: Mapping[str, np.ndarray]) -> None:
        pass

    def run(self) -> None:
        end = time.perf_counter_ns() + self._wait_ns + self._first_ns
        self._first_ns = 0
        while time.perf_counter_ns() < end:
            pass

    def outputs(self) -> Sequence[np.ndarray] | None:
        return None


class KeepingCompiler(Compiler):
    """``keeper[tuned]``: each build takes a while and gives an engine twice as slow as the one before."""

    name = "keeper"
    reads = "nothing"
    named_only = True
    options = (Option("tuned", "", "Search before the first compilation", kind="flag"),)

    def tunes(self, options: Mapping[str, Any]) -> bool:
        return bool(options["tuned"])

    def tune(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any], progress: Progress) -> None:
        file = _records(workload) / "trials.json"
        seconds = json.loads(file.read_text()) if file.exists() else []
        while len(seconds) < TRIALS:
            progress("searching", len(seconds), TRIALS)
            began = time.perf_counter()
            time.sleep(TRIAL_SECONDS)
            seconds.append(time.perf_counter() - began)
            file.write_text(json.dumps(seconds))

    def compile(self, workload: LoadedWorkload, device: Device, options: Mapping[str, Any]) -> Executable:
        assert workload.kept is not None
        folder, _, loaded = workload.kept.built(self.name, {"tuned": options["tuned"]}, lambda to: _build(workload, to))
        engine = Engine(int((folder / "engine").read_text()))
        engine.loaded = loaded
        if options["tuned"]:
            trials = json.loads((_records(workload) / "trials.json").read_text())
            engine.tuning_seconds, engine.tuning_trials = sum(trials), len(trials)
        return engine


def _records(workload: LoadedWorkload) -> Path:
    assert workload.kept is not None
    return workload.kept.records("keeper", {})


def _build(workload: LoadedWorkload, folder: Path) -> dict[str, int]:
    time.sleep(BUILD_SECONDS)
    log = _records(workload) / "builds"
    number = len(log.read_text()) if log.exists() else 0
    with log.open("a") as file:
        file.write("b")
    (folder / "engine").write_text(str(_FIRST_NS * 2**number))
    return {"number": number}


COMPILER = KeepingCompiler()

"""One process of the suite: it builds artefacts of cases, or examines one compiler on them. JSON in, JSON out.

Started as ``pytest_ngraph.conformance.process ANSWER_FILE`` with the job on standard input. Standard output
is free, so that whatever a compiler prints there can be seen.
"""

from __future__ import annotations

import ctypes
import gc
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_ngraph.errors import CompileFailed, Unsupported
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload

if TYPE_CHECKING:
    from pytest_ngraph.compilers.base import Compiler
    from pytest_ngraph.workloads.loaded import LoadedWorkload

# What a compiler that tunes may spend here at most, by the names that such options have.
_TUNING = {"trials": 4, "patience": 4, "seconds": 60}


def write(job: Mapping[str, Any], workloads: Sequence[Workload], keep: Path) -> dict[str, Any]:
    """Write an ONNX file with an open batch to ``job["path"]``."""
    from pytest_ngraph.conformance import open_batch

    open_batch.write(Path(job["path"]))
    return {}


def build(job: Mapping[str, Any], workloads: Sequence[Workload], keep: Path) -> dict[str, Any]:
    """Build the artefacts of a case."""
    from pytest_ngraph.workloads import artifacts

    for workload in workloads:
        artifacts.build(workload, job["seed"], Path(job["artifacts"]), job["want_onnx"])
    return {}


def examine(job: Mapping[str, Any], workloads: Sequence[Workload], keep: Path) -> dict[str, Any]:
    """Hold the job's compiler to the contract on a case. Keep the outputs of the first workload."""
    from pytest_ngraph.conformance import checks

    bench = _Bench(job)
    loaded = [bench.load(workload) for workload in workloads]
    for each in loaded:
        bench.tune(each)
    try:
        examined = checks.examine(bench.adapter, bench.options, loaded, bench.device)
    finally:
        for each in loaded:
            if each.kept is not None:
                each.kept.close()
    if examined.outputs:
        import numpy as np

        np.savez(keep, *examined.outputs)
    return {"found": examined.found, "placement": examined.placement, "loaded": examined.loaded}


def release(job: Mapping[str, Any], workloads: Sequence[Workload], keep: Path) -> dict[str, Any]:
    """Compile, call and close the first workload again and again. Return the resident bytes after each round."""
    import psutil

    bench = _Bench(job)
    resident = []
    for _ in range(job["rounds"]):
        workload = bench.load(workloads[0])
        bench.tune(workload)
        executable = bench.adapter.compile(workload, bench.device, bench.options)
        executable.bind(workload.inputs)
        executable.run()
        executable.synchronize()
        executable.outputs()
        executable.close()
        if workload.kept is not None:
            workload.kept.close()
        del workload, executable
        gc.collect()
        with suppress(OSError, AttributeError):  # what the C library itself holds back is no leak; not all have this
            ctypes.CDLL(None).malloc_trim(0)
        resident.append(psutil.Process().memory_info().rss)
    return {"resident": resident}


class _Bench:
    """The job's compiler with its runtime, and the device it compiles for."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        from pytest_ngraph.compilers.catalogue import load

        self._job = job
        self._spec = CompilerSpec.parse(job["compiler"])
        self.device = Device.from_json(job["device"])
        self.adapter: Compiler = load(self._spec.name, job["place"])
        self.adapter.load()
        self.options = self.adapter.resolve(self._spec)
        if self.adapter.tunes(self.options):
            self.options |= {
                name: min(self.options[name] or most, most) for name, most in _TUNING.items() if name in self.options
            }

    def load(self, workload: Workload) -> LoadedWorkload:
        """Return a workload as a worker's compiler gets it."""
        from pytest_ngraph.compilers.toolkit.kept import Kept
        from pytest_ngraph.workloads import artifacts
        from pytest_ngraph.workloads.loaded import LoadedWorkload

        seed, root, artifact = self._job["seed"], Path(self._job["artifacts"]), None
        if self.adapter.reads != "nothing":
            artifact = artifacts.find(workload, seed, root, self.adapter.reads == "onnx")
        cell = Cell(self.device.name, self._spec, workload, rebuild=self._job["rebuild"])
        return LoadedWorkload(workload, seed, artifact, Kept.of(cell, artifact, root, self.device))

    def tune(self, workload: LoadedWorkload) -> None:
        """Run the tuning of a compiler that tunes."""
        if self.adapter.tunes(self.options):
            self.adapter.tune(workload, self.device, self.options, lambda doing, done, total: None)


_JOBS: Mapping[str, Callable[[Mapping[str, Any], Sequence[Workload], Path], dict[str, Any]]] = {
    "write": write,
    "build": build,
    "examine": examine,
    "release": release,
}


def main(arguments: Sequence[str]) -> None:
    """Do the job on one case after the other. Whatever else an adapter raises ends the process with its traceback."""
    job, answers = json.load(sys.stdin), []
    sys.path[:] = job["sys_path"]
    for case, keep in zip(job["cases"], job["keep"], strict=True):
        try:
            answers.append(_JOBS[job["do"]](job, [Workload.from_json(each) for each in case], Path(keep)))
        except Unsupported as error:
            answers.append({"unsupported": str(error)})
        except CompileFailed as error:
            answers.append({"failed": str(error)})
    Path(arguments[0]).write_text(json.dumps(answers), encoding="utf-8")

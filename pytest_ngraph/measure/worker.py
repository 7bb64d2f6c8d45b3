"""The worker: one process, one compiler; it answers JSON lines on a descriptor of its own.

Started as ``python -m pytest_ngraph.measure.worker READ_FD WRITE_FD PARENT_PID``. The first line it reads is its job
(import path, CPUs, device, where artefacts lie); every later line is a request, answered by one line. Standard
output and error are free for whatever the runtimes print.
"""

from __future__ import annotations

import ctypes
import gc
import json
import os
import signal
import sys
import traceback
from collections.abc import Callable, Mapping
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_ngraph.compilers.base import Compiler, Executable
    from pytest_ngraph.workloads.loaded import LoadedWorkload

PROTO = 1
_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int) -> None:
    """Ask the kernel to kill this process when its parent ends, also while it is stopped."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            raise SystemExit("the parent ended before its worker began")


class Worker:
    """The state of one worker: its adapter and the cells it holds, by number."""

    def __init__(self, job: Mapping[str, Any]) -> None:
        from pytest_ngraph.spec import Device

        self._device = Device.from_json(job["device"])
        self._artifacts = Path(job["artifacts"])
        self._seed = int(job["seed"])
        self._places: Mapping[str, str] = job["places"]
        self._executables: dict[int, Executable] = {}
        self._workloads: dict[int, LoadedWorkload] = {}
        self._adapter: Compiler | None = None

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Do what a request says; failures of the cell are part of the answer, never an exception."""
        from pytest_ngraph.errors import CompileFailed, NgraphError, SpecError, Unsupported

        actions: dict[str, Callable[[Mapping[str, Any]], dict[str, Any]]] = {
            "hello": self._hello,
            "build": self._build,
            "prepare": self._prepare,
            "warm": self._warm,
            "visit": self._visit,
            "save": self._save,
            "close": self._close,
        }
        try:
            return {"ok": True, **actions[request["do"]](request)}
        except Unsupported as error:
            return _refusal("unsupported", str(error))
        except (CompileFailed, SpecError, NgraphError) as error:
            return _refusal("failed", str(error))
        except MemoryError as error:
            return _refusal("oom", f"out of memory: {error}")
        except Exception as error:  # noqa: BLE001 - whatever a runtime raises is this cell's outcome, with its traceback
            outcome = "oom" if _is_out_of_memory(error) else "failed"
            return _refusal(outcome, _first_line(error), traceback.format_exc(limit=-6))

    def _hello(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Import the adapter and its runtime now, so that no compile time contains an import."""
        from pytest_ngraph.compilers.catalogue import load

        if request["compiler"] is not None:
            self._adapter = load(request["compiler"], self._places[request["compiler"]])
            self._adapter.load()
        return {"proto": PROTO, "pid": os.getpid()}

    def _build(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from pytest_ngraph.spec import Workload
        from pytest_ngraph.workloads import artifacts

        workload = Workload.from_json(request["workload"])
        artifact = artifacts.build(workload, self._seed, self._artifacts, request["want_onnx"])
        return {"key": artifact.key}

    def _prepare(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Compile a cell, call it once and compare what it gives with the reference."""
        from pytest_ngraph.compilers.equality import compare
        from pytest_ngraph.errors import CompileFailed
        from pytest_ngraph.spec import Cell
        from pytest_ngraph.workloads import artifacts
        from pytest_ngraph.workloads.loaded import LoadedWorkload

        cell = Cell.from_json(request["cell"])
        adapter = self._adapter
        if adapter is None:
            raise CompileFailed("the worker was greeted without a compiler")
        artifact = None
        if adapter.reads != "nothing":
            want_onnx = adapter.reads == "onnx"
            artifact = artifacts.find(cell.workload, self._seed, self._artifacts, want_onnx)
            if artifact is None:
                # Gone since the planner made it, or its files changed: made again rather than measured stale.
                artifact = artifacts.build(cell.workload, self._seed, self._artifacts, want_onnx)
        workload = LoadedWorkload(cell.workload, self._seed, artifact)
        options = adapter.resolve(cell.compiler)
        if adapter.reads == "module":
            # Building the model is not compiling it.
            workload.module()

        began = perf_counter()
        executable = adapter.compile(workload, self._device, options)
        compiled = perf_counter() - began
        self._executables[request["number"]] = executable
        self._workloads[request["number"]] = workload
        executable.bind(workload.inputs if artifact is not None else {})
        began = perf_counter()
        executable.run()
        executable.synchronize()
        first_call = perf_counter() - began

        answer: dict[str, Any] = {
            "compile_seconds": compiled,
            "loaded": executable.loaded,
            "first_call_seconds": first_call,
            "export_seconds": None if artifact is None else artifact.meta.get("export_seconds"),
            "model_bytes": executable.model_bytes,
            "placement": [[key, str(value)] for key, value in executable.placement.items()],
            "max_error": None,
        }
        if executable.model_bytes is None and artifact is not None:
            answer["model_bytes"] = artifact.meta.get("model_bytes")
        outputs = executable.outputs()
        if outputs is not None and workload.reference is not None:
            agreement = compare(list(outputs), workload.reference, cell.workload.precision)
            answer["max_error"] = agreement.max_error
            if agreement.reason:
                self._drop(request["number"])
                return {**answer, "mismatch": agreement.reason}
        elif outputs is None and adapter.reads != "nothing":
            raise CompileFailed(
                f"{adapter.name}: its outputs() gave None, so nothing can be compared with the reference"
            )
        gc.collect()
        gc.freeze()
        gc.disable()
        return answer

    def _warm(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from pytest_ngraph.measure.timing import warm_up
        from pytest_ngraph.spec import Protocol
        from pytest_ngraph.stats.visits import batch_noise, settled

        series, calls, is_settled = warm_up(
            self._executables[request["number"]],
            Protocol(**request["protocol"]),
            lambda batches: settled(batches, noise=batch_noise(batches[-20:])),
        )
        tail = sorted(series[-20:])
        return {"series": series, "calls": calls, "settled": is_settled, "call_seconds": tail[len(tail) // 2]}

    def _visit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        from pytest_ngraph.measure.covariates import Covariates
        from pytest_ngraph.measure.timing import visit

        executable = self._executables[request["number"]]
        workload = self._workloads[request["number"]]
        if request["rebind"] and workload.artifact is not None:
            # Inputs allocated afresh, so that one lucky or unlucky address does not decide the whole launch.
            executable.bind({name: array.copy() for name, array in workload.inputs.items()})
        covariates = Covariates()
        try:
            done = visit(
                executable,
                calls=request["calls"],
                seconds=request["seconds"],
                least_batches=request["least_batches"],
                discard_seconds=request["discard_seconds"],
                covariates=covariates,
            )
        finally:
            covariates.close()
        return {
            "wall_ns": done.wall_ns,
            "cpu_ns": done.cpu_ns,
            "run_delay_ns": done.run_delay_ns,
            "faults": done.faults,
        }

    def _save(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Write the last outputs of a cell to an .npz file, for whoever wants to look at them."""
        import numpy as np

        outputs = self._executables[request["number"]].outputs() or []
        with Path(request["path"]).open("wb") as file:
            np.savez(file, *outputs)  # type: ignore[arg-type, unused-ignore]
        return {}

    def _close(self, request: Mapping[str, Any]) -> dict[str, Any]:
        for number in list(self._executables):
            self._drop(number)
        return {}

    def _drop(self, number: int) -> None:
        self._executables.pop(number).close()
        self._workloads.pop(number)


def _refusal(outcome: str, reason: str, detail: str = "") -> dict[str, Any]:
    return {"ok": False, "outcome": outcome, "reason": reason, "detail": detail}


def _first_line(error: BaseException) -> str:
    text = str(error).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _is_out_of_memory(error: BaseException) -> bool:
    """Tell whether a runtime's own exception means that memory ran out; each has its own words for it."""
    text = f"{type(error).__name__} {error}".lower()
    return any(words in text for words in ("out of memory", "bad_alloc", "can't allocate memory", "failed to allocate"))


def main(arguments: list[str]) -> None:
    """Serve requests until the pipe closes."""
    read_fd, write_fd, parent = (int(text) for text in arguments)
    die_with_parent(parent)
    with os.fdopen(read_fd, encoding="utf-8") as requests, os.fdopen(write_fd, "w", encoding="utf-8") as answers:
        job = json.loads(requests.readline())
        sys.path[:] = job["sys_path"]
        if job["device"]["cpus"] and hasattr(os, "sched_setaffinity"):
            # Before any runtime is imported: they size their pools by it.
            os.sched_setaffinity(0, job["device"]["cpus"])
        worker = Worker(job)
        for line in requests:
            request = json.loads(line)
            answer = {"id": request["id"], **worker.answer(request)}
            answers.write(json.dumps(answer) + "\n")
            answers.flush()
            if request["do"] == "close":
                break
    sys.stdout.flush()
    sys.stderr.flush()
    # Runtimes hang or crash in their global destructors now and then; everything worth keeping was answered.
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])

"""Building and timing candidate schedules, in processes that outlive a candidate and that a candidate may take along.

Started as ``pytest_ngraph.compilers.tvm.candidates build|time``: one JSON line in, one out. A job that takes
too long ends its process, and so does the end of the process that asks.
"""

from __future__ import annotations

import itertools
import json
import os
import queue
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from pytest_ngraph import interpreter
from pytest_ngraph.errors import CompileFailed

_SECONDS = 30
# Builders leak memory, says TVM's own tuner, which starts new ones for each batch.
_JOBS = 256
_SAID_BYTES = 1000


class JobFailed(Exception):
    """A candidate that could not be built or run. The text is the reason."""


class Helper:
    """A process that does jobs: started when it is first asked, and again after a job that it did not survive."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        self._command, self._environment = tuple(command), dict(environment)
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the helper
        self._process: subprocess.Popen[str] | None = None
        self._jobs = 0

    def ask(self, do: str, *, seconds: int = _SECONDS, **parameters: Any) -> Any:
        """Give a job to the process and return its answer.

        Raises JobFailed with the reason where the job fails, takes too long or ends the process, and CompileFailed
        where the process ends before it can do any.
        """
        if self._jobs >= _JOBS:
            self._kill()
        process = self._process or self._start()
        self._jobs += 1
        answer = _exchange(process, json.dumps({"do": do, "seconds": seconds, "parameters": parameters}))
        if answer is None:
            status = self._end()
            late = status == -signal.SIGALRM
            raise JobFailed(f"took over {seconds} s to {do}" if late else f"process ended with {status} ({do})")
        if "error" in answer:
            raise JobFailed(answer["error"])
        return answer["result"]

    def close(self) -> None:
        """End the process, whatever it is doing."""
        self._kill()
        self._errors.close()

    def _start(self) -> subprocess.Popen[str]:
        self._process = subprocess.Popen(
            self._command,
            env=self._environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            encoding="utf-8",
        )
        if _exchange(self._process, "") is None:
            status = self._end()
            fd = self._errors.fileno()
            said = os.pread(fd, _SAID_BYTES, max(0, os.fstat(fd).st_size - _SAID_BYTES)).decode("utf-8", "replace")
            raise CompileFailed(f"tvm: a process of the tuner ended with {status} before its first job: {said.strip()}")
        return self._process

    def _kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._end()

    def _end(self) -> int | None:
        """Wait for the end of the process and return its status."""
        process, self._process, self._jobs = self._process, None, 0
        if process is None:
            return None
        process.communicate()
        return process.returncode


def _exchange(process: subprocess.Popen[str], line: str) -> Any:
    """Send a line and return the answer to it, or None where the process has ended."""
    if process.stdin is None or process.stdout is None:
        raise ValueError("a helper without pipes")
    try:
        process.stdin.write(line + "\n")
        process.stdin.flush()
    except BrokenPipeError:
        return None
    answer = process.stdout.readline()
    return json.loads(answer) if answer.endswith("\n") else None


@dataclass(frozen=True, slots=True)
class Candidate:
    """A kernel with a schedule, as TVM's JSON, and the arguments to call it with (kind, type, shape)."""

    module: str
    arguments: list[Any]


class Bench:
    """Helpers for one target: several that build side by side, then one that times while nothing else runs."""

    def __init__(self, target: Mapping[str, Any], device: str, folder: Path, *, builders: int, threads: int) -> None:
        """Prepare for a target as a configuration, a device such as ``cuda:0``, and so many threads of a kernel.

        ``folder`` is empty and stays behind with what is left in it.
        """
        self._target, self._device, self._folder = dict(target), device, folder
        home = str(Path(__file__).resolve().parents[3])
        environment = {
            **os.environ,
            "TVM_NUM_THREADS": str(threads),
            "PYTHONPATH": os.pathsep.join(filter(None, [home, os.environ.get("PYTHONPATH")])),
            # Where a process that is ended leaves what it was writing.
            "TMPDIR": str(folder),
        }
        self._timer = Helper(interpreter.command(__name__, "time"), environment)
        self._builders = [Helper(interpreter.command(__name__, "build"), environment) for _ in range(builders)]
        self._idle: queue.SimpleQueue[Helper] = queue.SimpleQueue()
        for builder in self._builders:
            self._idle.put(builder)
        self._threads = ThreadPoolExecutor(builders)
        self._numbers = itertools.count()

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.shutdown(cancel_futures=True)
        for helper in (*self._builders, self._timer):
            helper.close()

    def measure(self, candidates: Iterable[Candidate], alive: Callable[[int], None]) -> list[float | str]:
        """Return the seconds of a call of each candidate, or why there is none.

        ``alive`` is called with the number of finished candidates whenever one has been built or timed.
        """
        all_of_them = list(candidates)
        times: list[float | str] = []
        for candidate, library in zip(all_of_them, self.build(all_of_them, alive), strict=True):
            times.append(library if isinstance(library, str) else self._time(candidate, library))
            alive(len(times))
        return times

    def build(self, candidates: Iterable[Candidate], alive: Callable[[int], None]) -> list[Path | str]:
        """Build candidates side by side. Return the library of each, or why there is none."""
        built: list[Path | str] = []
        for building in [self._threads.submit(self._build, candidate) for candidate in candidates]:
            built.append(building.result())
            alive(0)
        return built

    def _build(self, candidate: Candidate) -> Path | str:
        path = self._folder / f"{next(self._numbers)}.so"
        helper = self._idle.get()
        try:
            helper.ask("build", module=candidate.module, target=self._target, path=str(path))
        except JobFailed as failure:
            return str(failure)
        finally:
            self._idle.put(helper)
        return path

    def _time(self, candidate: Candidate, library: Path) -> float | str:
        try:
            return float(self._timer.ask("time", path=str(library), arguments=candidate.arguments, device=self._device))
        except JobFailed as failure:
            return str(failure)
        finally:
            library.unlink()


def build(module: str, target: Mapping[str, Any], path: str) -> None:
    """Build a kernel and write it as a shared library."""
    import tvm
    from tvm.s_tir.transform import RemoveWeightLayoutRewriteBlock

    kernel = RemoveWeightLayoutRewriteBlock(skip_tensor_rewrite=True)(tvm.ir.load_json(module))
    tvm.tirx.build(kernel, target=tvm.target.Target(target)).export_library(path)


def time(path: str, arguments: Sequence[Any], device: str) -> float:
    """Return the mean seconds of a call on random arguments, as TVM's own tuner times it: 3 calls and 0.1 s or more."""
    import tvm
    import tvm_ffi
    from tvm.s_tir.meta_schedule.runner import EvaluatorConfig
    from tvm.s_tir.meta_schedule.runner.local_runner import default_alloc_argument, default_run_evaluator

    place = tvm.runtime.device(device)
    # Otherwise every candidate would stay loaded.
    module = tvm_ffi.load_module(path, keep_module_alive=False)
    costs = default_run_evaluator(module, place, EvaluatorConfig(), default_alloc_argument(place, arguments, 1))
    return float(sum(costs) / len(costs))


def serve(jobs: Mapping[str, Callable[..., Any]], questions: TextIO, answers: TextIO) -> None:
    """Do jobs until the input ends. An empty line only asks for a sign of life."""
    for line in questions:
        answers.write(json.dumps(_answer(jobs, json.loads(line)) if line.strip() else {}) + "\n")
        answers.flush()


def _answer(jobs: Mapping[str, Callable[..., Any]], job: Mapping[str, Any]) -> dict[str, Any]:
    # Nobody handles it: it ends the process wherever that hangs.
    signal.alarm(job["seconds"])
    try:
        return {"result": jobs[job["do"]](**job["parameters"])}
    except Exception as error:  # noqa: BLE001 - whatever TVM raises speaks of this candidate only
        said = str(error).strip().partition("\n")[0]
        return {"error": f"{type(error).__name__}: {said}"}
    finally:
        signal.alarm(0)


def main(arguments: Sequence[str]) -> None:
    """Serve the kind of job that the only argument names. What TVM prints goes to standard error."""
    from pytest_ngraph.compilers.tvm.importing import import_intrinsics, import_tvm

    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    # Timing a kernel needs no intrinsics.
    {"build": import_intrinsics, "time": import_tvm}[arguments[0]]()
    serve({"build": build, "time": time}, sys.stdin, answers)
    # Destructors of a runtime may hang, and everything was answered.
    os._exit(0)

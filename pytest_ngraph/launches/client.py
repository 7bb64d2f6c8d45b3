"""The parent's end of a worker: asking it, parking it, and telling how it died."""

from __future__ import annotations

import functools
import json
import os
import random
import shutil
import signal
import time
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_ngraph.checks.oversight import CpuAccount
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.compilers.toolkit.variables import decides, deciding
from pytest_ngraph.errors import SpecError
from pytest_ngraph.launches.process import OwnProcess, how_it_ended, python_path
from pytest_ngraph.machine import clock, modes
from pytest_ngraph.options.settings import OF_SIDES
from pytest_ngraph.spec.cells import Cell, Device, ModelRef, Outcome, Protocol
from pytest_ngraph.spec.phases import IMPORTS, INTERPRETER
from pytest_ngraph.spec.sides import Side
from pytest_ngraph.texts.shown import clean, is_long, one_line
from pytest_ngraph.worker import sides
from pytest_ngraph.worker.answers import refusal
from pytest_ngraph.worker.logs import MOST_BYTES, log_line
from pytest_ngraph.worker.worker import PROTO, speaks_of_memory
from pytest_ngraph.workloads.folders import SCRATCH

# glibc gives big blocks back at every free and maps them again at every call; eager PyTorch pays up to a factor of
# two for it, now and then. With these a worker keeps what it has (docs/measuring.md, step 1).
STEADY_ALLOCATOR: Mapping[str, str] = {
    "MALLOC_MMAP_MAX_": "0",
    "MALLOC_TRIM_THRESHOLD_": "17179869184",
    "MALLOC_TOP_PAD_": "67108864",
}
_THREAD_VARIABLES = (
    "OMP_NUM_THREADS",
    "MKL_NUM_THREADS",
    "OPENBLAS_NUM_THREADS",
    "NUMEXPR_NUM_THREADS",
    "TVM_NUM_THREADS",
)
_SETTINGS: Mapping[str, str] = {
    "TVM_BIND_THREADS": "0",
    "PYTHONHASHSEED": "0",
    # As NVML numbers the GPUs.
    "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
}
_CACHES: Mapping[str, str] = {"TORCHINDUCTOR_CACHE_DIR": "inductor", "TRITON_CACHE_DIR": "triton"}
# A tracer of the tests' own code would be timed with what it traces.
_NOT_PASSED_ON = ("MALLOC_", "PYTEST_", "COV_CORE_", "COVERAGE_")
# How names begin of variables that the libraries below all runtimes, Python, the loader and the C library decide by.
_DECIDING = (
    "BLIS_", "CUBLAS", "CUDA_", "CUDNN_", "DNNL_", "GLIBC_TUNABLES", "GOMP_", "KMP_", "LD_PRELOAD", "MIMALLOC_", "MKL",
    "NUMEXPR_", "NVIDIA_TF32_OVERRIDE", "OMP_", "ONEDNN_", "OPENBLAS_", "PYTHONDEVMODE", "PYTHONMALLOC",
    "PYTHONOPTIMIZE", "PYTHONTRACEMALLOC", "PYTHON_GIL", "PYTHON_JIT", "TCMALLOC_",
)  # fmt: skip
_OF_THIS_PYTHON = frozenset({"PYTHONHOME", "PYTHONEXECUTABLE", "__PYVENV_LAUNCHER__"})
_SHOWN = 2000
_SEARCHED = 1 << 14
_LONGEST_ANSWER = 1 << 26


class WorkerEnded(Exception):
    """A worker that crashed, hung, ran out of memory or broke the protocol."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


def _inherited() -> dict[str, str]:
    """Return what workers inherit of this process's environment: all but what is set here or traces tests."""
    set_here = {*_THREAD_VARIABLES, *_SETTINGS}
    return {
        key: value for key, value in os.environ.items() if key not in set_here and not key.startswith(_NOT_PASSED_ON)
    }


@functools.cache
def _deciding() -> tuple[str, ...]:
    """Return how names of deciding variables begin, those of the adapters of this package among them."""
    catalogue = Catalogue()
    return (*_DECIDING, *(start for name in catalogue for start in catalogue.get(name).variables))


def deciding_variables() -> dict[str, str]:
    """Return the variables that workers inherit by which runtimes decide how they work: part of the evidence."""
    return deciding(_inherited(), _deciding())


def why_not_given(variable: str) -> str | None:
    """Return why a variable of the environment cannot be given to what measures, or None where it can.

    What would be overwritten in silence is refused instead. ``OMP_NUM_THREADS`` is read as the number of threads.
    """
    if variable in _THREAD_VARIABLES and variable != "OMP_NUM_THREADS":
        return "all compilers get the same number of threads: write threads = N, or NAME[threads=N] for one compiler"
    if variable.startswith("MALLOC_"):
        return "the allocator is set by the protocol, or launches would scatter by what it does"
    if variable in (*_SETTINGS, *_CACHES) or variable.startswith(_NOT_PASSED_ON):
        return "it is set, or left out, for every process that measures"
    return None


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker of a run shares: import path, device, seed, where artefacts and logs lie, adapters' places.

    ``variables`` are those by which runtimes decide how they work, as they are now: what a test or a library changed in
    them later would be measured as what was before. So is ``power_mode``: in another one nothing that is measured
    counts. With ``own_outputs`` each side is held to its own model's outputs. ``sides`` has the other sides of a run by
    their labels, and ``side`` is the one that its workers are of, None for here: see ``on``.
    """

    sys_path: tuple[str, ...]
    device: Device
    seed: int
    artifacts: Path
    logs: Path
    places: Mapping[str, str]
    timeout_seconds: float
    variables: Mapping[str, str] = field(default_factory=deciding_variables)
    power_mode: Mapping[str, str] = field(default_factory=modes.power_mode)
    own_outputs: bool = False
    sides: Mapping[str, Side] = field(default_factory=dict)
    side: Side | None = None

    def on(self, label: str) -> Job:
        """Return the job of workers of a side, by its label: of this one for the empty label, which is here.

        What is built where other versions decide lies in folders of its own. Files of a tree are known by their
        contents, so what is made of them lies with what is made here. Raises SpecError for a label that is not known.
        """
        if not label:
            return self
        side = self.sides.get(label)
        if side is None:
            known = ", ".join(self.sides) or "none"
            raise SpecError(f"side {label!r} is not one of this run (known: {known})")
        path = sides.import_path(side, self.sys_path)
        own = self.artifacts.parent / OF_SIDES / side.content[:32] / self.artifacts.name
        return replace(self, sys_path=path, side=side, artifacts=own if side.content else self.artifacts)

    def sent(self, cell: Cell) -> dict[str, Any]:
        """Return what a worker is sent of a cell: on another side its model lies in another folder."""
        return (cell if self.side is None else sides.cell_there(self.side, cell)).to_json()

    def to_json(self) -> dict[str, Any]:
        """Return the first line a worker reads."""
        of_side = {} if self.side is None else {"side": self.side.to_json()}
        return {
            **of_side,
            "sys_path": list(self.sys_path),
            "device": self.device.to_json(),
            "seed": self.seed,
            "artifacts": str(self.artifacts),
            "logs": str(self.logs),
            "places": dict(self.places),
            "variables": dict(self.variables),
        }


def worker_environment(
    device: Device, allocator: str, padding: int, caches: Path, variables: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the environment of a worker.

    Thread counts and the allocator are set here, everything else is inherited, but of ``deciding_variables`` just the
    given ones where there are any. ``padding`` bytes of dummy variable move the stack, so that no launch repeats the
    address layout of another.
    """
    environment = _inherited()
    if variables is not None:
        kept = {key: value for key, value in environment.items() if not decides(key, _deciding())}
        environment = {**kept, **variables}
    environment.update(dict.fromkeys(_THREAD_VARIABLES, str(device.threads)))
    environment.update(
        **_SETTINGS,
        **{variable: str(caches / folder) for variable, folder in _CACHES.items()},
        NGRAPH_PADDING="x" * padding,
    )
    if allocator == "steady":
        environment.update(STEADY_ALLOCATOR)
    return environment


def out_of_memory_kills() -> int | None:
    """Return how many processes the kernel has killed for memory since it booted, or None where it does not say."""
    try:
        with Path("/proc/vmstat").open(encoding="ascii") as lines:
            return next((int(line.split()[1]) for line in lines if line.startswith("oom_kill ")), None)
    except OSError:
        return None


class WorkerClient:
    """One worker process. Every wait has a limit. A worker that ends early raises WorkerEnded.

    With ``own_caches`` the compilers' own caches start empty and end with the worker. ``module`` is what runs in it:
    the worker, or something that answers as it does.
    """

    def __init__(
        self,
        job: Job,
        name: str,
        *,
        protocol: Protocol,
        draw: random.Random,
        own_caches: bool = False,
        module: str = "pytest_ngraph.worker.worker",
    ) -> None:
        self.name, self._job = name, job
        self._logs = job.logs
        self._timeout = job.timeout_seconds
        self._kills = out_of_memory_kills()
        self._buffer = b""
        self._number = 0
        self._own_caches = job.artifacts / f"{SCRATCH}{uuid.uuid4().hex}" if own_caches else None
        caches = self._own_caches or job.artifacts
        self._spawned = clock.seconds()
        environment = worker_environment(job.device, protocol.allocator, draw.randrange(4096), caches, job.variables)
        try:
            self._process = _started(job, module, environment)
        except OSError as error:
            raise WorkerEnded(Outcome.CRASH, f"no worker could be started: {error}") from error
        self.cpu = CpuAccount(self._process.pid)
        try:
            self._write("start", job.to_json())
        except BaseException:
            self.kill()
            raise

    @property
    def pid(self) -> int:
        """Return the worker's process id."""
        return self._process.pid

    def greet(self, compiler: str | None, models: Iterable[ModelRef] = ()) -> None:
        """Send the worker which compiler and which models it serves, so that it imports what they need.

        ``hello`` waits for it.
        """
        of_each_kind = {(model.scheme, model.kind): model.to_json() for model in models}
        self._ask("hello", compiler=compiler, models=list(of_each_kind.values()))

    def hello(self) -> Mapping[str, float]:
        """Wait until the worker has imported its runtime. Return the seconds that it took by itself, by phase.

        Raises WorkerEnded where it cannot or differs from us.
        """
        answer = self._answer("hello", self._timeout)
        if not answer["ok"]:
            raise self.end(Outcome(answer["outcome"]), refusal(answer))
        if answer["proto"] != PROTO:
            raise self.end(Outcome.CRASH, f"the worker speaks protocol {answer['proto']}, this run {PROTO}")
        # Both processes read the same clock.
        return {INTERPRETER: answer["began_seconds"] - self._spawned, IMPORTS: answer["import_seconds"]}

    def begin_loading(self, cell: Cell, number: int, artifact: str | None) -> None:
        """Ask the worker to read or build what a cell is compiled from. ``loaded`` waits for it."""
        self._ask("load", cell=self._job.sent(cell), number=number, artifact=artifact)

    def loaded(self) -> float:
        """Wait until the worker has loaded a cell, and return the seconds. Where it cannot, preparing will say so.

        Raises WorkerEnded where that ends it.
        """
        answer = self._answer("load", self._timeout)
        return float(answer["load_seconds"]) if answer["ok"] else 0.0

    def request(
        self,
        do: str,
        *,
        timeout: float | None = None,
        progress: Callable[[str, int, int], None] | None = None,
        **fields: Any,
    ) -> dict[str, Any]:
        """Ask for one thing, wait for the answer and return it. A parked worker is resumed first.

        ``progress`` gets the signs of life that come before the answer: the limit is that between two of them.
        """
        self._ask(do, **fields)
        return self._answer(do, self._timeout if timeout is None else timeout, progress)

    def begin(self, do: str, **fields: Any) -> None:
        """Ask for what is not waited for: the worker is stopped and resumed meanwhile, and ``early`` has its answer."""
        self._ask(do, **fields)

    def early(self, do: str) -> dict[str, Any] | None:
        """Return the answer to what was begun, or None while there is none. Raise WorkerEnded where there can be none.

        A worker that is parked can have ended, too.
        """
        chunk = self._process.read(0.0)
        if chunk is None and not self._process.ended():
            return None
        if not chunk:
            raise self._ended(do)
        self._buffer += chunk
        return self._answer(do, self._timeout)

    def park(self) -> None:
        """Stop the worker in its tracks: a neighbour's spinning threads must not take part in what is timed."""
        self._process.stop()

    def resume(self) -> None:
        """Resume a parked worker."""
        self._process.resume()

    def close(self) -> None:
        """End the worker in good order, by force where that takes more than a few seconds."""
        try:
            if not self._process.ended():
                self.request("close", timeout=10)
        except WorkerEnded:
            # A runtime that crashes while it is torn down has given everything that was asked of it.
            pass
        finally:
            self._finish(5)

    def kill(self) -> None:
        """End the worker and everything it started, at once."""
        self._process.signal(signal.SIGKILL)
        self._finish(0)

    def end(self, outcome: Outcome, reason: str) -> WorkerEnded:
        """End a worker that is of no more use, and return what became of it with the last it said."""
        said = self._last_words()
        self.kill()
        return WorkerEnded(outcome, reason + said)

    def _finish(self, seconds: float) -> None:
        self._process.wait(seconds)
        self._process.release()
        if self._own_caches is not None:
            shutil.rmtree(self._own_caches, ignore_errors=True)

    def _ask(self, do: str, **fields: Any) -> None:
        self._number += 1
        self.resume()
        self._write(do, {"id": self._number, "do": do, **fields})

    def _write(self, do: str, line: Mapping[str, Any]) -> None:
        if not self._process.write(json.dumps(line).encode("utf-8") + b"\n", self._timeout):
            raise self._ended(do)

    def _answer(self, do: str, limit: float, progress: Callable[[str, int, int], None] | None = None) -> dict[str, Any]:
        while True:
            line = self._read_line(do, limit)
            try:
                answer = json.loads(line)
                if not isinstance(answer, dict) or answer["id"] != self._number:
                    raise ValueError(line)
                if "ok" in answer:
                    return answer
                doing, done, total = answer["progress"]
            except (ValueError, KeyError, TypeError, RecursionError):
                raise self._broken(do, f"{line[:200]!r} is not an answer") from None
            if progress is not None:
                progress(one_line(str(doing)), int(done), int(total))

    def _read_line(self, do: str, limit: float) -> str:
        deadline = time.monotonic() + limit
        while b"\n" not in self._buffer:
            chunk = self._process.read(deadline - time.monotonic())
            if chunk is None:
                raise self._hung(do, limit)
            if not chunk:
                raise self._ended(do)
            self._buffer += chunk
            if len(self._buffer) > _LONGEST_ANSWER:
                raise self._broken(do, f"{self._buffer[:200]!r} has no end")
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace")

    def _broken(self, do: str, what: str) -> WorkerEnded:
        return self.end(Outcome.CRASH, f"the worker broke the protocol: {what} to {do!r}")

    def _hung(self, do: str, limit: float) -> WorkerEnded:
        # It answers this signal by printing where each of its threads is.
        self._process.signal(signal.SIGUSR1)
        time.sleep(0.1)
        return self.end(Outcome.TIMEOUT, f"no answer to {do!r} within {limit:g} s (--ngraph-timeout)")

    def _ended(self, do: str) -> WorkerEnded:
        """Return how a worker ended that no longer reads or answers."""
        by_itself = self._process.wait(5)
        code = self._process.exit_code
        if not by_itself:
            return self.end(Outcome.CRASH, f"the worker broke the protocol: it closed its pipes during {do!r}")
        killed_for_memory = code == -signal.SIGKILL and out_of_memory_kills() != self._kills
        if killed_for_memory or (code and speaks_of_memory(self._process.printed(_SEARCHED))):
            return self.end(Outcome.OOM, f"out of memory during {do!r}")
        return self.end(Outcome.CRASH, f"the worker {how_it_ended(code)} during {do!r}")

    def _last_words(self) -> str:
        """Return the end of what the worker printed, and where there is more of it."""
        printed = self._process.printed(_SEARCHED)
        # Python lists every C extension there is when it crashes, which would be all there is to see.
        lines = [line for line in printed.splitlines() if not line.startswith("Extension modules:")]
        text = clean("\n".join(lines)).strip()
        if not text:
            return ""
        words = "\n  its last output:\n    " + text[-_SHOWN:].replace("\n", "\n    ")
        if len(text) <= _SHOWN and not is_long(words):
            return words
        return words + log_line(self._logs, self.name, self._process.printed(MOST_BYTES))


def _started(job: Job, module: str, environment: Mapping[str, str]) -> OwnProcess:
    """Start a process of the side that the job is of. Raise OSError where that cannot be."""
    path, side = python_path(), job.side
    if side is None:
        return OwnProcess(module, {**environment, "PYTHONPATH": path})
    # Where another interpreter has its library is its own affair.
    kept = {name: value for name, value in environment.items() if not (side.python and name in _OF_THIS_PYTHON)}
    given = {**kept, "PYTHONPATH": sides.python_path(side, path, job.artifacts)}
    return OwnProcess(module, given, python=side.python or None, folder=sides.start_folder(side))

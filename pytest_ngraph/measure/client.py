"""The parent's end of a worker: starting it, asking it, parking it, and telling how it died."""

from __future__ import annotations

import contextlib
import json
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pytest_ngraph.measure.worker import PROTO
from pytest_ngraph.spec import Device, Outcome, Protocol

# glibc gives big blocks back at every free and maps them anew at every call; eager PyTorch pays up to a factor of
# two for it, now and then. With these a worker keeps what it has (MEASUREMENT: why not the usual way).
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
_STDERR_TAIL = 2000


class WorkerEnded(Exception):
    """A worker that crashed, hung, ran out of memory or broke the protocol."""

    def __init__(self, outcome: Outcome, reason: str) -> None:
        super().__init__(reason)
        self.outcome = outcome
        self.reason = reason


@dataclass(frozen=True, slots=True)
class Job:
    """What every worker of a run shares: import path, device, seed, where artefacts and logs lie, adapters' places."""

    sys_path: tuple[str, ...]
    device: Device
    seed: int
    artifacts: Path
    logs: Path
    places: Mapping[str, str]
    timeout_seconds: float

    def to_json(self) -> dict[str, Any]:
        """Return the first line a worker reads."""
        return {
            "sys_path": list(self.sys_path),
            "device": self.device.to_json(),
            "seed": self.seed,
            "artifacts": str(self.artifacts),
            "places": dict(self.places),
        }


@dataclass(frozen=True, slots=True)
class Usage:
    """What a worker used over its life: CPU seconds and peak resident bytes."""

    cpu_seconds: float
    peak_memory_bytes: int


def worker_environment(device: Device, allocator: str, padding: int, cache: Path) -> dict[str, str]:
    """Return the environment of a worker.

    Thread counts and the allocator are ours, everything else is inherited. ``padding`` bytes of dummy variable move
    the stack, so that no launch repeats the address layout of another.
    """
    environment = {
        key: value
        for key, value in os.environ.items()
        if key not in _THREAD_VARIABLES and not key.startswith(("MALLOC_", "PYTEST_"))
    }
    environment.update(dict.fromkeys(_THREAD_VARIABLES, str(device.threads)))
    environment.update(
        TVM_BIND_THREADS="0",
        PYTHONHASHSEED="0",
        TORCHINDUCTOR_CACHE_DIR=str(cache / "inductor"),
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
    """One worker process. Every wait has a limit; a worker that ends early raises WorkerEnded."""

    def __init__(self, job: Job, name: str, *, protocol: Protocol, draw: random.Random) -> None:
        self.name = name
        job.logs.mkdir(parents=True, exist_ok=True)
        self._log = job.logs / f"{os.getpid()}-{time.monotonic_ns()}.log"
        self._timeout = job.timeout_seconds
        self._kills = out_of_memory_kills()
        self._buffer = b""
        self._number = 0
        self._stopped = False
        self.usage: Usage | None = None
        request_read, self._request_fd = os.pipe()
        self._answer_fd, answer_write = os.pipe()
        os.set_blocking(self._answer_fd, False)
        try:
            with self._log.open("wb") as log:
                self._process = subprocess.Popen(
                    [
                        sys.executable,
                        "-m",
                        "pytest_ngraph.measure.worker",
                        str(request_read),
                        str(answer_write),
                        str(os.getpid()),
                    ],
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(request_read, answer_write),
                    # A session of its own: Ctrl-C reaches pytest only, which then ends its workers itself.
                    start_new_session=True,
                    env={
                        **worker_environment(job.device, protocol.allocator, draw.randrange(4096), job.artifacts),
                        "PYTHONPATH": _python_path(),
                    },
                )
        except BaseException:
            os.close(self._request_fd)
            os.close(self._answer_fd)
            raise
        finally:
            os.close(request_read)
            os.close(answer_write)
        self._write(json.dumps(job.to_json()))

    @property
    def pid(self) -> int:
        """Return the worker's process id."""
        return self._process.pid

    def greet(self, compiler: str | None) -> None:
        """Tell the worker which compiler it serves, so that it imports the runtime; ``hello`` waits for it."""
        self._ask("hello", compiler=compiler)

    def hello(self) -> None:
        """Wait until the worker has imported its runtime; raise WorkerEnded where it cannot or differs from us."""
        answer = self._answer("hello", self._timeout)
        if not answer["ok"]:
            raise self._end(Outcome.FAILED, answer["reason"])
        if answer["proto"] != PROTO:
            raise self._end(Outcome.CRASH, f"the worker speaks protocol {answer['proto']}, this run {PROTO}")

    def request(self, do: str, *, timeout: float | None = None, **fields: Any) -> dict[str, Any]:
        """Ask for one thing, wait for the answer and return it; a parked worker is resumed first."""
        self._ask(do, **fields)
        return self._answer(do, self._timeout if timeout is None else timeout)

    def _ask(self, do: str, **fields: Any) -> None:
        self._number += 1
        self.resume()
        self._write(json.dumps({"id": self._number, "do": do, **fields}))

    def _answer(self, do: str, limit: float) -> dict[str, Any]:
        line = self._read_line(do, limit)
        try:
            answer = json.loads(line)
            if not isinstance(answer, dict) or answer["id"] != self._number or "ok" not in answer:
                raise ValueError(line)
        except (ValueError, KeyError):
            raise self._end(
                Outcome.CRASH, f"the worker broke the protocol: {line[:200]!r} is not an answer to {do!r}"
            ) from None
        return answer

    def park(self) -> None:
        """Stop the worker in its tracks: a neighbour's spinning threads must not take part in what is timed."""
        if not self._stopped and self._process.returncode is None:
            self._signal(signal.SIGSTOP)
            self._stopped = True

    def resume(self) -> None:
        """Let a parked worker run again."""
        if self._stopped:
            self._signal(signal.SIGCONT)
            self._stopped = False

    def close(self) -> None:
        """End the worker in good order, by force where that takes more than a few seconds."""
        if self._process.returncode is None:
            with contextlib.suppress(WorkerEnded):
                self.request("close", timeout=10)
            self._reap(5)
        self._release()

    def kill(self) -> None:
        """End the worker and everything it started, at once."""
        if self._process.returncode is None:
            self._signal(signal.SIGKILL)
            self._reap(10)
        self._release()

    def _write(self, line: str) -> None:
        data = (line + "\n").encode("utf-8")
        try:
            while data:
                data = data[os.write(self._request_fd, data) :]
        except BrokenPipeError:
            raise self._ended("starting") from None

    def _read_line(self, doing: str, limit: float) -> str:
        deadline = time.monotonic() + limit
        poll = select.poll()
        poll.register(self._answer_fd, select.POLLIN)
        while b"\n" not in self._buffer:
            rest = deadline - time.monotonic()
            if rest <= 0:
                raise self._end(Outcome.TIMEOUT, f"no answer to {doing!r} within {limit:g} s (--ngraph-timeout)")
            if not poll.poll(rest * 1000):
                continue
            chunk = os.read(self._answer_fd, 1 << 16)
            if not chunk:
                raise self._ended(doing)
            self._buffer += chunk
        line, _, self._buffer = self._buffer.partition(b"\n")
        return line.decode("utf-8", "replace")

    def _end(self, outcome: Outcome, reason: str) -> WorkerEnded:
        self.kill()
        return WorkerEnded(outcome, reason + self._stderr())

    def _ended(self, doing: str) -> WorkerEnded:
        """Say how a worker that closed its pipe ended."""
        self._reap(5)
        code = self._process.returncode
        self._release()
        killed_for_memory = code == -signal.SIGKILL and out_of_memory_kills() != self._kills
        stderr = self._stderr()
        if killed_for_memory or "std::bad_alloc" in stderr:
            return WorkerEnded(Outcome.OOM, f"out of memory while {doing!r}" + stderr)
        if code is not None and code < 0:
            name = signal.Signals(-code).name
            return WorkerEnded(Outcome.CRASH, f"the worker was ended by {name} during {doing!r}" + stderr)
        return WorkerEnded(Outcome.CRASH, f"the worker exited with status {code} during {doing!r}" + stderr)

    def _stderr(self) -> str:
        try:
            text = self._log.read_bytes()[-_STDERR_TAIL:].decode("utf-8", "replace").strip()
        except OSError:
            return ""
        return f"\n  its last output:\n    {text.replace(chr(10), chr(10) + '    ')}" if text else ""

    def _signal(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, number)

    def _reap(self, seconds: float) -> None:
        """Wait for the end, kill what does not end, and keep what the kernel counted."""
        deadline = time.monotonic() + seconds
        while self._process.returncode is None:
            pid, status, used = os.wait4(self._process.pid, os.WNOHANG)
            if pid:
                self._process.returncode = os.waitstatus_to_exitcode(status)
                self.usage = Usage(used.ru_utime + used.ru_stime, used.ru_maxrss * 1024)
                break
            if time.monotonic() >= deadline:
                self._signal(signal.SIGKILL)
            time.sleep(0.002)
        # What the worker itself had started must not outlive it.
        self._signal(signal.SIGKILL)

    def _release(self) -> None:
        for fd in (self._request_fd, self._answer_fd):
            with contextlib.suppress(OSError):
                os.close(fd)
        self._request_fd = self._answer_fd = -1
        if self._process.returncode == 0:
            self._log.unlink(missing_ok=True)


def _python_path() -> str:
    """Return the folder this package is imported from, then what PYTHONPATH already held."""
    home = str(Path(__file__).resolve().parents[2])
    rest: Sequence[str] = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join([home, *rest])

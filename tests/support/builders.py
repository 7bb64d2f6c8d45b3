"""A plugin: processes that build models are forked from one that has imported PyTorch and exported a model once.

Importing PyTorch and its exporter takes four times as long as exporting a small model, the same each time. What is
timed is in processes of its own, started as ever. ``BUILDERS.start`` starts what forks and says in the environment
where to ask it; runs of pytest that find it there ask, and all others start their builders as ever.

Started as ``python builders.py LISTENING_FD``, this file is the process that forks; it ends with its standard input.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
import warnings
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any, cast

ADDRESS = "NGRAPH_TESTS_BUILDERS"
_LONGEST_REQUEST = 1 << 20
_DESCRIPTORS = 4
# Longer than any export takes here; whoever asked has given up before.
_ENDED_SECONDS = 600.0


# Beside the tests


class Builders:
    """The process that forks: it starts when the first test asks for it and ends with this process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._address = f"ngraph-tests-{uuid.uuid4().hex}"

    def start(self) -> str:
        """Start the process unless it runs, and return where to ask it: what the variable is set to."""
        if self._process is None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
                listening.bind(f"\0{self._address}")
                listening.listen(16)
                # One thread each: a pool of threads does not survive a fork.
                few = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
                kept = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
                self._process = subprocess.Popen(
                    [sys.executable, __file__, str(listening.fileno())],
                    pass_fds=[listening.fileno()],
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                    env={**kept, **few, "PYTHONHASHSEED": "0"},
                )
        return self._address

    def close(self) -> None:
        """End the process."""
        if self._process is not None:
            self._process.communicate()
            self._process = None


# One for all suites: pytest imports the conftest under another name than tests do.
BUILDERS = Builders()


# In a run of pytest, which imports nothing of this package before it is loaded as a plugin


def pytest_configure() -> None:
    """Ask for builders where somebody forks them, and start everything else as ever."""
    if ADDRESS in os.environ:
        _fork_builders(os.environ[ADDRESS])


@contextlib.contextmanager
def forking() -> Iterator[None]:
    """Fork the builders of this process inside."""
    from pytest_ngraph.launches.client import WorkerClient

    before = WorkerClient.__init__
    _fork_builders(BUILDERS.start())
    try:
        yield
    finally:
        WorkerClient.__init__ = before  # type: ignore[method-assign]


def _fork_builders(address: str) -> None:
    """Have builders forked from now on."""
    from pytest_ngraph.launches import client
    from pytest_ngraph.launches.process import OwnProcess, python_path

    begin, started = client.WorkerClient.__init__, client._started

    class Forked(OwnProcess):
        """A process that was forked elsewhere, so that this one is not its parent."""

        def __init__(self, module: str, environment: Mapping[str, str]) -> None:
            self._stopped = False
            self._output = tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
            read_theirs, self._write_fd = os.pipe()
            self._read_fd, write_theirs = os.pipe()
            os.set_blocking(self._read_fd, False)
            os.set_blocking(self._write_fd, False)
            files = [self._output.fileno(), read_theirs, write_theirs]
            popen, finalize = _Popen(address, module, environment, files), cast(Any, weakref.finalize)
            self._popen = cast(Any, popen)
            os.close(read_theirs)
            os.close(write_theirs)
            self._abandoned = finalize(self, _end_abandoned, popen, self._output, (self._read_fd, self._write_fd))

        def _look(self, flags: int) -> bool:
            return self._popen.poll() is not None

    def builds(self: client.WorkerClient, job: client.Job, name: str, **how: Any) -> None:
        forks = name == "builder" and job.side is None
        client._started = (lambda job, module, environment: Forked(module, _given(environment))) if forks else started
        try:
            begin(self, job, name, **how)
        finally:
            client._started = started

    def _given(environment: Mapping[str, str]) -> dict[str, str]:
        return {**environment, "PYTHONPATH": python_path()}

    client.WorkerClient.__init__ = builds  # type: ignore[method-assign]


def fork_conformance() -> None:
    """Have the processes of the conformance suite forked from now on, in a run of pytest that finds where to ask."""
    laboratory: Any = importlib.import_module("pytest_ngraph.conformance.laboratory")
    address = os.environ[ADDRESS]

    def run(
        command: Sequence[str], *, input: str, env: Mapping[str, str], timeout: float, **_: object
    ) -> subprocess.CompletedProcess[str]:
        module, *words = command[3:]
        with (
            tempfile.TemporaryFile("w+") as given,
            tempfile.TemporaryFile("w+") as out,
            tempfile.TemporaryFile("w+") as err,
        ):
            given.write(input)
            given.seek(0)
            process = _Popen(address, module, env, [file.fileno() for file in (given, out, err)], words)
            process.wait(timeout)
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(command), timeout)
            for file in (out, err):
                file.seek(0)
            return subprocess.CompletedProcess(list(command), process.returncode, out.read(), err.read())

    laboratory.subprocess = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)


class _Popen:
    """What ``OwnProcess`` uses of ``subprocess.Popen``."""

    def __init__(
        self, address: str, module: str, environment: Mapping[str, str], files: list[int], words: Sequence[str] = ()
    ) -> None:
        self.returncode: int | None = None
        self._asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked.connect(f"\0{address}")
        request = {"module": module, "cwd": str(Path.cwd()), "environ": dict(environment), "words": words}
        socket.send_fds(self._asked, [json.dumps(request).encode()], files)
        self.pid = int(self._asked.recv(64))

    def poll(self) -> int | None:
        if self.returncode is None and select.select([self._asked], [], [], 0)[0]:
            with self._asked:
                # Nothing at all: who waited for it was killed.
                self.returncode = int(self._asked.recv(64) or -signal.SIGKILL)
        return self.returncode

    def wait(self, seconds: float = _ENDED_SECONDS) -> None:
        if self.returncode is None:
            select.select([self._asked], [], [], seconds)
        self.poll()


def _end_abandoned(popen: _Popen, output: IO[bytes], fds: tuple[int, ...]) -> None:
    if popen.poll() is None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(popen.pid, signal.SIGKILL)
        popen.wait()
    for fd in fds:
        os.close(fd)
    output.close()


# In the process that forks


def _serve(listening: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request until the process that started this one has ended; in a fork, return the request."""
    waiting: set[int] = set()
    while True:
        ready = select.select([listening, sys.stdin], [], [])[0]
        waiting -= {pid for pid in waiting if os.waitpid(pid, os.WNOHANG)[0]}
        if sys.stdin in ready:
            raise SystemExit
        asked, _ = listening.accept()
        # Each is waited for by a process of its own, which says how it ended.
        if waiter := os.fork():
            waiting.add(waiter)
            asked.close()
            continue
        listening.close()
        data, files, _, _ = socket.recv_fds(asked, _LONGEST_REQUEST, _DESCRIPTORS)
        if pid := os.fork():
            status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(OSError):
                asked.send(str(status).encode())
            os._exit(0)
        # The parent signals the group of its builder from the moment it knows it.
        os.setsid()
        asked.send(str(os.getpid()).encode())
        asked.close()
        return json.loads(data), files


def _begin(request: Mapping[str, Any], files: list[int]) -> None:
    """Make this process what ``OwnProcess`` would have started."""
    import torch

    if request["words"]:
        standard, words = files, request["words"]
    else:
        output, *pipes = files
        standard = [os.open(os.devnull, os.O_RDONLY), output, output]
        words = [*map(str, pipes), str(os.getppid())]
    for target, file in enumerate(standard):
        os.dup2(file, target)
    for file in set(standard):
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["-c", request["module"], *words]


def _export_once() -> None:
    """Load all that the exporter loads when it is first used."""
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),), dynamo=True, verbose=False)


def main(listening_fd: int) -> None:
    """Import, fork, and begin what was asked for in each fork."""
    # This file's folder: what lies in it is imported as ``tests.NAME``.
    del sys.path[0]
    import torch  # noqa: F401

    with contextlib.suppress(ImportError):
        import onnx  # noqa: F401
        import onnxscript  # noqa: F401

        _export_once()
    gc.collect()
    gc.freeze()
    with socket.socket(fileno=listening_fd) as listening:
        request, files = _serve(listening)
        _begin(request, files)
    from pytest_ngraph.interpreter import begin

    begin()


if __name__ == "__main__":
    main(int(sys.argv[1]))

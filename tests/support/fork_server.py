"""The process that forks workers: the runtime that one imports is loaded before it is forked, once for all tests.

It holds NumPy and this package. What holds a runtime is forked from it at the first request for such a worker, and
forks in its turn: PyTorch is imported once. None runs anything of a runtime but the exporter, once, for builders, and
inductor's look at the processor; what measures is forked from processes with one thread: a pool of threads does not
survive a fork.

A fork is what ``OwnProcess`` starts, but for what is read when an interpreter, a loader or a library begins. Requests
with other such variables than these processes have are answered by nothing, and whoever asked starts a process.

Started as ``python fork_server.py LISTENING_FD``; it ends with its standard input, and the others with it.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NoReturn

LONGEST_REQUEST = 1 << 20
_DESCRIPTORS = 5
# What forks workers of a compiler, or builders: the process that it is forked from, by name.
# Not ONNX Runtime, which starts a thread when it is imported, nor OpenVINO: importing them takes a tenth of a second.
_PARENTS = {"torch": "", "builder": "torch", "inductor": "torch", "tvm": "", "onnx": ""}
_SHARED = {
    **{"identity": "torch", "torchscript": "torch"},
    # It reads the file that it is given before a runtime does (``failing_operators``).
    "onebad": "onnx",
    # Those of tests that run a module of PyTorch, by the names that they have there.
    **dict.fromkeys(("cheat", "cheat_tokens", "noisy", "open", "traced"), "torch"),
}
# Set for what is to have errors for warnings from the fork on, as ``PYTHONWARNINGS`` is for what is started cold.
STRICT = "NGRAPH_TESTS_WARNINGS"
_FILTERS = len(warnings.filters)
# Runtimes set some of their own variables when they are imported.
_STARTED_WITH = dict(os.environ)
_OURS = (
    "pytest_ngraph.checks.freshness",
    "pytest_ngraph.compilers.catalogue",
    "pytest_ngraph.compilers.null",
    "pytest_ngraph.compilers.toolkit.kept",
    "pytest_ngraph.devices.agent.measuring",
    "pytest_ngraph.interpreter",
    "pytest_ngraph.worker.answers",
    "pytest_ngraph.worker.covariates",
    "pytest_ngraph.worker.handover",
    "pytest_ngraph.worker.logs",
    "pytest_ngraph.worker.timing",
    "pytest_ngraph.worker.worker",
    "pytest_ngraph.workloads.artifacts",
    "pytest_ngraph.workloads.kinds",
    "pytest_ngraph.workloads.loaded",
)
# Set after the fork by the runtimes' own functions, or read by them when their threads start.
_SET_LATER = {
    *("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMEXPR_NUM_THREADS", "TVM_NUM_THREADS"),
    *("TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR", "PYTHONPATH"),
}
# Of an interpreter, the loader, the C library and the allocator. Those of the runtimes are the adapters' to name.
_READ_AT_THE_START = ("PYTHON", "LANG", "LC_", "LD_", "GLIBC_", "MALLOC_", "NPY_")


def server_of(name: str) -> str:
    """Return what forks the workers of a compiler, or builders."""
    return _SHARED.get(name, name if name in _PARENTS else "")


def _load(name: str) -> None:
    """Import what the workers that are forked here import first."""
    if not name:
        import numpy  # noqa: F401

        for module in _OURS:
            importlib.import_module(module)
    elif name == "onnx":
        import onnx.numpy_helper
    elif name == "builder":
        # Without them models are built all the same.
        with contextlib.suppress(ImportError):
            import onnx  # noqa: F401
            import onnxscript  # noqa: F401

            _export_once()
    else:
        from pytest_ngraph.compilers.catalogue import BUILT_IN, load

        compiler = {"torch": "identity"}.get(name, name)
        load(compiler, BUILT_IN[compiler]).load()
        if name == "inductor":
            # It asks g++ ten times what this processor can do, where its cache is empty: ten seconds of CPU.
            importlib.import_module("torch._inductor.cpu_vec_isa").valid_vec_isa_list()


def _export_once() -> None:
    """Load all that the exporter loads when it is first used."""
    import torch

    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("ignore")
        torch.onnx.export(torch.nn.Linear(2, 2).eval(), (torch.ones(1, 2),), dynamo=True, verbose=False)


class _Server:
    """One of the processes that fork, by what it has loaded."""

    def __init__(self, name: str, source: socket.socket) -> None:
        self._name, self._source = name, source
        self._below: dict[str, socket.socket] = {}
        # What waits for forks, and what forks others.
        self._waiting: set[int] = set()

    def serve(self) -> tuple[dict[str, Any], list[int]]:
        """Fork for each request until there are no more, and end; in a fork, return the request and its files."""
        while True:
            _load(self._name)
            # The exporter leaves one behind, which nothing that is built waits for.
            alone = self._name == "builder" or len(os.listdir("/proc/self/task")) == 1
            assert alone, f"{self._name or 'NumPy'} has started threads"
            gc.collect()
            # Nothing that is loaded is looked at when garbage is collected in a fork.
            gc.freeze()
            for data, files in self._requests():
                request = json.loads(data)
                if not _is_as_here(request["environ"]):
                    _close(files)
                elif (wanted := self._next(server_of(request["name"]))) == self._name:
                    if (forked := self._fork(files)) is not None:
                        return request, forked
                elif self._passed_on(wanted, data, files):
                    # This process is another one now.
                    break

    def _requests(self) -> Iterator[tuple[bytes, list[int]]]:
        """Yield requests, each with the descriptor on which it is answered and its files."""
        ends: list[Any] = [] if self._name else [sys.stdin]
        while True:
            ready = select.select([self._source, *ends], [], [])[0]
            self._waiting -= {pid for pid in self._waiting if os.waitpid(pid, os.WNOHANG)[0]}
            if sys.stdin in ready:
                self._end()
            if self._name:
                data, files, _, _ = socket.recv_fds(self._source, LONGEST_REQUEST, _DESCRIPTORS)
                if not data:
                    self._end()
            else:
                asked, _ = self._source.accept()
                data, files, _, _ = socket.recv_fds(asked, LONGEST_REQUEST, _DESCRIPTORS)
                files.insert(0, asked.detach())
            yield data, files

    def _end(self) -> NoReturn:
        """End after all forks, which end with whoever asked for them."""
        for end in self._below.values():
            end.close()
        for pid in self._waiting:
            os.waitpid(pid, 0)
        raise SystemExit

    def _next(self, wanted: str) -> str:
        """Return the next process on the way from here to one of them, or this one's own name."""
        while wanted != self._name and _PARENTS[wanted] != self._name:
            wanted = _PARENTS[wanted]
        return wanted

    def _passed_on(self, name: str, data: bytes, files: list[int]) -> bool:
        """Pass a request on. Return whether this is the process that was forked for that; it gets the request again."""
        if name not in self._below:
            ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            if server := os.fork():
                self._waiting.add(server)
            else:
                _close(files)
                for end in (ours, self._source, *self._below.values()):
                    end.close()
                self.__init__(name, theirs)  # type: ignore[misc]
                return True
            theirs.close()
            self._below[name] = ours
        # One that could not load its runtime has ended, and who asked is answered by nothing.
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            socket.send_fds(self._below[name], [data], files)
        _close(files)
        return False

    def _fork(self, files: list[int]) -> list[int] | None:
        """Fork what was asked for, and what waits for it; return its files in the fork, None here."""
        answering, *rest = files
        # Each is waited for by a process of its own, which says how it ended.
        if waiter := os.fork():
            self._waiting.add(waiter)
            _close(files)
            return None
        for end in (self._source, *self._below.values()):
            end.close()
        with socket.socket(fileno=answering) as asked:
            if pid := os.fork():
                _close(rest)
                _wait_for(pid, asked)
            # The parent signals the group of its worker from the moment it knows it.
            os.setsid()
            asked.send(str(os.getpid()).encode())
        return rest


def _wait_for(pid: int, asked: socket.socket) -> None:
    """Say how a fork ended, and end. It is ended with whoever asked for it, as the kernel ends a worker."""
    process = os.pidfd_open(pid)
    either: list[Any] = [asked, process]
    if process not in select.select(either, [], [])[0]:
        # It may not have its group yet.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(pid, signal.SIGKILL)
        os.kill(pid, signal.SIGKILL)
    status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    with contextlib.suppress(OSError):
        asked.send(str(status).encode())
    os._exit(0)


def _is_as_here(environ: Mapping[str, str]) -> bool:
    """Tell whether a process with these variables would begin as this one did."""
    root = str(Path(__file__).parents[2])
    is_ours = environ["PYTHONPATH"].split(os.pathsep)[0] == root
    return is_ours and read_at_the_start(environ) == read_at_the_start(_STARTED_WITH)


def read_at_the_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that cannot be given to a fork."""
    beginnings = _beginnings()
    return {key: value for key, value in environ.items() if key.startswith(beginnings) and key not in _SET_LATER}


def _beginnings() -> tuple[str, ...]:
    from pytest_ngraph.launches import client

    return (*_READ_AT_THE_START, *client._deciding())


def _close(files: list[int]) -> None:
    for file in files:
        os.close(file)


def _begin(request: Mapping[str, Any], files: list[int]) -> None:
    """Make this process what ``OwnProcess`` would have started, or what has three files for the standard ones."""
    words = request["words"]
    if request["pipes"]:
        output, *pipes = files
        standard = [os.open(os.devnull, os.O_RDONLY), output, output]
        # As in the command line, by the numbers that they have here.
        words = [*map(str, pipes), str(os.getppid()), *words[len(pipes) + 1 :]]
    else:
        standard = files
    for target, file in enumerate(standard):
        os.dup2(file, target)
    for file in set(standard):
        os.close(file)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["environ"])
    if torch := sys.modules.get("torch"):
        torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    if os.environ.get(STRICT) == "error":
        # Behind the filters of what was imported, as where an interpreter begins so.
        place = len(warnings.filters) - _FILTERS
        warnings.simplefilter("error", append=True)
        warnings.filters.insert(place, warnings.filters.pop())  # type: ignore[attr-defined]
    # What a process draws that nobody has seeded is its own.
    random.seed()
    sys.modules["numpy"].random.seed()
    sys.path[:0] = os.environ["PYTHONPATH"].split(os.pathsep)
    sys.argv = ["-c", request["module"], *words]


def main(listening_fd: int) -> None:
    """Import, fork, and begin what was asked for in each fork."""
    # This file's folder is not on the path of workers; this package is found where its tests are.
    sys.path[0] = str(Path(__file__).parents[2])
    _beginnings()
    with socket.socket(fileno=listening_fd) as listening:
        request, files = _Server("", listening).serve()
    del sys.path[0]
    _begin(request, files)
    from pytest_ngraph.interpreter import begin

    begin()


if __name__ == "__main__":
    main(int(sys.argv[1]))

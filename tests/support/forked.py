"""Runs of pytest that are forked from a process which has imported what every run imports, instead of started cold.

A run of a suite spends most of a second on importing pytest, NumPy, SciPy and us, the same each time. ``Forks.popen``
starts one in the words of ``subprocess.Popen``: the same command, folder, variables and files, and its process ends as
an interpreter does. What an interpreter reads when it starts cannot be given to a fork: a run with other such variables
is started cold.

Started as ``python forked.py SOCKET_FD``, this file is the process that forks.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import runpy
import socket
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

# What runs on null import that is not ours.
_PRELOADED = ("numpy", "psutil", "scipy.optimize", "scipy.special", "sqlite3", "uuid")
# Of ours, with all that these import. Not what pytest loads as a plugin by its name: it rewrites that as it does.
_OURS = (
    "pytest_ngraph.claims.assertions",
    "pytest_ngraph.compilers.null",
    "pytest_ngraph.devices.lab.known",
    "pytest_ngraph.devices.local",
    "pytest_ngraph.front.header",
    "pytest_ngraph.front.summary.summary",
    "pytest_ngraph.plan.grid",
    "pytest_ngraph.report.at_once",
    "pytest_ngraph.report.results.cells",
    "pytest_ngraph.session.session",
    "pytest_ngraph.workloads.kinds.blocks",
)
# What pytest itself imports when it starts.
_PYTESTS = ("unittest", "pdb", "faulthandler", "xml.etree.ElementTree", "difflib")
# Read once, by an interpreter, the loader, the C library or NumPy.
_READ_AT_THE_START = ("PYTHON", "LANG", "LC_", "LD_", "GLIBC_", "MALLOC_", "OPENBLAS_", "OMP_", "MKL_", "NPY_")
_LONGEST_REQUEST = 1 << 20
_DESCRIPTORS = 3


class Fork:
    """A run of pytest that was forked, with what ``pytester.run`` uses of ``subprocess.Popen``."""

    stdin = None

    def __init__(self, status: IO[bytes]) -> None:
        self._status = status

    def wait(self) -> int:
        """Wait for its end and return its exit status, a signal as a negative number."""
        with self._status:
            return int(self._status.read())


class Forks:
    """The process that forks, with the variables of now: it starts with the first run and ends with this process."""

    def __init__(self) -> None:
        self._environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process: subprocess.Popen[bytes] | None = None
        self._requests: socket.socket | None = None

    def _started(self) -> socket.socket:
        """Return where requests go; the first starts the process."""
        if self._requests is None:
            self._requests, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
            with theirs:
                command = [sys.executable, __file__, str(theirs.fileno())]
                self._process = subprocess.Popen(command, pass_fds=[theirs.fileno()], env=self._environ)
        return self._requests

    def popen(
        self,
        command: Sequence[str | os.PathLike[str]],
        *,
        stdin: object,
        stdout: IO[Any],
        stderr: IO[Any],
        cwd: Path | None = None,
        env: Mapping[str, str] | None = None,
        close_fds: bool = True,
    ) -> Fork | subprocess.Popen[bytes]:
        """Start ``python -mpytest ...``, without standard input; here and with the variables of now by itself.

        ``close_fds``, which pytest 8.0 gives, is what a fork does anyway.
        """
        python, module, *words = [os.fspath(word) for word in command]
        assert (python, module) == (sys.executable, "-mpytest")
        folder, given = str(cwd or Path.cwd()), os.environ if env is None else env
        # As ``pytester.popen`` does.
        environ = {**given, "PYTHONPATH": os.pathsep.join(filter(None, [folder, given.get("PYTHONPATH")]))}
        if _given_at_the_start(environ) != _given_at_the_start(self._environ):
            words = [python, module, *words]
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=folder, env=environ
            )
        request = json.dumps({"cwd": folder, "environ": environ, "words": words})
        read, write = os.pipe()
        socket.send_fds(self._started(), [request.encode()], [stdout.fileno(), stderr.fileno(), write])
        os.close(write)
        return Fork(os.fdopen(read, "rb"))

    def close(self) -> None:
        """End the process that forks when the runs have ended that it forked."""
        if self._requests is not None and self._process is not None:
            self._requests.close()
            self._process.wait()
        self._requests = self._process = None


# One for all suites: pytest imports the conftest under another name than tests do.
FORKS = Forks()


def run_pytest(pytester: pytest.Pytester, *arguments: str) -> pytest.RunResult:
    """Run pytest as ``pytester.runpytest_subprocess`` does, in a fork."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pytester, "popen", FORKS.popen)
        return pytester.runpytest_subprocess(*arguments)


def _given_at_the_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that cannot be given to a fork; the import path can."""
    return {key: value for key, value in environ.items() if key.startswith(_READ_AT_THE_START) and key != "PYTHONPATH"}


def _serve(requests: socket.socket) -> list[str]:
    """Fork for each request until there are no more, and end; in a fork, return what is to be run."""
    waiting: set[int] = set()
    while True:
        data, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, _DESCRIPTORS)
        waiting -= {pid for pid in waiting if os.waitpid(pid, os.WNOHANG)[0]}
        if not data:
            for pid in waiting:
                os.waitpid(pid, 0)
            raise SystemExit
        # Several may run at once, so each is waited for by a process of its own.
        if waiter := os.fork():
            waiting.add(waiter)
            for descriptor in descriptors:
                os.close(descriptor)
            continue
        requests.close()
        *files, status = descriptors
        if pid := os.fork():
            os.write(status, str(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])).encode())
            os._exit(0)
        os.close(status)
        return _begin(json.loads(data), files)


def _begin(request: Mapping[str, Any], files: Sequence[int]) -> list[str]:
    """Make this process what ``python -mpytest`` would be; return the words of its command line."""
    for target, file in enumerate(files, start=1):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request["cwd"])
    environ: dict[str, str] = request["environ"]
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    sys.path[:0] = [request["cwd"], *environ["PYTHONPATH"].split(os.pathsep)]
    importlib.invalidate_caches()
    return list(request["words"])


def main(socket_fd: int) -> None:
    """Import, fork, and run pytest in each fork."""
    # This file's folder: what lies in it is imported as ``tests.NAME``.
    del sys.path[0]
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # As suites do, which have this folder in their PYTHONPATH.
    sys.path.insert(0, str(Path(__file__).parents[2]))
    for name in (*_OURS, *_PYTESTS):
        importlib.import_module(name)
    del sys.path[0]
    gc.collect()
    # Nothing that is loaded is looked at when garbage is collected in a fork.
    gc.freeze()
    with socket.socket(fileno=socket_fd) as requests:
        sys.argv = ["-m", *_serve(requests)]
    runpy.run_module("pytest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))

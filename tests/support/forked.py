"""Runs of pytest, and of the command ngraph, that are forked from a process which has imported what every run imports.

A run of a suite spends most of a second on importing pytest, NumPy, SciPy and us, the same each time. ``Forks.popen``
starts one in the words of ``subprocess.Popen``: the same command, folder, variables and files, and its process ends as
an interpreter does. What an interpreter reads when it starts cannot be given to a fork: a run with other such variables
is started cold.

A forked run has its processes of pytest-xdist forked, too (``fork_workers``): it finds in its environment where to ask.

Started as ``python forked.py SOCKET_FD LISTENING_FD``, this file is the process that forks.
"""

from __future__ import annotations

import contextlib
import functools
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any

import pytest

# What runs on null import that is not ours.
_PRELOADED = ("numpy", "psutil", "scipy.optimize", "scipy.special", "sqlite3", "uuid")
# Of ours, with all that these import. Not what pytest loads as a plugin by its name: it rewrites that as it does.
_OURS = (
    "pytest_ngraph.claims.assertions",
    "pytest_ngraph.claims.changes",
    "pytest_ngraph.devices.lab.known",
    "pytest_ngraph.devices.local",
    "pytest_ngraph.front.ci",
    "pytest_ngraph.front.collection",
    "pytest_ngraph.front.header",
    "pytest_ngraph.front.imperative",
    "pytest_ngraph.front.progress",
    "pytest_ngraph.front.pull_request.noting",
    "pytest_ngraph.front.pull_request.publish",
    "pytest_ngraph.front.summary.summary",
    "pytest_ngraph.plan.grid",
    "pytest_ngraph.report.at_once",
    "pytest_ngraph.report.export.benchmark",
    "pytest_ngraph.report.export.tables",
    "pytest_ngraph.report.html.page",
    "pytest_ngraph.report.results.cells",
    "pytest_ngraph.session.session",
    "pytest_ngraph.upkeep.care",
    "pytest_ngraph.workloads.kinds.blocks",
)
# What pytest itself imports when it starts.
_PYTESTS = ("unittest", "pdb", "faulthandler", "xml.etree.ElementTree", "difflib")
# Read once, by an interpreter, the loader, the C library or NumPy.
_READ_AT_THE_START = ("PYTHON", "LANG", "LC_", "LD_", "GLIBC_", "MALLOC_", "OPENBLAS_", "OMP_", "MKL_", "NPY_")
_LONGEST_REQUEST = 1 << 20
_DESCRIPTORS = 3
# What is started in a fork: pytest, and the command ngraph.
_PYTEST, _NGRAPH = "-mpytest", "-mpytest_ngraph.cli"
ADDRESS = "NGRAPH_TESTS_FORKS"


@functools.cache
def load_ours() -> None:
    """Import of ours what runs import, and each adapter."""
    adapters = importlib.import_module("pytest_ngraph.compilers.catalogue").BUILT_IN.values()
    for name in (*_OURS, *(place.partition(":")[0] for place in adapters)):
        importlib.import_module(name)


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
            with theirs, socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
                listening.bind(f"\0ngraph-tests-{uuid.uuid4().hex}")
                listening.listen(16)
                fds = [theirs.fileno(), listening.fileno()]
                command = [sys.executable, __file__, *map(str, fds)]
                self._process = subprocess.Popen(command, pass_fds=fds, env=self._environ)
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
        """Start ``python -mpytest ...`` or a command of ours, without standard input.

        By itself in this folder and with the variables of now. ``close_fds``, which pytest 8.0 gives, is what a fork
        does anyway.
        """
        python, module, *words = [os.fspath(word) for word in command]
        assert python == sys.executable
        assert module in (_PYTEST, _NGRAPH)
        folder, given = str(cwd or Path.cwd()), os.environ if env is None else env
        # As ``pytester.popen`` does.
        environ = {**given, "PYTHONPATH": os.pathsep.join(filter(None, [folder, given.get("PYTHONPATH")]))}
        if _given_at_the_start(environ) != _given_at_the_start(self._environ):
            words = [python, module, *words]
            return subprocess.Popen(
                words, stdin=subprocess.DEVNULL, stdout=stdout, stderr=stderr, cwd=folder, env=environ
            )
        request = json.dumps({"cwd": folder, "environ": environ, "module": module, "words": words})
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


def run_ngraph(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run the command ngraph in a folder as ``subprocess.run`` does, in a fork."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        command = [sys.executable, _NGRAPH, *words]
        status = FORKS.popen(command, stdin=subprocess.DEVNULL, stdout=out, stderr=err, cwd=folder).wait()
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(command, status, out.read(), err.read())


class Worker:
    """A process of pytest-xdist that was forked, with what execnet uses of ``subprocess.Popen``."""

    def __init__(self, address: str, code: str) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        request = {"cwd": str(Path.cwd()), "environ": dict(os.environ), "code": code}
        self._asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked.connect(address)
        socket.send_fds(self._asked, [json.dumps(request).encode()], [theirs_in, theirs_out, 2])
        self.pid = int(self._asked.recv(64))
        for theirs in (theirs_in, theirs_out):
            os.close(theirs)
        self.stdin, self.stdout = os.fdopen(ours_in, "wb"), os.fdopen(ours_out, "rb")

    def wait(self) -> int:
        """Wait for its end and return its exit status, a signal as a negative number."""
        with self._asked:
            return int(self._asked.recv(64) or -signal.SIGKILL)

    def kill(self) -> None:
        """End it at once."""
        os.kill(self.pid, signal.SIGKILL)


def fork_workers() -> None:
    """Have the processes of pytest-xdist of this run forked where it was itself."""
    gateway_io: Any = importlib.import_module("execnet.gateway_io")
    begin, address = gateway_io.Popen2IOMaster.__init__, os.environ[ADDRESS]

    def forked(self: Any, args: Sequence[str], execmodel: Any) -> None:
        *how, flag, code = args
        if (how[0], flag) != (sys.executable, "-c"):
            begin(self, args, execmodel)
            return
        self.popen = Worker(f"\0{address}", code)
        gateway_io.Popen2IO.__init__(self, self.popen.stdin, self.popen.stdout, execmodel=execmodel)

    gateway_io.Popen2IOMaster.__init__ = forked


def _given_at_the_start(environ: Mapping[str, str]) -> dict[str, str]:
    """Return the variables that cannot be given to a fork; the import path can."""
    return {key: value for key, value in environ.items() if key.startswith(_READ_AT_THE_START) and key != "PYTHONPATH"}


def _serve(requests: socket.socket, listening: socket.socket) -> dict[str, Any]:
    """Fork for each request until there are no more, and end; in a fork, return what is to be run."""
    waiting: set[int] = set()
    while True:
        ready = select.select([requests, listening], [], [])[0]
        waiting -= {pid for pid in waiting if os.waitpid(pid, os.WNOHANG)[0]}
        if listening in ready:
            asked, _ = listening.accept()
            data, descriptors, _, _ = socket.recv_fds(asked, _LONGEST_REQUEST, _DESCRIPTORS)
            descriptors.append(asked.detach())
        else:
            data, descriptors, _, _ = socket.recv_fds(requests, _LONGEST_REQUEST, _DESCRIPTORS)
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
        address = listening.getsockname()[1:].decode()
        listening.close()
        request: dict[str, Any] = json.loads(data)
        *files, status = descriptors
        if pid := os.fork():
            if "code" in request:
                os.write(status, str(pid).encode())
            for descriptor in files:
                os.close(descriptor)
            code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
            with contextlib.suppress(BrokenPipeError):
                os.write(status, str(code).encode())
            os._exit(0)
        os.close(status)
        request["environ"][ADDRESS] = address
        _begin(request, files)
        return request


def _begin(request: Mapping[str, Any], files: Sequence[int]) -> None:
    """Make this process what ``python -m`` would be, or ``python -c`` for a process of pytest-xdist."""
    for target, file in enumerate(files, start=_DESCRIPTORS - len(files)):
        os.dup2(file, target)
        os.close(file)
    os.chdir(request["cwd"])
    environ: dict[str, str] = request["environ"]
    os.environ.clear()
    os.environ.update(environ)
    time.tzset()
    sys.path[:0] = [request["cwd"], *environ["PYTHONPATH"].split(os.pathsep)]
    importlib.invalidate_caches()


def main(socket_fd: int, listening_fd: int) -> None:
    """Import, fork, and run pytest, or a process of pytest-xdist, in each fork."""
    # This file's folder: what lies in it is imported as ``tests.NAME``.
    del sys.path[0]
    for name in _PRELOADED:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    # As suites do, which have this folder in their PYTHONPATH.
    sys.path.insert(0, str(Path(__file__).parents[2]))
    load_ours()
    for name in _PYTESTS:
        importlib.import_module(name)
    del sys.path[0]
    gc.collect()
    # Nothing that is loaded is looked at when garbage is collected in a fork.
    gc.freeze()
    with socket.socket(fileno=socket_fd) as requests, socket.socket(fileno=listening_fd) as listening:
        request = _serve(requests, listening)
    if "code" in request:
        sys.argv = ["-c"]
        exec(request["code"], {"__name__": "__main__"})
    elif request["module"] == _NGRAPH:
        from pytest_ngraph import cli

        sys.argv = [cli.__file__, *request["words"]]
        raise SystemExit(cli.main())
    else:
        sys.argv = ["-m", *request["words"]]
        runpy.run_module("pytest", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))

"""A plugin: workers are forked from processes that have imported their runtimes once, instead of started cold.

Importing PyTorch, TVM or the exporter takes seconds, the same each time. ``FORK_SERVER.start`` starts what forks
(``fork_server``) and says in the environment where to ask it; runs of pytest that find it there ask, and all others
start their workers as ever. So are started what tests measure that are held to the clock, where only builders are
forked, the workers of tests that say so (``@pytest.mark.cold``), those of sides with other packages, and those with
variables that are read at the start.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import textwrap
import uuid
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pytest_ngraph.launches.process import OwnProcess

ADDRESS = "NGRAPH_TESTS_WORKERS"
# Stands behind the address where what measures is started cold.
_BUILDERS_ONLY = " builders"
# Longer than any export takes here; whoever asked has given up before.
_ENDED_SECONDS = 600.0
_ENDING_SECONDS = 20.0
_ROOT = Path(__file__).parents[2]


# Beside the tests


class ForkServer:
    """What forks workers, with the variables of now: it starts when first asked for and ends with this process."""

    def __init__(self) -> None:
        self._environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        self._process: subprocess.Popen[bytes] | None = None
        self._address = f"ngraph-tests-{uuid.uuid4().hex}"

    def start(self, *, measures: bool = True) -> str:
        """Start it unless it runs, and return what the variable is set to; ``measures`` for more than builders."""
        if self._process is None:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listening:
                listening.bind(f"\0{self._address}")
                listening.listen(16)
                file = Path(__file__).with_name("fork_server.py")
                self._process = subprocess.Popen(
                    [sys.executable, str(file), str(listening.fileno())],
                    pass_fds=[listening.fileno()],
                    stdin=subprocess.PIPE,
                    start_new_session=True,
                    env=self._given(),
                )
        return self._address + ("" if measures else _BUILDERS_ONLY)

    def variables(self) -> dict[str, str]:
        """Return what a process must be given to be forked, which is read as a process starts."""
        from tests.support.fork_server import read_at_the_start

        return read_at_the_start(self._given())

    def _given(self) -> dict[str, str]:
        """Return the variables of what forks."""
        from pytest_ngraph.launches.client import _NOT_PASSED_ON, _THREAD_VARIABLES

        kept = {key: value for key, value in self._environ.items() if not key.startswith(_NOT_PASSED_ON)}
        return {**kept, **dict.fromkeys(_THREAD_VARIABLES, "1"), **fixed()}

    def close(self) -> None:
        """End the process, and those that it forked to fork more."""
        if self._process is not None:
            try:
                self._process.communicate(timeout=_ENDING_SECONDS)
            except subprocess.TimeoutExpired:
                # Something that a test forgot still runs; it ends with this process.
                self._process.kill()
                self._process.communicate()
            self._process = None


# scikit-learn sets them when a test imports it, and what a process inherits would depend on which tests came before.
os.environ.setdefault("KMP_DUPLICATE_LIB_OK", "True")
os.environ.setdefault("KMP_INIT_AT_FORK", "FALSE")
# One for all suites: pytest imports the conftest under another name than tests do.
FORK_SERVER = ForkServer()


# In a run of pytest, which imports nothing of this package before it is loaded as a plugin


def pytest_configure() -> None:
    """Fork workers where somebody does that, and start them as ever everywhere else."""
    if ADDRESS in os.environ:
        fork_workers(os.environ[ADDRESS])


@contextlib.contextmanager
def forking(*, measures: bool = False) -> Iterator[None]:
    """Fork the builders of this process inside; ``measures`` for more than builders."""
    from pytest_ngraph.launches.client import WorkerClient

    process: Any = importlib.import_module("pytest_ngraph.launches.process")
    before = WorkerClient.__init__, process.OwnProcess._look, process.subprocess
    fork_workers(FORK_SERVER.start(measures=measures))
    try:
        yield
    finally:
        WorkerClient.__init__, process.OwnProcess._look, process.subprocess = before  # type: ignore[method-assign]


def fork_workers(value: str, *, others: str = "") -> None:
    """Have the workers of this process forked from now on, by what the variable is set to.

    With ``others``, what all else that it starts is called, that is forked, too: from what has loaded no runtime.
    """
    from pytest_ngraph.launches.client import Job, WorkerClient
    from pytest_ngraph.machine import stragglers

    process: Any = importlib.import_module("pytest_ngraph.launches.process")
    address, *only_builders = value.split()
    begin, look, asked_for = WorkerClient.__init__, process.OwnProcess._look, others

    def named(self: WorkerClient, job: Job, name: str, **how: Any) -> None:
        nonlocal asked_for
        # What else a side has than a tree of the project is loaded in a process that has loaded nothing before.
        is_like_here = job.side is None or not (job.side.python or job.side.packages)
        if is_like_here and (name == "builder" or not only_builders):
            # Of a compiler with its options: null[fixed_us=100] 2nd
            asked_for = name.split()[0].partition("[")[0]
        try:
            begin(self, job, name, **how)
        finally:
            asked_for = others

    def popen(command: Sequence[str], **how: Any) -> Fork | subprocess.Popen[bytes]:
        if asked_for:
            with contextlib.suppress(Refused):
                files = [how["stdout"].fileno(), *how["pass_fds"]]
                return Fork(address, asked_for, command, how["env"], files, how["cwd"], pipes=True)
        return subprocess.Popen(command, **how)

    def looked(self: OwnProcess, flags: int) -> bool:
        forked: Any = self._popen
        if not isinstance(forked, Fork) or forked.returncode is not None:
            return bool(look(self, flags))
        if forked.poll() is None:
            return bool(flags & os.WUNTRACED) and forked.is_stopped()
        # As where it is a child of this process.
        process._signal_group(forked.pid, signal.SIGKILL)
        stragglers.end_marked(self._mark)
        return True

    WorkerClient.__init__ = named  # type: ignore[method-assign]
    process.OwnProcess._look = looked
    process.subprocess = SimpleNamespace(Popen=popen, DEVNULL=subprocess.DEVNULL)


@contextlib.contextmanager
def forking_conformance() -> Iterator[None]:
    """Fork the processes of the conformance suite inside, in this process."""
    laboratory: Any = importlib.import_module("pytest_ngraph.conformance.laboratory")
    before = laboratory.subprocess
    fork_conformance(FORK_SERVER.start())
    try:
        yield
    finally:
        laboratory.subprocess = before


def examined(laboratory: Any, *asked: Any, **how: Any) -> dict[str, Any]:
    """Return what a laboratory's process found. One that failed is asked anew where its test is tried once more."""
    answer: dict[str, Any] = laboratory.examine(*asked, **how)
    if "failed" in answer:
        # It keeps answers, and a machine that refused once to start a compiler did so in both tries of a test.
        laboratory.answers.clear()
    assert "failed" not in answer, answer["failed"]
    return answer


def fork_conformance(value: str = "") -> None:
    """Have the processes of the conformance suite forked from now on, by what the variable is set to, or ``value``."""
    from pytest_ngraph.compilers.catalogue import BUILT_IN

    laboratory: Any = importlib.import_module("pytest_ngraph.conformance.laboratory")
    address = (value or os.environ[ADDRESS]).split()[0]

    def run(command: Sequence[str], *, input: str, **how: Any) -> subprocess.CompletedProcess[str]:
        name = json.loads(input).get("compiler", "builder").partition("[")[0]
        # Those of tests are made of modules of PyTorch.
        loaded = name if name == "builder" or name in BUILT_IN else "torch"
        return _run(address, loaded, command, input=input, **how)

    laboratory.subprocess = SimpleNamespace(run=run, TimeoutExpired=subprocess.TimeoutExpired)


def fork_kinds() -> None:
    """The same for the processes that build models of kinds. Called when the tests have been collected."""
    kinds: Any = importlib.import_module("pytest_ngraph.conformance.test_kinds")
    address = os.environ[ADDRESS].split()[0]

    def run(
        command: Sequence[str], *, env: Mapping[str, str] | None = None, **how: Any
    ) -> subprocess.CompletedProcess[str]:
        if env is None:
            return subprocess.run(command, **how)
        return _run(address, "builder", command, env={**env, **fixed()}, **how)

    kinds.subprocess = SimpleNamespace(run=run)


def fork_helpers() -> None:
    """Have the processes forked that build and time TVM's candidates, by what the variable is set to, if it is.

    Whether this process imports what starts them is asked by tests.
    """
    if ADDRESS not in os.environ:
        return
    address, begin = os.environ[ADDRESS].split()[0], subprocess.Popen

    def popen(command: Any, **how: Any) -> Any:
        if "pytest_ngraph.compilers.tvm.candidates" in command:
            with contextlib.suppress(Refused):
                return Helping(address, command, how["env"], how["stderr"].fileno())
        return begin(command, **how)

    subprocess.Popen = popen  # type: ignore[assignment, misc]


def run_code(
    name: str, code: str, *arguments: str, folder: Path | None = None, variables: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run what ``python -c`` would, where a runtime is imported already: ``torch``, ``builder`` or a compiler's.

    With variables that are read when a process starts it is one of its own.
    """
    from pytest_ngraph import interpreter

    path = os.pathsep.join([str(_ROOT), *filter(None, sys.path)])
    given = {**os.environ, **fixed(), "PYTHONPATH": path, **(variables or {})}
    command = interpreter.command("tests.support.code", textwrap.dedent(code), *arguments)
    return _run(FORK_SERVER.start(), name, command, input="", env=given, timeout=_ENDED_SECONDS, cwd=folder)


def fixed() -> dict[str, str]:
    """Return the variables that all workers have, and what forks them."""
    from pytest_ngraph.launches.client import _SETTINGS, STEADY_ALLOCATOR

    return {**_SETTINGS, **STEADY_ALLOCATOR, "OMP_NUM_THREADS": "1"}


def _run(
    address: str,
    name: str,
    command: Sequence[str],
    *,
    input: str,
    env: Mapping[str, str],
    timeout: float,
    cwd: Path | None = None,
    **_: object,
) -> subprocess.CompletedProcess[str]:
    """Fork a command and wait for its end, as ``subprocess.run`` does with the output captured as text."""
    with (
        tempfile.TemporaryFile("w+") as given,
        tempfile.TemporaryFile("w+") as out,
        tempfile.TemporaryFile("w+") as err,
    ):
        given.write(input)
        given.seek(0)
        try:
            process = Fork(address, name, command, env, [file.fileno() for file in (given, out, err)], cwd)
        except Refused:
            return subprocess.run(
                command, input=input, env=env, timeout=timeout, cwd=cwd, capture_output=True, text=True, check=False
            )
        process.wait(timeout)
        if process.returncode is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            raise subprocess.TimeoutExpired(list(command), timeout)
        for file in (out, err):
            file.seek(0)
        return subprocess.CompletedProcess(list(command), process.returncode, out.read(), err.read())


class Refused(Exception):
    """What is to be started cannot be forked."""


class Fork:
    """What this package uses of ``subprocess.Popen``: this process is not its parent. It ends with this process."""

    def __init__(
        self,
        address: str,
        name: str,
        command: Sequence[str],
        environment: Mapping[str, str],
        files: list[int],
        folder: Path | None = None,
        *,
        pipes: bool = False,
    ) -> None:
        """Fork what ``interpreter.command`` gave, with the standard files, or its output and two ``pipes``.

        Raises Refused where it needs another interpreter, or variables that one reads at its start, and TimeoutError
        where what forks has hung.
        """
        from pytest_ngraph import interpreter

        self.returncode: int | None = None
        module, *words = command[3:]
        if list(command) != interpreter.command(module, *words):
            raise Refused(command[0])
        request = {
            "name": name,
            "module": module,
            "words": words,
            "pipes": pipes,
            "cwd": str(folder or Path.cwd()),
            "environ": dict(environment),
        }
        self._asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._asked.connect(f"\0{address}")
        socket.send_fds(self._asked, [json.dumps(request).encode()], files)
        if not self._says(_ENDED_SECONDS):
            # A fork that comes later ends with this socket.
            self._asked.close()
            raise TimeoutError(f"what forks workers has not forked one ({name}) within {_ENDED_SECONDS:g} s")
        answer = self._answer()
        if not answer:
            self._asked.close()
            raise Refused(name)
        self.pid = int(answer)

    def poll(self) -> int | None:
        """Return how it ended, a signal as a negative number, or None while it lives."""
        if self.returncode is None and self._says(0):
            with self._asked:
                # Nothing at all: who waited for it was killed.
                self.returncode = int(self._answer() or -signal.SIGKILL)
        return self.returncode

    def wait(self, seconds: float = _ENDED_SECONDS) -> None:
        """Wait for its end for so many seconds."""
        if self.returncode is None:
            self._says(seconds)
        self.poll()

    def _says(self, seconds: float) -> bool:
        # Not select(): it knows no descriptor above 1023.
        answers = select.poll()
        answers.register(self._asked, select.POLLIN)
        return bool(answers.poll(seconds * 1000))

    def is_stopped(self) -> bool:
        """Tell whether all its threads are stopped, or have ended."""
        with contextlib.suppress(OSError):
            threads = Path(f"/proc/{self.pid}/task").glob("*/stat")
            return all(file.read_text(errors="replace").rpartition(")")[2].split()[0] in "TtXZ" for file in threads)
        return False

    def _answer(self) -> bytes:
        try:
            return self._asked.recv(64)
        except ConnectionResetError:
            return b""


class Helping(Fork):
    """A helper of TVM's tuner, with what that uses of ``subprocess.Popen``."""

    def __init__(self, address: str, command: Sequence[str], environment: Mapping[str, str], errors: int) -> None:
        theirs_in, ours_in = os.pipe()
        ours_out, theirs_out = os.pipe()
        try:
            super().__init__(address, "tvm", command, environment, [theirs_in, theirs_out, errors])
        except BaseException:
            os.close(ours_in)
            os.close(ours_out)
            raise
        finally:
            os.close(theirs_in)
            os.close(theirs_out)
        self.stdin = os.fdopen(ours_in, "w", encoding="utf-8")
        self.stdout = os.fdopen(ours_out, encoding="utf-8")

    def kill(self) -> None:
        """End it at once."""
        os.killpg(self.pid, signal.SIGKILL)

    def communicate(self) -> None:
        """Wait for its end."""
        with contextlib.suppress(BrokenPipeError):
            self.stdin.close()
        self.wait()
        self.stdout.close()

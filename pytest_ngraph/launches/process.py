"""A Python process of this package: starting, feeding, stopping and ending it, and what it printed."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import tempfile
import time
import weakref
from collections.abc import Mapping
from pathlib import Path
from subprocess import TimeoutExpired
from typing import IO

from pytest_ngraph import interpreter
from pytest_ngraph.machine import stragglers

_STUCK_SECONDS = 30.0
_UNKNOWN_EXIT = 255


class OwnProcess:
    """A module of this package as a process with two pipes. It ends at the latest when nothing refers to it any more.

    The module is given the ends of the pipes that it reads and writes, this process's id, and further ``words``. What
    it prints goes to ``output``, or to a file without a name, so that nothing is left on the disk however this process
    ends. Raises OSError where the interpreter (``python``, by default this one) cannot be started.
    """

    def __init__(
        self,
        module: str,
        environment: Mapping[str, str],
        *words: str,
        python: str | None = None,
        folder: Path | None = None,
        output: IO[bytes] | None = None,
    ) -> None:
        self._stopped = False
        self._output = output or tempfile.TemporaryFile()  # noqa: SIM115 - it lives as long as the process
        read_theirs, self._write_fd = os.pipe()
        self._read_fd, write_theirs = os.pipe()
        os.set_blocking(self._read_fd, False)
        os.set_blocking(self._write_fd, False)
        given, self._mark = stragglers.marked(environment)
        words = (str(read_theirs), str(write_theirs), str(os.getpid()), *words)
        try:
            self._popen = subprocess.Popen(
                interpreter.command(module, *words, python=python),
                stdin=subprocess.DEVNULL,
                stdout=self._output,
                stderr=self._output,
                pass_fds=(read_theirs, write_theirs),
                # A session of its own: Ctrl-C reaches pytest only, which then ends its workers itself.
                start_new_session=True,
                env=given,
                cwd=folder,
            )
        except BaseException:
            self._close_files()
            raise
        finally:
            os.close(read_theirs)
            os.close(write_theirs)
        kept = (self._popen, self._mark, os.getpid(), self._output, (self._read_fd, self._write_fd))
        self._abandoned = weakref.finalize(self, _end_abandoned, *kept)

    @property
    def pid(self) -> int:
        """Return the process id."""
        return self._popen.pid

    @property
    def exit_code(self) -> int | None:
        """Return how it ended, a signal as a negative number, or None while it lives."""
        return self._popen.returncode

    def ended(self) -> bool:
        """Return whether it has ended. What it had started is ended with it."""
        self._look(os.WNOHANG)
        return self._popen.returncode is not None

    def _look(self, flags: int) -> bool:
        """Return whether it has ended or, where the flags ask for that, has stopped since they last did."""
        if self._popen.returncode is not None:
            return True
        try:
            pid, status = os.waitpid(self.pid, flags)
        except ChildProcessError:
            # Somebody else has waited for it, so how it ended is lost.
            self._popen.returncode = _UNKNOWN_EXIT
            return True
        if pid and not os.WIFSTOPPED(status):
            self._popen.returncode = os.waitstatus_to_exitcode(status)
            _signal_group(pid, signal.SIGKILL)
            stragglers.end_marked(self._mark)
        return pid != 0

    def write(self, data: bytes, seconds: float) -> bool:
        """Write all of it. Return False where it has ended or does not read for so many seconds."""
        if self._write_fd < 0:
            return False
        deadline = time.monotonic() + seconds
        ready = select.poll()
        ready.register(self._write_fd, select.POLLOUT)
        while data:
            rest = deadline - time.monotonic()
            if rest <= 0:
                return False
            if ready.poll(rest * 1000):
                try:
                    data = data[os.write(self._write_fd, data) :]
                except BrokenPipeError:
                    return False
                except BlockingIOError:
                    continue
        return True

    def read(self, seconds: float) -> bytes | None:
        """Return some of what it answered, empty where it has ended, None where nothing came for so many seconds."""
        deadline = time.monotonic() + seconds
        ready = select.poll()
        ready.register(self._read_fd, select.POLLIN)
        gone = False
        while True:
            rest = deadline - time.monotonic()
            # In slices: where a process that it started holds the pipe open, its end does not show there.
            if ready.poll(0 if gone else min(max(rest, 0.0), 1.0) * 1000):
                return os.read(self._read_fd, 1 << 16)
            if gone:
                return b""
            if rest <= 0:
                return None
            gone = self.ended()

    def stop(self) -> None:
        """Stop all its threads, and wait until they have stopped."""
        if self._stopped or self.ended():
            return
        self.signal(signal.SIGSTOP)
        self._stopped = True
        deadline = time.monotonic() + 1.0
        # Not waitid, which macOS has from Python 3.13 on only.
        while time.monotonic() < deadline and not self._look(os.WNOHANG | os.WUNTRACED):
            time.sleep(0.0002)

    def resume(self) -> None:
        """Resume it."""
        if self._stopped:
            self.signal(signal.SIGCONT)
            self._stopped = False

    def signal(self, number: int) -> None:
        """Send a signal to it and to what it started in its own session."""
        if self._popen.returncode is None:
            _signal_group(self.pid, number)

    def ends_within(self, seconds: float) -> bool:
        """Wait for its end for so many seconds. Return whether it has ended."""
        deadline = time.monotonic() + seconds
        while not self.ended():
            if time.monotonic() >= deadline:
                return False
            time.sleep(0.002)
        return True

    def wait(self, seconds: float) -> bool:
        """Wait for its end, forced after so many seconds. Return whether it ended by itself."""
        if self.ends_within(seconds):
            return True
        self.signal(signal.SIGKILL)
        if not self.ends_within(_STUCK_SECONDS):
            # Not even SIGKILL ends what hangs in the kernel, and waiting longer helps nobody.
            self._popen.returncode = -signal.SIGKILL
        return False

    def printed(self, most_bytes: int) -> str:
        """Return the end of what it printed."""
        if self._output.closed:
            return ""
        file = self._output.fileno()
        # pread: the position in the file is the one at which the process writes.
        data = os.pread(file, most_bytes, max(0, os.fstat(file).st_size - most_bytes))
        return data.decode("utf-8", "replace")

    def release(self) -> None:
        """Close its pipes and drop what it printed. It has ended before."""
        self._abandoned.detach()
        self._close_files()

    def _close_files(self) -> None:
        if self._write_fd >= 0:
            _close(self._output, (self._read_fd, self._write_fd))
        self._read_fd = self._write_fd = -1


def how_it_ended(code: int | None) -> str:
    """Say how a process ended by its exit code, which is negative for a signal."""
    if code is None or code >= 0:
        return f"exited with status {code}"
    try:
        return f"was ended by {signal.Signals(-code).name}"
    except ValueError:
        # Real-time signals have no names.
        return f"was ended by signal {-code}"


def python_path() -> str:
    """Return the folder this package is imported from, then what PYTHONPATH already held."""
    home = str(Path(__file__).resolve().parents[2])
    rest = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path]
    return os.pathsep.join([home, *rest])


def _signal_group(pid: int, number: int) -> None:
    # Without permission: a group of nothing but zombies, on macOS.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, number)


def _end_abandoned(
    popen: subprocess.Popen[bytes], mark: str, parent: int, output: IO[bytes], fds: tuple[int, ...]
) -> None:
    """End a process that its owner forgot, or could not end before it ended itself."""
    # A forked process has a copy of this object, not of that process.
    if popen.returncode is None and os.getpid() == parent:
        _signal_group(popen.pid, signal.SIGKILL)
        with contextlib.suppress(TimeoutExpired):
            popen.wait(_STUCK_SECONDS)
        stragglers.end_marked(mark)
    _close(output, fds)


def _close(output: IO[bytes], fds: tuple[int, ...]) -> None:
    for fd in fds:
        os.close(fd)
    output.close()

"""The agent's end of a measuring process: its environment, starting it, reading from it, and ending all of it."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import IO

from pytest_ngraph import interpreter
from pytest_ngraph.devices.wire import wire
from pytest_ngraph.errors import DeviceLost, DeviceUnusable
from pytest_ngraph.launches import stragglers
from pytest_ngraph.launches.client import out_of_memory_kills
from pytest_ngraph.launches.process import python_path

# What a child gets of the agent's environment: no thread limits; what else it needs the registry says.
PASSED_ON = (
    "PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "CUDA_HOME",
    "CUDA_PATH", "CUDA_VISIBLE_DEVICES", "XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR",
    "HF_HOME", "TORCH_HOME",
)  # fmt: skip
_PASSED_ON_PREFIX = "LC_"
_LOGS_KEPT = 20
_SHOWN, _READ = 2000, 1 << 14
_LONGEST_LINE = 1 << 26
_LOOK_SECONDS = 0.5
_GRACE_SECONDS, _BURY_SECONDS = 2.0, 10.0


def passed_on(name: str) -> bool:
    """Return whether a variable of the agent's environment is a child's, too."""
    return name in PASSED_ON or name.startswith(_PASSED_ON_PREFIX)


def child_environment(given: Mapping[str, str], python: str | None) -> dict[str, str]:
    """Return the environment of a child: what is passed on, then what the registry gives, and nothing else.

    Where no other interpreter is named it imports this package from where the agent does.
    """
    passed = {name: value for name, value in os.environ.items() if passed_on(name)}
    added = {"PYTHONPATH": python_path()} if python is None else {}
    return {**passed, **added, **given}


def end_tree(pid: int) -> None:
    """End the leader of a process group, its group, and everything that it started, at once."""
    import psutil

    mark, started = stragglers.mark_of(pid), list[psutil.Process]()
    with contextlib.suppress(psutil.Error):
        started = psutil.Process(pid).children(recursive=True)
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    # Workers have sessions of their own, and what they started does not always end with them.
    for each in started:
        with contextlib.suppress(psutil.Error):
            each.kill()
    if mark is not None:
        stragglers.end_marked(mark)


class Child:
    """One request in a process of its own, in a session of its own. ``receive`` reads it to its end."""

    def __init__(self, request: wire.Request, text: str, folder: Path) -> None:
        """Start it. Raise DeviceUnusable where its interpreter cannot be started."""
        self._request, self._folder = request, folder
        self._log = Path(os.devnull)
        self._kills = out_of_memory_kills()
        self._lines, theirs = os.pipe()
        try:
            self._process = self._start(text, theirs)
        except BaseException:
            os.close(self._lines)
            raise
        finally:
            os.close(theirs)

    @property
    def pid(self) -> int:
        """Return its process id, which is that of its group, too."""
        return self._process.pid

    def receive(self, on_line: Callable[[str], None]) -> str:
        """Pass each line but the last to ``on_line``, and return the last, the answer. The process has then ended.

        Raises DeviceLost where it ended without an answer or said nothing for too long.
        """
        try:
            answer = self._receive(on_line)
            # It ends by itself now, with what it has printed.
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_GRACE_SECONDS)
            return answer
        finally:
            if self._process.returncode is None:
                end_tree(self.pid)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._process.wait(_BURY_SECONDS)
            # What it left behind in sessions of their own.
            stragglers.end_marked(self._mark)
            os.close(self._lines)

    def _start(self, text: str, lines_fd: int) -> subprocess.Popen[bytes]:
        named = self._request.bench["python"]
        environment, self._mark = stragglers.marked(child_environment(self._request.bench["env"], named))
        self._folder.mkdir(parents=True, exist_ok=True)
        with self._open_log() as log, tempfile.TemporaryFile() as request:
            request.write(text.encode("utf-8"))
            request.seek(0)
            words = [str(request.fileno()), str(lines_fd), str(os.getpid()), str(self._folder)]
            try:
                return subprocess.Popen(
                    interpreter.command("pytest_ngraph.devices.agent.measuring", *words, python=named),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    pass_fds=(request.fileno(), lines_fd),
                    start_new_session=True,
                    env=environment,
                    cwd=self._folder,
                )
            except OSError as error:
                raise DeviceUnusable(f"python: {named or sys.executable} cannot be started: {error.strerror}") from None

    def _open_log(self) -> IO[bytes]:
        folder = self._folder / "logs" / "requests"
        folder.mkdir(parents=True, exist_ok=True)
        for old in sorted(folder.glob("*.log"))[: 1 - _LOGS_KEPT]:
            old.unlink(missing_ok=True)
        name = f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}-{self._request.method}.log"
        self._log = folder / name
        return self._log.open("wb")

    def _receive(self, on_line: Callable[[str], None]) -> str:
        limit = float(self._request.terms["quiet_seconds"])
        deadline, buffer = time.monotonic() + limit, b""
        ready = select.poll()
        ready.register(self._lines, select.POLLIN)
        while time.monotonic() < deadline:
            if not ready.poll(1000 * _LOOK_SECONDS):
                # What it started may hold the pipe open.
                if self._process.poll() is not None:
                    break
                continue
            chunk = os.read(self._lines, 1 << 16)
            if not chunk:
                break
            *whole, buffer = (buffer + chunk).split(b"\n")
            if len(buffer) > _LONGEST_LINE:
                raise self._lost(f"wrote a line of more than {_LONGEST_LINE >> 20} MiB")
            for line in whole:
                text = line.decode("utf-8", "replace")
                kind = wire.event_kind(text)
                if kind == "answer":
                    return text
                on_line(text)
                # A note says that it waits for somebody else: the lock of the machine.
                deadline = time.monotonic() + limit if kind != "note" else float("inf")
        else:
            raise self._lost(f"said nothing for {limit:g} s and was ended")
        raise self._lost(self._how_it_ended())

    def _how_it_ended(self) -> str:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_BURY_SECONDS)
        code = self._process.returncode
        if code is None:
            return "closed its pipe and lives on"
        if code == -signal.SIGKILL and out_of_memory_kills() != self._kills:
            return "was ended for lack of memory"
        if code < 0:
            return f"was ended by {_signal_name(-code)}"
        return f"exited with status {code}"

    def _lost(self, how: str) -> DeviceLost:
        try:
            with self._log.open("rb") as log:
                log.seek(max(0, self._log.stat().st_size - _READ))
                printed = log.read(_READ).decode("utf-8", "replace").strip()
        except OSError:
            printed = ""
        kept = [line for line in printed.splitlines() if not line.startswith("Extension modules:")]
        said = "\n".join(kept)[-_SHOWN:].replace("\n", "\n    ")
        last = f"\n  its last output:\n    {said}\n  all of it: {self._log} on the device" if said else ""
        return DeviceLost(f"the process that measures {how} (during {self._request.method!r}){last}")


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"

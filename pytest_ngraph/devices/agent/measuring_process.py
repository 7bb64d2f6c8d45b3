"""The agent's end of a measuring process: its environment, starting it, reading from it, and ending all of it."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from pytest_ngraph.devices.wire import wire
from pytest_ngraph.errors import DeviceLost, DeviceUnusable
from pytest_ngraph.launches.client import out_of_memory_kills
from pytest_ngraph.launches.process import OwnProcess, how_it_ended, python_path
from pytest_ngraph.machine import stragglers

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

    def __init__(self, request: wire.Request, text: str, folder: Path, words: Sequence[str] = ()) -> None:
        """Start it, with further ``words`` of the agent's. Raise DeviceUnusable where its interpreter cannot be."""
        self._request, self._text = request, text
        self._kills = out_of_memory_kills()
        named = request.bench["python"]
        self._log = _new_log(folder, request.method)
        output = self._log.open("w+b")
        try:
            self._process = OwnProcess(
                "pytest_ngraph.devices.agent.measuring",
                child_environment(request.bench["env"], named),
                str(folder),
                *words,
                python=named,
                folder=folder,
                output=output,
            )
        except OSError as error:
            raise DeviceUnusable(f"python: {named or sys.executable} cannot be started: {error.strerror}") from None

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
            self._process.ends_within(_GRACE_SECONDS)
            return answer
        finally:
            if not self._process.ended():
                end_tree(self.pid)
            self._process.wait(0)
            self._process.release()

    def _receive(self, on_line: Callable[[str], None]) -> str:
        limit = float(self._request.terms["quiet_seconds"])
        deadline, buffer = time.monotonic() + limit, b""
        # As one line: in JSON, line breaks stand between values only. How it ended that does not read shows below.
        asked = self._text.translate({ord("\n"): " ", ord("\r"): " "})
        self._process.write(asked.encode("utf-8") + b"\n", limit)
        while time.monotonic() < deadline:
            chunk = self._process.read(deadline - time.monotonic())
            if chunk is None:
                continue
            if not chunk:
                raise self._lost(self._how_it_ended())
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
        raise self._lost(f"said nothing for {limit:g} s and was ended")

    def _how_it_ended(self) -> str:
        self._process.ends_within(_BURY_SECONDS)
        code = self._process.exit_code
        if code is None:
            return "closed its pipe and lives on"
        if code == -signal.SIGKILL and out_of_memory_kills() != self._kills:
            return "was ended for lack of memory"
        return how_it_ended(code)

    def _lost(self, how: str) -> DeviceLost:
        printed = self._process.printed(_READ).strip()
        kept = [line for line in printed.splitlines() if not line.startswith("Extension modules:")]
        said = "\n".join(kept)[-_SHOWN:].replace("\n", "\n    ")
        last = f"\n  its last output:\n    {said}\n  all of it: {self._log} on the device" if said else ""
        return DeviceLost(f"the process that measures {how} (during {self._request.method!r}){last}")


def _new_log(folder: Path, method: str) -> Path:
    """Return where what a request prints is kept. The oldest logs go."""
    logs = folder / "logs" / "requests"
    logs.mkdir(parents=True, exist_ok=True)
    for old in sorted(logs.glob("*.log"))[: 1 - _LOGS_KEPT]:
        old.unlink(missing_ok=True)
    return logs / f"{time.strftime('%Y%m%d-%H%M%S')}-{uuid.uuid4().hex[:8]}-{method}.log"

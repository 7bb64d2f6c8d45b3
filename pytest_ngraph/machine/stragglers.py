"""What a measured model started and left behind: processes that have a session of their own and outlive their parents.

A process group does not hold them, and who is adopted by the system's first process has no parent left to be found
by. So everything that a worker starts inherits a mark in its environment, and what carries the mark when the worker
has ended is ended, too. Only a process that was started with an environment without the mark is not found.
"""

from __future__ import annotations

import contextlib
import os
import signal
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path

_VARIABLE = "NGRAPH_STARTED_BY"
_PROC = Path("/proc")
# Those that fork while they are looked for are found the next time.
_MOST_ROUNDS = 20


def marked(environment: Mapping[str, str]) -> tuple[dict[str, str], str]:
    """Return an environment with a new mark in it, beside the one that it had, and the mark."""
    mark = uuid.uuid4().hex
    return {**environment, _VARIABLE: f"{environment.get(_VARIABLE, '')}/{mark}"}, mark


def mark_of(pid: int) -> str | None:
    """Return the latest mark that a process was started with, or None."""
    return (_marks(pid) or "").rpartition("/")[2] or None


def end_marked(mark: str) -> None:
    """End every process that was started with a mark, or by one that was, no matter what its parent is now."""
    for _ in range(_MOST_ROUNDS):
        found = False
        for pid in _processes():
            with contextlib.suppress(OSError):
                # A number may be another process's by the time that it is used; this is not.
                process = os.pidfd_open(pid)
                try:
                    if mark in (_marks(pid) or "").split("/"):
                        signal.pidfd_send_signal(process, signal.SIGKILL)
                        found = True
                finally:
                    os.close(process)
        if not found:
            return


def _processes() -> Iterator[int]:
    # Where there is no /proc, or no such call, a process group is all that is ended.
    if not hasattr(os, "pidfd_open"):
        return
    with contextlib.suppress(OSError):
        for each in _PROC.iterdir():
            if each.name.isdecimal() and int(each.name) != os.getpid():
                yield int(each.name)


def _marks(pid: int) -> str | None:
    try:
        given = (_PROC / str(pid) / "environ").read_bytes()
    except OSError:
        return None
    head = f"{_VARIABLE}=".encode()
    found = (part[len(head) :] for part in given.split(b"\0") if part.startswith(head))
    return next((part.decode("ascii", "replace") for part in found), None)

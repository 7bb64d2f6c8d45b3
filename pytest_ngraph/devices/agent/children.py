"""The child processes of an agent's tasks, so that a cancelled task ends its child, too."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from pytest_ngraph.devices.agent.measuring_process import end_tree

_guard = threading.Lock()
_running: dict[str, int] = {}
_cancelled: set[str] = set()


@contextlib.contextmanager
def of(key: str, pid: int) -> Iterator[None]:
    """Make a task's child, the leader of a process group, known by the task's key, so that it can be ended by it."""
    with _guard:
        late = key in _cancelled
        _running[key] = pid
    if late:
        # The task was cancelled before its child was there.
        end_tree(pid)
    try:
        yield
    finally:
        with _guard:
            _running.pop(key, None)


def kill(key: str) -> None:
    """End the child of a task and all that it started. One that has none yet is ended when it comes."""
    with _guard:
        _cancelled.add(key)
        pid = _running.get(key)
    if pid is not None:
        end_tree(pid)


def forget(key: str) -> None:
    """Forget a task that has ended."""
    with _guard:
        _cancelled.discard(key)


def kill_all() -> None:
    """End the children of all tasks."""
    with _guard:
        pids = list(_running.values())
    for pid in pids:
        end_tree(pid)

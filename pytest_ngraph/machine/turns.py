"""Taking turns: one process at a time holds a lock, and the kernel frees it when the process ends."""

from __future__ import annotations

import contextlib
import fcntl
import time
from collections.abc import Callable
from typing import IO, Any


def take(file: int | IO[Any], busy: Callable[[], None], *, pause_seconds: float = 0.05) -> None:
    """Take the lock of an open file or folder. ``busy`` is called before each pause, as long as another has it.

    What ``busy`` raises ends the waiting.
    """
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        busy()
        time.sleep(pause_seconds)

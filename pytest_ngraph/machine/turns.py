"""Taking turns: one process at a time holds a lock, or one owner's do, and the kernel frees it when they end."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import IO, Any

_PAUSE_SECONDS = 0.05
# How often a lock is asked for that another process has just now, to look at it.
_TRIES = 40
_LONGEST_OWNER_BYTES = 1000


def take(file: int | IO[Any], busy: Callable[[], None], *, pause_seconds: float = _PAUSE_SECONDS) -> None:
    """Take the lock of an open file or folder. ``busy`` is called before each pause, as long as another has it.

    What ``busy`` raises ends the waiting.
    """
    while True:
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        busy()
        time.sleep(pause_seconds)


class Shared:
    """A lock that all processes of one owner hold at once. Its file is there as long as one of them does.

    Where there can be no such lock, as on some network file systems, it is as if nobody else had it.
    """

    def __init__(self, path: Path, owner: str) -> None:
        self._path, self._owner = path, owner.encode("utf-8", "surrogateescape")[:_LONGEST_OWNER_BYTES]
        self._fd: int | None = None

    def take(self) -> bool:
        """Hold the lock. Return False where another owner does."""
        for _ in range(_TRIES):
            try:
                fd = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
            except OSError:
                return True
            try:
                is_mine = self._is_mine(fd)
            except BlockingIOError:
                is_mine = None
            except OSError:
                os.close(fd)
                return True
            if is_mine:
                self._fd = fd
                return True
            os.close(fd)
            if is_mine is not None:
                return False
            time.sleep(_PAUSE_SECONDS)
        return False

    def _is_mine(self, fd: int) -> bool | None:
        """Lock a file and return whether it is of this owner, None where it was removed meanwhile.

        Raises BlockingIOError where another process has it to itself, which none does for long.
        """
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.ftruncate(fd, 0)
            os.pwrite(fd, self._owner, 0)
        # Between the two locks there is none, so that it may have got another owner: what its file says now holds.
        fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
        if not _is_there(self._path, fd):
            return None
        return os.pread(fd, _LONGEST_OWNER_BYTES, 0) == self._owner

    def is_last(self) -> bool:
        """Return whether nobody else holds the lock any more. Nobody may take it then until it is given back.

        Who is not the last has it no more. So of all that ask, however close to one another, just one is told so.
        """
        if self._fd is None:
            return True
        for is_held in (True, False):
            try:
                if not is_held:
                    fcntl.flock(self._fd, fcntl.LOCK_UN)
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                continue
            except OSError:
                pass
            return True
        return False

    def give_back(self) -> None:
        """Give the lock back. The last one removes its file."""
        fd, self._fd = self._fd, None
        if fd is None:
            return
        try:
            _remove_unheld(self._path, fd)
            # Not only closed: a process forked meanwhile shares the lock.
            with contextlib.suppress(OSError):
                fcntl.flock(fd, fcntl.LOCK_UN)
        finally:
            os.close(fd)


def remove_left(paths: Iterable[Path], older_than_seconds: float) -> None:
    """Remove files of ``Shared`` that are so old and that nobody holds: their processes were killed."""
    for path in paths:
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > older_than_seconds:
                fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
                try:
                    _remove_unheld(path, fd)
                finally:
                    os.close(fd)


def _remove_unheld(path: Path, fd: int) -> None:
    with contextlib.suppress(OSError):
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_there(path, fd):
            path.unlink()


def _is_there(path: Path, fd: int) -> bool:
    """Return whether an open file is still the one at its path."""
    mine = os.fstat(fd)
    try:
        there = path.stat()
    except FileNotFoundError:
        return False
    return (mine.st_dev, mine.st_ino) == (there.st_dev, there.st_ino)

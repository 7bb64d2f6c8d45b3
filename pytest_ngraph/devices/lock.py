"""The device lock: one measuring run at a time on one device of one machine, whoever the user is."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_ngraph.errors import DeviceBusy


def lock_path(device: str) -> Path:
    """Return the lock file of a device: one for all users of this machine."""
    return Path(tempfile.gettempdir()) / f"pytest-ngraph-{device}.lock"


@contextlib.contextmanager
def device_lock(device: str, *, waiting: Callable[[str], None], limit_seconds: float = 24 * 3600.0) -> Iterator[None]:
    """Hold the lock of a device; ``waiting`` is told who holds it, once, where that is somebody else.

    Raises DeviceBusy with the holder's name when the limit is over. The kernel frees the lock with its process.
    """
    path = lock_path(device)
    # Opened for all users; the sticky bit of the folder keeps others from removing it. O_NOFOLLOW: no planted links.
    flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
    try:
        fd = os.open(path, flags, 0o666)
    except PermissionError:
        # Made by somebody else under fs.protected_regular; it exists, so it can be opened without O_CREAT.
        fd = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
    with contextlib.suppress(PermissionError):
        os.fchmod(fd, 0o666)
    try:
        _acquire(fd, device, waiting, limit_seconds)
        os.ftruncate(fd, 0)
        os.pwrite(fd, json.dumps(_myself()).encode("utf-8"), 0)
        try:
            yield
        finally:
            os.ftruncate(fd, 0)
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _acquire(fd: int, device: str, waiting: Callable[[str], None], limit_seconds: float) -> None:
    deadline = time.monotonic() + limit_seconds
    told = False
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return
        except BlockingIOError:
            holder = holder_of(fd)
            if time.monotonic() >= deadline:
                raise DeviceBusy(f"device {device!r} is held by {holder}; gave up after {limit_seconds:g} s") from None
            if not told:
                waiting(f"waiting for device {device!r}, held by {holder}")
                told = True
            time.sleep(0.05)


def holder_of(fd: int) -> str:
    """Describe who holds the lock, from what the holder wrote into the file."""
    try:
        data = json.loads(os.pread(fd, 4096, 0))
        since = time.strftime("%H:%M:%S", time.localtime(float(data["since"])))
        return f"pid {int(data['pid'])} of {data['user']} since {since} ({data['command']})"
    except (ValueError, KeyError, TypeError):
        return "another run"


def _myself() -> dict[str, object]:
    import getpass

    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return {"pid": os.getpid(), "user": user, "since": time.time(), "command": " ".join(sys.argv)[:200]}

"""The device lock: one measuring run at a time on one device of one machine, for all users."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import stat
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pytest_ngraph.errors import DeviceBusy
from pytest_ngraph.machine import turns
from pytest_ngraph.options.masking import masked_command
from pytest_ngraph.texts.shown import one_line

_SHARED = Path("/tmp")  # noqa: S108 - a place that all users share is what is wanted; see _open
# A holder writes who it is just after it has the lock.
_PATIENCE_SECONDS = 0.5


def lock_path(device: str) -> Path:
    """Return the lock file of a device: one for all users of this machine, whatever their TMPDIR."""
    folder = _SHARED if os.access(_SHARED, os.W_OK | os.X_OK) else Path(tempfile.gettempdir())
    return folder / f"pytest-ngraph-{device}.lock"


@contextlib.contextmanager
def device_lock(device: str, *, waiting: Callable[[str], None], limit_seconds: float = 24 * 3600.0) -> Iterator[None]:
    """Hold the lock of a device. ``waiting`` is called with who holds it, once, where that is somebody else.

    Raises DeviceBusy with the holder's name when the limit is over, and where the lock's file is not one to trust.
    The kernel frees the lock with its process.
    """
    fd = _open(device, lock_path(device))
    try:
        _acquire(fd, device, waiting, limit_seconds)
        _write(fd, json.dumps(_myself()))
        try:
            yield
        finally:
            _write(fd, "")
            # Not only closed: a process forked meanwhile shares the lock.
            fcntl.flock(fd, fcntl.LOCK_UN)
    finally:
        os.close(fd)


def _open(device: str, path: Path) -> int:
    """Open the lock's file, made for all users. The sticky bit of the folder keeps others from removing it."""
    # No planted links are followed, and no pipe is waited for.
    flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        try:
            fd = os.open(path, flags | os.O_CREAT, 0o666)
        except PermissionError:
            # Made by somebody else under fs.protected_regular; it exists, so it can be opened without O_CREAT.
            fd = os.open(path, flags)
    except OSError as error:
        what = "it is a symbolic link" if error.errno == errno.ELOOP else str(error.strerror)
        raise _distrusted(device, path, what) from None
    facts = os.fstat(fd)
    if not stat.S_ISREG(facts.st_mode) or facts.st_nlink > 1:
        os.close(fd)
        raise _distrusted(device, path, "it is not a plain file of its own")
    with contextlib.suppress(PermissionError):
        os.fchmod(fd, 0o666)
    return fd


def _distrusted(device: str, path: Path, what: str) -> DeviceBusy:
    return DeviceBusy(f"device {device!r}: its lock {path} cannot be used: {what}; remove it and run again")


def _acquire(fd: int, device: str, waiting: Callable[[str], None], limit_seconds: float) -> None:
    began = time.monotonic()
    reported = False

    def busy() -> None:
        nonlocal reported
        holder, waited = holder_of(fd), time.monotonic() - began
        if waited >= limit_seconds:
            raise DeviceBusy(
                f"device {device!r} is held by {holder or 'another run'}; gave up after {limit_seconds:g} s"
            )
        if not reported and (holder or waited >= _PATIENCE_SECONDS):
            waiting(f"waiting for device {device!r}, held by {holder or 'another run'}")
            reported = True

    turns.take(fd, busy)


def holder_of(fd: int) -> str | None:
    """Describe who holds the lock, from what the holder wrote into the file, or None where that says nothing."""
    try:
        data = json.loads(os.pread(fd, 4096, 0))
        since = time.strftime("%H:%M:%S", time.localtime(float(data["since"])))
        said = f"pid {int(data['pid'])} of {data['user']} since {since} ({data['command']})"
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError, OSError):
        return None
    # Anybody can write this file, and a terminal shows it.
    return one_line(said)


def _write(fd: int, text: str) -> None:
    # A full disk takes nothing but the holder's name.
    with contextlib.suppress(OSError):
        os.ftruncate(fd, 0)
        os.pwrite(fd, text.encode("utf-8"), 0)


def _myself() -> dict[str, object]:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"uid {os.getuid()}"
    return {
        "pid": os.getpid(),
        "user": user,
        "since": time.time(),
        "command": " ".join(masked_command(sys.argv))[:200],
    }

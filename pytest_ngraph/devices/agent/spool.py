"""The spool: results on a device that wait, whole and safe on its disk, until they are asked for again.

A launch that was measured while its client or its hub went away is not measured twice: the same request, known by its
digest, gets the lines that lie here. What is half-written never has its final name.
"""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pytest_ngraph.devices.wire.wire import event_kind
from pytest_ngraph.errors import DeviceUnusable
from pytest_ngraph.machine import files

MOST_BYTES = 256 << 20
MOST_SECONDS = 14 * 24 * 3600.0
LEAST_FREE_BYTES = 32 << 20
_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_SUFFIX, _UNFINISHED = ".jsonl", ".part-"
_ABANDONED_SECONDS = 24 * 3600.0


@contextmanager
def clear_about_disks(folder: Path) -> Iterator[None]:
    """Turn the errors of a disk that is full or cannot be written into DeviceUnusable that names the folder."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DeviceUnusable(
                f"the disk is full: nothing more can be written to {folder}; make room there and run again"
            ) from None
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS, errno.EIO):
            raise DeviceUnusable(f"{folder} cannot be written: {error.strerror} ({error.filename})") from None
        raise


class Spool:
    """Results in a folder, each in a file by the digest of its request. Bounded in bytes and in age."""

    def __init__(self, folder: Path, *, most_bytes: int = MOST_BYTES, most_seconds: float = MOST_SECONDS) -> None:
        self._folder, self._most_bytes, self._most_seconds = folder, most_bytes, most_seconds

    def find(self, digest: str) -> list[str] | None:
        """Return the lines of a result, or None where there is none. A damaged one is removed and is none."""
        path = self._path(digest)
        try:
            lines = path.read_text(encoding="utf-8").splitlines()
            if [event_kind(line) == "answer" for line in lines].index(True) == len(lines) - 1:
                return lines
        except FileNotFoundError:
            return None
        except (OSError, ValueError, DeviceUnusable):
            pass
        with contextlib.suppress(OSError):
            path.unlink()
        return None

    @contextmanager
    def entry(self, digest: str) -> Iterator[Entry]:
        """Begin a result, to be written line by line. Without ``keep`` nothing of it stays.

        Raises DeviceUnusable where the disk is full, before anything was measured in vain.
        """
        path = self._path(digest)
        with clear_about_disks(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
            self._tidy()
            if shutil.disk_usage(self._folder).free < LEAST_FREE_BYTES:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self._folder))
            scratch = self._folder / f".{digest}{_UNFINISHED}{uuid.uuid4().hex}"
            entry = Entry(scratch, path, self._most_bytes)
        try:
            yield entry
        finally:
            entry.drop()

    def _path(self, digest: str) -> Path:
        if not _DIGEST.match(digest):
            raise ValueError(f"{digest!r} is no digest")
        return self._folder / f"{digest}{_SUFFIX}"

    def _tidy(self) -> None:
        """Remove what is too old or too much, the oldest first, and what was left unfinished by the dead."""
        now, total = time.time(), 0
        found: list[tuple[float, int, Path]] = []
        for path in self._folder.iterdir():
            with contextlib.suppress(FileNotFoundError):
                facts = path.stat()
                found.append((facts.st_mtime, facts.st_size, path))
        for written, size, path in sorted(found, reverse=True):
            unfinished = _UNFINISHED in path.name
            total += size
            limit = _ABANDONED_SECONDS if unfinished else self._most_seconds
            if now - written > limit or (total > self._most_bytes and not unfinished):
                path.unlink(missing_ok=True)


class Entry:
    """A result that is being written. ``keep`` makes it the one that is found, all of it or nothing."""

    def __init__(self, scratch: Path, path: Path, most_bytes: int) -> None:
        self._scratch, self._path, self._rest = scratch, path, most_bytes
        self._fd = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)

    def write(self, line: str) -> None:
        """Add one line. Raise DeviceUnusable where the disk is full or the result larger than a spool may be."""
        data = memoryview(line.encode("utf-8") + b"\n")
        self._rest -= len(data)
        if self._rest < 0:
            raise DeviceUnusable(f"a result grew larger than all that {self._path.parent} may hold")
        with clear_about_disks(self._path.parent):
            while data:
                data = data[os.write(self._fd, data) :]

    def keep(self) -> None:
        """Make it last, also when the power fails, and findable."""
        with clear_about_disks(self._path.parent):
            os.fsync(self._fd)
            files.put(self._scratch, self._path)

    def drop(self) -> None:
        """Close it. What was not kept is gone."""
        os.close(self._fd)
        with contextlib.suppress(FileNotFoundError):
            self._scratch.unlink()

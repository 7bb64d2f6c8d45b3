"""Files that are whole at every moment: readers get the old content or the new, whenever the writer ends."""

from __future__ import annotations

import contextlib
import hashlib
import os
import time
from functools import lru_cache
from pathlib import Path

_UNFINISHED = ".ngraph-part"
_ABANDONED_SECONDS = 24 * 3600.0


def write(path: Path, content: bytes | str, *, mode: int = 0o666, durable: bool = False) -> None:
    """Put bytes, or a text in UTF-8, in the place of what a file holds. Raises OSError. The old content stays then.

    ``mode`` is that of the file from its first byte, less the umask, whatever the old one had. With ``durable`` the
    name is never on disk without the content. What killed writers left beside it a day ago or earlier is removed.
    """
    for left in path.parent.glob(f".*{_UNFINISHED}"):
        with contextlib.suppress(OSError):
            if time.time() - left.stat().st_mtime > _ABANDONED_SECONDS:
                left.unlink()
    part = path.with_name(f".{os.urandom(8).hex()}{_UNFINISHED}")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        with os.fdopen(fd, "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if durable:
                file.flush()
                os.fsync(fd)
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


def put(part: Path, path: Path) -> None:
    """Put a finished file in the place of another, and have its name on disk before anything else is done."""
    part.replace(path)
    sync(path.parent)


def sync(path: Path) -> None:
    """Have the content of a file, or the names in a folder, on disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def file_digest(path: Path) -> str:
    """Return the sha256 of a file as 64 hex digits. Raise OSError where it cannot be read."""
    status = path.stat()
    return _digest_of(str(path), status.st_size, status.st_mtime_ns, status.st_ino)


@lru_cache(maxsize=4096)
def _digest_of(path: str, size: int, mtime_ns: int, inode: int) -> str:
    """Read the file once per process and version of it: models may be gigabytes."""
    content = hashlib.sha256()
    with open(path, "rb") as file:  # noqa: PTH123
        while chunk := file.read(1 << 20):
            content.update(chunk)
    return content.hexdigest()

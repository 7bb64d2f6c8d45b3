"""Immutable folders that appear whole or not at all, whichever processes make them, and are known by their contents."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

_MARKER = "meta.json"
# What begins so is swept away a day after whoever made it died.
SCRATCH = ".making-"
_ABANDONED_SECONDS = 24 * 3600
# When a folder was read last is when its marker was changed last, so exactly.
_USED_SECONDS = 60.0


def read(folder: Path) -> dict[str, Any] | None:
    """Return the meta data of a folder, or None where it is absent, unfinished or seen to be damaged.

    That is seen by the sizes of its files; ``damage`` reads them.
    """
    marker = _marker(folder)
    if marker is None or not _is_whole(folder, marker):
        return None
    _use(folder / _MARKER)
    return dict(marker["meta"])


def damage(folder: Path) -> str:
    """Return which file of a folder is not what was published, or nothing; an absent folder is not damaged.

    Every file is read, once in a process and version of it.
    """
    if not folder.exists():
        return ""
    marker = _marker(folder)
    if marker is None:
        return _MARKER
    try:
        changed = (name for name, known in marker["digests"].items() if _digest(folder / name) != known)
        return next(changed, "")
    except OSError as error:
        return Path(error.filename or _MARKER).name


def drop_damaged(folder: Path) -> str:
    """Remove a folder that is damaged, so that it is made again; return what to say of it, or nothing."""
    name = damage(folder)
    if not name:
        return ""
    with _locked(folder.parent):
        if damage(folder):
            shutil.rmtree(folder, ignore_errors=True)
    return f"{folder / name} is damaged: removed, and made again"


def last_used(folder: Path) -> float | None:
    """Return when a folder was read last, in seconds since 1970; None for what is no published folder."""
    try:
        return (folder / _MARKER).stat().st_mtime
    except OSError:
        return None


def _marker(folder: Path) -> dict[str, Any] | None:
    try:
        marker = json.loads((folder / _MARKER).read_text())
        known = marker.pop("digest")
        return marker if known == _digest_of_marker(marker) else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # whatever a damaged folder looks like
        return None


def _is_whole(folder: Path, marker: Mapping[str, Any]) -> bool:
    try:
        return all((folder / name).stat().st_size == size for name, size in marker["sizes"].items())
    except OSError:
        return False


def _digest_of_marker(marker: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(marker, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    status = path.stat()
    return _digest_of_version(str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


@lru_cache(maxsize=4096)
def _digest_of_version(path: str, inode: int, size: int, mtime_ns: int, ctime_ns: int) -> str:
    content = hashlib.sha256()
    with open(path, "rb") as file:  # noqa: PTH123
        while chunk := file.read(1 << 20):
            content.update(chunk)
    return content.hexdigest()


def _use(marker: Path) -> None:
    """Keep that a folder is used now; where nothing can be written nothing is kept."""
    with suppress(OSError):
        if time.time() - marker.stat().st_mtime > _USED_SECONDS:
            os.utime(marker)


def publish(folder: Path, write: Callable[[Path], Mapping[str, Any]]) -> None:
    """Make a folder: ``write`` fills a scratch folder and returns its meta data, then it is moved into place.

    Where another process has made it meanwhile, that one stays and ours is dropped.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    _sweep(folder.parent)
    scratch = folder.parent / f"{SCRATCH}{uuid.uuid4().hex}"
    scratch.mkdir()
    try:
        meta = write(scratch)
        files = sorted(path for path in scratch.iterdir() if path.is_file())
        marker: dict[str, Any] = {
            "meta": dict(meta),
            "sizes": {path.name: path.stat().st_size for path in files},
            "digests": {path.name: _digest(path) for path in files},
        }
        # As it is read back: JSON has no tuples, and no keys but texts.
        marker["digest"] = _digest_of_marker(json.loads(json.dumps(marker)))
        # The marker comes last: a folder without it is unfinished.
        (scratch / _MARKER).write_text(json.dumps(marker, indent=1))
        for path in (*scratch.iterdir(), scratch):
            _sync(path)
        with _locked(folder.parent):
            if read(folder) is None:
                shutil.rmtree(folder, ignore_errors=True)  # damaged
                scratch.rename(folder)
                _sync(folder.parent)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _sweep(root: Path) -> None:
    """Remove what processes that died a day ago or earlier left behind."""
    for path in root.glob(f"{SCRATCH}*"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:  # its maker has just finished
            continue


def _sync(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    with (root / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

"""Immutable folders that appear whole or not at all, whichever processes make them, and are known by their contents."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import stat
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import lru_cache
from pathlib import Path
from typing import Any

from pytest_ngraph.machine.files import sync

_MARKER = "meta.json"
# Files that several folders rest on lie beside them, in a folder of this name.
SHARED = "weights"
# What begins so is swept away a day after the process that made it died.
SCRATCH = ".making-"
_ABANDONED_SECONDS = 24 * 3600
# When a folder was read last is when its marker was changed last, so exactly.
_USED_SECONDS = 60.0


def read(folder: Path) -> dict[str, Any] | None:
    """Return the meta data of a folder, or None where it is absent, unfinished or seen to be damaged.

    That is seen by the sizes of its files. ``damage`` reads them.
    """
    marker = _marker(folder)
    if marker is None or not _is_whole(folder, marker):
        return None
    _use(folder / _MARKER)
    return dict(marker["meta"])


def sizes(folder: Path) -> dict[Path, int]:
    """Return the bytes of each file of a folder, and of those that it rests on. None of one that cannot be read."""
    marker = _marker(folder)
    return {} if marker is None else {_place(folder, marker, name): size for name, size in marker["sizes"].items()}


def damage(folder: Path) -> str:
    """Return which file of a folder, or that it rests on, is not what was published. An absent folder is not damaged.

    Every file is read, once in a process and version of it.
    """
    return next((path.name for path in _damaged(folder)), "")


def drop_damaged(folder: Path) -> str:
    """Remove what is damaged, so that it is made again. Return what to say of it, or nothing.

    That is the folder, but of what it shares only the files that are damaged: whichever folder is published first puts
    them back, and all others that rest on them are whole again.
    """
    named = [path for path in _damaged(folder) if path.is_relative_to(folder) or path.exists()]
    if not named:
        return ""
    with _locked(folder.parent):
        damaged = list(_damaged(folder))
        for path in damaged:
            if not path.is_relative_to(folder):
                path.unlink(missing_ok=True)
        if any(path.is_relative_to(folder) for path in damaged):
            shutil.rmtree(folder, ignore_errors=True)
    if len(named) == 1:
        return f"{named[0]} is damaged: removed, and made again"
    return f"{named[0]} and {len(named) - 1} more are damaged: removed, and made again"


def drop_unused(folder: Path, before: float) -> bool:
    """Remove a folder that was last read before a time in seconds since 1970. Return whether it was."""
    with _locked(folder.parent):
        used = last_used(folder)
        if used is None or used >= before:
            return False
        shutil.rmtree(folder, ignore_errors=True)
    return True


def unneeded(root: Path, without: Collection[Path] = ()) -> list[Path]:
    """Return the shared files in ``root`` that no folder rests on, or none but those in ``without``."""
    shared = root / SHARED
    if not shared.is_dir():
        return []
    others = (folder for folder in root.iterdir() if folder.is_dir() and folder not in without)
    rested_on = {name for folder in others for name in (_marker(folder) or {}).get("shared", ())}
    return sorted(path for path in shared.iterdir() if path.name not in rested_on)


def sweep_shared(root: Path) -> int:
    """Remove the shared files in ``root`` that no folder rests on. Return their bytes.

    A process that publishes a folder puts its shared files in place under the same lock, so that none goes meanwhile.
    """
    if not (root / SHARED).is_dir():
        return 0
    freed_bytes = 0
    with _locked(root):
        for path in unneeded(root):
            freed_bytes += path.stat().st_size
            path.unlink()
    return freed_bytes


def shared_file(folder: Path, suffix: str) -> Path:
    """Return the path, among the shared files, of the one that is named after its folder."""
    return folder.parent / SHARED / f"{folder.name}{suffix}"


def owner_of(path: Path) -> Path:
    """Return the folder that a file was published with: the one that contains it, or gives a shared file its name."""
    return path.parent.with_name(path.stem) if path.parent.name == SHARED else path.parent


def last_used(folder: Path) -> float | None:
    """Return when a folder was read last, in seconds since 1970, or None for what is no published folder."""
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
        return all(_place(folder, marker, name).lstat().st_size == size for name, size in marker["sizes"].items())
    except OSError:
        return False


def _damaged(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, and of those it rests on, that are not what was published, or are gone."""
    if not folder.exists():
        return
    marker = _marker(folder)
    if marker is None:
        yield folder / _MARKER
        return
    for name, known in marker["digests"].items():
        path = _place(folder, marker, name)
        if not _has(path, known):
            yield path


def _place(folder: Path, marker: Mapping[str, Any], name: str) -> Path:
    return (folder.with_name(SHARED) if name in marker.get("shared", ()) else folder) / name


def _digest_of_marker(marker: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(marker, sort_keys=True).encode()).hexdigest()


def _digest(path: Path) -> str:
    """Return the sha256 of a file, of a link that of where it leads to, as it is written."""
    status = path.lstat()
    if stat.S_ISLNK(status.st_mode):
        return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    return _digest_of_version(str(path), status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns)


def _has(path: Path, digest: str) -> bool:
    """Return whether a file is there and has this content."""
    try:
        return _digest(path) == digest
    except OSError:
        return False


@lru_cache(maxsize=1 << 16)
def _digest_of_version(path: str, inode: int, size: int, mtime_ns: int, ctime_ns: int) -> str:
    content = hashlib.sha256()
    with open(path, "rb") as file:  # noqa: PTH123
        while chunk := file.read(1 << 20):
            content.update(chunk)
    return content.hexdigest()


def _use(marker: Path) -> None:
    """Keep that a folder is used now. Where nothing can be written nothing is kept."""
    with suppress(OSError):
        if time.time() - marker.stat().st_mtime > _USED_SECONDS:
            os.utime(marker)


def publish(
    folder: Path, write: Callable[[Path], Mapping[str, Any]], *, shares: bool = False, deep: bool = False
) -> None:
    """Make a folder: ``write`` fills a scratch folder and returns its meta data, then it is moved into place.

    Where another process has made it meanwhile, that one stays and this one is dropped. With ``shares`` the files that
    ``write`` puts into a folder ``SHARED`` in the scratch folder are moved to the one beside ``folder``. Files in there
    are named by their content, or after their folder as ``shared_file`` does. Those that are there already, and are not
    damaged, stay. With ``deep`` it is known by the files and links in the folders below it, too.
    """
    root = folder.parent
    root.mkdir(parents=True, exist_ok=True)
    _sweep(root)
    scratch = root / f"{SCRATCH}{uuid.uuid4().hex}"
    scratch.mkdir()
    try:
        meta = write(scratch)
        found = scratch.rglob("*") if deep else scratch.iterdir()
        own = sorted(path for path in found if path.is_symlink() or path.is_file())
        shared = sorted((scratch / SHARED).iterdir()) if shares and (scratch / SHARED).is_dir() else []
        names = {path: path.relative_to(scratch).as_posix() for path in own} | {path: path.name for path in shared}
        digests = {name: _digest(path) for path, name in names.items()}
        marker: dict[str, Any] = {
            "meta": dict(meta),
            "sizes": {name: path.lstat().st_size for path, name in names.items()},
            "digests": digests,
            **({"shared": [path.name for path in shared]} if shares else {}),
        }
        # As it is read back: JSON has no tuples, and no keys but texts.
        marker["digest"] = _digest_of_marker(json.loads(json.dumps(marker)))
        # The marker comes last: a folder without it is unfinished.
        (scratch / _MARKER).write_text(json.dumps(marker, indent=1))

        def lacking() -> list[Path]:
            return [path for path in shared if not _has(root / SHARED / path.name, digests[path.name])]

        for path in (*scratch.iterdir(), *lacking(), scratch):
            sync(path)
        with _locked(root):
            if read(folder) is None or damage(folder):
                # Once more, under the lock: what was there may be gone. What is the same is not read twice.
                _place_shared(lacking(), root / SHARED)
                if shares:
                    shutil.rmtree(scratch / SHARED, ignore_errors=True)
                shutil.rmtree(folder, ignore_errors=True)  # damaged
                scratch.rename(folder)
                sync(root)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _place_shared(files: Collection[Path], target: Path) -> None:
    """Move files into the folder of shared ones, each in the place of a damaged one if there is such."""
    if files:
        target.mkdir(exist_ok=True)
        for path in files:
            path.replace(target / path.name)
        sync(target)


def _sweep(root: Path) -> None:
    """Remove what processes that died a day ago or earlier left behind."""
    for path in root.glob(f"{SCRATCH}*"):
        try:
            if time.time() - path.stat().st_mtime > _ABANDONED_SECONDS:
                shutil.rmtree(path, ignore_errors=True)
        except FileNotFoundError:  # its maker has just finished
            continue


@contextmanager
def _locked(root: Path) -> Iterator[None]:
    with (root / ".lock").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

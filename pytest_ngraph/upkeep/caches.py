"""What is kept beside a store and removed with age: cached folders, weights that only they used, and logs."""

from __future__ import annotations

import os
import shutil
import uuid
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from pytest_ngraph.options.settings import BESIDE_STORE, OF_SIDES
from pytest_ngraph.upkeep.care import folder_bytes
from pytest_ngraph.workloads import folders

# Records of searches are not among what pruning takes: they cost days, and are shared by all runs.
_RECORDS = "-records-"
# Of the folder itself.
_STAYS = frozenset({".lock", ".gitignore"})
# Folders among the artifacts that compilers fill by themselves, where workers have them (``worker_environment``). They
# have no marker, and go as a whole: what lies in one refers to the rest of it.
COMPILERS_OWN = frozenset({"inductor", "triton"})


def drop_unused(store: Path, before: float, *, dry_run: bool) -> tuple[int, int]:
    """Remove what was used last before a time in seconds since 1970. Return how many folders and logs, and the bytes.

    Weights go with the last folder that rests on them. They count in the bytes only. With ``dry_run`` nothing is
    removed.
    """
    return drop_unused_in(store.parent, before, dry_run=dry_run)


def drop_unused_in(folder: Path, before: float, *, dry_run: bool = False) -> tuple[int, int]:
    """Do the same in the folder of a store, or in that of an agent, which has the same caches and no store."""
    number = freed_bytes = 0
    for beside in _places(folder):
        gone = []
        for entry in _unused(beside, before):
            taken_bytes = folder_bytes(entry) if entry.is_dir() else entry.stat().st_size
            if dry_run or _remove(entry, before):
                gone.append(entry)
                freed_bytes += taken_bytes
        number += len(gone)
        if dry_run:
            freed_bytes += sum(file.stat().st_size for file in folders.unneeded(beside, gone))
        else:
            freed_bytes += folders.sweep_shared(beside)
    return number, freed_bytes


def _places(folder: Path) -> Iterator[Path]:
    """Yield the folders that hold what is kept: those beside the store, and those of each side."""
    of_sides = folder / OF_SIDES
    for home in (folder, *(sorted(of_sides.iterdir()) if of_sides.is_dir() else ())):
        yield from (home / name for name in BESIDE_STORE)


def _unused(folder: Path, before: float) -> Iterator[Path]:
    for entry in sorted(folder.iterdir()) if folder.is_dir() else ():
        used = _last_used(entry) if entry.is_dir() else entry.stat().st_mtime
        if used is not None and used < before and _RECORDS not in entry.name and entry.name not in _STAYS:
            yield entry


def _last_used(folder: Path) -> float | None:
    used = folders.last_used(folder)
    return _read_or_written(folder) if used is None and folder.name in COMPILERS_OWN else used


def _read_or_written(folder: Path) -> float:
    """Return when any file below a folder was written last, or read, as far as its file system keeps that."""
    times = [folder.stat().st_mtime]
    for place, _, names in os.walk(folder):
        for name in names:
            # Whatever compiles meanwhile may remove its own.
            with suppress(FileNotFoundError):
                status = Path(place, name).lstat()
                times.append(max(status.st_mtime, status.st_atime))
    return max(times)


def _remove(entry: Path, before: float) -> bool:
    if entry.name in COMPILERS_OWN and folders.last_used(entry) is None:
        # At once, so that no compiler finds a half of it; what a killed process leaves is swept away as scratch.
        gone = entry.with_name(f"{folders.SCRATCH}{uuid.uuid4().hex}")
        entry.rename(gone)
        shutil.rmtree(gone, ignore_errors=True)
        return True
    if entry.is_dir():
        return folders.drop_unused(entry, before)
    entry.unlink(missing_ok=True)
    return True

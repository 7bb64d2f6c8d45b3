"""Immutable folders that appear whole or not at all, whichever processes make them at the same time."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_MARKER = "meta.json"
# What begins so is swept away a day after whoever made it died.
SCRATCH = ".making-"
_ABANDONED_SECONDS = 24 * 3600


def read(folder: Path) -> dict[str, Any] | None:
    """Return the meta data of a folder, or None where it is absent, unfinished or damaged."""
    try:
        marker = json.loads((folder / _MARKER).read_text())
        whole = all((folder / name).stat().st_size == size for name, size in marker["sizes"].items())
        return dict(marker["meta"]) if whole else None
    except (OSError, ValueError, KeyError, TypeError, AttributeError):  # whatever a damaged folder looks like
        return None


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
        sizes = {path.name: path.stat().st_size for path in scratch.iterdir()}
        # The marker comes last: a folder without it is unfinished.
        (scratch / _MARKER).write_text(json.dumps({"meta": dict(meta), "sizes": sizes}, indent=1))
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

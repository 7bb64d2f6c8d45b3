"""The other sides of a run on a device: their files as they were shipped, and packages in the agent's folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pytest_ngraph.devices.agent.permissions import WHY_NOT_INSTALL
from pytest_ngraph.devices.wire import shipping
from pytest_ngraph.devices.wire.sides import SentSide
from pytest_ngraph.errors import DeviceUnusable, SpecError
from pytest_ngraph.sides.asked import Asked, read
from pytest_ngraph.sides.resolving import Runtimes, runtimes
from pytest_ngraph.spec.sides import Side

# In the folder of an agent.
FOLDER = "sides"
_NOT_HERE = "a model that this side has not got"


def runtimes_for(asked: Asked, folder: Path, note: Callable[[str], None], why_not: str = WHY_NOT_INSTALL) -> Runtimes:
    """Return packages and an interpreter of this device, installed below ``folder`` where that is allowed.

    Raises SpecError for what is not to be had.
    """
    cache = folder / FOLDER
    found = runtimes(asked, rootdir=Path("/"), cache=cache, progress=note, why_not=why_not)
    for package in found.packages:
        # What has not been used for long goes first.
        os.utime(Path(package).parent)
    return found


def known(found: Runtimes) -> dict[str, Any]:
    """Return what a client is answered of packages and an interpreter."""
    return {"labels": found.labels, "versions": found.versions, "content": found.content}


def side_on_device(
    sent: SentSide, project: Path | None, files: Mapping[str, Path], folder: Path, note: Callable[[str], None]
) -> Side:
    """Return a side as workers of this device follow it. Nothing is installed for it that was not before.

    ``project`` and ``files`` are what was shipped of here. Raises DeviceUnusable for a side that is not whole here, or
    is another than the client knows.
    """
    tree = ""
    if sent.archive:
        if project is None:
            raise DeviceUnusable(f"{sent.label} has files, and the request has none of the project that they stand for")
        tree = str(shipping.unpack(folder / "blobs" / sent.archive, folder / "projects"))
    moves = []
    for here, there in sent.files.items():
        if here not in files or (there and there not in files):
            raise DeviceUnusable(f"{sent.label}: the files of a model in it were not shipped")
        moves.append((str(files[here]), str(files[there]) if there else str(Path(tree) / _NOT_HERE)))
    found = Runtimes()
    if sent.runtimes:
        try:
            found = runtimes_for(read(sent.runtimes), folder, note, "it was, and is no longer; run again")
        except SpecError as error:
            raise DeviceUnusable(str(error)) from None
        if found.content != sent.content:
            raise DeviceUnusable(f"{sent.label} is no longer what it was when this run began; run again")
    return Side(
        sent.label,
        root=str(project) if tree else "",
        tree=tree,
        packages=found.packages,
        versions=found.versions,
        python=found.python,
        content=found.content,
        moves=tuple(moves),
    )

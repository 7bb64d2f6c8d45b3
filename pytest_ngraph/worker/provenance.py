"""What a worker of a side really loaded: versions of packages and where they lie, and files of the project."""

from __future__ import annotations

import importlib.metadata
import platform
import re
import sys
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_ngraph.machine.facts import distributions_by_module, version_of_module
from pytest_ngraph.spec.sides import Side
from pytest_ngraph.worker.sides import is_below, is_installed

_HERE = Path(__file__).resolve().parents[1]
# So many files say enough of a side that was not reached.
_MOST = 3


def provenance(side: Side, requires: Iterable[str], own_path: Iterable[str]) -> dict[str, Any]:
    """Return what is loaded now, as JSON: ``packages``, ``strays``, ``python`` and ``own_path``.

    ``packages`` has, of each distribution that the side names and each module in ``requires`` that is loaded, its name,
    its version by what lies beside it, and the file it was loaded from. ``strays`` are modules of the project that
    were loaded from its working tree instead of the side's: name and file. ``own_path`` is where this interpreter finds
    what is installed for it.
    """
    return {
        "packages": [list(each) for each in _packages(side, requires)],
        "strays": [list(each) for each in _strays(side)],
        "python": [platform.python_version(), sys.executable],
        "own_path": list(own_path),
    }


def normalised(name: str) -> str:
    """Return the name of a distribution as all its spellings have it."""
    return re.sub(r"[-_.]+", "-", name).lower()


def _packages(side: Side, requires: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    named = {name for name, _ in side.versions}
    needed = {module.partition(".")[0] for module in requires}
    for module, distributions in distributions_by_module().items():
        for file, inside in _files_of(module):
            beside = _beside(file, inside)
            mine = {normalised(each) for each in distributions}
            if inside:
                # Several distributions have this folder in common.
                mine = {name for name in mine if _has(str(_folder_of(file, inside)), name, str(inside))} or mine
            for name in sorted(mine & named or ({*mine & beside.keys()} if module in needed else set())):
                yield name, beside.get(name) or version_of_module(module) or "without a version", str(file)


def _files_of(module: str) -> Iterator[tuple[Path, Path | None]]:
    """Yield the file that a top-level module was loaded from.

    A folder without an ``__init__.py`` of its own has none, and may be of several places: of it, the files of the
    loaded modules in it are yielded, each with its path from where the folder lies.
    """
    loaded = sys.modules.get(module)
    file = getattr(loaded, "__file__", None)
    if isinstance(file, str):
        yield Path(file), None
    elif hasattr(loaded, "__path__"):
        for name, inner in sorted(sys.modules.items()):
            file = getattr(inner, "__file__", None)
            if name.startswith(f"{module}.") and name.count(".") == 1 and isinstance(file, str):
                path = Path(file)
                at = len(path.parts) - path.parts[::-1].index(module) - 1 if module in path.parts else 0
                yield path, Path(*path.parts[at:])


def _folder_of(file: Path, inside: Path | None) -> Path:
    """Return the folder that a top-level module was loaded from, by its file or by one inside of it."""
    if inside is not None:
        return file.parents[len(inside.parts) - 1]
    return file.parents[1] if file.name.startswith("__init__.") else file.parent


def _beside(file: Path, inside: Path | None) -> dict[str, str]:
    """Return the distributions that are installed in the folder that a top-level module was loaded from."""
    return _installed_in(str(_folder_of(file, inside)))


@cache
def _has(folder: str, name: str, path: str) -> bool:
    """Tell whether a distribution that is installed in a folder brought this file."""
    found = next(iter(importlib.metadata.distributions(name=name, path=[folder])), None)
    return found is not None and path in map(str, found.files or ())


@cache
def _installed_in(folder: str) -> dict[str, str]:
    found = importlib.metadata.distributions(path=[folder])
    return {normalised(each.metadata["Name"]): each.version for each in found if each.metadata["Name"]}


def _strays(side: Side) -> Iterator[tuple[str, str]]:
    """Yield modules of the project that were not loaded from the side's tree."""
    if not side.tree:
        return
    count = 0
    for name, module in sorted(sys.modules.items(), key=lambda item: item[0]):
        file = getattr(module, "__file__", None) if isinstance(module, ModuleType) else None
        if not isinstance(file, str) or name.partition(".")[0] == _HERE.name:
            continue
        if is_below(file, side.root) and not is_below(file, side.tree) and not is_installed(file, side.root):
            yield name, file
            count += 1
            if count == _MOST:
                return

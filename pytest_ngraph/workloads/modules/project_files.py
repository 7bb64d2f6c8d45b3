"""Which Python files a module was made from: its project's, its own package's, and versions of what else it imports."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING

from pytest_ngraph.machine import imports
from pytest_ngraph.machine.facts import version_of_module
from pytest_ngraph.machine.files import file_digest

if TYPE_CHECKING:
    from torch import nn

# What the code of a user may draw weights or layers from; its files are read, the versions of these are not in them.
USERS_MAKE_BY = ("torch", "torchvision", "timm", "transformers")
_OURS = Path(__file__).resolve().parents[2]
# Too large to be read. Their versions are in every key, and of this package the one that last changed what is timed.
_BY_VERSION = frozenset({*USERS_MAKE_BY, _OURS.name})


def project_files(start: ModuleType, made: nn.Module) -> dict[str, str]:
    """Return what a module that is loaded was made from: files with their sha256, other packages with their version.

    Files are found by following the imports in their sources, those inside functions, too, and from the classes of the
    model that was made. What is loaded, and what loaded it, depends on what this process did before, so nothing is
    asked of it but where a module was loaded from. Of what is installed only the files of the module's own package
    count. Of other packages that are imported, by their import name, the version does.
    """
    classes = {each.__module__ for layer in made.modules() for each in type(layer).__mro__}
    path = [*_folder_of(start.__name__), *sys.path]

    def find(name: str) -> Path | None:
        return _loaded_file(name) or imports.find(name, path)

    return _follow([start.__name__, *sorted(classes)], start.__name__, path, find)


def imported_files(module: str, path: Sequence[str]) -> dict[str, str]:
    """Return the same of a module that workers import by this path. Imports nothing, so only sources count."""
    return _follow([module], module, path, lambda name: imports.find(name, path) or _loaded_file(name))


def _follow(
    names: Iterable[str], start: str, path: Sequence[str], find: Callable[[str], Path | None]
) -> dict[str, str]:
    own, installed = _top(start), imports.installed_folders()
    files: dict[str, str] = {}
    followed: set[str] = set()
    imported: set[str] = set()
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        top = _top(name)
        if name in seen or top in _BY_VERSION:
            continue
        seen.add(name)
        if name.endswith(imports.ANY):
            package = name.removesuffix(imports.ANY)
            file = find(package)
            for folder in [file.parent] if file is not None else imports.folders_of(package, path):
                waiting += imports.modules_in(folder, package)
            continue
        file = find(name)
        if file is None or (top != own and any(file.is_relative_to(folder) for folder in installed)):
            continue
        files[str(file)] = file_digest(file)
        followed.add(top)
        found = set(imports.imported_names(name, file))
        imported |= {_top(each) for each in found}
        waiting += found
    others = imported - followed - _BY_VERSION - sys.stdlib_module_names
    versions = {name: version_of_module(name) for name in others if name}
    return dict(sorted({**files, **{name: version for name, version in versions.items() if version}}.items()))


def _loaded_file(name: str) -> Path | None:
    origin = getattr(sys.modules.get(name), "__file__", None)
    if not isinstance(origin, str) or not origin.endswith(".py"):
        return None
    file = Path(origin).resolve()
    return file if file.is_file() else None


def _folder_of(name: str) -> list[str]:
    """Return the folder that a loaded module, or the top package of it, was imported from, or nothing."""
    file = _loaded_file(name)
    return [] if file is None else [str(file.parents[name.count(".") + (file.name == "__init__.py")])]


def _top(name: str) -> str:
    return name.partition(".")[0]

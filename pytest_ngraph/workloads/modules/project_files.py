"""Which of the project's own Python files a module was made from."""

from __future__ import annotations

import ast
import site
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from pytest_ngraph.workloads.keys import file_digest

_OURS = Path(__file__).resolve().parents[2]


def project_files(start: ModuleType, loaded: set[str]) -> dict[str, str]:
    """Return the project's files behind a module, each with its sha256.

    They are found by following the imports in their sources, so that a file counts whichever module imported it
    first, and ``loaded`` adds the names of modules that came in by other ways (``importlib.import_module``). Files of
    installed packages, of the standard library and of this package do not count.
    """
    files: dict[str, str] = {}
    waiting = [start.__name__, *sorted(loaded)]
    seen: set[str] = set()
    while waiting:
        name = waiting.pop()
        if name in seen or name not in sys.modules:
            continue
        seen.add(name)
        file = _project_file(sys.modules[name])
        if file is not None:
            files[str(file)] = file_digest(file)
            waiting += _imported_names(sys.modules[name], file)
    return dict(sorted(files.items()))


def _project_file(module: ModuleType) -> Path | None:
    origin = getattr(module, "__file__", None)
    if not isinstance(origin, str) or not origin.endswith(".py"):
        return None
    file = Path(origin).resolve()
    if any(file.is_relative_to(folder) for folder in _foreign_folders()) or not file.is_file():
        return None
    return file


def _foreign_folders() -> list[Path]:
    paths = sysconfig.get_paths()
    names = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [_OURS, *(Path(name).resolve() for name in (*names, *site.getsitepackages(), site.getusersitepackages()))]


def _imported_names(module: ModuleType, file: Path) -> Iterator[str]:
    """Name the modules that a source file imports anywhere in it, with the packages above them."""
    for node in ast.walk(ast.parse(file.read_bytes())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, module)
            yield from _with_parents(base)
            # ``from package import name``: the name may be a module of the package.
            yield from (f"{base}.{alias.name}" for alias in node.names)
    yield from _with_parents(module.__name__)


def _absolute(node: ast.ImportFrom, module: ModuleType) -> str:
    if not node.level:
        return node.module or ""
    package = module.__package__ or ""
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[: end + 1]) for end in range(len(parts)))

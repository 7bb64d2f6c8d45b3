"""Where modules lie and what their sources import, read without importing any of them."""

from __future__ import annotations

import ast
import site
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from pytest_ngraph.errors import SpecError


def find(module: str, path: Sequence[str] | None = None) -> Path | None:
    """Return the source file that a module is imported from by an import path (``sys.path``), or None without one."""
    top, *rest = module.split(".")
    try:
        spec = spec_of(top, path)
    except (ImportError, ValueError):  # no name of a module, or a module without __spec__, such as __main__
        return None
    if spec is None:
        return None
    if rest:
        places = [Path(folder).joinpath(*rest) for folder in spec.submodule_search_locations or ()]
        candidates = [file for place in places for file in (place / "__init__.py", place.with_suffix(".py"))]
    else:
        candidates = [Path(spec.origin)] if spec.origin else []
    return next((file.resolve() for file in candidates if file.suffix == ".py" and file.is_file()), None)


def spec_of(top: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """Return how a top-level module or package is imported. Raise ImportError or ValueError for what is none."""
    # The path comes first, as it may be that of workers; finders of editable installs are those of this process.
    return PathFinder.find_spec(top, path) or find_spec(top)


def installed_folders() -> list[Path]:
    """Return the folders of the standard library and of installed packages."""
    paths = sysconfig.get_paths()
    names = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return [Path(name).resolve() for name in (*names, *site.getsitepackages(), site.getusersitepackages())]


def imported_names(module: str, file: Path) -> Iterator[str]:
    """Name the modules that a source file imports anywhere in it, with the packages above them and above itself."""
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # of another Python: what is not imported here either
        return
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            yield from _with_parents(base)
            # ``from package import name``: the name may be a module of the package.
            yield from (f"{base}.{alias.name}" for alias in node.names)
    yield from _with_parents(module)


def _absolute(node: ast.ImportFrom, package: str) -> str:
    if not node.level:
        return node.module or ""
    parts = package.split(".")[: len(package.split(".")) - node.level + 1]
    return ".".join([*parts, node.module] if node.module else parts)


def _with_parents(name: str) -> Iterator[str]:
    parts = name.split(".")
    yield from (".".join(parts[: end + 1]) for end in range(len(parts)))


def require(model: str, extra: str, *modules: str) -> None:
    """Raise SpecError that names the model and the pip extra where one of the modules is not installed."""
    absent = [module for module in modules if find_spec(module) is None]
    if absent:
        names = " and ".join(absent)
        raise SpecError(f'model {model!r}: it needs {names}, not installed (pip install "pytest-ngraph[{extra}]")')

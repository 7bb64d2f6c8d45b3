"""Where modules lie and what their sources import, read without importing any of them."""

from __future__ import annotations

import ast
import functools
import re
import site
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import find_spec
from pathlib import Path

from pytest_ngraph.errors import SpecError

SITES = frozenset({"site-packages", "dist-packages"})
# Functions that import what their first argument names.
_BY_NAME = frozenset({"import_module", "__import__"})
# Those that import a file, whose place cannot be read from the source.
_BY_PLACE = frozenset({"spec_from_file_location", "SourceFileLoader", "run_path"})
# What stands behind a package all of whose modules may be imported.
ANY = ".*"
_LENT: list[str] = []


def find(module: str, path: Sequence[str] | None = None) -> Path | None:
    """Return the source file that a module is imported from by an import path (``sys.path``), or None without one."""
    top, *rest = module.split(".")
    spec = _spec_or_none(top, path)
    if spec is None:
        return None
    if rest:
        places = [Path(folder).joinpath(*rest) for folder in spec.submodule_search_locations or ()]
        candidates = [file for place in places for file in (place / "__init__.py", place.with_suffix(".py"))]
    else:
        candidates = [Path(spec.origin)] if spec.origin else []
    return next((file.resolve() for file in candidates if file.suffix == ".py" and file.is_file()), None)


def folders_of(package: str, path: Sequence[str] | None = None) -> list[Path]:
    """Return the folders of a package by an import path, also of one without an ``__init__.py``, which has no file."""
    top, *rest = package.split(".")
    spec = _spec_or_none(top, path)
    places = (Path(folder).joinpath(*rest) for folder in (spec and spec.submodule_search_locations) or ())
    return [place for place in places if place.is_dir()]


def _spec_or_none(top: str, path: Sequence[str] | None) -> ModuleSpec | None:
    try:
        return spec_of(top, path)
    except (ImportError, ValueError):  # no name of a module, or a module without __spec__, such as __main__
        return None


def spec_of(top: str, path: Sequence[str] | None = None) -> ModuleSpec | None:
    """Return how a top-level module or package is imported. Raise ImportError or ValueError for what is none."""
    # The path comes first, as it may be that of workers; finders of editable installs are those of this process.
    return PathFinder.find_spec(top, path) or find_spec(top)


def lend(folders: Sequence[str]) -> None:
    """Take these folders of this process's import path as such that hold installed packages, whatever their names."""
    _LENT.extend(folders)


def installed_folders() -> Sequence[Path]:
    """Return the folders of the standard library and of installed packages."""
    # Those of another environment come by a .pth file or PYTHONPATH.
    return _resolved((*_LENT, *(name for name in sys.path if Path(name).name in SITES)))


@functools.lru_cache(maxsize=16)
def _resolved(lent: tuple[str, ...]) -> Sequence[Path]:
    """Follow the links of these folders and of the environment's, once: every file of a suite is asked about."""
    paths = sysconfig.get_paths()
    names = [paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")]
    return tuple(Path(name).resolve() for name in (*names, *site.getsitepackages(), site.getusersitepackages(), *lent))


def imported_names(module: str, file: Path) -> Iterator[str]:
    """Name the modules that a source file imports anywhere in it, with the packages above them and above itself.

    Of a name that is put together when it runs (``import_module("configs." + name)``) the beginning may be known: then
    it is the package with ``ANY`` behind it, and else each module in the folder of the file.
    """
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):  # of another Python: what is not imported here either
        return
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    renamed = dict(_renamed(tree))
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield from _with_parents(alias.name)
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(node, package)
            yield from _with_parents(base)
            # ``from package import name``: the name may be a module of the package.
            yield from (f"{base}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and (called := _called(node, renamed)) in _BY_NAME | _BY_PLACE:
            yield from _when_it_runs(node, package, file, by_name=called in _BY_NAME)
    yield from _with_parents(module)


def modules_in(folder: Path, package: str) -> Iterator[str]:
    """Name the modules whose sources lie in the folder of a package. Without a package they are at the top."""
    for file in sorted(folder.glob("*.py")):
        if file.stem != "__init__" and file.stem.isidentifier():
            yield f"{package}.{file.stem}" if package else file.stem


def _renamed(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the other names that functions which import have in a source file, each with its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield from ((each.asname, each.name) for each in node.names if each.asname and each.name in _BY_NAME)


def _called(node: ast.Call, renamed: Mapping[str, str]) -> str:
    """Return the last part of the name of what is called."""
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    return renamed.get(name, name)


def _when_it_runs(node: ast.Call, package: str, file: Path, *, by_name: bool) -> Iterator[str]:
    """Name what a call imports, as far as its first argument says it."""
    given = [*node.args[:1], *(each.value for each in node.keywords if each.arg == "name")]
    beginning, is_whole = _beginning(given[0]) if given and by_name else ("", False)
    if beginning.startswith("."):
        anchors = [*node.args[1:2], *(each.value for each in node.keywords if each.arg == "package")]
        # What is no text is the name of this package, or of this module.
        anchor = next((each.value for each in anchors if isinstance(each, ast.Constant)), package)
        name = beginning.lstrip(".")
        parts = str(anchor).split(".")
        beginning = ".".join([*parts[: len(parts) - (len(beginning) - len(name)) + 1], name])
    if is_whole:
        yield from _with_parents(beginning)
    elif "." in beginning:
        known = beginning.rpartition(".")[0]
        yield from _with_parents(known)
        yield f"{known}{ANY}"
    else:
        yield from modules_in(file.parent, package)


def _beginning(node: ast.expr) -> tuple[str, bool]:
    """Return what is known of a text before it runs, from its first letter on, and whether that is all of it."""
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value, True
    parts: list[ast.expr] = []
    if isinstance(node, ast.JoinedStr):
        parts = list(node.values)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Mod)):
        parts = [node.left]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "format":
        parts = [node.func.value]
    known = _beginning(parts[0])[0] if parts else ""
    # What comes after the first place that is filled in is not known, either.
    return (known if isinstance(node, ast.JoinedStr) else re.split("[%{]", known)[0]), False


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

"""Whether a side may differ from what is here by what no source shows: packages, data, compiled modules."""

from __future__ import annotations

import ast
import importlib.machinery
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from pathlib import Path

from pytest_ngraph.machine import imports
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.machine.files import file_digest
from pytest_ngraph.spec.sides import Side

_EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_BYTECODE = "__pycache__"
_LONGEST = 500


def differs(side: Side, files: Sequence[str], path: Sequence[str]) -> bool:
    """Return whether cells with these source files, the same on both sides, may still differ on a side.

    They may on another interpreter, with packages in other versions than those of here, and where a file of the project
    that is no source differs and the sources could read it: it lies below the folder of one of them, but for the root,
    or one of them has its name, its folder's or its suffix in a text. So they may where one of them imports a module
    that is compiled, or that only one side has. Raises nothing: what cannot be read differs.
    """
    if side.python or any(version_of(name) != version for name, version in side.versions):
        return True
    if side.packages and not side.versions:
        return True
    if not side.tree:
        return False
    root = Path(side.root).resolve()
    mine = [file for file in map(Path, files) if file.resolve().is_relative_to(root)]
    if not mine:
        return False
    try:
        texts, names = _said(tuple(mine))
        other = _other_files(side.root, side.tree)
    except (OSError, SyntaxError, ValueError):
        return True
    data = [file for file in (*other, *_only_here(root, Path(side.tree), mine, texts)) if file.suffix != ".py"]
    if any(_is_read(root, file, mine, texts) for file in data):
        return True
    if any(_module(file) in names for file in other):
        return True
    return any(_compiled(name, path, root) for name in names)


@cache
def _said(files: tuple[Path, ...]) -> tuple[frozenset[str], frozenset[str]]:
    """Return the texts in sources, and the last part of each name that they import, or might."""
    texts, names = set(), set()
    for file in files:
        if file.suffix != ".py":
            continue
        for node in ast.walk(ast.parse(file.read_bytes())):
            if isinstance(node, ast.Constant) and isinstance(node.value, str) and len(node.value) <= _LONGEST:
                texts.add(node.value)
        names |= {name.rpartition(".")[2] for name in imports.imported_names(file.stem, file)}
    return frozenset(filter(None, texts)), frozenset(filter(None, names)) - {imports.ANY.strip(".")}


@cache
def _other_files(root: str, tree: str) -> tuple[Path, ...]:
    """Return the files of a tree, relative to it, that are not in the root, or not the same there."""
    return tuple(file for file in _files(Path(tree)) if not _is_same(Path(tree) / file, Path(root) / file))


def _only_here(root: Path, tree: Path, sources: Iterable[Path], texts: Iterable[str]) -> Iterator[Path]:
    """Yield files beside sources of here, and in folders that they name, that the tree does not have."""
    beside = {source.resolve().parent for source in sources}
    named = {start / text for start in (*beside, root) for text in texts if len(text) > 1 and not text.startswith("/")}
    for folder in sorted(beside | {folder.resolve() for folder in named if _is_folder(folder)}):
        for path in folder.iterdir() if folder.is_relative_to(root) else ():
            is_own = path.is_file() and not path.name.startswith(".")
            if is_own and not (tree / path.relative_to(root)).exists():
                yield path.relative_to(root)


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # no name of a file
        return False


def _files(tree: Path) -> Iterator[Path]:
    for path in sorted(tree.rglob("*")):
        if path.is_file() and _BYTECODE not in path.parts:
            yield path.relative_to(tree)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_size == other.stat().st_size and file_digest(one) == file_digest(other)
    except OSError:
        return False


def _is_read(root: Path, file: Path, sources: Iterable[Path], texts: Iterable[str]) -> bool:
    """Tell whether sources of here could read a data file of the project, given relative to the root."""
    folders = {source.resolve().parent for source in sources} - {root}
    if any((root / file).is_relative_to(folder) for folder in folders):
        return True
    parts = {file.name, file.stem, *file.parts[:-1]}
    return any(text.endswith(file.name) or text in parts or _is_end(text, file.name) for text in texts)


def _is_end(text: str, name: str) -> bool:
    """Tell whether a text is how a name ends: what stands before it may be put in when it runs."""
    return len(text) > 1 and text.strip("*") != "" and name.endswith(text.strip("*"))


def _module(file: Path) -> str:
    """Return the name of the module that a file is, or nothing."""
    if file.suffix == ".py":
        return file.parent.name if file.stem == "__init__" else file.stem
    return file.name.partition(".")[0] if file.name.endswith(_EXTENSIONS) else ""


def _compiled(name: str, path: Sequence[str], root: Path) -> bool:
    """Tell whether a module of the project that is imported by this name is compiled: its sources are not followed."""
    folders = [folder for folder in map(Path, path) if folder.resolve().is_relative_to(root)]
    return any((folder / f"{name}{suffix}").is_file() for folder in folders for suffix in _EXTENSIONS)

"""Whether a side may differ from what is here by what no source shows: packages, data, compiled modules."""

from __future__ import annotations

import ast
import importlib.machinery
import importlib.metadata
from collections.abc import Iterable, Iterator, Sequence
from functools import cached_property
from pathlib import Path

from pytest_ngraph.machine import imports
from pytest_ngraph.machine.facts import version_of
from pytest_ngraph.machine.files import file_digest
from pytest_ngraph.spec.sides import Side

_EXTENSIONS = tuple(importlib.machinery.EXTENSION_SUFFIXES)
_BYTECODE = "__pycache__"
_LONGEST = 500
# What these words stand in may import any module.
_IMPORTS_ANY = frozenset(
    {"import_module", "__import__", "spec_from_file_location", "SourceFileLoader", "run_path", "pkgutil", "exec"}
)


class Difference:
    """What differs of a side, as its files are now. ``path`` is the import path of workers here."""

    def __init__(self, side: Side, path: Sequence[str]) -> None:
        self._side, self._path = side, path
        self._root, self._tree = Path(side.root).resolve(), Path(side.tree).resolve()
        self._sources: dict[Path, _Source] = {}
        # Most cells of a suite are made of the same files.
        self._shown: dict[tuple[str, ...], bool] = {}

    def shows(self, files: Sequence[str]) -> bool:
        """Return whether cells with these files, the same on both sides, may still differ.

        They may on another interpreter, with packages in other versions or builds than those of here, and where a file
        of the project that is no source differs and the sources could read it: it lies below the folder of one of them,
        but for the root, or one of them has its name, its folder's or its suffix in a text. So they may where one of
        them imports a module that is compiled, or that only one side has. What cannot be read differs.
        """
        given = tuple(files)
        if given not in self._shown:
            self._shown[given] = self._shows(given)
        return self._shown[given]

    def _shows(self, files: Sequence[str]) -> bool:
        side = self._side
        if side.python or any(version_of(name) != version for name, version in side.versions):
            return True
        if any(_is_another_build(name, side.packages) for name, _ in side.versions):
            return True
        if side.packages and not side.versions:
            return True
        # What a file that is no source refers to is among the files itself.
        mine = [file for file in map(Path, files) if file.suffix == ".py" and self._is_own(file)] if side.tree else []
        if not mine:
            return False
        try:
            return self._may_read_other(mine)
        except (OSError, SyntaxError, ValueError):
            return True

    def has_all(self, files: Sequence[str]) -> bool:
        """Return whether the side has these files of the project, and of models, with the same contents."""
        own = [Path(file).resolve() for file in files if self._is_own(Path(file))]
        pairs = [(self._tree / file.relative_to(self._root), file) for file in own]
        moved = [(self._side.moved(file), file) for file in files if not self._is_own(Path(file))]
        pairs += [(Path(there), Path(here)) for there, here in moved if there != here]
        return bool(self._side.tree) and all(_is_same(there, here) for there, here in pairs)

    def _is_own(self, file: Path) -> bool:
        return file.resolve().is_relative_to(self._root)

    def _may_read_other(self, files: Sequence[Path]) -> bool:
        sources = [self._source(file) for file in files]
        texts = frozenset[str]().union(*(source.texts for source in sources))
        names = frozenset[str]().union(*(source.names for source in sources))
        data = [*self._other, *self._only_here(files, texts)]
        if any(self._is_read(file, files, texts) for file in data if file.suffix != ".py"):
            return True
        modules = [module for file in self._other if (module := _module(file))]
        if modules and any(source.imports_any for source in sources):
            return True
        return not names.isdisjoint(modules) or any(map(self._is_compiled, names))

    def _source(self, file: Path) -> _Source:
        if file not in self._sources:
            self._sources[file] = _Source(file)
        return self._sources[file]

    @cached_property
    def _other(self) -> list[Path]:
        """Return the files of the tree, relative to it, that are not here, or not the same here."""
        files = (path for path in sorted(self._tree.rglob("*")) if path.is_file() and _BYTECODE not in path.parts)
        names = (path.relative_to(self._tree) for path in files)
        return [name for name in names if not _is_same(self._tree / name, self._root / name)]

    def _only_here(self, files: Iterable[Path], texts: Iterable[str]) -> Iterator[Path]:
        """Yield files beside sources of here, and in folders that they name, that the tree does not have."""
        beside = {file.resolve().parent for file in files}
        relative = [text for text in texts if len(text) > 1 and not text.startswith("/")]
        named = (start / text for start in (*beside, self._root) for text in relative)
        for folder in sorted(beside | {folder.resolve() for folder in named if _is_folder(folder)}):
            for path in folder.iterdir() if folder.is_relative_to(self._root) else ():
                name = path.relative_to(self._root)
                if path.is_file() and not path.name.startswith(".") and not (self._tree / name).exists():
                    yield name

    def _is_read(self, file: Path, sources: Iterable[Path], texts: Iterable[str]) -> bool:
        """Tell whether sources of here could read a data file of the project, given relative to the root."""
        folders = {source.resolve().parent for source in sources} - {self._root}
        if any((self._root / file).is_relative_to(folder) for folder in folders):
            return True
        parts = {file.name, file.stem, *file.parts[:-1]}
        return any(text.endswith(file.name) or text in parts or _is_end(text, file.name) for text in texts)

    def _is_compiled(self, name: str) -> bool:
        """Tell whether a module of the project that is imported by this name is compiled: its sources are not read."""
        folders = [folder for folder in map(Path, self._path) if self._is_own(folder)]
        return any((folder / f"{name}{suffix}").is_file() for folder in folders for suffix in _EXTENSIONS)


class _Source:
    """The texts in a source, the last part of each name that it imports, or might, and whether it may import any."""

    def __init__(self, file: Path) -> None:
        nodes = list(ast.walk(ast.parse(file.read_bytes())))
        texts = (node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str))
        self.texts = frozenset(text for text in texts if 0 < len(text) <= _LONGEST)
        self.names = frozenset(name.rpartition(".")[2] for name in imports.imported_names(file.stem, file)) - {"", "*"}
        used = {node.id for node in nodes if isinstance(node, ast.Name)}
        used |= {node.attr for node in nodes if isinstance(node, ast.Attribute)}
        self.imports_any = not _IMPORTS_ANY.isdisjoint(used)


def _is_same(one: Path, other: Path) -> bool:
    try:
        return one.stat().st_size == other.stat().st_size and file_digest(one) == file_digest(other)
    except OSError:
        return False


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # no name of a file
        return False


def _is_end(text: str, name: str) -> bool:
    """Tell whether a text is how a name ends: what stands before it may be put in when it runs."""
    return len(text) > 1 and text.strip("*") != "" and name.endswith(text.strip("*"))


def _module(file: Path) -> str:
    """Return the name of the module that a file is, or nothing."""
    if file.suffix == ".py":
        return file.parent.name if file.stem == "__init__" else file.stem
    return file.name.partition(".")[0] if file.name.endswith(_EXTENSIONS) else ""


def _is_another_build(name: str, folders: Iterable[str]) -> bool:
    """Tell whether a distribution in these folders has other files than that of here, by what their installers noted.

    One that was built here has the version of the released one. What is noted nowhere is another one.
    """
    there = next(iter(importlib.metadata.distributions(name=name, path=[*folders])), None)
    try:
        here = importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return True
    return there is None or not (mine := _files_of(here)) or mine != _files_of(there)


def _files_of(distribution: importlib.metadata.Distribution) -> frozenset[tuple[str, str]]:
    """Return the files of a distribution with their digests, but for those that installers write themselves."""
    noted = (line.split(",") for line in (distribution.read_text("RECORD") or "").splitlines())
    # Scripts name the interpreter, and bytecode has no digest.
    return frozenset(
        (path, digest)
        for path, digest, *_ in (each for each in noted if len(each) > 1)
        if digest and not path.startswith(("../", "bin/")) and ".dist-info/" not in path
    )

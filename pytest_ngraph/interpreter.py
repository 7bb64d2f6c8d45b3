"""How our own Python processes are started: no file of the start folder stands in for the standard library.

``python -m`` puts the start folder before the standard library (-P, which does not, came with Python 3.11), and what a
suite imports is found along a path that begins with folders of its project. A ``statistics.py`` there would be
PyTorch's, too.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType

_BEGIN = "import sys; sys.path[:] = filter(None, sys.path); from pytest_ngraph.interpreter import begin; begin()"
# Where libraries are installed, wherever that is.
_LIBRARIES = ("site-packages", "dist-packages")
# The import system itself, most of which has no file.
_IMPORTING = ("<frozen ", importlib.__file__)
_STANDARD = os.path.dirname(os.__file__)  # noqa: PTH120 - pathlib is not loaded yet
_OURS = os.path.dirname(__file__)  # noqa: PTH120


def command(module: str, *words: str, python: str | None = None) -> list[str]:
    """Return the command line that calls ``main(words)`` of a module of this package and exits with what it returns."""
    return [python or sys.executable, "-c", _BEGIN, module, *words]


def begin() -> None:
    """Call ``main`` of the module that the command line names."""
    _, module, *words = sys.argv
    sys.argv[:2] = [module]
    with standard_library_first():
        raise SystemExit(importlib.import_module(module).main(words))


def is_worker() -> bool:
    """Return whether this process was begun by ``command``."""
    return sys.argv[:1] != [] and sys.argv[0].startswith("pytest_ngraph.")


@contextmanager
def standard_library_first() -> Iterator[None]:
    """Find the standard library's modules before a user's of the same name in this block, but for the user's own files.

    What is imported already stays, so even a user's own file gets the standard library's module where that is loaded,
    as it does in pytest.
    """
    finder = _StandardFirst()
    sys.meta_path.insert(0, finder)
    try:
        yield
    finally:
        with suppress(ValueError):
            sys.meta_path.remove(finder)


def path_for_others() -> str:
    """Return this process's import path as a PYTHONPATH for processes of others, the standard library first."""
    return os.pathsep.join([*_standard_folders(), *sys.path])


def _standard_folders() -> list[str]:
    return [_STANDARD, *(path for path in sys.path if os.path.basename(path) == "lib-dynload")]  # noqa: PTH119


class _StandardFirst:
    """A finder for the names of the standard library, asked before those that look along sys.path."""

    def __init__(self) -> None:
        self._path = _standard_folders()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the standard library's module of this name, or None for other names, and in a user's own file."""
        if path is not None or name not in sys.stdlib_module_names or _is_users(_importer()):
            return None
        return PathFinder.find_spec(name, self._path)


def _importer() -> str:
    """Return the file whose code imports."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_IMPORTING):
        frame = frame.f_back
    return frame.f_code.co_filename


def _is_users(file: str) -> bool:
    if file.startswith((_STANDARD + os.sep, _OURS + os.sep)):
        return False
    return not any(f"{os.sep}{folder}{os.sep}" in file for folder in _LIBRARIES)

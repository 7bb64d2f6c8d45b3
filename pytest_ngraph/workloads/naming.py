"""How a class or function that was given instead of a text is written as the reference of a model."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


def how_to_name(factory: Any, search: Sequence[Path]) -> str:
    """Return what to write for a class, function or module object, so that another process finds it.

    ``search`` are the folders that paths of models are looked for in.
    """
    file, name = _file_of(factory), getattr(factory, "__qualname__", "")
    if file is None or not name:
        return 'write "path/file.py:NAME", the file and the name that it has there at the top level'
    if "<" in name:
        return f'define it at the top level of a file and write "{_place(file, factory, search)}:NAME"'
    return f'write "{_place(file, factory, search)}:{name}"'


def _file_of(factory: Any) -> Path | None:
    try:
        file = inspect.getsourcefile(inspect.unwrap(factory))
    except (OSError, TypeError, ValueError):
        # Written in a notebook or at a prompt, built in, neither class nor function, or wrapped in a circle.
        return None
    return Path(file) if file and Path(file).is_file() else None


def _place(file: Path, factory: Any, search: Sequence[Path]) -> str:
    """Return the path of a file from the first folder that it lies in, or the name of what is installed."""
    module = str(getattr(factory, "__module__", ""))
    if not {"site-packages", "dist-packages"}.isdisjoint(file.parts) and module in sys.modules:
        return module
    resolved = file.resolve()
    folders = [folder.resolve() for folder in search]
    inside = next((folder for folder in folders if resolved.is_relative_to(folder)), None)
    return str(resolved.relative_to(inside) if inside is not None else resolved)

"""Where pytest keeps its results: the store of the rootdir that it would find from this folder, or of its settings."""

from __future__ import annotations

from pathlib import Path

from pytest_ngraph.options.project import read_project
from pytest_ngraph.options.table import ROWS

_STORE = next(row for row in ROWS if row.field == "store")


def store_path(given: Path | None) -> Path:
    """Return the store that a command was given, else the one that pytest uses when it is run in this folder.

    Rootdir and ini file are found as pytest finds them. Its own command line is not known here, but what
    ``addopts`` and ``PYTEST_ADDOPTS`` say of the store is. Raises SpecError for an ini file that pytest refuses.
    """
    if given is not None:
        return given
    project = read_project(Path.cwd(), "name the store with --store")
    option = next(reversed(project.given(_STORE.flag)), "")
    text = option or str(project.ini.get(_STORE.ini) or _STORE.default)
    path = (Path.cwd() if option else project.rootdir) / Path(text).expanduser()
    return path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path


def rootdir_here() -> Path:
    """Return the rootdir that pytest would have in this folder. Raise SpecError for an ini file that it refuses."""
    return read_project(Path.cwd(), "or run this in the project's folder").rootdir

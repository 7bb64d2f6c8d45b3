"""What workers of a side are given: their import path, their folder, and cells with their models on that side."""

from __future__ import annotations

import os
import sys
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from pytest_ngraph.machine import imports
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.spec.sides import Side
from pytest_ngraph.workloads.kinds.catalogue import kind_of
from pytest_ngraph.workloads.kinds.contract import BY_NAME

_HERE = Path(__file__).resolve().parents[1]
_LINKED = "package"


def placed(side: Side, path: str) -> str:
    """Return where a file or folder of here lies on a side: in its tree, where it is one of the project's.

    What is installed below the root, such as the packages of an environment that lies in the project, stays where it
    is: a tree has none. Links in the path and in the root are followed.
    """
    if not side.tree or is_below(path, side.tree) or is_installed(path, side.root):
        return path
    for given in (path, os.path.realpath(path)):
        for root in (side.root, os.path.realpath(side.root)):
            there = replace(side, root=root).moved(given)
            if there != given:
                return there
    return path


def import_path(side: Side, path: tuple[str, ...]) -> tuple[str, ...]:
    """Return the import path of a side's workers by that of here.

    Where the side has an interpreter of its own, the folders of the environment of this process are left out: the
    worker adds those of its own.
    """
    kept = tuple(entry for entry in path if not (side.python and _is_of_this_environment(entry)))
    return tuple(dict.fromkeys((*side.packages, *(placed(side, entry) for entry in kept))))


def python_path(side: Side, home: str, folder: Path) -> str:
    """Return the PYTHONPATH of a side's workers by that of here (``home``), whose first folder has this package.

    Another interpreter must find this package, and nothing else that is installed beside it: it gets a folder, made in
    ``folder``, in which this package is alone.
    """
    own, *given = home.split(os.pathsep)
    first = _with_this_package(folder) if side.python else own
    return os.pathsep.join([first, *import_path(replace(side, packages=()), tuple(given))])


def start_folder(side: Side) -> Path | None:
    """Return the folder in which a side's workers start, or None for that of this process.

    Models read files by relative paths, too: where those of here lie in the project, those of the side do in its tree.
    """
    here = str(Path.cwd())
    there = Path(placed(side, here))
    if str(there) == here:
        return None
    return there if there.is_dir() else Path(side.tree)


def cell_there(side: Side, cell: Cell) -> Cell:
    """Return a cell as a side's workers follow it: with its model where the side has it."""
    model = cell.workload.model
    kind = kind_of(model)
    if kind.travels == BY_NAME:
        return cell
    place = kind.place(model)
    there = placed(side, place)
    if there == place:
        return cell
    return replace(cell, workload=replace(cell.workload, model=kind.moved(model, there)))


def is_below(path: str, folder: str) -> bool:
    """Tell whether a path lies in a folder, or is it, also by the links in either."""
    if not folder:
        return False
    real = Path(folder).resolve()
    return Path(path).is_relative_to(folder) or Path(path).resolve().is_relative_to(real)


def is_installed(path: str, root: str) -> bool:
    """Tell whether a path below a project's root belongs to an environment, such as one that lies in the project."""
    real = Path(root).resolve()
    given = Path(path).resolve()
    if given.is_relative_to(real) and not imports.SITES.isdisjoint(given.relative_to(real).parts):
        return True
    return any(is_below(path, str(folder)) for folder in _environments_below(real))


def _environments_below(root: Path) -> Iterator[Path]:
    prefixes = (Path(prefix).resolve() for prefix in (sys.prefix, sys.exec_prefix, sys.base_prefix))
    for folder in (*imports.installed_folders(), *prefixes):
        # An environment may also be the root, or lie around it, as that of a machine does.
        if folder != root and folder.is_relative_to(root):
            yield folder


def _is_of_this_environment(entry: str) -> bool:
    """Tell whether an entry of the import path has the standard library or what is installed for this interpreter."""
    path = Path(entry).resolve()
    standard = Path(os.__file__).resolve().parent
    # The library as a zip, which need not exist.
    is_zip = path.suffix == ".zip" and path.parent == standard.parent
    return is_zip or any(path.is_relative_to(folder) for folder in imports.installed_folders())


def _with_this_package(folder: Path) -> str:
    """Return a folder with nothing in it but a link to this package."""
    home = folder / _LINKED
    link = home / _HERE.name
    if not (link.is_symlink() and link.resolve() == _HERE):
        home.mkdir(parents=True, exist_ok=True)
        scratch = home / f".{uuid.uuid4().hex}"
        scratch.symlink_to(_HERE, target_is_directory=True)
        scratch.replace(link)
    return str(home)

"""A side: where the code and the runtimes of a cell come from, other than from here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import PurePath
from typing import Any

from pytest_ngraph.spec.cells import Cell

# How the reason begins of a cell whose model there is not on its side: it is new.
NOT_THERE = "not on this side"
# The reason of a claim that was settled without a launch.
UNCHANGED = "unchanged: code, versions and options are the same on both sides, so nothing was measured"


@dataclass(frozen=True, slots=True)
class OtherSide:
    """What a run knows of a side that it compares with: its label, and whether it measures what is the same on both."""

    label: str
    always: bool = False


@dataclass(frozen=True, slots=True)
class Side:
    """A source tree, packages, an interpreter, or several of them, which stand in for those of here.

    ``label`` names it in a few words, such as ``main@1a2b3c4`` or ``onnxruntime==1.27.0``, and is what cells carry.
    Files of the project in the folder ``root`` are those of the folder ``tree`` (both empty where the side has no
    revision of its own). ``moves`` has folders of models that went to a device by themselves, here and on this side.
    ``packages`` are folders that come first on the import path, and ``versions`` has what they or the interpreter hold:
    names of distributions, normalised, and their versions. ``python`` is the interpreter, empty for this one.
    ``content`` is the digest of all of it but of the tree, whose files evidence follows one by one; it is empty for a
    side that is only a tree.
    """

    label: str
    root: str = ""
    tree: str = ""
    packages: tuple[str, ...] = ()
    versions: tuple[tuple[str, str], ...] = ()
    python: str = ""
    content: str = ""
    moves: tuple[tuple[str, str], ...] = ()

    def moved(self, path: str) -> str:
        """Return where a path of here lies on this side: in its tree, where it is one of the project's files."""
        given, root = PurePath(path), PurePath(self.root)
        for here, there in self.moves:
            if given.is_relative_to(here):
                return str(PurePath(there) / given.relative_to(here))
        if not self.tree or not given.is_relative_to(root):
            return path
        return str(PurePath(self.tree) / given.relative_to(root))

    def to_json(self) -> dict[str, Any]:
        """Return a JSON-able form that ``from_json`` reads back."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Side:
        """Read the form that ``to_json`` writes."""
        versions = tuple((str(name), str(version)) for name, version in data["versions"])
        moves = tuple((str(here), str(there)) for here, there in data["moves"])
        return cls(**{**data, "packages": tuple(data["packages"]), "versions": versions, "moves": moves})


def other_sides(cells: Sequence[Cell]) -> dict[Cell, Cell]:
    """Return the cells that were measured on another side as well, each with that other cell.

    What a test is about comes before what it is compared with, as a run notes its cells.
    """
    found = {}
    for same, first in _alike(cells):
        if others := [cell for cell in same if cell.side and cell.side != first.side]:
            found.update({cell: others[0] for cell in same if cell.side == first.side})
    return found


def cells_beside(cells: Sequence[Cell]) -> set[Cell]:
    """Return the cells that others are compared with: those of every side but the one that a test is about."""
    return {cell for same, first in _alike(cells) for cell in same if cell.side != first.side}


def _alike(cells: Sequence[Cell]) -> Iterator[tuple[list[Cell], Cell]]:
    """Yield the cells that are alike but for their side, and the first of the side that a test is about."""
    if not any(cell.side for cell in cells):
        # A report may have a hundred thousand, which take long to tell apart.
        return
    alike: dict[Cell, list[Cell]] = {}
    for cell in cells:
        alike.setdefault(replace(cell, side="", replica=0), []).append(cell)
    for same in alike.values():
        yield same, next((cell for cell in same if not cell.side), same[0])

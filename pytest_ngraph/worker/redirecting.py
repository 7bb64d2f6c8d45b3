"""A finder by which modules of the project are those of a side's tree, whatever knows the working tree.

An editable install may put a finder of its own into the interpreter, which asks no import path, and code of the project
may put its own folder on the path.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from functools import cache, partial
from importlib.machinery import ModuleSpec, PathFinder
from importlib.util import spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from pytest_ngraph.spec.sides import Side
from pytest_ngraph.worker.sides import placed


def redirect(side: Side) -> None:
    """Have modules of the project found in the side's tree: what looks for files is asked by way of a finder for it."""
    at = sys.meta_path.index(PathFinder) if PathFinder in sys.meta_path else 0
    sys.meta_path[at:] = [_Redirecting(side, sys.meta_path[at:])]


class _Redirecting:
    """Stands for other finders, and changes what they find in the working tree."""

    def __init__(self, side: Side, finders: Sequence[Any]) -> None:
        self._finders = tuple(finders)
        # Each folder is asked for with every import.
        self._placed = cache(partial(placed, side))

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return how a module is imported, or None where it is not there."""
        along = [self._placed(entry) for entry in (sys.path if path is None else path)]
        for finder in (each for each in self._finders if hasattr(each, "find_spec")):
            spec = finder.find_spec(name, along if finder is PathFinder else path, target)
            if spec is not None and (there := self._there(spec)) is not None:
                return there
        return None

    def find_distributions(self, *context: Any) -> Iterator[Any]:
        """Yield the distributions that the finders know, as ``importlib.metadata`` asks for them."""
        for finder in self._finders:
            yield from getattr(finder, "find_distributions", _none)(*context)

    def invalidate_caches(self) -> None:
        """Have them look at folders again."""
        for finder in self._finders:
            getattr(finder, "invalidate_caches", _none)()

    def _there(self, spec: ModuleSpec) -> ModuleSpec | None:
        """Return how a module is imported from the tree, as it was found where it is none of the working tree.

        None where the tree does not have it.
        """
        if not spec.has_location or spec.origin is None:
            return spec
        there = self._placed(spec.origin)
        if there == spec.origin:
            return spec
        folders = spec.submodule_search_locations
        moved = None if folders is None else [self._placed(folder) for folder in folders]
        is_there = Path(there).is_file()
        return spec_from_file_location(spec.name, there, submodule_search_locations=moved) if is_there else None


def _none(*_: Any) -> tuple[()]:
    return ()

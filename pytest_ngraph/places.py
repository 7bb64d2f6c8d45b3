"""Places: where an object is found, as ``module:ATTRIBUTE``, which other processes and devices can import."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from traceback import extract_tb
from types import ModuleType
from typing import TypeVar

from pytest_ngraph.errors import NotThere, SpecError
from pytest_ngraph.texts.shown import one_line

_PLACE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*\Z")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]*\Z")
_Found = TypeVar("_Found")


class Places:
    """Names with the places that they stand for: what a catalogue is, to which conftests and packages add theirs.

    ``what`` and ``part`` are what messages call a name and what is at its place: ``compiler`` and ``adapter``.
    """

    what, part = "", ""
    # What a name may be, and the same in words.
    name, allowed = _NAME, "a name of letters, digits, '_' or '-'"

    def __init__(self, built_in: Mapping[str, str]) -> None:
        """Begin with what is built in."""
        self._places: dict[str, str] = dict(built_in)

    def add(self, name: str, place: str) -> None:
        """Add a name and its ``module:ATTRIBUTE``.

        Raises SpecError for a malformed place or a name that is taken by another place.
        """
        if not isinstance(name, str) or not self.name.match(name):
            raise SpecError(f"{self.what} {name!r}: expected {self.allowed}")
        check_place(f"{self.what} {name!r}", self.part, place)
        if self._places.get(name, place) != place:
            raise SpecError(f"{self.what} {name!r}: already taken by {self._places[name]}")
        self._places[name] = place

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __contains__(self, name: str) -> bool:
        return name in self._places


def check_place(whose: str, what: str, place: str) -> None:
    """Raise SpecError where a text is not of the form of a place. ``whose`` and ``what`` name it in the message."""
    if not isinstance(place, str) or not _PLACE.match(place):
        raise SpecError(f"{whose}: {what} {place!r} is not of the form 'package.module:ATTRIBUTE'")


def load_place(whose: str, what: str, place: str, expected: type[_Found]) -> _Found:
    """Import what a place names, an instance of ``expected``. Raise SpecError that says why it cannot be imported.

    ``whose`` and ``what`` name it in the message: ``compiler 'mine'`` and ``adapter``. Its module may be anybody's.
    """
    check_place(whose, what, place)
    module_name, _, attribute = place.partition(":")
    try:
        found = getattr(importlib.import_module(module_name), attribute)
    except (ImportError, AttributeError) as error:
        absent = _is_absent(error, module_name, attribute)
        said = f"{whose}: its {what} {place!r} cannot be imported: {error}"
        raise (NotThere if absent else SpecError)(said) from error
    except MemoryError:
        # An outcome of its own, and no fault of the module.
        raise
    except Exception as error:  # noqa: BLE001 - its module may be anybody's
        said = one_line(f"{type(error).__name__}: {error}")
        at = extract_tb(error.__traceback__)[-1]
        where = one_line(f"{Path(at.filename).name}:{at.lineno}")
        raise SpecError(f"{whose}: its {what} {place!r} cannot be imported: {said} ({where})") from None
    if not isinstance(found, expected):
        raise SpecError(f"{whose}: {place!r} is not a {expected.__module__}.{expected.__qualname__}")
    return found


def _is_absent(error: ImportError | AttributeError, module: str, attribute: str) -> bool:
    """Tell whether the module or its attribute is not there, rather than something that the module imports."""
    if isinstance(error, ModuleNotFoundError):
        return f"{module}.".startswith(f"{error.name}.")
    return isinstance(error, AttributeError) and error.name == attribute and isinstance(error.obj, ModuleType)

"""JSON that is read strictly: every key is there once, is known, and is what it has to be."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import Any

from pytest_ngraph.texts.shown import clean


class Wrong(Exception):
    """What is wrong in a file, and where."""


def no_number(text: str) -> float:
    """Refuse what JSON does not have: to be given as ``parse_constant``."""
    raise ValueError(f"{text} is no number of JSON")


def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Refuse a key that stands twice: of two values people see the one and programs take the other."""
    found = dict(pairs)
    if len(found) < len(pairs):
        keys = [key for key, _ in pairs]
        raise ValueError(f"the key {next(key for key in keys if keys.count(key) > 1)!r} stands twice")
    return found


class Fields:
    """An object of the file, each of whose keys is taken once, as what it has to be."""

    def __init__(self, value: object, place: str) -> None:
        if not isinstance(value, dict):
            raise Wrong(f"{place or 'the file'} is {shown(value)} (expected an object)")
        self._rest, self._place = dict(value), place

    def _take(self, key: str, expected: str, is_right: Callable[[Any], bool]) -> Any:
        place = f"{self._place}.{key}" if self._place else key
        if key not in self._rest:
            raise Wrong(f"{place} is missing (expected {expected})")
        value = self._rest.pop(key)
        if not is_right(value):
            raise Wrong(f"{place} is {shown(value)} (expected {expected})")
        return value

    def text(self, key: str, *, may_be_empty: bool = False) -> str:
        """Take a text, clean: it may be of somebody who sends a change."""
        return clean(self._take(key, "a text", lambda value: isinstance(value, str) and (may_be_empty or bool(value))))

    def number(self, key: str, expected: str = "a number", least: float = -math.inf) -> float:
        """Take a finite number."""
        return float(self._take(key, expected, lambda value: _is_number(value) and value >= least))

    def counts(self, key: str) -> tuple[int, ...]:
        """Take whole numbers from 1 on."""

        def are(value: Any) -> bool:
            return isinstance(value, list) and bool(value) and all(type(one) is int and one > 0 for one in value)

        return tuple(self._take(key, "a list of whole numbers from 1 on", are))

    def several_texts(self, key: str) -> tuple[str, ...]:
        """Take a list of texts, none of them empty."""

        def are(value: Any) -> bool:
            return isinstance(value, list) and bool(value) and all(isinstance(one, str) and one for one in value)

        return tuple(map(clean, self._take(key, "a list of texts", are)))

    def texts(self, key: str) -> Mapping[str, str]:
        """Take an object of texts."""

        def are(value: Any) -> bool:
            return isinstance(value, dict) and all(isinstance(one, str) for one in value.values())

        return {clean(name): clean(text) for name, text in self._take(key, "an object of texts", are).items()}

    def objects(self, key: str) -> Mapping[str, Fields]:
        """Take an object of objects."""
        found = self._take(key, "an object", lambda value: isinstance(value, dict))
        return {
            clean(name): Fields(value, f"{self._place}{'.' if self._place else ''}{key}.{name}")
            for name, value in found.items()
        }

    def list_of_objects(self, key: str) -> list[Fields]:
        """Take a list of objects."""
        found = self._take(key, "a list", lambda value: isinstance(value, list))
        return [Fields(value, f"{key}[{number}]") for number, value in enumerate(found)]

    def given(self) -> dict[str, Any]:
        """Return what is left."""
        return dict(self._rest)

    def end(self) -> None:
        """Refuse what nobody took."""
        if self._rest:
            key = next(iter(self._rest))
            raise Wrong(f"{f'{self._place}.' if self._place else ''}{key} is not known (expected no such key)")


def _is_number(value: object) -> bool:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return False
    try:
        return math.isfinite(float(value))
    except OverflowError:
        return False


def shown(value: object) -> str:
    """Return a value as JSON writes it, not too much of it."""
    text = json.dumps(value)
    return text if len(text) <= 60 else f"{text[:60]}..."

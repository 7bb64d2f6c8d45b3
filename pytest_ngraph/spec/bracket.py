"""Options in brackets, such as ``[threads=4,tuned]``: what each may be, and how what was given is read."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from pytest_ngraph.errors import SpecError


@dataclass(frozen=True, slots=True)
class Option:
    """One bracket option: its name, its default, and either its choices or what kind of number it is.

    ``kind`` is ``choice`` (one of ``choices``), ``int`` (a whole number of at least ``minimum``), ``number``, ``text``
    or ``flag``, which has no value and is true where it is given.
    """

    name: str
    default: str
    help: str
    kind: str = "choice"
    choices: tuple[str, ...] = ()
    minimum: int = 1

    @property
    def allowed(self) -> str:
        """Return in words which values the option takes."""
        if self.kind == "choice":
            return ", ".join(self.choices)
        return {
            "int": f"a whole number >= {self.minimum}",
            "number": f"a number >= {self.minimum}",
            "flag": "no value",
        }.get(self.kind, "text")

    def read(self, value: str) -> Any:
        """Return a given text as a value of the option's type. Raise ValueError where it is not allowed."""
        if self.kind == "flag":
            if value:
                raise ValueError(value)
            return True
        if self.kind == "choice":
            if value not in self.choices:
                raise ValueError(value)
            return value
        if self.kind == "text":
            return value
        number = int(value) if self.kind == "int" else float(value)
        # NaN fails this comparison too, which is what is wanted.
        if not number >= self.minimum:
            raise ValueError(value)
        return number

    def unset(self) -> Any:
        """Return the default as a value of the option's type."""
        return False if self.kind == "flag" else self.read(self.default)

    def is_unset(self, value: str) -> bool:
        """Return whether a given text says what the option is anyway."""
        try:
            return bool(self.read(value) == self.unset())
        except ValueError:
            return False


def resolved(options: Sequence[Option], given: Iterable[tuple[str, str]], subject: str, owner: str) -> dict[str, Any]:
    """Return every option with its value in its type. Raise SpecError for an unknown option or value.

    ``subject`` is what was given, in a message, and ``owner`` whose options they are.
    """
    known = {option.name: option for option in options}
    values: dict[str, Any] = {option.name: option.unset() for option in options}
    for key, text in given:
        if key not in known:
            allowed = ", ".join(known) or "none"
            raise SpecError(f"{subject}: unknown option {key!r} (options of {owner}: {allowed})")
        try:
            values[key] = known[key].read(text)
        except ValueError:
            raise SpecError(
                f"{subject}: option {key}={text!r} is not allowed (allowed: {known[key].allowed})"
            ) from None
    return values

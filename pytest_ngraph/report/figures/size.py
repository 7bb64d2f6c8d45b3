"""The size of a figure in print: its width and its type, read from what a user gives."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pytest_ngraph.errors import SpecError

POINTS_PER_MM = 72 / 25.4
# What papers of two columns have, in millimetres, and what a page has room for above a caption.
NAMED = {"column": 88.0, "page": 180.0}
HIGHEST_MM = 225.0
_UNITS = {"mm": 1.0, "cm": 10.0, "in": 25.4, "pt": 25.4 / 72}
_NARROWEST_MM, _WIDEST_MM = 50.0, 420.0
_SMALLEST_PT, _LARGEST_PT = 6.0, 12.0
_LENGTH = re.compile(r"(\d+(?:\.\d+)?)\s*(mm|cm|in|pt)", re.ASCII)


@dataclass(frozen=True, slots=True)
class Size:
    """How wide a figure is in print, in millimetres, and how large its type is, in points of 1/72 inch."""

    width_mm: float = NAMED["column"]
    font_pt: float = 8.0

    @property
    def width_pt(self) -> float:
        """Return the width in points."""
        return self.width_mm * POINTS_PER_MM


def size_of(width: str | None, font: str | None) -> Size:
    """Read a width, such as ``88mm`` or ``column``, and the size of type in points. Raise SpecError for others."""
    return Size(_width_mm("column" if width is None else width), _font_pt("8" if font is None else font))


def _width_mm(text: str) -> float:
    if text in NAMED:
        return NAMED[text]
    found = _LENGTH.fullmatch(text.strip())
    width = float(found[1]) * _UNITS[found[2]] if found else 0.0
    if not _NARROWEST_MM <= width <= _WIDEST_MM:
        named = ", ".join(f"{name} ({mm:g}mm)" for name, mm in NAMED.items())
        raise SpecError(
            f"--width: {text!r} (expected a length from {_NARROWEST_MM:g}mm to {_WIDEST_MM:g}mm with its unit, "
            f"{', '.join(_UNITS)}, such as 88mm or 3.5in, or {named})"
        )
    return width


def _font_pt(text: str) -> float:
    number = text.strip().removesuffix("pt")
    size = float(number) if re.fullmatch(r"\d+(\.\d+)?", number, re.ASCII) else 0.0
    if not _SMALLEST_PT <= size <= _LARGEST_PT:
        raise SpecError(
            f"--font: {text!r} (expected the size of type in points, {_SMALLEST_PT:g} to {_LARGEST_PT:g}; "
            "papers print figures with 7 to 9)"
        )
    return size

"""The order in which people expect names with numbers in them: ``width64`` before ``width128``."""

from __future__ import annotations

import re
from functools import lru_cache

_NUMBER = re.compile(r"(\d+)")
# Texts and numbers by turns, and the name itself where two differ in nothing but leading zeros.
Natural = tuple[tuple[str | int, ...], str]


# A report of many cells sorts them by the same few names.
@lru_cache(maxsize=1 << 14)
def natural(name: str) -> Natural:
    """Return what to sort a name by."""
    parts = _NUMBER.split(name)
    return tuple(int(part) if place % 2 else part for place, part in enumerate(parts)), name

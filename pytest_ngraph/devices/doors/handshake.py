"""What two sides must have in common before one measures for the other."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from typing import Any

from pytest_ngraph.devices.wire.wire import PROTO
from pytest_ngraph.machine.facts import version_of

# Python minors may differ: nothing but JSON crosses between measuring code of two sides.
EQUAL = ("proto", "distributed", "pytest-ngraph")


def mine() -> dict[str, Any]:
    """Return what this side says of itself."""
    return {
        "proto": PROTO,
        "distributed": version_of("distributed"),
        "pytest-ngraph": version_of("pytest-ngraph"),
        "python": platform.python_version(),
    }


def difference(theirs: Mapping[str, Any]) -> str | None:
    """Return what has to be made equal first, with what to do, or None where the sides can work together."""
    here = mine()
    different = [
        f"{key} is {theirs.get(key)} there and {here[key]} here" for key in EQUAL if theirs.get(key) != here[key]
    ]
    if not different:
        return None
    return f"{'; '.join(different)}: install the same release of pytest-ngraph and of distributed on both"

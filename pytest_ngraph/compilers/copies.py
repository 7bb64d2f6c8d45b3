"""How long copies to and from a device take, for what runtimes do not time themselves."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median
from time import perf_counter

_TIMES = 7


def median_seconds(copy: Callable[[], object]) -> float:
    """Return the median seconds of some calls that have copied when they return, by the host's clock."""

    def once() -> float:
        began = perf_counter()
        copy()
        return perf_counter() - began

    return median(once() for _ in range(_TIMES))

"""How long copies to and from a device take, for what runtimes do not time themselves."""

from __future__ import annotations

from collections.abc import Callable
from statistics import median

from pytest_ngraph.machine import clock

_TIMES = 7


def median_seconds(copy: Callable[[], object]) -> float:
    """Return the median seconds of some calls that have copied when they return, by the host's clock."""

    def once() -> float:
        began = clock.seconds()
        copy()
        return clock.seconds() - began

    return median(once() for _ in range(_TIMES))

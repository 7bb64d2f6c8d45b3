"""Where the level of a series of sessions changes, and which level holds now."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from pytest_ngraph.errors import SpecError
from pytest_ngraph.stats.sessions import LEAST_SESSIONS

NOT_INSTALLED = 'change points need ruptures, which is not installed: pip install "pytest-ngraph[history]"'
# A segment of one session would be an outlier and no level. Of the penalty: with 3 a change is found in about 10 of
# 100 short series without any, with 4 in 4 to 6, and steps of three scatters are found all the same.
_SHORTEST, _PENALTY = 2, 4


@dataclass(frozen=True, slots=True)
class Level:
    """Sessions between two changes: the first and the number of them, their mean, and the deviation of one."""

    first: int
    sessions: int
    mean: float
    deviation: float


def can_find_changes() -> bool:
    """Return whether what finds changes is installed."""
    return find_spec("ruptures") is not None


def levels_of(values: Sequence[float], within: float = 0.0) -> list[Level]:
    """Return the levels of a series of session means on the working scale, in their order: one where none changes.

    PELT with squared deviations (Killick, Fearnhead and Eckley 2012) and the penalty 4 ln(n) sigma^2. Sigma is taken
    from the differences of neighbours, sqrt(pi)/2 times the mean of their absolute values, so that a step or a slow
    drift hardly widens it, and is at least ``within``, the deviation that launches explain. A series shorter than
    ``LEAST_SESSIONS`` is one level. Raises SpecError where ruptures is not installed.
    """
    if not can_find_changes():
        raise SpecError(NOT_INSTALLED)
    ends = [len(values)]
    if len(values) >= LEAST_SESSIONS:
        import numpy as np
        import ruptures

        series = np.asarray(values, dtype=float)
        sigma = max(within, math.sqrt(math.pi) / 2 * float(np.mean(np.abs(np.diff(series)))))
        if sigma > 0:
            found = ruptures.Pelt(model="l2", min_size=_SHORTEST, jump=1).fit(series.reshape(-1, 1))
            ends = [int(end) for end in found.predict(pen=_PENALTY * math.log(len(series)) * sigma**2)]
    return [_level(values, first, end) for first, end in zip([0, *ends], ends, strict=False)]


def one_level(values: Sequence[float]) -> Level:
    """Return a series as a single level."""
    return _level(values, 0, len(values))


def _level(values: Sequence[float], first: int, end: int) -> Level:
    part = values[first:end]
    mean = math.fsum(part) / len(part)
    squares = math.fsum((value - mean) ** 2 for value in part)
    return Level(first, len(part), mean, math.sqrt(squares / (len(part) - 1)) if len(part) > 1 else 0.0)

"""A share of so many: the point, and how well so many determine it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from statistics import NormalDist

_LEVEL = 0.99


@dataclass(frozen=True, slots=True)
class Share:
    """``count`` of ``total``, with Wilson's 99 % interval for the share that they were drawn from.

    The interval is that of E. B. Wilson (1927): it stays within 0 and 1 and is not empty where all or none agree.
    """

    count: int
    total: int

    @property
    def value(self) -> float:
        """Return the share itself."""
        return self.count / self.total

    @property
    def low(self) -> float:
        """Return the lower end of the interval."""
        return 0.0 if not self.count else max(0.0, self._centre - self._half)

    @property
    def high(self) -> float:
        """Return the upper end of the interval."""
        return 1.0 if self.count == self.total else min(1.0, self._centre + self._half)

    def __str__(self) -> str:
        return f"{self.count} of {self.total} [{self.low:.2f}, {self.high:.2f}]"

    @property
    def _z(self) -> float:
        return NormalDist().inv_cdf((1 + _LEVEL) / 2)

    @property
    def _centre(self) -> float:
        return (self.count + self._z**2 / 2) / (self.total + self._z**2)

    @property
    def _half(self) -> float:
        total, square = self.total, self._z**2
        spread = self.count * (total - self.count) / total + square / 4
        return self._z * math.sqrt(spread) / (total + square)

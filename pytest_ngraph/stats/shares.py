"""A share of so many: the point, how well so many determine it, and what pairs say of the difference of two."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import lru_cache
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


def exact_interval(hits: float, samples: int, level: float) -> tuple[float, float]:
    """Return the interval of C. J. Clopper and E. S. Pearson (1934) for the share that samples were drawn from.

    It errs to each side with at most ``level``. ``hits`` may be the sum of scores from 0 to 1 each, whose variance is
    no larger than that of as many samples that are right or wrong.
    """
    from scipy.special import betaincinv

    low = 0.0 if hits <= 0 else float(betaincinv(hits, samples - hits + 1, level))
    high = 1.0 if hits >= samples else float(betaincinv(hits + 1, samples - hits, 1 - level))
    return low, high


def mcnemar(only_first: int, only_second: int) -> float:
    """Return the exact two-sided p-value of Q. McNemar's test (1947): were both as often right, so unlike or more.

    The samples on which just one of two is right fall to either side like coins.
    """
    from scipy.special import bdtr

    discordant = only_first + only_second
    return min(1.0, 2 * float(bdtr(min(only_first, only_second), discordant, 0.5))) if discordant else 1.0


# The share of a level that is spent on what the pairs on which both agree leave unknown.
_NUISANCE = 0.1
_GRID, _HALVINGS, _DEVIATIONS = 12, 50, 9.0


@lru_cache(maxsize=256)
def paired_interval(only_first: int, only_second: int, samples: int, level: float) -> tuple[float, float]:
    """Return an interval for the difference of two shares, first minus second, of the same samples.

    ``only_first`` of them are right for the first alone, ``only_second`` for the second alone. It errs to each side
    with at most ``level``: what is tested is the difference of the two counts, whose law is exact. How often they
    differ at all is unknown, so the largest p-value over an interval for that counts, and what that interval may miss
    is added (R. L. Berger and D. D. Boos, 1994).
    """
    return (
        -_highest_difference(only_second, only_first, samples, level),
        _highest_difference(only_first, only_second, samples, level),
    )


def _highest_difference(more: int, less: int, samples: int, level: float) -> float:
    """Return the largest difference that so few pairs more than less do not refute."""
    spent = _NUISANCE * level
    most = exact_interval(more + less, samples, spent)[1]
    low, high = (more - less) / samples, most
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _as_few(more - less, middle, most, samples) + spent > level:
            low = middle
        else:
            high = middle
    return high


def _as_few(apart: int, difference: float, most: float, samples: int) -> float:
    """Return the probability that counts of pairs lie so far apart or less, at the worst share of discordant pairs."""
    least = abs(difference)
    if least > most:
        return 0.0
    steps = (min(1.0, least + (most - least) * step / (_GRID - 1)) for step in range(_GRID))
    return max(_tail(apart, difference, discordant, samples) for discordant in steps)


def _tail(apart: int, difference: float, discordant: float, samples: int) -> float:
    import numpy as np
    from scipy.special import bdtr, gammaln, xlog1py, xlogy

    if not discordant:
        return float(apart >= 0)
    spread = _DEVIATIONS * math.sqrt(samples * discordant * (1 - discordant)) + _DEVIATIONS
    first = max(0, math.floor(samples * discordant - spread))
    last = min(samples, math.ceil(samples * discordant + spread))
    count = np.arange(first, last + 1)
    choose = gammaln(samples + 1) - gammaln(count + 1) - gammaln(samples - count + 1)
    weight = np.exp(choose + xlogy(count, discordant) + xlog1py(samples - count, -discordant))
    share = min(1.0, max(0.0, (1 + difference / discordant) / 2))
    # Of so many discordant pairs, as many to the first side as leave the counts so far apart.
    limit = np.floor((count + apart) / 2)
    below = np.where(limit < 0, 0.0, np.where(limit >= count, 1.0, bdtr(np.clip(limit, 0, count), count, share)))
    # What the sum leaves out counts as if it were all below.
    return min(1.0, float(weight @ below) + max(0.0, 1 - float(weight.sum())))


def quick_paired_interval(only_first: int, only_second: int, samples: int, level: float) -> tuple[float, float]:
    """Return an interval as ``paired_interval`` does, from two exact ones: a little wider, and for thousands of pairs.

    The difference is d (2 p - 1): how often the two differ, and how often the first is right where they do. Half of the
    level is for either, each by ``exact_interval``.
    """
    discordant = only_first + only_second
    least, most = exact_interval(discordant, samples, level / 2)
    low, high = exact_interval(only_first, discordant, level / 2) if discordant else (0.0, 1.0)
    down, up = 2 * low - 1, 2 * high - 1
    return (least if down > 0 else most) * down, (most if up > 0 else least) * up


def interval_apart(hits: tuple[float, float], samples: tuple[int, int], level: float) -> tuple[float, float]:
    """Return one for the difference of two shares, each with half of the level, whatever they have in common."""
    (low, high), (least, most) = (exact_interval(*each, level / 2) for each in zip(hits, samples, strict=True))
    return low - most, high - least

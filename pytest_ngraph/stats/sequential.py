"""When to look at a gate, and how much of its error budget each look may spend."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache
from itertools import count, pairwise, takewhile

from pytest_ngraph.errors import SpecError

FEWEST_LAUNCHES = 3
_FINE_TOLERANCE = 0.04  # below it, looks start at 4 launches
_NODES = 200
_FAR = 8.5  # standard deviations; less than 1e-16 lies beyond


def looks_for(launches: int, tolerance: float) -> tuple[int, ...]:
    """Return after how many launches a gate with a budget of ``launches`` is looked at (docs/measuring.md, step 10).

    3, 4, 6, 8, 12, 16, 24, 32, ... (from 4 on where ``tolerance`` is under 0.04), cut at the budget, which is always
    the last look. Raises SpecError for a budget under 3.
    """
    if launches < FEWEST_LAUNCHES:
        raise SpecError(
            f"budget of {launches} launches: a verdict needs at least {FEWEST_LAUNCHES}, because fewer show too little "
            f"of how launches scatter (the protocol 'quick' measures once, without a verdict)"
        )
    first = 3 if tolerance >= _FINE_TOLERANCE else 4
    doubling = (start * 2**k for k in count() for start in (3, 4))
    return (*(look for look in takewhile(lambda look: look < launches, doubling) if look >= first), launches)


def spending(alpha: float, looks: Sequence[int], maximum: int) -> tuple[float, ...]:
    """Return the nominal one-sided level q of each look, so that all looks together err with probability ``alpha``.

    Up to the look at P launches alpha*(t) = alpha ln(1 + (e - 1) t), t = P / maximum, is spent: Lan and DeMets 1983,
    Pocock type. The levels are exact for normal statistics. Plain t statistics of launches whose variance has
    no floor err up to 1.15 times as often (spend 0.0085 to keep 0.01). ``looks`` rises and ends at ``maximum`` at most,
    else SpecError.
    """
    looks = tuple(looks)
    if not 0 < alpha < 0.5:
        raise SpecError(f"spending: alpha {alpha} (expected 0 < alpha < 0.5)")
    if not looks or looks[0] < 1 or looks[-1] > maximum or any(b <= a for a, b in pairwise(looks)):
        raise SpecError(f"spending: looks {looks} with a maximum of {maximum} (expected rising, from 1 to the maximum)")
    return _levels(alpha, looks, maximum)


@lru_cache(maxsize=256)
def _levels(alpha: float, looks: tuple[int, ...], maximum: int) -> tuple[float, ...]:
    """Solve for the boundaries one after the other by recursive integration (Armitage, McPherson and Rowe 1969).

    The statistic is a Brownian motion at time t. ``mass`` is the weighted density over ``places``, quadrature nodes
    below all boundaries so far, of the paths that have not crossed one: the multivariate normal's integral, exact and
    without its random search.
    """
    import numpy as np
    from scipy.optimize import brentq
    from scipy.special import ndtr

    def density(x: np.ndarray, scale: float) -> np.ndarray:
        return np.asarray(np.exp(-0.5 * (x / scale) ** 2) / (scale * math.sqrt(2 * math.pi)))

    def excess(z: float, places: np.ndarray, mass: np.ndarray, step: float, scale: float, share: float) -> float:
        return float(mass @ ndtr((places - z * scale) / step)) - share

    nodes, weights = np.polynomial.legendre.leggauss(_NODES)
    places, mass = np.zeros(1), np.ones(1)  # all paths start at 0
    before = spent = 0.0
    levels = []
    for look in looks:
        time = look / maximum
        due = alpha * math.log1p((math.e - 1) * time)
        step, scale = math.sqrt(time - before), math.sqrt(time)

        boundary = brentq(excess, 0.0, _FAR, args=(places, mass, step, scale, due - spent), xtol=1e-12)
        levels.append(float(ndtr(-boundary)))
        lowest, highest = -_FAR * scale, boundary * scale
        fresh = lowest + (nodes + 1) * (highest - lowest) / 2
        arrived = density(fresh[:, None] - places[None, :], step) @ mass
        places, mass = fresh, arrived * weights * (highest - lowest) / 2
        before, spent = time, due
    return tuple(levels)

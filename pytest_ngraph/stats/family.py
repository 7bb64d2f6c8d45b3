"""What the error rates of single gates come to in a run of many."""

from __future__ import annotations

from pytest_ngraph.stats.sequential import FEWEST_LAUNCHES
from pytest_ngraph.stats.verdict import CLEAR_LAUNCHES, CONFIRMING_ALPHA, ERROR_RATE, clear_level

# What the looks that confirm a fail spend at most: with plain t the levels that are set are exceeded by up to 1.15
# (``spending``).
_CONFIRMED_BY_CHANCE = 1.15 * CONFIRMING_ALPHA
_CLEAR_LOOKS = CLEAR_LAUNCHES - FEWEST_LAUNCHES + 1


def false_fail_chance(gates: int, strict: int = 0, rate: float = ERROR_RATE) -> float:
    """Return the chance that any of some gates whose bounds hold fails all the same, at most.

    ``rate`` is how often the looks of each may err. Fresh launches confirm what fails at a look by chance, and a fail
    of a look at three or four launches may be so clear that it needs none (``is_clear_fail``), which gates without a
    tolerance, ``strict``, never are. These chances are added over all gates, so that it does not matter that gates
    share launches. It holds where launches are independent and scatter about evenly to both sides (docs/measuring.md,
    "Many gates in one run").
    """
    each = rate * _CONFIRMED_BY_CHANCE
    return min(1.0, (gates + strict) * each + gates * _CLEAR_LOOKS * clear_level(rate))

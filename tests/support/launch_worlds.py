"""Worlds of launches alone: how they may scatter about the truth of a gate, and what becomes of gates in them.

Blocks show nothing of it, which is the worst that can be for an interval: no noise within launches is a floor under it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, Bound, looks_for, spending
from tests.support.simulator import Array, Gates, Verdicts, two_stages

TOLERANCE = 0.05
BOUND = Bound(1.0, at_least=True, tolerance=TOLERANCE, scale="log")
TOLERANCES = -BOUND.edge  # of a truth in tolerances, on the log scale
# ln of what each launch differs by from the truth of its gate: gates x launches; its mean over a world is 0.
Scatter = Callable[[np.random.Generator, tuple[int, int]], Array]


def normal(scatter: float) -> Scatter:
    """Return launches that scatter normally."""
    return lambda rng, shape: scatter * rng.standard_normal(shape)


def t3(scatter: float) -> Scatter:
    """Return launches with heavy tails on both sides: Student's t of 3 degrees, of this standard deviation."""
    return lambda rng, shape: scatter / math.sqrt(3) * rng.standard_t(3, shape)


def exponential(scatter: float) -> Scatter:
    """Return launches of which few are far too slow; with a negative scatter few are far too fast."""
    return lambda rng, shape: -scatter * (rng.standard_exponential(shape) - 1)


def lognormal(scatter: float, sigma: float = 0.8) -> Scatter:
    """Return launches with one heavy tail, of slow ones; with a negative scatter of fast ones."""
    mean, deviation = math.exp(sigma**2 / 2), math.sqrt(math.expm1(sigma**2)) * math.exp(sigma**2 / 2)
    return lambda rng, shape: -scatter / deviation * (rng.lognormal(0, sigma, shape) - mean)


def two_states(share: float, apart: float, rest: float = 0.01) -> Scatter:
    """Return launches of which a share is slower by ``apart`` (faster if negative); ``rest`` is other scatter."""

    def scatter(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        return np.asarray(-apart * ((rng.random(shape) < share) - share) + rest * rng.standard_normal(shape))

    return scatter


def autoregressive(scatter: float, memory: float) -> Scatter:
    """Return launches that resemble the one before: AR(1)."""

    def made(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        values = rng.standard_normal(shape)
        for launch in range(1, shape[1]):
            values[:, launch] = memory * values[:, launch - 1] + math.sqrt(1 - memory**2) * values[:, launch]
        return np.asarray(scatter * values)

    return made


def drifting(scatter: float, over_sixteen: float) -> Scatter:
    """Return launches that become steadily slower, or faster, by so much over sixteen; the truth is their middle."""

    def made(rng: np.random.Generator, shape: tuple[int, int]) -> Array:
        way = over_sixteen * np.where(rng.random((shape[0], 1)) < 0.5, 1, -1)
        return np.asarray(way * (np.arange(shape[1]) - 7.5) / 15 + scatter * rng.standard_normal(shape))

    return made


WORLDS: Mapping[str, Scatter] = {
    "normal, 1 %": normal(0.01),
    "normal, 2 %": normal(0.02),
    "normal, 3 %": normal(0.03),
    "t3, 2 %": t3(0.02),
    "t3, 3 %": t3(0.03),
    "exponential, few slow, 2 %": exponential(0.02),
    "exponential, few fast, 2 %": exponential(-0.02),
    "exponential, few slow, 3 %": exponential(0.03),
    "exponential, few fast, 3 %": exponential(-0.03),
    "lognormal, few slow, 2 %": lognormal(0.02),
    "lognormal, few fast, 2 %": lognormal(-0.02),
    "lognormal, few slow, 3 %": lognormal(0.03),
    "lognormal, few fast, 3 %": lognormal(-0.03),
    "two states, 0.2 slower by 10 %": two_states(0.2, 0.1),
    "two states, 0.3 slower by 10 %": two_states(0.3, 0.1),
    "two states, 0.2 faster by 10 %": two_states(0.2, -0.1),
    "two states, 0.3 faster by 10 %": two_states(0.3, -0.1),
    "AR(1) 0.5, 3 %": autoregressive(0.03, 0.5),
    "AR(1) 0.8, 3 %": autoregressive(0.03, 0.8),
    "drift of 5 % over 16, 1 %": drifting(0.01, 0.05),
}


# Worlds whose launches do not depend on one another.
INDEPENDENT = tuple(name for name in WORLDS if not name.startswith(("AR(1)", "drift")))


@dataclass(frozen=True, slots=True)
class Judged:
    """How many gates of a world, at one truth, came to what, and the launches they took on average."""

    gates: int
    fails: int
    passes: int
    launches: float
    red_suites: Mapping[int, tuple[int, int]]

    @property
    def undecided(self) -> int:
        """The number of gates that stayed inconclusive."""
        return self.gates - self.fails - self.passes


def judge_world(
    scatter: Scatter, truths: Sequence[float], *, budget: int, gates: int, seed: int, suites: Iterable[int] = ()
) -> list[Judged]:
    """Judge the same gates at each of some truths, in tolerances from their bound (-1 is the edge).

    ``suites`` are sizes; of suites of so many of the gates those are red in which one did not pass.
    """
    looks = looks_for(budget, TOLERANCE)
    levels = spending(ALPHA, looks, budget)
    values = scatter(np.random.default_rng(seed), (gates, budget + CONFIRMING_LAUNCHES))
    found = []
    for truth in truths:
        some = Gates(values + truth * TOLERANCES, np.zeros_like(values), np.ones(gates))
        verdicts = two_stages(some, BOUND, looks, levels)
        found.append(judged(verdicts, suites))
    return found


def judged(verdicts: Verdicts, suites: Iterable[int]) -> Judged:
    """Count what became of gates, and of suites of them."""
    count = len(verdicts.passed)
    red = {}
    for size in suites:
        whole = count // size * size
        rows = ~verdicts.passed[:whole].reshape(-1, size)
        red[size] = (int(rows.any(axis=1).sum()), count // size)
    launches = float((verdicts.launches + verdicts.fresh).mean())
    return Judged(count, verdicts.fails, verdicts.passes, launches, red)

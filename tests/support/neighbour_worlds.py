"""Worlds of calls beside a neighbour, which slows some of them: how many differs from visit to visit and from launch to
launch, and by how much from call to call. What verdicts make of launches there is known beside what is true.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, Bound, looks_for, spending
from tests.support.simulator import Array, Flags, Gates, Verdicts, intervals, launch_values, two_stages

TOLERANCE, BUDGET, BLOCKS = 0.05, 16, 8
LOOKS = looks_for(BUDGET, TOLERANCE)
LEVELS = spending(ALPHA, LOOKS, BUDGET)
BOUND = Bound(1.0, at_least=True, tolerance=TOLERANCE, scale="log")
ZONE = -BOUND.edge
CHANNELS = ("usual", "mean", "fastest")
_CHUNK = 4_000_000


@dataclass(frozen=True, slots=True)
class Beside:
    """How a neighbour slows calls: a share ``touched`` of them, to ``slower`` times what they take alone.

    The share of a launch scatters about that of the world, and that of a visit about that of its launch, as beta laws
    whose parameters add up to ``launches`` and ``visits``: the less, the more. What a touched call takes has a Pareto
    tail of index ``tail`` (0: none). ``launch`` is what the ratio scatters by from launch to launch besides, on ln.
    """

    touched: float
    slower: float
    launches: float = 200.0
    visits: float = 10.0
    tail: float = 0.0
    launch: float = 0.02
    calls: int = 31

    def launches_of(self, rng: np.random.Generator, count: int) -> dict[str, tuple[Array, Array]]:
        """Return the values of so many launches of the ratio to the cell alone, and their variances, by channel."""
        at_once = max(1, _CHUNK // (BLOCKS * self.calls))
        parts = [self._some(rng, min(at_once, count - start)) for start in range(0, count, at_once)]
        values, within = (
            {channel: np.concatenate([part[channel][place] for part in parts]) for channel in CHANNELS}
            for place in (0, 1)
        )
        return {channel: (values[channel], within[channel]) for channel in CHANNELS}

    def _some(self, rng: np.random.Generator, count: int) -> dict[str, tuple[Array, Array]]:
        shares = _beta(rng, np.full((count, 1), self.touched), self.launches)
        shares = _beta(rng, np.broadcast_to(shares, (count, BLOCKS)), self.visits)
        shape = (count, BLOCKS, self.calls)
        taken = np.exp(0.03 * rng.standard_normal(shape, np.float32))
        touched = rng.random(shape, np.float32) < shares[..., None]
        slower = np.full(shape, self.slower, np.float32)
        if self.tail:
            slower *= 1 + rng.pareto(self.tail, shape) / 4
        taken[touched] *= slower[touched]
        # The cell alone, whose launches and visits scatter a little, whichever of its calls are looked at.
        alone = self.launch * rng.standard_normal((count, 1)) + 0.01 * rng.standard_normal((count, BLOCKS))
        by = {"usual": np.median(taken, axis=-1), "mean": taken.mean(axis=-1), "fastest": taken.min(axis=-1)}
        return {channel: launch_values(alone - np.log(by[channel])) for channel in CHANNELS}


def _beta(rng: np.random.Generator, mean: Array, total: float) -> Array:
    inside = np.clip(mean, 1e-9, 1 - 1e-9)
    return np.asarray(np.where((mean <= 0) | (mean >= 1), mean, rng.beta(total * inside, total * (1 - inside))))


# As ResNet-18 beside itself on two CPUs, and worse: half of the calls, few and far slower, in whole visits, and so on.
WORLDS: Mapping[str, Beside] = {
    "most calls": Beside(0.85, 4.5),
    "half of the calls": Beside(0.5, 4.5),
    "few calls, far slower": Beside(0.15, 20.0),
    "whole visits": Beside(0.5, 4.5, visits=0.2),
    "a heavy tail": Beside(0.9, 2.0, tail=1.5),
    "launches that differ": Beside(0.7, 4.5, launches=6.0),
}


@dataclass(frozen=True, slots=True)
class Drawn:
    """Gates in a world, launches enough for each, by channel, and what is true of the usual call."""

    by_channel: Mapping[str, Gates]
    truth: float

    def judged(self, truth: float, second: str = "") -> tuple[Verdicts, Flags, Flags]:
        """Judge them where the truth is so many tolerances from their bound. Return who passes, and who fails.

        ``second`` is the channel that may speak against either.
        """
        usual = self._at("usual", truth)
        verdicts = two_stages(usual, BOUND, LOOKS, LEVELS)
        passed, failed = verdicts.passed.copy(), verdicts.failed.copy()
        if second:
            low, high = self._interval(self._at(second, truth), verdicts)
            passed &= ~(high < BOUND.line)
            failed &= ~(low > BOUND.edge)
        return verdicts, passed, failed

    def _at(self, channel: str, truth: float) -> Gates:
        return self.by_channel[channel].at(truth * ZONE - self.truth)

    @staticmethod
    def _interval(gates: Gates, verdicts: Verdicts) -> tuple[Array, Array]:
        """Return the interval of each gate over all launches that its verdict rests on, at the level of its look."""
        low, high = np.empty(len(gates.noise)), np.empty(len(gates.noise))
        for look, level in zip(LOOKS, LEVELS, strict=True):
            for fresh in np.unique(verdicts.fresh):
                which = (verdicts.launches == look) & (verdicts.fresh == fresh)
                some = gates.only(which)
                upto = look + int(fresh)
                cut = replace(some, values=some.values[:, :upto], within=some.within[:, :upto])
                if which.any():
                    low[which], high[which] = intervals(cut, level)
        return low, high


def drawn(world: Beside, gates: int, seed: int, known_by: int = 60_000) -> Drawn:
    """Return gates in a world. What is true is the mean of very many of its launches."""
    rng = np.random.default_rng(seed)
    launches = BUDGET + CONFIRMING_LAUNCHES
    some = world.launches_of(rng, gates * launches)
    truth = float(world.launches_of(rng, known_by)["usual"][0].mean())
    shape = (gates, launches)
    each = {name: [part.reshape(shape) for part in parts] for name, parts in some.items()}
    return Drawn({name: Gates(values, within, np.ones(gates)) for name, (values, within) in each.items()}, truth)

"""Launches on a host whose other guest comes and goes, batch by batch, with a known truth: what each says by a rule.

A launch visits the two cells of a gate in sixteen blocks, among others. While the guest is there calls take longer, by
as much for both cells or by less for the compiled one; it is there for another share of each launch, and stays for
milliseconds or seconds. Glances at the ends of visits see whether it is. All noise is of ln(seconds).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from pytest_ngraph.quantities.quantity import LEAST_ALIKE, QUANTILE
from pytest_ngraph.spec.cells import LEFT_ALONE
from pytest_ngraph.stats.launches import ALIKE, launch_values
from tests.support.launch_worlds import Scatter
from tests.support.shared_worlds import trimmed
from tests.support.simulator import Array, Flags

# A launch: blocks, cells whose glances are taken, batches of a visit and how long one lasts.
BLOCKS, CELLS, BATCHES, BATCH_SECONDS = 16, 10, 30, 0.002
# Of the guest's absence in launches, about as where 28 and 16 launches were measured; never none, never all.
ABSENT, LEAST_ABSENT = (1.2, 1.8), 0.02
# Standard deviations of ln(seconds): of launches (their difference), of visits and of batches.
LAUNCH, VISIT, BATCH = 0.01, 0.005, 0.03
# How much longer calls take beside the guest, in ln: of the compiled cell and of the baseline.
MINDS: Mapping[str, tuple[float, float]] = {"alike": (0.45, 0.45), "a quarter as much": (0.11, 0.45)}
AT_ONCE = 1000  # launches


@dataclass(frozen=True, slots=True)
class Rule:
    """What a launch counts by, if it was left alone in so many of the glances at it: else another takes its place.

    By the ``quantile`` of all batches, of the share that was left alone if it is ``of_alone``, or without one by the
    medians of all visits. Where half of the blocks were ``steady`` it may count by the medians of these.
    """

    quantile: float | None = None
    alone: float = 0.0
    of_alone: bool = False
    steady: bool = False


MEDIANS = Rule()
WHAT_COUNTS = Rule(QUANTILE, LEFT_ALONE, of_alone=True, steady=True)


@dataclass(frozen=True, slots=True)
class Made:
    """Launches: ln of the times of batches (launches x cells x blocks x batches), and of each launch three things.

    They are its own difference of the cells, the share of the glances that found the machine alone, and which of its
    blocks are steady for both cells.
    """

    times: Array
    own: Array
    alone: Array
    steady: Flags

    def only(self, which: Flags) -> Made:
        """Return some of the launches."""
        return Made(self.times[which], self.own[which], self.alone[which], self.steady[which])


@dataclass(frozen=True, slots=True)
class Host:
    """A host whose guest comes and goes about every ``stay`` seconds, and how ``slow`` either cell is beside it.

    The compiled cell is slower by ``hidden`` of ln(seconds) in a ``share`` of its calls besides, wherever it is.
    """

    stay: float
    slow: tuple[float, float]
    hidden: float = 0.0
    share: float = 0.0

    def launches(self, rng: np.random.Generator, count: int) -> Made:
        """Return so many launches, whatever they are worth."""
        absent = np.clip(rng.beta(*ABSENT, count), LEAST_ABSENT, 1 - LEAST_ABSENT)
        alone = self._states(rng, absent, 2 * BLOCKS, BATCHES).reshape(count, 2, BLOCKS, BATCHES)
        # Of the other cells the glances alone matter.
        ends = self._states(rng, absent, (CELLS - 2) * BLOCKS, 2, apart=BATCHES - 1)
        seen = alone[..., [0, -1]]
        quiet = np.concatenate([seen.reshape(count, -1), ends.reshape(count, -1)], axis=1)
        slow = np.array(self.slow)[:, None, None] * (1 + 0.15 * rng.standard_normal(alone.shape))
        times = np.where(alone, 0.0, slow) + BATCH * np.abs(rng.standard_normal(alone.shape))
        times += VISIT * rng.standard_normal((count, 2, BLOCKS, 1))
        if self.share:
            times[:, 0] += self.hidden * (rng.random(times[:, 0].shape) < self.share)
        steady = np.asarray(seen.all(axis=(1, 3)))
        return Made(times, LAUNCH * rng.standard_normal(count), quiet.mean(axis=1), steady)

    def _states(self, rng: np.random.Generator, absent: Array, visits: int, steps: int, *, apart: int = 1) -> Flags:
        """Return whether the guest is absent in so many steps of visits, which are too far apart to know another."""
        rate = 1 / (self.stay * absent) + 1 / (self.stay * (1 - absent))
        kept = np.exp(-rate * BATCH_SECONDS * apart)[:, None]
        states = np.empty((len(absent), visits, steps), dtype=bool)
        chance = np.broadcast_to(absent[:, None], states.shape[:2])
        for step in range(steps):
            states[..., step] = rng.random(chance.shape) < chance
            chance = absent[:, None] + (states[..., step] - absent[:, None]) * kept
        return states

    def values(self, rule: Rule, rng: np.random.Generator, count: int) -> tuple[Array, float]:
        """Return what so many launches say that count, less the truth, and how many were made for each of them."""
        found, made = np.empty(0), 0
        while found.size < count:
            some = self.launches(rng, AT_ONCE)
            some = some.only(some.alone >= rule.alone)
            values = said(some, rule) + some.own
            found, made = np.concatenate([found, values[~np.isnan(values)]]), made + AT_ONCE
        return found[:count], made / found.size

    def scatter(self, rule: Rule) -> Scatter:
        """Return what launches that count by a rule differ by from the truth."""
        return lambda rng, shape: self.values(rule, rng, math.prod(shape))[0].reshape(shape)


def said(made: Made, rule: Rule) -> Array:
    """Return what each launch says: ln of the baseline's seconds less ln of the compiled cell's, which is the first.

    NaN of one that says nothing.
    """
    if rule.quantile is None and not rule.steady:
        return launch_values(differences(made))[0]
    shares = rule.quantile * (made.alone if rule.of_alone else np.ones(len(made.alone))) if rule.quantile else None
    values = np.full(len(made.alone), np.nan) if shares is None else by_quantile(made.times, shares)
    if rule.of_alone and shares is not None:
        values = np.where(are_alike(made.times, shares, made.alone), values, np.nan)
    if not rule.steady:
        return values
    enough = made.steady.sum(axis=1) >= math.ceil(BLOCKS / 2)
    of_steady = trimmed(np.where(made.steady, differences(made), np.nan))[0]
    return np.where(enough, of_steady, values)


def differences(made: Made) -> Array:
    """Return the difference of the medians of each block's two visits."""
    medians = np.median(made.times, axis=-1)
    return np.asarray(medians[:, 1] - medians[:, 0])


def by_quantile(times: Array, shares: Array) -> Array:
    """Return ``stats.launch_quantile`` of every launch, by a share of its own: the difference of ln of the seconds."""
    each = np.log(_quantiles(times, shares)[1])
    return np.asarray(each[:, 1] - each[:, 0])


def are_alike(times: Array, shares: Array, alone: Array) -> Flags:
    """Return in which launches enough calls of both cells are as fast as the quantile (``stats.share_alike``)."""
    ordered, quantiles = _quantiles(times, shares)
    there = (~np.isnan(ordered)).sum(axis=-1)
    enough = (ordered <= ALIKE * quantiles[..., None]).sum(axis=-1) >= LEAST_ALIKE * alone[:, None] * there
    return np.asarray(enough.all(axis=1))


def _quantiles(times: Array, shares: Array) -> tuple[Array, Array]:
    """Return the seconds of both cells of every launch in order, NaN last, and the quantiles of what is no NaN."""
    ordered = np.exp(np.sort(times.reshape(*times.shape[:2], -1), axis=-1))
    at = shares[:, None] * ((~np.isnan(ordered)).sum(axis=-1) - 1)
    low = np.floor(at).astype(int)
    both = [np.take_along_axis(ordered, place[..., None], axis=-1)[..., 0] for place in (low, low + 1)]
    return ordered, np.asarray(both[0] + (both[1] - both[0]) * (at - low))

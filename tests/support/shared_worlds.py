"""Launches beside neighbours that come and go, batch by batch, with a known truth: what visits are left, and verdicts.

A launch visits baseline, compiled cell and the baseline's second process in mirrored random order. A neighbour is
there for a part of each batch. Then the batch waits for a CPU as long as that, which its run-delay shows, or it is only
slower, which nothing of its own shows. All times are in batches, all noise is of ln(seconds).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.special import stdtrit

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.spec.cells import LEAST_BLOCKS
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, looks_for, spending
from tests.support.launch_worlds import BOUND, TOLERANCE, TOLERANCES
from tests.support.simulator import Array, Flags, Gates, launch_values, two_stages

BLOCKS, BATCHES, CELLS = 8, 24, 3  # baseline, compiled, second process of the baseline
_PAUSE = 5  # between two visits
# A visit lasts 60 ms, so that a tick of 10 ms is so many batches; and what it may lose, of two CPUs.
_TICK, _MOST_STOLEN, _CPUS = 4, 0.05, 2
_CONTROL, _UNEVEN, _UNEVEN_CPUS, _UNEVEN_STOLEN = 0.025, 0.01, 0.25, 0.01


@dataclass(frozen=True, slots=True)
class Neighbour:
    """Somebody who is there for a share of the time, in bursts.

    ``period`` is from one burst to the next; it varies by ``jitter`` of itself, and begins anywhere unless ``locked``.
    Of the batches beside it ``collide`` wait, by cell, and the others are slower by ``slow``, by cell. ``only`` is the
    one cell beside which it is. ``visible`` says whether the machine's account of its CPUs shows beside whom it was.
    ``stolen`` is of a host: what its other guests take shows in no run-delay but in ticks.
    """

    share: float
    period: float = 60.0
    jitter: float = 0.3
    collide: Sequence[float] = (0.5, 0.5, 0.5)
    slow: Sequence[float] = (0.0, 0.0, 0.0)
    only: int | None = None
    locked: bool = False
    visible: bool = True
    stolen: bool = False


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of gates. What is neither is inconclusive."""

    gates: int
    passes: int
    fails: int
    invalid: int
    launches: float

    @property
    def decided(self) -> float:
        """The share of gates that passed or failed."""
        return (self.passes + self.fails) / self.gates


def judge_beside(
    neighbour: Neighbour,
    *truths: float,
    gates: int,
    seed: int,
    launch: float = 0.01,
    visit: float = 0.01,
    batch: Sequence[float] = (0.015, 0.015, 0.015),
    budget: int = 16,
    widened: bool = False,
) -> list[Outcome]:
    """Judge the same gates at truths of so many tolerances from their bound (-1 is the edge), beside a neighbour.

    ``launch``, ``visit`` and ``batch`` are the noise of the cells themselves. With ``widened`` batches count that wait
    for up to 10 % of their time, as they do in launches that nobody shares.
    """
    rng = np.random.default_rng(seed)
    count = budget + CONFIRMING_LAUNCHES
    parts = [
        _launches(rng, neighbour, some, count, launch, visit, batch, widened=widened) for some in _chunks(gates, count)
    ]
    values, within, fastest, twins, beside = (np.concatenate(each) for each in zip(*parts, strict=True))
    gave_up = gave_up_in(np.isnan(values))
    values[gave_up] = fastest[gave_up] = twins[gave_up] = np.nan
    order = np.argsort(np.isnan(values), axis=1, kind="stable")
    values, within, fastest, twins = (
        np.take_along_axis(each, order, axis=1) for each in (values, within, fastest, twins)
    )
    beside = np.take_along_axis(beside, order[..., None], axis=1)
    at_bound = Gates(values, np.nan_to_num(within), np.ones(gates))
    others = beside if neighbour.visible else None
    least = _UNEVEN_STOLEN if neighbour.stolen else _UNEVEN_CPUS
    return [
        _judged(at_bound.at(shift), fastest + shift, twins, others, gave_up, budget, least)
        for shift in (truth * TOLERANCES for truth in truths)
    ]


def _judged(
    gates: Gates, fastest: Array, twins: Array, beside: Array | None, gave_up: Flags, budget: int, least: float
) -> Outcome:
    """Judge gates whose launches without a value come last."""
    looks = looks_for(budget, TOLERANCE)
    with np.errstate(invalid="ignore"):
        verdicts = two_stages(gates, BOUND, looks, spending(ALPHA, looks, budget))
        used = (verdicts.launches + verdicts.fresh).astype(float)
        judged = verdicts.passed | verdicts.failed
        opposed = judged & _opposed(fastest, verdicts.passed, used)
        refused = judged & (_violated(twins, used) | (_uneven(beside, used, least) if beside is not None else False))
    # What was given up without a verdict has fewer launches than its next look.
    starved = ~judged & gave_up.any(axis=1)
    stands = ~refused & ~opposed
    passes, fails = int((verdicts.passed & stands).sum()), int((verdicts.failed & stands).sum())
    return Outcome(
        len(judged), passes, fails, int((refused | starved).sum()), float(used[judged].mean()) if judged.any() else 0
    )


def _chunks(gates: int, launches: int) -> list[int]:
    most = max(1, 6_000_000 // (launches * BLOCKS * CELLS * BATCHES))
    return [min(most, gates - start) for start in range(0, gates, most)]


def _launches(
    rng: np.random.Generator,
    neighbour: Neighbour,
    gates: int,
    launches: int,
    launch: float,
    visit: float,
    batch: Sequence[float],
    *,
    widened: bool,
) -> tuple[Array, Array, Array, Array, Array]:
    """Return launch values (NaN where too little is left), their variances, and more that speaks for or against them.

    That is what the fastest batches say, the control's values, and which part of the visits to the two cells the
    neighbour was there for.
    """
    shape = (gates, launches, BLOCKS, CELLS, BATCHES)
    place = places(rng, gates, launches)
    starts = (np.arange(BLOCKS)[:, None] * CELLS + place) * (BATCHES + _PAUSE)
    there = _there(rng, neighbour, starts[..., None] + np.arange(float(BATCHES)))
    if neighbour.only is not None:
        there = there * (np.arange(CELLS) == neighbour.only)[:, None]
    collides = rng.random(shape, np.float32) < np.asarray(neighbour.collide)[:, None]
    delay = there * collides
    slower = there * ~collides * np.asarray(neighbour.slow)[:, None]
    own = launch / np.sqrt(2) * rng.standard_normal((gates, launches, 1, CELLS))
    each = own + visit * rng.standard_normal(shape[:-1])
    ln = np.log1p(delay + slower) + np.asarray(batch)[:, None] * rng.standard_normal(shape, np.float32)
    clean = delay / (1 + delay) <= (0.10 if widened else 0.01)
    waited = delay.sum(axis=-1)
    usable = (clean.sum(axis=-1) >= BATCHES / 3) & (waited <= (waited + BATCHES) / 3)
    if neighbour.stolen:
        # A tick begins anywhere. As in ``Visit.is_stolen``, unless nobody asks.
        ticks = np.floor(waited / _TICK + rng.random(waited.shape))
        shared = waited.sum(axis=(2, 3)) > _MOST_STOLEN * _CPUS * (BATCHES + waited).sum(axis=(2, 3))
        most = np.maximum(_MOST_STOLEN * (BATCHES + waited), 1.5 * _TICK) * ~shared[..., None, None]
        clean, usable = np.ones(shape, bool), (ticks * _TICK <= most) | widened
        share = (ticks * _TICK).sum(axis=2) / (BATCHES + waited).sum(axis=2)
    kept = np.where(clean & usable[..., None], ln, np.nan)
    ln_visit, quickest = each + _median(kept), each + np.fmin.reduce(kept, axis=-1)
    values, within = trimmed(ln_visit[..., 0] - ln_visit[..., 1])
    fastest = trimmed(quickest[..., 0] - quickest[..., 1])[0]
    beside = share if neighbour.stolen else there.mean(axis=(2, 4))
    return values, within, fastest, trimmed(ln_visit[..., 0] - ln_visit[..., 2])[0], beside[..., :2]


def places(rng: np.random.Generator, gates: int, launches: int) -> NDArray[np.int64]:
    """Return which place in its block each cell has: a random order, and its reverse in the next block."""
    place = rng.random((gates, launches, BLOCKS // 2, CELLS)).argsort(axis=-1).argsort(axis=-1)
    place = np.repeat(place, 2, axis=2)
    place[:, :, 1::2] = CELLS - 1 - place[:, :, 1::2]
    return place


def _there(rng: np.random.Generator, neighbour: Neighbour, at: Array) -> Array:
    """Return which part of each batch, by when it begins, a neighbour is there."""
    shape = (*at.shape[:2], 1, 1, 1)
    period = neighbour.period * (1 + neighbour.jitter * rng.uniform(-1, 1, shape))
    begins = 0.0 if neighbour.locked else rng.random(shape) * period
    phase = (at + begins) % period
    on = neighbour.share * period
    ends = phase + 1
    now = np.clip(np.minimum(ends, on) - phase, 0, 1)
    return np.asarray(now + np.clip(np.minimum(ends - period, on), 0, 1))


def _median(values: Array) -> Array:
    """Return medians of what is not NaN, NaN where all is."""
    ordered = np.sort(values, axis=-1)
    count = (~np.isnan(values)).sum(axis=-1)
    low, high = np.maximum(count - 1, 0) // 2, np.maximum(count, 1) // 2
    both = [
        np.take_along_axis(ordered, each[..., None], axis=-1)[..., 0] for each in (low, np.minimum(high, BATCHES - 1))
    ]
    return np.asarray((both[0] + both[1]) / 2)


def trimmed(blocks: Array, least: int = LEAST_BLOCKS) -> tuple[Array, Array]:
    """Return launch values and variances over the blocks that are left, NaN where these are too few."""
    ordered = np.sort(blocks, axis=-1)
    left = (~np.isnan(blocks)).sum(axis=-1)
    values, within = (np.full(left.shape, np.nan) for _ in range(2))
    for count in range(least, blocks.shape[-1] + 1):
        some = left == count
        values[some], within[some] = launch_values(ordered[some][:, :count])
    return values, within


def gave_up_in(missing: Flags) -> Flags:
    """Return which launches were not made, since the three before them say nothing."""
    three = missing[:, :-3] & missing[:, 1:-2] & missing[:, 2:-1]
    return np.concatenate([np.zeros((len(missing), 3), bool), np.maximum.accumulate(three, axis=1)], axis=1)


def _violated(twins: Array, used: Array) -> Flags:
    """Return which gates the control speaks against, or is missing for."""
    mean, s, count = _moments(twins, used)
    half = stdtrit(np.maximum(count - 1, 1), 1 - _CONTROL) * s / np.sqrt(np.maximum(count, 1))
    return np.asarray((count < 2) | (abs(mean) > half))


def _opposed(fastest: Array, passed: Flags, used: Array) -> Flags:
    """Return of which gates the fastest batches give the opposite verdict, at about a look's level."""
    mean, s, count = _moments(fastest, used)
    half = stdtrit(np.maximum(count - 1, 1), 1 - 0.003) * s / np.sqrt(np.maximum(count, 1))
    return np.asarray(np.where(passed, mean + half < BOUND.line, mean - half > BOUND.edge))


def _uneven(beside: Array, used: Array, least: float) -> Flags:
    """Return beside which gates others were far more with one of two cells than with both."""
    mean, s, count = _moments(beside[..., 0] - beside.mean(axis=-1), used)
    half = stdtrit(np.maximum(count - 1, 1), 1 - _UNEVEN) * s / np.sqrt(np.maximum(count, 1))
    return np.asarray((abs(mean) > least) & (abs(mean) > half))


def _moments(values: Array, used: Array) -> tuple[Array, Array, Array]:
    """Return means, standard deviations and numbers of what the first launches say."""
    known = (np.arange(values.shape[1]) < used[:, None]) & ~np.isnan(values)
    count = known.sum(axis=1)
    mean = np.where(known, values, 0).sum(axis=1) / np.maximum(count, 1)
    squares = np.where(known, (values - mean[:, None]) ** 2, 0).sum(axis=1)
    return mean, np.sqrt(squares / np.maximum(count - 1, 1)), count

"""Launches on a machine that goes to and fro between two states, with a known truth: which blocks are left, verdicts.

A launch visits baseline and compiled cell, and the baseline's second process, in mirrored random order. The states slow
each cell down by a factor of its own, and are read before and after each block, as the reference kernel does, and with
``glances`` before and after each visit: whoever comes and goes in between is not seen. No visit is repeated. All noise
is of ln(seconds).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.spec.cells import LEAST_BLOCKS
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, looks_for, spending
from tests.support.launch_worlds import BOUND, TOLERANCE, TOLERANCES
from tests.support.shared_worlds import BLOCKS, CELLS, Outcome, gave_up_in, places, trimmed
from tests.support.simulator import Array, Flags, Gates, two_stages

SLOTS = 5  # of a visit; its median is in the state of most of them


@dataclass(frozen=True, slots=True)
class Switching:
    """A machine that stays in its two states for so many blocks each, on average; in the second cells are ``slow``."""

    stays: tuple[float, float]
    slow: tuple[float, float, float] = (0.40, 0.30, 0.40)


def judge_switching(
    machine: Switching,
    *truths: float,
    least: int,
    gates: int,
    seed: int,
    launch: float = 0.01,
    visit: float = 0.01,
    budget: int = 16,
    blind: bool = False,
    glances: bool = False,
    fallback: bool = True,
) -> list[Outcome]:
    """Judge gates at truths of so many tolerances from their bound, where launches need so many blocks in one state.

    With ``glances`` three of them are enough if nobody was seen around their visits, and without ``fallback`` they are
    needed. The truth is that of the state which a gate is judged in: the first one that three launches are of. Who is
    ``blind`` takes all blocks and launches for those of the first state.
    """
    rng = np.random.default_rng(seed)
    count = budget + CONFIRMING_LAUNCHES
    contrasts, steady, homes = _launches(rng, machine, gates, count, launch, visit, blind=blind, glances=glances)
    values, within = trimmed(np.where(steady, contrasts, np.nan), LEAST_BLOCKS if glances else least)
    if glances and fallback:
        # Of which launches too little is steady, all visits count.
        is_few, (of_all, within_all) = np.isnan(values), trimmed(contrasts, least)
        values, within = np.where(is_few, of_all, values), np.where(is_few, within_all, within)
    gave_up = gave_up_in(np.isnan(values))
    values[gave_up] = np.nan
    judged_in = _first_with_three(homes, ~np.isnan(values))
    truth = judged_in * (machine.slow[0] - machine.slow[1])
    values[homes != judged_in[:, None]] = np.nan
    order = np.argsort(np.isnan(values), axis=1, kind="stable")
    values, within = (np.take_along_axis(each, order, axis=1) for each in (values, within))
    at = Gates(values - truth[:, None], np.nan_to_num(within), np.ones(gates))
    looks = looks_for(budget, TOLERANCE)
    found = []
    for one in truths:
        with np.errstate(invalid="ignore"):
            verdicts = two_stages(at.at(one * TOLERANCES), BOUND, looks, spending(ALPHA, looks, budget))
        judged = verdicts.passed | verdicts.failed
        used = float((verdicts.launches + verdicts.fresh)[judged].mean()) if judged.any() else 0.0
        invalid = int((~judged & gave_up.any(axis=1)).sum())
        found.append(Outcome(gates, verdicts.passes, verdicts.fails, invalid, used))
    return found


def _launches(
    rng: np.random.Generator,
    machine: Switching,
    gates: int,
    launches: int,
    launch: float,
    visit: float,
    *,
    blind: bool,
    glances: bool,
) -> tuple[Array, Flags, Array]:
    """Return the contrast of each block of each launch, NaN where it does not count, and whether both visits of it were
    steady, and the state of each launch.
    """
    # A block: a reading, a glance and a visit for each cell, a last glance, a reading.
    steps = CELLS * (SLOTS + 1) + 3
    states = _path(rng, machine, gates * launches, BLOCKS * steps).reshape(gates, launches, BLOCKS, steps)
    readings = states[..., [0, -1]] * (not blind)
    home = readings.mean(axis=(2, 3)) > 0.5
    kept = (readings == home[:, :, None, None]).all(axis=-1)
    inside = states[..., 1:-2].reshape(gates, launches, BLOCKS, CELLS, SLOTS + 1)
    order = places(rng, gates, launches)
    of_visits = np.take_along_axis(np.median(inside[..., 1:], axis=-1), order, axis=-1)
    own = launch / np.sqrt(2) * rng.standard_normal((gates, launches, 1, CELLS))
    slowed = of_visits * np.asarray(machine.slow) + own + visit * rng.standard_normal(of_visits.shape)
    steady = np.ones_like(slowed, bool)
    if glances:
        glanced = np.concatenate([inside[..., 0], states[..., -2:-1]], axis=-1)
        usual = glanced.mean(axis=(2, 3)) > 0.5
        as_usual = glanced == usual[:, :, None, None]
        steady = np.take_along_axis(as_usual[..., :-1] & as_usual[..., 1:], order, axis=-1)
    contrasts = np.where(kept, slowed[..., 0] - slowed[..., 1], np.nan)
    return contrasts, steady[..., 0] & steady[..., 1], home.astype(float)


def _path(rng: np.random.Generator, machine: Switching, count: int, steps: int) -> Array:
    """Return in which state, 0 or 1, a machine is at each step of a launch, which begins at a time of its own."""
    leaves = [1 / (blocks * (CELLS * (SLOTS + 1) + 3)) for blocks in machine.stays]
    now = rng.random(count) < machine.stays[1] / sum(machine.stays)
    path = np.empty((count, steps), bool)
    for step in range(steps):
        path[:, step] = now
        now = now ^ (rng.random(count, np.float32) < np.where(now, leaves[1], leaves[0]))
    return path.astype(float)


def _first_with_three(homes: Array, counts: Flags) -> Array:
    """Return the state that three launches which count were first of, or that most are of."""
    reached = [np.cumsum((homes == state) & counts, axis=1) for state in (0, 1)]
    first = [np.where(each[:, -1] >= 3, (each < 3).sum(axis=1), 1000 - each[:, -1]) for each in reached]
    return np.asarray((first[1] < first[0]).astype(float))

"""Launches on a machine that goes to and fro between two states, with a known truth: which blocks are left, verdicts.

A launch visits baseline and compiled cell, and the baseline's second process, in mirrored random order. The states slow
each cell down by a factor of its own, and are read before and after each block, as the reference kernel does, and with
``glances`` before and after each visit: whoever comes and goes in between is not seen. No visit is repeated, but where
too few blocks were quiet ``further`` ones are made, two by two. All noise is of ln(seconds).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats import CONFIRMING_ALPHA, CONFIRMING_LAUNCHES, CONFIRMING_LOOKS, Bound, looks_for, spending
from tests.support.launch_worlds import BOUND, TOLERANCE, TOLERANCES
from tests.support.shared_worlds import BLOCKS, CELLS, Outcome, gave_up_in, places, trimmed
from tests.support.simulator import Array, Flags, Gates, first_stage, two_stages

_WANTED = 5  # blocks that are steady for two cells; a launch goes on for them
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
    further: bool = True,
    fallback: bool = True,
) -> list[Outcome]:
    """Judge gates at truths of so many tolerances from their bound, where launches need so many blocks in one state.

    Of eight, that is, or as large a share of the ``further`` ones that a launch with ``glances`` makes. By these, three
    are enough, of whatever share, if nobody was seen around their visits. Where such launches are not to be had all
    count from then on, if there is a ``fallback``, and what is far within its bound passes by all. The truth is that of
    the state which a gate is judged in: the first one that three launches are of. Who is ``blind`` takes all blocks and
    launches for those of the first state.
    """
    rng = np.random.default_rng(seed)
    count = budget + CONFIRMING_LAUNCHES
    states = _states(rng, machine, gates * count, 2 * BLOCKS if glances and further else BLOCKS)
    made = _visited(rng, machine, states.reshape(gates, count, *states.shape[1:]), launch, visit)
    contrasts, steady, homes, are_most = _left(made, least, blind=blind, glances=glances)
    of_all = trimmed(np.where(are_most[..., None], contrasts, np.nan))
    of_steady = trimmed(np.where(steady, contrasts, np.nan)) if glances else of_all
    # Of a launch in which three blocks are steady these count, whatever may.
    is_few = np.isnan(of_steady[0])
    of_all = (np.where(is_few, of_all[0], of_steady[0]), np.where(is_few, of_all[1], of_steady[1]))
    judged_in = _first_with_three(homes, ~np.isnan(of_all[0]))
    truth = judged_in * (machine.slow[0] - machine.slow[1])
    (first, gave_up, *of_first), (second, _, *of_second) = (
        _in_a_row(values, within, homes == judged_in[:, None], truth) for values, within in (of_steady, of_all)
    )
    looks = looks_for(budget, TOLERANCE)
    found = []
    for one in truths:
        at, then = (each.at(one * TOLERANCES) for each in (first, second))
        with np.errstate(invalid="ignore"):
            orders = (*of_first, *of_second)
            passed, failed, launches = _decided(at, then if glances and fallback else None, orders, looks, budget)
        judged = passed | failed
        used = float(launches[judged].mean()) if judged.any() else 0.0
        invalid = int((~judged & gave_up).sum())
        found.append(Outcome(gates, int(passed.sum()), int(failed.sum()), invalid, used))
    return found


def _in_a_row(values: Array, within: Array, at_home: Flags, truth: Array) -> tuple[Gates, Flags, NDArray[np.int64]]:
    """Return the launches of each gate that have a value, up to three in a row without, which gates gave up so, and
    which of all launches they are.
    """
    given_up = gave_up_in(np.isnan(values))
    values = np.where(given_up | ~at_home, np.nan, values)
    order = np.argsort(np.isnan(values), axis=1, kind="stable")
    values, within = (np.take_along_axis(each, order, axis=1) for each in (values, within))
    gates = Gates(values - truth[:, None], np.nan_to_num(within), np.ones(len(values)))
    return gates, np.asarray(given_up.any(axis=1)), order


def _decided(
    steady: Gates, every: Gates | None, orders: Sequence[NDArray[np.int64]], looks: Sequence[int], budget: int
) -> tuple[Flags, Flags, NDArray[np.int64]]:
    """Return which gates passed and failed, and after how many launches: by steady ones, or else by ``every`` one."""
    levels = spending(ALPHA, looks, budget)
    verdicts, seen = two_stages(steady, BOUND, looks, levels), first_stage(steady, BOUND, looks, levels)
    passed, failed, launches = verdicts.passed.copy(), verdicts.failed.copy(), verdicts.launches + verdicts.fresh
    if every is None:
        return passed, failed, launches
    had = (~np.isnan(steady.values)).sum(axis=1)
    for gate in np.flatnonzero(seen.failed & ~failed):
        failed[gate], fresh = _confirmed(steady, every, orders, int(gate), int(seen.launches[gate]), int(had[gate]))
        launches[gate] = seen.launches[gate] + fresh
    for place, look in enumerate(looks):
        # At this look steady launches were too few for the first time.
        some = ~seen.passed & ~seen.failed & (had < look) & (had >= (looks[place - 1] if place else 0))
        then = two_stages(every.only(some), BOUND, looks[place:], levels[place:])
        passed[some], failed[some], launches[some] = then.passed, then.failed, then.launches + then.fresh
    with_room = first_stage(every, Bound(1.5, BOUND.at_least, 0.0, BOUND.scale), looks, levels)
    early = with_room.passed & (np.isnan(steady.values[:, : looks[-1]]).any(axis=1))
    launches[early] = np.minimum(launches, with_room.launches)[early]
    return passed | early, failed & ~early, launches


def _confirmed(
    steady: Gates, every: Gates, orders: Sequence[NDArray[np.int64]], gate: int, look: int, had: int
) -> tuple[bool, int]:
    """Return whether fresh launches confirm a fail, and how many: steady ones, or else all that follow its look."""
    of_steady, of_every = orders
    first, values, within, is_steady = look, steady.values[gate], steady.within[gate], True
    for wanted, level in zip(
        CONFIRMING_LOOKS, spending(CONFIRMING_ALPHA, CONFIRMING_LOOKS, CONFIRMING_LAUNCHES), strict=True
    ):
        if had < first + wanted and is_steady:
            last, is_steady = of_steady[gate, look - 1], False
            values, within, had = every.values[gate], every.within[gate], int((~np.isnan(every.values[gate])).sum())
            first = int((of_every[gate, :had] <= last).sum())
        if had < first + wanted:
            return False, wanted
        fresh = slice(first, first + wanted)
        said = first_stage(Gates(values[None, fresh], within[None, fresh], np.ones(1)), BOUND, (wanted,), (level,))
        if said.failed[0] or said.passed[0]:
            return bool(said.failed[0]), wanted
    return False, CONFIRMING_LAUNCHES


@dataclass(frozen=True, slots=True)
class _Made:
    """Launches as they were made, block by block: the states read around each, those glanced at, and ln(seconds).

    Glances are in the order of the visits, a last one after them, and ``order`` is each cell's place in it.
    """

    readings: Array
    glanced: Array
    slowed: Array
    order: NDArray[np.int64]

    def first(self, blocks: int) -> _Made:
        """Return what is known of them after so many blocks."""
        first = (slice(None), slice(None), slice(blocks))
        return _Made(self.readings[first], self.glanced[first], self.slowed[first], self.order[first])


def _states(rng: np.random.Generator, machine: Switching, launches: int, blocks: int) -> Array:
    # A block: a reading, a glance and a visit for each cell, a last glance, a reading.
    steps = CELLS * (SLOTS + 1) + 3
    return _path(rng, machine, launches, blocks * steps).reshape(launches, blocks, steps)


def _visited(rng: np.random.Generator, machine: Switching, states: Array, launch: float, visit: float) -> _Made:
    gates, launches, blocks, _ = states.shape
    inside = states[..., 1:-2].reshape(gates, launches, blocks, CELLS, SLOTS + 1)
    order = np.concatenate([places(rng, gates, launches) for _ in range(blocks // BLOCKS)], axis=2)
    of_visits = np.take_along_axis(np.median(inside[..., 1:], axis=-1), order, axis=-1)
    own = launch / np.sqrt(2) * rng.standard_normal((gates, launches, 1, CELLS))
    slowed = of_visits * np.asarray(machine.slow) + own + visit * rng.standard_normal(of_visits.shape)
    glanced = np.concatenate([inside[..., 0], states[..., -2:-1]], axis=-1)
    return _Made(states[..., [0, -1]], glanced, slowed, order)


def _left(made: _Made, least: int, *, blind: bool, glances: bool) -> tuple[Array, Flags, Array, Flags]:
    """Return the contrast of each block of each launch, NaN where it is of another state, whether both visits of it
    were steady, the state of each launch, and whether blocks enough are of it.

    Those are of the first eight blocks, or of so many more that they are quiet enough, as far as more were made.
    """
    most = made.readings.shape[2]
    *found, lacks = _of_blocks(made.first(BLOCKS), least, most, blind=blind, glances=glances)
    for blocks in range(BLOCKS + 2, most + 1, 2):
        *more, still = _of_blocks(made.first(blocks), least, most, blind=blind, glances=glances)
        found = [
            np.where(lacks.reshape(*lacks.shape, *[1] * (new.ndim - 2)), new, old)
            for new, old in zip(more, found, strict=True)
        ]
        lacks = lacks & still
    contrasts, steady, homes, are_most = found
    return contrasts.astype(float), steady.astype(bool), homes.astype(float), are_most.astype(bool)


def _of_blocks(
    made: _Made, least: int, padded: int, *, blind: bool, glances: bool
) -> tuple[Array, Array, Array, Flags, Flags]:
    """Return the same of so many blocks, padded with what does not count, and which launches lack blocks."""
    blocks = made.readings.shape[2]
    readings = made.readings * (not blind)
    home = readings.mean(axis=(2, 3)) > 0.5
    kept = (readings == home[:, :, None, None]).all(axis=-1)
    steady = np.ones(made.slowed.shape, bool)
    if glances:
        usual = made.glanced.mean(axis=(2, 3)) > 0.5
        as_usual = made.glanced == usual[:, :, None, None]
        steady = np.take_along_axis(as_usual[..., :-1] & as_usual[..., 1:], made.order, axis=-1)
    lacks: Flags = np.zeros(home.shape, bool)
    for one, other in combinations(range(CELLS), 2):
        lacks |= (kept & steady[..., one] & steady[..., other]).sum(axis=2) < _WANTED
    lacks &= steady.sum(axis=(2, 3)) >= CELLS
    contrasts: Array = np.where(kept, made.slowed[..., 0] - made.slowed[..., 1], np.nan)
    padding = [(0, 0), (0, 0), (0, padded - blocks)]
    together = np.pad(steady[..., 0] & steady[..., 1], padding).astype(float)
    are_most: Flags = kept.sum(axis=2) >= math.ceil(least * blocks / BLOCKS)
    return np.pad(contrasts, padding, constant_values=np.nan), together, home.astype(float), are_most, lacks


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

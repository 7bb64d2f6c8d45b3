"""Launches on a machine that goes to and fro between two states, with a known truth: what of them counts, verdicts.

A launch visits baseline and compiled cell, and the baseline's second process, in mirrored random order. The states slow
each cell down by a factor of its own, and are read before and after each block, as the reference kernel does, and with
``glances`` before and after each visit: whoever comes and goes in between is not seen. By itself the machine is in the
first state. No visit is repeated, but where too few blocks were quiet ``further`` ones are made, two by two. All noise
is of ln(seconds).
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.quantities.quantity import QUANTILE
from pytest_ngraph.spec.cells import LEAST_BLOCKS, LEFT_ALONE
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, Bound, looks_for, spending
from pytest_ngraph.stats.verdict import ROOM
from tests.support.crowded_worlds import are_alike, by_quantile
from tests.support.launch_worlds import BOUND, TOLERANCE, TOLERANCES
from tests.support.shared_worlds import BLOCKS, CELLS, Outcome, places, trimmed
from tests.support.simulator import Array, Flags, Gates, first_stage, two_stages

_WANTED = 5  # blocks that are steady for two cells; a launch goes on for them
SLOTS = 5  # of a visit: its batches, each in one state
_SLOT = 0.01  # the noise of each
_LOST, _IN_A_ROW = 3, 6  # launches that say nothing, but for those that others hardly left alone, and with them
_AT_ONCE = 1000  # gates, for memory's sake


@dataclass(frozen=True, slots=True)
class Switching:
    """A machine that stays in its two states for so many blocks each, on average; in the second cells are ``slow``.

    Where its states are not ``read`` only glances tell them, as they do another guest on the same host.
    """

    stays: tuple[float, float]
    slow: tuple[float, float, float] = (0.40, 0.30, 0.40)
    read: bool = True


@dataclass(frozen=True, slots=True)
class _How:
    """How gates are measured and judged: see ``judge_switching``."""

    least: int
    launch: float
    visit: float
    budget: int
    glances: bool
    further: bool
    only_steady: bool
    any_state: bool


def judge_switching(
    machine: Switching,
    *truths: float,
    least: int,
    gates: int,
    seed: int,
    launch: float = 0.01,
    visit: float = 0.01,
    budget: int = 16,
    glances: bool = False,
    further: bool = True,
    only_steady: bool = False,
    any_state: bool = False,
) -> list[Outcome]:
    """Judge gates at truths of so many tolerances from their bound, where launches need so many blocks in one state.

    Of eight, that is. With ``glances`` a launch counts by the half of its blocks that nobody disturbed, or else, unless
    it is of ``only_steady`` ones, by what was left alone, in ``any_state`` or in the first one. What is far within its
    bound passes by all. The truth is that of the state which a gate is judged in: the first one that three launches are
    of.
    """
    rng = np.random.default_rng(seed)
    how = _How(least, launch, visit, budget, glances, further, only_steady, any_state)
    parts = [_judged(rng, machine, truths, min(_AT_ONCE, gates - done), how) for done in range(0, gates, _AT_ONCE)]
    return [_together(each) for each in zip(*parts, strict=True)]


def _together(parts: tuple[Outcome, ...]) -> Outcome:
    gates, passes, fails, invalid = (
        sum(getattr(part, name) for part in parts) for name in ("gates", "passes", "fails", "invalid")
    )
    used = sum(part.launches * (part.passes + part.fails) for part in parts)
    return Outcome(gates, passes, fails, invalid, used / max(1, passes + fails))


def _judged(
    rng: np.random.Generator, machine: Switching, truths: tuple[float, ...], gates: int, how: _How
) -> list[Outcome]:
    made = _visited(rng, machine, gates, how)
    seen = _seen_at_last(made, how)
    values, within = _values(made, seen, how)
    # What is far within its bound passes by the steady blocks, if these are three, or by all.
    few = seen.both.sum(axis=2) < LEAST_BLOCKS
    kept = seen.kept & ~seen.is_torn[..., None]
    of_all = trimmed(np.where(np.where(few[..., None], kept, seen.both), made.contrasts, np.nan))
    homes = seen.homes.astype(float)
    judged_in = _first_with_three(homes, ~np.isnan(of_all[0]))
    truth = judged_in * (machine.slow[0] - machine.slow[1])
    gave_up = _given_up(np.isnan(values), seen.alone >= LEFT_ALONE)
    is_out = gave_up | (homes != judged_in[:, None])
    first, _ = _in_order(np.where(is_out, np.nan, values), within, truth)
    gave_up_all = _given_up(np.isnan(of_all[0]), np.ones_like(seen.is_torn))
    every, order = _in_order(np.where(gave_up_all | (homes != judged_in[:, None]), np.nan, of_all[0]), of_all[1], truth)
    says_nothing = np.take_along_axis(np.isnan(values), order, axis=1)
    looks = looks_for(how.budget, TOLERANCE)
    levels = spending(ALPHA, looks, how.budget)
    # At the first look for which launches that count are too few those that were disturbed are asked, and then no
    # further ones than were made by then.
    lacking = (~np.isnan(first.values)).sum(axis=1)[:, None] < np.array(looks)
    made_by_then = (~gave_up & (homes == judged_in[:, None]) & ~np.isnan(of_all[0])).sum(axis=1)
    asked = np.maximum(np.array(looks)[lacking.argmax(axis=1)], made_by_then)
    last = np.where(lacking.any(axis=1), asked, looks[-1])
    found = []
    for one in truths:
        shift = one * TOLERANCES
        with np.errstate(invalid="ignore"):
            verdicts = two_stages(first.at(shift), BOUND, looks, levels)
            looked = first_stage(first.at(shift), BOUND, looks, levels)
            room = first_stage(every.at(shift), Bound(ROOM, BOUND.at_least, 0.0, BOUND.scale), looks, levels)
        before = room.launches <= np.where(looked.passed | looked.failed, looked.launches, last)
        some = (says_nothing & (np.arange(order.shape[1]) < room.launches[:, None])).any(axis=1)
        early = room.passed & before & some if how.glances else np.zeros(gates, bool)
        passed, failed = verdicts.passed | early, verdicts.failed & ~early
        launches = np.where(early, room.launches, verdicts.launches + verdicts.fresh)
        decided = passed | failed
        used = float(launches[decided].mean()) if decided.any() else 0.0
        invalid = int((~decided & gave_up.any(axis=1)).sum())
        found.append(Outcome(gates, int(passed.sum()), int(failed.sum()), invalid, used))
    return found


def _in_order(values: Array, within: Array, truth: Array) -> tuple[Gates, NDArray[np.int64]]:
    """Return the launches of each gate, first those that have a value, and which of all launches they are."""
    order = np.argsort(np.isnan(values), axis=1, kind="stable")
    values, within = (np.take_along_axis(each, order, axis=1) for each in (values, within))
    return Gates(values - truth[:, None], np.nan_to_num(within), np.ones(len(values))), order


def _given_up(missing: Flags, left_alone: Flags) -> Flags:
    """Return which launches were not made, since too many in a row before them say nothing."""
    given_up = np.zeros_like(missing)
    lost, in_a_row = (np.zeros(len(missing), int) for _ in range(2))
    for launch in range(missing.shape[1]):
        given_up[:, launch] = (lost >= _LOST) | (in_a_row >= _IN_A_ROW)
        now = missing[:, launch] | given_up[:, launch]
        in_a_row = (in_a_row + 1) * now
        lost = (lost + left_alone[:, launch]) * now
        in_a_row[given_up[:, launch]] = _IN_A_ROW
    return given_up


@dataclass(frozen=True, slots=True)
class _Made:
    """Launches as they were made, block by block: the states read around each, those glanced at, and ln(seconds).

    Glances are in the order of the visits, a last one after them, and ``order`` is each cell's place in it. ``slots``
    are of the two cells that are compared, ``contrasts`` of the medians of their visits.
    """

    readings: Array
    glanced: Array
    order: NDArray[np.int64]
    slots: Array
    contrasts: Array


@dataclass(frozen=True, slots=True)
class _Seen:
    """What readings and glances tell of launches.

    That is the state of each, which blocks are of it, in which of these the machine was steady for ``both`` cells, in
    which share of the glances it was left ``alone``, and whether others disturbed it, or most blocks, or too few are
    quiet.
    """

    homes: Flags
    kept: Flags
    both: Flags
    alone: Array
    is_disturbed: Flags
    is_torn: Flags
    lacks: Flags


def _visited(rng: np.random.Generator, machine: Switching, gates: int, how: _How) -> _Made:
    # A block: a reading, a glance and a visit for each cell, a last glance, a reading.
    launches, blocks = how.budget + CONFIRMING_LAUNCHES, 2 * BLOCKS if how.glances and how.further else BLOCKS
    steps = CELLS * (SLOTS + 1) + 3
    states = _path(rng, machine, gates * launches, blocks * steps).reshape(gates, launches, blocks, steps)
    inside = states[..., 1:-2].reshape(gates, launches, blocks, CELLS, SLOTS + 1)
    order = np.concatenate([places(rng, gates, launches) for _ in range(blocks // BLOCKS)], axis=2)
    # Of the second process glances matter alone.
    slots = np.take_along_axis(inside[..., 1:], order[..., :2, None], axis=3) * np.array(machine.slow[:2])[:, None]
    slots += how.launch / np.sqrt(2) * rng.standard_normal((gates, launches, 1, 2, 1))
    slots += how.visit * rng.standard_normal((*slots.shape[:-1], 1)) + _SLOT * rng.standard_normal(slots.shape)
    medians = np.median(slots, axis=-1)
    glanced = np.concatenate([inside[..., 0], states[..., -2:-1]], axis=-1)
    return _Made(states[..., [0, -1]] * machine.read, glanced, order, slots, medians[..., 0] - medians[..., 1])


def _seen_at_last(made: _Made, how: _How) -> _Seen:
    """Return what is seen of launches, each of which has made further blocks until enough are quiet."""
    most = made.readings.shape[2]
    count = np.full(made.readings.shape[:2], BLOCKS)
    while True:
        seen = _seen(made, count, how)
        goes_on = seen.lacks & (count < most)
        if not goes_on.any():
            return seen
        count = count + 2 * goes_on


def _seen(made: _Made, count: NDArray[np.int64], how: _How) -> _Seen:
    there = np.arange(made.readings.shape[2]) < count[..., None]
    homes = (made.readings.sum(axis=3) * there).sum(axis=2) > count
    kept: Flags = there & (made.readings == homes[..., None, None]).all(axis=-1)
    left = kept.sum(axis=2)
    is_torn = left < how.least * count / BLOCKS
    if not how.glances:
        none = np.zeros_like(is_torn)
        return _Seen(homes, kept, kept, np.ones(none.shape), none, is_torn, none)
    alone = 1 - (made.glanced.mean(axis=3) * there).sum(axis=2) / count
    # As the lower quartile of the glances of a launch is, or of earlier ones where a launch does not read its state.
    usual = (alone < LEFT_ALONE) & made.readings.any()
    as_usual = made.glanced == usual[..., None, None]
    steady = np.take_along_axis(as_usual[..., :-1] & as_usual[..., 1:], made.order, axis=-1) & there[..., None]
    lacks: Flags = np.zeros_like(is_torn)
    for one, other in combinations(range(CELLS), 2):
        lacks |= (kept & steady[..., one] & steady[..., other]).sum(axis=2) < _WANTED
    lacks &= steady.sum(axis=(2, 3)) >= CELLS
    both = kept & steady[..., 0] & steady[..., 1]
    is_disturbed = is_torn | (~steady & there[..., None]).any(axis=(2, 3))
    return _Seen(homes, kept, both, alone, is_disturbed, is_torn, lacks)


def _values(made: _Made, seen: _Seen, how: _How) -> tuple[Array, Array]:
    """Return what each launch says and the variance of that, NaN where it says nothing.

    Blocks show nothing of the scatter of what was left alone, which is the worst that can be for an interval.
    """
    left, steady = seen.kept.sum(axis=2), seen.both.sum(axis=2)
    # Where what was left alone cannot say more three blocks are enough.
    enough = (2 * steady >= left) | seen.homes | seen.is_torn
    by_steady = (steady >= LEAST_BLOCKS) & enough & (seen.homes | (seen.alone >= LEFT_ALONE))
    by_steady |= (steady >= LEAST_BLOCKS) & (steady == left)
    blocks = np.where(seen.is_disturbed[..., None], seen.both & by_steady[..., None], seen.kept)
    if not how.glances:
        blocks = seen.kept & ~seen.is_torn[..., None]
    values, within = trimmed(np.where(blocks, made.contrasts, np.nan))
    by_alone = np.isnan(values) & (seen.alone >= LEFT_ALONE) & ~seen.is_torn & (left >= LEAST_BLOCKS)
    if not how.any_state:
        by_alone &= ~seen.homes
    if not how.glances or how.only_steady or not by_alone.any():
        return values, within
    slots = np.where(seen.kept[by_alone][..., None, None], made.slots[by_alone], np.nan)
    # by_quantile is of the baseline less the compiled cell, which it takes for the first.
    times, alone = np.moveaxis(slots, 2, 1)[:, ::-1], seen.alone[by_alone]
    said = by_quantile(times, QUANTILE * alone)
    values[by_alone] = np.where(are_alike(times, QUANTILE * alone, alone), said, np.nan)
    within[by_alone] = 0.0
    return values, within


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

"""A seeded machine that never was: launches, drift, clocks and spikes with a known truth, to hold verdicts against.

All standard deviations are of ln(seconds). ``simulate`` makes gates whose true value is known exactly; ``first_stage``
and ``two_stages`` judge many thousands of them at once, by the arithmetic that ``pytest_ngraph.stats`` does one by one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy.special import bdtr, bdtrc, stdtr, stdtrit

from pytest_ngraph.spec.cells import Visit
from pytest_ngraph.stats import CONFIRMING_ALPHA, CONFIRMING_LAUNCHES, CONFIRMING_LOOKS, Bound, spending

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Order = Literal["mirrored", "cell by cell", "one after the other"]
# The value of a block from the ln times of its cells, which are the last axis.
OfBlock = Callable[[Array], Array]
# The variances of all gates at one look and their degrees of freedom, to those that the intervals shall have.
Moderation = Callable[[Array, int], tuple[Array, Array]]
_CHUNK = 4_000_000  # batches made at once, for memory's sake


@dataclass(frozen=True, slots=True)
class World:
    """How noisy a machine is; ``launch``, ``visit`` and ``batch`` are multiplied by each gate's own factor.

    ``launch`` is of the difference of two cells' launch effects, which are normal; with ``skewed`` that cell alone has
    any, and they are exponential: most launches a little too fast, a few far too slow. ``unequal`` is the ratio of the
    noisiest gate's factor to the quietest one's. A visit has an odd number of ``batches``, each a spike with
    probability ``spikes``.

    What is common to all cells goes on from launch to launch: AR(1) drift (``drift``, ``memory``), a random walk
    (``walk`` per visit), a clock that is slower by ``slow`` in its second state (entered or left with probability
    ``clock`` per visit), and in each launch with probability ``change`` a change point of standard deviation
    ``jump`` somewhere. Each launch begins afresh with a turbo that is slower by ``fading`` at its end.
    """

    launch: float = 0.01
    visit: float = 0.01
    batch: float = 0.015
    batches: int = 7
    skewed: int | None = None
    unequal: float = 1.0
    drift: float = 0.01
    memory: float = 0.9
    walk: float = 0.002
    clock: float = 0.02
    slow: float = 0.2
    change: float = 0.05
    jump: float = 0.1
    fading: float = 0.0
    spikes: float = 0.05


@dataclass(frozen=True, slots=True)
class Gates:
    """Launch values and their variances by their blocks, gates x launches, and each gate's own factor of noise."""

    values: Array
    within: Array
    noise: Array

    def at(self, truth: float) -> Gates:
        """Return the gates with another true value."""
        return replace(self, values=self.values + truth)

    def only(self, which: Flags) -> Gates:
        """Return some of the gates."""
        return Gates(self.values[which], self.within[which], self.noise[which])


@dataclass(frozen=True, slots=True)
class Verdicts:
    """What became of each gate, and after how many launches; what neither passed nor failed is inconclusive.

    ``fresh`` are the launches that were asked to confirm it, on top of ``launches``.
    """

    passed: Flags
    failed: Flags
    launches: NDArray[np.int64]
    fresh: NDArray[np.int64]

    @property
    def passes(self) -> int:
        """The number of gates that passed."""
        return int(self.passed.sum())

    @property
    def fails(self) -> int:
        """The number of gates that failed."""
        return int(self.failed.sum())


def speedup(ln_seconds: Array) -> Array:
    """Return ln S of each block of the cells baseline, compiled."""
    return np.asarray(ln_seconds[..., 0] - ln_seconds[..., 1])


def simulate(
    rng: np.random.Generator,
    world: World,
    count: int,
    launches: int,
    *,
    blocks: int = 8,
    cells: int = 2,
    of_block: OfBlock = speedup,
    order: Order = "mirrored",
) -> Gates:
    """Return ``count`` gates; the true ln time of every cell is 0, so that of a speed-up is, too."""
    noise = world.unequal ** rng.uniform(-0.5, 0.5, count)
    at_once = max(1, _CHUNK // (launches * blocks * cells * world.batches))
    parts = [
        launch_values(of_block(ln_times(rng, world, noise[start : start + at_once], launches, blocks, cells, order)))
        for start in range(0, count, at_once)
    ]
    values, within = (np.concatenate(part) for part in zip(*parts, strict=True))
    return Gates(values, within, noise)


def ln_times(
    rng: np.random.Generator, world: World, noise: Array, launches: int, blocks: int, cells: int, order: Order
) -> Array:
    """Return what each visit measures, true value 0: gates x launches x blocks x cells."""
    factor = noise[:, None, None, None]
    shape = (len(noise), launches, blocks, cells)
    each = (len(noise), launches, 1, cells)
    if world.skewed is None:
        own = world.launch / np.sqrt(2) * rng.standard_normal(each)
    else:
        own = world.launch * (rng.standard_exponential(each) - 1) * (np.arange(cells) == world.skewed)
    visits = world.visit * rng.standard_normal(shape)
    batches = world.batch * factor[..., None] * rng.standard_normal((*shape, world.batches), np.float32)
    hit = rng.random(batches.shape, np.float32) < world.spikes
    batches[hit] += rng.standard_exponential(int(hit.sum()))
    middle = np.partition(batches, world.batches // 2, axis=-1)[..., world.batches // 2]
    common = in_order(rng, machine(rng, world, len(noise), launches, blocks * cells), shape, order)
    return np.asarray(common + factor * (own + visits) + middle)


def in_order(rng: np.random.Generator, path: Array, shape: tuple[int, int, int, int], order: Order) -> Array:
    """Return what the machine adds to each visit: mirrored, cell by cell in each launch, or all launches of a cell."""
    gates, launches, blocks, cells = shape
    if order == "cell by cell":
        return np.moveaxis(path.reshape(gates, launches, cells, blocks), 2, 3)
    if order == "one after the other":
        return np.moveaxis(path.reshape(gates, cells, launches, blocks), 1, 3)
    # A block visits the cells in a random order, the next block in its reverse.
    place = rng.random((gates, launches, (blocks + 1) // 2, cells)).argsort(axis=-1)
    place = np.repeat(place, 2, axis=2)[:, :, :blocks]
    place[:, :, 1::2] = cells - 1 - place[:, :, 1::2]
    return np.asarray(np.take_along_axis(path.reshape(shape), place, axis=-1))


def machine(rng: np.random.Generator, world: World, gates: int, launches: int, visits: int) -> Array:
    """Return what the machine adds to every cell at each visit of each launch: gates x (launches x visits)."""
    steps = launches * visits
    path = np.cumsum(world.walk * rng.standard_normal((gates, steps)), axis=-1)
    shocks = world.drift * rng.standard_normal((gates, steps))
    flips = rng.random((gates, steps)) < world.clock
    flips[:, 0] = rng.random(gates) < 0.5
    level = shocks[:, 0]
    for step in range(steps):
        path[:, step] += level
        level = world.memory * level + np.sqrt(1 - world.memory**2) * shocks[:, (step + 1) % steps]
    size = np.where(
        rng.random((gates, launches)) < world.change, world.jump * rng.standard_normal((gates, launches)), 0
    )
    jumps = np.zeros((gates, launches, visits))
    np.put_along_axis(jumps, rng.integers(0, visits, (gates, launches, 1)), size[..., None], axis=-1)
    path += world.slow * (np.cumsum(flips, axis=-1) % 2) + np.cumsum(jumps.reshape(gates, steps), axis=-1)
    return np.asarray(path + world.fading * np.tile(np.linspace(0, 1, visits), launches))


def launch_values(blocks: Array) -> tuple[Array, Array]:
    """Return ``stats.launch_value`` of every launch, its blocks being the last axis: values and variances."""
    ordered = np.sort(blocks, axis=-1)
    count = blocks.shape[-1]
    cut = int(0.2 * count)
    left = count - 2 * cut
    middle = ordered[..., cut : count - cut]
    winsorised = np.clip(ordered, middle[..., :1], middle[..., -1:])
    return middle.mean(axis=-1), (count - 1) * winsorised.var(axis=-1, ddof=1) / (left * (left - 1))


def intervals(gates: Gates, q: float, moderated: Moderation | None = None) -> tuple[Array, Array]:
    """Return ``stats.interval`` over all launches of every gate: low and high ends."""
    count = gates.values.shape[1]
    variance = np.maximum(gates.values.var(axis=1, ddof=1), gates.within.mean(axis=1))
    df: Array | float = count - 1
    if moderated is not None:
        variance, df = moderated(variance, count - 1)
    half = stdtrit(df, 1 - q) * np.sqrt(variance / count)
    theta = gates.values.mean(axis=1)
    return theta - half, theta + half


def first_stage(
    gates: Gates, bound: Bound, looks: Sequence[int], levels: Sequence[float], moderated: Moderation | None = None
) -> Verdicts:
    """Look at every gate after each of the looks until it is decided."""
    passed, failed = (np.zeros(len(gates.values), dtype=bool) for _ in range(2))
    launches = np.full(len(gates.values), looks[-1])
    sign = 1 if bound.at_least else -1
    for look, q in zip(looks, levels, strict=True):
        low, high = intervals(Gates(gates.values[:, :look], gates.within[:, :look], gates.noise), q, moderated)
        worst, best = (low, high) if bound.at_least else (-high, -low)
        undecided = ~(passed | failed)
        good = undecided & (worst >= sign * bound.edge)
        bad = undecided & ~good & (best < sign * bound.line)
        launches[good | bad] = look
        passed |= good
        failed |= bad
    return Verdicts(passed, failed, launches, np.zeros_like(launches))


def two_stages(
    gates: Gates, bound: Bound, looks: Sequence[int], levels: Sequence[float], moderated: Moderation | None = None
) -> Verdicts:
    """Judge every gate; a fail, and a pass of a strict bound, stands only if the launches after its look confirm it.

    A fail that is clear stands by itself. Fresh launches are looked at until they confirm it or say the opposite, by
    themselves: only the first stage is ``moderated``.
    """
    first = first_stage(gates, bound, looks, levels, moderated)
    failed, passed = clear_fails(gates, bound, first), np.zeros_like(first.failed)
    fresh = np.zeros_like(first.launches)
    asked = np.flatnonzero((first.failed & ~failed) | (first.passed if bound.is_strict else False))
    confirming = spending(CONFIRMING_ALPHA, CONFIRMING_LOOKS, CONFIRMING_LAUNCHES)
    for look, level in zip(CONFIRMING_LOOKS, confirming, strict=True):
        which = first.launches[asked, None] + np.arange(look)
        again = Gates(gates.values[asked[:, None], which], gates.within[asked[:, None], which], gates.noise[asked])
        said = first_stage(again, bound, (look,), (level,))
        fresh[asked] = look
        failed[asked] |= said.failed & first.failed[asked]
        passed[asked] |= said.passed & first.passed[asked]
        asked = asked[~(said.failed | said.passed)]
    return Verdicts(passed if bound.is_strict else first.passed, failed, first.launches, fresh)


def clear_fails(gates: Gates, bound: Bound, first: Verdicts) -> Flags:
    """Return ``stats.is_clear_fail`` of the gates that failed in the first stage."""
    clear, zone, sign = np.zeros_like(first.failed), abs(bound.edge - bound.line), 1 if bound.at_least else -1
    for look in (3, 4) if zone else ():
        some = first.failed & (first.launches == look)
        values = gates.values[some, :look]
        s = np.sqrt(np.maximum(values.var(axis=1, ddof=1), gates.within[some, :look].mean(axis=1)))
        beyond = sign * (bound.line - values.mean(axis=1))
        chance = stdtr(look - 1, -beyond * np.sqrt(look) / np.maximum(s, 1e-300))
        clear[some] = (beyond >= 3 * zone) & (chance <= 2e-4)
    return clear


def exceeds(count: int, trials: int, rate: float) -> bool:
    """Say whether so many of so many refute that they happen with probability ``rate`` at most (exact, 1 in 1000)."""
    return count > 0 and float(bdtrc(count - 1, trials, rate)) < 1e-3


def falls_short(count: int, trials: int, rate: float) -> bool:
    """Say whether so few of so many refute that they happen with probability ``rate`` at least (exact, 1 in 1000)."""
    return float(bdtr(count, trials, rate)) < 1e-3


def visit(rng: np.random.Generator, *, seconds: float = 2e-3, batches: int = 60, foreign: float = 0.2) -> Visit:
    """Return a visit of single calls whose truth is ``seconds``; a share ``foreign`` of them had to wait for a CPU."""
    quiet = seconds * np.exp(0.01 * rng.standard_normal(batches))
    waits = np.where(rng.random(batches) < foreign, seconds * (0.2 + rng.standard_exponential(batches)), 0.0)
    wall, delay = ((quiet + waits) * 1e9).astype(int), (waits * 1e9).astype(int)
    return Visit(
        calls=1,
        wall_ns=tuple(wall.tolist()),
        cpu_ns=tuple((wall - delay).tolist()),
        run_delay_ns=tuple(delay.tolist()),
        faults=(0,) * batches,
    )

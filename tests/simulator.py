"""A seeded machine that never was: launches, drift, clocks and spikes with a known truth, to hold verdicts against.

All standard deviations are of ln(seconds). A gate compares two cells; its true value is known exactly.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from pytest_ngraph.spec import Visit

Array = NDArray[np.float64]
_CHUNK = 1000  # gates made at once, for memory's sake


@dataclass(frozen=True, slots=True)
class World:
    """How noisy a machine is; ``launch``, ``visit`` and ``batch`` are multiplied by each gate's own factor.

    ``unequal`` is the ratio of the noisiest gate's factor to the quietest one's. What is common to both cells:
    AR(1) drift (``drift``, ``memory``), a random walk (``walk`` per visit), a clock that is slower by ``slow`` in its
    second state (entered or left with probability ``clock`` per visit), and with probability ``change`` a change
    point of standard deviation 0.1 somewhere in a launch. A batch is a spike with probability ``spikes``.
    """

    launch: float = 0.01
    visit: float = 0.01
    batch: float = 0.02
    batches: int = 15
    unequal: float = 1.0
    drift: float = 0.01
    memory: float = 0.9
    walk: float = 0.002
    clock: float = 0.02
    slow: float = 0.2
    change: float = 0.05
    spikes: float = 0.05


def gates(rng: np.random.Generator, world: World, count: int, launches: int, blocks: int = 8) -> Iterator[list[Array]]:
    """Yield for each of ``count`` gates its launches, each an array of block contrasts whose truth is 0."""
    for start in range(0, count, _CHUNK):
        for gate in contrasts(rng, world, min(_CHUNK, count - start), launches, blocks):
            yield list(gate)


def contrasts(rng: np.random.Generator, world: World, count: int, launches: int, blocks: int) -> Array:
    """Return l_identity - l_compiled of each block, true value 0: gates x launches x blocks."""
    noise = world.unequal ** rng.uniform(-0.5, 0.5, (count, 1, 1, 1))
    common = machine(rng, world, (count, launches), 2 * blocks).reshape(count, launches, blocks, 2)
    own = noise * world.launch / np.sqrt(2) * rng.standard_normal((count, launches, 1, 2))
    visit = noise * world.visit * rng.standard_normal((count, launches, blocks, 2))
    shape = (count, launches, blocks, 2, world.batches)
    batch = noise[..., None] * world.batch * rng.standard_normal(shape, np.float32)
    spikes = np.where(rng.random(shape, np.float32) < world.spikes, rng.standard_exponential(shape, np.float32), 0)
    level = own + visit + np.median(batch + spikes, axis=-1)
    # A block visits both cells in a random order, the next block in its reverse.
    swapped = np.repeat(rng.random((count, launches, (blocks + 1) // 2)) < 0.5, 2, axis=2)[:, :, :blocks]
    swapped[:, :, 1::2] ^= True
    seen = np.where(swapped[..., None], common[..., ::-1], common)
    total = level + seen
    return np.asarray(total[..., 0] - total[..., 1])


def machine(rng: np.random.Generator, world: World, shape: tuple[int, int], visits: int) -> Array:
    """Return what the machine adds to every cell at each visit of a launch: gates x launches x visits."""
    path = np.cumsum(world.walk * rng.standard_normal((*shape, visits)), axis=-1)
    shock = np.sqrt(1 - world.memory**2)
    level = world.drift * rng.standard_normal(shape)
    slow = rng.random(shape) < 0.5
    for step in range(visits):
        path[..., step] += level + world.slow * slow
        level = world.memory * level + shock * world.drift * rng.standard_normal(shape)
        slow ^= rng.random(shape) < world.clock
    size = np.where(rng.random(shape) < world.change, 0.1 * rng.standard_normal(shape), 0.0)
    when = rng.integers(0, visits, shape)
    return np.asarray(path + size[..., None] * (np.arange(visits) >= when[..., None]))


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

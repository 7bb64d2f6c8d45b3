"""What this machine can do at the most, and whether a cell's calls are faster than that."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache

from pytest_ngraph import units
from pytest_ngraph.machine import clock

# How many times as many products a core has in a precision as in f32, at the most: matrix units such as AMX.
_UNITS: Mapping[str, float] = {"f32": 1.0, "tf32": 8.0, "f16": 32.0, "bf16": 32.0, "int8": 64.0}
# Measured peaks are those of one library on one day, and a direct convolution may need fewer products than are counted
# (Winograd's: four ninths). An order of magnitude beyond is no matter of skill.
_BEYOND = 10.0
_SIZE, _COPIED_BYTES, _ROUNDS = 1024, 1 << 20, 5


@dataclass(frozen=True, slots=True)
class Roofline:
    """The two limits of a machine: f32 operations (a product and a sum are two) and bytes, each per second."""

    operations_per_second: float
    bytes_per_second: float

    def seconds(self, work: Work, precision: str) -> float:
        """Return what a call needs at the least: its arithmetic or its bytes, whichever takes longer."""
        operations = 2 * work.macs / (self.operations_per_second * _UNITS[precision])
        return max(operations, work.moved_bytes / self.bytes_per_second)


@dataclass(frozen=True, slots=True)
class Work:
    """What a call has to do: multiply-accumulates, and bytes of weights that it has to read.

    Both are lower bounds: what could not be counted is not in them.
    """

    macs: int
    moved_bytes: int


@cache
def measured() -> Roofline:
    """Measure this machine, once in a process: the fastest of a few products of matrices, and of copies in a cache.

    All its CPUs take part in the products, whatever the device is given, and caches are faster than memory: what is
    beyond these figures is beyond any device of the machine but an accelerator.
    """
    import os

    import numpy as np

    left = np.ones((_SIZE, _SIZE), np.float32)
    product = np.empty_like(left)
    source = np.ones(_COPIED_BYTES, np.uint8)
    target = np.empty_like(source)
    multiplying = _fastest(lambda: np.matmul(left, left, out=product))
    copying = _fastest(lambda: np.copyto(target, source))
    return Roofline(2 * _SIZE**3 / multiplying, _COPIED_BYTES / copying * (os.cpu_count() or 1))


def _fastest(work: Callable[[], object]) -> float:
    def once() -> float:
        began = clock.seconds()
        work()
        return clock.seconds() - began

    return max(min(once() for _ in range(_ROUNDS)), 1e-9)


def objection(call_ns: float, work: Work, precision: str, roofline: Roofline) -> str:
    """Return a warning of calls an order of magnitude faster than the machine can be, or nothing."""
    least = roofline.seconds(work, precision)
    if call_ns * 1e-9 * _BEYOND >= least:
        return ""
    return (
        f"a call takes {units.seconds(call_ns * 1e-9)} where {work.macs:.3g} multiply-accumulates and "
        f"{work.moved_bytes:.3g} bytes of weights take {units.seconds(least)} at the roofline of this machine "
        f"({roofline.operations_per_second * 1e-9:.3g} GFLOP/s in f32, {roofline.bytes_per_second * 1e-9:.3g} GB/s): "
        "is the work left out?"
    )

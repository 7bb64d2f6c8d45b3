"""What a compression left of a network, and which speed-up that leads one to expect."""

from __future__ import annotations

from dataclasses import dataclass

from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.stack.cells import nominal_ratio
from pytest_ngraph.spec.cells import DENSE, Workload

# How many times fewer bits a number has.
_FEWER_BITS = {"f16": 2.0, "bf16": 2.0, "int8": 4.0}


@dataclass(frozen=True, slots=True)
class Sizes:
    """Parameters and multiply-accumulates of a network before and after, ``nonzero`` being the parameters left."""

    dense_parameters: int
    dense_macs: int
    nonzero: int
    macs: int


def sizes_of(report: CellReport) -> Sizes | None:
    """Return what was achieved on the network of a cell, None where its record does not say."""
    record = report.record or report.failure
    counted = dict(getattr(record, "achieved", ()))
    if not {"parameters", "macs", "dense_parameters", "dense_macs"} <= counted.keys():
        return None
    nonzero = counted["parameters"] - counted.get("zeros", 0)
    return Sizes(counted["dense_parameters"], counted["dense_macs"], nonzero, counted["macs"])


def fewer_bits(workload: Workload) -> float:
    """Return how many times fewer bits a cell's numbers have than those of f32."""
    return _FEWER_BITS.get(workload.precision.partition("[")[0], 1.0)


def expected(sizes: Sizes | None, workload: Workload) -> tuple[float | None, float | None]:
    """Return the speed-up to expect of a cell from MACs, and from the bytes of parameters that are not zero.

    The first is what is left to multiply: masked weights are multiplied as well. The second is what the second paper
    expects, 20 where 95 % are pruned. None where nothing is known of it.
    """
    bits = fewer_bits(workload)
    if str(workload.value("optimize") or DENSE) == DENSE:
        return None, bits if bits > 1 else None
    if sizes is None:
        return None, None
    return sizes.dense_macs / max(1, sizes.macs), bits * sizes.dense_parameters / max(1, sizes.nonzero)


def share_gone(sizes: Sizes | None, workload: Workload, compression: str) -> float | None:
    """Return which share of the bytes of parameters is gone, as asked for where it is not known how much it was."""
    if sizes is None:
        return nominal_ratio(compression)
    return 1 - sizes.nonzero / (sizes.dense_parameters * fewer_bits(workload))

"""In which order a launch visits its cells, and how long it stays at each."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ngraph.load.queues import window_of
from pytest_ngraph.load.scenarios import rate_of, slots_of
from pytest_ngraph.spec.cells import Cell, Protocol, Workload
from pytest_ngraph.worker.timing import calls_per_batch, visit_seconds

_LONGEST_SHARED_SECONDS = 0.15


@dataclass(frozen=True, slots=True)
class Stay:
    """How long a visit lasts: batches of ``calls`` calls for ``seconds``, and at least so many ``batches``.

    Of a cell under load the first ``discard_seconds`` of these seconds are not looked at.
    """

    calls: int
    seconds: float
    batches: int
    discard_seconds: float = 0.0


def blocks_in(call_seconds: Mapping[Cell, float], protocol: Protocol) -> int:
    """Return how many blocks a launch has: fewer of long ones, since what differs between launches outweighs them."""
    lengths = stays(call_seconds, protocol)
    seconds = sum(
        max(stay.seconds, stay.batches * stay.calls * call_seconds[cell])
        + max(protocol.discard_seconds, call_seconds[cell])
        for cell, stay in lengths.items()
    )
    return min(protocol.blocks, protocol.long_blocks) if seconds > protocol.long_block_seconds else protocol.blocks


def block_orders(cells: Sequence[Cell], protocol: Protocol, seed: int, blocks: int | None = None) -> list[list[Cell]]:
    """Return the order of each block: pairs of a random permutation and its reverse, or always the given order."""
    count = protocol.blocks if blocks is None else blocks
    if protocol.order != "mirrored":
        return [list(cells) for _ in range(count)]
    draw = random.Random(f"order {seed}")  # noqa: S311 - order, not secrets
    orders: list[list[Cell]] = []
    for block in range(count):
        orders.append(orders[-1][::-1] if block % 2 else draw.sample(cells, len(cells)))
    return orders


def stays(call_seconds: Mapping[Cell, float], protocol: Protocol) -> dict[Cell, Stay]:
    """Return how long a visit to each cell lasts: equally long for all cells of one workload, up to a limit.

    So what comes and goes meets all of them alike. Beyond that more of it costs more than it gives. Under load it is as
    long as the queue needs (``load.queues``), whatever the protocol.

    A protocol without ``visit_seconds`` counts calls instead, and takes exactly ``visit_calls`` of them.
    """
    loaded = {cell: stay for cell, seconds in call_seconds.items() if (stay := under_load(cell, seconds)) is not None}
    if loaded:
        others = {cell: seconds for cell, seconds in call_seconds.items() if cell not in loaded}
        return {**stays(others, protocol), **loaded}
    calls = {cell: calls_per_batch(seconds, protocol) for cell, seconds in call_seconds.items()}
    if protocol.visit_seconds <= 0:
        return {cell: Stay(n, 0.0, math.ceil(protocol.visit_calls / n)) for cell, n in calls.items()}
    own = {cell: visit_seconds(seconds, protocol) for cell, seconds in call_seconds.items()}
    longest: dict[Workload, float] = {}
    for cell, seconds in own.items():
        longest[cell.workload] = max(seconds, longest.get(cell.workload, 0.0))
    return {
        cell: Stay(n, max(own[cell], min(longest[cell.workload], _LONGEST_SHARED_SECONDS)), 1)
        for cell, n in calls.items()
    }


def under_load(cell: Cell, call_seconds: float) -> Stay | None:
    """Return how long a visit to a cell lasts whose calls arrive by themselves, None where they do not."""
    rate = rate_of(cell.workload.scenario)
    if rate is None:
        return None
    window = window_of(rate, call_seconds, slots_of(cell))
    return Stay(1, window.discard_seconds + window.seconds, 1, window.discard_seconds)

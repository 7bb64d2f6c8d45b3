"""How long gates take with fewer or more blocks a launch, and with as many as Kalibera and Jones' formula says."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from benchmarks.pairs import finish, options, print_table, say
from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.spec.cells import PROTOCOLS
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, looks_for, spending
from tests.support.launch_worlds import BOUND, TOLERANCE, TOLERANCES
from tests.support.simulator import Gates, launch_values, two_stages

# Scatter from launch to launch, and from block to block within one: the first two are ONNX Runtime's and eager
# PyTorch's in benchmarks/results/ingredients.json.
WORLDS = ((0.003, 0.016), (0.009, 0.034), (0.015, 0.034), (0.02, 0.02), (0.005, 0.08))
# What a launch costs beside its blocks, in blocks: as the issue of this question had it, and as it is now (resnet18 at
# 224 px, batches 1 and 8, in three compilers: 17 s of starting, compiling and warming up, 1.7 s a block).
RATIOS = (3.5, 10.0)
BLOCKS = (4, 6, 8, 12)
TRUTHS = (0.5, 0.0, -1.0)
USUAL, BUDGET, SEED = PROTOCOLS["gate"].blocks, 16, 3
# Regressions of the tolerance that must be found, and how much of its time a gate must be spared to be worth it.
POWER, WORTH = 0.95, 0.05


@dataclass(frozen=True, slots=True)
class Row:
    """What gates of a world take with so many blocks: launches at each truth, and how many regressions are found."""

    blocks: int
    launches: Mapping[float, float]
    found: float

    def cost(self, ratio: float) -> float:
        """Return the mean time of a gate in blocks, over the truths, where a launch costs so many beside its own."""
        return (ratio + self.blocks) * sum(self.launches.values()) / len(self.launches)


def by_formula(launch: float, block: float, ratio: float) -> float:
    """Return the blocks that give the least variance in a given time (Kalibera and Jones 2013, section 6.3)."""
    return math.sqrt(ratio) * block / launch


def row_of(launch: float, block: float, blocks: int, gates: int) -> Row:
    """Judge gates whose launches and blocks scatter by so much."""
    looks = looks_for(BUDGET, TOLERANCE)
    levels = spending(ALPHA, looks, BUDGET)
    rng = np.random.default_rng(SEED)
    own = launch * rng.standard_normal((gates, BUDGET + CONFIRMING_LAUNCHES, 1))
    values, within = launch_values(own + block * rng.standard_normal((*own.shape[:2], blocks)))
    launches, found = {}, 0.0
    for truth in TRUTHS:
        verdicts = two_stages(Gates(values + truth * TOLERANCES, within, np.ones(gates)), BOUND, looks, levels)
        launches[truth] = float((verdicts.launches + verdicts.fresh).mean())
        if truth == -1.0:
            found = verdicts.fails / gates
    return Row(blocks, launches, found)


def choice(rows: Sequence[Row], blocks: float) -> Row:
    """Return the row whose number of blocks is next to a wanted one."""
    return min(rows, key=lambda row: abs(math.log(row.blocks / blocks)))


def main(arguments: Sequence[str] | None = None) -> None:
    """Judge all worlds with each number of blocks, print the table, and say what the formula would have cost."""
    parser = options(__doc__)
    parser.add_argument("--gates", type=int, default=10_000, help="gates in each world")
    given = parser.parse_args(arguments)
    table, missed, figures = [], [], []
    for launch, block in WORLDS:
        rows = [row_of(launch, block, blocks, given.gates) for blocks in BLOCKS]
        usual = next(row for row in rows if row.blocks == USUAL)
        for ratio in RATIOS:
            wanted = by_formula(launch, block, ratio)
            taken = choice(rows, wanted)
            name = f"{100 * launch:g} % and {100 * block:g} %, {ratio:g}"
            shares = [row.cost(ratio) / usual.cost(ratio) for row in rows]
            table.append(
                [
                    name,
                    *(f"{share:.2f} ({100 * row.found:.1f} %)" for row, share in zip(rows, shares, strict=True)),
                    f"{wanted:.1f}",
                ]
            )
            share = taken.cost(ratio) / usual.cost(ratio)
            if share > 1 - WORTH or taken.found < POWER:
                missed.append(f"{name}: {taken.blocks} blocks take {share:.2f}, find {100 * taken.found:.1f} %")
        figures.append({"launch": launch, "block": block, "rows": rows})
        say(f"{100 * launch:g} % and {100 * block:g} %")
    columns = [
        "scatter of launches and of blocks, cost of a launch in blocks",
        *(f"time with {blocks} blocks against {USUAL} (found at the edge)" for blocks in BLOCKS),
        "blocks by the formula",
    ]
    print_table(columns, table)
    raw: dict[str, Any] = {"gates": given.gates, "seed": SEED, "worlds": figures}
    finish(missed, given.json, raw)


if __name__ == "__main__":
    main()

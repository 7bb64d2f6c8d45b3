"""Why a launch has eight blocks: as many as a formula says would slow most gates down, and fewer miss what is noisy.

``benchmarks/blocks.py`` prints the whole table.
"""

from __future__ import annotations

import pytest

from benchmarks.blocks import RATIOS, Row, by_formula, choice, row_of

GATES = 3_000


def rows(launch: float, block: float) -> dict[int, Row]:
    return {blocks: row_of(launch, block, blocks, GATES) for blocks in (4, 6, 8, 12)}


@pytest.mark.parametrize("ratio", RATIOS)
def test_the_formula_asks_for_more_blocks_where_they_cost_time(ratio: float) -> None:
    """Three launches are the least, whatever their blocks say: the formula knows nothing of looks."""
    found = rows(0.003, 0.016)
    assert by_formula(0.003, 0.016, ratio) > 8
    chosen = choice([*found.values()], by_formula(0.003, 0.016, ratio))
    assert chosen.blocks == 12
    assert chosen.cost(ratio) > 1.1 * found[8].cost(ratio)


def test_fewer_blocks_miss_regressions_where_blocks_are_noisy() -> None:
    found = rows(0.005, 0.08)
    assert found[8].found > 0.94
    assert found[6].found < 0.88
    assert found[4].found < 0.68


def test_what_fewer_blocks_save_of_a_launch_as_it_is() -> None:
    found = rows(0.009, 0.034)
    assert found[6].cost(10.0) / found[8].cost(10.0) == pytest.approx(0.945, abs=0.02)
    assert min(row.found for row in found.values()) > 0.99

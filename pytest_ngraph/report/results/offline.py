"""What an offline run has judged, which no store keeps: written by the workers of pytest-xdist, and put together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict

from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.store.codec import cell_from_text, cell_to_text, from_text, to_text
from pytest_ngraph.store.rows import VerdictRow

# Cells with their evidence, and what each is compared with.
Judged = tuple[Mapping[Cell, str], Mapping[Cell, Cell]]


def written(verdicts: Sequence[VerdictRow], judged: Judged | None) -> str:
    """Write what a process has judged, and of which cells, as one text."""
    cells, against = judged if judged is not None else ({}, {})
    return to_text(
        {
            "verdicts": [asdict(row) for row in verdicts],
            "cells": [[cell_to_text(cell), key] for cell, key in cells.items()],
            "against": [[cell_to_text(cell), cell_to_text(other)] for cell, other in against.items()],
        }
    )


def together(
    verdicts: Iterable[VerdictRow], judged: Judged | None, texts: Sequence[str]
) -> tuple[list[VerdictRow], Judged | None]:
    """Return what this process and others have judged, and of which cells: None where nothing was asked for.

    A claim that was judged again, in a re-run of its test, counts as it was judged last, as it does in a store.
    """
    rows = list(verdicts)
    cells: dict[Cell, str] = dict(judged[0]) if judged is not None else {}
    against: dict[Cell, Cell] = dict(judged[1]) if judged is not None else {}
    for text in texts:
        others = from_text(text)
        rows += [VerdictRow(**row) for row in others["verdicts"]]
        cells |= {cell_from_text(cell): key for cell, key in others["cells"]}
        against |= {cell_from_text(cell): cell_from_text(other) for cell, other in others["against"]}
    last = {(row.nodeid, row.claim): row for row in rows}
    return list(last.values()), (cells, against) if texts or judged is not None else None

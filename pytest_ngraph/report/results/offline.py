"""What an offline run has judged, which no store keeps: put together of all processes, and which stored run has it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.store.codec import cell_from_text, cell_to_text, from_text, to_text
from pytest_ngraph.store.rows import RunRow, VerdictRow

if TYPE_CHECKING:
    from pytest_ngraph.store.sqlite import Store

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


def latest_with(store: Store, cells: Mapping[Cell, str] | None, protocol: str, seed: int) -> RunRow | None:
    """Return the run by a protocol and from a seed that has the evidence of most of these cells, of several the latest.

    None where no run has that of any. Without ``cells`` it is the latest of all runs by the protocol and from the seed.
    """
    runs = [run for run in reversed(store.runs()) if (run.protocol, run.seed) == (protocol, seed)]
    if cells is None:
        return runs[0] if runs else None
    # Evidence counts also where a model lay in another place, which makes another cell.
    wanted = set(cells.values())
    best, most = None, 0
    for run in runs:
        has = len(wanted.intersection(key for _, key in store.cells(run.id)))
        if has > most:
            best, most = run, has
        if most == len(wanted):
            break
    return best


def is_whole(store: Store, run: RunRow, judged: Judged) -> bool:
    """Return whether the evidence of what was judged is all that a run has, but for processes that control it."""
    return _evidence(judged[0].items()) == _evidence(store.cells(run.id))


def _evidence(cells: Iterable[tuple[Cell, str]]) -> set[str]:
    return {key for cell, key in cells if not cell.replica}

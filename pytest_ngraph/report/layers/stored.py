"""What is kept of what ran in a run's cells: each that was explained, held against its baseline where that was, too."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ngraph.errors import StoreError
from pytest_ngraph.explain.compare import Comparison
from pytest_ngraph.explain.explanation import Explanation
from pytest_ngraph.quantities.explained import as_measured, compared, measured_call
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.results.cells import cpus_of
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.report.results.verdicts import verdicts_by_cell
from pytest_ngraph.spec.cells import Cell, protocol_of
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import RunRow, VerdictRow
from pytest_ngraph.store.sqlite import Store

# On the page of a run; those with such claims come first.
_MOST_CELLS = 16
_OPEN_FIRST = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE)


@dataclass(frozen=True, slots=True)
class Explained:
    """A cell with what ran in it, ``at`` which time that was found, and what its launches measured.

    ``compared`` holds it against its baseline, None where it has none or where that was not explained.
    """

    cell: Cell
    explanation: Explanation
    at: str
    measured: Estimate | None
    baseline: Cell | None
    compared: Comparison | None


@dataclass(frozen=True, slots=True)
class Layers:
    """The explained cells that the page of a run shows, how many more there are, and how many cannot be read."""

    shown: Sequence[Explained] = ()
    left_out: int = 0
    unreadable: int = 0


def run_layers(store: Store, run: RunRow, verdicts: Sequence[VerdictRow]) -> Layers:
    """Return what ran in the cells of a run that were explained with the evidence that the run has of them.

    Those whose claims went worst come first, then those that can be compared, and only so many are read.
    """
    explained = store.explained_evidence()
    if not explained:
        return Layers()
    evidence = {cell: key for cell, key in store.cells(run.id) if key in explained}
    baselines, worst = store.baselines(run.id), verdicts_by_cell(verdicts)

    def place(cell: Cell) -> tuple[object, ...]:
        is_open = worst.get(cell.label) in _OPEN_FIRST
        return not is_open, baselines.get(cell) not in evidence, natural(cell.label)

    cells = sorted((cell for cell in evidence if not cell.replica), key=place)
    shown = cells[:_MOST_CELLS]
    wanted = [*shown, *(baselines[cell] for cell in shown if baselines.get(cell) in evidence)]
    found = {cell: _read(store, evidence[cell]) for cell in dict.fromkeys(wanted)}
    known = {cell: one for cell, one in found.items() if one is not None}
    source = _source(store, run, {cell: evidence[cell] for cell in known})
    return Layers(
        [_explained(cell, known, baselines.get(cell), source) for cell in shown if cell in known],
        len(cells) - len(shown),
        sum(cell not in known for cell in shown),
    )


def _read(store: Store, key: str) -> tuple[Explanation, str] | None:
    """Return what is kept and since when, or None where it is nothing that this package has written."""
    kept = store.explanation(key)
    if kept is None:
        return None
    try:
        found = Explanation.from_json(kept[0])
        return (found, kept[1]) if _is_sound(found) else None
    except (StoreError, OverflowError):
        return None


def _is_sound(found: Explanation) -> bool:
    """Tell whether texts are texts and times are times: a store may be anybody's."""
    texts = [found.how, found.names, *found.notes]
    for node in found.nodes:
        texts += [node.name, node.kind, node.operator, node.provider, node.kernel, node.precision, node.added]
        texts += [*node.parts, *node.layers]
    seconds = [found.plain_seconds, found.profiled_seconds, found.nodes_seconds]
    seconds += [node.seconds for node in found.nodes if node.seconds is not None]
    is_time = all(math.isfinite(number) and number >= 0 for number in seconds)
    return is_time and all(isinstance(text, str) for text in texts)


def _source(store: Store, run: RunRow, evidence: Mapping[Cell, str]) -> Stored:
    """Return what launches have measured of these cells."""
    timed = {id(launch): launch for group in store.related(evidence) for launch in group.timed}
    # The time of a call is the same on however many CPUs.
    cpus = cpus_of(run)(next(iter(evidence)).device) if evidence else 1
    return Stored([*timed.values()], [], protocol_of(run.protocol), cpus)


def _explained(
    cell: Cell, known: Mapping[Cell, tuple[Explanation, str]], baseline: Cell | None, source: Stored
) -> Explained:
    found, at = known[cell]
    held = None
    if baseline is not None and baseline != cell and baseline in known:
        held = compared(source, (baseline, cell), (known[baseline][0], found))
    return Explained(cell, as_measured(found, cell), at, measured_call(source, cell), baseline, held)

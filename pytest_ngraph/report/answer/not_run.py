"""What has no time: by compiler and model, what became of it and why."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pytest_ngraph import units
from pytest_ngraph.quantities.compared import NOT_TOLD_APART
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.spec.sides import cells_beside
from pytest_ngraph.store.rows import LeftOut
from pytest_ngraph.texts.shown import excerpt, one_line

FELL_BACK, SKIPPED = "fell back", "skipped"
# Of which only what outputs are worth was asked: that needs no launch.
NOT_TIMED = "not timed"


@dataclass(frozen=True, slots=True)
class NotRun:
    """Cells of a compiler and a model that have no time, or not by that compiler alone, for one reason.

    ``which`` says of how many of its cells, such as ``2 of 3 cells: batch 4, 8``. ``numbers`` are their places among
    the reports.
    """

    device: str
    compiler: str
    model: str
    outcome: str
    reason: str
    cells: int
    of: int
    batches: tuple[int, ...]
    numbers: tuple[int, ...] = ()

    @property
    def which(self) -> str:
        """Say of which cells."""
        if self.cells == self.of:
            return "all cells" if self.of > 1 else "its only cell"
        return f"{self.cells} of {units.count(self.of, 'cell')}: batch {', '.join(map(str, self.batches))}"


def outcome_of(report: CellReport) -> tuple[str, str]:
    """Return what became of a cell and why. A cell without any launch is not measured, or only evaluated."""
    record = report.failure or report.record
    if record is not None and record.outcome is Outcome.OK and record.outputs_told_apart is False:
        return report.outcome or "not measured", NOT_TOLD_APART
    if record is not None and record.outcome is Outcome.OK and record.implausible:
        return report.outcome or "not measured", excerpt(record.implausible)
    reason = report.invalid if record is None else record.reason if record.outcome is not Outcome.OK else ""
    return report.outcome or (NOT_TIMED if report.estimates else "not measured"), excerpt(reason)


def not_run(reports: Sequence[CellReport], left_out: Sequence[LeftOut] = ()) -> list[NotRun]:
    """Return what could not run, by device, compiler and model in their natural order.

    ``left_out`` is what was asked for and is not installed: no cell of it is stored. What another side could not run is
    no fault of this one: the claims that compare the two say it.
    """
    beside, measured = cells_beside([report.cell for report in reports]), {report.cell.label for report in reports}
    every: dict[tuple[str, str, str], int] = {}
    found: dict[tuple[str, str, str], dict[tuple[str, str], list[int]]] = {}
    for number, report in enumerate(reports):
        cell = report.cell
        if cell in beside:
            continue
        place = (cell.device, str(cell.compiler), cell.workload.model.text)
        every[place] = every.get(place, 0) + 1
        outcome, reason = outcome_of(report)
        if outcome == NOT_TIMED:
            continue
        if outcome == Outcome.OK and not (reason := _fell_back(report)):
            continue
        outcome = FELL_BACK if outcome == Outcome.OK else outcome
        # What differs in numbers only, such as addresses, is shown for each.
        alike = found.setdefault(place, {}).setdefault((outcome, one_line(reason)), [])
        alike.append(number)
    skipped = []
    for one in left_out:
        place = (one.device, one.compiler, one.model)
        # Those of a resumed run that were installed in between, or of another process that has them, were measured.
        lacking = len(set(one.labels) - measured) if one.labels else one.cells * (place not in every)
        if lacking:
            skipped.append(NotRun(*place, SKIPPED, excerpt(one.reason), lacking, lacking, ()))
    tried = [
        NotRun(*place, outcome, reason, len(numbers), every[place], _batches(reports, numbers), tuple(numbers))
        for place, kinds in found.items()
        for (outcome, reason), numbers in kinds.items()
    ]
    return sorted([*tried, *skipped], key=lambda one: tuple(map(natural, (one.device, one.compiler, one.model))))


def _batches(reports: Sequence[CellReport], numbers: Sequence[int]) -> tuple[int, ...]:
    return tuple(sorted({reports[number].cell.workload.batch for number in numbers}))


def _fell_back(report: CellReport) -> str:
    """Return which providers shared the nodes of the graph, where another than the wanted one took some."""
    placement: Mapping[str, str] = dict(report.record.placement) if report.record is not None else {}
    nodes = placement.get("nodes", "")
    return f"nodes {nodes}" if "," in nodes else ""

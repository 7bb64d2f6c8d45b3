"""What stands under the table of a device: what really ran, in which state of the machine, and what changed."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.quantities.compared import figures
from pytest_ngraph.spec.achieved import in_words
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.spec.sides import NOT_THERE, UNCHANGED, other_sides
from pytest_ngraph.spec.states import is_same_state

if TYPE_CHECKING:
    from pytest_ngraph.report.results.cells import CellReport
    from pytest_ngraph.spec.cells import CompileRecord
    from pytest_ngraph.store.rows import VerdictRow

_INDENT = "    "
_ALIKE = "without a difference that was shown"


def placement_lines(reports: Sequence[CellReport], width: int) -> list[str]:
    """Return what really ran, a line for each compiler and placement: provider, precision as read back, threads."""
    seen: dict[tuple[str, str], None] = {}
    for report in reports:
        if report.record is not None and report.record.placement:
            facts = dict(report.record.placement)
            threads = facts.get("threads", "?")
            ran = f"{facts.get('provider', '?')}, {facts.get('precision', '?')}"
            ran += f", {threads} thread{'' if threads == '1' else 's'}"
            ran += f", {facts['in_flight']} in flight" if "in_flight" in facts else ""
            ran += f", {facts['algorithm']}" if "algorithm" in facts else ""
            ran += f", version {facts['version']}" if "version" in facts else ""
            changed = facts.get("inputs_changed")
            ran += f", each call on what the one before left in {changed}" if changed else ""
            of = f" of {report.cell.side}" if report.cell.side else ""
            seen.setdefault((f"{report.cell.compiler}{of}", ran))
    lines = (f"  ran {compiler}: {ran}" for compiler, ran in seen)
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def output_lines(reports: Sequence[CellReport], width: int) -> list[str]:
    """Return how well outputs agree where that is not a matter of course, a line for each cell.

    That is in int8, where they are held to a direction only, and where the outputs of other inputs would have passed.
    """
    lines = []
    for report in reports:
        record = report.record
        if record is None or record.outcome is Outcome.MISMATCH or not (said := figures(record)):
            continue
        cell = report.cell
        if cell.workload.base_precision == "int8" or record.outputs_told_apart is False:
            lines.append(f"  outputs of {cell.compiler} on {cell.workload.label}: {said}{_quantised(record)}")
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def achieved_lines(reports: Sequence[CellReport], width: int) -> list[str]:
    """Return what was done to networks before any compiler saw them, a line for each network and what it was."""
    seen: dict[str, None] = {}
    for report in reports:
        workload = report.cell.workload
        if report.record is not None and report.record.achieved:
            network = " ".join([workload.model.text, *workload.axis_labels("batch", "precision", "scenario")])
            seen.setdefault(f"  {network}: {in_words(report.record.achieved)}")
    return [part for line in seen for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def padding_lines(reports: Sequence[CellReport], width: int) -> list[str]:
    """Return how many of the tokens that networks were fed were padding, a line for each network and share of it."""
    seen: dict[str, None] = {}
    for report in reports:
        share = dict(report.record.placement).get("padding", "") if report.record is not None else ""
        # All tokens count where nothing is masked.
        if any(not each.startswith("0.0 %") for each in share.split(", ") if each):
            seen.setdefault(f"  padding of {report.cell.workload.label}: {share}")
        if report.record is not None and (facts := dict(report.record.placement)).get("computed_per_asked"):
            said = f"{facts['computed_per_asked']} {facts['buckets']}"
            seen.setdefault(f"  computed for each token of {report.cell.workload.label}: {said}")
    return [part for line in seen for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def _quantised(record: CompileRecord) -> str:
    """Return how much of a cell is in int8 and what it was calibrated on, or nothing where that is not known."""
    facts = dict(record.placement)
    if "int8_nodes" not in facts:
        return ""
    return f"; {facts['int8_nodes']} layers in int8 by {facts['quantised_by']}, calibrated on {facts['calibrated_on']}"


def change_lines(reports: Sequence[CellReport], verdicts: Sequence[VerdictRow], width: int) -> list[str]:
    """Return what became faster and slower than on the other side, what is new and what is the same on both.

    A line for each side and direction. Where an interval holds 1 nothing is said to have changed, and that it has not
    is not said either.
    """
    found: dict[tuple[str, str], list[str]] = {}
    others = other_sides([report.cell for report in reports])
    failed = {report.cell: report.failure for report in reports if report.failure is not None}
    for report in reports:
        other, estimate = others.get(report.cell), report.estimates.get("change")
        if other is None:
            continue
        named, failure = f"{report.cell.compiler} {report.cell.workload.label}", failed.get(other)
        if estimate is not None:
            how = "faster" if estimate.low > 1 else "slower" if estimate.high < 1 else _ALIKE
            found.setdefault((other.side, how), []).append(f"{named} {estimate}")
        elif failure is not None:
            how = "new" if failure.reason.startswith(NOT_THERE) else "without a time there"
            found.setdefault((other.side, how), []).append(named)
    for row in verdicts:
        # Once, whatever number of claims is about it.
        if row.extra.get("unmeasured") and row.extra.get("reason") == UNCHANGED:
            cells = found.setdefault((str(row.extra["side"]), "unchanged"), [])
            cells += [str(row.extra["subject"])] if row.extra["subject"] not in cells else []
    lines = []
    for (side, how), cells in found.items():
        which = "" if how in (_ALIKE, "unchanged") else f": {'; '.join(cells)}"
        lines.append(f"  against {side}: {units.count(len(cells), 'cell')} {how}{which}")
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def implausible_lines(reports: Sequence[CellReport], width: int) -> list[str]:
    """Return a warning for each cell whose calls were faster than the machine can be."""
    lines = (
        f"  warning: {report.cell.compiler} on {report.cell.workload.label}: {report.record.implausible}"
        for report in reports
        if report.record is not None and report.record.implausible
    )
    return [part for line in lines for part in textwrap.wrap(line, width, subsequent_indent=_INDENT)]


def state_lines(reports: Sequence[CellReport]) -> list[str]:
    """Return in which states of the machine the cells were measured, a line for each. Nothing where it reports none."""
    counts: Counter[str] = Counter()
    for report in reports:
        if report.state:
            # Readings of one state differ a little; it goes by its first name.
            counts[next((known for known in counts if is_same_state(known, report.state)), report.state)] += 1
    return [f"  state {state}: {units.count(count, 'cell')}" for state, count in counts.items()]

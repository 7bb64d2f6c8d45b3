"""Whether a launch counts, and for which of its cells: the one rule of all who measure launches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_ngraph import units
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine import modes
from pytest_ngraph.spec.cells import LEAST_BLOCKS, Cell, CompileRecord, Outcome, Reading, Visit
from pytest_ngraph.spec.states import away, why_changed, why_disturbed
from pytest_ngraph.spec.states.steadiness import Around, Steadiness, seen, unsteady
from pytest_ngraph.stats.visits import clean_batches, summarise

Snapshots = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
# A cell whose minor faults a call differ by more between visits has two speeds.
_STEADY_FAULTS = 100


@dataclass(slots=True)
class Counting:
    """What a launch measured, as far as it says whether it counts. Its sink adds to it as the samples arrive.

    Once ``why_not`` was asked, ``shared`` says how others used the machine, where that leaves only the visits that did
    not have to wait.
    """

    records: dict[Cell, CompileRecord] = field(default_factory=dict)
    readings: list[tuple[Reading, Reading] | None] = field(default_factory=list)
    shared: str = ""
    # How long the host had a CPU in each visit, in nanoseconds, by cell and block, where it had any.
    stolen: dict[tuple[Cell, int], int] = field(default_factory=dict)
    # What is usual on the machine, where that is known (``spec.states.steadiness``).
    crowding: float | None = None
    # Of each visit its cell, its block, and whether it counts by the usual rule and by that for shared launches.
    _visits: list[tuple[Cell, int, bool, bool]] = field(default_factory=list)
    _around: dict[tuple[Cell, int], Sequence[Around]] = field(default_factory=dict)
    _faults: dict[Cell, list[float]] = field(default_factory=dict)
    _has_run_delay: bool = False

    def visited(self, cell: Cell, block: int, visit: Visit) -> None:
        """Take a visit to a cell in a block."""
        summary = summarise(visit)
        is_usable = summary.ln_seconds is not None
        self._visits.append((cell, block, is_usable, is_usable and bool(clean_batches(visit, shared=True))))
        self._around[cell, block] = visit.around
        if visit.stolen_ns:
            self.stolen[cell, block] = visit.stolen_ns
        self._has_run_delay = self._has_run_delay or bool(visit.run_delay_ns)
        if summary.faults_per_call is not None:
            self._faults.setdefault(cell, []).append(summary.faults_per_call)

    def unsteady(self) -> frozenset[tuple[Cell, int]]:
        """Return the visits, by cell and block, around which the machine was not steady (docs/measuring.md, step 6)."""
        return unsteady(self._around, self.readings, self.crowding)

    def seen(self) -> Steadiness:
        """Return what the launch itself shows of the machine."""
        return seen(self.readings, self._around)

    def unstable(self) -> dict[Cell, CompileRecord]:
        """Return the cells that get their memory from the system in some visits only: they have two speeds.

        They are unstable (docs/measuring.md, step 4), in the records, too.
        """
        found = {
            cell: replace(
                self.records[cell],
                outcome=Outcome.UNSTABLE,
                reason=f"{min(faults):.0f} to {max(faults):.0f} minor faults a call, depending on the visit",
            )
            for cell, faults in self._faults.items()
            if self.records[cell].outcome is Outcome.OK and max(faults) - min(faults) > _STEADY_FAULTS
        }
        self.records.update(found)
        return found

    def _has_steady_blocks(self) -> bool:
        """Return whether glances around each visit show blocks enough of some cell to be in one state and steady."""
        if not all(self._around.values()):
            return False
        outside, disturbed = away(self.readings), self.unsteady()
        left = Counter(
            cell
            for cell, block, is_usable, _ in self._visits
            if is_usable and block not in outside and (cell, block) not in disturbed
        )
        return max(left.values(), default=0) >= LEAST_BLOCKS

    def why_not(self, snapshots: Snapshots, cpus: int, mode: object = None) -> str:
        """Return why the launch must not count, or nothing (docs/measuring.md, step 6).

        ``snapshots`` are of the machine when the launch began, before its first visit, and at its end. It has so many
        ``cpus``, and its power mode was this ``mode`` in the first launch that counts. A launch that others disturbed
        counts with the visits that did not have to wait: which they are is read from their run-delay, and from what the
        host took meanwhile, never from their times.
        """
        return self._why_disturbed(snapshots, cpus) or modes.changed(mode, snapshots[0].get("power_mode"))

    def _why_disturbed(self, snapshots: Snapshots, cpus: int) -> str:
        disturbance = environment.disturbance(*snapshots, max(1, cpus))
        if disturbance and not isinstance(disturbance, environment.Company):
            return disturbance
        usual = [(block, usable) for _, block, usable, _ in self._visits]
        disturbance = disturbance or why_disturbed(usual)
        if not disturbance:
            changed = why_changed(usual, self.readings, least=LEAST_BLOCKS)
            return "" if changed and self._has_steady_blocks() else changed
        if not self._has_run_delay:
            # Which visits had to wait is not known, so none is trusted.
            return str(disturbance)
        alone = [(cell, block) for cell, block, _, is_alone in self._visits if is_alone]
        if changed := why_changed([(block, True) for _, block in alone], self.readings):
            return changed
        outside, left = away(self.readings), dict[Cell, int]()
        for cell, block in alone:
            left[cell] = left.get(cell, 0) + (block not in outside)
        least = min(LEAST_BLOCKS, len({block for _, block, *_ in self._visits}))
        if max(left.values(), default=0) < max(1, least):
            visits = units.count(len(self._visits), "visit")
            return f"{disturbance}; {len(alone)} of {visits} did not have to wait, and no cell has {least} of them"
        self.shared = str(disturbance)
        return ""

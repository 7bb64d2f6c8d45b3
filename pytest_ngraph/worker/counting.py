"""Whether a launch counts, and for which of its cells: the one rule of all who measure launches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pytest_ngraph.machine import facts as environment
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome, Reading, Visit
from pytest_ngraph.spec.states import why_unusable
from pytest_ngraph.stats.visits import summarise

Snapshots = tuple[Mapping[str, Any], Mapping[str, Any], Mapping[str, Any]]
# A cell whose minor faults a call differ by more between visits has two speeds.
_STEADY_FAULTS = 100


@dataclass(slots=True)
class Counting:
    """What a launch measured, as far as it says whether it counts. Its sink adds to it as the samples arrive."""

    records: dict[Cell, CompileRecord] = field(default_factory=dict)
    readings: list[tuple[Reading, Reading] | None] = field(default_factory=list)
    _usable: list[tuple[int, bool]] = field(default_factory=list)
    _faults: dict[Cell, list[float]] = field(default_factory=dict)

    def visited(self, cell: Cell, block: int, visit: Visit) -> None:
        """Take a visit to a cell in a block."""
        summary = summarise(visit)
        self._usable.append((block, summary.ln_seconds is not None))
        if summary.faults_per_call is not None:
            self._faults.setdefault(cell, []).append(summary.faults_per_call)

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

    def why_not(self, snapshots: Snapshots, cpus: int) -> str:
        """Return why the launch must not count, or nothing (docs/measuring.md, step 6).

        ``snapshots`` are of the machine when the launch began, before its first visit, and at its end. It has so many
        ``cpus``.
        """
        return environment.disturbance(*snapshots, max(1, cpus)) or why_unusable(self._usable, self.readings)

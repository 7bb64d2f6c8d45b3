"""The loads of a launch: what arrives in each visit, and what the queues of its cells were like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from pytest_ngraph.load.queues import Traffic, facts_of, why_unsettled
from pytest_ngraph.load.scenarios import rate_of, slots_of
from pytest_ngraph.spec.cells import TIMED, Cell, CompileRecord, Outcome


class Loads:
    """Draws what arrives for the cells of a launch, and judges their queues when all visits are over."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._asked: dict[Cell, int] = {}
        self._seen: dict[Cell, list[Traffic]] = {}

    def arriving(self, cell: Cell, seconds: float, discard_seconds: float) -> dict[str, Any] | None:
        """Return what a visit to a cell is told of its load, None where nothing arrives by itself.

        Cells of one rate get the same arrivals at their visits of one number.
        """
        rate = rate_of(cell.workload.scenario)
        if rate is None:
            return None
        number = self._asked[cell] = self._asked.get(cell, -1) + 1
        seed = f"{self._seed} {number}"
        return {"rate": rate, "seed": seed, "discard_seconds": discard_seconds, "seconds": seconds - discard_seconds}

    def visited(self, cell: Cell, answer: Mapping[str, Any] | CompileRecord) -> None:
        """Take what the answer to a visit says of its queue, where there was one."""
        if not isinstance(answer, CompileRecord) and "traffic" in answer:
            said = {**answer["traffic"], "late_ns": tuple(answer["traffic"]["late_ns"])}
            self._seen.setdefault(cell, []).append(Traffic(**said))

    def judged(self, cell: Cell, record: CompileRecord) -> CompileRecord:
        """Return the record of a cell with what its queue was like. One that grew has no latency: it is unstable."""
        visits, rate = self._seen.get(cell), rate_of(cell.workload.scenario)
        if not visits or rate is None or record.outcome not in TIMED:
            return record
        slots = slots_of(cell)
        record = replace(record, placement=(*record.placement, *facts_of(rate, slots, visits).items()))
        reason = why_unsettled(rate, slots, visits)
        return replace(record, outcome=Outcome.UNSTABLE, reason=reason) if reason else record

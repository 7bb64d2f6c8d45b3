"""What is seen of each cell's calls in a launch, and what it says against their times."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any
from typing import Protocol as TypingProtocol

from pytest_ngraph import units
from pytest_ngraph.checks import freshness, roofline
from pytest_ngraph.checks.freshness import Timings
from pytest_ngraph.checks.oversight import (
    Seen,
    beyond_wall,
    call_nanoseconds,
    objection,
    others_cpus,
    stolen_share,
    threads_allowed,
    waits_for_itself,
)
from pytest_ngraph.launches.client import Job
from pytest_ngraph.launches.referee import Referee
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.spec.cells import TIMED, Cell, CompileRecord, Outcome, Protocol

_PROBED_CALLS = 100
# Of others from here on it is said what they did.
_OTHERS_CPUS = 0.1


class Ask(TypingProtocol):
    """How a cell's worker is asked."""

    def __call__(self, cell: Cell, do: str, /, *, timeout: float, **fields: Any) -> Mapping[str, Any] | CompileRecord:
        """Return the answer, or the record of a cell that was refused. Raise WorkerEnded without a worker."""
        ...


class Checks:
    """Holds what cells say of their calls against what was seen of them: clocks, outputs, caches and the machine.

    Everything is asked after the visits, so that no check is part of what is timed.
    """

    def __init__(self, job: Job, protocol: Protocol, seed: int, referee: Referee, ask: Ask) -> None:
        self._job, self._protocol, self._seed, self._referee, self._ask = job, protocol, seed, referee, ask
        self._seen: dict[Cell, list[Seen]] = {}
        # Of whole calls, and of the parts of those that have some, by their names.
        self._fresh: dict[Cell, dict[str, list[Timings]]] = {}
        # How often each was compiled again in warm-up and visits.
        self._compiled_again: dict[Cell, int] = {}

    def visited(self, cell: Cell, seen: Seen) -> str:
        """Take a visit as it was seen. Return why it cannot be true, or nothing."""
        if reason := beyond_wall(seen):
            return reason
        self._seen.setdefault(cell, []).append(seen)
        return ""

    def beside(self, records: Mapping[Cell, CompileRecord]) -> dict[Cell, CompileRecord]:
        """Return the records with what others used of the CPUs during the visits, and what the host took, if anything.

        It is said of all cells if it is of one, so that they can be compared.
        """
        found, seen = dict(records), {cell: self._seen.get(cell, []) for cell in records}
        others = {cell: others_cpus(each) for cell, each in seen.items()}
        if max((cpus or 0.0 for cpus in others.values()), default=0.0) >= _OTHERS_CPUS:
            known = {cell: None if cpus is None else round(cpus, 3) for cell, cpus in others.items()}
            found = {cell: replace(record, others_cpus=known[cell]) for cell, record in found.items()}
        stolen = {cell: round(stolen_share(each), 4) for cell, each in seen.items()}
        if any(stolen.values()):
            found = {cell: replace(record, stolen_share=stolen[cell]) for cell, record in found.items()}
        return found

    def clocks(self, cell: Cell, record: CompileRecord) -> CompileRecord:
        """Hold what the visits said against this process's clock and the kernel's account of the CPU time."""
        threads = threads_allowed(cell, self._job.device, record)
        reason = objection(self._seen.get(cell, []), threads, self._protocol.discard_seconds)
        return CompileRecord(Outcome.FAILED, reason) if reason else record

    def waits(self, cell: Cell, record: CompileRecord) -> CompileRecord:
        """Return the record of a cell, unstable where its visits cannot be used for what its own threads did."""
        reason = waits_for_itself(self._seen.get(cell, [])) if record.outcome is Outcome.OK else ""
        return replace(record, outcome=Outcome.UNSTABLE, reason=reason) if reason else record

    def outputs(self, cell: Cell, record: CompileRecord) -> CompileRecord:
        """Compare a cell on inputs that its worker has not seen before. Raise WorkerEnded where that ends it."""
        self._compiled_again.pop(cell, None)
        record = self._referee.check(cell, record, self._seed, partial(self._call, cell))
        times = self._compiled_again.get(cell, 0)
        return _recompiled(record, times) if times and record.outcome in TIMED else record

    def probe(self, cell: Cell, record: CompileRecord) -> CompileRecord:
        """Return the record of a cell whose calls do their work when they are timed. One that fails otherwise.

        The calls that were compared say so at no cost where they are as fast as those that were timed. Where not, some
        more are made. Raises WorkerEnded where these end the worker.
        """
        seen, checked = self._seen.get(cell), self._fresh.pop(cell, {})
        on_accelerator = self._job.device.accelerator != "cpu"
        queued = rate_of(cell.workload.scenario) is not None
        for part, timings in checked.items() if seen else ():
            call_ns = call_nanoseconds(seen or [], part, queued=queued)
            if not freshness.is_suspicious(freshness.joined(timings), call_ns, on_accelerator=on_accelerator):
                continue
            limit = self._job.timeout_seconds + _PROBED_CALLS * call_nanoseconds(seen or [], queued=queued) * 1e-9
            answer = self._ask(cell, "probe", timeout=limit, call_ns=call_ns, part=part)
            if isinstance(answer, CompileRecord):
                # What an adapter cannot do on inputs that nobody asked for says nothing of it.
                return record
            said = freshness.objection(
                Timings(**answer["timings"]), call_ns, on_accelerator=on_accelerator, of_part=bool(part)
            )
            if said:
                where = {freshness.FIRST: "its first token: ", freshness.STEPS: "its steps: "}.get(part, "")
                return CompileRecord(Outcome.FAILED, f"{where}{said}", placement=record.placement)
        return record

    def plausible(self, cell: Cell, record: CompileRecord) -> CompileRecord:
        """Return the record with a warning where its calls were faster than this machine can be."""
        seen, work = self._seen.get(cell), self._referee.work_of(cell)
        if not seen or work is None or self._job.device.accelerator != "cpu":
            return record
        call_ns = call_nanoseconds(seen, queued=rate_of(cell.workload.scenario) is not None)
        said = roofline.objection(call_ns, work, self._referee.precision_of(cell), roofline.measured())
        return replace(record, implausible=said) if said else record

    def _call(self, cell: Cell, inputs: str, names: list[str], outputs: str) -> Mapping[str, Any] | CompileRecord:
        limit = self._job.timeout_seconds
        answer = self._ask(cell, "check", timeout=limit, inputs=inputs, names=names, outputs=outputs)
        if not isinstance(answer, CompileRecord):
            found = self._fresh.setdefault(cell, {})
            for part, timings in {"": answer["timings"], **answer["parts"]}.items():
                found.setdefault(part, []).append(Timings(**timings))
            # The first time it is asked it says what happened while it was timed, and then what the checks made it do.
            self._compiled_again.setdefault(cell, int(answer["compiled_again"]))
        return answer


def _recompiled(record: CompileRecord, times: int) -> CompileRecord:
    """Return the record of a cell that was compiled again in the time that is measured: it has no steady time."""
    often = units.count(times, "time")
    reason = f"it was compiled again {often} while it was timed, so that its calls are of more than one program"
    facts = dict(record.placement) | {"recompiles_while_timed": str(times)}
    return replace(record, outcome=Outcome.UNSTABLE, reason=reason, placement=tuple(facts.items()))

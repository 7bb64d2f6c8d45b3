"""How noisy this machine is: a fixed piece of work in short visits, and real launches of equal code (A/A)."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.launches.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.launches.launch import LaunchPlan, run_launch
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.spec.cells import (
    TIMED,
    Cell,
    CompileRecord,
    CompilerSpec,
    LaunchRecord,
    Protocol,
    Reading,
    Visit,
    Workload,
)
from pytest_ngraph.spec.states import is_slower, of_one_state, wanted_states
from pytest_ngraph.spec.states.steadiness import usual_crowding
from pytest_ngraph.worker.answers import refusal
from pytest_ngraph.worker.counting import Counting
from pytest_ngraph.worker.covariates import Covariates
from pytest_ngraph.worker.timing import visit
from pytest_ngraph.workloads.kinds import parse_model

_STEPS = 12_000
_VISIT_SECONDS = 0.1
# A convolution block of a millisecond and one of some: two workloads, so that one launch shows two ratios that are 1.
_MODEL, _BATCHES = "block:conv", (1, 8)
# So many launches that a gate would not count are replaced; then the machine is what it is.
_REPLACED = 3


@dataclass(frozen=True, slots=True)
class NoiseProfile:
    """What a few seconds of measuring the same work say.

    ``visit_scatter`` is the standard deviation of ln(median time) over visits, ``call_scatter`` that of single calls
    within visits (both robust, as fractions). ``run_delay_share`` is time ready to run but not running over wall.
    ``others_cpus`` is how many CPUs other processes kept busy, None where that cannot be read.
    """

    visit_scatter: float
    call_scatter: float
    run_delay_share: float | None
    others_cpus: float | None
    visits: int

    @property
    def grade(self) -> str:
        """Grade the machine by what was seen: quiet, noisy or unusable. Launches of equal code say it better."""
        worst = max(self.visit_scatter, self.run_delay_share or 0.0, 0.1 * (self.others_cpus or 0.0))
        return "quiet" if worst < 0.02 else "noisy" if worst < 0.2 else "unusable"


class _Work(Executable):
    """A fixed loop of arithmetic: about a millisecond of one core, no memory, no threads."""

    def run(self) -> None:
        value = 1
        for step in range(_STEPS):
            value = (value * 31 + step) & 0xFFFF


def noise_profile(seconds: float) -> NoiseProfile:
    """Measure for about so many seconds on this process's CPUs."""
    work = _Work()
    covariates = Covariates()
    began, cpu_began, busy_began = time.perf_counter(), time.process_time(), _busy_seconds()
    visits: list[Visit] = []
    try:
        while time.perf_counter() - began < seconds or len(visits) < 5:
            visits.append(
                visit(
                    work, calls=1, seconds=_VISIT_SECONDS, least_batches=8, discard_seconds=0.005, covariates=covariates
                )
            )
    finally:
        covariates.close()
    wall = time.perf_counter() - began
    own = time.process_time() - cpu_began
    busy = _busy_seconds()
    others = None if busy is None or busy_began is None else max(0.0, busy - busy_began - own) / wall
    medians = [math.log(_median(one.wall_ns)) for one in visits]
    inner = [
        abs(math.log(wall_ns) - middle) for one, middle in zip(visits, medians, strict=True) for wall_ns in one.wall_ns
    ]
    delays = [sum(one.run_delay_ns) / sum(one.wall_ns) for one in visits if one.run_delay_ns]
    return NoiseProfile(
        visit_scatter=1.4826 * _median([abs(value - _median(medians)) for value in medians]),
        call_scatter=1.4826 * _median(inner),
        run_delay_share=sum(delays) / len(delays) if delays else None,
        others_cpus=others,
        visits=len(visits),
    )


def _median(values: list[float] | tuple[int, ...]) -> float:
    ordered = sorted(values)
    middle = len(ordered) // 2
    return ordered[middle] if len(ordered) % 2 else (ordered[middle - 1] + ordered[middle]) / 2


def _busy_seconds() -> float | None:
    """Return the CPU seconds that this machine has spent on anything, or None where it does not say."""
    busy = environment.snapshot()["busy_seconds"]
    return float(busy) if busy is not None else None


@dataclass(frozen=True, slots=True)
class EqualLaunches:
    """Launches of equal code: the cells of one process with their twins in a second one, and what was measured.

    Every ratio of twins is 1 in truth. Launches that a gate would not count are among them, with the reason.
    """

    twins: tuple[tuple[Cell, Cell], ...]
    records: tuple[LaunchRecord, ...]

    @property
    def counted(self) -> int:
        """Return how many launches a gate on any of the twins would have counted at least."""
        return min(sum(record.counts_for(pair) for record in self.records) for pair in self.twins)

    @property
    def what(self) -> str:
        """Name what was measured, such as ``identity on block:conv, batches 1 and 8``."""
        first = self.twins[0][0]
        batches = " and ".join(str(one.workload.batch) for one, _ in self.twins)
        return f"{first.compiler} on {first.workload.model}, batches {batches}"


def equal_launches(
    job: Job, compiler: CompilerSpec, *, reads: str, launches: int, protocol: Protocol, report: Callable[[str], None]
) -> EqualLaunches:
    """Measure a small convolution block against itself in so many launches, as a gate would.

    That is the control of every launch (docs/measuring.md, step 12). A few launches that a gate would not count are
    replaced, so there may be more, and fewer that count. ``reads`` is what the compiler reads. ``report`` is called
    with a line about each launch. Raises CompileFailed with the reason where the block cannot be measured.
    """
    model = parse_model(_MODEL)
    ones = [
        Cell(job.device.name, compiler, Workload(model, batch, depth=2, width=32, image_size=32)) for batch in _BATCHES
    ]
    twins = tuple((one, Cell(one.device, one.compiler, one.workload, 1)) for one in ones)
    if reads != "nothing":
        report(f"building {_MODEL}")
        _build(job, [one.workload for one in ones], protocol, onnx=reads == "onnx")
    cells = [cell for pair in twins for cell in pair]
    equal, known = EqualLaunches(twins, ()), _Known()
    while equal.counted < launches and len(equal.records) < launches + _REPLACED:
        record = _one_launch(job, cells, protocol, equal.records, known)
        equal = replace(equal, records=(*equal.records, record))
        unsettled = record.unsettled(cells)
        why = record.invalid or (unsettled and f"{unsettled.label}: {record.prepared[unsettled].reason}")
        disturbed = f"; a gate would not count it: {why}" if why else ""
        report(f"launch {len(equal.records)}: {record.seconds:.1f} s{disturbed}")
    return equal


def _build(job: Job, workloads: list[Workload], protocol: Protocol, *, onnx: bool) -> None:
    draw = random.Random(0)  # noqa: S311 - an address layout, not a secret
    try:
        client = WorkerClient(job, "builder", protocol=protocol, draw=draw)
        try:
            for workload in workloads:
                answer = client.request("build", workload=workload.to_json(), want_onnx=onnx)
                if not answer["ok"]:
                    raise CompileFailed(f"{workload.label}: {refusal(answer)}")
            client.close()
        finally:
            client.kill()
    except WorkerEnded as ended:
        raise CompileFailed(f"{_MODEL}: {ended.reason}") from None


def _one_launch(
    job: Job, cells: list[Cell], protocol: Protocol, earlier: Sequence[LaunchRecord], known: _Known
) -> LaunchRecord:
    """Measure one more launch, and add to what is ``known`` by the ``earlier`` ones."""
    cpus = job.device.cpus
    seed = random.SystemRandom().getrandbits(32)
    counted = [record for record in earlier if not record.invalid]
    plan = LaunchPlan(
        tuple(cells), protocol, seed, states=wanted_states(counted), crowding=usual_crowding(known.crowding)
    )
    began, begun = time.monotonic(), environment.snapshot(cpus)
    sink = _Kept(cpus)
    run_launch(job, plan, sink, spare_memory=environment.spare_memory_share)
    counting = sink.counting
    counting.crowding = plan.crowding
    failed = [(cell, record) for cell, record in counting.records.items() if record.outcome not in TIMED]
    if failed:
        cell, record = failed[0]
        raise CompileFailed(f"{cell.label}: {record.outcome}: {record.reason}")
    ended = environment.snapshot(cpus)
    counting.unstable()
    kept, state, torn = of_one_state(sink.visits, counting.readings)
    invalid = counting.why_not((begun, sink.blocks_begun, ended), len(cpus), known.mode)
    seconds, seen = time.monotonic() - began, counting.seen()
    alone = seen.alone(usual_crowding(known.fastest), state)
    if not invalid:
        known.mode = known.mode or begun.get("power_mode")
        known.crowding += filter(None, [seen.crowding])
        known.fastest += [] if is_slower(counting.readings) else filter(None, [seen.fastest])
    return LaunchRecord(
        len(earlier),
        seed,
        protocol.name,
        counting.records,
        kept,
        invalid,
        seconds,
        state,
        shared=counting.shared,
        unsteady=counting.unsteady(),
        torn=torn,
        alone=alone,
        slower=is_slower(counting.readings),
    )


@dataclass
class _Known:
    """What the launches that count say of the machine: how crowded it was, and its power mode in the first one."""

    crowding: list[float] = field(default_factory=list)
    fastest: list[float] = field(default_factory=list)
    mode: object = None


@dataclass
class _Kept:
    """Keeps in memory what a launch measures."""

    cpus: tuple[int, ...]
    counting: Counting = field(default_factory=Counting)
    visits: dict[tuple[Cell, int], Visit] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.blocks_begun = environment.snapshot(self.cpus)

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        self.counting.records[cell] = record
        if not self.visits:
            # What came before the first visit was not timed.
            self.blocks_begun = environment.snapshot(self.cpus)

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        self.visits[cell, block] = visit
        self.counting.visited(cell, block, visit)

    def block_done(self, block: int, readings: tuple[Reading, Reading] | None) -> None:
        self.counting.readings.append(readings)

    def progress(self, doing: str, done: int, total: int) -> None:
        """Nobody watches the steps of a launch. Each launch is reported as a whole."""

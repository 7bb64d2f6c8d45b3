"""The pass in which it is measured what cells draw: idle windows and those of each cell in turn, in mirrored blocks."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from typing import Any

from pytest_ngraph.checks.oversight import Watch, children_of
from pytest_ngraph.launches.checks import Checks
from pytest_ngraph.launches.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.launches.referee import Referee
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.passes.metering import Metered, Meters
from pytest_ngraph.passes.preparing import Prepared, Refused, done, prepared
from pytest_ngraph.probes.contract import Unreadable
from pytest_ngraph.probes.freshness import Follower
from pytest_ngraph.spec.cells import TIMED, Cell, CompileRecord, Outcome, Protocol, Visit
from pytest_ngraph.spec.resources.power import Power, Window
from pytest_ngraph.worker.answers import refusal, visit_of

Progress = Callable[[str, int, int], None]
# One batch of calls, after which the clock is looked at.
_BATCH_SECONDS = 0.02
_BLOCKS, _FEW_BLOCKS = 4, 2
# What others may keep busy: a quarter of a CPU, or a twentieth of all. Joules are those of the whole machine.
_MOST_OTHERS, _MOST_SHARE = 0.25, 0.05


@dataclass(frozen=True, slots=True)
class Course:
    """How a pass goes: so many blocks, of windows that long, each after a time in which things settle."""

    blocks: int
    window_seconds: float
    settle_seconds: float

    @classmethod
    def of(cls, protocol: Protocol, meters: Meters) -> Course:
        """Return that of a protocol: windows are as long as the probes need."""
        blocks = _BLOCKS if protocol.error_control else _FEW_BLOCKS
        return cls(blocks, meters.window_seconds, meters.settle_seconds)


def power_pass(
    job: Job,
    cells: Sequence[Cell],
    protocol: Protocol,
    seed: int,
    progress: Progress,
    artifacts: Mapping[Cell, str] | None = None,
    meters: Meters | None = None,
    course: Course | None = None,
) -> list[CompileRecord]:
    """Measure what some cells draw, each in a worker of its own that is stopped while it is not its turn.

    Their records have it. Where nothing can be read no worker is started. A cell that fails is among them with its
    outcome, and then the others say nothing. ``artifacts`` are the keys of what compilers read, where they are known.
    """
    meters = (meters or Meters.of(job.device.accelerator, job.device.cpus)).looked()
    if meters.energy is None and meters.load is None:
        nothing = Power(why_no_energy=meters.why_no_energy, why_no_load=meters.why_no_load)
        return [CompileRecord(Outcome.OK, power=nothing) for _ in cells]
    course = course or Course.of(protocol, meters)
    measured = _Pass(job, cells, protocol, seed, dict(artifacts or {}), meters, course)
    try:
        return measured.run(progress)
    except Refused as refused:
        return measured.failed(refused.record)
    except WorkerEnded as ended:
        return measured.failed(CompileRecord(ended.outcome, ended.reason))


class _Pass:
    def __init__(
        self,
        job: Job,
        cells: Sequence[Cell],
        protocol: Protocol,
        seed: int,
        artifacts: dict[Cell, str],
        meters: Meters,
        course: Course,
    ) -> None:
        self._job, self._cells, self._protocol, self._seed = job, list(cells), protocol, seed
        self._artifacts, self._meters, self._course = artifacts, meters, course
        self._referee = Referee(job, artifacts)
        self._checks = Checks(job, protocol, seed, self._referee, self._ask)
        self._ready: dict[Cell, Prepared] = {}
        self._calls: dict[Cell, int] = {}
        self._records: dict[Cell, CompileRecord] = {}
        self._busy_with = self._cells[0]
        self._follower, self._step_watts = Follower(), 0.0

    def failed(self, record: CompileRecord) -> list[CompileRecord]:
        """Return the records after a cell failed, or was seen not to be steady: nothing counts then."""
        has_failed = record.outcome not in TIMED
        said = "failed in the pass" if has_failed else f"was not steady in the pass: {record.reason}"
        nothing = CompileRecord(Outcome.OK, power=Power(invalid=f"{self._busy_with.label} {said}"))
        if not has_failed:
            return [nothing for _ in self._cells]
        return [record if cell == self._busy_with else nothing for cell in self._cells]

    def run(self, progress: Progress) -> list[CompileRecord]:
        """Return the records of all cells."""
        with ExitStack() as stack:
            stack.callback(self._referee.close)
            for number, cell in enumerate(self._cells):
                self._busy_with = cell
                progress(f"compiling {cell.label}", number, len(self._cells))
                self._prepare(cell, stack)
            powers = self._measured(progress)
            for cell in self._cells:
                self._busy_with = cell
                self._check(cell)
        return [replace(done(self._records[cell]), power=powers[cell]) for cell in self._cells]

    def _prepare(self, cell: Cell, stack: ExitStack) -> None:
        """Compile, compare and warm a cell, and stop its worker."""
        key = self._artifacts.get(cell)
        outputs = self._referee.folder
        one = stack.enter_context(
            prepared(self._job, cell, self._protocol, self._seed, key, self._protocol.allocator, outputs)
        )
        record = self._referee.first(cell, one.answer, one.record)
        if record.outcome is not Outcome.OK:
            raise Refused(record)
        warmed = one.ask("warm", protocol=self._protocol.to_json())
        self._calls[cell] = max(1, round(_BATCH_SECONDS / max(warmed["call_seconds"], 1e-7)))
        self._ready[cell], self._records[cell] = one, record
        one.client.park()

    def _check(self, cell: Cell) -> None:
        """Hold a cell to what timed launches are held to: clocks, inputs that it has not seen, and new ones."""
        record = self._checks.clocks(cell, self._records[cell])
        for check in (self._checks.outputs, self._checks.probe):
            if record.outcome in TIMED:
                record = check(cell, record)
        if record.outcome is not Outcome.OK:
            raise Refused(record)
        self._ready[cell].client.park()

    def _ask(self, cell: Cell, do: str, /, *, timeout: float, **fields: Any) -> Mapping[str, Any] | CompileRecord:
        """Return a worker's answer, or the record of a cell that was refused."""
        answer = self._ready[cell].client.request(do, timeout=timeout, number=0, **fields)
        return answer if answer["ok"] else CompileRecord(Outcome(answer["outcome"]), refusal(answer))

    def _measured(self, progress: Progress) -> dict[Cell, Power]:
        """Return the windows of all cells, each with those of the idle machine."""
        clients = [one.client for one in self._ready.values()]
        others = _Others(clients)
        idle: list[Window] = []
        busy: dict[Cell, list[Window]] = {cell: [] for cell in self._cells}
        invalid = ""
        if self._meters.load is not None:
            self._meters.load.others([])
        try:
            for block, order in enumerate(self._orders()):
                for position, cell in enumerate(order):
                    step = block * len(order) + position
                    name = "the idle machine" if cell is None else cell.label
                    progress(f"measuring power of {name}", step, self._course.blocks * len(order))
                    (idle if cell is None else busy[cell]).append(self._window(block, cell, others))
        except Unreadable as reason:
            invalid = f"a probe failed midway: {reason}"
        if not invalid and self._meters.load is not None:
            pids = [pid for client in clients for pid in (client.pid, *children_of(client.pid))]
            if found := self._meters.load.others(pids):
                invalid = f"other processes computed on the GPU: {found}"
        energy = self._meters.energy
        invalid = invalid or others.why_invalid(are_counted=energy is not None and energy.counts_cpus)
        whole = Power(
            covers="" if energy is None else f"{energy.name}: {energy.covers}",
            idle=tuple(idle),
            why_no_energy=self._meters.why_no_energy,
            why_no_load=self._meters.why_no_load,
            invalid=invalid,
            others_cpus=others.cpus,
            update_seconds=None if energy is None else self._meters.read_every_seconds,
            step_watts=self._step_watts,
        )
        return {cell: replace(whole, busy=tuple(busy[cell])) for cell in self._cells}

    def _orders(self) -> list[list[Cell | None]]:
        """Return the order of each block, None for the idle machine: a random one, then its mirror image."""
        draw = random.Random(f"power {self._seed}")  # noqa: S311 - an order, not a secret
        orders: list[list[Cell | None]] = []
        for block in range(self._course.blocks):
            stays = [None, *self._cells]
            orders.append(orders[-1][::-1] if block % 2 else draw.sample(stays, len(stays)))
        return orders

    def _window(self, block: int, cell: Cell | None, others: _Others) -> Window:
        """Wait until things settle, then measure a window of a cell, or of the idle machine."""
        if cell is None:
            time.sleep(self._course.settle_seconds)
            found, _ = self._metered(lambda: time.sleep(self._course.window_seconds), others, cell)
            return Window(block, found.seconds, found.joules, 0, found.gpu_share, found.megahertz)
        self._busy_with = cell
        self._run(cell, self._course.settle_seconds)
        found, completed = self._metered(lambda: self._watched(cell, self._course.window_seconds), others, cell)
        self._ready[cell].client.park()
        samples = round(completed * cell.workload.samples_per_call)
        return Window(block, found.seconds, found.joules, samples, found.gpu_share, found.megahertz)

    def _metered(self, do: Callable[[], int | None], others: _Others, cell: Cell | None) -> tuple[Metered, int]:
        """Return what a window of a cell, or of the idle machine, said while something was done, and what that gave."""
        opened = self._meters.open()
        try:
            with others:
                completed = do() or 0
        except BaseException:
            with suppress(Unreadable):
                opened.drop()
            raise
        found = opened.close()
        self._follower.saw(cell, found.watts)
        self._step_watts = max(self._step_watts, found.step_watts)
        return found, completed

    def _watched(self, cell: Cell, seconds: float) -> int:
        """Call a cell for some seconds, which its worker's clock is held to. Return how many calls were completed."""
        watch = Watch(self._ready[cell].client.cpu, self._job.device.cpus)
        visit = self._run(cell, seconds, watch.bound)
        if reason := self._checks.visited(cell, watch.answered(visit)):
            raise Refused(CompileRecord(Outcome.FAILED, reason))
        calls = visit.calls * len(visit.wall_ns)
        # What is in flight when the clock is looked at last is waited for.
        return calls + visit.calls // self._calls[cell] if visit.in_flight_ns else calls

    def _run(self, cell: Cell, seconds: float, progress: Progress | None = None) -> Visit:
        """Call a cell for some seconds. All calls that were begun are completed in them."""
        answer = self._ask(
            cell,
            "visit",
            timeout=seconds + self._job.timeout_seconds,
            calls=self._calls[cell],
            seconds=seconds,
            least_batches=1,
            discard_seconds=0,
            rebind=False,
            progress=progress,
        )
        if isinstance(answer, CompileRecord):
            raise Refused(answer)
        return visit_of(answer)


class _Others:
    """How many CPUs of the machine others kept busy in the windows: entered around each."""

    def __init__(self, clients: Sequence[WorkerClient]) -> None:
        import psutil

        self._clients = clients
        self._cpus = range(psutil.cpu_count() or 1)
        self._seconds: float | None = 0.0
        self._wall = 0.0

    def __enter__(self) -> None:
        self._used = [client.cpu.read() for client in self._clients]
        self._own, self._busy = time.process_time(), environment.busy_seconds(self._cpus)
        self._began = time.monotonic()

    def __exit__(self, *raised: object) -> None:
        busy = environment.busy_seconds(self._cpus)
        used = [client.cpu.since(before) for client, before in zip(self._clients, self._used, strict=True)]
        self._wall += time.monotonic() - self._began
        mine = [each for each in used if each is not None]
        if busy is None or self._busy is None or len(mine) < len(used) or self._seconds is None:
            self._seconds = None
            return
        self._seconds += busy - self._busy - sum(mine) * 1e-9 - (time.process_time() - self._own)

    @property
    def cpus(self) -> float | None:
        """Return how many it were on average, None where it is not known."""
        return None if self._seconds is None or not self._wall else max(0.0, self._seconds / self._wall)

    def why_invalid(self, *, are_counted: bool) -> str:
        """Return why what was read is not of the cells alone, or nothing. Their joules ``are_counted`` or not."""
        most = max(_MOST_OTHERS, _MOST_SHARE * len(self._cpus))
        if self.cpus is None or self.cpus <= most:
            return ""
        what = "whose joules were counted, too" if are_counted else "for which calls had to wait"
        return f"other processes kept {self.cpus:.1f} of {len(self._cpus)} CPUs busy, {what}"

"""One launch: fresh workers, each cell prepared and warmed, then blocks of visits in mirrored random order."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any
from typing import Protocol as TypingProtocol

from pytest_ngraph.errors import NgraphError
from pytest_ngraph.measure.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.measure.timing import calls_per_batch, visit_seconds
from pytest_ngraph.spec import Cell, CompileRecord, CompilerSpec, Outcome, Protocol, Visit


class GroupTooLarge(NgraphError):
    """The cells of a launch do not fit in memory together, or one of them is too slow to share blocks with others."""


class Sink(TypingProtocol):
    """Where a launch puts what it measures, as it arrives."""

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        """Take what preparing a cell gave; a later record of the same cell replaces an earlier one."""

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        """Take one visit."""

    def block_done(self, block: int) -> None:
        """Hear that all visits of a block have arrived."""

    def progress(self, doing: str, done: int, total: int) -> None:
        """Hear what is being done: step ``done`` of ``total``."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What one launch measures; ``splittable`` says whether a smaller launch could be made of it."""

    cells: tuple[Cell, ...]
    protocol: Protocol
    seed: int
    splittable: bool = False
    slow_call_seconds: float = 1.0
    spare_memory_share: float = 0.1


@dataclass
class _Seat:
    """One worker of the launch and the numbers of its cells."""

    compiler: CompilerSpec
    replica: int
    client: WorkerClient | None = None

    @property
    def name(self) -> str:
        return f"{self.compiler}{' (second process)' if self.replica else ''}"


def run_launch(job: Job, plan: LaunchPlan, sink: Sink, *, spare_memory: Callable[[], float]) -> None:
    """Run one launch; everything measured goes to ``sink`` as it arrives.

    ``spare_memory`` returns the share of memory that is free. Raises GroupTooLarge, before anything was timed, where
    the plan is splittable and its cells are too large or too slow to share a launch. Whatever a worker does is an
    outcome of the cell it was busy with: it is restarted without that cell and the others keep their launch.
    """
    launch = _Launch(job, plan, sink, spare_memory)
    try:
        launch.start()
        launch.prepare()
        launch.blocks()
        launch.finish()
    finally:
        launch.kill()


class _Launch:
    """The state of one launch: its seats, and what is known of each live cell."""

    def __init__(self, job: Job, plan: LaunchPlan, sink: Sink, spare_memory: Callable[[], float]) -> None:
        self._job, self._plan, self._sink, self._spare_memory = job, plan, sink, spare_memory
        self._draw = random.Random(plan.seed)  # noqa: S311 - order, not secrets
        self._numbers = {cell: number for number, cell in enumerate(plan.cells)}
        self._records: dict[Cell, CompileRecord] = {}
        self._calls: dict[Cell, int] = {}
        self._out_of_memory: dict[tuple[Any, ...], int] = {}
        seats = dict.fromkeys((cell.compiler, cell.replica) for cell in plan.cells)
        self._seats = {key: _Seat(*key) for key in seats}

    def start(self) -> None:
        """Spawn all workers in random order and let them import their runtimes side by side."""
        order = list(self._seats.values())
        self._draw.shuffle(order)
        for seat in order:
            seat.client = self._spawn(seat)
            seat.client.greet(seat.compiler.name)
        for seat in order:
            try:
                self._client(seat).hello()
            except WorkerEnded as ended:
                seat.client = None
                for cell in self._cells_of(seat):
                    self._record(cell, CompileRecord(ended.outcome, ended.reason))
            self._park(seat)

    def prepare(self) -> None:
        """Compile, check and warm each cell, one at a time and everybody else parked."""
        done = 0
        for seat in self._seats.values():
            for cell in self._cells_of(seat):
                done += 1
                if cell in self._records:
                    continue
                self._sink.progress(f"compiling {cell.label}", done, len(self._plan.cells))
                self._prepare_cell(seat, cell)
                if self._plan.splittable:
                    self._check_size(cell)
            self._park(seat)

    def blocks(self) -> None:
        """Visit every live cell once per block, in a random order and then in its reverse."""
        protocol = self._plan.protocol
        for block, order in enumerate(self._orders()):
            for position, cell in enumerate(order):
                # A cell that failed earlier in this launch keeps its place in the order, unvisited.
                if self._alive(cell):
                    self._sink.progress(
                        f"measuring {cell.label}", block * len(order) + position, protocol.blocks * len(order)
                    )
                    self._visit_cell(cell, block, position)
            self._sink.block_done(block)

    def finish(self) -> None:
        """End the workers in good order."""
        for seat in self._seats.values():
            if seat.client is not None:
                seat.client.close()
                seat.client = None

    def kill(self) -> None:
        """End whatever still runs."""
        for seat in self._seats.values():
            if seat.client is not None:
                seat.client.kill()
                seat.client = None

    def _spawn(self, seat: _Seat) -> WorkerClient:
        return WorkerClient(self._job, seat.name, protocol=self._plan.protocol, draw=self._draw)

    def _cells_of(self, seat: _Seat) -> Sequence[Cell]:
        """Return the seat's cells, small ones first: an out-of-memory then spares the larger ones the attempt."""
        mine = [cell for cell in self._plan.cells if (cell.compiler, cell.replica) == (seat.compiler, seat.replica)]
        return sorted(mine, key=lambda cell: (cell.workload.batch, cell.workload.depth or 0))

    def _seat_of(self, cell: Cell) -> _Seat:
        return self._seats[cell.compiler, cell.replica]

    def _alive(self, cell: Cell) -> bool:
        return cell in self._calls

    def _park(self, seat: _Seat) -> None:
        if self._plan.protocol.parked and seat.client is not None:
            seat.client.park()

    def _record(self, cell: Cell, record: CompileRecord) -> None:
        self._records[cell] = record
        if record.outcome not in (Outcome.OK, Outcome.UNSTABLE):
            self._calls.pop(cell, None)
            if record.outcome is Outcome.OOM:
                sweep = _sweep_of(cell)
                self._out_of_memory[sweep] = min(
                    cell.workload.batch, self._out_of_memory.get(sweep, cell.workload.batch)
                )
        self._sink.prepared(cell, record)

    def _prepare_cell(self, seat: _Seat, cell: Cell) -> None:
        smaller = self._out_of_memory.get(_sweep_of(cell))
        if smaller is not None and cell.workload.batch > smaller:
            reason = f"not tried: batch {smaller} of this sweep ran out of memory"
            self._record(cell, CompileRecord(Outcome.OOM, reason))
            return
        try:
            self._record(cell, self._prepare_and_warm(seat, cell))
        except WorkerEnded as ended:
            self._lost_worker(seat, cell, ended)

    def _prepare_and_warm(self, seat: _Seat, cell: Cell) -> CompileRecord:
        client = self._client(seat)
        number = self._numbers[cell]
        answer = client.request("prepare", number=number, cell=cell.to_json())
        if not answer["ok"]:
            detail = f"\n{answer['detail']}" if answer.get("detail") else ""
            return CompileRecord(Outcome(answer["outcome"]), answer["reason"] + detail)
        record = CompileRecord(
            Outcome.OK,
            export_seconds=answer["export_seconds"],
            compile_seconds=answer["compile_seconds"],
            loaded=answer["loaded"],
            first_call_seconds=answer["first_call_seconds"],
            model_bytes=answer["model_bytes"],
            max_error=answer["max_error"],
            placement=tuple((key, value) for key, value in answer["placement"]),
        )
        if "mismatch" in answer:
            # No time is reported of a cell that computes something else.
            return CompileRecord(
                Outcome.MISMATCH, answer["mismatch"], max_error=record.max_error, placement=record.placement
            )
        warm = client.request("warm", number=number, protocol=self._plan.protocol.to_json())
        if not warm["ok"]:
            return CompileRecord(Outcome(warm["outcome"]), warm["reason"])
        self._calls[cell] = calls_per_batch(warm["call_seconds"], self._plan.protocol)
        settled = Outcome.OK if warm["settled"] else Outcome.UNSTABLE
        reason = (
            "" if warm["settled"] else f"did not settle in {self._plan.protocol.warmup_limit_seconds:g} s of warm-up"
        )
        return replace(
            record,
            outcome=settled,
            reason=reason,
            call_seconds=warm["call_seconds"],
            warmup_seconds=tuple(warm["series"]),
        )

    def _client(self, seat: _Seat) -> WorkerClient:
        if seat.client is None:
            seat.client = self._spawn(seat)
            seat.client.greet(seat.compiler.name)
            seat.client.hello()
        return seat.client

    def _lost_worker(self, seat: _Seat, guilty: Cell, ended: WorkerEnded) -> None:
        """Book the end of a worker on the cell it was busy with, and prepare its other cells in a new one."""
        seat.client = None
        self._record(guilty, CompileRecord(ended.outcome, ended.reason))
        for cell in [cell for cell in self._cells_of(seat) if self._alive(cell)]:
            try:
                again = self._prepare_and_warm(seat, cell)
            except WorkerEnded as second:
                self._lost_worker(seat, cell, second)
                return
            if again.outcome not in (Outcome.OK, Outcome.UNSTABLE):
                self._record(cell, again)
        self._park(seat)

    def _check_size(self, cell: Cell) -> None:
        call = self._records[cell].call_seconds
        if call is not None and call > self._plan.slow_call_seconds:
            raise GroupTooLarge(f"{cell.label} takes {call:.1f} s a call")
        if self._spare_memory() < self._plan.spare_memory_share:
            raise GroupTooLarge(f"memory ran short with {cell.label}")

    def _orders(self) -> Iterator[list[Cell]]:
        """Yield the order of each block: mirrored pairs of random permutations, or the given order every time."""
        cells = [cell for cell in self._plan.cells if self._alive(cell)]
        order = list(cells)
        for block in range(self._plan.protocol.blocks):
            if self._plan.protocol.order == "mirrored":
                if block % 2 == 0:
                    self._draw.shuffle(order)
                else:
                    order.reverse()
            yield list(order)

    def _visit_lengths(self) -> Mapping[Cell, float]:
        """Return each live cell's visit in seconds: cells of one workload stay equally long, whatever the compiler."""
        longest: dict[Any, float] = {}
        for cell in self._calls:
            seconds = visit_seconds(self._records[cell].call_seconds or 0.0, self._plan.protocol)
            longest[cell.workload] = max(seconds, longest.get(cell.workload, 0.0))
        return {cell: longest[cell.workload] for cell in self._calls}

    def _visit_cell(self, cell: Cell, block: int, position: int) -> None:
        seat, protocol = self._seat_of(cell), self._plan.protocol
        seconds = self._visit_lengths()[cell]
        try:
            answer = self._client(seat).request(
                "visit",
                timeout=self._job.timeout_seconds + 3 * seconds,
                number=self._numbers[cell],
                calls=self._calls[cell],
                seconds=seconds,
                least_batches=protocol.visit_calls if protocol.visit_seconds == 0 else 1,
                discard_seconds=protocol.discard_seconds,
                rebind=protocol.allocator == "steady",
            )
        except WorkerEnded as ended:
            self._lost_worker(seat, cell, ended)
            return
        self._park(seat)
        if not answer["ok"]:
            self._record(cell, CompileRecord(Outcome(answer["outcome"]), answer["reason"]))
            return
        arrays = {key: tuple(answer[key]) for key in ("wall_ns", "cpu_ns", "run_delay_ns", "faults")}
        self._sink.visited(cell, block, position, Visit(calls=self._calls[cell], **arrays))


def _sweep_of(cell: Cell) -> tuple[Any, ...]:
    """Identify the batch sweep a cell belongs to."""
    return cell.compiler, cell.replica, replace(cell.workload, batch=1)


def memory_pass(
    job: Job, cell: Cell, protocol: Protocol, seed: int, calls: int = 5
) -> tuple[CompileRecord, int | None]:
    """Run a cell alone in a fresh, untimed process; return its record and the process's peak resident bytes.

    The allocator is the default one: memory is reported as a user would see it.
    """
    draw = random.Random(seed)  # noqa: S311 - an address layout, not a secret
    client = WorkerClient(job, str(cell.compiler), protocol=replace(protocol, allocator="default"), draw=draw)
    try:
        client.greet(cell.compiler.name)
        client.hello()
        answer = client.request("prepare", number=0, cell=cell.to_json())
        if not answer["ok"]:
            return CompileRecord(Outcome(answer["outcome"]), answer["reason"]), None
        client.request("visit", number=0, calls=1, seconds=0, least_batches=calls, discard_seconds=0, rebind=False)
        client.close()
    except WorkerEnded as ended:
        return CompileRecord(ended.outcome, ended.reason), None
    finally:
        client.kill()
    peak = client.usage.peak_memory_bytes if client.usage is not None else None
    return CompileRecord(Outcome.OK, peak_memory_bytes=peak, model_bytes=answer["model_bytes"]), peak

"""One launch: fresh workers, each cell prepared and warmed, then blocks of visits in mirrored random order."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from typing import Protocol as TypingProtocol

from pytest_ngraph.checks import provenance
from pytest_ngraph.checks.oversight import CpuAccount, Seen, Watch
from pytest_ngraph.errors import CompileFailed, NgraphError
from pytest_ngraph.launches.checks import Checks
from pytest_ngraph.launches.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.launches.memory import memory_pass
from pytest_ngraph.launches.order import Stay, block_orders, blocks_in, stays
from pytest_ngraph.launches.referee import Referee
from pytest_ngraph.launches.surroundings import MOST_TRIES, Surroundings
from pytest_ngraph.load.beside import Company, NeighbourEnded
from pytest_ngraph.load.loads import Loads
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.spec.cells import (
    NEIGHBOUR,
    TIMED,
    Cell,
    CompileRecord,
    CompilerSpec,
    Outcome,
    Protocol,
    Reading,
    Visit,
)
from pytest_ngraph.spec.phases import CHECKS, END, LOAD, OUTPUTS, START, VISITS, WARM_UP, Spent
from pytest_ngraph.worker.answers import record_of, refusal, visit_of

__all__ = ["GroupTooLarge", "LaunchPlan", "Sink", "memory_pass", "run_launch"]
# Glances around longer visits say nothing of them.
_LONGEST_SECONDS = 1.0


class GroupTooLarge(NgraphError):
    """The cells of a launch do not fit in memory together, or one of them is too slow to share blocks with others."""


class Sink(TypingProtocol):
    """Where a launch puts what it measures, as it arrives."""

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        """Take what preparing a cell gave. A later record of the same cell replaces an earlier one."""

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        """Take one visit."""

    def block_done(self, block: int, readings: tuple[Reading, Reading] | None) -> None:
        """Note that all visits of a block have arrived, and how the reference kernel ran before and after them."""

    def progress(self, doing: str, done: int, total: int) -> None:
        """Note what is being done: step ``done`` of ``total``."""


@dataclass(frozen=True, slots=True)
class LaunchPlan:
    """What one launch measures. ``splittable`` says whether a smaller launch could be made of it.

    ``artifacts`` are the keys of what the cells' compilers read, which a worker holds its own against. ``states`` are
    the states of the machine that its blocks are wanted in: together they wait up to ``patience_seconds`` for one of
    them, or else for that of the first block; ``crowding`` is what is usual on the machine, where that is known (see
    ``spec.states.steadiness``). Cells of another side are held to what the same cells give here, unless
    with ``own_outputs`` each side is held to its own.
    """

    cells: tuple[Cell, ...]
    protocol: Protocol
    seed: int
    artifacts: Mapping[Cell, str] = field(default_factory=dict)
    splittable: bool = False
    states: tuple[Reading, ...] = ()
    patience_seconds: float = 60.0
    slow_call_seconds: float = 1.0
    spare_memory_share: float = 0.1
    own_outputs: bool = False
    crowding: float | None = None


@dataclass
class _Seat:
    """One worker of the launch and its cells, small ones first: an out-of-memory then spares the larger ones."""

    compiler: CompilerSpec
    cells: Sequence[Cell]
    client: WorkerClient | None = None

    @property
    def name(self) -> str:
        """Return what its seconds are counted for."""
        side = f" of {self.side}" if self.side else ""
        process = {0: "", NEIGHBOUR: " beside"}.get(self.cells[0].replica, " 2nd")
        return f"{self.compiler}{side}{process}"

    @property
    def side(self) -> str:
        """Return the label of the side that the worker is of, empty for here."""
        return self.cells[0].side


def run_launch(job: Job, plan: LaunchPlan, sink: Sink, *, spare_memory: Callable[[], float]) -> Spent:
    """Run one launch. Everything measured goes to ``sink`` as it arrives. Return where its seconds went.

    ``spare_memory`` returns the share of memory that is free. Raises GroupTooLarge, before anything was timed, where
    the plan is splittable and its cells are too large or too slow to share a launch. Whatever a worker does is an
    outcome of the cell it was busy with: it is restarted without that cell and the others keep their launch.
    """
    launch = _Launch(job, plan, sink, spare_memory)
    try:
        launch.start()
        launch.load()
        launch.prepare()
        for block, readings in enumerate(launch.blocks()):
            sink.block_done(block, readings)
        launch.part()
        launch.note_others()
        launch.judge_clocks()
        launch.check()
        launch.finish()
    finally:
        launch.kill()
    return launch.spent.end()


class _Launch:
    """The state of one launch: its seats, and what is known of each cell."""

    def __init__(self, job: Job, plan: LaunchPlan, sink: Sink, spare_memory: Callable[[], float]) -> None:
        self._job, self._plan, self._sink, self._spare_memory = job, plan, sink, spare_memory
        self.spent = Spent()
        self._draw = random.Random(plan.seed)  # noqa: S311 - address layouts, not secrets
        self._records: dict[Cell, CompileRecord] = {}
        self._out_of_memory: dict[tuple[Any, ...], int] = {}
        self._referee = Referee(job, plan.artifacts)
        self._company = Company(
            plan.cells,
            Path(self._referee.folder),
            job.device,
            patience_seconds=job.timeout_seconds,
            is_strict=plan.protocol.error_control,
        )
        neighbours = self._company.neighbours
        self._numbers = {cell: number for number, cell in enumerate((*plan.cells, *neighbours))}
        # A neighbour comes first: without it the cells that have it need not be prepared.
        self._seats = [*(_Seat(cell.compiler, [cell]) for cell in neighbours), *_seats_of(plan.cells)]
        self._seat_of = {cell: seat for seat in self._seats for cell in seat.cells}
        self._around = Surroundings(
            plan.states, plan.patience_seconds, plan.crowding, self.spent, lambda doing: sink.progress(doing, 0, 1)
        )
        self._checks = Checks(job, plan.protocol, plan.seed, self._referee, self._ask)
        self._loads = Loads(plan.seed)

    def start(self) -> None:
        """Spawn all workers in random order and make them import their runtimes side by side."""
        with self.spent.phase(START):
            if self._plan.protocol.reference and self._job.device.cpus:
                self._around.start(self._job.device.cpus)
            order = self._draw.sample(self._seats, len(self._seats))
            for seat in order:
                self._try_seat(seat, self._spawn)
            for seat in order:
                if seat.client is not None:
                    self._try_seat(seat, self._greeted)

    def load(self) -> None:
        """Make each worker load its first cell, side by side, and stop it: nothing is timed before all have.

        What cannot be loaded is left to ``prepare``, which says why.
        """
        with self.spent.phase(LOAD):
            loading = [seat for seat in self._seats if seat.client is not None]
            for action in (self._begin_loading, self._loaded):
                for seat in loading:
                    self._try_first_cell(seat, action)
            for seat in loading:
                self._park(seat)

    def prepare(self) -> None:
        """Compile, check and warm each cell, one at a time and everybody else parked."""
        cells = [cell for seat in self._seats for cell in seat.cells]
        for done, cell in enumerate(cells):
            if cell not in self._records:
                self._sink.progress(f"compiling {cell.label}", done, len(cells))
                self._prepare_cell(cell)
                self._park(self._seat_of[cell])
                if self._plan.splittable:
                    self._check_size(cell)

    def blocks(self) -> Iterator[tuple[Reading, Reading] | None]:
        """Visit all live cells in blocks, in mirrored random orders, until enough are quiet. Yield the readings."""
        cells = [cell for cell in self._plan.cells if self._alive(cell)]
        calls = {cell: self._records[cell].call_seconds or 0.0 for cell in cells}
        lengths = self._company.lengthened(stays(calls, self._plan.protocol), self._records)
        if not cells:
            return
        planned = blocks_in(calls, self._plan.protocol)
        self._around.spare(planned * math.fsum(lengths[cell].seconds for cell in cells))
        for block, order in enumerate(block_orders(cells, self._plan.protocol, self._plan.seed, 2 * planned)):
            if block >= planned and (block - planned) % 2 == 0 and not self._around.lacks_blocks(planned):
                return
            before = self._around.usual_state()
            for position, cell in enumerate(order):
                # A cell that failed earlier in this launch keeps its place in the order, unvisited.
                if self._alive(cell):
                    done, total = block * len(order) + position, max(planned, block + 1) * len(order)
                    self._sink.progress(f"measuring {cell.label}", done, total)
                    if (visit := self._visit(cell, lengths[cell])) is not None:
                        self._sink.visited(cell, block, position, visit)
            yield self._around.end_block(before)

    def _visit(self, cell: Cell, stay: Stay) -> Visit | None:
        """Return a visit, for which the machine should be steady, or None where the cell failed."""

        def once() -> Visit | None:
            # The neighbour does not run yet when the machine is glanced at.
            if not self._accompanied(cell):
                return None
            with self.spent.phase(VISITS, self._seat_of[cell].name):
                return self._visit_cell(cell, stay)

        most_tries = MOST_TRIES if self._company.of(cell) is None else 1
        # Glances say little of what happens in seconds. A neighbour, and what arrives, must be as it is for others.
        if stay.seconds > _LONGEST_SECONDS or rate_of(cell.workload.scenario) is not None:
            most_tries = 0
        return self._around.visited_steadily(cell, once, most_tries)

    def note_others(self) -> None:
        """Add to the records what others did during the visits, where they did anything."""
        alive = {cell: self._records[cell] for cell in self._plan.cells if self._alive(cell)}
        for cell, record in self._checks.beside(alive).items():
            if record != self._records[cell]:
                self._record(cell, record)

    def judge_clocks(self) -> None:
        """Hold what each cell's visits said of themselves against this process's clock and the kernel's account.

        A queue that grew is noted, too: times of it are true, and say nothing. So is what a neighbour did, and that a
        cell's threads waited for one another.
        """
        for cell in filter(self._alive, self._plan.cells):
            record = self._loads.judged(cell, self._checks.clocks(cell, self._records[cell]))
            record = self._checks.waits(cell, self._company.judged(cell, record, self._records))
            if record != self._records[cell]:
                self._record(cell, record)

    def check(self) -> None:
        """Compare every cell that was timed on inputs that its worker has not seen before. A mismatch has no time."""
        for cell in filter(self._alive, self._plan.cells):
            with self.spent.phase(CHECKS, self._seat_of[cell].name):
                self._check_outputs(cell)

    def _check_outputs(self, cell: Cell) -> None:
        try:
            record = self._checks.outputs(cell, self._records[cell])
        except WorkerEnded as ended:
            self._lost_worker(cell, ended)
            return
        if record.outcome in TIMED:
            record = self._probed(cell, record)
        self._park(self._seat_of[cell])
        if record != self._records[cell]:
            self._record(cell, record)

    def _probed(self, cell: Cell, record: CompileRecord) -> CompileRecord:
        """Return the record after the probe of its calls. What it ends says nothing of the cell."""
        try:
            record = self._checks.probe(cell, record)
        except WorkerEnded:
            self._replace_worker(self._seat_of[cell])
            if not self._alive(cell):
                return self._records[cell]
        return self._checks.plausible(cell, record)

    def finish(self) -> None:
        """End the workers in good order."""
        for seat in self._seats:
            if seat.client is not None:
                with self.spent.phase(END, seat.name):
                    seat.client.close()
                seat.client = None

    def kill(self) -> None:
        """End whatever still runs, all of it even where something interrupts."""
        with ExitStack() as stack:
            stack.callback(self._referee.close)
            stack.callback(self._around.close)
            for seat in self._seats:
                if seat.client is not None:
                    stack.callback(seat.client.kill)

    # Seats

    def _spawn(self, seat: _Seat) -> None:
        rebuild, job, name = any(cell.rebuild for cell in seat.cells), self._job.on(seat.side), seat.name
        seat.client = WorkerClient(job, name, protocol=self._plan.protocol, draw=self._draw, own_caches=rebuild)
        seat.client.greet(seat.compiler.name, (cell.workload.model for cell in seat.cells))

    def _try_seat(self, seat: _Seat, action: Callable[[_Seat], None]) -> None:
        """Start a seat's worker. Where it cannot, that is the outcome of all its cells."""
        try:
            action(seat)
        except WorkerEnded as ended:
            seat.client = None
            for cell in seat.cells:
                self._record(cell, CompileRecord(ended.outcome, ended.reason))

    def _greeted(self, seat: _Seat) -> None:
        """Wait until a seat's worker has imported its runtime."""
        assert seat.client is not None
        for phase, seconds in seat.client.hello().items():
            self.spent.beside(phase, seat.name, seconds)

    def _begin_loading(self, seat: _Seat, client: WorkerClient) -> None:
        cell = seat.cells[0]
        client.begin_loading(cell, self._numbers[cell], self._plan.artifacts.get(cell))

    def _loaded(self, seat: _Seat, client: WorkerClient) -> None:
        self.spent.beside(LOAD, seat.name, client.loaded())

    def _try_first_cell(self, seat: _Seat, action: Callable[[_Seat, WorkerClient], None]) -> None:
        """Ask something of a seat's first cell. A worker that it ends is lost to that cell only."""
        if seat.client is not None:
            try:
                action(seat, seat.client)
            except WorkerEnded as ended:
                self._lost_worker(seat.cells[0], ended)

    def _client(self, seat: _Seat) -> WorkerClient:
        """Return a seat's worker, a new one where it has lost its own."""
        if seat.client is None:
            with self.spent.phase(START, seat.name):
                self._spawn(seat)
                self._greeted(seat)
        assert seat.client is not None
        return seat.client

    def _park(self, seat: _Seat) -> None:
        if self._plan.protocol.parked and seat.client is not None:
            seat.client.park()

    def _lost_worker(self, guilty: Cell, ended: WorkerEnded) -> None:
        """Book the end of a worker on the cell it was busy with, and prepare its other cells in a new one."""
        # What is prepared again has nothing beside it.
        self._company.park(guilty)
        self._record(guilty, CompileRecord(ended.outcome, ended.reason))
        self._replace_worker(self._seat_of[guilty])

    def _replace_worker(self, seat: _Seat) -> None:
        """Prepare the cells of a seat that has lost its worker in a new one."""
        seat.client = None
        for cell in filter(self._alive, seat.cells):
            try:
                again = self._prepare_and_warm(cell)
            except WorkerEnded as second:
                self._lost_worker(cell, second)
                return
            # Otherwise the cell keeps the record of the worker that it had at first.
            if again.outcome is not Outcome.OK:
                self._record(cell, again)

    # Cells

    def _alive(self, cell: Cell) -> bool:
        return cell in self._records and self._records[cell].outcome in TIMED

    def _record(self, cell: Cell, record: CompileRecord) -> None:
        self._records[cell] = record
        if cell in self._company.neighbours:
            # Nobody asks for its times.
            return
        if record.outcome is Outcome.OOM:
            sweep, batch = _sweep_of(cell), cell.workload.batch
            self._out_of_memory[sweep] = min(batch, self._out_of_memory.get(sweep, batch))
        self._sink.prepared(cell, record)

    def _ask(self, cell: Cell, do: str, /, *, timeout: float, **fields: Any) -> Mapping[str, Any] | CompileRecord:
        """Return a worker's answer, or the record of a cell that was refused. Raise WorkerEnded without a worker."""
        client = self._client(self._seat_of[cell])
        answer = client.request(do, timeout=timeout, number=self._numbers[cell], **fields)
        if answer["ok"]:
            return answer
        outcome, reason = Outcome(answer["outcome"]), refusal(answer)
        if outcome is Outcome.OOM:
            # What it could not hold it may still half hold, and its allocator gives nothing back.
            raise client.end(outcome, reason)
        return CompileRecord(outcome, reason)

    def _prepare_cell(self, cell: Cell) -> None:
        if (refused := self._without_neighbour(cell)) is not None:
            self._record(cell, refused)
            return
        smaller = self._out_of_memory.get(_sweep_of(cell))
        if smaller is not None and cell.workload.batch > smaller:
            reason = f"not tried: batch {smaller} of this sweep ran out of memory"
            self._record(cell, CompileRecord(Outcome.OOM, reason))
            return
        try:
            record = self._prepare_and_warm(cell)
            if cell in self._company.neighbours and record.outcome in TIMED:
                # It is held to what cells are held to, before it runs beside any.
                record = self._checks.outputs(cell, record)
        except WorkerEnded as ended:
            self._lost_worker(cell, ended)
        else:
            self._record(cell, record)

    def _prepare_and_warm(self, cell: Cell) -> CompileRecord:
        seat, limit, protocol = self._seat_of[cell], self._job.timeout_seconds, self._plan.protocol
        with self.spent.phase(OUTPUTS, seat.name):
            if (refused := self._unlike_here(cell)) is not None:
                return refused
            answer = self._ask(
                cell,
                "prepare",
                timeout=limit,
                cell=self._job.on(cell.side).sent(cell),
                artifact=self._plan.artifacts.get(cell),
                outputs=self._referee.folder,
            )
            if isinstance(answer, CompileRecord):
                return answer
            self.spent.divide(answer["spent_seconds"])
            self._park(seat)
            record = self._read_back(cell, answer, record_of(answer))
            if record.outcome is Outcome.OK:
                record = self._referee.first(cell, answer, record)
            if record.outcome is not Outcome.OK:
                self._ask(cell, "forget", timeout=limit)
                return record
        limit += protocol.warmup_limit_seconds
        with self.spent.phase(WARM_UP, seat.name):
            warm = self._ask(cell, "warm", timeout=limit, protocol=protocol.to_json())
        if isinstance(warm, CompileRecord):
            return warm
        record = replace(
            record,
            call_seconds=warm["call_seconds"],
            warmup_seconds=tuple(warm["series"]),
            slow_start_seconds=warm["slow_start_seconds"],
        )
        if warm["settled"]:
            return record
        reason = f"did not settle in {protocol.warmup_limit_seconds:g} s of warm-up"
        return replace(record, outcome=Outcome.UNSTABLE, reason=reason)

    def _unlike_here(self, cell: Cell) -> CompileRecord | None:
        """Return what becomes of a cell of another side whose model gives something else than it does here."""
        if self._plan.own_outputs or not cell.side:
            return None
        try:
            reason = self._referee.unlike(cell)
        except CompileFailed as error:
            return CompileRecord(Outcome.FAILED, str(error))
        return CompileRecord(Outcome.MISMATCH, reason) if reason else None

    def _read_back(self, cell: Cell, answer: Mapping[str, Any], record: CompileRecord) -> CompileRecord:
        """Return the record of a cell of another side with what its worker loaded, which must be that side."""
        side = self._job.on(cell.side).side
        return record if side is None else provenance.read_back(side, answer["provenance"], record)

    def _check_size(self, cell: Cell) -> None:
        call = self._records[cell].call_seconds
        if call is not None and call > self._plan.slow_call_seconds:
            raise GroupTooLarge(f"{cell.label} takes {call:.1f} s a call")
        if self._spare_memory() < self._plan.spare_memory_share:
            raise GroupTooLarge(f"memory ran short with {cell.label}")

    def _visit_cell(self, cell: Cell, stay: Stay) -> Visit | None:
        """Return one visit, or None where the cell failed, which is then its record."""
        protocol, call = self._plan.protocol, self._records[cell].call_seconds or 0.0
        try:
            watch = Watch(self._client(self._seat_of[cell]).cpu, self._job.device.cpus, self._account_beside(cell))
            answer = self._ask(
                cell,
                "visit",
                timeout=self._job.timeout_seconds + 3 * max(stay.seconds, stay.batches * stay.calls * call),
                calls=stay.calls,
                seconds=stay.seconds,
                least_batches=stay.batches,
                discard_seconds=protocol.discard_seconds,
                rebind=protocol.allocator == "steady",
                load=self._loads.arriving(cell, stay.seconds, stay.discard_seconds),
                progress=watch.bound,
            )
            seen = None if isinstance(answer, CompileRecord) else watch.answered(visit_of(answer))
            if seen is None or not seen.visit.is_stolen():
                self._loads.visited(cell, answer)
        except WorkerEnded as ended:
            self._lost_worker(cell, ended)
            answer, seen = self._records[cell], None
        self._part_from(cell)
        if seen is None:
            if isinstance(answer, CompileRecord) and self._alive(cell):
                self._record(cell, answer)
            return None
        if reason := self._checks.visited(cell, seen):
            self._record(cell, CompileRecord(Outcome.FAILED, reason))
            return None
        return self._beside_neighbour(cell, seen)

    # Neighbours

    def _without_neighbour(self, cell: Cell) -> CompileRecord | None:
        """Return what becomes of a cell whose neighbour cannot run, or None."""
        neighbour = self._company.of(cell)
        if neighbour is None or self._alive(neighbour):
            return None
        found = self._records[neighbour]
        return CompileRecord(found.outcome, f"its neighbour {cell.workload.neighbour}: {found.reason}")

    def _accompanied(self, cell: Cell) -> bool:
        """Have the neighbour of a cell run, if it has one. Where it cannot, that is what becomes of the cell."""
        neighbour = self._company.of(cell)
        if neighbour is None:
            return True
        client = self._seat_of[neighbour].client
        try:
            if client is None:
                raise NeighbourEnded("its process is gone")
            self._company.run(neighbour, self._numbers[neighbour], client)
        except (WorkerEnded, NeighbourEnded) as ended:
            self._lost_neighbour(neighbour, str(ended))
            return False
        return True

    def _account_beside(self, cell: Cell) -> CpuAccount | None:
        neighbour = self._company.of(cell)
        client = self._seat_of[neighbour].client if neighbour is not None else None
        return client.cpu if client is not None else None

    def _part_from(self, cell: Cell) -> None:
        """Park a cell's worker, and its neighbour whatever the protocol: it would run beside the next one."""
        self._company.park(cell)
        self._park(self._seat_of[cell])

    def _beside_neighbour(self, cell: Cell, seen: Seen) -> Visit | None:
        """Return a visit as it counts, or None where a neighbour did not run all through it."""
        try:
            return self._company.visited(cell, seen.visit, seen.beside)
        except (WorkerEnded, NeighbourEnded) as ended:
            neighbour = self._company.of(cell)
            assert neighbour is not None
            self._lost_neighbour(neighbour, str(ended))
            return None

    def _lost_neighbour(self, neighbour: Cell, reason: str) -> None:
        """Book the end of a neighbour on all cells that have it. None of them is measured without it."""
        self._end_neighbour(neighbour)
        self._record(neighbour, CompileRecord(Outcome.FAILED, reason))
        for cell in filter(self._alive, self._company.cells_of(neighbour)):
            said = f"its neighbour {cell.workload.neighbour} ended while it was to run: {reason}"
            self._record(cell, CompileRecord(Outcome.FAILED, said))

    def part(self) -> None:
        """End the neighbours: what follows is looked at without them."""
        for neighbour in self._company.neighbours:
            self._end_neighbour(neighbour)

    def _end_neighbour(self, neighbour: Cell) -> None:
        seat = self._seat_of[neighbour]
        self._company.forget(neighbour)
        if seat.client is not None:
            # It is in the middle of a call, and has nothing more to say.
            seat.client.kill()
            seat.client = None


def _seats_of(cells: Sequence[Cell]) -> list[_Seat]:
    """Return a seat for each compiler on each side, and for the second process of one that is compared with itself."""
    mine: dict[tuple[CompilerSpec, int, str], list[Cell]] = {}
    for cell in cells:
        mine.setdefault((cell.compiler, cell.replica, cell.side), []).append(cell)
    return [
        _Seat(compiler, sorted(held, key=lambda cell: (cell.workload.batch, cell.workload.depth or 0)))
        for (compiler, *_), held in mine.items()
    ]


def _sweep_of(cell: Cell) -> tuple[Any, ...]:
    """Identify the batch sweep a cell belongs to."""
    return cell.compiler, cell.replica, cell.side, replace(cell.workload, batch=1)

"""The launcher: builds what cells read, runs launches on the device, and commits what they measure as it arrives."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any
from typing import Protocol as TypingProtocol

from pytest_ngraph import environment
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.conditions import wanted_states, why_unusable
from pytest_ngraph.measure.answers import refusal
from pytest_ngraph.measure.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.measure.launch import GroupTooLarge, LaunchPlan, memory_pass, run_launch
from pytest_ngraph.planner import Group, ItemPlan, launch_seconds
from pytest_ngraph.settings import Settings
from pytest_ngraph.spec import PROTOCOLS, Cell, CompileRecord, Outcome, Reading, Visit, digest
from pytest_ngraph.stats.visits import summarise
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads import artifacts

_STEADY_FAULTS = 100
_REPETITIONS = PROTOCOLS["paper"].visit_calls
NO_TIME = frozenset(Outcome) - {Outcome.OK, Outcome.UNSTABLE}


class Listener(TypingProtocol):
    """Whoever shows what is being done."""

    def group_started(self, name: str, cells: int, launches: int, seconds: float) -> None:
        """Hear that a launch of a group begins: up to which launch is wanted, and the estimated seconds of each."""

    def progress(self, name: str, launch: int, of: int, doing: str, done: int, total: int) -> None:
        """Hear what the running launch does: step ``done`` of ``total``."""

    def note(self, text: str) -> None:
        """Hear something a user wants to know at once."""

    def idle(self) -> None:
        """Hear that measuring paused."""


@dataclass(slots=True)
class Tally:
    """What a session has done, for the summary.

    ``fixed_calls`` and ``fixed_seconds`` are what the paper's 100 repetitions of each measured cell would have used.
    """

    measured_launches: int = 0
    invalid_launches: int = 0
    measured_seconds: float = 0.0
    reused_launches: int = 0
    calls: int = 0
    fixed_calls: int = 0
    fixed_seconds: float = 0.0


@dataclass(slots=True)
class Ledger:
    """What is known of cells in this session: their evidence keys, and what became of those without a time."""

    keys: dict[Cell, str] = field(default_factory=dict)
    failures: dict[Cell, CompileRecord] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    timed: set[Cell] = field(default_factory=set)

    def alive(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that did not fail."""
        return [cell for cell in cells if cell not in self.failures]


class Launcher:
    """Measures on the local device; the caller holds the device lock."""

    def __init__(
        self, settings: Settings, catalogue: Catalogue, job: Job, listener: Listener, ledger: Ledger, uid: str
    ) -> None:
        self._settings, self._catalogue, self._job = settings, catalogue, job
        self._listener, self._ledger, self._uid = listener, ledger, uid
        self._artifacts: dict[Cell, str] = {}
        self._tuned: set[Cell] = set()

    def launch(
        self, store: Store, run_id: int, group: Group, items: Sequence[ItemPlan], *, number: int, wanted: int
    ) -> float:
        """Run one launch for these tests of a group and return the wall seconds it took.

        A group that proves too large or too slow is split; its next launch goes in parts.
        """
        began = time.monotonic()
        parts = self._with_controls(group, group.parts(items))
        cells = list(dict.fromkeys(cell for part in parts for cell in part))
        if not self.make_ready(store, run_id, cells):
            return time.monotonic() - began
        parts = [self._ledger.alive(part) for part in parts]
        estimate = sum(launch_seconds(part, self._settings.protocol, group.call_seconds) for part in parts)
        self._listener.group_started(group.name, len(self._ledger.alive(cells)), wanted, estimate)
        try:
            for part in filter(None, parts):
                self._one_launch(store, run_id, group, part, number, wanted)
        except GroupTooLarge as reason:
            self._listener.note(f"{group.name}: {reason}; each compiler gets launches of its own with the baseline")
            group.is_split = True
        finally:
            self._listener.idle()
        return time.monotonic() - began

    def _with_controls(self, group: Group, parts: list[list[Cell]]) -> list[list[Cell]]:
        """Return the parts, each with a second process of its baseline unless it has one."""
        if not self._settings.protocol.control:
            return parts
        done = []
        for part in parts:
            twins = [twin for twin, cell in group.controls.items() if cell in part and twin in self._ledger.keys]
            has_one = any(cell.replica for cell in part) or not self._ledger.alive(twins)
            done.append(part if has_one else [*part, self._ledger.alive(twins)[0]])
        return done

    def _one_launch(
        self, store: Store, run_id: int, group: Group, cells: Sequence[Cell], number: int, wanted: int
    ) -> None:
        # A seed for every launch of every run, which is kept with it.
        seed = _seed(self._settings.seed, self._uid, group.name, number, [cell.label for cell in cells])
        splittable = not group.is_split and len({(cell.compiler, cell.replica) for cell in cells}) > 2
        cpus = self._job.device.cpus
        begun = self._snapshot()
        launch_id = store.start_launch(
            run_id,
            group=group.name,
            number=number,
            seed=seed,
            protocol=self._settings.protocol,
            order=[cell.label for cell in cells],
            environment=begun,
        )
        where, controls = (group.name, number + 1, wanted), frozenset(group.controls) - frozenset(group.cells)
        sink = _StoreSink(store, launch_id, self._ledger, self._listener, where, self._snapshot, controls)
        states = wanted_states([record for record in group.launches if record.holds(self._timed(cells))])
        # A host keeps its virtual CPUs where it put them for some tens of seconds. Whether to wait or to launch again,
        # nobody knows; waiting for as long as a launch takes costs at most twice the better of the two.
        patience = launch_seconds(cells, self._settings.protocol, group.call_seconds)
        plan = LaunchPlan(
            tuple(cells), self._settings.protocol, seed, dict(self._artifacts), splittable, states, patience
        )
        began = time.monotonic()
        try:
            run_launch(self._job, plan, sink, spare_memory=environment.spare_memory_share)
        except GroupTooLarge as reason:
            # What became of its cells is kept, though the launch cannot count.
            store.finish_launch(launch_id, invalid=str(reason), environment=self._snapshot())
            raise
        finally:
            # Also of a launch that was given up as too slow: the next estimate knows why.
            group.call_seconds.update(sink.call_seconds)
        invalid, ended = "", self._snapshot()
        if self._settings.protocol.error_control:
            sink.book_unstable()
            invalid = environment.disturbance(begun, sink.blocks_begun, ended, max(1, len(cpus)))
            invalid = invalid or sink.why_invalid()
        if invalid:
            group.invalid.append(invalid)
            self._ledger.tally.invalid_launches += 1
            self._listener.note(f"{group.name}: launch {number + 1} does not count: {invalid}")
        store.finish_launch(launch_id, invalid=invalid, environment=ended, readings=sink.readings)
        self._ledger.tally.measured_launches += 1
        self._ledger.tally.measured_seconds += time.monotonic() - began

    def _snapshot(self) -> Mapping[str, Any]:
        """Return the state of the device at this moment."""
        return environment.snapshot(self._job.device.cpus, self._job.device.accelerator)

    def _timed(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that a launch must hold to be compared with others: those that live, controls apart."""
        return [cell for cell in self._ledger.alive(cells) if not cell.replica]

    def memory(self, store: Store, run_id: int, cell: Cell, *, number: int, wanted: int) -> None:
        """Run one untimed pass in which a cell is alone in its process, and keep the peak of its memory."""
        if not self.make_ready(store, run_id, [cell]):
            return
        seed = _seed(self._settings.seed, cell.label, number)
        self._listener.progress(cell.label, number + 1, wanted, "measuring memory of", 0, 1)
        launch_id = store.start_launch(
            run_id,
            group=cell.label,
            number=number,
            seed=seed,
            protocol=self._settings.protocol,
            kind="memory",
            order=[cell.label],
            environment=self._snapshot(),
        )
        record, _ = memory_pass(self._job, cell, self._settings.protocol, seed)
        store.add_prepared(launch_id, cell, self._ledger.keys[cell], record)
        store.finish_launch(launch_id, environment=self._snapshot())
        self._listener.idle()
        if record.outcome in NO_TIME:
            self._ledger.failures[cell] = record

    def make_ready(self, store: Store, run_id: int, cells: Sequence[Cell]) -> bool:
        """Build what the cells read and is not in the cache, and tune; return whether any cell is left to measure."""
        missing = []
        for cell in self._ledger.alive(cells):
            if not self._has_artifact(cell):
                missing.append(cell)
        if missing:
            self.build(store, run_id, missing)
            for cell in self._ledger.alive(missing):
                self._has_artifact(cell)
        for cell in self._ledger.alive(cells):
            self._tune(store, run_id, cell)
        return bool(self._ledger.alive(cells))

    def _tune(self, store: Store, run_id: int, cell: Cell) -> None:
        """Let a compiler that tunes do so, once in a session; a search that fails is the outcome of the cell."""
        adapter = self._catalogue.get(cell.compiler.name)
        options = adapter.resolve(cell.compiler)
        if cell in self._tuned or not adapter.tunes(options):
            return
        self._tuned.add(cell)
        begun = False

        def progress(doing: str, done: int, total: int) -> None:
            nonlocal begun
            if not begun:
                # A search that was finished before is silent.
                begun = True
                self._listener.note(f"tuning {cell.label}: {adapter.tuning_plan(options)}")
            self._listener.progress(cell.label, 1, 1, doing, done, total)

        client: WorkerClient | None = None
        try:
            client = self._client(str(cell.compiler))
            client.greet(cell.compiler.name, [cell.workload.model.scheme])
            client.hello()
            answer = client.request("tune", progress=progress, cell=cell.to_json())
            client.close()
        except WorkerEnded as ended:
            answer = {"ok": False, "outcome": ended.outcome.value, "reason": ended.reason}
        finally:
            if client is not None:
                client.kill()
            self._listener.idle()
        if not answer["ok"]:
            self._book(store, run_id, [cell], CompileRecord(Outcome(answer["outcome"]), refusal(answer)))

    def _has_artifact(self, cell: Cell) -> bool:
        """Tell whether what a cell reads is in the cache, and remember which one the first was."""
        reads = self._catalogue.get(cell.compiler.name).reads
        if reads == "nothing":
            return True
        found = artifacts.find(cell.workload, self._settings.seed, self._job.artifacts, reads == "onnx")
        if found is not None:
            self._artifacts.setdefault(cell, found.key)
        return found is not None

    def build(self, store: Store, run_id: int, cells: Sequence[Cell]) -> None:
        """Build the artifacts of the cells in one process; what fails is the outcome of the cells that need it."""
        wanted: dict[tuple[object, bool], list[Cell]] = {}
        for cell in cells:
            onnx = self._catalogue.get(cell.compiler.name).reads == "onnx"
            wanted.setdefault((cell.workload, onnx), []).append(cell)
        client: WorkerClient | None = None
        try:
            for number, ((_, onnx), users) in enumerate(wanted.items()):
                doing = f"{'exporting' if onnx else 'building'} {users[0].workload.label}"
                self._listener.progress(users[0].workload.label, 1, 1, doing, number, len(wanted))
                try:
                    client = client or self._client("builder")
                    answer = client.request("build", workload=users[0].workload.to_json(), want_onnx=onnx)
                except WorkerEnded as ended:
                    client = None
                    answer = {"ok": False, "outcome": ended.outcome.value, "reason": ended.reason}
                if not answer["ok"]:
                    self._book(store, run_id, users, CompileRecord(Outcome(answer["outcome"]), refusal(answer)))
            if client is not None:
                client.close()
        finally:
            if client is not None:
                client.kill()
            self._listener.idle()

    def _client(self, name: str) -> WorkerClient:
        draw = random.Random(0)  # noqa: S311 - an address layout, not a secret
        return WorkerClient(self._job, name, protocol=self._settings.protocol, draw=draw)

    def _book(self, store: Store, run_id: int, cells: Sequence[Cell], record: CompileRecord) -> None:
        """Keep that cells failed before any launch could hold them."""
        self._ledger.failures.update(dict.fromkeys(cells, record))
        launch_id = store.start_launch(
            run_id,
            group=cells[0].workload.label,
            number=0,
            seed=self._settings.seed,
            protocol=self._settings.protocol,
            kind="build",
            order=[],
            environment={},
        )
        for cell in cells:
            store.add_prepared(launch_id, cell, self._ledger.keys.get(cell, ""), record)
        store.finish_launch(launch_id)


class _StoreSink:
    """Commits what a launch measures as it arrives, and tells the listener how far it is."""

    def __init__(
        self,
        store: Store,
        launch_id: int,
        ledger: Ledger,
        listener: Listener,
        where: tuple[str, int, int],
        snapshot: Callable[[], Mapping[str, Any]],
        controls: frozenset[Cell],
    ) -> None:
        self._controls = controls
        self._store, self._launch_id, self._ledger = store, launch_id, ledger
        self._listener, self._where, self._snapshot = listener, where, snapshot
        self.call_seconds: dict[Cell, float] = {}
        self.readings: list[tuple[Reading, Reading] | None] = []
        self.blocks_begun = snapshot()
        self._usable: list[tuple[int, bool]] = []
        self._records: dict[Cell, CompileRecord] = {}
        self._faults: dict[Cell, list[float]] = {}

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        self._store.add_prepared(self._launch_id, cell, self._ledger.keys[cell], record)
        self._records[cell] = record
        if not self._usable:
            # What came before the first visit was not timed.
            self.blocks_begun = self._snapshot()
        if record.call_seconds is not None:
            self.call_seconds[cell] = record.call_seconds
            self._count_fixed(cell, record)
        if record.outcome in NO_TIME:
            self._ledger.failures[cell] = record

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        self._store.add_visit(self._launch_id, cell, block, position, visit)
        self._ledger.tally.calls += visit.calls * len(visit.wall_ns)
        summary = summarise(visit)
        self._usable.append((block, summary.ln_seconds is not None))
        if summary.faults_per_call is not None:
            self._faults.setdefault(cell, []).append(summary.faults_per_call)

    def block_done(self, block: int, readings: tuple[Reading, Reading] | None) -> None:
        self.readings.append(readings)
        self._store.commit()

    def _count_fixed(self, cell: Cell, record: CompileRecord) -> None:
        """Count once what the fixed protocol would have used for a cell: its preparation and 100 calls."""
        if cell not in self._ledger.timed and cell not in self._controls:
            self._ledger.timed.add(cell)
            tally = self._ledger.tally
            tally.fixed_calls += _REPETITIONS
            seconds = (record.compile_seconds or 0.0) + (record.first_call_seconds or 0.0)
            tally.fixed_seconds += seconds + _REPETITIONS * (record.call_seconds or 0.0)

    def book_unstable(self) -> None:
        """Call cells unstable that now and then get their memory anew: there are two speeds (MEASUREMENT step 4)."""
        for cell, faults in self._faults.items():
            record = self._records[cell]
            if record.outcome is Outcome.OK and max(faults) - min(faults) > _STEADY_FAULTS:
                reason = f"{min(faults):.0f} to {max(faults):.0f} minor faults a call, depending on the visit"
                self.prepared(cell, replace(record, outcome=Outcome.UNSTABLE, reason=reason))

    def why_invalid(self) -> str:
        """Return why the launch must not count, or nothing (MEASUREMENT step 6)."""
        return why_unusable(self._usable, self.readings)

    def progress(self, doing: str, done: int, total: int) -> None:
        self._listener.progress(*self._where, doing, done, total)


def _seed(*parts: object) -> int:
    return int(digest(list(parts))[:12], 16)

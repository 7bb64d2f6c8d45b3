"""The session: answers from the store first, measures what is missing, and decides gates launch by launch."""

from __future__ import annotations

import random
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING
from typing import Protocol as TypingProtocol

from pytest_ngraph import environment
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.lock import device_lock
from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.evidence import Evidence
from pytest_ngraph.measure.client import Job, WorkerClient, WorkerEnded
from pytest_ngraph.measure.launch import GroupTooLarge, LaunchPlan, memory_pass, run_launch
from pytest_ngraph.planner import Group, ItemPlan, groups_of, launch_seconds
from pytest_ngraph.settings import Settings
from pytest_ngraph.spec import Cell, CompileRecord, Device, LaunchRecord, Outcome, Visit, digest
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store

if TYPE_CHECKING:
    from pytest_ngraph.workloads.artifacts import Artifact

FIRST_LOOK = 3
_BAD = frozenset(Outcome) - {Outcome.OK, Outcome.UNSTABLE}
# Launches with a wall-time budget stop here at the latest: beyond, an interval hardly narrows.
_MOST_LAUNCHES = 32


class Listener(TypingProtocol):
    """Whoever shows what the session does."""

    def group_started(self, name: str, cells: int, launches: int, seconds: float) -> None:
        """Hear that launches of a group begin: how many at least, and the estimated seconds of each."""

    def progress(self, name: str, launch: int, of: int, doing: str, done: int, total: int) -> None:
        """Hear what the running launch does: step ``done`` of ``total``."""

    def note(self, text: str) -> None:
        """Hear something a user wants to know at once."""

    def idle(self) -> None:
        """Hear that measuring paused."""


@dataclass(slots=True)
class Tally:
    """What a session has done, for the summary."""

    measured_launches: int = 0
    measured_seconds: float = 0.0
    reused_launches: int = 0
    calls: int = 0


class Session:
    """One run's door to measurements. Used from one thread."""

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        job: Job,
        listener: Listener,
        *,
        uid: str,
        command: Sequence[str],
    ) -> None:
        self.settings, self.catalogue, self._job, self._listener = settings, catalogue, job, listener
        self._uid, self._command = uid, command
        self._evidence = Evidence(catalogue, job.device, settings.protocol, settings.seed, job.artifacts)
        self._groups: dict[str, Group] = {}
        self._finished: set[str] = set()
        self._keys: dict[Cell, str] = {}
        self._failures: dict[Cell, CompileRecord] = {}
        self._attempts: dict[str, int] = {}
        self._spent: dict[str, float] = {}
        self._records: dict[str, list[LaunchRecord]] = {}
        self._store: Store | None = None
        self._run_id = 0
        self.tally = Tally()

    # Planning

    def plan(self, items: Iterable[ItemPlan]) -> list[Group]:
        """Take the tests that will run, in order, and return their launch groups."""
        groups = groups_of(items)
        self._groups = {item.nodeid: group for group in groups for item in group.items}
        return groups

    def adopt(self, plan: ItemPlan) -> None:
        """Take one more plan, made while a test runs, as a group of its own."""
        self._groups[plan.nodeid] = groups_of([plan])[0]

    def item(self, nodeid: str) -> ItemPlan:
        """Return the plan of a test."""
        return next(item for item in self._groups[nodeid].items if item.nodeid == nodeid)

    def group_key(self, nodeid: str) -> str:
        """Return what identifies the launch group of a test: estimates may be compared within it only."""
        return self._name(self._groups[nodeid])

    def finished(self, nodeid: str) -> None:
        """Hear that a test is over: later launches of its group need not serve it."""
        self._finished.add(nodeid)

    # The store

    @property
    def store(self) -> Store:
        """Return the open store; the run is begun in it at the first use."""
        if self._store is None:
            offline = self.settings.offline
            self._store = Store.open(self.settings.store, read_only=offline)
            if not offline:
                self._begin(self._store)
        return self._store

    @property
    def run_id(self) -> int:
        """Return the id of this run in the store; 0 where nothing is written."""
        return self._run_id

    def _begin(self, store: Store) -> None:
        interrupted = store.unfinished_run() if self.settings.resume else None
        uid = interrupted.uid if interrupted is not None else self._uid
        if self.settings.resume:
            self._listener.note(
                f"resuming the run of {interrupted.started_at}" if interrupted else "nothing to resume: a new run"
            )
        self._run_id = store.start_run(
            uid,
            command=self._command,
            seed=self.settings.seed,
            protocol=self.settings.protocol,
            environment=environment.describe(),
            fresh=self.settings.fresh,
            resumed=interrupted is not None,
        )

    def keep_verdict(self, row: VerdictRow) -> None:
        """Keep how a claim was judged."""
        if not self.settings.offline:
            self.store.add_verdict(self._run_id, row)

    def close(self, status: str) -> None:
        """End the run in the store."""
        if self._store is not None:
            if self._run_id:
                self._store.finish_run(self._run_id, status)
            self._store.close()
            self._store = None

    # Data

    def failure(self, nodeid: str, cells: Iterable[Cell]) -> tuple[Cell, CompileRecord] | None:
        """Return the first of these cells that has no time, with what became of it; None where all have one."""
        return next(((cell, self._failures[cell]) for cell in cells if cell in self._failures), None)

    def launches(self, nodeid: str, cells: Sequence[Cell]) -> list[LaunchRecord]:
        """Return the launches in which all these cells were measured, the first look's at least.

        Measures what is missing, for every unfinished test of the group at once. Fewer come back where a cell
        failed, where the budget ended, or offline.
        """
        group = self._groups[nodeid]
        self._ready(group)
        self._measure_until(group, self.item(nodeid), self._first_look())
        return self._stored(group, cells)

    def one_more(self, nodeid: str, cells: Sequence[Cell]) -> bool:
        """Measure one more launch for a gate that is not decided; return whether there is one more now."""
        group, item = self._groups[nodeid], self.item(nodeid)
        have = len(self._stored(group, cells))
        if self.settings.offline or not self.settings.protocol.error_control or self.budget_spent(nodeid, have):
            return False
        self._measure_until(group, item, have + 1)
        return len(self._stored(group, cells)) > have

    @property
    def device(self) -> Device:
        """Return the device that is measured."""
        return self._job.device

    def budget_spent(self, nodeid: str, launches: int) -> bool:
        """Tell whether a test's budget allows no further launch."""
        budget = self.item(nodeid).budget
        if budget.launches is not None:
            return launches >= budget.launches
        spent = self._spent.get(self.group_key(nodeid), 0.0)
        return launches >= _MOST_LAUNCHES or spent >= (budget.seconds or 0.0)

    def most_launches(self, nodeid: str) -> int:
        """Return the number of launches after which a test's budget ends at the latest."""
        return self.item(nodeid).budget.launches or _MOST_LAUNCHES

    def memory(self, nodeid: str, cell: Cell, wanted: int = 0) -> list[LaunchRecord]:
        """Return the untimed passes in which a cell ran alone, as many as wanted or as a first look has."""
        self._ready(self._groups[nodeid])
        if cell not in self._keys or cell in self._failures:
            return []
        evidence = {cell: self._keys[cell]}
        found = self.store.launches(evidence, kind="memory")
        while len(found) < max(wanted, self._first_look()) and not self.settings.offline and cell not in self._failures:
            with device_lock(cell.device, waiting=self._listener.note):
                self._memory_launch(cell, len(found))
            found = self.store.launches(evidence, kind="memory")
        return found

    # Measuring

    def _first_look(self) -> int:
        return FIRST_LOOK if self.settings.protocol.error_control else 1

    def _name(self, group: Group) -> str:
        return digest([cell.to_json() for cell in group.cells])[:16]

    def _ready(self, group: Group) -> None:
        """Work out the evidence of a group's cells, building the models that must be built to know it."""
        if self._name(group) in self._records:
            return
        unknown = [cell for cell in group.cells if cell not in self._keys and cell not in self._failures]
        self._look_up(unknown)
        if not self.settings.offline:
            self._keep_baselines(group)
        self._reload(group)
        self.tally.reused_launches += len(self._records[self._name(group)])

    def _look_up(self, unknown: Sequence[Cell]) -> None:
        fresh: dict[Cell, str] = {}
        unbuilt = []
        for cell in unknown:
            refusal = self.catalogue.get(cell.compiler.name).why_not(cell, self._job.device)
            if refusal is not None:
                self._failures[cell] = CompileRecord(Outcome.UNSUPPORTED, refusal)
                continue
            key = self._evidence.key(cell)
            if key is None:
                unbuilt.append(cell)
            else:
                fresh[cell] = key
        if unbuilt and not self.settings.offline:
            self._build(unbuilt)
            for cell in unbuilt:
                key = self._evidence.key(cell) if cell not in self._failures else None
                if key is not None:
                    fresh[cell] = key
        self._keys.update(fresh)
        if self.settings.offline:
            self._failures.update(
                {cell: record for cell, record in self.store.failed(fresh).items() if record.outcome in _BAD}
            )
            return
        if self.settings.fresh:
            self.store.start_epoch(fresh.values(), run_id=self._run_id)
        self.store.use_cells(self._run_id, fresh)

    def _keep_baselines(self, group: Group) -> None:
        """Keep what each cell of a group is compared with, for reports."""
        against = {}
        for item in group.items:
            by_workload = {cell.workload: cell for cell in item.baselines}
            against.update({cell: by_workload[cell.workload] for cell in item.cells})
        self.store.use_baselines(self._run_id, against)

    def _reload(self, group: Group) -> None:
        """Read the launches of a group from the store: what this run measured, and what others did."""
        evidence = {cell: self._keys[cell] for cell in group.cells if cell in self._keys}
        self._records[self._name(group)] = self.store.launches(evidence) if evidence else []

    def _stored(self, group: Group, cells: Sequence[Cell]) -> list[LaunchRecord]:
        """Return the known launches of a group that measured all of these cells."""
        return [record for record in self._records[self._name(group)] if _holds(record, cells)]

    def _count(self, group: Group, item: ItemPlan) -> int:
        """Count the launches that measured all cells of a test, those apart that have no time."""
        return len(self._stored(group, [cell for cell in item.all_cells if cell not in self._failures]))

    def _measure_until(self, group: Group, item: ItemPlan, wanted: int) -> None:
        """Launch until a test has as many launches as wanted, its budget ends or nothing of it can be measured."""
        name = self._name(group)
        while self._wants(group, item, wanted) and not self.settings.offline:
            with device_lock(group.device, waiting=self._listener.note):
                # Somebody else may have measured the group while we waited for the device.
                self._reload(group)
                if not self._wants(group, item, wanted):
                    break
                open_items = [other for other in group.items if other.nodeid not in self._finished]
                lacking = [other for other in open_items if other is item or self._wants(group, other, wanted)]
                cells = dict.fromkeys(cell for other in lacking for cell in other.all_cells)
                self._launch(group, [cell for cell in cells if cell not in self._failures], wanted)
                self._reload(group)
            if self._attempts[name] >= 2 * self.most_launches(item.nodeid) + FIRST_LOOK:
                break

    def _wants(self, group: Group, item: ItemPlan, wanted: int) -> bool:
        alive = [cell for cell in item.cells if cell not in self._failures]
        if not alive or all(cell in self._failures for cell in item.baselines):
            return False
        return self._count(group, item) < wanted

    def _launch(self, group: Group, cells: Sequence[Cell], wanted: int) -> None:
        name = self._name(group)
        if not self._ensure_artifacts(cells):
            return
        cells = [cell for cell in cells if cell not in self._failures]
        number = self._attempts.get(name, 0)
        self._attempts[name] = number + 1
        parts = [[cell for cell in pair if cell in cells] for pair in group.pairs] or [list(cells)]
        known = self._call_seconds(group)
        self._listener.group_started(
            group.name, len(cells), wanted, sum(launch_seconds(part, self.settings.protocol, known) for part in parts)
        )
        began = time.monotonic()
        try:
            for part in parts:
                self._one_launch(group, part, number, wanted)
        except GroupTooLarge as reason:
            self._listener.note(f"{group.name}: {reason}; each compiler gets launches of its own with the baseline")
            group.split()
        finally:
            self._listener.idle()
            elapsed = time.monotonic() - began
            self._spent[name] = self._spent.get(name, 0.0) + elapsed
            self.tally.measured_seconds += elapsed

    def _one_launch(self, group: Group, cells: Sequence[Cell], number: int, wanted: int) -> None:
        if not cells:
            return
        # Every launch of every run has a seed of its own, reproducible from what is stored.
        seed = int(digest([self.settings.seed, self._uid, group.name, number, [cell.label for cell in cells]])[:12], 16)
        splittable = not group.pairs and len({(cell.compiler, cell.replica) for cell in cells}) > 2
        plan = LaunchPlan(tuple(cells), self.settings.protocol, seed, splittable)
        launch_id = self.store.start_launch(
            self._run_id,
            group=group.name,
            number=number,
            seed=seed,
            protocol=self.settings.protocol,
            order=[cell.label for cell in cells],
            environment=environment.snapshot(),
        )
        sink = _StoreSink(self, launch_id, group.name, number + 1, wanted)
        run_launch(self._job, plan, sink, spare_memory=environment.spare_memory_share)
        self.store.finish_launch(launch_id, environment=environment.snapshot())
        self.tally.measured_launches += 1

    def _memory_launch(self, cell: Cell, number: int) -> None:
        if not self._ensure_artifacts([cell]):
            return
        seed = int(digest([self.settings.seed, cell.label, number])[:12], 16)
        self._listener.progress(cell.label, number + 1, self._first_look(), "measuring memory of", 0, 1)
        launch_id = self.store.start_launch(
            self._run_id,
            group=cell.label,
            number=number,
            seed=seed,
            protocol=self.settings.protocol,
            kind="memory",
            order=[cell.label],
            environment=environment.snapshot(),
        )
        record, _peak = memory_pass(self._job, cell, self.settings.protocol, seed)
        self.store.add_prepared(launch_id, cell, self._keys[cell], record)
        self.store.finish_launch(launch_id, environment=environment.snapshot())
        self._listener.idle()
        if record.outcome in _BAD:
            self._failures[cell] = record

    def _call_seconds(self, group: Group) -> dict[Cell, float]:
        """Return how long a call of each cell took when it was last measured."""
        known: dict[Cell, float] = {}
        for record in self._records[self._name(group)]:
            for cell, prepared in record.prepared.items():
                if prepared.call_seconds is not None:
                    known[cell] = prepared.call_seconds
        return known

    # Artifacts

    def artifact(self, cell: Cell) -> Artifact | None:
        """Return what a cell's compiler reads, made now where it is missing; None where it reads nothing.

        Raises CompileFailed with the reason where it cannot be made.
        """
        from pytest_ngraph.workloads import artifacts

        reads = self.catalogue.get(cell.compiler.name).reads
        if reads == "nothing":
            return None
        self._ensure_artifacts([cell])
        if cell in self._failures:
            raise CompileFailed(f"{cell.label}: {self._failures[cell].reason}")
        return artifacts.find(cell.workload, self.settings.seed, self._job.artifacts, reads == "onnx")

    def _ensure_artifacts(self, cells: Sequence[Cell]) -> bool:
        """Build what the cells read and is not in the cache; return whether any cell is left to measure."""
        from pytest_ngraph.workloads import artifacts

        missing = []
        for cell in cells:
            reads = self.catalogue.get(cell.compiler.name).reads
            if reads != "nothing" and not artifacts.find(
                cell.workload, self.settings.seed, self._job.artifacts, reads == "onnx"
            ):
                missing.append(cell)
        if missing:
            self._build(missing)
        return any(cell not in self._failures for cell in cells)

    def _build(self, cells: Sequence[Cell]) -> None:
        """Build the artifacts of the cells in one process; what fails is the outcome of the cells that need it."""
        wanted: dict[tuple[object, bool], list[Cell]] = {}
        for cell in cells:
            onnx = self.catalogue.get(cell.compiler.name).reads == "onnx"
            wanted.setdefault((cell.workload, onnx), []).append(cell)
        client: WorkerClient | None = None
        try:
            for number, ((_, onnx), users) in enumerate(wanted.items()):
                workload = users[0].workload
                self._listener.progress(
                    workload.label, 1, 1, "building" if not onnx else "exporting", number, len(wanted)
                )
                try:
                    if client is None:
                        draw = random.Random(0)  # noqa: S311 - an address layout, not a secret
                        client = WorkerClient(self._job, "builder", protocol=self.settings.protocol, draw=draw)
                    answer = client.request("build", workload=workload.to_json(), want_onnx=onnx)
                except WorkerEnded as ended:
                    client = None
                    answer = {"ok": False, "outcome": ended.outcome.value, "reason": ended.reason}
                if not answer["ok"]:
                    self._book(users, CompileRecord(Outcome(answer["outcome"]), answer["reason"]))
            if client is not None:
                client.close()
        finally:
            if client is not None:
                client.kill()
            self._listener.idle()

    def _book(self, cells: Sequence[Cell], record: CompileRecord) -> None:
        """Keep that cells failed before any launch could hold them."""
        self._failures.update(dict.fromkeys(cells, record))
        launch_id = self.store.start_launch(
            self._run_id,
            group=cells[0].workload.label,
            number=0,
            seed=self.settings.seed,
            protocol=self.settings.protocol,
            kind="build",
            order=[],
            environment={},
        )
        for cell in cells:
            self.store.add_prepared(launch_id, cell, self._keys.get(cell, ""), record)
        self.store.finish_launch(launch_id)


class _StoreSink:
    """Commits what a launch measures as it arrives, and tells the listener how far it is."""

    def __init__(self, session: Session, launch_id: int, name: str, number: int, wanted: int) -> None:
        self._session, self._launch_id, self._name, self._number, self._wanted = (
            session,
            launch_id,
            name,
            number,
            wanted,
        )

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        session = self._session
        session.store.add_prepared(self._launch_id, cell, session._keys[cell], record)
        if record.outcome in _BAD:
            session._failures[cell] = record

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        self._session.store.add_visit(self._launch_id, cell, block, position, visit)
        self._session.tally.calls += visit.calls * len(visit.wall_ns)

    def block_done(self, block: int) -> None:
        self._session.store.commit()

    def progress(self, doing: str, done: int, total: int) -> None:
        self._session._listener.progress(self._name, self._number, self._wanted, doing, done, total)


def _holds(record: LaunchRecord, cells: Sequence[Cell]) -> bool:
    """Tell whether a launch measured all cells: each was prepared well and visited in at least one block."""
    visited = {cell for cell, _ in record.visits}
    return all(cell in visited and record.prepared[cell].outcome not in _BAD for cell in cells)

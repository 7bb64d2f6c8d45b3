"""The launcher: builds what cells read, runs launches on a bench, and commits what they measure as it arrives."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any
from typing import Protocol as TypingProtocol

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.bench import Bench
from pytest_ngraph.errors import DeviceLost
from pytest_ngraph.launches.launch import GroupTooLarge, LaunchPlan
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.plan.groups import Group, ItemPlan, launch_seconds
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, Outcome, Reading, Visit, Workload, digest
from pytest_ngraph.spec.states import wanted_states
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.worker.answers import refusal
from pytest_ngraph.worker.counting import Counting, Snapshots

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
    """Measures on a bench; the caller holds it."""

    def __init__(
        self, settings: Settings, catalogue: Catalogue, bench: Bench, listener: Listener, ledger: Ledger, uid: str
    ) -> None:
        self._settings, self._catalogue, self._bench = settings, catalogue, bench
        self._listener, self._ledger = listener, ledger
        # Of the run: a run that is resumed asks for the launches that were cut short by the same seeds.
        self.uid = uid
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

    def _seed_of(self, store: Store, run_id: int, group: str, number: int, cells: Sequence[Cell]) -> int:
        """Return a seed for every launch of every run, which is kept with it.

        One that a finished launch of the run has is not used again: by its seed a device elsewhere knows what it has
        measured already. A launch that was cut short keeps its own, and is handed over.
        """
        taken = {launch.seed for launch in store.run_launches(run_id)}
        labels = [cell.label for cell in cells]
        seeds = (_seed(self._settings.seed, self.uid, group, attempt, labels) for attempt in itertools.count(number))
        return next(seed for seed in seeds if seed not in taken)

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
        seed = self._seed_of(store, run_id, group.name, number, cells)
        # The second process of a baseline goes with every part: it is none of what could be measured by itself.
        seats = {(cell.compiler, cell.replica) for cell in cells if cell not in group.controls or cell in group.cells}
        splittable = not group.is_split and len(seats) > 2
        should_be = group.chosen or group.usual
        known = {} if should_be is None else {"usual_state": asdict(should_be)}

        def begin(environment: Mapping[str, Any]) -> int:
            return store.start_launch(
                run_id,
                group=group.name,
                number=number,
                seed=seed,
                protocol=self._settings.protocol,
                order=[cell.label for cell in cells],
                environment={**environment, **known},
            )

        where, controls = (group.name, number + 1, wanted), frozenset(group.controls) - frozenset(group.cells)
        cpus = len(self._bench.device.cpus)
        sink = _StoreSink(store, begin, self._ledger, self._listener, where, controls, cpus)
        states = wanted_states(group.holding(self._timed(cells)), group.chosen or group.usual)
        # A host keeps its virtual CPUs where it put them for some tens of seconds. Whether to wait or to launch again,
        # nobody knows; waiting for as long as a launch takes costs at most twice the better of the two.
        patience = launch_seconds(cells, self._settings.protocol, group.call_seconds)
        read = {cell: self._artifacts[cell] for cell in cells if cell in self._artifacts}
        plan = LaunchPlan(tuple(cells), self._settings.protocol, seed, read, splittable, states, patience)
        began, failed_before = time.monotonic(), set(self._ledger.failures)
        try:
            self._bench.launch(plan, sink)
        except DeviceLost:
            # The same launch is asked for again, with those of its cells that failed in it.
            for cell in set(cells) - failed_before:
                self._ledger.failures.pop(cell, None)
            raise
        except GroupTooLarge as reason:
            # What became of its cells is kept, though the launch cannot count.
            sink.finish(str(reason))
            raise
        finally:
            # Also of a launch that was given up as too slow: the next estimate knows why.
            group.call_seconds.update(sink.call_seconds)
        invalid = ""
        if self._settings.protocol.error_control:
            sink.book_unstable()
            invalid = sink.why_invalid()
        if invalid:
            group.invalid.append(invalid)
            self._ledger.tally.invalid_launches += 1
            self._listener.note(f"{group.name}: launch {number + 1} does not count: {invalid}")
        sink.finish(invalid)
        self._ledger.tally.measured_launches += 1
        self._ledger.tally.measured_seconds += time.monotonic() - began

    def _timed(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that a launch must hold to be compared with others: those that live, controls apart."""
        return [cell for cell in self._ledger.alive(cells) if not cell.replica]

    def memory(self, store: Store, run_id: int, cell: Cell, *, number: int, wanted: int) -> None:
        """Run one untimed pass in which a cell is alone in its process, and keep the peak of its memory."""
        if not self.make_ready(store, run_id, [cell]):
            return
        seed = _seed(self._settings.seed, cell.label, number)
        self._listener.progress(cell.label, number + 1, wanted, "measuring memory of", 0, 1)
        before, record, after = self._bench.memory(cell, self._settings.protocol, seed)
        launch_id = store.start_launch(
            run_id,
            group=cell.label,
            number=number,
            seed=seed,
            protocol=self._settings.protocol,
            kind="memory",
            order=[cell.label],
            environment=before,
        )
        store.add_prepared(launch_id, cell, self._ledger.keys[cell], record)
        store.finish_launch(launch_id, environment=after)
        self._listener.idle()
        if record.outcome in NO_TIME:
            self._ledger.failures[cell] = record

    def make_ready(self, store: Store, run_id: int, cells: Sequence[Cell]) -> bool:
        """Build what the cells read and is not in the cache, and tune; return whether any cell is left to measure."""
        missing = self._without_artifact(self._ledger.alive(cells))
        if missing:
            self.build(store, run_id, missing)
            self._without_artifact(self._ledger.alive(missing))
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

        try:
            answer = self._bench.tune(cell, progress)
        finally:
            self._listener.idle()
        if not answer["ok"]:
            self.book(store, run_id, [cell], CompileRecord(Outcome(answer["outcome"]), refusal(answer)))

    def _without_artifact(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells whose compiler reads what is not built yet, and remember what the others read first."""
        found = self._bench.artifacts(cells)
        for remark in self._bench.remarks():
            self._listener.note(remark)
        for cell, key in found.items():
            if key:
                self._artifacts.setdefault(cell, key)
        return [cell for cell in cells if found[cell] is None]

    def build(self, store: Store, run_id: int, cells: Sequence[Cell]) -> None:
        """Build the artifacts of the cells; what fails is the outcome of the cells that need it."""
        wanted: dict[tuple[Workload, bool], list[Cell]] = {}
        for cell in cells:
            onnx = self._catalogue.get(cell.compiler.name).reads == "onnx"
            wanted.setdefault((cell.workload, onnx), []).append(cell)
        progress = partial(self._listener.progress, cells[0].workload.label, 1, 1)
        try:
            answers = self._bench.build(list(wanted), progress)
        finally:
            self._listener.idle()
        for users, answer in zip(wanted.values(), answers, strict=True):
            if not answer["ok"]:
                self.book(store, run_id, users, CompileRecord(Outcome(answer["outcome"]), refusal(answer)))

    def book(self, store: Store, run_id: int, cells: Sequence[Cell], record: CompileRecord) -> None:
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
            # Without evidence of its own a cell is known by what it is called.
            store.add_prepared(launch_id, cell, self._ledger.keys.get(cell) or digest(cell.to_json()), record)
        store.finish_launch(launch_id)


class _StoreSink:
    """Commits what a launch measures as it arrives, and tells the listener how far it is.

    ``begin`` makes the launch in the store, with the state of the machine then, and returns its id.
    """

    def __init__(
        self,
        store: Store,
        begin: Callable[..., int],
        ledger: Ledger,
        listener: Listener,
        where: tuple[str, int, int],
        controls: frozenset[Cell],
        cpus: int,
    ) -> None:
        self._controls, self._cpus = controls, cpus
        self._store, self._begin, self._ledger = store, begin, ledger
        self._listener, self._where = listener, where
        self._launch_id = 0
        self._around: dict[str, Mapping[str, Any]] = {}
        self.call_seconds: dict[Cell, float] = {}
        self._counting = Counting()

    def surroundings(self, when: str, snapshot: Mapping[str, Any]) -> None:
        if when == "begun":
            self._launch_id = self._begin(environment=snapshot)
        self._around[when] = snapshot

    @property
    def snapshots(self) -> Snapshots:
        """Return the states of the machine when the launch began, before its first visit, and at its end."""
        begun = self._around["begun"]
        return begun, self._around.get("blocks", begun), self._around["ended"]

    def finish(self, invalid: str) -> None:
        """End the launch in the store; with a reason it does not count."""
        self._store.finish_launch(
            self._launch_id, invalid=invalid, environment=self._around["ended"], readings=self._counting.readings
        )

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        self._store.add_prepared(self._launch_id, cell, self._ledger.keys[cell], record)
        self._counting.records[cell] = record
        if record.call_seconds is not None:
            self.call_seconds[cell] = record.call_seconds
            self._count_fixed(cell, record)
        if record.outcome in NO_TIME:
            self._ledger.failures[cell] = record

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        self._store.add_visit(self._launch_id, cell, block, position, visit)
        self._ledger.tally.calls += visit.calls * len(visit.wall_ns)
        self._counting.visited(cell, block, visit)

    def block_done(self, block: int, readings: tuple[Reading, Reading] | None) -> None:
        self._counting.readings.append(readings)
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
        """Keep which cells turned out to have two speeds."""
        for cell, record in self._counting.unstable().items():
            self.prepared(cell, record)

    def why_invalid(self) -> str:
        """Return why the launch must not count, or nothing."""
        return self._counting.why_not(self.snapshots, self._cpus)

    def progress(self, doing: str, done: int, total: int) -> None:
        self._listener.progress(*self._where, doing, done, total)


def _seed(*parts: object) -> int:
    return int(digest(list(parts))[:12], 16)

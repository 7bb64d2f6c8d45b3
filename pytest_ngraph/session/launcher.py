"""The launcher: builds what cells read, runs launches on a bench, and commits what they measure as it arrives."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.bench import Bench, Passed, Progress
from pytest_ngraph.errors import DeviceLost
from pytest_ngraph.launches.launch import GroupTooLarge, LaunchPlan
from pytest_ngraph.load.neighbours import with_neighbours
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.machine import modes
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.plan.groups import Group, launch_seconds, patience_seconds
from pytest_ngraph.plan.items import ItemPlan
from pytest_ngraph.session.ledger import NO_TIME, Ledger, Listener
from pytest_ngraph.session.sink import StoreSink
from pytest_ngraph.session.store_run import StoreRun
from pytest_ngraph.spec.cells import NEIGHBOUR, Cell, CompileRecord, Outcome, Workload, digest
from pytest_ngraph.spec.evaluations import AGREEMENT, EVALUATION
from pytest_ngraph.spec.resources.power import POWER
from pytest_ngraph.spec.states import wanted_states
from pytest_ngraph.spec.states.steadiness import usual_crowding
from pytest_ngraph.worker.answers import refusal


@dataclass(frozen=True, slots=True)
class PowerPass:
    """What became of a pass for power: why nothing can be read here, or why it does not count."""

    unread: str = ""
    invalid: str = ""


class Launcher:
    """Measures on a bench, which the caller holds."""

    def __init__(
        self, settings: Settings, catalogue: Catalogue, bench: Bench, listener: Listener, ledger: Ledger, run: StoreRun
    ) -> None:
        self._settings, self._catalogue, self._bench = settings, catalogue, bench
        self._listener, self._ledger, self._run = listener, ledger, run
        self._artifacts: dict[Cell, str] = {}
        self._tuned: set[Cell] = set()
        self._known_mode: object = None

    def launch(self, group: Group, items: Sequence[ItemPlan], *, number: int, wanted: int) -> None:
        """Run one launch for these tests of a group.

        A group that proves too large or too slow is split. Its next launch goes in parts.
        """
        parts = self._with_controls(group, group.parts(items))
        cells = list(dict.fromkeys(cell for part in parts for cell in part))
        if not self.make_ready(cells):
            return
        parts = [self._ledger.alive(part) for part in parts]
        estimate = sum(launch_seconds(part, self._settings.protocol, group.call_seconds) for part in parts)
        self._listener.group_started(group.name, len(self._ledger.alive(cells)), wanted, estimate)
        try:
            for part in filter(None, parts):
                with self._kept(group, part, number, wanted) as (plan, sink):
                    self._bench.launch(plan, sink)
        except GroupTooLarge as reason:
            self._listener.note(f"{group.name}: {reason}; each compiler gets launches of its own with the baseline")
            group.is_split = True
        finally:
            self._listener.idle()

    def _seed_of(self, group: str, number: int, cells: Sequence[Cell]) -> int:
        """Return a seed for every launch of every run, which is kept with it.

        One that a finished launch of the run has is not used again: by its seed a remote device knows what it has
        measured already. A launch that was cut short keeps its own, and is handed over. So it does when its run is
        resumed, which goes on under its name.
        """
        taken = {launch.seed for launch in self._run.store.run_launches(self._run.id)}
        labels, uid = [cell.label for cell in cells], self._run.uid
        seeds = (_seed(self._settings.seed, uid, group, attempt, labels) for attempt in itertools.count(number))
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

    @contextmanager
    def _kept(
        self, group: Group, cells: Sequence[Cell], number: int, wanted: int
    ) -> Iterator[tuple[LaunchPlan, StoreSink]]:
        """Give the plan of a launch and where it puts what it measures. What becomes of it is kept in the end."""
        plan = self._plan(group, cells, number)
        sink = self._sink(group, plan, number, wanted)
        began, failed_before = time.monotonic(), set(self._ledger.failures)
        try:
            yield plan, sink
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
            invalid = self._why_invalid(sink)
        if invalid:
            group.invalid.append(invalid)
            self._ledger.tally.invalid_launches += 1
            self._listener.note(f"{group.name}: launch {number + 1} does not count: {invalid}")
        sink.finish(invalid)
        self._ledger.counted.add(plan.seed)
        self._ledger.tally.measured_launches += 1
        self._ledger.tally.measured_seconds += time.monotonic() - began

    def _why_invalid(self, sink: StoreSink) -> str:
        """Return why a launch must not count, or nothing. Its power mode must be that of the first one that counts."""
        return sink.why_invalid(self._mode)

    @property
    def _mode(self) -> object:
        """Return the power mode of the run's first launch here that counts: also of a process before, or beside.

        Until there is one it is that in which the run began, without what heat does: cells are known by it.
        """
        if not self._known_mode:
            launches = self._run.store.run_launches(self._run.id)
            begun = [one.environment for one in launches if not one.invalid]
            mine = (each for each in begun if each.get("device", self._bench.device.name) == self._bench.device.name)
            self._known_mode = next(filter(None, (each.get("power_mode") for each in mine)), None)
        return self._known_mode or modes.lasting(self._run.facts.get("power_mode") or {})

    def _plan(self, group: Group, cells: Sequence[Cell], number: int) -> LaunchPlan:
        # The second process of a baseline goes with every part: it is none of what could be measured by itself.
        own = (cell for cell in cells if cell not in group.controls or cell in group.cells)
        seats = {(cell.compiler, cell.replica, cell.side) for cell in own}
        return LaunchPlan(
            cells=tuple(cells),
            protocol=self._settings.protocol,
            seed=self._seed_of(group.name, number, cells),
            own_outputs=self._settings.against_outputs == "own",
            artifacts={cell: self._artifacts[cell] for cell in with_neighbours(cells) if cell in self._artifacts},
            splittable=not group.is_split and len(seats) > 2,
            states=wanted_states(group.holding(self._timed(cells)), group.chosen or group.usual),
            # A host keeps its virtual CPUs where it put them for some tens of seconds.
            patience_seconds=patience_seconds(
                launch_seconds(cells, self._settings.protocol, group.call_seconds), group.dwell_seconds
            ),
            crowding=usual_crowding(self._ledger.crowding),
        )

    def _sink(self, group: Group, plan: LaunchPlan, number: int, wanted: int) -> StoreSink:
        should_be = group.chosen or group.usual
        known = {} if should_be is None else {"usual_state": asdict(should_be)}

        def begin(environment: Mapping[str, Any]) -> int:
            return self._run.store.start_launch(
                self._run.id,
                group=group.name,
                number=number,
                seed=plan.seed,
                protocol=plan.protocol,
                order=[cell.label for cell in plan.cells],
                environment={**environment, **known},
            )

        where, controls = (group.name, number + 1, wanted), frozenset(group.controls) - frozenset(group.cells)
        cpus = len(self._bench.device.cpus)
        return StoreSink(self._run.store, begin, self._ledger, self._listener, where, controls, cpus, plan.crowding)

    def _timed(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells that a launch must hold to be compared with others: those that live, controls apart."""
        return [cell for cell in self._ledger.alive(cells) if not cell.replica]

    def memory(self, cell: Cell, *, number: int, wanted: int) -> None:
        """Run one untimed pass in which a cell is alone in its process, and keep the peak of its memory."""
        if not self.make_ready([cell]):
            return
        seed = _seed(self._settings.seed, cell.label, number)
        self._listener.progress(cell.label, number + 1, wanted, f"measuring the memory of {cell.label}", 0, 1)
        passed = self._bench.memory(cell, self._settings.protocol, seed)
        record = self._keep_pass("memory", [cell], passed, number, seed)
        self._listener.idle()
        if record.outcome in NO_TIME:
            self._ledger.failures[cell] = record

    def evaluate(self, cell: Cell) -> None:
        """Ask a model's own evaluation about a cell, in a pass of its own. What fails there is none of its times."""
        if self.make_ready([cell]):
            seed = _seed(self._settings.seed, cell.label, EVALUATION)
            with self._showing(cell, f"evaluating {cell.label}") as progress:
                passed = self._bench.evaluate(cell, self._settings.protocol, seed, progress)
            self._keep_pass(EVALUATION, [cell], passed, 0, seed)

    def agree(self, cell: Cell, dense: Cell, samples: int) -> None:
        """Hold the outputs of a cell to those of another one on seeded inputs, in a pass of its own."""
        self.make_ready([cell, dense])
        if len(self._ledger.alive([cell, dense])) == 2:
            seed = _seed(self._settings.seed, cell.label, AGREEMENT)
            with self._showing(cell, f"comparing {cell.label}") as progress:
                passed = self._bench.agree(cell, dense, samples, self._settings.protocol, seed, progress)
            self._keep_pass(AGREEMENT, [cell, dense], passed, 0, seed)

    def power(self, cells: Sequence[Cell], *, number: int, wanted: int) -> PowerPass:
        """Measure what cells draw, in one pass beside the idle machine. Return whether it counts."""
        if not self.make_ready(cells):
            return PowerPass()
        seed = _seed(self._settings.seed, *(cell.label for cell in cells), POWER, number)
        self._listener.progress(cells[0].label, number + 1, wanted, f"measuring the power of {cells[0].label}", 0, 1)
        progress = partial(self._listener.progress, cells[0].label, number + 1, wanted)
        try:
            before, records, after = self._bench.power(cells, self._settings.protocol, seed, progress)
        finally:
            self._listener.idle()
        failed = {cell: one for cell, one in zip(cells, records, strict=True) if one.outcome in NO_TIME}
        self._ledger.failures.update(failed)
        found = self._power_pass(records, before, after)
        of_cells = dict(zip(cells, records, strict=True))
        self._keep(POWER, of_cells, (before, after), number, seed, found.unread or found.invalid)
        if found.invalid:
            self._listener.note(f"{cells[0].label}: a pass for power does not count: {found.invalid}")
        return found

    def _power_pass(
        self, records: Sequence[CompileRecord], before: Mapping[str, Any], after: Mapping[str, Any]
    ) -> PowerPass:
        """Return whether a pass for power counts: what it says itself, and what a timed launch is held to."""
        power = next((one.power for one in records if one.power is not None), None)
        if power is None or any(one.outcome in NO_TIME for one in records):
            return PowerPass(invalid="a cell failed in it")
        if not power.busy and not power.invalid:
            return PowerPass(unread="; ".join(filter(None, [power.why_no_energy, power.why_no_load])))
        disturbed = ""
        if self._settings.protocol.error_control:
            disturbed = environment.disturbance(before, before, after, max(1, len(self._bench.device.cpus)))
        invalid = power.invalid or str(disturbed) or modes.changed(self._mode, before.get("power_mode"))
        if not invalid:
            self._known_mode = self._known_mode or before.get("power_mode")
        return PowerPass(invalid=invalid)

    @contextmanager
    def _showing(self, cell: Cell, doing: str) -> Iterator[Progress]:
        """Give what shows how far a pass is."""
        self._listener.progress(cell.label, 1, 1, doing, 0, 1)
        try:
            yield partial(self._listener.progress, cell.label, 1, 1)
        finally:
            self._listener.idle()

    def _keep_pass(self, kind: str, cells: Sequence[Cell], passed: Passed, number: int, seed: int) -> CompileRecord:
        """Keep what an untimed pass gave of the first of its cells, under the evidence of all. Return that."""
        before, record, after = passed
        others = dict.fromkeys(cells[1:], CompileRecord(Outcome.OK))
        self._keep(kind, {cells[0]: record, **others}, (before, after), number, seed)
        return record

    def _keep(
        self,
        kind: str,
        records: Mapping[Cell, CompileRecord],
        around: tuple[Mapping[str, Any], Mapping[str, Any]],
        number: int,
        seed: int,
        invalid: str = "",
    ) -> None:
        """Keep the records of an untimed pass, with the states of the machine around it."""
        store, cells = self._run.store, list(records)
        launch_id = store.start_launch(
            self._run.id,
            group=cells[0].label,
            number=number,
            seed=seed,
            protocol=self._settings.protocol,
            kind=kind,
            order=[cell.label for cell in cells],
            environment=around[0],
        )
        for cell, record in records.items():
            store.add_prepared(launch_id, cell, self._ledger.keys[cell], record)
        store.finish_launch(launch_id, invalid=invalid, environment=around[1])

    def make_ready(self, cells: Sequence[Cell]) -> bool:
        """Build what the cells read and is not in the cache, and tune. Return whether any cell is left to measure."""
        missing = self._without_artifact(self._ledger.alive(cells))
        if missing:
            self.build(missing)
            self._without_artifact(self._ledger.alive(missing))
        for cell in self._ledger.alive(cells):
            self._tune(cell)
        return bool(self._ledger.alive(cells))

    def _tune(self, cell: Cell) -> None:
        """Run the tuning of a compiler, once in a session. A search that fails is the outcome of the cell."""
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
            self.book([cell], CompileRecord(Outcome(answer["outcome"]), refusal(answer)))

    def _without_artifact(self, cells: Sequence[Cell]) -> list[Cell]:
        """Return the cells whose compiler reads what is not built yet, and remember what the others read first."""
        found = self._bench.artifacts(with_neighbours(cells))
        for remark in self._bench.remarks():
            self._listener.note(remark)
        for cell, key in found.items():
            if key:
                self._artifacts.setdefault(cell, key)
        return [cell for cell in cells if any(found[each] is None for each in with_neighbours([cell]))]

    def build(self, cells: Sequence[Cell]) -> None:
        """Build what cells and their neighbours read. What fails is the outcome of the cells that need it."""
        wanted: dict[tuple[str, Workload, bool], list[Cell]] = {}
        made: list[Cell] = []
        for cell in cells:
            for each in with_neighbours([cell]):
                reads = self._catalogue.get(each.compiler.name).reads
                if each is not cell and reads == "nothing":
                    continue
                made += [] if (key := (each.side, each.workload, reads == "onnx")) in wanted else [each]
                wanted.setdefault(key, []).append(cell)
        progress = partial(self._listener.progress, cells[0].workload.label, 1, 1)
        try:
            answers = self._bench.build(made, progress)
        finally:
            self._listener.idle()
        for each, users, answer in zip(made, wanted.values(), answers, strict=True):
            if not answer["ok"]:
                # What runs beside one cell may be what another one is.
                own = [cell for cell in users if cell.workload == each.workload]
                others = [cell for cell in users if cell.workload != each.workload]
                whose = f"its neighbour {replace(each, replica=NEIGHBOUR).label}: "
                for mine, said in ((own, ""), (others, whose)):
                    if mine:
                        self.book(mine, CompileRecord(Outcome(answer["outcome"]), said + refusal(answer)))

    def book(self, cells: Sequence[Cell], record: CompileRecord) -> None:
        """Keep that cells failed before any launch could hold them."""
        self._ledger.failures.update(dict.fromkeys(cells, record))
        store = self._run.store
        launch_id = store.start_launch(
            self._run.id,
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


def _seed(*parts: object) -> int:
    return int(digest(list(parts))[:12], 16)

"""The session: one run's door to measurements - the store first, and what is missing measured, group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices import local
from pytest_ngraph.devices.bench import Bench
from pytest_ngraph.errors import CompileFailed, DeviceLost, DeviceOffline, StoreError
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.plan.costs import Cost, Estimator, Known
from pytest_ngraph.plan.groups import Group, ItemPlan, groups_of, launch_seconds
from pytest_ngraph.session.launcher import NO_TIME, Launcher, Ledger, Listener, Tally
from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, LaunchRecord, Outcome, Reading, digest
from pytest_ngraph.spec.states import home, in_another_state
from pytest_ngraph.stats.verdict import CONFIRMING_LAUNCHES
from pytest_ngraph.store.rows import RunRow, VerdictRow
from pytest_ngraph.store.sqlite import Store

_T = TypeVar("_T")

FIRST_LOOK = 3
# The looks of a gate with a budget of wall time are those of so many launches: a number that depended on how quick
# they were would judge stored launches otherwise than live ones.
_MOST_LAUNCHES = 8
# Machines that others share keep still for about so long.
_LONG_LAUNCH_SECONDS = 120.0
# What makes it the same machine, whose states can be compared: the reference kernel is Python on these CPUs.
_SAME_MACHINE = ("node", "cpu", "python", "affinity")


class Session:
    """Answers what a test asks of its cells on one device. Used from one thread; tests are named by their node ids.

    ``verdicts`` is the list that a run's sessions share, in the order in which claims are judged; ``registered`` gives
    the names of the lab's devices.
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        bench: Bench,
        listener: Listener,
        *,
        uid: str,
        command: Sequence[str],
        verdicts: list[VerdictRow] | None = None,
        registered: Callable[[], Iterable[str]] = tuple,
    ) -> None:
        self.settings, self.catalogue, self.bench = settings, catalogue, bench
        self._registered = registered
        self._listener, self._command = listener, command
        self.uid, self.verdicts = uid, verdicts if verdicts is not None else []
        self._ledger = Ledger()
        self._launcher = Launcher(settings, catalogue, bench, listener, self._ledger, uid)
        self._groups: dict[str, Group] = {}
        self._items: dict[str, ItemPlan] = {}
        self._finished: set[str] = set()
        self._store: Store | None = None
        self._run_id = 0
        self._has_waited = self._has_looked = False
        self._usual: Reading | None = None
        self._damage_said = 0

    @property
    def device(self) -> Device:
        """Return the device that is measured."""
        return self.bench.device

    @property
    def known_devices(self) -> list[str]:
        """Return the names that devices may have here: this machine's, and those of the lab."""
        return [*local.KNOWN, *sorted({self.device.name, *self._registered()} - set(local.KNOWN))]

    def knows_device(self, name: str) -> bool:
        """Tell whether a device may have this name."""
        return local.is_known(name) or name in self.known_devices

    @property
    def tally(self) -> Tally:
        """Return what this session has done so far."""
        return self._ledger.tally

    # Planning

    def plan(self, items: Iterable[ItemPlan]) -> None:
        """Take the tests that will run, in order, and join them into launch groups."""
        for group in groups_of(items):
            for item in group.items:
                self._groups[item.nodeid], self._items[item.nodeid] = group, item

    def look_ahead(self) -> None:
        """Begin to measure before a test asks, where that can be done beside the tests; here it cannot."""

    def expected(self) -> Cost:
        """Estimate what the first looks of all groups take; nothing is built or measured to know.

        The store is read where there is one. One that cannot be is the business of whoever measures.
        """
        groups = list({id(group): group for group in self._groups.values()}.values())
        cells = {id(group): self._cells_of(group) for group in groups}
        estimator = Estimator(self.settings, self.catalogue, len(self.device.cpus), self._remembered())
        return estimator.cost(groups, cells, self._first_look)

    def _remembered(self) -> list[Known]:
        if not self.settings.store.exists():
            return []
        try:
            with Store.open(self.settings.store, read_only=True) as store:
                return [Known(*one) for one in store.remembered(self.settings.protocol.name)]
        except (StoreError, ValueError):
            return []

    @property
    def plans(self) -> Sequence[ItemPlan]:
        """Return the plans of all tests."""
        return tuple(self._items.values())

    def item(self, nodeid: str) -> ItemPlan:
        """Return the plan of a test."""
        return self._items[nodeid]

    def group(self, nodeid: str) -> Group:
        """Return the launch group of a test; only estimates of one group may be compared."""
        return self._groups[nodeid]

    def finished(self, nodeid: str) -> None:
        """Hear that a test is over: later launches of its group need not serve it."""
        self._finished.add(nodeid)

    def most_launches(self, nodeid: str) -> int:
        """Return the number of launches after which a test's budget ends at the latest."""
        return self._items[nodeid].budget.launches or _MOST_LAUNCHES

    # The store

    @property
    def store(self) -> Store:
        """Return the open store; at the first use the run begins in it."""
        if self._store is None:
            self._store = Store.open(self.settings.store, read_only=self.settings.offline)
            if not self.settings.offline:
                self._begin(self._store)
            self._say_damage(self._store)
        return self._store

    def _say_damage(self, store: Store) -> None:
        """Name the launches that were found damaged since this was last called; they are measured again."""
        if len(store.damaged) > self._damage_said:
            for line in store.damage_lines[self._damage_said :]:
                self._listener.note(line.strip())
            self._damage_said = len(store.damaged)

    def _begin(self, store: Store) -> None:
        interrupted = self._interrupted(store) if self.settings.resume else None
        if self.settings.resume:
            self._listener.note(
                f"resuming the run of {interrupted.started_at}" if interrupted else "nothing to resume: a new run"
            )
        if interrupted is not None:
            self.uid = self._launcher.uid = interrupted.uid
        self._run_id = store.start_run(
            self.uid,
            command=self._command,
            seed=self.settings.seed,
            protocol=self.settings.protocol,
            device=self.device.name,
            environment=self.bench.facts(),
            fresh=self.settings.fresh,
            resumed=interrupted is not None,
        )

    def _interrupted(self, store: Store) -> RunRow | None:
        """Return the latest run, if it did not finish and measured by the same protocol from the same seed."""
        runs = [run for run in store.runs() if run.uid != self.uid]
        last = runs[-1] if runs else None
        mine = (self.settings.protocol.name, self.settings.seed)
        went_on = last is not None and last.status in ("running", "interrupted")
        return last if last and went_on and (last.protocol, last.seed) == mine else None

    @property
    def has_begun(self) -> bool:
        """Tell whether the run is in the store."""
        return self._run_id != 0

    @property
    def book(self) -> Store:
        """Return the store as the thread of the tests may use it."""
        return self.store

    def keep_verdict(self, row: VerdictRow) -> None:
        """Keep how a claim was judged; nothing is written offline."""
        self.verdicts.append(row)
        if not self.settings.offline:
            self.book.add_verdict(self._run_id, row)

    def first_judgement(self, nodeid: str, claim: str, cells: Iterable[Cell]) -> tuple[str, VerdictRow | None]:
        """Return what stands for the evidence of some cells, and how a test's claim was first judged on it, if it was.

        The evidence is the content of the cells, and from which launches on theirs count.
        """
        keys = sorted(self._ledger.keys[cell] for cell in cells if cell in self._ledger.keys)
        evidence = digest({"cells": keys, "epochs": self.book.epochs(keys)})
        return evidence, self.book.first_judgement(nodeid, claim, evidence)

    def close(self, status: str) -> None:
        """End the run in the store: ``finished`` or ``interrupted``."""
        if self._store is not None:
            if self._run_id:
                self._store.finish_run(self._run_id, status, self._facts_at_the_end(), device=self.device.name)
            self._store.close()
            self._store = None

    def _facts_at_the_end(self) -> Mapping[str, Any] | None:
        """Return what machine the device is now; None where nothing was measured, or where it is gone."""
        if not self.tally.measured_launches:
            return None
        try:
            return self.bench.facts()
        except (DeviceLost, DeviceOffline):
            return None

    @property
    def judged(self) -> tuple[Mapping[Cell, str], Mapping[Cell, Cell]]:
        """Return the cells that tests have asked for, with their evidence, and what each is compared with."""
        known = {id(group): group for group in self._groups.values() if group.is_known}
        against = {cell: baseline for group in known.values() for cell, baseline in group.baselines().items()}
        cells = {cell for group in known.values() for cell in group.cells}
        return {cell: key for cell, key in self._ledger.keys.items() if cell in cells}, against

    # What tests ask

    def failure(self, cells: Iterable[Cell]) -> tuple[Cell, CompileRecord] | None:
        """Return the first of these cells that has no time, with what became of it; None where all have one."""
        failures = self._ledger.failures
        return next(((cell, failures[cell]) for cell in cells if cell in failures), None)

    def launches(self, nodeid: str, cells: Sequence[Cell]) -> list[LaunchRecord]:
        """Return the launches in which all these cells were measured, those of the first look at least.

        What is missing is measured, for every unfinished test of the group at once. Fewer come back where a cell
        failed, where the budget ended, or offline.
        """
        group = self._groups[nodeid]
        self._ready(group)
        self._measure_until(group, self._items[nodeid], self._first_look)
        return group.launches_with(cells)

    def one_more(self, nodeid: str, cells: Sequence[Cell], *, beyond_budget: bool = False) -> bool:
        """Measure one more launch for a gate that is not decided; return whether there is one more now.

        ``beyond_budget`` is for the launches that confirm a fail: a fail that is in doubt costs more than a budget.
        """
        group, item = self._groups[nodeid], self._items[nodeid]
        have = len(group.launches_with(cells))
        if self.settings.offline or not self.settings.protocol.error_control:
            return False
        if not beyond_budget and self._is_spent(group, item, have):
            return False
        self._measure_until(group, item, have + 1)
        return len(group.launches_with(cells)) > have

    def memory(self, nodeid: str, cell: Cell, wanted: int = 0) -> list[LaunchRecord]:
        """Return the untimed passes in which a cell ran alone, as many as wanted or as a first look has."""
        self._ready(self._groups[nodeid])
        if cell not in self._ledger.keys or self.failure([cell]):
            return []
        wanted = max(wanted, self._first_look)
        evidence = {cell: self._ledger.keys[cell]}
        found = self.store.launches(evidence, kind="memory")
        while len(found) < wanted and not self.settings.offline and not self.failure([cell]):
            with self._lost([cell]), self.bench.held(self._wait_for_it):
                once = partial(self._launcher.memory, self.store, self._run_id, cell, number=len(found), wanted=wanted)
                self._twice(cell.label, once)
            found = self.store.launches(evidence, kind="memory")
        return found

    def make_ready(self, cell: Cell) -> None:
        """Build and tune what a cell's compiler reads, where that was not done; raise CompileFailed with the reason."""
        with self.bench.held(self._wait_for_it):
            self._launcher.make_ready(self.store, self._run_id, [cell])
        failed = self.failure([cell])
        if failed is not None:
            raise CompileFailed(f"{cell.label}: {failed[1].reason}")

    # Groups

    @property
    def _first_look(self) -> int:
        return FIRST_LOOK if self.settings.protocol.error_control else 1

    def _is_spent(self, group: Group, item: ItemPlan, launches: int) -> bool:
        """Tell whether a test's budget allows no further launch."""
        # The seconds of stored launches are spent as well: a second run does not get a second budget.
        over_time = item.budget.seconds is not None and group.spent_seconds >= item.budget.seconds
        return over_time or launches >= self.most_launches(item.nodeid)

    def _ready(self, group: Group) -> None:
        """Learn the evidence of a group's cells and what the store holds of them, once."""
        if group.is_known:
            return
        self._learn_keys(self._cells_of(group))
        if not self.settings.offline:
            self.store.use_baselines(self._run_id, group.baselines())
        self._reload(group)
        group.is_known = True
        group.chosen = self.settings.state if self.settings.protocol.reference else None
        # What was usual when its first launch began stays so for all that follow.
        group.usual = group.launches[0].usual if group.launches else self._usual_state()
        group.spent_seconds = sum(record.seconds for record in group.launches)
        self.tally.reused_launches += len(group.launches)
        for record in group.launches:
            for cell, prepared in record.prepared.items():
                if prepared.call_seconds is not None:
                    group.call_seconds[cell] = prepared.call_seconds

    def _usual_state(self) -> Reading | None:
        """Return the state that this machine was mostly in, by the launches of earlier runs; None where it has none."""
        if not self._has_looked:
            self._has_looked = True
            facts = self.bench.facts() if self.settings.protocol.reference else {}
            machine = {name: facts[name] for name in _SAME_MACHINE if name in facts}
            if machine and not self.settings.offline:
                self._usual = home(self.store.states(self.device.name, machine))
        return self._usual

    def _learn_keys(self, cells: Iterable[Cell]) -> None:
        """Work out the evidence of cells, building the models that must be built to know it."""
        ledger = self._ledger
        unknown = [cell for cell in ledger.alive(cells) if cell not in ledger.keys]
        keys: dict[Cell, str | None] = {}
        with self._lost(unknown):
            name = self.device.name
            self._refuse(self._twice(name, partial(self.bench.refusals, unknown)))
            keys = self._twice(name, partial(self.bench.keys, ledger.alive(unknown)))
            unbuilt = [cell for cell, key in keys.items() if key is None]
            if unbuilt and not self.settings.offline:
                with self.bench.held(self._wait_for_it):
                    self._twice(name, partial(self._launcher.build, self.store, self._run_id, unbuilt))
                keys.update(self._twice(name, partial(self.bench.keys, ledger.alive(unbuilt))))
        fresh = {cell: key for cell, key in keys.items() if key is not None}
        ledger.keys.update(fresh)
        if self.settings.offline:
            stored = self.store.failed(fresh)
            ledger.failures.update({cell: record for cell, record in stored.items() if record.outcome in NO_TIME})
            return
        if self.settings.fresh:
            self.store.start_epoch(fresh.values(), run_id=self._run_id)
        self.store.use_cells(self._run_id, fresh)

    def _refuse(self, refusals: Mapping[Cell, str]) -> None:
        """Book the cells that their compilers will not take, those with the same reason together."""
        for reason in dict.fromkeys(refusals.values()):
            cells = [cell for cell, why in refusals.items() if why == reason]
            record = CompileRecord(Outcome.UNSUPPORTED, reason)
            if self.settings.offline:
                self._ledger.failures.update(dict.fromkeys(cells, record))
            else:
                self._launcher.book(self.store, self._run_id, cells, record)

    def _cells_of(self, group: Group) -> list[Cell]:
        """Return the cells of a group, and those that control it."""
        controls = group.controls if self.settings.protocol.control else ()
        return list(dict.fromkeys([*group.cells, *controls]))

    def _reload(self, group: Group) -> None:
        """Read the launches of a group from the store: what this run measured, and what others did."""
        cells = [cell for cell in self._cells_of(group) if cell in self._ledger.keys]
        evidence = {cell: self._ledger.keys[cell] for cell in cells}
        offline = self.settings.offline
        group.finished = self.store.launches(evidence, include_invalid=offline) if evidence else []
        group.launches = [launch for launch in group.finished if not launch.invalid]
        self._say_damage(self.store)

    def _measure_until(self, group: Group, item: ItemPlan, wanted: int) -> None:
        """Launch until a test has as many launches as wanted, its budget ends, or nothing of it can be measured."""
        most = 2 * (self.most_launches(item.nodeid) + CONFIRMING_LAUNCHES)
        while self._may_launch(group, item, most) and self._lacks(group, item, wanted):
            with self._lost(group.cells), self.bench.held(self._wait_for_it):
                # Somebody else may have measured the group while we waited for the device.
                self._reload(group)
                if not self._lacks(group, item, wanted):
                    return
                open_items = [one for one in group.items if one is item or one.nodeid not in self._finished]
                lacking = self._in_time(group, item, [one for one in open_items if self._lacks(group, one, wanted)])
                self._refuse_changed(cell for one in lacking for cell in one.all_cells)
                self._launch(group, item, lacking, wanted)

    def _launch(self, group: Group, item: ItemPlan, lacking: Sequence[ItemPlan], wanted: int) -> None:
        """Run one launch for some tests of a group, and see whether it serves the test that asked for it."""
        known, served = len(group.launches), self._served(group, item)
        number = known + group.fruitless
        measure = partial(self._launcher.launch, self.store, self._run_id, group, lacking, number=number, wanted=wanted)
        # What was measured to its end and not handed over waits on the device: the same launch is asked for.
        group.spent_seconds += self._twice(group.name, measure)
        group.attempts.update(one.nodeid for one in lacking)
        self._reload(group)
        # Of a launch in parts only one that measured what was asked for says where that was measured.
        new = [one for one in group.launches[known:] if one.holds(self._ledger.alive(item.all_cells))]
        state = new[-1].home if new else None
        if self._served(group, item) > served:
            group.fruitless_in_a_row = group.elsewhere_in_a_row = 0
            return
        group.is_hurried = group.is_hurried or self._takes(group, lacking) > _LONG_LAUNCH_SECONDS
        if state is not None:
            # Nothing is wrong with it but the moment: a host that moves CPUs to and fro moves them back.
            group.fruitless_in_a_row, group.elsewhere_in_a_row = 0, group.elsewhere_in_a_row + 1
            group.invalid.append(in_another_state(state))
        else:
            group.fruitless_in_a_row += 1
            group.fruitless += len(group.launches) == known

    def _in_time(self, group: Group, item: ItemPlan, lacking: list[ItemPlan]) -> list[ItemPlan]:
        """Return the tests that the next launch serves: all, but where a long one did not count as many as are short.

        One long launch for all measures the baseline once, and the longer it takes the likelier a machine that is not
        left alone changes under it.
        """
        if not group.is_hurried:
            return lacking
        chosen = [item]
        for one in lacking:
            if one is not item and self._takes(group, [*chosen, one]) <= _LONG_LAUNCH_SECONDS:
                chosen.append(one)
        return chosen

    def _takes(self, group: Group, items: Sequence[ItemPlan]) -> float:
        """Estimate the seconds of a launch for some tests."""
        cells = self._ledger.alive(dict.fromkeys(cell for one in items for cell in one.all_cells))
        return launch_seconds(cells, self.settings.protocol, group.call_seconds)

    def _may_launch(self, group: Group, item: ItemPlan, most: int) -> bool:
        """Tell whether launching has a point: not after some launches in a row that did not count."""
        return not self.settings.offline and group.attempts[item.nodeid] < most and not group.is_given_up

    def _refuse_changed(self, cells: Iterable[Cell]) -> None:
        """Book cells whose files changed since the run began: they would be stored as what they were."""
        for cell, key in self.bench.keys(self._ledger.alive(dict.fromkeys(cells))).items():
            if key is not None and key != self._ledger.keys[cell]:
                reason = "its files changed while this run measured it; run again"
                self._ledger.failures[cell] = CompileRecord(Outcome.FAILED, reason)

    def _wait_for_it(self, text: str) -> None:
        """Say who holds the device: once in a line that stays, and from then on in passing."""
        if self._has_waited:
            self._listener.progress(self.device.name, 1, 1, text, 0, 1)
        else:
            self._has_waited = True
            self._listener.note(text)

    def _twice(self, name: str, do: Callable[[], _T]) -> _T:
        """Do something on the device, once more where the device went away and came back."""
        try:
            return do()
        except DeviceLost as lost:
            self._listener.note(f"{name}: {lost}; trying once more")
            return do()

    @contextmanager
    def _lost(self, cells: Iterable[Cell]) -> Iterator[None]:
        """Book cells as lost where their device goes away."""
        try:
            yield
        except (DeviceLost, DeviceOffline) as gone:
            record = CompileRecord(Outcome.LOST, str(gone))
            self._ledger.failures.update(dict.fromkeys(self._ledger.alive(cells), record))

    def _lacks(self, group: Group, item: ItemPlan, wanted: int) -> bool:
        """Tell whether a test lacks launches that measured all of its cells, those apart that have no time."""
        if not self._ledger.alive(item.cells):
            return False
        return self._served(group, item) < wanted

    def _served(self, group: Group, item: ItemPlan) -> int:
        """Count the launches that measured all of a test's cells, those apart that have no time."""
        return len(group.launches_with(self._ledger.alive(item.all_cells)))

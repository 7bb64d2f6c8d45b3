"""The session: one run's door to measurements - the store first, and what is missing measured, group by group."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import cached_property, partial
from typing import Any

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices import local
from pytest_ngraph.devices.bench import Bench
from pytest_ngraph.errors import CompileFailed, DeviceLost, DeviceOffline, SpecError, StoreError
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.plan.costs import Cost, Estimator, Known
from pytest_ngraph.plan.groups import Group, groups_of
from pytest_ngraph.plan.items import ItemPlan
from pytest_ngraph.session.access import Access
from pytest_ngraph.session.group_runner import Along, GroupRunner, whole
from pytest_ngraph.session.launcher import Launcher
from pytest_ngraph.session.ledger import NO_TIME, Ledger, Listener, Tally
from pytest_ngraph.session.run_budget import Notes, RunBudget
from pytest_ngraph.session.store_run import StoreRun
from pytest_ngraph.session.untimed import UntimedPasses
from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, LaunchRecord, Outcome, Reading, digest
from pytest_ngraph.spec.sides import OtherSide
from pytest_ngraph.spec.states import Fruitless, home
from pytest_ngraph.store.rows import LeftOut, VerdictRow
from pytest_ngraph.store.sqlite import Store

FIRST_LOOK = 3
# What makes it the same machine, whose states can be compared: the reference kernel is Python on these CPUs.
_SAME_MACHINE = ("node", "cpu", "python", "affinity")


def _nobody(item: ItemPlan) -> None:
    """Have nothing of a test come along."""


class Session:
    """Answers what a test asks of its cells on one device, from one thread. Tests are named by their node ids.

    ``verdicts`` is the list that a run's sessions share, in the order in which claims are judged. ``registered`` gives
    the names of the lab's devices. ``sides`` has the other sides of the run by what asks for them, ``--ngraph-against``
    or a marker. ``notes`` are what the processes of a run share its time by, where there are several. ``budget`` is the
    time that several sessions share, where they do. ``after`` is a session of the same device in whose place this one
    comes: it goes on with its run, and knows nothing of cells.
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
        sides: Mapping[str, OtherSide] | None = None,
        notes: Notes | None = None,
        budget: RunBudget | None = None,
        after: Session | None = None,
    ) -> None:
        self.settings, self.catalogue, self.bench = settings, catalogue, bench
        self._registered, self._sides = registered, sides or {}
        self.verdicts = verdicts if verdicts is not None else []
        self._run: StoreRun = after._run if after else StoreRun(settings, bench, listener, uid=uid, command=command)
        self._ledger: Ledger = after._ledger.anew() if after else Ledger()
        run, ledger = self._run, self._ledger
        self._access = access = Access(bench, listener, ledger)
        self._launcher = Launcher(settings, catalogue, bench, listener, ledger, run)
        self._budget = budget or RunBudget(
            settings.run_seconds, lambda group: self._runner.has_nobody(group), notes=notes
        )
        self._runner: GroupRunner = GroupRunner(settings, bench, access, self._launcher, ledger, run, self._budget)
        self._passes = UntimedPasses(run, ledger, access, self._launcher, self._first_look, self._may_not_measure)
        self._groups: dict[str, Group] = {}
        # The cells of the other side, each with the one that is compared with it.
        self._others: dict[Cell, Cell] = {}
        self._items: dict[str, ItemPlan] = {}
        self._is_replaced = self._is_frozen = False
        if after is not None:
            after._is_replaced = True
        self._has_looked = False
        self._usual: Reading | None = None
        self._dwell_seconds = 0.0

    @property
    def device(self) -> Device:
        """Return the device that is measured."""
        return self.bench.device

    @property
    def known_devices(self) -> list[str]:
        """Return the names that devices may have here: this machine's, and those of the lab."""
        return [*local.KNOWN, *sorted({self.device.name, *self._registered()} - set(local.KNOWN))]

    def knows_device(self, name: str) -> bool:
        """Return whether a device may have this name."""
        return local.is_known(name) or name in self.known_devices

    @property
    def uid(self) -> str:
        """Return the name of the run: that of the one which is resumed, if one is."""
        return self._run.uid

    @property
    def tally(self) -> Tally:
        """Return what this session has done so far."""
        return self._ledger.tally

    # Planning

    def plan(self, items: Iterable[ItemPlan]) -> None:
        """Take the tests that will run, in order, and join them into launch groups."""
        groups = groups_of(map(self._on_both_sides, items))
        self._others |= {other: cell for group in groups for item in group.items for cell, other in item.pairs}
        self.bench.expect(
            {cell: self._compared_with(cell) for group in groups for cell in self._runner.cells_of(group)}
        )
        for group in groups:
            for item in group.items:
                self._groups[item.nodeid], self._items[item.nodeid] = group, item
        if self.settings.run_seconds is not None:
            for group in groups:
                self._budget.expect(group, self._cost([group]).seconds)

    def _on_both_sides(self, item: ItemPlan) -> ItemPlan:
        """Return a test's plan with its cells on the side that is measured, beside those of the other one, if any."""
        against, on = item.marker.against or self.settings.against, self.settings.side
        item = item if on is None else item.on(self._sides[on].label)
        if against is None:
            return item
        label = self._sides[against].label
        if on is not None and label == self._sides[on].label:
            raise SpecError(f"{label} is measured against itself: --ngraph-side and --ngraph-against name one side")
        return item.beside(label)

    def look_ahead(self) -> None:
        """Begin to measure before a test asks, where that can be done beside the tests. Here it cannot."""

    def expected(self) -> Cost:
        """Estimate what the first looks of all groups take. Nothing is built or measured to know.

        The store is read where there is one. One that cannot be concerns the session that measures.
        """
        return self._cost(list({id(group): group for group in self._groups.values()}.values()))

    @cached_property
    def _estimator(self) -> Estimator:
        """What estimates by what the store held when it was first asked: each call of ngraph.measure asks."""
        on_cpus = self.device.accelerator == "cpu"
        cpus, known = len(self.device.cpus), self._remembered()
        return Estimator(self.settings, self.catalogue, cpus, known, computes_on_cpus=on_cpus)

    def _cost(self, groups: Sequence[Group]) -> Cost:
        cells = {id(group): self._runner.cells_of(group) for group in groups}
        return self._estimator.cost(groups, cells, self._first_look)

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
        """Return the launch group of a test. Only estimates of one group may be compared."""
        return self._groups[nodeid]

    def finished(self, nodeid: str) -> None:
        """Note that a test is over: later launches of its group need not serve it."""
        self._runner.finished(nodeid)

    # The store

    def leave_out(self, rows: Iterable[LeftOut]) -> None:
        """Keep with the run what it was asked for and nothing is installed to measure with."""
        self._run.leave_out(rows)

    @property
    def store(self) -> Store:
        """Return the open store. At the first use the run begins in it."""
        return self._run.store

    @property
    def has_begun(self) -> bool:
        """Return whether the run is in the store."""
        return self._run.id != 0

    @property
    def run_number(self) -> int:
        """Return the number of the run in the store, 0 until it is there."""
        return self._run.id

    @property
    def book(self) -> Store:
        """Return the store as the thread of the tests may use it."""
        return self.store

    def keep_verdict(self, row: VerdictRow) -> None:
        """Keep how a claim was judged. Nothing is written offline."""
        self.verdicts.append(row)
        if not self.settings.offline:
            self.book.add_verdict(self._run.id, row)

    def explained(self, cell: Cell) -> Mapping[str, Any] | None:
        """Return what ``ngraph explain`` has kept of a cell with its present evidence, as JSON, or None."""
        key = self._ledger.keys.get(cell)
        found = None if key is None else self.book.explanation(key)
        return None if found is None else found[0]

    def first_judgement(self, nodeid: str, claim: str, cells: Iterable[Cell]) -> tuple[str, VerdictRow | None]:
        """Return a digest of the evidence of some cells, and how a test's claim was first judged on it, if it was.

        The evidence is the content of the cells, and from which launches on theirs count.
        """
        keys = sorted(self._ledger.keys[cell] for cell in cells if cell in self._ledger.keys)
        evidence = digest({"cells": keys, "epochs": self.book.epochs(keys)})
        return evidence, self.book.first_judgement(nodeid, claim, evidence)

    def close(self, status: str) -> None:
        """End the run in the store: ``finished`` or ``interrupted``."""
        self._run.close(status, measured=bool(self.tally.measured_launches))

    @property
    def judged(self) -> tuple[Mapping[Cell, str], Mapping[Cell, Cell]]:
        """Return the cells that tests have asked for, with their evidence, and what each is compared with."""
        known = {id(group): group for group in self._groups.values() if group.is_known}
        against = {cell: baseline for group in known.values() for cell, baseline in group.baselines().items()}
        cells = {cell for group in known.values() for cell in group.cells} - self._ledger.unchanged
        return {cell: key for cell, key in self._ledger.keys.items() if cell in cells}, against

    # What tests ask

    def is_outdated(self, cells: Iterable[Cell]) -> bool:
        """Return whether what is known of any of these cells is not so now: it failed, or its files have changed.

        For who asks again in a session that stays open: a run takes what it knows for what is so until it ends.
        """
        ledger, asked = self._ledger, set(cells)
        asked |= {other for other, cell in self._others.items() if cell in asked}
        # Also where none of them is known: what they are made of may have been looked at for others.
        self.bench.look_again()
        known = [cell for cell in asked if cell in ledger.keys or cell in ledger.failures]
        try:
            return ledger.failed(known) is not None or self._have_changed(known)
        except (DeviceLost, DeviceOffline):
            # Of what was measured nothing is lost. Whoever comes in its place says what became of the device.
            return True

    def _have_changed(self, cells: Iterable[Cell]) -> bool:
        keys = self._ledger.keys
        known = [cell for cell in cells if cell in keys]
        now = self._access.twice(self.device.name, partial(self.bench.keys, known)) if known else {}
        return any(key != keys[cell] for cell, key in now.items())

    def _freeze(self, cells: Iterable[Cell]) -> None:
        """Have nothing more measured of cells that have changed since another session came in the place of this one.

        It would be kept as what they were.
        """
        self._is_frozen = self._is_replaced and self._have_changed(cells)

    def is_unchanged(self, nodeid: str, cell: Cell) -> bool:
        """Return whether a test's cell of the other side is what the same cell is here. Nothing is measured to know."""
        self._ready(self._groups[nodeid])
        return cell in self._ledger.unchanged

    def alive(self, cells: Iterable[Cell]) -> list[Cell]:
        """Return the cells that did not fail and that there is something to measure of."""
        return self._ledger.alive(cells)

    def failure(self, cells: Iterable[Cell]) -> tuple[Cell, CompileRecord] | None:
        """Return the first of these cells that has no time, with what became of it, or None where all have one."""
        return self._ledger.failed(cells)

    def launches(self, nodeid: str, cells: Sequence[Cell]) -> list[LaunchRecord]:
        """Return the launches in which all these cells were measured, those of the first look at least.

        What is missing is measured, for every unfinished test of the group at once. Fewer come back where a cell
        failed, where the budget ended, or offline.
        """
        group = self._groups[nodeid]
        self._ready(group)
        if not self._is_replaced:
            self._runner.measure(group, self._items[nodeid], self._first_look)
        return group.launches_with(cells)

    def one_more(
        self,
        nodeid: str,
        cells: Sequence[Cell],
        *,
        beyond_budget: bool = False,
        along: Along = whole,
    ) -> bool:
        """Measure one more launch for a gate that is not decided. Return whether there is one more now.

        ``beyond_budget`` is for the launches that confirm a fail: a fail that is in doubt costs more than a budget.
        What ``along`` gives of the tests that are not over is measured with it.
        """
        group, item = self._groups[nodeid], self._items[nodeid]
        have = len(group.launches_with(cells))
        self._freeze(cells)
        if self.settings.offline or self._is_frozen or not self.settings.protocol.error_control:
            return False
        if not beyond_budget and (self._is_spent(group, item, have) or not self._budget.allows(group)):
            return False
        # What was measured with it may have changed since another session came in the place of this one.
        self._runner.measure(group, item.only(cells), have + 1, _nobody if self._is_replaced else along)
        return len(group.launches_with(cells)) > have

    def closed(self, nodeid: str) -> str:
        """Return why no launch can be added for a test, or nothing."""
        if self.settings.offline:
            return "only what is stored is judged (--ngraph-offline)"
        if self._is_frozen:
            return "its files have changed since; measure() measures it as it is now"
        return self._budget.why(self._groups[nodeid])

    def memory(self, nodeid: str, cell: Cell, wanted: int = 0) -> list[LaunchRecord]:
        """Return the untimed passes in which a cell ran alone, as many as wanted or as a first look has."""
        return self._passes_of(nodeid, [cell]).memory(cell, wanted)

    def power(self, nodeid: str, cells: Sequence[Cell], wanted: int = 0) -> list[LaunchRecord]:
        """Return the passes in which it was measured what these cells draw, as many as wanted or a first look has."""
        return self._passes_of(nodeid, cells).power(cells, wanted)

    def why_no_power(self, cells: Sequence[Cell]) -> str:
        """Return why nothing can be read of what these cells draw, or nothing."""
        return self._passes.why_no_power(cells)

    def fruitless_power(self, cells: Sequence[Cell]) -> Fruitless:
        """Return which passes for power did not count, and whether no further one is tried."""
        return self._passes.fruitless_power(cells)

    def evaluation(self, nodeid: str, cell: Cell) -> CompileRecord | None:
        """Return what a model's own evaluation gave of a cell, once for its evidence, or None where it is not known."""
        return self._passes_of(nodeid, [cell]).evaluation(cell)

    def agreement(self, nodeid: str, cell: Cell, dense: Cell, samples: int) -> CompileRecord | None:
        """Return how well a cell agrees with another one on seeded inputs, once for their evidence, or None."""
        return self._passes_of(nodeid, [cell, dense]).agreement(cell, dense, samples)

    def _passes_of(self, nodeid: str, cells: Sequence[Cell]) -> UntimedPasses:
        """Return the untimed passes, once a test's group and these cells are known, with what may be measured now."""
        self._ready(self._groups[nodeid])
        self._learn_keys(cells)
        self._freeze(cells)
        return self._passes

    def make_ready(self, cell: Cell) -> None:
        """Build and tune what a cell's compiler reads, where that was not done. Raise CompileFailed with the reason."""
        with self._access.held():
            self._launcher.make_ready([cell])
        failed = self.failure([cell])
        if failed is not None:
            raise CompileFailed(f"{cell.label}: {failed[1].reason}")

    # Groups

    def _may_not_measure(self) -> bool:
        return self.settings.offline or self._is_frozen or self._budget.is_spent

    @property
    def _first_look(self) -> int:
        return FIRST_LOOK if self.settings.protocol.error_control else 1

    def _is_spent(self, group: Group, item: ItemPlan, launches: int) -> bool:
        """Return whether a test's budget allows no further launch."""
        # The seconds of stored launches are spent as well: a second run does not get a second budget.
        over_time = item.budget.seconds is not None and group.spent_seconds >= item.budget.seconds
        return over_time or launches >= item.most_launches

    def _ready(self, group: Group) -> None:
        """Learn the evidence of a group's cells and what the store holds of them, once."""
        self._budget.reach(group)
        if group.is_known:
            return
        self._learn_keys(self._runner.cells_of(group))
        if not self.settings.offline:
            self.store.use_baselines(self._run.id, group.baselines())
        self._runner.reload(group)
        group.is_known = True
        group.chosen = self.settings.state if self.settings.protocol.reference else None
        self._look_at_states()
        # What was usual when its first launch began stays so for all that follow.
        group.usual = group.launches[0].usual if group.launches else self._usual
        group.dwell_seconds = self._dwell_seconds
        reused = {record.seed for record in group.launches} - self._ledger.counted
        self._ledger.counted |= reused
        self.tally.reused_launches += len(reused)
        for record in group.launches:
            for cell, prepared in record.prepared.items():
                if prepared.call_seconds is not None:
                    group.call_seconds[cell] = prepared.call_seconds

    def _look_at_states(self) -> None:
        """Learn once which state this machine was mostly in and how long it stays in one, by earlier launches."""
        if self._has_looked or self.settings.offline or not self.settings.protocol.reference:
            return
        self._has_looked = True
        facts = self.bench.facts()
        machine = {name: facts[name] for name in _SAME_MACHINE if name in facts}
        if machine:
            self._usual = home(self.store.states(self.device.name, machine))
            self._dwell_seconds = self.store.dwell_seconds(self.device.name, machine)
            self._ledger.crowding[:0], self._ledger.fastest[:0] = self.store.crowding(self.device.name, machine)

    def _learn_keys(self, cells: Iterable[Cell]) -> None:
        """Work out the evidence of cells, building the models that must be built to know it."""
        ledger = self._ledger
        unknown = [cell for cell in ledger.alive(cells) if cell not in ledger.keys]
        keys: dict[Cell, str | None] = {}
        with self._access.or_lost(unknown):
            name = self.device.name
            self._refuse(self._access.twice(name, partial(self.bench.refusals, unknown)))
            keys = self._access.twice(name, partial(self.bench.keys, ledger.alive(unknown)))
            unbuilt = [cell for cell, key in keys.items() if key is None]
            if unbuilt and not self._may_not_measure():
                with self._access.held():
                    self._access.twice(name, partial(self._launcher.build, unbuilt))
                keys.update(self._access.twice(name, partial(self.bench.keys, ledger.alive(unbuilt))))
            ledger.unchanged |= self._unchanged(ledger.alive(unknown))
        fresh = {cell: key for cell, key in keys.items() if key is not None and cell not in ledger.unchanged}
        ledger.keys.update(fresh)
        if self.settings.offline:
            stored = self.store.failed(fresh)
            ledger.failures.update({cell: record for cell, record in stored.items() if record.outcome in NO_TIME})
            return
        if self.settings.fresh:
            self.store.start_epoch(fresh.values(), run_id=self._run.id)
        self.store.use_cells(self._run.id, fresh)

    def _unchanged(self, cells: Iterable[Cell]) -> set[Cell]:
        """Return which of some cells are the other side of what is the same, but for sides that are measured always."""
        others = {other: label for other in cells if (label := self._compared_with(other)) is not None}
        same: set[Cell] = set()
        for label in sorted(set(others.values())):
            asked = [other for other in others if others[other] == label]
            same |= self._access.twice(self.device.name, partial(self.bench.same_content, asked, label))
        return same

    def _compared_with(self, other: Cell) -> str | None:
        """Return the label of the side on which a cell may be the same, None where it is measured in any case."""
        if not other.side or other not in self._others or other.side in self._always:
            return None
        return self._others[other].side

    @cached_property
    def _always(self) -> Set[str]:
        return {side.label for side in self._sides.values() if side.always}

    def _refuse(self, refusals: Mapping[Cell, str]) -> None:
        """Book the cells that their compilers will not take, those with the same reason together."""
        for reason in dict.fromkeys(refusals.values()):
            cells = [cell for cell, why in refusals.items() if why == reason]
            record = CompileRecord(Outcome.UNSUPPORTED, reason)
            if self.settings.offline:
                self._ledger.failures.update(dict.fromkeys(cells, record))
            else:
                self._launcher.book(cells, record)

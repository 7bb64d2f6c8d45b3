"""The group runner: launches a group until its tests are served, or until launching has no point any more."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager

from pytest_ngraph.devices.bench import Bench
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.plan.groups import Group, launch_seconds
from pytest_ngraph.plan.items import ItemPlan
from pytest_ngraph.session.access import Access
from pytest_ngraph.session.launcher import Launcher
from pytest_ngraph.session.ledger import Ledger
from pytest_ngraph.session.run_budget import RunBudget
from pytest_ngraph.session.store_run import StoreRun
from pytest_ngraph.spec.cells import Cell, CompileRecord, Outcome
from pytest_ngraph.spec.states import in_another_state
from pytest_ngraph.stats.verdict import CONFIRMING_LAUNCHES

# Machines that others share keep still for about so long.
_LONG_LAUNCH_SECONDS = 120.0


# What of a test comes along with a launch of another one, if anything.
Along = Callable[[ItemPlan], ItemPlan | None]


def whole(item: ItemPlan) -> ItemPlan:
    """Have all of a test come along."""
    return item


class GroupRunner:
    """Decides which launch of a group is next, and for which of its tests."""

    def __init__(
        self,
        settings: Settings,
        bench: Bench,
        access: Access,
        launcher: Launcher,
        ledger: Ledger,
        run: StoreRun,
        budget: RunBudget,
    ) -> None:
        self._settings, self._bench, self._access, self._budget = settings, bench, access, budget
        self._launcher, self._ledger, self._run = launcher, ledger, run
        self._finished: set[str] = set()

    def finished(self, nodeid: str) -> None:
        """Note that a test is over: later launches of its group need not serve it."""
        self._finished.add(nodeid)

    def is_over(self, item: ItemPlan) -> bool:
        """Return whether a test is over, and with it what it measured by a call."""
        return item.test in self._finished

    def has_nobody(self, group: Group) -> bool:
        """Return whether all tests of a group are over."""
        return all(self.is_over(item) for item in group.items)

    def cells_of(self, group: Group) -> list[Cell]:
        """Return the cells of a group, with the second processes of its baselines where the protocol has them."""
        controls = group.controls if self._settings.protocol.control else ()
        return list(dict.fromkeys((*group.cells, *controls)))

    def reload(self, group: Group) -> None:
        """Read the launches of a group from the store: what this run measured, and what others did."""
        evidence = {cell: self._ledger.keys[cell] for cell in self.cells_of(group) if cell in self._ledger.keys}
        offline = self._settings.offline
        group.finished = self._run.store.launches(evidence, include_invalid=offline) if evidence else []
        group.launches = [launch for launch in group.finished if not launch.invalid]
        self._run.say_damage()

    def measure(self, group: Group, item: ItemPlan, wanted: int, along: Along = whole) -> None:
        """Launch until a test has as many launches as wanted, its budget ends, or nothing of it can be measured.

        What ``along`` gives of the group's tests is served with it, where that lacks as many.
        """
        most = 2 * (item.most_launches + CONFIRMING_LAUNCHES)
        while self._may_launch(group, item, most) and self._lacks(group, item, wanted):
            has_device = self._budget.waits(group)
            with self._access.or_lost(group.cells), self._access.held():
                has_device()
                # Somebody else may have measured the group, or spent the time, while we waited for the device.
                self.reload(group)
                if self._budget.is_spent or not self._lacks(group, item, wanted):
                    return
                others = filter(None, (along(one) for one in group.items if not self.is_over(one)))
                lacking = (one for one in others if one != item and self._lacks(group, one, wanted))
                served = self._in_time(group, item, [item, *lacking])
                self._refuse_changed(cell for one in served for cell in one.all_cells)
                number = len(group.launches) + group.fruitless
                with self._judged(group, item, served):
                    # What was measured to its end and not handed over waits on the device: the same is asked for.
                    for attempt in self._access.attempts(group.name):
                        with attempt:
                            self._launcher.launch(group, served, number=number, wanted=wanted)

    @contextmanager
    def _judged(self, group: Group, item: ItemPlan, items: Sequence[ItemPlan]) -> Iterator[None]:
        """Run a launch for some tests of a group inside, and see whether it serves the one that asked for it."""
        known, served = len(group.launches), self._served(group, item)
        yield
        group.tried.append(frozenset(cell for one in items for cell in one.all_cells))
        self.reload(group)
        # Of a launch in parts only one that measured what was asked for says where that was measured.
        new = [one for one in group.launches[known:] if one.holds(self._ledger.alive(item.all_cells))]
        state = new[-1].home if new else None
        if self._served(group, item) > served:
            group.fruitless_in_a_row = group.outside_in_a_row = 0
            return
        group.is_hurried = group.is_hurried or self._takes(group, items) > _LONG_LAUNCH_SECONDS
        if state is not None:
            # Nothing is wrong with it but the moment: a host that moves CPUs to and fro moves them back.
            group.fruitless_in_a_row, group.outside_in_a_row = 0, group.outside_in_a_row + 1
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
        return launch_seconds(cells, self._settings.protocol, group.call_seconds)

    def _may_launch(self, group: Group, item: ItemPlan, most: int) -> bool:
        """Return whether launching has a point: not after some launches in a row that did not count."""
        if self._settings.offline or self._budget.is_spent:
            return False
        asked = frozenset(item.all_cells)
        return sum(asked <= cells for cells in group.tried) < most and not group.is_given_up

    def _refuse_changed(self, cells: Iterable[Cell]) -> None:
        """Book cells whose files changed since the run began: they would be stored as what they were."""
        for cell, key in self._bench.keys(self._ledger.alive(dict.fromkeys(cells))).items():
            if key is not None and key != self._ledger.keys[cell]:
                reason = "its files changed while this run measured it; run again"
                self._ledger.failures[cell] = CompileRecord(Outcome.FAILED, reason)

    def _lacks(self, group: Group, item: ItemPlan, wanted: int) -> bool:
        """Return whether a test lacks launches that measured all of its cells, those apart that have no time."""
        if not self._ledger.alive(item.cells):
            return False
        return self._served(group, item) < wanted

    def _served(self, group: Group, item: ItemPlan) -> int:
        """Count the launches that measured all of a test's cells, those apart that have no time."""
        return len(group.launches_with(self._ledger.alive(item.all_cells)))

"""The untimed passes of a run: what cells need of memory and power, and what outputs are worth, the store first."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial

from pytest_ngraph.session.access import Access
from pytest_ngraph.session.launcher import Launcher
from pytest_ngraph.session.ledger import Ledger
from pytest_ngraph.session.store_run import StoreRun
from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord, Outcome
from pytest_ngraph.spec.evaluations import AGREEMENT, EVALUATION
from pytest_ngraph.spec.resources.power import POWER, Power, of_one_probe
from pytest_ngraph.spec.states import Fruitless, hardly_counts


class UntimedPasses:
    """Finds the passes of cells whose evidence is known, and makes those that are missing.

    A first look has ``least`` of those of which there are several. ``may_not_measure`` is asked before each.
    """

    def __init__(
        self,
        run: StoreRun,
        ledger: Ledger,
        access: Access,
        launcher: Launcher,
        least: int,
        may_not_measure: Callable[[], bool],
    ) -> None:
        self._run, self._ledger, self._access, self._launcher = run, ledger, access, launcher
        self._least, self._may_not_measure = least, may_not_measure
        # Passes of this run: what failed is not tried twice in it.
        self._tried: set[tuple[str, tuple[str, ...]]] = set()
        # Of passes for power: why nothing can be read, and why the last ones in a row do not count.
        self._no_power: dict[frozenset[Cell], str] = {}
        self._lost_power: dict[frozenset[Cell], list[str]] = {}

    def memory(self, cell: Cell, wanted: int) -> list[LaunchRecord]:
        """Return the passes in which a cell ran alone, as many as wanted or as a first look has."""
        evidence = self._evidence([cell])
        if evidence is None:
            return []
        wanted, found = max(wanted, self._least), self._memory_passes(evidence)
        for number in range(len(found), wanted):
            if self._may_not_measure() or self._ledger.failed([cell]):
                break
            with self._access.or_lost([cell]), self._access.held():
                once = partial(self._launcher.memory, cell, number=number, wanted=wanted)
                self._access.twice(cell.label, once)
        return self._memory_passes(evidence) if len(found) < wanted else found

    def _memory_passes(self, evidence: Mapping[Cell, str]) -> list[LaunchRecord]:
        """Return the stored passes for memory, but those that left out the processes which a worker starts."""
        passes = self._run.store.launches(evidence, kind="memory")
        return [one for one in passes if all(each.peaks or each.unread for each in one.prepared.values())]

    def power(self, cells: Sequence[Cell], wanted: int) -> list[LaunchRecord]:
        """Return the passes in which it was measured what these cells draw, as many as wanted or a first look has.

        Passes that do not count are tried again, but not for ever; where nothing can be read, no more than once.
        """
        evidence = self._evidence(cells)
        if evidence is None:
            return []
        wanted, place = max(wanted, self._least), frozenset(cells)
        found, lost = self._powered(evidence), self._lost_power.setdefault(place, [])
        while len(found) < wanted and not self._may_not_measure() and not self._ledger.failed(cells):
            if place in self._no_power or hardly_counts(len(lost), 0):
                break
            with self._access.or_lost(cells), self._access.held():
                once = partial(self._launcher.power, cells, number=len(found) + len(lost), wanted=wanted)
                passed = self._access.twice(cells[0].label, once)
                if passed.unread:
                    self._no_power[place] = passed.unread
                elif passed.invalid:
                    lost.append(passed.invalid)
                else:
                    lost.clear()
            found = self._powered(evidence)
        return found

    def _powered(self, evidence: Mapping[Cell, str]) -> list[LaunchRecord]:
        """Return the passes for power that hold all of some cells, of the probe that the last one was read by."""
        passes = self._run.store.launches(evidence, kind=POWER)
        whole = [one for one in passes if evidence.keys() <= one.prepared.keys()]
        first = next(iter(evidence))
        powers = [one.prepared[first].power or Power() for one in whole]
        return [one for one, counts in zip(whole, of_one_probe(powers), strict=True) if counts]

    def why_no_power(self, cells: Sequence[Cell]) -> str:
        """Return why nothing can be read of what these cells draw, or nothing."""
        return self._no_power.get(frozenset(cells), "")

    def fruitless_power(self, cells: Sequence[Cell]) -> Fruitless:
        """Return which passes for power did not count, and whether no further one is tried."""
        lost = self._lost_power.get(frozenset(cells), [])
        return Fruitless(lost, hardly_counts(len(lost), 0))

    def evaluation(self, cell: Cell) -> CompileRecord | None:
        """Return what a model's own evaluation gave of a cell, once for its evidence, or None where it is not known."""
        return self._once(EVALUATION, [cell], partial(self._launcher.evaluate, cell))

    def agreement(self, cell: Cell, dense: Cell, samples: int) -> CompileRecord | None:
        """Return how well a cell agrees with another one on seeded inputs, once for their evidence, or None."""

        def serves(record: CompileRecord) -> bool:
            found = record.agreed
            return record.outcome is not Outcome.OK or (
                found is not None and (found.against, found.asked) == (dense.label, samples)
            )

        return self._once(AGREEMENT, [cell, dense], partial(self._launcher.agree, cell, dense, samples), serves)

    def _once(
        self,
        kind: str,
        cells: Sequence[Cell],
        once: Callable[[], None],
        serves: Callable[[CompileRecord], bool] = lambda record: True,
    ) -> CompileRecord | None:
        """Return what the latest pass of a kind gave of the first of some cells, which is made where there is none.

        One that failed is made again in the next run, but not twice in one.
        """
        evidence = self._evidence(cells)
        if evidence is None:
            return None
        found = self._pass_of(kind, evidence, serves)
        tried = (kind, tuple(evidence.values()))
        is_done = found is not None and (found.outcome is Outcome.OK or tried in self._tried)
        if not is_done and not self._may_not_measure():
            self._tried.add(tried)
            with self._access.or_lost(cells), self._access.held():
                # Another process of this run may have made it while we waited.
                found = self._pass_of(kind, evidence, serves)
                if found is None or found.outcome is not Outcome.OK:
                    self._access.twice(cells[0].label, once)
            found = self._pass_of(kind, evidence, serves)
        return found

    def _pass_of(
        self, kind: str, evidence: Mapping[Cell, str], serves: Callable[[CompileRecord], bool]
    ) -> CompileRecord | None:
        first = next(iter(evidence))
        passes = self._run.store.launches(evidence, kind=kind)
        whole = [one.prepared[first] for one in passes if evidence.keys() <= one.prepared.keys()]
        return next(filter(serves, reversed(whole)), None)

    def _evidence(self, cells: Sequence[Cell]) -> Mapping[Cell, str] | None:
        """Return the evidence of some cells, None where one of them failed or has none."""
        if self._ledger.failed(cells) or not all(cell in self._ledger.keys for cell in cells):
            return None
        return {cell: self._ledger.keys[cell] for cell in cells}

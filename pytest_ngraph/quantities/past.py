"""The history of a quantity: what each run of this machine measured of it, as a series of sessions."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.quantities.quantity import Quantity
from pytest_ngraph.spec.cells import LaunchRecord, Reading
from pytest_ngraph.spec.states import alike, home, same_state
from pytest_ngraph.stats.launches import LaunchValue
from pytest_ngraph.stats.sessions import KnownScatter, Mean, known_scatter, mean_of
from pytest_ngraph.store.rows import RunRow
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.texts.shown import one_line

_COMMIT_LETTERS = 100


@dataclass(frozen=True, slots=True)
class Past:
    """What one run measured of a quantity: its launches' values on the working scale, and on which machine."""

    run: RunRow
    machine: Machine
    values: Sequence[LaunchValue]
    state: Reading | None

    @property
    def mean(self) -> Mean:
        """Return the mean of its launches."""
        return mean_of([self.values])

    @property
    def commit(self) -> str:
        """Return the commit that was checked out, empty where the run knows none."""
        return one_line(str(self.run.environment.get("git_commit") or ""), _COMMIT_LETTERS)


@dataclass(frozen=True, slots=True)
class Line:
    """Sessions that may stand in one line: of one machine and one of its states, oldest first."""

    machine: Machine
    state: Reading | None
    sessions: Sequence[Past]

    @property
    def means(self) -> list[float]:
        """Return the mean of each session on the working scale."""
        return [one.mean.theta for one in self.sessions]

    @property
    def within(self) -> float:
        """Return the deviation of a session's mean that its launches explain."""
        each = [one.mean.variance / one.mean.launches for one in self.sessions]
        return math.sqrt(math.fsum(each) / len(each)) if each else 0.0


def sessions_of(store: Store, quantity: Quantity) -> list[Past]:
    """Return what each run measured of a quantity under error control, oldest first, whatever its code was.

    Runs of other protocols are left out, and launches that do not count. Nothing is measured.
    """
    device = quantity.subject.device
    seen = [store.evidence_by_run(cell) for cell in quantity.cells]
    known: dict[tuple[str, ...], list[LaunchRecord]] = {}
    found = []
    for run in store.runs():
        if run.protocol != "gate" or not all(run.id in keys for keys in seen):
            continue
        place = tuple(keys[run.id] for keys in seen)
        if place not in known:
            evidence = dict(zip(quantity.cells, place, strict=True))
            known[place] = store.launches(evidence, kind=quantity.kind, any_epoch=True)
        mine = [record for record in known[place] if record.run == run.id]
        if quantity.kind == "timed":
            mine = same_state([record for record in mine if record.holds(quantity.cells)])
        values = [value for _, value in quantity.rows_of(mine)]
        if values:
            state = home(record.home for record in mine if record.home is not None)
            found.append(Past(run, Machine.of(run.on(device).environment), values, state))
    return found


def lines_of(sessions: Iterable[Past]) -> list[Line]:
    """Return sessions in lines of one machine and state each: neither is ever mixed in a line.

    A machine is one by its name, hardware and settings. What is installed on it may change.
    """
    lines: list[tuple[Machine, Reading | None, list[Past]]] = []
    for one in sessions:
        for machine, state, members in lines:
            is_same = (machine.name, machine.hardware) == (one.machine.name, one.machine.hardware)
            if is_same and (state is one.state or (state and one.state and alike(state, one.state))):
                members.append(one)
                break
        else:
            lines.append((one.machine, one.state, [one]))
    return [Line(machine, state, members) for machine, state, members in lines]


def line_here(sessions: Iterable[Past], here: Machine, state: Reading | None) -> list[Past]:
    """Return those sessions that were measured on this machine in this state of it, oldest first."""
    found: list[Past] = []
    for line in lines_of(sessions):
        is_here = (line.machine.name, line.machine.hardware) == (here.name, here.hardware)
        is_state = line.state is state or (line.state is not None and state is not None and alike(line.state, state))
        if is_here and is_state:
            found = list(line.sessions)
    return found


def scatter_before(
    store: Store, quantity: Quantity, run: int, state: Reading | None, here: Machine
) -> KnownScatter | None:
    """Return how the launches of a quantity scattered in runs before one, None where they say too little.

    They are those of this machine in this state of it, whatever the code was then. What is measured later does not
    change what is known, so that judging again comes to the same.
    """
    before = [one for one in sessions_of(store, quantity) if one.run.id < run]
    return known_scatter(one.values for one in reversed(line_here(before, here, state)))

"""The neighbours of a launch: let run while the cells that have them are visited, and what shows that they did."""

from __future__ import annotations

import math
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pytest_ngraph import units
from pytest_ngraph.load.closed_loop import Ran, Track, ran
from pytest_ngraph.load.neighbours import LOOP, cell_beside
from pytest_ngraph.spec.cells import TIMED, Cell, CompileRecord, Device, Outcome, Visit

# A visit lasts so many times as long as that to a cell that is alone, and as so many calls of its neighbour alone:
# beside each other both are slower, and a visit must see several calls of either.
_LONGER, _CALLS = 4.0, 12.0
# By so many CPUs, or an eighth of them, others may use while a cell and its neighbour run. The run-delay of the cell,
# by which visits are judged elsewhere, is mostly its neighbour's doing here.
MOST_FOREIGN, _SHARE_FOREIGN = 0.25, 1 / 8
_LOOK_SECONDS = 0.0005
_Stay = TypeVar("_Stay", bound=Any)


def seconds_beside(alone: float, call: float) -> float:
    """Return how long a visit lasts that would last ``alone``, beside a neighbour whose call alone takes ``call``."""
    return max(_LONGER * alone, _CALLS * call)


class NeighbourEnded(Exception):
    """A neighbour that makes no calls, or none any more."""


class Client(Protocol):
    """What is asked of the process that a neighbour runs in."""

    def begin(self, do: str, **fields: Any) -> None:
        """Ask for something without waiting for the answer."""

    def early(self, do: str) -> Mapping[str, Any] | None:
        """Return the answer, or None while there is none."""
        ...

    def park(self) -> None:
        """Stop it in its tracks."""

    def resume(self) -> None:
        """Resume it."""


@dataclass(frozen=True, slots=True)
class Window:
    """What the launching process saw of a neighbour in a visit, in nanoseconds, by a clock that both processes have.

    Calls were timed from ``since_ns`` to ``until_ns``, at the end of ``wall_ns`` in which the neighbour used ``cpu_ns``
    of CPU time and others, beside it and the cell, ``others_ns`` (None where the kernel does not say). For ``delay_ns``
    its main thread was ready to run and did not.
    """

    since_ns: int
    until_ns: int
    wall_ns: int
    cpu_ns: int | None
    others_ns: float | None = None
    delay_ns: int = 0


@dataclass(frozen=True, slots=True)
class _Beside:
    """What a neighbour did in one visit, and why that does not count, if it does not."""

    window: Window
    ran: Ran
    why_not: str


class Company:
    """Who runs beside which cells of a launch on a device.

    ``folder`` is where calls are noted. A neighbour must make a call within ``patience_seconds`` of being let run. With
    ``is_strict`` visits that others disturbed do not count.
    """

    def __init__(
        self, cells: Sequence[Cell], folder: Path, device: Device, *, patience_seconds: float, is_strict: bool = True
    ) -> None:
        found = ((cell, cell_beside(cell)) for cell in cells)
        self._of = {cell: beside for cell, beside in found if beside is not None}
        # Each once: cells that have the same one share its process.
        self.neighbours: tuple[Cell, ...] = tuple(dict.fromkeys(self._of.values()))
        self._folder, self._patience = folder, patience_seconds
        self._most_foreign = max(MOST_FOREIGN, _SHARE_FOREIGN * len(device.cpus)) if is_strict else math.inf
        self._uses_cpu = device.accelerator == "cpu"
        self._tracks: dict[Cell, tuple[Client, Track]] = {}
        self._seen: dict[Cell, list[_Beside]] = {}

    def of(self, cell: Cell) -> Cell | None:
        """Return the neighbour of a cell, None where it has none."""
        return self._of.get(cell)

    def cells_of(self, neighbour: Cell) -> list[Cell]:
        """Return the cells that have this neighbour."""
        return [cell for cell, beside in self._of.items() if beside == neighbour]

    def lengthened(self, stays: Mapping[Cell, _Stay], records: Mapping[Cell, CompileRecord]) -> dict[Cell, _Stay]:
        """Return how long visits last, with room for several calls of the neighbours, where they last by time."""
        longer = dict(stays)
        for cell, beside in self._of.items():
            if cell in stays and stays[cell].seconds > 0:
                call = records[beside].call_seconds or 0.0 if beside in records else 0.0
                longer[cell] = replace(stays[cell], seconds=seconds_beside(stays[cell].seconds, call))
        return longer

    # Running

    def run(self, neighbour: Cell, number: int, client: Client) -> None:
        """Resume a neighbour, and wait until it has ended a call. Raise NeighbourEnded where it does not.

        It may also raise whatever the client raises where its process has ended.
        """
        if neighbour not in self._tracks:
            self._folder.mkdir(parents=True, exist_ok=True)
            path = self._folder / f"{LOOP}-{number}"
            self._tracks[neighbour] = client, Track(path, new=True)
            client.begin(LOOP, number=number, track=str(path))
        _, track = self._tracks[neighbour]
        before, until = track.calls, time.monotonic() + self._patience
        client.resume()
        while track.calls == before:
            self._refuse_ended(client)
            if time.monotonic() > until:
                raise NeighbourEnded(f"it ended no call within {self._patience:g} s (--ngraph-timeout)")
            time.sleep(_LOOK_SECONDS)

    def park(self, cell: Cell) -> None:
        """Stop the neighbour of a cell in its tracks, if it has one that runs."""
        beside = self._of.get(cell)
        if beside in self._tracks:
            self._tracks[beside][0].park()

    def visited(self, cell: Cell, visit: Visit, window: Window | None) -> Visit | None:
        """Take a visit to a cell whose neighbour is parked again. Return it, or None where it does not count.

        It has no run-delay: what the cell waited for its neighbour is no disturbance, and nobody knows which part is.
        Raises NeighbourEnded where the neighbour has ended, or whatever the client raises then.
        """
        beside = self._of.get(cell)
        if beside is None:
            return visit
        if beside not in self._tracks or window is None:
            raise NeighbourEnded("it was not let run")
        client, track = self._tracks[beside]
        self._refuse_ended(client)
        marks = track.marks(window.since_ns, window.until_ns)
        found = ran(marks, window.since_ns, window.until_ns, window.delay_ns)
        why_not = found.why_not or self._why_foreign(window)
        if not why_not and window.cpu_ns == 0 and self._uses_cpu:
            why_not = "it used no CPU time while it was to run, by the kernel's account"
        self._seen.setdefault(cell, []).append(_Beside(window, found, why_not))
        return None if why_not else replace(visit, run_delay_ns=())

    def _why_foreign(self, window: Window) -> str:
        if window.others_ns is None:
            return ""
        foreign = window.others_ns / max(window.wall_ns, 1)
        if foreign <= self._most_foreign:
            return ""
        return f"other processes kept {foreign:.1f} CPUs busy beside the two (at most {self._most_foreign:.2g} may)"

    @staticmethod
    def _refuse_ended(client: Client) -> None:
        answer = client.early(LOOP)
        if answer is not None:
            raise NeighbourEnded(str(answer.get("reason") or "it ended its calls by itself"))

    def forget(self, neighbour: Cell) -> None:
        """Drop a neighbour, whose process is ended."""
        if neighbour in self._tracks:
            self._tracks.pop(neighbour)[1].close()

    # What is said of it

    def judged(self, cell: Cell, record: CompileRecord, records: Mapping[Cell, CompileRecord]) -> CompileRecord:
        """Return the record of a cell with what its neighbour did. Where it mostly did not run it is unstable."""
        beside, visits = self._of.get(cell), self._seen.get(cell)
        if beside is None or not visits or record.outcome not in TIMED:
            return record
        counted = [visit for visit in visits if not visit.why_not]
        facts = _facts(beside, counted, records[beside], len(visits))
        record = replace(record, placement=(*record.placement, *facts.items()))
        if 2 * len(counted) > len(visits):
            return record
        reasons = Counter(visit.why_not for visit in visits if visit.why_not)
        reason = (
            f"{len(visits) - len(counted)} of {units.count(len(visits), 'visit')} beside {cell.workload.neighbour} do "
            f"not count, such as: {reasons.most_common(1)[0][0]}"
        )
        return replace(record, outcome=Outcome.UNSTABLE, reason=reason)


def _facts(beside: Cell, visits: Sequence[_Beside], alone: CompileRecord, asked: int) -> dict[str, str]:
    """Return what a neighbour did in the visits that count, in words."""
    calls, lasted = sum(one.ran.calls for one in visits), sum(one.ran.lasted_ns for one in visits)
    facts = {
        "neighbour_visits": f"{len(visits)} of {asked}",
        "neighbour_calls": str(calls),
        "neighbour_threads": dict(alone.placement).get("threads", "not known"),
    }
    if calls:
        facts["neighbour_calls_a_second"] = f"{calls / (lasted * 1e-9):.4g}"
        facts["neighbour_call"] = units.seconds(lasted * 1e-9 / calls)
    if alone.call_seconds is not None:
        facts["neighbour_call_alone"] = units.seconds(alone.call_seconds)
    windows = [one.window for one in visits]
    if windows and all(one.cpu_ns is not None for one in windows):
        used, wall = sum(one.cpu_ns or 0 for one in windows), sum(one.wall_ns for one in windows)
        facts["neighbour_cpus"] = f"{used / max(1, wall):.2f}"
    return facts

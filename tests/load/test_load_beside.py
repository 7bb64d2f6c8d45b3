"""The neighbours of a launch, with clients that are none: let run, parked, and what is said of their visits."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.checks import oversight
from pytest_ngraph.checks.oversight import CpuAccount, Seen, Watch, others_cpus
from pytest_ngraph.launches.order import Stay
from pytest_ngraph.load.beside import Company, NeighbourEnded, Window
from pytest_ngraph.load.closed_loop import Track
from pytest_ngraph.machine import facts
from pytest_ngraph.spec.cells import Cell, CompileRecord, Device, Outcome, Visit
from tests.load.test_load_neighbours import ALONE, beside

MS = 1_000_000
DEVICE = Device("local", (0, 1), 2)
OK = CompileRecord(Outcome.OK, call_seconds=0.02, placement=(("threads", "2"),))
VISIT = Visit(1, (5 * MS,) * 10, (5 * MS,) * 10, (MS,) * 10, (0,) * 10)


@dataclass
class Client:
    """A process that has called as often as it is told when it is let run."""

    calls: list[float] = field(default_factory=list)
    answer: Mapping[str, Any] | None = None
    track: Track | None = None
    asked: list[Mapping[str, Any]] = field(default_factory=list)
    state: list[str] = field(default_factory=list)

    def begin(self, do: str, **fields: Any) -> None:
        self.asked.append({"do": do, **fields})
        self.track = Track(Path(fields["track"]))

    def resume(self) -> None:
        self.state.append("runs")
        assert self.track is not None
        for at in self.calls:
            self.track.called(round(at * MS))

    def park(self) -> None:
        self.state.append("parked")

    def early(self, do: str) -> Mapping[str, Any] | None:
        return self.answer


def company(folder: Path, *cells: Cell, patience: float = 5.0, is_strict: bool = True) -> Company:
    return Company(cells or (beside(),), folder / "new", DEVICE, patience_seconds=patience, is_strict=is_strict)


def window(**more: Any) -> Window:
    return Window(**{"since_ns": 0, "until_ns": 240 * MS, "wall_ns": 250 * MS, "cpu_ns": 200 * MS, **more})


def evenly(until: float) -> list[float]:
    return [5.0 * number - 1 for number in range(int(until / 5) + 1)]


def visited(folder: Path, calls: list[float], *, is_strict: bool = True, **more: Any) -> tuple[Visit | None, Company]:
    found = company(folder, is_strict=is_strict)
    found.run(found.neighbours[0], 3, Client(calls))
    return found.visited(beside(), VISIT, window(**more)), found


def judged(found: Company, record: CompileRecord = OK) -> CompileRecord:
    return found.judged(beside(), record, {found.neighbours[0]: OK})


def test_cells_share_a_neighbour_and_one_without_has_none(tmp_path: Path) -> None:
    other = replace(beside(), replica=1)
    found = company(tmp_path, ALONE, beside(), other)

    assert len(found.neighbours) == 1
    assert found.of(ALONE) is None
    assert found.of(beside()) == found.of(other) == found.neighbours[0]
    assert found.cells_of(found.neighbours[0]) == [beside(), other]
    found.park(ALONE)
    assert found.visited(ALONE, VISIT, None) is VISIT
    assert found.judged(ALONE, OK, {}) is OK


def test_visits_have_room_for_several_calls_of_both(tmp_path: Path) -> None:
    found = company(tmp_path, ALONE, beside())
    records = {found.neighbours[0]: replace(OK, call_seconds=0.01)}
    stays = dict.fromkeys((ALONE, beside()), Stay(2, 0.06, 1))

    assert found.lengthened(stays, records) == {ALONE: Stay(2, 0.06, 1), beside(): Stay(2, 0.24, 1)}
    records[found.neighbours[0]] = replace(OK, call_seconds=0.1)
    assert found.lengthened(stays, records)[beside()].seconds == pytest.approx(1.2)
    # A protocol that counts calls goes on counting.
    counted = dict.fromkeys((ALONE, beside()), Stay(1, 0.0, 100))
    assert found.lengthened(counted, records) == counted


def test_a_neighbour_is_asked_once_and_then_let_run_and_parked(tmp_path: Path) -> None:
    found, client = company(tmp_path), Client([1.0])
    for _ in range(2):
        found.run(found.neighbours[0], 7, client)
        found.park(beside())

    assert [(each["do"], each["number"]) for each in client.asked] == [("beside", 7)]
    assert client.state == ["runs", "parked", "runs", "parked"]
    found.forget(found.neighbours[0])
    found.park(beside())
    with pytest.raises(NeighbourEnded, match="was not let run"):
        found.visited(beside(), VISIT, window())


def test_one_that_never_makes_a_call_is_not_waited_for_for_ever(tmp_path: Path) -> None:
    found = company(tmp_path, patience=0.02)
    with pytest.raises(NeighbourEnded, match=r"it ended no call within 0.02 s"):
        found.run(found.neighbours[0], 0, Client())


def test_one_whose_calls_fail_says_so_before_and_after_a_visit(tmp_path: Path) -> None:
    found, client = company(tmp_path), Client([], {"ok": False, "reason": "no such operator"})
    with pytest.raises(NeighbourEnded, match="no such operator"):
        found.run(found.neighbours[0], 0, client)
    client.calls, client.answer = evenly(250), None
    found.run(found.neighbours[0], 0, client)
    client.answer = {"ok": True}
    with pytest.raises(NeighbourEnded, match="it ended its calls by itself"):
        found.visited(beside(), VISIT, window())


def test_a_visit_counts_without_the_run_delay_that_the_neighbour_made(tmp_path: Path) -> None:
    visit, found = visited(tmp_path, evenly(250))

    assert visit == replace(VISIT, run_delay_ns=())
    record = judged(found)
    assert record.outcome is Outcome.OK
    assert dict(record.placement) == {
        "threads": "2",
        "neighbour_visits": "1 of 1",
        "neighbour_calls": "48",
        "neighbour_threads": "2",
        "neighbour_calls_a_second": "200",
        "neighbour_call": "5.00 ms",
        "neighbour_call_alone": "20.0 ms",
        "neighbour_cpus": "0.80",
    }


@pytest.mark.parametrize(
    ("calls", "more", "says"),
    [
        (evenly(120), {}, "it made no call for"),
        ([-2.0, -1.0], {}, "it ended no call"),
        (evenly(250), {"others_ns": 70.0 * MS}, "other processes kept 0.3 CPUs busy beside the two (at most 0.25 may)"),
        (evenly(250), {"cpu_ns": 0}, "it used no CPU time"),
    ],
)
def test_a_visit_that_shows_nothing_does_not_count_and_the_cell_has_no_steady_time(
    calls: list[float], more: dict[str, Any], says: str, tmp_path: Path
) -> None:
    visit, found = visited(tmp_path, calls, **more)

    assert visit is None
    record = judged(found)
    assert record.outcome is Outcome.UNSTABLE
    assert record.reason.startswith("1 of 1 visit beside block:mha@null[fixed_us=5] do not count, such as: ")
    assert says in record.reason
    assert dict(record.placement)["neighbour_visits"] == "0 of 1"
    # What failed stays so.
    failed = CompileRecord(Outcome.FAILED, "before")
    assert judged(found, failed) is failed


def test_some_visits_that_do_not_count_leave_the_others(tmp_path: Path) -> None:
    visit, found = visited(tmp_path, evenly(250))
    assert found.visited(beside(), VISIT, window()) == visit
    assert found.visited(beside(), VISIT, window(others_ns=100.0 * MS)) is None
    record = judged(found)
    assert record.outcome is Outcome.OK
    assert dict(record.placement)["neighbour_visits"] == "2 of 3"


def test_without_error_control_others_are_not_looked_at(tmp_path: Path) -> None:
    assert visited(tmp_path, evenly(250), is_strict=False, others_ns=200.0 * MS)[0] is not None


# What is the neighbour's doing, and what is that of others


def test_what_a_neighbour_uses_is_not_what_others_use(monkeypatch: pytest.MonkeyPatch) -> None:
    busy, own = iter([100.0, 100.9]), iter([5.0, 5.1])
    monkeypatch.setattr(facts, "used_seconds", lambda cpus: (next(busy), ()))
    monkeypatch.setattr(time, "process_time", lambda: next(own))
    monkeypatch.setattr(CpuAccount, "read", lambda self: {self.pid: 0})
    monkeypatch.setattr(CpuAccount, "since", lambda self, before: {7: 300, 8: 450}[self.pid] * MS)
    delays = {7: iter([5, 5, 15]), 8: iter([1, 4])}
    monkeypatch.setattr(oversight, "_run_delay_ns", lambda pid: next(delays[pid]) * MS)
    watch = Watch(CpuAccount(7), (0, 1), CpuAccount(8))
    watch.bound("", 0, 1)
    found = watch.answered(VISIT)

    # Of 0.9 s the cell used 0.3, its neighbour 0.45 and this process 0.1.
    assert found.others_seconds == pytest.approx(0.05)
    assert found.beside is not None
    assert (found.beside.cpu_ns, found.beside.delay_ns) == (450 * MS, 3 * MS)
    assert found.beside.others_ns == pytest.approx(50 * MS)
    assert found.beside.since_ns <= found.beside.until_ns
    assert others_cpus([replace(found, wall_ns=1000 * MS)]) == pytest.approx(0.05)


def test_what_a_neighbour_is_not_known_to_have_used_is_nothing_that_others_did(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "used_seconds", lambda cpus: (time.monotonic(), ()))
    monkeypatch.setattr(CpuAccount, "since", lambda self, before: None if self.pid == 8 else 0)
    found = Watch(CpuAccount(7), (0, 1), CpuAccount(8)).answered(VISIT)
    assert found.others_seconds is None
    assert found.beside is not None
    assert found.beside.others_ns is None


def test_a_cell_may_wait_for_its_neighbour_between_its_batches_and_for_nobody_else() -> None:
    def held(cpu_ns: int | None) -> float:
        seen = Seen(VISIT, 500 * MS, 500 * MS, 50 * MS, 0.001, 300 * MS)
        return seen.held_up_ns if cpu_ns is None else replace(seen, beside=window(cpu_ns=cpu_ns)).held_up_ns

    assert held(None) == pytest.approx(MS)
    assert held(200 * MS) == pytest.approx(201 * MS)
    assert held(900 * MS) == pytest.approx(300 * MS)

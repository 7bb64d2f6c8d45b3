"""Devices side by side, and devices that go away: sessions over benches that pretend to measure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.bench import Answer, Passed, PassedTogether, Progress, Sink
from pytest_ngraph.devices.stored import StoredBench
from pytest_ngraph.errors import DeviceLost, DeviceOffline
from pytest_ngraph.launches.launch import LaunchPlan
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.options.settings import Budget, Settings
from pytest_ngraph.plan.items import ItemPlan, item_plan
from pytest_ngraph.quantities.quantity import CellFailed, Measurer, NotStored
from pytest_ngraph.quantities.sweeps import Measurement
from pytest_ngraph.session.ledger import Listener
from pytest_ngraph.session.session import Session
from pytest_ngraph.session.side_by_side import Board, SideBySide
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    Device,
    ModelRef,
    Outcome,
    Protocol,
    Visit,
    Workload,
    digest,
)
from pytest_ngraph.spec.evaluations import Agreed, Evaluation, Score
from pytest_ngraph.spec.resources.power import Power, Window
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model
from tests.options.test_settings import settings as default_settings
from tests.support.measuring import wait_until

NULL, BASELINE = CompilerSpec.parse("null[fixed_us=10]"), CompilerSpec.parse("null[fixed_us=20]")


class Pretending:
    """A bench that measures nothing; what ``script`` holds is raised by its launches, one after the other."""

    def __init__(self, name: str, seconds: float = 0.0, script: Sequence[Exception | None] = ()) -> None:
        self._device, self._seconds, self._script = Device(name, (0, 1), 2), seconds, list(script)
        self.launched: list[tuple[str, ...]] = []
        self.seeds: list[int] = []
        self.threads: set[str] = set()
        self.closed = threading.Event()
        # Launches go on while it is set.
        self.goes_on = threading.Event()
        self.goes_on.set()

    @property
    def device(self) -> Device:
        return self._device

    def missing(self, compiler: str) -> str | None:
        return None

    def missing_for(self, model: ModelRef) -> str | None:
        return None

    def expect(self, cells: Mapping[Cell, str | None]) -> None: ...

    def look_again(self) -> None: ...

    def refusals(self, cells: Sequence[Cell]) -> dict[Cell, str]:
        return {}

    def facts(self) -> Mapping[str, Any]:
        return {"cpu": f"the CPU of {self._device.name}", "affinity": [0, 1]}

    def held(self, waiting: Callable[[str], None]) -> AbstractContextManager[None]:
        return nullcontext()

    def keys(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        return {cell: digest(cell.to_json()) for cell in cells}

    def artifacts(self, cells: Sequence[Cell]) -> dict[Cell, str | None]:
        return dict.fromkeys(cells, "")

    def remarks(self) -> list[str]:
        return []

    def same_content(self, cells: Sequence[Cell], other: str = "") -> set[Cell]:
        return set()

    def build(self, wanted: Sequence[Cell], progress: Progress) -> list[Answer]:
        return [{"ok": True} for _ in wanted]

    def tune(self, cell: Cell, progress: Progress) -> Answer:
        return {"ok": True}

    def launch(self, plan: LaunchPlan, sink: Sink) -> None:
        self.threads.add(threading.current_thread().name)
        self.seeds.append(plan.seed)
        self.launched.append(tuple(dict.fromkeys(cell.workload.label for cell in plan.cells)))
        sink.surroundings("begun", environment.snapshot())
        wrong = self._script.pop(0) if self._script else None
        if wrong is not None:
            raise wrong
        for cell in plan.cells:
            sink.prepared(cell, CompileRecord(Outcome.OK, call_seconds=1e-3))
        deadline = time.monotonic() + self._seconds
        while time.monotonic() < deadline or not self.goes_on.is_set():
            sink.progress("measuring something", 0, 1)
            time.sleep(0.01)
        for block in range(4):
            for position, cell in enumerate(plan.cells):
                sink.visited(cell, block, position, Visit(1, (1_000_000,) * 9))
            sink.block_done(block, None)
        sink.surroundings("ended", environment.snapshot())

    def memory(
        self, cell: Cell, protocol: Protocol, seed: int
    ) -> tuple[Mapping[str, Any], CompileRecord, Mapping[str, Any]]:
        return {}, CompileRecord(Outcome.OK, peak_memory_bytes=1), {}

    def evaluate(self, cell: Cell, protocol: Protocol, seed: int, progress: Any) -> Passed:
        score = Score.of_flags("top1", [True, False])
        return {}, CompileRecord(Outcome.OK, evaluation=Evaluation(2, 2, "0" * 64, (score,))), {}

    def agree(self, cell: Cell, dense: Cell, samples: int, protocol: Protocol, seed: int, progress: Any) -> Passed:
        return {}, CompileRecord(Outcome.OK, agreed=Agreed(dense.label, samples, samples, "0" * 64, 1.0)), {}

    def power(self, cells: Sequence[Cell], protocol: Protocol, seed: int, progress: Any) -> PassedTogether:
        window = Window(0, 2.0, 20.0)
        power = Power("all of it", (window,), (replace(window, joules=90.0, samples=9),))
        return {}, [CompileRecord(Outcome.OK, power=power) for _ in cells], {}

    def close(self) -> None:
        self.closed.set()


class Quiet:
    """A display that remembers."""

    def __init__(self) -> None:
        self.notes: list[str] = []
        self.shown: list[str] = []
        self.doings: list[str] = []
        self.threads: set[int] = set()

    def group_started(self, name: str, cells: int, launches: int, seconds: float) -> None:
        self.threads.add(threading.get_ident())

    def progress(self, name: str, launch: int, of: int, doing: str, done: int, total: int) -> None:
        self.threads.add(threading.get_ident())
        self.doings.append(doing)

    def side_by_side(self, doing: str) -> None:
        self.threads.add(threading.get_ident())
        self.shown.append(doing)

    def note(self, text: str) -> None:
        self.threads.add(threading.get_ident())
        self.notes.append(text)

    def idle(self) -> None:
        self.threads.add(threading.get_ident())


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return replace(default_settings(), store=tmp_path / "results.sqlite", protocol=PROTOCOLS["quick"])


def plan(device: str, batch: int, settings: Settings, name: str = "") -> ItemPlan:
    one = Cell(device, NULL, Workload(parse_model("block:conv"), batch))
    nodeid = name or f"test_it[{device}-{batch}]"
    return item_plan(nodeid, [one], settings, baseline=BASELINE, budget=Budget(8), tolerance=0.05)


def ask(session: Session, one: ItemPlan) -> float:
    measurement = Measurement(Measurer(session, one.nodeid), one.cells[0], one.baselines[0])
    return measurement.throughput.value


@contextmanager
def sessions(settings: Settings, display: Quiet, *benches: Pretending) -> Iterator[list[SideBySide]]:
    board = Board(display)
    opened = [
        SideBySide(settings, Catalogue(), bench, board, uid="run", command=["pytest"], verdicts=[]) for bench in benches
    ]
    try:
        yield opened
    finally:
        for session in opened:
            session.close("finished")


@pytest.mark.measures
def test_devices_measure_at_the_same_time_and_ahead_of_the_tests(settings: Settings) -> None:
    orin, xeon, display = Pretending("orin", 0.3), Pretending("xeon", 0.3), Quiet()
    with sessions(settings, display, orin, xeon) as opened:
        plans = {session: [plan(session.device.name, batch, settings) for batch in (1, 2)] for session in opened}
        began = time.monotonic()
        for session, mine in plans.items():
            session.plan(mine)
            session.look_ahead()
        for session, mine in plans.items():
            assert [round(ask(session, one)) for one in mine] == [1000, 2000]
        took = time.monotonic() - began
    # Four launches of 0.3 s, two on each device.
    assert took < 1.1
    assert [len(bench.launched) for bench in (orin, xeon)] == [2, 2]
    assert orin.threads.isdisjoint(xeon.threads)
    assert display.threads <= {threading.get_ident()}
    assert any("orin" in text and "xeon" in text for text in display.shown)


def test_one_run_holds_what_each_device_is_and_all_their_cells(settings: Settings) -> None:
    with sessions(settings, Quiet(), Pretending("orin"), Pretending("xeon")) as opened:
        for session in opened:
            one = plan(session.device.name, 1, settings)
            session.plan([one])
            ask(session, one)
    with Store.open(settings.store, read_only=True) as store:
        (run,) = store.runs()
        assert {cell.device for cell, _ in store.cells(run.id)} == {"orin", "xeon"}
    assert run.status == "finished"
    for name in ("orin", "xeon"):
        assert run.on(name).environment == {"cpu": f"the CPU of {name}", "affinity": [0, 1]}
        assert run.on(name).environment_end == run.on(name).environment


@pytest.mark.parametrize("error", [None, TimeoutError("of the device itself")])
def test_what_comes_just_when_nobody_waits_for_it_any_more_is_an_answer(
    settings: Settings, monkeypatch: pytest.MonkeyPatch, error: Exception | None
) -> None:
    """Between the end of a wait and the look whether there is something."""

    class Late(Future[str]):
        def result(self, timeout: float | None = None) -> str:
            if timeout is not None:
                self.set_result("it is there") if error is None else self.set_exception(error)
                raise NotYet
            return super().result()

    with sessions(settings, Quiet(), Pretending("orin")) as (session,):
        monkeypatch.setattr(session._work, "put", lambda priority, do: Late())
        if error is None:
            assert session._wait(lambda: "it is there") == "it is there"
        else:
            with pytest.raises(TimeoutError, match="of the device itself"):
                session._wait(lambda: "it is there")


def test_what_an_untimed_pass_is_of_is_shown(settings: Settings) -> None:
    display, one = Quiet(), plan("orin", 1, settings)
    (cell,) = one.cells
    session = Session(settings, Catalogue(), Pretending("orin"), display, uid="run", command=["pytest"])
    session.plan([one])
    session.memory(one.nodeid, cell, 1)
    session.evaluation(one.nodeid, cell)
    session.power(one.nodeid, [cell], 1)
    session.close("finished")
    passes = [
        f"measuring the memory of {cell.label}",
        f"evaluating {cell.label}",
        f"measuring the power of {cell.label}",
    ]
    assert display.doings == passes


def test_what_a_test_waits_for_goes_before_what_nobody_waits_for_yet(settings: Settings) -> None:
    orin = Pretending("orin")
    orin.goes_on.clear()
    with sessions(settings, Quiet(), orin) as (session,):
        plans = [plan("orin", batch, settings) for batch in (1, 2, 4, 8)]
        session.plan(plans)
        put = session._work.put

        def putting(priority: int, do: Callable[[], Any]) -> Any:
            future = put(priority, do)
            # The first launch is under way until a test waits for its own.
            if getattr(do, "func", None) is Session.launches:
                orin.goes_on.set()
            return future

        session._work.put = putting  # type: ignore[method-assign]
        session.look_ahead()
        assert wait_until(lambda: bool(orin.launched), 60)
        ask(session, plans[3])
    assert orin.launched[:2] == [("block:conv batch1",), ("block:conv batch8",)]


def test_an_ended_run_gives_up_what_nobody_waits_for(settings: Settings) -> None:
    orin = Pretending("orin", 3600.0)
    began = time.monotonic()
    with sessions(settings, Quiet(), orin) as (session,):
        session.plan([plan("orin", batch, settings) for batch in (1, 2)])
        session.look_ahead()
        assert wait_until(lambda: bool(orin.launched), 60)
    assert time.monotonic() - began < 300
    assert orin.closed.is_set()
    assert len(orin.launched) == 1


# Devices that go away


def alone(settings: Settings, bench: Pretending, listener: Listener) -> tuple[Session, ItemPlan]:
    session = Session(settings, Catalogue(), bench, listener, uid="run", command=["pytest"])
    one = plan(bench.device.name, 1, settings)
    session.plan([one])
    return session, one


def test_a_device_that_was_lost_is_asked_once_more_for_the_same_launch(settings: Settings) -> None:
    orin, listener = Pretending("orin", script=[DeviceLost("device 'orin': the link was cut")]), Quiet()
    session, one = alone(settings, orin, listener)

    assert round(ask(session, one)) == 1000

    assert len(orin.seeds) == 2
    assert len(set(orin.seeds)) == 1
    assert [text for text in listener.notes if "the link was cut; trying once more" in text]
    session.close("finished")
    with Store.open(settings.store, read_only=True) as store:
        assert store.incomplete_launches(store.runs()[0].id) == 1


def test_a_device_that_stays_away_is_the_outcome_of_its_cells_and_costs_no_further_try(settings: Settings) -> None:
    gone = DeviceLost("device 'orin': its agent does not answer")
    orin = Pretending("orin", script=[gone] * 9)
    session, one = alone(settings, orin, Quiet())

    for _ in range(2):
        with pytest.raises(CellFailed) as caught:
            ask(session, one)
        assert caught.value.record.outcome is Outcome.LOST
        assert "its agent does not answer" in caught.value.record.reason

    assert len(orin.launched) == 2
    session.close("finished")


def stored(name: str, settings: Settings) -> StoredBench:
    return StoredBench(name, "cpu", None, settings.store, protocol=settings.protocol.name, seed=settings.seed)


def test_offline_only_what_the_same_protocol_measured_is_judged(settings: Settings) -> None:
    session, one = alone(settings, Pretending("orin"), Quiet())
    ask(session, one)
    session.close("finished")
    # Another protocol has other evidence, and is the last run.
    other = PROTOCOLS["quick" if settings.protocol.name != "quick" else "gate"]
    with Store.open(settings.store) as store:
        run_id = store.start_run(
            "other", command=[], seed=settings.seed, protocol=other, environment={}, fresh=False, resumed=False
        )
        store.use_cells(run_id, dict.fromkeys(one.cells, "by the other"))

    assert stored("orin", settings).keys(one.cells) == {cell: digest(cell.to_json()) for cell in one.cells}
    assert stored("orin", replace(settings, protocol=other)).keys(one.cells) == dict.fromkeys(one.cells, "by the other")
    assert stored("orin", replace(settings, seed=settings.seed + 1)).keys(one.cells) == dict.fromkeys(one.cells)


def test_offline_a_device_elsewhere_is_judged_by_what_it_left_in_the_store(settings: Settings) -> None:
    session, one = alone(settings, Pretending("orin"), Quiet())
    ask(session, one)
    session.close("finished")
    bench = stored("orin", settings)
    offline = Session(replace(settings, offline=True), Catalogue(), bench, Quiet(), uid="other", command=["pytest"])
    other = plan("orin", 64, settings)
    offline.plan([one, other])

    assert round(ask(offline, one)) == 1000
    assert bench.device == Device("orin", (0, 1), 2)
    with pytest.raises(NotStored):
        ask(offline, other)
    offline.close("finished")


def test_offline_a_device_that_was_never_measured_says_so(settings: Settings) -> None:
    with pytest.raises(DeviceOffline, match="nothing of it is in the store"):
        stored("orin", settings)

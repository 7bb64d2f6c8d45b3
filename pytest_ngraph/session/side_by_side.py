"""Several devices side by side: a session for each in a thread of its own, and one thread that shows what they do."""

from __future__ import annotations

import itertools
import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotYet
from contextlib import suppress
from functools import partial
from typing import Any, Protocol, TypeVar

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices.bench import Bench
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.options.settings import Settings
from pytest_ngraph.plan.groups import Group
from pytest_ngraph.session.ledger import Listener
from pytest_ngraph.session.session import Session
from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord
from pytest_ngraph.store.sqlite import Store

Answer = TypeVar("Answer")
_SHOW_EVERY_SECONDS = 0.1
_END_WITHIN_SECONDS = 15.0
_ASKED, _AHEAD = 0, 1  # what a test waits for goes before what nobody waits for yet


class Stopped(NgraphError):
    """The run ends: what a device was doing is given up."""


class Display(Listener, Protocol):
    """A listener that has a line for several devices."""

    def side_by_side(self, doing: str) -> None:
        """Show what several devices do at once."""


class Board:
    """What the devices' threads say, until the one thread that may write to the terminal shows it."""

    def __init__(self, display: Display) -> None:
        self._display = display
        self._notes: queue.SimpleQueue[str] = queue.SimpleQueue()
        self._doing: dict[str, str] = {}
        self.stopped = threading.Event()

    def note(self, text: str) -> None:
        """Keep a line that stays."""
        self._notes.put(text)

    def doing(self, device: str, text: str) -> None:
        """Keep what a device does, or nothing where it pauses."""
        self._doing[device] = text

    def show(self) -> None:
        """Show what was kept, only from the thread that runs the tests."""
        while not self._notes.empty():
            self._display.note(self._notes.get())
        doing = [f"{device} {text}" for device, text in sorted(self._doing.items()) if text]
        if doing:
            self._display.side_by_side("; ".join(doing))

    def idle(self) -> None:
        """Take the live line away."""
        self.show()
        self._display.idle()


class _Relay:
    """The listener of one device's session. It raises once the run ends, which ends what the device does."""

    def __init__(self, device: str, board: Board) -> None:
        self._device, self._board = device, board
        self._started = ("", 0)

    def group_started(self, name: str, cells: int, launches: int, seconds: float) -> None:
        self._check()
        if self._started != (name, launches):
            self._started = (name, launches)
            self._board.note(f"measuring {name}: {cells} cells, up to launch {launches}, about {seconds:.0f} s each")

    def progress(self, name: str, launch: int, of: int, doing: str, done: int, total: int) -> None:
        self._check()
        # The line has room for what differs: whose launch it is, and how far.
        step = f"{doing.partition(' ')[0]} {done + 1} of {total}"
        self._board.doing(self._device, f"launch {launch} of {max(of, launch)}: {step}")

    def note(self, text: str) -> None:
        self._check()
        self._board.note(text if self._device in text else f"{self._device}: {text}")

    def idle(self) -> None:
        self._board.doing(self._device, "")

    def _check(self) -> None:
        if self._board.stopped.is_set():
            raise Stopped(f"{self._device}: the run ends")


class _Work:
    """A thread that does one thing after the other and lives as long as the run.

    It must live: the kernel kills a worker when the thread that started it ends.
    """

    def __init__(self, name: str) -> None:
        self._queue: queue.PriorityQueue[tuple[int, int, Callable[[], Any], Future[Any]]] = queue.PriorityQueue()
        self._numbers = itertools.count()
        self._busy = threading.Event()
        threading.Thread(target=self._serve, name=f"ngraph {name}", daemon=True).start()

    @property
    def is_busy(self) -> bool:
        """Return whether something is being done now."""
        return self._busy.is_set()

    def put(self, priority: int, do: Callable[[], Answer]) -> Future[Answer]:
        """Have something done when its turn comes."""
        future: Future[Answer] = Future()
        self._queue.put((priority, next(self._numbers), do, future))
        return future

    def _serve(self) -> None:
        while True:
            _, _, do, future = self._queue.get()
            self._busy.set()
            try:
                future.set_result(do())
            except BaseException as error:  # noqa: BLE001 - the asking thread gets it
                future.set_exception(error)
            self._busy.clear()


class SideBySide(Session):
    """A session that measures in its device's thread, ahead of the tests where it can. They wait for it.

    ``of_run`` is what every session is given of its run.
    """

    def __init__(
        self,
        settings: Settings,
        catalogue: Catalogue,
        bench: Bench,
        board: Board,
        **of_run: Any,
    ) -> None:
        super().__init__(settings, catalogue, bench, _Relay(bench.device.name, board), **of_run)
        self._board, self._work = board, _Work(bench.device.name)
        self._book: Store | None = None

    def look_ahead(self) -> None:
        """Begin with the first looks of all groups, in the order of their tests."""
        if not self.settings.offline:
            for group in {id(group): group for group in self._groups.values()}.values():
                self._work.put(_AHEAD, partial(self._first_look_at, group))

    def _first_look_at(self, group: Group) -> None:
        waiting = [item for item in group.items if not self._runner.is_over(item)]
        if waiting and not self._board.stopped.is_set():
            Session.launches(self, waiting[0].nodeid, waiting[0].cells)

    def _wait(self, do: Callable[[], Answer]) -> Answer:
        """Do something in the device's thread, and show what all devices do meanwhile."""
        future = self._work.put(_ASKED, do)
        try:
            while True:
                try:
                    return future.result(timeout=_SHOW_EVERY_SECONDS)
                except NotYet:
                    # It may have ended since, or it is its own error, which its result raises.
                    if future.done():
                        return future.result()
                self._board.show()
        finally:
            self._board.idle()

    def is_unchanged(self, nodeid: str, cell: Cell) -> bool:
        """Return whether a cell of the other side is what it is here, as ``Session.is_unchanged`` does."""
        return self._wait(partial(Session.is_unchanged, self, nodeid, cell))

    def launches(self, nodeid: str, cells: Sequence[Cell]) -> list[LaunchRecord]:
        """Return the launches in which all these cells were measured, as ``Session.launches`` does."""
        return self._wait(partial(Session.launches, self, nodeid, cells))

    def one_more(self, nodeid: str, cells: Sequence[Cell], **how: Any) -> bool:
        """Measure one more launch, as ``Session.one_more`` does."""
        return self._wait(partial(Session.one_more, self, nodeid, cells, **how))

    def memory(self, nodeid: str, cell: Cell, wanted: int = 0) -> list[LaunchRecord]:
        """Return the untimed passes of a cell, as ``Session.memory`` does."""
        return self._wait(partial(Session.memory, self, nodeid, cell, wanted))

    def power(self, nodeid: str, cells: Sequence[Cell], wanted: int = 0) -> list[LaunchRecord]:
        """Return the passes for power of some cells, as ``Session.power`` does."""
        return self._wait(partial(Session.power, self, nodeid, cells, wanted))

    def evaluation(self, nodeid: str, cell: Cell) -> CompileRecord | None:
        """Return what a model's own evaluation gave of a cell, as ``Session.evaluation`` does."""
        return self._wait(partial(Session.evaluation, self, nodeid, cell))

    def agreement(self, nodeid: str, cell: Cell, dense: Cell, samples: int) -> CompileRecord | None:
        """Return how well a cell agrees with another one, as ``Session.agreement`` does."""
        return self._wait(partial(Session.agreement, self, nodeid, cell, dense, samples))

    def make_ready(self, cell: Cell) -> None:
        """Build and tune what a cell's compiler reads, as ``Session.make_ready`` does."""
        self._wait(partial(Session.make_ready, self, cell))

    @property
    def book(self) -> Store:
        """Return a store for the thread of the tests: the device's may be measuring ahead."""
        if self._book is None:
            if not self._run.id:
                # The run begins in it.
                self._wait(lambda: self.store)
            self._book = Store.open(self.settings.store, read_only=self.settings.offline)
        return self._book

    def close(self, status: str) -> None:
        """End the run in the store, and give up what the device is still doing."""
        self._board.stopped.set()
        if self._work.is_busy:
            self.bench.close()
        ended = self._work.put(_ASKED, partial(Session.close, self, status))
        # A compiler that does not come back ends with this process; the run stays unfinished in the store.
        with suppress(NotYet):
            ended.result(timeout=_END_WITHIN_SECONDS)
        if self._book is not None:
            self._book.close()

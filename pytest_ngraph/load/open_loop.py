"""The open loop: calls arrive when they arrive, whether those before have been answered or not.

Arrivals are a Poisson process that the seed decides, made before anything is called. A call counts from the moment at
which it was to arrive. So no slow answer delays an arrival, and who waits behind one is counted with its wait: a loop
that sends the next call when the last one has come back would leave that out (coordinated omission).
"""

from __future__ import annotations

import math
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import pairwise
from queue import SimpleQueue
from statistics import fmean, pvariance
from threading import Semaphore, Thread
from typing import Protocol

from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.load.queues import Traffic
from pytest_ngraph.machine import clock as clocks
from pytest_ngraph.spec.cells import Visit

Clock = Callable[[], int]
# Sleeping ends late by some tens of microseconds: the rest is waited for awake.
_AWAKE_NS = 200_000
# Threads that wait for the interpreter's lock get it after this.
_SWITCH_SECONDS = 1e-4
_LATE = 0.99


class Serves(Protocol):
    """What is called: an executable, one call after the other or in slots."""

    in_flight: int

    def run(self) -> None:
        """Do one call."""

    def synchronize(self) -> None:
        """Wait until it has finished."""

    def submit(self, slot: int) -> None:
        """Start a call in a slot."""

    def next_done(self) -> int:
        """Wait until one has finished, and return its slot."""
        ...


@dataclass(frozen=True, slots=True)
class Load:
    """What arrives in a visit: so many calls a second, by a seed. Those of the first seconds are not looked at.

    Calls of the window that are not answered as long after its end as the visit lasted until then are given up.
    """

    rate: float
    seed: str
    discard_seconds: float
    seconds: float

    def arrivals_ns(self) -> Iterator[int]:
        """Yield when each call arrives, in nanoseconds from the beginning of the visit, up to the end of its window."""
        draw = random.Random(f"arrivals {self.seed}")  # noqa: S311 - a load, not secrets
        at, end = 0.0, self.discard_seconds + self.seconds
        while (at := at + draw.expovariate(self.rate)) < end:
            yield round(at * 1e9)

    @property
    def limit_ns(self) -> int:
        """Return from when on nothing is waited for."""
        return round(2e9 * (self.discard_seconds + self.seconds))


@dataclass(slots=True)
class _Call:
    arrived_ns: int
    begun_ns: int
    # When there was room for it: the moment at which it should have begun.
    room_ns: int
    done_ns: int = 0
    cpu_ns: int = 0


@dataclass(slots=True)
class _Seen:
    """The calls of a visit, as they were answered, and how many were not."""

    done: list[_Call] = field(default_factory=list)
    unfinished: int = 0


def wait_until(until_ns: int, clock: Clock = clocks.nanoseconds) -> None:
    """Wait until a moment: asleep, and awake for the last of it."""
    left = until_ns - clock()
    if left > _AWAKE_NS:
        time.sleep((left - _AWAKE_NS) * 1e-9)
    while clock() < until_ns:
        pass


def visit(
    executable: Serves,
    load: Load,
    *,
    in_slots: bool = False,
    clock: Clock = clocks.nanoseconds,
    cpu: Clock = clocks.cpu_nanoseconds,
    wait: Callable[[int], None] = wait_until,
) -> tuple[Visit, Traffic]:
    """Serve the calls of a load in the order of their arrival. Return their times, and what the queue was like.

    In the visit every call of the window is a request: from its arrival to its answer. Its batches last from answer to
    answer. With ``in_slots`` as many calls run beside each other as there are slots. Raises CompileFailed where none
    arrived, and for an answer from a slot that had no call.
    """
    start = clock()
    serve = _serve_in_slots if in_slots else _serve
    seen = serve(executable, load, start, clock, cpu, wait)
    return _made(seen, load, start + round(load.discard_seconds * 1e9))


def _serve(executable: Serves, load: Load, start: int, clock: Clock, cpu: Clock, wait: Callable[[int], None]) -> _Seen:
    """Make one call after the other: the next to arrive, as soon as it has arrived and the last one is answered."""
    seen, done, arrivals = _Seen(), start, load.arrivals_ns()
    for offset in arrivals:
        arrived = start + offset
        if done > start + load.limit_ns:
            seen.unfinished = 1 + sum(1 for _ in arrivals)
            break
        if clock() < arrived:
            wait(arrived)
        begun = clock()
        executable.run()
        executable.synchronize()
        call = _Call(arrived, begun, max(arrived, done), clock(), cpu())
        done = call.done_ns
        seen.done.append(call)
    return seen


def _serve_in_slots(
    executable: Serves, load: Load, start: int, clock: Clock, cpu: Clock, wait: Callable[[int], None]
) -> _Seen:
    """Submit each call when it has arrived and a slot is idle. Another thread waits for the answers meanwhile."""
    collector = _Collector(executable, clock, cpu)
    seen, arrivals = collector.seen, load.arrivals_ns()
    with _quick_switches(), collector.collecting():
        for offset in arrivals:
            arrived = start + offset
            if clock() > start + load.limit_ns:
                seen.unfinished += 1 + sum(1 for _ in arrivals)
                break
            if clock() < arrived:
                wait(arrived)
            slot, idle_since = collector.idle()
            collector.submit(slot, _Call(arrived, clock(), max(arrived, idle_since)))
    return seen


class _Collector:
    """Waits for answers in a thread of its own, and knows which slots are idle."""

    def __init__(self, executable: Serves, clock: Clock, cpu: Clock) -> None:
        self._executable, self._clock, self._cpu = executable, clock, cpu
        self._running: dict[int, _Call] = {}
        self._idle: SimpleQueue[tuple[int, int] | BaseException] = SimpleQueue()
        self._submitted = Semaphore(0)
        self._ends = False
        self.seen = _Seen()
        for slot in range(executable.in_flight):
            self._idle.put((slot, 0))

    @contextmanager
    def collecting(self) -> Iterator[None]:
        """Collect answers inside, and in the end those that are still to come."""
        thread = Thread(target=self._collect, name="answers", daemon=True)
        thread.start()
        try:
            yield
            for _ in range(self._executable.in_flight):
                self.idle()
        finally:
            self._ends = True
            self._submitted.release()
        thread.join()

    def idle(self) -> tuple[int, int]:
        """Wait for a slot that is idle, and return it with the moment since which it is. Raise what a call raised."""
        found = self._idle.get()
        if isinstance(found, BaseException):
            raise found
        return found

    def submit(self, slot: int, call: _Call) -> None:
        """Start a call in a slot."""
        self._running[slot] = call
        self._executable.submit(slot)
        self._submitted.release()

    def _collect(self) -> None:
        try:
            while True:
                self._submitted.acquire()
                if self._ends:
                    return
                slot = self._executable.next_done()
                now = self._clock()
                call = self._running.pop(slot, None)
                if call is None:
                    raise CompileFailed(f"next_done() gave slot {slot!r}, in which no call was running")
                call.done_ns, call.cpu_ns = now, self._cpu()
                self.seen.done.append(call)
                self._idle.put((slot, now))
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to who waits for the call
            self._idle.put(error)


@contextmanager
def _quick_switches() -> Iterator[None]:
    """Give the thread to which a call arrives its turn soon, also where another one computes in Python."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(_SWITCH_SECONDS)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _made(seen: _Seen, load: Load, window_ns: int) -> tuple[Visit, Traffic]:
    """Return a visit of the calls that arrived in the window, in the order of their answers.

    Where none of them was answered in time it is of those before: of a load that is far more than can be borne.
    """
    if not seen.done:
        raise CompileFailed(f"no call arrived in {load.discard_seconds + load.seconds:.1f} s at {load.rate:g} a second")
    before = [call for call in seen.done if call.arrived_ns < window_ns]
    calls = [call for call in seen.done if call.arrived_ns >= window_ns] or before
    ends = [min(window_ns, calls[0].arrived_ns), *(call.done_ns for call in calls)]
    began = before[-1] if before and before is not calls else calls[0]
    used = [began.cpu_ns, *(call.cpu_ns for call in calls)]
    services = [(call.done_ns - call.begun_ns) * 1e-9 for call in calls]
    late = sorted(max(0, call.begun_ns - call.room_ns) for call in calls)
    mean = fmean(services)
    traffic = Traffic(
        calls=len(calls),
        unfinished=seen.unfinished,
        service_seconds=mean,
        variation=pvariance(services) / mean**2 if mean else 0.0,
        seconds=load.seconds,
        late_ns=(late[max(0, math.ceil(_LATE * len(late)) - 1)], late[-1]),
    )
    return (
        Visit(
            calls=1,
            # Answers of one moment are a nanosecond apart.
            wall_ns=tuple(max(1, after - at) for at, after in pairwise(ends)),
            cpu_ns=tuple(max(0, after - at) for at, after in pairwise(used)),
            request_ns=tuple(max(1, call.done_ns - call.arrived_ns) for call in calls),
        ),
        traffic,
    )

"""A worker whose calls of null wait, and are timed, by the CPU time of their thread (``own_time``)."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.compilers.decoding import Decoding
from pytest_ngraph.compilers.null import NullDecoder, NullExecutable
from pytest_ngraph.machine import clock
from pytest_ngraph.worker import timing, worker

_WORKER = "pytest_ngraph.worker.worker"


def takes_own_time(executable: Executable) -> bool:
    """Tell whether all that the calls of a cell do is to wait as null does, or whether an adapter of tests says so.

    What does more than that, sleeps or asks a clock of its own is timed by the wall clock.
    """
    if getattr(type(executable), "takes_own_time", False):
        return True
    if isinstance(executable, Decoding):
        return type(executable.decoder) is NullDecoder
    of = type(executable)
    return isinstance(executable, NullExecutable) and all(
        getattr(of, name) is getattr(NullExecutable, name)
        for name in ("run", "submit", "next_done", "synchronize", "bind")
    )


class OwnTimed(worker.Worker):
    """Warms up and visits null in its own time."""

    def _warm(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._own_time(request):
            return super()._warm(request)

    def _visit(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._own_time(request) as is_own:
            answer = super()._visit(request)
        # Of what it waited nothing is in its times.
        return {**answer, "run_delay_ns": (), "own_time": True} if is_own else answer

    @contextmanager
    def _own_time(self, request: Mapping[str, Any]) -> Iterator[bool]:
        # Calls arrive by the wall clock, also while this process waits for them.
        if request.get("load") is not None or not takes_own_time(self._timed(request["number"])):
            yield False
            return
        with by_own_time() as has_begun:
            yield True
        if not has_begun():
            raise AssertionError("the worker timed null by the wall clock: it no longer asks timing.warm_up or .visit")


@contextmanager
def by_own_time() -> Iterator[Callable[[], bool]]:
    """Have null wait, and be timed, by the CPU time of this thread inside. Gives what tells whether it was timed so."""
    begun = False

    def own(loop: Callable[..., Any]) -> Callable[..., Any]:
        def timed(*given: Any, **how: Any) -> Any:
            nonlocal begun
            begun = True
            # Its default is what the clock was when it was defined.
            return loop(*given, clock=time.thread_time_ns, **how)

        return timed

    before = clock.nanoseconds, timing.warm_up, timing.visit
    clock.nanoseconds = time.thread_time_ns
    timing.warm_up, timing.visit = own(timing.warm_up), own(timing.visit)
    try:
        yield lambda: begun
    finally:
        clock.nanoseconds, timing.warm_up, timing.visit = before


def main(arguments: list[str]) -> None:
    """Answer as a worker does."""
    # Models and compilers ask whether they are in one.
    sys.argv[0] = _WORKER
    worker.main(arguments, OwnTimed)

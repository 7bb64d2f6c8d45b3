"""The clock loop: warming up and visiting one compiled cell, inside its worker."""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Protocol as TypingProtocol

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.spec import Protocol, Visit

Clock = Callable[[], int]


class Reads(TypingProtocol):
    """What a visit needs of its covariates."""

    has_run_delay: bool

    def read(self) -> tuple[int, int, int]:
        """Return CPU ns, run-delay ns and minor faults so far."""
        ...


def timed_batch(executable: Executable, calls: int, clock: Clock) -> int:
    """Time ``calls`` back-to-back calls together; return nanoseconds."""
    run = executable.run
    start = clock()
    for _ in range(calls):
        run()
    executable.synchronize()
    return clock() - start


def calls_per_batch(call_seconds: float, protocol: Protocol) -> int:
    """Return how many calls make a batch: one from 1 ms on, else as many as fill the protocol's batch time."""
    if call_seconds >= 1e-3 or protocol.batch_seconds <= 0:
        return 1
    return max(1, round(protocol.batch_seconds / max(call_seconds, 1e-7)))


def visit_seconds(call_seconds: float, protocol: Protocol) -> float:
    """Return how long a visit to a cell of this speed lasts (MEASUREMENT: units)."""
    if call_seconds > protocol.long_call_seconds:
        return protocol.long_visit_calls * call_seconds
    return max(protocol.visit_seconds, protocol.visit_calls * call_seconds)


def warm_up(
    executable: Executable,
    protocol: Protocol,
    settled: Callable[[list[float]], bool],
    clock: Clock = perf_counter_ns,
) -> tuple[list[float], int, bool]:
    """Run until warm and settled, or to the protocol's limit (MEASUREMENT step 4).

    Returns the seconds per call of every warm-up batch, the calls per batch found by then, and whether it settled.
    """
    start = clock()
    first = timed_batch(executable, 1, clock) * 1e-9
    calls = calls_per_batch(first, protocol)
    series = [first]
    least = protocol.long_warmup_seconds if first > 0.05 else protocol.warmup_seconds
    done = 1
    while True:
        elapsed = (clock() - start) * 1e-9
        if elapsed >= protocol.warmup_limit_seconds:
            return series, calls, False
        if elapsed >= least and done >= protocol.warmup_calls and settled(series):
            return series, calls, True
        batch = timed_batch(executable, calls, clock) * 1e-9 / calls
        done += calls
        series.append(batch)
        # The first calls are slow: the batch size follows the fastest seen, as long as it still matters.
        if len(series) <= 20:
            calls = calls_per_batch(min(series), protocol)


def visit(
    executable: Executable,
    *,
    calls: int,
    seconds: float,
    least_batches: int,
    discard_seconds: float,
    covariates: Reads,
    clock: Clock = perf_counter_ns,
) -> Visit:
    """Stay at one cell: discard what follows the resume, then time batches for ``seconds`` (MEASUREMENT step 5)."""
    if discard_seconds > 0:
        began = clock()
        while True:
            timed_batch(executable, 1, clock)
            if clock() - began >= discard_seconds * 1e9:
                break
    wall: list[int] = []
    cpu: list[int] = []
    delay: list[int] = []
    faults: list[int] = []
    spent = 0
    while spent < seconds * 1e9 or len(wall) < least_batches:
        before = covariates.read()
        batch_ns = timed_batch(executable, calls, clock)
        after = covariates.read()
        wall.append(batch_ns)
        cpu.append(after[0] - before[0])
        delay.append(after[1] - before[1])
        faults.append(after[2] - before[2])
        spent += batch_ns
    return Visit(
        calls=calls,
        wall_ns=tuple(wall),
        cpu_ns=tuple(cpu),
        run_delay_ns=tuple(delay) if covariates.has_run_delay else (),
        faults=tuple(faults),
    )

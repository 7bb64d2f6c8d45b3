"""The clock loop: warming up and visiting one compiled cell, inside its worker."""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from time import perf_counter_ns
from typing import Protocol as TypingProtocol

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.spec import Protocol, Visit
from pytest_ngraph.stats.visits import batch_noise, settled

Clock = Callable[[], int]
_LONG_CALL_SECONDS = 0.05
# What ``settled`` looks at, and how far ``is_level`` looks back.
_WINDOW, _LONG_WINDOW = 20, 200
_LONG_CALL_BATCHES = 10


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


def warm_up(executable: Executable, protocol: Protocol, clock: Clock = perf_counter_ns) -> tuple[list[float], bool]:
    """Run until warm and settled, or to the protocol's limit (MEASUREMENT step 4).

    Returns the seconds per call of every warm-up batch, and whether it settled.
    """
    start = clock()
    series: list[float] = []
    done = 0
    while True:
        # The first calls are slow: the batch size follows the fastest seen, as long as it still matters.
        if len(series) <= _WINDOW:
            fastest = min(series, default=math.inf)
            calls = calls_per_batch(fastest, protocol)
            least = protocol.long_warmup_seconds if fastest > _LONG_CALL_SECONDS else protocol.warmup_seconds
        series.append(timed_batch(executable, calls, clock) * 1e-9 / calls)
        done += calls
        elapsed = (clock() - start) * 1e-9
        if elapsed >= protocol.warmup_limit_seconds:
            return series, is_level(series)
        if elapsed >= least and done >= protocol.warmup_calls and _is_warm(series, elapsed, protocol):
            return series, True


def _is_warm(series: Sequence[float], elapsed: float, protocol: Protocol) -> bool:
    """Tell whether a cell has settled, by the last 20 batches or, after some time, by all that can be compared.

    The noise between neighbouring batches is small beside what a neighbour does that comes and goes every few of
    them, so that the last 20 may never agree though nothing drifts; and a slow cell never has 20.
    """
    if settled(series, noise=batch_noise(series[-_WINDOW:])):
        return True
    if series[-1] > _LONG_CALL_SECONDS and len(series) >= _LONG_CALL_BATCHES:
        # Long calls change little from one to the next, and 20 of them may take half of what a launch may.
        return is_level(series)
    share = elapsed / protocol.warmup_limit_seconds
    patient = share >= 0.25 or (share >= 0.1 and len(series) >= 2 * _WINDOW)
    return patient and is_level(series)


def is_level(series: Sequence[float]) -> bool:
    """Tell whether the later batches are neither slower nor faster than the earlier ones, by their ranks.

    Two halves of up to 200 batches are compared, the first batch apart: the share of pairs in which the later one is
    slower (Mann and Whitney) must be within two standard errors of one half. Drift shows in it, the size and shape of
    the noise do not.
    """
    recent = series[1:][-max(_WINDOW, min(_LONG_WINDOW, len(series) // 2)) :]
    half = len(recent) // 2
    early, late = sorted(recent[:half]), recent[half:]
    pairs = len(early) * len(late)
    if not pairs:
        return True
    slower = sum(bisect_left(early, batch) + bisect_right(early, batch) for batch in late) / (2 * pairs)
    return abs(slower - 0.5) <= 2 * math.sqrt((len(recent) + 1) / (12 * pairs))


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
    _discard(executable, discard_seconds, clock)
    rows: list[tuple[int, int, int, int]] = []
    spent = 0
    while spent < seconds * 1e9 or len(rows) < least_batches:
        cpu, delay, faults = covariates.read()
        wall = timed_batch(executable, calls, clock)
        cpu_after, delay_after, faults_after = covariates.read()
        rows.append((wall, cpu_after - cpu, delay_after - delay, faults_after - faults))
        spent += wall
    walls, cpus, delays, minor = zip(*rows, strict=True)
    return Visit(
        calls=calls,
        wall_ns=walls,
        cpu_ns=cpus,
        run_delay_ns=delays if covariates.has_run_delay else (),
        faults=minor,
    )


def _discard(executable: Executable, seconds: float, clock: Clock) -> None:
    began = clock()
    while seconds > 0:
        timed_batch(executable, 1, clock)
        if clock() - began >= seconds * 1e9:
            break

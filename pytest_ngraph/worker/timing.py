"""The clock loop: warming up and visiting one compiled cell, inside its worker.

With several calls in flight a turn, one call for each of its slots, takes the place of a call in everything that is
said of calls here: how many make a batch, how long a visit lasts, what settles. So does a turn of a mix of shapes.
"""

from __future__ import annotations

import math
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations, takewhile
from statistics import median
from typing import Protocol as TypingProtocol

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.machine import clock as clocks
from pytest_ngraph.spec.cells import Protocol, Visit
from pytest_ngraph.stats.visits import batch_noise, settled

Clock = Callable[[], int]
_LONG_CALL_SECONDS = 0.05
# What ``settled`` looks at, and how far ``is_level`` looks back.
_WINDOW, _LONG_WINDOW = 20, 200
_LONG_CALL_BATCHES = 10
# What is plainly level may end a warm-up after these shares of the protocol's seconds and calls. So few batches of so
# many are compared; by how much two halves of them, and the ends of their drift, may differ; and where they are fewer
# than twenty, in which drift hides behind noise, the slowest and the fastest.
_PLAIN_SECONDS, _PLAIN_CALLS = 1 / 3, 1 / 2
_PLAIN_FEWEST, _PLAIN_MOST = 9, 40
_PLAIN_LIMIT, _PLAIN_RANGE = 0.01, 0.02


class Reads(TypingProtocol):
    """What a visit needs of its covariates."""

    has_run_delay: bool

    def read(self) -> tuple[int, int, int]:
        """Return CPU ns, run-delay ns and minor faults so far."""
        ...


def timed_batch(executable: Executable, calls: int, clock: Clock) -> int:
    """Time ``calls`` calls together, each after the one before has finished. Return nanoseconds."""
    run, synchronize = executable.run, executable.synchronize
    start = clock()
    if executable.enqueues:
        for _ in range(calls):
            run()
            synchronize()
    else:
        for _ in range(calls):
            run()
        synchronize()
    return clock() - start


class Calls:
    """Calls one after the other."""

    def __init__(self, executable: Executable, clock: Clock) -> None:
        self._executable, self._clock = executable, clock
        self.in_flight = executable.calls_in_a_run
        self.request_ns: list[int] = []

    def batch(self, calls: int) -> int:
        """Time so many calls together. Return nanoseconds."""
        return timed_batch(self._executable, calls, self._clock)


class Generations(Calls):
    """Calls that generate tokens, one after the other: each token is waited for and timed by itself.

    ``request_ns`` has the time to the first token of every call, then those of its steps.
    """

    def batch(self, calls: int) -> int:
        """Time so many calls together, token by token. Return nanoseconds."""
        executable, clock, token_ns = self._executable, self._clock, self.request_ns
        prefill, step, synchronize = executable.prefill, executable.step, executable.synchronize
        start = now = clock()
        for _ in range(calls):
            prefill()
            synchronize()
            began, now = now, clock()
            token_ns.append(now - began)
            for index in range(executable.steps):
                step(index)
                synchronize()
                began, now = now, clock()
                token_ns.append(now - began)
        return now - start


class Pipeline(Calls):
    """Calls in all slots of an executable at once: one that has finished is submitted again on the spot.

    ``request_ns`` has the time of every call so far, from its submission to its completion. What passes between two
    batches is part of the second, for the calls go on meanwhile.
    """

    def __init__(self, executable: Executable, clock: Clock) -> None:
        super().__init__(executable, clock)
        self.in_flight = executable.in_flight
        self._submitted_ns = [0] * self.in_flight
        self._mark_ns = 0

    def fill(self) -> None:
        """Submit a call in every slot."""
        self._mark_ns = self._clock()
        for slot in range(self.in_flight):
            self._submitted_ns[slot] = self._clock()
            self._executable.submit(slot)

    def batch(self, turns: int) -> int:
        """Time so many turns, from the last completion until now to the last of theirs. Return nanoseconds.

        As there are more completions than slots from one end to the other, it is never shorter than a call.
        """
        submit, next_done, clock = self._executable.submit, self._executable.next_done, self._clock
        submitted_ns, request_ns = self._submitted_ns, self.request_ns
        now = start = self._mark_ns
        for _ in range(turns * self.in_flight):
            slot = next_done()
            now = clock()
            request_ns.append(now - submitted_ns[slot])
            submitted_ns[slot] = now
            submit(slot)
        self._mark_ns = now
        return now - start

    def drain(self) -> None:
        """Wait for the calls in flight."""
        for _ in range(self.in_flight):
            self._executable.next_done()


@contextmanager
def _timed(executable: Executable, scenario: str, clock: Clock) -> Iterator[Calls]:
    """Give what times the calls of a scenario. Where one of them fails the others in flight are left alone."""
    if scenario == "latency":
        yield (Generations if executable.steps else Calls)(executable, clock)
        return
    pipeline = Pipeline(executable, clock)
    pipeline.fill()
    yield pipeline
    pipeline.drain()


def calls_per_batch(call_seconds: float, protocol: Protocol) -> int:
    """Return how many calls make a batch: one from 1 ms on, else as many as fill the protocol's batch time."""
    if call_seconds >= 1e-3 or protocol.batch_seconds <= 0:
        return 1
    return max(1, round(protocol.batch_seconds / max(call_seconds, 1e-7)))


def visit_seconds(call_seconds: float, protocol: Protocol) -> float:
    """Return how long a visit to a cell of this speed lasts (docs/measuring.md, step 5)."""
    if call_seconds > protocol.long_call_seconds:
        return protocol.long_visit_calls * call_seconds
    return max(protocol.visit_seconds, protocol.visit_calls * call_seconds)


def warm_up(
    executable: Executable, protocol: Protocol, clock: Clock = clocks.nanoseconds, *, scenario: str = "latency"
) -> tuple[list[float], bool]:
    """Run until warm and settled, or to the protocol's limit (docs/measuring.md, step 4).

    Returns the seconds per call of every warm-up batch, and whether it settled.
    """
    with _timed(executable, scenario, clock) as timed:
        return _until_warm(timed, protocol, clock)


def _until_warm(timed: Calls, protocol: Protocol, clock: Clock) -> tuple[list[float], bool]:
    start = clock()
    series: list[float] = []
    done = next_look = 0
    while True:
        # The first calls are slow: the batch size follows the fastest seen, as long as it still matters.
        if len(series) <= _WINDOW:
            fastest = min(series, default=math.inf)
            calls = calls_per_batch(fastest, protocol)
            least = protocol.long_warmup_seconds if fastest > _LONG_CALL_SECONDS else protocol.warmup_seconds
        series.append(timed.batch(calls) * 1e-9 / calls)
        done += calls
        elapsed = (clock() - start) * 1e-9
        if elapsed >= protocol.warmup_limit_seconds:
            return series, is_level(series)
        if elapsed >= least and done >= protocol.warmup_calls and _is_warm(series, elapsed, protocol):
            return series, True
        is_early = elapsed >= _PLAIN_SECONDS * least and done >= _PLAIN_CALLS * protocol.warmup_calls
        if is_early and len(series) >= next_look:
            if is_plainly_level(series):
                return series, True
            # Looking after each batch would find, sooner or later, what looks level by chance.
            next_look = len(series) + max(1, len(series) // 4)


def slow_start_seconds(series: Sequence[float], protocol: Protocol) -> float | None:
    """Return the seconds of warming up before the first batch that was as fast as the last ones.

    ``series`` is what ``warm_up`` returned. The last ones are twenty, or the later half of fewer than forty. As fast is
    no slower than three quarters of them. None where there was one batch only. How long a cell was warmed up in all
    says nothing of its compiler: the protocol and the noise decide that.
    """
    last = sorted(series[len(series) - min(_WINDOW, len(series) // 2) :])
    if not last:
        return None
    usual = last[3 * len(last) // 4]
    slow = takewhile(lambda batch: batch > usual, series)
    # The batches are as large as ``warm_up`` made them.
    fastest = (min(series[: min(done, _WINDOW)], default=math.inf) for done in range(len(series)))
    return math.fsum(batch * calls_per_batch(call, protocol) for batch, call in zip(slow, fastest, strict=False))


def _is_warm(series: Sequence[float], elapsed: float, protocol: Protocol) -> bool:
    """Return whether a cell has settled, by the last 20 batches or, after some time, by all that can be compared.

    The noise between neighbouring batches is small beside what a neighbour does that comes and goes every few of
    them, so that the last 20 may never agree though nothing drifts. And a slow cell never has 20.
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
    """Return whether the later batches are neither slower nor faster than the earlier ones, by their ranks.

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


def is_plainly_level(series: Sequence[float]) -> bool:
    """Return whether the later batches are level beyond doubt, however few they are, without allowing for noise.

    The later half of them is looked at, 40 at most, and all but the first where there are ten or fewer: the medians of
    its two halves and the ends of its drift (Theil and Sen) are within 1 %, the slowest of fewer than twenty is no more
    than 2 % slower than the fastest, and ``is_level`` agrees. What is noisier than that is warmed up for longer.
    """
    recent = series[1:][-max(_PLAIN_FEWEST, min(_PLAIN_MOST, len(series) // 2)) :]
    half = len(recent) // 2
    if half < 2:
        return False
    usual = median(recent)
    drift = median((recent[k] - recent[j]) / (k - j) for j, k in combinations(range(len(recent)), 2))
    few = len(recent) < _WINDOW
    return (
        abs(median(recent[half:]) - median(recent[:half])) <= _PLAIN_LIMIT * usual
        and abs(drift) * (len(recent) - 1) <= _PLAIN_LIMIT * usual
        and (not few or max(recent) - min(recent) <= _PLAIN_RANGE * usual)
        and is_level(series)
    )


def visit(
    executable: Executable,
    *,
    calls: int,
    seconds: float,
    least_batches: int,
    discard_seconds: float,
    covariates: Reads,
    clock: Clock = clocks.nanoseconds,
    scenario: str = "latency",
) -> Visit:
    """Stay at one cell: discard what follows the resume, then time batches for ``seconds``.

    See docs/measuring.md, step 5.
    """
    with _timed(executable, scenario, clock) as timed:
        _discard(timed, discard_seconds, clock)
        timed.request_ns.clear()
        rows: list[tuple[int, int, int, int]] = []
        spent = 0
        while spent < seconds * 1e9 or len(rows) < least_batches:
            cpu, delay, faults = covariates.read()
            wall = timed.batch(calls)
            cpu_after, delay_after, faults_after = covariates.read()
            rows.append((wall, cpu_after - cpu, delay_after - delay, faults_after - faults))
            spent += wall
    walls, cpus, delays, minor = zip(*rows, strict=True)
    return Visit(
        calls=calls * timed.in_flight,
        wall_ns=walls,
        cpu_ns=cpus,
        run_delay_ns=delays if covariates.has_run_delay else (),
        faults=minor,
        request_ns=tuple(timed.request_ns),
    )


def _discard(timed: Calls, seconds: float, clock: Clock) -> None:
    began = clock()
    while seconds > 0:
        timed.batch(1)
        if clock() - began >= seconds * 1e9:
            break

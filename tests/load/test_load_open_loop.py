"""The open loop against queues whose law is known, on a clock that is pretended, and what a closed loop would miss."""

from __future__ import annotations

import math
import random
import threading
import time
from collections.abc import Callable
from itertools import pairwise
from statistics import fmean

import pytest

from pytest_ngraph.compilers.toolkit.in_flight import ThreadedRequests
from pytest_ngraph.errors import CompileFailed
from pytest_ngraph.load.open_loop import Load, visit
from pytest_ngraph.load.queues import Traffic, is_overloaded, why_unsettled
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.cells import CompileRecord, Outcome, Visit

SECOND = 1_000_000_000


class Pretended:
    """A clock that stands still but for what is waited for and served; an executable whose calls take what is drawn."""

    in_flight = 1

    def __init__(self, draw: Callable[[], float], slip_ns: int = 0) -> None:
        self.now_ns, self._draw, self._slip_ns = 0, draw, slip_ns

    def now(self) -> int:
        return self.now_ns

    def wait(self, until_ns: int) -> None:
        self.now_ns = max(self.now_ns, until_ns) + self._slip_ns

    def run(self) -> None:
        self.now_ns += round(self._draw() * SECOND)

    def synchronize(self) -> None:
        """Nothing is left to wait for."""

    def submit(self, slot: int) -> None:
        raise NotImplementedError

    def next_done(self) -> int:
        raise NotImplementedError

    def visit(self, load: Load) -> tuple[Visit, Traffic]:
        return visit(self, load, clock=self.now, cpu=self.now, wait=self.wait)


def law(kind: str, mean: float, seed: int) -> Callable[[], float]:
    draw = random.Random(seed)
    return (lambda: mean) if kind == "D" else (lambda: draw.expovariate(1 / mean))


@pytest.mark.parametrize("kind", ["D", "M"])
@pytest.mark.parametrize("utilisation", [0.3, 0.6])
def test_the_mean_wait_is_that_of_pollaczek_and_khinchine(kind: str, utilisation: float) -> None:
    service, each = 0.01, []
    for seed in range(12):
        load = Load(utilisation / service, f"{seed}", 2, 60)
        done, traffic = Pretended(law(kind, service, seed)).visit(load)
        assert traffic.calls == len(done.request_ns) == len(done.wall_ns)
        # Throughput is what arrives, and the share of time in which a call is served is the utilisation.
        assert traffic.calls / (sum(done.wall_ns) / SECOND) == pytest.approx(load.rate, rel=0.1)
        assert load.rate * traffic.service_seconds == pytest.approx(utilisation, rel=0.1)
        each.append(fmean(done.request_ns) / SECOND)
    variation = 1 if kind == "M" else 0
    truth = service + utilisation * service * (1 + variation) / (2 * (1 - utilisation))
    # Twelve visits of thousands of calls: three standard errors of their mean.
    error = math.sqrt(sum((one - fmean(each)) ** 2 for one in each) / 11 / 12)
    assert fmean(each) == pytest.approx(truth, abs=3 * error)
    assert error < 0.04 * truth


def test_percentiles_of_a_queue_are_those_of_its_law() -> None:
    service, utilisation = 0.01, 0.5
    calls: list[int] = []
    for seed in range(15):
        done, _ = Pretended(law("M", service, seed)).visit(Load(utilisation / service, f"p{seed}", 2, 60))
        calls += done.request_ns
    calls.sort()
    # The time in M/M/1 is exponential, of the mean s / (1 - rho).
    for percentile in (50, 90, 99):
        truth = -service / (1 - utilisation) * math.log(1 - percentile / 100)
        assert calls[math.ceil(percentile / 100 * len(calls)) - 1] / SECOND == pytest.approx(truth, rel=0.07)


def stalling(seconds: float, at: int) -> Callable[[], float]:
    """Return what takes a millisecond a call, and once that many seconds."""
    count = iter(range(1_000_000))
    return lambda: seconds if next(count) == at else 0.001


def test_who_waits_behind_a_stall_is_counted_which_a_closed_loop_would_leave_out() -> None:
    load = Load(100, "stall", 0, 20)
    done, _ = Pretended(stalling(2.0, 500)).visit(load)
    slow = [each for each in done.request_ns if each > 0.1 * SECOND]
    # In two seconds two hundred calls arrive, nearly all of which wait for more than a tenth of a second.
    assert 150 < len(slow) < 250
    assert fmean(done.request_ns) > 0.08 * SECOND

    # What a loop would find that sends a call when the last one has come back: one slow call of two thousand.
    closed = Pretended(stalling(2.0, 500))
    times = []
    for _ in range(len(done.request_ns)):
        began = closed.now_ns
        closed.run()
        times.append(closed.now_ns - began)
    assert sum(each > 0.1 * SECOND for each in times) == 1
    times.sort()
    assert times[math.ceil(0.99 * len(times)) - 1] == 0.001 * SECOND
    assert sorted(done.request_ns)[math.ceil(0.95 * len(times)) - 1] > 0.5 * SECOND


def test_arrivals_are_those_of_the_seed_whatever_is_served() -> None:
    one, same, other = (list(Load(50, seed, 1, 4).arrivals_ns()) for seed in ("a", "a", "b"))
    assert one == same != other
    gaps = [after - before for before, after in pairwise(one)]
    assert fmean(gaps) == pytest.approx(SECOND / 50, rel=0.3)
    slow, _ = Pretended(lambda: 0.015).visit(Load(50, "a", 1, 4))
    quick, _ = Pretended(lambda: 0.001).visit(Load(50, "a", 1, 4))
    assert len(slow.request_ns) == len(quick.request_ns) == sum(at >= SECOND for at in one)


def test_a_call_that_begins_late_counts_from_its_arrival_and_it_is_said_how_late() -> None:
    load = Load(20, "late", 0, 10)
    done, traffic = Pretended(lambda: 0.001, slip_ns=30_000_000).visit(load)
    assert min(done.request_ns) >= 0.001 * SECOND
    assert sorted(done.request_ns)[len(done.request_ns) // 2] >= 0.031 * SECOND
    assert traffic.late_ns == (30_000_000, 30_000_000)
    _, punctual = Pretended(lambda: 0.001).visit(load)
    assert punctual.late_ns == (0, 0)


def test_a_load_beyond_capacity_is_overloaded_however_long_it_is_watched_and_never_waited_for_without_end() -> None:
    for seconds in (2, 8):
        each = [Pretended(lambda: 0.02).visit(Load(100, f"{n}", 0.5, seconds)) for n in range(2)]
        reason = why_unsettled(100, 1, [traffic for _, traffic in each])
        assert reason.startswith("overloaded: 100 calls a second arrive, and it can answer 50 (utilisation 2.00)")
        assert is_overloaded(CompileRecord(Outcome.UNSTABLE, reason))
        # Twice the visit, and one call.
        assert max(sum(done.wall_ns) for done, _ in each) <= (2 * (seconds + 0.5) + 0.02) * SECOND


def test_a_load_of_a_hundred_times_what_can_be_borne_is_overloaded_too() -> None:
    done, traffic = Pretended(lambda: 1.0).visit(Load(100, "far", 2, 10))
    assert traffic.unfinished > 500
    assert min(done.wall_ns) > 0
    assert why_unsettled(100, 1, [traffic, traffic]).startswith("overloaded: ")


def test_a_visit_to_which_nothing_came_says_so() -> None:
    with pytest.raises(CompileFailed, match=r"no call arrived in 0.0 s at 1 a second"):
        Pretended(lambda: 0.001).visit(Load(1, "x", 0, 1e-6))


class Backwards:
    """Two slots, and the call that began last is answered first."""

    in_flight = 2

    def __init__(self, lie: int | None = None) -> None:
        self._began: list[tuple[int, int]] = []
        self._lie, self._changed = lie, threading.Condition()
        # How long each call was in its slot, in the order of the answers, and whether it overtook another one.
        self.inside_ns: list[int] = []
        self.overtook: list[bool] = []

    def run(self) -> None:
        raise NotImplementedError

    def synchronize(self) -> None:
        raise NotImplementedError

    def submit(self, slot: int) -> None:
        with self._changed:
            self._began.append((slot, clock.nanoseconds()))
            self._changed.notify()

    def next_done(self) -> int:
        with self._changed:
            self._changed.wait_for(lambda: self._began)
        time.sleep(0.002)
        with self._changed:
            slot, began = self._began.pop()
            self.inside_ns.append(clock.nanoseconds() - began)
            self.overtook.append(bool(self._began))
            return slot if self._lie is None else self._lie


def test_answers_out_of_order_are_those_of_their_own_calls() -> None:
    # More arrives than is answered, so that both slots are taken; the first call is overtaken by all others.
    backwards = Backwards()
    done, traffic = visit(backwards, Load(2000, "order", 0, 0.1), in_slots=True)
    assert traffic.calls == len(done.request_ns) == len(backwards.inside_ns)
    assert traffic.calls + traffic.unfinished == sum(1 for _ in Load(2000, "order", 0, 0.1).arrivals_ns())
    assert any(backwards.overtook)
    assert all(whole >= inside for whole, inside in zip(done.request_ns, backwards.inside_ns, strict=True))
    assert traffic.service_seconds * traffic.calls >= sum(backwards.inside_ns) / SECOND


def test_an_answer_from_a_slot_that_had_no_call_is_refused() -> None:
    with pytest.raises(CompileFailed, match=r"next_done\(\) gave slot 7, in which no call was running"):
        visit(Backwards(lie=7), Load(100, "lie", 0, 0.3), in_slots=True)


def test_what_a_call_raises_is_raised() -> None:
    def fail() -> None:
        raise ValueError("no memory")

    requests = ThreadedRequests([fail, fail])
    requests.in_flight = 2  # type: ignore[attr-defined]
    with pytest.raises(ValueError, match="no memory"):
        visit(requests, Load(100, "raise", 0, 0.3), in_slots=True)  # type: ignore[arg-type]
    requests.close()

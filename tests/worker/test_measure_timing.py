"""The clock loop on a clock that moves only when something takes time."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.launches.order import Stay, block_orders, blocks_in, stays
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, Protocol, Visit
from pytest_ngraph.worker.timing import (
    calls_per_batch,
    is_level,
    is_plainly_level,
    slow_start_seconds,
    visit,
    visit_seconds,
    warm_up,
)
from tests.support.measuring import cell

GATE, PAPER = PROTOCOLS["gate"], PROTOCOLS["paper"]


class World(Executable):
    """An executable, its covariates and the only clock there is; each takes the time it is told to."""

    has_run_delay = True

    def __init__(self, call_seconds: float | Callable[[int], float], *, read: float = 0.0, sync: float = 0.0) -> None:
        self._call = call_seconds if callable(call_seconds) else lambda number: call_seconds
        self._read_ns, self._sync_ns = round(read * 1e9), round(sync * 1e9)
        self.now_ns = 0
        self.calls = self.reads = 0

    def clock(self) -> int:
        return self.now_ns

    def run(self) -> None:
        self.now_ns += round(self._call(self.calls) * 1e9)
        self.calls += 1

    def synchronize(self) -> None:
        self.now_ns += self._sync_ns

    def read(self) -> tuple[int, int, int]:
        self.now_ns += self._read_ns
        self.reads += 1
        return 10 * self.reads, 3 * self.reads, self.reads


def stay(world: World, protocol: Protocol, call_seconds: float, scenario: str = "latency") -> Visit:
    one = cell("null")
    length = stays({one: call_seconds}, protocol)[one]
    return visit(
        world,
        calls=length.calls,
        seconds=length.seconds,
        least_batches=length.batches,
        discard_seconds=protocol.discard_seconds,
        covariates=world,
        clock=world.clock,
        scenario=scenario,
    )


def test_reading_covariates_and_discarded_calls_are_never_counted() -> None:
    # The first two calls after a resume are slow, and each reading takes as long as a batch.
    world = World(lambda number: 0.004 if number < 2 else 0.002, read=0.002)
    done = stay(world, GATE, 0.002)
    assert set(done.wall_ns) == {2_000_000}
    assert sum(done.wall_ns) == 60_000_000
    assert world.calls == 2 + len(done.wall_ns)


def test_waiting_for_the_device_is_counted() -> None:
    assert set(stay(World(0.002, sync=0.001), GATE, 0.003).wall_ns) == {3_000_000}


def test_each_call_that_is_only_enqueued_is_waited_for() -> None:
    # Calls of 0.1 ms are timed by the batch. On a GPU they would overlap, but for compilers that wait by themselves.
    world = World(0.0001, sync=0.0001)
    world.enqueues = True
    done = stay(world, GATE, 0.0001)
    assert done.calls == 15
    assert set(done.wall_ns) == {15 * 200_000}


def test_each_batch_carries_its_own_covariates() -> None:
    done = stay(World(0.03), GATE, 0.03)
    assert (set(done.cpu_ns), set(done.run_delay_ns), set(done.faults)) == ({10}, {3}, {1})


def test_a_kernel_without_run_delay_leaves_it_out() -> None:
    world = World(0.03)
    world.has_run_delay = False
    assert stay(world, GATE, 0.03).run_delay_ns == ()


@pytest.mark.parametrize("call", [1e-6, 1e-5, 7e-5, 3e-4, 6e-4, 7.4e-4, 7.6e-4, 9.99e-4])
def test_short_calls_fill_a_batch_of_one_to_two_milliseconds(call: float) -> None:
    assert 1e-3 <= calls_per_batch(call, GATE) * call <= 2e-3


@pytest.mark.parametrize("call", [1e-3, 1.4e-3, 0.02, 3.0])
def test_a_call_of_a_millisecond_is_a_batch(call: float) -> None:
    assert calls_per_batch(call, GATE) == 1


@pytest.mark.parametrize(
    ("call", "seconds"), [(1e-5, 0.06), (0.01, 0.06), (0.02, 0.12), (0.04, 0.24), (0.06, 0.18), (2.0, 6.0)]
)
def test_a_visit_lasts_60_ms_or_6_calls_or_3_long_ones(call: float, seconds: float) -> None:
    assert visit_seconds(call, GATE) == pytest.approx(seconds)
    done = stay(World(call), GATE, call)
    assert sum(done.wall_ns) * 1e-9 == pytest.approx(seconds, abs=2e-3 + call * 0.01)


def test_visits_to_one_workload_are_equally_long_for_every_compiler() -> None:
    fast, slow, other = cell("null[fixed_us=1]"), cell("null"), cell("null", batch=2)
    lengths = stays({fast: 1e-4, slow: 0.03, other: 0.001}, GATE)
    assert (lengths[fast].seconds, lengths[slow].seconds, lengths[other].seconds) == pytest.approx((0.15, 0.18, 0.06))
    assert (lengths[fast].calls, lengths[slow].calls) == (15, 1)


def test_a_fast_cell_does_not_stay_as_long_as_a_very_slow_one() -> None:
    fast, slow = cell("null[fixed_us=1]"), cell("null")
    lengths = stays({fast: 0.002, slow: 0.5}, GATE)
    assert (lengths[fast].seconds, lengths[slow].seconds) == pytest.approx((0.15, 1.5))


def test_long_blocks_are_fewer() -> None:
    fast, slow = cell("null[fixed_us=1]"), cell("null")
    assert blocks_in({fast: 0.002, slow: 0.02}, GATE) == GATE.blocks == 8
    assert blocks_in({fast: 0.002, slow: 0.6}, GATE) == GATE.long_blocks == 4
    assert blocks_in({fast: 0.002, slow: 0.6}, PAPER) == PAPER.blocks == 1
    orders = block_orders([fast, slow], GATE, 7, 4)
    assert len(orders) == 4
    assert orders[1] == orders[0][::-1]
    assert orders[3] == orders[2][::-1]


@pytest.mark.parametrize("call", [1e-5, 0.002, 0.3])
@pytest.mark.parametrize("now", [0.5, 1.0, 2.0])
def test_the_papers_protocol_takes_exactly_100_calls(call: float, now: float) -> None:
    # Whether they are faster or slower than the warm-up was, and next to a cell of any speed.
    world, one, slower = World(call * now), cell("null"), cell("null[fixed_us=1]")
    length = stays({one: call, slower: 20 * call}, PAPER)[one]
    assert length == Stay(1, 0.0, 100)
    done = stay(world, PAPER, call)
    assert (world.calls, len(done.wall_ns), done.calls) == (100, 100, 1)


def test_the_papers_protocol_goes_cell_by_cell() -> None:
    cells = [cell("null", batch) for batch in (1, 2, 4)]
    assert block_orders(cells, PAPER, 5) == [cells]


# The order of blocks


def test_each_pair_of_blocks_is_a_random_permutation_and_its_reverse() -> None:
    cells = [cell("null", batch) for batch in range(1, 9)]
    orders = block_orders(cells, GATE, 3)
    assert len(orders) == GATE.blocks
    assert all(sorted(order, key=repr) == sorted(cells, key=repr) for order in orders)
    assert all(orders[block + 1] == orders[block][::-1] for block in range(0, GATE.blocks, 2))
    assert len({tuple(order) for order in orders}) == GATE.blocks


def test_the_order_is_reproduced_by_its_seed_and_by_no_other() -> None:
    cells = [cell("null", batch) for batch in range(1, 9)]
    assert block_orders(cells, GATE, 3) == block_orders(cells, GATE, 3) != block_orders(cells, GATE, 4)


def test_every_cell_comes_first_about_equally_often() -> None:
    cells: list[Cell] = [cell("null", batch) for batch in (1, 2, 3)]
    firsts = [order[0] for seed in range(100) for order in block_orders(cells, GATE, seed)]
    assert all(200 < firsts.count(one) < 340 for one in cells)


# Warming up


def warm(call: float | Callable[[int], float], protocol: Protocol = GATE) -> tuple[World, list[float], bool]:
    world = World(call)
    return (world, *warm_up(world, protocol, world.clock))


def noisy(call: float, noise: float, seed: int = 1) -> Callable[[int], float]:
    draw = random.Random(seed)
    return lambda number: call * max(0.1, draw.gauss(1, noise))


def test_a_short_call_that_is_level_is_warm_after_100_ms() -> None:
    world, series, settled = warm(1e-4)
    assert settled
    assert world.now_ns * 1e-9 == pytest.approx(0.1, abs=0.01)
    assert series[-1] == pytest.approx(1e-4)


@pytest.mark.parametrize("call", [0.06, 0.2, 0.9])
def test_five_long_calls_that_are_level_are_enough(call: float) -> None:
    world, _, settled = warm(call)
    assert settled
    assert world.calls == 5
    # The first may be as slow as it likes; a second slow one counts as long as it is among the last.
    world, _, settled = warm(lambda number: 9.0 if number == 0 else call)
    assert (settled, world.calls) == (True, 5)
    world, _, settled = warm(lambda number: 1.2 * call if number < 2 else call)
    assert settled
    assert world.calls >= 10


@pytest.mark.parametrize("seed", range(5))
def test_what_is_too_noisy_to_be_plainly_level_is_warmed_as_long_as_the_protocol_says(seed: int) -> None:
    world, _, settled = warm(noisy(0.2, 0.03, seed))
    assert settled
    assert world.calls >= 10


def test_a_call_over_50_ms_is_warmed_until_it_no_longer_drifts() -> None:
    world, _, settled = warm(lambda number: 0.06 * max(1.0, 1.2 - 0.02 * number))
    assert settled
    assert world.calls > 20


def test_a_slow_first_call_does_not_make_a_cell_slow() -> None:
    world, series, settled = warm(lambda number: 0.1 if number == 0 else 1e-4)
    assert settled
    assert 0.1 < world.now_ns * 1e-9 < 0.31
    assert series[0] == 0.1
    assert series[-1] == pytest.approx(1e-4)


@pytest.mark.parametrize(
    ("call", "slow_calls"),
    [
        (lambda number: 0.002, 0),
        (lambda number: 0.05 if number < 3 else 0.002, 3),
        # The batches of short calls hold more and more of them while the fastest is not yet known.
        (lambda number: 0.0008 if number < 11 else 0.0001, 11),
        (lambda number: 2.0 if number < 2 else 0.1, 2),
    ],
)
def test_a_slow_start_lasts_until_the_first_batch_as_fast_as_the_last(
    call: Callable[[int], float], slow_calls: int
) -> None:
    _, series, settled = warm(call)
    assert settled
    assert slow_start_seconds(series, GATE) == pytest.approx(sum(map(call, range(slow_calls))), rel=0.05)


def test_one_batch_says_nothing_of_a_slow_start() -> None:
    assert slow_start_seconds([25.0], GATE) is None


def test_warming_up_goes_on_until_it_is_warm() -> None:
    world, series, settled = warm(lambda number: max(0.002, 0.004 - 1e-5 * number))
    assert settled
    assert 0.5 < world.now_ns * 1e-9 < 0.7
    assert series[-1] == pytest.approx(0.002, rel=0.02)


@pytest.mark.parametrize("call", [0.002, 0.05, 0.7, 1.9])
def test_a_cell_that_keeps_drifting_is_unstable_after_20_seconds(call: float) -> None:
    world, _, settled = warm(lambda number: call * 1.02**number)
    assert not settled
    assert 20 <= world.now_ns * 1e-9 < 23


# One that gets slower by 1 to 5 % a call, or with each hundredth of a second, behind noise of up to the same.
DRIFTING = [
    *((call, drift, noise) for call in (0.06, 0.2, 0.8) for drift in (0.02, 0.05) for noise in (0.0, 0.005, 0.01)),
    *((call, 0.01, noise) for call in (0.06, 0.2, 0.8) for noise in (0.0, 0.002)),
    (0.2, -0.02, 0.005),
    (0.01, 0.01, 0.005),
    (0.0015, 0.002, 0.01),
    (0.0015, 0.002, 0.03),
    (1e-4, 1e-4, 0.03),
]


@pytest.mark.parametrize(("call", "drift", "noise"), DRIFTING)
def test_no_cell_that_drifts_is_taken_for_warm_sooner(call: float, drift: float, noise: float) -> None:
    for seed in range(40):
        draw = noisy(1.0, noise, seed)
        world, _, settled = warm(lambda number, draw=draw: call * (1 + drift) ** number * draw(number))  # type: ignore[misc]
        # What the last twenty do not show within the noise may pass after the time that it always took.
        assert not settled or (world.calls >= 10 and world.now_ns * 1e-9 >= 0.3), seed


@pytest.mark.parametrize(
    ("series", "level"),
    [
        ([9.0, 1.0, 1.0, 1.0, 1.0], True),
        ([9.0, 1.0, 1.0, 1.0], False),
        ([9.0, 1.0, 1.01, 1.0, 1.01], True),
        ([9.0, 1.0, 1.03, 1.0, 1.03], False),
        ([9.0, 1.0, 1.004, 1.008, 1.012], False),
        ([9.0, 1.05, 1.0, 1.0, 1.0, 1.0], False),
        # Many batches may be as noisy as they like, as long as their middle stays where it is.
        ([1.0, 1.2] * 40, True),
        ([1.0, 1.2] * 30 + [1.03, 1.23] * 10, False),
        ([], False),
    ],
)
def test_what_is_plainly_level(series: list[float], level: bool) -> None:
    assert is_plainly_level(series) is level


@pytest.mark.parametrize(("call", "least"), [(0.6, 5), (1.0, 5), (1.9, 5), (5.0, 2)])
def test_a_cell_too_slow_for_twenty_batches_can_settle_all_the_same(call: float, least: int) -> None:
    draw = random.Random(1)
    world, _, settled = warm(lambda number: call * draw.gauss(1, 0.01))
    assert settled
    assert least <= world.calls
    assert world.now_ns * 1e-9 < 20 + 2 * call


def square(period: int, ratio: float) -> Callable[[int], float]:
    draw = random.Random(1)
    return lambda number: 0.0015 * (ratio if number % period < period / 2 else 1) * draw.gauss(1, 0.01)


def bursts(share: float, ratio: float) -> Callable[[int], float]:
    draw = random.Random(1)
    return lambda number: 0.0015 * (ratio if draw.random() < share else 1) * draw.gauss(1, 0.01)


def wandering(step: float) -> Callable[[int], float]:
    draw, level = random.Random(1), 1.0

    def call(number: int) -> float:
        nonlocal level
        level = 1 + 0.95 * (level - 1) + draw.gauss(0, step)
        return 0.0015 * max(0.3, level)

    return call


@pytest.mark.parametrize(
    "call",
    [*(square(period, 2.0) for period in (3, 6, 8, 14, 20, 60)), bursts(0.3, 4), bursts(0.5, 10), wandering(0.05)],
)
def test_noise_without_drift_does_not_cost_twenty_seconds(call: Callable[[int], float]) -> None:
    world, _, settled = warm(call)
    assert settled
    assert world.now_ns * 1e-9 < 3


@pytest.mark.parametrize(
    ("series", "level"),
    [
        ([1.0] * 30, True),
        ([9.0] + [1.0] * 30, True),
        ([1.0 - 0.001 * number for number in range(30)], False),
        ([2.0] * 30 + [1.0] * 10, False),
        ([1.0], True),
        ([], True),
    ],
)
def test_a_series_is_level_where_its_halves_rank_alike(series: list[float], level: bool) -> None:
    assert is_level(series) is level


def test_two_percent_drift_in_ten_percent_noise_passes_for_level_and_ninety_percent_does_not() -> None:
    draw = random.Random(1)

    def drifting(by: float) -> Iterator[bool]:
        for _ in range(40):
            yield is_level([(1 - by * number / 100) * draw.gauss(1, 0.1) for number in range(100)])

    assert sum(drifting(0.02)) > 30
    assert not any(drifting(0.9))


def test_the_limit_holds_for_a_protocol_of_its_own() -> None:
    world, _, settled = warm(lambda number: 0.02 * 1.02**number, replace(GATE, warmup_limit_seconds=5.0))
    assert not settled
    assert 5 <= world.now_ns * 1e-9 < 6


# Several calls in flight


class Pipe(World):
    """A world in which the calls of several slots pass side by side."""

    def __init__(
        self, call_seconds: float | Callable[[int], float], slots: int, *, read: float = 0.0, fails: int = -1
    ) -> None:
        super().__init__(call_seconds, read=read)
        self.in_flight, self._fails = slots, fails
        self.due_ns: dict[int, int] = {}
        self.busy: list[int] = []

    def submit(self, slot: int) -> None:
        assert slot not in self.due_ns
        self.due_ns[slot] = self.now_ns + round(self._call(self.calls) * 1e9)
        self.calls += 1

    def next_done(self) -> int:
        if self.calls == self._fails:
            raise RuntimeError("a call failed")
        self.busy.append(len(self.due_ns))
        slot = min(self.due_ns, key=lambda slot: self.due_ns[slot])
        self.now_ns = max(self.now_ns, self.due_ns.pop(slot))
        return slot


def flow(world: Pipe, protocol: Protocol = GATE, call_seconds: float = 0.002) -> Visit:
    return stay(world, protocol, call_seconds, "throughput")


def any_time(seed: int = 1) -> Callable[[int], float]:
    draw = random.Random(seed)
    return lambda number: 1e-4 + draw.expovariate(1 / 0.002)


@pytest.mark.parametrize("slots", [1, 2, 4, 7])
@pytest.mark.parametrize("call", [1e-4, 0.002, 0.3])
def test_a_batch_is_whole_turns_of_a_full_pipeline(slots: int, call: float) -> None:
    done = flow(Pipe(call, slots), call_seconds=call)
    assert done.calls == slots * calls_per_batch(call, GATE)
    assert [wall / done.calls for wall in done.wall_ns] == pytest.approx([call * 1e9 / slots] * len(done.wall_ns))
    assert len(done.request_ns) == done.calls * len(done.wall_ns)
    assert set(done.request_ns) == {round(call * 1e9)}
    # A visit is as long as one to a cell whose calls take as long and follow one another.
    assert sum(done.wall_ns) * 1e-9 == pytest.approx(visit_seconds(call, GATE), abs=2e-3 + call * 0.01)


def test_every_slot_is_busy_until_the_visit_is_over_and_then_none_is() -> None:
    world = Pipe(any_time(), 3)
    flow(world)
    assert world.due_ns == {}
    assert world.busy[-3:] == [3, 2, 1]
    assert set(world.busy[:-3]) == {3}


@pytest.mark.parametrize("slots", [2, 5])
def test_littles_law_holds_whatever_calls_take(slots: int) -> None:
    done = flow(Pipe(any_time(), slots))
    wall_ns, latency_ns = sum(done.wall_ns), sum(done.request_ns) / len(done.request_ns)
    # Calls that reach beyond either end count whole or not at all.
    beyond = slots * max(done.request_ns) / wall_ns
    assert len(done.request_ns) / wall_ns * latency_ns == pytest.approx(slots, abs=beyond)
    assert beyond < slots / 2


def test_no_batch_is_shorter_than_a_call_though_calls_end_in_bursts() -> None:
    draw = random.Random(1)
    assert min(flow(Pipe(lambda number: 0.002 * draw.choice((1, 1, 3)), 4)).wall_ns) >= 2_000_000


def test_what_a_full_pipeline_does_between_two_batches_counts() -> None:
    # It takes less than the calls that go on beside it, so it costs nothing.
    assert set(flow(Pipe(0.002, 4, read=0.0005)).wall_ns) == {2_000_000}
    # Nobody sees a call end while reading twice takes 4 ms.
    assert set(flow(Pipe(0.002, 4, read=0.002)).wall_ns[1:]) == {4_000_000}


def test_calls_that_follow_a_resume_are_not_timed_in_a_pipeline_either() -> None:
    done = flow(Pipe(lambda number: 0.02 if number < 4 else 0.002, 4))
    assert set(done.wall_ns) == set(done.request_ns) == {2_000_000}


def test_the_papers_protocol_takes_100_turns() -> None:
    done = flow(Pipe(0.002, 3), PAPER)
    assert (len(done.wall_ns), done.calls, len(done.request_ns)) == (100, 3, 300)


def test_warming_up_a_pipeline_gives_the_seconds_of_a_turn() -> None:
    world = Pipe(lambda number: 0.05 if number < 4 else 1e-4, 4)
    series, settled = warm_up(world, GATE, world.clock, scenario="throughput")
    assert settled
    assert world.due_ns == {}
    assert series[-1] == pytest.approx(1e-4)
    assert 0.1 <= world.now_ns * 1e-9 <= 0.36


def test_a_call_that_fails_ends_a_visit_without_waiting_for_the_others() -> None:
    world = Pipe(0.002, 3, fails=20)
    with pytest.raises(RuntimeError, match="a call failed"):
        flow(world)
    assert len(world.due_ns) == 3

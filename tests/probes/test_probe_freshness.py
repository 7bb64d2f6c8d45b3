"""Whether what a probe says is of now: counters that stand still, jump or are seldom refreshed, by a clock of ours."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import pytest

from pytest_ngraph.passes.metering import Meters
from pytest_ngraph.probes import freshness
from pytest_ngraph.probes.contract import Count, EnergyCounter, PowerSensor, Unreadable, window_of
from pytest_ngraph.probes.freshness import Follower, hold_counts, joules_of, update_seconds


class Clock:
    """Seconds that pass when somebody sleeps, and a little with every look."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        self.now += 1e-5
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds


class Counter(EnergyCounter):
    """Draws 50 W, and is written every so many seconds. ``memory`` is a second one, written as often as said."""

    name, covers, resolution_seconds = "counter", "all of it", 0.001

    def __init__(self, clock: Clock, every: float, memory: float = 0.0) -> None:
        self._clock, self._every = clock, {"package": every, **({"dram": memory} if memory else {})}

    def read(self) -> Mapping[str, Count]:
        return {
            name: Count(0.0 if math.isinf(every) else 50 * every * math.floor(self._clock.now / every), 1000.0)
            for name, every in self._every.items()
        }


class Rail(PowerSensor):
    """A sensor that takes a new reading every so many seconds; ``of`` says which."""

    name, covers, resolution_seconds = "rail", "the module", 0.05

    def __init__(self, clock: Clock, every: float, of: Callable[[int], float] = lambda number: 5 + number % 7) -> None:
        self._clock, self._every, self._of = clock, every, of

    def read(self) -> float:
        return self._of(math.floor(self._clock.now / self._every))


def looked(clock: Clock, probe: EnergyCounter | PowerSensor) -> float:
    return update_seconds(probe, clock, clock.sleep)


def test_a_counter_that_is_as_fast_as_its_kind_has_windows_of_two_seconds() -> None:
    clock = Clock()
    every = looked(clock, Counter(clock, 0.001))
    assert every < 0.005
    assert window_of(every) == 2.0
    # The look is over when it is known.
    assert clock.now - 1000 < 0.2


@pytest.mark.parametrize("every", [0.05, 0.1, 0.25])
def test_windows_are_a_hundred_updates_long_whatever_its_kind_is_said_to_do(every: float) -> None:
    clock = Clock()
    found = looked(clock, Counter(clock, every))
    assert found == pytest.approx(every, rel=0.1)
    assert window_of(found) == pytest.approx(max(2.0, 100 * every), rel=0.1)


def test_what_is_refreshed_once_a_second_is_no_probe_and_says_why() -> None:
    clock = Clock()
    said = (
        r"changes every (1\.0\d s|99\d ms) or so: a window would have to last (99|10\d)\S* s .*, and 30 s is the most"
    )
    with pytest.raises(Unreadable, match=rf"counter {said}"):
        looked(clock, Counter(clock, 1.0))
    with pytest.raises(Unreadable, match=rf"rail {said}"):
        looked(clock, Rail(clock, 1.0))


def test_the_slowest_of_several_counters_decides() -> None:
    clock = Clock()
    assert looked(clock, Counter(clock, 0.001, memory=0.1)) == pytest.approx(0.1, rel=0.1)
    with pytest.raises(Unreadable, match="dram stood still at 0 J for 3"):
        looked(clock, Counter(clock, 0.001, memory=math.inf))


def test_a_counter_that_stands_still_is_no_probe() -> None:
    clock = Clock()
    meters = Meters(Counter(clock, math.inf), None)
    with pytest.raises(Unreadable, match="package stood still at 0 J for 3"):
        looked(clock, Counter(clock, math.inf))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(freshness, "LOOK_SECONDS", 0.0)
        found = meters.looked()
    assert found.energy is None
    assert found.why_no_energy.startswith("no probe of energy: package stood still at 0 J")


def test_a_rail_may_say_one_number_for_a_moment() -> None:
    clock = Clock()
    # As often as its kind does: whether the load is steady or the rail dead the windows say.
    assert looked(clock, Rail(clock, 0.05, lambda number: 5.0)) == 0.05
    assert looked(clock, Rail(clock, 0.05, lambda number: 5.0 + number // 2 % 2)) == pytest.approx(0.1, rel=0.1)


def readings(joules: Callable[[float], float], *, seconds: float = 2.0) -> list[tuple[float, float, dict[str, Count]]]:
    """Return what a counter of at most 1000 W said every 50 ms."""
    steps = round(seconds / 0.05)
    return [(at / 20, at / 20, {"package": Count(joules(at / 20), 1000.0, 65_000.0)}) for at in range(steps + 1)]


def test_a_live_counter_is_held_to_nothing() -> None:
    hold_counts(readings(lambda at: 50 * at), 0.001, 2.0)
    hold_counts(readings(lambda at: (64_990 + 50 * at) % 65_000), 0.001, 2.0)
    # One update in ten of a slow one is missed by chance.
    hold_counts(readings(lambda at: 5 * math.floor(at * 10)), 0.1, 2.0)
    hold_counts([], 0.1, 2.0)


@pytest.mark.parametrize(
    ("joules", "said"),
    [
        # It begins and ends as if nothing had been.
        (lambda at: 50 * at if not 0.5 < at < 1.2 else 25.0, r"stood still at 25 J for 650 ms of a window of 2\.00 s"),
        (lambda at: 50 * math.floor(at), "stood still at 50 J for 950 ms"),
        (lambda at: 50 * at + (900 if at > 1 else 0), r"jumped by 902\.5 J in 0\.052 s, more than 1000 W"),
        (lambda at: 50 * at - (30 if at > 1 else 0), "went backwards"),
    ],
)
def test_ends_that_look_right_do_not_hide_what_was_between(joules: Callable[[float], float], said: str) -> None:
    seen = readings(joules)
    first, last = seen[0][2]["package"], seen[-1][2]["package"]
    # By its ends alone it would pass.
    assert last.since(first, 2.0, "package") > 0
    with pytest.raises(Unreadable, match=said):
        hold_counts(seen, 0.001, 2.0)


def test_a_process_that_was_held_up_saw_no_jump() -> None:
    """A reading is of some moment between two looks at the clock, and a busy machine may be far from both."""
    draws = {at: {"package": Count(600 * at, 1000.0)} for at in (0.0, 0.05, 0.1, 0.15)}
    # That of 0.05 s came to the clock 45 ms late: 30 J in 5 ms by that alone.
    late = [(0.0, 0.0, draws[0.0]), (0.05, 0.095, draws[0.05]), (0.1, 0.1, draws[0.1]), (0.15, 0.15, draws[0.15])]
    hold_counts(late, 0.001, 2.0)
    set_back = [*late[:2], (0.1, 0.1, {"package": Count(600 * 0.1 + 100, 1000.0)}), late[3]]
    with pytest.raises(Unreadable, match=r"jumped by 130 J in 0\.052 s, more than 1000 W"):
        hold_counts(set_back, 0.001, 2.0)


def samples(every: float, of: Callable[[int], float] = lambda number: 5 + number % 7) -> list[tuple[float, float]]:
    """Return what a sensor that is refreshed so often said every 50 ms, for 5 s."""
    return [(at / 20, of(math.floor(at / 20 / every + 1e-9))) for at in range(101)]


def test_a_live_rail_is_added_up() -> None:
    assert joules_of(samples(0.05), 0.0, 5.0, 0.05) == pytest.approx(8 * 5, rel=0.05)
    # Coarse, and often the same twice or three times.
    assert joules_of(samples(0.05, lambda number: 5 + (number // 3) % 2 * 0.04), 0.0, 5.0, 0.05) > 24


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (samples(1.0), r"changed 5 times in 5\.00 s: it is refreshed too seldom"),
        (samples(3.0), "changed 1 time in"),
        (samples(9.0), "stood at 5 W throughout, 101 readings"),
    ],
)
def test_a_rail_that_is_not_refreshed_is_no_power(seen: list[tuple[float, float]], said: str) -> None:
    with pytest.raises(Unreadable, match=said):
        joules_of(seen, 0.0, 5.0, 0.05)


class Register(Rail):
    """A rail whose driver says what a step is."""

    def step_watts(self) -> float | None:
        return 0.05


def test_a_register_that_says_its_step_may_stand_where_nothing_changes() -> None:
    steady, near = samples(9.0, lambda number: 4.96), samples(2.0, lambda number: 4.96 + 0.05 * (number % 2))
    assert joules_of(steady, 0.0, 5.0, 0.05, step=0.05) == pytest.approx(4.96 * 5)
    assert joules_of(near, 0.0, 5.0, 0.05, step=0.05) == pytest.approx(4.98 * 5, rel=0.01)
    with pytest.raises(Unreadable, match="101 readings of it, and nothing says how often it is refreshed"):
        joules_of(steady, 0.0, 5.0, 0.05)
    # What changes by more than that is seen to be refreshed once a second, whatever its driver says.
    with pytest.raises(Unreadable, match="refreshed too seldom"):
        joules_of(samples(1.0), 0.0, 5.0, 0.05, step=0.05)


def test_the_look_takes_steps_of_a_register_for_no_sign_of_its_pace() -> None:
    clock = Clock()
    assert looked(clock, Register(clock, 1.0, lambda number: 5.0 + 0.05 * (number % 2))) == 0.05
    with pytest.raises(Unreadable, match="rail changes every"):
        looked(clock, Register(clock, 1.0))


def test_a_rail_that_stands_still_does_so_beyond_a_change_of_the_load() -> None:
    alive = Follower()
    for load, watts in (("idle", 5.0), ("a", 9.0), ("a", 9.0), ("idle", 5.0), ("b", 12.0)):
        alive.saw(load, [watts] * 100)
    stuck = Follower()
    stuck.saw("idle", [5.0, 5.1, 5.0])
    with pytest.raises(Unreadable, match="stood at 5 W throughout, 100 readings of it, as before the load changed"):
        stuck.saw("a", [5.0] * 100)
    # One reading that is another is a sign of life, and the same load may well draw the same.
    lively = Follower()
    lively.saw("idle", [5.0] * 100)
    lively.saw("a", [5.0] * 99 + [5.1])
    lively.saw("a", [5.1] * 100)

"""The reference kernel: what it reads, that it costs nothing in between, how it ends, and what a launch makes of it."""

from __future__ import annotations

import gc
import itertools
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

import psutil
import pytest

from pytest_ngraph.launches import launch as launching
from pytest_ngraph.launches import process as process_room
from pytest_ngraph.launches import reference, surroundings
from pytest_ngraph.launches.launch import LaunchPlan, run_launch
from pytest_ngraph.launches.order import Stay
from pytest_ngraph.launches.reference import Arithmetic, Reference, arithmetic_ns, others_of
from pytest_ngraph.machine import facts
from pytest_ngraph.spec.cells import Cell, Reading, Visit
from pytest_ngraph.spec.states.steadiness import unsteady
from tests.support.measuring import (
    ROOT,
    SMALL,
    WATCHED,
    Memory,
    cell,
    is_gone,
    job,
    launch,
    nothing_left_behind,
    wait_until,
)

CPUS = tuple(sorted(os.sched_getaffinity(0)))
NEAR, FAR = Reading(100_000, (360,)), Reading(100_000, (720,))
needs_two_cpus = pytest.mark.skipif(len(CPUS) < 2, reason="words cross between two CPUs, and there is one")


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel may take as long to answer as it does on a busy machine: what is asked here is what it answers."""
    monkeypatch.setattr(reference, "_PATIENCE_SECONDS", 120.0)


@contextmanager
def kernel(*cpus: int) -> Iterator[tuple[Reference, list[int]]]:
    """Yield a running kernel and its processes: its own, and its partner's where it has one."""
    one = Reference(cpus or CPUS)
    try:
        assert one.read() is not None
        yield one, processes_of(os.getpid())
    finally:
        one.close()


def processes_of(parent: int) -> list[int]:
    """Return the processes of the kernels that a process has started, each kernel before its partner."""
    found = []
    for one in psutil.Process(parent).children(recursive=True):
        # What another test started may have ended: such a process has no command line any more.
        with suppress(psutil.NoSuchProcess):
            if any("launches.reference" in word for word in one.cmdline()):
                found.append(one.pid)
    return found


# Readings


@pytest.mark.real
def test_a_reading_is_of_each_pair() -> None:
    with kernel() as (one, _):
        reading = one.read()
    assert reading is not None
    assert reading.arithmetic_ns > 0
    assert len(reading.crossing_ns) == len(others_of(CPUS))
    assert all(crossing > 0 for crossing in reading.crossing_ns)


@pytest.mark.real
def test_a_glance_is_of_each_pair_and_a_reading_after_it_is_whole() -> None:
    with kernel() as (one, _):
        glances = [one.glance() for _ in range(3)]
        reading = one.read()
    for found in (*glances, reading):
        assert found is not None
        assert found.arithmetic_ns > 0
        assert len(found.crossing_ns) == len(others_of(CPUS))
        assert all(crossing > 0 for crossing in found.crossing_ns)


@pytest.mark.measures
@needs_two_cpus
def test_a_glance_takes_less_than_a_fiftieth_of_a_visit() -> None:
    with kernel(*CPUS[:2]) as (one, _):
        took = []
        for _ in range(30):
            began = time.perf_counter()
            one.glance()
            took.append(time.perf_counter() - began)
    # Two of them stand around each visit of 60 ms. The usual one takes a millisecond, others may take a turn in some.
    assert min(took) < 0.02 * 0.06 * 2


@pytest.mark.real
def test_on_one_cpu_a_glance_is_of_its_arithmetic() -> None:
    with kernel(CPUS[0]) as (one, _):
        glance = one.glance()
        assert glance is not None
        assert glance.crossing_ns == ()


@pytest.mark.measures
def test_a_reading_takes_milliseconds() -> None:
    with kernel() as (one, _):
        # Others may take a turn in one of them.
        took, found = [], []
        for _ in range(5):
            began = time.perf_counter()
            found.append(one.read())
            took.append(time.perf_counter() - began)
        for reading in filter(None, found):
            # A loop of 3000 additions in Python, and microseconds at most from CPU to CPU.
            assert 10_000 < reading.arithmetic_ns < 20_000_000
            assert all(crossing >= 20 for crossing in reading.crossing_ns)
        assert None not in found
        for each in zip(*(reading.crossing_ns for reading in found if reading), strict=True):
            assert min(each) < 100_000
        # Beside others it looks for the end of their bursts, for up to a tenth of a second.
        assert min(took) < 0.25


@pytest.mark.real
def test_on_one_cpu_there_is_nothing_to_cross_and_no_partner() -> None:
    with kernel(CPUS[0]) as (one, processes):
        reading = one.read()
        assert reading is not None
        assert reading.crossing_ns == ()
        assert len(processes) == 1


def test_the_shortest_run_of_the_arithmetic_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = iter([0, 500, 1000, 1300, 2000, 2900, 3000, 4000, 5000, 6000, 7000, 8000])
    monkeypatch.setattr(time, "perf_counter_ns", lambda: next(clock))
    assert arithmetic_ns() == 300


@pytest.mark.parametrize(
    ("runs", "expected", "pauses"),
    [
        # It begins in a burst of somebody else: the first reading looks for its end.
        ([[300, 300, 200, 300, 200, 200, 300, 300, 300]], [200], 8),
        ([[200] * 9, [210]], [200, 210], 8),
        ([[200] * 9, [300, 300, 205]], [200, 205], 10),
        # Longer than any burst: the machine is in another state, and in the next reading it is back.
        ([[200] * 9, [300] * 9, [200]], [200, 300, 200], 16),
        # Faster than ever before: what was the usual is slow from now on.
        ([[300] * 9, [200], [300] * 9], [300, 200, 300], 16),
    ],
)
def test_bursts_of_others_are_looked_past_and_states_of_the_machine_are_not(
    monkeypatch: pytest.MonkeyPatch, runs: list[list[int]], expected: list[int], pauses: int
) -> None:
    clock, slept = itertools.chain(*runs), list[float]()
    monkeypatch.setattr(reference, "arithmetic_ns", lambda: next(clock))
    monkeypatch.setattr(time, "sleep", slept.append)
    arithmetic = Arithmetic()
    assert [arithmetic.read() for _ in runs] == expected
    assert (len(slept), next(clock, None)) == (pauses, None)
    assert sum(slept) < 0.3


@pytest.mark.real
@needs_two_cpus
def test_the_kernel_runs_on_the_cpus_of_the_set_only() -> None:
    with kernel(*CPUS[:2]) as (_, processes):
        assert [os.sched_getaffinity(pid) for pid in processes] == [{CPUS[0]}, {CPUS[1]}]


@pytest.mark.real
def test_between_readings_it_uses_no_cpu() -> None:
    with kernel() as (one, processes):
        before = [sum(psutil.Process(pid).cpu_times()[:2]) for pid in processes]
        time.sleep(0.5)
        after = [sum(psutil.Process(pid).cpu_times()[:2]) for pid in processes]
        assert sum(after) - sum(before) < 0.1
        assert one.read() is not None


@pytest.mark.parametrize(
    ("cpus", "expected"),
    [
        ((0,), []),
        ((0, 1), [1]),
        ((3, 5, 7, 9, 11), [5, 7, 9, 11]),
        (range(6), [1, 2, 3, 5]),
        (range(9), [2, 4, 6, 8]),
        (range(64), [15, 31, 47, 63]),
    ],
)
def test_words_go_to_a_few_cpus_near_and_far(cpus: range | tuple[int, ...], expected: list[int]) -> None:
    assert others_of(tuple(cpus)) == expected


# How it ends


@pytest.mark.real
def test_a_kernel_ends_when_it_is_closed_forgotten_or_closed_again() -> None:
    with nothing_left_behind():
        one = Reference(CPUS)
        assert one.read() is not None
        closed = processes_of(os.getpid())
        one.close()
        one.close()
        assert one.read() is None

        other = Reference(CPUS)
        assert other.read() is not None
        forgotten = processes_of(os.getpid())
        del other
        gc.collect()

        for processes in (closed, forgotten):
            assert len(processes) == 1 + (len(CPUS) > 1)
            assert wait_until(lambda pids=processes: all(map(is_gone, pids)), 60)  # type: ignore[misc]


def test_a_kernel_that_is_closed_at_once_ends() -> None:
    with nothing_left_behind():
        Reference(CPUS).close()


def asleep() -> subprocess.Popen[bytes]:
    """Start a process that ends with its input, and that nothing here ends, as if it hung in the kernel."""
    return subprocess.Popen([sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE)


def test_a_kernel_that_nothing_ends_is_waited_for_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reference, "_END_SECONDS", 0.05)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    with asleep() as hangs:
        reference._end(hangs, os.getpid())
        assert hangs.returncode is None
        hangs.kill()


def test_an_abandoned_process_that_nothing_ends_is_waited_for_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_room, "_STUCK_SECONDS", 0.05)
    monkeypatch.setattr(os, "killpg", lambda *_: None)
    with asleep() as hangs, Path(os.devnull).open("rb") as output:
        process_room._end_abandoned(hangs, "no process has this mark", os.getpid(), output, os.pipe())
        assert hangs.returncode is None
        hangs.kill()


PARENT = """
import os, sys, time
from pytest_ngraph.launches import reference
from pytest_ngraph.launches.reference import Reference

reference._PATIENCE_SECONDS = 120.0
kernel = Reference([int(cpu) for cpu in sys.argv[1:]])
print(kernel.read() is not None, flush=True)
time.sleep(600)
"""


@pytest.mark.real
@pytest.mark.parametrize("stopped", [False, True])
def test_kernel_and_partner_end_with_a_parent_that_is_killed(stopped: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, *map(str, CPUS)],
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "True\n"
        processes = processes_of(process.pid)
        assert len(processes) == 1 + (len(CPUS) > 1)
        for pid in processes if stopped else ():
            os.kill(pid, signal.SIGSTOP)
    finally:
        process.kill()
        process.communicate(timeout=120)
    ended = wait_until(lambda: all(map(is_gone, processes)), 60)
    for pid in () if ended else filter(psutil.pid_exists, processes):
        os.kill(pid, signal.SIGKILL)
    assert ended


@pytest.mark.real
@pytest.mark.parametrize("number", [signal.SIGSTOP, signal.SIGKILL])
@pytest.mark.parametrize("which", ["kernel", pytest.param("partner", marks=needs_two_cpus)])
def test_a_kernel_that_is_stopped_or_killed_gives_no_reading_from_then_on_and_never_hangs(
    which: str, number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with kernel() as (one, processes):
        # Only from here on: its first answer may take as long as it does on a busy machine.
        monkeypatch.setattr(reference, "_PATIENCE_SECONDS", 0.5)
        os.kill(processes[which == "partner"], number)
        began = time.perf_counter()
        assert one.read() is None
        assert one.read() is None
        assert time.perf_counter() - began < 30
        assert wait_until(lambda: all(map(is_gone, processes)), 60)


@pytest.mark.real
def test_who_has_a_thousand_files_open_gets_readings_too() -> None:
    many = 1100
    allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed[1] < many + 200:
        pytest.skip(f"a process may not have {many} files open here")
    with ExitStack() as files:
        # Often a thousand are allowed, and more to who asks.
        files.callback(resource.setrlimit, resource.RLIMIT_NOFILE, allowed)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(allowed[0], many + 200), allowed[1]))
        for _ in range(many):
            files.callback(os.close, os.open(os.devnull, os.O_RDONLY))
        with kernel() as (one, _):
            assert one.read() is not None


def test_answers_that_are_none_give_no_reading(monkeypatch: pytest.MonkeyPatch) -> None:
    real = subprocess.Popen

    def garbage(words: list[str], **how: object) -> object:
        return real([sys.executable, "-c", "input(); print('[1, 2'); input()"], **how)  # type: ignore[call-overload]

    monkeypatch.setattr(subprocess, "Popen", garbage)
    one = Reference(CPUS)
    try:
        assert one.read() is None
    finally:
        one.close()


# What a launch makes of it. The kernel's answers are made up: what matters is when they change.


@pytest.fixture
def answers(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., list[Reading | None]]]:
    """A function that sets what the kernel answers, the last answer for ever, and returns what was answered."""
    given: list[Reading | None] = []
    monkeypatch.setattr(surroundings, "_WAIT_SECONDS", 0.01)

    def answer(*readings: Reading | None) -> list[Reading | None]:
        coming = iter(readings)
        rest = readings[-1]

        def read(kernel: Reference) -> Reading | None:
            given.append(next(coming, rest))
            return given[-1]

        monkeypatch.setattr(Reference, "read", read)
        # What the host does meanwhile would make a launch go on.
        monkeypatch.setattr(Reference, "glance", lambda self: None)
        return given

    return answer  # type: ignore[return-value]


FOUR = replace(WATCHED, blocks=4)


@pytest.mark.real
def test_each_block_stands_between_two_readings(tmp_path: Path, answers: Callable[..., list[Reading | None]]) -> None:
    given = answers(*(Reading(100_000 + number, (360,)) for number in range(8)))

    found = launch(job(tmp_path), cell("null"), protocol=FOUR)

    assert found.readings == list(zip(given[0::2], given[1::2], strict=True))
    assert found.blocks == [0, 1, 2, 3]


@pytest.mark.real
def test_a_launch_without_readings_is_measured_all_the_same(
    tmp_path: Path, answers: Callable[..., list[Reading | None]]
) -> None:
    answers(NEAR, NEAR, NEAR, None)

    found = launch(job(tmp_path), cell("null"), protocol=FOUR)

    assert found.readings == [(NEAR, NEAR), None, None, None]
    assert found.blocks_of(cell("null")) == [0, 1, 2, 3]


@pytest.mark.real
def test_a_protocol_without_the_reference_kernel_starts_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def none(cpus: object) -> Reference:
        raise AssertionError("started")

    monkeypatch.setattr(surroundings, "Reference", none)

    found = launch(job(tmp_path), cell("null"), protocol=SMALL)

    assert found.readings == [None, None]


@pytest.mark.real
def test_a_block_waits_for_the_state_of_the_first_one(
    tmp_path: Path, answers: Callable[..., list[Reading | None]]
) -> None:
    # Before block 1 the machine is elsewhere for three looks.
    given = answers(NEAR, NEAR, FAR, FAR, FAR, NEAR)
    told: list[str] = []

    found = launch(job(tmp_path), cell("null"), protocol=WATCHED, watch=told.append, patience=60)

    waiting = [doing for doing in told if doing.startswith("waiting")]
    assert waiting == ["waiting for the machine's usual state (now arithmetic 100 us, CPU to CPU 720 ns)"] * 3
    assert found.readings == [(NEAR, NEAR)] * 2
    assert len(given) == 4 + 3


@pytest.mark.real
def test_after_some_seconds_blocks_go_on_where_the_machine_is_and_wait_no_more(
    tmp_path: Path, answers: Callable[..., list[Reading | None]]
) -> None:
    answers(NEAR, NEAR, FAR)
    told: list[str] = []

    found = launch(job(tmp_path), cell("null"), protocol=FOUR, watch=told.append, patience=0.05)

    assert found.readings == [(NEAR, NEAR), (FAR, FAR), (FAR, FAR), (FAR, FAR)]
    assert 4 <= sum(doing.startswith("waiting") for doing in told) <= 6
    # What was measured elsewhere is kept; who reads the launch leaves it out.
    assert found.blocks_of(cell("null")) == [0, 1, 2, 3]


@pytest.mark.real
@pytest.mark.parametrize(("states", "first"), [((NEAR,), NEAR), ((FAR, NEAR), FAR), ((), FAR)])
def test_the_first_block_waits_for_the_states_of_earlier_launches(
    tmp_path: Path, answers: Callable[..., list[Reading | None]], states: tuple[Reading, ...], first: Reading
) -> None:
    answers(FAR, *([FAR] * 5 if first == FAR else [NEAR]))
    sink = Memory()

    run_launch(job(tmp_path), LaunchPlan((cell("null"),), WATCHED, 1, states=states), sink, spare_memory=lambda: 1.0)

    assert sink.readings[0] == (first, first)


@pytest.mark.real
def test_a_real_kernel_reads_around_each_block_and_is_gone_afterwards(tmp_path: Path) -> None:
    with nothing_left_behind():
        found = launch(job(tmp_path), cell("null"), protocol=WATCHED)
        assert processes_of(os.getpid()) == []
    assert len(found.readings) == 2
    assert None not in found.readings


@pytest.mark.real
def test_an_interrupted_launch_ends_its_kernel(tmp_path: Path) -> None:
    def interrupt(doing: str) -> None:
        if doing.startswith("measuring"):
            raise KeyboardInterrupt

    with nothing_left_behind(), pytest.raises(KeyboardInterrupt):
        launch(job(tmp_path), cell("null"), protocol=WATCHED, watch=interrupt)
    assert processes_of(os.getpid()) == []


# What a launch makes of glances, which are made up, too.

STEADY, SHAKEN = Reading(150_000, (360,)), Reading(225_000, (360,))


@pytest.fixture
def glances(
    monkeypatch: pytest.MonkeyPatch, answers: Callable[..., list[Reading | None]]
) -> Callable[..., list[Reading | None]]:
    """A function that sets what glances find, by their number, and returns what they found."""
    given: list[Reading | None] = []
    answers(NEAR)
    monkeypatch.setattr(surroundings, "_PAUSE_SECONDS", 0.0)
    # Nor does the host take a CPU, of which glances say nothing: such visits are made again, too.
    monkeypatch.setattr(facts, "used_seconds", lambda cpus: (None, ()))

    def set_up(found: Callable[[int], Reading | None]) -> list[Reading | None]:
        def glance(kernel: Reference) -> Reading | None:
            given.append(found(len(given)))
            return given[-1]

        monkeypatch.setattr(Reference, "glance", glance)
        return given

    return set_up


@pytest.mark.real
def test_each_visit_stands_between_two_glances(tmp_path: Path, glances: Callable[..., list[Reading | None]]) -> None:
    given = glances(lambda number: Reading(150_000 + number, (360,)))

    found = launch(job(tmp_path), cell("null"), protocol=FOUR)

    around = [visit.around for visit in found.visits.values()]
    assert around == [(pair,) for pair in zip(given[0::2], given[1::2], strict=True)]


@pytest.mark.real
def test_a_visit_that_somebody_disturbed_is_made_again_and_the_first_one_is_not_kept(
    tmp_path: Path, glances: Callable[..., list[Reading | None]]
) -> None:
    # Eight glances are four visits; the fifth is disturbed, then two looks find somebody there.
    given = glances(lambda number: SHAKEN if number in (9, 10, 11) else STEADY)
    long = replace(FOUR, blocks=6, visit_seconds=0.05)

    found = launch(job(tmp_path), cell("null"), protocol=long)

    steady, shaken = (STEADY, STEADY), (STEADY, SHAKEN)
    assert [visit.around for visit in found.visits.values()] == [*[(steady,)] * 4, (shaken, steady), (steady,)]
    assert found.blocks_of(cell("null")) == [0, 1, 2, 3, 4, 5]
    assert len(given) == 2 * 6 + 4


@pytest.mark.real
def test_a_visit_that_the_host_took_from_is_made_again_and_where_it_always_does_that_is_known(
    tmp_path: Path, glances: Callable[..., list[Reading | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The glances around it are as usual: the kernel's account of the visit itself says it."""
    glances(lambda number: STEADY)
    numbers = itertools.count()

    def used(cpus: Sequence[int]) -> tuple[float, tuple[float, ...]]:
        # Before and after each try; what is taken in a try is there when it ends.
        number = next(numbers)
        return 0.0, (0.5 * sum(number > 2 * each for each in taken),)

    monkeypatch.setattr(facts, "used_seconds", used)
    taken: Collection[int] = (1, 2)
    both = launch(job(tmp_path), cell("null"), cell("null[fixed_us=5]"), protocol=FOUR)
    assert [len(visit.around) for visit in both.visits.values()] == [1, 3, *[1] * 6]
    assert not any(visit.is_stolen() for visit in both.visits.values())
    numbers, taken = itertools.count(), range(1000)
    found = launch(job(tmp_path), cell("null"), protocol=FOUR).visits.values()
    assert all(visit.is_stolen() for visit in found)
    assert max(len(visit.around) for visit in found) <= surroundings.MOST_TRIES


@pytest.mark.real
def test_a_machine_that_is_never_steady_again_ends_no_launch_and_costs_it_at_most_its_own_time(
    tmp_path: Path, glances: Callable[..., list[Reading | None]]
) -> None:
    given = glances(lambda number: SHAKEN if number >= 16 and number % 2 else STEADY)
    long = replace(FOUR, blocks=16, visit_seconds=0.02)

    found = launch(job(tmp_path), cell("null"), protocol=long)

    # As many blocks again, and no more.
    assert found.blocks_of(cell("null")) == list(range(32))
    # Visits last 0.02 s at least, and 0.32 s may be spent on visits again, up to three times each.
    assert 2 * 32 < len(given) <= 2 * 32 + 2 * 17


@pytest.mark.real
def test_a_launch_goes_on_by_two_blocks_until_five_were_steady(
    tmp_path: Path, glances: Callable[..., list[Reading | None]]
) -> None:
    # Until the sixth visit somebody is there, as the steady glances that follow tell: two of eight blocks are steady.
    glances(lambda number: SHAKEN if number < 11 else STEADY)
    cells = (cell("null"),)

    found = launch(job(tmp_path), *cells, protocol=replace(FOUR, blocks=8))

    assert found.blocks_of(cell("null")) == list(range(12))
    assert found.blocks == list(range(12))
    assert len(found.readings) == 12


@pytest.mark.real
def test_further_blocks_are_in_mirrored_random_orders_of_their_own_and_as_many_as_were_planned_at_most(
    tmp_path: Path, glances: Callable[..., list[Reading | None]]
) -> None:
    # After every visit but the first to each cell somebody is there, whichever try it is.
    glances(lambda number: SHAKEN if number % 2 and number > 5 else STEADY)
    cells = [cell("null"), cell("null", 2), cell("null[sample_us=0]")]

    found = launch(job(tmp_path), *cells, protocol=replace(FOUR, blocks=8))

    assert found.blocks == list(range(16))
    orders = [found.order[block] for block in range(16)]
    assert orders[1::2] == [order[::-1] for order in orders[0::2]]
    assert len({tuple(order) for order in orders[0::2]}) > 1


@pytest.mark.real
def test_where_somebody_is_there_all_the_while_no_further_blocks_are_made(
    tmp_path: Path, glances: Callable[..., list[Reading | None]]
) -> None:
    glances(lambda number: SHAKEN if number % 2 else STEADY)

    found = launch(job(tmp_path), cell("null"), cell("null", 2), protocol=replace(FOUR, blocks=8))

    assert found.blocks == list(range(8))


@pytest.mark.real
@pytest.mark.parametrize("first", [0, 5])
def test_a_kernel_that_ends_leaves_visits_without_glances(
    tmp_path: Path, glances: Callable[..., list[Reading | None]], first: int
) -> None:
    glances(lambda number: None if number >= first else STEADY)

    found = launch(job(tmp_path), cell("null"), protocol=FOUR)

    around = [found.visits[cell("null"), block].around for block in range(4)]
    whole = first // 2
    assert around == [((STEADY, STEADY),)] * whole + [()] * (4 - whole)


@pytest.mark.real
def test_visits_are_not_repeated_where_the_machine_stays_in_another_state(
    tmp_path: Path, glances: Callable[..., list[Reading | None]]
) -> None:
    given = glances(lambda number: STEADY)
    sink = Memory()
    plan = LaunchPlan((cell("null"),), WATCHED, 1, states=(FAR,), patience_seconds=0.02)

    run_launch(job(tmp_path), plan, sink, spare_memory=lambda: 1.0)

    assert sink.readings == [(NEAR, NEAR)] * 2
    assert len(given) == 2 * 2


@pytest.mark.real
def test_a_cell_that_disturbs_what_follows_it_is_not_rid_of_these_visits(
    tmp_path: Path, glances: Callable[..., list[Reading | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An adapter could burn the CPUs after each slow visit, to be left with the fast ones."""
    one, others = cell("null[fixed_us=300]"), [cell(f"null[fixed_us={us}]") for us in (100, 200)]
    visited = list[Cell]()
    visit_cell = launching._Launch._visit_cell

    def visit(launch: launching._Launch, cell: Cell, stay: Stay) -> Visit | None:
        visited.append(cell)
        return visit_cell(launch, cell, stay)

    monkeypatch.setattr(launching._Launch, "_visit_cell", visit)
    seen = list[int]()

    def shaken_after_the_one(number: int) -> Reading:
        # The first glance after each of its visits.
        is_after = len(visited) > sum(seen) and visited[-1] == one
        seen.append(len(visited) - sum(seen))
        return SHAKEN if is_after else STEADY

    glances(shaken_after_the_one)
    sink = Memory()
    plan = LaunchPlan((one, *others), replace(FOUR, blocks=8, visit_seconds=0.05), 1)
    run_launch(job(tmp_path), plan, sink, spare_memory=lambda: 1.0)

    kept = {place: visit for place, visit in sink.visits.items() if place[0] == one}
    # Some of the first are made again, until it shows whose doing it is.
    assert visited.count(one) - len(kept) <= 6
    assert all(visited.count(other) == 8 for other in others)
    assert len(kept) == 8
    assert not unsteady({place: visit.around for place, visit in sink.visits.items()})


@pytest.mark.real
def test_the_glance_before_a_visit_is_taken_before_its_neighbour_runs_and_each_try_has_the_neighbour(
    tmp_path: Path, glances: Callable[..., list[Reading | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    done = list[str]()
    accompanied, visit_cell = launching._Launch._accompanied, launching._Launch._visit_cell

    def accompany(launch: launching._Launch, cell: Cell) -> bool:
        done.append("neighbour")
        return accompanied(launch, cell)

    def visit(launch: launching._Launch, cell: Cell, stay: Stay) -> Visit | None:
        done.append("visit")
        return visit_cell(launch, cell, stay)

    def glance(number: int) -> Reading:
        done.append("glance")
        return SHAKEN if number == 17 else STEADY

    monkeypatch.setattr(launching._Launch, "_accompanied", accompany)
    monkeypatch.setattr(launching._Launch, "_visit_cell", visit)
    glances(glance)
    launch(job(tmp_path), cell("null"), protocol=replace(FOUR, blocks=12, visit_seconds=0.05))

    assert done == ["glance", "neighbour", "visit", "glance"] * 13


@pytest.mark.real
def test_visits_that_last_for_seconds_have_no_glances(
    tmp_path: Path, glances: Callable[..., list[Reading | None]], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = glances(lambda number: SHAKEN)
    monkeypatch.setattr(launching, "_LONGEST_SECONDS", 0.005)

    found = launch(job(tmp_path), cell("null"), protocol=FOUR)

    assert given == []
    assert {visit.around for visit in found.visits.values()} == {()}

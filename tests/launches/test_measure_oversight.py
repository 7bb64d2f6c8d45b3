"""What workers say of their times, held against other clocks: what is refused, and what load must not refuse."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.checks import oversight
from pytest_ngraph.checks.oversight import (
    CpuAccount,
    Seen,
    Watch,
    beyond_wall,
    call_nanoseconds,
    children_of,
    objection,
    others_cpus,
    threads_allowed,
    waits_for_itself,
)
from pytest_ngraph.launches import checks
from pytest_ngraph.load.beside import Window
from pytest_ngraph.machine import facts
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Device, Outcome, Visit, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.support.measuring import SMALL, TIMED, Memory, cell, job, launch, wait_until

MS = 1_000_000


def seen(said_ms: float, lasted_ms: float, cpu_ms: float | None = None, batches: int = 8) -> Seen:
    """Return a visit of so many equal batches, as two clocks saw it."""
    walls = (round(said_ms * MS / batches),) * batches
    cpu = None if cpu_ms is None else round(cpu_ms * MS)
    return Seen(Visit(1, walls), round(lasted_ms * MS), round(lasted_ms * MS), cpu)


def test_a_visit_that_claims_more_than_passed_is_refused_by_itself() -> None:
    assert "claim 62 ms of a visit that lasted 60 ms" in beyond_wall(seen(62.0, 60.0))
    assert beyond_wall(seen(60.0, 60.0)) == ""
    assert beyond_wall(seen(60.5, 60.0)) == ""


@pytest.mark.parametrize("times", [10, 7])
def test_a_slow_clock_is_refused(times: int) -> None:
    visits = [seen(60.0, times * 65.0) for _ in range(8)]
    reason = objection(visits, 2, 0.005)
    assert f"claim 60 ms of visits that lasted {times * 65} ms" in reason
    assert "slowed" in reason


def test_slow_calls_show_a_smaller_change_of_the_clock() -> None:
    # Three calls of 100 ms, which the worker calls 33 ms, and one before them.
    assert objection([seen(100.0, 1200.0, batches=3)] * 4, 2, 0.005)
    assert objection([seen(300.0, 400.0, batches=3)] * 4, 2, 0.005) == ""


def test_one_visit_that_was_held_up_says_nothing() -> None:
    assert objection([*[seen(60.0, 70.0)] * 5, *[seen(60.0, 5000.0)] * 3], 2, 0.005) == ""


def test_what_a_worker_waited_for_others_is_no_objection() -> None:
    # Seen beside nine busy processes on two CPUs: it waited between its batches, which say nothing of that.
    def held_up(delay_ms: float, others_seconds: float | None) -> list[Seen]:
        return [replace(seen(52.0, 503.0), delay_ns=round(delay_ms * MS), others_seconds=others_seconds)] * 8

    assert "claim 52 ms of visits that lasted 503 ms" in objection(held_up(0.0, 0.9), 2, 0.005)
    assert objection(held_up(300.0, 0.9), 2, 0.005) == ""
    # A worker that waits for its own threads hides nothing by it, nor one whose others are not known.
    assert "claim 52 ms of visits that lasted 503 ms" in objection(held_up(300.0, 0.001), 2, 0.005)
    assert "claim 52 ms of visits that lasted 503 ms" in objection(held_up(300.0, None), 2, 0.005)


@pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason="the kernel keeps no schedstat")
def test_the_kernel_says_how_long_a_worker_waited(monkeypatch: pytest.MonkeyPatch) -> None:
    delays = iter([5 * MS, 7 * MS, 40 * MS])
    monkeypatch.setattr(oversight, "_run_delay_ns", lambda pid: next(delays))
    watch = Watch(CpuAccount(os.getpid()))
    watch.bound("", 0, 1)
    assert watch.answered(Visit(1, (MS,))).delay_ns == 33 * MS
    monkeypatch.undo()
    assert oversight._run_delay_ns(os.getpid()) >= 0
    assert oversight._run_delay_ns(2**22 + 1) == 0


def test_what_others_do_during_visits_is_what_is_busy_and_neither_the_worker_nor_this_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    busy, own = iter([100.0, 100.9]), iter([5.0, 5.1])
    monkeypatch.setattr(facts, "used_seconds", lambda cpus: (next(busy), ()))
    monkeypatch.setattr(time, "process_time", lambda: next(own))
    monkeypatch.setattr(CpuAccount, "read", lambda self: {7: 0})
    monkeypatch.setattr(CpuAccount, "since", lambda self, before: 300 * MS)
    found = Watch(CpuAccount(7), (0, 1)).answered(Visit(1, (MS,)))
    assert found.others_seconds == pytest.approx(0.5)
    assert found.visit.stolen_ns == 0


def test_what_the_host_took_of_a_visit_is_what_it_took_of_one_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of many CPUs a thread uses one. A counter that goes back, as some hosts' do, says nothing."""
    for now, taken_ns in ((4.03, 30 * MS), (3.0, 0)):
        stolen = iter([(2.0, 4.0, 1.0), (2.01, now, 1.0)])
        monkeypatch.setattr(facts, "used_seconds", lambda cpus, stolen=stolen: (0.0, next(stolen)))
        found = Watch(CpuAccount(os.getpid()), (0, 1, 2)).answered(Visit(1, (MS,)))
        assert found.visit.stolen_ns == max(taken_ns, 10 * MS)
    # Neither is one of another number of CPUs.
    either = iter([(1.0, 2.0), ()])
    monkeypatch.setattr(facts, "used_seconds", lambda cpus: (None, next(either)))
    assert Watch(CpuAccount(os.getpid()), (0, 1)).answered(Visit(1, (MS,))).visit.stolen_ns == 0


def test_what_a_call_took_is_of_visits_that_the_host_left_alone() -> None:
    """Otherwise what a cache saves would hide behind what the host took of the timed calls."""
    calm, lost = seen(1.0, 1.0), seen(50.0, 50.0)
    lost = replace(lost, visit=replace(lost.visit, stolen_ns=1 << 40))
    assert call_nanoseconds([calm, lost, lost]) == call_nanoseconds([calm])
    assert call_nanoseconds([lost]) > 10 * call_nanoseconds([calm])


def test_others_are_averaged_over_the_visits_in_which_they_are_known() -> None:
    visits = [replace(seen(60.0, 100.0), others_seconds=seconds) for seconds in (0.1, -0.02, None, 0.1)]
    assert others_cpus(visits) == pytest.approx(0.6)
    # Of few visits it may be less than nothing, by how two accounts tick.
    assert others_cpus(visits[1:2]) == 0.0
    assert others_cpus(visits[2:3]) is None
    assert others_cpus([]) is None


@pytest.mark.measures
def test_a_neighbour_is_seen_beside_each_cell(tmp_path: Path) -> None:
    """Both have one CPU, which the kernel shares out between them."""
    cells = [cell("null[fixed_us=1000,sample_us=0]"), cell("null[fixed_us=2000,sample_us=0]")]
    cpu = max(os.sched_getaffinity(0))
    place = replace(job(tmp_path), device=Device("local", (cpu,), 1))
    spin = f"import os; os.sched_setaffinity(0, [{cpu}]); print(flush=True)\nwhile True: pass"
    # The kernel counts what a CPU did in ticks of 10 ms, so a visit takes many of them.
    ticks = replace(SMALL, blocks=4, visit_seconds=0.2)
    with subprocess.Popen([sys.executable, "-c", spin], stdout=subprocess.PIPE) as spinner:
        try:
            assert spinner.stdout is not None
            spinner.stdout.readline()
            crowded = launch(place, *cells, protocol=ticks)
        finally:
            spinner.kill()
    for one in cells:
        assert 0.25 < (crowded.records[one].others_cpus or 0.0) < 1.0


def test_more_threads_than_given_are_refused() -> None:
    visits = [seen(60.0, 70.0, cpu_ms=140.0)] * 8
    assert "kept 2.0 CPUs busy where it was given 1 thread:" in objection(visits, 1, 0.005)
    assert objection(visits, 2, 0.005) == ""
    assert objection(visits, None, 0.005) == ""


def test_where_the_kernel_keeps_no_account_none_is_held_against_a_cell() -> None:
    assert objection([seen(60.0, 70.0)] * 8, 1, 0.005) == ""
    assert objection([], 1, 0.005) == ""


def simulated(draw: random.Random, *, call_ms: float, load: float, slice_ms: float, threads: int) -> Seen:
    """Play an honest visit by a fake clock: whatever is done may have to wait, and the parent too.

    ``load`` is the chance that a millisecond of work, or waking up, is followed by a wait of up to ``slice_ms``.
    """
    now = 0.0

    def spend(milliseconds: float) -> None:
        nonlocal now
        waits = sum(draw.random() < load for _ in range(1 + int(milliseconds)))
        now += milliseconds + sum(draw.uniform(0, slice_ms) for _ in range(waits))

    spend(0.3)  # resumed
    spend(2.0)  # bound
    bound = now
    discarded = 0.0
    while discarded < 5.0:
        began = now
        spend(1.4 * call_ms)
        discarded += now - began
    batches: list[int] = []
    calls = max(1, round(1.5 / call_ms))
    while sum(batches) < 60 * MS:
        spend(0.1)  # covariates
        began = now
        spend(calls * call_ms)
        batches.append(round((now - began) * MS))
    spend(1.0)  # the answer
    working = len(batches) * calls * call_ms * threads + discarded
    return Seen(Visit(calls, tuple(batches)), round(now * MS), round((now - bound) * MS), round(working * MS))


@pytest.mark.real
@pytest.mark.parametrize("load", [0.0, 0.02, 0.2, 0.8])
@pytest.mark.parametrize("call_ms", [0.02, 1.0, 20.0, 100.0])
def test_a_loaded_machine_accuses_nobody(call_ms: float, load: float) -> None:
    draw = random.Random(f"{call_ms} {load}")
    for _ in range(100):
        visits = [simulated(draw, call_ms=call_ms, load=load, slice_ms=24.0, threads=2) for _ in range(8)]
        assert not any(map(beyond_wall, visits))
        assert objection(visits, 2, 0.005) == ""


def test_threads_are_the_devices_or_what_the_cell_says_itself() -> None:
    device, record = Device(threads=2), CompileRecord(Outcome.OK, placement=(("threads", "1"), ("in_flight", "3")))
    workload = Workload(parse_model("block:conv"))
    plain = Cell("local", CompilerSpec("openvino"), workload)
    assert threads_allowed(plain, device, record) == 2
    assert threads_allowed(replace(plain, compiler=CompilerSpec.parse("openvino[threads=4]")), device, record) == 4
    assert threads_allowed(replace(plain, workload=replace(workload, scenario="throughput")), device, record) == 7
    assert threads_allowed(plain, replace(device, accelerator="cuda:0"), record) is None


def test_the_kernels_account_has_the_children_too() -> None:
    if sys.platform != "linux":
        pytest.skip("only Linux lets a process read the CPU time of another")
    spin = "while True: pass"
    code = f"import subprocess, sys; subprocess.Popen([sys.executable, '-c', {spin!r}]).wait()"
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True) as process:
        try:
            assert wait_until(lambda: len(children_of(process.pid)) == 1, 60)
            [child] = children_of(process.pid)
            account = CpuAccount(process.pid)
            before = account.read()
            assert set(before) == {process.pid, child}
            assert wait_until(lambda: (account.since(before) or 0) > 20 * MS, 60)
        finally:
            os.killpg(process.pid, signal.SIGKILL)
    assert CpuAccount(process.pid).read() == {}
    assert account.since(before) is None


# Real workers

MODEL = """
import time
import torch
from torch import nn

def slowed(clock):
    began = clock()
    return lambda: began + (clock() - began) // 10

class Model(nn.Sequential):
    def __init__(self):
        super().__init__(*[nn.Linear(256, 256) for _ in range(8)])
        for name in CHANGED:
            setattr(time, name, slowed(getattr(time, name)))

    def example_inputs(self, batch):
        return torch.randn(batch, 64, 256)
"""
CLOCKS = ("perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time_ns", "time_ns")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a model that changes nothing, and what is built of it: the inputs and references of all tests."""
    skip_without("torch")
    path = tmp_path_factory.mktemp("oversight")
    (path / "model.py").write_text(f"CHANGED = ()\n{MODEL}", encoding="utf-8")
    return path


def measured(folder: Path, compiler: str) -> tuple[Memory, Cell]:
    """Measure the folder's model in a real launch of two blocks."""
    one = Cell("local", CompilerSpec.parse(compiler), Workload(parse_model("model.py:Model", (folder,))))
    return launch(job(folder), one, protocol=replace(SMALL, visit_seconds=0.06)), one


@pytest.mark.real
def test_a_model_that_replaces_the_clock_is_timed_by_ours(tmp_path: Path) -> None:
    skip_without("torch")
    (tmp_path / "model.py").write_text(f"CHANGED = {CLOCKS!r}\n{MODEL}", encoding="utf-8")
    sink, one = measured(tmp_path, "identity")
    record = sink.records[one]
    # Timed by the model's clock its visits would last ten times what they say.
    assert record.outcome in TIMED, record.reason
    assert record.first_call_seconds
    # Two million multiply-accumulates a layer, of which no core does more than 100 in a nanosecond.
    fastest = min(min(visit.wall_ns) / visit.calls for visit in sink.visits.values())
    assert fastest > 8 * 64 * 256 * 256 / 100


@pytest.mark.real
@pytest.mark.parametrize("cheat", ["nothing", "clock"])
def test_an_adapter_that_replaces_the_clock_is_timed_by_ours(folder: Path, cheat: str) -> None:
    sink, one = measured(folder, f"cheat[do={cheat}]")
    assert sink.records[one].outcome in TIMED, sink.records[one].reason


@pytest.mark.real
@pytest.mark.measures
@pytest.mark.parametrize(
    ("cheat", "reason"),
    [
        ("our_clock", "the clock in its process is slowed"),
        ("fast_clock", "the clock in its process does not show the time"),
    ],
)
def test_a_clock_that_lies_is_a_failure(folder: Path, cheat: str, reason: str) -> None:
    """Beside others it may not be seen: what its worker had to wait for them is held against no clock."""
    sink, one = measured(folder, f"cheat[do={cheat}]")
    assert sink.records[one].outcome is Outcome.FAILED
    assert reason in sink.records[one].reason


@pytest.mark.real
def test_what_a_cell_has_others_compute_is_its_cpu_time(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    judged: list[Seen] = []

    def capture(visits: Sequence[Seen], threads: int | None, discard_seconds: float) -> str:
        judged.extend(visits)
        assert threads == 1
        return "it kept too many CPUs busy"

    monkeypatch.setattr(checks, "objection", capture)
    sink, one = measured(folder, "cheat[do=threads]")
    assert (sink.records[one].outcome, sink.records[one].reason) == (Outcome.FAILED, "it kept too many CPUs busy")
    own = sum(sum(seen.visit.cpu_ns) for seen in judged)
    # On a busy machine the other process has no CPU of its own; it has its share.
    assert sum(seen.cpu_ns or 0 for seen in judged) > 1.2 * own


@pytest.mark.real
@pytest.mark.parametrize(
    ("cheat", "outcome", "reason"),
    [
        ("reference", Outcome.MISMATCH, "on inputs that it had not seen before"),
        ("outputs", Outcome.FAILED, "it works in outputs(), not in the calls that are timed"),
        ("first", Outcome.FAILED, "its calls are faster on inputs it has seen"),
        ("cached", Outcome.FAILED, "its calls are faster on inputs it has seen"),
        ("once", Outcome.MISMATCH, "on inputs that it had not seen before"),
    ],
)
def test_work_that_is_not_done_when_it_is_timed_is_a_failure(
    folder: Path, cheat: str, outcome: Outcome, reason: str
) -> None:
    sink, one = measured(folder, f"cheat[do={cheat}]")
    record = sink.records[one]
    assert record.outcome is outcome, record.reason
    assert reason in record.reason
    assert record.call_seconds is None


@pytest.mark.real
def test_an_adapter_that_dies_of_a_probe_keeps_its_times_and_its_neighbours(folder: Path) -> None:
    model = parse_model("model.py:Model", (folder,))
    cells = [Cell("local", CompilerSpec.parse("cheat[do=fragile]"), Workload(model, batch)) for batch in (1, 2)]
    found = launch(job(folder), *cells)
    assert [found.records[one].outcome in TIMED for one in cells] == [True, True], [
        found.records[one].reason for one in cells
    ]
    assert all(len(found.blocks_of(one)) == 2 for one in cells)


def waiting(share: float, others: float | None, batches: int = 8) -> Seen:
    """Return a visit of batches of 8 ms: a ``share`` of a thread waited in each, and so many CPUs were others'."""
    walls = (8 * MS,) * batches
    visit = Visit(1, walls, run_delay_ns=tuple(round(share * wall) for wall in walls))
    seconds = None if others is None else others * sum(walls) * 1e-9
    return Seen(visit, sum(walls), sum(walls), None, seconds)


def test_threads_that_wait_for_one_another_are_no_disturbance_by_others() -> None:
    assert waits_for_itself([waiting(0.6, 0.02)] * 8) == (
        "0.6 of its threads waited for a CPU on average, while other processes kept 0.02 CPUs busy: it waits for "
        "itself, as where more of its threads run than there are CPUs"
    )


def test_threads_that_others_kept_waiting_are_not_held_against_a_cell() -> None:
    # One busy process beside two threads on two CPUs, and one that the kernel says nothing of.
    assert waits_for_itself([waiting(0.5, 0.5)] * 8) == ""
    assert waits_for_itself([waiting(0.9, None)] * 8) == ""
    # Behind a CPU that the host has taken threads wait, too, for nobody in here.
    behind = [replace(each, visit=replace(each.visit, stolen_ns=1 << 40)) for each in [waiting(0.6, 0.02)] * 7]
    assert waits_for_itself(behind) == ""
    assert waits_for_itself([*behind, waiting(0.6, 0.02)]) != ""
    # Others were there in a few visits only, which are those that cannot be used.
    assert waits_for_itself([*[waiting(0.001, 0.0)] * 5, *[waiting(0.9, 0.9)] * 3]) == ""


def test_what_waits_for_its_neighbour_does_not_wait_for_itself() -> None:
    """What others did is known without the neighbour, which runs on purpose and takes the CPUs half of the time."""
    beside = Window(0, 64 * MS, 64 * MS, cpu_ns=64 * MS, others_ns=0.0)
    assert waits_for_itself([replace(waiting(0.6, 0.0), beside=beside)] * 8) == ""


def test_a_cell_that_hardly_waits_is_none_that_waits_for_itself() -> None:
    assert waits_for_itself([waiting(0.004, 0.0)] * 8) == ""
    assert waits_for_itself([]) == ""
    # Calls in flight together have no run-delay: which of them waits is not known.
    assert waits_for_itself([seen(60.0, 62.0)] * 8) == ""


def test_a_cell_that_waits_for_itself_is_unstable_and_keeps_what_else_is_known() -> None:
    made = checks.Checks(None, None, 0, None, None)  # type: ignore[arg-type]
    one = cell("null")
    for _ in range(8):
        assert made.visited(one, waiting(0.6, 0.0)) == ""
    ready = CompileRecord(Outcome.OK, compile_seconds=1.5)
    record = made.waits(one, ready)
    assert (record.outcome, record.compile_seconds) == (Outcome.UNSTABLE, 1.5)
    assert "it waits for itself" in record.reason
    # What is wrong with a cell already is said of it.
    crashed = CompileRecord(Outcome.CRASH, "it went away")
    assert made.waits(one, crashed) == crashed
    assert made.waits(cell("null[fixed_us=5]"), ready) == ready

"""A launch in real worker processes: what they are given, how they are parked, what is counted and what is left."""

from __future__ import annotations

import gc
import json
import os
import random
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.launches.client import STEADY_ALLOCATOR, WorkerClient, WorkerEnded
from pytest_ngraph.launches.launch import GroupTooLarge, LaunchPlan, memory_pass, run_launch
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, Outcome
from tests.support.bad_compilers import workers_of
from tests.support.measuring import SMALL, TIMED, Memory, cell, is_gone, job, launch, nothing_left_behind

pytestmark = pytest.mark.real


def placement(record: CompileRecord) -> dict[str, str]:
    assert record.outcome in TIMED, record.reason
    return dict(record.placement)


def test_environment_and_affinity_are_set_before_an_adapter_is_imported(tmp_path: Path) -> None:
    one, cpu = cell("bad"), min(os.sched_getaffinity(0))
    found = launch(job(tmp_path, cpus=(cpu,), threads=3), one)
    assert json.loads(placement(found.records[one])["import"]) == {
        "threads": {"OMP_NUM_THREADS": "3", "MKL_NUM_THREADS": "3", "TVM_NUM_THREADS": "3"},
        "bind": "0",
        "malloc": dict(STEADY_ALLOCATOR),
        "cpus": [cpu],
        "runtimes": [],
    }


def test_the_default_allocator_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MALLOC_ARENA_MAX", "1")
    one = cell("bad")
    found = launch(job(tmp_path), one, protocol=replace(SMALL, allocator="default"))
    assert json.loads(placement(found.records[one])["import"])["malloc"] == {}


def test_each_compiler_has_one_process_and_so_has_its_second(tmp_path: Path) -> None:
    cells = [cell("bad", 1), cell("bad", 2), cell("bad[tag=b]"), cell("bad", 1, replica=1)]
    with nothing_left_behind():
        found = launch(job(tmp_path), *cells)
    pids = [placement(found.records[one])["pid"] for one in cells]
    assert pids[0] == pids[1]
    assert len(set(pids)) == 3
    assert [placement(found.records[one])["compiled"] for one in cells] == ["1", "2", "1", "1"]


def test_blocks_are_visited_in_mirrored_order(tmp_path: Path) -> None:
    cells = [cell(f"null[fixed_us={us}]", batch) for us in (10, 20) for batch in (1, 2)]
    found = launch(job(tmp_path), *cells, protocol=replace(SMALL, blocks=4), seed=7)
    assert found.order[0] == found.order[1][::-1]
    assert found.order[2] == found.order[3][::-1]
    assert found.blocks == [0, 1, 2, 3]


def test_importing_a_runtime_is_not_compiling(tmp_path: Path) -> None:
    (tmp_path / "slow_runtime.py").write_text("import time\ntime.sleep(1.5)\n", encoding="utf-8")
    one = cell("slow")
    took = []
    for _ in range(3):
        record = launch(job(tmp_path), one).records[one]
        assert record.outcome in TIMED, record.reason
        assert record.compile_seconds is not None
        took.append(record.compile_seconds)
        # A machine that serves others meanwhile may need longer for nothing, but not always.
        if took[-1] < 1.0:
            break
    assert min(took) < 1.0


def test_a_compiler_that_is_not_installed_is_a_failure_with_its_name(tmp_path: Path) -> None:
    one, null = cell("slow"), cell("null")
    found = launch(job(tmp_path), one, null)
    assert found.records[one].outcome is Outcome.FAILED
    assert "No module named 'slow_runtime'" in found.records[one].reason
    assert found.blocks_of(null) == [0, 1]


# Parking


def test_every_other_worker_is_stopped_while_one_is_timed(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    cells = [cell(f"bad[tag={tag},witness={witness}]") for tag in "abc"]
    launch(job(tmp_path), *cells)
    states = witness.read_text(encoding="ascii").split()
    assert len(states) >= 6
    assert set(states) == {"TT"}


def test_workers_are_parked_where_python_has_no_waitid(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # As on macOS before Python 3.13.
    for name in ("waitid", "P_PID", "WNOWAIT", "WEXITED", "WSTOPPED"):
        monkeypatch.delattr(os, name)
    witness = tmp_path / "witness"
    launch(job(tmp_path), *(cell(f"bad[tag={tag},witness={witness}]") for tag in "abc"))
    assert set(witness.read_text(encoding="ascii").split()) == {"TT"}


def test_a_protocol_without_parking_lets_all_run(tmp_path: Path) -> None:
    witness = tmp_path / "witness"
    cells = [cell(f"bad[tag={tag},witness={witness}]") for tag in "ab"]
    launch(job(tmp_path), *cells, protocol=replace(SMALL, parked=False))
    assert "T" not in witness.read_text(encoding="ascii")


# What is left behind


def test_launches_leave_no_process_no_descriptor_and_no_file(tmp_path: Path) -> None:
    with nothing_left_behind():
        for seed in range(3):
            launch(job(tmp_path), cell("null"), cell("bad"), seed=seed)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("error", [RuntimeError, KeyboardInterrupt])
@pytest.mark.parametrize("when", ["compiling", "measuring", "visited"])
def test_an_interrupted_launch_leaves_nothing(tmp_path: Path, when: str, error: type[BaseException]) -> None:
    pids: list[int] = []

    def interrupt(doing: str) -> None:
        if doing.startswith(when):
            pids.extend(workers_of(os.getpid()))
            raise error("stop")

    with nothing_left_behind(), pytest.raises(error, match="stop"):
        launch(job(tmp_path), cell("null"), cell("bad"), watch=interrupt)
    assert len(pids) == 2
    assert all(is_gone(pid) for pid in pids)
    assert list(tmp_path.iterdir()) == []


def test_a_forgotten_worker_ends(tmp_path: Path) -> None:
    with nothing_left_behind():
        client = WorkerClient(job(tmp_path), "null", protocol=SMALL, draw=random.Random(1))
        client.greet("null")
        client.hello()
        client.park()
        pid = client.pid
        del client
        gc.collect()
        assert is_gone(pid)


def test_a_worker_can_be_ended_twice(tmp_path: Path) -> None:
    with nothing_left_behind():
        client = WorkerClient(job(tmp_path), "null", protocol=SMALL, draw=random.Random(1))
        client.close()
        client.kill()
        client.close()
        with pytest.raises(WorkerEnded):
            client.request("build")


# Groups that are too large


def test_a_slow_cell_splits_a_group_before_anything_was_timed(tmp_path: Path) -> None:
    cells = (cell("null[fixed_us=1000]"), cell("null"))
    sink = Memory()
    plan = LaunchPlan(cells, SMALL, 1, splittable=True, slow_call_seconds=1e-4)
    with nothing_left_behind(), pytest.raises(GroupTooLarge, match=r"null\[fixed_us=1000\] .* takes 0\.0 s a call"):
        run_launch(job(tmp_path), plan, sink, spare_memory=lambda: 1.0)
    assert sink.visits == {}


def test_short_memory_splits_a_group_before_anything_was_timed(tmp_path: Path) -> None:
    spare = iter([0.5, 0.05])
    sink = Memory()
    plan = LaunchPlan((cell("null"), cell("bad")), SMALL, 1, splittable=True)
    with nothing_left_behind(), pytest.raises(GroupTooLarge, match="memory ran short with local:bad"):
        run_launch(job(tmp_path), plan, sink, spare_memory=lambda: next(spare))
    assert sink.visits == {}


def test_a_group_that_cannot_be_split_is_measured_as_it_is(tmp_path: Path) -> None:
    sink = Memory()
    plan = LaunchPlan((cell("null"),), SMALL, 1, slow_call_seconds=1e-9)
    run_launch(job(tmp_path), plan, sink, spare_memory=lambda: 0.0)
    assert sink.blocks_of(cell("null")) == [0, 1]


def test_a_restart_in_a_later_block_does_not_split_a_group(tmp_path: Path) -> None:
    cells: tuple[Cell, ...] = (
        cell("bad[do=segfault,at=visit,batch=2]", 1),
        cell("bad[do=segfault,at=visit,batch=2]", 2),
    )
    spare = iter([0.5] * len(cells))
    sink = Memory()
    plan = LaunchPlan(cells, SMALL, 1, splittable=True)
    run_launch(job(tmp_path), plan, sink, spare_memory=lambda: next(spare))
    assert sink.records[cells[1]].outcome is Outcome.CRASH
    assert sorted(sink.blocks_of(cells[0])) == [0, 1]


# Whole protocols


def test_the_papers_protocol_takes_100_calls_in_a_worker(tmp_path: Path) -> None:
    cells = [cell("null[fixed_us=100]"), cell("null[fixed_us=1000]")]
    found = launch(job(tmp_path), *cells, protocol=replace(PROTOCOLS["paper"], warmup_seconds=0.02))
    assert [len(found.visits[one, 0].wall_ns) for one in cells] == [100, 100]
    assert [found.visits[one, 0].calls for one in cells] == [1, 1]
    assert found.order == {0: cells}


# Memory


def test_memory_held_by_a_cell_is_seen(tmp_path: Path) -> None:
    with nothing_left_behind():
        peaks = [memory_pass(job(tmp_path), cell(f"bad[megabytes={size}]"), SMALL, 1)[1] for size in (0, 200)]
    assert peaks[0] is not None
    assert peaks[1] is not None
    assert 0 <= peaks[1] - peaks[0] - (200 << 20) < 300 << 20


def test_a_call_of_a_memory_pass_may_take_as_long_as_any_other(tmp_path: Path) -> None:
    # Five calls of two seconds in a row.
    record, peak = memory_pass(job(tmp_path, timeout=9.0), cell("bad[us=2000000]"), SMALL, 1)
    assert record.outcome is Outcome.OK, record.reason
    assert peak is not None


def test_the_memory_of_the_parent_is_not_the_workers(tmp_path: Path) -> None:
    # The kernel starts a child's ru_maxrss at what its parent had.
    ours = bytearray(b"x" * (300 << 20))
    record, peak = memory_pass(job(tmp_path), cell("null"), SMALL, 1)
    assert len(ours)
    assert peak is not None
    assert record.peak_memory_bytes == peak
    assert peak < 200 << 20


@pytest.mark.parametrize(
    ("text", "outcome"),
    [
        ("bad[do=segfault,at=compile]", Outcome.CRASH),
        ("bad[do=exception,at=compile]", Outcome.FAILED),
        ("bad[do=memory_error,at=call]", Outcome.OOM),
        ("slow", Outcome.FAILED),
    ],
)
def test_a_memory_pass_that_fails_has_an_outcome_and_no_peak(tmp_path: Path, text: str, outcome: Outcome) -> None:
    with nothing_left_behind():
        record, peak = memory_pass(job(tmp_path), cell(text), SMALL, 1)
    assert (record.outcome, peak) == (outcome, None)

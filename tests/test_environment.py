"""What the machine did meanwhile: snapshots of it, and what two of them say against a launch."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph import environment
from pytest_ngraph.environment import disturbance, others_cpus, snapshot

CPUS = tuple(sorted(os.sched_getaffinity(0)))
FACTS = (
    "at", "set_busy_seconds", "set_steal_seconds", "own_seconds", "load", "busy_seconds", "steal_seconds",
    "available_memory_bytes", "throttled", "governor", "frequency_khz", "pressure_cpu",
)  # fmt: skip


def facts(at: float, **known: Any) -> dict[str, Any]:
    """Return a snapshot of a machine of two CPUs that did nothing until then."""
    calm = {
        **dict.fromkeys(FACTS),
        "set_busy_seconds": 100.0,
        "set_steal_seconds": 5.0,
        "own_seconds": 40.0,
        "throttled": 7,
        "governor": "performance",
    }
    return {**calm, "at": at, **known}


# A launch of 20 s, the last 10 of which were timed.
BEGUN, BLOCKS = facts(1000.0), facts(1010.0)
AFTER = 1020.0


def said(
    ended: dict[str, Any], *, begun: dict[str, Any] = BEGUN, blocks: dict[str, Any] = BLOCKS, cpus: int = 2
) -> str:
    return disturbance(begun, blocks, ended, cpus)


def test_a_calm_launch_counts() -> None:
    assert said(facts(AFTER)) == ""
    # It may use all of the CPUs itself.
    assert said(facts(AFTER, set_busy_seconds=140.0, own_seconds=80.0)) == ""


def test_a_throttled_cgroup_is_a_reason_at_the_first_time() -> None:
    assert said(facts(AFTER, throttled=8)) == "the cgroup's CPU quota stopped this process 1 times"
    assert "stopped this process 93 times" in said(facts(AFTER, throttled=100))
    # While compiling it may have been: nothing was timed then.
    assert said(facts(AFTER, throttled=8), blocks=facts(1010.0, throttled=8)) == ""


def test_a_governor_that_changed_is_a_reason() -> None:
    changed = facts(AFTER, governor="powersave")

    assert said(changed) == "the CPU's governor changed from performance to powersave"
    assert said(changed, begun=facts(1000.0, governor="powersave")) == ""


@pytest.mark.parametrize(
    ("stolen", "cpus", "expected"),
    [
        # 5 % of two CPUs in the ten seconds of the blocks.
        (0.99, 2, ""),
        (1.01, 2, "the host took 5 % of the CPUs' time (steal)"),
        (4.0, 2, "the host took 20 % of the CPUs' time (steal)"),
        (0.49, 1, ""),
        (0.51, 1, "the host took 5 % of the CPUs' time (steal)"),
        (3.9, 8, ""),
        (4.1, 8, "the host took 5 % of the CPUs' time (steal)"),
    ],
)
def test_time_that_the_host_took_is_a_reason_beyond_a_twentieth(stolen: float, cpus: int, expected: str) -> None:
    assert said(facts(AFTER, set_steal_seconds=5.0 + stolen), cpus=cpus) == expected


def test_steal_before_the_blocks_is_none_of_theirs() -> None:
    assert said(facts(AFTER, set_steal_seconds=15.0), blocks=facts(1010.0, set_steal_seconds=15.0)) == ""


@pytest.mark.parametrize(
    ("others_seconds", "cpus", "expected"),
    [
        # Half the wall of the whole launch, 20 s.
        (9.9, 2, ""),
        (10.1, 2, "other processes kept 0.5 of 2 CPUs busy"),
        (30.0, 2, "other processes kept 1.5 of 2 CPUs busy"),
        (9.9, 1, ""),
        (10.1, 1, "other processes kept 0.5 of 1 CPUs busy"),
        # A quarter of many.
        (39.9, 8, ""),
        (40.1, 8, "other processes kept 2.0 of 8 CPUs busy"),
    ],
)
def test_others_that_kept_the_cpus_busy_are_a_reason(others_seconds: float, cpus: int, expected: str) -> None:
    own = 11.0
    ended = facts(AFTER, set_busy_seconds=100.0 + own + others_seconds, own_seconds=40.0 + own)
    assert said(ended, cpus=cpus) == expected


@pytest.mark.parametrize("name", ["throttled", "set_steal_seconds", "set_busy_seconds", "own_seconds"])
def test_what_cannot_be_read_is_no_reason(name: str) -> None:
    busy = {"throttled": 99, "set_steal_seconds": 25.0, "set_busy_seconds": 140.0, "own_seconds": 40.0}
    ended = facts(AFTER, **{name: busy[name]}, **({"set_busy_seconds": 140.0} if name == "own_seconds" else {}))
    assert said(ended) != ""

    assert said({**ended, name: None}) == ""
    assert said(ended, begun={**BEGUN, name: None}, blocks={**BLOCKS, name: None}) == ""


def test_a_machine_without_a_governor_has_none_that_changed() -> None:
    assert said(facts(AFTER, governor=None), begun=facts(1000.0, governor=None)) == ""


def test_others_are_what_is_busy_and_not_ours() -> None:
    assert others_cpus(BEGUN, facts(1010.0, set_busy_seconds=115.0, own_seconds=45.0)) == pytest.approx(1.0)
    assert others_cpus(BEGUN, facts(1010.0)) == 0.0
    # The clocks of processes and of CPUs tick apart: never less than nothing.
    assert others_cpus(BEGUN, facts(1010.0, set_busy_seconds=100.0, own_seconds=40.3)) == 0.0
    assert others_cpus(BEGUN, facts(1010.0, set_busy_seconds=None)) is None
    assert others_cpus(facts(1000.0, own_seconds=None), facts(1010.0)) is None


# Snapshots of this machine


def test_a_snapshot_has_every_fact_and_only_grows() -> None:
    before = snapshot(CPUS)
    after = snapshot(CPUS)

    assert tuple(before) == tuple(after) == FACTS
    for name in ("at", "set_busy_seconds", "set_steal_seconds", "own_seconds", "busy_seconds", "throttled"):
        assert before[name] is None or after[name] >= before[name], name


def test_without_cpus_or_with_unknown_ones_their_times_are_not_known() -> None:
    for cpus in ((), (CPUS[0], 100_000)):
        found = snapshot(cpus)
        assert (found["set_busy_seconds"], found["set_steal_seconds"]) == (None, None)
        assert found["busy_seconds"] > 0


@contextmanager
def spinner(cpu: int) -> Iterator[subprocess.Popen[bytes]]:
    code = f"import os\nos.sched_setaffinity(0, [{cpu}])\nprint(flush=True)\nwhile True: pass"
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process
    finally:
        process.kill()
        process.communicate()


def test_a_child_that_lives_is_of_others_and_ours_once_it_was_waited_for() -> None:
    cpu = CPUS[-1]
    before = snapshot([cpu])
    with spinner(cpu):
        time.sleep(0.5)
        during = snapshot([cpu])
    after = snapshot([cpu])

    # Whoever else is there keeps the CPU busy, too.
    assert during["set_busy_seconds"] - before["set_busy_seconds"] > 0.3
    assert during["own_seconds"] - before["own_seconds"] < 0.3
    assert after["own_seconds"] - before["own_seconds"] > 0.1


def test_the_governor_and_the_throttled_times_are_read_where_the_kernel_says_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(environment, "_CPU", tmp_path)
    monkeypatch.setattr(environment, "_CGROUP", tmp_path)
    assert (snapshot()["governor"], snapshot()["throttled"]) == (None, None)

    (tmp_path / "cpu0/cpufreq").mkdir(parents=True)
    (tmp_path / "cpu0/cpufreq/scaling_governor").write_text("powersave\n")
    (tmp_path / "cpu.stat").write_text("usage_usec 12\nnr_periods 40\nnr_throttled 3\nthrottled_usec 4\n")

    assert (snapshot()["governor"], snapshot()["throttled"]) == ("powersave", 3)

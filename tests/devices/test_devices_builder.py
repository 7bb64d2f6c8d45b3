"""The process that builds: kept from group to group where that is safe, and stopped while others are timed."""

from __future__ import annotations

import gc
import os
import signal
import threading
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.devices import sides
from pytest_ngraph.devices.local import LocalBench
from pytest_ngraph.machine import facts
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Workload
from pytest_ngraph.workloads.kinds import Models
from tests.support.measuring import is_gone, job

pytestmark = pytest.mark.real


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Building takes no time, and there is plenty of memory."""
    monkeypatch.setattr(sides, "started", partial(sides.started, module="tests.support.swift_worker"))
    monkeypatch.setattr(facts, "spare_memory_share", lambda: 0.9)


@pytest.fixture
def bench(at_once: None, tmp_path: Path) -> LocalBench:
    """This machine."""
    return LocalBench(job(tmp_path), Catalogue(), PROTOCOLS["quick"], 0)


def nothing(*doing: object) -> None:
    """Show no progress."""


def built(
    bench: LocalBench, *texts: str, batch: int = 1, progress: Callable[..., None] = nothing
) -> list[Mapping[str, Any]]:
    workloads = [Workload(Models().parse(text), batch) for text in texts]
    return list(bench.build([Cell("local", CompilerSpec("onnxruntime"), each) for each in workloads], progress))


def pid_of(bench: LocalBench) -> int:
    (answer,) = built(bench, "block:mha")
    return int(answer["pid"])


def test_one_process_builds_for_one_group_after_the_other_and_is_stopped_in_between(bench: LocalBench) -> None:
    pid = pid_of(bench)
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED
    assert [answer["pid"] for answer in built(bench, "timm:resnet18", "block:conv")] == [pid, pid]
    assert psutil.Process(pid).status() == psutil.STATUS_STOPPED


def test_a_model_with_files_of_a_users_is_built_in_a_process_that_ends(bench: LocalBench, tmp_path: Path) -> None:
    (tmp_path / "nets.py").write_text("def net():\n    raise NotImplementedError\n")
    mine = f"{tmp_path}/nets.py:net"
    pid = pid_of(bench)
    for _ in range(2):
        (answer,) = built(bench, mine)
        assert answer["pid"] != pid
        assert is_gone(answer["pid"])
    # Nor beside one that has none: their code may have changed what libraries do.
    assert {answer["pid"] for answer in built(bench, "block:mha", mine)} != {pid}
    assert pid_of(bench) == pid


def test_one_that_is_killed_while_it_is_stopped_fails_nothing(bench: LocalBench) -> None:
    pid = pid_of(bench)
    os.kill(pid, signal.SIGKILL)
    assert pid_of(bench) != pid


def test_one_that_ends_early_fails_what_it_builds_and_is_replaced(bench: LocalBench) -> None:
    pid = pid_of(bench)
    (answer,) = built(bench, "block:mha", batch=13)
    assert (answer["ok"], answer["outcome"]) == (False, "crash")
    assert pid_of(bench) != pid


def test_it_has_the_variables_of_now(bench: LocalBench, monkeypatch: pytest.MonkeyPatch) -> None:
    pid = pid_of(bench)
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "another test")
    assert pid_of(bench) == pid
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    other = pid_of(bench)
    assert other != pid
    assert is_gone(pid)
    assert pid_of(bench) == other


def test_it_is_not_kept_where_memory_is_short(bench: LocalBench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(facts, "spare_memory_share", lambda: 0.4)
    assert is_gone(pid_of(bench))


def test_it_ends_when_it_is_interrupted(bench: LocalBench) -> None:
    pid = pid_of(bench)

    def interrupted(*doing: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        built(bench, "block:mha", progress=interrupted)
    assert is_gone(pid)


def test_it_ends_when_its_bench_is_closed(bench: LocalBench) -> None:
    pid = pid_of(bench)
    bench.close()
    assert is_gone(pid)


def test_one_that_builds_is_not_ended_by_another_thread(bench: LocalBench) -> None:
    pid = pid_of(bench)

    def closed(*doing: object) -> None:
        closing = threading.Thread(target=bench.close)
        closing.start()
        closing.join()

    assert [answer["pid"] for answer in built(bench, "block:mha", progress=closed)] == [pid]


def test_it_ends_with_its_bench(at_once: None, tmp_path: Path) -> None:
    pid = pid_of(LocalBench(job(tmp_path), Catalogue(), PROTOCOLS["quick"], 0))
    gc.collect()
    assert is_gone(pid)

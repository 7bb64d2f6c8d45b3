"""Where libraries, stack and heap lie is drawn for every worker: that is part of what a launch is a sample of."""

from __future__ import annotations

import os
import random
import signal
from contextlib import ExitStack
from pathlib import Path

import pytest

from pytest_ngraph.launches.client import WorkerClient
from tests.support.measuring import SMALL, job

RANDOMISED = Path("/proc/sys/kernel/randomize_va_space")
COUNT = 4


def layout(pid: int) -> tuple[str, ...]:
    """Return where the stack, the heap and the C library of a process begin."""
    found: dict[str, str] = {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        words = line.split()
        name = "libc" if "/libc" in words[-1] else words[-1]
        if name in ("[stack]", "[heap]", "libc"):
            found.setdefault(name, words[0].partition("-")[0])
    return tuple(found[name] for name in sorted(found))


@pytest.fixture(autouse=True)
def drawn() -> None:
    if not RANDOMISED.exists() or RANDOMISED.read_text().strip() != "2":
        pytest.skip("this system does not draw where processes have what")


@pytest.mark.real
@pytest.mark.cold
def test_each_worker_has_a_layout_of_its_own(tmp_path: Path) -> None:
    with ExitStack() as stack:
        clients = [WorkerClient(job(tmp_path), "null", protocol=SMALL, draw=random.Random(1)) for _ in range(COUNT)]
        for client in clients:
            stack.callback(client.kill)
            client.greet("null")
            client.hello()
        layouts = [layout(client.pid) for client in clients]
    assert all(len(set(places)) == COUNT for places in zip(*layouts, strict=True))
    assert len(layouts[0]) == 3


def test_forks_have_that_of_their_parent() -> None:
    """Which is why no process that has imported PyTorch once forks the workers of all launches."""
    pids: list[int] = []
    try:
        for _ in range(COUNT):
            if not (pid := os.fork()):
                signal.pause()
                os._exit(0)
            pids.append(pid)
        layouts = {layout(pid) for pid in pids}
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    assert layouts == {layout(os.getpid())}

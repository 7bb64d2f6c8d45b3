"""Processes that a model starts in a session of their own, twice forked, end with the run that measured it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from pytest_ngraph.machine import stragglers
from tests.conftest import ROOT, skip_without
from tests.support.lab import eventually
from tests.support.measuring import wait_until

pytestmark = pytest.mark.real

MODEL = '''
import os
import subprocess
import sys
import time

import torch

START = "import os, sys, time; os.setsid(); os.fork() and os._exit(0); " + (
    "open(sys.argv[1], 'a').write(f'{os.getpid()}\\\\n'); time.sleep(600)"
)


class Leaves(torch.nn.Module):
    """Leaves a process behind that has a session of its own and no parent."""

    def __init__(self):
        super().__init__()
        subprocess.run([sys.executable, "-c", START, os.environ["LEFT"]], check=True)

    def forward(self, x):
        if os.environ.get("HANGS") and not torch.jit.is_tracing():
            time.sleep(600)
        return x + 1

    def example_inputs(self, batch):
        return torch.zeros(batch, 4)


def leaves():
    return Leaves()
'''
# No answer is waited for any longer once the model has begun to hang, which is some seconds after the worker began.
IMPATIENT = """
import os

from pytest_ngraph.launches.process import OwnProcess

waits = OwnProcess.read

def read(self, seconds):
    while not os.path.exists(os.environ["LEFT"]) and seconds > 0.1:
        answer = waits(self, 0.1)
        if answer is not None:
            return answer
        seconds -= 0.1
    return waits(self, min(seconds, 6.0))

OwnProcess.read = read
"""
SUITE = """
import pytest

@pytest.mark.ngraph(model="leaves:leaves", compilers=["torchscript"])
def test_it(ngraph_cell):
    assert ngraph_cell.latency.value > 0
"""


@pytest.fixture
def left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    skip_without("torch")
    (tmp_path / "leaves.py").write_text(MODEL)
    (tmp_path / "test_it.py").write_text(SUITE)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    file = tmp_path / "left"
    monkeypatch.setenv("LEFT", str(file))
    yield file
    for pid in pids(file):
        if psutil.pid_exists(pid):
            os.kill(pid, signal.SIGKILL)


def pids(file: Path) -> list[int]:
    return [int(line) for line in file.read_text().splitlines()] if file.exists() else []


def alive(file: Path) -> list[int]:
    return [pid for pid in pids(file) if psutil.pid_exists(pid) and psutil.Process(pid).status() != "zombie"]


def run(folder: Path, *options: str) -> subprocess.Popen[bytes]:
    words = [
        "-q",
        "-p",
        "tests.support.undisturbed",
        "--ngraph-protocol=quick",
        "--ngraph-compiler=torchscript",
        *options,
    ]
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [sys.executable, "-m", "pytest", *words],
            cwd=folder,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


def test_none_is_left_after_a_run(left: Path) -> None:
    process = run(left.parent)

    process.wait(300)

    assert pids(left), (left.parent / "log").read_text()
    assert alive(left) == []


def test_none_is_left_after_a_time_out(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANGS", "1")
    (left.parent / "conftest.py").write_text(IMPATIENT)
    process = run(left.parent, "--ngraph-timeout=100")

    process.wait(300)

    assert "no answer to " in (left.parent / "log").read_text()

    assert pids(left), (left.parent / "log").read_text()
    assert alive(left) == []


def test_none_is_left_after_ctrl_c(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HANGS", "1")
    process = run(left.parent, "--ngraph-timeout=120")
    eventually("it hangs", lambda: alive(left), 120)

    process.send_signal(signal.SIGINT)
    process.wait(60)

    assert alive(left) == []


def test_only_what_carries_the_mark_is_ended() -> None:
    sleep = [sys.executable, "-c", "import time; time.sleep(600)"]
    mine, mark = stragglers.marked(os.environ)
    below, _ = stragglers.marked(mine)
    other, _ = stragglers.marked(os.environ)
    started = [subprocess.Popen(sleep, env=each, start_new_session=True) for each in (mine, below, other, os.environ)]
    try:
        assert wait_until(lambda: all(stragglers.mark_of(each.pid) for each in started[:3]), 60)
        assert stragglers.mark_of(started[0].pid) == mark
        stragglers.end_marked(mark)
        assert [each.wait(60) for each in started[:2]] == [-signal.SIGKILL] * 2
        time.sleep(0.2)
        assert [each.poll() for each in started[2:]] == [None, None]
    finally:
        for each in started:
            each.kill()
            each.wait(60)

"""Workers end with the process that started them, however it ends and however they stand."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.bad_compilers import workers_of
from tests.support.measuring import ROOT, is_gone, wait_until

pytestmark = pytest.mark.real

PARENT = """
import sys
from dataclasses import replace
from pathlib import Path
from tests.support.measuring import SMALL, cell, job, launch

def watch(doing):
    if doing.startswith(sys.argv[2]):
        print(doing, flush=True)

launch(job(Path(sys.argv[1])), cell("null"), cell("bad"), cell("bad[tag=b]"),
       protocol=replace(SMALL, blocks=100000), watch=watch)
"""


def parent(folder: Path, when: str) -> subprocess.Popen[str]:
    """Start a launch without end in a process of its own, and wait until it does what it is told to report."""
    process = subprocess.Popen(
        [sys.executable, "-c", PARENT, str(folder), when],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
    )
    assert process.stdout is not None
    assert process.stdout.readline().startswith(when)
    return process


def end(process: subprocess.Popen[str], number: int) -> int:
    process.send_signal(number)
    process.communicate(timeout=120)
    return process.returncode


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
@pytest.mark.parametrize("when", ["compiling", "measuring"])
def test_workers_end_with_a_parent_that_is_killed(tmp_path: Path, when: str, number: int) -> None:
    process = parent(tmp_path, when)
    pids = workers_of(process.pid)
    assert len(pids) == 3
    assert "T" in pids.values()
    assert end(process, number) == -number
    assert wait_until(lambda: all(is_gone(pid) for pid in pids), 60), workers_of(1)
    assert list(tmp_path.iterdir()) == []


def test_ctrl_c_reaches_the_parent_only_which_ends_its_workers(tmp_path: Path) -> None:
    process = parent(tmp_path, "measuring")
    pids = workers_of(process.pid)
    assert {os.getsid(pid) for pid in pids} == set(pids)
    assert end(process, signal.SIGINT) == -signal.SIGINT
    assert all(is_gone(pid) for pid in pids)

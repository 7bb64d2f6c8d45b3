"""Builders that suites fork (tests/support/builders.py) end, fail and are heard as those that are started cold."""

from __future__ import annotations

import pytest

from tests.conftest import Suite, skip_without
from tests.support import builders
from tests.support.measuring import is_gone, wait_until

pytestmark = pytest.mark.real

MODEL = """
import os
import signal
from pathlib import Path

import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        command = Path("/proc/self/cmdline").read_bytes().decode()
        Path("built").open("a").write(f"{'builders.py' in command} {os.getpid()} {os.getppid()}\\n")
        {do}

    def example_inputs(self, batch):
        return torch.zeros(batch, 4)
"""
CLAIM = """
@pytest.mark.ngraph(model="net.py:Net", batch=1, compilers=["onnxruntime"])
def test_it(ngraph_cell):
    assert ngraph_cell.latency.value > 0
"""
QUICK = ("--ngraph-protocol=quick", "--ngraph-baseline=onnxruntime[graph=basic]")


@pytest.fixture
def net(suite: Suite) -> Suite:
    skip_without("torch", "onnxscript", "onnxruntime")
    suite.write(CLAIM)
    return suite


def run(net: Suite, do: str, *options: str) -> tuple[pytest.RunResult, list[list[str]]]:
    """Return what a run gave, and of each process that made the model whether it was forked, its id and its parent."""
    (net.path / "net.py").write_text(MODEL.replace("{do}", do))
    result = net.bare(*QUICK, *options)
    return result, [line.split() for line in (net.path / "built").read_text().splitlines()]


def gone(*pids: str) -> bool:
    return all(map(is_gone, map(int, pids)))


def test_a_model_is_built_in_a_fork_which_ends(net: Suite) -> None:
    result, made = run(net, "assert torch.get_num_threads() == 1, os.environ['OMP_NUM_THREADS']", "--ngraph-threads=1")
    result.assert_outcomes(passed=1)
    assert {forked for forked, *_ in made} == {"True"}
    assert wait_until(lambda: gone(*made[0][1:]), 30)


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "*the worker was ended by SIGSEGV during 'build'*"),
        ("os._exit(3)", "*the worker exited with status 3 during 'build'*"),
        ("print('last words', flush=True); os.abort()", "*last words*"),
        ("raise ValueError('no such layer')", "*no such layer*"),
        ("import time; time.sleep(600)", "*no answer to 'build' within 3 s*"),
    ],
)
def test_what_ends_a_fork_is_what_is_said_of_it(net: Suite, do: str, said: str) -> None:
    result, made = run(net, do, f"--ngraph-timeout={3 if 'sleep' in do else 100}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])
    assert wait_until(lambda: gone(*(pid for _, *pids in made for pid in pids)), 30)


def test_without_an_address_nothing_is_forked(net: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(builders.ADDRESS)
    result, made = run(net, "")
    result.assert_outcomes(passed=1)
    assert {forked for forked, *_ in made} == {"False"}

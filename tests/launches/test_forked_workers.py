"""Workers that suites fork (tests/support/workers.py) end, fail and are heard as those that are started cold."""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from pytest_ngraph.launches.client import WorkerClient, WorkerEnded
from tests.conftest import ROOT, Suite, skip_without
from tests.support import fork_server, workers
from tests.support.measuring import SMALL, is_gone, job, wait_until

pytestmark = pytest.mark.real

FORKED = "'fork_server.py' in Path('/proc/self/cmdline').read_bytes().decode()"
MODEL = f"""
import os
import signal
from pathlib import Path

import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(4, 4)
        Path("built").open("a").write(f"{{{FORKED}}} {{os.getpid()}} {{os.getppid()}}\\n")
        DO

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
    (net.path / "net.py").write_text(MODEL.replace("DO", do))
    result = net.bare(*QUICK, *options)
    return result, [line.split() for line in (net.path / "built").read_text().splitlines()]


def gone(*pids: str) -> bool:
    return all(map(is_gone, map(int, pids)))


def test_a_model_is_built_in_a_fork_which_ends(net: Suite) -> None:
    result, made = run(net, "assert torch.get_num_threads() == 1, os.environ['OMP_NUM_THREADS']", "--ngraph-threads=1")
    result.assert_outcomes(passed=1)
    assert {forked for forked, *_ in made} == {"True"}
    assert wait_until(lambda: gone(*made[0][1:]), 60)


@pytest.mark.parametrize(
    ("do", "said"),
    [
        ("os.kill(os.getpid(), signal.SIGSEGV)", "*the worker was ended by SIGSEGV during 'build'*"),
        ("os._exit(3)", "*the worker exited with status 3 during 'build'*"),
        ("print('last words', flush=True); os.abort()", "*last words*"),
        ("raise ValueError('no such layer')", "*no such layer*"),
        ("import time; time.sleep(600)", "*no answer to 'build' within 8 s*"),
    ],
)
def test_what_ends_a_fork_is_what_is_said_of_it(net: Suite, do: str, said: str) -> None:
    result, made = run(net, do, f"--ngraph-timeout={8 if 'sleep' in do else 100}")
    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines([said])
    assert wait_until(lambda: gone(*(pid for _, *pids in made for pid in pids)), 60)


def test_what_forks_and_has_hung_is_waited_for_up_to_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise a test that builds a model would never end, whatever limit its launch has."""
    address = f"ngraph-tests-silent-{uuid.uuid4().hex}"
    monkeypatch.setattr(workers, "_ENDED_SECONDS", 0.2)
    monkeypatch.setattr(workers.FORK_SERVER, "start", lambda **_: address)
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as silent, workers.forking():
        silent.bind(f"\0{address}")
        silent.listen()
        with pytest.raises(WorkerEnded, match=r"forks workers has not forked one \(builder\) within 0.2 s"):
            WorkerClient(job(tmp_path), "builder", protocol=SMALL, draw=random.Random(0))


def test_without_an_address_nothing_is_forked(net: Suite, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(workers.ADDRESS)
    result, made = run(net, "")
    result.assert_outcomes(passed=1)
    assert {forked for forked, *_ in made} == {"False"}


# What measures

MEASURED = """
@pytest.mark.ngraph(model="net.py:Net", batch=1, compilers=["torchscript"])
def test_it(ngraph_cell):
    assert ngraph_cell.latency.value > 0
"""
THREADS = "Path('threads').open('a').write(f'{torch.get_num_threads()} ')"


def measured(suite: Suite, *options: str) -> tuple[list[str], list[str]]:
    """Return of each process that made the model whether it was forked, and its threads: a builder and two workers."""
    skip_without("torch")
    suite.write(MEASURED)
    (suite.path / "net.py").write_text(MODEL.replace("DO", THREADS))
    suite.bare("--ngraph-protocol=quick", *options).assert_outcomes(passed=1)
    lines = (suite.path / "built").read_text().splitlines()
    return [line.split()[0] for line in lines], (suite.path / "threads").read_text().split()


def test_what_measures_is_forked_with_the_threads_that_it_is_given(suite: Suite) -> None:
    assert measured(suite, "--ngraph-threads=2") == (["True"] * 3, ["2"] * 3)


def test_a_variable_that_a_runtime_reads_as_it_starts_has_it_started(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOMP_SPINCOUNT", "1")
    assert measured(suite, "--ngraph-threads=1")[0] == ["False"] * 3


@pytest.mark.cold
def test_a_cold_test_forks_nothing(suite: Suite) -> None:
    assert measured(suite, "--ngraph-threads=1")[0] == ["False"] * 3


@pytest.mark.measures
def test_what_is_held_to_the_clock_forks_its_builders_only(suite: Suite) -> None:
    assert measured(suite, "--ngraph-threads=1")[0] == ["True", "False", "False"]


HANGING = f"""
import os
from pathlib import Path
from pytest_ngraph import Compiler, Executable

class Hanging(Compiler):
    name = "hanging"
    reads = "nothing"

    def compile(self, workload, device, options):
        Path("pid.new").write_text(f"{{os.getpid()}} {{{FORKED}}}")
        Path("pid.new").rename("pid")
        while True:
            os.kill(os.getpid(), 19)

HANGING = Hanging()
"""
HOOK = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("hanging", "hanging:HANGING")
"""


def test_a_stopped_fork_ends_with_the_run_that_asked_for_it(suite: Suite) -> None:
    suite.write('@pytest.mark.ngraph(model="block:conv")\ndef test_it(ngraph_cell):\n    ngraph_cell.latency\n')
    (suite.path / "hanging.py").write_text(HANGING)
    (suite.path / "conftest.py").write_text(HOOK)
    plugins = ("ngraph", "tests.support.undisturbed", "tests.support.workers")
    words = ["--ngraph-compiler=hanging", "--ngraph-baseline=null", *(f"-p{name}" for name in plugins)]
    with subprocess.Popen([sys.executable, "-mpytest", *words], cwd=suite.path, env={**os.environ}) as process:
        try:
            assert wait_until((suite.path / "pid").exists, 60)
            pid, is_forked = (suite.path / "pid").read_text().split()
            assert is_forked == "True"
            assert wait_until(lambda: " T " in Path(f"/proc/{pid}/stat").read_text(), 60)
        finally:
            process.send_signal(signal.SIGKILL)
    assert wait_until(lambda: gone(pid), 60)


# What is loaded

LOADED = """
import json, os, random, sys
print(json.dumps([
    sorted({"torch", "torch._inductor.compile_fx", "onnxscript", "tvm", "onnxruntime"} & sys.modules.keys()),
    len(os.listdir("/proc/self/task")), os.environ.get("GIVEN"), sys.argv, os.getcwd(), random.random()
]))
"""


@pytest.mark.parametrize(
    ("name", "loaded"),
    [
        ("null", []),
        ("onnxruntime", []),
        ("torch", ["torch"]),
        ("identity", ["torch"]),
        ("builder", ["onnxscript", "torch"]),
        ("inductor", ["torch", "torch._inductor.compile_fx"]),
        ("tvm", ["tvm"]),
    ],
)
def test_each_worker_is_forked_from_what_has_loaded_its_runtime(name: str, loaded: list[str], tmp_path: Path) -> None:
    skip_without("onnxscript", *(module for module in loaded if "." not in module))
    drawn = set()
    for _ in range(2):
        done = workers.run_code(name, LOADED, "a word", folder=tmp_path, variables={"GIVEN": name})
        assert (done.returncode, done.stderr) == (0, "")
        *found, number = json.loads(done.stdout)
        assert found == [loaded, 1, name, ["-c", "a word"], str(tmp_path)]
        drawn.add(number)
    assert len(drawn) == 2


@pytest.mark.parametrize(
    ("given", "is_alike"),
    [
        ({}, True),
        ({"OMP_NUM_THREADS": "7"}, True),
        ({"PYTHONPATH": "/elsewhere"}, False),
        ({"TORCHINDUCTOR_FREEZING": "1"}, False),
        ({"PYTHONHASHSEED": "7"}, False),
    ],
)
def test_what_would_begin_otherwise_is_not_forked(given: dict[str, str], is_alike: bool) -> None:
    assert fork_server._is_as_here({**fork_server._STARTED_WITH, "PYTHONPATH": str(ROOT), **given}) is is_alike

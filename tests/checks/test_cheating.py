"""Each of the ways to have a time that was not earned, caught by the conformance suite and by a real run."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.conftest import Suite, skip_without
from tests.support import workers

ROOT = Path(__file__).resolve().parents[2]
HOOK = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("cheat", "tests.support.cheating_compilers:COMPILER")
"""
# cheat: what the conformance suite finds.
FOUND = {
    "reference": "bind() or run() keeps what was",
    "outputs": "it works in outputs()",
    "first": "results are cached",
    "cached": "results are cached",
    "once": "bind() or run() keeps what was",
    "clock": "it replaced time.perf_counter and time.perf_counter_ns",
}


FORKING = """
from tests.support import workers

def pytest_configure():
    workers.fork_conformance()
"""


def conformance(folder: Path, compiler: str, *select: str) -> str:
    (folder / "cheats.py").write_text(HOOK + FORKING, encoding="utf-8")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "cheats", "-p", "no:cacheprovider", "--tb=short"]
    done = subprocess.run(
        [*command, "--pyargs", "pytest_ngraph.conformance", f"--ngraph-compiler={compiler}", *select],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join((str(ROOT), str(folder))),
            workers.ADDRESS: workers.FORK_SERVER.start(),
        },
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    return done.stdout + done.stderr


@pytest.mark.real
def test_conformance_has_a_case_for_every_cheat(tmp_path: Path) -> None:
    skip_without("torch")
    every = ("nothing", *FOUND)
    said = conformance(
        tmp_path,
        ",".join(f"cheat[do={cheat}]" for cheat in every),
        "-k",
        "calls_do_their_work or (test_contract and block-conv and (agrees or follows_inputs or leaves_clocks))",
    )
    failed = set(re.findall(r"^FAILED .*cheat\[do=(\w+)\]", said, re.MULTILINE))
    assert failed == set(FOUND), said
    for words in FOUND.values():
        assert words in said, said


# compiler: what it needs besides PyTorch.
HONEST = {"identity": (), "torchscript": (), "onnxruntime": ("onnxruntime",), "openvino": ("openvino",)}


@pytest.fixture(scope="module")
def said_of_the_honest(tmp_path_factory: pytest.TempPathFactory) -> str:
    """What one run says of all adapters that are installed: they share what it builds."""
    skip_without("torch")
    installed = [name for name, modules in HONEST.items() if all(map(find_spec, modules))]
    # Those of further precisions among them.
    contract = "works_when_called and (block-conv or integers or named-inputs)"
    chosen = f"calls_do_their_work or ({contract})"
    return conformance(tmp_path_factory.mktemp("honest"), ",".join(installed), "-rA", "-k", chosen)


@pytest.mark.real
@pytest.mark.parametrize("compiler", HONEST)
def test_honest_adapters_do_their_work_when_they_are_timed(said_of_the_honest: str, compiler: str) -> None:
    skip_without("torch", *HONEST[compiler])
    ended = re.findall(rf"^([A-Z]+) \S+::test_\w+\[{compiler}[]-]", said_of_the_honest, re.MULTILINE)
    assert len(ended) >= 2, said_of_the_honest
    assert set(ended) == {"PASSED"}, said_of_the_honest


MODEL = """
import torch
from torch import nn

class Model(nn.Sequential):
    def __init__(self):
        super().__init__(*[nn.Linear(256, 256) for _ in range(8)], nn.Softmax(dim=-1))

    def example_inputs(self, batch):
        return torch.randn(batch, 128, 256)
"""
GATES = """
from pytest_ngraph import assert_outputs_match

@pytest.mark.ngraph(model="model.py:Model")
def test_outputs(ngraph_cell):
    assert_outputs_match(ngraph_cell)

@pytest.mark.ngraph(model="model.py:Model")
def test_twice_as_fast(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=2)
"""
# cheat: what a run says of it; a clock that was changed is not the one that is read.
REFUSED = {
    "reference": "on inputs that it had not seen before",
    "outputs": "it works in outputs(), not in the calls that are timed",
    "first": "its calls are faster on inputs it has seen",
    "cached": "its calls are faster on inputs it has seen",
    "once": "on inputs that it had not seen before",
}


@pytest.mark.real
@pytest.mark.parametrize("protocol", ["gate", "quick"])
def test_no_cheat_passes_a_gate(suite: Suite, protocol: str) -> None:
    skip_without("torch")
    suite.write(GATES)
    (suite.path / "model.py").write_text(MODEL, encoding="utf-8")
    (suite.path / "conftest.py").write_text(HOOK, encoding="utf-8")
    names = ",".join(f"cheat[do={cheat}]" for cheat in REFUSED)
    result = suite.bare(f"--ngraph-compiler={names}", f"--ngraph-protocol={protocol}", "--ngraph-threads=1")
    said = result.stdout.str()
    failed = set(re.findall(r"^FAILED \S+::(\w+)\[.*cheat\[do=(\w+)\]", said, re.MULTILINE))
    assert failed == {(test, cheat) for test in ("test_outputs", "test_twice_as_fast") for cheat in REFUSED}, said
    for words in REFUSED.values():
        assert words in said, said


@pytest.mark.real
def test_a_changed_clock_gains_nothing_and_an_honest_adapter_is_left_alone(suite: Suite) -> None:
    skip_without("torch")
    suite.write(GATES)
    (suite.path / "model.py").write_text(MODEL, encoding="utf-8")
    (suite.path / "conftest.py").write_text(HOOK, encoding="utf-8")
    result = suite.bare("--ngraph-compiler=cheat[do=clock],cheat", "--ngraph-protocol=quick", "--ngraph-threads=1")
    said = result.stdout.str()
    assert len(re.findall(r"^PASSED \S+::test_outputs\[", said, re.MULTILINE)) == 2, said
    speedups = [float(text) for text in re.findall(r"^ +cheat\S* .* ([\d.]+)x", said, re.MULTILINE)]
    assert len(speedups) == 2, said
    assert max(speedups) < 2, said

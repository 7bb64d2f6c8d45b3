"""A red speed-up gate says what ran: what stored explanations come to, or the command that finds it out."""

from __future__ import annotations

import re
import sys

import pytest

from tests.conftest import QUICK_GATES, Suite

ADAPTERS = """
import time

from pytest_ngraph import Compiler, Executable, Option, Profile, ProfiledNode


class Waits(Executable):
    placement = {"provider": "waits"}

    def __init__(self, seconds):
        self._seconds = seconds

    def bind(self, inputs):
        pass

    def run(self):
        end = time.perf_counter() + self._seconds
        while time.perf_counter() < end:
            pass

    def outputs(self):
        return None


class Waiting(Compiler):
    name = "waiting"
    reads = "nothing"
    options = (Option("us", "1000", "Microseconds of a call", kind="int"),)

    def compile(self, workload, device, options):
        return Waits(1e-6 * options["us"])

    def explain(self, workload, device, options, executable, calls):
        conv = ProfiledNode("conv", "Conv", 9e-4)
        rest = [ProfiledNode(f"reorder{n}", "Reorder", 1e-6 * (options["us"] - 1000) / 4) for n in range(4)]
        nodes = [conv, *(rest if options["us"] > 1000 else [])]
        return Profile(nodes, 1e-6 * options["us"], calls, "its clock", names="")


WAITING = Waiting()
"""
HOOK = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("waiting", "adapters:WAITING")
"""
GATE = """
@pytest.mark.ngraph(model="block:conv")
def test_gate(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=2)
"""


@pytest.mark.real
def test_a_red_gate_names_the_command_and_then_what_it_found(suite: Suite) -> None:
    suite.write(GATE)
    (suite.path / "adapters.py").write_text(ADAPTERS)
    (suite.path / "conftest.py").write_text(HOOK)
    options = ("--ngraph-compiler=waiting[us=4000]", "--ngraph-baseline=waiting", *QUICK_GATES)
    red = suite.bare(*options)

    assert red.ret == 1
    named = "  what ran: ngraph explain 'local:waiting block:conv batch1' 'local:waiting[us=4000] block:conv batch1'"
    assert any(line.removeprefix("E").strip() == named.strip() for line in red.outlines)
    words = ("--", "test_suite.py", *options)
    (suite.path / "pytest.ini").write_text("[pytest]\naddopts = -p ngraph\n")
    made = suite.pytester.run(
        sys.executable, "-m", "pytest_ngraph.cli", "explain", "waiting block:conv", "waiting[us=4000]", *words
    )
    assert made.ret == 0, made.stderr.str()
    again = suite.bare(*options)

    # How many times slower is measured, and 4 only where nothing else has the CPUs: what is said is what was measured.
    shown = again.stdout.str()
    slower = r"what ran: waiting\[us=4000\] is ([\d.]+) times slower than waiting"
    said = re.search(slower + ": 4 reorders are 100 % of it", shown)
    assert said, shown
    speed_up = re.search(r"waiting\[us=4000\] +\d+ +([\d.]+)x +fail", shown)
    assert speed_up, shown
    assert float(said[1]) * float(speed_up[1]) == pytest.approx(1, rel=0.05)

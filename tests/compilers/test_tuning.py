"""Compilers that search before they compile: once, before any launch, with signs of life, and never silently."""

from __future__ import annotations

import json

import pytest

from tests.conftest import Suite

ADAPTER = """
import json
import os
import time
from pathlib import Path

from pytest_ngraph import CompileFailed, Compiler, Executable, Option
from pytest_ngraph.spec.cells import digest


class Tuned(Executable):
    placement = {"provider": "tuner"}

    def __init__(self, wait_ns, seconds, trials):
        self._wait_ns, self.tuning_seconds, self.tuning_trials = wait_ns, seconds, trials

    def bind(self, inputs):
        pass

    def run(self):
        end = time.perf_counter_ns() + self._wait_ns
        while time.perf_counter_ns() < end:
            pass

    def outputs(self):
        return None


class Tuner(Compiler):
    name = "tuner"
    reads = "nothing"
    named_only = True
    options = (
        Option("trials", "0", "Trials", kind="int", minimum=0),
        Option("pause", "0", "Seconds of a trial", kind="number", minimum=0),
        Option("fails", "", "Refuses to tune", kind="flag"),
        Option("dies", "", "Dies once, at its second trial", kind="flag"),
    )

    def tunes(self, options):
        return options["trials"] > 0

    def tuning_plan(self, options):
        return f"{options['trials']} trials"

    def _file(self, workload, options):
        return workload.kept.records("tuner", {"trials": options["trials"]}) / "records.json"

    def tune(self, workload, device, options, progress):
        if options["fails"]:
            raise CompileFailed("no target")
        file = self._file(workload, options)
        known = json.loads(file.read_text()) if file.exists() else []
        for trial in range(len(known), options["trials"]):
            progress("searching", trial, options["trials"])
            time.sleep(options["pause"])
            if options["dies"] and trial == 1 and not (file.parent / "died").exists():
                (file.parent / "died").touch()
                os.kill(os.getpid(), 9)
            known.append({"pid": os.getpid(), "batch": workload.spec.batch})
            file.write_text(json.dumps(known))

    def compile(self, workload, device, options):
        trials = len(json.loads(self._file(workload, options).read_text())) if options["trials"] else None
        return Tuned(50_000 if trials else 100_000, None if trials is None else 1.5, trials)


COMPILER = Tuner()
"""
HOOK = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("tuner", "tuner:COMPILER")
"""
TEST = """
@pytest.mark.ngraph(model="block:conv", batch=[1, 2])
def test_speed(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=0.01)
"""


@pytest.fixture
def tuner(suite: Suite) -> Suite:
    """A suite with a compiler that tunes."""
    (suite.path / "tuner.py").write_text(ADAPTER)
    (suite.path / "conftest.py").write_text(HOOK)
    suite.write(TEST)
    return suite


def records_of(suite: Suite) -> list[dict[str, int]]:
    """Return what the searches of a suite have left."""
    files = list((suite.path / ".ngraph" / "compiled").glob("tuner-records-*/records.json"))
    return [each for file in files for each in json.loads(file.read_text())]


def test_a_search_happens_once_before_the_launches_and_not_again(tuner: Suite) -> None:
    first = tuner.run(compiler="tuner[trials=3]")
    first.assert_outcomes(passed=2)
    # Said before it starts, with what it may cost.
    first.stdout.fnmatch_lines(["*ngraph: tuning local:tuner?trials=3? block:conv batch1*: 3 trials"])
    records = records_of(tuner)
    assert len(records) == 3
    assert len({each["pid"] for each in records}) == 1
    tuner.write(TEST.replace("[1, 2]", "[1, 2, 4]"))
    second = tuner.run(compiler="tuner[trials=3]")
    second.assert_outcomes(passed=3)
    # The batch that is new finds the search of the others.
    assert "tuning local" not in second.stdout.str()
    assert records_of(tuner) == records


def test_what_is_not_tuned_does_not_search(tuner: Suite) -> None:
    result = tuner.run(compiler="tuner")
    result.assert_outcomes(passed=2)
    assert "tuning" not in result.stdout.str()
    assert records_of(tuner) == []


def test_a_search_that_fails_is_the_outcome_of_its_cells_alone(tuner: Suite) -> None:
    result = tuner.run(compiler="tuner[trials=3,fails],tuner")
    result.assert_outcomes(passed=2, failed=2)
    result.stdout.fnmatch_lines(["*local:tuner?fails,trials=3? block:conv batch1: no target*"])


def test_a_search_that_is_killed_goes_on_in_the_next_run(tuner: Suite) -> None:
    compiler = "tuner[trials=4,dies]"
    first = tuner.run("-k", "batch1", compiler=compiler)
    first.assert_outcomes(failed=1, deselected=1)
    first.stdout.fnmatch_lines(["*crash: *SIGKILL*"])
    assert len(records_of(tuner)) == 1
    tuner.run("-k", "batch1", compiler=compiler).assert_outcomes(passed=1, deselected=1)
    pids = [each["pid"] for each in records_of(tuner)]
    assert len(pids) == 4
    assert len(set(pids)) == 2


def test_the_time_limit_is_one_between_two_signs_of_life(tuner: Suite) -> None:
    # Nine trials of a second with a limit of eight: only a search that says nothing for so long is ended.
    result = tuner.run("-k", "batch1", "--ngraph-timeout=8", compiler="tuner[trials=9,pause=1]")
    result.assert_outcomes(passed=1, deselected=1)
    silent = tuner.run("-k", "batch1", "--ngraph-timeout=8", compiler="tuner[trials=1,pause=600]")
    silent.assert_outcomes(failed=1, deselected=1)
    silent.stdout.fnmatch_lines(["*timeout: *no answer to 'tune' within 8 s*"])


def test_a_flag_takes_no_value(tuner: Suite) -> None:
    result = tuner.run(compiler="tuner[fails=1]")
    assert result.ret != 0
    result.stderr.fnmatch_lines(["*option fails='1' is not allowed (allowed: no value)*"])

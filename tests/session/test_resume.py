"""Nothing is lost: a run that is killed, interrupted or repeated keeps what it measured."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from pytest_ngraph.errors import StoreError
from pytest_ngraph.spec.cells import LaunchRecord
from pytest_ngraph.store.sqlite import Store
from tests.support.forked import FORKS
from tests.support.measuring import wait_until
from tests.support.pretended import CONFTEST

ROOT = Path(__file__).parents[2]
# As in tests/support/held.py, which is for the processes of suites: here it would change how launches are measured.
HELD = "NGRAPH_TESTS_HELD"
SUITE = """
import pytest
from pytest_ngraph import assert_rtr, assert_speedup

@pytest.mark.ngraph(model="block:conv", batches=[1, 4])
def test_batching(ngraph_batches):
    assert_rtr(ngraph_batches, batch=4, at_least=1.5)

@pytest.mark.ngraph(model="block:mha", batch=2)
def test_faster(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.3)
"""
NULL = ("--ngraph-compiler=null[fixed_us=1000,sample_us=100]", "--ngraph-baseline=null[fixed_us=2000,sample_us=200]")


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    (tmp_path / "test_suite.py").write_text(SUITE)
    return tmp_path


COMMAND = (
    sys.executable,
    "-mpytest",
    "-p",
    "no:cacheprovider",
    "-p",
    "ngraph",
    "-p",
    "tests.support.undisturbed",
    "-p",
    "tests.support.brief",
    "-p",
    "tests.support.undelayed",
    *NULL,
)


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key != "CI"}
    path = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    return {**kept, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": path}


def start(suite: Path, *options: str, held: int = 0) -> subprocess.Popen[str]:
    """Start a run; with ``held`` it stays in that launch, counted from one."""
    return subprocess.Popen(
        [*COMMAND, "-p", "tests.support.held", *options],
        cwd=suite,
        env={**environment(), HELD: str(held)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(suite: Path, *options: str) -> tuple[int, str]:
    output = suite / "output"
    with output.open("wb") as file:
        started = FORKS.popen([*COMMAND, *options], stdin=None, stdout=file, stderr=file, cwd=suite, env=environment())
        code = started.wait()
    return code, output.read_text()


def wait_until_held(suite: Path, launch: int) -> None:
    """Wait until a run is in the midst of a launch, in which it stays, and those before it are stored."""
    assert wait_until((suite / "held").exists, 180), f"no launch {launch} within three minutes"
    assert stored(suite)


def stored(suite: Path) -> list[LaunchRecord]:
    path = suite / ".ngraph/results.sqlite"
    if not path.exists() or not path.stat().st_size:
        return []
    try:
        with Store.open(path, read_only=True) as store:
            runs = store.runs()
            cells = {cell: key for run in runs for cell, key in store.cells(run.id)}
            return store.launches(cells)
    except StoreError:
        # Just being made by the run that is watched.
        return []


def measured(output: str) -> tuple[int, int]:
    """Return how many launches a run says it measured and reused."""
    match = re.search(r"measured (\d+) launch.* reused (\d+)", output)
    assert match is not None, output
    return int(match[1]), int(match[2])


def children_of(process: subprocess.Popen[str]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.real
def test_a_killed_run_loses_at_most_the_launch_in_flight_and_resume_measures_the_rest(suite: Path) -> None:
    # However much others make its launches scatter, the first look decides.
    sure = SUITE.replace("at_least=1.5", "at_least=0.0001").replace("at_least=1.3", "at_least=0.0001")
    (suite / "test_suite.py").write_text(sure)
    process = start(suite, held=3)
    wait_until_held(suite, 3)
    workers = children_of(process)
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == [], "the workers of a killed run must end with it"
    kept = stored(suite)
    assert kept

    code, output = run(suite, "--ngraph-resume")
    assert code == 0, output
    assert "resuming the run of" in output
    new, reused = measured(output)
    assert reused == len(kept)
    # Three launches for each of the two groups; what the killed run had is not measured again.
    assert new + reused >= 6
    assert new <= 6 - 2 + 2

    code, output = run(suite, "--ngraph-resume")
    assert code == 0
    assert "nothing to resume" in output
    assert measured(output)[0] == 0


@pytest.mark.real
def test_a_run_that_is_still_measuring_is_not_taken_over(suite: Path) -> None:
    quick = "--ngraph-protocol=quick"
    first = start(suite, quick, held=2)
    wait_until_held(suite, 2)
    # It waits for the device, which the first one holds.
    second = start(suite, quick, "--ngraph-resume")
    try:
        assert wait_until(lambda: len(runs(suite)) == 2 or second.poll() is not None, 180)
        assert second.poll() is None
    finally:
        first.kill()
        first.communicate()
    output, _ = second.communicate(timeout=180)
    assert second.returncode == 0, output
    assert "is still measuring, so it is not resumed" in output
    assert "nothing to resume: a new run" in output
    assert runs(suite) == ["running", "finished"]
    # That of the run that was killed stays until it is resumed.
    assert len(list((suite / ".ngraph").glob(".run-*.lock"))) == 1


def runs(suite: Path) -> list[str]:
    """Return how the runs of a suite have ended."""
    with Store.open(suite / ".ngraph/results.sqlite", read_only=True) as store:
        return [run.status for run in store.runs()]


@pytest.mark.real
def test_ctrl_c_ends_the_workers_and_keeps_what_was_measured(suite: Path) -> None:
    process = start(suite, held=2)
    wait_until_held(suite, 2)
    workers = children_of(process)
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=120)
    assert process.returncode == pytest.ExitCode.INTERRUPTED, output
    _, alive = psutil.wait_procs(workers, timeout=60)
    assert alive == []
    assert stored(suite)
    with Store.open(suite / ".ngraph/results.sqlite", read_only=True) as store:
        assert [row.status for row in store.runs()] == ["interrupted"]
    assert output.splitlines()[-1] == RESUME


RESUME = "ngraph: cut short; what was measured is kept, --ngraph-resume goes on with this run"
CUT = """
import os
import signal

def again(*_, **__):
    if os.environ.get("CUT"):
        os.kill(os.getpid(), signal.SIGINT)

if os.environ.get("CUT"):
    {hook} = again

def pytest_runtest_teardown(item):
    again()
"""


@pytest.mark.real
@pytest.mark.parametrize("hook", ["pytest_keyboard_interrupt", "pytest_sessionfinish", "pytest_terminal_summary"])
def test_a_second_ctrl_c_leaves_a_run_that_can_be_resumed(
    suite: Path, monkeypatch: pytest.MonkeyPatch, hook: str
) -> None:
    # The first comes after the first test, the second while the first is dealt with.
    (suite / "conftest.py").write_text(CUT.format(hook=hook))
    monkeypatch.setenv("CUT", "1")
    _, output = run(suite, "--ngraph-protocol=quick")
    assert RESUME in output.splitlines()
    with Store.open(suite / ".ngraph/results.sqlite", read_only=True) as store:
        assert [row.status for row in store.runs()] in (["interrupted"], ["running"])
    monkeypatch.delenv("CUT")
    code, output = run(suite, "--ngraph-protocol=quick", "--ngraph-resume")
    assert code == 0, output
    assert "resuming the run of" in output
    assert measured(output) == (1, 1)
    assert RESUME not in output


@pytest.mark.real
def test_a_run_that_stops_at_its_first_failure_has_ended(suite: Path) -> None:
    (suite / "test_suite.py").write_text(SUITE.replace("at_least=1.5", "at_least=99"))
    code, output = run(suite, "-x", "--ngraph-protocol=quick", "--ngraph-quick-gates=fail")
    assert code == 1
    assert RESUME not in output
    with Store.open(suite / ".ngraph/results.sqlite", read_only=True) as store:
        assert [row.status for row in store.runs()] == ["finished"]


@pytest.mark.real
def test_a_second_run_and_an_offline_run_give_the_same_verdicts_without_measuring(suite: Path) -> None:
    quick = "--ngraph-protocol=quick"
    code, first = run(suite, quick)
    assert code == 0, first
    for options in ((), ("--ngraph-offline",)):
        code, output = run(suite, quick, *options)
        assert code == 0, output
        assert measured(output)[0] == 0
        assert re.findall(r"verdicts: .*", output) == re.findall(r"verdicts: .*", first)


@pytest.mark.real
def test_a_fresh_start_leaves_stored_launches_out_and_says_so(suite: Path) -> None:
    quick = "--ngraph-protocol=quick"
    assert run(suite, quick)[0] == 0
    code, output = run(suite, quick, "--ngraph-fresh")
    assert code == 0
    assert measured(output) == (2, 0)
    assert "evidence was started again" in output
    assert measured(run(suite, quick)[1]) == (0, 2)


@pytest.mark.real
def test_offline_a_missing_cell_is_inconclusive_and_named(suite: Path) -> None:
    quick = "--ngraph-protocol=quick"
    assert run(suite, quick, "-k", "faster")[0] == 0
    code, output = run(suite, quick, "--ngraph-offline", "--ngraph-inconclusive=fail")
    assert code == 1
    assert "not in the store" in output
    assert "1 failed, 1 passed" in output


@pytest.mark.real
def test_offline_without_a_store_says_what_is_missing(suite: Path) -> None:
    code, output = run(suite, "--ngraph-offline")
    assert code == 1
    assert "results.sqlite" in output
    assert "Traceback" not in output


@pytest.mark.real
def test_a_changed_bound_is_judged_on_what_is_stored(suite: Path) -> None:
    (suite / "conftest.py").write_text(CONFTEST)
    assert run(suite, "-k", "faster")[0] == 0
    (suite / "test_suite.py").write_text(SUITE.replace("at_least=1.3", "at_least=2.2"))
    code, output = run(suite, "-k", "faster")
    assert code == 1
    assert "claimed at least 2.20x" in output
    # The stored launches say fail; those that confirm it are new.
    assert measured(output)[0] >= 4

"""``ngraph bisect`` over real repositories, whose calls take as long as a file of each commit says."""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.session.test_resume import HELD
from tests.support import busy_project
from tests.support.busy_project import PLAIN, slower
from tests.support.git_repository import commit, git
from tests.support.measuring import wait_until

BEHIND = (
    *("-p", "ngraph", "-p", "tests.support.undisturbed", "-p", "tests.support.brief", "-p", "tests.support.workers"),
    *("--ngraph-baseline=null", "test_suite.py"),
)
# Where one is four times as slow as another, visits count however often others had the CPUs.
UNDELAYED = (*BEHIND[:2], "-p", "tests.support.undelayed", *BEHIND[2:])


def history(suite: Suite, *microseconds: int) -> None:
    """Make commits c0, c1, ... whose calls take so long, 0 for what cannot be compiled. What is here cannot either."""
    busy_project.write(suite.path)
    suite.write(PLAIN.replace("batch=[1, 2]", "batch=1"))
    for number, each in enumerate(microseconds):
        slower(suite.path, each)
        commit(suite.path, {"notes.txt": str(number)}, f"change {number}")
        git(suite.path, "tag", f"c{number}")
    slower(suite.path, 0)


def words(*given: str, behind: tuple[str, ...] = UNDELAYED) -> list[str]:
    return [sys.executable, "-m", "pytest_ngraph.cli", "bisect", *given, "--", *behind]


def bisect(suite: Suite, *given: str, behind: tuple[str, ...] = UNDELAYED) -> tuple[int, str]:
    done = subprocess.run(words(*given, behind=behind), cwd=suite.path, capture_output=True, text=True, timeout=300)
    print(done.stdout, done.stderr)
    return done.returncode, done.stdout + done.stderr


def measured(suite: Suite) -> list[str]:
    """Return the sides of all runs there are, in order."""
    with Store.open(suite.store, read_only=True) as store:
        return [
            word.partition("=")[2] for run in store.runs() for word in run.command if word.startswith("--ngraph-side=")
        ]


def kept(suite: Suite) -> Path:
    (path,) = (suite.path / ".ngraph").glob("bisect-*.json")
    return path


def hash_of(suite: Suite, tag: str) -> str:
    return git(suite.path, "rev-parse", tag)


def test_the_first_slow_commit_is_found_past_one_that_cannot_be_compiled_and_found_again(suite: Suite) -> None:
    history(suite, 1000, 1000, 0, 1000, 4000, 4000)
    before = git(suite.path, "status", "--porcelain"), git(suite.path, "reflog")

    status, said = bisect(suite, "c0", "c5", "--report=out.html")

    assert status == 0
    assert f"first bad: {hash_of(suite, 'c4')}\n  change 4; Ann, 20" in said
    assert re.search(
        r"open: not measured \(no verdict on local:mine block:conv batch1: FAILED .*there is no speed", said
    )
    assert re.search(
        r"[0-9a-f]{7} over [0-9a-f]{7}: local:mine block:conv batch1: 0\.\d+x \[.*\] in \d+ launches", said
    )
    assert re.search(r"at most 0\.9 % that this is wrong", said)
    assert f"again: ngraph compare {hash_of(suite, 'c0')} {hash_of(suite, 'c4')} -- -p ngraph" in said
    assert "cells of run 4" in said
    assert (suite.path / "out.html").stat().st_size > 10_000
    assert measured(suite) == [hash_of(suite, tag) for tag in ("c5", "c2", "c3", "c4")]
    assert before == (git(suite.path, "status", "--porcelain").replace("\n?? out.html", ""), git(suite.path, "reflog"))

    # What was decided is not measured again, unless what it was decided by is another.
    again, repeated = bisect(suite, "c0", "c5")
    assert again == 0
    assert f"first bad: {hash_of(suite, 'c4')}\n" in repeated
    assert repeated.count("decided before") == 4
    assert len(measured(suite)) == 4

    # What this search did not write there is not used. The launches are in the store all the same.
    kept(suite).write_text('{"format": 1}')
    status, said = bisect(suite, "c0", "c5")
    assert status == 0
    assert f"{kept(suite)} is not used: it is no search of format 1; the search begins again" in said
    assert f"first bad: {hash_of(suite, 'c4')}\n" in said
    with Store.open(suite.store, read_only=True) as store:
        # But what cannot be compiled is tried again.
        assert [len(store.run_launches(run.id)) for run in store.runs()[-4:]] == [0, 1, 0, 0]


def test_a_search_that_was_killed_goes_on_where_it_was(suite: Suite) -> None:
    history(suite, 1000, 1000, 4000, 4000)
    with subprocess.Popen(
        words("c0", "c3"), cwd=suite.path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True
    ) as child:
        end = time.monotonic() + 120
        while not list((suite.path / ".ngraph").glob("bisect-*.json")):
            assert time.monotonic() < end
            assert child.poll() is None
            time.sleep(0.05)
        os.killpg(child.pid, signal.SIGKILL)
    before = len(measured(suite))

    status, said = bisect(suite, "c0", "c3")

    assert status == 0
    assert f"first bad: {hash_of(suite, 'c2')}\n" in said
    assert said.count("decided before") >= 1
    steps = json.loads(kept(suite).read_text())["steps"]
    assert [step["place"] for step in steps] == [3, 1, 2]
    # The side that was decided is in one run only.
    assert measured(suite).count(hash_of(suite, "c3")) == 1
    assert len(measured(suite)) - before <= 2


def test_an_interrupted_search_says_so_and_keeps_what_it_has(suite: Suite) -> None:
    history(suite, 1000, 4000)
    # It stays in its first launch.
    behind, held = ("-p", "tests.support.held", *UNDELAYED), {**os.environ, HELD: "1"}
    with subprocess.Popen(
        words("c0", "c1", behind=behind), cwd=suite.path, stdout=subprocess.PIPE, text=True, env=held,
        start_new_session=True,
    ) as child:  # fmt: skip
        assert child.stdout is not None
        while "measuring it against" not in child.stdout.readline():
            assert child.poll() is None
        assert wait_until((suite.path / "held").exists, 120)
        os.killpg(child.pid, signal.SIGINT)
        said = child.stdout.read()
    assert child.returncode == 130
    assert "interrupted: the same command goes on from here" in said
    assert "Traceback" not in said


@pytest.mark.parametrize(
    ("command", "number"), [("compare", signal.SIGTERM), ("bisect", signal.SIGTERM), ("compare", signal.SIGHUP)]
)
def test_a_command_that_is_terminated_leaves_nothing_measuring(suite: Suite, command: str, number: int) -> None:
    history(suite, 1000, 4000)
    behind = ("-p", "tests.support.held", *UNDELAYED)
    # Tests may run under nohup, which has the signal ignored.
    starting = f"import signal, runpy; signal.signal({number:d}, signal.SIG_DFL); "
    code = starting + "runpy.run_module('pytest_ngraph.cli', run_name='__main__')"
    with subprocess.Popen(
        [sys.executable, "-c", code, command, "c0", "c1", "--", *behind],
        cwd=suite.path, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, env={**os.environ, HELD: "1"},
    ) as child:  # fmt: skip
        started: list[psutil.Process] = []
        try:
            assert wait_until((suite.path / "held").exists, 120)
            started = psutil.Process(child.pid).children(recursive=True)
            assert any("pytest" in process.cmdline() for process in started)
            # To this process alone, as a CI service does it.
            child.send_signal(number)
            _, errors = child.communicate(timeout=120)
        except BaseException:
            # Nothing is waited for that does not end.
            running: list[Any] = [*started, child]
            for process in running:
                with contextlib.suppress(psutil.NoSuchProcess):
                    process.kill()
            raise

    assert child.returncode == 128 + number
    assert "Traceback" not in errors
    _, alive = psutil.wait_procs(started, timeout=60)
    assert alive == []
    with Store.open(suite.store, read_only=True) as store:
        assert [run.status for run in store.runs()] == ["interrupted"]


def test_where_nothing_became_slower_nothing_is_searched(suite: Suite) -> None:
    history(suite, 1000, 4000, 1000)

    status, said = bisect(suite, "c0", "c2")

    assert status == 1
    assert re.search(
        r"nothing here is slower: [0-9a-f]{7} against [0-9a-f]{7}: not measured \(no slower: unchanged", said
    )
    assert measured(suite) == [hash_of(suite, "c2")]


def test_an_end_of_which_one_cell_cannot_be_compiled_is_not_said_to_be_good(suite: Suite) -> None:
    """The other cell has a verdict; what has no time has none at all."""
    busy_project.write(suite.path)
    suite.write(PLAIN)
    commit(suite.path, {"notes.txt": "all is well"}, "good")
    git(suite.path, "tag", "good")
    adapters = (suite.path / "adapters.py").read_text()
    commit(suite.path, {"adapters.py": adapters.replace("if not MICROSECONDS", "if workload.spec.batch == 2")}, "bad")

    status, said = bisect(suite, "good", "HEAD", "--budget=3")

    assert status == 1
    assert re.search(
        r"open: not measured \(no verdict on local:mine block:conv batch2: FAILED .*there is no speed", said
    )
    assert "this machine cannot see that " in said
    assert "nothing here is slower" not in said


def test_what_is_the_same_in_every_file_is_not_measured(suite: Suite) -> None:
    history(suite, 1000, 4000)
    git(suite.path, "commit", "-q", "--allow-empty", "-m", "nothing")

    status, said = bisect(suite, "c1", "HEAD")

    assert status == 1
    assert "unchanged, every file is that of" in said
    assert "every file is the same" in said
    assert not suite.store.exists()


def test_commits_that_differ_in_nothing_that_is_measured_name_none_and_cost_no_launch(suite: Suite) -> None:
    history(suite, 1000)
    slower(suite.path, 1000)
    for number in range(1, 4):
        commit(suite.path, {"notes.txt": f"only words {number}"}, f"words {number}")

    status, said = bisect(suite, "c0", "HEAD")

    assert status == 1
    assert "nothing here is slower: " in said
    assert "unchanged" in said
    assert "nothing that is measured differs between them, so that no chance is in this" in said
    assert "first bad" not in said
    with Store.open(suite.store, read_only=True) as store:
        assert [len(store.run_launches(run.id)) for run in store.runs()] == [0]


def equal_code(suite: Suite, commits: int) -> None:
    """Add commits whose files differ in what is measured, and whose calls are as long."""
    slower(suite.path, 1000)
    for number in range(commits):
        adapters = (suite.path / "adapters.py").read_text()
        commit(suite.path, {"adapters.py": f"{adapters}\nCHANGE = {number}\n"}, f"nothing {number}")
    git(suite.path, "tag", "end")


@pytest.mark.measures
def test_equal_code_in_every_commit_is_measured_and_nothing_is_named(suite: Suite) -> None:
    """A/A: there is noise, and nothing else."""
    history(suite, 1000)
    equal_code(suite, 3)

    status, said = bisect(suite, "c0", "end", behind=BEHIND)

    assert status == 1
    assert "first bad" not in said
    assert re.search(r"nothing here is slower: [0-9a-f]{7} against [0-9a-f]{7}: local:mine block:conv batch1: ", said)
    assert re.search(r"at most 0\.3 % that what is slower by the tolerance is called so", said)
    assert "where nothing differs a commit is named in at most 1 % of searches" in said
    assert measured(suite) == [hash_of(suite, "end")]
    with Store.open(suite.store, read_only=True) as store:
        assert len(store.run_launches(store.runs()[-1].id)) >= 3


@pytest.mark.measures
def test_an_undecided_end_widens_its_budget_and_is_no_verdict(suite: Suite) -> None:
    """Of calls that are as long no number of launches shows that they differ by less than so small a tolerance."""
    history(suite, 1000)
    equal_code(suite, 1)
    behind = (*BEHIND, "--ngraph-tolerance=0.000001")

    status, said = bisect(suite, "c0", "end", "--budget=3", behind=behind)

    assert status == 1
    assert re.search(r"this machine cannot see that [0-9a-f]{7} is slower than [0-9a-f]{7}: .*in 12 launches", said)
    assert "it could have seen" in said
    assert len(measured(suite)) == 3


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("c1", "c0"), "it is the other way round"),
        (("nowhere", "c1"), "revision 'nowhere'"),
        (("c0",), "expected GOOD BAD, or NAME==FIRST..LAST"),
        (("numpy==1..2", "c1"), "releases are given as one word"),
        (("numpy==2..1",), "2 does not come before 1"),
        (("c0", "c1", "--budget=10min"), "--budget: '10min' is not allowed"),
        (("c0", "c1", "--budget=2"), "--budget: '2' is not allowed"),
        (("c0", "c1", "--error-rate=0.5"), "--error-rate: '0.5' is not allowed"),
        (("c0", "c1", "--report=out.txt"), "--report: 'out.txt' is not allowed"),
        (("c0", "c1", "--", "--ngraph-side=c1"), "--ngraph-side=c1 is for the search to say"),
        (("c0", "c1", "--", "--ngraph-store", "x"), "--ngraph-store is for the search to say"),
    ],
)
def test_what_cannot_be_searched_is_a_usage_error(
    suite: Suite,
    given: tuple[str, ...],
    said: str,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    history(suite, 1000, 4000)
    monkeypatch.chdir(suite.path)

    assert main(["bisect", *given]) == 2
    assert said in capsys.readouterr().err
    assert not suite.store.exists()


def test_tests_that_pytest_does_not_find_end_it(suite: Suite) -> None:
    history(suite, 1000, 4000)

    status, said = bisect(suite, "c0", "c1", behind=(*BEHIND[:-1], "nowhere.py"))

    assert status == 2
    assert "file or directory not found: nowhere.py" in said

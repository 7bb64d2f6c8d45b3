"""How tests are shared out: none is left out or run twice, and what is held to the clock has nothing beside it."""

from __future__ import annotations

import ast
import re
import shlex
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from pytest_ngraph import interpreter
from tests.conftest import ROOT, Suite
from tests.sharing import LONG
from tests.slow import LIST, SLOW, listed
from tests.unmarked import LEFT_OUT, heavy

CONFTEST = """
import os
import pytest
from pathlib import Path
from tests.sharing import (
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_configure_node,
    pytest_xdist_make_scheduler,
)

LOG = Path(__file__).with_name("log")

def write(*words):
    with LOG.open("a") as log:
        log.write(" ".join(map(str, words)) + "\\n")

@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item):
    name = item.name
    write(os.getpid(), "begins", name)
    if "crash" in name and not LOG.with_name("crashed").exists():
        LOG.with_name("crashed").touch()
        os._exit(3)
    yield
    write(os.getpid(), "ends", name)
    return True

def pytest_sessionfinish(session):
    if hasattr(session.config, "workerinput"):
        write(os.getpid(), "is_done", "-")
"""
INI = """
[pytest]
markers =
    measures: held to the clock
    slow: half a second
    real: a real runtime
    lab: a hub
    suites: a suite
"""

# A body of a test that fails until a folder is there, which its first try makes.
SPOILT_ONCE = "import pathlib; folder = pathlib.Path('spoilt'); folder.exists() or 1 / bool(folder.mkdir())"
# What a quick run leaves out.
QUICK = (*LEFT_OUT, SLOW)


class Event(NamedTuple):
    """What a process of pytest-xdist did."""

    pid: str
    what: str
    name: str


class Shared:
    """A suite that is run by two processes, and what they did."""

    def __init__(self, suite: Suite) -> None:
        self._suite = suite
        (suite.path / "conftest.py").write_text(CONFTEST)
        (suite.path / "pytest.ini").write_text(INI)

    def write(self, file: str, count: int, *, marker: str = "", name: str = "it", body: str = "pass") -> None:
        """Add tests to a file: ``name`` with numbers from 0 on."""
        path = self._suite.path / f"test_{file}.py"
        marked = f"@pytest.mark.{marker}\n" if marker else ""
        tests = [f"{marked}def test_{file}_{name}_{number}(): {body}\n" for number in range(count)]
        path.write_text((path.read_text() if path.exists() else "import pytest\n") + "".join(tests))

    def run(self, *options: str, processes: int | str = 2) -> pytest.RunResult:
        """Run it."""
        words = ("-p", "xdist", f"-n{processes}", "--dist=loadgroup", "-p", "no:cacheprovider", *options)
        return self._suite.pytester.runpytest_subprocess(*words)

    @property
    def events(self) -> list[Event]:
        """Return what happened, in order."""
        return [Event(*line.split()) for line in (self._suite.path / "log").read_text().splitlines()]

    @property
    def ran(self) -> Counter[str]:
        """Return how often each test was run to its end."""
        return Counter(event.name for event in self.events if event.what == "ends")

    def ran_alone(self) -> bool:
        """Tell whether what measures was begun when every other process had ended, and none began afterwards."""
        events = self.events
        first = next(number for number, event in enumerate(events) if "measures" in event.name)
        since = [event for event in events[first:] if event.what == "begins"]
        (mine,) = {event.pid for event in since}
        busy = {event.pid for event in events[:first] if event.what == "begins"} - {mine}
        done = {event.pid for event in events[:first] if event.what == "is_done"}
        return busy <= done and all("measures" in event.name for event in since)


@pytest.fixture
def shared(suite: Suite) -> Shared:
    """An empty suite."""
    return Shared(suite)


def fill(shared: Shared) -> int:
    """Write tests of all groups, files with several among them; return how many."""
    for file in "abcd":
        shared.write(file, 6)
    shared.write("a", 3, marker="measures", name="measures")
    shared.write("b", 3, marker="real", name="real")
    shared.write("c", 3, marker="lab", name="lab")
    shared.write("e", 4, marker="real", name="real")
    shared.write("f", 5, marker="measures", name="measures")
    return 6 * 4 + 3 + 3 + 3 + 4 + 5


@pytest.mark.parametrize("processes", [1, 2, 3])
def test_each_test_runs_once_and_what_measures_runs_last_and_alone(shared: Shared, processes: int) -> None:
    count = fill(shared)

    result = shared.run(processes=processes)

    result.assert_outcomes(passed=count)
    assert result.outlines[-1].startswith("=")
    assert re.search(rf" {count} passed in [\d.]+s", result.outlines[-1])
    assert set(shared.ran.values()) == {1}
    assert len(shared.ran) == count
    assert shared.ran_alone()


def test_while_there_is_both_one_process_has_what_is_real_and_the_other_the_rest(shared: Shared) -> None:
    fill(shared)

    shared.run().assert_outcomes(passed=42)

    begun = [event for event in shared.events if event.what == "begins" and "measures" not in event.name]
    first_of = {event.pid: event.name for event in reversed(begun)}
    assert sorted("real" in name for name in first_of.values()) == [False, True]


def test_the_last_of_three_begins_with_labs_and_the_others_as_two_would(shared: Shared) -> None:
    for group in ("real", "lab"):
        for number in range(3):
            shared.write(f"{group}{number}", 2, marker=group)
    for number in range(3):
        shared.write(f"rest{number}", 2)

    shared.run(processes=3).assert_outcomes(passed=18)

    begun = [event for event in shared.events if event.what == "begins"]
    first_of = {event.pid: event.name for event in reversed(begun)}
    assert sorted(name.split("_")[1][:-1] for name in first_of.values()) == ["lab", "real", "rest"]


def test_what_takes_long_is_begun_first_in_its_group(shared: Shared) -> None:
    for file in "abcd":
        shared.write(file, 6)
        shared.write(file, 2, marker="real", name="real")
    (shared._suite.path / "conftest.py").write_text(
        CONFTEST + "import tests.sharing\ntests.sharing.LONG = ['test_c.py']\n"
    )

    shared.run().assert_outcomes(passed=32)

    begun = [event for event in shared.events if event.what == "begins"]
    first_of = {event.pid: event.name for event in reversed(begun)}
    assert sorted(first_of.values()) == ["test_c_it_0", "test_c_real_0"]


def test_the_files_that_take_long_are_there() -> None:
    assert [file for file in LONG if not (ROOT / file).is_file()] == []


@pytest.mark.parametrize("files", [["f"], ["f", "a"], ["d"], ["d", "f"], ["e"]])
def test_a_few_files_are_shared_out_as_well(shared: Shared, files: list[str]) -> None:
    fill(shared)

    result = shared.run(*(f"test_{file}.py" for file in files))

    result.assert_outcomes(passed=sum({"f": 5, "a": 9, "d": 6, "e": 4}[file] for file in files))
    assert set(shared.ran.values()) == {1}
    if "f" in files:
        assert shared.ran_alone()


@pytest.mark.parametrize("options", [(), ("-n0",)], ids=["shared-out", "alone"])
@pytest.mark.parametrize("marker", LEFT_OUT)
def test_what_stands_on_launches_is_tried_once_more_where_it_fails_and_nothing_else_is(
    shared: Shared, options: tuple[str, ...], marker: str
) -> None:
    shared.write("f", 1, marker=marker, name="spoilt_once", body=SPOILT_ONCE)
    shared.write("f", 1, marker=marker, name="wrong", body="assert False")
    shared.write("a", 1, name="wrong", body="assert False")
    shared.write("a", 1, name="spoilt_once", body=SPOILT_ONCE.replace("spoilt", "pure"), marker="slow")

    result = shared.run("-p", "rerunfailures", "-rR", *options)

    assert result.parseoutcomes() == {"passed": 1, "failed": 3, "rerun": 2}
    result.stdout.fnmatch_lines_random(["RERUN test_f.py::test_f_spoilt_once_0", "RERUN test_f.py::test_f_wrong_0*"])


def test_where_more_than_a_few_need_a_second_try_the_run_fails(shared: Shared) -> None:
    most = next(word for word in command("test") if word.startswith("--max-suite-reruns="))
    limit = int(most.partition("=")[2])
    assert 1 <= limit <= 5
    for number in range(limit + 2):
        shared.write("f", 1, marker="real", name=f"x{number}", body=SPOILT_ONCE.replace("spoilt", f"spoilt{number}"))

    result = shared.run("-p", "rerunfailures", most)

    assert result.parseoutcomes() == {"passed": limit, "failed": 2, "rerun": limit}


@pytest.mark.parametrize("marker", ["", "real", "measures"])
def test_a_process_that_crashes_loses_the_test_that_it_ran_and_no_other(shared: Shared, marker: str) -> None:
    fill(shared)
    shared.write("crash", 3, marker=marker, name=f"crash_{marker}")

    result = shared.run("--max-worker-restart=1")

    result.assert_outcomes(passed=42 + 2, failed=1)
    assert set(shared.ran.values()) == {1}


def test_a_run_that_ends_at_the_first_failure_ends(shared: Shared) -> None:
    fill(shared)
    shared.write("d", 1, name="fails", body="assert False")

    result = shared.run("-x")

    assert result.ret in (pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED)
    assert result.parseoutcomes()["failed"] == 1


def test_a_name_may_hold_whatever_stands_between_groups_and_names(shared: Shared) -> None:
    shared.write("g", 0)
    path = shared._suite.path / "test_g.py"
    path.write_text(
        path.read_text() + "@pytest.mark.parametrize('x', ['a@measures', '@', ']@real', '::'])\ndef test_g(x): pass\n"
    )
    shared.write("f", 1, marker="measures", name="measures")

    shared.run().assert_outcomes(passed=5)

    assert [event.name for event in shared.events if event.what == "ends"][-1] == "test_f_measures_0"


def test_what_is_collected_is_kept_compiled_and_what_a_test_writes_is_not(
    suite: Suite, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    (suite.path / "conftest.py").write_text("from tests.bytecode import pytest_collection\n")
    suite.write("""
import importlib
import sys
from pathlib import Path

def test_it(monkeypatch, tmp_path):
    (tmp_path / "written.py").write_text("NUMBER = 1")
    monkeypatch.syspath_prepend(tmp_path)
    assert importlib.import_module("written").NUMBER == 1
    assert sys.dont_write_bytecode
    assert list(tmp_path.rglob("*.pyc")) == []
""")

    suite.pytester.runpytest_subprocess("-p", "no:cacheprovider").assert_outcomes(passed=1)

    assert [path.name.partition(".")[0] for path in suite.path.rglob("*.pyc")] == ["test_suite"]
    assert list((ROOT / "pytest_ngraph" / "devices").rglob("__pycache__/agent.*.pyc"))


# The commands of the Makefile

# What a run leaves out of what is collected.
_LEAVES_OUT = {"-k", "--deselect", "--ignore", "--ignore-glob", "--lf", "--last-failed", "--sw", "--stepwise", "-x"}


def command(target: str) -> list[str]:
    """Return the words of the pytest command that a target of the Makefile runs."""
    shown = subprocess.run(["make", "-n", target, "VENV=nowhere"], cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = (line for line in shown.stdout.splitlines() if "-m pytest" in line)
    words = shlex.split(line)
    return words[words.index("pytest") + 1 :]


def test_make_test_leaves_nothing_out() -> None:
    words = command("test")
    assert not _LEAVES_OUT.intersection(word.partition("=")[0] for word in words)
    assert "-m" not in words
    assert [word for word in words if not word.startswith("-") and "/" in word] == []
    assert "--dist=loadgroup" in words


def test_make_test_quick_leaves_out_what_is_stated_and_nothing_else() -> None:
    quick = command("test-quick")
    chosen = quick.pop(quick.index("-m") + 1)
    quick.remove("-m")
    left_out = re.findall(r"not (\w+)", chosen)

    assert quick == command("test")
    assert chosen == " and ".join(f"not {name}" for name in left_out)
    stated = (ROOT / "CONTRIBUTING.md").read_text()
    (sentence,) = re.findall(r"`make test-quick` leaves out ([^.]*)\.", stated)
    assert re.findall(r"`(\w+)`", sentence) == left_out == list(QUICK)


@pytest.mark.parametrize(
    ("command", "expected"),
    [
        ((sys.executable, "-m", "pytest", "-q"), "pytest"),
        ((sys.executable, "-mpytest_ngraph.devices.agent.child"), "-mpytest_ngraph.devices.agent.child"),
        (("/opt/bin/chromium", "--headless"), "chromium"),
        ([Path("/usr/bin/chromedriver")], "chromedriver"),
        ("pytest", "pytest"),
        ((sys.executable, "-c", "import pytest"), ""),
        (("git", "status", "-m"), ""),
    ],
)
def test_what_takes_seconds_is_known_by_its_command(command: Any, expected: str) -> None:
    assert heavy(command) == expected


def test_what_starts_a_worker_is_known_by_its_command() -> None:
    """As the package starts them, whatever its words for it are."""
    assert heavy(interpreter.command("pytest_ngraph.worker.worker", "3", "4", "5"))
    assert heavy(interpreter.command("pytest_ngraph.conformance.process", "answer"))
    assert not heavy(interpreter.command("pytest_ngraph.units"))


_STARTS = """
import subprocess, sys
import pytest

def start(): subprocess.run([sys.executable, "-m", "pytest", "--version"], check=True, capture_output=True)

@pytest.fixture
def started(): start()

def test_it(): start()
def test_by_a_fixture(started): pass
def test_nothing(): subprocess.run([sys.executable, "-c", ""], check=True)

@pytest.mark.real
def test_marked(started): start()
"""


def test_a_test_without_a_mark_that_starts_a_pytest_fails(suite: Suite) -> None:
    suite.pytester.makeini(INI)
    suite.write(_STARTS)

    result = suite.pytester.runpytest_subprocess("-p", "tests.unmarked", "-rA")

    result.assert_outcomes(passed=2, failed=1, errors=1)
    result.stdout.fnmatch_lines_random(
        ["E * Failed: it starts pytest: mark it @pytest.mark.real, so *", "FAILED *::test_it *", "ERROR *::test_by_a*"]
    )


def test_what_quick_leaves_out_is_marked_by_what_it_uses(request: pytest.FixtureRequest) -> None:
    """Of the tests of this run, which in a run of everything are all."""
    for item in request.session.items:
        marked, lab = {mark.name for mark in item.iter_markers()}, getattr(getattr(item, "module", None), "Lab", None)
        assert "suites" in marked or "pytester" not in getattr(item, "fixturenames", ()), item.nodeid
        assert "lab" in marked or getattr(lab, "__module__", "") != "tests.support.lab", item.nodeid


# What takes long

_BURNING = """
import subprocess, sys, time
import pytest

BURN = "import time\\nwhile time.process_time() < 0.6: pass"

def burn(seconds):
    end = time.process_time() + seconds
    while time.process_time() < end: pass

@pytest.fixture
def warmed(): burn(0.6)

@pytest.mark.parametrize("seconds", [0.01, 0.6])
def test_arithmetic(seconds): burn(seconds)
def test_fixture(warmed): pass
def test_child(): subprocess.run([sys.executable, "-c", BURN], check=True)
def test_swift(): pass
class TestIt:
    def test_inside(self): burn(0.6)
@pytest.mark.real
def test_marked(): burn(0.6)
"""
_NOTING = """
from pathlib import Path
from tests import slow
slow.LIST = Path(__file__).with_name("slow.txt")
from tests.slow import pytest_addoption, pytest_itemcollected, pytest_sessionstart
"""


_SLOW = [f"test_suite.py::{name}" for name in ("TestIt::test_inside", "test_arithmetic", "test_child", "test_fixture")]


def ran(suite: Suite, *options: str) -> list[str]:
    """Run a suite that notes what is slow, and return the names of what passed."""
    suite.pytester.makeini(INI)
    suite.pytester.makeconftest(_NOTING)
    result = suite.pytester.runpytest_subprocess("--strict-markers", "-rA", *options)
    return sorted(re.findall(r"^PASSED \S+::(\w+)", result.stdout.str(), re.MULTILINE))


def test_what_takes_long_is_written_down_and_then_left_out(suite: Suite) -> None:
    suite.write(_BURNING)
    kept = suite.path / "slow.txt"

    assert len(ran(suite, "--note-slow")) == 7
    assert listed(kept) == _SLOW
    assert ran(suite, "-m", "not slow") == ["test_marked", "test_swift"]
    # What is not run keeps its place.
    assert len(ran(suite, "--note-slow", "-k", "test_swift")) == 1
    assert listed(kept) == _SLOW


def test_processes_of_xdist_hand_over_what_tests_take(suite: Suite) -> None:
    suite.write(_BURNING)

    assert ran(suite, "-p", "xdist", "-n2", "-k", "swift") == ["test_swift"]
    assert not (suite.path / "slow.txt").exists()
    ran(suite, "-p", "xdist", "-n2", "--note-slow", "-k", "not marked")
    assert listed(suite.path / "slow.txt") == _SLOW


def test_the_list_of_what_takes_long_is_sorted_and_names_tests_that_are_there() -> None:
    found = listed(LIST)
    assert found
    assert found == sorted(set(found))
    for function in found:
        path, *_, name = function.split("::")
        file = ROOT / path
        is_there = file.exists() and f"def {name}(" in file.read_text(encoding="utf-8")
        assert is_there, f"{function}: not there, so take it out of tests/slow.txt"


def test_a_quick_run_has_tests_of_every_room(request: pytest.FixtureRequest) -> None:
    if [Path(argument).name for argument in request.config.args] != ["tests"]:
        pytest.skip("only a run of all rooms has them")
    rooms = {path.parent for path in (ROOT / "tests").glob("*/test_*.py")}
    quick = {item.path.parent for item in request.session.items if not any(map(item.get_closest_marker, QUICK))}
    assert rooms <= quick


@pytest.mark.parametrize("left_out", [False, True])
def test_both_parts_of_a_selection_are_everything(suite: Suite, left_out: bool) -> None:
    quick = command("test-quick")
    chosen = quick[quick.index("-m") + 1]
    names = re.findall(r"not (\w+)", chosen)
    suite.pytester.makeini(INI)
    suite.write("".join(f"@pytest.mark.{name}\ndef test_{name}(): pass\n" for name in names) + "def test_it(): pass\n")

    ids = suite.ids("-m", f"not ({chosen})" if left_out else chosen)

    assert ids == ([f"test_{name}" for name in names] if left_out else ["test_it"])


# What is held to the clock

_CLOCKS = {"monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns", "time"}
# A bound that a busy machine keeps all the same: any process may have to wait for seconds at any point.
_GENEROUS_SECONDS = 30
# What waits for something that must come, and which of their arguments is for how long.
_WAITS = {"wait_until": 1, "eventually": 2, "result": 0, "communicate": 1, "wait_procs": 1}


def is_a_duration(node: ast.expr, names: set[str]) -> bool:
    """Tell whether an expression is the difference of two readings of a clock, or a name for one."""
    if isinstance(node, ast.Name):
        return node.id in names
    if not isinstance(node, ast.BinOp) or not isinstance(node.op, ast.Sub) or not isinstance(node.left, ast.Call):
        return False
    return getattr(node.left.func, "attr", getattr(node.left.func, "id", "")) in _CLOCKS


def is_tight(bound: ast.expr) -> bool:
    """Tell whether a bound is a number of less than a few seconds; of one with a name nothing is known."""
    if any(isinstance(node, (ast.Name, ast.Call)) for node in ast.walk(bound)):
        return False
    return bool(eval(ast.unparse(bound), {"__builtins__": {}}) < _GENEROUS_SECONDS)


def tight_bounds(test: ast.AST) -> list[int]:
    """Return the lines of a test on which a duration must be less than a few seconds."""
    found, names = [], set[str]()
    for node in ast.walk(test):
        if isinstance(node, ast.Assign) and is_a_duration(node.value, set()):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
    for node in ast.walk(test):
        if isinstance(node, ast.Assert) and isinstance(node.test, ast.Compare):
            terms = [node.test.left, *node.test.comparators]
            for left, op, right in zip(terms, node.test.ops, terms[1:], strict=False):
                if isinstance(op, (ast.Lt, ast.LtE)) and is_a_duration(left, names) and is_tight(right):
                    found.append(node.lineno)
    return found


def short_waits(test: ast.AST) -> list[int]:
    """Return the lines of a test on which something that must come is waited for less than that."""
    found = []
    for node in ast.walk(test):
        if isinstance(node, ast.Call):
            place = _WAITS.get(getattr(node.func, "attr", getattr(node.func, "id", "")), 99)
            given = [*node.args[place : place + 1], *(each.value for each in node.keywords if each.arg == "timeout")]
            numbers = [each for each in given if isinstance(each, ast.Constant) and isinstance(each.value, int | float)]
            if place < 99 and any(map(is_tight, numbers)):
                found.append(node.lineno)
    return found


def true_values(test: ast.FunctionDef) -> list[int]:
    """Return the lines of suites in a test in which something that is really measured must be near a number."""
    if "pretended" in {argument.arg for argument in test.args.args}:
        return []
    return [
        node.lineno
        for node in ast.walk(test)
        if isinstance(node, ast.Constant) and re.search(r"approx\(.*(abs|rel)=", str(node.value))
    ]


def test_a_test_with_a_tight_bound_on_what_it_measures_runs_alone() -> None:
    forgotten = []
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        tree = ast.parse(path.read_text())
        if re.search(r"^pytestmark = .*\bmeasures\b", path.read_text(), re.MULTILINE):
            continue
        for test in (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)):
            if test.name.startswith("test_") and not any(
                "measures" in ast.unparse(mark) for mark in test.decorator_list
            ):
                lines = tight_bounds(test) + short_waits(test) + true_values(test)
                forgotten += [f"{path.name}:{line} {test.name}" for line in lines]

    assert forgotten == [], "mark these with @pytest.mark.measures"


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("assert time.monotonic() - began < 20", 1),
        ("assert 1 <= perf_counter() - began < 3 * 0.1", 1),
        ("took = time.monotonic() - began\n    assert took <= 2", 1),
        ("assert time.monotonic() - began < 30", 0),
        ("assert time.monotonic() - began < PATIENCE + 5", 0),
        ("assert time.monotonic() - began >= 0.3", 0),
        ("assert len(a) - b < 3", 0),
    ],
)
def test_tight_bounds_are_found(body: str, lines: int) -> None:
    assert len(tight_bounds(ast.parse(f"def test():\n    {body}"))) == lines


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("assert wait_until(lambda: found, 5)", 1),
        ("eventually('it is there', path.exists, seconds=5)", 0),
        ("eventually('it is there', path.exists, 5)", 1),
        ("assert task.result(10) == 1", 1),
        ("psutil.wait_procs(workers, timeout=5)", 1),
        ("assert wait_until(lambda: found, 60)", 0),
        ("assert wait_until(lambda: found, SECONDS)", 0),
        ("process.communicate()", 0),
    ],
)
def test_short_waits_are_found(body: str, lines: int) -> None:
    assert len(short_waits(ast.parse(f"def test():\n    {body}"))) == lines


@pytest.mark.parametrize(("fixture", "lines"), [("suite", 1), ("pretended", 0)])
def test_numbers_that_a_suite_must_measure_are_found(fixture: str, lines: int) -> None:
    near = "(2, rel=0.1)"
    (test,) = ast.parse(f"def test({fixture}):\n    {fixture}.write('assert a == approx{near}')").body
    assert isinstance(test, ast.FunctionDef)
    assert len(true_values(test)) == lines

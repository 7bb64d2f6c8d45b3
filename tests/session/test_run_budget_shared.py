"""The budget of a run whose tests are shared out to processes of pytest-xdist: all of them hold it together."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from pytest_ngraph.options.settings import Budget
from pytest_ngraph.plan.groups import Group
from pytest_ngraph.plan.items import ItemPlan
from pytest_ngraph.session.run_budget import Notes, RunBudget, path_of_notes
from tests.conftest import Suite
from tests.session.test_run_budget import Clock, groups
from tests.session.test_session import verdicts
from tests.support.pretended import CONFTEST, TWICE, Pretended

# Each launch takes ten seconds of a clock that all processes read from a file.
CLOCK = """
from types import SimpleNamespace
from pytest_ngraph.plan import costs
from pytest_ngraph.session import launcher, run_budget

NOW = Path(__file__).with_name("now")


def now():
    return float(NOW.read_text()) if NOW.exists() else 0.0


run_budget.time = SimpleNamespace(monotonic=now, time=time.time)
costs.launch_seconds = lambda *_: 10.0
costs.start_seconds = lambda *_: 100.0
measuring = launcher.Launcher.launch


def launch(self, *given, **named):
    # The device is held, so nobody else writes it; whoever reads it finds it whole.
    later = NOW.with_suffix(".later")
    later.write_text(str(now() + 10))
    later.replace(NOW)
    return measuring(self, *given, **named)


launcher.Launcher.launch = launch
"""
# The open test has its first look, then the other one is measured to its end, then the open one goes on: whatever each
# process has to wait for on a busy machine, the same launches are of the same test. Nobody holds the device meanwhile.
IN_TURN = """
reached, allowed = run_budget.RunBudget.reach, run_budget.RunBudget.allows


def wait_until(is_so):
    deadline = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < deadline, "the other process has not got on within two minutes"
        time.sleep(0.02)


def reach(self, group):
    if "test_later" in group.items[0].nodeid:
        wait_until(lambda: LOG.exists() and len(LOG.read_text().splitlines()) >= 3)
    reached(self, group)


def allows(self, group):
    if "test_open" in group.items[0].nodeid:
        wait_until(lambda: all(self._notes.is_over(other) for other, _ in self._groups if other is not group))
    return allowed(self, group)


run_budget.RunBudget.reach, run_budget.RunBudget.allows = reach, allows
"""
OPEN = """
@pytest.mark.ngraph(model="block:conv", batch=1, tolerance=1e-9, budget=16)
def test_open(ngraph_cell): assert_speedup(ngraph_cell, at_least=1.99)
"""
LATER = """
@pytest.mark.ngraph(model="block:conv", batch={batch})
def test_later_{batch}(ngraph_cell): assert_speedup(ngraph_cell, at_least=1.5)
"""
DIES = """
import os, signal

@pytest.mark.ngraph(model="block:conv", batch=2)
def test_dies(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.5)
    os.kill(os.getpid(), signal.SIGKILL)
"""


def named(count: int) -> list[Group]:
    """Return groups of one test each, as every process makes them for itself."""
    made = groups(count)
    for number, group in enumerate(made):
        group.items = [ItemPlan(f"test_{number}", group.cells, group.cells, Budget(launches=16), 0.05)]
    return made


class Process:
    """What a process of a run has: its notes, its groups and its budget."""

    def __init__(self, folder: Path, clock: Clock, seconds: float = 100.0, count: int = 2) -> None:
        self.notes, self.groups, self.over = Notes(folder, "run", clock), named(count), set[int]()
        self.budget = RunBudget(seconds, lambda group: id(group) in self.over, clock, self.notes)
        for group in self.groups:
            self.budget.expect(group, 10.0)


def test_a_run_begins_with_the_first_of_its_processes(tmp_path: Path) -> None:
    clock = Clock()
    first = Process(tmp_path, clock)
    clock.now += 60
    late = Process(tmp_path, clock)
    clock.now += 39
    assert not late.budget.is_spent
    clock.now += 1
    assert late.budget.is_spent
    assert first.budget.is_spent
    assert late.budget.why(late.groups[0]) == "the run's budget of 100 s is spent (--ngraph-run-budget)"


def test_what_others_have_reached_and_ended_keeps_no_time(tmp_path: Path) -> None:
    clock = Clock()
    one, two = Process(tmp_path, clock, seconds=60.0), Process(tmp_path, clock, seconds=60.0)
    one.budget.reach(one.groups[0])
    clock.now += 41
    # Two looks of ten seconds are kept for the other group, and 19 are left.
    assert not one.budget.allows(one.groups[0])
    two.budget.reach(two.groups[1])
    assert one.budget.allows(one.groups[0])
    clock.now += 10
    assert not one.budget.allows(one.groups[0])
    two.notes.ends("test_1")
    assert one.budget.allows(one.groups[0])


def test_waiting_for_a_device_that_another_process_holds_is_none_of_a_groups_own_time(tmp_path: Path) -> None:
    clock = Clock()
    one = Process(tmp_path, clock, seconds=60.0, count=4)
    group = one.groups[0]
    one.budget.reach(group)
    has_device = one.budget.waits(group)
    clock.now += 30
    has_device()
    clock.now += 19
    # 11 of 60 s are left and all are kept for others, but its own two looks are not over.
    assert one.budget.allows(group)
    clock.now += 2
    assert not one.budget.allows(group)


def test_a_test_whose_process_was_killed_is_over_while_the_process_is_not_waited_for(tmp_path: Path) -> None:
    mine = Process(tmp_path, Clock())
    program = (
        "import sys; from pathlib import Path; from pytest_ngraph.session.run_budget import Notes; "
        "notes = Notes(Path(sys.argv[1]), 'run'); notes.begins('test_1'); print('at it', flush=True); input()"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "at it\n"
        assert not mine.notes.is_over(mine.groups[1])
        os.kill(child.pid, signal.SIGKILL)
        # It stays as a zombie until somebody waits for it.
        os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
        assert mine.notes.is_over(mine.groups[1])
        assert not mine.notes.is_over(mine.groups[0])


def test_lines_that_are_no_notes_or_half_ones_change_nothing(tmp_path: Path) -> None:
    mine = Process(tmp_path, Clock())
    junk = [b"{", b"null", b"[1]", b'{"began": NaN}', b'{"began": -Infinity}', b'{"began": "0"}', b'{"process": []}']
    with path_of_notes(tmp_path, "run").open("ab") as file:
        file.write(b"\n".join([*junk, b"\xff\xfe", b"[" * 100_000, b'{"over": "test_0']))
    other = Process(tmp_path, Clock())
    other.notes.ends("test_1")

    assert mine.notes.began == 100.0
    assert mine.notes.is_over(mine.groups[1])
    assert not mine.notes.is_over(mine.groups[0])


def test_where_notes_cannot_be_written_a_process_keeps_to_its_own_time(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    clock = Clock()
    alone = Process(tmp_path / "file", clock)
    alone.budget.reach(alone.groups[0])
    alone.notes.ends("test_1")
    clock.now += 81
    assert not alone.budget.allows(alone.groups[0])
    clock.now += 20
    assert alone.budget.is_spent


def test_notes_that_a_killed_run_has_left_are_removed_a_week_later(tmp_path: Path) -> None:
    old, recent = path_of_notes(tmp_path, "old"), path_of_notes(tmp_path, "recent")
    for path, days in ((old, 8), (recent, 6)):
        path.write_text("")
        os.utime(path, (time.time() - days * 86400,) * 2)
    Process(tmp_path, Clock())
    assert not old.exists()
    assert recent.exists()


def test_old_notes_that_another_process_removes_first_cost_nobody_the_shared_time(tmp_path: Path) -> None:
    # What was listed is gone when it is looked at.
    path_of_notes(tmp_path, "gone").symlink_to(tmp_path / "nothing")
    one, other = Process(tmp_path, Clock()), Process(tmp_path, Clock())
    other.notes.ends("test_1")
    assert one.notes.is_over(one.groups[1])


def test_a_link_that_somebody_planted_is_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("mine")
    path_of_notes(tmp_path, "run").symlink_to(target)
    Process(tmp_path, Clock()).notes.ends("test_0")
    assert target.read_text() == "mine"


def test_a_lock_on_the_notes_is_kept_while_they_are_read(tmp_path: Path) -> None:
    mine = Process(tmp_path, Clock())
    mine.notes.begins("test_0")
    _ = mine.notes.began
    probe = (
        "import fcntl, sys; fcntl.lockf(open(sys.argv[1], 'r+'), fcntl.LOCK_EX | fcntl.LOCK_NB, 1, int(sys.argv[2]))"
    )
    words = [sys.executable, "-c", probe, str(path_of_notes(tmp_path, "run")), str(os.getpid())]
    assert subprocess.run(words, capture_output=True, check=False).returncode != 0


@pytest.fixture
def pretended(suite: Suite) -> Pretended:
    """A suite whose launches are pretended and take ten seconds of a shared clock each."""
    made = Pretended(suite.pytester)
    (made.path / "conftest.py").write_text(CONFTEST + CLOCK)
    return made


def left_behind(suite: Suite) -> list[Path]:
    return sorted((suite.path / ".ngraph").glob("run-budget-*"))


def test_two_processes_hold_one_budget_and_use_all_of_it(pretended: Pretended) -> None:
    (pretended.path / "conftest.py").write_text(CONFTEST + CLOCK + IN_TURN)
    pretended.write(OPEN + LATER.format(batch=2))

    result = pretended.bare(*TWICE, "-n2", "--ngraph-run-budget=100s", "--ngraph-inconclusive=fail", plugins="xdist")

    result.assert_outcomes(passed=1, failed=1)
    found = {row.nodeid.partition("::")[2].partition("[")[0]: row for row in verdicts(pretended)}
    assert (found["test_later_2"].verdict, found["test_later_2"].launches) == ("pass", 3)
    # As if they were measured one after the other: 30 s for the one, and all that is left for the other.
    assert (found["test_open"].verdict, found["test_open"].launches) == ("inconclusive", 7)
    assert pretended.measured == 10
    assert left_behind(pretended) == []


def test_what_replaces_a_process_that_died_gets_no_budget_of_its_own(pretended: Pretended) -> None:
    pretended.write(DIES + OPEN)

    given = ("-n1", "--ngraph-run-budget=100s", "--ngraph-inconclusive=fail")
    result = pretended.bare(*TWICE, *given, plugins="xdist")

    assert result.parseoutcomes()["failed"] == 2
    result.stdout.fnmatch_lines(["*worker 'gw0' crashed while running*test_dies*"])
    (row,) = verdicts(pretended)[-1:]
    assert "test_open" in row.nodeid
    # Three launches of the test that died, and nothing is kept for it: all of the 70 s that are left.
    assert row.launches == 7
    assert row.extra["reason"] == "the run's budget of 100 s is spent (--ngraph-run-budget)"
    assert pretended.measured == 10

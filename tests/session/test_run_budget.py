"""The budget of a run: time is kept for the gates to come, and what is left goes to those that are undecided."""

from __future__ import annotations

import pytest

from pytest_ngraph.plan.groups import Group
from pytest_ngraph.session.run_budget import RunBudget
from tests.conftest import Suite
from tests.session.test_session import SHORT, verdicts
from tests.support.measuring import cell
from tests.support.pretended import CONFTEST, TWICE, Pretended

# Each launch takes ten seconds of a clock that nothing else moves.
CLOCK = """
from types import SimpleNamespace
from pytest_ngraph.plan import costs
from pytest_ngraph.session import launcher, run_budget

now = [0.0]
run_budget.time = SimpleNamespace(monotonic=lambda: now[0])
costs.launch_seconds = lambda *_: 10.0
costs.start_seconds = lambda *_: 100.0  # what workers import costs nothing more
measuring = launcher.Launcher.launch

def launch(self, *given, **named):
    now[0] += 10.0
    return measuring(self, *given, **named)

launcher.Launcher.launch = launch
"""
TEN_SECONDS_A_LAUNCH = SHORT + CLOCK
# Passes for memory take as long, and no number of them decides a bound between 1.00 and 1.01 GB.
TEN_SECONDS_A_PASS = """
passes = []

def memory(job, cell, protocol, seed):
    now[0] += 10.0
    passes.append(cell)
    record = CompileRecord(Outcome.OK, peak_memory_bytes=10**9 + 10**7 * (len(passes) % 2), peaks=(("running", 10**9),))
    return record, record.peak_memory_bytes

local.memory_pass = memory
"""
OPEN = """
@pytest.mark.ngraph(model="block:conv", batch=1, tolerance=1e-9, budget=16)
def test_first(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.0)
"""
LATER = """
@pytest.mark.ngraph(model="block:conv", batch={batch})
def test_later_{batch}(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=0.0001)
"""
SAME = ("--ngraph-compiler=null[fixed_us=1000]", "--ngraph-baseline=null[fixed_us=1000]", "--ngraph-inconclusive=fail")


# No number of pretended launches decides a bound of 1.99.
UNDECIDABLE = """
@pytest.mark.ngraph(model="block:conv", batch=8, tolerance=1e-9, budget=16)
def test_last(ngraph_cell): assert_speedup(ngraph_cell, at_least=1.99)
"""


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def groups(count: int) -> list[Group]:
    return [Group(f"group {number}", (cell("null", batch=number + 1),)) for number in range(count)]


def test_without_a_budget_nothing_is_refused() -> None:
    clock = Clock()
    budget = RunBudget(None, lambda group: False, clock)
    (group,) = groups(1)
    clock.now = 1e9
    assert budget.allows(group)
    assert not budget.is_spent
    assert budget.why(group) == ""


def test_what_tests_to_come_need_is_kept_for_them() -> None:
    clock, over = Clock(), set[int]()
    budget = RunBudget(100.0, lambda group: id(group) in over, clock)
    first, second, third = groups(3)
    for group in (first, second, third):
        budget.expect(group, 10.0)

    budget.reach(first)
    # Two looks of ten seconds are kept for each of the two to come: 60 of the 100 are free.
    clock.now += 59
    assert budget.allows(first)
    clock.now += 1.5
    assert not budget.allows(first)
    assert not budget.is_spent
    assert budget.why(first) == (
        "what is left of the run's budget of 100 s is kept for tests to come (--ngraph-run-budget)"
    )

    over.add(id(first))
    budget.reach(second)
    assert budget.allows(second)
    clock.now += 19.4
    # Its own two looks are not over, and the last one's are kept.
    assert budget.allows(second)
    clock.now += 0.7
    assert not budget.allows(second)
    over.add(id(second))
    budget.reach(third)
    assert budget.allows(third), "what is left is for the last"
    clock.now += 100
    assert budget.is_spent
    assert budget.why(third) == "the run's budget of 100 s is spent (--ngraph-run-budget)"


def test_a_group_keeps_two_looks_of_its_own_however_little_time_there_is() -> None:
    clock = Clock()
    budget = RunBudget(30.0, lambda group: False, clock)
    first, second = groups(2)
    for group in (first, second):
        budget.expect(group, 10.0)
    clock.now += 5
    budget.reach(first)
    assert budget.allows(first)
    clock.now += 20
    assert not budget.allows(first)


def test_an_undecided_gate_leaves_the_others_their_launches_and_says_why_it_has_no_more(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(TEN_SECONDS_A_LAUNCH)
    suite.write(OPEN + LATER.format(batch=2) + LATER.format(batch=4))

    # Two launches' looks at 30 s each are kept for either of the others: 120 of 190 s, so 70 are free.
    result = suite.bare(*SAME, "--ngraph-run-budget=190s")

    result.assert_outcomes(passed=2, failed=1)
    first, *later = verdicts(suite)
    assert (first.verdict, first.launches) == ("inconclusive", 7)
    assert [(row.verdict, row.launches) for row in later] == [("pass", 3), ("pass", 3)]
    said = " ".join(result.stdout.str().split())
    assert "what is left of the run's budget of 3 min 10 s is kept for tests to come" in said
    assert "budget 16 launches, 3 min 10 s for the run" in said
    assert "what to do: run again, which goes on from the launches that are stored, or with a larger" in said


def test_what_comes_too_late_is_undecided_with_the_reason_and_the_next_run_goes_on(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(TEN_SECONDS_A_LAUNCH)
    suite.write(LATER.format(batch=1) + LATER.format(batch=2))

    result = suite.bare(*SAME, "--ngraph-run-budget=25s")

    result.assert_outcomes(passed=1, failed=1)
    said = " ".join(result.stdout.str().split())
    assert "not measured: the run's budget of 25.0 s is spent (--ngraph-run-budget)" in said
    assert "warning: that is more than the run's budget of 25.0 s" in said
    again = suite.bare(*SAME, "--ngraph-run-budget=35s")
    again.assert_outcomes(passed=2)
    again.stdout.fnmatch_lines(["measured 3 launches*reused 3 from the store*"])


def test_a_fail_that_can_no_longer_be_confirmed_is_no_fail(suite: Suite) -> None:
    (suite.path / "conftest.py").write_text(TEN_SECONDS_A_LAUNCH)
    suite.write(LATER.format(batch=1).replace("0.0001", "1.08"))

    result = suite.bare(*SAME, "--ngraph-run-budget=45s")

    result.assert_outcomes(failed=1)
    (row,) = verdicts(suite)
    assert row.verdict == "inconclusive"
    assert "the run's budget of 45.0 s is spent" in row.extra["reason"]


@pytest.fixture
def pretended(suite: Suite) -> Pretended:
    """A suite whose launches are pretended and take ten seconds each."""
    made = Pretended(suite.pytester)
    (made.path / "conftest.py").write_text(CONFTEST + CLOCK + TEN_SECONDS_A_PASS)
    return made


def test_what_a_test_measured_by_calls_keeps_no_time_once_it_is_over(pretended: Pretended) -> None:
    pretended.write(f"""
def test_calls(ngraph):
    for batch in (1, 2, 4):
        assert_speedup(ngraph.measure(model="block:conv", batch=batch), at_least=1.5)
{UNDECIDABLE}""")

    pretended.bare(*TWICE, "--ngraph-run-budget=200s").assert_outcomes(passed=1, failed=1)

    *calls, last = verdicts(pretended)
    assert [row.launches for row in calls] == [3, 3, 3]
    # Nothing is to come, so the last test may spend what is left: 110 of the 200 s.
    assert last.launches == 11
    assert last.extra["reason"] == "the run's budget of 3 min 20 s is spent (--ngraph-run-budget)"


def test_nothing_is_built_for_a_test_whose_turn_never_comes(pretended: Pretended) -> None:
    conftest = pretended.path / "conftest.py"
    conftest.write_text(f"""{conftest.read_text()}
def build(self, cells):
    print("now builds", *[cell.label for cell in cells])

launcher.Launcher.build = build
""")
    pretended.write(
        LATER.format(batch=1)
        + """
@pytest.mark.ngraph(model="block:conv", batch=2, baseline="identity")
def test_late(ngraph_cell): assert_speedup(ngraph_cell, at_least=0.5)
"""
    )

    result = pretended.bare(*TWICE, "--ngraph-run-budget=25s", "--ngraph-inconclusive=fail", "-s")

    result.assert_outcomes(passed=1, failed=1)
    assert "not measured: the run's budget of 25.0 s is spent" in " ".join(result.stdout.str().split())
    result.stdout.no_fnmatch_line("*now builds*")


def test_passes_for_memory_leave_the_others_their_time(pretended: Pretended) -> None:
    pretended.write(
        """
from pytest_ngraph import assert_memory

@pytest.mark.ngraph(model="block:conv", batch=1, tolerance=1e-9)
def test_memory(ngraph_cell): assert_memory(ngraph_cell, at_most=1.005e9)
"""
        + LATER.format(batch=2)
    )

    pretended.bare(*TWICE, "--ngraph-run-budget=160s").assert_outcomes(passed=1, failed=1)

    first, later = verdicts(pretended)
    assert first.verdict == "inconclusive"
    assert "kept for tests to come" in first.extra["reason"]
    assert (later.verdict, later.launches) == ("pass", 3)


@pytest.mark.parametrize("given", ["0", "-3min", "soon", "nan"])
def test_a_budget_of_the_run_that_is_none_is_refused(suite: Suite, given: str) -> None:
    suite.write(OPEN)

    result = suite.bare(*SAME, f"--ngraph-run-budget={given}")

    result.stderr.fnmatch_lines([f"*--ngraph-run-budget: '{given}' is not allowed (expected seconds greater than 0*"])

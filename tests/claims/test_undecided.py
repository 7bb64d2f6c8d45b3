"""A test whose gate was not decided is neither a green dot nor a failure: it has a letter and a count of its own."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET

import pytest

from tests.conftest import Suite
from tests.support.pretended import TWICE, UNDECIDABLE, Pretended, claim

WARN = ("--ngraph-inconclusive=warn", "-Wignore")
MIXED = claim(1.5).replace("test_claim", "test_decided") + UNDECIDABLE + "def test_plain(): pass\n"
# A reporter of its own, as pytest-sugar and others bring: it asks the hook, and takes what it gets.
REPORTER = """
def pytest_runtest_logreport(report): pass
class Plain:
    def __init__(self, config): self.config, self.seen = config, []
    def pytest_runtest_logreport(self, report):
        category, letter, word = self.config.hook.pytest_report_teststatus(report=report, config=self.config)
        word = word[0] if isinstance(word, tuple) else word
        if letter or word: self.seen.append(f"{category}/{letter}/{word}")
    def pytest_terminal_summary(self, terminalreporter): terminalreporter.write_line(f"seen {' '.join(self.seen)}")
def pytest_configure(config): config.pluginmanager.register(Plain(config), "plain")
"""


@pytest.fixture
def suite(suite: Suite) -> Pretended:
    return Pretended(suite.pytester)


def last(result: pytest.RunResult) -> str:
    """Return the last line without its bars and its time."""
    return re.sub(r" in [\d.]+s.*", "", result.outlines[-1].strip("= "))


def test_an_undecided_gate_is_counted_apart_and_changes_no_exit_status(suite: Pretended) -> None:
    suite.write(MIXED)

    first = suite.bare(*TWICE, *WARN)
    # What is stored is judged as before, and without lines about measuring among the letters.
    result = suite.bare(*TWICE, *WARN)

    assert last(first) == last(result) == "2 passed, 1 undecided"
    assert result.ret == pytest.ExitCode.OK
    result.stdout.fnmatch_lines(["test_suite.py .U. *"])


def test_with_v_it_is_a_word(suite: Pretended) -> None:
    suite.write(MIXED)

    result = suite.bare(*TWICE, *WARN, "-v")

    result.stdout.fnmatch_lines(["*::test_claim[[]*] UNDECIDED *", "*::test_plain PASSED *"])
    assert last(result) == "2 passed, 1 undecided"


def test_with_q_it_is_a_letter(suite: Pretended) -> None:
    suite.write(MIXED)

    first, result = suite.bare(*TWICE, *WARN, "-q"), suite.bare(*TWICE, *WARN, "-q")

    # What is said of measuring begins a line of its own.
    first.stdout.fnmatch_lines([".", "ngraph: measuring *", "U.*"])
    result.stdout.fnmatch_lines([".U. *"])
    assert last(result) == "2 passed, 1 undecided"


def test_it_is_yellow_where_there_are_colours(suite: Pretended) -> None:
    suite.write(MIXED)

    output = suite.bare(*TWICE, *WARN, "--color=yes").stdout.str()

    assert "\x1b[33mU\x1b[0m" in output
    assert re.search(r"\x1b\[33m(\x1b\[1m)?1 undecided", output)


def test_the_workers_of_xdist_hand_it_over(suite: Pretended) -> None:
    suite.write(MIXED)

    result = suite.bare(*TWICE, *WARN, "-n2", plugins="xdist")

    assert last(result) == "2 passed, 1 undecided"
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_what_the_option_makes_of_it_is_counted_as_that(suite: Pretended, choice: str) -> None:
    suite.write(UNDECIDABLE)

    assert last(suite.bare(*TWICE, f"--ngraph-inconclusive={choice}")) == f"1 {choice.replace('skip', 'skipp')}ed"


def test_for_junit_and_for_lf_it_passed(suite: Pretended) -> None:
    suite.write(MIXED)

    suite.bare(*TWICE, *WARN, "--junitxml=report.xml", plugins="junitxml cacheprovider")

    (run,) = ET.parse(suite.path / "report.xml").iter("testsuite")
    assert [run.get(name) for name in ("tests", "failures", "errors", "skipped")] == ["3", "0", "0", "0"]
    assert not (suite.path / ".pytest_cache" / "v" / "cache" / "lastfailed").exists()


def test_a_test_of_several_claims_is_undecided_where_one_is(suite: Pretended) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1, budget=4)
def test_claims(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.99, tolerance=1e-9)
    assert_speedup(ngraph_cell, at_least=1.5)
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_other(ngraph_cell): assert_speedup(ngraph_cell, at_least=1.5)
""")

    assert last(suite.bare(*TWICE, *WARN)) == "1 passed, 1 undecided"


def test_a_test_that_fails_all_the_same_has_failed(suite: Pretended) -> None:
    suite.write(UNDECIDABLE.replace("): assert", "):\n    assert") + "    assert False\n")

    assert last(suite.bare(*TWICE, *WARN)) == "1 failed"


def test_one_that_was_expected_to_fail_is_pytests_own_matter(suite: Pretended) -> None:
    suite.write("@pytest.mark.xfail" + UNDECIDABLE)

    assert last(suite.bare(*TWICE, *WARN)) == "1 xpassed"


def test_a_claim_of_a_fixture_counts_wherever_it_stands(suite: Pretended) -> None:
    suite.write("""
@pytest.fixture
def before(ngraph_cell): assert_speedup(ngraph_cell, at_least=1.99, tolerance=1e-9)
@pytest.fixture
def after(ngraph_cell):
    yield
    assert_speedup(ngraph_cell, at_least=1.99, tolerance=1e-9)
pytestmark = pytest.mark.ngraph(model="block:conv", batch=1, budget=4)
def test_before(ngraph_cell, before): pass
def test_after(ngraph_cell, after): pass
""")

    suite.bare(*TWICE, *WARN)
    result = suite.bare(*TWICE, *WARN)

    # What is over when a test ends is said of its tear-down, as an error there is.
    assert last(result) == "1 passed, 2 undecided"
    result.stdout.fnmatch_lines(["test_suite.py U.U *"])


def test_what_is_not_stored_is_undecided_offline(suite: Pretended) -> None:
    suite.write(claim(1.5))
    suite.bare(*TWICE)
    suite.write('@pytest.mark.ngraph(model="block:conv", batch=2)\ndef test_it(ngraph_cell): ngraph_cell.latency\n')

    assert last(suite.bare(*TWICE, *WARN, "--ngraph-offline")) == "1 undecided"


def test_subtests_leave_it_to_their_test(suite: Pretended) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1, budget=4)
def test_claims(ngraph_cell, subtests):
    assert_speedup(ngraph_cell, at_least=1.99, tolerance=1e-9)
    with subtests.test("a"): pass
    with subtests.test("b"): pass
""")
    if not hasattr(pytest, "Subtests"):
        pytest.skip("this pytest has no subtests")

    assert last(suite.bare(*TWICE, *WARN, plugins="subtests")).split(", ")[0] == "1 undecided"


def test_a_test_that_is_tried_again_is_what_its_last_try_was(suite: Pretended) -> None:
    pytest.importorskip("pytest_rerunfailures")
    suite.write("""
tries = []
@pytest.mark.ngraph(model="block:conv", batch=1, budget=4)
def test_claims(ngraph_cell):
    tries.append(1)
    if len(tries) == 1:
        assert_speedup(ngraph_cell, at_least=1.99, tolerance=1e-9)
        assert False
""")

    assert last(suite.bare(*TWICE, *WARN, "--reruns=2", plugins="pytest_rerunfailures")) == "1 passed, 1 rerun"


def test_a_reporter_of_another_plugin_is_given_it(suite: Pretended) -> None:
    suite.write(UNDECIDABLE)
    (suite.path / "reporter.py").write_text(REPORTER)

    suite.bare(*TWICE, *WARN, plugins="reporter").stdout.fnmatch_lines(["seen undecided/U/UNDECIDED"])


def test_what_lacks_launches_offline_is_not_said_to_need_a_larger_budget(suite: Suite) -> None:
    suite.write(UNDECIDABLE)
    suite.bare(*TWICE, *WARN)
    suite.write(UNDECIDABLE.replace("budget=4", "budget=8"))

    result = suite.bare(*TWICE, "--ngraph-offline", "--ngraph-inconclusive=fail")

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*only what is stored is judged*", "*what to do: *run without --ngraph-offline"])


def test_it_is_explained_once_and_no_warning_beside(suite: Pretended) -> None:
    suite.write(UNDECIDABLE + UNDECIDABLE.replace("test_claim", "test_other"))

    for extra in ((), ("-n2",)):
        result = suite.bare(*TWICE, "--ngraph-inconclusive=warn", "-Wdefault", *extra, plugins="xdist" if extra else "")

        assert last(result) == "2 undecided"
        output = result.stdout.str()
        assert "warnings summary" not in output
        assert output.count("the budget is spent") == output.count("what to do: ") == 1
        assert "why, of these 2: the budget is spent" in output
        assert len([line for line in result.outlines if line.startswith("INCONCLUSIVE test_suite.py::test_")]) == 2


def test_what_is_not_stored_is_explained_once(suite: Pretended) -> None:
    suite.write(claim(1.5))
    suite.bare(*TWICE)
    suite.write('@pytest.mark.ngraph(model="block:conv", batch=2)\ndef test_it(ngraph_cell): ngraph_cell.latency\n')

    result = suite.bare(*TWICE, "--ngraph-inconclusive=warn", "-Wdefault", "--ngraph-offline")

    assert last(result) == "1 undecided"
    result.stdout.fnmatch_lines(["INCONCLUSIVE test_suite.py::test_it[[]*", "    why: *"])
    assert " ".join(result.stdout.str().split()).count("not in the store") == 1


def test_warnings_of_others_stay(suite: Pretended) -> None:
    suite.write("import warnings\n" + UNDECIDABLE + "def test_plain(): warnings.warn('InconclusiveWarning: mine')\n")

    result = suite.bare(*TWICE, "--ngraph-inconclusive=warn", "-Wdefault")

    assert last(result) == "1 passed, 1 warning, 1 undecided"
    assert "UserWarning: InconclusiveWarning: mine" in result.stdout.str()


def test_options_of_pytest_take_it_as_passed(suite: Pretended) -> None:
    suite.write(UNDECIDABLE + "def test_plain(): pass\ndef test_failing(): assert False\n")
    first = suite.bare(*TWICE, *WARN, "-x", plugins="cacheprovider")

    again = suite.bare(*TWICE, *WARN, "--lf", plugins="cacheprovider")
    quiet = suite.bare(*TWICE, *WARN, "-qq", plugins="cacheprovider")

    # It stops nothing at ``-x``, and what failed last is the failing test alone.
    assert last(first) == "1 failed, 1 passed, 1 undecided"
    assert last(again) == "1 failed"
    assert "U.F" in quiet.stdout.str()

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


# Every claim that can be left open, and not only those that are judged by launches

# Every cell by itself, by a per cent a launch; the same in each run.
NOISY = (
    "wall_ns[cell] *= 1 if str(cell.compiler) in baselines else factor",
    "wall_ns[cell] *= 1 + 0.01 * __import__('random').Random(f'{number} {cell}').gauss(0, 1)",
)
NOT_TOLD_APART = ("call_seconds=", "max_error=2e-6, cosine=1.0, outputs_told_apart=False, call_seconds=")
HELPERS = """
from pytest_ngraph import (
    assert_ase, assert_faster, assert_friction, assert_latency, assert_no_slower, assert_order, assert_outputs_match,
    assert_rtr, assert_throughput,
)
cell = pytest.mark.ngraph(model="block:conv", batch=1, budget=4)
batches = pytest.mark.ngraph(model="block:conv", batches=[1, 8], budget=4)
depths = pytest.mark.ngraph(model="block:mha", depths=[1, 2, 4], batch=1, budget=4)
models = pytest.mark.ngraph(models=["block:conv", "block:mha"], batch=1, budget=4)
widths = pytest.mark.ngraph(budget=4)
FINE = {"tolerance": 1e-9}

@cell
def test_speedup(ngraph_cell): assert_speedup(ngraph_cell, at_least=2, **FINE)
@cell
def test_throughput(ngraph_cell): assert_throughput(ngraph_cell, at_least=1000, **FINE)
@cell
def test_latency(ngraph_cell): assert_latency(ngraph_cell, at_most=0.001, **FINE)
@cell
def test_percentile(ngraph_cell): assert_latency(ngraph_cell, at_most=0.00105, percentile=99)
@cell
def test_history(ngraph_cell): assert_latency(ngraph_cell, at_most="history")
@cell
def test_outputs(ngraph_cell): assert_outputs_match(ngraph_cell)
@cell
def test_outputs_within(ngraph_cell): assert_outputs_match(ngraph_cell, at_most=1e-5)
@batches
def test_rtr(ngraph_batches): assert_rtr(ngraph_batches, batch=8, at_least=8, **FINE)
@batches
def test_ase(ngraph_batches): assert_ase(ngraph_batches, batch=8, at_least=1, **FINE)
@batches
def test_bsr(ngraph_batches): assert_bsr(ngraph_batches, batch=8, at_least=1, **FINE)
@depths
def test_slope(ngraph_depths): assert_slope(ngraph_depths, at_least=0, **FINE)
@depths
def test_retention(ngraph_depths): assert_retention(ngraph_depths, at_least=1, **FINE)
@models
def test_faster(ngraph_models): assert_faster(*ngraph_models.values())
@models
def test_no_slower(ngraph_models): assert_no_slower(*ngraph_models.values(), **FINE)
@models
def test_order(ngraph_models): assert_order(ngraph_models, order=list(ngraph_models), **FINE)
@widths
def test_friction(ngraph):
    cells = ngraph.measure(model="block:conv", width=[64, 128], batch=[1, 8])
    assert_friction(cells, batch=8, at_most=0, **FINE)
"""


def changed(suite: Pretended, *changes: tuple[str, str]) -> None:
    """Change what the machine of a suite pretends."""
    conftest = suite.path / "conftest.py"
    text = conftest.read_text()
    for before, after in changes:
        assert before in text
        text = text.replace(before, after)
    conftest.write_text(text)


def undecided(result: pytest.RunResult) -> int:
    """Return how many claims are open, where there are no others."""
    (line,) = [line for line in result.outlines if line.startswith("verdicts: ")]
    counts = re.findall(r"(\d+) (inconclusive|invalid)(?:, |$)", line)
    assert "verdicts: " + ", ".join(map(" ".join, counts)) == line
    return sum(int(count) for count, _ in counts)


def test_whatever_is_claimed_it_is_undecided_alike(suite: Pretended) -> None:
    changed(suite, NOISY, NOT_TOLD_APART)
    suite.write(HELPERS)
    tests = HELPERS.count("def test_")

    result = suite.bare(*TWICE, "--ngraph-inconclusive=warn", "-Wdefault", "-v")

    lines = result.outlines
    assert sum(" UNDECIDED " in f"{line} " for line in lines) == tests
    assert last(result) == f"{tests} undecided"
    assert undecided(result) == tests
    assert "warnings summary" not in result.stdout.str()
    assert result.ret == pytest.ExitCode.OK


@pytest.mark.parametrize("choice", ["fail", "skip"])
def test_whatever_is_claimed_the_option_does_the_same_to_it(
    suite: Pretended, choice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    changed(suite, NOISY, NOT_TOLD_APART)
    suite.write(HELPERS)
    tests = HELPERS.count("def test_")

    result = suite.bare(*TWICE, f"--ngraph-inconclusive={choice}", "-rf")

    # Its numbers, what it is, and what was claimed of it.
    said = re.findall(r"^FAILED \S+ - .+?\d.*?, inconclusive: ", result.stdout.str(), re.MULTILINE)
    assert len(said) == (tests if choice == "fail" else 0)
    assert last(result) == f"{tests} {choice.replace('skip', 'skipp')}ed"
    assert undecided(result) == tests


OUTPUTS = """
from pytest_ngraph import assert_outputs_match
pytestmark = pytest.mark.ngraph(model="block:conv", batch=1)
def test_match(ngraph_cell): assert_outputs_match(ngraph_cell)
def test_within(ngraph_cell): assert_outputs_match(ngraph_cell, at_most=1e-7)
"""


def test_outputs_that_match_pass_and_those_beyond_a_bound_fail_as_claims_do(
    suite: Pretended, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "300")
    changed(suite, (NOT_TOLD_APART[0], NOT_TOLD_APART[1].replace("False", "True")))
    suite.write(OUTPUTS)

    result = suite.bare(*TWICE, "-rf", "--junitxml=report.xml", plugins="junitxml")

    assert last(result) == "1 failed, 1 passed"
    assert "verdicts: 1 pass, 1 fail" in result.outlines
    # No gate that errs by chance: what is compared is not sampled.
    assert "chance of" not in result.stdout.str()
    node = "test_suite.py::test_within[[]local-null[[]fixed_us=1000]-block:conv-batch1]"
    result.stdout.fnmatch_lines([f"FAIL {node}", "    max error 2e-06 > 1e-07, 1 launch"])
    result.stdout.fnmatch_lines([f"FAILED {node} - max error 2e-06 > 1e-07: assert_outputs*"])
    written = (suite.path / "report.xml").read_text()
    assert 'name="ngraph.1.metric" value="max_error"' in written


def test_outputs_that_were_not_told_apart_are_explained_once_with_what_helps(suite: Pretended) -> None:
    changed(suite, NOT_TOLD_APART)
    suite.write(OUTPUTS.replace("1e-7", "1e-5"))

    files = [f"--ngraph-{what}" for what in ("summary=out.md", "report=out.html", "export=out.openmetrics.txt")]

    result = suite.bare(*TWICE, "--ngraph-inconclusive=warn", "-Wdefault", *files)

    said = " ".join(result.stdout.str().split())
    assert last(result) == "2 undecided"
    assert said.count("why, of these 2: outputs of other inputs would have passed") == 1
    assert said.count("what to do: weights and inputs") == 1
    assert "max error 2e-06, claimed at most 1e-05, 1 launch" in said
    assert "not written" not in said
    assert "2 undecided" in (suite.path / "out.md").read_text()
    assert "2 are undecided" in (suite.path / "out.html").read_text()
    assert (suite.path / "out.openmetrics.txt").read_text().count("} NaN\n") == 2


def test_where_only_outputs_are_claimed_times_are_measured_all_the_same(suite: Pretended) -> None:
    changed(suite, (NOT_TOLD_APART[0], NOT_TOLD_APART[1].replace("False", "True")))
    suite.write(OUTPUTS.partition("def test_within")[0])

    result = suite.bare(*TWICE)

    assert suite.measured >= 3
    result.stdout.fnmatch_lines(["*null[[]fixed_us=1000] * pass"])


def test_a_fixture_that_is_not_stored_leaves_its_test_undecided(suite: Pretended) -> None:
    suite.write(claim(1.5))
    suite.bare(*TWICE)
    suite.write("""
@pytest.fixture
def value(ngraph_cell): return ngraph_cell.latency
@pytest.mark.ngraph(model="block:conv", batch=2)
def test_it(value): pass
""")

    warned = suite.bare(*TWICE, "--ngraph-inconclusive=warn", "-Wdefault", "--ngraph-offline")
    skipped = suite.bare(*TWICE, "--ngraph-inconclusive=skip", "-Wdefault", "--ngraph-offline")

    assert last(warned) == "1 undecided"
    assert last(skipped) == "1 skipped"

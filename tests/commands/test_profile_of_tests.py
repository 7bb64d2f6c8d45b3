"""``ngraph doctor --profile TEST``: the launch that a test of the suite would have, without running the test."""

from __future__ import annotations

import sys

import pytest

from pytest_ngraph.cli import main
from tests.conftest import Suite

GATES = """
@pytest.mark.ngraph(model="block:conv", batch=[1, 2])
def test_gate(ngraph_cell):
    raise AssertionError("no test runs")

@pytest.mark.ngraph(model="block:mha", batch=4)
def test_other(ngraph_cell):
    raise AssertionError("no test runs")

def test_plain():
    raise AssertionError("no test runs")
"""
INI = """
[pytest]
addopts = {addopts}
ngraph_compiler = null[fixed_us=500]
ngraph_baseline = null[fixed_us=700]
ngraph_protocol = quick
"""


def profile(suite: Suite, *words: str, addopts: str = "") -> pytest.RunResult:
    # As the plugin is installed, but with no other plugin.
    (suite.path / "pytest.ini").write_text(INI.format(addopts=f"-p ngraph {addopts}"))
    suite.write(GATES)
    return suite.pytester.run(sys.executable, "-m", "pytest_ngraph.cli", "doctor", *words)


def lines(result: pytest.RunResult) -> list[str]:
    """What is printed, without the note that the device waits for a test of another process."""
    return [line for line in result.outlines if "waiting for device" not in line]


def rows(result: pytest.RunResult) -> dict[str, list[str]]:
    return {words[0]: words[1:] for line in result.outlines if (words := line.split())}


@pytest.mark.real
def test_the_launch_of_a_test_is_profiled_by_the_options_that_its_run_has(suite: Suite) -> None:
    result = profile(suite, "--profile", "test_suite.py::test_other")

    assert result.ret == 0, result.stderr.str()
    assert lines(result)[0] == "profile     one launch of local block:mha: 1 test, 2 cells"
    found = rows(result)
    assert {"[fixed_us=500]", "[fixed_us=700]"} <= set(result.stdout.str().split())
    # Two cells for four blocks of quick, 0.05 s each and some calls before them.
    assert 0.3 < float(found["visits"][0]) < 2
    assert "no test runs" not in result.stdout.str()
    assert not (suite.path / ".ngraph" / "results.sqlite").exists()


@pytest.mark.real
def test_tests_behind_the_dashes_are_chosen_as_pytest_chooses_them(suite: Suite) -> None:
    given = (
        "--profile",
        "--",
        "-k",
        "gate or plain",
        "--ngraph-protocol=gate",
        "--ngraph-compiler=null[sample_us=300]",
    )
    result = profile(suite, *given)

    assert result.ret == 0, result.stderr.str()
    # Batches are groups of their own, and each has the second process of its baseline under gate.
    assert lines(result)[:2] == [
        "profile     one launch of local block:conv: 1 test, 3 cells",
        "  these tests need launches of 2 groups, and this is of the first: name one test",
    ]
    assert "[sample_us=300]" in result.stdout.str()


@pytest.mark.real
def test_an_ini_file_that_asks_for_processes_of_xdist_changes_nothing(suite: Suite) -> None:
    pytest.importorskip("xdist")
    result = profile(suite, "--profile", "test_suite.py::test_other", addopts="-p xdist.plugin -n 2")

    assert result.ret == 0, result.stderr.str()
    assert lines(result)[0] == "profile     one launch of local block:mha: 1 test, 2 cells"
    assert "total" in rows(result)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["test_suite.py::test_plain"], "none of these tests measures anything here"),
        (["test_suite.py::test_nothing"], "pytest collected no test to profile (exit status 4)"),
        (["--", "-k", "nothing"], "none of these tests measures anything here"),
        (["--", "--ngraph-batch=none"], "pytest collected no test to profile (exit status 4)"),
        (["--", "--ngraph-compiler=nul"], "pytest collected no test to profile (exit status 4)"),
        (
            ["block:conv", "--", "test_suite.py"],
            "--profile block:conv: a model, with pytest's 'test_suite.py' behind --",
        ),
        (
            ["test_suite.py::test_gate", "--profile-batches=4"],
            "--profile-batches: tests say what they measure (expected it with a model, or --ngraph-batch behind --)",
        ),
    ],
)
def test_what_cannot_be_profiled_is_an_error_that_says_why(suite: Suite, words: list[str], said: str) -> None:
    result = profile(suite, "--profile", *words)

    assert result.ret == 2
    assert f"ngraph doctor: {said}" in result.stderr.str()
    assert "Traceback" not in result.stderr.str() + result.stdout.str()


def test_a_file_that_cannot_be_collected_is_shown_as_pytest_shows_it(suite: Suite) -> None:
    suite.write("import nowhere_to_be_found", "test_broken.py")

    result = profile(suite, "--profile", "test_broken.py::test_gate")

    assert result.ret == 2
    assert "pytest collected no test to profile" in result.stderr.str()
    assert "nowhere_to_be_found" in result.stdout.str()


def test_tests_without_profile_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--", "tests"]) == 2
    assert "'tests' behind --: only --profile takes tests" in capsys.readouterr().err

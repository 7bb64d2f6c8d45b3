"""Two revisions measured against each other, neither of which is what is here."""

from __future__ import annotations

import re

import pytest

from tests.conftest import Suite
from tests.front.test_against import OPTIONS, rows_of
from tests.support import busy_project
from tests.support.busy_project import PLAIN, slower
from tests.support.git_repository import commit, git


@pytest.fixture
def history(suite: Suite) -> Suite:
    """Revisions quick (1000 us), slow (5000 us) and likewise (as slow), and what is here cannot be compiled."""
    busy_project.write(suite.path, 1000)
    suite.write(PLAIN.replace("batch=[1, 2]", "batch=1"))
    for tag in ("quick", "slow", "likewise"):
        slower(suite.path, 1000 if tag == "quick" else 5000)
        commit(suite.path, {"notes.txt": tag}, tag)
        git(suite.path, "tag", tag)
    slower(suite.path, 0)
    return suite


def test_two_revisions_are_compared_with_one_another_and_not_with_what_is_here(history: Suite) -> None:
    result = history.bare(
        *OPTIONS, "--ngraph-side=slow", "--ngraph-against=quick", "--ngraph-gate-changes", "--ngraph-export=out.csv"
    )

    result.assert_outcomes(failed=1)
    result.stdout.fnmatch_lines(["*assert_no_slower: throughput of *block:conv batch1* over quick@*", "*fail: 0.??x*"])
    assert "there is no speed" not in result.stdout.str()
    sides = {row["side"].partition("@")[0] for row in rows_of(history.path / "out.csv") if row["metric"] == "change"}
    assert sides == {"slow"}


def test_two_revisions_that_are_the_same_as_each_other_are_not_measured(history: Suite) -> None:
    words = (*OPTIONS, "--ngraph-side=likewise", "--ngraph-gate-changes")

    same = history.bare(*words, "--ngraph-against=slow")
    always = history.bare(*words, "--ngraph-quick-gates=show", "--ngraph-against=slow,always")

    same.assert_outcomes(passed=1)
    assert "measured 0 launches (0 calls)" in same.stdout.str()
    same.stdout.fnmatch_lines(["*against slow@*: 1 cell unchanged"])
    assert "measured 0 launches" not in always.stdout.str()
    assert "unchanged" not in always.stdout.str()


def test_a_side_is_not_compared_with_itself(history: Suite) -> None:
    result = history.bare(*OPTIONS, "--ngraph-side=slow", "--ngraph-against=slow,always")

    assert result.ret == pytest.ExitCode.USAGE_ERROR
    said = result.stdout.str() + result.stderr.str()
    assert re.search(r"slow@\w{7} is measured against itself: --ngraph-side and --ngraph-against name one side", said)

"""The first judgement of a gate fixes its plan: another budget on the same launches is said where the verdict is."""

from __future__ import annotations

import contextlib
from pathlib import Path

import numpy as np
import pytest

from pytest_ngraph.claims.assertions import assert_speedup
from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.claims.plans import FRESH
from pytest_ngraph.front.ci import properties
from pytest_ngraph.front.summary.verdicts import verdict_lines
from pytest_ngraph.report.html.content import verdict_rows
from pytest_ngraph.report.results.verdicts import family_line
from pytest_ngraph.stats import CONFIRMING_LAUNCHES, Bound, looks_for, spending
from pytest_ngraph.store.sqlite import Store
from tests.claims.test_claims import Laboratory, speedups
from tests.conftest import Suite
from tests.golden.store_content import change
from tests.report.test_report_content import content
from tests.support.pretended import TWICE, Pretended
from tests.support.simulator import Gates, falls_short, two_stages

# By a budget of 8 the first three launches fail 1.0, barely, and four more confirm it.
BARELY = (0.9615, 0.965, 0.9685, 0.950, 0.954, 0.958, 0.954)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def claim(lab: Laboratory, bound: float = 1.0, **how: object) -> str:
    """Begin a run, claim a speed-up, and return the verdict's plan note."""
    with contextlib.suppress(AssertionError):
        assert_speedup(lab.run(**how), at_least=bound)  # type: ignore[arg-type]
    return str(lab.kept[-1].extra["plan"])


def test_another_budget_turns_fails_into_passes_on_the_same_launches() -> None:
    """Why it has to be said: the rates at a true -2.5 %, the smaller of two scatters first."""
    rng, count = np.random.default_rng(5), 60_000
    bound, looks = Bound(1.0, at_least=True, tolerance=0.05, scale="log"), looks_for(8, 0.05)
    for scatter, rates in ((0.01, (0.15, 0.40)), (0.02, (0.02, 0.14))):
        values = scatter * rng.standard_normal((count, 16 + CONFIRMING_LAUNCHES)) - 0.025
        some = Gates(values, np.zeros_like(values), np.ones(count))
        first = two_stages(some, bound, looks, spending(ALPHA, looks, 8))
        for launches in (3, 4, 6, 12, 16):
            others = looks_for(launches, 0.05)
            again = two_stages(some, bound, others, spending(ALPHA, others, launches))
            turned, fails = int((first.failed & again.passed).sum()), first.fails
            assert not falls_short(turned, fails, rates[0])
            assert falls_short(turned, fails, rates[1])


def test_the_same_plan_is_no_other_plan(lab: Laboratory) -> None:
    lab.script = speedups(*BARELY)
    assert claim(lab) == claim(lab) == claim(lab, offline=True) == ""
    assert [row.verdict for row in lab.kept] == ["fail"]


def test_a_budget_of_wall_time_is_looked_at_as_the_default_of_sixteen_launches(lab: Laboratory) -> None:
    lab.script = speedups(*BARELY, *[0.98] * 20)
    assert claim(lab, budget="10min") == claim(lab, budget="16") == claim(lab, budget="10min") == ""


def test_another_budget_is_said_with_what_the_first_plan_said(lab: Laboratory) -> None:
    lab.script = speedups(*BARELY, *[0.98] * 20)
    claim(lab)
    note = "another plan than its first: up to 16 launches now, up to 8 when it was first judged, fail"
    assert claim(lab, budget="16") == note
    # For good, and offline, too: it does not become the first by being repeated.
    assert claim(lab, budget="16") == note
    assert claim(lab, budget="16", offline=True) == note
    assert claim(lab) == ""


def test_another_error_rate_is_another_plan_and_asks_for_more(lab: Laboratory) -> None:
    lab.script = speedups(*BARELY, *[0.955, 0.965] * 10)
    assert claim(lab, error_rate=0.001) == ""
    strict = lab.kept[-1]
    note = "another plan than its first: an error rate of 0.01 now, 0.001 when it was first judged, fail"
    assert claim(lab) == note
    usual = lab.kept[-1]
    assert (strict.verdict, usual.verdict) == ("fail", "fail")
    assert strict.launches > usual.launches
    assert (strict.extra["error_rate"], usual.extra["error_rate"]) == (0.001, 0.01)
    # What a run says of all its gates goes by the rate of each.
    assert "at most 0.046 %" in family_line([usual])
    assert "at most 0.0046 %" in family_line([strict])


@pytest.mark.parametrize("budget", ["8", "16"])
def test_a_gate_that_was_judged_when_four_launches_confirmed_says_so(lab: Laboratory, budget: str) -> None:
    """A verdict of before names no confirmation, and its fails were looked at once; what it said stays as it was."""
    lab.script = speedups(*BARELY, *[0.98] * 20)
    claim(lab)
    (before,) = lab.kept
    assert before.extra["confirmation"] == "4, 6, 8 or 12"
    change(lab.store, "UPDATE verdicts SET extra = json_remove(extra, '$.confirmation')")
    more = {"8": ("", ""), "16": ("up to 16 launches and ", "up to 8 and ")}[budget]
    note = (
        f"another plan than its first: {more[0]}confirmed by 4, 6, 8 or 12 fresh ones now, {more[1]}confirmed by 4 "
        "when it was first judged, fail"
    )
    assert claim(lab, budget=budget) == note
    assert claim(lab, budget=budget, offline=True) == note
    assert note in lab.kept[-1].extra["message"]
    with Store.open(lab.store, read_only=True) as store:
        first = store.verdicts(store.runs()[0].id)[0]
    assert (first.verdict, first.extra["reason"]) == (before.verdict, before.extra["reason"])


def test_a_pass_by_another_plan_is_shown_wherever_a_verdict_is(lab: Laboratory) -> None:
    lab.script = speedups(*BARELY, *[0.98] * 20)
    claim(lab, 0.97)
    assert [row.verdict for row in lab.kept] == ["pass"]
    assert verdict_lines(lab.kept) == ["verdicts: 1 pass"]
    claim(lab, 0.97, budget="16")
    (row,) = lab.kept
    assert row.verdict == "pass"
    said = "another plan than its first: up to 16 launches now, up to 8 when it was first judged, pass"
    lines = " ".join(" ".join(verdict_lines(lab.kept)).split())
    assert lines.startswith("PASS")
    assert said in lines
    assert lines.endswith("verdicts: 1 pass")
    assert dict(properties([row]))["ngraph.1.plan"] == said
    assert said in row.extra["message"]
    (shown,) = verdict_rows(content(verdicts=(row,)))
    assert shown["reason"] == said


def test_another_bound_tolerance_or_test_is_another_claim(lab: Laboratory) -> None:
    lab.script = speedups(*BARELY, *[0.98] * 20)
    claim(lab)
    assert claim(lab, 0.5, budget="16") == ""
    assert claim(lab, tolerance=0.1, budget="16") == ""
    assert "tolerance 0.1: passes above 0.9)" in lab.kept[-1].claim


def test_new_evidence_is_a_new_gate(lab: Laboratory) -> None:
    lab.script = speedups(*BARELY, *[0.98] * 20)
    claim(lab)
    with Store.open(lab.store) as store:
        keys = [key for run in store.runs() for _, key in store.cells(run.id)]
        store.start_epoch(dict.fromkeys(keys))
    assert claim(lab, budget="16") == ""
    assert claim(lab).startswith("another plan than its first: up to 8 launches now, up to 16 when")


@pytest.mark.parametrize("plugins", ["", "xdist"])
def test_plans_are_marked_in_a_run(suite: Suite, plugins: str) -> None:
    pretended = Pretended(suite.pytester)
    pretended.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_it(ngraph_cell): assert_speedup(ngraph_cell, at_least=1.5)
""")
    parallel = ("-n2",) if plugins else ()
    marks = []
    for options in ((), ("--ngraph-budget=8",), ("--ngraph-fresh",)):
        result = pretended.bare(*TWICE, *options, *parallel, "--junitxml=report.xml", plugins=plugins)
        result.assert_outcomes(passed=1)
        marks.append(((pretended.path / "report.xml").read_text(), " ".join(result.stdout.str().split())))
    assert "ngraph.1.plan" not in marks[0][0]
    assert "another plan than its first: up to 8 launches now" in marks[1][0]
    assert "another plan than its first: up to 8 launches now" in marks[1][1]
    assert f'name="ngraph.1.plan" value="{FRESH}"' in marks[2][0]
    assert "another plan" not in marks[2][1]

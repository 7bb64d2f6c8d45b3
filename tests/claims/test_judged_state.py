"""In which state of the machine a gate is judged: the usual one where that can be had, and what is said elsewhere."""

from __future__ import annotations

import csv
import itertools
from pathlib import Path
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.claims.assertions import assert_latency, assert_speedup
from pytest_ngraph.front.ci import properties
from pytest_ngraph.front.summary.notes import state_lines
from pytest_ngraph.front.summary.verdicts import verdict_lines
from pytest_ngraph.machine import facts
from pytest_ngraph.plan.groups import launch_seconds
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export.tables import write_export
from pytest_ngraph.report.html.content import verdict_rows
from pytest_ngraph.report.results.cells import cell_reports
from pytest_ngraph.spec.cells import PROTOCOLS, LaunchRecord, Reading, Workload
from pytest_ngraph.spec.states import alike, dwell_seconds, name_of, same_state, state_named, state_words, wanted_states
from pytest_ngraph.store.sqlite import Store
from tests.claims.test_claims import AWAY, BLOCK, HOME, Laboratory, Made
from tests.report.test_report_content import content

THIRD = Reading(200_000, (360,))


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def away(speedup: float) -> Made:
    return Made(speedup, readings=((AWAY, AWAY),) * 8)


def first_run(lab: Laboratory) -> None:
    """Let the store know that HOME is the usual state."""
    lab.script = [Made(1.2)] * 3
    assert_speedup(lab.run(), at_least=1.0)
    assert lab.kept[-1].extra["state"] == "100us/360ns"


def another_gate(lab: Laboratory, at_least: float = 1.0, **how: object) -> Estimate:
    """Judge a gate on cells that the first run did not have."""
    return assert_speedup(lab.run_all([Workload(BLOCK, 4)], **how)[0], at_least=at_least)  # type: ignore[arg-type]


def test_a_gate_is_judged_in_the_usual_state_though_others_came_first(lab: Laboratory) -> None:
    first_run(lab)
    lab.script += [away(0.9), away(0.9), away(0.9), Made(1.2), Made(1.21), Made(1.2)]
    estimate = another_gate(lab)
    assert (estimate.launches, lab.launched) == (3, 9)
    assert estimate.value == pytest.approx(1.2, rel=0.01)
    # Each of its launches waited for that state, from the first on.
    assert lab.states[3:] == [(HOME,)] * 6
    (row,) = lab.kept
    assert row.extra["state"] == "100us/360ns (usual)"
    assert row.extra["notes"] == []
    assert ", 3 launches, state 100us/360ns (usual)" in row.extra["message"]
    assert another_gate(lab) == another_gate(lab, offline=True) == estimate


def test_a_verdict_from_another_state_says_so_and_by_how_much_they_differ(lab: Laboratory) -> None:
    first_run(lab)
    lab.script += [Made(1.5), *[away(1.2)] * 6]
    estimate = another_gate(lab)
    assert estimate.value == pytest.approx(1.2)
    (row,) = lab.kept
    words = "100us/720ns (not the usual 100us/360ns)"
    note = f"judged in another state of the machine: {words}; there it is 1.50x in 1 launch, 20.0 % less here"
    assert row.extra["state"] == words
    assert row.extra["notes"] == [note]
    assert note in row.extra["message"]
    # A pass, and it is shown.
    assert row.verdict == "pass"
    assert note in " ".join(" ".join(verdict_lines(lab.kept)).split())
    assert dict(properties([row]))["ngraph.1.state"] == words
    (shown,) = verdict_rows(content(verdicts=(row,)))
    assert (shown["state"], shown["reason"]) == (words, note)


def test_a_percentile_is_not_held_against_the_mean_of_another_state(lab: Laboratory) -> None:
    first_run(lab)
    lab.script += [Made(1.5), *[away(1.2)] * 6]
    assert_latency(lab.run_all([Workload(BLOCK, 4)])[0], percentile=80, at_most=1.0)
    (row,) = lab.kept
    assert row.extra["notes"] == ["judged in another state of the machine: 100us/720ns (not the usual 100us/360ns)"]


def test_launches_that_come_later_in_the_usual_state_change_no_verdict(lab: Laboratory) -> None:
    first_run(lab)
    lab.script += [away(1.2)] * 6
    live = another_gate(lab)
    note = lab.kept[-1].extra["notes"][0]
    assert "there it is" not in note
    # The next gate of the same cells is open, and takes launches; the machine is back.
    lab.script += [Made(1.5)] * 30
    with pytest.raises(AssertionError):
        another_gate(lab, at_least=1.21, tolerance=1e-9)
    again = another_gate(lab)
    assert again == live
    assert lab.kept[-1].extra["state"] == "100us/720ns (not the usual 100us/360ns)"


def test_a_failing_gate_waits_for_the_usual_state_to_be_confirmed(lab: Laboratory) -> None:
    first_run(lab)
    lab.script += [Made(0.9), away(1.2), Made(0.91), Made(0.9), away(1.2), *[Made(0.9)] * 4]
    with pytest.raises(AssertionError, match=r"fail: 0\.90x, .*, 7 launches, state 100us/360ns \(usual\); the first 3"):
        another_gate(lab)


@pytest.mark.parametrize(("seconds", "share"), [(40.0, 1 / 4), (1.0, 1.0)])
def test_a_machine_that_stays_in_its_states_is_waited_for_a_quarter_of_a_launch(
    lab: Laboratory, monkeypatch: pytest.MonkeyPatch, seconds: float, share: float
) -> None:
    passed = itertools.count()
    monkeypatch.setattr(facts, "time", SimpleNamespace(monotonic=lambda: next(passed) * seconds))
    first_run(lab)
    # Nothing was known of the machine before.
    assert lab.patience[0] == pytest.approx(launch_seconds(lab.plans[0], PROTOCOLS["gate"], {}))
    lab.script += [Made(1.2)] * 3

    another_gate(lab)

    assert lab.patience[3] == pytest.approx(share * launch_seconds(lab.plans[3], PROTOCOLS["gate"], {}))


@pytest.mark.parametrize(
    ("launches", "dwell"),
    [
        ([], 0.0),
        ([(10.0, [(HOME, HOME)])], 10.0),
        ([(10.0, [(HOME, HOME), None, (HOME, HOME)]), (30.0, [])], 40.0),
        # Within a block, between two, and between two launches.
        ([(10.0, [(HOME, AWAY), (AWAY, AWAY)])], 10.0),
        ([(10.0, [(HOME, AWAY), (HOME, HOME)])], 5.0),
        ([(10.0, [(HOME, HOME)]), (10.0, [(AWAY, AWAY)]), (10.0, [(HOME, HOME)])], 15.0),
    ],
)
def test_how_long_a_machine_stays_in_a_state(
    launches: list[tuple[float, list[tuple[Reading, Reading] | None]]], dwell: float
) -> None:
    assert dwell_seconds(launches) == dwell


def test_what_is_usual_is_what_was_seen_most(lab: Laboratory) -> None:
    lab.script = [*[Made(1.2)] * 3, *[away(1.2)] * 6]
    assert_speedup(lab.run(), at_least=1.0)
    another_gate(lab)
    with Store.open(lab.store) as store:
        facts = store.runs()[-1].environment
        assert store.states("local", {"node": facts["node"]}) == [AWAY] * 6 + [HOME] * 3
        assert store.states("local", {"node": facts["node"]}, most=2) == [AWAY] * 2
        assert store.states("local", {"node": "another"}) == []
        assert store.states("orin", {"node": facts["node"]}) == []
        assert store.dwell_seconds("local", {"node": facts["node"]}) < 60
        assert store.dwell_seconds("local", {"node": "another"}) == 0
    lab.script += [Made(1.2)] * 3 + [away(1.2)] * 3
    assert_speedup(lab.run_all([Workload(BLOCK, 2)])[0], at_least=1.0)
    assert lab.kept[-1].extra["state"] == "100us/720ns (usual)"


def test_a_state_can_be_chosen_and_that_is_said(lab: Laboratory) -> None:
    first_run(lab)
    lab.script += [Made(1.5), away(0.99), away(1.0), away(1.0)]
    lab.state = state_named("100us/720ns")
    estimate = another_gate(lab)
    assert estimate.value == pytest.approx(1.0, abs=0.01)
    assert lab.states[3:] == [(AWAY,)] * 4
    assert lab.kept[-1].extra["state"] == "100us/720ns (chosen)"


def test_without_the_kernel_there_is_no_state(lab: Laboratory) -> None:
    first_run(lab)
    lab.script += [Made(1.2, readings=(None,) * 8)] * 3
    assert another_gate(lab).launches == 3
    (row,) = lab.kept
    assert row.extra["state"] == ""
    assert "ngraph.1.state" not in dict(properties([row]))


def test_a_quick_launch_asks_for_no_state(lab: Laboratory) -> None:
    first_run(lab)
    lab.state = THIRD
    lab.script += [Made(1.2, readings=(None,) * 4)]
    another_gate(lab, protocol="quick")
    assert lab.states[-1] == ()


def test_the_state_is_a_column_of_exports_and_a_line_of_the_table(lab: Laboratory, tmp_path: Path) -> None:
    first_run(lab)
    lab.script += [away(1.2)] * 6
    another_gate(lab)
    with Store.open(lab.store) as store:
        reports = cell_reports(store, store.runs()[-1].id)
    assert {report.state for report in reports} == {"100us/720ns (not the usual 100us/360ns)"}
    write_export(reports, tmp_path / "table.csv", "gate")
    rows = list(csv.DictReader((tmp_path / "table.csv").read_text().splitlines()))
    assert {row["state"] for row in rows} == {"100us/720ns (not the usual 100us/360ns)"}
    assert state_lines(reports) == ["  state 100us/720ns (not the usual 100us/360ns): 2 cells"]


# The choice itself


def launches(*homes: Reading | None, usual: Reading | None = HOME) -> list[LaunchRecord]:
    return [LaunchRecord(number, 0, "gate", home=home, usual=usual) for number, home in enumerate(homes)]


READINGS = st.lists(st.sampled_from([HOME, AWAY, THIRD, None]), max_size=20)


@given(READINGS, st.sampled_from([HOME, AWAY, THIRD, None]))
def test_a_launch_that_is_added_never_changes_a_choice_that_was_made(
    homes: list[Reading | None], usual: Reading | None
) -> None:
    """Live the launches come one by one; stored they are all there."""
    found, decided = launches(*homes, usual=usual), None
    for count in range(len(homes) + 1):
        now = same_state(found[:count], waits=True)
        if decided is not None:
            assert [one for one in now if one.number < decided[0]] == decided[1]
        elif len(now) >= 3:
            decided = (count, now)


@given(READINGS, st.sampled_from([HOME, AWAY, THIRD]))
def test_what_is_judged_is_of_one_state_and_another_needs_six(homes: list[Reading | None], usual: Reading) -> None:
    judged = same_state(launches(*homes, usual=usual), waits=True)
    assert len({one.home for one in judged}) <= 1
    is_told = bool(homes) and homes[0] is not None
    if judged and is_told and judged[0].home is not None and not alike(judged[0].home, usual):
        assert len(judged) >= 6
    if is_told and homes.count(usual) >= 3 and not any(homes.count(one) >= 6 for one in homes if one != usual):
        assert {one.home for one in judged} == {usual}


def test_as_long_as_it_is_open_the_usual_state_is_wanted() -> None:
    assert wanted_states([], HOME) == (HOME,)
    assert wanted_states(launches(AWAY, AWAY)) == (HOME,)
    assert wanted_states(launches(*[AWAY] * 6)) == (AWAY,)
    assert wanted_states(launches(HOME, HOME, HOME, *[AWAY] * 6)) == (HOME,)
    assert wanted_states(launches(None, None)) == ()


def test_what_only_reads_shows_another_state_rather_than_nothing() -> None:
    found = launches(AWAY, AWAY)
    assert same_state(found) == found
    assert same_state(found, waits=True) == []
    assert same_state(launches(AWAY, HOME, AWAY))[0].home == HOME


def test_a_state_has_a_name_that_can_be_given_back() -> None:
    for reading in (HOME, AWAY, Reading(75_000), Reading(75_000, (360, 720))):
        assert state_named(name_of(reading)) == reading
    assert name_of(Reading(75_400, (361,))) == "75us/361ns"
    assert state_words(HOME, None) == "100us/360ns"
    assert state_words(Reading(101_000, (365,)), HOME) == "100us/360ns (usual)"

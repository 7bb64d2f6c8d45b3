"""One engine judges live launches, those a later run finds, and those that are read from the store alone."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as how_often
from hypothesis import strategies as st

from pytest_ngraph.claims.decide import Decision, decide
from pytest_ngraph.claims.percentiles import decide_percentile
from pytest_ngraph.errors import ClaimError
from pytest_ngraph.machine.facts import Company
from pytest_ngraph.quantities.quantity import CellFailed, NotStored, Quantity
from pytest_ngraph.quantities.sweeps import Measurement
from pytest_ngraph.report.results.cells import cell_reports
from pytest_ngraph.report.results.stored import Judged, Stored
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, LaunchRecord, Outcome, Reading, Visit, Workload
from pytest_ngraph.spec.states import Fruitless, fruitless_of
from pytest_ngraph.stats import Bound, Verdict
from pytest_ngraph.store.sqlite import Store
from tests.claims.test_claims import AT_LEAST_1, AWAY, BLOCK, FAST, HOME, OPEN, SLOWER, Laboratory, Made, speedups

Judge = Callable[[Quantity], Decision]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


def live(lab: Laboratory, metric: str, judge: Judge, *, offline: bool = False) -> Decision | None:
    """Begin a run and judge in it; None where there is nothing to judge."""
    try:
        return judge(lab.run(offline=offline).quantity(metric))
    except NotStored:
        return None


def stored(lab: Laboratory, metric: str, judge: Judge) -> Decision | None:
    """Judge what the last run used, from the store alone."""
    with Store.open(lab.store, read_only=True) as store:
        run = store.runs()[-1]
        baselines = store.baselines(run.id)
        for related in store.related(dict(store.cells(run.id))):
            for cell in related.cells:
                if cell.compiler == FAST:
                    measurement = Measurement(Judged(related, PROTOCOLS["gate"], 2, 8), cell, baselines[cell])
                    try:
                        return judge(measurement.quantity(metric))
                    except NotStored:
                        return None
    return None


def told(decision: Decision | None) -> tuple[str, ...]:
    """Return what must agree; a number that is none equals itself in words."""
    if decision is None:
        return ("not stored",)
    one = decision.estimate
    numbers = (one.value, one.low, one.high, one.launches, decision.smallest_visible)
    return (decision.verdict.value, *map(repr, numbers), decision.noise, repr(decision.state))


def by(bound: Bound) -> Judge:
    return lambda quantity: decide(quantity, bound, 0.05)


# The same launches

MADE = st.builds(
    Made,
    speedup=st.sampled_from((0.8, 0.801, 0.95, 0.99, 1.0, 1.01, 1.2, 1.21)),
    fastest=st.sampled_from((None, None, None, 0.7, 1.3)),
    twin=st.sampled_from((1.0, 1.0, 1.01, 1.2)),
    invalid=st.sampled_from(("", "", "", "steal")),
    readings=st.sampled_from(
        (((HOME, HOME),) * 8, ((HOME, HOME),) * 8, ((AWAY, AWAY),) * 8, (*((HOME, HOME),) * 5, *((AWAY, AWAY),) * 3))
    ),
    outcome=st.sampled_from((Outcome.OK, Outcome.OK, Outcome.OK, Outcome.UNSTABLE)),
)


@dataclass(frozen=True)
class Shared(Made):
    """A launch beside others. In these blocks the visits to the cell, or to all, wait for half of their time."""

    waiting: tuple[int, ...] = ()
    all_wait: bool = False
    beside: float | None = None

    def visit(self, cell: Cell, block: int) -> Visit:
        one = super().visit(cell, block)
        waits = block in self.waiting and (self.all_wait or cell.compiler == FAST)
        walls = tuple(2 * wall if waits else wall for wall in one.wall_ns)
        delays = tuple(wall // 2 if waits else 0 for wall in walls)
        return replace(one, wall_ns=walls, cpu_ns=one.wall_ns, run_delay_ns=delays)

    def others_cpus(self, cell: Cell) -> float | None:
        return self.beside if cell.compiler == FAST else 0.7


SHARED = st.builds(
    Shared,
    speedup=st.sampled_from((0.8, 0.801, 0.95, 1.0, 1.2, 1.21)),
    twin=st.sampled_from((1.0, 1.0, 1.01, 1.2)),
    invalid=st.just(Company("other processes kept 0.9 of 2 CPUs busy")),
    waiting=st.sampled_from(((), (1, 4), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5), tuple(range(8)))),
    all_wait=st.booleans(),
    beside=st.sampled_from((None, 0.7, 0.7, 2.0)),
)
STEADY, SHAKEN = Reading(150_000, (290,)), Reading(225_000, (290,))


@dataclass(frozen=True)
class Disturbed(Made):
    """A launch in which calls take half as long again in some blocks of the cell, and in others of the rest."""

    of_cell: tuple[int, ...] = (1, 4)
    of_others: tuple[int, ...] = (2,)

    def visit(self, cell: Cell, block: int) -> Visit:
        is_shaken = block in (self.of_cell if cell.compiler == FAST else self.of_others)
        walls = [round(wall * (1.5 if is_shaken else 1.0)) for wall in self.wall_ns(cell, block)]
        return Visit(
            self.together, tuple(walls), cpu_ns=tuple(walls), around=((STEADY, SHAKEN if is_shaken else STEADY),)
        )


DISTURBED = st.builds(
    Disturbed,
    speedup=st.sampled_from((0.8, 0.801, 0.95, 1.0, 1.05, 1.2, 1.21)),
    twin=st.sampled_from((1.0, 1.0, 1.01, 1.2)),
    of_cell=st.sampled_from(((1,), (0, 1, 2, 3, 4), (0, 1, 2, 3, 4, 5), tuple(range(8)))),
    of_others=st.sampled_from(((2,), (2,), (1, 2, 3, 5))),
)
CLAIMS = st.sampled_from(
    (
        ("latency", by(Bound(0.020, False, 0.05, "log"))),
        ("speedup", by(AT_LEAST_1)),
        ("speedup", by(Bound(0.9, False, 0.05, "log"))),
        ("speedup", by(Bound(1.0, True, 0.0, "log", is_strict=True))),
        ("throughput", by(Bound(100.0, True, 0.05, "log"))),
        ("latency", lambda quantity: decide_percentile(quantity, 80, Bound(0.010, False, 0.05, "log"), 0.05)),
    )
)
PLACES = itertools.count()


@how_often(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.one_of(MADE, SHARED, DISTURBED), min_size=1, max_size=12), st.lists(CLAIMS, min_size=1, max_size=2))
def test_what_is_stored_is_judged_as_it_was_live(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    script: Sequence[Made],
    claims: Sequence[tuple[str, Judge]],
) -> None:
    """The second claim finds what the first one left, which may be more than it needs."""
    folder = tmp_path / str(next(PLACES))
    folder.mkdir()
    lab = Laboratory(folder, monkeypatch)
    lab.script = [*script, *[script[-1]] * 60]
    for metric, judge in claims:
        measured = live(lab, metric, judge)
        assert told(measured) == told(stored(lab, metric, judge)) == told(live(lab, metric, judge, offline=True))


# What had drifted


def test_a_confirmed_fail_is_estimated_by_all_launches_that_it_rests_on(lab: Laboratory) -> None:
    lab.script = speedups(*SLOWER, 0.80, 0.81, 0.82, 0.83)
    decision = lab.decide()
    found = stored(lab, "speedup", by(AT_LEAST_1))
    assert found is not None
    assert (found.verdict, found.estimate.launches) == (Verdict.FAIL, 7)
    # That of the first look alone is 0.90 [0.87, 0.94].
    assert found.estimate == decision.estimate
    assert found.estimate.low < 0.82 < found.estimate.value < 0.9 < found.estimate.high
    assert found.reason == decision.reason == "the first 3 launches said fail, 4 fresh ones confirmed it"


def test_a_violated_control_makes_a_fail_invalid_that_is_not_confirmed(lab: Laboratory) -> None:
    lab.script = [Made(value, twin=1.2) for value in (*SLOWER, 1.2, 1.2, 1.2, 1.2)]
    decision = lab.decide()
    found = stored(lab, "speedup", by(AT_LEAST_1))
    assert found is not None
    assert decision.verdict is found.verdict is Verdict.INVALID
    assert found.reason == decision.reason
    assert "the control is violated" in found.reason


@pytest.mark.parametrize("before", [[], speedups(*SLOWER), speedups(*OPEN[:3])])
def test_a_group_that_was_given_up_is_invalid(lab: Laboratory, before: list[Made]) -> None:
    lab.script = [*before, *[Made(invalid="steal")] * 3]
    decision = lab.decide()
    found, offline = stored(lab, "speedup", by(AT_LEAST_1)), live(lab, "speedup", by(AT_LEAST_1), offline=True)
    assert found is not None
    assert decision.verdict is found.verdict is Verdict.INVALID
    assert told(found) == told(decision) == told(offline)
    assert found.reason == decision.reason
    assert "3 launches do not count, and no further one was tried: steal" in found.reason


def test_launches_of_another_state_are_judged_where_a_run_judges_them(lab: Laboratory) -> None:
    lab.script = speedups(1.2, 1.2, 1.2)
    lab.decide()
    # Of other cells; the store knows by now what is usual.
    lab.script += [Made(1.2, readings=((AWAY, AWAY),) * 8)] * 6
    decision = decide(lab.run_all([Workload(BLOCK, 4)])[0].quantity("speedup"), AT_LEAST_1, 0.05)
    found = stored(lab, "speedup", by(AT_LEAST_1))
    assert (decision.verdict, decision.state) == (Verdict.PASS, AWAY)
    assert told(found) == told(decision)


# What a reader of the store says where there is nothing to judge

A, B = Cell("local", FAST, Workload(BLOCK, 1)), Cell("local", FAST, Workload(BLOCK, 2))


def launch(number: int, *cells: Cell, invalid: str = "", home: Reading | None = HOME) -> LaunchRecord:
    prepared = dict.fromkeys(cells, CompileRecord(Outcome.OK))
    visits = {} if invalid else {(cell, 0): Visit(1, (10_000_000,) * 9) for cell in cells}
    return LaunchRecord(number, 0, "gate", prepared, visits, invalid, home=home, usual=HOME)


def test_three_launches_in_a_row_that_do_not_count_are_enough() -> None:
    bad = launch(1, A, invalid="steal")
    assert fruitless_of([bad, bad], [A]) == Fruitless(["steal", "steal"], is_given_up=False)
    assert fruitless_of([bad, bad, bad], [A]).is_given_up
    assert not fruitless_of([bad, bad, launch(2, A), bad], [A]).is_given_up
    # Those of other cells are no attempt at this one.
    assert fruitless_of([bad, bad, bad], [A, B]) == Fruitless([], is_given_up=False)


def test_six_launches_in_a_row_in_another_state_are_enough() -> None:
    away = launch(1, A, home=AWAY)
    usual = [launch(number, A) for number in range(3)]
    assert not fruitless_of([*usual, *[away] * 5], [A]).is_given_up
    found = fruitless_of([*usual, *[away] * 6], [A])
    assert found.is_given_up
    assert found.reasons == ["measured in another state of the machine (arithmetic 100 us, CPU to CPU 720 ns)"] * 6
    # Six of one other state are judged, where there are none of the usual one.
    assert not fruitless_of([away] * 6, [A]).is_given_up


def test_launches_without_a_state_that_serve_nothing_do_not_count() -> None:
    usual = [launch(number, A) for number in range(3)]
    assert fruitless_of([*usual, *[launch(4, A, home=None)] * 3], [A]).is_given_up


def test_a_cell_whose_latest_preparation_failed_has_no_verdict(lab: Laboratory) -> None:
    lab.script = speedups(1.2, 1.2, 1.2)
    lab.decide()
    with Store.open(lab.store) as store:
        run = store.runs()[-1]
        ((cell, key),) = [(cell, key) for cell, key in store.cells(run.id) if cell.compiler == FAST]
        broken = store.start_launch(
            run.id, group="g", number=9, seed=9, protocol=PROTOCOLS["gate"], order=[], environment={}
        )  # fmt: skip
        store.add_prepared(broken, cell, key, CompileRecord(Outcome.MISMATCH, "wrong outputs"))
        store.finish_launch(broken)
    for judge in (stored, lambda *claim: live(*claim, offline=True)):
        with pytest.raises(CellFailed, match="mismatch: wrong outputs"):
            judge(lab, "speedup", by(AT_LEAST_1))


def test_reports_show_what_is_not_judged(lab: Laboratory) -> None:
    """A launch that does not count is no sample of a report, though claims hear of it."""
    lab.script = [*speedups(1.2), *[Made(5.0, invalid="steal")] * 3]
    lab.decide()
    with Store.open(lab.store) as store:
        run = store.runs()[-1]
        (report,) = [one for one in cell_reports(store, run.id) if one.cell.compiler == FAST]
        assert report.estimates["speedup"].launches == 1
        assert report.estimates["speedup"].value == pytest.approx(1.2)
        (related,) = store.related(dict(store.cells(run.id)))
        assert [one.invalid for one in related.finished] == ["", "steal", "steal", "steal"]
        assert [len(one.visits) > 0 for one in related.finished] == [True, False, False, False]
        source = Stored(related.timed, related.memory, PROTOCOLS["gate"], 2)
        assert len(Measurement(source, report.cell, report.cell).quantity("latency").rows()) == 1


def test_nothing_is_measured_from_the_store() -> None:
    source = Stored([launch(1, A)], [], PROTOCOLS["gate"], 2)
    quantity = Measurement(source, A, A).quantity("latency")
    assert source.one_more(quantity) is False
    with pytest.raises(ClaimError, match="is read from the store; claims are made in tests"):
        _ = quantity.measurer
    with pytest.raises(NotStored):
        replace(quantity, cells=(B,), subject=B).rows()

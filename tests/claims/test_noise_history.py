"""``--ngraph-noise-history``: how a gate's launches scattered in earlier runs decides it sooner, and for good."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from pathlib import Path

import pytest

from pytest_ngraph.claims.assertions import assert_speedup
from pytest_ngraph.devices import local
from pytest_ngraph.machine import facts as environment
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from tests.claims.test_claims import AWAY, HOME, Laboratory, Made, speedups

# By themselves these say too little after three launches, and enough after four.
NOW = (1.010, 0.990, 1.000, 0.9999)
STEADY = (1.004, 0.996, 1.0)


class Codes(Laboratory):
    """A laboratory whose code may be changed: then nothing that was measured before counts any more."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(folder, monkeypatch)
        self.code = 0
        own = local.LocalBench.keys

        def keys(bench: local.LocalBench, cells: Sequence[Cell]) -> dict[Cell, str | None]:
            return {cell: None if key is None else f"{key}{self.code}" for cell, key in own(bench, cells).items()}

        monkeypatch.setattr(local.LocalBench, "keys", keys)

    def measure(self, *values: float, bound: float = 1.0, made: Sequence[Made] = (), **how: object) -> VerdictRow:
        """Claim a speed-up in a new run, further launches of which would come out like this. Return the verdict."""
        self.script = [*self.script[: self.launched], *(made or speedups(*values))]
        with contextlib.suppress(AssertionError):
            assert_speedup(self.run(**how), at_least=bound)  # type: ignore[arg-type]
        return self.kept[-1]

    def past(self, runs: int = 3, values: Sequence[float] = STEADY, made: Sequence[Made] = ()) -> None:
        """Measure other code in so many runs, as far as a first look needs."""
        for _ in range(runs):
            self.code += 1
            self.measure(*values, bound=0.5, made=made)
        self.code += 1


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Codes:
    return Codes(tmp_path, monkeypatch)


def test_what_earlier_runs_know_of_the_noise_decides_a_gate_sooner(lab: Codes) -> None:
    lab.past()
    alone = lab.measure(*NOW)
    lab.code += 1
    lab.noise_history = True
    known = lab.measure(*NOW)

    assert (alone.verdict, alone.launches, alone.extra["notes"]) == ("pass", 4, [])
    assert "noise_history" not in alone.extra
    assert (known.verdict, known.launches) == ("pass", 3)
    # The three runs before, and the four launches that were judged by themselves.
    assert known.extra["notes"] == [
        "judged by the scatter of 4 earlier runs, too: 0.57 %, here 1 % (--ngraph-noise-history)"
    ]
    assert known.extra["noise_history"][1:] == [9, 4]
    assert known.low is not None
    assert known.low > 0.95
    assert "note: judged by the scatter of 4 earlier runs" in known.extra["message"]


def test_launches_that_scatter_more_than_they_did_are_judged_by_themselves(lab: Codes) -> None:
    lab.past()
    wild = (1.04, 0.96, 1.0, 1.03, 0.97, 1.02, 0.98, 1.0)
    lab.noise_history = True
    known = lab.measure(*wild)
    lab.code += 1
    lab.noise_history = False
    alone = lab.measure(*wild)

    assert (known.verdict, known.launches, known.low, known.high) == ("pass", 8, alone.low, alone.high)
    assert (alone.verdict, alone.launches) == ("pass", 8)
    assert known.extra["notes"] == ["launches scatter by 2.9 %, in 3 earlier runs by 0.4 %: judged by themselves"]


def test_a_fail_is_confirmed_by_fresh_launches_alone(lab: Codes) -> None:
    lab.past()
    lab.noise_history = True
    slower = (0.96, 0.95, 0.955)
    # The scatter of the first four is not shown to exceed what is known, and with that they would say the opposite
    # (-0.033 +- 0.011, all of it better than the edge). By themselves they say nothing, and six of them confirm it.
    fresh = (0.95911, 0.97514, 0.96176, 0.97425, 0.94980, 0.98560)
    row = lab.measure(*slower, *fresh, budget="16")

    assert (row.verdict, row.launches) == ("fail", 9)
    assert row.extra["reason"] == "the first 3 launches said fail, 6 fresh ones confirmed it"


def test_judging_again_comes_to_the_same_whatever_was_measured_since(lab: Codes) -> None:
    lab.past()
    lab.noise_history = True
    first, code = lab.measure(*NOW), lab.code
    lab.past(runs=5, values=(1.05, 0.95, 1.0))
    lab.code = code

    assert lab.measure() == first
    assert lab.measure(offline=True) == first
    assert first.extra["plan"] == ""


def test_with_and_without_are_two_plans_and_so_is_a_history_that_was_pruned(lab: Codes) -> None:
    lab.past()
    lab.measure(*NOW)
    lab.noise_history = True
    words = "with the noise of 3 earlier runs now, without the noise of earlier runs when it was first judged, pass"
    assert lab.measure().extra["plan"] == f"another plan than its first: {words}"

    lab.code += 1
    lab.measure(*NOW)
    lab.noise_history = False
    words = "without the noise of earlier runs now, with the noise of 4 earlier runs when it was first judged, pass"
    assert lab.measure(0.9999).extra["plan"] == f"another plan than its first: {words}"

    with Store.open(lab.store) as store:
        store.prune([run.id for run in store.runs()][:1], None, dry_run=False)
    lab.noise_history = True
    words = "with the noise of 3 earlier runs now, with the noise of 4 earlier runs when it was first judged, pass"
    assert lab.measure().extra["plan"] == f"another plan than its first: {words}"


@pytest.mark.parametrize("what", ["two runs", "another machine", "another state", "another protocol"])
def test_what_says_too_little_or_was_measured_otherwise_is_no_history(
    lab: Codes, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    if what == "two runs":
        lab.past(runs=2)
    elif what == "another machine":
        facts = environment.describe()
        with monkeypatch.context() as elsewhere:
            elsewhere.setattr(environment, "describe", lambda *_: {**facts, "node": "elsewhere"})
            lab.past()
    elif what == "another state":
        lab.past(runs=8, made=[Made(value, readings=((AWAY, AWAY),) * 8) for value in STEADY])
    else:
        for _ in range(3):
            lab.code += 1
            lab.measure(1.0, protocol="quick")
        lab.code += 1
    lab.noise_history = True
    made = [Made(value, readings=((HOME, HOME),) * 8) for value in (*NOW, *NOW)]
    lab.state = HOME
    row = lab.measure(made=made)

    assert (row.verdict, row.launches, row.extra["notes"]) == ("pass", 4, [])
    assert "noise_history" not in row.extra

"""Gates on a machine that others disturb for some visits: judged by those for which it was steady, live and stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_ngraph.spec.cells import Cell, Reading, Visit
from pytest_ngraph.stats import Bound
from tests.claims.test_claims import FAST, Laboratory, Made
from tests.claims.test_one_engine import by, live, stored, told
from tests.claims.test_shared import by_all


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    return Laboratory(tmp_path, monkeypatch)


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


def test_a_gate_is_decided_by_the_visits_for_which_the_machine_was_steady(lab: Laboratory) -> None:
    """Three visits of eight to the cell are slow, more than a trimmed mean forgives."""
    lab.script = [Disturbed(value, of_cell=(1, 4, 6)) for value in (1.2, 1.21, 1.19)]
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("pass", 3)
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)


# In two blocks of eight the machine is steady for both cells, less than is worth a launch. In two others the cell alone
# is slow, and in one what it is compared with.
FEW = Disturbed(4.0, of_cell=(0, 1, 2, 3, 4), of_others=(1, 2, 3, 5))
NOTED = "the machine was steady in fewer than 3 blocks of {}: there, unsteady visits count too"


def test_where_fewer_than_three_blocks_are_steady_all_visits_count_and_the_verdict_says_so(lab: Laboratory) -> None:
    """Of the six middle contrasts five are those of equal visits, and one is of the cell's slow one alone."""
    lab.script = [replace(FEW, speedup=value) for value in (4.0, 4.02, 3.98, 4.0, 4.01)]
    decision = by_all(lab)
    assert decision.verdict == "pass"
    assert decision.estimate.value == pytest.approx(4.0 / 1.5 ** (1 / 6), rel=0.01)
    assert decision.notes == (NOTED.format(f"{lab.launched} of {lab.launched} launches"),)


def test_a_launch_with_few_steady_blocks_counts_beside_those_that_have_more(lab: Laboratory) -> None:
    lab.script = [FEW, Made(4.0), Disturbed(4.0, of_cell=(1, 4, 6)), *[Made(4.0)] * 3]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches) == ("pass", lab.launched)
    assert decision.notes == (NOTED.format(f"1 of {lab.launched} launches"),)


def test_launches_in_which_the_machine_was_hardly_steady_decide_nothing_wrongly(lab: Laboratory) -> None:
    """The cell is slow in six blocks of eight of every third launch, and the others in three of them.

    Nothing but that its launches scatter tells such a neighbour, who comes while the cell runs, from the cell itself.
    """
    lab.script = [Disturbed(1.0, of_cell=(0, 1, 2, 3, 4, 5), of_others=(0, 1, 2)), Made(1.0), Made(1.0)] * 6
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("inconclusive", 8)
    assert decision.notes[0] == NOTED.format("3 of 8 launches")


@pytest.mark.parametrize("metric", ["latency", "throughput", "cpu_percent"])
def test_a_time_by_itself_needs_steady_visits(lab: Laboratory, metric: str) -> None:
    """All visits would say that it takes 1.4 times as long, in launch after launch: a fail that is confirmed."""
    few = Disturbed(1.0, of_cell=(0, 1, 2, 3, 4, 5), of_others=(0, 1, 2, 3, 6, 7))
    lab.script = [few] * 3
    judge = by(Bound(1e9, False, 0.05, "log"))
    decision = live(lab, metric, judge)
    assert decision is not None
    assert told(decision) == told(stored(lab, metric, judge))
    assert (decision.verdict, lab.launched) == ("invalid", 3)
    assert decision.reason == (
        "the last 3 launches say nothing of it: the machine was not steady around 6 visits; fewer than 3 others are "
        "left, which a time by itself needs"
    )


def test_launches_in_which_a_time_had_no_steady_visits_are_replaced(lab: Laboratory) -> None:
    few = Disturbed(1.0, of_cell=(0, 1, 2, 3, 4, 5), of_others=(0, 1, 2, 3, 6, 7))
    lab.script = [Made(1.0), few, few, Made(1.0), Made(1.0)]
    decision = live(lab, "latency", by(Bound(0.0105, False, 0.05, "log")))
    assert decision is not None
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 5)

"""Gates on a machine that others disturb for some visits: judged by those for which it was steady, live and stored."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from pytest_ngraph.spec.cells import Cell, Reading, Visit
from tests.claims.test_claims import FAST, Laboratory, Made
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
        return Visit(self.together, tuple(walls), around=((STEADY, SHAKEN if is_shaken else STEADY),))


def test_a_gate_is_decided_by_the_visits_for_which_the_machine_was_steady(lab: Laboratory) -> None:
    """Three visits of eight to the cell are slow, more than a trimmed mean forgives."""
    lab.script = [Disturbed(value, of_cell=(1, 4, 6)) for value in (1.2, 1.21, 1.19)]
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("pass", 3)
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)


# Of this in each launch two blocks have a steady machine for both cells, less than is worth a launch.
FEW = Disturbed(4.0, of_cell=(0, 1, 2), of_others=(3, 4, 5))


def test_where_fewer_than_three_blocks_are_steady_all_visits_count_and_the_verdict_says_so(lab: Laboratory) -> None:
    """Three slow visits of eight to either cell cancel in the mean. What is left passes a gate that has room."""
    lab.script = [replace(FEW, speedup=value) for value in (4.0, 4.02, 3.98, 4.0, 4.01)]
    decision = by_all(lab)
    assert decision.verdict == "pass"
    assert decision.estimate.value == pytest.approx(4.0, rel=0.05)
    all_of_them = f"{lab.launched} of {lab.launched} launches"
    assert decision.notes == (f"all visits of {all_of_them}: the machine was steady around fewer than 3 blocks of it",)


def test_a_launch_without_steady_blocks_counts_beside_those_that_have_them(lab: Laboratory) -> None:
    lab.script = [FEW, Made(4.0), Disturbed(4.0, of_cell=(1, 4, 6)), *[Made(4.0)] * 3]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches) == ("pass", lab.launched)
    assert [note.partition(":")[0] for note in decision.notes] == [f"all visits of 1 of {lab.launched} launches"]


def test_launches_in_which_the_machine_was_hardly_steady_decide_nothing_wrongly(lab: Laboratory) -> None:
    """The cell is slow in six blocks of eight of every third launch, and the others in three of them.

    Nothing but that its launches scatter tells such a neighbour, who comes while the cell runs, from the cell itself.
    """
    lab.script = [Disturbed(1.0, of_cell=(0, 1, 2, 3, 4, 5), of_others=(0, 1, 2)), Made(1.0), Made(1.0)] * 6
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("inconclusive", 8)
    assert decision.notes[0].startswith("all visits of 3 of 8 launches: ")

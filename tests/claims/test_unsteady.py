"""Gates on a machine that others disturb for some visits: judged by those for which it was steady, live and stored."""

from __future__ import annotations

from dataclasses import dataclass
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


def test_launches_that_leave_fewer_than_three_blocks_are_replaced_and_given_up_after_three(
    lab: Laboratory,
) -> None:
    few = Disturbed(9.0, of_cell=(0, 1, 2), of_others=(3, 4, 5))
    lab.script = [Made(1.2), few, Made(1.21), Made(1.2)]
    decision = by_all(lab)
    assert (decision.verdict, decision.estimate.launches, lab.launched) == ("pass", 3, 4)
    assert decision.estimate.value == pytest.approx(1.2, rel=0.01)


def test_three_such_launches_in_a_row_are_no_verdict(lab: Laboratory) -> None:
    lab.script = [Disturbed(1.2, of_cell=(0, 1, 2), of_others=(3, 4, 5))] * 3
    decision = by_all(lab)
    assert (decision.verdict, lab.launched) == ("invalid", 3)
    assert decision.reason == (
        "the last 3 launches say nothing of it: the machine was not steady around 9 visits; "
        "fewer than 3 blocks are left"
    )

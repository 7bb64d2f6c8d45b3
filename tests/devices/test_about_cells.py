"""What a device is asked about cells: how often, what is kept, and whose fault an error is."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.devices.lab import about_cells
from pytest_ngraph.devices.lab.about_cells import AboutCell, AboutCells
from pytest_ngraph.errors import DeviceLost, SpecError
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Workload
from pytest_ngraph.workloads.kinds import parse_model

Asked = list[tuple[tuple[Cell, ...], tuple[str | None, ...]]]


def cell(batch: int, side: str = "", compiler: str = "null") -> Cell:
    return Cell("orin", CompilerSpec(compiler), Workload(parse_model("block:conv", (Path(),)), batch), side=side)


class Device:
    """Answers like a device, and remembers what it was asked."""

    def __init__(self, wrong: Callable[[Cell], Exception | None] = lambda cell: None) -> None:
        self.asked: Asked = []
        self.wrong = wrong
        # What is built, and what is refused.
        self.built: set[int] = {1, 2, 3}
        self.refused: set[Cell] = set()

    def __call__(self, cells: Sequence[Cell], others: Sequence[str | None]) -> list[AboutCell]:
        self.asked.append((tuple(cells), tuple(others)))
        for each in cells:
            if (error := self.wrong(each)) is not None:
                raise error
        return [self.said(each, other) for each, other in zip(cells, others, strict=True)]

    def said(self, cell: Cell, other: str | None) -> AboutCell:
        if cell in self.refused:
            return AboutCell("it does not", None, False, other)
        key = str(cell) if cell.workload.batch in self.built else None
        return AboutCell(None, key, key is not None and other == "", other)


def pairs(*batches: int) -> dict[Cell, str | None]:
    """Return cells of here and of a side that they are compared with."""
    return {each: other for batch in batches for each, other in ((cell(batch), None), (cell(batch, "main"), ""))}


def test_the_first_question_is_asked_about_everything_that_is_expected() -> None:
    device = Device()
    about = AboutCells(device)
    about.expect(pairs(1, 2, 3))
    assert device.asked == []
    for batch in (1, 2, 3):
        here, there = cell(batch), cell(batch, "main")
        assert {one: said.key for one, said in about.of([here, there]).items()} == {
            here: str(here),
            there: str(there),
        }
        assert about.same([there], "") == {there}
    assert [set(cells) for cells, _ in device.asked] == [set(pairs(1, 2, 3))]
    assert dict(zip(*device.asked[0], strict=True)) == pairs(1, 2, 3)


def test_what_nobody_expected_is_asked_for_all_the_same() -> None:
    device = Device()
    about = AboutCells(device)
    there = cell(1, "main")
    assert about.of([there])[there].key == str(there)
    # With whom it is compared was not said.
    assert about.same([there], "") == {there}
    assert about.same([there], "other") == set()
    assert about.same([there], "other") == set()
    assert [others for _, others in device.asked] == [(None,), ("",), ("other",)]
    assert about.same([], "other") == set()
    assert about.of([]) == {}
    assert len(device.asked) == 3


def test_what_is_not_built_is_not_asked_again_before_something_is() -> None:
    device = Device()
    device.built = {1}
    device.refused = {cell(2, "main", "bad")}
    about = AboutCells(device)
    about.expect({**pairs(1, 2, 3), cell(2, "main", "bad"): ""})
    assert about.of([cell(2)])[cell(2)].key is None
    assert about.of([cell(3)])[cell(3)].key is None
    assert about.same([cell(2, "main")], "") == set()
    assert len(device.asked) == 1
    # Of what was built, and of nothing else, more is known now; a refusal is final.
    again = about.unsettled({cell(2).workload})
    assert again == pairs(2)
    device.built |= {2}
    about.know(again, [device.said(*each) for each in again.items()])
    assert about.of([cell(2)])[cell(2)].key == str(cell(2))
    assert about.same([cell(2, "main")], "") == {cell(2, "main")}
    assert about.unsettled({cell(2).workload, cell(1).workload}) == {}
    assert len(device.asked) == 1


def test_a_model_that_was_built_at_one_batch_is_asked_about_at_all_others_at_once() -> None:
    device = Device()
    device.built, device.refused = set(), set(pairs(4))
    about = AboutCells(device)
    about.expect(pairs(1, 2, 3, 4))
    assert about.of([cell(1)])[cell(1)].key is None
    again = about.unsettled({cell(1).workload})
    device.built = {1, 2, 3}
    about.know(again, [device.said(*each) for each in again.items()])

    # Another model's says nothing of this one, nor does one that could not be built.
    about.built([])
    about.built([replace(cell(1).workload, model=parse_model("block:mha"))])
    assert about.of([cell(2)])[cell(2)].key is None
    about.built([cell(1).workload])
    for each in map(cell, (1, 2, 3)):
        assert about.of([each])[each].key == str(each)
    assert about.of([cell(4)])[cell(4)].refused
    assert len(device.asked) == 2
    assert set(device.asked[1][0]) == set(pairs(2, 3))


def test_what_was_not_the_same_as_what_was_not_built_is_asked_about_again() -> None:
    device = Device()
    about = AboutCells(device)
    about.expect(pairs(1, 2))
    unknown, another = AboutCell(None, None, False), AboutCell(None, "key", False, "")
    about.know([cell(2), cell(2, "main")], [unknown, another])
    about.know([cell(1), cell(1, "main")], [AboutCell(None, "other key", False), another])
    about.built([cell(3).workload])
    # What differs from what was known is not asked about with every build.
    assert about.same([cell(1, "main"), cell(2, "main")], "") == {cell(2, "main")}
    assert device.asked == [((cell(2, "main"), cell(2)), ("", None))]


def test_what_differs_may_be_the_same_once_what_is_here_was_built() -> None:
    device = Device()
    about = AboutCells(device)
    about.expect(pairs(1))
    about.know([cell(1), cell(1, "main")], [AboutCell(None, None, False), AboutCell(None, "key", False, "")])
    assert about.unsettled({cell(1).workload}) == pairs(1)


@pytest.mark.parametrize("error", [SpecError("no module"), DeviceLost("gone")])
def test_an_error_of_one_cell_is_that_of_who_asks_for_it(error: Exception) -> None:
    device = Device(lambda each: error if each.workload.batch == 3 else None)
    about = AboutCells(device)
    about.expect(pairs(1, 2, 3))
    if isinstance(error, DeviceLost):
        # The device itself is gone: it is met again, and asked the same.
        with pytest.raises(DeviceLost):
            about.of([cell(1)])
        device.wrong = lambda each: None
        assert about.of([cell(1)])[cell(1)].key == str(cell(1))
        assert [len(cells) for cells, _ in device.asked] == [6, 6]
        return
    assert about.of([cell(1)])[cell(1)].key == str(cell(1))
    assert about.of([cell(2)])[cell(2)].key == str(cell(2))
    with pytest.raises(SpecError, match="no module"):
        about.of([cell(3)])
    assert [len(cells) for cells, _ in device.asked] == [6, 1, 1, 1]


def test_a_request_is_about_no_more_cells_than_a_device_answers_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(about_cells, "_MOST_AHEAD", 4)
    device = Device()
    about = AboutCells(device)
    about.expect({cell(batch): None for batch in range(1, 11)})
    for batch in range(1, 11):
        about.of([cell(batch)])
    assert [len(cells) for cells, _ in device.asked] == [5, 5]


@pytest.mark.parametrize(
    "answer",
    [None, [], ["refused", "key"], [None, "key", None], [None, 7, False], [1, None, False], "abc", {"key": 1}],
)
def test_half_an_answer_or_another_one_is_not_read(answer: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        AboutCell.read(answer, "")

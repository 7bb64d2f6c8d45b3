"""The axes of charts: real distances, no scale that one noisy cell sets, and names that do not cover one another."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import pytest

from pytest_ngraph.report.html.pictures import axes


def row(value: float, half: float = 0.01, *, compiler: str = "openvino", batch: int = 1) -> dict[str, Any]:
    return {"value": value, "low": value - half, "high": value + half, "compiler": compiler, "batch": batch}


def test_one_noisy_interval_does_not_set_the_scale() -> None:
    calm = [row(1 + number / 10) for number in range(10)]

    low, high = axes.span_of([*calm, row(1.5, 80.0)], is_log=False)

    # Of 160 wide an interval leaves what the others need.
    assert 0.5 < low < 1.0
    assert 1.9 < high < 2.4


@pytest.mark.parametrize("is_log", [False, True])
def test_intervals_that_are_all_wide_are_all_shown(is_log: bool) -> None:
    wide = [row(1 + number / 100, 0.5) for number in range(10)]

    low, high = axes.span_of(wide, is_log=is_log)

    assert low <= 0.5
    assert high >= 1.59


def test_every_point_and_the_line_are_on_the_axis() -> None:
    low, high = axes.span_of([row(3.0), row(40.0)], is_log=False, line_at=1.0)

    assert low < 1.0
    assert high > 40.0


@pytest.mark.parametrize("is_log", [False, True])
@pytest.mark.parametrize(
    "rows",
    [
        [],
        [row(0.0, 0.0)],
        [{"value": 5.0, "low": None, "high": None}],
        [{"value": 5.0, "low": 0.0, "high": math.inf}],
        [{"value": -1.0, "low": -2.0, "high": 3.0}],
    ],
)
def test_an_axis_has_ends_whatever_it_is_given(rows: list[dict[str, Any]], is_log: bool) -> None:
    low, high = axes.span_of(rows, is_log=is_log)

    assert math.isfinite(low)
    assert math.isfinite(high)
    assert low < high
    assert not is_log or low > 0


def test_the_marks_of_an_axis_are_its_values_in_their_order() -> None:
    known = axes.along([row(1, batch=batch) for batch in (16, 2, 1, 2)], "batch")

    assert known["ticks"] == [1, 2, 16]
    assert known["first_end"] < 1
    assert known["last_end"] > 16
    single = axes.along([row(1, batch=8)], "batch")
    assert single["first_end"] < 8 < single["last_end"]


def test_names_at_the_ends_of_lines_stand_apart_in_their_order() -> None:
    rows = [row(1.0 + number / 1000, compiler=f"c{number}", batch=batch) for number in range(6) for batch in (1, 8)]

    placed = axes.place_names(rows, "batch", span=(0.0, 2.0), is_log=False, gap=0.1)

    named = sorted((each["label_at"], each["label"]) for each in placed if "label_at" in each)
    assert [name for _, name in named] == [f"c{number}" for number in range(6)]
    assert all(each["batch"] == 8 for each in placed if "label_at" in each)
    for (below, _), (above, _) in pairwise(named):
        assert above - below >= 0.2 - 1e-9


def test_more_names_than_room_do_not_leave_the_axis_at_its_top() -> None:
    placed = axes.place_names(
        [row(1.9, compiler=f"c{number}") for number in range(9)], "batch", span=(0.0, 2.0), is_log=False, gap=0.1
    )

    assert max(each["label_at"] for each in placed) <= 2.0

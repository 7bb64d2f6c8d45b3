"""The table of a device: it fits the terminal, names stay different, and a wide one has intervals."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest

from pytest_ngraph.front.summary.table import cell_table
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.spec.cells import CompileRecord, Outcome
from pytest_ngraph.store.rows import VerdictRow
from tests.support.exported import report

MODEL = "timm:mobilenetv3_large_100.a_name_that_goes_on_and_on_until_no_terminal_has_room_for_all_of_it_at_once"
TWINS = ("openvino[hint=latency,streams=2]", "openvino[hint=latency,streams=4]")


def deep(one: CellReport, everything: bool) -> CellReport:
    """Return a report of a stack of twelve where it shall have everything."""
    depth = 12 if everything else one.cell.workload.depth
    return replace(one, cell=replace(one.cell, workload=replace(one.cell.workload, depth=depth)))


def reports(*, everything: bool = False) -> list[CellReport]:
    """Return two models at two batches by a baseline and three compilers, with every number that a table can have."""
    made = []
    for model in ("timm:resnet18", MODEL):
        for batch in (1, 8):
            numbers = {"throughput": (110.0, 0.01, 4), "latency": (0.009, 0.01, 4), "cpu_percent": (99.0, 0.1, 4)}
            numbers["ase"] = (0.8, 0.01, 4)
            if everything:
                numbers |= {"tuning_seconds": (80.0, 0.1, 4), "change": (1.1, 0.01, 4)}
            first = deep(report("identity", model, batch, numbers), everything)
            made.append(first)
            for compiler in ("onnxruntime", *TWINS):
                mine = {**numbers, "speedup": (1.82, 0.01, 4), "bsr": (0.7, 0.01, 4)}
                one = deep(report(compiler, model, batch, mine), everything)
                made.append(replace(one, baseline=first.cell))
    return made


@pytest.mark.parametrize("width", [80, 99, 100, 110, 120, 160, 200])
@pytest.mark.parametrize("everything", [False, True])
def test_it_fits_and_no_two_names_look_alike(width: int, everything: bool) -> None:
    lines = cell_table(reports(everything=everything), [], width)

    assert max(map(len, lines)) <= width
    rows = [line.split() for line in lines if "onnxruntime" in line or "open" in line]
    names = {word for row in rows for word in row if word.startswith(("onnx", "open"))}
    assert len(rows) == 12
    assert len(names) == 3
    assert len({line for line in lines if line.startswith("timm:")}) == 2


def test_a_wide_one_has_intervals_and_a_narrow_one_none() -> None:
    narrow, wide, wider = (cell_table(reports(), [], width) for width in (99, 100, 160))

    assert not any(" [" in line for line in narrow)
    (row, *_) = (line for line in wide if "onnxruntime" in line)
    assert "110 [" in row
    assert "1.82x [" in row
    assert "latency" in wider[1]
    assert "CPU" in wider[1]
    (row, *_) = (line for line in wider if "onnxruntime" in line)
    assert row.count(" [") == 4


def test_what_there_is_no_room_for_is_named() -> None:
    lines = cell_table(reports(everything=True), [], 60)

    assert max(map(len, lines)) <= 60
    assert lines[-1].startswith("  no room for: tuning, ")
    assert "speed-up" in lines[1]
    assert not any(line.startswith("  no room") for line in cell_table(reports(everything=True), [], 120))


def test_what_is_claimed_is_left_out_last() -> None:
    claimed = VerdictRow("t", "c", "tuning_seconds", 90.0, False, 0.05, 80.0, 79.0, 81.0, 4, "not judged")

    lines = cell_table(reports(everything=True), [claimed], 60)

    assert max(map(len, lines)) <= 60
    assert "tuning" in lines[1]
    assert "tuning" not in lines[-1]


def test_cells_that_generate_tokens_have_their_times() -> None:
    tokens = {"time_to_first_token": (0.009, 0.01, 4), "time_per_token": (0.002, 0.01, 4)}
    one = report("identity", "block:mha", 1, {"throughput": (9.0, 0.01, 4), **tokens})

    lines = cell_table([one, *reports()], [], 80)

    assert max(map(len, lines)) <= 80
    assert "first token  per token" in lines[1]
    assert "9.00 ms    2.00 ms" in lines[3]
    assert "token" not in cell_table(reports(), [], 80)[1]


@pytest.mark.parametrize("axis", ["decode", "width", "image_size"])
def test_each_title_comes_once_whatever_is_swept_under_it(axis: str) -> None:
    def of(sequence: int, depth: int, batch: int, size: int) -> CellReport:
        one = report("identity", "timm:resnet18", batch, {"throughput": (110.0, 0.01, 4)})
        axes: dict[str, Any] = {"sequence": sequence, "depth": depth, axis: size}
        return replace(one, cell=replace(one.cell, workload=replace(one.cell.workload, **axes)))

    made = [of(*sizes) for sizes in itertools.product((32, 128), (1, 4), (1, 8), (16, 64))]
    lines = cell_table(made, [], 200)

    titles = [line for line in lines if line.startswith("timm:")]
    assert len(titles) == len(set(titles)) == 2
    # Below a title they stand by length, depth and batch.
    start = lines.index(titles[1]) + 1
    assert [line.split()[:3] for line in lines[start : start + 4]] == [
        ["1", "32", "1"], ["8", "32", "1"], ["1", "32", "4"], ["8", "32", "4"]
    ]  # fmt: skip


def test_a_cell_that_is_overloaded_says_so_where_no_claim_does() -> None:
    """Its row was empty: no number, no verdict, no word."""
    overloaded = CompileRecord(Outcome.UNSTABLE, "overloaded: 300 calls a second arrive, and it can answer 200")
    timed = report("onnxruntime", "timm:resnet18", 1, {"latency": (0.009, 0.01, 4)})
    lacking = replace(report("openvino", "timm:resnet18", 1, {}), failure=overloaded)
    lines = cell_table([lacking, replace(timed, failure=overloaded)], [], 80)

    assert "unstable" in next(line for line in lines if "openvino" in line)
    # One that only took longer now and then has its times, and is what its claims say.
    assert "unstable" not in next(line for line in lines if "onnxruntime" in line)


def test_rows_of_a_second_side_say_whose_they_are() -> None:
    """The change is against the first one, whose rows are left out for that."""
    here = report("openvino", "timm:resnet18", 1, {"throughput": (300.0, 0.01, 4), "change": (1.5, 0.01, 4)})
    there = [
        replace(
            report("openvino", "timm:resnet18", 1, {"throughput": (rate, 0.01, 4)}), cell=replace(here.cell, side=side)
        )
        for side, rate in (("main@1234567", 200.0), ("v1@7654321", 100.0))
    ]
    rows = [line for line in cell_table([here, *there], [], 120) if "openvino" in line]
    assert ["openvino (of v1@7654321)" in row for row in rows] == [False, True]
    assert ["300" in rows[0], "100" in rows[1]] == [True, True]

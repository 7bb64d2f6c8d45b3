"""Rows of charts that are made of several estimates, on a store whose true values are known."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from pytest_ngraph.report.answer.break_even import break_even_calls
from pytest_ngraph.report.html.charts import CHARTS, rows_of
from pytest_ngraph.report.html.content import Content, read_content, reversal_rows
from pytest_ngraph.report.html.derived import break_even_rows, depth_rows, score_rows, spreads_of, visit_rows
from pytest_ngraph.report.results.spreads import spread_of
from pytest_ngraph.spec.cells import Cell, CompilerSpec, LaunchRecord, Visit, Workload
from pytest_ngraph.store.sqlite import Store
from tests.support.report_stores import Lab, ref, write_store

CELL = Cell("local", CompilerSpec("null"), Workload(ref("timm:resnet18"), 1))


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Content:
    """What is shown of a lab with models, batches, depths and widths."""
    path = tmp_path_factory.mktemp("derived") / "results.sqlite"
    write_store(path, Lab(devices=("xeon",), batches=(1, 8, 16), depths=(1, 2, 6), widths=(64, 128)))
    with Store.open(path, read_only=True) as store:
        return read_content(store, store.runs()[-1])


def launch(number: int, *visits: Visit) -> LaunchRecord:
    return LaunchRecord(number, 0, "gate", visits={(CELL, block): visit for block, visit in enumerate(visits)})


def test_a_spread_has_each_visit_and_the_percentiles_of_single_calls() -> None:
    samples = tuple(1_000_000 * number for number in range(1, 101))
    spread = spread_of([launch(0, Visit(1, samples[:50])), launch(3, Visit(1, samples[50:]))], CELL)

    assert spread is not None
    assert [number for number, _ in spread.launches] == [0, 3]
    assert [times for _, times in spread.launches] == [pytest.approx((0.0255,)), pytest.approx((0.0755,))]
    assert spread.percentiles == pytest.approx((0.050, 0.090, 0.099))
    assert (spread.samples, spread.calls) == (100, 1)


def test_a_spread_says_of_how_many_calls_a_sample_is_made() -> None:
    several = spread_of([launch(0, Visit(4, (4_000_000,)))], CELL)
    mixed = spread_of([launch(0, Visit(4, (4_000_000,)), Visit(2, (2_000_000,)))], CELL)
    requests = spread_of([launch(0, Visit(4, (4_000_000,), request_ns=(3_000_000, 5_000_000)))], CELL)

    assert several is not None
    assert mixed is not None
    assert requests is not None
    assert several.percentiles[0] == pytest.approx(0.001)
    assert several.calls == 4
    assert mixed.calls == 0
    assert requests.percentiles[2] == pytest.approx(0.005)
    assert (requests.samples, requests.calls) == (2, 1)
    assert spread_of([launch(0)], CELL) is None


def test_every_timed_cell_has_its_spread(content: Content) -> None:
    found = spreads_of(content)

    assert len(found) == len(content.reports)
    assert all(each is not None and each[2] == 4 * 3 * 5 for each in found)
    assert len(list(visit_rows(content))) == 4 * 3 + 3


def test_compiling_pays_where_a_call_is_faster_and_only_there(content: Content) -> None:
    rows = list(break_even_rows(content))

    assert {row["compiler"] for row in rows} >= {"openvino"}
    known = [break_even_calls(report) for report in content.reports]
    assert float("inf") in known
    assert len(rows) == len([calls for calls in known if calls is not None and calls != float("inf")])
    resnet = next(row for row in rows if row["subject"] == "timm:resnet18" and row["compiler"] == "openvino")
    # Of 12.6 ms with the baseline a call takes 3.9 ms when compiled, and compiling took about 2.2 s.
    assert 200 < resnet["value"] < 330


def test_the_end_of_a_line_over_depth_says_slope_and_retention(content: Content) -> None:
    labels = {row["label"] for row in depth_rows(content) if row["compiler"] == "openvino" and row["depth"] is not None}

    # Each further layer adds 0.12 of the speed-up of a single block.
    assert labels
    for label in labels:
        written = re.fullmatch(r"openvino (\+0\.\d{3})/layer, (1\.\d\d) kept", label)
        assert written is not None, label
        assert 0.15 < float(written[1]) < 0.3
        assert float(written[2]) == pytest.approx(1.6, abs=0.03)
    assert "openvino" in {row["label"] for row in depth_rows(content) if row["depth"] is None}


def test_a_stack_of_one_depth_is_not_shown_over_depth(content: Content) -> None:
    reports = [
        report
        for report in content.reports
        if report.cell.workload.width != 128 or report.cell.workload.depth == 6 or report.cell.workload.batch == 1
    ]
    shown = {(row["width"], row["batch"]) for row in depth_rows(replace(content, reports=reports)) if row["depth"]}

    assert shown == {(64, 1), (64, 8), (128, 1)}


def test_scores_claim_nothing_where_the_interval_holds_one(content: Content) -> None:
    rows = list(score_rows(content))

    assert rows[0]["family"] == "all models"
    assert {row["claim"] for row in rows} >= {"faster", "none"}
    for row in rows:
        assert (row["claim"] == "none") == (row["low"] <= 1 <= row["high"]), row


def test_the_map_of_pairs_has_each_reversal_once(content: Content) -> None:
    chart = next(chart for chart in CHARTS if chart.name == "reversal_map")
    rows, _ = rows_of(chart, content)

    assert len(rows) == len(content.reversals) == len(list(reversal_rows(content))) / 2
    assert all(float(row["changed"].split(" → ")[0]) >= 1 >= float(row["changed"].split(" → ")[1]) for row in rows)

"""What the page and the figures show of cells and claims: rows that do not say more than was measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.html.content import LARGEST_ERROR, Content, error_of, estimate_rows, verdict_rows
from pytest_ngraph.report.html.data import _estimates, _short, _shorts
from pytest_ngraph.report.html.page import page
from pytest_ngraph.report.results.cells import CellReport, tidy_rows
from pytest_ngraph.spec.cells import CompileRecord, Outcome
from pytest_ngraph.store.rows import RunRow, VerdictRow
from tests.conftest import skip_without
from tests.support.measuring import cell

ONE = cell("null")


def content(*reports: CellReport, verdicts: tuple[VerdictRow, ...] = (), protocol: str = "gate") -> Content:
    run = RunRow(1, "u", "2026-01-01T00:00:00", None, "finished", (), 0, protocol, {}, fresh=False, resumed=False)
    return Content(run, reports, verdicts, [])


def compared(error: float | None) -> CellReport:
    return CellReport(ONE, None, {}, None, CompileRecord(Outcome.MISMATCH, max_error=error))


@pytest.mark.parametrize(
    ("error", "shown"), [(None, None), (1e-7, 1e-7), (math.inf, LARGEST_ERROR), (1e9, LARGEST_ERROR)]
)
def test_outputs_that_cannot_be_compared_are_the_farthest_off(error: float | None, shown: float | None) -> None:
    assert error_of(compared(error)) == shown
    rows = list(estimate_rows(content(compared(error)), ("max_error",)))
    assert [row["value"] for row in rows] == ([] if shown is None else [shown])


@pytest.mark.parametrize(
    ("record", "limit", "precision"),
    [
        (CompileRecord(Outcome.OK, max_error=1e-6), 1e-4, "f32"),
        (CompileRecord(Outcome.MISMATCH, max_error=0.3), 1e-4, "f32"),
        # A quantised file is not judged by its error, one in f16 by that of f16.
        (CompileRecord(Outcome.OK, max_error=0.02, held_to="int8"), None, "f32, file in int8"),
        (CompileRecord(Outcome.OK, max_error=0.002, held_to="f16"), 1e-2, "f32, file in f16"),
        # Of a version that did not keep it.
        (CompileRecord(Outcome.OK, max_error=0.02), None, "f32"),
    ],
)
def test_errors_are_drawn_beside_the_bound_that_they_were_held_to(
    record: CompileRecord, limit: float | None, precision: str
) -> None:
    report = CellReport(ONE, None, {}, None, record)
    (row,) = estimate_rows(content(report), ("max_error",))
    assert (row["limit"], row["precision"]) == (limit, precision)
    column = _estimates([report])["max_error"]
    assert (column["limit"], column["precision"]) == ([limit], [precision])


def test_what_was_measured_once_has_no_interval_in_any_form() -> None:
    # Of a logarithm minus infinity is 0.
    once = CellReport(ONE, None, {"compile_seconds": Estimate("compile_seconds", 2.5, 0.0, math.inf, 1)}, None, None)
    (row,) = estimate_rows(content(once), ("compile_seconds",))
    (tidy,) = tidy_rows([once])
    assert (row["value"], row["low"], row["high"]) == (2.5, None, None)
    assert (tidy["value"], tidy["low"], tidy["high"]) == (2.5, None, None)


def test_a_claim_about_pairs_of_models_is_not_drawn_by_one_number() -> None:
    def told(claim: str) -> VerdictRow:
        return VerdictRow("t", claim, "throughput_ratio", 1.0, True, 0.05, 0.5, 0.49, 0.51, 4, "pass")

    rows = verdict_rows(content(verdicts=(told("assert_order: two models at_least 1"), told("assert_faster: x"))))
    assert {row["claim"].partition(":")[0]: row["estimate"] for row in rows} == {
        "assert_order": None,
        "assert_faster": -8.0,
    }


def test_of_two_claims_that_are_drawn_at_the_end_of_the_axis_the_worse_one_comes_first() -> None:
    def failed(value: float | None, verdict: str = "fail") -> VerdictRow:
        return VerdictRow(str(value), f"assert_bsr: {value}", "bsr", 0.9, True, 0.05, value, value, value, 4, verdict)

    given = (failed(0.43), failed(None), failed(0.80), failed(0.40), failed(0.1, "inconclusive"))
    rows = verdict_rows(content(verdicts=given))

    assert [row["test"] for row in rows] == ["0.4", "0.43", "0.8", "None", "0.1"]
    assert [row["estimate"] for row in rows[:2]] == [-8.0, -8.0]


@pytest.mark.parametrize(
    ("metric", "bound", "far", "near", "at_least"),
    [
        ("throughput_ratio", 1.0, 0.4, 0.99, True),
        ("run_peak_memory_bytes", 1e6, 2e6, 1.001e6, False),
        ("accuracy:top1", 0.9, 0.5, 0.895, True),
        ("agreement", 0.99, 0.7, 0.98, True),
    ],
)
@pytest.mark.parametrize("tolerance", [None, 0.0])
def test_claims_without_a_tolerance_stand_in_their_place_among_the_worst(
    metric: str, bound: float, far: float, near: float, at_least: bool, tolerance: float | None
) -> None:
    def failed(name: str, value: float) -> VerdictRow:
        return VerdictRow(name, f"assert_x: {name}", metric, bound, at_least, tolerance, value, None, None, 4, "fail")

    other = VerdictRow("other", "assert_bsr: other", "bsr", 0.9, True, 0.05, 0.8, 0.79, 0.81, 4, "fail")
    rows = verdict_rows(content(verdicts=(failed("near", near), other, failed("far", far))))

    assert [row["test"] for row in rows] == ["far", "other", "near"]
    # Nobody knows how many tolerances they are off: the chart has no place for them, and the table says how far.
    assert [row["estimate"] is None for row in rows] == [True, False, True]
    assert all(row["off"] for row in rows)


def test_a_bound_of_which_there_is_no_logarithm_stops_no_page() -> None:
    row = VerdictRow("t", "assert_x: y", "latency", 0.0, False, None, 0.1, None, None, 4, "fail")
    assert verdict_rows(content(verdicts=(row,)))[0]["estimate"] is None


@pytest.mark.parametrize(
    ("protocol", "said"),
    [("gate", "99 % intervals over launches"), ("paper", "one standard deviation"), ("quick", "one standard error")],
)
def test_the_page_says_what_its_intervals_are(protocol: str, said: str) -> None:
    skip_without("altair", "vl_convert")
    assert f"A row for each cell, with {said}" in page(content(compared(None), protocol=protocol))


# Numbers of any size, between two that are written, and where the number of digits changes.
NUMBERS = st.one_of(
    st.none(),
    st.floats(),
    st.floats(1e-12, 1e12),
    st.builds(lambda digits, power: (digits + 0.5) * 10.0**power, st.integers(9990, 100_010), st.integers(-26, 26)),
)


@given(st.lists(NUMBERS))
@example([0.0, -0.0, 5e-324, 1.7976931348623157e308, math.inf, -math.inf, math.nan, None])
@example([99999.5, 99999.4999, 9999.95, 9999.949999999999, 0.099999500000000001, 1e15, 1e22, 1e23, 12345.5, 12346.5])
def test_many_numbers_are_written_as_each_by_itself(values: list[float | None]) -> None:
    assert repr(_shorts(values)) == repr([_short(value) for value in values])

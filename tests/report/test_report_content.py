"""What the page and the figures show of cells and claims: rows that do not say more than was measured."""

from __future__ import annotations

import math

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.html.content import LARGEST_ERROR, Content, error_of, estimate_rows, verdict_rows
from pytest_ngraph.report.html.data import _short, _shorts
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

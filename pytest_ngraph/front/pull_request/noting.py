"""Where tests are that failed or left a gate open, and why where none of their claims says it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pytest_ngraph.front.run import id_of
from pytest_ngraph.report.pull_request.gates import Noted
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.texts.shown import one_line

if TYPE_CHECKING:
    from pytest_ngraph.front.run import State


def note(state: State, item: pytest.Item, report: pytest.TestReport, call: pytest.CallInfo[None]) -> None:
    """Note a test that failed, left a gate open or was expected to fail, at the end of one of its phases."""
    nodeid = id_of(item)
    not_stored = state.not_stored.get(nodeid, "")
    judged = [row for row in state.claims if row.is_open or row.verdict == Verdict.FAIL]
    if not (report.failed or not_stored or (judged and report.when == "call")):
        return
    before = state.noted.get(nodeid, Noted("", 0))
    why = before.why or not_stored
    # An open gate that only warns fails no test: what did is none of its claims.
    is_warning = call.excinfo is not None and issubclass(call.excinfo.type, Warning)
    open_fails = state.settings.inconclusive == "fail" or is_warning
    failing = [row for row in judged if row.verdict == Verdict.FAIL or open_fails]
    if report.failed and not why and (not failing or report.when == "teardown"):
        why = one_line(str(call.excinfo.value) if call.excinfo is not None else report.longreprtext)
    path, line, _ = item.location
    is_expected = before.is_expected or hasattr(report, "wasxfail")
    state.noted[nodeid] = Noted(path, (line or 0) + 1, why, bool(not_stored), is_expected)

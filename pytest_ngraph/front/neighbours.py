"""What plugins that report in a way of their own are shown of gates that were not decided."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from pytest_ngraph.front.run import UNDECIDED


def meet(config: pytest.Config) -> None:
    """Have pytest-html and pytest-sugar show undecided gates, where they are there."""
    if hasattr(config.hook, "pytest_html_results_table_row"):
        config.pluginmanager.register(InHtml(), "ngraph-html")
    sugar = sys.modules.get("pytest_sugar")
    if sugar is not None:
        config.pluginmanager.register(InSugar(sugar, config), "ngraph-sugar")


class InSugar:
    """Has pytest-sugar ask pytest's hook what to call an undecided gate, and counts them below its counts.

    Of itself it asks nobody but itself, and counts what pytest knows.
    """

    def __init__(self, sugar: Any, config: pytest.Config) -> None:
        self._sugar, self._config, self._theirs = sugar, config, sugar.pytest_report_teststatus
        sugar.pytest_report_teststatus = self._status

    def _status(self, report: pytest.TestReport) -> Any:
        if not getattr(report, UNDECIDED, False):
            return self._theirs(report=report)
        category, letter, word = self._config.hook.pytest_report_teststatus(report=report, config=self._config)
        return category, self._sugar.colored(letter, "yellow"), word

    def pytest_unconfigure(self) -> None:
        """Write the count, and leave everything as it was."""
        self._sugar.pytest_report_teststatus = self._theirs
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        undecided = getattr(reporter, "stats", {}).get("undecided", ())
        # Without a terminal it leaves pytest's own reporter in place.
        if undecided and type(reporter).__module__ == self._sugar.__name__:
            reporter.write_line(f"   {len(undecided):5d} undecided", yellow=True)


class InHtml:
    """Says in the report of pytest-html which of the tests that passed have a gate that was not decided, and why.

    Its results are a fixed set, which its counts and filters go by, so such a test stays in one of them.
    """

    def __init__(self) -> None:
        self._undecided: set[str] = set()

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Keep which tests are undecided, before their rows are made."""
        if getattr(report, UNDECIDED, False):
            self._undecided.add(report.nodeid)

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_row(self, report: pytest.TestReport, cells: list[Any]) -> None:
        """Say behind its name that a test is undecided."""
        if self._is_row(report):
            # A suite's own hook may have moved them, or left none.
            cells[:] = [
                str(cell).replace("</td>", " (undecided)</td>") if "col-testId" in str(cell) else cell for cell in cells
            ]

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_table_html(self, report: pytest.TestReport, data: list[str]) -> None:
        """Say which claims were not decided, and why, where its captured output is."""
        if self._is_row(report):
            from html import escape

            data[:0] = [escape(line) + "\n" for line in _open_claims(report)]

    @pytest.hookimpl(optionalhook=True)
    def pytest_html_results_summary(self, summary: list[str]) -> None:
        """Say how many there are."""
        if self._undecided:
            tests = "1 test is" if len(self._undecided) == 1 else f"{len(self._undecided)} tests are"
            summary.append(f"<p>{tests} undecided, and not counted as failed.</p>")

    def _is_row(self, report: pytest.TestReport) -> bool:
        """Return whether the row of a report is that of an undecided test; set-up and tear-down have others."""
        is_shown = report.when == "call" or getattr(report, UNDECIDED, False)
        return is_shown and report.nodeid in self._undecided


def _open_claims(report: pytest.TestReport) -> list[str]:
    """Return a line for each claim of a test that was not decided, from what JUnit XML is given as well."""
    from pytest_ngraph.front.ci import PREFIX
    from pytest_ngraph.stats.verdict import Verdict

    known = {name.removeprefix(PREFIX): str(text) for name, text in report.user_properties if name.startswith(PREFIX)}
    open_ = (Verdict.INCONCLUSIVE, Verdict.INVALID)
    numbers = [name.partition(".")[0] for name, text in known.items() if name.endswith(".verdict") and text in open_]
    claims = [[known.get(f"{number}.{name}", "") for name in ("verdict", "claim", "reason")] for number in numbers]
    return [": ".join(filter(None, claim)) for claim in claims] or ["undecided: what it needs is not stored"]

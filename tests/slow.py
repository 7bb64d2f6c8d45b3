"""Tests that ``make test-quick`` leaves out for the time they take. Which they are is measured, and kept in slow.txt.

``make test-quick TEST_OPTIONS=--note-slow`` adds to that list, of what it runs, the functions of which one case takes
more than half a second of CPU time, with its children. It takes none out: where tests share what they simulate, the
first pays for all, and without it the next one does.
"""

from __future__ import annotations

import os
from collections.abc import Generator
from functools import cache
from pathlib import Path

import pytest

from tests.unmarked import LEFT_OUT

SLOW = "slow"
LIST = Path(__file__).with_name("slow.txt")
LIMIT_SECONDS = 0.5
# The attribute of a report of a tear-down, which pytest-xdist hands over.
_SECONDS = "cpu_seconds"


# Hooks of the conftest


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that writes the list."""
    parser.addoption("--note-slow", action="store_true", help="Write down in tests/slow.txt which tests are slow")


def pytest_sessionstart(session: pytest.Session) -> None:
    """Note what tests take, where that is asked for."""
    if session.config.getoption("--note-slow"):
        session.config.pluginmanager.register(Noting(LIST), "note-slow")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Mark what is in the list."""
    if function_of(item.nodeid) in _known():
        item.add_marker(SLOW)


@cache
def _known() -> frozenset[str]:
    return frozenset(listed(LIST))


class Noting:
    """Keeps the longest that each function took, and adds to the list at the end."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._longest: dict[str, float] = {}
        self._began = 0.0

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Note when a test begins."""
        self._began = cpu_seconds()
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_makereport(self, call: pytest.CallInfo[None]) -> Generator[None, pytest.TestReport, object]:
        """Give the last report of a test the CPU time of all three phases."""
        report = yield
        if call.when == "teardown":
            setattr(report, _SECONDS, cpu_seconds() - self._began)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take what a test took, but not of one that is left out anyway."""
        seconds = getattr(report, _SECONDS, None)
        if seconds is not None and not any(name in report.keywords for name in LEFT_OUT):
            function = function_of(report.nodeid)
            self._longest[function] = max(seconds, self._longest.get(function, 0.0))

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Add to the list."""
        if not hasattr(session.config, "workerinput"):
            slow = {function for function, seconds in self._longest.items() if seconds > LIMIT_SECONDS}
            self._path.write_text(
                "".join(f"{function}\n" for function in sorted({*listed(self._path), *slow})), encoding="utf-8"
            )


def listed(path: Path) -> list[str]:
    """Return the functions in a list, none where there is none yet."""
    return path.read_text(encoding="utf-8").split() if path.exists() else []


def function_of(nodeid: str) -> str:
    """Return the function of a test, without its parameters."""
    return nodeid.partition("[")[0]


def cpu_seconds() -> float:
    """Return the CPU time of this process and of its children that have ended."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system

"""Tests that pytest collects for a command, which does something with them in place of running them."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_ngraph.errors import NgraphError, SpecError

if TYPE_CHECKING:
    from pytest_ngraph.front.run import State

# What a controller of pytest-xdist decides by: what a command does of tests is done in this process.
_ONE_PROCESS: Mapping[str, object] = {"numprocesses": None, "dist": "no", "tx": [], "distload": False}


def with_tests(what: str, words: Sequence[str], store: Path | None, use: Callable[[State], None]) -> None:
    """Have pytest collect tests, and give the state of its run to ``use`` in place of running them.

    ``words`` are pytest's, ``what`` is a verb for messages. Raises SpecError where pytest collects nothing, and what
    ``use`` raises.
    """
    mine = _InPlaceOfTests(use)
    given = [] if store is None else [f"--ngraph-store={store.absolute()}"]
    # What is printed here is not captured, and pytest itself says only what is wrong.
    status = pytest.main(["-s", "-qq", *given, *words], plugins=[mine])
    if mine.error is not None:
        raise mine.error
    if not mine.has_begun:
        raise SpecError(f"pytest collected no test to {what} (exit status {int(status)})")


def in_one_process(config: pytest.Config) -> None:
    """Have the tests run in this process, whatever an ini file says of pytest-xdist."""
    for name, value in _ONE_PROCESS.items():
        if hasattr(config.option, name):
            setattr(config.option, name, value)


class _InPlaceOfTests:
    """What is done in place of running the tests."""

    def __init__(self, use: Callable[[State], None]) -> None:
        self.error: NgraphError | None = None
        self.has_begun = False
        self._use = use

    @pytest.hookimpl(wrapper=True)
    def pytest_cmdline_main(self, config: pytest.Config) -> Generator[None, object, object]:
        """Keep pytest-xdist, which an ini file may ask for, from handing the tests to other processes."""
        in_one_process(config)
        return (yield)

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        """Do it. What could not be collected is pytest's to report."""
        if session.testsfailed or session.config.option.collectonly:
            return None
        from pytest_ngraph.front.run import STATE

        self.has_begun = True
        state = session.config.stash[STATE]
        try:
            self._use(state)
        except NgraphError as error:
            self.error = error
        # No test ran, so there is nothing to sum up.
        state.items = []
        return True

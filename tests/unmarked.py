"""Tests that ``make test-quick`` runs start no worker, no pytest and no browser: one that does fails for its mark."""

from __future__ import annotations

import itertools
import os
import subprocess
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Tests that start workers, runs of pytest or browsers, which ``make test-quick`` leaves out.
LEFT_OUT = ("real", "lab", "suites", "measures")
# Modules of this package whose processes measure, compile, build or serve, and programs of some seconds.
_MODULES = ("pytest_ngraph.worker", "pytest_ngraph.conformance", "pytest_ngraph.devices")
_PROGRAMS = ("pytest", "py.test", "chromium", "chromium-browser", "google-chrome", "chromedriver")


def heavy(command: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> str:
    """Return what of a command takes seconds, or nothing."""
    words = [os.fspath(each) for each in ([command] if isinstance(command, (str, os.PathLike)) else command)]
    if Path(words[0]).name in _PROGRAMS:
        return Path(words[0]).name
    for flag, module in itertools.pairwise(words):
        if flag == "-m" and module == "pytest":
            return module
    return next((word for word in words if word.removeprefix("-m").startswith(_MODULES)), "")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Generator[None, object, object]:
    """Fail where a fixture of an unmarked test starts what takes seconds."""
    with _watched(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail where an unmarked test starts what takes seconds."""
    with _watched(item):
        return (yield)


@contextmanager
def _watched(item: pytest.Item) -> Iterator[None]:
    if any(map(item.get_closest_marker, LEFT_OUT)):
        yield
        return
    started, begin = [], subprocess.Popen.__init__

    def noted(self: subprocess.Popen[Any], args: Any, *rest: Any, **named: Any) -> None:
        if what := heavy(args):
            started.append(what)
        begin(self, args, *rest, **named)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", noted)
        yield
    if started:
        pytest.fail(f"it starts {started[0]}: mark it @pytest.mark.real, so that make test-quick leaves it out")

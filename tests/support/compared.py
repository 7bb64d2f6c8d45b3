"""A suite that was measured and saved as a baseline, for runs that are held against it."""

from __future__ import annotations

import pytest

from pytest_ngraph.cli import main
from tests.conftest import Suite


def run(suite: Suite, *arguments: str, plugins: str = "") -> pytest.RunResult:
    """Run a suite with its compiler ``mine`` against calls of two milliseconds, in at most three launches."""
    words = ("--ngraph-compiler=mine", "--ngraph-baseline=null[fixed_us=2000]", "--ngraph-budget=3", *arguments)
    return suite.bare(*words, plugins=plugins)


def saved(suite: Suite, source: str, monkeypatch: pytest.MonkeyPatch, *, plugins: str = "") -> Suite:
    """Write a suite, run it once, save what was measured as ``main``, and change to its folder."""
    suite.add_compilers()
    suite.write(source)
    assert run(suite, plugins=plugins).ret == 0
    monkeypatch.chdir(suite.path)
    assert main(["baseline", "save", "main"]) == 0
    return suite

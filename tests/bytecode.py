"""Bytecode of this package and of its tests is kept, so that no process of a run compiles what another one has.

Containers often set PYTHONDONTWRITEBYTECODE, which is left as it is for all that a test starts: bytecode is taken for
that of a file of the same size and second, and suites in tests are written again within one.
"""

from __future__ import annotations

import compileall
import sys
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[1]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Keep what is imported to be collected, with its asserts rewritten."""
    for folder in ("pytest_ngraph", "tests"):
        compileall.compile_dir(_ROOT / folder, quiet=2)
    with _written():
        return (yield)


@contextmanager
def _written() -> Iterator[None]:
    before = sys.dont_write_bytecode
    sys.dont_write_bytecode = False
    try:
        yield
    finally:
        sys.dont_write_bytecode = before

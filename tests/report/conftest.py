"""What the tests of pages in a real browser share. ``file`` is each module's own page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.browser import Browser, browser


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """A browser without a window; skips where there is none."""
    with browser(tmp_path_factory.mktemp("browser")) as started:
        yield started


@pytest.fixture
def opened(chromium: Browser, file: Path) -> Browser:
    """The page at 1280 pixels, as it opens without anything in its address."""
    chromium.begin(file)
    return chromium

"""The site of the docs: it is built without a warning, and needs nothing from elsewhere."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import skip_without
from tests.support.browser import browser
from tests.support.pages import ROOT, navigation

# What a browser fetches to show a page; links that a reader follows are none of it.
_FETCHED = re.compile(
    r"<(?:script|img|iframe|source|video)\b[^>]*\bsrc=[\"']([^\"']+)|<link\b[^>]*\bhref=[\"']([^\"']+)"
)
_IN_STYLE = re.compile(r"(?:url\(\s*[\"']?|@import\s+[\"'])(https?:|//)")


def build(target: Path, source: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Build the site with the command of ``make docs``."""
    words = re.search(r"^docs:.*\n(?:\t.*\n)*?\t\$\(BIN\)/python (-m sphinx .*) \. site$", MAKEFILE, re.MULTILINE)
    assert words is not None
    command = [
        sys.executable,
        *words[1].split(),
        "--doctree-dir",
        str(target / "trees"),
        str(source),
        str(target / "site"),
    ]
    return subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)


MAKEFILE = (ROOT / "Makefile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_without("sphinx", "furo", "myst_parser")
    target = tmp_path_factory.mktemp("built")
    done = build(target)
    assert (done.returncode, done.stderr) == (0, "")
    return target / "site"


@pytest.mark.real
def test_it_is_built_strictly_and_every_page_is_there(site: Path) -> None:
    listed = navigation()
    assert len(listed) > 20
    assert [entry for entry in listed if not (site / "docs" / f"{entry}.html").resolve().is_file()] == []


def test_it_needs_nothing_from_elsewhere(site: Path) -> None:
    """No script, font, picture or style of another host, so that it is read offline and tells nobody who reads it."""
    pages = list(site.rglob("*.html"))
    assert len(pages) > 20
    for page in pages:
        fetched = [one or other for one, other in _FETCHED.findall(page.read_text(encoding="utf-8"))]
        assert [place for place in fetched if re.match(r"(https?:)?//", place)] == [], page
        for place in fetched:
            if not place.startswith(("data:", "#")):
                assert (page.parent / place.partition("?")[0].partition("#")[0]).resolve().exists(), f"{page}: {place}"
    styles = [file for file in site.rglob("*.css") if _IN_STYLE.search(file.read_text(encoding="utf-8"))]
    assert styles == []


@pytest.mark.real
def test_every_page_fits_a_telephone_a_tablet_and_a_desk(site: Path, tmp_path: Path) -> None:
    """Wide tables and code scroll by themselves; no page says an error, and none asks another host for anything."""
    with browser(tmp_path) as opened:
        too_wide = []
        for page in sorted(site.rglob("*.html")):
            opened.open(page)
            for width in (400, 900, 1400):
                opened.resize(width, 1000)
                if opened.run("return document.documentElement.scrollWidth") > width:
                    too_wide.append((page.relative_to(site).as_posix(), width))
        assert too_wide == []
        assert opened.complaints() == []
        assert [place for place in opened.requests() if not place.startswith(("file:", "data:"))] == []


@pytest.mark.real
def test_the_search_finds_pages_where_the_site_is_opened_as_files(site: Path, tmp_path: Path) -> None:
    with browser(tmp_path) as opened:
        opened.open(site / "search.html", query="q=retention")
        wait = "new Promise((done) => setInterval(() => document.querySelector('ul.search li a') && done(0), 50))"
        opened.wait(wait)
        found = opened.run("return [...document.querySelectorAll('ul.search li a')].map((link) => link.href)")
        assert any("docs/reference/metrics.html" in link for link in found)
        assert opened.complaints() == []


def test_the_api_has_the_docstrings(site: Path) -> None:
    text = (site / "docs" / "reference" / "api.html").read_text(encoding="utf-8")
    assert "Claim the cell&#39;s throughput" in text or "Claim the cell’s throughput" in text
    assert "Seconds per call. With several in flight" in text


def test_the_root_leads_to_the_first_page(site: Path) -> None:
    assert "url=docs/index.html" in (site / "index.html").read_text(encoding="utf-8")

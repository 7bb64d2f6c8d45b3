"""The history of a run's cells on its page: a picture and a table for each with several sessions on this machine."""

from __future__ import annotations

import html
import re
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

import pytest

from pytest_ngraph.report.baselines import history as histories
from pytest_ngraph.report.html.content import Content, read_content
from pytest_ngraph.report.html.markup.history import history_section
from pytest_ngraph.report.html.page import page
from pytest_ngraph.stats import changes
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.browser import browser
from tests.support.sessions import FAST, Day, add_day

WITH_CHANGES = pytest.mark.skipif(find_spec("ruptures") is None, reason="ruptures is not installed")


def content(path: Path, run: int = -1) -> Content:
    with Store.open(path, read_only=True) as store:
        return read_content(store, store.runs()[run])


def section(path: Path, run: int = -1) -> str:
    return history_section(*content(path, run).history)


def rows(text: str, label: str = FAST.label) -> list[list[str]]:
    """Return the table of a cell: what stands in its rows."""
    (figure,) = re.findall(rf"<figure><figcaption>Latency of {re.escape(label)}<.*?</figure>", text)
    found = re.findall(r'<tr>(<th scope="row">.*?)</tr>', figure)
    plain = (re.sub(r"<data[^>]*></data>", "", row) for row in found)
    return [[html.unescape(cell) for cell in re.findall(r"<t[dh][^>]*>(.*?)</t[dh]>", row)] for row in plain]


def fill(path: Path, *days: Day) -> Path:
    for number, day in enumerate(days, 1):
        add_day(path, replace(day, code=f"c{number}"), number)
    return path


@WITH_CHANGES
def test_a_change_is_shown_where_it_happened_and_each_session_in_the_table(tmp_path: Path) -> None:
    text = section(fill(tmp_path / "s.sqlite", *[Day(ms=4.0)] * 6, *[Day(ms=4.6)] * 6))
    assert text.count("<figure>") == 2
    shown = rows(text)
    assert [row[0] for row in shown] == [str(number) for number in range(1, 13)]
    assert [row[-1] for row in shown].index(next(row[-1] for row in shown if row[-1])) == 6
    assert re.fullmatch(r"1[45]\.\d % slower", shown[6][-1])
    assert shown[0][4].startswith(("4.0", "3.9"))
    assert re.search(r'<text class="change"[^>]*>1[45]\.\d % slower</text>', text)
    assert text.count('<circle class="now"') == 2
    assert "12 sessions, 1 change, last 4.6" in text


def test_one_session_shows_nothing_and_looks_for_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fill(tmp_path / "s.sqlite", Day(), Day(protocol="quick"))

    def refuse(*_: object) -> None:
        raise AssertionError("looked into the history of a cell")

    monkeypatch.setattr(Store, "evidence_by_run", refuse)
    monkeypatch.setattr(histories, "histories_of", refuse)
    assert content(path, 0).history == ([], 0)
    assert section(path, 0) == ""


def test_other_machines_have_no_point_in_it(tmp_path: Path) -> None:
    slow = Day(ms=9.0, facts={"node": "bench-2"})
    set_otherwise = Day(ms=6.0, facts={"governor": "powersave"})
    path = fill(tmp_path / "s.sqlite", Day(), slow, Day(), set_otherwise, Day())
    assert [row[0] for row in rows(section(path))] == ["1", "3", "5"]
    # A machine that has measured once has none.
    assert section(path, 1) == ""


def test_what_is_in_names_of_commits_is_only_text(tmp_path: Path) -> None:
    path = fill(tmp_path / "s.sqlite", Day(commit="</svg><img src=x onerror=alert(1)>"), Day(commit="\x1b[2J<b>&amp;"))
    text = section(path)
    assert "<img" not in text
    assert "<b>" not in text
    assert "\x1b" not in text
    assert [row[2] for row in rows(text)] == ["</svg><im", "<b>&amp;"]


def test_sessions_of_one_second_and_of_a_clock_that_went_back_stand_side_by_side(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "s.sqlite"
    for number, began in enumerate(("10:00:00", "10:00:00", "09:00:00"), 1):
        monkeypatch.setattr("pytest_ngraph.store.sqlite._now", lambda began=began: f"2026-05-04T{began}.000+00:00")
        add_day(path, Day(ms=4.0 + number, code=f"c{number}"), number)
    text = section(path)
    assert [row[1][-5:] for row in rows(text)] == ["10:00", "10:00", "09:00"]
    across = [float(x) for x in re.findall(r'<circle[^>]* cx="([\d.]+)"', text)][:3]
    assert across == sorted(set(across))


def test_without_ruptures_it_says_what_is_missing_and_claims_no_level(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(changes, "find_spec", lambda name: None)
    text = section(fill(tmp_path / "s.sqlite", *[Day(ms=4.0)] * 6, *[Day(ms=4.6)] * 6))
    assert "Levels are not shown: change points need ruptures, which is not installed" in text
    assert 'class="level"' not in text
    assert "12 sessions, last" in text


def test_sessions_of_equal_numbers_and_of_one_launch_are_drawn(tmp_path: Path) -> None:
    text = section(fill(tmp_path / "s.sqlite", Day(launches=1), Day(launches=1), Day()))
    assert "nan" not in text
    assert "inf" not in text
    assert [row[3] for row in rows(text)] == ["1", "1", "3"]
    assert "[" not in rows(text)[0][4]


def test_many_cells_are_not_all_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = fill(tmp_path / "s.sqlite", Day(), Day(), Day())
    monkeypatch.setattr(histories, "_MOST_SHOWN", 1)
    text = section(path)
    assert text.count("<figure>") == 1
    assert "1 cell more: ngraph history shows them." in text


@pytest.mark.real
def test_the_page_has_it_and_is_no_wider_than_a_telephone(tmp_path: Path) -> None:
    skip_without("altair", "vl_convert")
    path = fill(tmp_path / "s.sqlite", *[Day(ms=4.0)] * 6, *[Day(ms=4.6)] * 6)
    (tmp_path / "page.html").write_text(page(content(path)), encoding="utf-8")
    (tmp_path / "once.html").write_text(page(content(fill(tmp_path / "o.sqlite", Day()))), encoding="utf-8")
    with browser(tmp_path) as opened:
        for width in (1280, 400):
            opened.resize(width, 900)
            opened.open(tmp_path / "page.html")
            assert opened.run("return document.documentElement.scrollWidth") <= width
            assert opened.run("return document.querySelectorAll('#history svg circle').length") == 24
            drawn = opened.run(
                "return [...document.querySelectorAll('#history svg text')].filter(one => { "
                "const box = one.getBoundingClientRect(), frame = one.ownerSVGElement.getBoundingClientRect(); "
                "return box.left < frame.left - 1 || box.right > frame.right + 1 || box.top < frame.top - 1; "
                "}).map(one => one.textContent)"
            )
            assert drawn == []
            assert opened.run("return document.querySelectorAll('nav a[href=\"#history\"]').length") == 1
        assert opened.complaints() == []
        opened.open(tmp_path / "once.html")
        assert opened.run("return document.querySelector('#history, [href=\"#history\"]')") is None


@pytest.mark.real
def test_a_history_can_be_copied_with_all_digits(tmp_path: Path) -> None:
    skip_without("altair", "vl_convert")
    store = fill(tmp_path / "s.sqlite", Day(ms=4.0), Day(ms=4.6))
    file = tmp_path / "page.html"
    file.write_text(page(content(store)), encoding="utf-8")
    with browser(tmp_path) as one:
        one.begin(file)
        csv = one.run("return csvOf(document.querySelector('#history table'))").splitlines()
        assert csv[0] == "run,began (UTC),commit,launches,latency [s],latency low,latency high,change"
        assert len(csv) == 3
        # The baseline's table is the first: its calls take 8 ms in all sessions.
        assert float(csv[1].split(",")[4]) == pytest.approx(0.008, rel=0.05)
        figures = one.run("return document.querySelectorAll('#history figure').length")
        assert one.run("return document.querySelectorAll('#history button.copy').length") == figures
        assert one.complaints() == []

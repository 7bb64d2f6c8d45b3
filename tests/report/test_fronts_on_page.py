"""The fronts of a run on its page: pictures and tables that say what the terminal says, and filters."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.report.fronts.stored import run_fronts
from pytest_ngraph.report.html.content import content_of, read_content
from pytest_ngraph.report.html.page import page
from pytest_ngraph.report.results.cells import cell_reports
from pytest_ngraph.report.results.offline import Judged
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.browser import browser
from tests.support.front_stores import Config, write
from tests.support.report_stores import NASTY

CONFIGS = {
    "fast": Config(10, 300 << 20),
    "small": Config(20, 50 << 20),
    "bad": Config(30, 400 << 20),
    "open": Config(10.2, 290 << 20, scatter=0.05),
    "wrong": Config(1, outcome=Outcome.MISMATCH),
}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def section(store: Path) -> str:
    """Return the markup of the section, empty where the page has none."""
    skip_without("altair", "vl_convert")
    with Store.open(store, read_only=True) as opened:
        text = page(read_content(opened, opened.runs()[-1]))
    found = re.search(r'<section id="fronts".*?</section>', text, re.DOTALL)
    assert bool(found) == ('href="#fronts"' in text)
    return found[0] if found else ""


def test_the_page_has_a_picture_and_a_table_of_each_front(store: Path) -> None:
    write(store, {**CONFIGS, "other": Config(model="timm:vgg16"), "more": Config(20, 1 << 20, model="timm:vgg16")})

    text = section(store)

    assert text.count("<figure>") == text.count("<svg") == 2
    assert "throughput (higher is better)" in text
    assert "memory (lower is better)" in text
    rows = re.findall(r"<tr data-cell=.*?</tr>", text)
    assert [len(re.findall("<td>", row)) for row in rows] == [6] * 7
    (bad,) = [row for row in rows if ">bad batch1<" in row]
    assert "off the front" in bad
    assert "dominated by " in bad
    assert "left out, mismatch: outputs differ by 7" in text
    assert "at most 1 % of such fronts throw off" in text.lower()
    # One of wrong outputs is in no picture, and who is on the front is named below it.
    assert "wrong batch1: " not in text
    assert re.search(r'<li value="1" data-cell="\d+">(fast|small) batch1</li>', text)
    # Every mark is inside of its picture.
    for x, y in re.findall(r'class="mark" d="M(-?[\d.]+),(-?[\d.]+)', text):
        assert 40 < float(x) < 340
        assert 0 < float(y) < 200


def test_offline_the_fronts_of_a_run_are_those_of_all_its_cells(store: Path) -> None:
    write(store, CONFIGS)
    with Store.open(store, read_only=True) as opened:
        run = opened.runs()[-1]
        cells, against, reports = dict(opened.cells(run.id)), opened.baselines(run.id), cell_reports(opened, run.id)
    part = dict([*cells.items()][:2])

    def fronts(judged: Judged | None) -> int:
        return len(content_of(run, reports, [], path=store, judged=judged).fronts[0])

    assert fronts(None) == fronts((cells, against)) == 1
    # What was not judged is on no front of what was.
    assert fronts((part, against)) == 0


def test_one_configuration_is_no_choice(store: Path) -> None:
    write(store, {"only": Config(), "wrong": Config(outcome=Outcome.CRASH)})
    assert section(store) == ""


def test_points_are_called_so(store: Path) -> None:
    write(store, CONFIGS, protocol="quick")
    text = section(store)
    assert "By points: the protocol quick controls no error" in text
    assert "one standard error" in text
    assert "99 %" not in text


def test_names_are_text_whatever_they_are(store: Path) -> None:
    write(store, {name: replace(config, model=f"models.py:{NASTY}") for name, config in CONFIGS.items()})
    text = section(store)
    assert "<img" not in text
    assert "&lt;img" in text


def test_equal_numbers_have_axes_too(store: Path) -> None:
    write(store, {name: Config(scatter=0.0) for name in ("a", "b")})
    text = section(store)
    assert "nan" not in text.lower()
    assert text.count('class="mark"') == 2


def test_a_page_waits_for_so_many_pairs_at_most(store: Path) -> None:
    configs = {f"c{number}": Config(10 + number, launches=1, passes=0) for number in range(40)}
    others = {f"d{number}": Config(10 + number, launches=1, passes=0, model="timm:vgg16") for number in range(40)}
    write(store, {**configs, **others}, protocol="quick")
    with Store.open(store, read_only=True) as opened:
        fronts, left_out = run_fronts(opened, opened.runs()[-1])
    assert (len(fronts), left_out) == (1, 1)
    assert "1 more task: ngraph pareto shows them." in section(store)


@pytest.mark.real
def test_filters_hide_configurations_and_keep_their_places(store: Path, tmp_path: Path) -> None:
    write(store, CONFIGS)
    skip_without("altair", "vl_convert")
    file = tmp_path / "page.html"
    with Store.open(store, read_only=True) as opened:
        file.write_text(page(read_content(opened, opened.runs()[-1])), encoding="utf-8")
    count = "return [...document.querySelectorAll('#fronts tbody tr')].filter((one) => !one.hidden).length"
    with browser(tmp_path) as one:
        one.begin(file)
        assert one.run(count) == 5
        one.open(file, query="compiler=fast&compiler=bad")
        assert one.run(count) == 2
        assert one.run("return document.querySelectorAll('#fronts svg g:not([hidden])').length") == 2
        # The copy has what is shown, each number with its interval in columns of their own.
        csv = one.run("return csvOf(document.querySelector('#fronts table'))").splitlines()
        assert csv[0].startswith("configuration,place,latency [s],latency low,latency high,")
        assert len(csv) == 1 + 2
        cells = dict(zip(csv[0].split(","), csv[1].split(","), strict=False))
        assert float(cells["latency low"]) < float(cells["latency [s]"]) < float(cells["latency high"])
        assert one.run("return document.querySelectorAll('#fronts button.copy').length") == 1
        one.open(file, query="outcome=mismatch")
        assert one.run(count) == 1
        one.resize(400, 900)
        assert one.run("return document.documentElement.scrollWidth") == 400
        assert one.complaints() == []

"""The charts in a real browser: nothing is cut, nothing moves when it is drawn, and each has its numbers as a table."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ngraph.report.html.charts import CHARTS, sections
from pytest_ngraph.report.html.content import read_content
from pytest_ngraph.report.html.page import page
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.browser import Browser
from tests.support.report_stores import FAILED, VERDICTS, Lab, write_store

pytestmark = pytest.mark.real
LAB = Lab(batches=(1, 2, 3, 16), depths=(1, 2, 6), widths=(64, 128))
# Those that a page has whatever was measured.
USUAL = [chart for chart in CHARTS if not chart.seldom]
PLACES = """
    const known = [...document.querySelectorAll("main > section, .of-chart:not([hidden])")];
    const top = (one) => one.getBoundingClientRect().top + scrollY;
    return Object.fromEntries(known.map((one) => [one.id || one.dataset.chart, top(one)]));
"""
CUT = """
    const main = document.querySelector("main").getBoundingClientRect();
    return [...document.querySelectorAll(".panel svg")].filter((one) => {
      const place = one.getBoundingClientRect(), panel = one.closest(".panel").getBoundingClientRect();
      const drawn = one.querySelector("g").getBoundingClientRect();
      const right = Math.min(main.right, panel.right, place.right);
      const isCut = drawn.right > right + 1 || place.right > panel.right + 1 || place.bottom > panel.bottom + 1;
      return place.width && isCut;
    }).map((one) => one.getAttribute("aria-label"));
"""
# Titles of axes that are shortened, whatever draws them, and what the window or a picture hides of a title.
TITLES = """
    return [...document.querySelectorAll(".panel svg .role-axis-title text")].filter((one) => {
      const place = one.getBoundingClientRect(), picture = one.ownerSVGElement.getBoundingClientRect();
      const isBeside = place.left < picture.left - 1 || place.right > picture.right + 1;
      const isOut = isBeside || place.bottom > picture.bottom + 1;
      return place.width && (one.textContent.includes("…") || isOut);
    }).map((one) => one.textContent);
"""
# The filters whose list is not wholly inside the window when somebody opens it.
BEYOND = """
    new Promise((done) => {
      const groups = [...document.querySelectorAll("#filters details")], found = [];
      const wide = document.documentElement.clientWidth;
      const next = () => {
        const group = groups.shift();
        if (group === undefined) return done(found);
        group.open = true;
        setTimeout(() => {
          const place = group.querySelector("fieldset").getBoundingClientRect();
          const isIn = place.width > 100 && place.left >= 0 && place.right <= wide;
          if (!isIn) found.push(group.querySelector("summary").textContent);
          next();
        }, 50);
      };
      next();
    })
"""
NUMBERS = """
    const one = document.querySelector(`.of-chart[data-chart='${arguments[0]}'] .numbers`);
    one.open = true;
    one.dispatchEvent(new Event("toggle"));
    return one.querySelectorAll("tbody tr").length;
"""


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A page with all charts."""
    skip_without("altair", "vl_convert")
    folder = tmp_path_factory.mktemp("pictures")
    write_store(
        folder / "results.sqlite", Lab(batches=(1, 2, 3, 16), depths=(1, 2, 6), widths=(64, 128)), VERDICTS, FAILED
    )
    with Store.open(folder / "results.sqlite", read_only=True) as store:
        content = read_content(store, store.runs()[-1])
    (folder / "report.html").write_text(page(content), encoding="utf-8")
    return folder / "report.html"


@pytest.mark.parametrize("width", [400, 718, 1280, 1600])
def test_no_chart_is_cut(chromium: Browser, file: Path, width: int) -> None:
    """718 pixels are what A4 has room for."""
    chromium.resize(width, 900)
    chromium.open(file)
    for section in sections(USUAL).values():
        chromium.run("ngraph.choose(arguments[0])", section[-1].name)
    chromium.wait("ngraph.drawAll()")

    assert chromium.run("return document.querySelectorAll('.panel svg').length") > 40
    assert chromium.run(CUT) == []
    assert chromium.run(TITLES) == []
    assert chromium.run("return document.documentElement.scrollWidth") <= width


@pytest.mark.parametrize("width", [320, 400, 718, 1280])
def test_what_a_filter_opens_is_inside_the_window(chromium: Browser, file: Path, width: int) -> None:
    chromium.resize(width, 900)
    chromium.open(file)

    assert chromium.run("return document.querySelectorAll('#filters details').length") > 5
    assert chromium.wait(BEYOND) == []


def test_what_is_open_stays_inside_when_the_window_becomes_narrow(chromium: Browser, file: Path) -> None:
    chromium.resize(1280, 900)
    chromium.open(file)
    chromium.run("document.querySelector('#filters details:last-of-type').open = true")
    chromium.wait("new Promise((done) => setTimeout(done, 50))")
    chromium.resize(400, 900)
    chromium.wait("new Promise((done) => setTimeout(done, 100))")

    right = "return document.querySelector('#filters details[open] fieldset').getBoundingClientRect().right"
    assert 0 < chromium.run(right) <= 400


def test_nothing_moves_when_charts_are_drawn(chromium: Browser, file: Path) -> None:
    chromium.resize(1280, 900)
    chromium.open(file)
    before = chromium.run(PLACES)
    chromium.wait("ngraph.drawAll()")

    assert chromium.run(PLACES) == before
    assert before["accuracy"] > 3000


def test_an_address_of_a_chart_that_is_not_shown_chooses_it(chromium: Browser, file: Path) -> None:
    chromium.resize(1280, 900)
    chromium.open(file)
    assert chromium.run("return document.getElementById('bsr').hidden")
    chromium.run("location.hash = 'bsr'")
    chromium.wait("ngraph.drawAll()")

    assert chromium.run("return document.getElementById('bsr').hidden") is False
    assert chromium.run("return document.getElementById('throughput').hidden")
    assert chromium.run("return document.querySelector('#models [aria-pressed=true]').textContent") == "BSR"
    assert abs(chromium.run("return document.getElementById('models').getBoundingClientRect().top")) < 120


def test_batches_stand_as_far_apart_as_their_logarithms(chromium: Browser, file: Path) -> None:
    chromium.resize(1280, 900)
    chromium.open(file)
    chromium.wait("ngraph.drawAll()")
    places = chromium.run("""
        const axis = document.querySelector("#throughput .panel:nth-child(9) svg .role-axis-label");
        const texts = axis.querySelectorAll("text");
        const middle = (one) => one.getBoundingClientRect().x + one.getBoundingClientRect().width / 2;
        return Object.fromEntries([...texts].map((one) => [one.textContent, middle(one)]));
    """)

    assert set(places) == {"1", "2", "3", "16"}
    assert (places["16"] - places["2"]) / (places["2"] - places["1"]) == pytest.approx(3, rel=0.1)


def test_each_chart_has_its_numbers_as_a_table_and_a_label(chromium: Browser, file: Path) -> None:
    chromium.resize(1280, 900)
    chromium.open(file)
    chromium.wait("ngraph.drawAll()")
    for chart in USUAL:
        chromium.run("ngraph.choose(arguments[0])", chart.name)
        rows = chromium.run("return ngraph.rows(arguments[0]).length", chart.name)
        shown = chromium.run(NUMBERS, chart.name)
        assert shown == rows, chart.name
    unnamed = (
        "return [...document.querySelectorAll('.panel svg')].filter(one => !one.getAttribute('aria-label')).length"
    )
    assert chromium.run(unnamed) == 0


def test_what_is_not_shown_is_said_and_comes_when_asked_for(chromium: Browser, file: Path, tmp_path: Path) -> None:
    many = Lab(devices=("xeon",), models=tuple(f"timm:model{number}" for number in range(50)), depths=(), launches=1)
    write_store(tmp_path / "many.sqlite", many)
    with Store.open(tmp_path / "many.sqlite", read_only=True) as store:
        (tmp_path / "many.html").write_text(page(read_content(store, store.runs()[-1])), encoding="utf-8")
    chromium.open(tmp_path / "many.html")
    captions = "return [...document.querySelectorAll('#throughput figcaption')].map(one => one.textContent)"

    assert chromium.run(captions) == [f"timm:model{number}" for number in range(40)]
    assert "40 are shown, 10 more are not" in chromium.run(
        "return document.querySelector('#throughput .left-out').textContent"
    )
    chromium.run("document.querySelector('#throughput .left-out button').click()")
    assert chromium.run(captions) == [f"timm:model{number}" for number in range(50)]
    assert chromium.run("return document.querySelector('#throughput .left-out').hidden")


def test_families_stand_side_by_side_and_stacks_after_them(chromium: Browser, file: Path) -> None:
    chromium.resize(1600, 900)
    chromium.open(file)
    places = chromium.run("""
        return [...document.querySelectorAll("#throughput .panel")].map((one) => {
          const place = one.getBoundingClientRect();
          return [one.querySelector("figcaption").textContent, place.left, place.top];
        });
    """)
    left = {name: left for name, left, _ in places}
    last = max(top for name, _, top in places if name.startswith("timm:"))

    assert left["timm:resnet18 on orin"] == left["timm:resnet50 on xeon"] != left["timm:swin_tiny on orin"]
    assert min(top for name, _, top in places if name.startswith("block:")) > last


def test_every_chart_that_has_numbers_draws_marks(chromium: Browser, file: Path) -> None:
    chromium.open(file)
    chromium.wait("ngraph.drawAll()")
    empty = chromium.run("""
        const pictures = [...document.querySelectorAll(".of-chart:not([hidden]) .panel svg")];
        const isDrawn = (one) => one.querySelector("[class*='role-mark'] path[d], [class*='role-mark'] line[stroke]");
        return [pictures.length, pictures.filter((one) => !isDrawn(one)).map((one) => one.getAttribute("aria-label"))];
    """)
    assert empty[0] > 30
    assert empty[1] == []


def test_a_click_on_a_point_shows_the_launches_of_its_cell(chromium: Browser, file: Path) -> None:
    chromium.resize(1280, 900)
    chromium.open(file)
    chromium.wait("ngraph.drawAll()")
    before = chromium.run("return document.querySelector('#visits select').selectedOptions[0].textContent")
    chromium.run("""
        const points = document.querySelectorAll("#throughput .panel svg .mark-symbol path");
        const place = points[points.length - 1].getBoundingClientRect();
        const where = { bubbles: true, clientX: place.x + place.width / 2, clientY: place.y + place.height / 2 };
        points[points.length - 1].dispatchEvent(new MouseEvent("click", where));
    """)
    chromium.wait("ngraph.drawAll()")
    after = chromium.run("return document.querySelector('#visits select').selectedOptions[0].textContent")

    assert after != before
    # Four launches of three blocks, and the three percentiles.
    assert chromium.run("return ngraph.rows('visits').length") == 4 * 3 + 3
    assert "4 launches; percentiles over 60 samples" in chromium.run(
        "return document.querySelector('#visits').textContent"
    )
    # From the keyboard the list has every cell.
    chromium.run("document.querySelector('#visits select').dispatchEvent(new Event('focus'))")
    assert chromium.run("return document.querySelectorAll('#visits option').length") > 100


def test_print_draws_everything_as_wide_as_paper_and_goes_back(chromium: Browser, file: Path) -> None:
    chromium.resize(1600, 900)
    chromium.open(file)
    drawn = chromium.wait("""new Promise((done) => {
        window.print = () => {
          const pictures = [...document.querySelectorAll(".of-chart:not([hidden]) .panel")];
          const undrawn = pictures.filter((one) => !one.querySelector("svg")).length;
          const widest = Math.max(...pictures.map((one) => one.getBoundingClientRect().width));
          setTimeout(() => done([pictures.length, undrawn, widest, document.querySelector("main").style.maxWidth]), 50);
        };
        document.getElementById("print").click();
    })""")

    assert drawn[0] > 40
    assert drawn[1] == 0
    assert drawn[2] <= 700
    assert drawn[3] == ""

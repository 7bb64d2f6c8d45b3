"""The page in a real browser: filters, what they hide, the address, links, tables, keyboard, print, and no script."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.report.html.content import read_content
from pytest_ngraph.report.html.page import page
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.browser import Browser
from tests.support.report_stores import FAILED, NASTY, VERDICTS, Lab, write_store

LAB = Lab(batches=(1, 2, 8, 16), depths=(1, 2, 3))
pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page of a lab, with claims of every verdict and a cell that failed."""
    skip_without("altair", "vl_convert")
    folder = tmp_path_factory.mktemp("page")
    write_store(folder / "results.sqlite", LAB, VERDICTS, FAILED)
    with Store.open(folder / "results.sqlite", read_only=True) as store:
        text = page(read_content(store, store.runs()[-1]))
    (folder / "report.html").write_text(text, encoding="utf-8")
    return folder / "report.html"


CHOOSE = """
    const boxes = [...document.querySelectorAll(`input[name="${arguments[0]}"]`)];
    const box = boxes.find((one) => one.value === arguments[1]);
    const group = box.closest("details");
    [...group.querySelectorAll("button")].find((one) => one.textContent === "None").click();
    box.click();
"""
COUNTS = """
    const counts = [...document.querySelectorAll(".count")];
    return Object.fromEntries(counts.map((one) => [one.dataset.verdict, Number(one.querySelector("b").textContent)]));
"""
LEFT = "return document.querySelector('#filters output').textContent"


def rows(opened: Browser, section: str) -> list[list[str]]:
    found: list[list[str]] = opened.run(
        "const texts = (row) => [...row.children].map((one) => one.textContent);"
        "return [...document.querySelectorAll(arguments[0])].map(texts);",
        f"#{section} tbody tr",
    )
    return found


# Filters


def test_counts_and_claims_follow_the_filters(opened: Browser) -> None:
    assert opened.run(COUNTS) == {"pass": 2, "inconclusive": 1, "fail": 1, "invalid": 2}

    opened.run(CHOOSE, "verdict", "fail")
    assert opened.run(COUNTS) == {"pass": 0, "inconclusive": 0, "fail": 1, "invalid": 0}
    assert [row[1] for row in rows(opened, "claims > .table")] == ["✗ fail"]
    # The one cell that the failing claim is about.
    assert opened.run(LEFT) == "1 of 289 cells"
    opened.run("document.querySelector('#filters .clear').click()")
    opened.run(CHOOSE, "outcome", "failed")
    assert opened.run(LEFT) == "1 of 289 cells"
    assert NASTY in rows(opened, "results")[0][0]
    assert opened.run(COUNTS)["invalid"] == 1
    assert opened.complaints() == []


def test_what_a_filter_hides_is_not_said_to_be_unmeasured(opened: Browser) -> None:
    """Under a filter every chart without rows said "Nothing of this was measured"."""
    words = """
        const places = [...document.querySelectorAll(".of-chart .empty")].filter((one) => !one.hidden);
        return Object.fromEntries(places.map((one) => [one.closest(".of-chart").dataset.chart, one.textContent]));
    """
    before = opened.run(words)
    opened.run(CHOOSE, "outcome", "failed")
    opened.wait("ngraph.drawAll()")

    said = opened.run(words)
    hidden = {name: text for name, text in said.items() if name not in before}
    assert len(hidden) > 8
    assert all("The filters hide what was measured of this" in text for text in hidden.values()), hidden
    # What nobody measured is not hidden.
    assert {name: text for name, text in said.items() if name in before} == before
    opened.run("[...document.querySelectorAll('.empty button')].find((one) => one.offsetParent !== null).click()")
    opened.wait("ngraph.drawAll()")
    assert opened.run(LEFT) == "289 of 289 cells"
    assert opened.run(words) == before
    assert opened.run("return location.search") == ""


def test_names_and_numbers_of_a_filter_stand_in_their_natural_order(opened: Browser) -> None:
    values = "return [...document.querySelectorAll(`input[name='${arguments[0]}']`)].map((one) => one.value)"

    assert opened.run(values, "batch") == ["1", "2", "8", "16"]
    # Those without a width have the last word.
    assert opened.run(values, "width") == ["64", "96", "null"]
    assert opened.run(values, "model")[:3] == ["block:conv", f"models.py:{NASTY}", "timm:deit_small"]


# The address


def test_what_is_chosen_is_in_the_address_and_comes_back(opened: Browser, file: Path) -> None:
    opened.run(CHOOSE, "device", "orin")
    opened.run("document.querySelector('input[name=compiler][value=torchscript]').click()")
    opened.run(CHOOSE, "width", "null")
    opened.run(
        "[...document.querySelectorAll('#results th button')].find((one) => one.textContent === 'Latency').click()"
    )
    opened.run("document.querySelectorAll('#scoreboard .switch button')[1].click()")
    query, left, first = opened.run("return location.search"), opened.run(LEFT), rows(opened, "results")[0]

    opened.open(file)
    assert rows(opened, "results")[0] != first
    opened.open(file, query=query.removeprefix("?"))
    assert (opened.run("return location.search"), opened.run(LEFT)) == (query, left)
    assert rows(opened, "results")[0] == first
    assert (
        opened.run("return [...document.querySelectorAll('#scoreboard table')].filter((one) => !one.hidden).length")
        == 1
    )
    assert "compiler: 3 of 4" in opened.run("return document.getElementById('filters').textContent")
    # Nothing at all is a choice, too.
    opened.run(
        "[...document.querySelector('input[name=batch]').closest('details').querySelectorAll('button')][1].click()"
    )
    opened.open(file, query=opened.run("return location.search").removeprefix("?"))
    assert opened.run(LEFT) == "0 of 289 cells"
    assert opened.complaints() == []


@pytest.mark.parametrize(
    "query",
    [
        "device=gone&batch=3&model=%E0%A4%A",
        "__proto__=1&constructor=2&toString=3&verdict=~",
        "sort=results:nothing&sort=gone:-x&sort=:&scoreboard=gone",
        "compiler=%3Cscript%3Ewindow.hurt=1%3C/script%3E&batch=~not&" + "x=1&" * 2000,
    ],
)
def test_an_address_full_of_garbage_changes_nothing(opened: Browser, file: Path, query: str) -> None:
    opened.open(file, query=query)

    assert opened.run(LEFT) == "289 of 289 cells"
    assert opened.run("return window.hurt === undefined")
    assert len(opened.run(COUNTS)) == 4
    assert opened.complaints() == []
    opened.run("location.hash = '#%E0%A4%A'")
    opened.run("location.hash = '#cell-99999'")
    assert opened.complaints() == []


# Links


@pytest.mark.parametrize("target", ["bsr", "accuracy", "results", "environment"])
def test_a_link_stays_where_it_leads_while_charts_above_are_drawn(opened: Browser, target: str) -> None:
    """The page grew under a jump: links landed 4,040 and 5,338 pixels away."""
    # The charts of a section have addresses of their own, and the bar of links has the sections.
    opened.run("const link = document.querySelector(`nav a[href='#${arguments[0]}']`);"
               "if (link) link.click(); else location.hash = arguments[0];", target)  # fmt: skip
    opened.wait("ngraph.drawAll().then(() => new Promise((done) => setTimeout(done, 300)))")

    top, end = opened.run("return [document.getElementById(arguments[0]).getBoundingClientRect().top, "
                          "document.documentElement.scrollHeight - innerHeight - scrollY]", target)  # fmt: skip
    # Below the filters, which stay in view, or at the end of the page.
    assert -2 <= top <= 100 or end < 2


def test_a_reader_who_moves_on_is_not_taken_back(opened: Browser) -> None:
    opened.run("location.hash = '#environment'")
    opened.run("window.dispatchEvent(new Event('wheel')); window.scrollTo({ top: 0, behavior: 'instant' })")
    opened.wait("ngraph.drawAll().then(() => new Promise((done) => setTimeout(done, 300)))")

    assert opened.run("return scrollY") < 50


def test_a_claim_leads_to_the_row_of_its_cell_however_far_down_and_hidden_it_is(opened: Browser) -> None:
    link = "#claims > .table a"
    cell = opened.run(f"return document.querySelector('{link}').hash.slice(1)")
    opened.run(CHOOSE, "device", "orin")
    opened.run("location.hash = arguments[0]", f"#{cell}")
    opened.wait("new Promise((done) => setTimeout(done, 300))")

    top, current, text = opened.run(
        "const one = document.getElementById(arguments[0]);"
        "return [one.getBoundingClientRect().top, one.getAttribute('aria-current'), one.textContent]",
        cell,
    )
    assert 0 < top < 900
    assert current == "true"
    assert "timm:efficientnet_b3" in text
    # The row was hidden by a filter: a link that leads nowhere says nothing.
    assert opened.run(LEFT) == "289 of 289 cells"


# Tables


def test_names_stay_in_sight_when_a_table_is_scrolled(opened: Browser) -> None:
    opened.resize(400, 900)
    left = (
        "const holder = document.querySelector('#results .table'); holder.scrollLeft = 500; holder.scrollTop = 60;"
        "return [...holder.querySelectorAll('thead th:first-child, tbody th')].slice(0, 9)"
        ".map((one) => one.getBoundingClientRect().left - holder.getBoundingClientRect().left)"
    )
    assert all(0 <= each <= 2 for each in opened.run(left))


def test_a_table_is_copied_as_csv_with_all_rows_that_the_filters_leave(opened: Browser) -> None:
    opened.run(CHOOSE, "device", "xeon")
    lines = list(csv.DictReader(io.StringIO(opened.run("return ngraph.csv('results')"))))

    assert len(lines) == 145
    first = next(line for line in lines if line["compiler"] == "openvino" and line["what"].startswith("timm:resnet18"))
    low, value, high = (float(first[f"Speed-up{end}"]) for end in (" low", "", " high"))
    assert low < value < high
    nasty = next(line for line in lines if NASTY in line["what"])
    assert nasty["outcome"] == "failed"
    assert "</script>" in nasty["reason"]
    claims = list(csv.DictReader(io.StringIO(opened.run("return ngraph.csv('claims')"))))
    assert [line["verdict"] for line in claims] == ["fail", "invalid", "invalid", "inconclusive"]
    said = "return document.querySelector('#results .tools output').textContent"
    # Charts that are drawn meanwhile would move the button away from the mouse.
    opened.wait("ngraph.drawAll()")
    opened.click("#results .copy")
    opened.wait("new Promise((done) => setTimeout(done, 300))")
    assert opened.run(said) == "Copied 145 rows."


def test_the_name_of_a_result_shows_how_its_times_are_distributed(opened: Browser) -> None:
    row = (
        "[...document.querySelectorAll('#results tbody tr')].find((one) => one.children[2].textContent === 'openvino')"
    )
    name, batch = opened.run(f"const row = {row}; return [...row.children].slice(0, 2).map((one) => one.textContent)")
    opened.run(f"{row}.querySelector('th button').click()")
    opened.wait("ngraph.drawAll()")

    shown, top = opened.run(
        "const one = document.getElementById('visits');"
        "return [one.querySelector('select').selectedOptions[0].textContent, one.getBoundingClientRect().top]"
    )
    assert shown == f"openvino, {name} batch{batch}"
    assert -900 < top < 900
    assert opened.complaints() == []


def test_what_a_spreadsheet_takes_for_a_formula_is_a_text(opened: Browser) -> None:
    written = "return arguments[0].map(csvText)"
    texts = ["=1+1", " @x", "-1", "a,b", 'say "x"', "plain", None, -1.5]

    assert opened.run(written, texts) == ["'=1+1", "' @x", "'-1", '"a,b"', '"say ""x"""', "plain", "", "-1.5"]


def test_the_scoreboard_has_a_switch_and_follows_device_and_compiler(opened: Browser) -> None:
    shown = """
        const rows = (one) => [...one.querySelectorAll("tbody tr")].filter((row) => !row.hidden).length;
        const tables = [...document.querySelectorAll("#scoreboard table")].filter((one) => !one.hidden);
        return tables.map((one) => [one.dataset.device, rows(one)]);
    """
    assert opened.run(shown) == [["orin", 3], ["xeon", 3]]
    opened.run("document.querySelectorAll('#scoreboard .switch button')[2].click()")
    assert opened.run(shown) == [["xeon", 3]]
    assert opened.run("return document.getElementById('scoreboard-note').hidden") is True
    opened.run(CHOOSE, "compiler", "openvino")
    assert opened.run(shown) == [["xeon", 1]]
    opened.run(CHOOSE, "batch", "8")
    assert opened.run("return document.getElementById('scoreboard-note').hidden") is False


@pytest.mark.parametrize(
    ("lab", "failed", "cells", "says"),
    [
        (Lab(devices=("xeon",), models=(), depths=()), {}, 0, "No claim was made."),
        (Lab(devices=("xeon",), models=(), depths=()), FAILED, 1, "1 cell could not run as asked (openvino)."),
        (Lab(("xeon",), ("identity",), ("timm:resnet18",), (1,), depths=(), launches=1), {}, 1, "No claim was made."),
    ],
    ids=["nothing", "only failures", "one cell, one launch"],
)  # fmt: skip
def test_a_run_with_next_to_nothing_opens_without_a_complaint(
    chromium: Browser, tmp_path: Path, lab: Lab, failed: dict[Cell, str], cells: int, says: str
) -> None:
    skip_without("altair", "vl_convert")
    write_store(tmp_path / "few.sqlite", lab, (), failed)
    with Store.open(tmp_path / "few.sqlite", read_only=True) as store:
        (tmp_path / "few.html").write_text(page(read_content(store, store.runs()[-1])), encoding="utf-8")
    chromium.screen()
    chromium.complaints()
    chromium.open(tmp_path / "few.html")
    chromium.wait("ngraph.drawAll()")

    assert chromium.complaints() == []
    assert chromium.run(LEFT) == f"{cells} of {cells} cells"
    assert chromium.run("return document.querySelector('.answer').textContent").endswith(says)
    assert "No claim was made" in chromium.run("return document.getElementById('summary').textContent")


# Keyboard, screen readers, print, and no script


def test_everything_that_can_be_used_has_a_name_and_is_reached_by_tab(opened: Browser) -> None:
    assert opened.nameless() == []
    ends = opened.run("""
        return [...document.querySelectorAll("table")].map((one) => [one.closest("section").id,
            one.querySelectorAll("th[scope=col]").length > 0,
            [...one.querySelectorAll("tbody tr")].every((row) => row.children[0].scope === "row")]);
    """)
    assert ends
    assert all(heads and names for _, heads, names in ends), ends
    ids = opened.run("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))


def test_a_filter_is_worked_by_keys_alone(opened: Browser) -> None:
    opened.run("document.querySelector('#filters summary').focus()")
    for key in ("Enter", "Tab", "Tab", " ", "Tab", " ", "Escape"):
        opened.press(key)

    # All, None (taken), the first device.
    assert opened.run(LEFT).startswith("144 of")
    assert opened.run("return document.activeElement.tagName") == "SUMMARY"


def test_no_table_is_wider_than_the_paper(opened: Browser) -> None:
    opened.screen("print")
    opened.resize(718, 1000)  # A4 less its margins
    opened.wait("ngraph.drawAll()")

    wide = opened.run(
        "const parts = [...document.querySelectorAll('.table, header')];"
        "return parts.map((one) => [one.closest('section')?.id, one.scrollWidth, one.clientWidth]);"
    )
    assert all(inner <= outer + 1 for _, inner, outer in wide), wide
    hidden = opened.run(
        "const parts = ['#filters', '.tools', 'nav', '.actions'].map((one) => document.querySelector(one));"
        "return parts.map((one) => getComputedStyle(one).display);"
    )
    assert set(hidden) == {"none"}


@pytest.fixture
def printed(chromium: Browser, tmp_path: Path) -> Browser:
    """A page whose charts are drawn in a few seconds: who prints by keys waits for all of them."""
    skip_without("altair", "vl_convert")
    small = Lab(("xeon",), models=("timm:resnet18", "timm:swin_tiny"), batches=(1, 8), depths=(1, 2), widths=(64,))
    write_store(tmp_path / "small.sqlite", replace(small, blocks=1, samples=3), VERDICTS, FAILED)
    with Store.open(tmp_path / "small.sqlite", read_only=True) as store:
        (tmp_path / "small.html").write_text(page(read_content(store, store.runs()[-1])), encoding="utf-8")
    chromium.begin(tmp_path / "small.html")
    return chromium


def test_what_is_printed_by_the_keyboard_has_all_charts(printed: Browser, tmp_path: Path) -> None:
    """Ctrl+P printed those that had been drawn, and empty room for the others."""
    opened = printed
    drawn = "return ngraph.drawn().length"
    before = opened.run(drawn)
    width = opened.run("return document.querySelector('main').clientWidth")

    text = opened.paper_text(tmp_path)

    # Titles of axes are in no other place than in charts: these are the last ones, and far down the page.
    for title in ("seconds for a call", "largest error / largest reference value", "CPU usage [%]"):
        assert title in text, title
    assert "Not drawn" not in text
    assert before < 8
    # Afterwards it is as it was.
    opened.wait("new Promise((done) => setTimeout(done, 300))")
    assert opened.run("return document.querySelector('main').clientWidth") == width
    assert opened.complaints() == []


def test_a_chart_that_could_not_be_drawn_says_so_on_paper(printed: Browser, tmp_path: Path) -> None:
    printed.run("window.vegaEmbed = () => new Promise(() => {})")

    assert "Not drawn. The tables have its numbers" in printed.paper_text(tmp_path)


def test_without_scripts_the_answer_and_its_tables_are_there(chromium: Browser, file: Path) -> None:
    chromium.complaints()
    chromium.scripts(False)
    try:
        chromium.open(file)
        seen: dict[str, Any] = chromium.evaluate("""({
            answer: document.querySelector('.answer').textContent,
            tables: [...document.querySelectorAll('table')].filter((one) => one.offsetHeight > 0).length,
            charts: [...document.querySelectorAll('.of-chart, #filters')].filter((one) => one.offsetHeight > 0).length,
            rows: document.querySelectorAll('#results tbody tr').length,
        })""")
    finally:
        chromium.scripts(True)

    assert seen["answer"].startswith("2 of 6 claims hold, 1 fails, 3 are undecided; ")
    assert seen["tables"] >= 6
    assert seen["charts"] == 0
    assert seen["rows"] == 200

"""Names in charts: whatever they are, no two that differ look alike, however little room there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from pytest_ngraph.report.figures.chosen import Chosen
from pytest_ngraph.report.figures.layout import sheets
from pytest_ngraph.report.figures.paper import throughput as figure_5
from pytest_ngraph.report.figures.size import Size
from pytest_ngraph.report.html.charts import CHARTS, Chart, sections
from pytest_ngraph.report.html.content import Content, read_content
from pytest_ngraph.report.html.drawing import NAMES, PANELS, Look
from pytest_ngraph.report.html.figures import figure
from pytest_ngraph.report.html.page import page
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.browser import Browser, browser
from tests.support.report_stores import Lab, of, verdict, write_store

pytestmark = pytest.mark.real
# They differ at their ends, in their middles, and in how often something is repeated.
DEVICES = tuple(f"board-of-the-second-room-of-the-lab-on-the-left-number-{number}" for number in (1, 2))
COMPILERS = ("identity", *(f"compiler_of_the_{kind}_kind_of_all_that_are_there" for kind in ("first", "third")))
MODELS = (
    *(f"timm:resnet18_of_the_{year}_with_everything_that_was_added_later" for year in (2019, 2020)),
    *(f"timm:resnet18_with_everything_that_was_added_later_of_{year}" for year in (2019, 2020)),
    f"models.py:{'aba' * 30}",
    f"models.py:{'aba' * 31}",
)
LAB = Lab(
    devices=DEVICES, compilers=COMPILERS, models=MODELS, batches=(1, 8), depths=(1, 2), widths=(64, 128), launches=3
)
USUAL = [chart for chart in CHARTS if not chart.seldom]
VERDICTS = [
    verdict(of(model, COMPILERS[1], 8, DEVICES[0]), "fail", 1.4, (1.2, 1.1, 1.3), test="half_as_fast_again_or_more")
    for model in MODELS
]
AT_AXES = """
    const place = document.querySelector(`.of-chart[data-chart='${arguments[0]}']`);
    const names = (panel) => [...panel.querySelectorAll("[aria-label^='Y-axis'] .role-axis-label text")];
    return [...place.querySelectorAll(".panel")].map((panel) => [
      panel.querySelector("figcaption")?.title ?? "",
      names(panel).map((one) => one.textContent),
      Math.max(0, ...names(panel).map((one) => one.getBoundingClientRect().width)),
      panel.clientWidth,
    ]);
"""
CAPTIONS = """
    const place = document.querySelector(`.of-chart[data-chart='${arguments[0]}']`);
    const captions = [...place.querySelectorAll("figcaption")];
    return captions.map((one) => [one.title, one.textContent, one.scrollWidth - one.clientWidth]);
"""
AT_ENDS = """
    const place = document.querySelector(`.of-chart[data-chart='${arguments[0]}']`);
    return [...place.querySelectorAll(".panel")].map((panel) =>
      [...panel.querySelectorAll(".mark-text.role-mark text")].map((one) => one.textContent));
"""


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Content:
    """A run of long names."""
    skip_without("altair", "vl_convert")
    path = tmp_path_factory.mktemp("names") / "results.sqlite"
    write_store(path, LAB, VERDICTS)
    with Store.open(path, read_only=True) as store:
        return read_content(store, store.runs()[-1])


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory, content: Content) -> Iterator[Browser]:
    """A browser without a window that shows the run's page; skips where there is none."""
    folder = tmp_path_factory.mktemp("chromium")
    (folder / "report.html").write_text(page(content), encoding="utf-8")
    with browser(folder) as found:
        found.open(folder / "report.html")
        yield found


@pytest.mark.parametrize("width", [400, 1280])
def test_no_two_names_look_alike(chromium: Browser, width: int) -> None:
    chromium.resize(width, 900)
    # The page makes room again a moment after the window has changed.
    chromium.wait("new Promise((done) => setTimeout(done, 300))")
    at_axes = above = at_ends = 0
    # Of a section that several charts share one is shown at a time.
    for which in (0, -1):
        shown = [charts[which] for charts in sections(USUAL).values()]
        for chart in shown:
            chromium.run("ngraph.choose(arguments[0])", chart.name)
        chromium.wait("ngraph.drawAll()")
        for chart in shown:
            rows = chromium.run("return ngraph.rows(arguments[0])", chart.name)
            if len(chart.line) == 1:
                at_axes += check_axes(chromium, chart, rows)
            if chart.panel is not None and rows:
                above += check_captions(chromium, chart, rows)
            if chart.along is not None and width == 1280:
                at_ends += check_ends(chromium, chart)
    assert at_axes > 50
    assert above > (40 if width == 400 else 0)
    # In a narrow panel there are none.
    assert (at_ends > 20) == (width == 1280)


def check_axes(chromium: Browser, chart: Chart, rows: list[dict[str, Any]]) -> int:
    """Hold every panel to a label for each name, no two alike and none wider than half of it. Return how many."""
    seen = 0
    for key, shown, widest, room in chromium.run(AT_AXES, chart.name):
        names = {row[chart.line[0]] for row in rows if not chart.panel or str(row[chart.panel]) == key}
        assert len(set(shown)) == len(shown) == len(names), (chart.name, shown)
        assert widest < 0.5 * room, chart.name
        seen += len(shown)
    assert seen == len({(row.get(chart.panel or ""), row[chart.line[0]]) for row in rows}), chart.name
    return seen


def check_captions(chromium: Browser, chart: Chart, rows: list[dict[str, Any]]) -> int:
    """Hold the names above panels to be all different, and none cut by the browser. Return how many are cut here."""
    captions = chromium.run(CAPTIONS, chart.name)
    assert {whole for whole, _, _ in captions} == {str(row[chart.panel or ""]) for row in rows}
    assert len({text for _, text, _ in captions}) == len(captions), captions
    assert max(beyond for _, _, beyond in captions) <= 0, captions
    return sum("…" in text for _, text, _ in captions)


def check_ends(chromium: Browser, chart: Chart) -> int:
    """Hold the names at the ends of a panel's lines to be all different. Return how many there are."""
    panels = chromium.run(AT_ENDS, chart.name)
    assert all(len(set(names)) == len(names) for names in panels), panels
    # The kind is in the middle of the compilers' names.
    assert all("…" in name for names in panels for name in names if name.startswith("comp")), panels
    return sum(map(len, panels))


@pytest.mark.parametrize("chart", CHARTS, ids=lambda chart: chart.name)
def test_files_show_all_of_a_name_where_they_have_room_and_no_two_alike(content: Content, chart: Chart) -> None:
    spec = figure(chart, content, Look.of(content))
    if spec is None:
        assert chart.seldom or chart.rows in ("reversals", "break_even") or chart.name == "tuning"
        return
    known = {one["name"]: one["value"] for one in spec["params"]}
    names = {row[chart.line[0]] for row in spec["datasets"]["rows"]} if len(chart.line) == 1 else set()
    whole, shown = (known.get(name, []) for name in NAMES)
    assert set(whole) == names
    assert len(set(shown)) == len(shown) == len(whole)
    assert all(text == name or len(name) > 120 >= len(text) for name, text in zip(whole, shown, strict=True))
    if "facet" in spec:
        assert (
            len(set(known[PANELS[1]]))
            == len(known[PANELS[0]])
            == len({row[chart.panel or ""] for row in spec["datasets"]["rows"]})
        )
    if chart.along is not None:
        labels = {(row["compiler"], row["label"]) for row in spec["datasets"]["rows"]}
        assert len({label for _, label in labels}) == len(labels)


def test_no_two_names_in_the_legend_of_a_papers_figure_look_alike(content: Content) -> None:
    panels = figure_5(Chosen(content, (), Size()))[:2]
    (sheet,) = sheets(panels, Size())
    shown = {text for text in re.findall(r">([^<>]+)</text>", sheet.svg) if text.startswith("compiler")}

    assert len(shown) == len(COMPILERS) - 1
    assert all("…" in text for text in shown)

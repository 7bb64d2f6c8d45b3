"""The page of several runs in a real browser: charts, filters, the address, tables as CSV, print, and strange runs."""

from __future__ import annotations

import csv
import io
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.report.answer.scoreboard import scoreboard
from pytest_ngraph.report.html.content import Content, read_content
from pytest_ngraph.report.several.charts import charts_of_runs
from pytest_ngraph.report.several.page import several
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.report.test_filtered_means import CHOOSE
from tests.support import report_stores
from tests.support.browser import Browser
from tests.support.report_stores import FAILED, NASTY, VERDICTS, Lab, write_store

pytestmark = pytest.mark.real
LAB = Lab(devices=("xeon",), batches=(1, 8), depths=(1, 2), widths=(64,), blocks=2, samples=3)
# Fewer models and compilers, on a machine of another name.
OTHER = replace(LAB, models=tuple(report_stores.MODELS)[:3], compilers=("identity", "openvino"))
NAMES = ["before", f"after{NASTY}"]


def measured(
    path: Path, lab: Lab, verdicts: tuple[VerdictRow, ...] = (), failed: dict[Cell, str] | None = None
) -> Content:
    write_store(path, lab, verdicts, failed or {})
    with Store.open(path, read_only=True) as store:
        return read_content(store, store.runs()[-1])


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> list[Content]:
    """Two runs: in the second one OpenVINO is slower, and there are fewer cells."""
    folder = tmp_path_factory.mktemp("several")
    first = measured(folder / "a.sqlite", LAB, VERDICTS, FAILED)
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(report_stores.COMPILERS, "openvino", ({}, 0.8))
        second = measured(folder / "b.sqlite", OTHER, (replace(VERDICTS[0], verdict="fail"),))
    return [first, second]


@pytest.fixture(scope="module")
def file(contents: list[Content], tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_without("altair", "vl_convert")
    path = tmp_path_factory.mktemp("page") / "both.html"
    path.write_text(several(contents, NAMES), encoding="utf-8")
    return path


LEFT = "return document.querySelector('#filters output').textContent"


def csv_of(opened: Browser, section: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(opened.run("return ngraph.csv(arguments[0])", section))))


def test_each_chart_has_both_runs_on_the_same_axes(opened: Browser, contents: list[Content]) -> None:
    """The page of several runs had no charts."""
    for chart in charts_of_runs(contents):
        opened.run("ngraph.choose(arguments[0])", chart.name)
        opened.wait("ngraph.drawAll()")
        rows = opened.run("return ngraph.rows(arguments[0])", chart.name)
        if chart.name == "tuning":
            assert rows == []
            continue
        assert {row["run"] for row in rows} == set(NAMES), chart.name
    found = opened.run("return ngraph.rows('speedup_lines')")
    mine = {
        (name, str(one.cell.compiler), one.cell.workload.model.text, one.cell.workload.batch): one.estimates["speedup"]
        for name, content in zip(NAMES, contents, strict=True)
        for one in content.reports
        if "speedup" in one.estimates and one.cell.workload.depth is None
    }
    theirs = {(row["run"], row["compiler"], row["model"], row["batch"]): row for row in found if row["depth"] is None}
    assert theirs.keys() == mine.keys()
    for key, row in theirs.items():
        assert [row["value"], row["low"], row["high"]] == pytest.approx(
            [mine[key].value, mine[key].low, mine[key].high], rel=1e-4
        )
    # A panel has one compiler and one model, of every run that has both.
    opened.run("ngraph.choose('speedup_lines')")
    opened.wait("ngraph.drawAll()")
    panels = opened.run(
        "return [...document.querySelectorAll('[data-chart=speedup_lines] .panel')].map((one) => "
        "[one.querySelector('figcaption').textContent, new Set([...one.querySelectorAll('svg [aria-label]')]"
        ".map((mark) => mark.getAttribute('stroke') ?? mark.getAttribute('fill')).filter((paint) => "
        "paint?.startsWith('#0099ee') || paint?.startsWith('#bb8811'))).size])"
    )
    assert dict(panels)["timm:resnet18 · openvino"] == 2
    assert dict(panels)["timm:resnet18 · torchscript"] == 1
    assert opened.complaints() == []
    assert opened.run("return window.hurt === undefined")


def test_filters_narrow_everything_and_stay_in_the_address(
    opened: Browser, file: Path, contents: list[Content]
) -> None:
    count = sum(len(content.reports) for content in contents)
    assert opened.run(LEFT) == f"{count} of {count} cells"
    opened.run(CHOOSE, {"compiler": ["openvino"], "batch": [8], "model": ["timm:resnet18", "timm:resnet50"]})
    assert opened.run(LEFT) == f"4 of {count} cells"
    query = opened.run("return location.search").removeprefix("?")

    opened.open(file, query=query)
    assert opened.run(LEFT) == f"4 of {count} cells"
    lines = csv_of(opened, "results")
    assert [line["what"] for line in lines] == ["timm:resnet18", "timm:resnet50"]
    expected = [
        scoreboard(
            [
                one
                for one in content.reports
                if one.cell.workload.batch == 8 and "resnet" in one.cell.workload.model.text
            ],
            "gate",
        )
        for content in contents
    ]
    (line,) = csv_of(opened, "scoreboard")
    for name, scores in zip(NAMES, expected, strict=True):
        (score,) = [one for one in scores if one.compiler == "openvino"]
        assert float(line[f"geometric mean, {name}"]) == pytest.approx(score.value, rel=1e-6)
        assert float(line[f"geometric mean low, {name}"]) == pytest.approx(score.low, rel=1e-6)
        assert line[f"of what, {name}"] == score.basis
    opened.run(CHOOSE, {"run": [NAMES[1]]})
    heads = opened.run("return [...document.querySelectorAll('#results thead th')].map((one) => one.textContent)")
    assert heads == [
        "what",
        "batch",
        "compiler",
        *(f"{what}, {NAMES[1]}" for what in ("Throughput", "Speed-up", "outcome")),
    ]
    hidden = opened.run("return [...document.querySelectorAll('#answers [data-run]')].map((one) => one.hidden)")
    assert hidden == [True, False]
    assert opened.run("return document.getElementById('of-all').hidden") is False
    opened.run(CHOOSE, {"device": []})
    words = opened.run("return [...document.querySelectorAll('section > .empty')].filter((one) => !one.hidden)"
                       ".map((one) => one.textContent)")  # fmt: skip
    assert len([text for text in words if text.startswith("The filters hide all of this.")]) == 3
    opened.run("document.querySelector('section > .empty button').click()")
    assert opened.run(LEFT) == f"{count} of {count} cells"
    assert opened.complaints() == []


def test_what_only_one_run_has_says_so_and_claims_stand_side_by_side(opened: Browser) -> None:
    rows = opened.run("return [...document.querySelectorAll('#results tbody tr')].map((row) => "
                      "[...row.children].map((one) => one.textContent))")  # fmt: skip
    torchscript = next(row for row in rows if row[2] == "torchscript" and row[0] == "timm:resnet18")
    assert [cell.strip() for cell in torchscript].count("not in this run") == 3
    nasty = next(row for row in rows if NASTY in row[0])
    assert any(cell.startswith("failed") for cell in nasty)
    claims = csv_of(opened, "claims")
    changed = next(line for line in claims if "timm:resnet18" in line["claim"])
    assert [changed[f"verdict, {name}"] for name in NAMES] == ["pass", "fail"]
    gone = next(line for line in claims if "timm:swin_tiny" in line["claim"])
    assert [gone[f"verdict, {name}"] for name in NAMES] == ["inconclusive", ""]
    opened.run(CHOOSE, {"run": [NAMES[0]]})
    # There it holds.
    assert not any("timm:resnet18" in line["claim"] for line in csv_of(opened, "claims"))


def test_it_has_the_look_of_one_run_at_every_width_and_on_paper(opened: Browser, tmp_path: Path) -> None:
    for width in (400, 1280, 1600):
        opened.resize(width, 900)
        opened.wait("new Promise((done) => setTimeout(done, 300)).then(() => ngraph.drawAll())")
        assert opened.run("return document.documentElement.scrollWidth") <= width
    assert opened.nameless() == []
    ids = opened.run("return [...document.querySelectorAll('[id]')].map((one) => one.id)")
    assert len(ids) == len(set(ids))
    text = opened.paper_text(tmp_path)
    for title in ("CPU usage [%]", "Compile time [s]", "geometric mean of the speed-ups"):
        assert title in text, title
    assert "Not drawn" not in text
    assert opened.complaints() == []


def test_a_compiler_stands_in_one_column_and_a_model_in_one_row(opened: Browser) -> None:
    """Where a run lacks a model in one column, those below it must not move up beside others."""
    opened.wait("ngraph.drawAll()")
    places = opened.run(
        "return [...document.querySelectorAll('[data-chart=throughput] .panel')].map((one) => "
        "[one.querySelector('figcaption').title, one.style.gridColumn, one.style.gridRow])"
    )
    columns: dict[str, set[str]] = {}
    lines: dict[str, set[str]] = {}
    for caption, column, line in places:
        model, _, compiler = caption.rpartition(" · ")
        columns.setdefault(compiler, set()).add(column)
        lines.setdefault(model, set()).add(line)
    assert len(columns) == 4
    assert all(len(found) == 1 for found in (*columns.values(), *lines.values()))
    assert len(set.union(*lines.values())) == len(lines)


@pytest.mark.parametrize(
    "what", ["nothing in common", "the same twice", "one empty", "both empty", "three", "names of objects"]
)
def test_strange_runs_open_without_a_complaint(
    chromium: Browser, contents: list[Content], tmp_path: Path, what: str
) -> None:
    skip_without("altair", "vl_convert")
    small = replace(LAB, models=("timm:deit_small",), depths=(), launches=2)
    alone = measured(tmp_path / "alone.sqlite", small)
    empty = measured(tmp_path / "empty.sqlite", replace(small, models=()))
    runs, names = {
        "nothing in common": (
            [alone, measured(tmp_path / "other.sqlite", replace(small, models=("timm:vit",), devices=("orin",)))],
            ["a", "b"],
        ),
        "the same twice": ([alone, alone], ["a", "a"]),
        "one empty": ([alone, empty], ["a", "b"]),
        "both empty": ([empty, empty], ["a", "b"]),
        "three": ([alone, alone, alone], ["a", "b", "c"]),
        # As the command names stores of these names.
        "names of objects": ([alone, alone], ["__proto__ run 1", "~null run 1"]),
    }[what]
    (tmp_path / "strange.html").write_text(several(runs, names), encoding="utf-8")
    chromium.complaints()
    chromium.screen()
    chromium.resize(1280, 900)
    chromium.open(tmp_path / "strange.html")
    chromium.wait("ngraph.drawAll()")

    assert chromium.complaints() == []
    count = sum(len(run.reports) for run in runs)
    assert chromium.run(LEFT) == f"{count} of {count} cells"
    absent = chromium.run("return document.getElementById('results').textContent").count("not in this run")
    # Three columns of each cell that the other one lacks.
    assert absent == (3 * count if what in ("nothing in common", "one empty") else 0)
    if count:
        last = chromium.run("return [...document.querySelectorAll('input[name=run]')].at(-1).value")
        chromium.run(CHOOSE, {"run": [last]})
        query, left = chromium.run("return location.search").removeprefix("?"), chromium.run(LEFT)
        assert left == f"{len(runs[-1].reports)} of {count} cells"
        chromium.open(tmp_path / "strange.html", query=query)
        assert chromium.run(LEFT) == left
    assert chromium.complaints() == []

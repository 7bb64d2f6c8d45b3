"""What a filter leaves has its own means, intervals and counts: the page makes the numbers that a run of it would."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.report.answer.not_run import not_run
from pytest_ngraph.report.answer.scoreboard import EVERY_MODEL, Score, scoreboard
from pytest_ngraph.report.html.content import Content, placement_rows, read_content
from pytest_ngraph.report.html.page import page
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.families import family_of
from pytest_ngraph.spec.cells import CompilerSpec
from pytest_ngraph.store.rows import LeftOut
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.browser import Browser
from tests.support.report_stores import FAILED, VERDICTS, Lab, of, write_store

pytestmark = pytest.mark.real
LAB = Lab(batches=(1, 2, 8), depths=(1, 2), widths=(64,), blocks=2, samples=3)
# Two batches of one model of one compiler failed, in one of its two ways to do so.
OOM = {
    replace(of("timm:resnet18", "onnxruntime", batch), compiler=CompilerSpec("tight")): "no memory" for batch in (2, 8)
}
LEFT_OUT = LeftOut("xeon", "tvm", "timm:resnet18", "not installed", 3)


@pytest.fixture(scope="module")
def content(tmp_path_factory: pytest.TempPathFactory) -> Content:
    path = tmp_path_factory.mktemp("means") / "results.sqlite"
    write_store(path, LAB, VERDICTS, {**FAILED, **OOM})
    with Store.open(path) as store:
        store.leave_out(1, [LEFT_OUT])
        return read_content(store, store.runs()[-1])


@pytest.fixture(scope="module")
def file(content: Content, tmp_path_factory: pytest.TempPathFactory) -> Path:
    skip_without("altair", "vl_convert")
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(page(content), encoding="utf-8")
    return path


Chosen = Mapping[str, Sequence[object]]
CHOOSE = """
    for (const [axis, values] of Object.entries(arguments[0])) {
        const boxes = [...document.querySelectorAll(`input[name="${axis}"]`)];
        const group = boxes[0].closest("details");
        [...group.querySelectorAll("button")].find((one) => one.textContent === "None").click();
        for (const box of boxes) if (values.map(String).includes(box.value)) box.click();
    }
"""
# Of each table of the scoreboard: device, compiler, heading and words of each mean.
MEANS = """
    return [...document.querySelectorAll("#scoreboard table")].flatMap((table) => {
        const heads = [...table.querySelectorAll("thead th")].map((one) => one.textContent);
        return [...table.querySelectorAll("tbody tr")].flatMap((row) => [...row.children].map((cell, at) =>
            [table.dataset.device, row.dataset.compiler, heads[at], cell.querySelector("b")?.textContent ?? null,
             cell.querySelector("small")?.textContent, cell.querySelector(".claim")?.textContent,
             cell.querySelector(".basis")?.textContent]).filter((one) => one[3] !== null));
    });
"""


def value_of(report: CellReport, axis: str) -> object:
    cell = report.cell
    known: Mapping[str, Callable[[], object]] = {
        "device": lambda: cell.device,
        "compiler": lambda: str(cell.compiler),
        "model": lambda: cell.workload.model.text,
    }
    return known[axis]() if axis in known else cell.workload.value(axis)


def left(content: Content, chosen: Chosen) -> list[CellReport]:
    return [
        report
        for report in content.reports
        if all(axis in ("compiler", "outcome") or value_of(report, axis) in chosen[axis] for axis in chosen)
    ]


def words(score: Score) -> list[str | None]:
    value, _, spread = str(score).partition(" ")
    family = "all models" if score.family == EVERY_MODEL else score.family
    return [score.device, score.compiler, family, value, spread, score.claim or "no claim", score.basis]


@pytest.mark.parametrize(
    "chosen",
    [
        {},
        {"batch": [8]},
        {"batch": [1, 2], "device": ["orin"]},
        {"model": ["timm:resnet18"]},
        {"model": ["timm:resnet18", "timm:efficientnet_b3"], "compiler": ["openvino"]},
        {"model": ["timm:resnet18", "timm:efficientnet_b3", "timm:swin_tiny"]},
        {"compiler": ["openvino", "torchscript"], "batch": [1]},
        {"width": [64], "depth": [2]},
        # Nothing that failed had a speed-up: the choice is the same.
        {"outcome": ["ok"]},
    ],
    ids=lambda chosen: ",".join(chosen) or "nothing",
)
def test_means_are_those_of_a_run_of_what_the_filters_leave(opened: Browser, content: Content, chosen: Chosen) -> None:
    """Only device and compiler narrowed the means: under a filter by batch the page showed those of all batches."""
    opened.run(CHOOSE, chosen)

    scores = scoreboard(left(content, chosen), content.run.protocol)
    expected = [score for score in scores if score.compiler in chosen.get("compiler", [score.compiler])]
    assert expected
    assert sorted(opened.run(MEANS)) == sorted(map(words, expected))
    drawn = {(row["device"], row["compiler"], row["family"]): row for row in opened.run("return ngraph.rows('scores')")}
    assert len(drawn) == len(expected)
    for score in expected:
        row = drawn[score.device, score.compiler, words(score)[2] or ""]
        assert [row["value"], row["low"], row["high"]] == pytest.approx([score.value, score.low, score.high], rel=1e-6)
    assert opened.run("return document.getElementById('scoreboard-note').hidden") is not bool(
        set(chosen) - {"device", "compiler"}
    )
    assert opened.complaints() == []


@pytest.mark.parametrize(("axis", "done"), [("optimize", "channel_prune=0.5"), ("precision", "int8")])
def test_pruned_and_quantised_networks_have_means_of_their_own(
    opened: Browser, content: Content, tmp_path: Path, axis: str, done: str
) -> None:
    """They were of the model that they were made of: its mean was one of different networks."""
    timed = [one for one in content.reports if "speedup" in one.estimates and one.cell.workload.batch == 1]
    axes: dict[str, Any] = {axis: done}
    pruned = [replace(one.cell.workload, **axes) for one in timed]
    reports = [
        replace(one, cell=replace(one.cell, workload=workload)) for one, workload in zip(timed, pruned, strict=True)
    ]
    more = replace(content, reports=[*content.reports, *reports])
    (tmp_path / "report.html").write_text(page(more), encoding="utf-8")
    opened.open(tmp_path / "report.html")

    expected = scoreboard(more.reports, content.run.protocol)
    assert {score.family for score in expected} > {EVERY_MODEL, f"all models, {done}"}
    assert sorted(map(words, scoreboard(content.reports, content.run.protocol))) == sorted(
        words(score) for score in expected if done not in score.family
    )
    drawn = {(row["device"], row["compiler"], row["family"]): row for row in opened.run("return ngraph.rows('scores')")}
    assert {key: row["value"] for key, row in drawn.items()} == pytest.approx(
        {(score.device, score.compiler, words(score)[2]): score.value for score in expected}, rel=1e-6
    )
    opened.run(CHOOSE, {axis: [done]})
    assert sorted(opened.run(MEANS)) == sorted(map(words, scoreboard(reports, content.run.protocol)))


def test_a_choice_by_verdict_has_no_interval_and_claims_nothing(opened: Browser, content: Content) -> None:
    """Who chooses the cells that passed gets a mean that flatters: no interval over them says how they were chosen."""
    opened.run(CHOOSE, {"verdict": ["pass"]})

    passed = {str(row.extra["subject"]) for row in VERDICTS if row.verdict == "pass"}
    (score, *_) = scoreboard([one for one in content.reports if one.cell.label in passed], content.run.protocol)
    basis = "2 models, 2 cells; chosen by result, no interval"
    assert opened.run(MEANS) == [
        ["xeon", "openvino", "all models", str(score).partition(" ")[0], "", "no claim", basis]
    ]
    assert "no interval would hold" in opened.run("return document.getElementById('scoreboard-note').textContent")
    assert all(row["low"] is None for row in opened.run("return ngraph.rows('scores')"))


def test_what_the_filters_hide_has_no_mean_at_all(opened: Browser) -> None:
    opened.run(CHOOSE, {"outcome": ["failed"]})

    assert opened.run(MEANS) == []
    assert "The filters leave nothing" in opened.run("return document.querySelector('#scoreboard .table').textContent")
    opened.run("document.querySelector('#scoreboard .table button').click()")
    assert len(opened.run(MEANS)) > 10


def test_what_ran_where_counts_the_cells_that_are_left(opened: Browser, content: Content) -> None:
    counts = "return [...document.querySelectorAll('#placement tbody tr')].map((row) => row.lastChild.textContent)"
    assert list(map(int, opened.run(counts))) == [row["cells"] for row in placement_rows(content)]
    opened.run(CHOOSE, {"model": ["timm:resnet18"], "device": ["xeon"]})
    assert opened.run(counts) == ["3", "3", "3", "3"]


def test_what_could_not_run_is_that_of_the_cells_that_are_left(opened: Browser, content: Content) -> None:
    shown = """
        const seen = (one) => one.closest("[hidden]") === null;
        return [...document.querySelectorAll("#not-run td > div")].filter(seen).map((one) => one.textContent);
    """
    assert len(not_run(content.reports, content.run.left_out)) == 3
    assert len(opened.run(shown)) == 3
    opened.run(CHOOSE, {"batch": [2]})
    assert opened.run(shown) == [
        "failed: no memory 1 of these that the filters leave: batch 2",
        "skipped: not installed all cells",
    ]
    opened.run("document.querySelector('#filters .clear').click()")
    opened.run(CHOOSE, {"outcome": ["failed"], "model": ["timm:resnet18"]})
    assert opened.run(shown) == ["failed: no memory all cells"]
    opened.run("document.querySelector('#filters .clear').click()")
    opened.run(CHOOSE, {"device": ["orin"]})
    assert opened.run(shown) == []
    assert opened.run("return document.querySelector('#not-run > .empty').hidden") is False
    opened.run("document.querySelector('#filters .clear').click()")
    assert len(opened.run(shown)) == 3
    assert opened.complaints() == []


def test_families_of_a_lab_are_several(content: Content) -> None:
    assert len({family_of(report.cell.workload.model.text) for report in content.reports}) > 3

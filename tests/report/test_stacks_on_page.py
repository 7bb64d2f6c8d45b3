"""What was done to networks, on the page of a run: which it draws, what it names, and what the filters leave."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_ngraph.report.html.content import content_of
from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.report.html.markup.stacks import stacks_of, stacks_section
from pytest_ngraph.report.html.page import page
from tests.conftest import skip_without
from tests.report.test_dlas_tables import CHANNELS, LARGE, REPORTS, RUN, report
from tests.support.browser import browser


def section(*more: object) -> str:
    content = content_of(RUN, [*REPORTS, *more], [])  # type: ignore[list-item]
    cells = {one.cell: number for number, one in enumerate(content.reports)}
    return stacks_section(*stacks_of(content.reports), cells, Look.of(content))


def test_a_network_has_a_picture_of_times_and_one_of_accuracies() -> None:
    text = section()
    assert text.count("<figure>") == 1
    assert text.count('role="img"') == 2
    # Each cell has a mark in both and a row in the table, and each compiler one in the key.
    assert text.count('<path class="mark"') == 2 * len(REPORTS) + 3
    assert len(re.findall(r"<tr data-cell=", text)) == len(REPORTS)
    for name in ("dense", "CP(parameters) 80", "WP 95", "int8"):
        assert f"</title>{name}</text>" in text
    assert 'value="time [s]"' in text


def test_what_nothing_was_done_to_is_not_drawn() -> None:
    """One network dense and another one pruned are no comparison, nor is one without a time."""
    dense = [report("openvino"), report("openvino", CHANNELS, model=LARGE), report("onnxruntime", CHANNELS, None)]
    assert stacks_of(dense) == ([], 0)
    assert stacks_section([], 0, {}, Look({}, {}, {})) == ""


def test_more_networks_than_have_a_picture_are_counted() -> None:
    many = [report("openvino", done, model=f"a.py:f{number}") for number in range(14) for done in ("dense", CHANNELS)]
    stacks, left_out = stacks_of(many)
    assert (len(stacks), left_out) == (12, 2)
    assert "2 more networks: ngraph export --table dlas-times has them." in section(*many[:-2]) + section(*many)


def test_names_of_others_are_shown_as_text() -> None:
    assert "<img" not in section(*(report("openvino", done, model="<img src=x>") for done in ("dense", CHANNELS)))


@pytest.mark.real
def test_filters_hide_marks_and_rows_and_the_table_can_be_copied(tmp_path: Path) -> None:
    skip_without("altair", "vl_convert")
    file = tmp_path / "page.html"
    file.write_text(page(content_of(RUN, REPORTS, [])), encoding="utf-8")
    shown = "return document.querySelectorAll('#stacks svg g:not([hidden])').length"
    with browser(tmp_path) as one:
        one.begin(file)
        assert one.run(shown) == 2 * len(REPORTS)
        one.open(file, query="compiler=openvino")
        assert one.run(shown) == 2 * sum(str(each.cell.compiler) == "openvino" for each in REPORTS)
        csv = one.run("return csvOf(document.querySelector('#stacks table'))").splitlines()
        assert csv[0] == "compression,compiler,time [s],time low,time high,accuracy,accuracy low,accuracy high"
        assert csv[1].split(",")[:3] == ["dense", "openvino", "0.001"]
        one.resize(400, 900)
        assert one.run("return document.documentElement.scrollWidth") == 400
        assert one.complaints() == []

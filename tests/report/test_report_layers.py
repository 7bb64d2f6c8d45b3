"""What ran in a run's cells on its page: bars, tables, what differs from the baseline, and what may not be believed."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.explain.explanation import Explanation, RanNode
from pytest_ngraph.report.html.content import read_content
from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.report.html.markup.layers import layers_section
from pytest_ngraph.report.html.page import page
from pytest_ngraph.report.layers.stored import run_layers
from pytest_ngraph.spec.cells import Cell
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.browser import browser
from tests.support.report_stores import NASTY, Lab, baseline_of, evidence_of, of, verdict, write_store

LAB = Lab(devices=("xeon",), models=("timm:resnet18",), batches=(1, 8), depths=())
BRIEF = Lab(devices=("xeon",), compilers=("identity", "openvino"), models=("timm:resnet18",), batches=(1,), depths=(),
            launches=1)  # fmt: skip
FAST = of("timm:resnet18", batch=1)
SLOW = baseline_of(FAST)


def conv(number: int, seconds: float | None, **facts: Any) -> RanNode:
    name = f"conv{number}"
    return RanNode(name, "Conv", "Conv", seconds, **{"parts": (name,), "precision": "f32", **facts})


# As many times slower as the launches say that the baseline is: 4.7 by the clock.
QUICK = [conv(number, 2e-4 / (1 + number), kernel="brgemm") for number in range(20)]
LONG = [
    *(conv(number, 7e-4 / (1 + number)) for number in range(20)),
    *(RanNode(f"reorder{number}", "Reorder", "Reorder", 1e-4, added="reorders") for number in range(4)),
]


def explanation(nodes: Sequence[RanNode], **facts: Any) -> dict[str, Any]:
    """Return an explanation as it is stored, whose nodes are all of a call."""
    whole = sum(node.seconds or 0.0 for node in nodes)
    given = {"notes": ("profiled in a session of its own",), **facts}
    return Explanation("a label that lies", tuple(nodes), whole, 1.1 * whole, 10, "a profiler", **given).to_json()


def written(
    path: Path, explanations: Mapping[Cell, Mapping[str, Any]], lab: Lab = LAB, verdicts: Sequence[Any] = ()
) -> Path:
    """Write a run, and what ran in some of its cells."""
    write_store(path, lab, verdicts)
    with Store.open(path) as store:
        for cell, key in evidence_of(explanations).items():
            store.explain(cell, key, explanations[cell])
    return path


def page_of(store: Path) -> str:
    skip_without("altair", "vl_convert")
    with Store.open(store, read_only=True) as opened:
        return page(read_content(opened, opened.runs()[-1]))


def section(store: Path) -> str:
    """Return the markup of the section, empty where the page has none."""
    text = page_of(store)
    found = re.search(r'<section id="layers".*?</section>', text, re.DOTALL)
    assert bool(found) == ('href="#layers"' in text)
    return found[0] if found else ""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def test_a_cell_has_a_bar_and_a_row_for_its_largest_nodes(path: Path) -> None:
    text = section(written(path, {FAST: explanation(QUICK)}))

    assert text.count("<figure") == text.count("<svg") == 1
    # Twelve nodes, and all others in one bar: their shares are all of it.
    shares = [float(share) for share in re.findall(r'class="share"[^>]*>([\d.]+) %<', text)]
    assert len(shares) == 13
    assert sum(shares) == pytest.approx(100, abs=0.7)
    widths = [float(width) for width in re.findall(r'<rect [^>]*width="([\d.]+)"', text)]
    assert [width / widths[0] for width in widths] == pytest.approx([share / shares[0] for share in shares], abs=0.01)
    assert text.count("<tr>") == 1 + 20
    assert '<th scope="row">conv0</th><td>Conv</td><td>brgemm</td><td>f32</td>' in text
    # No node says its provider, and none holds another one.
    assert "provider" not in re.findall(r"<thead>.*?</thead>", text)[0]
    # The times of the run, and who was explained by the run and not by what is stored.
    assert re.search(r"a call: measured [\d.]+ ms \(4 launches\)", text)
    assert "a label that lies" not in text
    assert "Notes: profiled in a session of its own." in text


def test_it_says_which_command_would_explain_the_baseline(path: Path) -> None:
    text = section(written(path, {FAST: explanation(QUICK)}))

    command = "ngraph explain 'xeon:identity timm:resnet18 batch1' 'xeon:openvino timm:resnet18 batch1'"
    assert command.replace("'", "&#x27;") in text
    assert "What differs" not in text


def test_a_cell_and_its_baseline_have_the_sentence_and_what_differs(path: Path) -> None:
    text = section(written(path, {FAST: explanation(QUICK), SLOW: explanation(LONG)}))

    sentences = re.findall(r'<p class="sentence">(.*?)</p>', text)
    assert len(sentences) == 1, "the baseline is held against nothing"
    assert re.match(r"identity is [\d.]+ times slower than openvino: \d+ Conv", sentences[0])
    assert "openvino takes 0." in text
    differs = text[text.index("What differs") :]
    assert "<td>added</td>" not in differs
    assert "<td>gone</td>" in differs
    # The one that makes the most difference first.
    assert re.search(r'<tbody><tr><th scope="row">conv0</th>', differs)
    assert '<data value="-0.0005' in differs
    assert text.count('<g class="added">') == 4


def test_where_the_sentence_would_not_hold_the_page_says_why(path: Path) -> None:
    half_seen = {**explanation(LONG), "plain_seconds": 1.0}
    text = section(written(path, {FAST: explanation(QUICK), SLOW: half_seen}))

    assert '<p class="sentence">no sentence: the profile of identity accounts for ' in text
    assert "times slower than" not in text


def test_a_page_without_explanations_has_no_section(path: Path) -> None:
    elsewhere = of("timm:vgg16")
    assert section(written(path, {elsewhere: explanation(QUICK)})) == ""


def test_what_was_found_of_other_code_is_not_shown(path: Path) -> None:
    write_store(path, LAB)
    with Store.open(path) as store:
        store.explain(FAST, "other evidence", explanation(QUICK))
    assert section(path) == ""


def test_many_nodes_are_capped_and_the_page_says_so(path: Path) -> None:
    many = [conv(number, 1e-6) for number in range(4000)]
    long_names = [
        RanNode("x" * 5000 + str(number), "k" * 5000, "o" * 5000, 1e-6, "p" * 5000, "q" * 5000, "r" * 5000,
                parts=("a" * 5000, "b" * 5000))
        for number in range(1000)
    ]  # fmt: skip
    text = section(written(path, {FAST: explanation([*many, *long_names]), SLOW: explanation(QUICK)}))

    assert "5000 nodes" in text.replace(",", "")
    assert "4940 further nodes (ngraph explain --all)" in text
    assert "4988 further nodes" in text
    assert "further parts (ngraph explain --all)" in text
    assert len(text) < 100e3


def test_a_page_has_so_many_cells_at_most_those_in_doubt_first(path: Path) -> None:
    lab = Lab(devices=("xeon",), compilers=("identity", "openvino"), models=("timm:resnet18",),
              batches=tuple(range(1, 13)), depths=(), launches=2)  # fmt: skip
    cells = [of("timm:resnet18", batch=batch) for batch in lab.batches]
    found = {cell: explanation(QUICK) for cell in [*cells, *map(baseline_of, cells)]}
    failed = verdict(cells[8], "fail", 9, (1.2, 1.17, 1.23))
    written(path, found, lab, [failed])

    with Store.open(path, read_only=True) as store:
        layers = run_layers(store, store.runs()[-1], [failed])

    assert len(layers.shown) == 16
    assert layers.shown[0].cell == cells[8]
    # Those that are held against something before what they are held against.
    assert {one.cell for one in layers.shown} > set(cells)
    assert "8 more cells: ngraph explain shows them." in section(path)


def test_names_are_text_whatever_they_are(path: Path) -> None:
    facts: dict[str, Any] = dict.fromkeys(("provider", "kernel", "precision", "added"), NASTY)
    nasty = [RanNode(f"{NASTY}{number}", NASTY, NASTY, 1e-3, **facts, parts=(NASTY, NASTY)) for number in range(3)]
    lying = {**explanation(nasty, notes=(NASTY,)), "how": NASTY, "label": NASTY}
    text = page_of(written(path, {FAST: lying, SLOW: explanation(LONG)}))

    assert NASTY not in text
    found = re.search(r'<section id="layers".*?</section>', text, re.DOTALL)
    assert found is not None
    assert found[0].count("&lt;img") > 20
    assert "onerror=" not in re.sub(r"&lt;.*?&gt;", "", found[0])


@pytest.mark.parametrize(
    "stored",
    [
        {},
        {**explanation(QUICK), "nodes": [{"name": "n", "seconds": "soon"}]},
        {**explanation(QUICK), "nodes": [{"name": "n", "seconds": -1.0}]},
        {**explanation(QUICK), "nodes": [{"name": "n", "seconds": float("nan")}]},
        {**explanation(QUICK), "plain_seconds": float("inf")},
        {**explanation(QUICK), "nodes": [{"seconds": 1.0}]},
        {**explanation(QUICK), "nodes": [{"name": 5, "seconds": 1.0}]},
        {**explanation(QUICK), "nodes": [{"name": "n", "seconds": 1.0, "parts": [1, 2]}]},
        {**explanation(QUICK), "nodes": [{"name": "n", "seconds": 1e308}] * 2},
        {**explanation(QUICK), "notes": [5]},
    ],
)
def test_what_cannot_be_read_is_counted_and_hurts_no_page(path: Path, stored: Mapping[str, Any]) -> None:
    written(path, {FAST: stored, SLOW: explanation(QUICK)}, BRIEF)
    with Store.open(path, read_only=True) as store:
        layers = run_layers(store, store.runs()[-1], [])

    assert [one.cell for one in layers.shown] == [SLOW]
    text = layers_section(layers, {}, Look({}, {}, {}))
    assert text.count("<figure") == 1
    assert "1 more cell: what is stored of them cannot be read." in text


def test_nodes_without_a_time_have_rows_and_no_picture(path: Path) -> None:
    text = section(written(path, {FAST: explanation([conv(0, None), conv(1, 0.0)])}))

    assert "<svg" not in text
    assert text.count("<tr>") == 3
    assert "no time" in text


@pytest.mark.real
def test_a_browser_shows_bars_and_tables_and_copies_every_digit(path: Path, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    claims = [verdict(FAST, "pass", 1.2, (4.7, 4.6, 4.8)), verdict(SLOW, "fail", 1.2, (1, 0.9, 1.1))]
    written(path, {FAST: explanation(QUICK), SLOW: explanation(LONG)}, verdicts=claims)
    file.write_text(page_of(path), encoding="utf-8")
    figures = "return [...document.querySelectorAll('#layers figure')].filter((one) => !one.hidden).length"
    with browser(tmp_path) as one:
        one.begin(file)
        assert one.run(figures) == 2
        assert one.run("return document.querySelector('#layers svg rect').getBoundingClientRect().width") > 50
        # Of a table that is folded away nothing is seen; opened it is all there.
        rows = "return [...document.querySelectorAll('#layers tbody tr')].filter((one) => one.checkVisibility()).length"
        assert one.run(rows) == 0
        one.run("for (const each of document.querySelectorAll('#layers details')) each.open = true")
        assert one.run(rows) == 20 + 24 + 24
        csv = one.run("return csvOf(document.querySelector('#layers [aria-label^=What] table'))").splitlines()
        assert csv[0] == 'part,kind,what,differs by seconds,"identity, seconds","openvino, seconds"'
        first = csv[1].split(",")
        assert [first[0], *map(float, first[3:])] == ["conv0", pytest.approx(-5e-4), 7e-4, 2e-4]
        assert one.nameless() == []
        one.open(file, query="compiler=openvino")
        assert one.run(figures) == 1
        one.open(file, query="batch=8")
        assert one.run(figures) == 0
        assert one.run("return document.querySelector('#layers .empty').hidden") is False
        one.open(file)
        one.resize(400, 900)
        assert one.run("return document.documentElement.scrollWidth") == 400
        one.scripts(False)
        one.open(file)
        assert one.evaluate("document.querySelectorAll('#layers tbody tr').length") == 20 + 24 + 24
        assert one.complaints() == []

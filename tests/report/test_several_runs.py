"""Several runs on one page: what differs between them on top, and nothing compared that must not be."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.report.html import content as contents
from pytest_ngraph.report.html.content import Content, content_of
from pytest_ngraph.report.several.charts import charts_of_runs, look_of
from pytest_ngraph.report.several.differences import NOT_KNOWN, facts_of
from pytest_ngraph.report.several.page import apart, several
from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.store.rows import RunRow
from tests.conftest import skip_without
from tests.report.test_report_answer import MODELS, failed, faster, run_of
from tests.support.report_stores import Lab, of, verdict, write_store

NASTY = '<img src=x onerror="alert(1)">'


def content(run: RunRow, *models: str, speedup: float = 2.0) -> Content:
    return content_of(run, [faster(of(model), speedup, throughput=100.0) for model in models], [])


def with_facts(**facts: object) -> RunRow:
    run = run_of()
    return replace(run, environment={**run.environment, **facts})


def test_what_differs_stands_first_and_what_one_run_does_not_say_differs() -> None:
    runs = [
        content(with_facts(kernel="6.1", memory_bytes=1 << 34, versions={"torch": "2.13", "numpy": "2"}), MODELS[0]),
        content(replace(with_facts(versions={"torch": "2.14", "numpy": "2"}), protocol="quick", seed=3), *MODELS[:2]),
    ]
    facts = {fact.name: fact for fact in facts_of(runs)}

    differing = {name: fact.values for name, fact in facts.items() if fact.differs}
    assert differing == {
        "protocol": ("gate", "quick (no error control)"),
        "seed": ("0", "3"),
        "models": (MODELS[0], f"{MODELS[0]}, {MODELS[1]}"),
        "kernel": ("6.1", NOT_KNOWN),
        "memory": ("16.0 GiB", NOT_KNOWN),
        "versions: torch": ("2.13", "2.14"),
    }
    assert facts["versions: numpy"].values == ("2", "2")
    assert list(facts)[: len(differing)] == list(differing)


def test_runs_with_one_device_each_are_held_together_whatever_it_is_called() -> None:
    here = content(with_facts(kernel="6.1"), MODELS[0])
    there = content_of(with_facts(kernel="6.6"), [faster(of(MODELS[0], device="orin"), 2.0)], [])
    both = content_of(with_facts(), [faster(of(MODELS[0], device=name), 2.0) for name in ("orin", "xeon")], [])

    assert {fact.name: fact.values for fact in facts_of([here, there])}["kernel"] == ("6.1", "6.6")
    assert {fact.name: fact.values for fact in facts_of([here, both])}["orin: cpu"] == (NOT_KNOWN, "A processor")


def test_numbers_stand_side_by_side_and_no_run_is_divided_by_another() -> None:
    mine = verdict(of(MODELS[0]), "fail", 3.0, (2.0, 1.9, 2.1))
    theirs = replace(mine, estimate=4.0, low=3.9, high=4.1, verdict="pass")
    runs = [
        content_of(run_of(), [faster(of(MODELS[0]), 2.0, throughput=100.0)], [mine]),
        content_of(
            run_of(),
            [faster(of(MODELS[0]), 4.0, throughput=200.0), failed(of(NASTY, "tvm"), Outcome.FAILED, NASTY)],
            [theirs],
        ),
    ]
    skip_without("altair", "vl_convert")
    text = several(runs, ["A", f"B{NASTY}"])

    assert NASTY not in text
    # Data, libraries, the page's own.
    assert len(re.findall(r"<script[ >]", text)) == 3
    text = re.sub(r"<script.*?</script>", "", text, flags=re.DOTALL)
    for words in (
        "Nothing is judged here",
        "✗ fail",
        "✓ pass",
        "100 /s [100 /s, 100 /s]; 2.00x",
        "200 /s",
        "not in this run",
    ):
        assert words in text
    results = text[text.index('id="results"') :]
    # 200 over 100 stands nowhere: it would have no interval.
    assert "2.00x faster" not in text
    assert results[: results.index("</section>")].count("<tr>") == 3
    assert re.findall(r'(?:src|href)\s*=\s*"(?!#)', text) == []


def test_runs_that_are_alike_say_so_and_nothing_at_all_is_no_error() -> None:
    skip_without("altair", "vl_convert")
    alike = content(run_of(), MODELS[0])
    assert "2 runs side by side, alike in all that is known of them." in several([alike, alike], ["A", "B"])
    empty = content_of(run_of(), [], [])
    text = several([empty, empty, empty], ["A", "B", "C"])
    for words in ("None.", "No claim fails or is undecided in any of them.", "No cell was measured in any of them."):
        assert words in text


@pytest.mark.parametrize(
    ("names", "shown"),
    [
        (["a", "b"], ["a", "b"]),
        (["a", "a"], ["a (1)", "a (2)"]),
        # One whose own name is what another would become, and one with what nobody sees.
        (["a (2)", "a", "a"], ["a (2) (1)", "a (2)", "a (3)"]),
        (["a\x00", "a"], [r"a\x00", "a"]),
    ],
)
def test_two_runs_of_one_name_are_told_apart(names: list[str], shown: list[str]) -> None:
    assert apart(names) == shown


def test_charts_of_several_runs_are_what_vega_lite_takes() -> None:
    """What draws them leaves the validation out."""
    skip_without("altair", "vl_convert")
    look = look_of(["A", "B"])
    runs = [content(run_of(), MODELS[0]), content(run_of(), MODELS[0])]
    charts = charts_of_runs(runs)
    assert {"throughput", "speedup_lines", "ase", "bsr", "depth", "scores"} <= {chart.name for chart in charts}
    for chart in charts:
        spec = json.dumps(chart.build(look).to_dict(validate=True))
        assert '"field": "run"' in spec
        assert chart.legend == "run"


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stores")
    for name in ("a.sqlite", "renamed", "b.sqlite"):
        write_store(folder / name, Lab(devices=("xeon",), models=MODELS[:2], batches=(1, 8), depths=(), launches=2))
    return folder


def test_the_command_takes_stores_and_runs_by_number(
    stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("altair", "vl_convert")
    monkeypatch.chdir(stores)

    assert main(["report", "a.sqlite", str(tmp_path / "both.html"), "renamed"]) == 0
    assert "both.html: a.sqlite run 1, renamed run 1 side by side" in capsys.readouterr().out
    assert "timm:resnet50" in (tmp_path / "both.html").read_text(encoding="utf-8")
    assert main(["report", str(tmp_path / "same.html"), "1", "1", "b.sqlite#1", "--store", "a.sqlite"]) == 2
    assert "--store beside run 1: the run is named already" in capsys.readouterr().err
    assert main(["report", str(tmp_path / "same.html"), "1", "1", "--store", "a.sqlite"]) == 0
    assert "run 1 (1), run 1 (2) side by side" in capsys.readouterr().out


def test_what_such_a_page_does_not_show_is_not_computed(
    stores: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Fronts and histories of each run were computed, and then thrown away."""
    skip_without("altair", "vl_convert")
    monkeypatch.chdir(stores)

    def refuse(*_: object) -> None:
        raise AssertionError("computed what no page of several runs shows")

    for name in ("run_fronts", "run_histories", "run_layers"):
        monkeypatch.setattr(contents, name, refuse)
    assert main(["report", "a.sqlite", "b.sqlite", str(tmp_path / "both.html")]) == 0
    assert main(["report", "--figures", str(tmp_path / "figures"), "--store", "a.sqlite", "--format", "svg"]) == 0
    with pytest.raises(AssertionError, match="no page of several runs shows"):
        main(["report", "a.sqlite", str(tmp_path / "one.html")])


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["a.sqlite#7", "b.sqlite"], "--run: no run 7 in a.sqlite (there: 1)"),
        (["a.sqlite", "gone.sqlite"], "--store: no file gone.sqlite"),
        (["a.sqlite", "b.sqlite", "x.html", "y.html"], "y.html: a second page beside x.html"),
        (["a.sqlite", "b.sqlite", "x.pdf"], "x.pdf: not the name of a page (expected FILE.html)"),
        (["x.html", "gone"], "gone: neither a page nor a run (expected FILE.html, a run's number, or a store)"),
        (["a.sqlite", "b.sqlite", "--figures", "figures"], "--figures is for one run (given: a.sqlite, b.sqlite)"),
        (["a.sqlite", "b.sqlite", "--against", "paper"], "--against is for one run"),
        (["a.sqlite", "--run", "1"], "--run beside a.sqlite: the run is named already"),
    ],
)
def test_the_command_says_what_is_wrong_with_runs(
    stores: Path,
    arguments: list[str],
    says: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    skip_without("altair", "vl_convert")
    monkeypatch.chdir(stores)

    assert main(["report", *arguments]) == 2
    assert says in capsys.readouterr().err
    assert not list(stores.glob("*.html"))

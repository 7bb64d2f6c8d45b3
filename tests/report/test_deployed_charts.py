"""Charts of what is deployed: over length with its exponent, tokens, latency under load, capacity and energy."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.errors import SpecError
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.figures.chosen import Chosen
from pytest_ngraph.report.figures.deployed import over_length
from pytest_ngraph.report.figures.size import Size
from pytest_ngraph.report.html.charts import CHARTS, charts_of, rows_of, sections
from pytest_ngraph.report.html.content import Content, read_content
from pytest_ngraph.report.html.derived import length_rows
from pytest_ngraph.report.html.drawing import Look
from pytest_ngraph.report.html.figures import figure
from pytest_ngraph.report.html.page import page
from pytest_ngraph.report.several.page import several
from pytest_ngraph.store.sqlite import Store
from tests.conftest import skip_without
from tests.support.browser import Browser
from tests.support.deployed_stores import BERT, CAPACITIES, COMPILERS, GPT, Deployed, capacity_of, write_deployed
from tests.support.report_stores import NASTY, Lab, write_store

SELDOM = [chart for chart in CHARTS if chart.seldom]


def content_of(path: Path, lab: Deployed) -> Content:
    write_deployed(path, lab, CAPACITIES if lab.rates else ())
    with Store.open(path, read_only=True) as store:
        return read_content(store, store.runs()[-1])


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with some of each."""
    path = tmp_path_factory.mktemp("deployed") / "results.sqlite"
    write_deployed(path, Deployed(), CAPACITIES)
    return path


@pytest.fixture(scope="module")
def content(store: Path) -> Content:
    """What is shown of its run."""
    with Store.open(store, read_only=True) as opened:
        return read_content(opened, opened.runs()[-1])


@pytest.fixture(scope="module")
def file(content: Content, store: Path) -> Path:
    """Its page."""
    skip_without("altair", "vl_convert")
    (store.parent / "report.html").write_text(page(content), encoding="utf-8")
    return store.parent / "report.html"


def rows(content: Content, name: str) -> list[dict[str, Any]]:
    return rows_of(next(chart for chart in CHARTS if chart.name == name), content)[0]


def test_the_exponent_of_each_compiler_stands_at_the_end_of_its_line(content: Content) -> None:
    found = {row["compiler"]: row["label"] for row in rows(content, "length_time") if row["lengths"].startswith(BERT)}

    assert found.keys() == COMPILERS.keys()
    for name, (_, exponent, _) in COMPILERS.items():
        written = re.fullmatch(rf"{name} n\^(\d\.\d\d) \[(\d\.\d\d), (\d\.\d\d)\]", found[name])
        assert written is not None, found[name]
        assert float(written[1]) == pytest.approx(exponent, abs=0.02)
        assert float(written[2]) <= float(written[1]) <= float(written[3])


def test_lengths_are_numbers_whatever_order_they_were_given_in(content: Content) -> None:
    """As text 128 stands before 32."""
    spec = figure(next(chart for chart in CHARTS if chart.name == "length_time"), content, Look.of(content))

    assert spec is not None
    assert {one["name"]: one["value"] for one in spec["params"]}["ticks"] == [32, 128, 512]
    mine = [row["sequence"] for row in rows(content, "length_time") if row["lengths"].startswith(BERT)]
    assert mine == sorted([32, 128, 512] * len(COMPILERS))
    # The name at the end of a line stands at its longest.
    named = [row["sequence"] for row in spec["datasets"]["rows"] if "label_at" in row]
    assert set(named) == {128, 512}


def test_one_length_says_nothing_of_length(tmp_path: Path) -> None:
    found = content_of(tmp_path / "one.sqlite", Deployed(lengths=(128,), decode=(), rates=(), has_energy=False))

    assert {report.cell.workload.sequence for report in found.reports} == {128}
    assert not [chart.name for chart in charts_of(found) if chart.seldom]


def test_models_of_one_length_each_are_not_joined(tmp_path: Path) -> None:
    lab = Deployed(lengths=(128,), decode=(32,), rates=(), has_energy=False)
    found = content_of(tmp_path / "apart.sqlite", lab)

    assert len({report.cell.workload.sequence for report in found.reports}) == 2
    assert list(length_rows(found, ("latency",))) == []
    assert [chart.name for chart in charts_of(found) if chart.seldom] == ["tokens"]


def test_a_run_that_has_none_of_it_has_no_empty_place_for_it(tmp_path: Path) -> None:
    write_store(tmp_path / "lab.sqlite", Lab(devices=("xeon",), models=("timm:resnet18",), batches=(1, 2), launches=2))
    with Store.open(tmp_path / "lab.sqlite", read_only=True) as opened:
        usual = read_content(opened, opened.runs()[-1])

    assert {chart.name for chart in charts_of(usual)} == {chart.name for chart in CHARTS if not chart.seldom}
    assert not {"lengths", "load", "tokens"} & set(sections(charts_of(usual)))


def test_energy_that_was_not_read_has_no_chart_and_one_that_is_no_number_no_point(content: Content) -> None:
    def changed(value: float | None) -> Content:
        reports = []
        first = next(one for one in content.reports if "joules_per_sample" in one.estimates)
        for report in content.reports:
            kept = {name: one for name, one in report.estimates.items() if name != "joules_per_sample"}
            if value is not None and "joules_per_sample" in report.estimates:
                joules = report.estimates["joules_per_sample"] if report is not first else None
                kept["joules_per_sample"] = joules or Estimate("joules_per_sample", value, value, value, 1)
            reports.append(replace(report, estimates=kept))
        return replace(content, reports=reports)

    assert {"energy", "length_energy"} <= {chart.name for chart in charts_of(content)}
    assert not {"energy", "length_energy"} & {chart.name for chart in charts_of(changed(None))}
    broken = changed(math.nan)
    assert len(rows(broken, "energy")) == len(rows(content, "energy")) - 1
    assert all(math.isfinite(row["value"]) for row in rows(broken, "energy"))
    skip_without("altair", "vl_convert")
    assert "NaN" not in re.sub(r"<script>.*?</script>", "", page(broken), flags=re.DOTALL)


def test_what_the_prompt_takes_stands_beside_what_a_token_takes(content: Content) -> None:
    found = {(row["place"], row["compiler"], row["metric"]): row["value"] for row in rows(content, "tokens")}

    assert len(found) == 2 * 2 * len(COMPILERS)
    for (place, compiler, metric), seconds in found.items():
        assert place.startswith(GPT)
        # A token takes a tenth of the prompt.
        other = "time_per_token" if metric == "time_to_first_token" else "time_to_first_token"
        ratio = seconds / found[place, compiler, other]
        assert ratio == pytest.approx(10 if metric == "time_to_first_token" else 0.1, rel=0.02)


def test_latency_grows_with_the_rate_and_an_overload_has_none(content: Content) -> None:
    found = {(row["compiler"], row["rate"]): row["value"] for row in rows(content, "load_p99")}

    assert {rate for name, rate in found if name == "identity"} == {10, 20, 40}
    assert {rate for name, rate in found if name == "openvino"} == {10, 20, 40, 80}
    for name in COMPILERS:
        mine = [found[one] for one in sorted(found) if one[0] == name]
        assert mine == sorted(mine)
    assert all(found[one] > row for one, row in {
        (row["compiler"], row["rate"]): row["value"] for row in rows(content, "load_p50")
    }.items())  # fmt: skip


def test_a_capacity_stands_beside_what_was_claimed(content: Content) -> None:
    found = {row["compiler"]: row for row in rows(content, "capacity")}

    assert {name: (row["value"], row["limit"], row["verdict"]) for name, row in found.items()} == {
        "openvino": (71.0, 20.0, "pass"), "onnxruntime": (21.0, 20.0, "inconclusive"), "identity": (12.0, 20.0, "fail"),
    }  # fmt: skip
    # None at all has no place on a logarithmic axis.
    nothing = [capacity_of("identity", "fail", (0.0, math.nan, math.nan)), capacity_of("identity", "invalid", None)]
    assert rows(replace(content, verdicts=nothing), "capacity") == []


def test_the_figure_for_papers_has_a_panel_for_each_model_with_its_exponents(content: Content) -> None:
    panels = over_length(Chosen(content, (), Size()))

    assert [panel.title[0] for panel in panels] == ["bert-base-uncased batch1", "gpt2[layers=2] batch1 decode8"]
    assert len(panels[0].title) == 1 + len(COMPILERS)
    assert panels[0].title[1].startswith("identity n^1.1")


@pytest.mark.real
def test_the_figure_is_written_and_refused_where_there_is_none(store: Path, tmp_path: Path) -> None:
    skip_without("altair", "vl_convert")
    given = ["--format", "svg", "--figures", str(tmp_path)]

    assert main(["report", *given, "--figure", "sequence", "--store", str(store)]) == 0
    assert "n^1.1" in (tmp_path / "figure-sequence.svg").read_text(encoding="utf-8")
    assert "both logarithmic" in (tmp_path / "figure-sequence.txt").read_text(encoding="utf-8")
    write_deployed(tmp_path / "none.sqlite", Deployed(lengths=(32,), decode=(), rates=(), has_energy=False))
    assert main(["report", *given, "--figure", "sequence", "--store", str(tmp_path / "none.sqlite")]) != 0


@pytest.mark.parametrize("chart", SELDOM, ids=lambda chart: chart.name)
def test_they_are_what_vega_lite_takes(chart: Any, content: Content) -> None:
    skip_without("altair", "vl_convert")
    chart.build(Look.of(content)).to_dict(validate=True)


def test_several_runs_have_their_lengths_beside_one_another(content: Content) -> None:
    skip_without("altair", "vl_convert")
    text = several([content, content], ["before", "after"])

    assert 'data-chart="length_time"' in text
    assert 'data-chart="tokens"' not in text


# In a browser


@pytest.mark.real
def test_the_page_has_the_rows_that_figures_have(opened: Browser, content: Content) -> None:
    for chart in SELDOM:
        mine, theirs = rows_of(chart, content)[0], opened.run("return ngraph.rows(arguments[0])", chart.name)
        assert len(mine) == len(theirs) > 0, chart.name
        for one, other in zip(mine, theirs, strict=True):
            for name, value in one.items():
                if isinstance(value, float):
                    assert other[name] == pytest.approx(value, rel=1e-3), (chart.name, name)
                elif name not in ("text", "label"):
                    assert other[name] == value, (chart.name, name)
            if chart.name == "length_time":
                assert other["label"] == one["label"]
    assert opened.complaints() == []


@pytest.mark.real
def test_every_chart_is_drawn_and_has_its_table(opened: Browser, file: Path) -> None:
    for width in (400, 1280):
        opened.resize(width, 900)
        opened.open(file)
        for chart in SELDOM:
            opened.run("ngraph.choose(arguments[0])", chart.name)
            opened.wait("ngraph.drawAll()")
            place = f".of-chart[data-chart='{chart.name}']"
            assert opened.run(f'return document.querySelectorAll("{place} svg .mark-symbol path").length'), chart.name
        assert opened.run("return document.documentElement.scrollWidth") <= width
    assert opened.nameless() == []
    assert opened.complaints() == []


@pytest.mark.real
def test_an_exponent_of_lengths_that_a_filter_hides_is_not_written(opened: Browser) -> None:
    labels = "return [...new Set(ngraph.rows('length_time').map((row) => row.label))]"
    assert any("n^1.1" in label for label in opened.run(labels))
    opened.run("document.querySelector('input[name=sequence][value=\"32\"]').click()")

    assert opened.run(labels)
    assert not any("n^" in label for label in opened.run(labels))


@pytest.mark.real
def test_names_of_models_over_length_are_only_text(chromium: Browser, tmp_path: Path) -> None:
    skip_without("altair", "vl_convert")
    found = content_of(tmp_path / "nasty.sqlite", Deployed(models=(f"models.py:{NASTY}",), decode=(), rates=()))
    (tmp_path / "nasty.html").write_text(page(found), encoding="utf-8")
    chromium.begin(tmp_path / "nasty.html")
    chromium.run("ngraph.choose('length_time')")
    chromium.wait("ngraph.drawAll()")

    assert NASTY in chromium.run("return document.querySelector('#lengths figcaption').title")
    assert chromium.run("return window.hurt === undefined")
    assert chromium.complaints() == []


def test_a_figure_that_nobody_knows_is_refused_with_those_that_are(store: Path) -> None:
    from pytest_ngraph.report.figures.deployed import DEPLOYED_FIGURES
    from pytest_ngraph.report.figures.paper import figures_of

    with pytest.raises(SpecError, match=r"known: 1, .*sequence"):
        figures_of(["length"], DEPLOYED_FIGURES)

"""The second paper's tables and figures of a run of ours, from cells with known times, sizes and accuracies."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.dlas.figures import DLAS_FIGURES
from pytest_ngraph.report.dlas.tables import DLAS_TABLES
from pytest_ngraph.report.export.layout import Table
from pytest_ngraph.report.export.tables import write_table
from pytest_ngraph.report.figures.chosen import Chosen
from pytest_ngraph.report.figures.layout import legend_names
from pytest_ngraph.report.figures.paper import figures_of
from pytest_ngraph.report.figures.size import Size
from pytest_ngraph.report.html.content import Content
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.stack.cells import (
    compression_of,
    fastest,
    how_of,
    is_large_image,
    method_of,
    nominal_ratio,
    points,
    ratio_of,
)
from pytest_ngraph.report.stack.names import shortened
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Outcome, Workload
from pytest_ngraph.store.rows import RunRow
from tests.support.report_stores import ref

MODEL, LARGE = "cifar.py:ResNet18", "torchvision:resnet50"
CHANNELS, SHORT = "channel_prune[of=parameters]=0.8", "CP(parameters) 80"
RUN = RunRow(1, "run", "2026-01-01", None, "finished", (), 0, "gate", {"cpus": 2, "affinity": [0, 1]}, False, False)


def report(
    compiler: str,
    optimize: str = "dense",
    milliseconds: float | None = 1.0,
    *,
    model: str = MODEL,
    precision: str = "f32",
    device: str = "local",
    width: float = 0.01,
    top1: float | None = None,
    achieved: Mapping[str, int] | None = None,
) -> CellReport:
    cell = Cell(device, CompilerSpec.parse(compiler), Workload(ref(model), 1, optimize=optimize, precision=precision))
    estimates = {}
    if milliseconds is not None:
        value = 1e-3 * milliseconds
        estimates["latency"] = Estimate("latency", value, value * (1 - width), value * (1 + width), 3)
    if top1 is not None:
        estimates["accuracy:top1"] = Estimate("accuracy:top1", top1, top1 - 0.02, top1 + 0.01, 1)
    record = CompileRecord(Outcome.OK)
    known = (
        record
        if achieved is None
        else cast("Any", SimpleNamespace(**_fields(record), achieved=tuple(achieved.items())))
    )
    return CellReport(cell, None, estimates, None, known)


def _fields(record: CompileRecord) -> dict[str, Any]:
    return {name: value for name, value in record.to_json().items() if name not in ("outcome", "achieved")} | {
        "outcome": Outcome.OK
    }


GONE = {"parameters": 20, "macs": 40, "dense_parameters": 100, "dense_macs": 100, "zeros": 0}
MASKED = {"parameters": 100, "macs": 100, "dense_parameters": 100, "dense_macs": 100, "zeros": 95}
REPORTS = [
    report("identity", milliseconds=8.0, top1=0.99),
    report("onnxruntime", milliseconds=2.0, top1=0.99),
    report("openvino", milliseconds=1.0, top1=0.99),
    report("identity", CHANNELS, 6.0, top1=0.90, achieved=GONE),
    report("onnxruntime", CHANNELS, 1.0, top1=0.90, achieved=GONE),
    report("openvino", CHANNELS, 0.8, top1=0.89, achieved=GONE),
    report("onnxruntime", "weight_prune=0.95", 2.0, top1=0.97, achieved=MASKED),
    report("openvino", "weight_prune=0.95", 1.0, top1=0.97, achieved=MASKED),
    report("onnxruntime", milliseconds=0.5, precision="int8", top1=0.98),
    report("openvino", milliseconds=1.5, precision="int8", top1=0.98),
]  # fmt: skip


def made(name: str, reports: list[CellReport]) -> Table:
    return DLAS_TABLES[name].made(reports, RUN)


def column(table: Table, name: str) -> list[str]:
    return [row[table.columns.index(name)] for row in table.rows]


def test_two_searches_of_one_compiler_have_each_their_time() -> None:
    searched = [report("tvm[trials=64]", milliseconds=4.0), report("tvm[tuned]", milliseconds=3.0)]
    found = points([*searched, report("tvm", milliseconds=9.0)])
    assert [point.how for point in found] == ["tvm[trials=64]", "tvm[tuned]", "tvm"]
    times = made("dlas-times", [*searched, report("tvm", milliseconds=9.0)])
    text = str(times.rows)
    assert [str(value) in text for value in (4, 3, 9)] == [True] * 3
    assert len({*map(str, times.columns)} & {"tvm[trials=64]", "tvm[tuned]"}) == 2


def test_a_cell_is_read_by_the_papers_layers() -> None:
    assert how_of(CompilerSpec.parse("tvm[algorithm=gemm,trials=64]")) == ("tvm[algorithm=gemm]", True)
    assert how_of(CompilerSpec.parse("tvm[algorithm=gemm,untuned]")) == ("tvm[algorithm=gemm]", False)
    assert how_of(CompilerSpec.parse("onnxruntime[threads=1]")) == ("onnxruntime[threads=1]", False)
    workload = Workload(ref(MODEL), 1, optimize=CHANNELS, precision="int8")
    assert compression_of(workload) == f"{CHANNELS}+int8"
    assert compression_of(Workload(ref(MODEL), 1)) == "dense"
    assert nominal_ratio(CHANNELS) == 0.8
    assert nominal_ratio("int8[by=nncf]") == 0.75
    # Of two steps nobody knows without counting.
    assert nominal_ratio(f"{CHANNELS}+int8") is None
    assert (method_of(CHANNELS), method_of("int8")) == ("channel_prune[of=parameters]", "int8")
    assert shortened("iterative_weight_prune=0.95+int8") == "WP 95+int8"
    assert shortened("channel_prune[norm=l2,of=macs]=0.5") == "CP(macs) 50"
    assert shortened("mine[a=1]=0.5") == "mine 50"


def test_sizes_of_images_decide_beside_which_table_a_network_stands() -> None:
    large = [Workload(ref(LARGE), 1), Workload(ref(LARGE), 1, image_size=128)]
    small = [Workload(ref(LARGE), 1, image_size=32), Workload(ref(MODEL), 1), Workload(ref("block:conv"), 1)]
    assert [is_large_image(one) for one in (*large, *small)] == [True, True, False, False, False]
    assert len(points([report("openvino", model=LARGE), *REPORTS], True)) == 1


def test_the_fastest_is_only_named_as_such_where_no_interval_overlaps() -> None:
    known = points([report("a", milliseconds=1.0), report("b", milliseconds=1.05), report("c", milliseconds=9)])
    wide = points([report("a", milliseconds=1.0, width=0.1), report("b", milliseconds=1.05)])
    assert [str(fastest([(p.how, p) for p in some])) for some in (known, wide)] == ["a", "a?"]
    assert fastest([]) is None
    assert fastest([(p.how, p) for p in points([report("a", milliseconds=None)])]) is None
    # One launch has no interval, so it shows nothing.
    once = replace(report("a"), estimates={"latency": Estimate("latency", 1e-3, float("-inf"), float("inf"), 1)})
    assert str(fastest([(p.how, p) for p in points([once, report("b", milliseconds=9)])])) == "a?"


def test_fastest_compilers_and_compressions() -> None:
    table = made("dlas-3", REPORTS)
    (row,) = table.rows
    assert row[:2] == ("local (untuned)", MODEL)
    by = dict(zip(table.columns, row, strict=True))
    assert (by["dense"], by["CP(parameters)"], by["int8"]) == ("openvino", "openvino", "onnxruntime")
    assert (by["openvino"], by["onnxruntime"], by["identity"]) == (SHORT, "int8", SHORT)
    assert by["Overall"] == "int8 by onnxruntime"
    # A GPU and a network for large images have tables of their own.
    assert made("dlas-4", REPORTS).rows == ()
    assert made("dlas-6", REPORTS).rows == ()
    assert len(made("dlas-4", [report("tensorrt", device="local:cuda")]).rows) == 1
    tuned = [
        report(f"tvm[algorithm={name},trials=64]", milliseconds=ms) for name, ms in (("gemm", 2.0), ("direct", 1.0))
    ]
    assert [row[0] for row in made("dlas-3", [*REPORTS, *tuned]).rows] == ["local (tuned)", "local (untuned)"]


def test_expected_and_achieved_speedups() -> None:
    table = made("dlas-speedups", REPORTS)
    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    # 40 of 100 MACs are left, 20 of 100 parameters.
    assert (rows[SHORT]["of MACs"], rows[SHORT]["of size"]) == ("2.50", "5.00")
    assert rows[SHORT]["onnxruntime"].startswith("2.00 [1.97, 2.03]")
    # The fastest dense network against the fastest that is pruned: 1.25 of 2.5 times.
    assert rows[SHORT]["Best"].startswith("1.25 [")
    assert rows[SHORT]["Share"] == "50 %"
    # Masked weights are multiplied as before: by MACs nothing is to be expected, and the share is that of the size.
    assert (rows["WP 95"]["of MACs"], rows["WP 95"]["of size"]) == ("1.00", "20.00")
    assert rows["WP 95"]["Share"] == "5 %"
    assert (rows["int8"]["of MACs"], rows["int8"]["of size"], rows["int8"]["Share"]) == ("", "4.00", "50 %")
    # A slow-down stays one: it is not called a share of something gained.
    assert rows["int8"]["openvino"].startswith("0.67 [")


def test_without_what_was_achieved_nothing_is_expected() -> None:
    plain = [report("openvino"), report("openvino", CHANNELS, 0.5)]
    (row,) = made("dlas-speedups", plain).rows
    assert row[2:4] == ("", "")
    assert row[-1] == ""
    # Nor is anything achieved by a network that was not measured dense.
    assert made("dlas-speedups", [report("openvino", CHANNELS, 0.5)]).rows == ()


def test_the_interval_of_a_ratio_holds_both() -> None:
    one = Estimate("latency", 2.0, 1.8, 2.2, 3)
    ratio = ratio_of(one, Estimate("latency", 1.0, 0.9, 1.1, 5))
    assert (ratio.value, ratio.launches) == (2.0, 3)
    assert ratio.low < 2.0 * 0.9 < 2.0 * 1.1 < ratio.high
    unbounded = ratio_of(one, Estimate("latency", 1.0, float("-inf"), float("inf"), 1))
    assert (unbounded.low, unbounded.high) == (0.0, float("inf"))


def test_accuracies_with_what_is_gone() -> None:
    table = made("dlas-2", REPORTS)
    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == ["identity", "onnxruntime", "openvino"]
    assert rows["openvino"]["dense"] == "99.0% [97.0%, 100.0%]"
    assert rows["openvino"][SHORT] == "89.0% [87.0%, 90.0%] (80%)"
    assert rows["openvino"]["WP 95"].endswith("(95%)")
    assert rows["openvino"]["int8"].endswith("(75%)")
    # What was not asked stays empty.
    assert rows["identity"]["int8"] == ""
    assert made("dlas-5", REPORTS).rows == ()


def test_accuracy_and_time_in_one_table() -> None:
    table = made("dlas-accuracy", [*REPORTS, report("openvino", model="other.py:f")])
    rows = {row[1]: dict(zip(table.columns, row, strict=True)) for row in table.rows}
    assert list(rows) == ["dense", SHORT, "WP 95", "int8"]
    assert (rows[SHORT]["Gone"], rows[SHORT]["Accuracy"]) == ("80%", "89.0% to 90.0%")
    assert rows["int8"]["identity"] == ""
    # A model that nobody evaluated is not in it.
    assert {row[0] for row in table.rows} == {f"local (untuned), {MODEL}"}


def test_a_table_is_written_and_one_without_rows_says_what_measures_it(tmp_path: Any) -> None:
    assert write_table("dlas-3", REPORTS, tmp_path / "fastest.tex", run=RUN, more=DLAS_TABLES) == 1
    assert "\\begin{table" in (tmp_path / "fastest.tex").read_text()
    assert write_table("dlas-times", REPORTS, tmp_path / "times.md", run=RUN, more=DLAS_TABLES) == 4
    assert "| 0.800 [0.792, 0.808] |" in (tmp_path / "times.md").read_text()
    with pytest.raises(
        SpecError, match=r"nothing for Table dlas-4: no cell of its kind has a time .*ngraph-device=cuda"
    ):
        write_table("dlas-4", REPORTS, tmp_path / "gpu.md", run=RUN, more=DLAS_TABLES)
    with pytest.raises(SpecError, match=r"table 'dlas-7' of the paper: not among those with a layout .*dlas-6"):
        write_table("dlas-7", REPORTS, tmp_path / "gpu.md", run=RUN, more=DLAS_TABLES)


def chosen(reports: list[CellReport]) -> Chosen:
    return Chosen(Content(RUN, reports, (), ()), (), Size())


def test_figures_of_times_have_a_panel_for_each_model() -> None:
    (panel,) = DLAS_FIGURES["dlas-4"].panels(chosen(REPORTS))
    assert panel.title == (MODEL,)
    rows = panel.layers[1]["data"]["values"]
    assert {row["what"] for row in rows} == {"dense", "CP(parameters) 80", "WP 95", "int8"}
    assert len(rows) == len(REPORTS)
    # Each mark has its name in the legend, which is cut where it is too long.
    assert sorted(legend_names([panel])) == ["identity", "onnxruntime", "openvino"]
    assert DLAS_FIGURES["dlas-5"].panels(chosen(REPORTS)) == []
    # Nothing is compared where nothing was compressed.
    assert DLAS_FIGURES["dlas-4"].panels(chosen(REPORTS[:3])) == []


def test_names_that_would_be_the_same_in_short_stay_whole() -> None:
    same = [report("openvino", "channel_prune=0.5"), report("openvino", "iterative_channel_prune=0.5")]
    assert [row[1] for row in made("dlas-times", same).rows] == ["channel_prune=0.5", "iterative_channel_prune=0.5"]
    (panel,) = DLAS_FIGURES["dlas-4"].panels(chosen(same))
    assert {row["what"] for row in panel.layers[1]["data"]["values"]} == {
        "channel_prune=0.5", "iterative_channel_prune=0.5",
    }  # fmt: skip


def test_figure_of_accuracies_has_time_beside_them() -> None:
    panels = DLAS_FIGURES["dlas-3"].panels(chosen(REPORTS))
    assert [panel.title[1:] for panel in panels] == [
        ("CP(parameters)", "top 1 [%]"), ("CP(parameters)", "ms"), ("WP", "top 1 [%]"), ("WP", "ms"),
        ("int8", "top 1 [%]"), ("int8", "ms"),
    ]  # fmt: skip
    gone = {row["gone"] for layer in panels[0].layers for row in layer["data"]["values"] if "gone" in row}
    assert gone == {0, 80}
    # Of a run without accuracies there is none.
    assert DLAS_FIGURES["dlas-3"].panels(chosen([report("openvino"), report("openvino", CHANNELS)])) == []


def test_figures_are_named_and_come_only_where_they_are() -> None:
    assert [figure.name for figure in figures_of(["dlas-3,6"], DLAS_FIGURES)] == ["dlas-3", "6"]
    assert not any(figure.name.startswith("dlas") for figure in figures_of([], DLAS_FIGURES))
    with pytest.raises(SpecError, match=r"'dlas-9' is not one of the paper's figures .*dlas-7"):
        figures_of(["dlas-9"], DLAS_FIGURES)


def test_files_and_pages_name_tables_and_figures_that_there_are() -> None:
    root = Path(__file__).parents[2]
    named = [*root.glob("example_suites/dlas/*"), *root.glob("docs/*.md"), root / "CHANGELOG.md"]
    text = "\n".join(each.read_text(encoding="utf-8") for each in named if each.suffix in (".py", ".md"))
    assert set(re.findall(r"--table (dlas-[a-z0-9-]+)", text)) <= set(DLAS_TABLES)
    figures = {name for words in re.findall(r"--figure ([a-z0-9,-]+)", text) for name in words.split(",")}
    assert {name for name in figures if name.startswith("dlas-")} <= set(DLAS_FIGURES)

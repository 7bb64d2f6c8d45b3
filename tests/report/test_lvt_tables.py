"""The third paper's table and figures of a run, what it printed beside them, and what its numbers contradict."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.errors import SpecError
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export import layout
from pytest_ngraph.report.figures.chosen import Chosen
from pytest_ngraph.report.figures.size import Size
from pytest_ngraph.report.html.content import Content
from pytest_ngraph.report.lvt import arithmetic
from pytest_ngraph.report.lvt.against import against_lines, against_page, odd_table
from pytest_ngraph.report.lvt.figures import LVT_FIGURES
from pytest_ngraph.report.lvt.published import BERT, LATENCY, METRICS, RESNET, THROUGHPUT, printed, table
from pytest_ngraph.report.lvt.setups import focus_of, model_of, setups
from pytest_ngraph.report.lvt.tables import LVT_TABLES
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Outcome, Workload
from pytest_ngraph.store.rows import RunRow
from tests.conftest import skip_without
from tests.support.report_stores import Lab, ref, write_store

RUN = RunRow(1, "run", "2026-01-01", None, "finished", (), 0, "gate", {"cpus": 2, "affinity": [0, 1]}, False, False)
MODELS = ("torchvision:resnet50", "transformers:bert-base-uncased")
VALUES = {"latency": 0.020, "throughput": 50.0, "cpu_percent": 98.0, "run_peak_memory_bytes": 300 * 2**20,
          "model_bytes": 98 * 2**20}  # fmt: skip


def report(
    compiler: str, model: str = MODELS[0], *, device: str = "local", replica: int = 0, **axes: object
) -> CellReport:
    workload = Workload(ref(model), int(str(axes.pop("batch", 1))), **axes)  # type: ignore[arg-type]
    estimates = {}
    for name, value in VALUES.items():
        each = value * (workload.batch if name in ("latency", "throughput") else 1)
        width = 0.0 if name == "model_bytes" else 0.1
        estimates[name] = Estimate(name, each, (1 - width) * each, (1 + width) * each, 3)
    cell = Cell(device, CompilerSpec.parse(compiler), workload, replica=replica)
    return CellReport(cell, None, estimates, None, CompileRecord(Outcome.OK))


REPORTS = [
    *(report("onnxruntime", model) for model in MODELS),
    *(report("openvino[hint=latency]", model) for model in MODELS),
    *(report("onnxruntime", model, batch=8, scenario="throughput") for model in MODELS),
    *(report("openvino[hint=throughput]", model, batch=8, scenario="throughput") for model in MODELS),
]


# What it printed


def test_its_table_is_kept_as_printed() -> None:
    assert [(row.focus, row.model) for row in table()] == [
        (LATENCY, RESNET), (LATENCY, BERT), (THROUGHPUT, RESNET), (THROUGHPUT, BERT),
    ]  # fmt: skip
    assert list(printed(THROUGHPUT, RESNET).texts.values()) == ["18.50", "432.56", "1.0", "5.6", "0.04", "97.76"]
    assert printed(THROUGHPUT, BERT).place == "Table 1, TensorRT-Optimized Configuration, BERT"
    assert sum(len(row.texts) for row in table()) == 24


def test_its_numbers_are_of_batches_of_eight_and_of_one() -> None:
    for model in (RESNET, BERT):
        assert arithmetic.batch_of(LATENCY, model) == pytest.approx(1, abs=0.001)
        assert arithmetic.batch_of(THROUGHPUT, model) == pytest.approx(8, abs=0.003)


def test_its_sizes_are_those_of_the_models_in_f32() -> None:
    assert f"{arithmetic.size_mib(arithmetic.PARAMETERS_BERT):.2f}" == printed(LATENCY, BERT).texts["model_bytes"]
    ours = arithmetic.size_mib(arithmetic.PARAMETERS, arithmetic.BUFFERS)
    assert 0 < printed(LATENCY, RESNET).value("model_bytes") - ours < 0.1
    assert arithmetic.size_mib(arithmetic.PARAMETERS_CIFAR, arithmetic.BUFFERS) < 90


def test_the_gpu_would_have_to_be_five_times_as_fast_as_it_can_be() -> None:
    needed, used = arithmetic.implied_flops(THROUGHPUT)
    assert 3e12 < needed < 4e12 < arithmetic.PEAK_FLOPS < 13e12
    assert used / arithmetic.PEAK_FLOPS == pytest.approx(5, abs=0.2)


@pytest.mark.real
def test_the_counts_are_those_of_the_models() -> None:
    skip_without("torch", "torchvision")
    from pytest_ngraph.workloads.modules.torchvision_import import import_torchvision

    import_torchvision()
    import torchvision

    models = [torchvision.models.resnet50(num_classes=classes) for classes in (1000, 10)]
    counts = [sum(one.numel() for one in model.parameters()) for model in models]
    assert counts == [arithmetic.PARAMETERS, arithmetic.PARAMETERS_CIFAR]
    floats = [one for one in models[0].buffers() if one.is_floating_point()]
    assert sum(one.numel() for one in floats) == arithmetic.BUFFERS


def test_the_page_of_findings_has_what_is_computed() -> None:
    page = (Path(__file__).parents[2] / "docs" / "findings.md").read_text(encoding="utf-8")
    for line in layout.markdown(odd_table()).splitlines()[2:]:
        assert line in page


# A run


def test_a_cell_is_read_by_its_setup_and_model() -> None:
    assert focus_of(Workload(ref(MODELS[0]), 1)) == LATENCY
    assert focus_of(Workload(ref(MODELS[0]), 8)) == THROUGHPUT
    assert focus_of(Workload(ref(MODELS[0]), 1, scenario="throughput")) == THROUGHPUT
    names = ("torchvision:resnet50", "timm:resnet50", "timm:resnet50d", MODELS[1], f"{MODELS[1]}[layers=1]")
    assert [model_of(Workload(ref(name), 1)) for name in names] == [RESNET, RESNET, names[2], BERT, names[4]]
    # At another size it is not what the paper ran.
    assert model_of(Workload(ref(MODELS[0]), 1, image_size=64)) == MODELS[0]
    others = [
        report("onnxruntime", replica=1),
        report("onnxruntime", scenario="server[rate=20]"),
        report("onnxruntime", decode=8),
        report("onnxruntime", batch=8, shapes="mix[batch=1x7+8x3]"),
    ]
    assert len(setups([*REPORTS, *others])) == len(REPORTS)


def test_the_table_has_six_metrics_and_says_what_cannot_be_read() -> None:
    made = LVT_TABLES["lvt-1"].made(REPORTS, RUN)
    assert made.columns == ("Configuration", "Model", "Ran as", *(metric.title for metric in METRICS))
    assert made.rows[0][:4] == (LATENCY, RESNET, "onnxruntime, batch1", "20 [18, 22]")
    # Time and throughput of a batch are of the same calls, and the size of a file has no interval.
    row = next(row for row in made.rows if row[:2] == (THROUGHPUT, BERT) and row[2].startswith("onnxruntime"))
    assert row[3:] == ("160 [144, 176]", "400 [360, 440]", "98 [88.2, 108]", "null: no GPU", "300 [270, 330]", "98")
    assert LVT_TABLES["lvt-1"].made([], RUN).rows == ()


def test_two_devices_are_told_apart() -> None:
    made = LVT_TABLES["lvt-1"].made([*REPORTS, report("onnxruntime[cuda]", device="cuda")], RUN)
    assert made.columns[0] == "Device"
    assert {row[0] for row in made.rows} == {"cuda", "local"}


def test_its_figures_have_a_panel_for_each_metric_that_there_is() -> None:
    chosen = Chosen(Content(RUN, REPORTS, (), ()), (), Size())
    for name, compilers in (("lvt-1", "openvino[hint=latency]"), ("lvt-2", "openvino[hint=throughput]")):
        panels = LVT_FIGURES[name].panels(chosen)
        assert [panel.title[0] for panel in panels] == [
            "Time [ms]",
            "Throughput [/s]",
            "CPU [%]",
            "Memory [MiB]",
            "Model [MiB]",
        ]
        rows = panels[0].layers[1]["data"]["values"]
        assert {row["what"] for row in rows} == {RESNET, BERT}
        assert {row["compiler"] for row in rows} == {"onnxruntime", compilers}
    only = Chosen(Content(RUN, REPORTS[:4], (), ()), (), Size())
    assert LVT_FIGURES["lvt-2"].panels(only) == []


def test_beside_the_paper_each_number_has_its_own_and_each_ratio() -> None:
    text = "\n".join(against_lines(RUN, REPORTS))
    assert re.search(r"ResNet-50 +Time \[ms\] +19\.09 +20 \[18, 22\]", text)
    assert "null (no GPU)" in text
    assert re.search(
        r"BERT +throughput +3\.39x +onnxruntime, batch8, throughput over onnxruntime, batch1 +8\.00x", text
    )
    page = against_page(RUN, REPORTS)
    assert "## local, latency-focused, beside Table 1's Standard Configuration" in page
    assert "## What its numbers contradict" in page
    for paragraph in page.split("\n\n"):
        if paragraph.startswith("|"):
            assert len({line.replace(r"\|", "").count("|") for line in paragraph.splitlines()}) == 1


def test_a_run_of_other_models_has_nothing_to_stand_beside() -> None:
    with pytest.raises(
        SpecError, match=r"the run has neither ResNet-50 nor BERT-base \(measure them: pytest example_s"
    ):
        against_lines(RUN, [report("onnxruntime", "timm:resnet18")])


def test_the_commands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skip_without("altair", "vl_convert")
    store = tmp_path / "s.sqlite"
    write_store(store, Lab(devices=("xeon",), models=("timm:resnet50",), batches=(1, 8), depths=(), launches=2))
    given = ["--store", str(store)]
    assert main(["export", str(tmp_path / "t.md"), "--table", "lvt-1", *given]) == 0
    assert "latency-focused" in (tmp_path / "t.md").read_text(encoding="utf-8")
    assert main(["export", str(tmp_path / "t.md"), "--table", "lvt-1", "--verify", *given]) == 0
    assert main(["report", "--figures", str(tmp_path), "--figure", "lvt-1,lvt-2", "--format", "svg", *given]) == 0
    assert (tmp_path / "figure-lvt-1.svg").exists()
    assert (tmp_path / "figure-lvt-2.svg").exists()
    assert main(["report", "--against", "lvt", str(tmp_path / "beside.md"), *given]) == 0
    assert "432.56" in capsys.readouterr().out
    assert "432.56" in (tmp_path / "beside.md").read_text(encoding="utf-8")
    assert main(["report", "--against", "lvt", "--figures", str(tmp_path), *given]) == 2
    assert "--figures: not with --against lvt" in capsys.readouterr().err

"""What the paper states and ours in one picture: the right numbers on one axis, and who measured which."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.cli import main
from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.export.tables import SPREADS
from pytest_ngraph.report.figures import beside
from pytest_ngraph.report.figures.beside import BESIDE, Beside
from pytest_ngraph.report.figures.chosen import look_of
from pytest_ngraph.report.html.content import read_content
from pytest_ngraph.report.paper.families import cpu_pairs
from pytest_ngraph.report.paper.pairs import Pair
from pytest_ngraph.report.paper.published import FAMILIES, SMALL, figure, figures
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Workload
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import skip_without
from tests.report.test_against_paper import RESNETS, Times, compared, measured, noisy, sweep


def stack(compiler: str, depth: int, width: int = 128, model: str = "block:mha") -> Cell:
    return Cell("local", CompilerSpec.parse(compiler), Workload(parse_model(model), 8, depth=depth, width=width))


def stacks(model: str = "block:mha", width: int = 128, deepest: int = 6) -> Times:
    """A tenth more speed-up for each block."""
    times = {}
    for depth in range(1, deepest + 1):
        times[stack("identity", depth, width, model)] = 0.002 * depth
        times[stack("openvino", depth, width, model)] = 0.002 * depth / (1.4 + 0.1 * depth)
        times[stack("onnxruntime", depth, width, model)] = 0.002 * depth / 1.2
    return times


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A family that was measured whole at batches 2 and 4, one network of another, and attention blocks."""
    groups = [
        noisy(sweep({1: gain, 2: gain, 4: gain}, model), 3)
        for model, gain in zip(RESNETS, (1.5, 2.0, 3.0), strict=True)
    ]
    with measured(tmp_path, *groups, noisy(sweep({4: 1.2}, "timm:efficientnet_b3"), 3), noisy(stacks(), 3)):
        pass
    return tmp_path / "results.sqlite"


def pairs_of(folder: Path, *groups: list[Times]) -> list[Pair]:
    with measured(folder, *groups) as store:
        return compared(store).pairs


def drawn(one: Beside, pairs: list[Pair], folder: Path) -> dict[tuple[str, ...], list[dict[str, Any]]]:
    """Return what stands in each panel, by its title."""
    with measured(folder, noisy(sweep({2: 1.5}), 3)) as store:
        look = look_of(read_content(store, store.runs()[-1]))
    found = {}
    for panel in beside._panels(one, pairs, look):
        marks = next(layer for layer in panel.layers if layer["mark"]["type"] == "line")
        found[panel.title] = marks["data"]["values"]
    return found


def test_a_mean_of_three_stands_beside_a_mean_of_three_and_one_network_says_so(tmp_path: Path) -> None:
    groups = [noisy(sweep({2: gain, 4: gain}, model), 3) for model, gain in zip(RESNETS, (1.5, 2.0, 3.0), strict=True)]
    pairs = pairs_of(tmp_path, *groups, noisy(sweep({4: 1.2}, "timm:efficientnet_b3"), 3))
    speedups = {(pair.subject, pair.here): pair for pair in pairs if pair.metric == "speedup"}

    assert set(speedups) == {("ResNets", ""), ("EfficientNets", "efficientnet_b3 at 4")}
    whole, alone = speedups["ResNets", ""], speedups["EfficientNets", "efficientnet_b3 at 4"]
    # Table VI: 136.94 / 68.08 and 96.04 / 30.80.
    assert (round(whole.value, 4), round(alone.value, 4)) == (2.0115, 3.1182)
    assert whole.mine.value == pytest.approx(6.5 / 3, rel=1e-3)
    assert alone.mine.value == pytest.approx(1.2, rel=1e-2)
    rates = {pair.compiler: pair for pair in pairs if pair.metric == "throughput" and pair.subject == "ResNets"}
    assert [(one.value, one.deviation) for one in rates.values()] == [(68.08, 1.75), (136.94, 5.80)]


def test_attention_blocks_stand_beside_table_viii_with_slope_and_retention(tmp_path: Path) -> None:
    pairs = pairs_of(tmp_path, noisy(stacks(), 3, 0.0005), noisy(stacks(width=256, deepest=3), 3, 0.0005))
    found = {(pair.metric, pair.compiler, pair.at, pair.here): pair for pair in pairs}

    assert {key[2:] for key in found} == {("width 128, batch 8", ""), ("width 256, batch 8", "depths 1 to 3")}
    assert {pair.subject for pair in pairs} == {"block:mha"}
    slope = found["slope", "openvino", "width 128, batch 8", ""]
    assert (slope.value, slope.deviation) == (0.1113, None)
    assert slope.mine.value == pytest.approx(0.1, rel=0.01)
    kept = found["retention", "onnxruntime", "width 128, batch 8", ""]
    assert kept.value == 1.105
    assert kept.mine.value == pytest.approx(1.0, rel=0.01)


def test_every_number_of_a_device_has_a_picture() -> None:
    metrics = {metric for one in BESIDE.values() for metric in one.metrics}
    stated = {one.metric for table in ("iii", "vi", "vii", "viii") for one in figures(table)}
    assert metrics == {*stated, "speedup"}


def test_cpu_usage_is_a_mean_of_what_was_measured_and_says_of_what() -> None:
    def used(model: str, batch: int, value: float) -> tuple[tuple[str, str, int], Estimate]:
        return ("identity", model, batch), Estimate("cpu_percent", value, value - 2, value + 2, 3)

    whole = dict(used(model, batch, 90.0 + batch) for model in FAMILIES["ResNets"] for batch in SMALL)
    some = dict([used("timm:convnext_tiny", 2, 80.0), used("timm:convnext_small", 4, 70.0)])
    found = {(pair.subject, pair.at, pair.here): pair for pair in cpu_pairs("local", "Xeon", {**whole, **some})}

    assert set(found) == {
        ("ResNets", "batches 2-4", ""),
        ("ConvNeXts", "batches 2-4", "convnext_tiny at 2"),
        ("ConvNeXts", "batches 2-4", "convnext_small at 4"),
    }
    resnets = found["ResNets", "batches 2-4", ""]
    assert resnets.value == figure("vi", "Xeon", "identity", "ResNets", SMALL, "cpu_percent").value
    assert (resnets.mine.value, resnets.mine.low, resnets.mine.high) == (93, 91, 95)


def test_both_are_drawn_on_one_axis_and_what_has_no_interval_has_no_whisker(tmp_path: Path) -> None:
    ours = Estimate("speedup", 1.5, 1.4, 1.6, 3)
    unknown = Estimate("speedup", 0.8, float("-inf"), float("inf"), 1)
    pairs = [
        Pair("local", "speedup", "ResNets", "batches 2-4", "openvino", 2.0, None, ours),
        Pair("local", "speedup", "ResNets", "batches 2-4", "tvm", 0.7, 0.1, unknown),
        Pair("local", "speedup", "DeiTs", "batches 2-4", "openvino", 1.3, None, ours, "deit3_small at 4"),
    ]
    found = drawn(BESIDE["6"], pairs, tmp_path)

    assert list(found) == [("ResNets", "batches 2-4"), ("DeiTs", "batches 2-4", "here deit3_small at 4")]
    rows = [
        (row["compiler"], row["side"], row["value"], row["from"], row["to"]) for row in found["ResNets", "batches 2-4"]
    ]
    assert rows == [
        ("openvino", "paper", 2.0, None, None), ("openvino", "here", 1.5, 1.4, 1.6),
        ("tvm", "paper", 0.7, pytest.approx(0.6), pytest.approx(0.8)), ("tvm", "here", 0.8, None, None),
    ]  # fmt: skip


@pytest.mark.parametrize("is_log", [False, True])
def test_one_wide_interval_sets_no_scale_and_is_cut(is_log: bool) -> None:
    rows: list[dict[str, Any]] = [
        {"value": 100.0, "low": 95.0, "high": 105.0}, {"value": 120.0, "low": 1e-9, "high": 1e9},
        {"value": 110.0, "low": None, "high": None},
    ]  # fmt: skip
    low, high = beside._ends(rows, None, is_log=is_log)

    assert 40 < low < 95
    assert 120 < high < 250
    assert [beside._within(row, low, high)["is_cut"] for row in rows] == [False, True, False]


@pytest.mark.real
def test_the_command_draws_all_that_both_have(store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skip_without("altair", "vl_convert")
    folder = tmp_path / "beside"
    how = ["--figures", str(folder), "--against", "paper", "--format", "svg", "--store", str(store)]
    assert main(["report", *how]) == 0
    said = capsys.readouterr().out

    # No CPU time was read and no model that Table III has was compiled, but resnet101 at batch 1.
    assert sorted(path.name for path in folder.glob("*.svg")) == [
        f"beside-{name}.svg" for name in ("figure-5", "figure-6", "figure-7", "table-iii")
    ]
    assert "figure 12: nothing here is like Table VI (local beside its Xeon); measure it: pytest example_suites" in said
    svg = (folder / "beside-figure-7.svg").read_text(encoding="utf-8")
    texts = re.findall(r">([^<>]+)</t(?:ext|span)>", svg)
    assert texts.count("paper") == texts.count("here") == 2
    assert {"attention blocks", "slope", "retention", "onnxruntime", "openvino"} <= set(texts)
    caption = (folder / "beside-figure-7.txt").read_text(encoding="utf-8")
    assert (
        "Tables VII and VIII of NGraphBench (Furutanpey et al.), beside Figure 7: its Xeon, 8 CPUs of a Xeon" in caption
    )
    assert "onnxruntime 1.19.2, openvino 2024.3.0" in caption
    assert "Device local: A processor, 2 CPUs used" in caption
    assert f"protocol gate, {SPREADS['gate']}, of 3 launches" in caption
    assert "standard deviation of 100 repetitions" not in caption
    assert "with the standard deviation of 100 repetitions" in (folder / "beside-figure-5.txt").read_text(
        encoding="utf-8"
    )
    assert r"\includegraphics[width=88mm]{beside-figure-7}" in (folder / "beside-figure-7.tex").read_text(
        encoding="utf-8"
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--figure", "8"], "--figure: '8' with --against paper: it states no numbers (known: 5, 6, 7, 12, iii)"),
        (["--figure", "12"], "--figure 12: nothing here is like Table VI (local beside its Xeon)"),
        (["--device", "orin"], "--device: 'orin' is not in this run (there: local)"),
        (["--compiler", "tvm"], "--compiler: 'tvm' is not in this run"),
        (["--format", "jpg"], "--format: jpg (known: pdf, svg, png)"),
        (["--width", "1mm"], "--width: '1mm' (expected a length from 50mm"),
        (["--model", "resnet18"], "--model: not with --against paper"),
        (["--sizes", "resnet18=1:2"], "--sizes: not with --against paper"),
    ],
)
def test_the_command_says_what_is_wrong(
    store: Path, tmp_path: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    skip_without("altair", "vl_convert")
    how = ["--figures", str(tmp_path / "f"), "--against", "paper", *arguments, "--store", str(store)]
    assert main(["report", *how]) == 2
    assert message in capsys.readouterr().err


def test_a_device_that_the_paper_has_none_of_has_no_picture(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    skip_without("altair", "vl_convert")
    with measured(tmp_path, [sweep({2: 1.5})], facts={"machine": "aarch64", "cpu": "Neoverse"}):
        pass
    how = ["--figures", str(tmp_path / "f"), "--against", "paper", "--store", str(tmp_path / "results.sqlite")]
    assert main(["report", *how]) == 2
    assert "the run has nothing beside the paper's numbers" in capsys.readouterr().err
    assert not (tmp_path / "f").exists()


def test_with_a_page_the_tables_are_written_too(store: Path, tmp_path: Path) -> None:
    skip_without("altair", "vl_convert")
    how = ["--figures", str(tmp_path / "f"), "--figure", "7", "--against", "paper", "--store", str(store)]
    assert main(["report", str(tmp_path / "beside.md"), *how]) == 0
    assert "Depth scaling beside Tables VII and VIII" in (tmp_path / "beside.md").read_text(encoding="utf-8")
    assert (tmp_path / "f" / "beside-figure-7.pdf").read_bytes().startswith(b"%PDF")

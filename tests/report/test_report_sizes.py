"""Models stand by family, and in each the small ones before the large ones."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.quantities.quantity import Estimate
from pytest_ngraph.report.figures.chosen import Chosen
from pytest_ngraph.report.figures.paper import throughput as figure_5
from pytest_ngraph.report.figures.size import Size
from pytest_ngraph.report.html.charts import CHARTS, rows_of
from pytest_ngraph.report.html.content import read_content
from pytest_ngraph.report.html.page import page
from pytest_ngraph.report.html.pictures.sizes import in_order, models_by_size
from pytest_ngraph.store.sqlite import Store
from tests.support.report_stores import Lab, write_store

# Each in the order of its numbers of parameters.
FAMILIES = [
    ["timm:resnet18", "timm:resnet34", "timm:resnet50", "timm:resnet101", "timm:resnet152"],
    ["timm:vit_tiny_patch16_224", "timm:vit_small_patch16_224", "timm:vit_base_patch16_224",
     "timm:vit_large_patch16_224", "timm:vit_huge_patch14_224", "timm:vit_giant_patch14_224"],
    ["torchvision:vit_b_16", "torchvision:vit_l_16", "torchvision:vit_h_14"],
    ["timm:convnext_atto", "timm:convnext_femto", "timm:convnext_pico", "timm:convnext_nano", "timm:convnext_tiny",
     "timm:convnext_small", "timm:convnext_base", "timm:convnext_large", "timm:convnext_xlarge",
     "timm:convnext_xxlarge"],
    ["timm:tf_efficientnetv2_s", "timm:tf_efficientnetv2_m", "timm:tf_efficientnetv2_l", "timm:tf_efficientnetv2_xl"],
    ["timm:efficientnet_b0", "timm:efficientnet_b3", "timm:efficientnet_b10"],
    ["timm:mobilevit_xxs", "timm:mobilevit_xs", "timm:mobilevit_s"],
    ["timm:mobilenetv3_small_100", "timm:mobilenetv3_large_100"],
    ["timm:yolov8n", "timm:yolov8s", "timm:yolov8m", "timm:yolov8l", "timm:yolov8x"],
    ["timm:deit3_small_patch16_224", "timm:deit3_medium_patch16_224", "timm:deit3_base_patch16_224"],
    ["torchvision:swin_t", "torchvision:swin_s", "torchvision:swin_b"],
]  # fmt: skip
PANELS = next(chart for chart in CHARTS if chart.name == "throughput")


@pytest.mark.parametrize("models", FAMILIES, ids=lambda models: models[0])
def test_names_say_which_is_the_smaller(models: list[str]) -> None:
    for seed in range(5):
        assert in_order(random.Random(seed).sample(models, len(models)), {}) == models


def test_families_stay_together_and_versions_before_sizes() -> None:
    models = ["timm:yolov8n", "timm:yolov5x", "timm:resnet50", "timm:swin_base", "timm:resnet18", "timm:swin_tiny"]
    assert in_order(models, {}) == [
        "timm:resnet18", "timm:resnet50", "timm:swin_tiny", "timm:swin_base", "timm:yolov5x", "timm:yolov8n"
    ]  # fmt: skip


def test_what_is_known_of_all_of_a_family_beats_its_names() -> None:
    models = ["timm:resnet18", "timm:resnet26t", "timm:resnet50_pruned"]
    known = {"timm:resnet18": 46e6, "timm:resnet26t": 64e6, "timm:resnet50_pruned": 20e6}

    assert in_order(models, known) == ["timm:resnet50_pruned", "timm:resnet18", "timm:resnet26t"]
    # Of two the one is not known: bytes and names are no one order.
    del known["timm:resnet18"]
    assert in_order(models, known) == models


def test_strange_names_have_an_order() -> None:
    models = [
        "",
        ":",
        "m.py:_",
        "timm:",
        "timm:__s__",
        "timm:S",
        "x",
        "timm:m",
        "\N{GREEK SMALL LETTER ALPHA}:\N{SUPERSCRIPT TWO}",
    ]
    assert sorted(in_order(models, {})) == sorted(models)
    assert in_order(models, {}) == in_order(models[::-1], {})


def test_panels_stand_by_size_in_page_and_figures(tmp_path: Path) -> None:
    models = ("timm:vit_base", "timm:resnet101", "timm:vit_tiny", "timm:resnet18", "timm:vit_large", "timm:vit_small")
    lab = Lab(devices=("xeon",), models=models, batches=(1, 8), depths=(1, 2), launches=1)
    write_store(tmp_path / "results.sqlite", lab)
    with Store.open(tmp_path / "results.sqlite", read_only=True) as store:
        content = read_content(store, store.runs()[-1])
    order = ["timm:resnet18", "timm:resnet101", "timm:vit_tiny", "timm:vit_small", "timm:vit_base", "timm:vit_large"]

    panels = list(dict.fromkeys(row["subject"] for row in rows_of(PANELS, content)[0]))
    assert panels[: len(order)] == order
    assert all(name.startswith("block:") for name in panels[len(order) :])
    assert [panel.place for panel in figure_5(Chosen(content, (), Size()))] == [
        ("ResNets", "timm:resnet18"), ("ResNets", "timm:resnet101"),
        *(("vit", name) for name in order[2:]),
    ]  # fmt: skip
    assert '"models":["block:conv",' + ",".join(f'"{name}"' for name in order) + "]" in page(content)

    # Bytes of the baselines say otherwise, and are believed.
    sizes = {name: 1e6 * (9 - number) for number, name in enumerate(order)}
    reports = [
        replace(report, estimates={**report.estimates, "model_bytes": Estimate("model_bytes", size, size, size, 1)})
        if report.baseline is None and (size := sizes.get(report.cell.workload.model.text))
        else report
        for report in content.reports
    ]
    assert models_by_size(reports) == [
        "block:conv", "timm:resnet101", "timm:resnet18", "timm:vit_large", "timm:vit_base", "timm:vit_small",
        "timm:vit_tiny",
    ]  # fmt: skip

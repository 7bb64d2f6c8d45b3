"""Parameters and multiply-accumulates are those of the paper's Tables IV and V, to the unit."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec import ModelRef
from pytest_ngraph.workloads import facts

pytestmark = pytest.mark.real

# name, parameters and multiply-accumulates of Table IV, true multiply-accumulates
TABLE_IV = [
    ("resnet18", 11_689_512, 1_814_083_944, 1_814_073_344),
    ("resnet50", 25_557_032, 4_089_238_376, 4_089_184_256),
    ("resnet101", 44_549_160, 7_801_511_784, 7_801_405_440),
    ("efficientnet_b3", 12_233_232, 962_729_320, 962_708_240),
    ("efficientnet_b4", 19_341_616, 1_503_740_472, 1_503_710_432),
    ("efficientnet_b5", 30_389_784, 2_356_534_504, 2_356_493_184),
    ("deit3_small_patch16_224", 22_059_496, 79_557_352, 4_598_882_304),
    ("deit3_medium_patch16_224", 38_849_512, 115_513_320, 7_990_968_320),
    ("deit3_base_patch16_224", 86_585_320, 201_581_032, 17_563_828_224),
    ("swin_s3_tiny_224", 28_328_674, 52_152_040, 4_623_332_352),
    ("swin_s3_small_224", 49_737_298, 66_312_424, 9_404_703_744),
    ("swin_s3_base_224", 71_125_762, 94_739_176, 13_655_012_352),
    ("convnext_tiny", 28_589_128, 322_371_592, 4_455_531_264),
    ("convnext_small", 50_223_688, 411_391_240, 8_683_712_256),
    ("convnext_base", 88_591_464, 646_530_408, 15_354_729_472),
]
TABLE_V = [
    ("block:conv", {64: 37_056, 96: 83_232, 128: 147_840, 256: 590_592}),
    ("block:mha", {128: 66_048, 256: 263_168, 384: 591_360, 512: 1_050_624}),
]


@pytest.fixture(autouse=True)
def _torch() -> None:
    pytest.importorskip("torch")


@pytest.mark.skipif(importlib.util.find_spec("timm") is None, reason="timm is not installed")
@pytest.mark.parametrize(("name", "parameters", "macs_paper", "macs"), TABLE_IV, ids=[row[0] for row in TABLE_IV])
def test_table_iv(name: str, parameters: int, macs_paper: int, macs: int) -> None:
    found = facts(f"timm:{name}")
    assert (found.parameters, found.macs_paper, found.macs) == (parameters, macs_paper, macs)


@pytest.mark.parametrize(("model", "rows"), TABLE_V)
def test_table_v_counts_each_block_without_the_stem(model: str, rows: dict[int, int]) -> None:
    for width, parameters in rows.items():
        one, two, five = (
            (facts(model, depth=depth, width=width, image_size=32) for depth in (1, 2, 5))
            if (model == "block:conv")
            else (facts(model, depth=depth, width=width) for depth in (1, 2, 5))
        )
        assert two.parameters - one.parameters == parameters
        assert five.parameters - two.parameters == 3 * parameters


def test_true_counts_of_blocks_are_those_of_pencil_and_paper() -> None:
    conv = facts("block:conv", depth=2, width=8, image_size=10)
    assert conv.macs == 10 * 10 * 9 * (3 * 8 + 2 * 8 * 8)
    mha = facts("block:mha", width=32)
    assert mha.macs == 10 * 4 * 32 * 32 + 2 * 10 * 10 * 32  # four projections, scores and their weighted sum


def test_a_users_model_is_counted_as_it_is_built() -> None:
    found = facts(ModelRef.parse("shapes.py:stack", (Path(__file__).parent / "workload_models",)))
    assert found.parameters == 2 * 72 + 18
    assert found.macs == 2 * 64 + 16
    assert found.macs_paper == found.parameters


def test_an_onnx_file_is_not_counted(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").touch()
    with pytest.raises(SpecError, match="only PyTorch models are counted"):
        facts(f"onnx:{tmp_path / 'model.onnx'}")


def test_an_axis_that_a_model_lacks_is_refused() -> None:
    with pytest.raises(SpecError, match="it does not take width"):
        facts("timm:resnet18", width=4)

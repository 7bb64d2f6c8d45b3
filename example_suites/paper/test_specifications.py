"""What are the networks made of? The paper's Tables IV and V, to the unit.

Table IV gives parameters and multiply-accumulates of fifteen networks, Table V the parameters of a block at several
widths. The paper's multiply-accumulates take a linear layer once per forward pass instead of once per token and leave
the products inside attention out, so those of ConvNeXts are 14 to 24 times too low, and those of transformers 58 to 144
times. What is really computed for an image of 224 x 224 stands beside them: by the paper's count a DeiT-Base is nine
times lighter than a ResNet-18, in truth it is nearly ten times heavier.

    pytest example_suites/paper/test_specifications.py              only shapes are computed
    pytest example_suites/paper/test_specifications.py -k swin      one family
"""

from __future__ import annotations

import pytest

from pytest_ngraph.workloads import facts

# Model, its name in the paper, parameters, multiply-accumulates as the paper counts them, and the true ones.
TABLE_IV = [
    ("resnet18", "ResNet-18", 11_689_512, 1_814_083_944, 1_814_073_344),
    ("resnet50", "ResNet-50", 25_557_032, 4_089_238_376, 4_089_184_256),
    ("resnet101", "ResNet-101", 44_549_160, 7_801_511_784, 7_801_405_440),
    ("efficientnet_b3", "EfficientNet-B3", 12_233_232, 962_729_320, 962_708_240),
    ("efficientnet_b4", "EfficientNet-B4", 19_341_616, 1_503_740_472, 1_503_710_432),
    ("efficientnet_b5", "EfficientNet-B5", 30_389_784, 2_356_534_504, 2_356_493_184),
    ("deit3_small_patch16_224", "DeiT-Small", 22_059_496, 79_557_352, 4_598_882_304),
    ("deit3_medium_patch16_224", "DeiT-Medium", 38_849_512, 115_513_320, 7_990_968_320),
    ("deit3_base_patch16_224", "DeiT-Base", 86_585_320, 201_581_032, 17_563_828_224),
    ("swin_s3_tiny_224", "Swin-Tiny", 28_328_674, 52_152_040, 4_623_332_352),
    ("swin_s3_small_224", "Swin-Small", 49_737_298, 66_312_424, 9_404_703_744),
    ("swin_s3_base_224", "Swin-Base", 71_125_762, 94_739_176, 13_655_012_352),
    ("convnext_tiny", "ConvNeXt-Tiny", 28_589_128, 322_371_592, 4_455_531_264),
    ("convnext_small", "ConvNeXt-Small", 50_223_688, 411_391_240, 8_683_712_256),
    ("convnext_base", "ConvNeXt-Base", 88_591_464, 646_530_408, 15_354_729_472),
]
# Block, width (channels or embedding dimensions), parameters of a block.
TABLE_V = [
    ("block:conv", 64, 37_056),
    ("block:conv", 96, 83_232),
    ("block:conv", 128, 147_840),
    ("block:conv", 256, 590_592),
    ("block:mha", 128, 66_048),
    ("block:mha", 256, 263_168),
    ("block:mha", 384, 591_360),
    ("block:mha", 512, 1_050_624),
]
_MODELS = [row[0] for row in TABLE_IV]


@pytest.mark.parametrize(("model", "paper", "parameters", "macs_paper", "macs"), TABLE_IV, ids=_MODELS)
def test_network(model: str, paper: str, parameters: int, macs_paper: int, macs: int) -> None:
    """Table IV: parameters, and multiply-accumulates by the paper's count and in truth."""
    found = facts(f"timm:{model}")
    assert (found.parameters, found.macs_paper, found.macs) == (parameters, macs_paper, macs), paper


@pytest.mark.parametrize(("block", "width", "parameters"), TABLE_V)
def test_block(block: str, width: int, parameters: int) -> None:
    """Table V: what each further block adds; the stem that leads an image into a conv stack is not counted."""
    one, two, six = (facts(block, depth=depth, width=width).parameters for depth in (1, 2, 6))
    assert (two - one, six - two) == (parameters, 4 * parameters)


@pytest.mark.smoke
def test_smoke() -> None:
    """One network and one block of each kind."""
    test_network(*TABLE_IV[0])
    for row in (TABLE_V[0], TABLE_V[-1]):
        test_block(*row)

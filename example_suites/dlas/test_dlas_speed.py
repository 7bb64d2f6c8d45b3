"""How fast is each combination of compression and compiler? The paper's Figures 4 to 7 and Tables 3, 4 and 6.

It times seven networks, dense, pruned and quantised, on four devices; its algorithms of convolution and tuning are in
test_dlas_algorithms.py.
Weight pruning is at 95 % (80 % of the small ImageNet networks), channel pruning at 50 % of the parameters of small
networks and 80 % of large ones: the elbows of its accuracies. Random weights here: times do not depend on them.

    pytest example_suites/dlas/test_dlas_speed.py                                       CIFAR-10 forms, two compilers
    pytest example_suites/dlas/test_dlas_speed.py --ngraph-model=cifar.py:MobileNetV2   one network
    pytest example_suites/dlas/test_dlas_speed.py -m full -k imagenet                   networks for 224 x 224

Measured and reported: the paper's text has shares of expected speed-ups, which `ngraph export --table dlas-speedups`
has of a run, and none of them is a promise that a test could hold here.
"""

from __future__ import annotations

import pytest

from pytest_ngraph import Measurement

SMALL, LARGE = ["cifar.py:MobileNetV1", "cifar.py:MobileNetV2"], ["cifar.py:ResNet18", "cifar.py:VGG16"]
IMAGENET_SMALL = ["torchvision:mobilenet_v2", "torchvision:efficientnet_b0"]
IMAGENET_LARGE = ["torchvision:resnet50", "torchvision:densenet161"]
PRUNED_SMALL = ["dense", "weight_prune=0.95", "channel_prune[of=parameters]=0.5"]
PRUNED_LARGE = ["dense", "weight_prune=0.95", "channel_prune[of=parameters]=0.8"]


@pytest.mark.ngraph(model=SMALL, batch=1, optimize=PRUNED_SMALL)
def test_pruned_small(ngraph_cell: Measurement) -> None:
    """MobileNets: half of the parameters in channels, or 95 % of the weights."""
    ngraph_cell.ensure()


@pytest.mark.ngraph(model=LARGE, batch=1, optimize=PRUNED_LARGE)
def test_pruned_large(ngraph_cell: Measurement) -> None:
    """ResNet18 and VGG-16: 80 % of the parameters in channels, or 95 % of the weights."""
    ngraph_cell.ensure()


@pytest.mark.ngraph(model=SMALL + LARGE, batch=1, precision=["f16", "int8"])
def test_quantised(ngraph_cell: Measurement) -> None:
    """The same networks in half and a quarter of the bits."""
    ngraph_cell.ensure()


@pytest.mark.full
@pytest.mark.ngraph(
    model=IMAGENET_SMALL, batch=1, optimize=["dense", "weight_prune=0.8", "channel_prune[of=parameters]=0.5"]
)
def test_imagenet_small(ngraph_cell: Measurement) -> None:
    """Figure 6, of small networks."""
    ngraph_cell.ensure()


@pytest.mark.full
@pytest.mark.ngraph(model=IMAGENET_LARGE, batch=1, optimize=PRUNED_LARGE)
def test_imagenet_large(ngraph_cell: Measurement) -> None:
    """Figure 6, of large networks."""
    ngraph_cell.ensure()


@pytest.mark.full
@pytest.mark.ngraph(model=IMAGENET_SMALL + IMAGENET_LARGE, batch=1, precision=["f16", "int8"])
def test_imagenet_quantised(ngraph_cell: Measurement) -> None:
    """Figure 6 in half and a quarter of the bits."""
    ngraph_cell.ensure()


@pytest.mark.smoke
@pytest.mark.ngraph(model="cifar.py:MobileNetV1", batch=1, optimize=["dense", "channel_prune[of=parameters]=0.5"])
def test_smoke(ngraph_cell: Measurement) -> None:
    """One network."""
    test_pruned_small(ngraph_cell)

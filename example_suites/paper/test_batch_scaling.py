"""How much of perfect scaling is left at a larger batch? The paper's section V-D, Figure 8.

It shows the scaling efficiency ASE(b) = T(b) / (b T(1)) of the convolutional and the transformer-based families, for
each device and compiler: 1 is perfect, and every curve falls as the device fills up, however much raw throughput still
grows. TensorRT's curves fall smoothly; TVM's are erratic, since it searches again for every batch.

    pytest example_suites/paper/test_batch_scaling.py                                     all of it, hours on a CPU
    pytest example_suites/paper/test_batch_scaling.py --ngraph-model=timm:resnet18        one network
    pytest example_suites/paper/test_batch_scaling.py --ngraph-batch=2,4,8                without the costliest batch

Measured and reported: no table of the paper has its efficiencies. After test_compiler_support.py nothing is measured
again: the cells are the same, and stored.
"""

from __future__ import annotations

import pytest

from pytest_ngraph import BatchSweep
from pytest_ngraph.report.paper.published import FAMILIES

MODELS = [model for family in FAMILIES.values() for model in family]


@pytest.mark.ngraph(model=MODELS, batches=[1, 2, 4, 8, 16])
def test_efficiency(ngraph_batches: BatchSweep) -> None:
    """Figure 8: the efficiency at each batch, of each compiler and of eager PyTorch."""
    ngraph_batches.ensure()


@pytest.mark.smoke
@pytest.mark.ngraph(model="timm:resnet18", image_size=64, batches=[1, 2])
def test_smoke(ngraph_batches: BatchSweep) -> None:
    """The smallest network, two batches."""
    test_efficiency(ngraph_batches)

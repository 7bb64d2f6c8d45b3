"""Does compiling free the CPU? The paper's section V-F, Figure 12.

It shows, for each family on the Orin, how much of the CPU eager PyTorch and TensorRT keep busy while the GPU computes:
a captured graph and fewer launches save up to 80 % of it, most for the Swins. Table VI has the numbers by family. On
the strong GPU nothing is saved: both keep one of 16 hardware threads busy (6.25 %).

    pytest example_suites/paper/test_resource_use.py --ngraph-device=cuda --ngraph-compiler=tensorrt    the question
    pytest example_suites/paper/test_resource_use.py --ngraph-model=timm:resnet18                       one network

Measured and reported: Figure 12 has no table, and a CPU that does the computing itself has nothing to be freed of. The
measure is CPU time over wall time, as percent of the device's CPUs, and needs no sampling.
"""

from __future__ import annotations

import pytest

from pytest_ngraph import BatchSweep
from pytest_ngraph.report.paper.published import FAMILIES

MODELS = [model for family in FAMILIES.values() for model in family]


@pytest.mark.ngraph(model=MODELS, batches=[1, 2, 4, 8, 16])
def test_cpu_use(ngraph_batches: BatchSweep) -> None:
    """Figure 12: CPU use at each batch, of each compiler and of eager PyTorch."""
    ngraph_batches.ensure()


@pytest.mark.smoke
@pytest.mark.ngraph(model="timm:resnet18", image_size=64, batches=[1, 2])
def test_smoke(ngraph_batches: BatchSweep) -> None:
    """The smallest network, two batches."""
    test_cpu_use(ngraph_batches)

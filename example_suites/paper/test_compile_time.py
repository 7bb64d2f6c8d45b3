"""What does compiling cost? The paper's Table III: the largest network of each family at batches 1 and 32.

OpenVINO takes 2 to 13 seconds on the Xeon, TensorRT 6 to 68 on the GPU, TVM with its search 1.5 to 37 hours. The paper
has one number for each; here every launch compiles again, so that each has an interval. In the table at the end
``compile`` stands beside the speed-up that it buys.

    pytest example_suites/paper/test_compile_time.py                                        all of it
    pytest example_suites/paper/test_compile_time.py --ngraph-model=timm:resnet101 --ngraph-batch=1
    pytest example_suites/paper/test_compile_time.py --ngraph-protocol=quick                each is compiled once
    pytest example_suites/paper/test_compile_time.py --ngraph-baseline=null                 without eager PyTorch

The last leaves out eager PyTorch's calls, which take most of the time, and with them the speed-ups.
"""

from __future__ import annotations

import pytest

from pytest_ngraph import Measurement, assert_compile_time
from pytest_ngraph.report.paper.published import FAMILIES

# Seconds: twice the slowest of the paper's (12.6 on a Xeon, 68.4 on a GeForce RTX). Its TVM took 1.5 to 37 hours, most
# of it the search: that is ``tuning_seconds`` here, what is claimed is making code of what was found.
BOUNDS = {"openvino": 25, "tensorrt": 140, "*": 300}


@pytest.mark.ngraph(model=[family[-1] for family in FAMILIES.values()], batch=[1, 32], rebuild=True)
def test_compiling_takes_seconds(ngraph_cell: Measurement) -> None:
    """Without a search a network is compiled while one waits for it."""
    assert_compile_time(ngraph_cell, at_most=BOUNDS)


@pytest.mark.smoke
@pytest.mark.ngraph(model="timm:resnet18", image_size=64, batch=1, rebuild=True)
def test_smoke(ngraph_cell: Measurement) -> None:
    """The smallest network."""
    test_compiling_takes_seconds(ngraph_cell)

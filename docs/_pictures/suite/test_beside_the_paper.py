"""Cells of example_suites/paper that fit into six minutes of two CPUs: what docs/report.md shows beside the paper.

``pytest docs/_pictures/suite/test_beside_the_paper.py --ngraph-protocol=quick --ngraph-compiler=onnxruntime,openvino``
"""

from __future__ import annotations

import pytest

from pytest_ngraph import BatchSweep, DepthSweep
from pytest_ngraph.report.paper.published import FAMILIES


@pytest.mark.ngraph(model="block:mha", width=[128, 256], batch=8, depths=range(1, 7))
def test_depth(ngraph_depths: DepthSweep) -> None:
    """Table VIII and Figure 7."""
    ngraph_depths.ensure()


@pytest.mark.ngraph(model="block:mha", width=[128, 256], depth=6, batches=[1, 4, 8])
def test_width(ngraph_batches: BatchSweep) -> None:
    """Figure 10 (b)."""
    ngraph_batches.ensure()


@pytest.mark.ngraph(model=[*FAMILIES["ResNets"]], batches=[1, 2, 4])
def test_whole_family(ngraph_batches: BatchSweep) -> None:
    """Table VI and Figures 5, 6, 8, 9 and 12: the one family that is measured whole."""
    ngraph_batches.ensure()


@pytest.mark.ngraph(model=[FAMILIES[family][0] for family in ("EfficientNets", "DeiTs")], batches=[1, 4])
def test_smallest(ngraph_batches: BatchSweep) -> None:
    """The same of two networks by themselves."""
    ngraph_batches.ensure()

"""A model of our own, somebody's ONNX file, and a compiler of our own - in one grid."""

from __future__ import annotations

import pytest

from pytest_ngraph import (
    DepthSweep,
    Measurement,
    assert_latency,
    assert_outputs_match,
    assert_retention,
    assert_throughput,
)


@pytest.mark.ngraph(model="net.py:TwoTower", batch=[1, 16])
def test_our_network_is_quick(ngraph_cell: Measurement) -> None:
    """Every compiler answers within 10 ms, with the outputs of eager PyTorch."""
    assert_latency(ngraph_cell, at_most=0.010)
    assert_outputs_match(ngraph_cell, at_most=1e-4)


@pytest.mark.ngraph(model="net.py:TwoTower", batch=8, depths=[1, 4])
def test_depth_keeps_the_gain(ngraph_depths: DepthSweep) -> None:
    """What a compiler gains on one layer it keeps on four; the reference evaluator has nothing to lose."""
    assert_retention(ngraph_depths, at_least={"onnxruntime": 0.5, "openvino": 0.3, "*": 0.2})


@pytest.mark.ngraph(model="onnx:models/squeezenet.onnx", compilers=["onnxruntime", "openvino"])
def test_an_onnx_file(ngraph_cell: Measurement) -> None:
    """The baseline of an ONNX file is ONNX Runtime without graph optimisation."""
    assert_throughput(ngraph_cell, at_least=10)
    assert ngraph_cell.placement["precision"] == "f32"

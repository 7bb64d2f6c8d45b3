"""Calls that are faster than the machine can be are warned of, and honest ones are not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.checks import roofline
from pytest_ngraph.checks.roofline import Roofline, Work, objection
from pytest_ngraph.spec.cells import Cell, CompilerSpec, ModelRef, Workload
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from tests.conftest import Suite, skip_without
from tests.support import measuring
from tests.support.measuring import SMALL, TIMED, launch

# 100 GFLOP/s and 10 GB/s.
MACHINE = Roofline(1e11, 1e10)


@pytest.mark.parametrize(
    ("call_ns", "work", "precision", "warned"),
    [
        # 5e9 products are 1e10 operations, so 100 ms.
        (100e6, Work(5 * 10**9, 0), "f32", False),
        (11e6, Work(5 * 10**9, 0), "f32", False),
        (9e6, Work(5 * 10**9, 0), "f32", True),
        # Matrix units take these 64 times as fast.
        (9e6, Work(5 * 10**9, 0), "int8", False),
        (0.1e6, Work(5 * 10**9, 0), "int8", True),
        # 1e9 bytes of weights take 100 ms, however few the products are.
        (9e6, Work(1, 10**9), "f32", True),
        (11e6, Work(1, 10**9), "f32", False),
        # Where nothing could be counted nothing is said.
        (1.0, Work(0, 0), "f32", False),
    ],
)
def test_an_order_of_magnitude_beyond_the_roofline_is_warned_of(
    call_ns: float, work: Work, precision: str, warned: bool
) -> None:
    assert bool(objection(call_ns, work, precision, MACHINE)) is warned


def test_the_warning_names_the_figures() -> None:
    said = objection(1e6, Work(5 * 10**9, 4 * 10**6), "f32", MACHINE)
    assert said.startswith(
        "a call takes 1.00 ms where 5e+09 multiply-accumulates and 4e+06 bytes of weights take 100 ms"
    )
    assert "roofline of this machine (100 GFLOP/s in f32, 10 GB/s)" in said


def test_this_machine_has_a_roofline() -> None:
    pytest.importorskip("numpy")
    found = roofline.measured()
    assert found is roofline.measured()
    # From the slowest board to the fastest server, with room on both sides.
    assert 1e8 < found.operations_per_second < 1e15
    assert 1e8 < found.bytes_per_second < 1e14


@pytest.fixture
def layer(tmp_path: Path) -> ModelRef:
    """Write a product of a batch with a 64 x 32 matrix, as ONNX."""
    skip_without("numpy", "onnx", "onnxruntime")
    import numpy as np
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    graph = helper.make_graph(
        [helper.make_node("MatMul", ["x", "w"], ["y"])],
        "layer",
        [helper.make_tensor_value_info("x", kind, ["N", 64])],
        [helper.make_tensor_value_info("y", kind, ["N", 32])],
        [onnx.numpy_helper.from_array(np.random.default_rng(0).normal(size=(64, 32)).astype("float32"), "w")],
    )
    path = tmp_path / "layer.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return parse_model(f"onnx:{path}")


@pytest.mark.real
def test_a_launch_warns_of_what_no_machine_could_do(
    tmp_path: Path, layer: ModelRef, monkeypatch: pytest.MonkeyPatch
) -> None:
    cell = Cell("local", CompilerSpec.parse("onnxruntime"), Workload(layer, 4))
    honest = launch(measuring.job(tmp_path), cell, protocol=SMALL).records[cell]
    assert honest.outcome in TIMED
    assert honest.implausible == ""
    # A machine on which this layer takes seconds.
    monkeypatch.setattr(roofline, "measured", lambda: Roofline(1e3, 1e3))
    warned = launch(measuring.job(tmp_path), cell, protocol=replace(SMALL)).records[cell]
    assert warned.outcome in TIMED, "a warning is no failure"
    assert "8.19e+03 multiply-accumulates and 8.19e+03 bytes of weights" in warned.implausible


@pytest.mark.real
def test_the_warning_stands_in_the_summary_and_in_the_report(suite: Suite, layer: ModelRef) -> None:
    (suite.path / "conftest.py").write_text(
        "from pytest_ngraph.checks import roofline\n\nroofline.measured = lambda: roofline.Roofline(1e3, 1e3)\n"
    )
    suite.write(f"""
@pytest.mark.ngraph(model={layer.text!r}, batch=4)
def test_fast(ngraph_cell):
    assert ngraph_cell.throughput.value > 0
""")
    names = ("--ngraph-compiler=onnxruntime", "--ngraph-protocol=quick", "--ngraph-report=report.html")
    result = suite.bare(*names)
    result.assert_outcomes(passed=1)
    output = " ".join(result.stdout.str().split())
    assert "warning: onnxruntime on onnx:" in output
    assert "is the work left out?" in output
    assert "multiply-accumulates and 8.19e+03 bytes of weights" in (suite.path / "report.html").read_text()


@pytest.mark.real
def test_what_a_call_has_to_do_is_counted_for_pytorch_and_for_onnx_files(tmp_path: Path, layer: ModelRef) -> None:
    skip_without("torch", "onnxscript")
    (tmp_path / "net.py").write_text(
        "import torch\n\nclass Net(torch.nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n"
        "        self.layer = torch.nn.Conv2d(3, 8, 3, padding=1, bias=False)\n\n"
        "    def forward(self, image):\n        return self.layer(image)\n\n"
        "    def example_inputs(self, batch):\n        return torch.randn(batch, 3, 10, 10)\n"
    )
    for model, macs, parameters in (
        (layer, 4 * 64 * 32, 64 * 32),
        (parse_model(f"{tmp_path / 'net.py'}:Net"), 4 * 8 * 100 * 27, 8 * 27),
    ):
        made = artifacts.build(Workload(model, 4), 0, tmp_path / "artifacts", False)
        assert artifacts.work_of(tmp_path / "artifacts", made.key) == (macs, parameters)
    assert artifacts.work_of(tmp_path / "artifacts", "0" * 64) is None

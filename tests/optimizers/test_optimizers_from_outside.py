"""Optimizers from outside, one beside a conftest and one of a package, and compressed cells from marker to report."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import pytest

from tests.conftest import BRIEFLY, Suite, skip_without
from tests.support import forking_agent
from tests.support.lab import Lab

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU())
        self.head = nn.Linear(16, 10)

    def forward(self, x):
        return self.head(self.body(x).mean((2, 3)))

    def example_inputs(self, batch):
        return torch.randn(batch, 3, 8, 8)
"""
MINE = """
import torch
from pytest_ngraph.optimizers.contract import Optimizer


class {name}(Optimizer):
    def apply(self, module, ratio, example_inputs, seed):
        {body}
        return module


OPTIMIZER = {name}()
"""
HALVE = "module.head.weight.data[torch.rand(10, 16) < ratio] = 0"
CLEAR = "module.body[2].weight.data[:8] = 0"
CONFTEST = """
import pytest


@pytest.hookimpl(optionalhook=True)
def pytest_ngraph_optimizers(catalogue):
    catalogue.add("halve", "halving:OPTIMIZER")
    catalogue.add("clear", "research.clearing:OPTIMIZER")
"""
TEST = """
@pytest.mark.ngraph(model="net.py:Net", batch=[1, 2], optimize=["dense", "halve=0.5+clear=0.5"])
def test_close(ngraph_cell):
    from pytest_ngraph import assert_outputs_match
    assert_outputs_match(ngraph_cell, at_most=1e-4)
"""
GRID = """
@pytest.mark.ngraph(model="block:conv", {marker})
def test_any(ngraph_cell):
    ngraph_cell.throughput
"""
NULL = ("--ngraph-compiler=null", "--ngraph-baseline=null[sample_us=200]")


@pytest.fixture
def outside(suite: Suite) -> Suite:
    (suite.path / "net.py").write_text(NET)
    (suite.path / "halving.py").write_text(MINE.format(name="Halve", body=HALVE))
    package = suite.path / "research"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "clearing.py").write_text(MINE.format(name="Clear", body=CLEAR))
    suite.pytester.makeconftest(CONFTEST)
    return suite


@pytest.mark.real
def test_two_optimizers_from_outside_run_in_workers_and_are_seen(outside: Suite) -> None:
    skip_without("torch", "onnxruntime")
    outside.write(TEST)
    files = ("--ngraph-export=table.csv", "--ngraph-report=report.html")
    chosen = "onnxruntime,torchscript"
    result = outside.run(*files, "-rA", compiler=chosen, plugins=BRIEFLY)
    result.assert_outcomes(passed=8)
    result.stdout.fnmatch_lines_random(
        [
            "PASSED *::test_close[[]local-onnxruntime-net.py:Net-halve=0.5+clear=0.5-batch2[]]",
            "*net.py:Net halve=0.5+clear=0.5: 2,938 parameters as before*",
        ]
    )
    with (outside.path / "table.csv").open(encoding="utf-8") as table:
        rows = [*csv.DictReader(table)]
    done = [row for row in rows if row["optimize"] != "dense" and not row["compiler"].startswith("null")]
    assert {row["optimize"] for row in rows} == {"dense", "halve=0.5+clear=0.5"}
    # Nothing here leaves zeros out, and the table says so.
    assert all("kernels=dense" in row["placement"] for row in done)
    assert not any("kernels" in row["placement"] for row in rows if row["optimize"] == "dense")
    told = {row["metric"]: float(row["value"]) for row in done if row["batch"] == "2"}
    assert 40 < told["sparsity_percent"] < 60
    assert told["layers_touched_percent"] == pytest.approx(200 / 3)
    assert told["packed_bytes"] < 4 * 2938
    page = (outside.path / "report.html").read_text(encoding="utf-8")
    data = json.loads(page.partition('id="data">')[2].partition("</script>")[0])
    assert "optimize" in data["filters"]
    assert "sparsity_percent" in data["estimates"]
    # What they were made of is shared: one network's weights for both batches, one file for all who read ONNX.
    artifacts = outside.path / ".ngraph" / "artifacts"
    assert len([*artifacts.glob("sample-*")]) == len([*artifacts.glob("onnx-*")]) == 4
    again = outside.run("--ngraph-optimize=halve=.5+clear=.50", compiler=chosen, plugins=BRIEFLY)
    again.assert_outcomes(passed=4)
    again.stdout.fnmatch_lines(["measured 0 launches*"])
    # Another version of it is other evidence, of its cells only.
    (outside.path / "halving.py").write_text(MINE.format(name="Halve", body=HALVE.replace("ratio", "0.9 * ratio")))
    other = outside.run("-k", "batch1", compiler=chosen, plugins=BRIEFLY)
    other.assert_outcomes(passed=4, deselected=4)
    other.stdout.no_fnmatch_line("measured 0 launches*")


@pytest.mark.real
def test_an_optimizer_from_outside_goes_along_to_a_device(
    outside: Suite, tmp_path_factory: pytest.TempPathFactory
) -> None:
    skip_without("torch", "distributed", "cryptography")
    folder = tmp_path_factory.mktemp("lab")
    with Lab(folder, agents=forking_agent.prepared(folder)) as lab:
        lab.start_hub()
        lab.start_agent("orin")
        outside.write(TEST.replace("[1, 2]", "1"))
        elsewhere = (f"--ngraph-config={lab.registry('orin')}", "--ngraph-device=orin")
        result = outside.run(*elsewhere, compiler="torchscript", plugins=BRIEFLY)
    result.assert_outcomes(passed=2)
    result.stdout.fnmatch_lines(["*device orin*", "*net.py:Net halve=0.5+clear=0.5: 2,938 parameters as before*"])


@pytest.mark.parametrize(
    ("marker", "said"),
    [
        ('optimize="many=0.5"', "*optimize='many=0.5': unknown optimizer 'many' (known: channel_prune*"),
        ('optimize="weight_prune=0"', "*optimize='weight_prune=0': 'weight_prune=0': '0' is no ratio*"),
        ('optimize=["dense", "weight_prune=1"]', "*'weight_prune=1': '1' is no ratio (expected a ratio between*"),
        ('optimize="weight_prune=many"', "*'many' is no ratio*"),
        ("optimize=2", "*optimize=2: 2 is not allowed*"),
        ('optimize="weight_prune[size=3]=0.5"', "*unknown option 'size' (options of weight_prune: scope)*"),
        ('optimize="weight_prune=0.5+int8", precision="f16"', "*precision='f16': two precisions of a network*"),
        ('optimize="weight_prune=0.5+int8[by=magic]"', "*option by='magic' is not allowed*"),
    ],
)
def test_what_a_marker_cannot_ask_for_is_said(suite: Suite, marker: str, said: str) -> None:
    suite.write(GRID.format(marker=marker))
    suite.collect(*NULL).stdout.fnmatch_lines([said])


def test_int8_behind_the_steps_is_the_precision(suite: Suite) -> None:
    suite.write(GRID.format(marker='optimize=["weight_prune=0.50+int8", "weight_prune=0.5"], precision="int8"'))
    ids = [name.partition("block:conv-")[2] for name in suite.ids(*NULL)]
    assert ids == ["weight_prune=0.5+int8-int8]", "weight_prune=0.5-int8]"]


def test_options_at_their_default_name_the_same_cell(suite: Suite) -> None:
    steps = '["weight_prune[scope=global]=0.5", "weight_prune=0.50", "weight_prune[scope=global]=0.5+int8"]'
    suite.write(GRID.format(marker=f"optimize={steps}"))
    left = ["weight_prune=0.5]", "weight_prune=0.5+int8]"]
    assert [name.partition("conv-")[2] for name in suite.ids(*NULL)] == left
    kept = suite.ids(*NULL, "--ngraph-optimize=weight_prune[scope=global]=0.5+int8")
    assert [name.partition("conv-")[2] for name in kept] == left[1:]


def test_steps_are_named_in_any_precision(suite: Suite) -> None:
    """As they are where the precision is an axis of its own; an option with a precision names that alone."""
    suite.write(GRID.format(marker='optimize=["dense", "int8", "weight_prune=0.5", "weight_prune=0.5+int8"]'))

    def left(option: str) -> list[str]:
        return [name.partition("conv-")[2] for name in suite.ids(*NULL, f"--ngraph-optimize={option}")]

    assert left("weight_prune=0.5") == ["weight_prune=0.5]", "weight_prune=0.5+int8]"]
    assert left("weight_prune=0.5+int8") == ["weight_prune=0.5+int8]"]
    assert left("dense") == ["dense]", "int8]"]
    assert left("weight_prune=0.5+int8[by=nncf]") == []


def test_options_leave_what_they_name(suite: Suite) -> None:
    suite.write(GRID.format(marker='optimize=["dense", "weight_prune[scope=local]=0.5", "weight_prune=0.5"]'))
    kept = suite.ids(*NULL, "--ngraph-optimize=dense", "--ngraph-optimize=weight_prune[ scope=local ]=.5")
    assert [name.partition("conv-")[2] for name in kept] == ["dense]", "weight_prune[scope=local]=0.5]"]
    wrong = suite.collect(*NULL, "--ngraph-optimize=weight_prune=2")
    wrong.stderr.fnmatch_lines(["*--ngraph-optimize: 'weight_prune=2': '2' is no ratio*"])


def test_what_a_hook_adds_wrongly_is_a_usage_error(suite: Suite) -> None:
    suite.pytester.makeconftest(CONFTEST.replace("halving:OPTIMIZER", "halving"))
    suite.write(GRID.format(marker="batch=1"))
    said = ["*pytest_ngraph_optimizers: optimizer 'halve': instance 'halving' is not of the form*"]
    suite.collect(*NULL).stderr.fnmatch_lines(said)


@pytest.mark.real
def test_an_onnx_file_is_measured_as_it_is(suite: Suite, tmp_path: Path) -> None:
    skip_without("onnxruntime")
    import onnx
    from onnx import TensorProto, helper

    shape = ["n", 4]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])],
        "relu",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, shape)],
    )
    onnx.save(
        helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), suite.path / "a.onnx"
    )
    suite.write(GRID.format(marker='optimize="weight_prune=0.5"').replace("block:conv", "onnx:a.onnx"))
    result = suite.run("-rs", compiler="onnxruntime")
    result.assert_outcomes(skipped=1)
    result.stdout.fnmatch_lines(["*unsupported*an ONNX file is measured as it is, so nothing is taken away from it*"])

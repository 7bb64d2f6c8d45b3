"""Whole suites whose outputs are wrong, random, or all the same: what their users are told."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from tests.conftest import Suite, skip_without

pytestmark = pytest.mark.real

LIARS = """
def pytest_ngraph_compilers(catalogue):
    catalogue.add("liar", "tests.support.lying_compilers:COMPILER")
"""
MODEL = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(6, 4)

    def forward(self, values):
        return {forward}

    def example_inputs(self, batch):
        return torch.randn(batch, 6)
"""
CLAIMS = """
from pytest_ngraph import assert_outputs_match

@pytest.mark.ngraph(model="net.py:Net", batch=2)
def test_match(ngraph_cell):
    assert_outputs_match(ngraph_cell)

@pytest.mark.ngraph(model="net.py:Net", batch=2)
def test_speed(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=0.0001)
"""
QUICK = ("--ngraph-protocol=quick", "--ngraph-baseline=onnxruntime[graph=basic]")


@pytest.fixture
def net(suite: Suite) -> Suite:
    skip_without("torch", "onnxscript", "onnxruntime")
    (suite.path / "conftest.py").write_text(LIARS)
    suite.write(CLAIMS)
    return suite


def give(suite: Suite, forward: str) -> None:
    (suite.path / "net.py").write_text(MODEL.format(forward=forward))


def rows_of(path: Path, compiler: str) -> list[dict[str, str]]:
    with path.open(newline="") as file:
        return [row for row in csv.DictReader(file) if row["compiler"] == compiler]


def test_a_compiler_that_is_right_only_where_it_is_timed_passes_no_claim(net: Suite) -> None:
    give(net, "self.layer(values)")
    liar = "liar[how=timed_only]"
    options = (*QUICK, f"--ngraph-compiler={liar},onnxruntime", "--ngraph-export=out.csv")
    first = net.bare(*options)
    first.assert_outcomes(passed=2, failed=2)
    first.stdout.fnmatch_lines(["*mismatch: local:liar*: on inputs that it had not seen before: output 0 is off by*"])
    [row] = rows_of(net.path / "out.csv", liar)
    assert (row["outcome"], row["metric"], row["value"]) == ("mismatch", "", "")
    assert float(row["max_error"]) > 0.1
    honest = rows_of(net.path / "out.csv", "onnxruntime")
    assert {each["outputs"] for each in honest} == {"told apart"}
    assert all(float(each["cosine"]) > 0.999999 for each in honest)
    assert all(float(each["centred_cosine"]) > 0.999999 for each in honest)
    # What it was visited for is in the store, and counts as little in later runs, also where nothing may be measured.
    net.bare(*options).assert_outcomes(passed=2, failed=2)
    offline = net.bare(*options, "--ngraph-offline")
    offline.assert_outcomes(passed=2, failed=2)
    offline.stdout.fnmatch_lines(["*mismatch: local:liar*: on inputs that it had not seen before: output 0 is off by*"])


@pytest.mark.parametrize(
    ("forward", "said"),
    [
        (
            # Of so many outputs no two calls are alike.
            "nn.functional.dropout(self.layer(values).repeat(1, 16))",
            "net.py:Net batch2: the model itself gives other outputs when it is called again on the same inputs",
        ),
        ("torch.log(self.layer(values))", "net.py:Net batch2: the model itself gives NaN, in "),
    ],
)
def test_what_the_model_does_wrong_is_no_fault_of_a_compiler(net: Suite, forward: str, said: str) -> None:
    give(net, forward)
    result = net.bare(*QUICK, "--ngraph-compiler=onnxruntime")
    result.assert_outcomes(failed=2)
    assert said in result.stdout.str()
    assert "mismatch" not in result.stdout.str()


def test_a_mask_of_minus_infinity_is_the_models_own(net: Suite) -> None:
    give(net, "self.layer(values).masked_fill(torch.tensor([True, False, False, False]), float('-inf'))")
    net.bare(*QUICK, "--ngraph-compiler=onnxruntime").assert_outcomes(passed=2)


def test_outputs_that_do_not_depend_on_the_input_are_said_to_be_indistinguishable(net: Suite) -> None:
    give(net, "0 * self.layer(values) + 3")
    options = (*QUICK, "--ngraph-compiler=onnxruntime", "--ngraph-export=out.csv", "--ngraph-inconclusive=fail")
    result = net.bare(*options)
    result.assert_outcomes(passed=1, failed=1)
    out = " ".join(result.stdout.str().split())
    assert "outputs of other inputs would have passed, too, so that these did says little" in out
    assert (
        "outputs of onnxruntime on net.py:Net batch2: largest error 0, cosine 1.00000, outputs: not told apart" in out
    )
    assert {row["outputs"] for row in rows_of(net.path / "out.csv", "onnxruntime")} == {"not told apart"}


def test_what_was_compared_is_on_the_cell(net: Suite) -> None:
    give(net, "self.layer(values)")
    net.write("""
@pytest.mark.ngraph(model="net.py:Net", batch=4)
def test_figures(ngraph_cell):
    assert 0.999999 < ngraph_cell.cosine < 1.000001
    assert 0.999999 < ngraph_cell.centred_cosine < 1.000001
    share = ngraph_cell.top1_agreement
    assert share.count == share.total >= 4
    assert share.low < share.value == share.high == 1
    assert ngraph_cell.outputs_told_apart is True
""")
    net.bare(*QUICK, "--ngraph-compiler=onnxruntime").assert_outcomes(passed=1)

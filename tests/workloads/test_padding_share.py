"""How much of what is timed is padding: read from the masks that a model is fed, and shown beside its numbers."""

from __future__ import annotations

import csv
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.workloads.modules.masks import padding
from tests.conftest import Suite, skip_without

NET = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding, self.layer = nn.Embedding(50, 16), nn.Linear(16, 16)

    def forward(self, tokens, attention_mask):
        return self.layer(self.embedding(tokens)) * attention_mask.unsqueeze(-1)

    def example_inputs(self, batch, sequence):
        used = (torch.arange(sequence) < 3 * sequence // 4).long()
        return {"tokens": torch.randint(0, 50, (batch, sequence)), "attention_mask": used.repeat(batch, 1)}
"""
TEST = """
from pytest_ngraph import assert_sequence_scaling

@pytest.mark.ngraph(model="net.py:Net", sequences=[8, 32], batch=2)
def test_net(ngraph_sequences):
    assert ngraph_sequences[8].placement["padding"] == "25.0 % of attention_mask"
    assert ngraph_sequences[32].max_error < 1e-4
    assert_sequence_scaling(ngraph_sequences, at_most=4)
"""


@pytest.mark.parametrize(
    ("name", "mask", "said"),
    [
        ("attention_mask", [[1, 1, 1, 0], [1, 0, 0, 0]], "50.0 % of attention_mask"),
        ("attention_mask", [[True, True, True, False]], "25.0 % of attention_mask"),
        ("attention_mask", [[1.0, 1.0]], "0.0 % of attention_mask"),
        ("key_padding_mask", [[False, False, False, True]], "25.0 % of key_padding_mask"),
        # Nothing is said of what is no mask of tokens.
        ("tokens", [[1, 0]], None),
        ("mask", [[0.0, -1e9]], None),
        ("mask", [1, 0], None),
        ("mask", [[[1, 0]]], None),
        ("mask", [[0, 1, 2]], None),
        ("mask", [[]], None),
    ],
)
def test_a_mask_of_tokens_says_how_many_are_padding(name: str, mask: Any, said: str | None) -> None:
    assert padding({"x": np.ones((2, 2)), name: np.array(mask)}) == ({} if said is None else {"padding": said})


def test_each_mask_has_a_share_of_its_own() -> None:
    inputs = {"mask": np.array([[1, 0]]), "decoder_mask": np.array([[1, 1]])}
    assert padding(inputs) == {"padding": "50.0 % of mask, 0.0 % of decoder_mask"}
    assert padding({}) == {}
    assert padding() == {}


def test_of_several_calls_all_tokens_count() -> None:
    full, half = np.ones((2, 4)), np.array([[1, 0]])

    assert padding({"mask": full}, {"mask": half}) == {"padding": "10.0 % of mask"}
    # What is a mask in one of them only is none.
    assert padding({"mask": half}, {"mask": 3 * half}) == {}


@pytest.mark.real
def test_it_stands_beside_the_numbers_of_a_real_sweep(suite: Suite) -> None:
    skip_without("torch", "onnx", "onnxscript", "onnxruntime")
    (suite.path / "net.py").write_text(NET)
    suite.write(TEST)
    options = ("--ngraph-protocol=quick", "--ngraph-export=table.csv", "--ngraph-report=report.html")
    result = suite.bare("--ngraph-compiler=onnxruntime", *options)
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines_random(
        [
            "  batch  seq *compiler*",
            "net.py:Net",
            "  padding of net.py:Net batch2 seq8: 25.0 % of attention_mask",
            "  padding of net.py:Net batch2 seq32: 25.0 % of attention_mask",
        ]
    )
    with (suite.path / "table.csv").open(encoding="utf-8") as table:
        rows = list(csv.DictReader(table))
    assert {row["sequence"] for row in rows} == {"8", "32"}
    assert all("padding=25.0 % of attention_mask" in row["placement"] for row in rows)
    scaled = [(row["compiler"], row["sequence"]) for row in rows if row["metric"] == "sequence_scaling"]
    assert scaled == [("identity", "32"), ("onnxruntime", "32")]

"""The null compiler's time of a token: of the length that a suite gives, or that a model has by itself."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.compilers import null
from pytest_ngraph.errors import Unsupported
from pytest_ngraph.spec.cells import CompilerSpec, Device, Workload
from pytest_ngraph.workloads.kinds import parse_model


def microseconds(reference: str, text: str = "[fixed_us=0,sample_us=0,token_us=10]", **axes: Any) -> float:
    spec = Workload(parse_model(reference, (Path(__file__).parents[2],)), **axes)
    workload: Any = SimpleNamespace(spec=spec)
    made: Any = null.COMPILER.compile(workload, Device(), null.COMPILER.resolve(CompilerSpec.parse(f"null{text}")))
    return float(getattr(made, "_first", made)._wait_ns) / 1000


@pytest.mark.parametrize(
    ("reference", "axes", "tokens"),
    [
        ("block:mha", {"sequence": 40}, 40),
        ("block:mha", {}, 10),
        ("transformers:gpt2", {}, 128),
        ("transformers:gpt2[positions=64]", {}, 64),
        ("transformers:gpt2", {"decode": 4, "sequence": 16}, 16),
        ("tests/support/decoders.py:Decoder", {"sequence": 6}, 6),
    ],
)
def test_a_length_that_nobody_gives_is_that_of_the_model(reference: str, axes: dict[str, Any], tokens: int) -> None:
    assert microseconds(reference, **axes) == 10 * tokens


@pytest.mark.parametrize("reference", ["tests/support/decoders.py:Decoder", "timm:resnet18"])
def test_a_length_that_nobody_knows_is_not_taken_for_one_token(reference: str) -> None:
    with pytest.raises(Unsupported, match=rf"null\[token_us=\]: {reference} says no length, .*; give sequence= where"):
        microseconds(reference)
    assert microseconds(reference, "[fixed_us=7,sample_us=0]") == 7

"""What goes with decode= and what does not, said when tests are collected."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.compilers import catalogue
from pytest_ngraph.errors import SpecError
from pytest_ngraph.spec.cells import CompilerSpec, Device
from tests.plan.test_grid import grid, mark

ROOT = Path(__file__).parents[2]
DECODER = "tests/support/decoders.py:Decoder"


def points(**keywords: Any) -> list[str]:
    return [name for name, _ in grid(search=(ROOT,)).points(mark(**{"model": DECODER, **keywords}))]


def test_decode_makes_items_and_is_named_in_their_ids() -> None:
    assert points(decode=[1, 16]) == [f"local-null-{DECODER}-decode{steps}" for steps in (1, 16)]
    assert points() == [f"local-null-{DECODER}"]


def test_an_option_narrows_it_and_leaves_tests_without_it_alone() -> None:
    def left(**keywords: Any) -> list[str]:
        return [name for name, _ in grid(search=(ROOT,), decodes=(4, 16)).points(mark(model=DECODER, **keywords))]

    assert left(decode=[1, 16]) == [f"local-null-{DECODER}-decode16"]
    assert left(decode=1) == ["narrowed-away"]
    assert left() == [f"local-null-{DECODER}"]


def test_a_state_is_asked_for_where_there_is_a_cache() -> None:
    stateful = CompilerSpec.parse("openvino[stateful=on]")
    [(_, plan)] = grid(search=(ROOT,)).points(mark(model=DECODER))
    [cell] = plan.cells
    adapter, without = catalogue.load("openvino", catalogue.BUILT_IN["openvino"]), replace(cell, compiler=stateful)
    decoding = replace(without, workload=replace(cell.workload, decode=4))
    assert adapter.why_not(without, Device()) == (
        "option stateful: it is of the cache of decode=, and this cell generates no tokens"
    )
    assert adapter.why_not(decoding, Device()) is None


@pytest.mark.parametrize("value", [0, -1, 1.5, "many"])
def test_only_whole_numbers_from_one_on_are_steps(value: Any) -> None:
    with pytest.raises(SpecError, match=r"decode=.*\(expected whole numbers >= 1"):
        points(decode=value)


@pytest.mark.parametrize("model", ["block:mha", "timm:resnet18", "torchvision:resnet18"])
def test_a_model_that_generates_no_tokens_is_refused_before_it_is_built(model: str) -> None:
    with pytest.raises(SpecError, match=rf"decode=4: model '{model}' generates no tokens \(it takes"):
        points(model=model, decode=4)


@pytest.mark.parametrize(
    ("axis", "value"),
    [
        ("scenario", "throughput"),
        ("precision", "int8"),
        ("precision", "f16"),
        ("shapes", "dynamic"),
        ("optimize", "weight_prune=0.5"),
        ("optimize", "int8"),
    ],
)
def test_what_nobody_applies_to_a_prompt_and_steps_is_refused_beside_it(axis: str, value: str) -> None:
    said = r"decode=4 beside (scenario|precision|optimize|shapes)='.*allowed: (latency|f32|dense|static)"
    with pytest.raises(SpecError, match=said):
        points(decode=4, **{axis: value})


def test_a_compiler_that_cannot_says_so() -> None:
    [(_, plan)] = grid(search=(ROOT,)).points(mark(model=DECODER, decode=4))
    [cell] = plan.cells
    able = []
    for name, place in catalogue.BUILT_IN.items():
        adapter = catalogue.load(name, place)
        device = Device("local", (0,), 1, adapter.accelerators[0])
        reason = adapter.why_not(replace(cell, compiler=CompilerSpec(name)), device)
        if reason is None or "decode" not in reason:
            able.append(name)
        else:
            assert reason == "decode=4 (it compiles no prompt and steps with a cache of keys and values)"
    assert {"identity", "inductor", "null", "onnxruntime", "openvino"} <= set(able)
    assert not {"torchscript", "tvm"} & set(able)

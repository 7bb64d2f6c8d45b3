"""Mixes of shapes: what a suite may write, the normal text that it becomes, and the order of calls."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import SpecError
from pytest_ngraph.plan.marker import is_several, read_marker
from pytest_ngraph.spec.cells import Cell, CompilerSpec, ModelRef, Workload
from pytest_ngraph.spec.shapes.mixes import normal, parse, with_largest_batch

TEXT = "mix[batch=1x7+8x3]"


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("static", "static"),
        ("dynamic", "dynamic"),
        ({"batch": {1: 0.7, 8: 0.3}}, TEXT),
        ({"batch": {8: 3, 1: 7}}, TEXT),
        ({"batch": {8: 30.0, 1: 70.0}}, TEXT),
        (TEXT, TEXT),
        ("mix[batch=8x6+1x14]", TEXT),
        ({"batch": {4: 1}}, "mix[batch=4x1]"),
        ({"batch": {1: 1, 2: math.pi}}, "mix[batch=1x6+2x19]"),
    ],
)
def test_equal_mixes_have_one_text(given: Any, text: str) -> None:
    assert normal(given) == text
    assert normal(text) == text


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("dynamical", "expected \"static\", \"dynamic\", or a mix such as"),
        ({}, "expected \"static\""),
        ({"batch": {}}, "neither weights by batch nor a file"),
        ({"batch": {1: 0}}, "the weight of 1 is 0 (allowed: numbers above 0)"),
        ({"batch": {1: -0.5, 8: 1.5}}, "the weight of 1 is -0.5"),
        ({"batch": {1: float("nan")}}, "the weight of 1 is nan"),
        ({"batch": {1: float("inf")}}, "the weight of 1 is inf"),
        ({"batch": {1: True}}, "the weight of 1 is True"),
        ({"batch": {0: 1}}, "a batch of 0 is not allowed"),
        ({"batch": {"1": 1}}, "a batch of '1' is not allowed"),
        ({"batch": {True: 1}}, "a batch of True is not allowed"),
        ({"batch": {1: 0.999, 8: 0.001}}, "batch 8 is 0.001 of the calls, less than one of 100"),
        ({"batch": dict.fromkeys(range(1, 18), 1)}, "17 different batches (allowed: up to 16)"),
        ({"sequence": {16: 1}}, "'sequence' is no axis that calls of a mix differ in (allowed: batch)"),
        ("mix[batch=1x0]", "no call has a batch of 1; leave it out"),
        ("mix[batch=1x2+1x3]", "batch 1 is given twice"),
        ("mix[batch=0x2]", "a batch of 0 is not allowed"),
    ],
)  # fmt: skip
def test_what_is_no_mix_is_refused_with_what_is_allowed(given: Any, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        normal(given)
    assert said in str(raised.value)


def test_a_file_counts_by_what_is_in_it(tmp_path: Path) -> None:
    file = tmp_path / "batches.csv"
    file.write_text("batch,when\n1,9:00\n8,9:01\n\n1,9:02\n1,9:03\n")
    assert normal({"batch": "batches.csv"}, [tmp_path / "nowhere", tmp_path]) == "mix[batch=1x3+8x1]"
    file.write_text("1\n8\n")
    assert normal({"batch": str(file)}) == "mix[batch=1x1+8x1]"

    file.write_text("8\n1\n", encoding="utf-8-sig")
    assert normal({"batch": str(file)}) == "mix[batch=1x1+8x1]"

    for content, said in {
        "8.0\n1\n": "'8.0' is no batch",
        "batch,weight\n1,0.7\n8,0.3\n": "has a column 'weight'",
        "1,0.7\n8,0.3\n": "has several columns and no head",
        "8;3\n1;7\n": "'8;3' is no batch",
        "": "has no batches",
        "batch\n": "has no batches",
        "1\n0\n": "'0' is no batch",
        "1\n2.5\n": "'2.5' is no batch",
        "1\n-3\n": "'-3' is no batch",
        "1\n\u0663\n": "is no batch",
        "1\n" + "9" * 5000 + "\n": "is no batch",
        "x" * ((1 << 20) + 1): "bytes (allowed: up to 1048576); count its batches first",
    }.items():
        file.write_text(content, encoding="utf-8")
        with pytest.raises(SpecError, match="batches") as raised:
            normal({"batch": "batches.csv"}, [tmp_path])
        assert said in str(raised.value)
    file.write_bytes(b"\xff\xfe1\n")
    with pytest.raises(SpecError, match="cannot be read"):
        normal({"batch": "batches.csv"}, [tmp_path])
    with pytest.raises(SpecError, match=f"no file 'absent.csv' in {tmp_path}"):
        normal({"batch": "absent.csv"}, [tmp_path])


def test_the_order_of_calls_is_drawn_once_and_has_each_batch_as_often_as_it_weighs() -> None:
    mix = parse("mix[batch=1x14+8x3+32x3]")

    order = mix.order(0)
    assert order == mix.order(0)
    assert order != mix.order(1)
    assert order != sorted(order)
    assert Counter(order) == {1: 14, 8: 3, 32: 3}
    assert mix.turn == 20
    assert mix.samples_per_call == (14 + 24 + 96) / 20


def test_a_marker_takes_a_mapping_and_several_values(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("2\n4\n")
    given = ["static", {"batch": {1: 0.7, 8: 0.3}}, {"batch": "b.csv"}, {"batch": {8: 3, 1: 7}}]

    read = read_marker([((), {"shapes": given})], [tmp_path])
    assert read.axes["shapes"] == ("static", TEXT, "mix[batch=2x1+4x1]")
    assert read_marker([((), {"shapes": {"batch": {1: 1}}})]).axes["shapes"] == ("mix[batch=1x1]",)
    with pytest.raises(SpecError, match=r"shapes=.*the weight of 1 is -1"):
        read_marker([((), {"shapes": {"batch": {1: -1}}})])
    with pytest.raises(SpecError, match="a mapping is not allowed"):
        read_marker([((), {"precision": {"f32": 1}})])


def test_a_mix_is_one_value_and_a_list_of_mixes_is_several() -> None:
    mix = {"batch": {1: 0.7, 8: 0.3}}
    assert not is_several(mix, "shapes")
    assert is_several([mix], "shapes")
    assert is_several(mix, "batch")
    assert not is_several(None, "compilers")


def test_a_workload_of_a_mix_is_known_by_its_batches_and_has_their_mean() -> None:
    model = ModelRef("net.py", "file", "/net.py")
    workload = Workload.of(model, with_largest_batch({"shapes": TEXT}))

    assert workload.batch == 8
    assert workload.samples_per_call == pytest.approx(3.1)
    assert workload.label == f"net.py {TEXT}"
    cell = Cell("local", CompilerSpec("null"), workload)
    assert Cell.from_json(cell.to_json()) == cell
    assert Workload(model, 8).samples_per_call == 8
    with pytest.raises(SpecError, match="the mix says which batches there are; leave batch out"):
        with_largest_batch({"shapes": TEXT, "batch": 2})
    assert with_largest_batch({"batch": 2}) == {"batch": 2}

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
from pytest_ngraph.spec.shapes.mixes import Shape, is_bucketed, normal, parse, with_largest

TEXT = "mix[batch=1x7+8x3]"


class Named(float):
    """A number that says its type, as those of NumPy do."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)!r})"


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
        ({"batch": {1: Named(0.7), 8: Named(0.3)}}, TEXT),
        ({"batch": {1: 1, 2: math.pi}}, "mix[batch=1x6+2x19]"),
        ({"sequence": {32: 0.5, 128: 0.5}}, "mix[sequence=32x1+128x1]"),
        ({"sequence": {64: 1}, "batch": {8: 3, 1: 7}}, "mix[batch=1x7+8x3,sequence=64x1]"),
        ({"sequence": {9: 1, 40: 1}, "buckets": [16, 64]}, "mix[sequence=9x1+40x1,buckets=16+64]"),
        ("mix[batch:sequence=8:32x2+1:128x6]", "mix[batch:sequence=1:128x3+8:32x1]"),
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
        ({"depth": {16: 1}}, "'depth' is no axis that calls of a mix differ in (allowed: batch, sequence, and"),
        ({"sequence": {0: 1}}, "a length of 0 is not allowed"),
        ({"sequence": dict.fromkeys(range(1, 18), 1)}, "17 different lengths (allowed: up to 16)"),
        ({"sequence": {2000000: 1}}, "a length of 2000000 is not allowed (allowed: whole numbers from 1 to 1000000)"),
        ({"buckets": [16]}, 'buckets: lengths are padded to them, so they need a "sequence"'),
        ({"batch": {1: 1}, "buckets": [16]}, 'they need a "sequence"'),
        ({"sequence": {8: 1}, "buckets": 16}, "buckets: 16 (expected lengths, such as [32, 64, 128])"),
        ({"sequence": {8: 1}, "buckets": []}, "buckets: [] (expected lengths"),
        ({"sequence": {8: 1}, "buckets": [16, 16]}, "buckets 16, 16 (expected lengths that rise, none twice)"),
        ({"sequence": {8: 1}, "buckets": [32, 16]}, "buckets 32, 16 (expected lengths that rise, none twice)"),
        ({"sequence": {8: 1, 99: 1}, "buckets": [32]}, "1 of 2 lengths, up to 99, fit in no bucket (the"),
        ({"sequence": {8: 1}, "buckets": list(range(8, 25))}, "17 buckets (allowed: up to 16): each is a build"),
        ({"sequence": {8: 1}, "batch": {1: 1, 2: 1}, "buckets": [8]}, "buckets of 2 batches; each bucket is one build"),
        ({"batch": {1: 0.95, 8: 0.05}, "sequence": {8: 0.9, 16: 0.1}}, "batch 8, sequence 16 is 0.005 of the calls"),
        ("mix[batch=1x2,batch=2x1]", "expected \"static\""),
        ("mix[batch:sequence=1:8x1,batch=1x1]", "expected \"static\""),
        ("mix[batch:sequence=1:8x1+1:8x2]", "batch 1, sequence 8 is given twice"),
        ("mix[sequence=8]", "expected \"static\""),
        ("mix[]", "expected \"static\""),
        (3, "3: expected \"static\", \"dynamic\", or a mix such as"),
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
    assert [shape.batch for shape in order] != sorted(shape.batch or 0 for shape in order)
    assert Counter(order) == {Shape(1, None): 14, Shape(8, None): 3, Shape(32, None): 3}
    assert mix.turn == 20
    assert mix.samples_per_call(32) == (14 + 24 + 96) / 20


def test_batches_and_lengths_that_do_not_depend_on_one_another_are_crossed() -> None:
    mix = parse("mix[batch=1x7+8x3,sequence=32x1+128x1]")

    assert dict(mix.calls) == {Shape(1, 32): 7, Shape(1, 128): 7, Shape(8, 32): 3, Shape(8, 128): 3}
    assert (mix.batches, mix.lengths) == ((1, 8), (32, 128))
    assert str(Shape(8, 32)) == "batch 8, sequence 32"
    joint = parse("mix[batch:sequence=1:128x3+8:32x1]")
    assert dict(joint.calls) == {Shape(1, 128): 3, Shape(8, 32): 1}
    assert joint.samples_per_call(8) == 11 / 4
    assert parse("mix[sequence=32x1+128x1]").samples_per_call(4) == 4


def test_buckets_change_neither_the_calls_nor_their_order_and_say_what_they_cost() -> None:
    plain, padded = parse("mix[sequence=9x2+16x1+40x1]"), parse("mix[sequence=9x2+16x1+40x1,buckets=16+32+64]")

    assert padded.order(3) == plain.order(3)
    assert padded.calls == plain.calls
    assert (padded.asked, plain.computed_per_asked) == (plain.asked, 1)
    # Nothing falls into 32, so nothing is built for it.
    assert padded.used_buckets == (16, 64)
    assert padded.computed_per_asked == (3 * 16 + 64) / (2 * 9 + 16 + 40)
    with pytest.raises(SpecError, match="a length of 65 fits in none of the buckets 16, 32, 64"):
        padded.bucket(65)
    assert is_bucketed(str(padded))
    assert not is_bucketed(str(plain))
    assert not is_bucketed("static")


def test_a_marker_takes_a_mapping_and_several_values(tmp_path: Path) -> None:
    (tmp_path / "b.csv").write_text("2\n4\n")
    given = ["static", {"batch": {1: 0.7, 8: 0.3}}, {"batch": "b.csv"}, {"batch": {8: 3, 1: 7}}]

    read = read_marker([((), {"shapes": given})], [tmp_path])
    assert read.axes["shapes"] == ("static", TEXT, "mix[batch=2x1+4x1]")
    assert read_marker([((), {"shapes": {"batch": {1: 1}}})]).axes["shapes"] == ("mix[batch=1x1]",)
    with pytest.raises(SpecError, match=r"shapes=.*the weight of 1 is -1"):
        read_marker([((), {"shapes": {"batch": {1: -1}}})])
    with pytest.raises(SpecError, match=r'shapes=3: 3: expected "static", "dynamic", or a mix such as'):
        read_marker([((), {"shapes": 3})])
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
    workload = Workload.of(model, with_largest({"shapes": TEXT}))

    assert workload.batch == 8
    assert workload.samples_per_call == pytest.approx(3.1)
    assert workload.label == f"net.py {TEXT}"
    cell = Cell("local", CompilerSpec("null"), workload)
    assert Cell.from_json(cell.to_json()) == cell
    assert Workload(model, 8).samples_per_call == 8
    with pytest.raises(SpecError, match="the mix says which batches there are; leave batch out"):
        with_largest({"shapes": TEXT, "batch": 2})
    assert with_largest({"batch": 2}) == {"batch": 2}


def test_a_workload_of_lengths_is_known_by_them_and_keeps_its_batch() -> None:
    model, text = ModelRef("net.py", "file", "/net.py"), "mix[sequence=32x1+128x1]"
    workload = Workload.of(model, with_largest({"shapes": text, "batch": 4}))

    assert (workload.batch, workload.sequence, workload.samples_per_call) == (4, 128, 4)
    assert workload.label == f"net.py batch4 {text}"
    both = Workload.of(model, with_largest({"shapes": "mix[batch:sequence=1:128x3+8:32x1]"}))
    assert (both.batch, both.sequence) == (8, 128)
    assert both.label == "net.py mix[batch:sequence=1:128x3+8:32x1]"
    with pytest.raises(SpecError, match="the mix says which lengths there are; leave sequence out"):
        with_largest({"shapes": text, "sequence": 64})

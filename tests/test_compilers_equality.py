"""How far outputs may be from the reference, and what is said where they are farther."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.compilers.equality import LOWERING, MAX_ERROR, compare
from pytest_ngraph.errors import SpecError

Arrays = list[np.ndarray[Any, Any]]


def arrays(*values: object, dtype: str = "float32") -> Arrays:
    return [np.array(value, dtype=dtype) for value in values]


REFERENCE = arrays([1.0, -2.0, 0.5])


@pytest.mark.parametrize("precision", MAX_ERROR)
@pytest.mark.parametrize(("share", "agrees"), [(0.9, True), (1.1, False)])
def test_the_bound_of_a_precision_is_relative_to_the_largest_reference(
    precision: str, share: float, agrees: bool
) -> None:
    bound = MAX_ERROR[precision]
    agreement = compare(arrays([1.0, -2.0 + share * bound * 2.0, 0.5], dtype="float64"), REFERENCE, precision)
    assert agreement.max_error == pytest.approx(share * bound)
    assert (agreement.reason == "") is agrees


def test_the_reason_has_the_number_and_the_bound() -> None:
    agreement = compare(arrays([1.0, -2.0, 0.501]), REFERENCE, "f32")
    assert agreement.reason == "output 0 is off by 0.0005, the bound of f32 is 0.0001"


def test_f32_that_is_far_off_is_suspected_of_hidden_lowering() -> None:
    agreement = compare(arrays([1.0, -2.0, 0.52]), REFERENCE, "f32")
    assert agreement.max_error > LOWERING
    assert "hidden lowering to tf32, f16 or bf16" in agreement.reason


def test_bfloat16_of_the_right_numbers_is_within_its_own_bounds_and_not_those_of_f32() -> None:
    reference = np.random.default_rng(0).normal(size=1000).astype(np.float32)
    lowered = (reference.view(np.uint32) & 0xFFFF0000).view(np.float32)
    assert compare([lowered], [reference], "bf16").reason == ""
    assert "hidden lowering" in compare([lowered], [reference], "f32").reason


def test_bfloat16_needs_the_direction_too() -> None:
    reference = np.zeros(10_000, np.float32)
    reference[0] = 1.0
    agreement = compare([reference + np.float32(0.01)], [reference], "bf16")
    assert agreement.max_error < MAX_ERROR["bf16"]
    assert agreement.reason == "output 0 has cosine 0.71063 to the reference, the bound of bf16 is 0.999"


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_come_before_anything_else(wrong: float) -> None:
    agreement = compare(arrays([wrong, 1.0]), REFERENCE, "f32")
    assert agreement.reason == "output 0 has 1 NaN or infinite of 2 numbers"
    assert (agreement.max_error, agreement.cosine) == (math.inf, 0.0)


def test_nan_in_the_reference_agrees_with_nothing() -> None:
    broken = arrays([math.nan])
    assert compare(broken, broken, "f32").reason == "output 0 has 1 NaN or infinite of 1 numbers"
    assert compare(arrays([1.0]), broken, "f32").reason.startswith("output 0 of the reference has 1 NaN")


@pytest.mark.parametrize(
    ("outputs", "reason"),
    [
        ([], "0 outputs where the reference has 1"),
        (arrays([1.0], [2.0]), "2 outputs where the reference has 1"),
        (arrays([[1.0, -2.0, 0.5]]), "output 0 has shape (1, 3) where the reference has (3,)"),
        (arrays([1, -2, 0], dtype="int64"), "output 0 is int64 where the reference is float32"),
    ],
)
def test_outputs_of_another_form_are_not_compared(outputs: Arrays, reason: str) -> None:
    agreement = compare(outputs, REFERENCE, "f32")
    assert (agreement.reason, agreement.max_error) == (reason, math.inf)


@pytest.mark.parametrize("dtype", ["int32", "uint8", "bool"])
def test_integers_must_be_equal(dtype: str) -> None:
    reference = arrays([1, 0, 1], dtype=dtype)
    assert compare(reference, reference, "f32").reason == ""
    agreement = compare(arrays([1, 1, 1], dtype=dtype), reference, "bf16")
    assert agreement.reason == "output 0 differs in 1 of 3 integers, which must be equal"


def test_decisions_made_from_rounded_numbers_may_go_the_other_way_now_and_then() -> None:
    reference = [np.arange(100)]
    decided = [np.where(np.arange(100) < 10, 0, np.arange(100))]  # nine of them differ
    assert compare(decided, reference, "f32").reason == "output 0 differs in 9 of 100 integers, which must be equal"
    agreement = compare(decided, reference, "f16")
    assert (agreement.reason, agreement.max_error, agreement.cosine) == ("", 0.0, 1.0)
    agreement = compare([np.zeros(100, int)], reference, "int8")
    assert agreement.reason == "output 0 differs in 99 of 100 integers, of which 20 may in int8"
    assert agreement.max_error > 0


def test_int8_is_held_to_the_direction_only() -> None:
    random = np.random.default_rng(0)
    reference = random.normal(size=10_000).astype(np.float32)
    near, far = (reference + np.float32(noise) * random.normal(size=10_000) for noise in (0.1, 0.3))
    agreement = compare([near], [reference], "int8")
    assert agreement.max_error > MAX_ERROR["bf16"]
    assert agreement.reason == ""
    assert "the bound of int8 is 0.98" in compare([far], [reference], "int8").reason
    assert compare([reference * np.nan], [reference], "int8").reason.startswith("output 0 has 10000 NaN or infinite")


def test_top1_is_the_share_of_samples_of_the_same_class() -> None:
    reference = arrays([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0], [5.0, 4.0]], [[1.0], [2.0]])
    flipped = arrays([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0], [4.0, 5.0]], [[1.0], [2.0]])
    assert compare(reference, reference, "f32").top1 == 1.0
    assert compare(flipped, reference, "int8").top1 == 0.75
    assert compare(arrays([1.0, 2.0]), arrays([1.0, 2.0]), "int8").top1 is None


def test_a_file_that_is_written_in_f16_is_held_to_f16() -> None:
    reference = arrays([1.0, -2.0], dtype="float16")
    output = arrays([1.0, -2.01], dtype="float16")
    assert compare(output, reference, "f32").reason == ""
    assert compare(output, arrays([1.0, -2.0]), "f32").reason


def test_integers_of_another_width_are_the_same_integers() -> None:
    assert compare(arrays([3, 4], dtype="int32"), arrays([3, 4], dtype="int64"), "f32").reason == ""


def test_an_all_zero_reference_is_compared_absolutely() -> None:
    zeros = arrays([0.0, 0.0])
    assert compare(zeros, zeros, "f32").max_error == 0.0
    assert compare(zeros, zeros, "f32").cosine == 1.0
    agreement = compare(arrays([0.0, 0.002]), zeros, "f32")
    assert agreement.max_error == pytest.approx(0.002)
    assert agreement.reason


def test_each_output_counts_by_its_own_scale() -> None:
    reference = arrays([1000.0], [1e-3])
    agreement = compare(arrays([1000.0], [1.1e-3]), reference, "f32")
    assert agreement.max_error == pytest.approx(0.1)
    assert agreement.reason.startswith("output 1 is off by 0.1")


def test_empty_outputs_agree() -> None:
    empty = [np.empty((0, 3), np.float32)]
    assert compare(empty, empty, "f32").reason == ""


def test_a_precision_without_bounds_is_refused() -> None:
    with pytest.raises(SpecError, match="precision 'int4' has no bounds"):
        compare(REFERENCE, REFERENCE, "int4")

"""How far outputs may be from the reference, and what is said where they are farther."""

from __future__ import annotations

import json
import math
import re
from typing import Any

import numpy as np
import pytest

from pytest_ngraph.compilers.toolkit import equality
from pytest_ngraph.compilers.toolkit.equality import (
    LOWERING,
    MAX_ERROR,
    MIN_CENTRED_COSINE,
    MIN_CENTRED_COSINE_ELSE,
    MIN_COSINE,
    NEAR_COSINE,
    Agreement,
    Comparison,
    compare,
)
from pytest_ngraph.errors import SpecError
from tests.conftest import ROOT

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


@pytest.mark.filterwarnings("error")
def test_complex_numbers_are_compared_by_both_of_their_parts() -> None:
    random = np.random.default_rng(0)
    real, imaginary, other = random.normal(size=(3, 2, 3))
    spectrum = (real + 1j * imaginary).astype(np.complex64)
    for reference in (spectrum, spectrum.T, spectrum[:0], spectrum[0, 0].reshape(())):
        agreement = compare([reference.copy()], [reference], "f32")
        assert (agreement.reason, agreement.max_error) == ("", 0.0)
    garbage = (real + 1j * other).astype(np.complex64)
    for wrong in (garbage, garbage.real, spectrum.conj()):
        assert "output 0 is off by" in compare([wrong], [spectrum], "f32").reason
    assert "output 0 is off by" in compare([spectrum], [spectrum.real], "f32").reason
    rounded = compare([spectrum * np.complex64(1 + 1e-3j)], [spectrum], "f16")
    assert (rounded.reason, rounded.top1_samples) == ("", 0)
    assert rounded.max_error == pytest.approx(1e-3, rel=0.9)


@pytest.mark.filterwarnings("error")
def test_what_follows_the_inputs_is_seen_of_imaginary_parts_too() -> None:
    random = np.random.default_rng(0)
    common, own, foreign = (1j * random.normal(size=(3, 1, 500))).astype(np.complex64)
    mean = np.asarray(100 * common, np.complex128)
    right = compare([mean + own], [mean + own], "int8", [mean])
    wrong = compare([mean + foreign], [mean + own], "int8", [mean])
    assert right.reason == ""
    assert right.centred_cosine == pytest.approx(1.0)
    assert wrong.centred_cosine == pytest.approx(0.0, abs=0.2)
    assert "it does not follow its inputs" in wrong.reason


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


def top1(agreement: Agreement) -> tuple[int, int]:
    return agreement.top1_matches, agreement.top1_samples


def test_top1_is_the_share_of_samples_of_the_same_class() -> None:
    reference = arrays([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0], [5.0, 4.0]], [[1.0], [2.0]])
    flipped = arrays([[1.0, 2.0], [3.0, 1.0], [0.0, 1.0], [4.0, 5.0]], [[1.0], [2.0]])
    assert top1(compare(reference, reference, "f32")) == (4, 4)
    assert top1(compare(flipped, reference, "int8")) == (3, 4)
    assert top1(compare(arrays([1.0, 2.0]), arrays([1.0, 2.0]), "int8")) == (0, 0)


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


# Infinities that the reference has, too


def test_infinities_at_the_same_places_are_the_references_own() -> None:
    masked = arrays([[1.0, -math.inf, 2.0], [math.inf, 0.5, -math.inf]])
    agreement = compare(masked, masked, "f32")
    assert (agreement.reason, agreement.max_error) == ("", 0.0)
    assert agreement.cosine == pytest.approx(1.0)
    off = arrays([[1.0, -math.inf, 2.1], [math.inf, 0.5, -math.inf]])
    assert compare(off, masked, "f32").reason.startswith("output 0 is off by 0.05")


@pytest.mark.parametrize(
    ("output", "reason"),
    [
        ([1.0, -math.inf, 2.0, 3.0], "output 0 is finite in 1 of 4 numbers where the reference is infinite"),
        ([1.0, -math.inf, 2.0, -math.inf], "output 0 has 1 NaN or infinite of 4 numbers"),
        ([math.inf, -math.inf, 2.0, math.inf], "output 0 has 1 NaN or infinite of 4 numbers"),
        ([1.0, math.nan, 2.0, math.inf], "output 0 has 1 NaN or infinite of 4 numbers"),
    ],
)
def test_infinities_at_other_places_are_not(output: list[float], reason: str) -> None:
    assert compare(arrays(output), arrays([1.0, -math.inf, 2.0, math.inf]), "f32").reason == reason


# What the outputs for all inputs have in common


def deep(samples: int = 8, own: float = 0.047) -> tuple[Arrays, Arrays]:
    """Return outputs that have most in common, as those of a deep network have, and their mean."""
    random = np.random.default_rng(0)
    common, apart = random.normal(size=(1, 1000)), random.normal(size=(samples, 1000))
    every = (common + own * (apart - apart.mean(axis=0))).astype(np.float32)
    return [every], [every.mean(axis=0, keepdims=True, dtype=np.float64)]


def test_outputs_of_other_inputs_have_the_direction_and_are_refused() -> None:
    [every], means = deep()
    foreign = [np.roll(every, 1, axis=0)]
    by_direction = compare(foreign, [every], "int8")
    assert by_direction.cosine == pytest.approx(0.9978, abs=5e-4)
    assert by_direction.reason == ""
    agreement = compare(foreign, [every], "int8", means)
    assert agreement.centred_cosine is not None
    assert agreement.centred_cosine < 0.1
    assert "output 0 has centred cosine -0." in agreement.reason
    assert f"the bound of int8 is {MIN_CENTRED_COSINE['int8']:g}" in agreement.reason


def test_what_is_far_off_as_a_whole_must_follow_its_inputs_the_better() -> None:
    """Right int8 of a network whose answer hardly depends on its input is as far off as the rest is large."""
    [every], means = deep(own=0.02)
    noise = np.random.default_rng(1).normal(size=every.shape)
    rounded = compare([every + np.float32(0.02) * noise], [every], "int8", means)
    assert rounded.centred_cosine == pytest.approx(0.69, abs=0.05)
    assert rounded.cosine > NEAR_COSINE["int8"]
    assert rounded.reason == ""
    [every], means = deep(own=0.2)
    wrong = compare([every + np.float32(0.18) * noise], [every], "int8", means)
    assert wrong.centred_cosine == pytest.approx(0.72, abs=0.05)
    assert MIN_COSINE["int8"] < wrong.cosine < NEAR_COSINE["int8"]
    assert "the bound of int8 is 0.9 where the cosine is below 0.99 (it is 0.98" in wrong.reason


def test_the_bounds_of_int8_part_right_from_wrong_on_every_network_that_was_measured() -> None:
    """``python -m benchmarks.int8_outputs`` made the figures."""
    kept = json.loads((ROOT / "benchmarks" / "results" / "int8_outputs.json").read_text(encoding="utf-8"))
    assert len(kept["results"]) == 19
    for each in kept["results"]:
        for made, row in each["rows"].items():
            least = MIN_CENTRED_COSINE if row["cosine"] >= NEAR_COSINE["int8"] else MIN_CENTRED_COSINE_ELSE
            holds = row["cosine"] >= MIN_COSINE["int8"] and row["centred"] >= least["int8"]
            if made in ("onnxruntime", "openvino", "symmetric"):
                assert holds, (each["network"], made, row)
            elif made == "other images":
                assert not holds, (each["network"], made, row)


def test_broken_int8_was_caught_on_every_network_of_these_families_that_a_suite_names() -> None:
    """``python -m benchmarks.int8_faults`` made the figures: the case of the second paper's Table 5."""
    kept = json.loads((ROOT / "benchmarks" / "results" / "int8_faults.json").read_text(encoding="utf-8"))
    measured = {bare(each["network"]) for each in kept["results"]}
    suites = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "example_suites").glob("*/*.py"))
    named = re.findall(r"[\":]((?:efficientnet|mobilenet|vgg)\w*)\"", suites, re.IGNORECASE)
    assert len(named) > 20
    assert {bare(name) for name in named} <= measured
    for each in kept["results"]:
        caught = {fault: bool(row["caught"]) for fault, row in each["rows"].items()}
        assert not caught.pop("as it is"), each["network"]
        for fault in ("darker", "brighter", "zero points", "other inputs"):
            assert caught[fault], (each["network"], fault)
        for fault, row in each["rows"].items():
            assert caught.get(fault) or row.get("accuracy", 1.0) > 0.95, (each["network"], fault)


def bare(name: str) -> str:
    """Return the name of a network as libraries agree on it."""
    return name.rpartition(":")[2].lower().replace("_", "")


def test_right_outputs_keep_their_direction_without_what_is_common() -> None:
    [every], means = deep()
    noise = np.random.default_rng(1).normal(size=every.shape)
    agreement = compare([every + np.float32(0.01) * noise], [every], "int8", means)
    assert agreement.centred_cosine == pytest.approx(0.978, abs=0.01)
    assert agreement.reason == ""


@pytest.mark.parametrize("precision", ["f32", "tf32", "f16", "bf16"])
def test_the_centred_cosine_is_told_in_every_precision(precision: str) -> None:
    [every], means = deep()
    assert compare([every], [every], precision, means).centred_cosine == pytest.approx(1.0)
    assert compare([every], [every], precision).centred_cosine is None


def test_where_all_outputs_are_the_same_nothing_is_left() -> None:
    same = [np.ones((8, 10), np.float32)]
    agreement = compare(same, same, "int8", [np.ones((1, 10))])
    assert (agreement.reason, agreement.centred_cosine) == ("", None)


def test_calls_are_judged_together() -> None:
    [every], means = deep()
    comparison = Comparison("int8", means)
    for number in range(8):
        comparison.add([every[number : number + 1]], [every[number : number + 1]])
    together, at_once = comparison.agreement(), compare([every], [every], "int8", means)
    assert together.centred_cosine == pytest.approx(at_once.centred_cosine)
    assert (together.top1_matches, together.top1_samples) == (at_once.top1_matches, at_once.top1_samples)
    comparison.add([every[:1] * np.float32(np.nan)], [every[:1]])
    assert "NaN" in comparison.agreement().reason


def test_large_outputs_are_compared_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    [every], means = deep()
    whole = compare([every + np.float32(0.001)], [every], "f16", means)
    monkeypatch.setattr(equality, "_PART", 1500)
    parts = compare([every + np.float32(0.001)], [every], "f16", means)
    assert parts.max_error == whole.max_error
    assert parts.cosine == pytest.approx(whole.cosine)
    assert parts.centred_cosine == pytest.approx(whole.centred_cosine)


# Classes


def test_one_class_for_all_samples_agrees_by_itself() -> None:
    scores = arrays([[1.0, 2.0], [3.0, 4.0]])
    assert top1(compare(scores, scores, "f32")) == (0, 0)


def test_samples_that_are_repeated_count_once() -> None:
    reference = arrays([[1.0, 2.0], [2.0, 1.0], [1.0, 2.0], [2.0, 1.0]])
    comparison = Comparison("int8")
    comparison.add(reference, reference, samples=2)
    agreement = comparison.agreement()
    assert (agreement.top1_matches, agreement.top1_samples) == (2, 2)


def test_a_scalar_output_is_compared() -> None:
    scalar = [np.full((), 2.0, np.float32)]
    assert compare(scalar, scalar, "f32", [np.array(1.0)]).reason == ""


def test_a_precision_without_bounds_is_refused() -> None:
    with pytest.raises(SpecError, match="precision 'int4' has no bounds"):
        compare(REFERENCE, REFERENCE, "int4")

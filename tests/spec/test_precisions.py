"""The grammar of precisions: what is read, its normal form, what is refused and what a marker makes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from pytest_ngraph.axes import PRECISIONS
from pytest_ngraph.compilers.catalogue import Catalogue
from pytest_ngraph.compilers.toolkit.equality import Comparison
from pytest_ngraph.errors import SpecError
from pytest_ngraph.plan.marker import read_marker
from pytest_ngraph.spec.cells import Cell, CompilerSpec, Device, Workload
from pytest_ngraph.spec.precisions import MOST_SAMPLES, Precision, normal, parse
from pytest_ngraph.workloads import keys
from pytest_ngraph.workloads.kinds import parse_model

PLAIN = Workload(parse_model("block:conv"), 2, precision="int8")


@pytest.mark.parametrize("word", PRECISIONS)
def test_a_word_is_read_as_it_is(word: str) -> None:
    assert parse(word) == Precision(word)
    assert normal(f" {word} ") == word


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("int8[by=onnxruntime]", "int8"),
        ("int8[by=onnxruntime,calibrate=minmax,per_channel=true]", "int8"),
        ("int8[samples=64, by=nncf]", "int8[by=nncf,samples=64]"),
        ("int8[per_channel=false,calibrate=entropy]", "int8[calibrate=entropy,per_channel=false]"),
        ("int8[by=nncf,calibrate=percentile]", "int8[by=nncf,calibrate=percentile]"),
    ],
)
def test_equal_precisions_have_one_form_and_plain_int8_is_what_it_was(given: str, expected: str) -> None:
    assert normal(given) == expected
    assert normal(normal(given)) == expected
    assert parse(given).base == "int8"


def test_what_is_left_out_is_what_plain_int8_means() -> None:
    plain, other = parse("int8"), parse("int8[by=nncf,calibrate=percentile,per_channel=false,samples=8]")

    assert (plain.by, plain.calibrate, plain.per_channel, plain.samples) == ("onnxruntime", "minmax", True, None)
    assert (other.by, other.calibrate, other.per_channel, other.samples) == ("nncf", "percentile", False, 8)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("int4", "precision 'int4' is not allowed (allowed: f32, tf32, f16, bf16, int8)"),
        ("int8[", "expected int8, or int8[by=onnxruntime|nncf"),
        ("int8[]", "expected int8, or int8[by=onnxruntime|nncf"),
        ("int8[by=nncf", "expected int8, or int8[by="),
        ("int8[by]", "'by' is not allowed (expected int8, or int8[by="),
        ("int8[method=kl]", "'method=kl' is not allowed (expected int8, or"),
        ("int8[by=neural]", "option by='neural' is not allowed (allowed: onnxruntime, nncf)"),
        ("int8[calibrate=kl]", "option calibrate='kl' is not allowed (allowed: minmax, entropy, percentile)"),
        ("int8[per_channel=yes]", "option per_channel='yes' is not allowed (allowed: true, false)"),
        ("int8[samples=0]", f"option samples='0' is not allowed (allowed: a whole number from 1 to {MOST_SAMPLES})"),
        ("int8[samples=1e3]", "option samples='1e3' is not allowed"),
        ("int8[samples=99999]", "option samples='99999' is not allowed"),
        ("int8[samples=" + "9" * 5000 + "]", "is not allowed"),
        ("int8[by=nncf,by=nncf]", "option 'by' is given twice"),
        (
            "int8[by=nncf,calibrate=entropy]",
            "nncf does not calibrate by entropy (allowed with nncf: minmax, percentile",
        ),
        ("f16[by=nncf]", "f16 has no options"),
    ],
)
def test_what_is_refused_says_what_is_allowed(given: str, said: str) -> None:
    with pytest.raises(SpecError) as raised:
        parse(given)
    assert said in str(raised.value)


def test_a_marker_takes_normal_forms_and_two_ways_to_write_one_are_one_cell() -> None:
    given = ["f32", "int8", "int8[by=onnxruntime]", "int8[samples=8,by=nncf]"]

    assert read_marker([((), {"precision": given})]).axes["precision"] == ("f32", "int8", "int8[by=nncf,samples=8]")
    with pytest.raises(SpecError, match=r"precision='f8': .*allowed: f32"):
        read_marker([((), {"precision": "f8"})])
    with pytest.raises(SpecError, match=r"precision=8: 8 is not allowed \(allowed: f32"):
        read_marker([((), {"precision": 8})])


def test_what_asks_whether_something_is_int8_takes_it_with_options() -> None:
    other = replace(PLAIN, precision="int8[by=nncf]")

    assert (PLAIN.base_precision, other.base_precision) == ("int8", "int8")
    assert Catalogue().why_not(Cell("local", CompilerSpec("identity"), other), Device()) == (
        "precision int8 (it runs f32, tf32, f16, bf16)"
    )
    assert Catalogue().why_not(Cell("local", CompilerSpec("openvino"), other), Device()) is None
    assert Comparison(other.base_precision) is not None
    assert not keys.shares_weights(other)


def test_two_methods_are_two_cells_with_files_of_their_own_and_one_reference() -> None:
    others = [replace(PLAIN, precision=each) for each in ("int8[by=nncf]", "int8[samples=8]", "int8[samples=9]")]
    sample = keys.sample_key(PLAIN, 0, {})

    assert len({each.label for each in (PLAIN, *others)}) == 4
    assert {keys.sample_key(each, 0, {}) for each in others} == {sample}
    assert len({keys.onnx_key(each, sample) for each in (PLAIN, *others)}) == 4
    # However it is written where it did not come from a marker.
    assert keys.onnx_key(replace(PLAIN, precision="int8[by=onnxruntime]"), sample) == keys.onnx_key(PLAIN, sample)

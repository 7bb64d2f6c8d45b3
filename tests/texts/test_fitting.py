"""The terminal's table: whatever is in a compiler's name, no two variants look alike."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.texts.fitting import cut_apart, fit, folded, natural_width

COLUMNS = ("batch", "compiler", "samples/s", "verdict")
LONG = "onnxruntime[graph=basic,threads=2,execution_mode=parallel]"


def test_a_name_that_fits_stays_whole() -> None:
    assert fit(COLUMNS, ["timm:resnet18", ("1", "openvino", "548", "pass")], 80) == [
        "  batch  compiler      samples/s  verdict",
        "timm:resnet18",
        "      1  openvino            548  pass",
    ]


def test_long_names_are_cut_in_the_middle() -> None:
    title = "timm:" + "resnet18_of_last_year_" * 3 + "size64"
    rows = [title, ("1", LONG, "548", "pass"), ("", "onnxruntime[graph=disabled]", "470", "fail")]

    lines = fit(COLUMNS, rows, 54)

    assert lines == [
        "  batch  compiler                   samples/s  verdict",
        "timm:resnet18_of_last_year_…snet18_of_last_year_size64",
        "      1  onnxruntime[…de=parallel]        548  pass",
        "         onnxruntime[…ph=disabled]        470  fail",
    ]
    assert all(len(line) <= 54 for line in lines)
    assert natural_width(COLUMNS, rows, 24) == 53


@pytest.mark.parametrize(
    ("names", "width", "shown"),
    [
        # The middle of the cut leaves two alike: it moves, for all of them.
        (["tvm[trials=32,patience=8,log=x]", "tvm[trials=64,patience=8,log=x]"], 16,
         ["tvm[trials=3…=x]", "tvm[trials=6…=x]"]),
        # They differ in the middle alone.
        (["a" * 20 + "1" + "b" * 20, "a" * 20 + "2" + "b" * 20], 12, ["aaaa…1bbbbb…", "aaaa…2bbbbb…"]),
        # Three that differ in different places.
        (["a" * 40 + "11" + "b" * 40, "a" * 40 + "12" + "b" * 40, "a" * 20 + "c" + "a" * 21 + "b" * 40], 12,
         ["aaaa…aaaaaa…", "aaaaaaaaa…~2", "aaaa…caaaaa…"]),
        (["short", "short"], 12, ["short"]),
    ],
)  # fmt: skip
def test_they_stay_different(names: list[str], width: int, shown: list[str]) -> None:
    assert list(cut_apart(names, width).values()) == shown


@given(st.lists(st.text(alphabet="ab[],= …~1", max_size=60), max_size=12), st.integers(12, 40))
def test_whatever_they_are_none_is_too_wide_and_no_two_are_alike(names: list[str], width: int) -> None:
    shown = cut_apart(names, width)

    assert set(shown) == set(names)
    assert all(len(text) <= width for text in shown.values())
    assert all(text == name for name, text in shown.items() if len(name) <= width)
    assert len(set(shown.values())) == len(shown)


@given(st.text(alphabet="ab[],= ", max_size=60), st.integers(12, 40))
def test_folding_keeps_every_letter_and_the_width(name: str, width: int) -> None:
    lines = folded(name, width)
    assert all(len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")

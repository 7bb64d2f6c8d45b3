"""The terminal's table: whatever is in a compiler's name, no two variants look alike."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pytest_ngraph.texts.fitting import fit, folded

COLUMNS = ("batch", "compiler", "samples/s", "verdict")
LONG = "onnxruntime[graph=basic,threads=2,execution_mode=parallel]"


def test_a_name_that_fits_takes_one_line() -> None:
    assert fit(COLUMNS, ["timm:resnet18", ("1", "openvino", "548", "pass")], 80) == [
        "  batch  compiler      samples/s  verdict",
        "timm:resnet18",
        "      1  openvino            548  pass",
    ]


def test_a_long_name_goes_on_below_and_nothing_of_it_is_lost() -> None:
    lines = fit(COLUMNS, [("1", LONG, "548", "pass"), ("", "onnxruntime[graph=disabled]", "470", "fail")], 54)
    assert lines == [
        "  batch  compiler                   samples/s  verdict",
        "      1  onnxruntime[graph=basic,         548  pass",
        "          threads=2,",
        "          execution_mode=parallel]",
        "         onnxruntime                      470  fail",
        "          [graph=disabled]",
    ]


@given(st.text(alphabet="ab[],= ", max_size=60), st.integers(12, 40))
def test_folding_keeps_every_letter_and_the_width(name: str, width: int) -> None:
    lines = folded(name, width)
    assert all(len(line) <= width for line in lines)
    assert "".join(lines).replace(" ", "") == name.replace(" ", "")

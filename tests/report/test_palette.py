"""Compilers are told apart by every eye: colours under simulated vision, and shape and dash where colours fail."""

from __future__ import annotations

from itertools import combinations

import pytest

from pytest_ngraph.report.html.pictures import palette
from tests.support.vision import VISIONS, apart, ciede2000

# Two colours of this distance are told apart at a glance; the blue and the violet of before were 1.0 apart.
AT_A_GLANCE = 10.0
SIX = ("identity", "inductor", "onnxruntime", "openvino", "tensorrt", "torchscript", "tvm[trials=32]")
MANY = ("identity", *(f"null[fixed_us={number}]" for number in range(40)))


@pytest.mark.parametrize("vision", [one for one in VISIONS if one != "grey"])
def test_any_two_of_the_compilers_have_colours_that_are_seen_apart(vision: str) -> None:
    colours = palette.colours_of(SIX, {"identity"})

    for one, other in combinations(SIX, 2):
        assert apart(colours[one], colours[other], vision) >= AT_A_GLANCE, (one, other)


@pytest.mark.parametrize("vision", VISIONS)
@pytest.mark.parametrize("compilers", [SIX, MANY], ids=["six", "forty"])
def test_where_two_colours_look_alike_shape_or_dash_differs(compilers: tuple[str, ...], vision: str) -> None:
    colours = palette.colours_of(compilers, {"identity"})
    shapes, dashes = palette.shapes_of(compilers), palette.dashes_of(compilers)

    for one, other in combinations(compilers, 2):
        is_seen = apart(colours[one], colours[other], vision) >= AT_A_GLANCE
        assert is_seen or (shapes[one], dashes[one]) != (shapes[other], dashes[other]), (one, other)
    # What we have compilers for differs in both.
    some = compilers[: len(palette.SHAPES)]
    assert len({shapes[name] for name in some}) == len({tuple(dashes[name]) for name in some}) == len(some)


def test_the_colours_of_before_would_not_do() -> None:
    assert apart("#2f7ed8", "#7c63d6", "deuteranopia") < 2


@pytest.mark.parametrize(
    ("one", "other", "difference"),
    [
        ((50.0, 2.6772, -79.7751), (50.0, 0.0, -82.7485), 2.0425),
        ((50.0, 2.5, 0.0), (73.0, 25.0, -18.0), 27.1492),
        ((60.2574, -34.0099, 36.2677), (60.4626, -34.1751, 39.4387), 1.2644),
        ((2.0776, 0.0795, -1.1350), (0.9033, -0.0636, -0.5514), 0.9082),
    ],
)
def test_differences_are_those_of_the_published_pairs(
    one: tuple[float, float, float], other: tuple[float, float, float], difference: float
) -> None:
    """Of the table of Sharma, Wu and Dalal 2005."""
    assert ciede2000(one, other) == pytest.approx(difference, abs=1e-4)

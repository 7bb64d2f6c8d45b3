"""Colours that hold on light and dark ground, and which compiler has which: the same in every chart."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ngraph.stats.verdict import Verdict

# Each has a contrast of 3 or more to both grounds (tests hold them to it), so that a theme changes no colour. Every
# compiler has a shape beside its colour, for those to whom two of them look alike.
BASELINE = "#7d8590"
COLOURS = (
    "#2f7ed8", "#d9622b", "#17936f", "#c2479e", "#9a7d0a", "#7c63d6", "#d43f4f", "#1a8fa3", "#5f8f22", "#a8663f",
)  # fmt: skip
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
VERDICTS = {
    Verdict.PASS: "#17936f",
    Verdict.INCONCLUSIVE: "#9a7d0a",
    Verdict.FAIL: "#d43f4f",
    Verdict.INVALID: "#7d8590",
    Verdict.NOT_JUDGED: "#7d8590",
}
# Said beside the colour, for who does not see it.
SIGNS = {Verdict.PASS: "✓", Verdict.INCONCLUSIVE: "?", Verdict.FAIL: "✗", Verdict.INVALID: "–", Verdict.NOT_JUDGED: "·"}


def colours_of(compilers: Sequence[str], baselines: set[str]) -> dict[str, str]:
    """Return a colour for each compiler: grey for a baseline. After ten others colours repeat, with another shape."""
    others = [name for name in compilers if name not in baselines]
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(others)}
    return {name: BASELINE if name in baselines else colours[name] for name in compilers}


def shapes_of(compilers: Sequence[str]) -> dict[str, str]:
    """Return a shape for each compiler."""
    return {name: SHAPES[number % len(SHAPES)] for number, name in enumerate(compilers)}

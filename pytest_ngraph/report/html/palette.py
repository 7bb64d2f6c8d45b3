"""Colours that hold on light and dark ground, and which compiler has which: the same in every chart."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ngraph.stats.verdict import Verdict

LIGHT, DARK = "#ffffff", "#14181f"
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


def contrast(one: str, other: str) -> float:
    """Return the contrast ratio of two colours, 1 to 21 (WCAG 2.2, relative luminance)."""
    lighter, darker = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (lighter + 0.05) / (darker + 0.05)


def _luminance(colour: str) -> float:
    channels = (int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5))
    linear = [value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4 for value in channels]
    return sum(weight * value for weight, value in zip((0.2126, 0.7152, 0.0722), linear, strict=True))

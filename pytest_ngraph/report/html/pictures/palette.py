"""Colours, shapes and dashes that tell compilers apart for every eye, in print, on light and on dark ground."""

from __future__ import annotations

from collections.abc import Sequence

from pytest_ngraph.stats.verdict import Verdict

# Each has a contrast of 3 or more to both grounds, so that a theme changes no colour, and every two of them, the
# baseline's among them, are 10 or more apart (CIEDE2000) for people without red, green or blue cones. Tests hold them
# to both. In grey they cannot be: there, and from the eighth compiler on, shape and dash tell them apart.
BASELINE = "#7d8590"
COLOURS = ("#0099ee", "#bb8811", "#7733ff", "#337744", "#cc1100", "#885588", "#dd4466")
SHAPES = ("circle", "square", "triangle-up", "diamond", "cross", "triangle-down", "triangle-right", "triangle-left")
# Lengths drawn and left out, by turns; the first is a whole line.
DASHES = ((1, 0), (7, 3), (2, 2), (8, 3, 2, 3), (12, 3), (4, 2, 1, 2, 1, 2), (1, 4), (10, 2, 3, 2, 3, 2))
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
    """Return a colour for each compiler: grey for a baseline. After seven others colours repeat, with another shape."""
    others = [name for name in compilers if name not in baselines]
    colours = {name: COLOURS[number % len(COLOURS)] for number, name in enumerate(others)}
    return {name: BASELINE if name in baselines else colours[name] for name in compilers}


def shapes_of(compilers: Sequence[str]) -> dict[str, str]:
    """Return a shape for each compiler."""
    return {name: SHAPES[number % len(SHAPES)] for number, name in enumerate(compilers)}


def dashes_of(compilers: Sequence[str]) -> dict[str, list[int]]:
    """Return a dash for each compiler. Where a shape comes again it is with another dash: 64 pairs of both."""
    return {name: list(DASHES[(number + number // len(SHAPES)) % len(DASHES)]) for number, name in enumerate(compilers)}

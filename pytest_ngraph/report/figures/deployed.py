"""Figures of what no paper of these three draws: the time of a call over the length of its samples."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from pytest_ngraph.report.deploying.lengths import SCALING
from pytest_ngraph.report.figures.chosen import Chosen, Figure, look_of
from pytest_ngraph.report.figures.panels import Panel, Row, curves
from pytest_ngraph.report.html.derived import length_rows
from pytest_ngraph.report.results.natural import natural


def over_length(chosen: Chosen) -> list[Panel]:
    """Return a panel for each of what runs at several lengths, titled with the exponent of each compiler."""
    found: dict[str, list[Row]] = {}
    for row in length_rows(chosen.content, ("latency",)):
        found.setdefault(row["lengths"], []).append(row)
    look, names = look_of(chosen.content), {row["compiler"] for rows in found.values() for row in rows}
    panels = []
    for name, rows in sorted(found.items(), key=lambda one: natural(one[0])):
        grows = [label for row in rows if (label := row["label"]) != row["compiler"]]
        title = [name.partition(":")[2] or name, *dict.fromkeys(grows)]
        panels.append(curves(title, rows, look, names, x="sequence", y="seconds a call", number="~s", is_log=True))
    return panels


_ROWS = (
    Figure(
        "sequence",
        "Time of a call over the length of its samples, both logarithmic, a panel for each model; n^e is the least-"
        "squares exponent of the time over the length with its interval: 1 is linear.",
        over_length, (SCALING,), "a test with sequences=[32, 128, 512] (docs/sequences.md)",
    ),
)  # fmt: skip
DEPLOYED_FIGURES: Mapping[str, Figure] = MappingProxyType({figure.name: figure for figure in _ROWS})

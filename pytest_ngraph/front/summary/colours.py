"""The words of verdicts in pytest's colours. A terminal without colours gets the same letters."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from pytest_ngraph.spec.cells import Outcome
from pytest_ngraph.stats.verdict import Verdict

if TYPE_CHECKING:
    import pytest

    from pytest_ngraph.store.rows import VerdictRow

_VERDICTS: dict[str, str] = {
    Verdict.PASS: "green",
    Verdict.FAIL: "red",
    Verdict.INCONCLUSIVE: "yellow",
    Verdict.INVALID: "yellow",
}
_OUTCOMES = {str(outcome): "red" for outcome in Outcome} | {"unavailable": "yellow", "unsupported": "yellow"}
_COLOURS: Mapping[str, str] = {**_OUTCOMES, **_VERDICTS, "skipped": "yellow"}
_WORD = "|".join(sorted(_COLOURS, key=len, reverse=True))
# The verdict that begins a line, the one that ends a row of a table, and each of those that are counted.
_BEGINS = re.compile(rf"(?i:{_WORD})(?= )")
_ENDS = re.compile(rf"(?<=  )(?:{_WORD})\Z")
_COUNTED = re.compile(rf"(?:(?<=verdicts: )|(?<=, ))\d+ (?:{_WORD})(?=, |\Z)")


def write_coloured(reporter: pytest.TerminalReporter, line: str) -> None:
    """Write a line of the summary with the words of verdicts in their colours."""
    found = [match] if (match := _BEGINS.match(line)) else [*_ENDS.finditer(line)]
    if line.startswith("verdicts: "):
        found = [*_COUNTED.finditer(line)]
    written = 0
    for match in found:
        reporter.write(line[written : match.start()])
        reporter.write(match.group(), **{_COLOURS[match.group().rpartition(" ")[2].lower()]: True})
        written = match.end()
    reporter.write(line[written:] + "\n")


def colour_of(verdicts: Iterable[VerdictRow]) -> dict[str, bool]:
    """Return the markup for the title of a section: that of its worst verdict, and none where nothing was judged."""
    colours = {_VERDICTS.get(row.verdict) for row in verdicts}
    worst = next((colour for colour in ("red", "yellow", "green") if colour in colours), None)
    return {worst: True, "bold": True} if worst is not None else {}

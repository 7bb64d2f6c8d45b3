"""What the gates of a run came to, line by line, and what could not run."""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

from pytest_ngraph import units
from pytest_ngraph.metrics import METRICS
from pytest_ngraph.report.results.verdicts import notes_of
from pytest_ngraph.stats.verdict import Verdict

if TYPE_CHECKING:
    from pytest_ngraph.store.rows import VerdictRow

_INDENT = "    "


def verdict_lines(verdicts: Sequence[VerdictRow], width: int = 80) -> list[str]:
    """Return what each claim that did not simply pass says, and the count of all. Nothing is cut, long lines wrap."""
    lines = []
    for row in verdicts:
        noted = notes_of(row)
        if row.verdict != Verdict.PASS or noted:
            said = "; ".join(filter(None, (row.extra.get("reason"), *noted)))
            reason = f" ({said})" if said else ""
            test = f"{row.verdict.upper()} {row.nodeid}"
            lines += _wrapped(test, f"{row.claim}:", _interval(row) + reason, width)
    counts = Counter(row.verdict for row in verdicts)
    if counts:
        words = ", ".join(f"{counts[name]} {name}" for name in Verdict if counts[name])
        lines.append(f"verdicts: {words}")
    return lines


def _wrapped(test: str, claim: str, numbers: str, width: int) -> list[str]:
    """Put a test, its claim and its numbers on one line where they fit, else on lines of their own, with an indent.

    A test's id stays in one piece, for a double click to take it, however long it is.
    """
    if len(f"{test}: {claim} {numbers}") <= width:
        return [f"{test}: {claim} {numbers}"]
    fill = partial(textwrap.wrap, width=width, initial_indent=_INDENT, subsequent_indent=_INDENT,
                   break_on_hyphens=False, break_long_words=False)  # fmt: skip
    if len(f"{test}: {claim}") <= width:
        return [f"{test}: {claim}", *fill(numbers)]
    return [test, *fill(claim), *fill(numbers)]


def _interval(row: VerdictRow) -> str:
    if row.estimate is None:
        return "not measured"
    write = METRICS[row.metric].format
    state = f", state {row.extra['state']}" if row.extra.get("state") else ""
    return f"{write(row.estimate)}{units.spread(row.low, row.high, row.launches, write)}{state}"


def skipped_lines(left_out: Mapping[str, int], width: int) -> list[str]:
    """Return what could not run, once for each compiler and reason, with how many tests were skipped for it."""
    lines = [f"skipped {units.count(tests, 'test')}: {why}" for why, tests in left_out.items()]
    fill = partial(textwrap.wrap, subsequent_indent=_INDENT, break_on_hyphens=False, break_long_words=False)
    return [part for line in lines for part in fill(line, width)]

"""What the gates of a run came to, line by line, and what could not run."""

from __future__ import annotations

import re
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


def verdict_lines(verdicts: Sequence[VerdictRow], width: int = 80, *, explains_open: bool = True) -> list[str]:
    """Return what each claim that did not simply pass says, and the count of all. Nothing is cut, long lines wrap.

    Why a gate failed is said where pytest shows the failure, and so is why one that was measured is open unless this
    ``explains_open``.
    Gates with one reason stand together, above it.
    """
    together: dict[tuple[str, str, str], list[VerdictRow]] = {}
    for row in verdicts:
        if row.verdict != Verdict.PASS or notes_of(row):
            together.setdefault((row.verdict, *_why(row, explains_open=explains_open)), []).append(row)
    lines = []
    for (verdict, why, advice), rows in together.items():
        for row in rows:
            lines += _wrapped(f"{verdict.upper()} {row.nodeid}", _said(row), width)
        of = f"why, of these {len(rows)}" if len(rows) > 1 else "why"
        lines += _filled(f"{of}: {why}", width) if why else []
        lines += _filled(f"what to do: {advice}", width) if advice else []
    counts = Counter(row.verdict for row in verdicts)
    if counts:
        words = ", ".join(f"{counts[name]} {name}" for name in Verdict if counts[name])
        lines.append(f"verdicts: {words}")
    return lines


def terse_lines(verdicts: Sequence[VerdictRow], width: int = 80) -> list[str]:
    """Return what each claim that failed or is undecided says, and nothing else: no reasons, no count."""
    lines = []
    for row in verdicts:
        if row.verdict == Verdict.FAIL or row.is_open:
            lines += _wrapped(f"{row.verdict.upper()} {row.nodeid}", _said(row), width)
    return lines


def _why(row: VerdictRow, *, explains_open: bool) -> tuple[str, str]:
    """Return why a claim is what it is and what helps, as far as nothing else on the terminal says it.

    Why one has no number is said in any case: it is all that there is to say.
    """
    has_number = row.estimate is not None and row.launches > 0
    if (row.verdict == Verdict.FAIL and has_number) or (row.is_open and has_number and not explains_open):
        return "", ""
    why = "; ".join(map(str, filter(None, (row.extra.get("reason"), *notes_of(row)))))
    return why, str(row.extra.get("advice") or "")


def _said(row: VerdictRow) -> list[str]:
    """Return what was measured and what is claimed of it: the numbers, and what they are of where the id does not."""
    name = str(row.extra.get("name") or "")
    is_pair = " over " in name
    if not name or row.bound is None or (row.metric == "throughput_ratio" and not is_pair):
        # Of another release, no claim of a helper, or of two cells, which its words name.
        return [f"{row.claim}:", _interval(row)]
    write = METRICS[row.metric].format
    subject = "" if is_pair or _is_named(row) else f" of {row.extra['subject']}"
    limit, state = write(row.bound), f", state {row.extra['state']}" if row.extra.get("state") else ""
    side = "at least" if row.at_least else "at most"
    if row.estimate is None or not row.launches:
        return [f"{name}{subject} not measured, claimed {side} {limit}"]
    shown = f"{name}{subject} {write(row.estimate)}{units.interval(row.low, row.high, write)}"
    over = str(row.extra.get("over") or units.count(row.launches, "launch", "launches"))
    is_beyond = row.estimate < row.bound if row.at_least else row.estimate > row.bound
    if row.verdict == Verdict.FAIL and is_beyond:
        return [f"{shown} {'<' if row.at_least else '>'} {limit}, {over}{state}"]
    seen = ""
    if row.smallest_effect is not None and row.is_open:
        if METRICS[row.metric].scale == "linear":
            seen = f" (can show {write(row.smallest_effect)})"
        elif row.smallest_effect > 1:
            seen = " (too few to show less than 100 %)"
        else:
            seen = f" (can show {units.fraction(row.smallest_effect)})"
    return [f"{shown}, claimed {side} {limit}{_passing(row)}, {over}{seen}{state}"]


def _passing(row: VerdictRow) -> str:
    """Return from where on a claim passes, where a tolerance makes that another number than the bound."""
    if row.bound is None or not row.tolerance:
        return ""
    metric, amount = METRICS[row.metric], -row.tolerance if row.at_least else row.tolerance
    passing = metric.format(row.bound * (1 + amount) if metric.scale == "log" else row.bound + amount)
    if passing == metric.format(row.bound):
        return ""
    return f" (passes {'above' if row.at_least else 'below'} {passing})"


# What stands in a metric's name, or is the end of what it is made of.
_SWEPT = re.compile(r"(batch|depth|seq)\d+")
_OF_SWEEPS = ("slope", "retention", "sequence_scaling")


def _is_named(row: VerdictRow) -> bool:
    """Return whether the id of a test says what its claim is about."""
    words = str(row.extra.get("subject") or "").replace(":", "-", 1).split()
    swept = _SWEPT if "@" in row.extra["name"] or row.metric in _OF_SWEEPS else None
    return all(word in row.nodeid for word in words if not (swept and swept.fullmatch(word)))


def _filled(text: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=_INDENT, subsequent_indent=_INDENT, break_on_hyphens=False, break_long_words=False
    )


def _wrapped(test: str, said: Sequence[str], width: int) -> list[str]:
    """Put a test and what is said of it on one line where they fit, else on lines of their own, with an indent.

    A test's id stays in one piece, for a double click to take it, however long it is.
    """
    whole = f"{test}: {' '.join(said)}"
    if len(whole) <= width:
        return [whole]
    return [test, *(part for each in said for part in _filled(each, width))]


def _interval(row: VerdictRow) -> str:
    if row.estimate is None or not row.launches:
        return "not measured"
    write = METRICS[row.metric].format
    state = f", state {row.extra['state']}" if row.extra.get("state") else ""
    return f"{write(row.estimate)}{units.spread(row.low, row.high, row.launches, write)}{state}"


def not_stored_lines(not_stored: Mapping[str, str], width: int) -> list[str]:
    """Return the tests that have nothing to judge, those with one reason above it."""
    together: dict[str, list[str]] = {}
    for nodeid, why in not_stored.items():
        together.setdefault(why, []).append(nodeid)
    lines = []
    for why, nodeids in together.items():
        lines += [f"INCONCLUSIVE {nodeid}" for nodeid in nodeids]
        lines += _filled(f"why: {why.removeprefix('inconclusive: ')}", width)
    return lines


def skipped_lines(left_out: Mapping[str, int], width: int) -> list[str]:
    """Return what could not run, once for each compiler and reason, with how many tests were skipped for it."""
    lines = [f"skipped {units.count(tests, 'test')}: {why}" for why, tests in left_out.items()]
    fill = partial(textwrap.wrap, subsequent_indent=_INDENT, break_on_hyphens=False, break_long_words=False)
    return [part for line in lines for part in fill(line, width)]

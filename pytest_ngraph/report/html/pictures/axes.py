"""What the axes of a chart span and where names stand at the ends of its lines; ``charts.js`` does the same."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

Row = dict[str, Any]
# An interval may reach this share of what the points span beyond them, or this many usual half widths, whatever is
# more: so one noisy cell does not set the scale of all. What is longer is cut, and a triangle says so.
SHARE, USUAL = 0.3, 3.0
# Along these what is twice as much stands equally far: lengths, batches and rates are doubled.
DOUBLED = frozenset({"batch", "sequence", "rate"})
# Room around what is drawn, as a share of the axis.
_ROOM = 0.04


def span_of(rows: Sequence[Row], *, is_log: bool, line_at: float | None = None) -> tuple[float, float]:
    """Return the ends of an axis that holds every value, the line and every interval that is not far too wide."""
    scaled, back = both_ways(is_log)
    values = [scaled(row["value"]) for row in rows if _is_on(row["value"], is_log)]
    marks = [*values, *([scaled(line_at)] if line_at is not None else [])]
    if not marks:
        return (0.1, 1.0) if is_log else (0.0, 1.0)
    low, high = min(marks), max(marks)
    arms = [
        abs(scaled(row[end]) - scaled(row["value"]))
        for row in rows
        for end in ("low", "high")
        if _is_on(row["value"], is_log) and _is_on(row.get(end), is_log)
    ]
    reach = max(SHARE * (high - low), USUAL * statistics.median(arms) if arms else 0.0)
    ends = [scaled(row[end]) for row in rows for end in ("low", "high") if _is_on(row.get(end), is_log)]
    least = max(low - reach, min([low, *ends]))
    most = min(high + reach, max([high, *ends]))
    room = _ROOM * (most - least) or (0.1 if is_log else abs(most) * 0.1 or 1.0)
    return back(least - room), back(most + room)


def along(rows: Sequence[Row], field: str) -> Row:
    """Return the ends of the axis that lines run along, a little beyond the values, and its marks: each value."""
    marks = sorted({row[field] for row in rows})
    first, last = marks[0], marks[-1]
    if field in DOUBLED:
        beyond = max(1.08, (last / first) ** _ROOM)
        ends = (first / beyond, last * beyond)
    else:
        beyond = max(0.1, (last - first) * _ROOM)
        ends = (first - beyond, last + beyond)
    return {"first_end": ends[0], "last_end": ends[1], "ticks": marks}


def place_names(rows: Sequence[Row], x: str, *, span: tuple[float, float], is_log: bool, gap: float) -> list[Row]:
    """Return the rows of one panel, the last of each compiler's line with ``label`` and where it stands, ``label_at``.

    Names are ``gap`` apart, as a share of the axis, in the order of their lines' ends.
    """
    scaled, back = both_ways(is_log)
    low, high = scaled(span[0]), scaled(span[1])
    last: dict[str, int] = {}
    for number, row in enumerate(rows):
        if _is_on(row["value"], is_log):
            at = last.get(row["compiler"])
            if at is None or row[x] >= rows[at][x]:
                last[row["compiler"]] = number
    order = sorted(last.values(), key=lambda number: float(rows[number]["value"]))
    places = [(scaled(rows[number]["value"]) - low) / (high - low) for number in order]
    for at in range(1, len(places)):
        places[at] = max(places[at], places[at - 1] + gap)
    ceiling = 1.0
    for at in reversed(range(len(places))):
        places[at] = min(places[at], ceiling)
        ceiling = places[at] - gap
    named = {number: back(low + place * (high - low)) for number, place in zip(order, places, strict=True)}
    return [
        {**row, "label": label_of(row), "label_at": named[number]} if number in named else row
        for number, row in enumerate(rows)
    ]


def label_of(row: Row) -> str:
    """Return what stands at the end of a line: its compiler, where there is nothing more to say."""
    return str(row.get("label") or row["compiler"])


def both_ways(is_log: bool) -> tuple[Callable[[float], float], Callable[[float], float]]:
    """Return what gives the place of a number on an axis, and back."""
    return (math.log, math.exp) if is_log else (float, float)


def _is_on(value: float | None, is_log: bool) -> bool:
    return value is not None and math.isfinite(value) and (not is_log or value > 0)

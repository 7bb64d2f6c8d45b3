"""The history of a run's cells as markup: a small picture for each, by date and commit, with its table below it."""

from __future__ import annotations

import html
import math
from collections.abc import Callable, Iterator, Sequence
from statistics import median

from pytest_ngraph import units
from pytest_ngraph.quantities.quantity import in_unit
from pytest_ngraph.report.baselines.history import History, change_words, interval_at, short
from pytest_ngraph.report.html.markup.tables import exact, exact_head, table
from pytest_ngraph.spec.states import name_of
from pytest_ngraph.stats.changes import NOT_INSTALLED, can_find_changes
from pytest_ngraph.stats.sessions import LEAST_SESSIONS
from pytest_ngraph.texts.shown import clean

_TITLE = "History on this machine"
_SAYS = (
    "What a call took in each session of this machine that measured the cell, in the order of the runs, with intervals "
    "at 99 %: the ring is the last one. A solid line is a level, a dashed one stands where it changed. Each state of "
    "the machine has a picture of its own, and other machines have none. Filters leave it as it is."
)
# Of a picture, in its own units: the whole, and where its axes are.
_WIDTH, _HEIGHT, _LEFT, _RIGHT, _TOP, _BOTTOM = 340, 168, 56, 328, 22, 132
# How close names on the axis of time may come, and how many values the other axis names.
_APART, _TICKS, _MOST_TICKS = 74, 3, 5
# Intervals that are much wider than the others are cut off.
_USUAL_ARMS = 3.0


def history_link(histories: Sequence[History]) -> str:
    """Return what leads to the section, or nothing where there is none."""
    return f'<li><a href="#history">{_TITLE}</a></li>' if histories else ""


def history_section(histories: Sequence[History], left_out: int) -> str:
    """Return the section of the page, or nothing where no cell has several sessions.

    ``left_out`` is how many cells have a history and no picture.
    """
    if not histories:
        return ""
    notes = [_SAYS]
    if not can_find_changes():
        notes.append(f"Levels are not shown: {NOT_INSTALLED}.")
    elif any(len(one.line.sessions) < LEAST_SESSIONS for one in histories):
        notes.append(f"Changes are looked for from {LEAST_SESSIONS} sessions on.")
    if left_out:
        notes.append(f"{units.count(left_out, 'cell')} more: ngraph history shows them.")
    figures = "".join(map(_figure, histories))
    return (
        f'<section id="history" aria-labelledby="history-title"><h2 id="history-title">{_TITLE}</h2>'
        f'<p class="says">{_text(" ".join(notes))}</p><div class="past">{figures}</div></section>'
    )


def _figure(history: History) -> str:
    line, label = history.line, _text(history.quantity.label)
    state = f", state {name_of(line.state)}" if line.state is not None else ""
    last = history.quantity.metric.format(in_unit(history.quantity.metric, line.means[-1]))
    changes = f", {units.count(len(history.levels) - 1, 'change')}" if can_find_changes() else ""
    said = f"{units.count(len(line.sessions), 'session')}{changes}, last {last}"
    return (
        f"<figure><figcaption>{label}<small>{_text(f'{line.machine.name}{state}: {said}')}</small></figcaption>"
        f'<svg viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" aria-label="{label}: {_text(said)}">'
        f"{''.join(_drawn(history))}</svg>"
        f'<details><summary>Table</summary><div class="table" tabindex="0" role="region" aria-label="{label}">'
        f"{_table(history)}</div></details></figure>"
    )


def _drawn(history: History) -> Iterator[str]:
    """Yield what a picture is made of: grid, intervals, sessions, levels and changes."""
    metric, sessions = history.quantity.metric, history.line.sessions
    values = [in_unit(metric, mean) for mean in history.line.means]
    ends = [interval_at(history, number) for number in range(len(sessions))]
    low, high = _span(values, ends)
    step = (_RIGHT - _LEFT - 24) / (len(values) - 1)
    across = [_LEFT + 12 + step * number for number in range(len(values))]

    def up(value: float) -> float:
        return _BOTTOM - (_BOTTOM - _TOP) * (min(max(value, low), high) - low) / (high - low)

    for tick in _ticks(low, high):
        yield f'<path class="grid" d="M{_LEFT},{up(tick):.1f}H{_RIGHT}"/>'
        yield f'<text x="{_LEFT - 5}" y="{up(tick) + 3.5:.1f}" text-anchor="end">{_text(metric.format(tick))}</text>'
    yield from _names(history, across)
    way = "L".join(f"{x:.1f},{up(value):.1f}" for x, value in zip(across, values, strict=True))
    yield f'<path class="way" d="M{way}"/>'
    for x, (begin, end) in zip(across, ends, strict=True):
        if begin is not None and end is not None:
            yield f'<path class="arm" d="M{x:.1f},{up(begin):.1f}V{up(end):.1f}"/>'
    for number, (x, value) in enumerate(zip(across, values, strict=True)):
        now = ' class="now"' if number == len(values) - 1 else ""
        yield f'<circle{now} cx="{x:.1f}" cy="{up(value):.1f}" r="3"/>'
    if can_find_changes():
        yield from _levels(history, across, step, up)


def _levels(history: History, across: Sequence[float], step: float, up: Callable[[float], float]) -> Iterator[str]:
    metric = history.quantity.metric
    for before, level in zip([None, *history.levels], history.levels, strict=False):
        y = up(in_unit(metric, level.mean))
        first, last = across[level.first] - 5, across[level.first + level.sessions - 1] + 5
        yield f'<path class="level" d="M{first:.1f},{y:.1f}H{last:.1f}"/>'
        if before is not None:
            x = across[level.first] - step / 2
            anchor = "start" if x < _WIDTH / 3 else "end" if x > _WIDTH * 2 / 3 else "middle"
            yield f'<path class="turn" d="M{x:.1f},{_TOP - 4}V{_BOTTOM}"/>'
            words = _text(change_words(before.mean, level.mean))
            yield f'<text class="change" x="{x:.1f}" y="{_TOP - 9}" text-anchor="{anchor}">{words}</text>'


def _names(history: History, across: Sequence[float]) -> Iterator[str]:
    """Yield dates and commits below the axis: of the last session, of changes, then of others that have room."""
    sessions = history.line.sessions
    wanted = [len(sessions) - 1, *(level.first for level in history.levels), *range(len(sessions))]
    placed: list[float] = []
    for number in wanted:
        x = across[number]
        if any(abs(x - other) < _APART for other in placed):
            continue
        placed.append(x)
        anchor = "end" if number == len(sessions) - 1 else "start" if number == 0 else "middle"
        x += {"end": 10, "start": -10, "middle": 0}[anchor]
        began, commit = _began(sessions[number].run.started_at), short(sessions[number].commit)
        for line, text in enumerate((began[5:], commit)):
            yield f'<text x="{x:.1f}" y="{_BOTTOM + 16 + 13 * line}" text-anchor="{anchor}">{_text(text)}</text>'


def _table(history: History) -> str:
    metric, begins = history.quantity.metric, {level.first: place for place, level in enumerate(history.levels)}
    rows: list[tuple[object, ...]] = []
    for number, one in enumerate(history.line.sessions):
        low, high = interval_at(history, number)
        value = metric.format(in_unit(metric, one.mean.theta))
        if low is not None and high is not None:
            value += f" [{metric.format(low)}, {metric.format(high)}]"
        place = begins.get(number, 0)
        change = change_words(history.levels[place - 1].mean, history.levels[place].mean) if place else ""
        measured = exact(value, in_unit(metric, one.mean.theta), low, high)
        cells = (one.run.id, _began(one.run.started_at), short(one.commit), one.mean.launches, measured, change)
        rows.append(cells)
    measured = exact_head(metric.title.lower(), metric.unit)
    return table(("run", "began (UTC)", "commit", "launches", measured, "change"), rows)


def _span(values: Sequence[float], ends: Sequence[tuple[float | None, float | None]]) -> tuple[float, float]:
    """Return which values a picture shows: all sessions, and as much of their intervals as is usual for them."""
    arms = [max(value - low, high - value) for value, (low, high) in zip(values, ends, strict=True)
            if low is not None and high is not None]  # fmt: skip
    least, most = min(values), max(values)
    reach = max(0.2 * (most - least), min(max(arms), _USUAL_ARMS * median(arms)) if arms else 0.0)
    room = reach or abs(most) * 0.05 or 1.0
    return least - room, most + room


def _ticks(low: float, high: float) -> list[float]:
    """Return round values within a range, mostly three to five."""
    power = 10.0 ** math.floor(math.log10(high - low))
    ticks: list[float] = []
    for step in (power, power / 2, power / 5, power / 10):
        ticks = [step * number for number in range(math.ceil(low / step), math.floor(high / step) + 1)]
        if len(ticks) >= _TICKS:
            break
    return ticks[:: math.ceil(len(ticks) / _MOST_TICKS)]


def _began(started_at: str) -> str:
    return started_at[:16].replace("T", " ")


def _text(text: str) -> str:
    return html.escape(clean(text))

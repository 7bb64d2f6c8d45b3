"""The history of cells and sweeps, as a table and as tidy rows: by run, commit and date, with where levels change."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from pytest_ngraph import units
from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.kinship import Kinship, Machine
from pytest_ngraph.metrics import Metric
from pytest_ngraph.quantities.derived import DERIVED, derived_of
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.past import Line, lines_of, sessions_of
from pytest_ngraph.quantities.quantity import Quantity, in_unit
from pytest_ngraph.report.results.cells import CellReport
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.report.results.verdicts import verdicts_by_cell
from pytest_ngraph.spec.cells import PROTOCOLS, Cell
from pytest_ngraph.spec.states import name_of
from pytest_ngraph.stats.changes import NOT_INSTALLED, Level, can_find_changes, levels_of, one_level
from pytest_ngraph.stats.sessions import LEAST_SESSIONS, LEVEL
from pytest_ngraph.stats.verdict import Verdict
from pytest_ngraph.store.rows import RunRow, VerdictRow
from pytest_ngraph.store.sqlite import Store

METRICS_SHOWN = ("latency", "throughput", "speedup", "compile_seconds", "peak_memory_bytes", *DERIVED)
# A column's heading has so many letters.
_HEADING = 12
# Of a run, on its page. Those with such claims come first.
_MOST_SHOWN = 24
_OPEN_FIRST = (Verdict.FAIL, Verdict.INVALID, Verdict.INCONCLUSIVE)


@dataclass(frozen=True, slots=True)
class History:
    """One line of a metric of a cell or sweep, with its levels."""

    quantity: Quantity
    line: Line
    levels: Sequence[Level]


def histories(store: Store, metric: str, test: str | None = None) -> list[History]:
    """Return the history of a metric of all cells or sweeps of a store, or of what tests of a name claim something of.

    Raises SpecError where no test or cell is there.
    """
    if metric not in METRICS_SHOWN:
        raise SpecError(f"--metric: {metric!r} is not allowed (expected {', '.join(METRICS_SHOWN)})")
    claimed: set[str] = set()
    if test is not None:
        for run in store.runs():
            rows = store.verdicts(run.id)
            claimed |= {str(row.extra.get("subject")) for row in rows if test in row.nodeid}
        if not claimed:
            raise SpecError(f"no test with {test!r} in its id has claimed anything in {store.path}")
    found: list[History] = []
    for quantity in _quantities(store, metric):
        if test is None or quantity.subject.label in claimed:
            found += histories_of(store, quantity)
    return found


def histories_of(store: Store, quantity: Quantity) -> Iterator[History]:
    """Yield the history of a quantity, a line for each machine and state that measured it."""
    for line in lines_of(sessions_of(store, quantity)):
        levels = levels_of(line.means, line.within) if can_find_changes() else [one_level(line.means)]
        yield History(quantity, line, levels)


def run_histories(
    store: Store, run: RunRow, reports: Iterable[CellReport], verdicts: Sequence[VerdictRow]
) -> tuple[list[History], int]:
    """Return the latency of a run's cells that have several sessions on its machine, and how many more there are.

    Cells whose claims went worst come first, and only so many are read. Where there is but one session nothing is.
    """
    if sum(one.protocol == "gate" for one in store.runs()) < 2:
        return [], 0
    known = verdicts_by_cell(verdicts)
    cells = [one.cell for one in reports if not one.cell.side and not one.cell.replica]
    source = Stored([], [], PROTOCOLS["gate"], 1)
    found: list[History] = []
    left_out = 0
    for cell in sorted(cells, key=lambda cell: known.get(cell.label) not in _OPEN_FIRST):
        if len(store.evidence_by_run(cell)) < 2:
            continue
        if len(found) >= _MOST_SHOWN:
            left_out += 1
            continue
        here = Machine.of(run.on(cell.device).environment)
        for history in histories_of(store, _of_cell(source, cell, cell, "latency")):
            is_here = history.line.machine.kinship(here) is Kinship.SAME
            if is_here and len(history.line.sessions) > 1:
                found.append(history)
    return found, left_out


def _quantities(store: Store, metric: str) -> list[Quantity]:
    """Return a metric of all that runs of the store have measured, by label."""
    source = Stored([], [], PROTOCOLS["gate"], 1)
    found: dict[tuple[Cell, ...], Quantity] = {}
    for run in store.runs():
        against = store.baselines(run.id)
        cells = [cell for cell, _ in store.cells(run.id) if not cell.replica and not cell.side]
        if metric in DERIVED:
            made = (one.quantity for one in derived_of(source, cells, against))
            found.update((one.cells, one) for one in made if one.metric.name == metric)
        elif metric == "speedup":
            found.update(
                (one.cells, one)
                for one in (_of_cell(source, cell, against[cell], metric) for cell in cells if cell in against)
            )
        else:
            found.update(((cell,), _of_cell(source, cell, cell, metric)) for cell in cells)
    return sorted(found.values(), key=lambda one: one.label)


def _of_cell(source: Stored, cell: Cell, baseline: Cell, metric: str) -> Quantity:
    return Measurement(source, cell, baseline).quantity(metric)


def history_lines(history: History) -> Iterator[str]:
    """Yield a history as a table of at most 80 columns, names of cells and machines apart."""
    quantity, line = history.quantity, history.line
    metric = quantity.metric
    state = f", state {name_of(line.state)}" if line.state is not None else ""
    heading = metric.title.lower() if len(metric.title) <= _HEADING else metric.name
    yield f"{quantity.label}"
    yield f"  machine {line.machine.name}, {line.machine.hardware['cpu']}{state}"
    yield f"  {'run':>4}  {'began (UTC)':<16}  {'commit':<10}  {'launches':>8}  {heading:>{_HEADING}}  change"
    begins = {level.first: number for number, level in enumerate(history.levels)}
    for number, one in enumerate(line.sessions):
        began, commit = one.run.started_at[:16].replace("T", " "), short(one.commit)
        value = metric.format(in_unit(metric, one.mean.theta))
        change = ""
        if number and number in begins:
            here = history.levels[begins[number]]
            change = _change(metric, history.levels[begins[number] - 1].mean, here.mean)
        row = f"  {one.run.id:>4}  {began:<16}  {commit:<10}  {one.mean.launches:>8}  {value:>12}  {change}"
        yield row.rstrip()
    last = history.levels[-1]
    by = units.fraction(last.deviation) if metric.scale == "log" else metric.format(last.deviation)
    scatter = f", sessions scatter by {by}" if last.sessions > 1 else ""
    since = f"since run {line.sessions[last.first].run.id}: {metric.format(in_unit(metric, last.mean))}"
    yield f"  {since} over {units.count(last.sessions, 'session')}{scatter}"
    if len(history.levels) > 2:
        together = _change(metric, history.levels[0].mean, last.mean)
        yield f"  {len(history.levels) - 1} changes, together {together}"
    if not can_find_changes():
        yield f"  {NOT_INSTALLED}"
    elif len(line.sessions) < LEAST_SESSIONS:
        yield f"  changes are looked for from {LEAST_SESSIONS} sessions on"


def short(commit: str) -> str:
    """Return a commit in nine digits, with a plus where files were changed."""
    return commit.removesuffix("-dirty")[:9] + ("+" if commit.endswith("-dirty") else "")


def change_words(before: float, after: float) -> str:
    """Write a change of level in words, for what is better when lower: by how much slower or faster."""
    amount = math.expm1(after - before)
    return f"{100 * abs(amount):.1f} % {'slower' if amount > 0 else 'faster'}"


def _change(metric: Metric, before: float, after: float) -> str:
    """Write a change of level: in per cent, on a linear scale as a difference, for a ratio to 0 says nothing."""
    if metric.scale == "log":
        return f"{100 * math.expm1(after - before):+.1f} %"
    sign = "+" if after > before else "-"
    return f"{sign}{metric.format(abs(after - before))}"


def history_rows(found: Sequence[History]) -> Iterator[dict[str, object]]:
    """Yield a history as tidy rows: one for each session."""
    for history in found:
        metric, line = history.quantity.metric, history.line
        cell = history.quantity.subject
        for number, one in enumerate(line.sessions):
            level = next(each for each in reversed(history.levels) if each.first <= number)
            low, high = interval_at(history, number)
            yield {
                "cell": cell.label,
                "device": cell.device,
                "compiler": str(cell.compiler),
                "metric": metric.name,
                "quantity": history.quantity.label,
                "unit": metric.unit,
                "machine": line.machine.name,
                "cpu": line.machine.hardware["cpu"],
                "state": None if line.state is None else name_of(line.state),
                "run": one.run.id,
                "began": one.run.started_at,
                "commit": one.commit or None,
                "launches": one.mean.launches,
                "value": in_unit(metric, one.mean.theta),
                "low": low,
                "high": high,
                "level": in_unit(metric, level.mean),
                "level_since_run": line.sessions[level.first].run.id,
            }


def interval_at(history: History, number: int) -> tuple[float | None, float | None]:
    """Return the interval of a session in the metric's unit, none for one launch."""
    one = history.line.sessions[number]
    if len(one.values) < 2:
        return None, None
    estimate = history.quantity.present(one.values, LEVEL)
    return estimate.low, estimate.high

"""Fronts of a run that is stored: one for each device and task, over what its configurations were measured by."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from pytest_ngraph.choosing.comparing import Candidate, Rows
from pytest_ngraph.choosing.front import Front, Task, front_of, shared_objectives, task_of
from pytest_ngraph.choosing.objectives import Limit, objectives
from pytest_ngraph.claims.doubts.controls import violated_beside_others, violated_control
from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Quantity
from pytest_ngraph.report.results.cells import cpus_of
from pytest_ngraph.report.results.natural import natural
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import Cell, protocol_of
from pytest_ngraph.stats.verdict import ERROR_RATE
from pytest_ngraph.store.related import Related
from pytest_ngraph.store.rows import RunRow
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.texts.shown import one_line

# On the page of a run: so many pictures, and so many pairs of configurations that are compared for them.
_MOST_FRONTS, _MOST_PAIRS = 8, 1000


@dataclass(frozen=True, slots=True)
class Asked:
    """Which fronts are asked for: by which objectives, all that the configurations share where it is None.

    ``limits`` are compared by, too. ``keeps`` says which cells may be on a front.
    """

    over: Sequence[str] | None = None
    limits: Sequence[Limit] = ()
    tolerances: Mapping[str, float] = field(default_factory=dict)
    rate: float = ERROR_RATE
    keeps: Callable[[Cell], bool] = lambda cell: True


def tasks_of(cells: Iterable[Cell]) -> dict[Task, list[Cell]]:
    """Return the cells that are configurations, by their task, in the natural order of the tasks.

    The second process of a baseline is none, and a cell that every launch built again is one only where the same was
    not measured without.
    """
    known = [cell for cell in cells if not cell.replica]
    plain = {cell for cell in known if not cell.rebuild}
    found: dict[Task, list[Cell]] = {}
    for cell in known:
        if not cell.rebuild or replace(cell, rebuild=False) not in plain:
            found.setdefault(task_of(cell), []).append(cell)
    return dict(sorted(found.items(), key=lambda each: natural(str(each[0]))))


def fronts_of(store: Store, run: RunRow, asked: Asked | None = None) -> list[Front]:
    """Return the fronts of a run, of each of its tasks. What was never measured of a task has none.

    A run has one protocol, one evidence for each cell, and a machine for each device: no front mixes any of them.
    """
    asked = asked or Asked()
    return _fronts(store, run, asked, tasks_of(cell for cell, _ in store.cells(run.id) if asked.keeps(cell)))


def _fronts(store: Store, run: RunRow, asked: Asked, wanted: Mapping[Task, Sequence[Cell]]) -> list[Front]:
    evidence, baselines = dict(store.cells(run.id)), store.baselines(run.id)
    every = {cell for cells in wanted.values() for cell in cells}
    # The controls of their launches are cells, too. All are read at once: a launch may hold those of many tasks.
    read = {cell: key for cell, key in evidence.items() if cell in every or (cell.replica and task_of(cell) in wanted)}
    candidates: dict[Cell, Candidate] = {}
    cpus = cpus_of(run)
    for related in store.related(read):
        candidates |= _candidates(related, every, baselines, run.protocol, cpus(related.cells[0].device))
    return [
        _front(task, [candidates[cell] for cell in cells if cell in candidates], asked, run.protocol)
        for task, cells in wanted.items()
    ]


def run_fronts(store: Store, run: RunRow) -> tuple[list[Front], int]:
    """Return the fronts that the page of a run shows, of those with a choice, and how many more there are.

    So many that no page waits for them: the others are what ``ngraph pareto`` prints.
    """
    shown: set[Task] = set()
    left_out = pairs = 0
    known = tasks_of(cell for cell, _ in store.cells(run.id))
    # Those with most to choose from, of equals the first.
    for task, cells in sorted(known.items(), key=lambda each: -len(each[1])):
        if len(cells) < 2:
            continue
        more = len(cells) * (len(cells) - 1) // 2
        if len(shown) < _MOST_FRONTS and pairs + more <= _MOST_PAIRS:
            shown.add(task)
            pairs += more
        else:
            left_out += 1
    wanted = {task: cells for task, cells in known.items() if task in shown}
    fronts = _fronts(store, run, Asked(), wanted) if wanted else []
    return [front for front in fronts if len(front.candidates) > 1 and len(front.over) > 1], left_out


def _candidates(
    related: Related, wanted: Collection[Cell], baselines: Mapping[Cell, Cell], protocol: str, cpus: int
) -> dict[Cell, Candidate]:
    source = Stored(related.timed, related.memory, protocol_of(protocol), cpus, related.passes, related.power)
    return {
        cell: Candidate(Measurement(source, cell, baselines.get(cell, cell)), _why_not(source, related, cell))
        for cell in related.cells
        if cell in wanted
    }


def _why_not(source: Stored, related: Related, cell: Cell) -> str:
    """Return why a cell is no choice: what became of it, or that no launch of it counts; nothing of one that is."""
    if (failed := related.failed.get(cell)) is not None:
        return one_line(f"{failed.outcome}: {failed.reason}" if failed.reason else str(failed.outcome))
    if cell in related.invalid:
        return one_line(f"no launch counts: {related.invalid[cell]}")
    return "" if source.known(cell) is not None else "not measured"


def _front(task: Task, candidates: Sequence[Candidate], asked: Asked, protocol: str) -> Front:
    timed = [one for one in candidates if not one.why_not]
    tolerances, left_out = dict(asked.tolerances), list[str]()
    if asked.over is not None:
        over = list(objectives(asked.over, "--over", tolerances))
    else:
        over, left_out = shared_objectives(timed, tolerances)
    limited = [limit.objective for limit in asked.limits if limit.objective not in over]
    left_out = [line for line in left_out if line.partition(":")[0] not in {each.name for each in limited}]
    if len({one.cell.workload.batch for one in timed}) > 1 and "latency" in {each.name for each in over}:
        left_out.append("latency is that of a call, of the whole batch; throughput is that of samples")
    return front_of(
        task, candidates, [*over, *limited], violated, rate=asked.rate, left_out=left_out, protocol=protocol
    )


def violated(quantity: Quantity, rows: Rows) -> str:
    """Return why launches prove nothing of a quantity, as it is for gates, or nothing."""
    return violated_control([record for record, _ in rows]) or violated_beside_others(quantity, rows)

"""How noisy a run was: what its own launches of equal code say, and what the machine did meanwhile."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from pytest_ngraph import units
from pytest_ngraph.load.neighbours import NONE
from pytest_ngraph.load.scenarios import rate_of
from pytest_ngraph.machine.facts import others_cpus
from pytest_ngraph.report.noise.profile import effects_by_budget, grade_of, percent, scatter_of, states_of
from pytest_ngraph.spec.cells import Cell, LaunchRecord, protocol_of
from pytest_ngraph.spec.states import describe
from pytest_ngraph.stats.visits import clean_batches
from pytest_ngraph.store.rows import LaunchRow, RunRow
from pytest_ngraph.store.sqlite import Store

# The state of the machine before and after a launch, as ``environment.snapshot`` gives it.
Span = tuple[Mapping[str, Any], Mapping[str, Any]]
# From here on it is worth a line: shares of the time, and CPUs that others kept busy.
_WAITING, _NOISY_WAITING, _STOLEN, _OTHERS, _UNSTEADY = 0.01, 0.05, 0.01, 0.25, 0.01


def run_noise_lines(store: Store, run: RunRow) -> list[str]:
    """Return the grade of a run with what it rests on, and what the machine did that matters.

    Only launches that this run measured itself count. Without any there is nothing to return. Without controls there is
    no grade, but how many visits were disturbed.
    """
    if run.protocol != "gate":
        return _disturbed_lines(store, run)
    by_device: dict[str, list[LaunchRow]] = {}
    for launch in store.run_launches(run.id):
        by_device.setdefault(launch.environment.get("device", "local"), []).append(launch)
    lines = []
    for device, launches in by_device.items():
        if len(by_device) > 1:
            lines.append(f"device {device}")
        lines += _lines_of(store, run.on(device), device, launches)
    return lines


def _disturbed_lines(store: Store, run: RunRow) -> list[str]:
    """Return how many visits count although others had the CPUs, which only happens without error control."""
    if not protocol_of(run.protocol).clean:
        return []
    all_visits = disturbed = 0
    for related in store.related(dict(store.cells(run.id))):
        for visit in (visit for record in related.timed for visit in record.visits.values()):
            all_visits += 1
            disturbed += not clean_batches(visit)
    if not disturbed:
        return []
    share = f"{disturbed} of {units.count(all_visits, 'visit')}"
    return [f"noise: other programs had the CPUs in {share}: these times are too long; measure again (--ngraph-fresh)"]


def _lines_of(store: Store, run: RunRow, device: str, launches: Sequence[LaunchRow]) -> list[str]:
    """Return what ``run_noise_lines`` says of one device."""
    seeds = {launch.seed for launch in launches}
    twins, records = _controls(store, run, device, seeds, _says_of_machine)
    pairs, others = _controls(store, run, device, seeds, lambda cell: not _says_of_machine(cell))
    invalid = sum(bool(launch.invalid) for launch in launches)
    spans = [(launch.environment, launch.environment_end or {}) for launch in launches]
    lines = [_grade_line(twins, records, invalid, len(launches), has_others=bool(pairs))]
    beside = [pair for pair in pairs if pair[0].workload.neighbour != NONE]
    if (scatter := scatter_of(beside, others)) is not None:
        lines.append(f"  beside a neighbour equal code scattered by {percent(scatter)}: no part of that grade")
    waiting = _waiting([*records, *others])
    if waiting is not None and waiting >= _WAITING:
        lines.append(f"  ready to run but waiting for a CPU: {percent(waiting)} of the time")
    lines += environment_lines(spans, len(run.environment.get("affinity", [0])))
    lines += changes(run.environment, run.environment_end or run.environment)
    states = states_of([*records, *others])
    if len(states) > 1:
        lines.append(f"  the machine was in {len(states)} states; a gate compares launches of one:")
        lines += [f"    {describe(state)}" for state in states]
    return lines


def _controls(
    store: Store, run: RunRow, device: str, seeds: set[int], is_one: Callable[[Cell], bool]
) -> tuple[list[tuple[Cell, Cell]], list[LaunchRecord]]:
    """Return the cells of a device that ran in two processes and are of one kind, and the run's launches of these."""
    cells = {cell: key for cell, key in store.cells(run.id) if cell.device == device}
    second = [cell for cell in cells if cell.replica and is_one(cell)]
    twins = [(one, cell) for cell in second if (one := replace(cell, replica=0)) in cells]
    wanted = {cell: cells[cell] for pair in twins for cell in pair}
    records = store.launches(wanted, include_invalid=True) if wanted else []
    return twins, [record for record in records if record.seed in seeds]


def _says_of_machine(cell: Cell) -> bool:
    """Return whether what equal code differs by in this cell is the machine's doing.

    Beside a neighbour it is mostly that one's, which runs on purpose. And as many calls are answered as arrive.
    """
    return cell.workload.neighbour == NONE and rate_of(cell.workload.scenario) is None


def _grade_line(
    twins: Sequence[tuple[Cell, Cell]],
    records: Sequence[LaunchRecord],
    invalid: int,
    launches: int,
    *,
    has_others: bool = False,
) -> str:
    """Grade by the scatter of equal code, as a machine's profile is.

    Much waiting, or over a quarter of the launches that do not count, is noise however alike the others were.
    """
    do = "does" if invalid == 1 else "do"
    if 2 * invalid > launches:
        of = units.count(launches, "launch", "launches")
        return f"noise: unusable in this run: {invalid} of {of} {do} not count"
    scatter = scatter_of(twins, records)
    if scatter is None:
        alone = ", without neighbours and arrivals" if has_others else ""
        return f"noise: not known in this run: it takes two launches in which the baseline runs twice{alone}"
    grade = grade_of(effects_by_budget(scatter))
    if grade == "quiet" and ((_waiting(records) or 0.0) >= _NOISY_WAITING or 4 * invalid > launches):
        grade = "noisy"
    counted = units.count(sum(not record.invalid for record in records), "launch", "launches")
    lost = f", {invalid} more {do} not count" if invalid else ""
    return f"noise: {grade} in this run: equal code scattered by {percent(scatter)} over {counted}{lost}"


def _waiting(records: Sequence[LaunchRecord]) -> float | None:
    """Return the time threads were ready to run and did not, over the time that was measured, or None if unreadable."""
    visits = [visit for record in records for visit in record.visits.values() if visit.run_delay_ns]
    if not visits:
        return None
    return sum(sum(visit.run_delay_ns) for visit in visits) / sum(sum(visit.wall_ns) for visit in visits)


def environment_lines(spans: Sequence[Span], cpus: int) -> list[str]:
    """Return what the machine did between start and end of launches, where it matters to what they measured."""
    lines = []
    stops = [count for span in spans if (count := _change(span, "throttled"))]
    if stops:
        lines.append(
            f"  the cgroup's CPU quota stopped it {units.count(round(sum(stops)), 'time')}, in {len(stops)} of "
            f"{units.count(len(spans), 'launch', 'launches')}"
        )
    governors = dict.fromkeys(
        f"{before['governor']} to {after['governor']}"
        for before, after in spans
        if before.get("governor") != after.get("governor", before.get("governor"))
    )
    if governors:
        lines.append(f"  the CPU's governor changed: {', '.join(governors)}")
    stolen = _mean(spans, lambda span: _share(span, "set_steal_seconds", cpus))
    if stolen >= _STOLEN:
        lines.append(f"  the host took {percent(stolen)} of the CPUs' time (steal)")
    unsteady = sum(len(after.get("unsteady", ())) for _, after in spans)
    visits = sum(after.get("visits", 0) for _, after in spans)
    if visits and unsteady >= _UNSTEADY * visits:
        lines.append(
            f"  the machine was not steady around {unsteady} of {units.count(visits, 'visit')}: these are left out, or "
            "count by the calls that were left alone"
        )
    others = _mean(spans, _others)
    if others >= _OTHERS:
        lines.append(f"  other processes kept {others:.1f} of {units.count(cpus, 'CPU')} busy")
    loads = [after["load"] for _, after in spans if after.get("load") is not None]
    # Who kept the CPUs busy says more.
    if loads and max(loads) > 2 * cpus and others < _OTHERS:
        lines.append(f"  load up to {max(loads):.1f} on {units.count(cpus, 'CPU')}")
    return lines


def changes(begun: Mapping[str, Any], ended: Mapping[str, Any]) -> list[str]:
    """Return what is no longer as it was when the run began: versions, the commit, the CPU set and the like."""
    before, after = _each_by_itself(begun), _each_by_itself(ended)
    names = [name for name in before if name in after and before[name] != after[name]]
    return [f"  changed during the run: {name}, from {before[name]} to {after[name]}" for name in names]


def _each_by_itself(facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return facts with each version and each part of the power mode under a name of its own."""
    mode = {name: value for name, value in (facts.get("power_mode") or {}).items() if name not in facts}
    return {
        **{name: fact for name, fact in facts.items() if name not in ("versions", "power_mode")},
        **(facts.get("versions") or {}),
        **{f"{name} of the power mode": value for name, value in mode.items()},
    }


def _mean(spans: Sequence[Span], of: Callable[[Span], float | None]) -> float:
    """Return the mean over the launches that say something, 0 where none does."""
    values = [value for span in spans if (value := of(span)) is not None]
    return math.fsum(values) / len(values) if values else 0.0


def _change(span: Span, name: str) -> float | None:
    before, after = span[0].get(name), span[1].get(name)
    return None if before is None or after is None else float(after - before)


def _share(span: Span, name: str, cpus: int) -> float | None:
    seconds, wall = _change(span, name), _change(span, "at")
    return None if seconds is None or not wall else seconds / (wall * cpus)


def _others(span: Span) -> float | None:
    if not _change(span, "at"):
        return None
    return others_cpus(*span)

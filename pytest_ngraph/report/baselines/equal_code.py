"""How sessions of the same code differ on a machine: by its own history in the store, else by its noise profile."""

from __future__ import annotations

import math

from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.quantities.quantity import NotStored, Quantity
from pytest_ngraph.report.baselines.values import sessions_of
from pytest_ngraph.report.noise.profile import MachineProfile
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import PROTOCOLS, Cell
from pytest_ngraph.stats.sessions import LEAST_SESSIONS, Between, between_of
from pytest_ngraph.store.sqlite import Store


def between_sessions(
    store: Store, quantity: Quantity, metric: str, machine: Machine, profile: MachineProfile | None
) -> Between | None:
    """Return how means of sessions of the same code scatter for a metric of a cell, or None where that is not known.

    The history of this very cell comes first. A noise profile knows the latency of a small block, and ratios of it.
    """
    return _by_history(store, quantity, machine) or _by_profile(metric, profile)


def _by_history(store: Store, quantity: Quantity, machine: Machine) -> Between | None:
    """Pool the sessions of each evidence that was measured in several runs on this machine."""
    runs = {run.id: run for run in store.runs()}
    groups: dict[tuple[str, ...], set[int]] = {}
    seen = [store.evidence_by_run(cell) for cell in quantity.cells]
    for run_id in set(seen[0]).intersection(*seen[1:]):
        here = Machine.of(runs[run_id].on(quantity.subject.device).environment)
        if here.hardware == machine.hardware and here.name == machine.name:
            groups.setdefault(tuple(known[run_id] for known in seen), set()).add(run_id)
    groups = {keys: found for keys, found in groups.items() if len(found) > 1}
    if sum(len(found) - 1 for found in groups.values()) < LEAST_SESSIONS - 1:
        return None
    means = [
        _session_means(store, quantity, dict(zip(quantity.cells, keys, strict=True)), here)
        for keys, here in groups.items()
    ]
    return between_of(means, f"{sum(map(len, means))} sessions in the store")


def _session_means(store: Store, quantity: Quantity, evidence: dict[Cell, str], here: set[int]) -> list[float]:
    """Return the mean of each of some runs that measured this evidence: others may be of another machine."""
    records = [record for record in store.launches(evidence, kind=quantity.kind, any_epoch=True) if record.run in here]
    timed, memory = ([], records) if quantity.memory else (records, [])
    try:
        rows = quantity.of_source(Stored(timed, memory, PROTOCOLS["gate"], 1)).rows()
    except NotStored:
        return []
    return [math.fsum(one.value for one in each) / len(each) for each in sessions_of(rows).values()]


def _by_profile(metric: str, profile: MachineProfile | None) -> Between | None:
    if profile is None or profile.sessions is None:
        return None
    scatter = {"latency": profile.sessions.latency, "speedup": profile.sessions.ratio}.get(metric)
    if scatter is None or profile.sessions.count < LEAST_SESSIONS:
        return None
    count = profile.sessions.count
    return Between(scatter**2, count - 1, f"{count} sessions of ngraph doctor --noise")

"""From a run in the store to a saved baseline."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.report.baselines.file import made_by
from pytest_ngraph.report.baselines.saved import Saved, SavedCell, SavedSweep
from pytest_ngraph.report.baselines.values import kept_of
from pytest_ngraph.spec.cells import protocol_of
from pytest_ngraph.store.rows import RunRow
from pytest_ngraph.store.sqlite import Store


def baseline_of_run(store: Store, run: RunRow, name: str, rootdir: Path) -> Saved:
    """Return the baseline that a run makes. Raise SpecError for one that has no numbers with an error rate."""
    protocol = protocol_of(run.protocol)
    if not protocol.error_control:
        raise SpecError(
            f"run {run.id} was measured by the protocol {run.protocol!r}, whose numbers have no error rate (expected "
            "one of --ngraph-protocol=gate; ngraph runs lists them)"
        )
    machines = {cell.device: Machine.of(run.on(cell.device).environment) for cell, _ in store.cells(run.id)}
    kept, sweeps, other_machines = list[SavedCell](), list[SavedSweep](), set[str]()
    cells, baselines = dict(store.cells(run.id)), store.baselines(run.id)
    for some in kept_of(store, cells, baselines, protocol, rootdir, machines.__getitem__):
        kept += [cell for cell, _ in some.cells.values()]
        sweeps += [sweep for _, sweep, _ in some.sweeps]
        other_machines.update(some.other_machines)
    if not kept:
        others = (
            f" (those of {', '.join(sorted(other_machines))} do not: it is another machine)" if other_machines else ""
        )
        raise SpecError(f"run {run.id} has no cell with two launches that count{others}: nothing to save")
    return Saved(
        name=name,
        saved_at=now(),
        made_by=made_by(),
        origin={
            "run": str(run.id),
            "uid": run.uid,
            "started_at": run.started_at,
            "commit": str(run.environment.get("git_commit") or ""),
            "launches": store.read_digest(),
        },
        protocol=protocol.name,
        seed=str(run.seed),
        machines={device: machines[device] for device in dict.fromkeys(cell.device for cell in kept)},
        cells=kept,
        sweeps=sweeps,
    )


def now() -> str:
    """Return the time, UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

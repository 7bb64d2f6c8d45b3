"""From a run in the store to a saved baseline."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

from pytest_ngraph.errors import SpecError
from pytest_ngraph.machine.kinship import Machine
from pytest_ngraph.report.baselines.file import Saved, made_by
from pytest_ngraph.report.baselines.values import saved_cells
from pytest_ngraph.spec.cells import PROTOCOLS
from pytest_ngraph.store.rows import RunRow
from pytest_ngraph.store.sqlite import Store


def baseline_of_run(store: Store, run: RunRow, name: str, rootdir: Path) -> Saved:
    """Return the baseline that a run makes. Raise SpecError for one that has no numbers with an error rate."""
    protocol = PROTOCOLS.get(run.protocol)
    if protocol is None or not protocol.error_control:
        raise SpecError(
            f"run {run.id} was measured by the protocol {run.protocol!r}, whose numbers have no error rate (expected "
            "one of --ngraph-protocol=gate; ngraph runs lists them)"
        )
    cells = dict(store.cells(run.id))
    kept = [cell for _, cell, _ in saved_cells(store, cells, store.baselines(run.id), protocol, rootdir)]
    if not kept:
        raise SpecError(f"run {run.id} has no cell with two launches that count: nothing to save")
    devices = dict.fromkeys(cell.device for cell in kept)
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
        machines={device: Machine.of(run.on(device).environment) for device in devices},
        cells=kept,
    )


def now() -> str:
    """Return the time, UTC, to the second."""
    return datetime.now(timezone.utc).isoformat(timespec="seconds")

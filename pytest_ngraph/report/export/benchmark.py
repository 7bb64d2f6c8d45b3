"""A run's times as a file that pytest-benchmark's own commands read, with the numbers of our own table."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import NotStored
from pytest_ngraph.report.export.benchmark_json import BenchmarkEntry, benchmark_document
from pytest_ngraph.report.export.files import write_text
from pytest_ngraph.report.results.cells import cpus_of, uncollected
from pytest_ngraph.report.results.offline import Judged
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.report.results.verdicts import verdicts_by_cell
from pytest_ngraph.spec.cells import Cell, LaunchRecord, protocol_of
from pytest_ngraph.store.rows import Origin, RunRow, VerdictRow
from pytest_ngraph.store.sqlite import Store

_ROUNDS = {"paper": "repetitions"}


def timed(store: Store, run: RunRow, judged: Judged | None = None) -> Mapping[Cell, list[float]]:
    """Return the cells of a run that are results and have a time, each with its rounds in seconds per call.

    A round is a launch: what the table makes of its clean calls in the state of the machine that counts. Under the
    protocol ``paper`` it is a repetition, each of which counts there. With ``judged`` the cells are those of an offline
    run, which were measured as those of ``run`` were.
    """
    every, compared = (dict(store.cells(run.id)), store.baselines(run.id)) if judged is None else judged
    cpus = cpus_of(run)
    # A second process that only controls the baseline is none.
    cells = {cell: key for cell, key in every.items() if not cell.replica or cell in compared}
    protocol = protocol_of(run.protocol)
    found: dict[Cell, list[float]] = {}
    with uncollected():
        for related in store.related(cells):
            source = Stored(related.timed, related.memory, protocol, cpus(related.cells[0].device))
            found.update((cell, _rounds(Measurement(source, cell, cell))) for cell in related.cells)
    return {cell: found[cell] for cell in cells if found.get(cell)}


def _rounds(measurement: Measurement) -> list[float]:
    try:
        rows = measurement.quantity("throughput").rows()
    except NotStored:
        return []
    samples, cell = measurement.workload.samples_per_call, measurement.cell
    seconds: list[float] = []
    for record, value in rows:
        seconds += _repetitions(record, cell) or [samples / math.exp(value.value)]
    return seconds


def _repetitions(record: LaunchRecord, cell: Cell) -> list[float]:
    """Return the seconds of the paper's repetitions, or nothing of a launch by another protocol."""
    if record.protocol != "paper":
        return []
    return [wall * 1e-9 / visit.calls for visit in record.visits_of(cell).values() for wall in visit.wall_ns]


def write_benchmark_json(
    path: Path, store_path: Path, run: RunRow, verdicts: Sequence[VerdictRow], judged: Judged | None = None
) -> None:
    """Write every cell of a run that has a time, in seconds per call, with its verdict where it has one.

    With ``judged`` the cells of an offline run, on the machine of ``run``. Raises StoreError where it cannot be
    written.
    """
    by_cell = verdicts_by_cell(verdicts)
    with Store.open(store_path, read_only=True) as store:
        times = timed(store, run, judged)
        origin = Origin(run.id, store.read_digest())
    entries = [
        BenchmarkEntry(
            name=f"{cell.compiler}-{cell.workload.label.replace(' ', '-')}",
            fullname=cell.label,
            group=cell.workload.label,
            params={"device": cell.device, "compiler": str(cell.compiler)},
            samples_seconds=seconds,
            extra_info={"ngraph_rounds": _ROUNDS.get(run.protocol, "launches")},
            verdict=by_cell.get(cell.label),
        )
        for cell, seconds in times.items()
    ]
    machine = {key: value for key, value in run.environment.items() if key != "versions"}
    machine.setdefault("node", "")
    commit = {
        "id": run.environment.get("git_commit"),
        "dirty": str(run.environment.get("git_commit")).endswith("-dirty"),
    }
    document = {**benchmark_document(entries, run=run, machine=machine, commit=commit), "ngraph": asdict(origin)}
    write_text(json.dumps(document, indent=1), path)

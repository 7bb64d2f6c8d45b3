"""The run's samples as a file that pytest-benchmark's own commands read."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path

from pytest_ngraph.report.export.benchmark_json import BenchmarkEntry, benchmark_document
from pytest_ngraph.report.export.files import write_text
from pytest_ngraph.report.results.verdicts import verdicts_by_cell
from pytest_ngraph.spec.cells import Cell, LaunchRecord
from pytest_ngraph.store.rows import Origin, RunRow
from pytest_ngraph.store.sqlite import Store


def timed(store: Store, run: RunRow) -> tuple[list[Cell], list[LaunchRecord]]:
    """Return the cells of a run that are results, and their launches."""
    compared = store.baselines(run.id)
    # A second process that only controls the baseline is none.
    cells = {cell: key for cell, key in store.cells(run.id) if not cell.replica or cell in compared}
    return list(cells), store.launches(cells)


def write_benchmark_json(path: Path, store_path: Path, run: RunRow) -> None:
    """Write every cell of a run with its raw samples, in seconds per call, and its verdict where it has one."""
    with Store.open(store_path, read_only=True) as store:
        verdicts = verdicts_by_cell(store.verdicts(run.id))
        cells, launches = timed(store, run)
        origin = Origin(run.id, store.read_digest())
    samples: dict[str, list[float]] = {}
    for record in launches:
        for (cell, _), visit in record.visits.items():
            samples.setdefault(cell.label, []).extend(wall * 1e-9 / visit.calls for wall in visit.wall_ns)
    entries = [
        BenchmarkEntry(
            name=f"{cell.compiler}-{cell.workload.label.replace(' ', '-')}",
            fullname=cell.label,
            group=cell.workload.label,
            params={"device": cell.device, "compiler": str(cell.compiler)},
            samples_seconds=samples[cell.label],
            verdict=verdicts.get(cell.label),
        )
        for cell in cells
        if cell.label in samples
    ]
    machine = {key: value for key, value in run.environment.items() if key != "versions"}
    machine.setdefault("node", "")
    commit = {
        "id": run.environment.get("git_commit"),
        "dirty": str(run.environment.get("git_commit")).endswith("-dirty"),
    }
    document = {**benchmark_document(entries, run=run, machine=machine, commit=commit), "ngraph": asdict(origin)}
    write_text(json.dumps(document, indent=1), path)

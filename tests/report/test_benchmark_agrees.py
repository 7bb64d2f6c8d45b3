"""What pytest-benchmark shows of a run is what our own table shows of it, whatever disturbed the run."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.report.export.benchmark import _rounds, write_benchmark_json
from pytest_ngraph.report.results.cells import cell_reports
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, LaunchRecord, Protocol, Visit, Workload
from pytest_ngraph.store.sqlite import Store
from tests.support.report_stores import (
    GATE,
    Lab,
    baseline_of,
    environment,
    evidence_of,
    groups_of,
    record_of,
    ref,
    visit_of,
)

LAB = Lab(["xeon"], ["identity", "openvino"], ["timm:resnet18"], [1, 8], [], [], launches=3, blocks=4, samples=24)


def waiting(visit: Visit) -> Visit:
    """Return a visit half of whose batches had to wait for a CPU, and took three times as long for it."""
    wall = tuple(3 * wall if place % 2 else wall for place, wall in enumerate(visit.wall_ns))
    delay = tuple(2 * one // 3 if place % 2 else 0 for place, one in enumerate(wall))
    return replace(visit, wall_ns=wall, run_delay_ns=delay)


def write(path: Path, protocol: Protocol = GATE) -> dict[str, float]:
    """Write a run of such visits, and a launch that does not count. Return the table's samples a second by cell."""
    [cells] = groups_of(LAB)
    evidence = evidence_of(cells)
    with Store.open(path) as store:
        run = store.start_run(
            "the-run", command=["pytest"], seed=7, protocol=protocol, environment=environment("xeon"), fresh=False,
            resumed=False, device="xeon",
        )  # fmt: skip
        store.use_cells(run, evidence)
        store.use_baselines(run, {cell: baseline_of(cell) for cell in cells if cell != baseline_of(cell)})
        for number in range(LAB.launches + 1):
            launch = store.start_launch(
                run, group="a", number=number, seed=number, protocol=protocol, order=[], environment={}
            )
            for cell in cells:
                store.add_prepared(launch, cell, evidence[cell], record_of(cell, number))
            for block in range(LAB.blocks):
                for position, cell in enumerate(cells):
                    store.add_visit(launch, cell, block, position, measured(cell, number, block))
            why_not = "too much else ran on this machine" if number == LAB.launches else ""
            store.finish_launch(launch, invalid=why_not, environment={})
        store.finish_run(run, "finished")
        return {report.cell.label: report.estimates["throughput"].value for report in cell_reports(store, run)}


def measured(cell: Cell, number: int, block: int) -> Visit:
    visit = visit_of(cell, number, block, LAB)
    if number == LAB.launches:
        return replace(visit, wall_ns=tuple(9 * wall for wall in visit.wall_ns))
    return waiting(visit)


def exported(path: Path) -> list[dict[str, Any]]:
    with Store.open(path, read_only=True) as store:
        run = store.runs()[-1]
        verdicts = store.verdicts(run.id)
    write_benchmark_json(path.with_name("bench.json"), path, run, verdicts)
    entries: list[dict[str, Any]] = json.loads(path.with_name("bench.json").read_text())["benchmarks"]
    return entries


def batch_of(entry: dict[str, Any]) -> int:
    return 8 if "batch8" in entry["name"] else 1


def test_the_numbers_are_those_of_the_table_where_calls_had_to_wait(tmp_path: Path) -> None:
    table = write(tmp_path / "results.sqlite")

    entries = exported(tmp_path / "results.sqlite")

    assert {entry["fullname"] for entry in entries} == set(table)
    for entry in entries:
        expected = table[entry["fullname"]]
        assert entry["stats"]["ops"] * batch_of(entry) == pytest.approx(expected, rel=1e-3)
        assert batch_of(entry) / entry["stats"]["mean"] == pytest.approx(expected, rel=1e-3)
        assert entry["stats"]["rounds"] == LAB.launches
        assert entry["extra_info"]["ngraph_rounds"] == "launches"


def test_the_repetitions_of_the_paper_all_count_as_they_do_in_its_table(tmp_path: Path) -> None:
    table = write(tmp_path / "results.sqlite", PROTOCOLS["paper"])

    entries = exported(tmp_path / "results.sqlite")

    for entry in entries:
        assert entry["stats"]["ops"] * batch_of(entry) == pytest.approx(table[entry["fullname"]], rel=1e-3)
        assert entry["stats"]["rounds"] == LAB.launches * LAB.blocks * LAB.samples
        assert entry["extra_info"]["ngraph_rounds"] == "repetitions"


def test_calls_of_a_mix_have_the_samples_of_its_mean_call() -> None:
    cell = Cell("local", CompilerSpec("null"), Workload(ref("timm:resnet18"), 8, shapes="mix[batch=1x7+8x3]"))
    row = LaunchRecord(0, 0, "gate"), SimpleNamespace(value=math.log(310.0))
    quantity = SimpleNamespace(rows=lambda: [row])
    made = SimpleNamespace(workload=cell.workload, cell=cell, quantity=lambda metric: quantity)
    assert _rounds(made) == pytest.approx([3.1 / 310])  # type: ignore[arg-type]


def test_pytest_benchmark_itself_shows_them(tmp_path: Path) -> None:
    pytest.importorskip("pytest_benchmark")
    table = write(tmp_path / "results.sqlite")
    exported(tmp_path / "results.sqlite")

    command = [sys.executable, "-m", "pytest_benchmark", "compare", "bench.json", "--csv=t.csv", "--columns=ops,rounds"]
    subprocess.run(command, cwd=tmp_path, check=True, capture_output=True)

    rows = (tmp_path / "t.csv").read_text().splitlines()[1:]
    shown = sorted(float(row.split(",")[-2]) for row in rows)
    calls = sorted(value / (8 if "batch8" in label else 1) for label, value in table.items())
    assert shown == pytest.approx(calls, rel=1e-3)

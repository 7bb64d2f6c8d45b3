"""Reports read a store in groups of cells that share launches; they must say what one look at each cell says."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.quantities.measurement import Measurement
from pytest_ngraph.quantities.quantity import Estimate, NotStored
from pytest_ngraph.quantities.sweeps import BatchSweep, DepthSweep
from pytest_ngraph.report.answer.not_run import outcome_of
from pytest_ngraph.report.at_once import Connected, estimates_at_once
from pytest_ngraph.report.results.cells import CELL_METRICS, OF_TOKENS, CellReport, cell_reports, reports_of, tidy_rows
from pytest_ngraph.report.results.stored import Stored
from pytest_ngraph.spec.cells import Cell, CompileRecord, LaunchRecord, Outcome, Reading, Visit
from pytest_ngraph.store.sqlite import Store
from tests.golden.store_content import change
from tests.support.report_stores import (
    GATE,
    Lab,
    baseline_of,
    evidence_of,
    groups_of,
    of,
    record_of,
    visit_of,
    write_store,
)

NEAR, FAR = Reading(150_000, (260,)), Reading(150_000, (900,))
LAB = Lab(devices=("xeon",), models=("timm:resnet18", "timm:swin_tiny"), batches=(1, 2), depths=(1, 2), widths=(64,))


def untidy_store(path: Path) -> tuple[dict[Cell, str], dict[Cell, Cell]]:
    """Write launches of all kinds: of overlapping groups, invalid, before an epoch, of two states, memory, failed."""
    draw = random.Random(3)
    groups = groups_of(LAB)
    cells = [cell for group in groups for cell in group]
    evidence = evidence_of(cells)
    with Store.open(path) as store:
        run = store.start_run("run", command=[], seed=0, protocol=GATE, environment={}, fresh=False, resumed=False)

        def launch(
            number: int, chosen: list[Cell], keys: Mapping[Cell, str], kind: str = "timed", invalid: str = ""
        ) -> None:
            started = store.start_launch(
                run, group="g", number=number, seed=number, protocol=GATE, kind=kind, order=[], environment={}
            )
            broken = set(draw.sample(chosen, len(chosen) // 6))
            for cell in chosen:
                record = replace(record_of(cell, number), loaded=number > 1, peak_memory_bytes=1000 + number)
                if cell in broken and kind == "timed":
                    record = CompileRecord(draw.choice([Outcome.CRASH, Outcome.UNSTABLE]), "it went away")
                store.add_prepared(started, cell, keys[cell], record)
                if kind == "timed" and record.outcome is not Outcome.CRASH:
                    for block in range(3):
                        visit = visit_of(cell, number, block, LAB)
                        # Another program took the CPU in one of them.
                        store.add_visit(
                            started,
                            cell,
                            block,
                            0,
                            replace(visit, run_delay_ns=visit.wall_ns) if draw.random() < 0.1 else visit,
                        )
            places = [NEAR if number % 5 else FAR] * 3
            store.finish_launch(started, invalid=invalid, environment={}, readings=[(one, one) for one in places])

        launch(0, cells, evidence)
        store.start_epoch(list(evidence.values())[:10])
        for number in range(1, 7):
            launch(number, draw.sample(cells, 20), evidence)
        launch(7, groups[0], evidence, invalid="too much else ran")
        launch(8, groups[0], dict.fromkeys(groups[0], "other"))
        launch(9, cells[:1], evidence, kind="memory")
        launch(10, groups[1], evidence)
        started = store.start_launch(run, group="g", number=11, seed=0, protocol=GATE, order=[], environment={})
        store.add_prepared(started, cells[0], evidence[cells[0]], record_of(cells[0], 0))
        store.commit()
    return evidence, {cell: baseline_of(cell) for cell in cells if cell != baseline_of(cell)}


@pytest.fixture(scope="module")
def untidy(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[Cell, str], dict[Cell, Cell]]:
    """A store in which everything has happened once, with its cells and their baselines."""
    path = tmp_path_factory.mktemp("untidy") / "results.sqlite"
    return path, *untidy_store(path)


def test_a_group_has_what_one_look_at_each_of_its_cells_gives(
    untidy: tuple[Path, dict[Cell, str], dict[Cell, Cell]],
) -> None:
    path, evidence, _ = untidy
    with Store.open(path, read_only=True) as store:
        groups = list(store.related(evidence))
        assert sorted(cell.label for group in groups for cell in group.cells) == sorted(cell.label for cell in evidence)
        for group in groups:
            keys = {cell: evidence[cell] for cell in group.cells}
            assert list(group.timed) == store.launches(keys)
            assert list(group.memory) == store.launches(keys, kind="memory")
            assert group.failed == store.failed(keys)
            assert group.failed or len(groups) > 1


def test_launches_of_a_group_are_all_there_are(untidy: tuple[Path, dict[Cell, str], dict[Cell, Cell]]) -> None:
    path, evidence, _ = untidy
    with Store.open(path, read_only=True) as store:
        numbers = [record.number for group in store.related(evidence) for record in group.timed]
        assert len(numbers) == len(set(numbers)) == len(store.launches(evidence))
        assert 7 not in numbers
        assert 8 not in numbers


def test_estimates_are_those_of_each_cell_by_itself(untidy: tuple[Path, dict[Cell, str], dict[Cell, Cell]]) -> None:
    path, evidence, baselines = untidy
    with Store.open(path, read_only=True) as store:
        reports = reports_of(store, evidence, baselines, GATE, 2)
        timed, memory = store.launches(evidence), store.launches(evidence, kind="memory")
        failed = store.failed(evidence)
    assert [report.cell for report in reports] == list(evidence)
    for report in reports:
        # Without what reading one thing once keeps: new records, a new source.
        source = Stored([again(record) for record in timed], memory, GATE, 2)
        assert dict(report.estimates) == by_itself(source, report, evidence, baselines)
        assert report.failure == failed.get(report.cell)
        assert report.record == source.known(report.cell)


def test_what_is_made_at_once_is_what_is_made_one_by_one(tmp_path: Path) -> None:
    path = tmp_path / "regular.sqlite"
    lab = Lab(devices=("xeon",), models=("timm:resnet18", "timm:swin_tiny"), batches=(1, 2, 8), depths=(), blocks=8)
    write_store(path, lab)
    with Store.open(path, read_only=True) as store:
        run = store.runs()[-1]
        evidence, baselines = dict(store.cells(run.id)), store.baselines(run.id)
        (related,) = store.related(evidence)
        made = estimates_at_once([Connected(related.cells, related.timed, 8)], baselines, GATE)
        reports = reports_of(store, evidence, baselines, GATE, 8)
    ones = {"throughput", "latency", "cpu_percent", "first_call_seconds", "compile_seconds", "model_bytes"}
    for report in reports:
        source = Stored([again(record) for record in related.timed], [], GATE, 8)
        expected = by_itself(source, report, evidence, baselines)
        assert list(report.estimates) == list(expected)
        for name, estimate in expected.items():
            found = report.estimates[name]
            for end in ("value", "low", "high"):
                assert getattr(found, end) == pytest.approx(getattr(estimate, end), rel=1e-12), (name, end)
            assert found.launches == estimate.launches == 4
        if report.baseline is not None:
            wanted = ones | {"speedup", "cpu_reduction_percent", "warmup_seconds", "load_seconds"}
            assert made[report.cell].keys() >= wanted | (
                {"rtr", "ase", "bsr"} if report.cell.workload.batch > 1 else set()
            )


def again(record: LaunchRecord) -> LaunchRecord:
    return replace(record, derived={})


def by_itself(
    source: Stored, report: CellReport, cells: Mapping[Cell, str], baselines: Mapping[Cell, Cell]
) -> dict[str, Estimate]:
    """Return every estimate of a cell, looked for without any short cut."""
    cell, workload = report.cell, report.cell.workload
    baseline = baselines.get(cell)
    measured = Measurement(source, cell, baseline or cell)
    relative = ("speedup", "cpu_reduction_percent", "bsr")
    # None of these cells generates tokens.
    offered = [name for name in CELL_METRICS if name not in OF_TOKENS]
    quantities = [measured.quantity(name) for name in offered if baseline or name not in relative]
    if workload.batch > 1:
        first = replace(cell, workload=replace(workload, batch=1))
        at_one = Measurement(source, first, baselines.get(first, first))
        sweep = BatchSweep(source, {1: at_one, workload.batch: measured}, (workload.batch,))
        quantities += [
            sweep.quantity(name, workload.batch) for name in ("rtr", "ase", "bsr") if baseline or name != "bsr"
        ]
    if workload.depth == 2 and baseline:
        single = replace(cell, workload=replace(workload, depth=1))
        depths = {1: Measurement(source, single, baselines[single]), 2: measured}
        quantities += [DepthSweep(source, depths, (1, 2)).quantity(name) for name in ("slope", "retention")]
    found = {}
    for quantity in quantities:
        try:
            found[quantity.metric.name] = quantity.estimate()
        except NotStored:
            continue
    return found


def test_cells_of_one_store_that_share_no_launch_are_not_compared(tmp_path: Path) -> None:
    """However many groups are computed together: each of these cells has launches of its own."""
    path, (one, eight, baseline) = tmp_path / "apart.sqlite", APART
    evidence = evidence_of(APART)
    with Store.open(path) as store:
        run = store.start_run("run", command=[], seed=0, protocol=GATE, environment={}, fresh=False, resumed=False)
        store.use_cells(run, evidence)
        store.use_baselines(run, {eight: baseline})
        for number, cell in enumerate([one, eight, baseline] * 3):
            write_launch(store, run, number, [cell], evidence)
    with Store.open(path, read_only=True) as store:
        reports = {report.cell: report for report in cell_reports(store, run)}
    assert reports.keys() == set(APART)
    assert {report.estimates["latency"].launches for report in reports.values()} == {3}
    assert not {"speedup", "cpu_reduction_percent", "rtr", "ase", "bsr"} & reports[eight].estimates.keys()


def test_a_damaged_launch_no_longer_connects_the_cells_that_it_holds(tmp_path: Path) -> None:
    path, cells = tmp_path / "bridge.sqlite", APART
    evidence = evidence_of(cells)
    with Store.open(path) as store:
        run = store.start_run("run", command=[], seed=0, protocol=GATE, environment={}, fresh=False, resumed=False)
        store.use_cells(run, evidence)
        for number, some in enumerate([cells[:2], cells[1:], cells[:2], cells[2:]]):
            write_launch(store, run, number, some, evidence)
    with Store.open(path, read_only=True) as store:
        (whole,) = store.related(evidence)
        assert [record.number for record in whole.timed] == [0, 1, 2, 3]
    # The second launch is what connects the third cell; with others of their own nothing is said of it at opening.
    with closing(sqlite3.connect(path)) as another, another:
        another.execute("UPDATE visits SET wall_ns = cpu_ns WHERE launch_id = 2 AND cell_id = 2")
    with Store.open(path, read_only=True) as store:
        assert store.damaged == {}
        groups = list(store.related(evidence))
        assert set(store.damaged) == {2}
        assert [(list(group.cells), [record.number for record in group.timed]) for group in groups] == [
            (list(cells[:2]), [0, 2]),
            (list(cells[2:]), [3]),
        ]
        for group in groups:
            assert list(group.timed) == store.launches({cell: evidence[cell] for cell in group.cells})


def test_a_run_is_read_by_a_few_statements_for_each_launch_and_each_sample_once(tmp_path: Path) -> None:
    path = tmp_path / "many.sqlite"
    batches = range(1, 81)
    run = write_store(path, Lab(devices=("xeon",), models=("timm:resnet18",), batches=batches, depths=(), launches=3))
    statements: list[str] = []
    with Store.open(path, read_only=True) as store:
        evidence = dict(store.cells(run))
        store._connection.set_trace_callback(statements.append)
        (related,) = store.related(evidence)
        store._connection.set_trace_callback(None)
    assert (len(evidence), len(related.timed)) == (320, 3)
    # Of each launch its row, what was prepared and its samples; a few for all, however many cells there are.
    assert len(statements) <= 3 * 3 + 10
    assert sum("FROM visits" in statement for statement in statements) == 3


APART = (of("timm:resnet18", batch=1), of("timm:resnet18"), of("timm:resnet18", "identity"))


def write_launch(store: Store, run: int, number: int, cells: Sequence[Cell], evidence: Mapping[Cell, str]) -> None:
    launch = store.start_launch(run, group="g", number=number, seed=number, protocol=GATE, order=[], environment={})
    for cell in cells:
        store.add_prepared(launch, cell, evidence[cell], record_of(cell, number))
        for block in range(3):
            store.add_visit(launch, cell, block, 0, visit_of(cell, number, block, LAB))
    store.finish_launch(launch, environment={})


def test_a_stack_and_widths_have_their_metrics_at_the_deepest_and_the_widest_cell(tmp_path: Path) -> None:
    path = tmp_path / "blocks.sqlite"
    run = write_store(path, Lab(devices=("xeon",), models=(), depths=(1, 2, 3), batches=(1, 8)))
    with Store.open(path, read_only=True) as store:
        reports = cell_reports(store, run)

    def those_with(metric: str) -> set[tuple[int | None, int | None, int, str]]:
        found = (report.cell for report in reports if metric in report.estimates)
        return {(cell.workload.depth, cell.workload.width, cell.workload.batch, cell.compiler.name) for cell in found}

    compilers = ("onnxruntime", "torchscript", "openvino")
    assert those_with("slope") == {
        (3, width, batch, name) for width in (64, 96) for batch in (1, 8) for name in compilers
    }
    assert those_with("retention") == those_with("slope")
    assert those_with("friction") == {(depth, 96, 8, name) for depth in (1, 2, 3) for name in (*compilers, "identity")}
    # Speed-ups of 1.8, 1.8 * 1.12 and 1.8 * 1.24, but for the part that is not the samples'.
    deepest = next(one for one in reports if one.cell.compiler.name == "openvino" and "slope" in one.estimates)
    assert 0 < deepest.estimates["slope"].value < 0.6
    assert 1.1 < deepest.estimates["retention"].value < 1.4


def test_each_device_has_its_own_cpus(tmp_path: Path) -> None:
    path = tmp_path / "devices.sqlite"
    run = write_store(path, Lab(models=("timm:resnet18",), batches=(1,), depths=(), launches=2))
    with Store.open(path, read_only=True) as store:
        reports = cell_reports(store, run)

    # Six CPUs' worth of time in each call: of eight there, of six here.
    usage = {report.cell.device: report.estimates["cpu_percent"].value for report in reports}
    assert usage == {"xeon": pytest.approx(75), "orin": pytest.approx(100)}


def test_a_cell_that_failed_has_a_row_that_says_so(tmp_path: Path) -> None:
    path, broken = tmp_path / "failed.sqlite", of("timm:resnet18", "tvm")
    run = write_store(
        path, Lab(devices=("xeon",), models=("timm:resnet18",), batches=(8,), depths=()), failed={broken: "no"}
    )
    with Store.open(path, read_only=True) as store:
        rows = [row for row in tidy_rows(cell_reports(store, run)) if row["compiler"] == "tvm"]

    assert [(row["outcome"], row["metric"]) for row in rows] == [("failed", None)]


def test_a_cell_of_which_no_launch_counts_says_why(tmp_path: Path) -> None:
    path, kept = tmp_path / "disturbed.sqlite", of("timm:resnet18")
    run = write_store(path, Lab(devices=("xeon",), models=("timm:resnet18",), batches=(8,), depths=()))
    change(path, "UPDATE launches SET invalid = 'too much else ran'")
    with Store.open(path, read_only=True) as store:
        reports = cell_reports(store, run)

    assert kept in [report.cell for report in reports]
    assert {(report.outcome, report.invalid) for report in reports} == {("invalid", "too much else ran")}
    assert {(row["outcome"], row["metric"]) for row in tidy_rows(reports)} == {("invalid", None)}
    assert {outcome_of(report) for report in reports} == {("invalid", "too much else ran")}


def test_visits_of_a_launch_are_found_for_each_cell() -> None:
    one, other = of("timm:resnet18"), of("timm:swin_tiny")
    visits = {(one, 0): Visit(1, (1,)), (other, 0): Visit(1, (2,)), (one, 2): Visit(1, (3,))}
    record = LaunchRecord(0, 0, "gate", {one: CompileRecord(Outcome.OK), other: CompileRecord(Outcome.FAILED)}, visits)

    assert record.visits_of(one) == {0: Visit(1, (1,)), 2: Visit(1, (3,))}
    assert record.holds([one])
    assert not record.holds([one, other])
    # A changed copy looks again.
    assert replace(record, visits={(one, 0): Visit(1, (1,))}).visits_of(one) == {0: Visit(1, (1,))}

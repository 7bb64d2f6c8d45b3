"""The store knows which runs there were, the cells they used and how their claims were judged."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.errors import StoreError
from pytest_ngraph.spec.cells import PROTOCOLS, Workload
from pytest_ngraph.store import codec
from pytest_ngraph.store.rows import LeftOut
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model
from tests.golden.store_content import (
    BASELINE,
    BROKEN,
    EVIDENCE,
    FASTER,
    GATE,
    NODEID,
    add,
    cell,
    change,
    fill,
    launch,
    start_run,
    verdict,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / ".ngraph" / "results.sqlite"


@pytest.fixture
def store(path: Path) -> Iterator[Store]:
    with Store.open(path) as opened:
        yield opened


def test_siblings_of_a_run_share_it_and_resuming_opens_it_again(store: Store) -> None:
    run_id = start_run(store)
    assert start_run(store) == run_id
    assert start_run(store, "run-2") != run_id
    store.finish_run(run_id, "interrupted")
    assert start_run(store, resumed=True) == run_id
    run = store.runs()[0]
    assert (run.status, run.finished_at, run.resumed) == ("running", None, True)


def test_a_run_comes_back_with_what_it_was_started_with(store: Store) -> None:
    start_run(store)
    (run,) = store.runs()
    assert run.command == ("pytest", "suite", "--ngraph-device=local")
    assert (run.uid, run.seed, run.protocol, run.fresh) == ("run-1", 2**64 - 1, "gate", False)
    assert run.environment == {"python": "3.11", "cpus": [0, 1]}
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT[\d:.]+\+00:00", run.started_at)


def test_what_is_left_out_is_kept_once_however_many_processes_say_it_and_is_no_fact_of_the_machine(
    store: Store, path: Path
) -> None:
    run_id = start_run(store)
    some = LeftOut("local", "tvm", "timm:resnet18", "not installed", 2)
    other = LeftOut("orin", "tvm", "timm:resnet18", "not installed there", 1)
    store.leave_out(run_id, [some, other])
    with Store.open(path) as sibling:
        sibling.leave_out(run_id, [replace(some, cells=1), replace(some, model="timm:resnet50")])
    # A second device joins the run, and the run is resumed.
    start_run(store, resumed=True)
    store.start_run(
        "run-1", command=[], seed=0, protocol=GATE, environment={"cpus": [0]}, fresh=False, resumed=False, device="orin"
    )  # fmt: skip

    (run,) = store.runs()
    assert run.left_out == (some, replace(some, model="timm:resnet50"), other)
    assert run.on("local").environment == {"python": "3.11", "cpus": [0, 1]}
    assert run.on("orin").environment == {"cpus": [0]}
    assert "left_out" not in run.environment


def test_what_is_left_out_is_counted_by_the_cells_that_its_processes_name_and_told_apart_by_its_reasons(
    store: Store, path: Path
) -> None:
    run_id = start_run(store)
    one = LeftOut("local", "tvm", "timm:resnet18", "not installed", 2, ("a", "b"))
    store.leave_out(run_id, [one, replace(one, reason="nncf is not installed", cells=1, labels=("d",))])
    with Store.open(path) as sibling:
        sibling.leave_out(run_id, [replace(one, labels=("b", "c"))])

    (run,) = store.runs()
    assert run.left_out == (
        replace(one, reason="nncf is not installed", cells=1, labels=("d",)),
        replace(one, cells=3, labels=("a", "b", "c")),
    )


def test_runs_say_whether_they_finished(store: Store) -> None:
    first, _, third = (start_run(store, uid) for uid in ("a", "b", "c"))
    store.finish_run(third, "finished")
    store.finish_run(first, "interrupted")
    assert [(run.uid, run.status) for run in store.runs()] == [
        ("a", "interrupted"), ("b", "running"), ("c", "finished"),
    ]  # fmt: skip


def test_a_run_knows_the_cells_it_measured_and_those_it_only_judged(store: Store) -> None:
    run_id = fill(store, launches=2)
    judging = start_run(store, "run-2")
    assert store.cells(judging) == []
    store.use_cells(judging, {FASTER: EVIDENCE[FASTER]})
    store.use_cells(judging, {FASTER: EVIDENCE[FASTER], cell("tvm"): "never measured"})
    assert dict(store.cells(judging)) == {FASTER: EVIDENCE[FASTER], cell("tvm"): "never measured"}
    store.use_cells(run_id, {FASTER: EVIDENCE[FASTER]})
    assert len(store.cells(run_id)) == len(EVIDENCE)
    assert dict(store.cells(run_id)) == EVIDENCE


def test_the_latest_evidence_is_of_the_protocol_and_the_seed_that_are_asked_for(store: Store) -> None:
    store.use_cells(start_run(store), {FASTER: "by gate"})
    quick = store.start_run(
        "run-2", command=[], seed=7, protocol=PROTOCOLS["quick"], environment={}, fresh=False, resumed=False
    )
    store.use_cells(quick, {FASTER: "by quick"})
    assert store.latest_evidence(FASTER) == "by quick"
    assert store.latest_evidence(FASTER, protocol="gate") == "by gate"
    assert store.latest_evidence(FASTER, protocol="gate", seed=2**64 - 1) == "by gate"
    assert store.latest_evidence(FASTER, protocol="gate", seed=7) is None
    assert store.latest_evidence(FASTER, protocol="quick", seed=7) == "by quick"


@pytest.mark.parametrize(("old", "new"), [("a", "b"), ("b", "a")])
def test_the_latest_evidence_of_a_resumed_run_is_what_it_measured_last(store: Store, old: str, new: str) -> None:
    run_id = start_run(store)
    for key in (old, new):
        add(store, run_id, launch(1), dict.fromkeys(EVIDENCE, key))
        store.use_cells(run_id, {FASTER: key})
    assert store.latest_evidence(FASTER) == new
    assert dict(store.cells(run_id))[FASTER] == new


def test_a_run_that_another_process_took_out_says_so(store: Store, path: Path) -> None:
    run_id = start_run(store)
    change(path, "DELETE FROM runs")
    gone = f"store {re.escape(str(path))}: run 1 is not in it any more: .*run again"
    with pytest.raises(StoreError, match=gone):
        store.leave_out(run_id, [LeftOut("local", "tvm", "timm:resnet18", "not installed", 2)])
    with pytest.raises(StoreError, match=gone):
        store.finish_run(run_id, "finished")


def test_a_cell_is_the_same_whether_its_defaults_are_written_or_not() -> None:
    text = codec.cell_to_text(cell())
    assert "depth" not in text
    assert codec.cell_from_text(text) == cell()
    wide = replace(cell(), workload=Workload(parse_model("block:conv"), 8, depth=3, width=64, image_size=56))
    assert codec.cell_from_text(codec.cell_to_text(wide)) == wide


def test_cells_can_be_queried_by_their_axes(store: Store, path: Path) -> None:
    fill(store, launches=1)
    reader = sqlite3.connect(path)
    query = """
        SELECT compiler, model, batch, precision, outcome, compile_seconds, sum(samples)
        FROM visits JOIN prepared USING (launch_id, cell_id) JOIN cells ON cells.id = cell_id
        GROUP BY cell_id ORDER BY compiler
    """
    rows = reader.execute(query).fetchall()
    reader.close()
    assert rows == [
        ("identity", "timm:resnet18", 8, "f32", "ok", None, 6),
        ("onnxruntime[threads=1]", "timm:resnet18", 8, "f32", "ok", 0.5, 6),
    ]


# Verdicts


def test_verdicts_come_back_as_judged_last_in_their_run(store: Store) -> None:
    run_id = fill(store, launches=1)
    assert store.verdicts(run_id) == [verdict()]
    again, other = verdict(value=1.4), verdict("latency <= 2 ms", None)
    store.add_verdict(run_id, again)
    store.add_verdict(run_id, other)
    assert store.verdicts(run_id) == [again, other]
    assert store.verdicts(start_run(store, "run-2")) == []


def test_the_claims_of_a_test_are_those_of_the_latest_run_that_judged_it(store: Store) -> None:
    fill(store, launches=1)
    assert store.claims(NODEID) == [verdict()]
    second = start_run(store, "run-2")
    assert store.claims(NODEID) == [verdict()]
    store.add_verdict(second, verdict("speedup >= 1.3"))
    assert store.claims(NODEID) == [verdict("speedup >= 1.3")]
    assert store.claims("another test") == []


def test_a_run_knows_what_its_cells_were_compared_with(store: Store) -> None:
    run_id = start_run(store)
    store.use_baselines(run_id, {FASTER: BASELINE})
    store.use_baselines(run_id, {FASTER: BROKEN})
    assert store.baselines(run_id) == {FASTER: BASELINE}
    assert store.baselines(run_id + 1) == {}

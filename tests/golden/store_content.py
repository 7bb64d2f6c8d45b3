"""What the stores of the tests hold; run as a script, it writes the golden file of the present schema."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from pytest_ngraph.errors import StoreError
from pytest_ngraph.spec import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    LaunchRecord,
    Outcome,
    Visit,
    Workload,
)
from pytest_ngraph.store import schema
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model

GATE = PROTOCOLS["gate"]
NODEID = "suite/test_speed.py::test_faster[local-onnxruntime]"


def cell(compiler: str = "identity", batch: int = 1, replica: int = 0) -> Cell:
    return Cell("local", CompilerSpec.parse(compiler), Workload(parse_model("timm:resnet18"), batch), replica)


FASTER = cell("onnxruntime[threads=1]", batch=8)
BASELINE = cell(batch=8)
BROKEN = cell("openvino")
EVIDENCE = {BASELINE: "evidence-identity", FASTER: "evidence-onnxruntime", BROKEN: "evidence-openvino"}

RECORDS = {
    BASELINE: CompileRecord(Outcome.OK, call_seconds=0.004, warmup_seconds=(0.0041, 0.004), max_error=0.0),
    FASTER: CompileRecord(
        Outcome.OK,
        export_seconds=1.25,
        compile_seconds=0.5,
        loaded=True,
        first_call_seconds=0.1,
        model_bytes=46_830_571,
        peak_memory_bytes=1 << 33,
        max_error=1e-6,
        placement=(("provider", "CPUExecutionProvider"), ("threads", "1")),
    ),
    BROKEN: CompileRecord(Outcome.MISMATCH, "outputs differ by inf", max_error=float("inf")),
}


def visit(number: int, block: int) -> Visit:
    start = 4_000_000 + 1_000 * number + block
    return Visit(2, (start, start + 7, 2**62), cpu_ns=(start, start, 0), faults=(0, 0, 12) if block else ())


def launch(number: int) -> LaunchRecord:
    """Return launch ``number`` as it must come back when all of EVIDENCE is asked for."""
    visits = {(at, block): visit(number, block) for at in (BASELINE, FASTER) for block in (0, 1)}
    return LaunchRecord(number, 2**64 - number, "gate", RECORDS, visits)


# What stores can hold from schema 3 on: a cell that is rebuilt and has several calls in flight, and what tuning cost.
PIPED = replace(FASTER, workload=replace(FASTER.workload, scenario="throughput"), rebuild=True)
# What they can hold from schema 5 on: a network to which something is done.
PRUNED = replace(FASTER, workload=replace(FASTER.workload, optimize="mine=0.5", optimizers=(("mine", "made.by:US"),)))
PRUNED_EVIDENCE = {PRUNED: "evidence-pruned"}
# What they can hold from schema 7 on: tokens that are generated, by a build for several shapes, beside another model.
DECODED = replace(
    FASTER, workload=replace(FASTER.workload, sequence=16, decode=4, shapes="dynamic", neighbour="block:conv")
)
DECODED_EVIDENCE = {DECODED: "evidence-decoded"}
PIPED_EVIDENCE = {PIPED: "evidence-piped"}


def piped_launch() -> LaunchRecord:
    record = CompileRecord(Outcome.OK, tuning_seconds=90.5, tuning_trials=64)
    visit = Visit(4, (8_000, 8_100), cpu_ns=(1, 2), faults=(0, 0), request_ns=tuple(range(7_000, 7_008)))
    return LaunchRecord(9, 9, "gate", {PIPED: record}, {(PIPED, 0): visit})


def pruned_launch() -> LaunchRecord:
    record = CompileRecord(Outcome.OK, model_bytes=11_000_000)
    return LaunchRecord(10, 10, "gate", {PRUNED: record}, {(PRUNED, 0): Visit(2, (8_000, 8_100), cpu_ns=(1, 2))})


def decoded_launch() -> LaunchRecord:
    record = CompileRecord(Outcome.OK, model_bytes=11_000_000)
    return LaunchRecord(11, 11, "gate", {DECODED: record}, {(DECODED, 0): Visit(2, (8_000, 8_100), cpu_ns=(1, 2))})


def add_launch(store: Store, run_id: int, number: int, *, kind: str = "timed", invalid: str = "") -> int:
    return add(store, run_id, launch(number), EVIDENCE, kind=kind, invalid=invalid)


def add(
    store: Store,
    run_id: int,
    wanted: LaunchRecord,
    evidence: Mapping[Cell, str],
    *,
    kind: str = "timed",
    invalid: str = "",
) -> int:
    launch_id = store.start_launch(
        run_id,
        group="resnet18",
        number=wanted.number,
        seed=wanted.seed,
        protocol=GATE,
        kind=kind,
        order=[at.label for at in wanted.prepared],
        environment={"load": 0.25, "temperature": float("nan")},
    )
    for at, record in wanted.prepared.items():
        store.add_prepared(launch_id, at, evidence[at], record)
    for position, ((at, block), stay) in enumerate(wanted.visits.items()):
        store.add_visit(launch_id, at, block, position, stay)
        store.commit()
    store.finish_launch(launch_id, invalid=invalid, environment={"load": 0.5})
    return launch_id


def start_run(store: Store, uid: str = "run-1", *, resumed: bool = False) -> int:
    return store.start_run(
        uid,
        command=["pytest", "suite", "--ngraph-device=local"],
        seed=2**64 - 1,
        protocol=GATE,
        environment={"python": "3.11", "cpus": [0, 1]},
        fresh=False,
        resumed=resumed,
    )


def verdict(claim: str = "speedup >= 1.2", value: float | None = 1.31) -> VerdictRow:
    return VerdictRow(
        NODEID, claim, "speedup", 1.2, True, 0.05, value, 1.27, float("inf"), 3, "pass", 0.03, {"s2": 1e-4, "df": 2}
    )


def fill(store: Store, launches: int = 3) -> int:
    """Write a finished run of that many launches and return its id."""
    run_id = start_run(store)
    for number in range(1, launches + 1):
        add_launch(store, run_id, number)
    store.add_verdict(run_id, verdict())
    store.finish_run(run_id, "finished")
    return run_id


def filled(path: Path) -> Path:
    """Write a store with a finished run, close it, and return where it is."""
    with Store.open(path) as store:
        fill(store)
    return path


def change(path: Path, statement: str) -> None:
    """Change rows as the store itself does, with their seals."""
    with Store.open(path) as store, store._writing():
        store._connection.execute(statement)


def refusal(path: Path, *, read_only: bool = False) -> str:
    """Return why a store does not open, after the path that every message names."""
    with pytest.raises(StoreError) as caught:
        Store.open(path, read_only=read_only, wait_seconds=0.1)
    head = f"store {path}: "
    assert str(caught.value).startswith(head)
    return str(caught.value).removeprefix(head)


def kept(path: Path, *, read_only: bool = False) -> bool:
    with Store.open(path, read_only=read_only) as store:
        return store.launches(EVIDENCE)[:3] == [launch(1), launch(2), launch(3)]


if __name__ == "__main__":
    golden = Path(__file__).with_name(f"store_v{schema.SCHEMA_VERSION}.sqlite")
    golden.unlink(missing_ok=True)
    with Store.open(golden) as new:
        run = fill(new)
        add(new, run, piped_launch(), PIPED_EVIDENCE)
        add(new, run, pruned_launch(), PRUNED_EVIDENCE)
        add(new, run, decoded_launch(), DECODED_EVIDENCE)
        new.explain(FASTER, EVIDENCE[FASTER], {"label": FASTER.label})
    sys.stdout.write(f"{golden}\n")

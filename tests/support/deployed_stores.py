"""Stores of what is deployed, with known times: lengths, tokens, calls that arrive, and energy."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pytest_ngraph.load.scenarios import rate_of, server
from pytest_ngraph.spec.cells import Cell, CompileRecord, CompilerSpec, Outcome, Visit, Workload
from pytest_ngraph.spec.resources.power import POWER, Power, Window
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from tests.support.report_stores import GATE, baseline_of, environment, evidence_of, ref

BERT, GPT, SERVED = "transformers:bert-base-uncased", "transformers:gpt2[layers=2]", "timm:resnet18"
DEVICE = "local"
# Of a call at 32 tokens in milliseconds, the exponent over length, and what of the machine's watts a compiler draws.
COMPILERS = {"identity": (30.0, 1.1, 60.0), "onnxruntime": (20.0, 1.2, 55.0), "openvino": (12.0, 1.3, 50.0)}
IDLE_WATTS = 20.0
OVERLOADED_RATE = 80


@dataclass(frozen=True, slots=True)
class Deployed:
    """What is measured. Lengths are in the order in which they are given; ``energy`` is of each compiler or NaN."""

    lengths: Sequence[int | None] = (128, 32, 512)
    models: Sequence[str] = (BERT,)
    decode: Sequence[int | None] = (32, 128)
    rates: Sequence[int] = (10, 20, 40, OVERLOADED_RATE)
    compilers: Sequence[str] = tuple(COMPILERS)
    has_energy: bool = True
    launches: int = 4
    blocks: int = 3
    calls: int = 120


def cells_of(lab: Deployed) -> Iterator[list[Cell]]:
    """Yield the launch groups."""
    for model in lab.models:
        yield [_cell(name, Workload(ref(model), sequence=length)) for name in lab.compilers for length in lab.lengths]
    if lab.decode:
        yield [_cell(name, Workload(ref(GPT), sequence=length, decode=8))
               for name in lab.compilers for length in lab.decode]  # fmt: skip
    for rate in lab.rates:
        yield [_cell(name, Workload(ref(SERVED), scenario=server(rate))) for name in lab.compilers]


def _cell(name: str, workload: Workload) -> Cell:
    return Cell(DEVICE, CompilerSpec(name), workload)


def call_seconds(cell: Cell) -> float:
    """Return what a call takes: t ~ n^e, with the exponent of its compiler."""
    first, exponent, _ = COMPILERS[cell.compiler.name]
    return 1e-3 * first * float(((cell.workload.sequence or 32) / 32) ** exponent)


def is_overloaded(cell: Cell) -> bool:
    """Return whether more calls arrive than this cell answers: under all compilers but the fastest."""
    return rate_of(cell.workload.scenario) == OVERLOADED_RATE and cell.compiler.name != "openvino"


def record_of(cell: Cell) -> CompileRecord:
    """Return what preparing a cell gives."""
    rate = rate_of(cell.workload.scenario)
    if is_overloaded(cell):
        reason = (
            f"overloaded: {rate:g} calls a second arrive, and it can answer 50 (utilisation 1.60): the queue grows "
            "without end, so that a latency would say how long it was watched"
        )
        return CompileRecord(Outcome.UNSTABLE, reason)
    return CompileRecord(Outcome.OK, compile_seconds=1.0, call_seconds=call_seconds(cell), model_bytes=1 << 20)


def visit_of(cell: Cell, number: int, block: int, lab: Deployed) -> Visit:
    """Return a visit: its calls one by one, with their tokens or their latencies where there are such."""
    draw = random.Random(f"{cell.label} {number} {block}")
    seconds, steps, rate = call_seconds(cell), cell.workload.decode, rate_of(cell.workload.scenario)
    walls, requests = list[int](), list[int]()
    for _ in range(lab.calls if rate else 5):
        wall = int(1e9 * seconds * math.exp(draw.gauss(0, 0.004)))
        if rate:
            # The nearer to 100 calls a second, the longer they wait.
            requests.append(int(wall * (1 + draw.expovariate(1) * rate / (100 - rate))))
        elif steps:
            token = wall // 10
            requests += [wall, *[token] * steps]
            wall += token * steps
        walls.append(wall)
    return Visit(1, tuple(walls), tuple(walls), request_ns=tuple(requests))


def power_of(cell: Cell) -> Power:
    """Return what a pass says of a cell: its watts for the time of its calls."""
    watts, seconds = COMPILERS[cell.compiler.name][2], call_seconds(cell)
    busy = tuple(Window(block, 100 * seconds, 100 * seconds * watts, 100) for block in range(3))
    idle = tuple(Window(block, 2.0, 2.0 * IDLE_WATTS) for block in range(3))
    return Power("package", idle, busy)


def write_deployed(path: Path, lab: Deployed, verdicts: Sequence[VerdictRow] = ()) -> int:
    """Write a finished run. Return its number."""
    with Store.open(path) as store:
        run = store.start_run(
            "deployed", command=["pytest", "suite"], seed=7, protocol=GATE, environment=environment("xeon"),
            fresh=False, resumed=False,
        )  # fmt: skip
        for name, cells in enumerate(cells_of(lab)):
            evidence = evidence_of(cells)
            store.use_cells(run, evidence)
            store.use_baselines(run, {cell: baseline_of(cell) for cell in cells if cell != baseline_of(cell)})
            has_power = lab.has_energy and not any(rate_of(cell.workload.scenario) for cell in cells)
            for kind in ("timed", *([POWER] if has_power else [])):
                for number in range(lab.launches):
                    launch = store.start_launch(
                        run, group=str(name), number=number, seed=number, protocol=GATE, kind=kind, order=[],
                        environment={},
                    )  # fmt: skip
                    for cell in cells:
                        record = record_of(cell)
                        record = record if kind == "timed" else replace(record, power=power_of(cell))
                        store.add_prepared(launch, cell, evidence[cell], record)
                    for block in range(lab.blocks if kind == "timed" else 0):
                        for position, cell in enumerate(cells):
                            if not is_overloaded(cell):
                                store.add_visit(launch, cell, block, position, visit_of(cell, number, block, lab))
                    store.finish_launch(launch, environment={})
        for row in verdicts:
            store.add_verdict(run, row)
        store.finish_run(run, "finished")
    return run


def capacity_of(name: str, verdict: str, estimate: tuple[float, float, float] | None, rate: int = 20) -> VerdictRow:
    """Return a claim of capacity; the estimate is value, low and high."""
    cell, (value, low, high) = _cell(name, Workload(ref(SERVED), scenario=server(rate))), estimate or (None,) * 3
    about = f"capacity of {cell.label} at percentile 99 within 50.0 ms"
    return VerdictRow(
        nodeid=f"suite/test_serving.py::test_capacity[{cell.label.replace(' ', '-')}]",
        claim=f"assert_capacity: {about} at_least {rate} (no tolerance)",
        metric="capacity", bound=float(rate), at_least=True, tolerance=0.0, estimate=value, low=low, high=high,
        launches=4, verdict=verdict, smallest_effect=None,
        extra={"target": cell.target, "helper": "assert_capacity", "reason": "", "subject": cell.label},
    )  # fmt: skip


CAPACITIES = (
    capacity_of("openvino", "pass", (71.0, 68.0, 74.0)),
    capacity_of("onnxruntime", "inconclusive", (21.0, 17.0, 26.0)),
    capacity_of("identity", "fail", (12.0, 11.0, 13.0)),
)

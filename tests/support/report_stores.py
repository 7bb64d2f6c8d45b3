"""Stores as a lab fills them, with known times: what reports are tested with and looked at."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    ModelRef,
    Outcome,
    Visit,
    Workload,
    digest,
)
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store

GATE = PROTOCOLS["gate"]
# What a user may call a model, or a runtime say: nothing of it may be more than text.
NASTY = '<img src=x onerror="window.hurt=1">'
NASTY_REASON = "cannot fuse </script><script>window.hurt=1</script> & more"
# Milliseconds of a sample under the baseline; Swin and EfficientNet change places when compiled.
MODELS = {
    "timm:resnet18": 9.0, "timm:resnet50": 20.0, "timm:efficientnet_b3": 17.0, "timm:efficientnet_b5": 34.0,
    "timm:deit_small": 24.0, "timm:swin_tiny": 22.0,
}  # fmt: skip
# How many times faster than the baseline, by the family's kind; how much of a call is not for its samples.
COMPILERS = {
    "identity": ({}, 1.0), "onnxruntime": ({"timm:resnet": 1.5}, 0.7), "torchscript": ({}, 0.9),
    "openvino": ({"timm:resnet": 2.6, "timm:efficientnet": 1.15, "timm:swin": 2.4, "block:conv": 1.8}, 0.4),
}  # fmt: skip
DEVICES = {"xeon": 1.0, "orin": 1.7}


@dataclass(frozen=True, slots=True)
class Lab:
    """What is measured: every compiler and batch of each model, and blocks over depths and widths, on each device."""

    devices: Sequence[str] = tuple(DEVICES)
    compilers: Sequence[str] = tuple(COMPILERS)
    models: Sequence[str] = tuple(MODELS)
    batches: Sequence[int] = (1, 2, 4, 8, 16)
    depths: Sequence[int] = (1, 2, 3, 4)
    widths: Sequence[int] = (64, 96)
    launches: int = 4
    blocks: int = 3
    samples: int = 5
    together: bool = True  # all models of a device in one launch group


def ref(text: str) -> ModelRef:
    scheme, _, rest = text.partition(":")
    return ModelRef(text, scheme, rest)


def call_seconds(cell: Cell) -> float:
    """Return what a call takes: a part for the call, a part for each sample, less when compiled."""
    workload = cell.workload
    model = workload.model.text
    blocks = (workload.depth or 1) * (workload.width or 64) / 64
    sample = MODELS.get(model, 4.0 * blocks) * DEVICES.get(cell.device, 1.0)
    factors, overhead = COMPILERS.get(cell.compiler.name, ({}, 1.0))
    factor = next((factor for start, factor in factors.items() if model.startswith(start)), 1.0)
    if workload.depth is not None and cell.compiler.name == "openvino":
        factor *= 1 + 0.12 * (workload.depth - 1)
    saturating: float = 0.35 + 0.65 * workload.batch ** (-0.15 if cell.compiler.name == "identity" else -0.1)
    return 1e-3 * sample * (0.4 * overhead + workload.batch * saturating) / factor


def groups_of(lab: Lab) -> list[list[Cell]]:
    """Return the launch groups, the baseline's cells among them."""
    groups = []
    for device in lab.devices:
        cells = [
            [
                Cell(device, CompilerSpec(name), Workload(ref(model), batch))
                for name in lab.compilers
                for batch in lab.batches
            ]
            for model in lab.models
        ]
        groups += [[cell for group in cells for cell in group]] if lab.together else cells
        if lab.depths:
            ends = [batch for batch in (1, 8) if batch in lab.batches]
            groups.append(
                [
                    Cell(device, CompilerSpec(name), Workload(ref("block:conv"), batch, depth=depth, width=width))
                    for name in lab.compilers
                    for depth in lab.depths
                    for width in lab.widths
                    for batch in ends
                ]
            )
    return groups


def evidence_of(cells: Iterable[Cell]) -> dict[Cell, str]:
    return {cell: digest(cell.to_json()) for cell in cells}


def baseline_of(cell: Cell) -> Cell:
    return replace(cell, compiler=CompilerSpec("identity"))


def record_of(cell: Cell, number: int) -> CompileRecord:
    """Return what preparing a cell gives: the first launch compiles, the others load."""
    if cell.compiler.name == "identity":
        return CompileRecord(
            Outcome.OK, call_seconds=call_seconds(cell), placement=(("provider", "CPU"), ("threads", "8"))
        )
    return CompileRecord(
        Outcome.OK,
        compile_seconds=(2.0 + 0.1 * cell.workload.batch) * (1 + 0.05 * number),
        first_call_seconds=0.1,
        call_seconds=call_seconds(cell),
        model_bytes=46_830_571,
        max_error=2.5e-6 * (1 + cell.workload.batch),
        placement=(("provider", f"{cell.compiler.name} CPU"), ("precision", "f32"), ("threads", "8")),
    )


def visit_of(cell: Cell, number: int, block: int, lab: Lab) -> Visit:
    draw = random.Random(f"{cell.label} {number} {block}")
    usual = 1e9 * call_seconds(cell) * math.exp(draw.gauss(0, 0.002))
    wall = tuple(max(1, int(usual * math.exp(draw.gauss(0, 0.004)))) for _ in range(lab.samples))
    return Visit(1, wall, tuple(6 * each for each in wall), (0,) * lab.samples, (0,) * lab.samples)


def environment(device: str) -> dict[str, Any]:
    cpus = 8 if device == "xeon" else 6
    return {
        "machine": "x86_64", "system": "Linux", "cpu": f"A processor of {device}", "cpus": cpus, "python": "3.11.9",
        "kernel": "6.1", "memory_bytes": 1 << 35, "affinity": list(range(cpus)), "governor": "performance",
        "git_commit": "0123abcd", "versions": {"torch": "2.13.0", "openvino": "2026.4.1"},
    }  # fmt: skip


def write_store(path: Path, lab: Lab, verdicts: Sequence[VerdictRow] = (), failed: Mapping[Cell, str] = {}) -> int:
    """Write a finished run of a lab; ``failed`` are cells without a time, with the reason. Returns the run's number."""
    with Store.open(path) as store:
        run_id = 0
        for device in lab.devices:
            run_id = store.start_run(
                "the-run", command=["pytest", "suite"], seed=7, protocol=GATE, environment=environment(device),
                fresh=False, resumed=False, device=device,
            )  # fmt: skip
        for name, cells in enumerate(groups_of(lab)):
            evidence = evidence_of(cells)
            store.use_cells(run_id, evidence)
            store.use_baselines(run_id, {cell: baseline_of(cell) for cell in cells if cell != baseline_of(cell)})
            for number in range(lab.launches):
                launch = store.start_launch(
                    run_id, group=str(name), number=number, seed=number, protocol=GATE, order=[], environment={},
                )  # fmt: skip
                for cell in cells:
                    store.add_prepared(launch, cell, evidence[cell], record_of(cell, number))
                for block in range(lab.blocks):
                    for position, cell in enumerate(cells):
                        store.add_visit(launch, cell, block, position, visit_of(cell, number, block, lab))
                store.finish_launch(launch, environment={})
        if failed:
            evidence = evidence_of(failed)
            store.use_cells(run_id, evidence)
            launch = store.start_launch(
                run_id, group="failed", number=0, seed=0, protocol=GATE, order=[], environment={}
            )
            for cell, reason in failed.items():
                store.add_prepared(launch, cell, evidence[cell], CompileRecord(Outcome.FAILED, reason))
            store.finish_launch(launch, environment={})
        for row in verdicts:
            store.add_verdict(run_id, row)
        store.finish_run(run_id, "finished")
    return run_id


def verdict(
    cell: Cell,
    verdict: str,
    bound: float,
    estimate: tuple[float, float, float] | None,
    reason: str = "",
    test: str = "faster",
) -> VerdictRow:
    """Return a claim about a cell's speed-up; the estimate is value, low and high."""
    value, low, high = estimate or (None, None, None)
    return VerdictRow(
        nodeid=f"suite/test_speed.py::test_{test}[{cell.label.replace(' ', '-')}]",
        claim=f"assert_speedup: speed-up of {cell.label} over identity at_least {bound:g} (tolerance 0.05)",
        metric="speedup", bound=bound, at_least=True, tolerance=0.05, estimate=value, low=low, high=high, launches=4,
        verdict=verdict, smallest_effect=0.02,
        extra={"target": cell.target, "helper": "assert_speedup", "reason": reason, "subject": cell.label},
    )  # fmt: skip


def of(model: str, compiler: str = "openvino", batch: int = 8, device: str = "xeon") -> Cell:
    return Cell(device, CompilerSpec(compiler), Workload(ref(model), batch))


# A claim of every verdict, and a cell without a time whose names and reasons are nasty.
NASTY_CELL = Cell(
    "xeon", CompilerSpec("openvino"), Workload(ModelRef(f"models.py:{NASTY}", "file", f"/m.py:{NASTY}"), 8)
)
VERDICTS = (
    verdict(of("timm:resnet18"), "pass", 1.2, (2.65, 2.6, 2.7)),
    verdict(of("timm:resnet50"), "pass", 1.2, (2.64, 2.6, 2.68)),
    verdict(of("timm:efficientnet_b3"), "fail", 1.4, (1.2, 1.17, 1.23), "4 fresh launches confirmed it"),
    verdict(of("timm:swin_tiny"), "inconclusive", 2.4, (2.4, 2.2, 2.6), "the budget is spent"),
    verdict(of("timm:deit_small"), "invalid", 1.2, None, "4 launches do not count: too much else ran on this machine"),
    verdict(NASTY_CELL, "invalid", 1.2, None, NASTY_REASON, test=NASTY),
)  # fmt: skip
FAILED = {NASTY_CELL: NASTY_REASON}

"""Stores with several sessions of known times, each run on a machine and at a commit of its own choice."""

from __future__ import annotations

import math
import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, CompilerSpec, Outcome, Visit, Workload, digest
from pytest_ngraph.store.rows import VerdictRow
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model

FACTS: Mapping[str, Any] = {
    "node": "bench-1", "machine": "x86_64", "system": "Linux", "cpu": "A processor", "cpu_flags": "0123456789abcdef",
    "cpus": 8, "python": "3.11.9", "kernel": "6.1", "affinity": list(range(8)), "governor": "performance",
    "boost": "1", "cpu_quota": None, "memory_bytes": 1 << 35, "git_commit": "0123abcd",
    "versions": {"torch": "2.13.0", "onnxruntime": "1.31.1", "pytest": "8.4.0"},
}  # fmt: skip
BASE_MS, MS = 8.0, 4.0
MODEL = "block:conv"


def cell(compiler: str = "onnxruntime", batch: int = 1, **axes: int) -> Cell:
    return Cell("local", CompilerSpec.parse(compiler), Workload(parse_model(MODEL), batch, **axes))  # type: ignore[arg-type]


FAST, BASE = cell(), cell("identity")


@dataclass(frozen=True)
class Day:
    """A session: what a call of the compiled cell takes in milliseconds, at which commit, on which machine."""

    ms: float = MS
    commit: str = "0123abcd"
    code: str = "code"
    facts: Mapping[str, Any] = field(default_factory=dict)
    launches: int = 3
    scatter: float = 0.002
    compile_seconds: float = 2.0
    fast: Cell = FAST
    base: Cell = BASE
    protocol: str = "gate"
    # Whether it was measured with --ngraph-fresh: nothing of before counts for its gates.
    fresh: bool = False


def evidence(day: Day) -> dict[Cell, str]:
    return keys_of(day, (day.base, day.fast))


def add_day(path: Path, day: Day, number: int, verdicts: tuple[VerdictRow, ...] = ()) -> int:
    """Write a finished run and return its number. Runs of one number and day are the same to the last digit."""
    return _add(path, day, number, {day.base: BASE_MS, day.fast: day.ms}, {day.fast: day.base}, verdicts)


def add_sweep(path: Path, day: Day, number: int, times: Mapping[Cell, float]) -> int:
    """Write a run of one launch group. ``times`` gives what a call takes in milliseconds.

    Each cell is compared with that of the baseline of its workload, where there is one.
    """
    bases = {one.workload: one for one in times if one.compiler == day.base.compiler}
    against = {one: bases[one.workload] for one in times if one not in bases.values() and one.workload in bases}
    return _add(path, day, number, times, against, ())


def keys_of(day: Day, cells: Iterable[Cell]) -> dict[Cell, str]:
    return {one: digest([one.to_json(), day.code]) for one in cells}


def _add(
    path: Path,
    day: Day,
    number: int,
    times: Mapping[Cell, float],
    against: Mapping[Cell, Cell],
    verdicts: tuple[VerdictRow, ...],
) -> int:
    draw = random.Random(f"day {number}")
    facts = {**FACTS, **day.facts, "git_commit": day.commit}
    keys, protocol = keys_of(day, times), PROTOCOLS[day.protocol]
    with Store.open(path) as store:
        run = store.start_run(
            f"day-{number}",
            command=["pytest"],
            seed=0,
            protocol=protocol,
            environment=facts,
            fresh=day.fresh,
            resumed=False,
        )
        if day.fresh:
            store.start_epoch(keys.values(), run_id=run)
        store.use_cells(run, keys)
        store.use_baselines(run, against)
        for place in range(day.launches):
            launch = store.start_launch(
                run, group="g", number=place, seed=1000 * number + place, protocol=protocol, order=[], environment={}
            )
            for one, ms in times.items():
                record = CompileRecord(
                    Outcome.OK,
                    compile_seconds=day.compile_seconds * math.exp(draw.gauss(0, 0.01)),
                    call_seconds=ms / 1e3,
                    placement=(("provider", "CPU"), ("threads", "8")),
                )
                store.add_prepared(launch, one, keys[one], record)
                level = ms * math.exp(draw.gauss(0, day.scatter))
                for block in range(4):
                    wall = tuple(int(1e6 * level * math.exp(draw.gauss(0, 0.001))) for _ in range(5))
                    store.add_visit(launch, one, block, 0, Visit(1, wall, wall, (0,) * 5, (0,) * 5))
            store.finish_launch(launch, environment={})
        for row in verdicts:
            store.add_verdict(run, row)
        store.finish_run(run, "finished")
    return run


def on_path(day: Day, model: Path) -> Day:
    """Return the same with a model in a file of the project."""
    reference = replace(parse_model(MODEL), text=f"{model.name}:Net", scheme="file", locator=f"{model}:Net")
    fast, base = (replace(one, workload=replace(one.workload, model=reference)) for one in (day.fast, day.base))
    return replace(day, fast=fast, base=base)

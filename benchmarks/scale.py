"""What a store with a million samples costs: time and peak memory of writing, reading, reporting and exporting."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import random
import resource
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter

from benchmarks.pairs import finish, options, print_table, say
from pytest_ngraph.commands.export import export_run
from pytest_ngraph.machine.facts import describe, snapshot
from pytest_ngraph.report.results.cells import cell_reports
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, CompilerSpec, Outcome, Visit, Workload, digest
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.workloads.kinds import parse_model

# A group as a gate has it: three compilers, two batches, four launches of eight blocks, visits of 100 samples.
COMPILERS, BATCHES, LAUNCHES, BLOCKS, SAMPLES = ("identity", "onnxruntime", "openvino"), (1, 8), 4, 8, 100
PER_LAUNCH = len(COMPILERS) * len(BATCHES) * BLOCKS * SAMPLES
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """What a step took in a process of its own."""

    name: str
    samples: int
    seconds: float
    peak_bytes: int


def cells_of(group: int) -> list[Cell]:
    """Return the cells of a group: one model of its own, every compiler and batch."""
    model = parse_model(f"timm:model{group}")
    return [Cell("local", CompilerSpec(name), Workload(model, batch=batch)) for batch in BATCHES for name in COMPILERS]


def evidence_of(cells: list[Cell]) -> dict[Cell, str]:
    return {cell: digest(cell.to_json()) for cell in cells}


def visits_of(batch: int) -> list[Visit]:
    """Return a visit for each block, with a quiet machine's scatter; every launch is given the same ones."""
    draw = random.Random(batch)
    visits = []
    for _ in range(BLOCKS):
        wall = tuple(int(20e6 * batch * draw.lognormvariate(0, 0.02)) for _ in range(SAMPLES))
        delay = tuple(int(0.005 * value * draw.random()) for value in wall)
        visits.append(Visit(1, wall, wall, delay, (0,) * SAMPLES))
    return visits


def write(path: Path, samples: int) -> None:
    """Write a run launch by launch, as a session does: a commit for every block."""
    visits, protocol = {batch: visits_of(batch) for batch in BATCHES}, PROTOCOLS["gate"]
    with Store.open(path) as store:
        run_id = store.start_run(
            "scale", command=["pytest"], seed=0, protocol=protocol, environment=describe(), fresh=False, resumed=False
        )
        for group, number in launches_for(samples):
            cells = cells_of(group)
            evidence = evidence_of(cells)
            if number == 0:
                store.use_cells(run_id, evidence)
                baselines = dict(zip(BATCHES, cells[:: len(COMPILERS)], strict=True))
                others = [cell for cell in cells if cell.compiler.name != COMPILERS[0]]
                store.use_baselines(run_id, {cell: baselines[cell.workload.batch] for cell in others})
            launch_id = store.start_launch(
                run_id,
                group=str(group),
                number=number,
                seed=number,
                protocol=protocol,
                order=[cell.label for cell in cells],
                environment=snapshot(),
            )
            for cell in cells:
                record = CompileRecord(Outcome.OK, compile_seconds=1.0, first_call_seconds=0.1, call_seconds=0.02)
                store.add_prepared(launch_id, cell, evidence[cell], record)
            for block in range(BLOCKS):
                for position, cell in enumerate(cells):
                    store.add_visit(launch_id, cell, block, position, visits[cell.workload.batch][block])
                store.commit()
            store.finish_launch(launch_id, environment=snapshot())
        store.finish_run(run_id, "finished")


def launches_for(samples: int) -> Iterator[tuple[int, int]]:
    """Yield group and number of as many launches as hold these samples; the first group is always whole."""
    for launch in range(max(LAUNCHES, round(samples / PER_LAUNCH))):
        yield divmod(launch, LAUNCHES)


def read_group(path: Path, samples: int) -> None:
    """Read the launches of the first group, as a re-run of its test does."""
    with OPENED.pop(path) as store:
        assert len(store.launches(evidence_of(cells_of(0)))) == LAUNCHES


def open_store(path: Path, samples: int) -> None:
    """Open the store, which holds all that it says, samples apart, against its seals."""
    OPENED[path] = Store.open(path)


def report(path: Path, samples: int) -> None:
    """Compute every estimate of the run, as the summary at its end does."""
    with Store.open(path, read_only=True) as store:
        assert len(cell_reports(store, store.runs()[-1].id)) >= len(COMPILERS) * len(BATCHES)


def export(path: Path, samples: int) -> None:
    """Write the tidy table, as ``ngraph export`` does: the report is part of it."""
    export_run(path.with_suffix(".csv"), path, None)


# Opened before a step begins to be timed, or by it.
OPENED: dict[Path, Store] = {}
STEPS: dict[str, Callable[[Path, int], None]] = {
    "write": write,
    "open": open_store,
    "read one group": read_group,
    "report": report,
    "export": export,
}


def take(name: str, path: Path, samples: int) -> Step:
    """Take one step; runs in the child, so that the peak is this step's own."""
    if name == "read one group":
        open_store(path, samples)
    began = perf_counter()
    STEPS[name](path, samples)
    seconds = perf_counter() - began
    return Step(name, samples, seconds, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)


def in_child(name: str, path: Path, samples: int) -> Step:
    """Take one step in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as pool:
        step = pool.submit(take, name, path, samples).result()
    say(f"{samples:,} samples: {name}: {step.seconds:.3f} s, {step.peak_bytes / MEBIBYTE:.0f} MiB")
    return step


def growth(steps: list[Step]) -> float:
    """Return how many times longer a step takes for ten times the samples, between the two largest stores."""
    if len(steps) < 2:
        return 1.0
    before, last = steps[-2:]
    return math.pow(last.seconds / before.seconds, 1 / math.log10(last.samples / before.samples))


def judge(steps: list[Step], goals: argparse.Namespace) -> list[str]:
    """Return by what a step misses the goals: its growth, and the memory of the largest store."""
    missed = []
    name, grew, peak = steps[0].name, growth(steps), steps[-1].peak_bytes / MEBIBYTE
    allowed = goals.group_growth if name == "read one group" else goals.growth
    if grew > allowed:
        missed.append(f"{name}: {grew:.1f} times longer for ten times the samples (goal: at most {allowed:g})")
    if peak > goals.memory:
        missed.append(f"{name}: {peak - goals.memory:.0f} MiB (goal: at most {goals.memory:g})")
    return missed


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--samples", type=int, nargs="+", default=[10**4, 10**5, 10**6], help="sizes of the store")
    parser.add_argument(
        "--growth", type=float, default=15.0, help="how many times longer ten times the samples may take"
    )
    parser.add_argument("--group-growth", type=float, default=2.0, help="the same for reading one group")
    parser.add_argument("--memory", type=float, default=1024.0, help="peak MiB that a step may need")
    given = parser.parse_args()
    taken: dict[str, list[Step]] = {name: [] for name in STEPS}
    with TemporaryDirectory() as place:
        for asked in sorted(given.samples):
            samples = PER_LAUNCH * sum(1 for _ in launches_for(asked))
            for name in STEPS:
                taken[name].append(in_child(name, Path(place) / f"{asked}.sqlite", samples))
    sizes = [f"{step.samples:,} samples" for step in taken["write"]]
    rows = [
        (
            name,
            *(f"{step.seconds:.2f} s, {step.peak_bytes / MEBIBYTE:.0f} MiB" for step in steps),
            f"{growth(steps):.1f}",
        )
        for name, steps in taken.items()
    ]
    print_table(("step", *sizes, "times longer for ten times the samples"), rows)
    missed = [line for steps in taken.values() for line in judge(steps, given)]
    finish(missed, given.json, {"steps": taken})


if __name__ == "__main__":
    main()

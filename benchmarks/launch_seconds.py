"""What a launch takes here against another checkout of this package, whether calls are as fast, and where seconds go.

Launches of both are made in turn, each in a process of its own: the seconds by the clock, those of all CPUs together,
and the time of each cell's calls. The other checkout is any folder that has the package, such as a worktree of git.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

HOME = Path(__file__).resolve().parents[1]
# By name: the model and the sizes of its axes.
MODELS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "resnet18 at 224 px": ("timm:resnet18", {}),
    "a convolution block of 2 ms": ("block:conv", {"depth": 2, "image_size": 32}),
}
COMPILERS = ("identity", "onnxruntime", "openvino")
# What a launch costs apart from warming up and visits: one call of each, in two blocks.
FIXED: Mapping[str, Any] = {
    "blocks": 2,
    "visit_seconds": 0.001,
    "visit_calls": 1,
    "long_visit_calls": 1,
    "discard_seconds": 0.0,
    "warmup_calls": 1,
    "warmup_limit_seconds": 0.0,
}


def one_launch(folder: str, model: str, length: str, seed: str) -> dict[str, Any]:
    """Run a launch with the package that this process finds, and return what it took."""
    from pytest_ngraph.compilers.catalogue import BUILT_IN
    from pytest_ngraph.launches.client import Job, WorkerClient
    from pytest_ngraph.launches.launch import LaunchPlan, run_launch
    from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompilerSpec, Device, Outcome, Workload
    from pytest_ngraph.workloads.kinds import parse_model

    text, axes = MODELS[model]
    cells = [
        Cell("local", CompilerSpec(name), Workload(parse_model(text), batch, **axes), replica)
        for name, replica in (("identity", 0), ("identity", 1), *((name, 0) for name in COMPILERS[1:]))
        for batch in (1, 8)
    ]
    cpus, root = tuple(sorted(os.sched_getaffinity(0))), Path(folder)
    job = Job(
        tuple(filter(None, sys.path)),
        Device("local", cpus, len(cpus)),
        0,
        root / "artifacts",
        root / "logs",
        BUILT_IN,
        600.0,
    )
    calls: dict[str, list[float]] = {}

    class Sink:
        def visited(self, cell: Cell, block: int, position: int, visit: Any) -> None:
            calls.setdefault(cell.label, []).append(median(visit.wall_ns) / visit.calls)

        def prepared(self, cell: Cell, record: Any) -> None:
            if record.outcome not in (Outcome.OK, Outcome.UNSTABLE):
                raise SystemExit(f"{cell.label}: {record.reason}")

        def block_done(self, block: int, readings: Any) -> None:
            pass

        def progress(self, doing: str, done: int, total: int) -> None:
            pass

    if seed == "build":
        builder = WorkerClient(job, "builder", protocol=PROTOCOLS["gate"], draw=random.Random(0))
        for cell in cells:
            answer = builder.request("build", workload=cell.workload.to_json(), want_onnx=True)
            if not answer["ok"]:
                raise SystemExit(answer["reason"])
        builder.close()
        return {}
    protocol = replace(PROTOCOLS["gate"], **(FIXED if length == "fixed" else {}))
    plan = LaunchPlan(tuple(cells), protocol, int(seed), patience_seconds=0.0)
    began = perf_counter()
    spent: Any = run_launch(job, plan, Sink(), spare_memory=lambda: 1.0)
    seconds, used = perf_counter() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    return {
        "seconds": seconds,
        "cpu_seconds": used.ru_utime + used.ru_stime,
        "calls_ns": {label: median(each) for label, each in calls.items()},
        # Those of a checkout from before they were counted are not known.
        "phases": {phase: spent.of(phase) for phase, _ in spent.seconds} if spent is not None else {},
    }


def asked(checkout: Path, *words: str) -> dict[str, Any]:
    """Run this script with the package of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, str(Path(__file__).resolve()), "--one", *words]
    done = subprocess.run(command, env=environment, cwd=checkout, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{checkout}: a launch failed")
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return answer


def compare(
    model: str, length: str, ours: Path, theirs: Path, pairs: int
) -> list[tuple[dict[str, Any], dict[str, Any]]]:
    """Return what launches of ours and theirs took, taken in the order A B B A."""
    from benchmarks.pairs import say

    taken = []
    with TemporaryDirectory() as first, TemporaryDirectory() as second:
        sides = [(ours, first), (theirs, second)]
        for checkout, folder in sides:
            for seed in ("build", "0"):
                # The second loads what compilers keep.
                asked(checkout, folder, model, length, seed)
        for number in range(1, pairs + 1):
            order = sides if number % 2 else sides[::-1]
            found = [asked(checkout, folder, model, length, str(number)) for checkout, folder in order]
            mine, other = found if number % 2 else found[::-1]
            say(f"{model}, pair {number} of {pairs}: {mine['seconds']:.1f} s against {other['seconds']:.1f} s")
            taken.append((mine, other))
    return taken


def rows_of(model: str, taken: Sequence[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> list[tuple[str, ...]]:
    """Return a row for the clock, one for the CPUs and one for the calls."""
    from benchmarks.pairs import median_interval

    rows: list[tuple[str, ...]] = []
    for what in ("seconds", "cpu_seconds"):
        ratio = median_interval([mine[what] / other[what] for mine, other in taken])
        ours, theirs = (median(side[what] for side in sides) for sides in zip(*taken, strict=True))
        name = "seconds of a launch" if what == "seconds" else "seconds of all CPUs"
        rows.append((model, name, f"{ours:.1f}", f"{theirs:.1f}", ratio.text()))
    ratios = [mine["calls_ns"][label] / other["calls_ns"][label] for mine, other in taken for label in mine["calls_ns"]]
    rows.append((model, "time of a call, over cells", "-", "-", median_interval(ratios).text(digits=3)))
    return rows


def main() -> None:
    if sys.argv[1:2] == ["--one"]:
        print(json.dumps(one_launch(*sys.argv[2:])))
        return
    sys.path.insert(0, str(HOME))
    from benchmarks.pairs import finish, options, print_table

    parser: argparse.ArgumentParser = options(__doc__)
    parser.add_argument("other", type=Path, help="folder of the other checkout")
    parser.add_argument("--pairs", type=int, default=6, help="pairs of launches of each model")
    parser.add_argument("--model", action="append", choices=list(MODELS), help="only this one; may be given again")
    parser.add_argument("--fixed", action="store_true", help="only what comes beside warming up and visits")
    given = parser.parse_args()
    other = given.other.resolve()
    if not (other / "pytest_ngraph").is_dir():
        parser.error(f"{given.other} has no package pytest_ngraph")
    figures = {
        model: compare(model, "fixed" if given.fixed else "whole", HOME, other, given.pairs)
        for model in (given.model or MODELS)
    }
    rows = [row for model, taken in figures.items() for row in rows_of(model, taken)]
    print_table(("model", "what", "here", "there", "here over there"), rows)
    print()
    phases = {model: [mine["phases"] for mine, _ in taken] for model, taken in figures.items()}
    names = list(dict.fromkeys(name for each in phases.values() for one in each for name in one))
    middle = {
        model: {name: median(one.get(name, 0.0) for one in each) for name in names} for model, each in phases.items()
    }
    table = [(name, *(f"{middle[model][name]:.2f}" for model in middle)) for name in names]
    print_table(("phase, seconds here", *middle), table)
    finish([], given.json, {"pairs": figures})


if __name__ == "__main__":
    main()

"""What share of a launch its checks take: outputs on unseen inputs, probes, and the watch over every visit."""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from functools import wraps
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any

from benchmarks.pairs import finish, options, print_table, say
from pytest_ngraph.compilers.catalogue import BUILT_IN
from pytest_ngraph.measure import checks, launch, oversight, referee
from pytest_ngraph.measure.client import Job, WorkerClient
from pytest_ngraph.spec import PROTOCOLS, Cell, CompileRecord, CompilerSpec, Device, ModelRef, Outcome, Workload

HOME = Path(__file__).resolve().parents[1]
PARTS = {
    "outputs before timing": (referee.Referee, "first"),
    "outputs on unseen inputs, and probes": (launch._Launch, "check"),
    "of these, probes": (checks.Checks, "probe"),
    "clocks, after the visits": (launch._Launch, "judge_clocks"),
    "watch, before a visit": (oversight.Watch, "__init__"),
    "watch, after a visit": (oversight.Watch, "answered"),
}


class _Quiet:
    """A sink that keeps nothing but failures."""

    def __init__(self) -> None:
        self.failures: list[str] = []

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        if record.outcome not in (Outcome.OK, Outcome.UNSTABLE):
            self.failures.append(f"{cell.label}: {record.reason}")

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *what: None


def timed(spent: dict[str, float], part: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function, which adds the seconds of its calls to those of a part."""

    @wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        began = perf_counter()
        try:
            return function(*args, **kwargs)
        finally:
            spent[part] += perf_counter() - began

    return call


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--launches", type=int, default=3, help="launches to measure")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8], help="batches of resnet18")
    parser.add_argument("--goal", type=float, default=0.02, help="the largest share of a launch")
    given = parser.parse_args()
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    cells = [
        Cell("local", CompilerSpec(name), Workload(ModelRef.parse("timm:resnet18"), batch, image_size=64), replica)
        for name, replica in (("identity", 0), ("identity", 1), ("onnxruntime", 0), ("openvino", 0))
        for batch in given.batches
    ]
    spent: dict[str, float] = {}
    for part, (place, name) in PARTS.items():
        setattr(place, name, timed(spent, part, getattr(place, name)))
    rows: list[dict[str, float]] = []
    with TemporaryDirectory() as folder:
        device, root = Device("local", cpus, len(cpus)), Path(folder)
        path = (str(HOME), *filter(None, sys.path))
        job = Job(path, device, 0, root / "artifacts", root / "logs", BUILT_IN, 600.0)
        builder = WorkerClient(job, "builder", protocol=PROTOCOLS["gate"], draw=random.Random(0))
        for cell in cells:
            builder.request("build", workload=cell.workload.to_json(), want_onnx=True)
        builder.close()
        for number in range(given.launches):
            say(f"launch {number + 1} of {given.launches}")
            spent.update(dict.fromkeys(PARTS, 0.0))
            sink, began = _Quiet(), perf_counter()
            plan = launch.LaunchPlan(tuple(cells), PROTOCOLS["gate"], number, patience_seconds=0.0)
            launch.run_launch(job, plan, sink, spare_memory=lambda: 1.0)
            rows.append({"launch": perf_counter() - began, **spent})
            if sink.failures:
                raise SystemExit("\n".join(sink.failures))
    shares = {part: median(row[part] / row["launch"] for row in rows) for part in PARTS}
    whole = median(sum(row[part] for part in PARTS if not part.startswith("of these")) / row["launch"] for row in rows)
    table = [
        (part, f"{median(row[part] for row in rows):.3f}", f"{100 * share:.2f} %") for part, share in shares.items()
    ]
    table.append(("all of it", f"{median(row['launch'] for row in rows):.1f} a launch", f"{100 * whole:.2f} %"))
    print_table(("part", "seconds", "share of a launch"), table)
    missed = [f"{100 * whole:.1f} % of a launch (goal: {100 * given.goal:g} %)"] if whole > given.goal else []
    finish(missed, given.json, {"launches": rows, "share": whole})


if __name__ == "__main__":
    main()

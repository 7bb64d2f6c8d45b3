"""What share of a launch its checks take, and whether the times of honest cells are the same without them.

The checks are the comparison of outputs on unseen inputs, probes, and the watch over every visit. Launches with and
without them are made in turn.
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from functools import wraps
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any
from unittest import mock

from benchmarks.pairs import Pair, finish, median_interval, options, print_table, say
from pytest_ngraph.checks import oversight
from pytest_ngraph.compilers.catalogue import BUILT_IN
from pytest_ngraph.launches import checks, launch, referee
from pytest_ngraph.launches.client import Job, WorkerClient
from pytest_ngraph.spec.cells import PROTOCOLS, Cell, CompileRecord, CompilerSpec, Device, Outcome, Visit, Workload
from pytest_ngraph.workloads.kinds import parse_model

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
    """A sink that keeps nothing but failures, and what a call took in each visit."""

    def __init__(self) -> None:
        self.failures: list[str] = []
        self.calls: dict[Cell, list[float]] = {}

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        self.calls.setdefault(cell, []).append(median(visit.wall_ns) / visit.calls)

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


@contextmanager
def unchecked() -> Iterator[None]:
    """Launch without what is done after the visits, and without the watch over them."""
    with ExitStack() as stack:
        for name in ("check", "judge_clocks"):
            stack.enter_context(mock.patch.object(launch._Launch, name, return_value=None))
        stack.enter_context(mock.patch.object(oversight.CpuAccount, "read", return_value={}))
        yield


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--launches", type=int, default=6, help="pairs of launches to measure")
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8], help="batches of resnet18")
    parser.add_argument("--goal", type=float, default=0.02, help="the largest share of a launch")
    given = parser.parse_args()
    cpus = tuple(sorted(os.sched_getaffinity(0)))
    cells = [
        Cell("local", CompilerSpec(name), Workload(parse_model("timm:resnet18"), batch, image_size=64), replica)
        for name, replica in (("identity", 0), ("identity", 1), ("onnxruntime", 0), ("openvino", 0))
        for batch in given.batches
    ]
    spent: dict[str, float] = {}
    for part, (place, name) in PARTS.items():
        setattr(place, name, timed(spent, part, getattr(place, name)))
    rows: list[dict[str, float]] = []
    pairs: dict[str, list[Pair]] = {cell.label: [] for cell in cells}
    with TemporaryDirectory() as folder:
        device, root = Device("local", cpus, len(cpus)), Path(folder)
        path = (str(HOME), *filter(None, sys.path))
        job = Job(path, device, 0, root / "artifacts", root / "logs", BUILT_IN, 600.0)
        builder = WorkerClient(job, "builder", protocol=PROTOCOLS["gate"], draw=random.Random(0))
        for cell in cells:
            builder.request("build", workload=cell.workload.to_json(), want_onnx=True)
        builder.close()

        def one_launch(number: int, *, with_checks: bool) -> dict[Cell, float]:
            spent.update(dict.fromkeys(PARTS, 0.0))
            sink, began = _Quiet(), perf_counter()
            plan = launch.LaunchPlan(tuple(cells), PROTOCOLS["gate"], number, patience_seconds=0.0)
            with nullcontext() if with_checks else unchecked():
                launch.run_launch(job, plan, sink, spare_memory=lambda: 1.0)
            if with_checks:
                rows.append({"launch": perf_counter() - began, **spent})
            if sink.failures:
                raise SystemExit("\n".join(sink.failures))
            return {cell: median(calls) for cell, calls in sink.calls.items()}

        for number in range(given.launches):
            say(f"pair {number + 1} of {given.launches}")
            # A B B A, so that a drift hits both alike.
            sides = [one_launch(number, with_checks=checked) for checked in (number % 2 == 0, number % 2 == 1)]
            checked, bare = sides if number % 2 == 0 else sides[::-1]
            for cell in cells:
                pairs[cell.label].append(Pair(checked[cell], bare[cell]))
    shares = {part: median(row[part] / row["launch"] for row in rows) for part in PARTS}
    whole = median(sum(row[part] for part in PARTS if not part.startswith("of these")) / row["launch"] for row in rows)
    table = [
        (part, f"{median(row[part] for row in rows):.3f}", f"{100 * share:.2f} %") for part, share in shares.items()
    ]
    table.append(("all of it", f"{median(row['launch'] for row in rows):.1f} a launch", f"{100 * whole:.2f} %"))
    print_table(("part", "seconds", "share of a launch"), table)
    print()
    spreads = {label: median_interval([pair.ratio for pair in taken]) for label, taken in pairs.items()}
    print_table(
        ("cell", "a call with the checks over one without"), [(k, v.text(digits=3)) for k, v in spreads.items()]
    )
    missed = [f"{100 * whole:.1f} % of a launch (goal: {100 * given.goal:g} %)"] if whole > given.goal else []
    missed += [f"{label} changes" for label, one in spreads.items() if one.low > 1.01 or one.high < 0.99]
    finish(missed, given.json, {"launches": rows, "share": whole, "pairs": pairs})


if __name__ == "__main__":
    main()

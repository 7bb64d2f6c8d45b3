"""How calls on new inputs, and outputs(), compare with the calls that are timed, for all adapters and honest networks.

The bounds of ``pytest_ngraph/checks/freshness.py`` are read off this table.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.pairs import finish, options, print_table, say
from pytest_ngraph.checks.freshness import Timings, objection, probe
from pytest_ngraph.compilers.catalogue import BUILT_IN, load
from pytest_ngraph.errors import NgraphError
from pytest_ngraph.launches.client import worker_environment
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.cells import PROTOCOLS, CompilerSpec, Device, Workload
from pytest_ngraph.worker.timing import timed_batch, warm_up
from pytest_ngraph.workloads.kinds import parse_model

HOME = Path(__file__).resolve().parents[1]
COMPILERS = ("identity", "torchscript", "inductor", "onnxruntime", "openvino", "tvm")
_OWN = "pytest_ngraph.conformance.models"
# From some 5 us to some 300 ms a call: model, batch and image size.
NETWORKS: tuple[tuple[str, int, int | None], ...] = (
    *((f"benchmarks.networks:{name}", 1, None) for name in ("tiny_convolution", "tiny_perceptron", "tiny_gate")),
    *((f"benchmarks.networks:{name}", 1, None) for name in ("convolutions", "attention", "perceptron")),
    *((f"{_OWN}:{name}", 3, None) for name in ("TwoInputs", "NamedInputs", "NestedOutputs", "Tokens")),
    ("timm:resnet18", 1, 64),
    ("timm:resnet18", 8, 64),
    ("timm:resnet18", 8, 224),
)


@dataclass(frozen=True)
class Row:
    """One cell: nanoseconds of a timed call, what was probed, and what would have been objected."""

    compiler: str
    network: str
    scenario: str
    load: int
    call_ns: float
    timings: Timings
    objection: str


def measure(compiler: str, artifacts: Path, load_processes: int) -> list[dict[str, Any]]:
    """Return the rows of one compiler, in this process."""
    from pytest_ngraph.workloads import artifacts as built
    from pytest_ngraph.workloads.loaded import LoadedWorkload

    spec, device, rows = CompilerSpec.parse(compiler), Device(threads=2), []
    adapter = load(spec.name, BUILT_IN[spec.name])
    adapter.load()
    for scenario in adapter.scenarios:
        for model, batch, size in NETWORKS:
            workload = Workload(parse_model(model), batch, image_size=size, scenario=scenario)
            try:
                artifact = built.build(workload, 0, artifacts, adapter.reads == "onnx")
                loaded = LoadedWorkload(workload, 0, artifact)
                executable = adapter.compile(loaded, device, adapter.resolve(spec))
            except NgraphError as error:
                say(f"{compiler} {model}: {error}")
                continue
            executable.bind(loaded.inputs)
            warm_up(executable, replace(PROTOCOLS["quick"], warmup_limit_seconds=0.3))
            timed: list[float] = []
            while sum(timed) < 1e8 or len(timed) < 5:
                timed.append(timed_batch(executable, 1, clock.nanoseconds))
            call = median(timed)
            timings = probe(executable, loaded.inputs, loaded.inputs, call, scenario)
            said = objection(timings, call)
            rows.append(asdict(Row(compiler, workload.label, scenario, load_processes, call, timings, said)))
            executable.close()
    return rows


@contextmanager
def loaded_by(processes: int) -> Iterator[None]:
    """Keep so many processes busy meanwhile."""
    busy = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(processes)]
    try:
        yield
    finally:
        for each in busy:
            each.kill()
            each.wait()


def measure_apart(compiler: str, folder: Path, load_processes: int) -> list[Row]:
    """Return the rows of one compiler, measured in a process with the environment of a worker."""
    environment = worker_environment(Device(threads=2), "steady", 0, folder)
    command = [sys.executable, "-m", "benchmarks.freshness", "--child", compiler, "--loads", str(load_processes)]
    with loaded_by(load_processes):
        done = subprocess.run(
            [*command, "--folder", str(folder)], env=environment, cwd=HOME, stdout=subprocess.PIPE, check=False
        )
    if done.returncode:
        raise SystemExit(f"{compiler} ended with status {done.returncode}")
    rows = json.loads(done.stdout.splitlines()[-1])
    return [Row(**{**row, "timings": Timings(**row["timings"])}) for row in rows]


def shown(row: Row) -> tuple[str, ...]:
    """Return a row of the table: times in microseconds, the fastest of each kind."""
    timings = row.timings
    names = (timings.first, timings.second, timings.again, timings.outputs, timings.copies)
    fastest = [f"{min(each) / 1000:.0f}" if each else "-" for each in names]
    ratio = f"{min(timings.first) / row.call_ns:.2f}" if timings.first else "-"
    what = f"{row.network}" + (" (beside load)" if row.load else "")
    return (row.compiler, what, f"{row.call_ns / 1000:.0f}", *fastest, ratio, row.objection or "none")


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--child", help="measure this compiler here, and print rows as JSON")
    parser.add_argument("--folder", type=Path, help="where artefacts lie")
    parser.add_argument("--loads", type=int, nargs="*", default=[0, 2], help="busy processes beside the calls")
    parser.add_argument("--compilers", default=",".join(COMPILERS), help="compilers to measure")
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(given.child, given.folder, given.loads[0])))
        return
    rows: list[Row] = []
    with TemporaryDirectory() as place:
        for compiler in given.compilers.split(","):
            for load_processes in given.loads:
                say(f"{compiler}, {load_processes} busy processes")
                rows += measure_apart(compiler, given.folder or Path(place), load_processes)
    head = ("compiler", "cell", "timed call, us", "first", "second", "again", "outputs()", "copying", "ratio", "said")
    print_table(head, [shown(row) for row in rows])
    missed = [f"{row.compiler} {row.network} is accused: {row.objection}" for row in rows if row.objection]
    finish(missed, given.json, {"rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()

"""Whether honest cells are as fast when their timed calls rotate over several input buffers as on one.

An adapter that caches would be slower. So may an honest one be: its input is in no cache, and what is bound changes.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import cycle
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

from benchmarks.pairs import Pair, Spread, alternate, finish, median_interval, options, print_table, say
from pytest_ngraph.compilers.base import Executable
from pytest_ngraph.compilers.catalogue import BUILT_IN, load
from pytest_ngraph.launches.client import worker_environment
from pytest_ngraph.machine import clock
from pytest_ngraph.spec.cells import PROTOCOLS, CompilerSpec, Device, Workload
from pytest_ngraph.worker.timing import calls_per_batch, timed_batch, warm_up
from pytest_ngraph.workloads.kinds import parse_model

HOME = Path(__file__).resolve().parents[1]
COMPILERS = ("identity", "torchscript", "onnxruntime", "openvino")
NETWORKS: tuple[tuple[str, int, int | None], ...] = (
    ("benchmarks.networks:tiny_convolution", 1, None),
    ("benchmarks.networks:convolutions", 1, None),
    ("benchmarks.networks:perceptron", 1, None),
    ("timm:resnet18", 1, 64),
    ("timm:resnet18", 8, 64),
)
BUFFERS, STRETCH_SECONDS = 4, 0.2
CONTRASTS = ("one buffer again", "one buffer, bound between batches", f"{BUFFERS} buffers in turn")


@dataclass(frozen=True)
class Row:
    """One cell: nanoseconds of a call, and for each contrast the pairs of its calls and those on one buffer."""

    compiler: str
    network: str
    call_ns: float
    pairs: Mapping[str, Sequence[Pair]]


def stretch(executable: Executable, buffers: Sequence[Mapping[str, Any]], calls: int, *, binds: bool) -> float:
    """Return the median nanoseconds of a call over batches, each on the next buffer; binding is not timed."""
    times: list[float] = []
    executable.bind(buffers[0])
    timed_batch(executable, calls, clock.nanoseconds)
    for buffer in cycle(buffers):
        if binds:
            executable.bind(buffer)
        times.append(timed_batch(executable, calls, clock.nanoseconds) / calls)
        if sum(times) * calls >= STRETCH_SECONDS * 1e9:
            break
    return median(times)


def contrasts(executable: Executable, inputs: Mapping[str, Any], calls: int, pairs: int) -> dict[str, list[Pair]]:
    """Return the pairs of each contrast with one buffer that stays bound."""
    from pytest_ngraph.checks.freshness import vary

    one, several = [inputs], [vary(inputs, number) for number in range(BUFFERS)]
    stay = partial(stretch, executable, one, calls, binds=False)
    bound = partial(stretch, executable, one, calls, binds=True)
    rotated = partial(stretch, executable, several, calls, binds=True)
    others: Sequence[Callable[[], float]] = (stay, bound, rotated)
    return {name: alternate(other, stay, pairs, warmups=1) for name, other in zip(CONTRASTS, others, strict=True)}


def measure(compiler: str, artifacts: Path, pairs: int) -> list[dict[str, Any]]:
    """Return the rows of one compiler, in this process."""
    from pytest_ngraph.workloads import artifacts as built
    from pytest_ngraph.workloads.loaded import LoadedWorkload

    spec, device, rows = CompilerSpec.parse(compiler), Device(threads=2), []
    adapter, protocol = load(spec.name, BUILT_IN[spec.name]), replace(PROTOCOLS["gate"], warmup_limit_seconds=3.0)
    adapter.load()
    for model, batch, size in NETWORKS:
        workload = Workload(parse_model(model), batch, image_size=size)
        loaded = LoadedWorkload(workload, 0, built.build(workload, 0, artifacts, adapter.reads == "onnx"))
        executable = adapter.compile(loaded, device, adapter.resolve(spec))
        executable.bind(loaded.inputs)
        call = median(warm_up(executable, protocol)[0][-20:])
        calls = calls_per_batch(call, protocol)
        say(f"{compiler} {workload.label}: {calls} calls a batch")
        found = contrasts(executable, loaded.inputs, calls, pairs)
        rows.append(asdict(Row(compiler, workload.label, call * 1e9, found)))
        executable.close()
    return rows


def measure_apart(compiler: str, folder: Path, pairs: int) -> list[Row]:
    """Return the rows of one compiler, measured in a process with the environment of a worker."""
    environment = worker_environment(Device(threads=2), "steady", 0, folder)
    command = [sys.executable, "-m", "benchmarks.rotation", "--child", compiler, "--pairs", str(pairs)]
    done = subprocess.run(
        [*command, "--folder", str(folder)], env=environment, cwd=HOME, stdout=subprocess.PIPE, check=True
    )
    rows = json.loads(done.stdout.splitlines()[-1])
    return [
        Row(**{**row, "pairs": {name: [Pair(**pair) for pair in taken] for name, taken in row["pairs"].items()}})
        for row in rows
    ]


def spread(row: Row, contrast: str) -> Spread:
    """Return how many times as long a call takes as on one buffer."""
    return median_interval([pair.ratio for pair in row.pairs[contrast]])


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--child", help="measure this compiler here, and print rows as JSON")
    parser.add_argument("--folder", type=Path, help="where artefacts lie")
    parser.add_argument("--pairs", type=int, default=12, help="pairs of each contrast")
    parser.add_argument("--compilers", default=",".join(COMPILERS), help="compilers to measure")
    parser.add_argument("--goal", type=float, default=0.01, help="the largest change that an honest cell may see")
    given = parser.parse_args()
    if given.child:
        print(json.dumps(measure(given.child, given.folder, given.pairs)))
        return
    rows: list[Row] = []
    with TemporaryDirectory() as place:
        for compiler in given.compilers.split(","):
            rows += measure_apart(compiler, given.folder or Path(place), given.pairs)
    table = []
    for row in rows:
        ratios = (spread(row, name).text(digits=3) for name in CONTRASTS)
        table.append((row.compiler, row.network, f"{row.call_ns / 1000:.0f}", *ratios))
    print_table(("compiler", "cell", "call, us", *CONTRASTS), table)
    # Shown to be beyond the goal: the whole interval is.
    missed = [
        f"{row.compiler} {row.network} ({found.text(digits=3)})"
        for row in rows
        if (found := spread(row, CONTRASTS[-1])).low > 1 + given.goal or found.high < 1 - given.goal
    ]
    finish(missed, given.json, {"rows": [asdict(row) for row in rows]})


if __name__ == "__main__":
    main()

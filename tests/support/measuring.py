"""What the tests of measuring share: a small protocol, a job, a sink that remembers, a look at processes."""

from __future__ import annotations

import gc
import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from importlib.util import find_spec
from pathlib import Path

from pytest_ngraph.compilers.catalogue import BUILT_IN, load
from pytest_ngraph.launches.client import Job, WorkerClient
from pytest_ngraph.launches.launch import LaunchPlan, run_launch
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    Device,
    Outcome,
    Protocol,
    Reading,
    Visit,
    Workload,
)
from pytest_ngraph.workloads import artifacts
from pytest_ngraph.workloads.kinds import parse_model
from tests.support import workers
from tests.support.bad_compilers import workers_of

ROOT = Path(__file__).parents[2]
# Without the reference kernel, where tests do not ask for it: a visit that something disturbs would be made again, and
# what a cell does at its first visit, or how many blocks there are, would depend on what else runs on the machine.
SMALL = replace(
    PROTOCOLS["gate"],
    reference=False,
    blocks=2,
    visit_seconds=0.01,
    visit_calls=2,
    warmup_seconds=0.02,
    long_warmup_seconds=0.02,
    warmup_limit_seconds=2.0,
)
# With the reference kernel around every block and visit.
WATCHED = replace(SMALL, reference=True)
TIMED = (Outcome.OK, Outcome.UNSTABLE)


def job(folder: Path, *, timeout: float = 60.0, cpus: tuple[int, ...] = (), threads: int = 1) -> Job:
    """Return a job whose workers know the adapters that misbehave."""
    bad = {"bad": "COMPILER", "slow": "SLOW", "spy": "SPY"}
    places = {**BUILT_IN, **{name: f"tests.support.bad_compilers:{attribute}" for name, attribute in bad.items()}}
    places["cheat"] = "tests.support.cheating_compilers:COMPILER"
    places["open"] = "tests.support.shape_compilers:COMPILER"
    path = (str(ROOT), str(folder), *filter(None, sys.path))
    device = Device("local", cpus or tuple(sorted(os.sched_getaffinity(0))), threads)
    return Job(path, device, 0, folder / "artifacts", folder / "logs", places, timeout)


def cell(compiler: str, batch: int = 1, replica: int = 0) -> Cell:
    """Return a cell of a model that none of these compilers reads."""
    return Cell("local", CompilerSpec.parse(compiler), Workload(parse_model("block:conv"), batch), replica)


@dataclass
class Memory:
    """A sink that remembers."""

    records: dict[Cell, CompileRecord] = field(default_factory=dict)
    visits: dict[tuple[Cell, int], Visit] = field(default_factory=dict)
    order: dict[int, list[Cell]] = field(default_factory=dict)
    blocks: list[int] = field(default_factory=list)
    readings: list[tuple[Reading, Reading] | None] = field(default_factory=list)
    watch: Callable[[str], None] = lambda doing: None

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        self.records[cell] = record

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        self.visits[cell, block] = visit
        self.order.setdefault(block, []).append(cell)
        self.watch("visited")

    def block_done(self, block: int, readings: tuple[Reading, Reading] | None) -> None:
        self.blocks.append(block)
        self.readings.append(readings)

    def progress(self, doing: str, done: int, total: int) -> None:
        self.watch(doing)

    def blocks_of(self, cell: Cell) -> list[int]:
        return [block for visited, block in self.visits if visited == cell]


def build(job: Job, *cells: Cell) -> None:
    """Build what the compilers of these cells read and is not there yet, in a worker of its own, as a session does."""
    missing = []
    for one in cells:
        reads = load(one.compiler.name, job.places[one.compiler.name]).reads
        if reads != "nothing":
            wanted = (one.workload, job.seed, job.artifacts, reads == "onnx")
            if artifacts.find(*wanted, job.sys_path) is None:
                missing.append((one.workload, reads == "onnx"))
    if not missing:
        return
    # It is waited for as a fork, too.
    with workers.forking() if find_spec("torch") else nullcontext():
        client = WorkerClient(job, "builder", protocol=SMALL, draw=random.Random(0))
        try:
            for workload, onnx in missing:
                answer = client.request("build", workload=workload.to_json(), want_onnx=onnx)
                assert answer["ok"], answer
            client.close()
        finally:
            client.kill()


def launch(
    job: Job,
    *cells: Cell,
    protocol: Protocol = SMALL,
    seed: int = 1,
    watch: Callable[[str], None] = lambda doing: None,
    patience: float = 0.0,
) -> Memory:
    """Run one launch of these cells, once what they read is built, and return all that came of it.

    Beside other tests the machine changes its state all the time, and its usual one is waited for only with
    ``patience``.
    """
    build(job, *cells)
    sink = Memory(watch=watch)
    run_launch(job, LaunchPlan(cells, protocol, seed, patience_seconds=patience), sink, spare_memory=lambda: 1.0)
    return sink


def wait_until(condition: Callable[[], bool], seconds: float) -> bool:
    """Return whether a condition came true within so many seconds."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def is_gone(pid: int) -> bool:
    """Tell whether a process has ended, buried or not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return True
    return stat.rpartition(")")[2].split()[0] in "ZX"


@contextmanager
def nothing_left_behind() -> Iterator[None]:
    """Check that no worker, dead or alive, and no descriptor is left."""
    # What earlier tests left to the collector is not closed meanwhile.
    gc.collect()
    if find_spec("torch"):
        # It stays, with the pipe that ends it.
        workers.FORK_SERVER.start()
    # Threads that play a machine open its files now and then.
    before = min(_descriptors() for _ in range(20))
    yield
    assert workers_of(os.getpid()) == {}
    assert wait_until(lambda: _descriptors() <= before, 60)


def _descriptors() -> int:
    time.sleep(0.001)
    return len(os.listdir("/proc/self/fd"))

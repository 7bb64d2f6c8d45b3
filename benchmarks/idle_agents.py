"""What an agent costs the device that it waits on, beside a worker as dask starts one unless told otherwise."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import psutil

from benchmarks.pairs import finish, median_interval, options, print_table, say
from tests.support.lab import Lab, eventually

MOST_CORE, MOST_SWITCHES = 0.005, 20.0
_SWITCHES = re.compile(r"^(?:non)?voluntary_ctxt_switches:\s+(\d+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Idle:
    """What a tree of processes did per second: share of a core, context switches; and the memory that is its own."""

    core: float
    switches: float
    unique_bytes: int


def tree(pid: int) -> list[psutil.Process]:
    """Return a process and all that it started."""
    parent = psutil.Process(pid)
    return [parent, *parent.children(recursive=True)]


def done_so_far(processes: Sequence[psutil.Process]) -> tuple[float, int]:
    """Return CPU seconds and context switches of all threads of some processes."""
    switches = 0
    for process in processes:
        for status in Path(f"/proc/{process.pid}/task").glob("*/status"):
            switches += sum(map(int, _SWITCHES.findall(status.read_text())))
    return sum(sum(process.cpu_times()[:2]) for process in processes), switches


def watch(pids: dict[str, int], seconds: float) -> dict[str, Idle]:
    """Watch several trees of processes over the same time."""
    trees = {name: tree(pid) for name, pid in pids.items()}
    before = {name: done_so_far(processes) for name, processes in trees.items()}
    began = time.monotonic()
    time.sleep(seconds)
    took = time.monotonic() - began
    found = {}
    for name, processes in trees.items():
        cpu, switches = done_so_far(processes)
        memory = sum(process.memory_full_info().uss for process in processes)
        found[name] = Idle((cpu - before[name][0]) / took, (switches - before[name][1]) / took, memory)
    return found


@contextmanager
def as_it_comes(folder: Path) -> Iterator[dict[str, int]]:
    """Run a scheduler and a worker of dask with their defaults, without dashboard; yield their pids."""
    file = folder / "scheduler.json"
    with (folder / "dask.log").open("wb") as log:

        def start(*words: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", *words, "--scheduler-file", str(file)]
            return subprocess.Popen(command, stdout=log, stderr=log, cwd=folder)

        scheduler = start("distributed.cli.dask_scheduler", "--host", "127.0.0.1", "--port", "0", "--no-dashboard")
        worker = None
        try:
            eventually("a scheduler", file.exists)
            worker = start("distributed.cli.dask_worker", "--nthreads", "1", "--no-dashboard")
            eventually("its worker", lambda: b"Registered to" in (folder / "dask.log").read_bytes())
            yield {"scheduler of dask": scheduler.pid, "worker of dask, with its nanny": worker.pid}
        finally:
            for process in (worker, scheduler):
                if process is not None:
                    for one in reversed(tree(process.pid)):
                        one.kill()
                    process.wait(10)


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--windows", type=int, default=6, help="times that all are watched")
    parser.add_argument("--seconds", type=float, default=20.0, help="length of each")
    given = parser.parse_args()
    with TemporaryDirectory() as place, Lab(Path(place)) as lab, as_it_comes(Path(place)) as pids:
        hub = lab.start_hub()
        pids = {"agent": lab.start_agent("one").popen.pid, "hub": hub.popen.pid, **pids}
        # Starting is not idling.
        time.sleep(10)
        windows = []
        for number in range(given.windows):
            windows.append(watch(pids, given.seconds))
            say(f"window {number + 1} of {given.windows}: agent {100 * windows[-1]['agent'].core:.2f} % of a core")
    cores = {name: median_interval(window[name].core for window in windows) for name in pids}
    switches = {name: median_interval(window[name].switches for window in windows) for name in pids}
    print_table(
        (f"idle, {given.windows} x {given.seconds:g} s", "% of a core", "context switches a second", "MiB of its own"),
        [
            (name, cores[name].text(100), switches[name].text(1, 1), f"{windows[-1][name].unique_bytes / 2**20:.0f}")
            for name in pids
        ],
    )
    missed = []
    if cores["agent"].median > MOST_CORE:
        missed.append(f"{100 * cores['agent'].median:.2f} % of a core (goal: at most {100 * MOST_CORE:g} %)")
    if switches["agent"].median > MOST_SWITCHES:
        missed.append(f"{switches['agent'].median:.0f} context switches a second (goal: at most {MOST_SWITCHES:g})")
    finish(missed, given.json, {"cores": cores, "switches": switches, "windows": windows})


if __name__ == "__main__":
    main()

"""What a report of many cells costs: time, memory and file size up to 50,000 cells and a million samples."""

from __future__ import annotations

import argparse
import math
import multiprocessing
import resource
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter, process_time

from benchmarks.pairs import finish, options, print_table, say
from tests.support.report_stores import Lab, write_store

# A model under four compilers at five batches is a launch group: 20 cells, two launches of two blocks of five samples.
CELLS, SAMPLES = 20, 20
MEBIBYTE = 1 << 20


@dataclass(frozen=True, slots=True)
class Step:
    """What a report took in a process of its own, and the size of what it wrote."""

    cells: int
    seconds: float
    cpu_seconds: float
    peak_bytes: int
    file_bytes: int


def lab_of(cells: int) -> Lab:
    models = tuple(f"timm:model{number}" for number in range(max(1, cells // CELLS)))
    return Lab(devices=("xeon",), models=models, depths=(), launches=2, blocks=2, samples=5, together=False)


def write(path: Path, cells: int) -> None:
    """Write the store, in a child too, so that its memory is not the report's."""
    write_store(path, lab_of(cells))


def report(path: Path, cells: int) -> Step:
    """Write the page of the store, as ``ngraph report`` does, from importing what draws charts on."""
    began, used = perf_counter(), process_time()
    from pytest_ngraph.commands.report import report_run

    page = path.with_suffix(".html")
    for _ in report_run(page, path, None, None, []):
        pass
    seconds, cpu_seconds = perf_counter() - began, process_time() - used
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    return Step(cells, seconds, cpu_seconds, peak, page.stat().st_size)


def take(cells: int, place: Path) -> Step:
    """Write a store and report it, each in a fresh process."""
    path = place / f"{cells}.sqlite"
    fresh = multiprocessing.get_context("spawn")
    for function in (write, report):
        with ProcessPoolExecutor(1, mp_context=fresh) as pool:
            step = pool.submit(function, path, cells).result()
    assert step is not None
    say(f"{cells:,} cells: {step.seconds:.1f} s, {step.peak_bytes / MEBIBYTE:.0f} MiB, {step.file_bytes / 1e6:.1f} MB")
    return step


def judge(steps: list[Step], goals: argparse.Namespace) -> list[str]:
    """Return by what the largest report misses the goals, and the largest one of up to 5,000 cells its size."""
    missed, last = [], steps[-1]
    if last.seconds > goals.seconds:
        missed.append(f"{last.cells:,} cells: {last.seconds:.1f} s (goal: at most {goals.seconds:g})")
    if last.peak_bytes > goals.memory * MEBIBYTE:
        missed.append(f"{last.cells:,} cells: {last.peak_bytes / MEBIBYTE:.0f} MiB (goal: at most {goals.memory:g})")
    missed += [
        f"{step.cells:,} cells: {step.file_bytes / 1e6:.1f} MB (goal: at most {goals.size:g})"
        for step in steps
        if step.cells <= 5000 and step.file_bytes > goals.size * 1e6
    ]
    return missed


def growth(before: Step, after: Step, name: str) -> float:
    """Return how many times as much a figure is for ten times the cells, between two sizes."""
    ratio = getattr(after, name) / getattr(before, name)
    return float(math.pow(ratio, 1 / math.log10(after.cells / before.cells)))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--cells", type=int, nargs="+", default=[500, 5000, 50_000], help="sizes of the store")
    parser.add_argument("--seconds", type=float, default=20.0, help="what the largest report may take")
    parser.add_argument("--memory", type=float, default=1024.0, help="peak MiB that it may need")
    parser.add_argument("--size", type=float, default=10.0, help="MB of a page of up to 5,000 cells")
    given = parser.parse_args()
    with TemporaryDirectory() as place:
        steps = [take(cells, Path(place)) for cells in sorted(given.cells)]
    rows: list[tuple[object, ...]] = []
    for before, step in zip([None, *steps], steps, strict=False):
        figures = {
            "seconds": f"{step.seconds:.1f} s",
            "cpu_seconds": f"{step.cpu_seconds:.1f} s",
            "peak_bytes": f"{step.peak_bytes / MEBIBYTE:.0f} MiB",
            "file_bytes": f"{step.file_bytes / 1e6:.1f} MB",
        }
        if before is not None:
            figures = {name: f"{figure} ({growth(before, step, name):.1f})" for name, figure in figures.items()}
        rows.append((f"{step.cells:,}", f"{step.cells * SAMPLES:,}", *figures.values()))
    print_table(("cells", "samples", "time", "CPU time", "peak memory", "file"), rows)
    print("\nIn brackets: how many times as much for ten times the cells.")
    finish(judge(steps, given), given.json, {"steps": steps})


if __name__ == "__main__":
    main()

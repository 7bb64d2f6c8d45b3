"""What each ingredient of the gate protocol buys: allocator settings, parking, the clean rule, and the order.

Every launch measures two processes of the same code, so that the truth is 1, with all ingredients or with one of them
left out. Finished launches are appended to a file and the script goes on from there.
"""

from __future__ import annotations

import argparse
import math
import random
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic
from typing import Any

from benchmarks.neighbours import CONDITIONS, beside
from benchmarks.pairs import finish, print_table, say
from benchmarks.sets import Json, Session, Sets, end_well
from benchmarks.verdicts import network, share
from pytest_ngraph.compilers.catalogue import BUILT_IN
from pytest_ngraph.devices.lock import device_lock
from pytest_ngraph.launches.client import Job, WorkerClient
from pytest_ngraph.launches.launch import LaunchPlan, run_launch
from pytest_ngraph.machine.facts import available_cpus, spare_memory_share
from pytest_ngraph.spec.cells import (
    PROTOCOLS,
    Cell,
    CompileRecord,
    CompilerSpec,
    Device,
    Outcome,
    Protocol,
    Visit,
    Workload,
)
from pytest_ngraph.stats.launches import LaunchValue, dominant_noise, launch_value
from pytest_ngraph.stats.visits import summarise
from pytest_ngraph.workloads.kinds import parse_model

FILE = Path(__file__).with_name("results") / "ingredients.json"
COMPILERS = ("identity", "onnxruntime")
# Activations of some MB, where the allocator matters, and calls of about a millisecond, where a neighbour does.
MODELS = (("block:conv", 1), (network("convolutions"), 1), (network("perceptron"), 1))
THRESHOLD = 0.98
GATE = PROTOCOLS["gate"]
VARIANTS: Mapping[str, Protocol] = {
    "all ingredients": GATE,
    "default allocator": replace(GATE, allocator="default"),
    "neighbours not parked": replace(GATE, parked=False),
    # The same calls, but all of a cell's one after the other.
    "cell by cell": replace(
        GATE,
        order="fixed",
        blocks=1,
        visit_seconds=GATE.blocks * GATE.visit_seconds,
        visit_calls=GATE.blocks * GATE.visit_calls,
        long_visit_calls=GATE.blocks * GATE.long_visit_calls,
    ),
}
# Worked out of the launches with all ingredients, once more with every batch.
UNCLEAN = "every batch counts"


# Measuring


def cells() -> tuple[Cell, ...]:
    """Return the cells of a launch: each compiler twice on each workload."""
    return tuple(
        Cell("local", CompilerSpec(compiler), Workload(parse_model(model), batch=batch), replica)
        for compiler in COMPILERS
        for model, batch in MODELS
        for replica in (0, 1)
    )


def job_in(folder: Path) -> Job:
    """Return what the workers of a session share; their artefacts go into a folder."""
    home = str(Path(__file__).resolve().parents[1])
    cpus = available_cpus()
    device = Device("local", cpus, len(cpus))
    return Job((home, *sys.path), device, 0, folder / "artifacts", folder / "logs", BUILT_IN, timeout_seconds=600)


def build(job: Job) -> None:
    """Make what the cells read, in a process of its own, so that no launch has to."""
    client = WorkerClient(job, "builder", protocol=GATE, draw=random.Random(0))
    try:
        for model, batch in MODELS:
            workload = Workload(parse_model(model), batch=batch).to_json()
            # The ONNX file comes with the module's.
            for want_onnx in (False, True):
                answer = client.request("build", workload=workload, want_onnx=want_onnx)
                if not answer["ok"]:
                    raise SystemExit(f"{model}: {answer['reason']}")
        client.close()
    finally:
        client.kill()


class Kept:
    """A sink that keeps each visit in short: ln of its clean median, of its whole median, and its faults a call."""

    def __init__(self) -> None:
        self.visits: dict[str, dict[int, list[float | None]]] = {}
        self.failed: dict[str, str] = {}

    def prepared(self, cell: Cell, record: CompileRecord) -> None:
        """Keep what became of a cell that has no good time."""
        if record.outcome is not Outcome.OK:
            self.failed[cell.label] = f"{record.outcome}: {record.reason}"

    def visited(self, cell: Cell, block: int, position: int, visit: Visit) -> None:
        """Keep a visit."""
        clean, whole = summarise(visit), summarise(visit, clean=False)
        kept = [clean.ln_seconds, whole.ln_seconds, whole.faults_per_call]
        rounded = [None if value is None else round(value, 6) for value in kept]
        self.visits.setdefault(cell.label, {})[block] = rounded

    def block_done(self, block: int, *readings: Any) -> None:
        """Nothing to do: nothing is committed."""

    def progress(self, doing: str, done: int, total: int) -> None:
        """Nothing to do: a launch is short."""


def run_one(job: Job, row: str, seed: int) -> Json:
    """Run one launch of a row and return what is kept of it."""
    condition, _, variant = row.partition(": ")
    plan, sink = LaunchPlan(cells(), VARIANTS[variant], seed), Kept()
    began = monotonic()
    with beside(condition):
        run_launch(job, plan, sink, spare_memory=spare_memory_share)
    return {"row": row, "seed": seed, "seconds": monotonic() - began, "visits": sink.visits, "failed": sink.failed}


def next_row(rows: Sequence[str], sets: Sets, session: Session) -> str | None:
    """Return the row with the fewest launches of those that there is time for, in turns forth and back.

    So a drift of the machine hits all rows alike.
    """
    able = [row for row in rows if session.has_time([one["seconds"] for one in sets.of(row)])]
    if not able:
        return None
    fewest = min(len(sets.of(row)) for row in able)
    left = [row for row in able if len(sets.of(row)) == fewest]
    return left[0] if fewest % 2 == 0 else left[-1]


def measure(rows: Sequence[str], sets: Sets, session: Session, most: int | None) -> None:
    """Make launches until the time is over, or each row has ``most``."""
    with device_lock("local", waiting=say), TemporaryDirectory(prefix="ngraph-ingredients-") as place:
        job = job_in(Path(place))
        build(job)
        while True:
            open_rows = [row for row in rows if most is None or len(sets.of(row)) < most]
            row = next_row(open_rows, sets, session)
            if row is None:
                return
            one = run_one(job, row, random.SystemRandom().randrange(1 << 31))
            sets.add(one)
            say(f"{row}, launch {len(sets.of(row))}: {one['seconds']:.0f} s {'; '.join(one['failed'].values())}")


# What the launches say


def pairs_of(one: Json) -> list[tuple[str, str]]:
    """Return the labels of the first and the second process of each cell that has both."""
    twin = " (second process)"
    return [(label, label + twin) for label in one["visits"] if label + twin in one["visits"]]


def times(one: Json, label: str, *, clean: bool) -> dict[str, float]:
    """Return ln(seconds a call) of a cell by block, of its clean batches or of all of them."""
    values = {block: kept[0 if clean else 1] for block, kept in one["visits"][label].items()}
    return {str(block): value for block, value in values.items() if value is not None}


def contrasts(one: Json, first: str, second: str, *, clean: bool) -> list[float]:
    """Return ln(time of one process / time of the other) in every block that has both."""
    mine, other = times(one, first, clean=clean), times(one, second, clean=clean)
    return [mine[block] - other[block] for block in mine if block in other]


def visit_scatter(launches: Iterable[Json], *, clean: bool, compiler: str) -> float | None:
    """Return the standard deviation of ln(time of a visit) within a launch, pooled over cells and launches."""
    groups = [
        list(times(one, label, clean=clean).values())
        for one in launches
        for label in one["visits"]
        if label.startswith(f"local:{compiler} ")
    ]
    return pooled(groups)


def dropped(launches: Iterable[Json], *, clean: bool, compiler: str) -> str:
    """Write the share of visits that do not count."""
    counts = [
        (len(times(one, label, clean=clean)), len(visits))
        for one in launches
        for label, visits in one["visits"].items()
        if label.startswith(f"local:{compiler} ")
    ]
    kept, total = (sum(column) for column in zip(*counts, strict=True)) if counts else (0, 0)
    return f"{100 * (total - kept) / total:.0f} %" if total else "-"


def launch_contrasts(launches: Iterable[Json], *, clean: bool, compiler: str) -> dict[str, list[float]]:
    """Return the value of each launch by comparison: ln of a ratio that is truly 1."""
    found: dict[str, list[float]] = {}
    for one in launches:
        for first, second in pairs_of(one):
            value = launch_value(contrasts(one, first, second, clean=clean))
            if first.startswith(f"local:{compiler} ") and value is not None:
                found.setdefault(first, []).append(value.value)
    return found


def pooled(groups: Iterable[Sequence[float]]) -> float | None:
    """Return the standard deviation within groups of values; None where no group has two."""
    squares, freedom = 0.0, 0
    for values in groups:
        if len(values) > 1:
            centre = math.fsum(values) / len(values)
            squares += math.fsum((value - centre) ** 2 for value in values)
            freedom += len(values) - 1
    return math.sqrt(squares / freedom) if freedom else None


def root_mean_square(values: Sequence[float]) -> float | None:
    """Return the scatter of values around 0, which is their truth."""
    return math.sqrt(math.fsum(value**2 for value in values) / len(values)) if values else None


def wrong(values: Iterable[float]) -> tuple[int, int]:
    """Count the gates ">= 0.98 on identical code" that points decide wrongly; each ratio is one to either side."""
    each = [side * value for value in values for side in (1, -1)]
    return sum(value < math.log(THRESHOLD) for value in each), len(each)


def rows_of(sets: Sequence[Json]) -> list[list[str]]:
    """Return the table: a line for every condition, variant and compiler."""
    rows = []
    for condition in CONDITIONS:
        for variant in (*VARIANTS, UNCLEAN):
            clean, measured = variant != UNCLEAN, next(iter(VARIANTS)) if variant == UNCLEAN else variant
            launches = [one for one in sets if one["row"] == f"{condition}: {measured}"]
            for compiler in COMPILERS if launches else ():
                by_cell = launch_contrasts(launches, clean=clean, compiler=compiler)
                of_launches = [value for values in by_cell.values() for value in values]
                of_blocks = [
                    value
                    for one in launches
                    for first, second in pairs_of(one)
                    if first.startswith(f"local:{compiler} ")
                    for value in contrasts(one, first, second, clean=clean)
                ]
                rows.append(
                    [
                        condition,
                        variant,
                        compiler,
                        str(len(launches)),
                        dropped(launches, clean=clean, compiler=compiler),
                        _percent(visit_scatter(launches, clean=clean, compiler=compiler)),
                        _percent(root_mean_square(of_launches)),
                        share(*wrong(of_blocks)),
                        share(*wrong(of_launches)),
                    ]
                )
    return rows


COLUMNS = (
    "condition",
    "ingredients",
    "compiler",
    "launches",
    "visits dropped",
    "scatter of visits",
    "scatter of launches",
    "naive gate wrong, one visit [95 %]",
    "naive gate wrong, one launch [95 %]",
)


def _percent(value: float | None) -> str:
    return "-" if value is None else f"{100 * value:.1f} %"


def noise_sources(sets: Sequence[Json]) -> list[list[str]]:
    """Return the second table: for how many comparisons most of the noise is between launches, or within them."""
    rows = []
    for condition in CONDITIONS:
        for variant in VARIANTS:
            launches = [one for one in sets if one["row"] == f"{condition}: {variant}"]
            found: dict[str, list[LaunchValue]] = {}
            for one in launches:
                for first, second in pairs_of(one):
                    value = launch_value(contrasts(one, first, second, clean=True))
                    # One block says nothing of what is within a launch.
                    if value is not None and value.blocks > 1:
                        found.setdefault(first, []).append(value)
            sources = Counter(dominant_noise(values) for values in found.values() if len(values) > 2)
            if sources:
                rows.append([condition, variant, *(str(sources[source]) for source in SOURCES)])
    return rows


SOURCES = ("between launches", "within a launch", "drift")


def missed_goals(sets: Sequence[Json]) -> list[str]:
    """Return the conditions under which an ingredient that is left out makes launches scatter less."""
    missed = []
    for condition in CONDITIONS:
        scatters = {}
        for variant in VARIANTS:
            launches = [one for one in sets if one["row"] == f"{condition}: {variant}"]
            contrast = [launch_contrasts(launches, clean=True, compiler=compiler) for compiler in COMPILERS]
            values = [value for each in contrast for of_cell in each.values() for value in of_cell]
            found = root_mean_square(values)
            if found is not None:
                scatters[variant] = found
        best = scatters.pop(next(iter(VARIANTS)), None)
        for variant, scatter in scatters.items():
            if best is not None and scatter < best:
                missed.append(
                    f"{condition}: {variant} scatters {100 * scatter:.1f} %, all ingredients {100 * best:.1f} %"
                )
    return missed


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--file", type=Path, default=FILE, help="where finished launches are kept")
    parser.add_argument("--minutes", type=float, default=30.0, help="how long to go on")
    parser.add_argument("--most", type=int, default=None, metavar="N", help="launches of a row that are enough")
    parser.add_argument("--condition", nargs="+", default=["quiet", "bursty"], choices=("quiet", "bursty", "busy"))
    parser.add_argument("--report", action="store_true", help="only print what the finished launches say")
    given = parser.parse_args()
    sets = Sets(given.file)
    end_well()
    if not given.report:
        rows = [f"{condition}: {variant}" for condition in given.condition for variant in VARIANTS]
        measure(rows, sets, Session(given.minutes), given.most)
    print_table(COLUMNS, rows_of(sets.all))
    print_table(("condition", "ingredients", *(f"comparisons with most noise {source}" for source in SOURCES)),
                noise_sources(sets.all))  # fmt: skip
    finish(missed_goals(sets.all), None, {})


if __name__ == "__main__":
    main()

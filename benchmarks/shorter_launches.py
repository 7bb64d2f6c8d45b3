"""What stored launches would have said with shorter visits or fewer blocks: the scatter of their ratios, side by side.

Every two cells of one workload are a pair whose speed-up each launch says. Of a launch count the blocks in which the
machine was steady for both, five at least; of fewer blocks the first ones of launches that have eight. A store is that
of any run whose launches hold several cells of a workload.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from pathlib import Path
from statistics import fmean, median, stdev

from benchmarks.pairs import finish, options, print_table
from pytest_ngraph.spec.cells import Cell, LaunchRecord, Visit
from pytest_ngraph.stats.launches import launch_value
from pytest_ngraph.stats.visits import summarise
from pytest_ngraph.store.sqlite import Store

PARTS: Mapping[str, tuple[float, float]] = {
    "the first half of each visit": (0, 1 / 2), "the second half of each visit": (1 / 2, 1),
    "the first third of each visit": (0, 1 / 3),
}  # fmt: skip
BLOCKS = (6, 5, 4, 3)
WHOLE, PLANNED, LEAST_STEADY, LEAST_LAUNCHES = (0, 1), 8, 5, 4
_OF_BATCHES = ("wall_ns", "cpu_ns", "run_delay_ns", "faults")
Pair = tuple[Cell, Cell]


@dataclass(frozen=True, slots=True)
class Row:
    """What launches say of some pairs with less in them: the scatter, and how many times that of whole launches."""

    what: str
    pairs: int
    scatter: float
    ratio: float


def part_of(visit: Visit, part: tuple[float, float]) -> Visit:
    """Return a part of a visit's batches, one at least."""
    count = len(visit.wall_ns)
    first, last = (round(share * count) for share in part)
    chosen = slice(first, max(first + 1, last))
    kept = {name: getattr(visit, name)[chosen] for name in _OF_BATCHES if len(getattr(visit, name)) == count}
    return replace(visit, **kept)


def steady_blocks(record: LaunchRecord, pair: Pair) -> list[int]:
    """Return the blocks in which the machine was steady for both."""
    mine, other = (record.visits_of(cell) for cell in pair)
    return [
        block
        for block in sorted(mine.keys() & other.keys())
        if not any((cell, block) in record.unsteady for cell in pair)
    ]


@cache
def ln_seconds(visit: Visit, part: tuple[float, float]) -> float | None:
    """Return ln of the seconds of a call of a part of a visit, None where too little of it counts."""
    return summarise(part_of(visit, part)).ln_seconds


def value_of(record: LaunchRecord, pair: Pair, part: tuple[float, float], blocks: int | None) -> float | None:
    """Return what a launch says of a pair by a part of its visits, of its first blocks where they are numbered."""
    steady = steady_blocks(record, pair)
    if len(steady) < (LEAST_STEADY if blocks is None else PLANNED):
        return None
    both = [[ln_seconds(record.visits_of(cell)[block], part) for cell in pair] for block in steady[:blocks]]
    found = launch_value([one - other for one, other in both if one is not None and other is not None])
    return None if found is None else found.value


def scatters(launches: Sequence[LaunchRecord], pair: Pair, part: tuple[float, float], blocks: int | None) -> float:
    """Return the scatter of a pair over its launches, NaN of too few of them."""
    values = [value for one in launches if (value := value_of(one, pair, part, blocks)) is not None]
    return stdev(values) if len(values) >= LEAST_LAUNCHES else math.nan


def pairs_of(path: Path) -> Iterator[tuple[list[LaunchRecord], Pair]]:
    """Yield the pairs of the latest run of a store, with the launches that count of both."""
    with Store.open(path, read_only=True) as store:
        for related in store.related(dict(store.cells(store.runs()[-1].id))):
            launches = [one for one in related.timed if not one.invalid]
            # Calls in flight, and tokens, are no batches that follow one another.
            if any(visit.request_ns for one in launches for visit in one.visits.values()):
                continue
            for pair in combinations(related.cells, 2):
                if pair[0].workload == pair[1].workload:
                    yield [one for one in launches if one.counts_for(pair)], pair


def row_of(
    what: str, found: Sequence[tuple[list[LaunchRecord], Pair]], part: tuple[float, float], blocks: int | None
) -> Row:
    """Compare launches with less in them with the whole ones, pair by pair."""
    less = [scatters(launches, pair, part, blocks) for launches, pair in found]
    whole = [scatters(launches, pair, WHOLE, PLANNED if blocks else None) for launches, pair in found]
    both = [(one, other) for one, other in zip(less, whole, strict=True) if one > 0 and other > 0]
    if not both:
        return Row(what, 0, math.nan, math.nan)
    scatter = math.sqrt(fmean(one**2 for one, _ in both))
    return Row(what, len(both), scatter, median(one / other for one, other in both))


def main() -> None:
    """Print the table of some stores."""
    parser = options(__doc__)
    parser.add_argument("stores", type=Path, nargs="+", metavar="STORE", help="stores of runs, each a file.sqlite")
    given = parser.parse_args()
    found = [one for path in given.stores for one in pairs_of(path)]
    rows = [row_of("whole visits", found, WHOLE, None)]
    rows += [row_of(what, found, part, None) for what, part in PARTS.items()]
    rows += [row_of(f"the first {blocks} of {PLANNED} blocks", found, WHOLE, blocks) for blocks in (PLANNED, *BLOCKS)]
    print_table(
        ("a launch of", "pairs", "scatter of launches", "times that of whole ones (median)"),
        [(row.what, row.pairs, f"{100 * row.scatter:.1f} %", f"{row.ratio:.2f}") for row in rows],
    )
    finish([], given.json, {"stores": len(given.stores), "rows": rows})


if __name__ == "__main__":
    main()

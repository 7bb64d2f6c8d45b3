"""What stored launches would have said by the fastest of their calls: their scatter, and what such calls do not show.

Every two cells of one workload are a pair whose speed-up each launch says. Three effects are added to what the second
took: 5 % to all of its calls, and 10 % to half of them, batch by batch or visit by visit. A rule that sees none
of the latter takes a cell that is slow in half of its calls for one that is not. A store is that of any run whose
launches hold several cells of a workload; what there is to gain shows where the machine was not steady.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from benchmarks.pairs import finish, options, print_table
from benchmarks.shorter_launches import LEAST_LAUNCHES, Pair, pairs_of
from pytest_ngraph.quantities.quantity import combine
from pytest_ngraph.spec.cells import LaunchRecord, Visit

# What one launch says of ln(seconds of the one) - ln(seconds of the other), None where it says nothing.
Rule = Callable[[LaunchRecord, Pair], float | None]
Effect = Callable[[int, Visit], Visit]


def _difference(ln_seconds: Sequence[float]) -> float:
    return ln_seconds[0] - ln_seconds[1]


def by_blocks(record: LaunchRecord, pair: Pair, *, disturbed: bool | None) -> float | None:
    """Return what counts of a launch: that of its steady blocks, or of all where few are steady and they may count."""
    found = combine(record, pair, _difference, disturbed=disturbed)
    return None if found is None else found.value


def by_fastest(record: LaunchRecord, pair: Pair, share: float) -> float | None:
    """Return the difference of a low quantile of all batches of a launch; the fastest batches are the share 0."""
    each = [
        [nanoseconds / visit.calls for visit in record.visits_of(cell).values() for nanoseconds in visit.wall_ns]
        for cell in pair
    ]
    return _difference([math.log(np.quantile(batches, share)) for batches in each]) if all(each) else None


RULES: Mapping[str, Rule] = {
    "blocks, as they count": lambda record, pair: by_blocks(record, pair, disturbed=None),
    "steady blocks only": lambda record, pair: by_blocks(record, pair, disturbed=False),
    "the fastest quarter": lambda record, pair: by_fastest(record, pair, 0.25),
    "the fastest tenth": lambda record, pair: by_fastest(record, pair, 0.1),
    "the fastest twentieth": lambda record, pair: by_fastest(record, pair, 0.05),
    "the fastest fiftieth": lambda record, pair: by_fastest(record, pair, 0.02),
    "the fastest": lambda record, pair: by_fastest(record, pair, 0.0),
}


def slowed(visit: Visit, by: float, *, every: int = 1) -> Visit:
    """Return a visit with every so manieth of its batches slower by a share."""
    walls = [round(wall * (1 + by)) if not place % every else wall for place, wall in enumerate(visit.wall_ns)]
    return replace(visit, wall_ns=tuple(walls))


EFFECTS: Mapping[str, Effect] = {
    "5 % in all calls": lambda block, visit: slowed(visit, 0.05),
    "10 % in every second batch": lambda block, visit: slowed(visit, 0.1, every=2),
    "10 % in every second visit": lambda block, visit: visit if block % 2 else slowed(visit, 0.1),
}


def with_effect(record: LaunchRecord, pair: Pair, effect: Effect) -> LaunchRecord:
    """Return a launch in which the second cell of a pair is slower, as if it had been measured so."""
    visits = {
        (cell, block): effect(block, visit) if cell == pair[1] else visit
        for (cell, block), visit in record.visits.items()
    }
    return replace(record, visits=visits, derived={})


@dataclass(frozen=True, slots=True)
class Row:
    """What one rule makes of all pairs: launches with a value, their scatter, how much it sees of each effect."""

    rule: str
    launches: int
    scatter: float
    seen: Mapping[str, float]


def row_of(name: str, found: Sequence[tuple[list[LaunchRecord], Pair]]) -> Row:
    """Return what a rule makes of pairs, each of them with four launches at least: NaN where there is none."""
    rule, launches, scatters = RULES[name], 0, list[float]()
    seen: dict[str, list[float]] = {effect: [] for effect in EFFECTS}
    for records, pair in found:
        values = {number: value for number, one in enumerate(records) if (value := rule(one, pair)) is not None}
        if len(values) < LEAST_LAUNCHES:
            continue
        launches += len(values)
        scatters.append(stdev(values.values()))
        for effect, add in EFFECTS.items():
            then = [rule(with_effect(records[number], pair, add), pair) for number in values]
            both = zip(values.values(), then, strict=True)
            seen[effect] += [before - after for before, after in both if after is not None]
    scatter = math.sqrt(fmean(each**2 for each in scatters)) if scatters else math.nan
    return Row(name, launches, scatter, {effect: _mean(each) for effect, each in seen.items()})


def _mean(values: Sequence[float]) -> float:
    return math.expm1(fmean(values)) if values else math.nan


def main() -> None:
    """Print the table of some stores."""
    parser = options(__doc__)
    parser.add_argument("stores", type=Path, nargs="+", metavar="STORE", help="stores of runs, each a file.sqlite")
    given = parser.parse_args()
    found = [one for path in given.stores for one in pairs_of(path)]
    rows = [row_of(name, found) for name in RULES]
    print_table(
        ("a launch by", "launches", "scatter", *(f"sees of {effect}" for effect in EFFECTS)),
        [
            (row.rule, row.launches, f"{row.scatter:.1%}", *(f"{seen:+.1%}" for seen in row.seen.values()))
            for row in rows
        ],
    )
    finish([], given.json, {"stores": len(given.stores), "pairs": len(found), "rows": rows})


if __name__ == "__main__":
    main()

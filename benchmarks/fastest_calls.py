"""What stored launches would have said by the fastest of their calls: their scatter, and what such calls do not show.

Every two cells of one workload are a pair whose speed-up each launch says. Three effects are added to what the second
took: 5 % to all of its calls, and 10 % to half of them, batch by batch or visit by visit. A rule that sees none
of the latter takes a cell that is slow in half of its calls for one that is not. A store is that of any run whose
launches hold several cells of a workload; what there is to gain shows where the machine was not steady. A low quantile
is that of a machine left alone only if it was so for long enough: launches are also taken apart by the share of their
glances that read what the fastest of the store did.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, stdev

import numpy as np

from benchmarks.pairs import finish, options, print_table
from benchmarks.shorter_launches import LEAST_LAUNCHES, Pair, pairs_of
from pytest_ngraph.quantities.quantity import combine
from pytest_ngraph.spec.cells import LaunchRecord, Visit
from pytest_ngraph.store.related import readings_of

# Glances are alike that differ by less; of a store's the fastest fiftieth says what the machine is like by itself.
_ALIKE, _FASTEST = 1.15, 0.02
ALONE = 0.25  # of a launch's glances
COUNTS = "what counts"
# What one launch says of ln(seconds of the one) - ln(seconds of the other), None where it says nothing.
Rule = Callable[[LaunchRecord, Pair], float | None]
Effect = Callable[[int, Visit], Visit]


def _difference(ln_seconds: Sequence[float]) -> float:
    return ln_seconds[0] - ln_seconds[1]


def by_verdicts(record: LaunchRecord, pair: Pair, *, disturbed: bool) -> float | None:
    """Return what counts of a launch, or what its blocks say with disturbed ones among them where few are steady."""
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
    COUNTS: lambda record, pair: by_verdicts(record, pair, disturbed=False),
    "blocks, disturbed ones too": lambda record, pair: by_verdicts(record, pair, disturbed=True),
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


def alone_shares(path: Path) -> dict[int, float]:
    """Return the share of the glances of each launch of a store, by its seed, that read what the fastest ones did."""
    found: dict[int, list[int]] = {}
    statement = "SELECT seed, around FROM visits JOIN launches ON launches.id = launch_id WHERE around IS NOT NULL"
    with closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as connection:
        for seed, around in connection.execute(statement):
            pairs = filter(None, readings_of(around))
            found.setdefault(int(seed), []).extend(glance.arithmetic_ns for pair in pairs for glance in pair)
    every = [glance for glances in found.values() for glance in glances]
    most = _ALIKE * float(np.quantile(every, _FASTEST)) if every else 0.0
    return {seed: fmean(glance <= most for glance in glances) for seed, glances in found.items() if glances}


def knowing(
    found: Sequence[tuple[list[LaunchRecord], Pair]], shares: Mapping[int, float]
) -> list[tuple[list[LaunchRecord], Pair]]:
    """Return the pairs with launches that know how long they were left alone, as those of earlier versions do not."""
    return [
        ([one if one.alone is not None else replace(one, alone=shares.get(one.seed)) for one in records], pair)
        for records, pair in found
    ]


def split(
    found: Sequence[tuple[list[LaunchRecord], Pair]], shares: Mapping[int, float]
) -> dict[str, list[tuple[list[LaunchRecord], Pair]]]:
    """Return the pairs with the launches in which the machine was left alone for long enough, and with the others."""
    kinds = {f"at least {ALONE:.0%} of the glances": True, "fewer": False}
    return {
        kind: [
            ([one for one in records if (shares.get(one.seed, 0.0) >= ALONE) is long], pair) for records, pair in found
        ]
        for kind, long in kinds.items()
    }


@dataclass(frozen=True, slots=True)
class Row:
    """What one rule makes of all pairs: the values of launches, their scatter, how much it sees of each effect."""

    rule: str
    values: int
    scatter: float
    seen: Mapping[str, float]


def row_of(name: str, found: Sequence[tuple[list[LaunchRecord], Pair]]) -> Row:
    """Return what a rule makes of pairs, each of them with four launches at least: NaN where there is none."""
    rule, count, scatters = RULES[name], 0, list[float]()
    seen: dict[str, list[float]] = {effect: [] for effect in EFFECTS}
    for records, pair in found:
        values = {number: value for number, one in enumerate(records) if (value := rule(one, pair)) is not None}
        if len(values) < LEAST_LAUNCHES:
            continue
        count += len(values)
        scatters.append(stdev(values.values()))
        for effect, add in EFFECTS.items():
            then = [rule(with_effect(records[number], pair, add), pair) for number in values]
            both = zip(values.values(), then, strict=True)
            seen[effect] += [before - after for before, after in both if after is not None]
    scatter = math.sqrt(fmean(each**2 for each in scatters)) if scatters else math.nan
    return Row(name, count, scatter, {effect: _mean(each) for effect, each in seen.items()})


def _mean(values: Sequence[float]) -> float:
    return math.expm1(fmean(values)) if values else math.nan


def main() -> None:
    """Print the table of some stores, and what rules make of launches that were left alone for longer or less long."""
    parser = options(__doc__)
    parser.add_argument("stores", type=Path, nargs="+", metavar="STORE", help="stores of runs, each a file.sqlite")
    given = parser.parse_args()
    shares = {seed: share for path in given.stores for seed, share in alone_shares(path).items()}
    found = knowing([one for path in given.stores for one in pairs_of(path)], shares)
    rows = [row_of(name, found) for name in RULES]
    print_table(
        ("a launch by", "values of pairs", "scatter", *(f"sees of {effect}" for effect in EFFECTS)),
        [(row.rule, row.values, f"{row.scatter:.1%}", *(f"{seen:+.1%}" for seen in row.seen.values())) for row in rows],
    )
    apart = {kind: [row_of(name, some) for name in RULES] for kind, some in split(found, shares).items()}
    print()
    print_table(
        ("a launch by", *(text for kind in apart for text in (f"alone in {kind}: values", "scatter"))),
        [
            (name, *(text for rows in apart.values() for text in (rows[at].values, f"{rows[at].scatter:.1%}")))
            for at, name in enumerate(RULES)
        ],
    )
    finish([], given.json, {"stores": len(given.stores), "pairs": len(found), "rows": rows, "apart": apart})


if __name__ == "__main__":
    main()

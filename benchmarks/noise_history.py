"""What ``--ngraph-noise-history`` makes of real launches: those that ``benchmarks.verdicts`` kept, judged both ways.

Nothing is measured. The truth of each comparison is known, so any bound can be put to its launches: with half a
tolerance of room, at the bound, at the edge of the tolerance. The sets before one are its earlier runs; of the first
ones the last, as if they had gone round. Fails are those at a look, which fresh launches would have to confirm.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.pairs import finish, print_table
from benchmarks.sets import Json, Sets
from benchmarks.verdicts import FILE, share, truth_of
from pytest_ngraph.claims.decide import ALPHA
from pytest_ngraph.stats import LaunchValue, interval, looks_for, spending
from pytest_ngraph.stats.sessions import KnownScatter, known_scatter, with_known_scatter
from pytest_ngraph.stats.verdict import Bound, Verdict, judge

TOLERANCE, BUDGET = 0.05, 16
# Where the truth lies, in tolerances from the bound, and what no gate there may say.
PLACES = {
    "half a tolerance better": (0.5, Verdict.FAIL),
    "at the bound": (0.0, Verdict.FAIL),
    "at the edge": (-1.0, Verdict.PASS),
}
WAYS = ("by themselves", "by earlier runs, too")
# The share of gates that may be wrong.
PROMISED = 0.01


@dataclass(frozen=True, slots=True)
class Comparison:
    """The launches of a comparison in one set: ln of each speed-up over the true one, and what earlier sets knew."""

    values: Sequence[LaunchValue]
    known: KnownScatter | None


@dataclass(frozen=True, slots=True)
class Count:
    """What became of the gates at a place: how many there are, were wrong, were decided, and launches on average."""

    gates: int
    wrong: int
    decided: int
    launches: float


def comparisons(sets: Sequence[Json]) -> Iterator[Comparison]:
    """Yield every comparison of the quiet sets of which earlier ones say how it scatters."""
    kinds = {(one["row"], one["adapter"]): None for one in sets if one["row"] in ("quiet-aa", "quiet-effects")}
    for row, adapter in kinds:
        mine = [one for one in sets if (one["row"], one["adapter"]) == (row, adapter)]
        for at, one in enumerate(mine):
            # The latest first, as ``known_scatter`` takes them.
            before = [*reversed(mine[:at]), *reversed(mine[at + 1 :])]
            for label, values in one["speedups"].items():
                runs = [launch_values(label, each["speedups"].get(label, ())) for each in before]
                yield Comparison(launch_values(label, values), known_scatter(run for run in runs if run))


def launch_values(label: str, speedups: Sequence[float]) -> list[LaunchValue]:
    """Return ln of how much faster each launch was than in truth. What its blocks scatter by was not kept."""
    compiler = label.partition(" ")[0].partition(":")[2]
    return [LaunchValue(value - truth_of(compiler), 0.0, 8) for value in speedups]


def judged(one: Comparison, bound: Bound, *, by_history: bool) -> tuple[Verdict, int]:
    """Return what the looks at a comparison's launches say, as far as they reach, and how many launches that took."""
    looks = looks_for(BUDGET, TOLERANCE)
    for look, level in zip(looks, spending(ALPHA, looks, BUDGET), strict=True):
        if look > len(one.values):
            break
        spread = interval(one.values[:look], level)
        if by_history and one.known is not None:
            spread = with_known_scatter(spread, one.known, level)
        if (verdict := judge(spread, bound)) is not Verdict.INCONCLUSIVE:
            return verdict, look
    return Verdict.INCONCLUSIVE, min(len(one.values), BUDGET)


def bounds_at(place: float) -> list[Bound]:
    """Return the bounds from which the true speed-up, 1, is so many tolerances away on their good side."""
    lower, upper = (1 - TOLERANCE) ** place, (1 + TOLERANCE) ** place
    return [Bound(lower, True, TOLERANCE, "log"), Bound(upper, False, TOLERANCE, "log")]


def count(known: Sequence[Comparison], place: str, *, by_history: bool) -> Count:
    """Judge every comparison against both bounds of a place."""
    tolerances, forbidden = PLACES[place]
    found = [judged(one, bound, by_history=by_history) for one in known for bound in bounds_at(tolerances)]
    decided = sum(verdict is not Verdict.INCONCLUSIVE for verdict, _ in found)
    launches = math.fsum(taken for _, taken in found) / len(found)
    return Count(len(found), sum(verdict is forbidden for verdict, _ in found), decided, launches)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--file", type=Path, nargs="+", default=[FILE], help="sets that benchmarks.verdicts kept")
    given = parser.parse_args()
    sets = [one for file in given.file for one in Sets(file).all]
    known = [one for one in comparisons(sets) if one.known is not None and len(one.values) > 2]
    if not known:
        raise SystemExit("no comparison has three earlier sets yet: python -m benchmarks.verdicts makes more")
    rows, missed = [], []
    for place in PLACES:
        for way in WAYS:
            one = count(known, place, by_history=way is WAYS[1])
            rows.append((place, way, share(one.wrong, one.gates), share(one.decided, one.gates), f"{one.launches:.1f}"))
            if one.wrong > PROMISED * one.gates:
                missed.append(f"{place}, {way}: {share(one.wrong, one.gates)} wrong (goal: at most 1 %)")
    print(f"{len(known)} comparisons, each against a bound to either side\n")
    print_table(("the truth", "judged", "wrong at a look [95 %]", "decided with what was measured", "launches"), rows)
    finish(missed, None, {})


if __name__ == "__main__":
    main()

"""What glances before and after visits leave of the noise within launches, and what either half of them would.

One pytest run of launches in which no visit is repeated or waited for: what is left out is seen, and what it was like.
"""

from __future__ import annotations

import math
import sqlite3
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean, median
from tempfile import TemporaryDirectory

from benchmarks.pairs import finish, options, print_table
from benchmarks.sets import run_pytest
from benchmarks.verdicts import CONFTEST, TINY, network
from benchmarks.wrappers import PLACES, spec_of
from pytest_ngraph.spec.cells import Cell, Reading, Visit
from pytest_ngraph.spec.states.steadiness import Around, unsteady
from pytest_ngraph.stats.visits import summarise
from pytest_ngraph.store.codec import cell_from_text, from_blob
from pytest_ngraph.store.related import readings_of

ADAPTER = "onnxruntime"
SLOWER = 0.15  # than the fastest quarter of a cell's visits in its launch, in ln
_ONCE = """
from pytest_ngraph.launches.surroundings import Surroundings

# Visits are taken as they come: what would have been repeated is to be seen.
Surroundings._is_usual = lambda self, glance: True
"""
_SUITE = """
import pytest
from pytest_ngraph import assert_speedup


@pytest.mark.ngraph(models={models!r}, budget={launches})
def test_equal(ngraph_models):
    for cell in ngraph_models.values():
        try:
            assert_speedup(cell, at_least=1.0, tolerance=1e-6)
        except (AssertionError, pytest.skip.Exception):
            pass
"""
Places = Mapping[tuple[Cell, int], Visit]
Glance = Callable[[Reading], Reading]


@dataclass(frozen=True, slots=True)
class Left:
    """What one rule leaves: the share of visits, the scatter of their ln times, and how many of them are slow."""

    rule: str
    share: float
    scatter: float
    slow: float


RULES: Mapping[str, Glance | None] = {
    "all visits": None,
    "by the arithmetic": lambda glance: replace(glance, crossing_ns=()),
    "by the word": lambda glance: replace(glance, arithmetic_ns=1),
    "by both": lambda glance: glance,
}


def launches_of(store: Path) -> list[Places]:
    """Return the visits of every launch of a store with the glances around them, those that are usable by run-delay."""
    found: dict[int, dict[tuple[Cell, int], Visit]] = {}
    columns = "launch_id, cells.cell, block, calls, wall_ns, cpu_ns, run_delay_ns, faults, request_ns, around"
    statement = f"SELECT {columns} FROM visits JOIN cells ON cells.id = cell_id WHERE around IS NOT NULL"
    with closing(sqlite3.connect(f"file:{store}?mode=ro", uri=True)) as connection:
        for launch, cell, block, calls, *samples, around in connection.execute(statement):
            tries = tuple(filter(None, readings_of(around)))
            visit = Visit(calls, *map(from_blob, samples), around=tries)
            if summarise(visit).ln_seconds is not None:
                found.setdefault(launch, {})[cell_from_text(cell), block] = visit
    return list(found.values())


def left_by(rule: str, launches: Iterable[Places]) -> Left:
    """Return what a rule leaves of the visits of some launches, each cell in each launch by itself."""
    seen, squares, slow = 0, list[float](), list[bool]()
    look = RULES[rule]
    for launch in launches:
        out = frozenset() if look is None else unsteady({place: _as(look, visit) for place, visit in launch.items()})
        for cell in {cell for cell, _ in launch}:
            times = {block: _ln(visit) for (one, block), visit in launch.items() if one == cell}
            left = [time for block, time in times.items() if (cell, block) not in out]
            fast = sorted(times.values())[len(times) // 4]
            seen += len(times)
            squares += [(time - median(left)) ** 2 for time in left]
            slow += [time > fast + SLOWER for time in left]
    return Left(rule, len(slow) / seen, math.sqrt(fmean(squares)), fmean(slow))


def _as(look: Glance, visit: Visit) -> list[Around]:
    return [(look(before), look(after)) for before, after in visit.around]


def _ln(visit: Visit) -> float:
    found = summarise(visit).ln_seconds
    assert found is not None  # otherwise it would not be here
    return found


def run(launches: int, seed: int) -> list[Places]:
    """Measure three networks and each of them a second time, in so many launches."""
    with TemporaryDirectory(prefix="ngraph-glances-") as place:
        folder = Path(place)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(CONFTEST.format(group="", places=PLACES) + _ONCE)
        models = [network(name) for name in TINY]
        (folder / "test_equal.py").write_text(_SUITE.format(models=models, launches=launches))
        given = [f"--ngraph-baseline={spec_of(ADAPTER, 0)}", f"--ngraph-compiler={spec_of(ADAPTER, 0, twin=True)}"]
        status, _, output = run_pytest(folder, [*given, f"--ngraph-seed={seed}"], timeout_seconds=1800)
        if status not in (0, 1):
            raise SystemExit(f"pytest ended with {status}:\n{output[-3000:]}")
        return launches_of(folder / ".ngraph" / "results.sqlite")


def main() -> None:
    """Print the table, and whether what is left scatters by half of what there was, or is quiet anyway."""
    parser = options(__doc__)
    parser.add_argument("--launches", type=int, default=12, help="launches to measure")
    parser.add_argument("--seed", type=int, default=1, help="seed of the run")
    given = parser.parse_args()
    found = run(given.launches, given.seed)
    rows = [left_by(rule, found) for rule in RULES]
    columns = ["visits of " + str(len(found)) + " launches", "left", "scatter", f"over {SLOWER:.0%} slower"]
    print_table(columns, [[one.rule, f"{one.share:.1%}", f"{one.scatter:.1%}", f"{one.slow:.1%}"] for one in rows])
    before, after = rows[0], rows[-1]
    missed = []
    if after.scatter > max(0.02, before.scatter / 2):
        missed.append(f"a scatter of {after.scatter:.1%} where there was {before.scatter:.1%} (goal: half, or 2 %)")
    figures = {one.rule: {"left": one.share, "scatter": one.scatter, "slow": one.slow} for one in rows}
    finish(missed, given.json, {"launches": len(found), "rules": figures})


if __name__ == "__main__":
    main()

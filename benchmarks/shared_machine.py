"""What becomes of gates with a known truth beside neighbours that take a known share of the CPUs, in real runs.

A set is one real pytest run with a seed and a store of its own. Each cell is claimed at its true value, at what it
misses by the tolerance and at what it holds by it, from both sides. Finished sets are appended to a file.
"""

from __future__ import annotations

import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from benchmarks.neighbours import LOADS, beside_load
from benchmarks.pairs import print_table, say
from benchmarks.resumed import made_sets, set_options
from benchmarks.sets import Json, Sets, run_pytest
from benchmarks.verdicts import CONFTEST, TINY, network, read_store, share
from benchmarks.wrappers import PLACES, spec_of
from pytest_ngraph.machine.facts import available_cpus, busy_seconds

FILE = Path(__file__).with_name("results") / "shared_machine.json"
TOLERANCE = 0.05
BASE_US = 2000
# Compilers whose speed-up over their baseline is known: calls of known length, and so many calls of one kind.
KNOWN = {f"null[fixed_us={us},sample_us=0]": BASE_US / us for us in (500, 1900, 10_000)}
COUNTED = {spec_of("identity", extra): 100 / (100 + extra) for extra in (3, 10)}
ENGINES = {spec_of("onnxruntime", extra): 100 / (100 + extra) for extra in (3, 10)}
SHARES = (0.25, 0.5)
SUITE = """
import pytest
from pytest_ngraph import assert_speedup

TRUE = {truths!r}


@pytest.mark.ngraph(models={models!r}, tolerance={tolerance})
def test_known(ngraph_models):
    for cell in ngraph_models.values():
        true = TRUE[str(cell.cell.compiler)]
        for bound in {bounds!r}:
            side, factor = bound
            try:
                assert_speedup(cell, **{{side: true * factor}})
            except (AssertionError, pytest.skip.Exception):
                pass
"""
# The factors by which a bound is from the truth, and what is false there.
BOUNDS = {
    ("at_least", 1.0): "fail",
    ("at_least", 1 / (1 - TOLERANCE)): "pass",
    ("at_least", 1 - TOLERANCE): "fail",
    ("at_most", 1.0): "fail",
    ("at_most", 1 / (1 + TOLERANCE)): "pass",
    ("at_most", 1 + TOLERANCE): "fail",
}


@dataclass(frozen=True, slots=True)
class Row:
    """Which cells are judged beside which neighbour: a share of one CPU, or of every one; none at all if it is 0."""

    cells: str
    load: str = ""
    share: float = 0.0
    everywhere: bool = False

    @property
    def name(self) -> str:
        """Name the row, such as ``known-bursty-25-all``."""
        if not self.share:
            return f"{self.cells}-alone"
        return f"{self.cells}-{self.load}-{100 * self.share:.0f}-{'all' if self.everywhere else 'one'}"

    @property
    def beside(self) -> str:
        """Say what the neighbour does."""
        if not self.share:
            return "nothing of ours"
        return f"{self.load}, {100 * self.share:.0f} % of {'each CPU' if self.everywhere else 'one CPU'}"


CELLS: Mapping[str, tuple[str, Mapping[str, float], Sequence[str]]] = {
    "known": (f"null[fixed_us={BASE_US},sample_us=0]", KNOWN, ["block:conv"]),
    "eager": (spec_of("identity", 0), COUNTED, [network(name) for name in TINY[:2]]),
    "onnxruntime": (spec_of("onnxruntime", 0), ENGINES, [network(name) for name in TINY[:2]]),
}
ROWS = tuple(
    Row(cells, load, share, everywhere)
    for cells in CELLS
    for load in LOADS
    for share in (*SHARES, 1.0)
    for everywhere in (False, True)
    if share < 1 or (load == "bursty" and everywhere)
) + tuple(Row(cells) for cells in CELLS)


@contextmanager
def others_of(found: Json) -> Iterator[None]:
    """Note how many CPUs were busy before a set, when none of its neighbours had begun: what is not ours."""
    began = busy_seconds(available_cpus())

    time.sleep(1.0)
    ended = busy_seconds(available_cpus())
    found["background_cpus"] = None if began is None or ended is None else round(ended - began, 2)
    yield


def run_set(row: Row, seed: int, timeout_seconds: float) -> Json | None:
    """Run one set and return what is kept of it, None where there was no time to finish it."""
    baseline, truths, models = CELLS[row.cells]
    neighbour = beside_load(row.load, row.share, everywhere=row.everywhere) if row.share else nullcontext()
    found: Json = {"row": row.name, "seed": seed}
    with others_of(found), neighbour, TemporaryDirectory(prefix="ngraph-shared-") as place:
        folder = Path(place)
        (folder / "pytest.ini").write_text("[pytest]\n")
        (folder / "conftest.py").write_text(CONFTEST.format(group="", places=PLACES))
        text = SUITE.format(truths=dict(truths), models=models, tolerance=TOLERANCE, bounds=list(BOUNDS))
        (folder / "test_set.py").write_text(text)
        options = [
            f"--ngraph-baseline={baseline}", f"--ngraph-compiler={','.join(truths)}", f"--ngraph-seed={seed}",
            "--ngraph-inconclusive=skip",
        ]  # fmt: skip
        status, seconds, output = run_pytest(folder, options, timeout_seconds=timeout_seconds)
        if status == 124:
            return None
        found |= {"status": status, "wall_seconds": round(seconds, 1)} | read_store(folder / ".ngraph/results.sqlite")
        expected = len(truths) * len(models) * len(BOUNDS)
        if len(found["verdicts"]) < expected:
            say(f"{row.name}: {len(found['verdicts'])} of {expected} verdicts\n{output[-3000:]}")
        return found


def is_false(row: Json, truths: Mapping[str, float]) -> bool:
    """Tell whether a verdict fails what holds, or passes what misses its bound by the tolerance."""
    side = "at_least" if row["at_least"] else "at_most"
    factor = row["bound"] / truths[row["compiler"]]
    wrong = next(wrong for (of, by), wrong in BOUNDS.items() if of == side and math.isclose(by, factor, rel_tol=1e-6))
    return bool(row["verdict"] == wrong)


def table(sets: Sets) -> list[list[str]]:
    """Return a line for each row that has sets."""
    rows = []
    for row in ROWS:
        mine = sets.of(row.name)
        if not mine:
            continue
        truths = CELLS[row.cells][1]
        verdicts = [one for each in mine for one in each["verdicts"]]
        counts = Counter(one["verdict"] for one in verdicts)
        decided = [one for one in verdicts if one["verdict"] in ("pass", "fail")]
        false = sum(is_false(one, truths) for one in decided)
        errors = [abs(one["estimate"] / truths[one["compiler"]] - 1) for one in verdicts if one["estimate"]]
        launches = [one for each in mine for one in each["launches"]]
        background = [each["background_cpus"] for each in mine if each["background_cpus"] is not None]
        rows.append(
            [
                row.cells,
                row.beside,
                str(len(mine)),
                share(len(decided), len(verdicts)),
                f"{counts['inconclusive']} / {counts['invalid']}",
                f"{false} of {len(decided)}",
                f"{100 * max(errors):.1f} %" if errors else "-",
                f"{sum(bool(one['invalid']) for one in launches)} of {len(launches)}",
                f"{median(each['wall_seconds'] for each in mine):.0f}",
                f"{median(background):.1f}" if background else "-",
            ]
        )
    return rows


COLUMNS = (
    "cells",
    "beside",
    "sets",
    "decided [95 %]",
    "inconclusive / invalid",
    "false",
    "largest error of an estimate",
    "launches that do not count",
    "s a set",
    "CPUs busy before",
)


def make(name: str, seconds_left: float) -> Json | None:
    """Make a set of the row of that name."""
    (row,) = (row for row in ROWS if row.name == name)
    found = run_set(row, random.SystemRandom().randrange(1 << 31), seconds_left)
    if found is not None:
        say(f"{name}: {Counter(one['verdict'] for one in found['verdicts'])}")
    return found


def main() -> None:
    """Make sets until the time is over or each row has enough, and print what the finished ones say."""
    given = set_options(__doc__, FILE, minutes=5.0, most=1).parse_args()
    print_table(COLUMNS, table(made_sets(given, [row.name for row in ROWS], lambda row, _, left: make(row, left), say)))


if __name__ == "__main__":
    main()

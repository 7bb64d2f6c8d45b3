"""Is a commit that adds a layer called slower, and one that adds none not? Real repositories, each measured afresh."""

from __future__ import annotations

import math
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from benchmarks.bisecting import write_history
from benchmarks.pairs import finish, options, print_table, say
from pytest_ngraph.store.sqlite import Store

# What the commit under test changes, and what should become of it.
SLOWER, EQUAL, ELSEWHERE = "adds a layer", "same code, other text", "touches another file"
EXPECTED = {SLOWER: "fail", EQUAL: "pass", ELSEWHERE: "unchanged"}


@dataclass(frozen=True, slots=True)
class Row:
    """What one run said of a change: a verdict, or ``unchanged`` where nothing was to be measured."""

    change: str
    seed: int
    said: str
    ratio: float
    low: float
    high: float
    launches: int
    seconds: float


def compared(change: str, seed: int, layers: int, behind: Sequence[str]) -> Row:
    """Make a repository with one commit that changes something and compare it with the commit before."""
    with TemporaryDirectory() as place:
        folder = Path(place)
        before = write_history(folder, 1, int(change == SLOWER), layers)[0]
        if change == ELSEWHERE:
            subprocess.run(["git", "checkout", "-q", before], cwd=folder, check=True)
            (folder / "notes.txt").write_text("Nothing that is measured reads this.\n")
        began = monotonic()
        done = subprocess.run(
            [sys.executable, "-m", "pytest", "-q", "-pno:cacheprovider", "test_speed.py", "--ngraph-baseline=null",
             f"--ngraph-against={before}", "--ngraph-gate-changes", "--ngraph-inconclusive=warn",
             f"--ngraph-seed={seed}", *behind],
            cwd=folder,
            capture_output=True,
            text=True,
        )  # fmt: skip
        seconds = monotonic() - began
        if done.returncode not in (0, 1):
            raise SystemExit(f"pytest ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        with Store.open(folder / ".ngraph" / "results.sqlite", read_only=True) as store:
            (run,) = store.runs()
            verdicts = store.verdicts(run.id)
            launches = sum(len(each.timed) for each in store.related(dict(store.cells(run.id))))
    if not verdicts:
        return Row(change, seed, "unchanged", 1.0, 1.0, 1.0, launches, seconds)
    (one,) = verdicts
    value, low, high = (math.nan if each is None else each for each in (one.estimate, one.low, one.high))
    said = "unchanged" if one.verdict == "pass" and one.extra.get("reason", "").startswith("unchanged") else one.verdict
    return Row(change, seed, said, value, low, high, launches, seconds)


def judged(rows: Sequence[Row]) -> list[str]:
    """Return what a run said that is false: a change found that is none, one passed over, or a launch for nothing.

    What was left undecided is not false; it is counted in the table.
    """
    missed = [
        f"run {row.seed}, which {row.change}: {row.said}"
        for row in rows
        if row.said not in (EXPECTED[row.change], "inconclusive", "invalid")
    ]
    for row in rows:
        if row.change == ELSEWHERE and row.launches:
            missed.append(f"{row.launches} launches in run {row.seed}, where nothing had changed")
    return missed


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--runs", type=int, default=10, help="of each kind")
    parser.add_argument("--layers", type=int, default=12, help="layers before one is added: 12 make it 8 %% slower")
    parser.add_argument("--behind", default="", help="further arguments for pytest")
    given = parser.parse_args()
    rows: list[Row] = []
    for seed in range(given.runs):
        for change in EXPECTED:
            rows.append(compared(change, seed, given.layers, given.behind.split()))
            last = rows[-1]
            say(f"{seed + 1} of {given.runs}: {change}: {last.said}, {last.ratio:.3f}x, {last.seconds:.0f} s")
    table = []
    for change, expected in EXPECTED.items():
        of_it = [row for row in rows if row.change == change]
        counts = Counter(row.said for row in of_it)
        ratios = sorted(row.ratio for row in of_it)
        table.append(
            (change, len(of_it), expected, counts[expected], counts["inconclusive"] + counts["invalid"],
             f"{ratios[0]:.3f} to {ratios[-1]:.3f}", sum(row.launches for row in of_it) / len(of_it),
             f"{sum(row.seconds for row in of_it) / len(of_it):.0f}")
        )  # fmt: skip
    print_table(
        ("the commit", "runs", "should be", "is", "open", "now over before", "launches a run", "s a run"), table
    )
    finish(judged(rows), given.json, {"rows": rows})


if __name__ == "__main__":
    main()

"""Is a commit that adds a layer called slower, and one that adds none not? Real repositories, each measured afresh."""

from __future__ import annotations

import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from tempfile import TemporaryDirectory
from time import monotonic

from benchmarks.bisecting import write_history
from benchmarks.pairs import finish, print_table, say
from benchmarks.resumed import made_sets, set_options
from benchmarks.sets import Json
from pytest_ngraph.store.sqlite import Store

FILE = Path(__file__).with_name("results") / "changes.json"
# Before one is added: a thirteenth makes 8 %.
LAYERS = 12
# What the commit under test changes, and what should become of it.
SLOWER, EQUAL, ELSEWHERE = "adds a layer", "same code, other text", "touches another file"
EXPECTED = {SLOWER: "fail", EQUAL: "pass", ELSEWHERE: "unchanged"}
OPEN = ("inconclusive", "invalid")


@dataclass(frozen=True, slots=True)
class Row:
    """What one run said of a change: a verdict, or ``unchanged`` where nothing was to be measured."""

    change: str
    seed: int
    said: str
    ratio: float | None
    low: float | None
    high: float | None
    launches: int
    seconds: float


KEPT = tuple(field.name for field in fields(Row) if field.name not in ("change", "seconds"))


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
    said = "unchanged" if one.verdict == "pass" and one.extra.get("reason", "").startswith("unchanged") else one.verdict
    return Row(change, seed, said, one.estimate, one.low, one.high, launches, seconds)


def judged(rows: Sequence[Row]) -> list[str]:
    """Return what a run said that is false: a change found that is none, one passed over, or a launch for nothing.

    What was left undecided is not false, but where it is more than a tenth of the runs of a change they show little.
    """
    missed = [
        f"run {row.seed}, which {row.change}: {row.said}"
        for row in rows
        if row.said not in (EXPECTED[row.change], *OPEN)
    ]
    for row in rows:
        if row.change == ELSEWHERE and row.launches:
            missed.append(f"{row.launches} launches in run {row.seed}, where nothing had changed")
    for change in EXPECTED:
        of_it = [row.said for row in rows if row.change == change]
        if 10 * sum(said in OPEN for said in of_it) > len(of_it):
            missed.append(f"{sum(said in OPEN for said in of_it)} of {len(of_it)} undecided: {change}")
    return missed


def make(change: str, number: int, behind: Sequence[str]) -> Json:
    """Make one run, and say what it said."""
    row = compared(change, number, LAYERS, behind)
    say(f"{change}: {row.said}, {row.ratio} [{row.low}, {row.high}], {row.launches} launches")
    kept = {key: value for key, value in asdict(row).items() if key in KEPT}
    return {**kept, "wall_seconds": round(row.seconds, 1)}


def rows_of(sets: Sequence[Json]) -> list[Row]:
    """Return finished runs."""
    return [Row(change=one["row"], seconds=one["wall_seconds"], **{name: one[name] for name in KEPT}) for one in sets]


def table(rows: Sequence[Row]) -> list[list[object]]:
    """Return a line for each change that was tried."""
    lines = []
    for change, expected in EXPECTED.items():
        of_it = [row for row in rows if row.change == change]
        if not of_it:
            continue
        counts = Counter(row.said for row in of_it)
        ratios = sorted(row.ratio for row in of_it if row.ratio is not None)
        lines.append(
            [
                change,
                len(of_it),
                expected,
                counts[expected],
                sum(counts[said] for said in OPEN),
                f"{ratios[0]:.3f} to {ratios[-1]:.3f}" if ratios else "-",
                f"{sum(row.launches for row in of_it) / len(of_it):.1f}",
                f"{sum(row.seconds for row in of_it) / len(of_it):.0f}",
            ]
        )
    return lines


def main() -> None:
    """Make runs until the time is over or there are enough of each kind, and print what they said."""
    parser = set_options(__doc__, FILE, minutes=15.0, most=10)
    parser.add_argument("--behind", default="", help="further arguments for pytest")
    given = parser.parse_args()
    sets = made_sets(given, list(EXPECTED), lambda row, number, _: make(row, number, given.behind.split()), say)
    rows = rows_of(sets.all)
    print_table(
        ("the commit", "runs", "should be", "is", "open", "now over before", "launches a run", "s a run"), table(rows)
    )
    not_run = [f"no run: {change}" for change in EXPECTED if not sets.of(change)]
    finish([*judged(rows), *not_run], None, {})


if __name__ == "__main__":
    main()

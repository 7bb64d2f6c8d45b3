"""Scripts whose sets are made row by row, as long as there is time, and which go on from what is finished."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from benchmarks.sets import Json, Session, Sets, end_well


def set_options(description: str | None, file: Path, *, minutes: float, most: int) -> argparse.ArgumentParser:
    """Return a parser with what every such script takes."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--file", type=Path, default=file, help="where finished sets are kept")
    parser.add_argument("--minutes", type=float, default=minutes, help="how long to go on making sets")
    parser.add_argument("--most", type=int, default=most, metavar="N", help="sets of a row that are enough")
    parser.add_argument("--row", nargs="+", default=["*"], metavar="ROW", help="rows or patterns of them")
    parser.add_argument("--report", action="store_true", help="only print what the finished sets say")
    return parser


def next_of(rows: Sequence[str], sets: Sets, session: Session, most: int) -> str | None:
    """Return the row with the fewest sets of those that another one still fits into, None where there is none.

    Of two rows with equally many it is the one measured last: A B B A, so that a drift of the machine hits both alike.
    """
    made = {row: sets.of(row) for row in rows}
    able = [
        row
        for row, earlier in made.items()
        if len(earlier) < most and session.has_time([one["wall_seconds"] for one in earlier])
    ]
    order = {one["row"]: number for number, one in enumerate(sets.all)}
    return min(able, key=lambda row: (len(made[row]), -order.get(row, -1)), default=None)


def made_sets(
    given: argparse.Namespace, rows: Sequence[str], make: Callable[[str, int, float], Json | None], say: Any
) -> Sets:
    """Make sets of the rows that were asked for and return all finished ones.

    ``make(row, number, seconds_left)`` makes one, the number counted from 0 in its row, and returns it with its
    ``wall_seconds``; None where the time was over first, of which nothing is kept. Raise SystemExit for a row that is
    none.
    """
    wanted = [row for row in rows if any(fnmatchcase(row, pattern) for pattern in given.row)]
    if not wanted:
        raise SystemExit(f"--row {' '.join(given.row)}: no such row (known: {', '.join(rows)})")
    sets, session = Sets(given.file), Session(given.minutes)
    end_well()
    while not given.report and (row := next_of(wanted, sets, session, given.most)) is not None:
        number = len(sets.of(row))
        say(f"{row}, set {number + 1}")
        one = make(row, number, max(1.0, session.seconds_left))
        if one is None:
            say(f"{row}: not finished in time, nothing is kept of it")
            break
        sets.add({"row": row, **one})
        say(f"{row}: {one['wall_seconds']:.0f} s")
    return sets

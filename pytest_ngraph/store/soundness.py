"""Whether a store is what was written: its pages, its tables, and every row against its seal."""

from __future__ import annotations

import shlex
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from pytest_ngraph.errors import StoreError
from pytest_ngraph.store import schema, seals
from pytest_ngraph.store.seals import Place

# Samples are most of a store; they are looked at when they are read.
_AT_ONCE = tuple(table for table in seals.OWNERS if table != "visits")
_NAMES = {
    "runs": "run", "cells": "cell", "run_cells": "cells of run", "run_baselines": "baselines of run",
    "verdicts": "verdicts of run", "epochs": "epochs", "launches": "launch", "prepared": "launch", "visits": "launch",
    "explanations": "explanations",
}  # fmt: skip
_MOST_NAMED = 3


@dataclass(frozen=True, slots=True)
class DamagedLaunch:
    """A launch whose rows are not those that were written. What is said of it is read from these rows."""

    id: int
    run: int | None
    begun: str
    group: str
    tables: tuple[str, ...]

    def __str__(self) -> str:
        where = f" of run {self.run}" if self.run is not None else ""
        what = f" ({self.group}, {self.begun})" if self.begun else ""
        return f"launch {self.id}{where}{what}"


def damage_lines(damaged: Iterable[DamagedLaunch], path: Path) -> list[str]:
    """Return what a user is shown of launches that do not count because they are damaged."""
    lines = [f"{launch} is damaged in the store: kept, not counted, measured again when needed" for launch in damaged]
    return [*lines, f"  {command('repair', path)} takes out what is damaged"] if lines else []


def command(name: str, path: Path) -> str:
    """Return the command that looks after a store, as it is typed."""
    return f"ngraph store {name} --store={shlex.quote(str(path))}"


def examine(connection: sqlite3.Connection, *, writing: bool) -> tuple[list[str], set[Place]]:
    """Return what is wrong with the file, and whose rows are not those that were sealed. Samples are not read.

    Before writing, free pages are looked at as well: what is written may land on them.
    """
    wrong = wrong_tables(connection)
    for table in ("seals", *_AT_ONCE) if not wrong else ():
        wrong += pages(connection, table)
    if writing and not wrong and connection.execute("PRAGMA freelist_count").fetchone()[0]:
        wrong += pages(connection)
    if wrong:
        return wrong, set()
    return [], {place for table in _AT_ONCE for place in seals.broken(connection, table)}


def pages(connection: sqlite3.Connection, table: str = "") -> list[str]:
    """Return what SQLite finds wrong with the pages of a table and its indexes, or of the whole file."""
    check = f"PRAGMA integrity_check({table})" if table else "PRAGMA integrity_check"
    try:
        with seals.lenient(connection):
            rows = connection.execute(check).fetchall()
    except sqlite3.DatabaseError as error:
        if not is_damage(error):
            raise
        return [str(error)]
    return [" ".join(str(text).split()) for (text,) in rows if text != "ok"]


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether an error is of the file's content, and not of the disk, its rights or other processes."""
    words = ("malformed", "corrupt", "not a database", "Could not decode", "malformed JSON", "unsupported file format")
    return any(word in str(error) for word in words)


def wrong_tables(connection: sqlite3.Connection) -> list[str]:
    """Return how tables and indexes differ from those that a store has. What others have added is no matter."""
    if connection.execute("PRAGMA encoding").fetchone()[0] != "UTF-8":
        return ["the encoding of its texts is not UTF-8"]
    if connection.execute("PRAGMA auto_vacuum").fetchone()[0]:
        return ["its header says that it shrinks by itself"]
    with seals.lenient(connection):
        there = _tables(connection)
    wanted = _wanted(schema.MIGRATIONS)
    return [f"{name} is not as it was made" for name, text in wanted.items() if there.get(name) != text]


@lru_cache(maxsize=4)
def _wanted(migrations: Sequence[Sequence[str]]) -> Mapping[str, str]:
    with closing(sqlite3.connect(":memory:", isolation_level=None)) as empty:
        for statement in (statement for migration in migrations for statement in migration):
            empty.execute(statement)
        return _tables(empty)


def _tables(connection: sqlite3.Connection) -> Mapping[str, str]:
    rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master").fetchall()
    made = {f"{kind} {name}": " ".join(f"{of} {sql}".split()) for kind, name, of, sql in rows}
    # Columns of axes are added when a store is opened for writing, by whatever version knows them.
    return {name: schema.without_axes(text) if name == "table cells" else text for name, text in made.items()}


def refuse(path: Path, wrong: Sequence[str], places: Iterable[Place] = ()) -> StoreError:
    """Return the error of a store that nothing can be judged from: what is damaged, and what to do."""
    named = [*wrong, *name_places(places)]
    rest = f" and {len(named) - _MOST_NAMED} more" if len(named) > _MOST_NAMED else ""
    return StoreError(
        f"store {path}: it is damaged ({'; '.join(named[:_MOST_NAMED])}{rest}); {command('check', path)} says what, "
        f"{command('repair', path)} keeps what is sound; or put back a copy or choose another --ngraph-store"
    )


def name_places(places: Iterable[Place]) -> list[str]:
    """Name whose rows are damaged."""
    return [_NAMES[table] + (f" {owner}" if seals.OWNERS[table] != "0" else "") for table, owner in sorted(places)]


def damaged_launch(connection: sqlite3.Connection, launch_id: int, tables: Iterable[str]) -> DamagedLaunch:
    """Return what can still be said of a damaged launch."""
    run, begun, group = None, "", ""
    try:
        with seals.lenient(connection):
            row = connection.execute(
                "SELECT run_id, started_at, launch_group FROM launches WHERE id = ?", (launch_id,)
            ).fetchone()
    except sqlite3.DatabaseError:
        row = None
    if row is not None:
        run, begun, group = row[0], *(str(text).encode("utf-8", "replace").decode() for text in row[1:])
    return DamagedLaunch(launch_id, run, begun, group, tuple(sorted(set(tables))))

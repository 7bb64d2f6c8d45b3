"""Seals: a checksum of the rows of every run, cell and launch, kept by each write in the transaction that it is in."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import sha256
from typing import NamedTuple

# The column that says whose rows they are: a launch's, a run's, or a cell's own. Epochs are sealed together, and so
# are explanations.
OWNERS: Mapping[str, str] = {
    "runs": "id", "cells": "id", "run_cells": "run_id", "run_baselines": "run_id", "verdicts": "run_id",
    "launches": "id", "prepared": "launch_id", "visits": "launch_id", "epochs": "0",
    "explanations": "0",
}  # fmt: skip
OF_LAUNCH = ("launches", "prepared", "visits")
_BITS = 128

Place = tuple[str, int]  # a table, and whose rows in it


class Sum(NamedTuple):
    """The number of rows of an owner in a table, and the sum of their checksums, whatever their order."""

    rows: int
    total: int


_NOTHING = Sum(0, 0)


class Sealer:
    """Keeps the seals of what a connection writes.

    Triggers of this connection alone give every row that is written, changed or deleted to ``_changed``. ``flush``
    writes the sums before the transaction is committed.
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection
        self._changes: dict[Place, Sum] = {}
        self._leaving: set[int] = set()
        connection.create_function("ngraph_seal", -1, self._changed)
        connection.create_function("ngraph_leaves", 1, self._leaving.__contains__)
        for table in OWNERS:
            columns = columns_of(connection, table)
            old, new = (_call(table, columns, row) for row in ("old", "new"))
            stays = f"WHEN NOT ngraph_leaves(old.{OWNERS[table]})" if table in OF_LAUNCH else ""
            for event, when, calls in (("INSERT", "", new), ("DELETE", stays, old), ("UPDATE", "", old + new)):
                connection.execute(
                    f"CREATE TEMP TRIGGER seal_{table}_{event} AFTER {event} ON main.{table} {when} BEGIN {calls} END"
                )

    def _changed(self, table: str, sign: int, owner: int, *values: object) -> None:
        rows, total = self._changes.get((table, owner), _NOTHING)
        row = checksum(table, values)
        self._changes[table, owner] = Sum(rows + sign, total + sign * row)

    def flush(self) -> None:
        """Write the seals of what the transaction has changed. A seal that was wrong stays wrong."""
        for place, (rows, total) in self._changes.items():
            known = read_seals(self._connection, *place).get(place) or _NOTHING
            write_seal(self._connection, place, Sum(known.rows + rows, (known.total + total) % (1 << _BITS)))
        self._changes.clear()

    def let_go(self, launch_id: int) -> None:
        """Delete the seals of a launch whose rows this transaction deletes, all of them.

        The rows are not held against their seals, and not even read: of damaged ones a rest of the sum would stay.
        """
        self._leaving.add(launch_id)
        for table in OF_LAUNCH:
            write_seal(self._connection, (table, launch_id), _NOTHING)

    def forget(self) -> None:
        """Drop what is known of a transaction that has ended: its changes, written or rolled back."""
        self._changes.clear()
        self._leaving.clear()


def _call(table: str, columns: Sequence[str], row: str) -> str:
    owner = OWNERS[table] if OWNERS[table] == "0" else f"{row}.{OWNERS[table]}"
    values = ", ".join(f"{row}.{column}" for column in columns)
    return f"SELECT ngraph_seal('{table}', {1 if row == 'new' else -1}, {owner}, {values});"


def columns_of(connection: sqlite3.Connection, table: str) -> tuple[str, ...]:
    """Return the columns of a table that hold something of their own. The others are computed from these."""
    rows = connection.execute("SELECT name FROM pragma_table_xinfo(?) WHERE hidden = 0", (table,))
    return tuple(name for (name,) in rows)


def checksum(table: str, values: Sequence[object]) -> int:
    """Return the checksum of a row. Columns at its end without a value are as ones that there are not yet."""
    end = len(values)
    while end and values[end - 1] is None:
        end -= 1
    blobs = [value for value in values if type(value) is bytes]
    facts = [len(value) if type(value) is bytes else value for value in values[:end]] if blobs else list(values[:end])
    whole = sha256(b"".join((f"{table}{facts!r}".encode(), *blobs)))
    return int.from_bytes(whole.digest()[: _BITS // 8], "big")


def sum_of(table: str, rows: Sequence[Sequence[object]]) -> Sum | None:
    """Return what the seal of these rows of one owner should be, in the columns of ``columns_of``. None without any."""
    return Sum(len(rows), sum(checksum(table, row) for row in rows) % (1 << _BITS)) if rows else None


def sums(connection: sqlite3.Connection, table: str, owner: int | None = None) -> dict[Place, Sum]:
    """Return what the seals of a table's rows should be: of one owner's rows, or of all."""
    columns = columns_of(connection, table)
    if not columns:
        # Of a store that is older than the table.
        return {}
    statement = f"SELECT {OWNERS[table]}, {', '.join(columns)} FROM {table}"  # noqa: S608 - names of our own tables
    if owner is not None:
        statement += f" WHERE {OWNERS[table]} = {int(owner)}"
    found: dict[Place, list[int]] = {}
    with lenient(connection):
        for of, *values in connection.execute(statement):
            # What has lost its owner is missing where it belongs.
            if type(of) is not int:
                continue
            entry = found.setdefault((table, of), [0, 0])
            entry[0] += 1
            entry[1] += checksum(table, values)
    return {place: Sum(rows, total % (1 << _BITS)) for place, (rows, total) in found.items()}


def read_seals(connection: sqlite3.Connection, table: str, owner: int | None = None) -> dict[Place, Sum | None]:
    """Return the seals of a table, or one owner's. None is one that cannot be read."""
    statement, values = "SELECT part, owner, rows, digest FROM seals WHERE part = ?", [table]
    if owner is not None:
        statement, values = f"{statement} AND owner = {int(owner)}", [table]
    with lenient(connection):
        rows = connection.execute(statement, values).fetchall()
    return {(part, of): _read(count, digest) for part, of, count, digest in rows}


def _read(rows: object, digest: object) -> Sum | None:
    if isinstance(rows, int) and isinstance(digest, str) and len(digest) == _BITS // 4:
        try:
            return Sum(rows, int(digest, 16))
        except ValueError:
            return None
    return None


def write_seal(connection: sqlite3.Connection, place: Place, value: Sum | None, adopted_at: str | None = None) -> None:
    """Keep a seal. None makes it one that nothing fits, and no rows at all have none."""
    if value == _NOTHING:
        connection.execute("DELETE FROM seals WHERE part = ? AND owner = ?", place)
        return
    rows, digest = (0, "damaged") if value is None else (value.rows, f"{value.total:0{_BITS // 4}x}")
    connection.execute(
        "INSERT INTO seals (part, owner, rows, digest, adopted_at) VALUES (?, ?, ?, ?, ?) ON CONFLICT (part, owner) "
        "DO UPDATE SET rows = excluded.rows, digest = excluded.digest",
        (*place, rows, digest, adopted_at),
    )


def broken(connection: sqlite3.Connection, table: str, owner: int | None = None) -> set[Place]:
    """Return whose rows in a table, of one owner or of all, are not those that were sealed."""
    sealed, found = read_seals(connection, table, owner), sums(connection, table, owner)
    return {place for place in sealed.keys() | found.keys() if sealed.get(place) != found.get(place)}


def seal_all(connection: sqlite3.Connection, adopted_at: str | None, damaged: frozenset[Place] = frozenset()) -> None:
    """Seal every row as it is now. Those that did not fit their seal before still do not."""
    for table in OWNERS:
        for place, value in sums(connection, table).items():
            write_seal(connection, place, None if place in damaged else value, adopted_at)


@contextmanager
def lenient(connection: sqlite3.Connection) -> Iterator[None]:
    """Read texts also where their bytes are no UTF-8 any more."""
    before = connection.text_factory
    connection.text_factory = _any_text
    try:
        yield
    finally:
        connection.text_factory = before


def _any_text(text: bytes) -> str:
    return text.decode("utf-8", "surrogateescape")

"""Maintenance of a store: finding what is damaged, copying what is sound, and removing what is not needed."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path

from pytest_ngraph.errors import SpecError, StoreError
from pytest_ngraph.store import schema, seals, soundness
from pytest_ngraph.store.codec import to_text
from pytest_ngraph.store.connection import connect, explained, log_of, size_bytes
from pytest_ngraph.store.pruning import Pruned
from pytest_ngraph.store.rows import UNKNOWN_PROTOCOL, UNKNOWN_TIME, RunRow
from pytest_ngraph.store.seals import Place, Sum
from pytest_ngraph.store.sqlite import Store

# Bytes 18 and 19 of the file: how it is written and read, 1 with a journal, 2 with a write-ahead log.
_HOW, _KNOWN = slice(18, 20), (b"\x01\x01", b"\x02\x02")
_TRIES = 5
# In one step of a copy. An empty store has more, so that there is a moment between two steps.
_PAGES = 8
# A run that has not ended and wrote nothing for so long was killed: it would have said so otherwise.
_SILENT = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Contents:
    """How much a store holds, and since when what of it was adopted from a store without seals."""

    runs: int
    launches: int
    samples: int
    adopted: int
    adopted_at: str


@contextmanager
def _raw(path: Path) -> Iterator[sqlite3.Connection]:
    """Open a store for reading whatever its rows are. Raise StoreError where it cannot be opened as a store."""
    with explained(path):
        connection = connect(path, read_only=True, wait_seconds=60.0)
        with closing(connection):
            yield connection


def damage(path: Path) -> list[str]:
    """Return what is damaged in a store, samples included, one line each. Raise StoreError where it cannot be read."""
    try:
        with path.open("rb") as file:
            how = file.read(100)[_HOW]
    except OSError as error:
        raise StoreError(f"store {path}: cannot be read: {error.strerror or error}") from None
    lines = [] if how in _KNOWN else ["header: the format in which it is written is not one that SQLite has"]
    with _raw(path) as connection:
        lines += [f"pages: {line}" for line in (*soundness.wrong_tables(connection), *soundness.pages(connection))]
        broken = _broken(connection)
        places = {place for places in broken.values() for place in places or ()}
        of_launches: dict[int, list[str]] = {}
        for table, owner in sorted(places):
            if table in seals.OF_LAUNCH:
                of_launches.setdefault(owner, []).append(table)
        lines += [f"{table}: its rows cannot be read" for table, found in broken.items() if found is None]
        lines += soundness.name_places(place for place in places if place[0] not in seals.OF_LAUNCH)
        for launch_id, tables in sorted(of_launches.items()):
            launch = soundness.damaged_launch(connection, launch_id, tables)
            lines.append(f"{launch}: {', '.join(launch.tables)}")
    return lines


def _broken(connection: sqlite3.Connection) -> dict[str, set[Place] | None]:
    """Return whose rows in each table are not those that were sealed, or None where the table cannot be read."""
    found: dict[str, set[Place] | None] = {}
    for table in seals.OWNERS:
        try:
            found[table] = seals.broken(connection, table)
        except sqlite3.DatabaseError as error:
            if not soundness.is_damage(error):
                raise
            found[table] = None
    return found


def contents(path: Path) -> Contents:
    """Return how much a sound store holds."""
    with _raw(path) as connection:
        runs = connection.execute("SELECT count(*) FROM runs").fetchone()[0]
        launches = connection.execute("SELECT count(*) FROM launches").fetchone()[0]
        samples = connection.execute("SELECT coalesce(sum(length(wall_ns) / 8), 0) FROM visits").fetchone()[0]
        adopted, at = connection.execute(
            "SELECT count(*), min(adopted_at) FROM seals WHERE part = 'launches' AND adopted_at IS NOT NULL"
        ).fetchone()
    return Contents(runs, launches, samples, adopted, at or "")


# Repairing


@dataclass(frozen=True, slots=True)
class Repaired:
    """What a repair did: where the damaged file is kept, what was taken out, and how many launches are left."""

    kept: Path
    taken_out: Sequence[str]
    launches: int


def repair(path: Path) -> Repaired | None:
    """Replace a store by what is sound in it and keep the damaged file beside it, or None where nothing is damaged.

    Raises StoreError where the seals themselves cannot be read, as nothing can be known to be sound then.
    """
    if not damage(path):
        return None
    scratch = path.with_name(f".{path.name}.repairing")
    kept = path.with_name(f"{path.name}.damaged-{datetime.now(timezone.utc):%Y%m%dT%H%M%S}")
    with explained(path), ExitStack() as at_the_end:
        at_the_end.callback(scratch.unlink, missing_ok=True)
        for _ in range(_TRIES):
            scratch.unlink(missing_ok=True)
            with _kept_if_repaired(path, kept) as keep, _raw(path) as source, closing(_new(scratch)) as target:
                before = _version_of(source)
                taken_out = _copy_what_is_sound(source, target, path)
                launches = int(target.execute("SELECT count(*) FROM launches").fetchone()[0])
                if _put_in_place(target, path, source, before):
                    keep()
                    return Repaired(kept, taken_out, launches)
        raise StoreError(f"store {path}: other processes write to it all the time; repair it when they have ended")


@contextmanager
def _kept_if_repaired(path: Path, kept: Path) -> Iterator[Callable[[], object]]:
    """Copy a store, with its log, and give what is called to keep the copy. It goes at the end otherwise.

    It is made while nothing of this process has the store open: who closes a file gives up all locks on it.
    """
    log = kept.with_name(f"{kept.name}-wal")
    with ExitStack() as otherwise:
        for copy in (kept, log):
            otherwise.callback(copy.unlink, missing_ok=True)
        shutil.copy2(path, kept)
        if size_bytes(log_of(path)):
            shutil.copy2(log_of(path), log)
        yield otherwise.pop_all


def _version_of(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA data_version").fetchone()[0])


class _Overtaken(Exception):
    """Another process has written to the store that is repaired."""


def _put_in_place(target: sqlite3.Connection, path: Path, source: sqlite3.Connection, version: int) -> bool:
    """Make a store what another one is, if it is still of this version. Return whether it was.

    That is by SQLite's own means, so that others who have it open go on with what is sound.
    """

    def look(_status: int, remaining: int, _pages: int) -> None:
        # Once a page was copied nobody else can write, so this decides.
        if remaining and _version_of(source) != version:
            raise _Overtaken

    if _version_of(source) != version:
        return False
    # With the older journal nobody can read meanwhile, either.
    has_log = source.execute("PRAGMA journal_mode").fetchone()[0] == "wal"
    with closing(sqlite3.connect(path, timeout=60.0)) as place:
        try:
            target.backup(place, pages=_PAGES, progress=look) if has_log else target.backup(place)
        except _Overtaken:
            return False
    return True


def _new(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, isolation_level=None)
    for statement in (statement for migration in schema.MIGRATIONS for statement in migration):
        connection.execute(statement)
    return connection


def _copy_what_is_sound(source: sqlite3.Connection, target: sqlite3.Connection, path: Path) -> list[str]:
    """Copy every sound launch with its run and cells, and what else is sound. Return what was left out."""
    try:
        sealed = {place: value for table in seals.OWNERS for place, value in seals.read_seals(source, table).items()}
    except sqlite3.DatabaseError:
        sealed = {}
    if not sealed:
        raise StoreError(
            f"store {path}: its seals cannot be read, so that nothing in it is known to be sound; put back a copy or "
            "move it away, and its launches are measured again"
        )
    sound = {place for place, value in sealed.items() if value is not None and _fits(source, place, value)}
    everything = set(sealed) | {place for found in _broken(source).values() for place in found or ()}

    launches = {owner for table, owner in everything if table in seals.OF_LAUNCH}
    lost = {owner for owner in launches if any((t, owner) in everything - sound for t in seals.OF_LAUNCH)}
    # A launch is nothing without its row, nor where a cell of it is not known.
    lost |= {owner for owner in launches if ("launches", owner) not in sound}
    cells = {owner for table, owner in sound if table == "cells"}
    for launch in launches - lost:
        used = source.execute("SELECT cell_id FROM prepared WHERE launch_id = ?", (launch,)).fetchall()
        if not {cell for (cell,) in used} <= cells:
            lost.add(launch)
    lines = []
    for launch in sorted(lost):
        lines.append(str(soundness.damaged_launch(source, launch, ())))
    others = {place for place in everything - sound if place[0] not in seals.OF_LAUNCH}
    lines += soundness.name_places(others)

    target.execute("BEGIN")
    for table, owner in sorted(sound):
        if table in seals.OF_LAUNCH and owner in lost:
            continue
        _copy(source, target, table, owner)
        at = "SELECT adopted_at FROM seals WHERE part = ? AND owner = ?"
        seals.write_seal(target, (table, owner), sealed[table, owner], source.execute(at, (table, owner)).fetchone()[0])
    _make_whole(target)
    for table in ("runs", "launches"):
        _go_on_counting(target, table, [owner for part, owner in sealed if part == table])
    target.execute("COMMIT")
    return lines


def _fits(source: sqlite3.Connection, place: Place, value: Sum) -> bool:
    table, owner = place
    try:
        return seals.sums(source, table, None if seals.OWNERS[table] == "0" else owner).get(place) == value
    except sqlite3.DatabaseError as error:
        if not soundness.is_damage(error):
            raise
        return False


def _copy(source: sqlite3.Connection, target: sqlite3.Connection, table: str, owner: int) -> None:
    columns = seals.columns_of(target, table)
    rows = source.execute(f"SELECT {', '.join(columns)} FROM {table} WHERE {seals.OWNERS[table]} = ?", (owner,))  # noqa: S608
    target.executemany(f"INSERT INTO {table} ({', '.join(columns)}) VALUES ({', '.join('?' * len(columns))})", rows)  # noqa: S608


def _make_whole(target: sqlite3.Connection) -> None:
    """Give what is left of runs whose row is damaged a row that says so, and drop what refers to damaged cells."""
    for table in ("run_cells", "run_baselines", "verdicts", "launches", "epochs"):
        for (run,) in target.execute(f"SELECT DISTINCT run_id FROM {table} WHERE run_id NOT IN (SELECT id FROM runs)"):  # noqa: S608
            target.execute(
                "INSERT INTO runs (id, uid, started_at, finished_at, status, command, seed, protocol, environment, "
                "fresh, resumed) SELECT ?, ?, coalesce(min(started_at), (SELECT min(judged_at) FROM verdicts WHERE "
                "run_id = ?), ?), max(finished_at), 'damaged', '[]', '0', coalesce(min(protocol), ?), '{}', 0, 0 "
                "FROM launches WHERE run_id = ?",
                (run, f"damaged-{run}", run, UNKNOWN_TIME, to_text({"name": UNKNOWN_PROTOCOL}), run),
            )
    changed = {("runs", run) for (run,) in target.execute("SELECT id FROM runs WHERE status = 'damaged'")}
    known = "(SELECT id FROM cells)"
    for table, gone in (
        ("run_cells", f"cell_id NOT IN {known}"),
        ("run_baselines", f"cell_id NOT IN {known} OR baseline_id NOT IN {known}"),
    ):
        changed |= {(table, run) for (run,) in target.execute(f"SELECT DISTINCT run_id FROM {table} WHERE {gone}")}  # noqa: S608
        target.execute(f"DELETE FROM {table} WHERE {gone}")  # noqa: S608
    for place in changed:
        seals.write_seal(target, place, seals.sums(target, *place).get(place, Sum(0, 0)))


def _go_on_counting(target: sqlite3.Connection, table: str, known: Iterable[int]) -> None:
    """Make sure that no id is used again, not those of rows that were left out either.

    A new launch would lie before an epoch that began when there were more of them, and so not count; and who has the
    store open knows launches by their ids.
    """
    last = target.execute("SELECT coalesce(max(first_launch), 1) - 1 FROM epochs").fetchone()[0]
    highest = max(*known, last if table == "launches" else 0, 0, 0)
    target.execute("DELETE FROM sqlite_sequence WHERE name = ? AND seq < ?", (table, highest))
    target.execute(
        "INSERT INTO sqlite_sequence (name, seq) SELECT ?, ? WHERE NOT EXISTS "
        "(SELECT 1 FROM sqlite_sequence WHERE name = ?)",
        (table, highest, table),
    )


# Pruning


def prune(path: Path, *, older_than: timedelta | None, runs: Sequence[int], with_last: bool, dry_run: bool) -> Pruned:
    """Take runs out of a store, by age or number, with the launches they measured, and shrink the file.

    The last run stays and so does every launch that it judges, no matter which run measured it, unless ``with_last``.
    By age a run that has not ended goes only once it wrote nothing for so long, and for a day at least.
    Raises SpecError for a run that is not there or must stay, StoreError for a store that is damaged.
    """
    with Store.open(path, read_only=dry_run) as store:
        known = store.runs()
        chosen = _chosen(known, older_than, runs, with_last, path, store.last_sign)
        last = known[-1].id if known and known[-1].id not in chosen else None
        return store.prune(chosen, last, dry_run=dry_run)


def _chosen(
    known: Sequence[RunRow],
    older_than: timedelta | None,
    runs: Sequence[int],
    with_last: bool,
    path: Path,
    last_sign: Callable[[int], str],
) -> list[int]:
    missing = [number for number in runs if number not in {run.id for run in known}]
    if missing:
        raise SpecError(f"--run: no run {missing[0]} in {path} (there: {', '.join(str(run.id) for run in known)})")
    last = known[-1].id if known else 0
    if last in runs and not with_last:
        raise SpecError(f"--run: {last} is the last run; its launches are what the next one reuses (--with-last)")
    now = datetime.now(timezone.utc)

    def is_old(run: RunRow, age: timedelta) -> bool:
        if run.status != "running":
            return now - datetime.fromisoformat(run.started_at) > age
        return now - datetime.fromisoformat(last_sign(run.id)) > max(age, _SILENT)

    old = [run.id for run in known if older_than is not None and is_old(run, older_than)]
    return sorted({*runs, *(number for number in old if number != last or with_last)})


def compact(path: Path) -> tuple[int, int]:
    """Rewrite a sound store without free space. Return its bytes before and after."""
    before = file_bytes(path)
    with Store.open(path) as store:
        store.compact()
    return before, file_bytes(path)


def file_bytes(path: Path) -> int:
    """Return the bytes of a store with its log."""
    return size_bytes(path) + size_bytes(log_of(path))


def folder_bytes(folder: Path) -> int:
    """Return the bytes below a folder. A file with several names counts once."""
    seen: dict[tuple[int, int], int] = {}
    for file in _files(folder):
        try:
            status = file.lstat()
        except OSError:  # gone meanwhile
            continue
        seen[status.st_dev, status.st_ino] = status.st_size
    return sum(seen.values())


def _files(folder: Path) -> Iterable[Path]:
    return (file for file in folder.rglob("*") if file.is_file() and not file.is_symlink())

"""Opening the store's file: the folder, what kind of file it is, its schema, and what to do when it cannot be used."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime, timezone
from pathlib import Path

from pytest_ngraph.errors import StoreError
from pytest_ngraph.store import schema, seals, soundness

_INTACT = "what was committed before is intact"
_ELSEWHERE = "choose another --ngraph-store"
_FULL = f"disk full; {_INTACT}; free some space or {_ELSEWHERE}"
READ_ONLY = f"it cannot be written here; make file and folder writable or {_ELSEWHERE}"

_DAMAGED = (
    "it is damaged or truncated; {check} says where, {repair} keeps what is sound; or put back a copy, move it away or "
    f"{_ELSEWHERE}"
)

# Its own limit is 512, with what it adds for the files beside a store.
_LONGEST_PATH_BYTES = 500
_OLDEST_SQLITE = (3, 31)  # computed columns
# What is committed is on the disk before anything else is done. The tests, which no power cut interrupts, have it off.
_SYNCHRONOUS = "FULL"

# SQLite's own words, since its error codes reach Python from 3.11 on only.
_REASONS = (
    ("disk is full", _FULL),
    ("is locked", f"another process keeps it locked; wait for that run to end or {_ELSEWHERE}"),
    ("readonly database", f"{READ_ONLY}; where both are, {{check}} says whether its header is damaged"),
    ("unable to open", f"it cannot be opened here; look at the rights of file and folder or {_ELSEWHERE}"),
    ("not a database", f"it is not an SQLite database; move it away or {_ELSEWHERE}"),
    ("malformed", _DAMAGED),
    ("Could not decode", _DAMAGED),
    ("unsupported file format", _DAMAGED),
    ("FOREIGN KEY", "what this belongs to is not in it; if another process repaired or pruned it meanwhile, run again"),
    ("disk I/O error", f"the disk gave an error or is full; {_INTACT}; look at the disk or {_ELSEWHERE}"),
)


@contextmanager
def explained(path: Path) -> Iterator[None]:
    """Turn what SQLite and the file system refuse into a StoreError: the path, what is wrong, what to do."""
    try:
        yield
    except sqlite3.ProgrammingError:
        raise  # a mistake in our code, not in the file
    except (sqlite3.Error, OSError) as error:
        raise StoreError(f"store {path}: {_reason(error, path)}") from error
    except UnicodeDecodeError as error:  # what SQLite says of a damaged table quotes bytes of it
        raise StoreError(f"store {path}: {_reason(sqlite3.DatabaseError('malformed'), path)}") from error


def _reason(error: sqlite3.Error | OSError, path: Path) -> str:
    if isinstance(error, OSError):
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            return _FULL
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            return READ_ONLY
        return f"{error.strerror or error}; {_ELSEWHERE}"
    for words, reason in _REASONS:
        if words in str(error):
            check, repair = soundness.command("check", path), soundness.command("repair", path)
            return reason.replace("{check}", check).replace("{repair}", repair)
    return f"{error}; {_INTACT}"


@contextmanager
def transaction(connection: sqlite3.Connection, written: Callable[[], None] | None = None) -> Iterator[None]:
    """Write all or nothing. Waits for other writers at its start, so that it cannot fail on them later.

    ``written`` is called once all is in the file, also where Ctrl-C comes just then.
    """
    is_committing = False
    try:
        connection.execute("BEGIN IMMEDIATE")
        yield
        is_committing = True
        connection.execute("COMMIT")
    except sqlite3.Error:
        # SQLite ends it by itself on some errors, and then nothing is written.
        is_committing = False
        raise
    finally:
        if connection.in_transaction:  # an error inside, or a commit that failed
            connection.execute("ROLLBACK")
        elif is_committing and written is not None:
            written()


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Iterator[None]:
    """Read from one state of the store, whatever others commit meanwhile."""
    try:
        connection.execute("BEGIN")
        yield
    finally:
        if connection.in_transaction:  # SQLite ends it by itself on some errors
            connection.execute("ROLLBACK")


def connect(path: Path, *, read_only: bool, wait_seconds: float) -> sqlite3.Connection:
    """Open a store of this schema, making or migrating it where writing is allowed. Raise StoreError otherwise."""
    with explained(path), ExitStack() as on_failure:
        if sqlite3.sqlite_version_info < _OLDEST_SQLITE:
            raise StoreError(
                f"store {path}: this Python has SQLite {sqlite3.sqlite_version}, the store needs 3.31 or newer; "
                "use a Python that was built with a newer one"
            )
        longest = len(os.fsencode(path.absolute()))
        if longest > _LONGEST_PATH_BYTES:
            raise StoreError(
                f"store ...{str(path)[-40:]}: its path has {longest} bytes, SQLite takes {_LONGEST_PATH_BYTES}; "
                f"{_ELSEWHERE}"
            )
        if path.is_dir():
            raise StoreError(f"store {path}: it is a folder; name a file in it, such as {path / 'results.sqlite'}")
        if read_only:
            connection = _connect_read_only(path, wait_seconds)
        else:
            make_folder(path.parent)
            if not os.access(path if path.exists() else path.parent, os.W_OK) or not os.access(path.parent, os.W_OK):
                raise StoreError(f"store {path}: {READ_ONLY}")
            connection = _connect(path, "mode=rwc", wait_seconds)
        on_failure.callback(connection.close)
        version = _identify(connection, path)
        if read_only:
            if version == 0:
                raise StoreError(f"store {path}: it is empty; run the suite first")
            if version < schema.SCHEMA_VERSION:
                # The file must stay as it is, so a copy in memory is brought up to date.
                copy = sqlite3.connect(":memory:", isolation_level=None)
                on_failure.callback(copy.close)
                connection.backup(copy)
                connection.close()
                connection = copy
        else:
            _use_write_ahead_log(connection, wait_seconds)
            connection.execute(f"PRAGMA synchronous = {_SYNCHRONOUS}")
        if version < schema.SCHEMA_VERSION:
            _migrate(connection, path, version)
        connection.execute("PRAGMA foreign_keys = ON")
        on_failure.pop_all()
    return connection


def _connect(path: Path, mode: str, wait_seconds: float) -> sqlite3.Connection:
    """Open the file and read its header. The connection is in autocommit mode."""
    connection = sqlite3.connect(
        f"{path.absolute().as_uri()}?{mode}", uri=True, timeout=wait_seconds, isolation_level=None
    )
    with ExitStack() as on_failure:
        on_failure.callback(connection.close)
        connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
        on_failure.pop_all()
    return connection


def _connect_read_only(path: Path, wait_seconds: float) -> sqlite3.Connection:
    if not path.exists():
        raise StoreError(f"store {path}: there is no such file; run the suite first or name another --ngraph-store")
    try:
        return _connect(path, "mode=ro", wait_seconds)
    except sqlite3.OperationalError:
        # Beside a file with a write-ahead log SQLite makes an index of it, which a read-only folder does not allow.
        if os.access(path.parent, os.W_OK):
            raise
        if size_bytes(log_of(path)):
            raise StoreError(
                f"store {path}: its last writes are in {log_of(path).name}, which cannot be read in a read-only "
                "folder; copy both files to a writable one"
            ) from None
        return _connect(path, "mode=ro&immutable=1", wait_seconds)


def make_folder(folder: Path) -> None:
    """Make the folder. One that this package makes keeps itself out of git."""
    made = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    ignore = folder / ".gitignore"
    if (made or folder.name == ".ngraph") and os.access(folder, os.W_OK) and not ignore.exists():
        ignore.write_text("*\n", encoding="ascii")


def _identify(connection: sqlite3.Connection, path: Path) -> int:
    """Return the schema version, 0 for a new file. Raise StoreError for what is not a whole store we know."""
    with snapshot(connection):  # another process may be making the tables just now
        application = _number(connection, "PRAGMA application_id")
        version = _number(connection, "PRAGMA user_version")
        tables = _number(connection, "SELECT count(*) FROM sqlite_master")
        whole_bytes = _number(connection, "PRAGMA page_count") * _number(connection, "PRAGMA page_size")
    if application != schema.APPLICATION_ID and (application or version or tables):
        raise StoreError(f"store {path}: it is the SQLite database of another program; {_ELSEWHERE}")
    if version > schema.SCHEMA_VERSION:
        raise StoreError(
            f"store {path}: made by a newer pytest-ngraph (schema {version}, this one knows {schema.SCHEMA_VERSION}); "
            f"upgrade or {_ELSEWHERE}"
        )
    # SQLite notices missing pages, not a last page cut short. While the log holds pages the file may well be shorter.
    if size_bytes(path) < whole_bytes and not size_bytes(log_of(path)):
        raise StoreError(
            f"store {path}: it is truncated ({size_bytes(path)} of {whole_bytes} bytes); "
            f"put back a copy, move it away or {_ELSEWHERE}"
        )
    return version


def _use_write_ahead_log(connection: sqlite3.Connection, wait_seconds: float) -> None:
    """Allow readers and a writer side by side. Where the file system cannot, SQLite keeps its older journal."""
    if connection.execute("PRAGMA journal_mode").fetchone()[0] == "wal":
        return
    deadline = time.monotonic() + wait_seconds
    while True:  # SQLite does not wait by itself when two processes make this switch at once
        try:
            connection.execute("PRAGMA journal_mode = WAL").fetchone()
        except sqlite3.OperationalError as error:
            if "locked" not in str(error) or time.monotonic() > deadline:
                raise
            time.sleep(0.02)
        else:
            return


def _migrate(connection: sqlite3.Connection, path: Path, version: int) -> None:
    """Bring the schema up to date in one transaction, which is why no copy is kept.

    Rows of before there were seals are adopted as they are, where SQLite finds nothing wrong with the file.
    """
    try:
        with transaction(connection):
            # Another process may have migrated since the version was read.
            version = _number(connection, "PRAGMA user_version")
            if version == schema.SCHEMA_VERSION:
                return
            wrong = soundness.pages(connection) if version else []
            if wrong:
                raise soundness.refuse(path, wrong)
            is_sealed = version >= schema.SEALED_SINCE
            damaged = (
                {place for table in seals.OWNERS for place in seals.broken(connection, table)} if is_sealed else ()
            )
            for statements in schema.MIGRATIONS[version:]:
                for statement in statements:
                    connection.execute(statement)
            if connection.execute("PRAGMA foreign_key_check").fetchone() is not None:
                raise sqlite3.IntegrityError("rows would refer to rows that are gone")
            seals.seal_all(connection, None if is_sealed or not version else _today(), frozenset(damaged))
    except sqlite3.Error as error:
        raise StoreError(
            f"store {path}: it could not be brought from schema {version} to {schema.SCHEMA_VERSION}, "
            f"the data are as they were: {_reason(error, path)}"
        ) from error


def add_axes(connection: sqlite3.Connection) -> None:
    """Give the axes that were added since the store was made their columns. Call it on a file that was checked."""
    if not schema.added_axes(_columns_of_cells(connection)):
        return
    with transaction(connection):
        # Another process may have added them since.
        for statement in schema.added_axes(_columns_of_cells(connection)):
            connection.execute(statement)


def _columns_of_cells(connection: sqlite3.Connection) -> set[str]:
    return {name for (name,) in connection.execute("SELECT name FROM pragma_table_xinfo('cells')")}


def _today() -> str:
    return datetime.now(timezone.utc).date().isoformat()


def _number(connection: sqlite3.Connection, statement: str) -> int:
    return int(connection.execute(statement).fetchone()[0])


def log_of(path: Path) -> Path:
    """Return where the write-ahead log of a store is."""
    real = path.resolve()  # SQLite keeps the log beside the file that a link points to
    return real.with_name(f"{real.name}-wal")


def size_bytes(path: Path) -> int:
    """Return the size of a file, 0 where it is not there."""
    # Only stat: opening and closing the file would drop the locks of other connections in this process.
    return path.stat().st_size if path.exists() else 0

"""The tables of the store: what each holds, which lookups are quick, and how an older file becomes a newer one."""

from __future__ import annotations

import re
from collections.abc import Collection

from pytest_ngraph.axes import AXES

# "ngrp": how a store is distinguished from any other SQLite file.
APPLICATION_ID = 0x6E677270
# A column as ``_axis_columns`` writes it, behind others, of an axis of whatever version.
_WRITTEN = r"json_extract\(cell, '\$\.workload\.\1'\)"
_AXIS = re.compile(
    rf", (\w+) (?:INTEGER|TEXT) AS \((?:{_WRITTEN}|coalesce\({_WRITTEN}, (?:-?\d+|'[^']*')\))\)", re.ASCII
)


def _axis_columns(*names: str) -> str:
    """Return the columns of axes by their rows: what was not written is at its default."""
    columns = []
    for row in AXES:
        if row.name in names:
            written = f"json_extract(cell, '$.workload.{row.name}')"
            default = row.default if row.is_number else f"'{row.default}'"
            value = written if row.default is None else f"coalesce({written}, {default})"
            columns.append(f"{row.name} {'INTEGER' if row.is_number else 'TEXT'} AS ({value})")
    return ",\n        ".join(columns)  # as older files have them


def added_axes(columns: Collection[str]) -> list[str]:
    """Return the statements that give ``cells``, which has these columns, those of axes it lacks.

    These are no new schema: nothing is kept in them, and a version that does not know an axis keeps it with its cells.
    """
    return [f"ALTER TABLE cells ADD COLUMN {_axis_columns(row.name)}" for row in AXES if row.name not in columns]


def without_axes(table: str) -> str:
    """Return how the table ``cells`` was made, in words with a space between them, without the columns of axes.

    Those of this version stay where they are not as it writes them, and so does what can be no axis of another one.
    """
    known = {row.name: f", {_axis_columns(row.name)}" for row in AXES}
    return _AXIS.sub(lambda found: "" if known.get(found[1], found[0]) == found[0] else found[0], table)


# Cells and preparations are kept as JSON; the columns people query are computed from it, so the two cannot disagree.
# A workload's fields at their default are not written (codec.py), so a field that is added later makes no cell unknown.
# Seeds are text because they may exceed 64 bits. Times of day are UTC, ISO 8601.
_V1 = (
    """
    CREATE TABLE runs (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        uid TEXT NOT NULL UNIQUE,
        started_at TEXT NOT NULL,
        finished_at TEXT,
        status TEXT NOT NULL DEFAULT 'running',
        command TEXT NOT NULL,      -- JSON list
        seed TEXT NOT NULL,
        protocol TEXT NOT NULL,     -- JSON
        protocol_name TEXT AS (json_extract(protocol, '$.name')),
        environment TEXT NOT NULL,  -- JSON
        fresh INTEGER NOT NULL,
        resumed INTEGER NOT NULL
    )
    """,
    f"""
    CREATE TABLE cells (
        id INTEGER PRIMARY KEY,
        cell TEXT NOT NULL UNIQUE,  -- JSON
        device TEXT AS (json_extract(cell, '$.device')),
        compiler TEXT AS (json_extract(cell, '$.compiler')),
        model TEXT AS (json_extract(cell, '$.workload.model.text')),
        {_axis_columns("batch", "depth", "width", "image_size", "precision")},
        replica INTEGER AS (json_extract(cell, '$.replica'))
    )
    """,
    """
    CREATE TABLE run_cells (        -- what a run judged, also where it measured nothing new
        run_id INTEGER NOT NULL REFERENCES runs,
        cell_id INTEGER NOT NULL REFERENCES cells,
        evidence TEXT NOT NULL,
        PRIMARY KEY (run_id, cell_id, evidence)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE run_baselines (    -- what the relative metrics of a run divide by
        run_id INTEGER NOT NULL REFERENCES runs,
        cell_id INTEGER NOT NULL REFERENCES cells,
        baseline_id INTEGER NOT NULL REFERENCES cells,
        PRIMARY KEY (run_id, cell_id)
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE launches (         -- without finished_at a launch never counts
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        run_id INTEGER NOT NULL REFERENCES runs,
        kind TEXT NOT NULL,
        launch_group TEXT NOT NULL,
        number INTEGER NOT NULL,
        seed TEXT NOT NULL,
        protocol TEXT NOT NULL,     -- JSON
        protocol_name TEXT AS (json_extract(protocol, '$.name')),
        cell_order TEXT NOT NULL,   -- JSON list
        environment TEXT NOT NULL,  -- JSON, at the start
        environment_end TEXT,       -- JSON
        started_at TEXT NOT NULL,
        finished_at TEXT,
        invalid TEXT NOT NULL DEFAULT ''
    )
    """,
    "CREATE INDEX launches_of_run ON launches (run_id)",
    """
    CREATE TABLE prepared (
        launch_id INTEGER NOT NULL REFERENCES launches,
        cell_id INTEGER NOT NULL REFERENCES cells,
        evidence TEXT NOT NULL,
        record TEXT NOT NULL,       -- JSON
        outcome TEXT AS (json_extract(record, '$.outcome')),
        reason TEXT AS (json_extract(record, '$.reason')),
        export_seconds REAL AS (json_extract(record, '$.export_seconds')),
        compile_seconds REAL AS (json_extract(record, '$.compile_seconds')),
        loaded INTEGER AS (json_extract(record, '$.loaded')),
        first_call_seconds REAL AS (json_extract(record, '$.first_call_seconds')),
        model_bytes INTEGER AS (json_extract(record, '$.model_bytes')),
        peak_memory_bytes INTEGER AS (json_extract(record, '$.peak_memory_bytes')),
        PRIMARY KEY (launch_id, cell_id)
    )
    """,
    "CREATE INDEX prepared_by_evidence ON prepared (evidence, cell_id, launch_id)",
    """
    CREATE TABLE visits (           -- one row is about 100 samples: arrays of little-endian int64
        launch_id INTEGER NOT NULL,
        cell_id INTEGER NOT NULL,
        block INTEGER NOT NULL,
        position INTEGER NOT NULL,  -- of the cell in the block's order
        calls INTEGER NOT NULL,     -- per sample
        samples INTEGER AS (length(wall_ns) / 8),
        wall_ns BLOB NOT NULL,
        cpu_ns BLOB NOT NULL,
        run_delay_ns BLOB NOT NULL,
        faults BLOB NOT NULL,
        PRIMARY KEY (launch_id, cell_id, block),
        FOREIGN KEY (launch_id, cell_id) REFERENCES prepared
    )
    """,
    """
    CREATE TABLE epochs (           -- launches before first_launch no longer count for this evidence
        evidence TEXT PRIMARY KEY,
        first_launch INTEGER NOT NULL,
        run_id INTEGER REFERENCES runs,
        started_at TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    """
    CREATE TABLE verdicts (
        id INTEGER PRIMARY KEY,
        run_id INTEGER NOT NULL REFERENCES runs,
        nodeid TEXT NOT NULL,
        claim TEXT NOT NULL,
        metric TEXT NOT NULL,
        bound REAL,
        at_least INTEGER NOT NULL,
        tolerance REAL,
        estimate REAL,
        low REAL,
        high REAL,
        launches INTEGER NOT NULL,
        verdict TEXT NOT NULL,
        smallest_effect REAL,
        extra TEXT NOT NULL,        -- JSON
        judged_at TEXT NOT NULL
    )
    """,
    "CREATE INDEX verdicts_of_run ON verdicts (run_id, nodeid, claim)",
    "CREATE INDEX verdicts_of_test ON verdicts (nodeid, run_id)",
    f"PRAGMA application_id = {APPLICATION_ID}",
    "PRAGMA user_version = 1",
)

_V2 = (
    # JSON: for each block the reference kernel's readings before and after it, or null; [] where there was no kernel.
    "ALTER TABLE launches ADD COLUMN readings TEXT NOT NULL DEFAULT '[]'",
    "ALTER TABLE runs ADD COLUMN environment_end TEXT",  # JSON, or null where nothing was measured
    "PRAGMA user_version = 2",
)

_V3 = (
    # Of calls in flight together: how long each took, an array of little-endian int64.
    "ALTER TABLE visits ADD COLUMN request_ns BLOB NOT NULL DEFAULT x''",
    f"""
    ALTER TABLE cells ADD COLUMN {_axis_columns("scenario")}
    """,
    "ALTER TABLE cells ADD COLUMN rebuild INTEGER AS (coalesce(json_extract(cell, '$.rebuild'), 0))",
    "ALTER TABLE prepared ADD COLUMN tuning_seconds REAL AS (json_extract(record, '$.tuning_seconds'))",
    "ALTER TABLE prepared ADD COLUMN tuning_trials INTEGER AS (json_extract(record, '$.tuning_trials'))",
    "PRAGMA user_version = 3",
)

_V4 = (
    """
    CREATE TABLE seals (            -- see seals.py: a checksum of the rows that a run, cell or launch has in a table
        part TEXT NOT NULL,         -- the table
        owner INTEGER NOT NULL,
        rows INTEGER NOT NULL,
        digest TEXT NOT NULL,
        adopted_at TEXT,            -- where the rows are of a store without seals: nothing is known of them from before
        PRIMARY KEY (part, owner)
    ) WITHOUT ROWID
    """,
    "PRAGMA user_version = 4",
)

_V5 = (
    f"""
    ALTER TABLE cells ADD COLUMN {_axis_columns("optimize")}
    """,
    "PRAGMA user_version = 5",
)

_V6 = (
    """
    CREATE TABLE explanations (     -- what ran inside a cell: never of a launch, the latest for its evidence
        evidence TEXT PRIMARY KEY,
        cell TEXT NOT NULL,         -- JSON
        explanation TEXT NOT NULL,  -- JSON
        explained_at TEXT NOT NULL
    ) WITHOUT ROWID
    """,
    "PRAGMA user_version = 6",
)

_V7 = (
    *(
        f"""
    ALTER TABLE cells ADD COLUMN {_axis_columns(name)}
    """
        for name in ("sequence", "decode", "shapes", "neighbour")
    ),
    "PRAGMA user_version = 7",
)

_V8 = (
    # JSON: what glances at the machine gave just before and after each try of the visit, the last of which it is.
    "ALTER TABLE visits ADD COLUMN around TEXT",
    "PRAGMA user_version = 8",
)

# The n-th entry brings a store from schema n to n + 1; its last statement sets user_version.
MIGRATIONS: tuple[tuple[str, ...], ...] = (_V1, _V2, _V3, _V4, _V5, _V6, _V7, _V8)

# History: 1, the first (pytest-ngraph 0.1.0); 2, readings of the reference kernel; 3, calls in flight together, cells
# that are rebuilt, tuning; 4, seals; 5, networks to which something is done; 6, explanations; 7, sequences,
# decoding, shapes and neighbours; 8, glances around visits. Each has a golden file, tests/golden/store_vN.sqlite. A
# column that is added without a default changes no seal of before. An axis that is added raises it no longer: its
# column is computed, so ``added_axes`` adds it when a store is opened for writing, and no migration to come does.
SCHEMA_VERSION = 8
# The first that has seals.
SEALED_SINCE = 4

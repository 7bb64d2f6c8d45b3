"""A store of every schema there has been still opens and gives the same launches.

After a new schema: ``python -m tests.golden.store_content`` from the root writes its golden file; the older ones stay.
"""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_ngraph.store import schema
from pytest_ngraph.store.sqlite import Store
from tests.golden.store_content import (
    DECODED_EVIDENCE,
    EVIDENCE,
    NODEID,
    PIPED_EVIDENCE,
    PRUNED_EVIDENCE,
    decoded_launch,
    launch,
    piped_launch,
    pruned_launch,
    start_run,
    verdict,
)

GOLDEN = Path(__file__).parents[1] / "golden"
VERSIONS = range(1, schema.SCHEMA_VERSION + 1)


@pytest.fixture(params=VERSIONS, ids=lambda version: f"schema {version}")
def golden(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A copy, since opening a store writes beside it."""
    return Path(shutil.copy(GOLDEN / f"store_v{request.param}.sqlite", tmp_path))


@pytest.mark.parametrize("read_only", [False, True])
def test_an_older_store_gives_the_same_launches(golden: Path, read_only: bool) -> None:
    with Store.open(golden, read_only=read_only) as store:
        assert store.launches(EVIDENCE) == [launch(1), launch(2), launch(3)]
        (run,) = store.runs()
        assert (run.uid, run.status, run.seed) == ("run-1", "finished", 2**64 - 1)
        assert EVIDENCE.items() <= dict(store.cells(run.id)).items()
        assert store.verdicts(run.id) == store.claims(NODEID) == [verdict()]


def test_an_older_store_can_be_written(golden: Path) -> None:
    with Store.open(golden) as store:
        assert start_run(store, "run-2") == 2


@pytest.mark.parametrize("golden", [3], indirect=True)
def test_a_store_gives_calls_in_flight_rebuilt_cells_and_tuning_back(golden: Path) -> None:
    with Store.open(golden) as store:
        assert store.launches(PIPED_EVIDENCE) == [piped_launch()]
    with closing(sqlite3.connect(golden)) as connection:
        rows = connection.execute("SELECT scenario, rebuild, count(*) FROM cells GROUP BY scenario").fetchall()
        assert rows == [("latency", 0, 3), ("throughput", 1, 1)]
        tuned = connection.execute("SELECT tuning_seconds, tuning_trials FROM prepared WHERE tuning_trials").fetchall()
        assert tuned == [(90.5, 64)]


@pytest.mark.parametrize("golden", [5], indirect=True)
def test_a_store_gives_networks_back_to_which_something_was_done(golden: Path) -> None:
    with Store.open(golden) as store:
        assert store.launches(PRUNED_EVIDENCE) == [pruned_launch()]
    with closing(sqlite3.connect(golden)) as connection:
        assert connection.execute("SELECT optimize, count(*) FROM cells GROUP BY optimize").fetchall() == [
            ("dense", 4),
            ("mine=0.5", 1),
        ]


@pytest.mark.parametrize("golden", [7], indirect=True)
def test_a_store_gives_decoding_dynamic_shapes_and_neighbours_back(golden: Path) -> None:
    with Store.open(golden) as store:
        assert store.launches(DECODED_EVIDENCE) == [decoded_launch()]
    with closing(sqlite3.connect(golden)) as connection:
        rows = connection.execute(
            "SELECT sequence, decode, shapes, neighbour, count(*) FROM cells GROUP BY shapes, decode"
        )
        assert rows.fetchall() == [(16, 4, "dynamic", "block:conv", 1), (None, None, "static", "none", 5)]


def tables(path: Path) -> list[tuple[str, str]]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT name, sql FROM sqlite_master ORDER BY name").fetchall()


def test_the_newest_golden_file_has_the_tables_of_today(tmp_path: Path) -> None:
    Store.open(tmp_path / "new.sqlite").close()
    golden = Path(shutil.copy(GOLDEN / f"store_v{schema.SCHEMA_VERSION}.sqlite", tmp_path))
    # It may be of before an axis that was added since.
    Store.open(golden).close()
    assert tables(golden) == tables(tmp_path / "new.sqlite")

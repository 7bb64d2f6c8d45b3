"""An older store becomes a newer one whole, or stays as it is."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from pytest_ngraph.store import schema
from tests.golden.store_content import (
    filled,
    kept,
    refusal,
)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "results.sqlite")


NEXT = ("ALTER TABLE runs ADD COLUMN note TEXT", f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")
BROKEN = ("ALTER TABLE runs ADD COLUMN note TEXT", "DELETE FROM visits", "ALTER TABLE nowhere ADD COLUMN x TEXT")
DANGLING = ("DELETE FROM prepared", f"PRAGMA user_version = {schema.SCHEMA_VERSION + 1}")


def expect_schema_after(monkeypatch: pytest.MonkeyPatch, migration: tuple[str, ...]) -> None:
    monkeypatch.setattr(schema, "MIGRATIONS", (*schema.MIGRATIONS, migration))
    monkeypatch.setattr(schema, "SCHEMA_VERSION", schema.SCHEMA_VERSION + 1)


def columns_of_runs(path: Path) -> set[str]:
    with closing(sqlite3.connect(path)) as connection:
        return {row[1] for row in connection.execute("PRAGMA table_info(runs)")}


def test_every_schema_has_its_migration() -> None:
    assert len(schema.MIGRATIONS) == schema.SCHEMA_VERSION
    for version, migration in enumerate(schema.MIGRATIONS, start=1):
        assert migration[-1] == f"PRAGMA user_version = {version}"


def test_an_older_store_is_migrated_when_it_is_opened(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expect_schema_after(monkeypatch, NEXT)
    assert kept(path)
    assert "note" in columns_of_runs(path)
    assert kept(path)


def test_an_older_store_that_is_only_read_stays_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expect_schema_after(monkeypatch, NEXT)
    before = path.read_bytes()
    assert kept(path, read_only=True)
    assert path.read_bytes() == before


@pytest.mark.parametrize("migration", [BROKEN, DANGLING], ids=["an error", "dangling rows"])
def test_a_migration_that_fails_leaves_the_older_store(
    path: Path, monkeypatch: pytest.MonkeyPatch, migration: tuple[str, ...]
) -> None:
    here = schema.SCHEMA_VERSION
    with monkeypatch.context() as patched:
        expect_schema_after(patched, migration)
        reason = refusal(path)
        assert reason.startswith(f"it could not be brought from schema {here} to {here + 1}, the data are as they were")
    assert "note" not in columns_of_runs(path)
    assert kept(path)

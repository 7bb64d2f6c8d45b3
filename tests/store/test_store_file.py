"""A file that is no usable store is told from one, in words that say what to do, and stays as it is."""

from __future__ import annotations

import os
import re
import shutil
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import pytest

from pytest_ngraph.store import schema
from pytest_ngraph.store.sqlite import Store
from tests.golden.store_content import (
    EVIDENCE,
    add_launch,
    fill,
    filled,
    kept,
    launch,
    refusal,
    start_run,
)

LAUNCHES = [launch(1), launch(2), launch(3)]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "results.sqlite")


def write_number(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


# The folder


def test_a_new_folder_keeps_itself_out_of_git(tmp_path: Path) -> None:
    Store.open(tmp_path / "a" / "new" / "results.sqlite").close()
    assert (tmp_path / "a" / "new" / ".gitignore").read_text() == "*\n"
    assert not (tmp_path / "a" / ".gitignore").exists()


def test_a_folder_named_ngraph_is_ours_and_any_other_is_not(tmp_path: Path) -> None:
    (tmp_path / ".ngraph").mkdir()
    (tmp_path / "results").mkdir()
    Store.open(tmp_path / ".ngraph" / "results.sqlite").close()
    Store.open(tmp_path / "results" / "results.sqlite").close()
    assert (tmp_path / ".ngraph" / ".gitignore").read_text() == "*\n"
    assert not (tmp_path / "results" / ".gitignore").exists()


def test_an_own_gitignore_is_left_alone(tmp_path: Path) -> None:
    folder = tmp_path / ".ngraph"
    folder.mkdir()
    (folder / ".gitignore").write_text("*.log\n")
    Store.open(folder / "results.sqlite").close()
    assert (folder / ".gitignore").read_text() == "*.log\n"


def test_git_does_not_see_the_store(tmp_path: Path) -> None:
    if shutil.which("git") is None:
        pytest.skip("git is not installed")
    subprocess.run(["git", "init", "--quiet", str(tmp_path)], check=True)
    with Store.open(tmp_path / ".ngraph" / "results.sqlite") as store:
        fill(store, launches=1)
        status = subprocess.run(
            ["git", "status", "--porcelain"], cwd=tmp_path, check=True, capture_output=True, text=True
        )
    assert status.stdout == ""


def test_names_with_characters_of_uris_are_plain_names(tmp_path: Path) -> None:
    file = tmp_path / "50% done? #1 ä" / "a?mode=memory#.sqlite"
    with Store.open(file) as store:
        fill(store)
    assert file.is_file()
    assert kept(file, read_only=True)


# What is no store


def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    assert refusal(tmp_path) == f"it is a folder; name a file in it, such as {tmp_path}/results.sqlite"


def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("not a folder")
    for inside in (tmp_path / "file" / "results.sqlite", tmp_path / "file" / "deep" / "results.sqlite"):
        assert "choose another --ngraph-store" in refusal(inside)


@pytest.mark.parametrize("text", [b"hello\n", b"name,value\n" * 1000, b"SQLite format 2\0" * 300, os.urandom(8192)])
def test_a_file_that_is_no_database(tmp_path: Path, text: bytes) -> None:
    file = tmp_path / "results.csv"
    file.write_bytes(text)
    assert refusal(file).startswith("it is not an SQLite database")
    assert refusal(file, read_only=True).startswith("it is not an SQLite database")
    assert file.read_bytes() == text


def test_the_database_of_another_program(tmp_path: Path) -> None:
    file = tmp_path / "places.sqlite"
    write_number(file, "CREATE TABLE places (url TEXT)")
    before = file.read_bytes()
    assert refusal(file).startswith("it is the SQLite database of another program")
    assert file.read_bytes() == before
    blank = tmp_path / "blank.sqlite"
    write_number(blank, "PRAGMA user_version = 12")
    assert refusal(blank).startswith("it is the SQLite database of another program")


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    file = tmp_path / "results.sqlite"
    file.touch()
    assert refusal(file, read_only=True) == "it is empty; run the suite first"
    with Store.open(file) as store:
        fill(store)
    assert kept(file)


@pytest.mark.parametrize("read_only", [False, True])
def test_a_store_of_a_newer_schema(path: Path, read_only: bool) -> None:
    write_number(path, f"PRAGMA user_version = {schema.SCHEMA_VERSION + 6}")
    assert refusal(path, read_only=read_only) == (
        f"made by a newer pytest-ngraph (schema {schema.SCHEMA_VERSION + 6}, this one knows {schema.SCHEMA_VERSION}); "
        "upgrade or choose another --ngraph-store"
    )


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("whole", [0.0005, 0.002, 0.05, 0.3, 0.5, 0.9, 0.97, 0.9999])
def test_a_truncated_store(path: Path, whole: float, read_only: bool) -> None:
    cut = int(path.stat().st_size * whole)
    os.truncate(path, cut)
    reason = refusal(path, read_only=read_only)
    assert "truncated" in reason or reason.startswith("it is not an SQLite database")
    assert "move it away" in reason
    assert path.stat().st_size == cut


def test_damage_in_the_middle_is_told_when_it_is_opened(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute(
            "SELECT rootpage FROM sqlite_master WHERE name = 'prepared_by_evidence'"
        ).fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()
    with path.open("r+b") as file:
        file.seek((page - 1) * page_bytes)
        file.write(b"\xff" * page_bytes)
    assert re.match(
        r"it is damaged \(.+\); ngraph store check --store=\S+ says what, ngraph store repair", refusal(path)
    )


def test_the_log_of_a_writer_that_died_is_not_taken_for_truncation(path: Path, tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    copy.mkdir()
    with Store.open(path) as store:
        add_launch(store, start_run(store), 4)
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(tmp_path / name, copy)
    assert (copy / f"{path.name}-wal").stat().st_size
    assert kept(copy / path.name)
    with Store.open(copy / path.name) as store:
        assert store.launches(EVIDENCE) == [*LAUNCHES, launch(4)]


def test_a_python_with_too_old_a_sqlite(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sqlite3, "sqlite_version_info", (3, 26, 0))
    assert "needs 3.31 or newer" in refusal(path)

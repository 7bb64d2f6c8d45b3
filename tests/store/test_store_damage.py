"""A damaged store changes no number in silence: every flipped bit is harmless, named, or refused with what to do."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import closing
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph.errors import StoreError
from pytest_ngraph.report.html.content import read_content, verdict_rows
from pytest_ngraph.report.results.cells import tidy_rows
from pytest_ngraph.spec.cells import Reading
from pytest_ngraph.store.sqlite import Store
from tests.conftest import Suite
from tests.golden.store_content import (
    EVIDENCE,
    FASTER,
    GATE,
    RECORDS,
    add_launch,
    fill,
    launch,
    refusal,
    start_run,
    visit,
)
from tests.support.report_stores import FAILED, VERDICTS, Lab, write_store

LAB = Lab(
    devices=("xeon",), compilers=("identity", "openvino"), batches=(1, 8), depths=(1, 2), widths=(64,), samples=40,
    launches=3, blocks=2, together=False, models=("timm:resnet18", "timm:efficientnet_b3"),
)  # fmt: skip
PAGE_BYTES = 4096
Use = Callable[[Path], tuple[dict[str, Any], list[str]]]
# What says what to do: the commands, or that the file is none of ours any more.
CLEAR = (
    "ngraph store check", "is not an SQLite database", "of another program", "made by a newer pytest-ngraph",
    "is empty", "truncated",
)  # fmt: skip


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A store with real contents: launches of several cells, a failed one, and every verdict."""
    path = tmp_path_factory.mktemp("whole") / "results.sqlite"
    write_store(path, LAB, VERDICTS, FAILED)
    return path.read_bytes()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


def shown(store: Store) -> dict[str, Any]:
    """Return every number and verdict of the latest run, as exports and report give them."""
    run = store.runs()[-1]
    content = read_content(store, run)
    return {"rows": list(tidy_rows(content.reports)), "verdicts": verdict_rows(content), "run": run}


def exported(path: Path) -> tuple[dict[str, Any], list[str]]:
    with Store.open(path, read_only=True) as store:
        return shown(store), store.damage_lines


def used(path: Path) -> tuple[dict[str, Any], list[str]]:
    """Write a run into the store, as a session does, and read the one before it."""
    with Store.open(path) as store:
        before = shown(store)
        run_id = start_run(store, "another")
        add_launch(store, run_id, 1)
        store.finish_run(run_id, "finished")
        assert len(store.launches(EVIDENCE)) == 1 or store.damaged
        return before, store.damage_lines


def flip(content: bytes, place: int, bit: int) -> bytes:
    changed = bytearray(content)
    changed[place] ^= 1 << bit
    return bytes(changed)


def places(content: bytes, seed: int) -> list[tuple[int, int]]:
    """Return bits all over the file, and as many of what SQLite keeps at the start of the file and of its pages."""
    draw = random.Random(seed)
    pages = range(0, len(content), PAGE_BYTES)
    anywhere = [(draw.randrange(len(content)), draw.randrange(8)) for _ in range(200)]
    header = [(draw.randrange(16, 108), draw.randrange(8)) for _ in range(60)]
    heads = [(page + draw.randrange(12), draw.randrange(8)) for page in pages]
    cells = [(page + 8 + draw.randrange(64), draw.randrange(8)) for page in pages]
    return [*anywhere, *header, *heads, *cells]


@pytest.mark.parametrize("use", [exported, used])
def test_a_flipped_bit_changes_no_number_in_silence(whole: bytes, path: Path, use: Use) -> None:
    path.write_bytes(whole)
    sound, lines = use(path)
    assert (bool(sound["rows"]), len(sound["verdicts"]), lines) == (True, len(VERDICTS), [])
    became: Counter[str] = Counter()
    for place, bit in places(whole, seed=12):
        for file in path.parent.iterdir():
            file.unlink()
        path.write_bytes(flip(whole, place, bit))
        what, found, said = outcome(use, path)
        became[what] += 1
        if what == "refused":
            assert any(words in said[0] for words in CLEAR), (place, bit, said)
        elif what == "named":
            assert "is damaged in the store: kept, not counted" in said[0], (place, bit, said)
            assert "ngraph store repair" in said[-1], (place, bit, said)
        else:
            assert found == sound, (place, bit)
    # Samples are most of it, pages have unused space, and much of a header is needed.
    assert len(became) == 3, became
    assert min(became.values()) >= 20, became


def outcome(use: Use, path: Path) -> tuple[str, dict[str, Any], list[str]]:
    """Return what became of a use, what it showed and what it said."""
    try:
        found, lines = use(path)
    except StoreError as error:
        return "refused", {}, [str(error)]
    return ("named" if lines else "the same"), found, lines


def flip_sample(path: Path, launch_id: int) -> None:
    """Flip a bit of a sample of a launch, where it lies in the file."""
    with closing(sqlite3.connect(path)) as connection:
        (blob,) = connection.execute(
            "SELECT wall_ns FROM visits WHERE launch_id = ? ORDER BY block LIMIT 1", (launch_id,)
        ).fetchone()
    content = path.read_bytes()
    place = content.index(blob[:16])
    path.write_bytes(flip(content, place + 1, 3))


CLAIM = """
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_faster(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.5)
"""


def test_a_damaged_launch_is_named_kept_and_measured_again(suite: Suite) -> None:
    suite.write(CLAIM)
    suite.run()
    suite.run().stdout.fnmatch_lines(["*measured 0 launches*reused 1 from the store"])
    flip_sample(suite.store, 1)

    said = "*launch 1 of run 1 (*, *) is damaged in the store: kept, not counted, measured again when needed"
    # In a process of its own: what it imports must not be dropped with the suite's.
    command = [sys.executable, "-m", "pytest_ngraph.cli", "export", "before.csv"]
    shown = subprocess.run(command, cwd=suite.path, check=True, capture_output=True, text=True).stderr
    assert fnmatch(shown.splitlines()[0], said)
    assert "ngraph store repair --store=" in shown
    result = suite.run()
    result.assert_outcomes(passed=1)
    result.stdout.fnmatch_lines([said, "*measured 1 launch *reused 0 from the store", said])
    with Store.open(suite.store, read_only=True) as store:
        assert len(store.launches(dict(store.cells(1)))) == 1
        assert set(store.damaged) == {1}
        assert store.run_launches(1) == []
    with closing(sqlite3.connect(suite.store)) as connection:
        assert connection.execute("SELECT count(*) FROM visits WHERE launch_id = 1").fetchone()[0] > 0
    suite.run("--ngraph-offline").assert_outcomes(passed=1)


def test_samples_of_a_launch_that_was_cut_short_are_sealed_as_they_are_committed(path: Path) -> None:
    with Store.open(path) as store:
        run_id = start_run(store)
        launch_id = store.start_launch(run_id, group="g", number=1, seed=0, protocol=GATE, order=[], environment={})
        store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
        store.commit()
        for block in range(3):
            store.add_visit(launch_id, FASTER, block, 0, visit(1, block))
            store.commit()
        store.add_visit(launch_id, FASTER, 3, 0, visit(1, 3))
    # The process ends here: three blocks are there, and fit.
    with Store.open(path) as store:
        assert store.damaged == {}
        assert store.incomplete_launches(run_id) == 1
        store.finish_launch(launch_id)
        (found,) = store.launches({FASTER: "e"})
        assert found.visits == {(FASTER, block): visit(1, block) for block in range(3)}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE visits SET calls = 3 WHERE rowid = 1",
        "DELETE FROM visits WHERE rowid = 1",
        "UPDATE prepared SET evidence = 'another' WHERE rowid = 1",
        "DELETE FROM prepared WHERE rowid = 1",
        "UPDATE launches SET kind = 'memory' WHERE id = 1",
        "UPDATE launches SET invalid = 'no' WHERE id = 1",
        "DELETE FROM launches WHERE id = 1",
        "DELETE FROM seals WHERE part = 'launches' AND owner = 1",
        "UPDATE seals SET digest = 'x' WHERE part = 'visits' AND owner = 1",
    ],
)
def test_what_another_program_does_to_a_launch_takes_it_out(path: Path, statement: str) -> None:
    with Store.open(path) as store:
        fill(store)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    with Store.open(path) as store:
        assert store.launches(EVIDENCE) == [launch(2), launch(3)]
        assert set(store.damaged) == {1}


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE launches SET readings = substr(readings, 2) WHERE id = 1",
        "UPDATE launches SET environment_end = 'x' WHERE id = 1",
        "UPDATE launches SET cell_order = 'x' WHERE id = 1",
    ],
)
def test_a_damaged_launch_says_nothing_of_the_machine_nor_of_what_others_will_take(path: Path, statement: str) -> None:
    away, usual = Reading(200_000, (720, 740)), Reading(100_000, (360, 370))
    with Store.open(path) as store:
        run_id = start_run(store)
        for number, reading in enumerate((away, usual)):
            launch_id = store.start_launch(
                run_id, group="g", number=number, seed=number, protocol=GATE, order=[], environment={}
            )
            store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
            known = {"crowding": 0.5 + number, "fastest": 0.25 + number}
            store.finish_launch(launch_id, environment=known, readings=[(reading, reading)] * 3)
        assert store.states("local", {}) == [usual, away]
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    with Store.open(path) as store:
        assert set(store.damaged) == {1}
        assert store.states("local", {}) == [usual]
        assert store.crowding("local", {}) == ([1.5], [1.25])
        assert store.dwell_seconds("local", {}) >= 0
        assert len(store.remembered("gate")) == 1


@pytest.mark.parametrize("garbage", ["much", -1.0, 0.0, [], {}, True, None, float("inf"), float("nan")], ids=repr)
def test_what_can_be_nothing_of_the_machine_is_skipped_by_itself(path: Path, garbage: object) -> None:
    """The other number of its launch is none the worse, and of an earlier version there may be one alone."""
    usual = Reading(100_000, (360, 370))
    kept: list[dict[str, object]] = [
        {"crowding": 1.5, "fastest": garbage},
        {"crowding": garbage, "fastest": 1.25},
        {"crowding": 1.75},
        {},
        {"crowding": 2.0, "fastest": 1.5},
    ]
    with Store.open(path) as store:
        run_id = start_run(store)
        for number, known in enumerate(kept):
            launch_id = store.start_launch(
                run_id, group="g", number=number, seed=number, protocol=GATE, order=[], environment={}
            )
            store.add_prepared(launch_id, FASTER, "e", RECORDS[FASTER])
            store.finish_launch(launch_id, environment=known, readings=[(usual, usual)] * 3)
        assert store.crowding("local", {}) == ([1.5, 1.75, 2.0], [1.25, 1.5])
    with Store.open(path.with_name("empty.sqlite")) as store:
        assert store.crowding("local", {}) == ([], [])


@pytest.mark.parametrize(
    ("statement", "named"),
    [
        ("UPDATE verdicts SET verdict = 'pass'", "verdicts of run 1"),
        ("UPDATE verdicts SET estimate = 9.9", "verdicts of run 1"),
        ("DELETE FROM verdicts", "verdicts of run 1"),
        ("UPDATE runs SET protocol = '{}'", "run 1"),
        ("UPDATE cells SET cell = cell || ' ' WHERE id = 1", "cell 1"),
        ("DELETE FROM run_baselines", "baselines of run 1"),
        ("DELETE FROM run_cells", "cells of run 1"),
        ("INSERT INTO epochs VALUES ('evidence-identity', 3, 1, '')", "epochs"),
        ("ALTER TABLE cells RENAME COLUMN depth TO depti", "table cells is not as it was made"),
        ("DROP INDEX prepared_by_evidence", "index prepared_by_evidence is not as it was made"),
    ],
)
def test_anything_else_that_is_changed_is_refused_by_name(whole: bytes, path: Path, statement: str, named: str) -> None:
    path.write_bytes(whole)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()
    changed = path.read_bytes()
    for read_only in (True, False):
        assert refusal(path, read_only=read_only).startswith(f"it is damaged ({named})")
    assert path.read_bytes() == changed


def test_launches_of_a_store_without_seals_are_adopted_and_the_store_says_so(tmp_path: Path) -> None:
    path = Path(shutil.copy(Path(__file__).parents[1] / "golden" / "store_v3.sqlite", tmp_path / "results.sqlite"))
    with Store.open(path) as store:
        assert store.launches(EVIDENCE) == [launch(1), launch(2), launch(3)]
        add_launch(store, start_run(store, "another"), 4)
    with closing(sqlite3.connect(path)) as connection:
        adopted = "SELECT owner, adopted_at IS NOT NULL FROM seals WHERE part = 'launches'"
        assert dict(connection.execute(adopted)) == {1: 1, 2: 1, 3: 1, 4: 1, 5: 0}
    flip_sample(path, 2)
    with Store.open(path) as store:
        assert [record.number for record in store.launches(EVIDENCE)] == [1, 3, 4]


def test_an_older_store_whose_pages_are_damaged_is_not_adopted(tmp_path: Path) -> None:
    path = Path(shutil.copy(Path(__file__).parents[1] / "golden" / "store_v3.sqlite", tmp_path / "results.sqlite"))
    with closing(sqlite3.connect(path)) as connection:
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'prepared'").fetchone()
    content = path.read_bytes()
    path.write_bytes(flip(content, (page - 1) * PAGE_BYTES + 4, 0))
    for read_only in (True, False):
        assert refusal(path, read_only=read_only).startswith("it is damaged (")

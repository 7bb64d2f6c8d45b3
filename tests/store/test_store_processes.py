"""Several processes write one store, and one that is killed takes nothing with it."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from pytest_ngraph.errors import StoreError
from pytest_ngraph.store.sqlite import Store
from tests.golden.store_content import EVIDENCE, FASTER, GATE, add_launch, launch, start_run

ROOT = Path(__file__).parents[2]
WRITER = """
import sys
from pathlib import Path
from pytest_ngraph.store.sqlite import Store
from tests.golden.store_content import add_launch, start_run
path, uid, launches = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
with Store.open(path) as store:
    run_id = start_run(store, uid)
    for number in range(1, launches + 1):
        add_launch(store, run_id, number)
        print(number, flush=True)
"""

OPENER = """
import sys, time
from pathlib import Path
from pytest_ngraph.store.sqlite import Store
folder, stores = Path(sys.argv[1]), int(sys.argv[2])
print("ready", flush=True)
begin = float(sys.stdin.readline())
for number in range(stores):
    time.sleep(max(0, begin + 0.02 * number - time.time()))
    Store.open(folder / str(number) / "results.sqlite").close()
"""


def writer(path: Path, uid: str, launches: int) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", WRITER, str(path), uid, str(launches)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}
    )


@pytest.mark.real
def test_processes_make_a_store_at_the_same_moment(tmp_path: Path) -> None:
    command = [sys.executable, "-c", OPENER, str(tmp_path), "40"]
    processes = [
        subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )
        for _ in range(4)
    ]
    for process in processes:
        assert process.stdout is not None
        process.stdout.readline()
    begin = f"{time.time() + 0.1}\n"
    for process in processes:
        assert process.stdin is not None
        process.stdin.write(begin)
        process.stdin.flush()
    told = [process.communicate(timeout=120)[1] for process in processes]
    assert told == [""] * 4


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "results.sqlite"


@pytest.mark.real
def test_a_killed_writer_leaves_its_finished_launches_and_nothing_half(path: Path) -> None:
    moments = random.Random(20)
    kept = 0
    for attempt in range(8):
        process = writer(path, f"run-{attempt}", 100_000)
        assert process.stdout is not None
        told = 0
        for _ in range(moments.randint(1, 4)):
            told = int(process.stdout.readline())
        time.sleep(moments.uniform(0, 0.03))
        os.kill(process.pid, signal.SIGKILL)
        told += len(process.stdout.read().splitlines())
        process.stdout.close()
        assert process.wait() == -signal.SIGKILL
        with Store.open(path) as store:
            run = store.runs()[-1]
            assert run.status == "running"
            assert run.uid == f"run-{attempt}"
            found = store.launches(EVIDENCE)[kept:]
            # The launch that was being finished may have been committed before its writer could tell.
            assert len(found) - told in (0, 1)
            assert found == [launch(number) for number in range(1, len(found) + 1)]
            assert store.incomplete_launches(run.id) in (0, 1)
            kept += len(found)
    reader = sqlite3.connect(path)
    assert reader.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    reader.close()


@pytest.mark.real
@pytest.mark.parametrize("attempt", range(3))
def test_processes_make_and_write_a_store_at_the_same_time(path: Path, attempt: int) -> None:
    processes = [writer(path, "shared", 20) for _ in range(3)]
    for process in processes:
        process.communicate(timeout=120)
    assert [process.returncode for process in processes] == [0, 0, 0]
    with Store.open(path) as store:
        assert [run.uid for run in store.runs()] == ["shared"]
        found = store.launches(EVIDENCE)
    assert sorted(record.number for record in found) == sorted(3 * list(range(1, 21)))
    assert all(record == launch(record.number) for record in found)


@pytest.fixture
def other_writer(path: Path) -> Iterator[sqlite3.Connection]:
    with Store.open(path) as store:
        start_run(store)
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("BEGIN IMMEDIATE")
    yield connection
    connection.close()


def test_a_store_that_stays_locked_is_given_up_after_the_wait(path: Path, other_writer: sqlite3.Connection) -> None:
    begin = time.monotonic()
    with Store.open(path, wait_seconds=0.3) as store:
        assert len(store.runs()) == 1  # reading does not wait
        with pytest.raises(StoreError, match="another process keeps it locked") as caught:
            start_run(store, "run-2")
        assert time.monotonic() - begin >= 0.3
        assert str(path) in str(caught.value)
        other_writer.execute("ROLLBACK")
        assert add_launch(store, start_run(store, "run-2"), 1)


def test_nothing_is_lost_when_a_commit_finds_the_store_locked(path: Path, other_writer: sqlite3.Connection) -> None:
    other_writer.execute("ROLLBACK")
    with Store.open(path, wait_seconds=0.1) as store:
        run_id = start_run(store)
        launch_id = store.start_launch(run_id, group="g", number=1, seed=0, protocol=GATE, order=[], environment={})
        store.add_prepared(launch_id, FASTER, "e", launch(1).prepared[FASTER])
        other_writer.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            store.commit()
        other_writer.execute("ROLLBACK")
        store.finish_launch(launch_id)
        assert len(store.launches({FASTER: "e"})) == 1

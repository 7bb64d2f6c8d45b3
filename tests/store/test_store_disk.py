"""A store on a read-only disk is read, and one on a full disk keeps what was committed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from pytest_ngraph.errors import StoreError
from pytest_ngraph.spec.cells import Visit
from pytest_ngraph.store.sqlite import Store
from tests.golden.store_content import (
    EVIDENCE,
    FASTER,
    GATE,
    RECORDS,
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


def test_a_store_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    assert refusal(tmp_path / "none" / "results.sqlite", read_only=True).startswith("there is no such file; run the")
    assert not (tmp_path / "none").exists()


def test_a_store_opened_for_reading_refuses_to_be_written(path: Path) -> None:
    with Store.open(path, read_only=True) as store:
        with pytest.raises(StoreError, match="cannot be written here"):
            start_run(store, "run-2")
        assert store.launches(EVIDENCE) == LAUNCHES


def test_a_reader_sees_what_a_writer_commits(path: Path) -> None:
    with Store.open(path) as writer, Store.open(path, read_only=True) as reader:
        add_launch(writer, start_run(writer), 4)
        assert reader.launches(EVIDENCE) == [*LAUNCHES, launch(4)]


def test_what_is_committed_is_on_the_disk_before_anything_else_is_done(tmp_path: Path) -> None:
    """In a process of its own: for the tests it is switched off, which a user must not get."""
    code = (
        "import sys; from pathlib import Path; from pytest_ngraph.store.connection import connect\n"
        "connection = connect(Path(sys.argv[1]), read_only=False, wait_seconds=5)\n"
        "print(connection.execute('PRAGMA synchronous').fetchone()[0])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "results.sqlite")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "2\n"  # FULL


Mount = Callable[..., None]


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[tuple[Path, Mount]]:
    """A disk of 1 MiB of its own, and a function that mounts it again with other options."""
    folder = tmp_path / "disk"
    folder.mkdir()

    def mount(*options: str) -> None:
        given = ",".join(("size=1m", *options))
        command = ["mount", "-t", "tmpfs", "-o", given, "tmpfs", str(folder)]
        subprocess.run(command, check=True, capture_output=True)

    if os.geteuid() != 0 or shutil.which("mount") is None:
        pytest.skip("mounting a small disk needs root")
    try:
        mount()
    except subprocess.CalledProcessError as error:
        pytest.skip(f"mounting a small disk is refused here: {error.stderr.decode().strip()}")
    yield folder, mount
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def test_a_store_on_a_read_only_disk_is_read_and_not_written(path: Path, disk: tuple[Path, Mount]) -> None:
    folder, mount = disk
    shutil.copy(path, folder)
    mount("remount", "ro")
    assert kept(folder / path.name, read_only=True)
    assert refusal(folder / path.name).startswith("it cannot be written here; make file and folder writable")
    assert refusal(folder / "new.sqlite").startswith("it cannot be written here")
    assert refusal(folder / ".ngraph" / "new.sqlite").startswith("it cannot be written here")


def test_writes_in_a_log_on_a_read_only_disk_are_not_passed_over(path: Path, disk: tuple[Path, Mount]) -> None:
    folder, mount = disk
    with Store.open(path) as store:
        add_launch(store, start_run(store), 4)
        for name in (path.name, f"{path.name}-wal"):
            shutil.copy(path.with_name(name), folder)
    mount("remount", "ro")
    assert "its last writes are in results.sqlite-wal" in refusal(folder / path.name, read_only=True)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
def test_a_store_without_the_right_to_write_is_read_and_not_written(path: Path) -> None:
    path.chmod(0o444)
    path.parent.chmod(0o555)
    try:
        assert kept(path, read_only=True)
        assert refusal(path).startswith("it cannot be written here")
    finally:
        path.parent.chmod(0o755)


# A full disk


def visit_until_full(store: Store, launch_id: int, visit: Visit) -> tuple[int, str]:
    """Commit visit after visit; return how many were committed and what the store said then."""
    for block in range(1000):
        store.add_visit(launch_id, FASTER, block, 0, visit)
        try:
            store.commit()
        except StoreError as error:
            return block, str(error)
    raise AssertionError("the disk never filled up")


def test_a_disk_that_fills_up_keeps_what_was_committed(path: Path, disk: tuple[Path, Mount]) -> None:
    folder, _ = disk
    shutil.copy(path, folder)
    full = folder / path.name
    visit = Visit(1, tuple(range(1000)))
    with Store.open(full) as store:
        run_id = start_run(store, "run-2")
        launch_id = store.start_launch(run_id, group="g", number=4, seed=0, protocol=GATE, order=[], environment={})
        store.add_prepared(launch_id, FASTER, "evidence-full", RECORDS[FASTER])
        store.commit()
        committed, reason = visit_until_full(store, launch_id, visit)
        assert reason.startswith(f"store {full}: ")
        assert "full" in reason
        assert "what was committed before is intact" in reason
        assert store.launches(EVIDENCE) == LAUNCHES
    assert committed > 10
    # As it is now the store can still be read, and with space it goes on.
    larger = path.with_name("larger.sqlite")
    for file in folder.glob("results.sqlite*"):
        if not file.name.endswith("-shm"):
            shutil.copy(file, larger.with_name(file.name.replace("results", "larger")))
    with Store.open(larger) as store:
        assert store.launches(EVIDENCE) == LAUNCHES
        store.finish_launch(launch_id)
        (found,) = store.launches({FASTER: "evidence-full"})
        assert found.visits == {(FASTER, block): visit for block in range(committed)}


@pytest.mark.parametrize("free_bytes", [0, 4096, 40_000, 80_000])
def test_a_new_store_on_a_full_disk_says_so(disk: tuple[Path, Mount], free_bytes: int) -> None:
    folder, _ = disk
    (folder / "ballast").write_bytes(b"x" * (shutil.disk_usage(folder).free - free_bytes))
    reason = ""
    try:
        with Store.open(folder / ".ngraph" / "results.sqlite") as store:
            fill(store, launches=100)
    except StoreError as error:
        reason = str(error)
    assert "full" in reason
    assert "choose another --ngraph-store" in reason

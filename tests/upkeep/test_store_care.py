"""``ngraph store`` and ``ngraph runs``: what is damaged is named and taken out, what is old can go, the rest stays."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from pytest_ngraph import sides, units
from pytest_ngraph.cli import main
from pytest_ngraph.errors import StoreError
from pytest_ngraph.launches.client import worker_environment
from pytest_ngraph.report.html.content import read_content, verdict_rows
from pytest_ngraph.report.results.cells import tidy_rows
from pytest_ngraph.spec.cells import Device
from pytest_ngraph.spec.sides import Side
from pytest_ngraph.store.sqlite import Store
from pytest_ngraph.upkeep import caches, care
from pytest_ngraph.upkeep.care import folder_bytes
from pytest_ngraph.workloads import folders
from tests.conftest import Suite
from tests.golden.store_content import (
    EVIDENCE,
    GATE,
    add_launch,
    change,
    fill,
    filled,
    launch,
    start_run,
    verdict,
)
from tests.store.test_store_damage import LAB, PAGE_BYTES, flip, flip_sample
from tests.support import git_repository as repositories
from tests.support.report_stores import FAILED, VERDICTS, write_store
from tests.upkeep.test_workloads_sharing import ONE, TWO, WEIGHTS, make


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return filled(tmp_path / "results.sqlite")


def ngraph(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str]:
    """Call a command; return its status and all that it said, which fits a terminal but for paths."""
    status = main([*words])
    said = capsys.readouterr()
    for line in said.out.splitlines():
        assert len(line) <= 80 or "/" in line, line
    return status, said.out + said.err


def spoil(path: Path, statement: str) -> None:
    """Change rows behind the store's back."""
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(statement)
        connection.commit()


# Checking and repairing


def test_a_sound_store_is_said_to_be(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, said = ngraph(capsys, "store", "check", f"--store={path}")
    assert (status, said.splitlines()[1]) == (0, "  sound: 1 run, 3 launches, 36 samples")
    assert ngraph(capsys, "store", "repair", f"--store={path}")[1].endswith("sound: nothing to repair\n")
    assert [file.name for file in path.parent.glob("*damaged*")] == []


def test_a_store_that_is_not_there_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for what in ("check", "repair", "compact", "size"):
        status, said = ngraph(capsys, "store", what, f"--store={tmp_path / 'none.sqlite'}")
        assert (status, "no file" in said) == (2, True)


def test_a_store_that_may_not_be_read_is_an_error_and_no_damage(
    path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = Path.open

    # Root may read anything.
    def refuse(file: Path, *how: Any, **further: Any) -> Any:
        if file == path:
            raise PermissionError(errno.EACCES, "Permission denied", str(file))
        return opened(file, *how, **further)

    monkeypatch.setattr(Path, "open", refuse)
    for what in ("check", "repair"):
        assert main(["store", what, f"--store={path}"]) == 2
        assert capsys.readouterr().err == f"ngraph store: store {path}: cannot be read: Permission denied\n"


def test_a_damaged_launch_is_named_taken_out_and_kept_beside(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip_sample(path, 2)
    before = path.read_bytes()

    status, said = ngraph(capsys, "store", "check", f"--store={path}")
    assert status == 1
    assert "  damaged: launch 2 of run 1 (resnet18, " in said
    assert "): visits" in said
    status, said = ngraph(capsys, "store", "repair", f"--store={path}")
    assert status == 0
    assert "  taken out: launch 2 of run 1" in said
    assert "  kept: 2 launches; what is missing is measured again" in said

    assert ngraph(capsys, "store", "check", f"--store={path}")[0] == 0
    (kept,) = path.parent.glob("results.sqlite.damaged-*")
    assert kept.read_bytes() == before
    with Store.open(path) as store:
        assert store.launches(EVIDENCE) == [launch(1), launch(3)]
        assert store.damaged == {}
        assert [row.verdict for row in store.verdicts(1)] == ["pass"]


@pytest.mark.parametrize(
    ("statement", "named", "launches"),
    [
        ("UPDATE runs SET environment = '{}'", "run 1", 3),
        ("DELETE FROM runs", "run 1", 3),
        ("UPDATE verdicts SET verdict = 'fail'", "verdicts of run 1", 3),
        ("UPDATE cells SET cell = replace(cell, 'resnet18', 'resnet19') WHERE id = 1", "cell 1", 0),
        ("INSERT INTO epochs VALUES ('evidence-identity', 9, 1, '')", "epochs", 3),
    ],
)
def test_a_repair_keeps_the_launches_of_what_else_is_damaged(
    path: Path, capsys: pytest.CaptureFixture[str], statement: str, named: str, launches: int
) -> None:
    spoil(path, statement)
    assert f"  damaged: {named}\n" in ngraph(capsys, "store", "check", f"--store={path}")[1]
    assert f"  taken out: {named}\n" in ngraph(capsys, "store", "repair", f"--store={path}")[1]
    with Store.open(path) as store:
        assert len(store.launches(EVIDENCE)) == launches
        assert len(store.runs()) == 1
        # It can be written, and a run that is damaged is not gone on with.
        assert start_run(store, "another") == 2
        assert all(run.status != "running" for run in store.runs()[:1])


def reusing_run(path: Path, *, judges: bool) -> None:
    """Let a second run reuse all that the first one measured."""
    with Store.open(path) as store:
        run_id = start_run(store, "run-2")
        store.use_cells(run_id, EVIDENCE)
        if judges:
            store.add_verdict(run_id, verdict())
        store.finish_run(run_id, "finished")


@pytest.mark.parametrize("judges", [True, False])
def test_a_run_that_measured_nothing_is_readable_after_its_row_was_repaired(
    path: Path, capsys: pytest.CaptureFixture[str], judges: bool
) -> None:
    reusing_run(path, judges=judges)
    spoil(path, "UPDATE runs SET environment = '{}' WHERE id = 2")
    assert "  taken out: run 2\n" in ngraph(capsys, "store", "repair", f"--store={path}")[1]
    assert_readable(path, capsys)
    with Store.open(path) as store:
        judged_today = datetime.fromisoformat(store.runs()[1].started_at).year > 2000
    assert judged_today == judges


def test_a_run_that_an_earlier_version_repaired_is_readable(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    reusing_run(path, judges=False)
    change(path, "UPDATE runs SET status = 'damaged', protocol = '{}', started_at = '' WHERE id = 2")
    assert_readable(path, capsys)


def assert_readable(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """See that the second run is one of which nothing more is known."""
    with Store.open(path) as store:
        assert [(run.status, run.protocol) for run in store.runs()] == [("finished", "gate"), ("damaged", "?")]
        assert dict(store.cells(2)) == EVIDENCE
        read_content(store, store.runs()[1])
    for words in (["runs"], ["store", "check"], ["store", "prune", "--older-than=1d", "--dry-run"]):
        assert ngraph(capsys, *words, f"--store={path}")[0] == 0


def test_a_launch_after_a_repair_counts_where_its_evidence_had_begun_again(path: Path) -> None:
    with Store.open(path) as store:
        store.start_epoch(EVIDENCE.values())
    flip_sample(path, 3)
    assert care.repair(path) is not None
    with Store.open(path) as store:
        run_id = start_run(store, "another")
        # The number of the launch that was taken out is not given again.
        assert add_launch(store, run_id, 4) == 4
        assert store.launches(EVIDENCE) == [launch(4)]
        assert run_id == 2


def test_the_number_of_a_run_that_was_taken_out_is_not_given_again(path: Path) -> None:
    with Store.open(path) as store:
        start_run(store, "run-2")
    spoil(path, "DELETE FROM runs WHERE id = 2")
    assert care.repair(path) is not None
    with Store.open(path) as store:
        assert start_run(store, "another") == 3


@pytest.mark.parametrize("when", ["copied", 1, 2, 3])
def test_what_another_process_writes_while_a_store_is_repaired_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch, when: str | int
) -> None:
    wrote: list[int] = []
    asked: list[int] = []

    def write() -> None:
        # At the end nobody else can, and is told so.
        with contextlib.suppress(StoreError), Store.open(path, wait_seconds=0.1) as other:
            wrote.append(add_launch(other, 1, 4))

    def version_of(connection: sqlite3.Connection) -> int:
        asked.append(1)
        found = version(connection)
        if len(asked) == when:
            write()
        return found

    def copy(*files: Path) -> None:
        copied(*files)
        if when == "copied" and not wrote:
            write()

    flip_sample(path, 2)
    version, copied = care._version_of, shutil.copy2
    monkeypatch.setattr(care, "_version_of", version_of)
    monkeypatch.setattr(shutil, "copy2", copy)
    done = care.repair(path)

    assert bool(wrote) == (when != 3)
    assert done is not None
    assert done.launches == 2 + len(wrote)
    with Store.open(path) as store:
        assert store.launches(EVIDENCE) == [launch(1), launch(3), *(launch(4) for _ in wrote)]
    assert len([file for file in path.parent.glob("*.damaged-*") if not file.name.endswith("-wal")]) == 1


def test_a_store_that_others_write_all_the_time_is_left_as_it_is(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    version = care._version_of

    def version_of(connection: sqlite3.Connection) -> int:
        found = version(connection)
        with Store.open(path) as other:
            start_run(other, str(time.monotonic_ns()))
        return found

    flip_sample(path, 2)
    monkeypatch.setattr(care, "_version_of", version_of)
    with pytest.raises(StoreError, match="other processes write to it all the time"):
        care.repair(path)
    assert list(path.parent.glob("*.damaged-*")) == []
    with Store.open(path) as store:
        assert store.launches(EVIDENCE) == [launch(1), launch(3)]


def test_a_repair_leaves_what_is_sound_whatever_bit_is_flipped(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    write_store(path, LAB, VERDICTS, FAILED)
    whole = path.read_bytes()
    with Store.open(path) as store:
        sound = shown(store)
    draw, repaired = random.Random(3), 0
    for _ in range(60):
        for file in tmp_path.iterdir():
            file.unlink()
        page = draw.randrange(0, len(whole), PAGE_BYTES)
        path.write_bytes(flip(whole, page + draw.choice([draw.randrange(40), draw.randrange(PAGE_BYTES)]), 5))
        try:
            done = care.repair(path)
            with Store.open(path) as store:
                found = shown(store)
                assert store.damaged == {}
        except StoreError:
            continue
        repaired += done is not None
        if done is None or not done.taken_out:
            assert found == sound
        # Nothing is there that was not.
        assert {claim for claim, *_ in found[1]} <= {claim for claim, *_ in sound[1]}
    assert repaired > 10


def shown(store: Store) -> tuple[list[str], list[tuple[Any, ...]]]:
    content = read_content(store, store.runs()[-1])
    verdicts = [(row["what"], row["verdict"], row["text"]) for row in verdict_rows(content)]
    return sorted(map(str, tidy_rows(content.reports))), verdicts


def test_a_store_whose_seals_are_gone_is_not_repaired(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    spoil(path, "DELETE FROM seals")
    status, said = ngraph(capsys, "store", "repair", f"--store={path}")
    assert status == 2
    assert "nothing in it is known to be sound; put back a copy or move it away" in said


def test_launches_that_were_adopted_are_said_to_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "results.sqlite"
    path.write_bytes((Path(__file__).parents[1] / "golden" / "store_v3.sqlite").read_bytes())
    Store.open(path).close()
    said = ngraph(capsys, "store", "check", f"--store={path}")[1]
    assert "  4 launches adopted on 2" in said
    assert "whether they were damaged before is not known" in said


def test_compacting_changes_nothing_but_the_size(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    change(path, "DELETE FROM visits WHERE launch_id = 1")
    change(path, "DELETE FROM prepared WHERE launch_id = 1")
    change(path, "DELETE FROM launches WHERE id = 1")
    before = path.stat().st_size
    status, said = ngraph(capsys, "store", "compact", f"--store={path}")
    assert (status, " before, " in said) == (0, True)
    assert path.stat().st_size < before
    with Store.open(path) as store:
        assert store.launches(EVIDENCE) == [launch(2), launch(3)]


# Pruning


def aged(path: Path, days: dict[int, int]) -> None:
    """Let runs have begun so many days ago."""
    for run, age in days.items():
        change(path, f"UPDATE runs SET started_at = strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now', '-{age} days') "
                     f"WHERE id = {run}")  # fmt: skip


def two_runs(path: Path) -> None:
    """Let a second run measure other cells, and judge nothing of the first's."""
    with Store.open(path) as store:
        run_id = start_run(store, "run-2")
        other = {at: f"{key}-2" for at, key in EVIDENCE.items()}
        launch_id = store.start_launch(run_id, group="g", number=1, seed=1, protocol=GATE, order=[], environment={})
        for at, record in launch(1).prepared.items():
            store.add_prepared(launch_id, at, other[at], record)
        store.finish_launch(launch_id)
        store.use_cells(run_id, other)
        store.finish_run(run_id, "finished")


def test_old_runs_go_and_the_last_one_stays(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs(path)
    aged(path, {1: 60, 2: 40})
    words = ("store", "prune", "--older-than=30d", f"--store={path}")

    before = path.read_bytes()
    status, said = ngraph(capsys, *words, "--dry-run")
    assert status == 0
    assert "  would go: 1 run with 3 launches, " in said
    assert path.read_bytes() == before
    assert "  gone: 1 run with 3 launches, " in ngraph(capsys, *words)[1]

    with Store.open(path) as store:
        assert [run.id for run in store.runs()] == [2]
        assert store.launches(EVIDENCE) == []
        assert len(store.launches({at: f"{key}-2" for at, key in EVIDENCE.items()})) == 1
    assert ngraph(capsys, "store", "check", f"--store={path}")[0] == 0
    assert "gone: 1 run with 1 launch, " in ngraph(capsys, *words, "--with-last")[1]


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE launches SET seed = '7' WHERE id = 1",
        "UPDATE launches SET launch_group = CAST(x'ff41' AS TEXT) WHERE id = 1",
        "UPDATE prepared SET record = CAST(x'22ff4122' AS TEXT) WHERE launch_id = 1",
        "UPDATE visits SET calls = 9 WHERE launch_id = 1",
        "UPDATE visits SET around = CAST(x'ff41' AS TEXT) WHERE launch_id = 1",
    ],
)
def test_a_damaged_launch_goes_with_its_run_and_nothing_of_it_stays(
    path: Path, capsys: pytest.CaptureFixture[str], statement: str
) -> None:
    two_runs(path)
    spoil(path, statement)
    assert "  gone: 1 run with 3 launches, " in ngraph(capsys, "store", "prune", "--run=1", f"--store={path}")[1]
    assert ngraph(capsys, "store", "check", f"--store={path}")[1].endswith("  sound: 1 run, 1 launch, 0 samples\n")
    with Store.open(path) as store:
        assert store.damage_lines == []


def test_a_run_that_has_not_ended_goes_by_age_once_it_is_silent(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs(path)
    change(path, "UPDATE runs SET status = 'running', finished_at = NULL WHERE id = 1")
    aged(path, {1: 60})
    words = ("store", "prune", "--older-than=30d", f"--store={path}")
    # It goes on measuring, for all that is known.
    assert "  gone: 0 runs with 0 launches, " in ngraph(capsys, *words)[1]

    # Minutes may pass within a launch, and hours in a search of a compiler.
    for hours, age, gone in ((2, "1h", "0 runs"), (31 * 24, "30d", "1 run")):
        then = f"strftime('%Y-%m-%dT%H:%M:%f+00:00', 'now', '-{hours} hours')"
        change(path, f"UPDATE launches SET started_at = {then}, finished_at = {then} WHERE run_id = 1")
        change(path, f"UPDATE verdicts SET judged_at = {then} WHERE run_id = 1")
        said = ngraph(capsys, "store", "prune", f"--older-than={age}", f"--store={path}")[1]
        assert f"  gone: {gone} with " in said
    with Store.open(path) as store:
        assert [run.id for run in store.runs()] == [2]


def test_a_run_that_has_not_ended_goes_by_its_number(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    two_runs(path)
    change(path, "UPDATE runs SET status = 'running', finished_at = NULL WHERE id = 1")
    assert "  gone: 1 run with 3 launches, " in ngraph(capsys, "store", "prune", "--run=1", f"--store={path}")[1]


def test_launches_that_the_last_run_judges_stay(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(path) as store:
        run_id = start_run(store, "run-2")
        store.use_cells(run_id, EVIDENCE)
        store.finish_run(run_id, "finished")
    said = ngraph(capsys, "store", "prune", "--run=1", f"--store={path}")[1]
    assert "  gone: 1 run with 0 launches, " in said
    assert "  kept: 3 launches of these that the last run judges" in said
    with Store.open(path) as store:
        assert store.launches(EVIDENCE) == [launch(1), launch(2), launch(3)]
        assert [run.status for run in store.runs()] == ["pruned", "finished"]
    status, said = ngraph(capsys, "store", "prune", "--run=2", f"--store={path}")
    assert (status, "2 is the last run" in said) == (2, True)
    status, said = ngraph(capsys, "store", "prune", "--run=7", f"--store={path}")
    assert (status, "no run 7" in said) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "nothing to select by (expected --older-than=30d, --run=NUMBER or both)"),
        (("--older-than=soon",), "'soon' is not allowed (expected an age, such as 30d or 12h)"),
        (("--older-than=-3d",), "'-3d' is not allowed"),
    ],
)
def test_what_to_prune_must_be_said(
    path: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], said: str
) -> None:
    try:
        status = main(["store", "prune", *words, f"--store={path}"])
    except SystemExit as exit:
        status = int(str(exit.code))
    assert status == 2
    assert said in capsys.readouterr().err


def test_caches_that_nobody_uses_go_and_searches_stay(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = path.parent / "artifacts"
    for name, days in (("sample-old", 50), ("sample-used", 50), ("onnx-new", 1)):
        folders.publish(cache / name, lambda folder: {"bytes": (folder / "data").write_bytes(bytes(5000))})
        os.utime(cache / name / "meta.json", (time.time() - days * 86400,) * 2)
    folders.read(cache / "sample-used")
    records = path.parent / "compiled" / "tvm-records-1"
    records.mkdir(parents=True)
    assert "artifacts" in ngraph(capsys, "store", "size", f"--store={path}")[1]
    said = ngraph(capsys, "store", "prune", "--older-than=30d", f"--store={path}")[1]
    assert "  gone: 1 cached folder or log, 5." in said
    assert sorted(each.name for each in cache.iterdir() if each.is_dir()) == ["onnx-new", "sample-used"]
    assert records.is_dir()


def test_what_compilers_keep_by_themselves_goes_by_its_newest_file(
    path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cache = path.parent / "artifacts"
    old, used = cache / "inductor", path.parent / "of-sides" / "1234" / "artifacts" / "triton"
    for folder in (old, used, cache / "mine"):
        (folder / "ab").mkdir(parents=True)
        (folder / "ab" / "code.py").write_bytes(bytes(5000))
        for place in (folder / "ab" / "code.py", folder / "ab", folder):
            os.utime(place, (time.time() - 50 * 86400,) * 2)
    # Written now, or read, which changes nothing else.
    os.utime(used / "ab" / "code.py", (time.time(), time.time() - 50 * 86400))
    words = ("store", "prune", "--older-than=30d", f"--store={path}")

    assert "  would go: 1 cached folder or log, 4.88 KiB" in ngraph(capsys, *words, "--dry-run")[1]
    assert old.is_dir()
    assert "  gone: 1 cached folder or log, 4.88 KiB" in ngraph(capsys, *words)[1]

    assert not old.exists()
    assert (used / "ab" / "code.py").exists()
    # What nobody knows stays.
    assert [each.name for each in cache.iterdir() if each.is_dir()] == ["mine"]


def test_the_caches_of_compilers_lie_where_workers_have_them() -> None:
    given = worker_environment(Device("local", (0,), 1), "default", 0, Path("/artifacts"))
    below = {Path(value).name for value in given.values() if value.startswith("/artifacts/")}
    assert below == caches.COMPILERS_OWN


def test_sides_that_nobody_uses_go_with_what_was_built_for_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    project = repositories.make(path.parent / "project", {"model.py": "#" * 5000})
    old = resolved_side(project, path.parent / "sides")
    repositories.commit(project, {"model.py": "DEPTH = 2"})
    new = resolved_side(project, path.parent / "sides")
    built = path.parent / "of-sides" / "1234" / "artifacts" / "sample-old"
    folders.publish(built, lambda folder: {"bytes": (folder / "data").write_bytes(bytes(5000))})
    for marker in (Path(old.tree).parent / "meta.json", built / "meta.json", path.parent / "sides" / ".gitignore"):
        os.utime(marker, (time.time() - 50 * 86400,) * 2)

    said = ngraph(capsys, "store", "size", f"--store={path}")[1]
    assert {"sides", "of-sides"} <= {line.split()[0] for line in said.splitlines()}
    words = ("store", "prune", "--older-than=30d", f"--store={path}")
    assert "  would go: 2 cached folders and logs, 1" in ngraph(capsys, *words, "--dry-run")[1]
    assert Path(old.tree).is_dir()
    assert "  gone: 2 cached folders and logs, 1" in ngraph(capsys, *words)[1]

    assert not Path(old.tree).exists()
    assert not built.exists()
    assert Path(new.tree).is_dir()
    assert (path.parent / "sides" / ".gitignore").is_file()


def resolved_side(project: Path, cache: Path) -> Side:
    return sides.resolve(sides.read("HEAD"), rootdir=project, cache=cache, progress=lambda line: None)


def test_weights_go_with_the_last_graph_that_rests_on_them(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cache = path.parent / "artifacts"
    make(cache / "onnx-old")
    _, kept = make(cache / "onnx-new", (ONE,))
    os.utime(cache / "onnx-old" / "meta.json", (time.time() - 50 * 86400,) * 2)
    words = ("store", "prune", "--older-than=30d", f"--store={path}")
    before = folder_bytes(cache)

    would = ngraph(capsys, *words, "--dry-run")[1].splitlines()[-1]
    assert folder_bytes(cache) == before
    gone = ngraph(capsys, *words)[1].splitlines()[-1]

    freed = before - folder_bytes(cache)
    assert freed > len(WEIGHTS[TWO])
    assert gone == f"  gone: 1 cached folder or log, {units.size(freed)}"
    assert would == gone.replace("gone:", "would go:")
    assert sorted(file.name for file in (cache / "weights").iterdir()) == sorted([kept.name, "onnx-new.onnx"])
    assert folders.damage(cache / "onnx-new") == ""
    os.utime(cache / "onnx-new" / "meta.json", (time.time() - 50 * 86400,) * 2)
    ngraph(capsys, *words)
    assert list((cache / "weights").iterdir()) == []


# Runs, and where the store is


def test_runs_have_the_numbers_that_options_take(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Store.open(path) as store:
        store.start_run(
            "two", command=["/usr/bin/pytest", "suite", "--password=hunter2", *["--ngraph-batch=1"] * 9], seed=0,
            protocol=GATE, environment={}, fresh=False, resumed=False,
        )  # fmt: skip
    status, said = ngraph(capsys, "runs", f"--store={path}")
    head, first, second = said.splitlines()
    assert (status, head.split()[:4]) == (0, ["run", "began", "(UTC)", "status"])
    assert first.split()[0] == "1"
    assert first.split()[3:6] == ["finished", "gate", "3"]
    assert (second.split()[0], second.split()[3]) == ("2", "running")
    assert second.endswith("…")
    assert "hunter2" not in main_output(capsys, path)


def main_output(capsys: pytest.CaptureFixture[str], path: Path) -> str:
    main(["runs", "--all", f"--store={path}"])
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("ini", "text", "store"),
    [
        ("pytest.ini", "[pytest]\n", ".ngraph/results.sqlite"),
        ("pyproject.toml", "[tool.pytest.ini_options]\n", ".ngraph/results.sqlite"),
        ("pyproject.toml", '[tool.pytest.ini_options]\nngraph_store = "kept/mine.sqlite"\n', "kept/mine.sqlite"),
        ("tox.ini", "[pytest]\nngraph_store = kept/mine.sqlite\n", "kept/mine.sqlite"),
        ("setup.cfg", "[tool:pytest]\nngraph_store = kept/mine.sqlite\n", "kept/mine.sqlite"),
        ("setup.py", "", ".ngraph/results.sqlite"),
    ],
)
@pytest.mark.parametrize("below", ["", "src/deep"])
def test_commands_find_the_store_that_pytest_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], ini: str, text: str,
    store: str, below: str,
) -> None:  # fmt: skip
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    (tmp_path / ini).write_text(text)
    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    with Store.open(tmp_path / store) as made:
        fill(made)
    monkeypatch.chdir(tmp_path / below)
    for words in (["runs"], ["store", "check"], ["store", "size"], ["export", str(tmp_path / "table.csv")]):
        assert ngraph(capsys, *words)[0] == 0
    assert (tmp_path / "table.csv").exists()


def test_options_in_the_ini_file_and_the_environment_are_heard(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("PYTEST_ADDOPTS", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q --ngraph-store=one.sqlite\n")
    assert "no file one.sqlite" in ngraph(capsys, "runs")[1]
    monkeypatch.setenv("PYTEST_ADDOPTS", "--ngraph-store two.sqlite")
    assert "no file two.sqlite" in ngraph(capsys, "runs")[1]
    assert "no file three.sqlite" in ngraph(capsys, "runs", "--store=three.sqlite")[1]
    (tmp_path / "pytest.ini").write_text("[pytest\n")
    status, said = ngraph(capsys, "runs")
    assert (status, "pytest's ini file: " in said) == (2, True)


# Where a store cannot be


@pytest.mark.parametrize(
    ("store", "said"),
    [
        ("x" * 300 + ".sqlite", "expected names of at most 220 bytes"),
        ("ä" * 130 + ".sqlite", "expected names of at most 220 bytes"),
        ("/".join(["folder"] * 90) + "/s.sqlite", "bytes, SQLite takes 500; choose another --ngraph-store"),
        (".", "it is a folder; name a file in it, such as "),
        ("suite.txt/s.sqlite", "choose another --ngraph-store"),
    ],
)
def test_a_store_that_cannot_be_there_is_refused_in_words(suite: Suite, store: str, said: str) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_it(ngraph_cell):
    assert_speedup(ngraph_cell, at_least=1.2)
""")
    (suite.path / "suite.txt").write_text("")
    given = suite.path if store == "." else store
    result = suite.run(f"--ngraph-store={given}")
    shown = result.stdout.str() + result.stderr.str()
    assert result.ret in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.TESTS_FAILED)
    assert said in shown
    assert "Traceback" not in shown
    command = [sys.executable, "-m", "pytest_ngraph.cli", "runs", f"--store={given}"]
    asked = subprocess.run(command, cwd=suite.path, check=False, capture_output=True, text=True)
    assert (asked.returncode, "Traceback" in asked.stderr) == (2, False)


def test_the_header_says_when_a_store_has_grown_past_a_gigabyte(
    path: Path, suite: Suite, capsys: pytest.CaptureFixture[str]
) -> None:
    suite.write("""
@pytest.mark.ngraph(model="block:conv", batch=1)
def test_it(ngraph_cell):
    pass
""")
    here = f"--ngraph-store={path}"
    suite.run("--collect-only", here).stdout.no_fnmatch_line("*take*")
    (path.parent / "artifacts").mkdir()
    with (path.parent / "artifacts" / "weights").open("wb") as file:
        file.truncate(3 << 30)
    suite.run("--collect-only", here).stdout.fnmatch_lines(
        [
            "ngraph: store and caches take 3.00 GiB; what is old goes with",
            f"  ngraph store prune --store={path} --older-than=30d",
        ]
    )

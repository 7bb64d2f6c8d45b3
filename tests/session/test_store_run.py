"""A run of a device in the store: which run is gone on with, and whose it is meanwhile."""

from __future__ import annotations

import errno
import fcntl
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pytest_ngraph.errors import StoreError
from pytest_ngraph.machine.turns import Shared
from pytest_ngraph.options.settings import resolve
from pytest_ngraph.session.store_run import StoreRun
from pytest_ngraph.store.sqlite import Store

NOT_RESUMED, NEW = "is still measuring, so it is not resumed", "nothing to resume: a new run"
BOARD: dict[str, Any] = {
    "node": "board-a", "machine": "aarch64", "cpus": 6, "affinity": [0, 1], "governor": None, "kernel": "6.1",
}  # fmt: skip
OTHER_BOARD = {**BOARD, "node": "board-b"}


class Run:
    """A run that has begun in a folder, with what it said to the user."""

    def __init__(self, folder: Path, uid: str, *, resume: bool = True, device: str = "local", **facts: Any) -> None:
        settings = replace(resolve({}, {}, rootdir=folder, invocation_dir=folder, environ={}), resume=resume)
        self.said: list[str] = []
        listener: Any = SimpleNamespace(note=self.said.append)
        bench: Any = SimpleNamespace(device=SimpleNamespace(name=device), facts=lambda: facts)
        self._run = StoreRun(settings, bench, listener, uid=uid, command=[])
        assert self._run.store.path == settings.store

    @property
    def uid(self) -> str:
        return self._run.uid

    def vanish(self) -> None:
        """End as a process does that is killed."""
        self._run.store.close()
        self._run._let_go()

    def end(self, status: str = "finished") -> None:
        self._run.close(status, measured=False)


def locks(folder: Path) -> int:
    return len(list((folder / ".ngraph").glob(".run-*.lock")))


def statuses(folder: Path) -> dict[str, str]:
    with Store.open(folder / ".ngraph" / "results.sqlite", read_only=True) as store:
        return {run.uid: run.status for run in store.runs()}


def test_what_others_are_measuring_is_left_to_them_and_what_was_interrupted_before_is_gone_on_with(
    tmp_path: Path,
) -> None:
    first = Run(tmp_path, "first", resume=False)
    second = Run(tmp_path, "second")
    assert second.uid == "second"
    assert [NOT_RESUMED in line or NEW in line for line in second.said] == [True, True]
    first.end("interrupted")

    third = Run(tmp_path, "third")

    assert third.uid == "first"
    assert NOT_RESUMED in third.said[0]
    assert third.said[1].startswith("resuming the run of ")
    assert statuses(tmp_path) == {"first": "running", "second": "running"}
    for run in (third, second):
        run.end()
    assert statuses(tmp_path) == {"first": "finished", "second": "finished"}
    assert locks(tmp_path) == 0


def test_a_run_that_finished_is_not_resumed_and_held_by_nobody(tmp_path: Path) -> None:
    Run(tmp_path, "first").end("interrupted")
    Run(tmp_path, "second", resume=False).end()
    third = Run(tmp_path, "third")
    assert (third.uid, third.said) == ("third", [NEW])
    assert locks(tmp_path) == 1


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"node": "board-b"}, "(name: board-a then, board-b now)"),
        ({"cpus": 8, "affinity": [0]}, "(cpus: 6 then, 8 now; cores: 2 then, 1 now)"),
    ],
)
def test_a_run_of_another_machine_is_not_resumed_and_stays_what_it_was(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    Run(tmp_path, "first", device="orin", **BOARD).end("interrupted")
    second = Run(tmp_path, "second", device="orin", **{**BOARD, **change})
    assert second.uid == "second"
    assert second.said[0].startswith("orin is not the machine that it was in the run of ")
    assert second.said[0].endswith(f", so it is not resumed {said}")
    assert second.said[1] == NEW
    second.end()
    with Store.open(tmp_path / ".ngraph" / "results.sqlite", read_only=True) as store:
        found = {run.uid: (run.status, run.on("orin").environment) for run in store.runs()}
    assert found == {"first": ("interrupted", BOARD), "second": ("finished", {**BOARD, **change})}
    assert locks(tmp_path) == 0


@pytest.mark.parametrize(
    "now",
    [BOARD, {**BOARD, "kernel": "6.2", "governor": "performance"}, {"node": "board-a"}, {"device": "xeon", "cpus": 64}],
    ids=["the same", "other software and a fact that was not known", "few facts", "a device that it did not have"],
)
def test_a_run_in_which_nothing_shows_another_machine_is_resumed(tmp_path: Path, now: dict[str, Any]) -> None:
    Run(tmp_path, "first", device="orin", **BOARD).end("interrupted")
    resumed = Run(tmp_path, "second", **{"device": "orin", **now})
    assert (resumed.uid, len(resumed.said)) == ("first", 1)


def test_what_other_devices_go_on_with_already_is_not_left_by_one_that_is_another_machine(tmp_path: Path) -> None:
    """In two runs half of what was asked for would be shown."""
    for device in ("orin", "xeon"):
        Run(tmp_path, "first", resume=False, device=device, **BOARD).end("interrupted")
    xeon = Run(tmp_path, "second", device="xeon", **BOARD)
    assert xeon.uid == "first"
    with pytest.raises(StoreError, match=r"is resumed on other devices, and orin is not .* without --ngraph-resume"):
        Run(tmp_path, "second", device="orin", **OTHER_BOARD)
    xeon.end("interrupted")
    assert statuses(tmp_path) == {"first": "interrupted"}

    orin = Run(tmp_path, "third", device="orin", **OTHER_BOARD)
    assert (orin.uid, Run(tmp_path, "third", device="xeon", **BOARD).uid) == ("third", "third")


def test_the_processes_of_one_run_go_on_with_another_one_together_and_nobody_else_does(tmp_path: Path) -> None:
    Run(tmp_path, "first").end("interrupted")
    one, other = Run(tmp_path, "second"), Run(tmp_path, "second")
    assert (one.uid, other.uid) == ("first", "first")
    third = Run(tmp_path, "third")
    assert third.uid == "third"
    one.end("interrupted")
    # The other one still measures.
    assert locks(tmp_path) == 2
    fourth = Run(tmp_path, "fourth")
    assert fourth.uid == "fourth"
    other.end("interrupted")
    third.end("finished")
    fourth.end("interrupted")
    assert locks(tmp_path) == 0
    assert Run(tmp_path, "fifth").uid == "fourth"


def test_the_processes_of_one_run_that_found_nothing_begin_one_together(tmp_path: Path) -> None:
    running = Run(tmp_path, "first")
    one = Run(tmp_path, "second")
    # What the first of them left alone is interrupted before the second of them looks.
    running.end("interrupted")
    assert (one.uid, Run(tmp_path, "second").uid) == ("second", "second")


def test_a_run_has_finished_when_the_last_of_its_processes_has(tmp_path: Path) -> None:
    """The others may still be killed, and then it can be resumed. One that begins late goes on with it."""
    one, other = (Run(tmp_path, "first", resume=False) for _ in range(2))
    one.end()
    assert statuses(tmp_path) == {"first": "running"}
    assert Run(tmp_path, "second").uid == "second"
    other.end()
    assert statuses(tmp_path)["first"] == "finished"
    late = Run(tmp_path, "first", resume=False)
    assert statuses(tmp_path)["first"] == "running"
    late.end()
    assert statuses(tmp_path)["first"] == "finished"


def test_a_run_whose_other_process_is_killed_after_one_came_to_its_end_is_resumed(tmp_path: Path) -> None:
    one, killed = (Run(tmp_path, "first", resume=False) for _ in range(2))
    one.end()
    killed.vanish()
    assert Run(tmp_path, "second").uid == "first"


def test_of_all_that_come_to_their_end_at_once_one_says_that_the_run_has_finished(tmp_path: Path) -> None:
    path, alone = tmp_path / "lock", Shared(tmp_path / "lock", "mine")
    assert alone.take()
    assert alone.is_last()
    assert not Shared(path, "theirs").take()
    alone.give_back()
    for _ in range(20):
        held = [Shared(path, "mine") for _ in range(8)]
        assert [each.take() for each in held] == [True] * len(held)
        with ThreadPoolExecutor(len(held)) as pool:
            told = list(pool.map(Shared.is_last, held))
        assert told.count(True) == 1
        for each in held:
            each.give_back()
        assert not path.exists()


HOLDER = """
import sys, time
from pathlib import Path
from pytest_ngraph.machine.turns import Shared
print(Shared(Path(sys.argv[1]), "theirs").take(), flush=True)
time.sleep(3600)
"""


def test_the_kernel_frees_the_lock_of_a_process_that_is_killed(tmp_path: Path) -> None:
    path = tmp_path / "lock"
    words = [sys.executable, "-c", HOLDER, str(path)]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "True\n"
        mine, theirs = Shared(path, "mine"), Shared(path, "theirs")
        assert not mine.take()
        assert theirs.take()
        holder.kill()
    assert not mine.take()
    theirs.give_back()
    assert not path.exists()
    assert mine.take()
    mine.give_back()
    assert not path.exists()


def test_a_lock_that_cannot_be_made_keeps_nobody_away(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a network file system without locks."""

    def refuse(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", refuse)
    first, second = Run(tmp_path, "first", resume=False), Run(tmp_path, "second")
    assert second.uid == "first"
    for run in (first, second):
        run.end()


def test_a_folder_that_cannot_be_written_keeps_nobody_away(tmp_path: Path) -> None:
    lock = Shared(tmp_path / "nowhere" / "lock", "mine")
    assert lock.take()
    lock.give_back()


def test_locks_of_runs_that_were_killed_long_ago_are_removed(tmp_path: Path) -> None:
    held = Run(tmp_path, "first", resume=False)
    folder = tmp_path / ".ngraph"
    names = {path.name for path in folder.glob(".run-*.lock")}
    for name in (".run-new.lock", ".run-old.lock"):
        (folder / name).touch()
    for path in folder.glob(".run-*.lock"):
        if path.name != ".run-new.lock":
            os.utime(path, (time.time() - 30 * 24 * 3600,) * 2)

    second = Run(tmp_path, "second", resume=False)

    left = {path.name for path in folder.glob(".run-*.lock")}
    assert names < left
    assert ".run-new.lock" in left
    assert ".run-old.lock" not in left
    for run in (second, held):
        run.end()
